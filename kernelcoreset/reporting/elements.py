"""HTML and SVG as text. What is not made here is escaped, so no text of a user can become markup."""

from __future__ import annotations

from html import escape
from typing import Any


class Html(str):
    """Text that is markup already. Only `element` and `join` make it from other texts."""

    __slots__ = ()


def join(*parts: Any) -> Html:
    """Return parts one after another; those that are not `Html` are escaped, None is left out.

    Examples
    --------
    >>> join(element("b", "1 < 2"), " & more")
    '<b>1 &lt; 2</b> &amp; more'
    """
    return Html("".join(part if isinstance(part, Html) else escape(str(part)) for part in parts if part is not None))


def element(tag: str, *children: Any, **attributes: Any) -> Html:
    """Return an element. An attribute that is None is left out; `class_` is `class`, `aria_label` is `aria-label`.

    Examples
    --------
    >>> element("td", "<script>", class_="number", title=None)
    '<td class="number">&lt;script&gt;</td>'
    """
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    shown = "".join(f' {name}="{escape(str(value))}"' for name, value in given.items())
    return Html(f"<{tag}{shown}>{join(*children)}</{tag}>")


def number(value: Any) -> str:
    """Return a number as people read it: whole ones with commas, others with four digits.

    Examples
    --------
    >>> number(1234567), number(0.123456), number(None)
    ('1,234,567', '0.1235', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.1f}" if 1_000 <= abs(value) < 1e9 else f"{value:.4g}"


def table(heads: list[str], rows: list[list[Any]], *, numeric: frozenset[int] | set[int] = frozenset()) -> Html:
    """Return a table; `numeric` are the columns that are aligned to the right."""
    side = ["number" if place in numeric else None for place in range(len(heads))]
    head = [element("th", text, scope="col", class_=side[place]) for place, text in enumerate(heads)]
    body = [element("tr", *(element("td", cell, class_=side[place]) for place, cell in enumerate(row))) for row in rows]
    return element(
        "div", element("table", element("thead", element("tr", *head)), element("tbody", *body)), class_="wide"
    )
