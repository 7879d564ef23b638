"""The sections of the page, each made from the record of a run. A section without data is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kernelcoreset.reporting.charts import bars, line, scatter, stacked
from kernelcoreset.reporting.elements import Html, element, join, number, table
from kernelcoreset.reporting.reproduce import command_of, settings_text
from kernelcoreset.reporting.style import cluster_class
from kernelcoreset.reporting.verdict import Verdict, cluster_verdict, confidence_in_words, coreset_verdict

Record = Mapping[str, Any]
Section = Callable[[Record], Html | None]

_MOST_CLUSTERS = 100
_MOST_KEYS = 30
_MOST_ROWS = 20


def verdict(record: Record) -> Html | None:
    """Return two lights: how good the coreset is, and how good the clusters are."""
    if record.get("error"):
        return element("p", element("strong", "The run failed. "), record["error"])
    certificate = record.get("certificate") or {}
    quality = (record.get("description") or {}).get("quality") or {}
    notes = [*_proved(certificate), *_cost(record)]
    more = [f"{name}: {text}" for name, text in _quality(quality)]
    return element(
        "div",
        _light("Coreset error", coreset_verdict(certificate), notes),
        _light("Cluster quality", cluster_verdict(quality), more),
        class_="lights",
    )


def _light(title: str, found: Verdict, notes: Iterable[str]) -> Html:
    state = element("p", element("span", found.light.upper(), class_="state"), f": {found.state}")
    small = [element("p", note, class_="muted") for note in notes]
    return element(
        "div", element("h3", title), state, element("p", found.follows), *small, class_=f"light {found.light}"
    )


def _proved(certificate: Mapping[str, Any]) -> Iterable[str]:
    measured, meaning = certificate, certificate.get("meaning") or {}
    if measured.get("largest_error") is not None:
        on = f", on {measured['fraction']:.1%} of the rows" if measured.get("fraction", 1.0) < 1 else ""
        yield f"Measured over {number(measured.get('center_sets'))} sets of centers{on}."
    if meaning.get("times_optimum") is not None:
        sure = confidence_in_words(certificate.get("proved") or {})
        yield f"Proved: the clustering costs at most {meaning['times_optimum']:.3g} times the best possible one{sure}."


def _cost(record: Record) -> Iterable[str]:
    cost, estimate = record.get("cost"), record.get("coreset_cost")
    if cost and estimate is not None:
        off = f"{abs(estimate / cost - 1):.2%} off"
        yield f"The clusters cost {cost:.6g} on all rows; the coreset said {estimate:.6g}, {off}."
    if record.get("normalized_cut") is not None:
        yield f"Normalized cut {record['normalized_cut']:.4g}, as the coreset estimates it."
    if record.get("exact_normalized_cut") is not None:
        yield f"Normalized cut {record['exact_normalized_cut']:.4g}."


def _quality(quality: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    known = {name: value for name, value in quality.items() if value is not None}
    if "explained" in known:
        yield "Variance explained", f"{known['explained']:.0%} of it lies between the clusters"
    if "silhouette" in known:
        yield "Silhouette", f"{known['silhouette']:.2f} (1: every row at its center; 0: halfway to another)"
    if "persistence" in known:
        yield "Persistence", f"{known['persistence']:.2f} (1: near rows share their cluster; 0: by chance)"
    if "separation" in known:
        yield (
            "Separation",
            f"{known['separation']:+.2f} (how much farther apart than in data without clusters; 0: not at all)",
        )


def clusters(record: Record) -> Html | None:
    """Return a row per cluster: its size, what sets it apart, and a typical row."""
    described = (record.get("description") or {}).get("clusters")
    if described:
        largest = max(each["share"] for each in described)
        rows = [
            [
                _chip(each["cluster"]),
                number(round(each["size"])),
                _share(each["cluster"], each["share"], largest),
                _differences(each["differences"]),
                element("div", _row(each["typical"][0]), class_="muted") if each.get("typical") else "",
            ]
            for each in described[:_MOST_CLUSTERS]
        ]
        return table(["cluster", "rows", "share", "what sets it apart", "a typical row"], rows, numeric={1, 2})
    sizes = record.get("cluster_sizes")
    if not sizes:
        return None
    total = sum(sizes) or 1
    largest = max(sizes) / total
    rows = [[_chip(place), number(size), _share(place, size / total, largest)] for place, size in enumerate(sizes)]
    found = table(["cluster", "rows", "share"], rows[:_MOST_CLUSTERS], numeric={1, 2})
    left = len(sizes) - _MOST_CLUSTERS
    return found if left <= 0 else join(found, element("p", f"And {left:,} more.", class_="muted"))


def _chip(cluster: int) -> Html:
    return element("span", cluster, class_=f"chip {cluster_class(cluster)}")


def _share(cluster: int, share: float, largest: float) -> Html:
    """A share in digits, and as a bar below them; that of the largest share fills the column."""
    length = 100 * share / (largest or 1.0)
    bar = element("span", class_=f"bar {cluster_class(cluster)}", style=f"width:{length:.1f}%")
    return element("div", f"{share:.1%}", bar, class_="share")


def _differences(found: Iterable[Mapping[str, Any]]) -> Html | str:
    told = []
    for each in found:
        if "value" in each:
            text = f" is {each['value']} in {each['share']:.0%} (all rows {each['overall']:.0%})"
        else:
            side = "high" if each["difference"] > 0 else "low"
            text = f" {side}: {number(each['mean'])} (all rows {number(each['overall'])})"
        told.append(element("li", element("strong", each["column"]), text))
    return element("ul", *told, class_="plain apart") if told else "like all rows in every column"


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in row.items())


def picture(record: Record) -> Html | None:
    """Return the coreset in the plane: by the two leading components of the kernel, and by two columns or on a map."""
    found = record.get("picture")
    if not found:
        return None
    labels, weights, charts = found["labels"], found["weights"], []
    place = found.get("columns")
    if place:
        charts.append(
            _figure(
                scatter(
                    place["x"], place["y"], labels, weights, names=place["names"],
                    title=f"Coreset points by {place['names'][0]} and {place['names'][1]}", aspect=place.get("aspect"),
                ),
                "Every dot is a point of the coreset; its area is the number of rows that it stands for.",
            )
        )  # fmt: skip
    parts = found["components"]
    shares = " and ".join(f"{share:.0%}" for share in parts["shares"])
    charts.append(
        _figure(
            scatter(
                parts["x"], parts["y"], labels, weights, names=("first component", "second component"),
                title="Coreset points by the two leading components",
            ),
            f"The two leading components {parts['of']} show {shares} of the variance. "
            "Clusters that overlap here may lie apart in the others.",
        )
    )  # fmt: skip
    return element("div", *charts, class_="charts")


def _figure(chart: Html, text: str) -> Html:
    return element("figure", chart, element("figcaption", text))


def choice(record: Record) -> Html | None:
    """Return where the number of clusters is from, and how the run chose the width of the kernel, if it did."""
    found, tables = record.get("choice"), record.get("settings") or {}
    k = (tables.get("cluster") or {}).get("k") or (tables.get("coreset") or {}).get("k")
    given = f"The number of clusters, {k}, is from the settings; kernelcoreset.explore says which numbers stand out."
    if not found:
        return element("p", given) if k else None
    told = join(element("p", found["reason"]), element("p", given) if k else None)
    if not found.get("widths"):
        return told
    chart = line(
        list(zip(found["widths"], found["persistences"], strict=True)),
        names=("width sigma", "persistence"),
        title="Persistence of the clusters by the width of the kernel",
        marked=found["sigma"],
    )
    return join(
        told,
        element("div", _figure(chart, "Persistence by width: 1 if near rows share their cluster."), class_="charts"),
    )


def unusual(record: Record) -> Html | None:
    """Return rows on a border between clusters, and rows far from all others."""
    described = record.get("description") or {}
    parts = []
    for name, key, title, text in (
        (
            "borderline",
            "margin",
            "Borderline rows",
            "Nearly as near to another cluster. The margin is how much nearer their own is.",
        ),
        ("far", "outlier_score", "Far rows", "Farthest from their center, in typical distances of their cluster."),
    ):
        found = described.get(name)
        if found:
            rows = [[number(each[key]), _row(each["row"])] for each in found[:_MOST_ROWS]]
            parts += [
                element("h3", title),
                element("p", text, class_="muted"),
                table([key.replace("_", " "), "row"], rows, numeric={0}),
            ]
    return join(*parts) if parts else None


def warnings(record: Record) -> Html | None:
    """Return what the run warned of, and rows that were left out."""
    told = list(record.get("warnings") or ())
    if record.get("bad_rows"):
        by = {name: count for name, count in (record.get("bad_columns") or {}).items() if count}
        where = f" ({', '.join(f'{name}: {count:,}' for name, count in by.items())})" if by else ""
        told.append(f"{record['bad_rows']:,} bad rows were left out{where}.")
    if record.get("nodes_without_edges"):
        told.append(f"{record['nodes_without_edges']:,} nodes have no edges and no cluster.")
    if not told:
        return element("p", "None.")
    return element("ul", *(element("li", text) for text in told), class_="plain")


def runs(record: Record) -> Html | None:
    """Return what has changed since the run before, and the clusters over time."""
    before = list(record.get("history") or ())
    if not before:
        return None
    now, last = before[-1], before[-2] if len(before) > 1 else None
    parts: list[Html] = []
    if record.get("moved") is not None:
        kept = 1.0 - record["moved"]
        parts.append(
            element(
                "p",
                f"{kept:.1%} of the weight is in the same cluster as in the run before; clusters keep their numbers.",
            )
        )
    if last is None:
        parts.append(element("p", "This is the first run with a report here. The next one is compared with it."))
    else:
        names = {
            "rows": "rows",
            "cost": "cost",
            "coreset_cost": "cost on the coreset",
            "largest_error": "coreset error",
            "seconds": "seconds",
        }
        shown = {"largest_error": lambda error: "" if error is None else f"{error:.2%}"}
        rows = [
            [text, *(shown.get(name, number)(run.get(name)) for run in (last, now))]
            for name, text in names.items()
            if now.get(name) is not None
        ]
        parts.append(table(["", f"run before, {_day(last)}", f"this run, {_day(now)}"], rows, numeric={1, 2}))
    shared = [(_day(each), each["shares"]) for each in before if each.get("shares")]
    if len(shared) > 1:
        chart = stacked(shared, "Share of each cluster by run")
        parts.append(
            element(
                "div",
                _figure(chart, f"Share of each cluster in all rows, in the last {len(shared)} runs."),
                class_="charts",
            )
        )
    return join(*parts, _keys(record))


def _day(entry: Mapping[str, Any]) -> str:
    return str(entry.get("finished", ""))[:16].replace("T", " ")


def _keys(record: Record) -> Html | None:
    """The keys of an update that changed."""
    rows = [
        [
            name.replace("_", " "),
            number(len(keys)),
            ", ".join(keys[:_MOST_KEYS]) + (", ..." if len(keys) > _MOST_KEYS else ""),
        ]
        for name, keys in (record.get("changes") or {}).items()
        if keys
    ]
    return table(["keys of the input", "number", "which"], rows, numeric={1}) if rows else None


def time(record: Record) -> Html | None:
    """Return where the time went."""
    stages = record.get("stages")
    if not stages:
        return None
    outer = [each for each in stages if "/" not in each["stage"]]
    rows = []
    for each in outer:
        rows.append((each["stage"], each["seconds"], f"{each['seconds']:.1f} s"))
        inner = [part for part in stages if part["stage"].startswith(f"{each['stage']}/")]
        rows += [(f"· {part['stage'].split('/', 1)[1]}", part["seconds"], f"{part['seconds']:.1f} s") for part in inner]
    total = record.get("seconds") or sum(each["seconds"] for each in outer)
    rate = f", {record['rows'] / total:,.0f} rows per second" if record.get("rows") and total else ""
    text = element("p", f"{total:,.1f} seconds in all{rate}. The start of Spark is “session”.")
    return join(text, element("div", element("figure", bars(rows, "Seconds of each stage")), class_="charts"))


def settings(record: Record) -> Html | None:
    """Return settings and versions. Options that may be secrets are hidden in the record already."""
    versions = ", ".join(f"{name} {text}" for name, text in (record.get("versions") or {}).items() if text)
    text = settings_text(record.get("settings") or {})
    return join(
        element("p", versions) if versions else None,
        element("details", element("summary", "All settings of this run"), element("pre", text)) if text else None,
    )


def reproduce(record: Record) -> Html | None:
    """Return the commands that make the same run and the same page again."""
    return join(
        element("p", "The same settings on the same rows give the same clusters: all random numbers come from the seed "
                f"({number(record.get('seed'))}). Save the settings above as settings.toml:"),
        element("pre", command_of(record)),
    )  # fmt: skip


SECTIONS: tuple[tuple[str, Section], ...] = (
    ("Verdict", verdict),
    ("Clusters", clusters),
    ("Map", picture),
    ("Choice of k and width", choice),
    ("Borderline and far rows", unusual),
    ("Warnings", warnings),
    ("Against the run before", runs),
    ("Where the time went", time),
    ("Settings and versions", settings),
    ("How to reproduce", reproduce),
)
"""Title and function of every section, in their order on the page."""
