"""What notebooks show of models, coresets and results: small cards with a table or a chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelcoreset.reporting.charts import scatter
from kernelcoreset.reporting.elements import Html, element, number, table
from kernelcoreset.reporting.style import card_css, cluster_class
from kernelcoreset.reporting.verdict import UNKNOWN, Verdict


def card(title: str, facts: Mapping[str, Any], *parts: Html | None) -> str:
    """Return a card for a notebook: a title, named facts, and parts below them.

    It brings its own colours, light and dark, because a page cannot know those of the notebook.

    Examples
    --------
    >>> "<b>3</b>" in card("Coreset", {"points": 3})
    True
    """
    listed = [
        element("li", element("b", number(value)), element("span", name, class_="kc-muted"))
        for name, value in facts.items()
        if value is not None
    ]
    head = element("p", element("strong", title))
    style = Html(f"<style>{card_css()}</style>")
    return element("div", style, head, element("ul", *listed, class_="kc-facts"), *parts, class_="kc-card")


def shares_table(shares: Sequence[float], more: Mapping[str, Sequence[Any]]) -> Html:
    """Return a row per cluster with its share of the weight, and further columns by name."""
    rows = [
        [element("span", cluster, class_=f"kc-chip {cluster_class(cluster)}"), f"{share:.1%}"]
        + [number(column[cluster]) for column in more.values()]
        for cluster, share in enumerate(shares)
    ]
    return table(["cluster", "share", *more], rows, numeric=set(range(1, 2 + len(more))))


def picture_chart(picture: Mapping[str, Any]) -> Html:
    """Return the coreset as a chart, from what `picture_of` gives."""
    plane = picture.get("columns")
    names = plane["names"] if plane else ["first component", "second component"]
    chosen = plane or picture["components"]
    return scatter(
        chosen["x"],
        chosen["y"],
        picture["labels"],
        picture["weights"],
        names=names,
        title=f"Coreset points by {names[0]} and {names[1]}",
        aspect=chosen.get("aspect"),
    )


def verdicts(found: Mapping[str, Verdict]) -> Html:
    """Return lights with their sentences; those that say nothing are left out."""
    told = [
        element("li", element("strong", f"{name}: {each.light}"), f" ({each.state}). {each.follows}")
        for name, each in found.items()
        if each.light != UNKNOWN
    ]
    return element("ul", *told)


def sentences(texts: Iterable[str]) -> Html:
    """Return sentences as a list."""
    return element("ul", *(element("li", text) for text in texts))
