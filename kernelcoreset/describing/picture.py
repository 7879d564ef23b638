"""A coreset in the plane: by the two leading components of its kernel, and by two columns if there are such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.points import distances_among
from kernelcoreset.kernels.families import Linear
from kernelcoreset.kernels.kernel import Kernel

_MOST_POINTS = 1_000
_DIGITS = 4
_LONGITUDE = ("longitude", "long", "lon", "lng")
_LATITUDE = ("latitude", "lat")


def picture_of(
    points: Floats,
    weights: Floats,
    labels: NDArray[Any],
    kernel: Kernel | None,
    columns: Mapping[str, NDArray[Any]] | None = None,
    *,
    counts: Floats | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return where the points of a coreset are in the plane, as plain data; at most 1,000 of them.

    Parameters
    ----------
    points : ndarray of shape (s, d)
    weights : ndarray of shape (s,)
    labels : ndarray of shape (s,)
    kernel : Kernel or None
        Of the components; without one, those of the points themselves.
    columns : mapping of str to ndarray of shape (s,), optional
        Numbers by the names of columns. Longitude and latitude are drawn as a map; of other columns, two are drawn if
        there are just two.
    counts : ndarray of shape (s,), optional
        How many rows each point stands for; the weights by default.
    seed : int

    Returns
    -------
    dict
        `labels`, `weights`, `components` (`x`, `y`, their `shares` of the variance, and what they are components `of`)
        and `columns` (`x`, `y`, `names` and, for a map, `aspect`).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset.kernels import Gaussian
    >>> found = picture_of(np.array([[0.0], [1.0], [9.0]]), np.ones(3), np.array([0, 0, 1]), Gaussian(sigma=2.0))
    >>> [round(abs(x), 1) for x in found["components"]["x"]]
    [0.5, 0.5, 0.9]
    """
    chosen = np.arange(len(points))
    if len(points) > _MOST_POINTS:
        chosen = np.sort(np.random.default_rng(seed).choice(len(points), _MOST_POINTS, replace=False))
    of = "of the rows" if kernel is None else "in the feature space of the kernel"
    places, shares = leading_components(points[chosen], weights[chosen], kernel or Linear())
    shown = (weights if counts is None else counts)[chosen]
    found: dict[str, Any] = {
        "labels": labels[chosen].tolist(),
        "weights": _rounded(shown),
        "components": {"x": _rounded(places[0]), "y": _rounded(places[1]), "shares": _rounded(shares), "of": of},
    }
    pair = _pair(columns or {})
    if pair is not None and columns is not None:
        x, y = (np.asarray(columns[name], dtype=np.float64)[chosen] for name in pair)
        found["columns"] = {"names": list(pair), "x": _rounded(x, 6), "y": _rounded(y, 6)}
        if pair[1].lower() in _LATITUDE:
            # A degree of longitude is shorter away from the equator; so a map is not stretched.
            found["columns"]["aspect"] = float(np.cos(np.radians(np.clip(np.average(y, weights=shown), -70.0, 70.0))))
    return found


def leading_components(points: Floats, weights: Floats, kernel: Kernel) -> tuple[Floats, Floats]:
    """Return the points by their two leading kernel principal components, shape (2, n), and the shares of the variance.

    The components are those of the weighted points in the feature space of the kernel: eigenvectors of the centered
    Gram matrix, by O(n^3). The sign of a component is such that its largest value is positive.
    """
    from scipy.linalg import eigh  # slow to import, and executors never draw

    n, share = len(points), weights / weights.sum()
    squared = distances_among(kernel, points)
    means = squared @ share
    gram = 0.5 * (means[:, np.newaxis] + means - squared - share @ means)
    root = np.sqrt(share)
    total = float(share @ np.diag(gram))
    if n < 2 or not total > 0.0:
        return np.zeros((2, n)), np.zeros(2)
    found, vectors = eigh(root[:, np.newaxis] * gram * root, subset_by_index=[max(n - 2, 0), n - 1])
    found, vectors = np.maximum(found[::-1], 0.0), vectors[:, ::-1]
    # A direction scaled by the root of its variance, with the weights taken out again.
    places = (vectors * np.sqrt(found) / root[:, np.newaxis]).T
    largest = places[np.arange(2), np.abs(places).argmax(axis=1)]
    return places * np.where(largest < 0.0, -1.0, 1.0)[:, np.newaxis], found / total


def _pair(columns: Mapping[str, Any]) -> tuple[str, str] | None:
    """The two columns to draw."""
    across = next((name for name in columns if name.lower() in _LONGITUDE), None)
    down = next((name for name in columns if name.lower() in _LATITUDE), None)
    if across is not None and down is not None:
        return across, down
    names = tuple(columns)
    return (names[0], names[1]) if len(names) == 2 else None


def _rounded(values: Floats, digits: int = _DIGITS) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values]
