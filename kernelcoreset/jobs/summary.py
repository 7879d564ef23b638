"""What a person reads at the end of a run: a few lines made from its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelcoreset.coresets.certificate import in_words
from kernelcoreset.jobs.record import RunRecord, report_place
from kernelcoreset.reporting.verdict import UNKNOWN, cluster_verdict, coreset_verdict

_MOST_CLUSTERS = 20
_QUALITY = {
    "explained": "{:.0%} of the variance is between the clusters",
    "silhouette": "silhouette {:.2f}",
    "stability": "halves of the data agree to {:.2f}",
    "persistence": "persistence {:.2f}",
    "separation": "separation {:+.2f}",
}


def summary_of(record: RunRecord) -> str:
    """Return what came out of a run, in a few lines.

    The summary shows these values of the record, if a stage has added them: `rows`, `bad_rows`, `leaves`,
    `coreset_points`, `coreset_weight`, `kernel` (text), `cost` (on all rows), `coreset_cost`, `normalized_cut`,
    `cluster_sizes` (rows per cluster), `description` (that of `Description.to_dict`), `outcome` (text), `keys` (counts
    by name), `moved` (share of the weight),
    `certificate` (that of `Certificate.to_dict`), and the paths `coreset`, `model` and `output`.

    Examples
    --------
    >>> from kernelcoreset.jobs.settings.settings import Settings
    >>> tables = {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}
    >>> record = RunRecord("run", Settings.from_dict(tables), "labels.run.json")
    >>> record.add(rows=9, bad_rows=1)
    >>> print(summary_of(record))
    rows         9 (1 bad rows left out)
    record       labels.run.json
    report       labels.report.html
    """
    known = record.values
    lines = {
        "outcome": known.get("outcome"),
        "keys": _keys(known.get("keys")),
        "rows": _rows(known),
        "kernel": known.get("kernel"),
        "coreset": _coreset(known),
        "cost": _cost(known),
        "cut": _cut(known.get("normalized_cut")),
        "clusters": _clusters(known.get("cluster_sizes")),
        "described": _described(known.get("description")),
        "quality": _quality((known.get("description") or {}).get("quality")),
        "moved": _moved(known.get("moved")),
        **dict(in_words(known.get("certificate") or {})),
        "so": _follows(known),
        "coreset at": known.get("coreset"),
        "model at": known.get("model"),
        "output": known.get("output"),
        "record": record.path,
        "report": report_place(record.settings, record.path),
        "seconds": ", ".join(f"{s['stage']} {s['seconds']:.1f}" for s in record.stages if "/" not in s["stage"]),
    }
    return "\n".join(f"{name:<12} {text}" for name, text in lines.items() if text)


def _follows(known: Mapping[str, Any]) -> str | None:
    """What the reader can do with what was measured, a sentence below each other."""
    found = [
        coreset_verdict(known.get("certificate")),
        cluster_verdict((known.get("description") or {}).get("quality")),
    ]
    return f"\n{'':<13}".join(each.follows for each in found if each.light != UNKNOWN)


def _rows(known: Mapping[str, Any]) -> str | None:
    if "rows" not in known:
        return None
    bad = known.get("bad_rows")
    return f"{known['rows']:,}" + (f" ({bad:,} bad rows left out)" if bad else "")


def _keys(counts: Mapping[str, int] | None) -> str | None:
    found = [f"{count:,} {name.replace('_', ' ')}" for name, count in (counts or {}).items() if count]
    return ", ".join(found)


def _described(description: Mapping[str, Any] | None) -> str | None:
    """The sentences about the clusters, one per line, below each other."""
    count = 0 if not description else min(len(description["clusters"]), _MOST_CLUSTERS)
    return f"\n{'':<13}".join(description["sentences"][:count]) if description else None


def _quality(quality: Mapping[str, float | None] | None) -> str | None:
    """The figures of all clusters together; the report and `describe` say what each of them means."""
    return ", ".join(
        form.format(quality[name]) for name, form in _QUALITY.items() if quality and quality.get(name) is not None
    )


def _moved(share: float | None) -> str | None:
    return None if share is None else f"{share:.2%} of the weight is in another cluster than before"


def _coreset(known: Mapping[str, Any]) -> str | None:
    if "coreset_points" not in known:
        return None
    weight = f", total weight {known['coreset_weight']:,.0f}" if "coreset_weight" in known else ""
    leaves = f", from {known['leaves']:,} leaves" if "leaves" in known else ""
    return f"{known['coreset_points']:,} points{weight}{leaves}"


def _cost(known: Mapping[str, Any]) -> str | None:
    cost, estimate = known.get("cost"), known.get("coreset_cost")
    if cost is None:
        return None if estimate is None else f"{estimate:.6g} on the coreset"
    if estimate is None:
        return f"{cost:.6g} on all rows"
    off = f" ({abs(estimate - cost) / cost:.2%} off)" if cost > 0 else ""
    return f"{cost:.6g} on all rows; the coreset says {estimate:.6g}{off}"


def _cut(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}, the normalized cut as the coreset estimates it"


def _clusters(sizes: list[int] | None) -> str | None:
    if not sizes:
        return None
    total = sum(sizes) or 1
    shown = ", ".join(f"{label}: {size:,} ({size / total:.1%})" for label, size in enumerate(sizes[:20]))
    return shown + (f", and {len(sizes) - 20} more" if len(sizes) > 20 else "")
