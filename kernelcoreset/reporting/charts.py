"""Charts as inline SVG: no script, no network, and colours by the style sheet, so that they follow the scheme."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelcoreset.reporting.elements import Html, element, join, number
from kernelcoreset.reporting.style import cluster_class

_WIDTH, _HEIGHT = 520, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 26, 34
_SMALLEST, _LARGEST = 1.6, 7.0  # radius of a point


def scatter(
    x: Sequence[float],
    y: Sequence[float],
    labels: Sequence[int],
    weights: Sequence[float],
    *,
    names: Sequence[str],
    title: str,
    aspect: float | None = None,
) -> Html:
    """Return points in the plane, colored by cluster, their area by weight, with the number of each cluster in it.

    Parameters
    ----------
    x, y, labels, weights : sequences of equal lengths
    names : two str
        What the axes show.
    title : str
        Read aloud in place of the chart.
    aspect : float, optional
        Length of a unit of x by that of a unit of y; by default both axes fill the chart.
    """
    across, down = _scales(x, y, aspect)
    largest = max(weights, default=1.0) or 1.0
    groups = []
    for cluster in sorted(set(labels)):
        own = [place for place, label in enumerate(labels) if label == cluster]
        dots = [
            f'<circle cx="{across(x[i]):.1f}" cy="{down(y[i]):.1f}" r="{_radius(weights[i] / largest):.1f}"/>'
            for i in own
        ]
        groups.append(element("g", Html("".join(dots)), class_=f"dots {cluster_class(cluster)}"))
    marks = [
        element(
            "text", cluster, x=f"{across(at[0]):.1f}", y=f"{down(at[1]) + 5:.1f}", text_anchor="middle", class_="mark"
        )
        for cluster, at in _centers(x, y, labels, weights).items()
    ]
    return _svg(title, join(_axes(across, down, names), *groups, *marks))


def bars(rows: Sequence[tuple[str, float, str]], title: str) -> Html:
    """Return horizontal bars: their name, length and the text after them."""
    longest = max((length for _, length, _ in rows), default=0.0) or 1.0
    step, left, right = 24, 150, 70
    shown = []
    for place, (name, length, text) in enumerate(rows):
        middle, width = 10 + step * place + step / 2, (_WIDTH - left - right) * length / longest
        shown += [
            element("text", name, x=left - 8, y=f"{middle + 4:.0f}", text_anchor="end"),
            element("rect", x=left, y=f"{middle - 8:.0f}", width=f"{max(width, 1):.1f}", height=16, rx=3, class_="c0"),
            element("text", text, x=f"{left + max(width, 1) + 6:.1f}", y=f"{middle + 4:.0f}", class_="tick"),
        ]
    return _svg(title, join(*shown), height=20 + step * len(rows))


def stacked(columns: Sequence[tuple[str, Sequence[float]]], title: str) -> Html:
    """Return a column per run, divided into clusters by their share; the first and the last have their name below."""
    height, step = 280, (_WIDTH - _LEFT - _RIGHT) / max(len(columns), 1)
    width, tall = min(step * 0.86, 60.0), height - _TOP - _BOTTOM
    parts: list[Html] = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        level = height - _BOTTOM - tall * share
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=f"{level:.1f}", y2=f"{level:.1f}", class_="grid"))
        parts.append(
            element("text", f"{share:.0%}", x=_LEFT - 6, y=f"{level + 4:.1f}", text_anchor="end", class_="tick")
        )
    for place, (_, shares) in enumerate(columns):
        left, top = _LEFT + step * place + (step - width) / 2, float(height - _BOTTOM)
        total = sum(shares) or 1.0
        for cluster, share in enumerate(shares):
            size = tall * share / total
            top -= size
            parts.append(
                element(
                    "rect", x=f"{left:.1f}", y=f"{top:.1f}", width=f"{width:.1f}", height=f"{max(size - 1, 0):.1f}",
                    class_=cluster_class(cluster),
                )
            )  # fmt: skip
            if place == len(columns) - 1 and size > 14:
                middle = {"x": f"{left + width / 2:.1f}", "y": f"{top + size / 2 + 5:.1f}"}
                parts.append(element("text", cluster, **middle, text_anchor="middle", class_="mark"))
    ends = {0: "start", len(columns) - 1: "end"} if len(columns) > 1 else {0: "middle"}
    for place, anchor in ends.items():
        at = {"start": _LEFT, "end": _WIDTH - _RIGHT, "middle": _LEFT + step / 2}[anchor]
        parts.append(element("text", columns[place][0], x=at, y=height - 12, text_anchor=anchor, class_="tick"))
    return _svg(title, join(*parts), height=height)


def line(points: Sequence[tuple[float, float]], *, names: Sequence[str], title: str, marked: float | None) -> Html:
    """Return a line through points, with a circle at the one whose x is `marked`."""
    x, y = [p[0] for p in points], [p[1] for p in points]
    across, down = _scales(x, [0.0, *y], None)
    path = " ".join(f"{'L' if place else 'M'}{across(a):.1f} {down(b):.1f}" for place, (a, b) in enumerate(points))
    dots = [
        element("circle", cx=f"{across(a):.1f}", cy=f"{down(b):.1f}", r=8 if a == marked else 4, class_="c0")
        for a, b in points
    ]
    return _svg(title, join(_axes(across, down, names), element("path", d=path, class_="trend"), *dots))


def _svg(title: str, content: Html, height: float = _HEIGHT) -> Html:
    box = f"0 0 {_WIDTH} {height:.0f}"
    # Not by `element`: SVG has names with capitals.
    return Html(f'<svg viewBox="{box}" role="img" {join(Html("aria-label="), _quoted(title))}>{content}</svg>')


def _quoted(text: str) -> Html:
    return Html(f'"{join(text)}"')


class _Scale:
    """From numbers of the data to places on the chart."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self.start, self.end = low, high, start, end

    def __call__(self, value: float) -> float:
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


def _scales(x: Sequence[float], y: Sequence[float], aspect: float | None) -> tuple[_Scale, _Scale]:
    (left, right), (low, high) = _range(x), _range(y)
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    if aspect is not None:  # widen the shorter side, so that nothing is stretched
        per_x, per_y = wide / (right - left), tall / (high - low)
        if per_x > per_y * aspect:
            more = (wide / (per_y * aspect) - (right - left)) / 2
            left, right = left - more, right + more
        else:
            more = (tall / (per_x / aspect) - (high - low)) / 2
            low, high = low - more, high + more
    return _Scale(left, right, _LEFT, _WIDTH - _RIGHT), _Scale(low, high, _HEIGHT - _BOTTOM, _TOP)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.03 * (high - low) or max(abs(low), 1.0) * 0.5
    return low - margin, high + margin


def _axes(across: _Scale, down: _Scale, names: Sequence[str]) -> Html:
    parts = []
    for tick in _ticks(across.low, across.high):
        at = f"{across(tick):.1f}"
        parts.append(element("line", x1=at, x2=at, y1=_TOP, y2=_HEIGHT - _BOTTOM, class_="grid"))
        parts.append(element("text", number(tick), x=at, y=_HEIGHT - _BOTTOM + 14, text_anchor="middle", class_="tick"))
    for tick in _ticks(down.low, down.high):
        at = f"{down(tick):.1f}"
        parts.append(element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(
            element("text", number(tick), x=_LEFT - 5, y=f"{down(tick) + 4:.1f}", text_anchor="end", class_="tick")
        )
    parts.append(element("text", names[0], x=_WIDTH - _RIGHT, y=_HEIGHT - 6, text_anchor="end"))
    parts.append(element("text", names[1], x=_LEFT, y=_TOP - 9))  # above the points
    return join(*parts)


def _ticks(low: float, high: float) -> list[float]:
    """A few round numbers within a range."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(times for times in (1, 2, 5, 10) if (high - low) / (step * times) <= 6)
    first = math.ceil(low / step)
    return [round(step * place, 12) for place in range(first, math.floor(high / step) + 1)]


def _radius(share: float) -> float:
    return _SMALLEST + (_LARGEST - _SMALLEST) * math.sqrt(max(share, 0.0))


def _centers(
    x: Sequence[float], y: Sequence[float], labels: Sequence[int], weights: Sequence[float]
) -> dict[int, tuple[float, float]]:
    """The place of each cluster's number: the weighted median, which is where its points are."""
    found = {}
    for cluster in sorted(set(labels)):
        own = [place for place, label in enumerate(labels) if label == cluster]
        of = [weights[i] for i in own]
        found[cluster] = (_median([x[i] for i in own], of), _median([y[i] for i in own], of))
    return found


def _median(values: Sequence[float], weights: Sequence[float]) -> float:
    order = sorted(range(len(values)), key=values.__getitem__)
    half, running = sum(weights) / 2, 0.0
    for place in order:
        running += weights[place]
        if running >= half:
            return values[place]
    return values[order[-1]]
