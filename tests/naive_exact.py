"""Slow, exact versions of kernels and of centers in decimals of 400 digits: the judge of what float64 makes of them.

A kernel comes as its plain form, the dict of `Kernel.to_dict`. Points are turned into decimals without rounding, so an
offset of 1e12 or a scale of 1e150 costs no digits here.
"""

from __future__ import annotations

import decimal
from decimal import Decimal

import numpy as np

CONTEXT = decimal.Context(prec=400, Emin=-999_999_999, Emax=999_999_999)
"""Enough to tell 1 from 1 + the square of 1e-150."""


def decimals(values):
    """The values of an array as decimals, none of them rounded."""
    return np.vectorize(Decimal, otypes=[object])(np.asarray(values, dtype=float))


def kernel_value(plain, x, y):
    """K(x, y) of two lists of decimals."""
    name = plain["kernel"]
    if name == "Sum":
        return kernel_value(plain["left"], x, y) + kernel_value(plain["right"], x, y)
    if name == "Product":
        return kernel_value(plain["left"], x, y) * kernel_value(plain["right"], x, y)
    if name == "Scaled":
        return Decimal(plain["factor"]) * kernel_value(plain["inner"], x, y)
    if name in ("Linear", "Polynomial", "Cosine"):
        inner = sum(a * b for a, b in zip(x, y, strict=True))
        if name == "Linear":
            return inner
        if name == "Polynomial":
            return (inner + Decimal(plain["c"])) ** plain["degree"]
        norms = (sum(a * a for a in x) * sum(b * b for b in y)).sqrt()
        return inner / norms if norms else Decimal(0)
    return _of_difference(plain, [a - b for a, b in zip(x, y, strict=True)])


def _of_difference(plain, difference):
    sigma = Decimal(plain["sigma"])
    if plain["kernel"] == "Laplacian":
        return (-sum(abs(t) for t in difference) / sigma).exp()
    squared = sum(t * t for t in difference)
    if plain["kernel"] == "Gaussian":
        return (-squared / (2 * sigma**2)).exp()
    if plain["kernel"] == "Exponential":
        return (-squared.sqrt() / (2 * sigma**2)).exp()
    if plain["kernel"] != "Matern":
        raise ValueError(f"No exact form of {plain['kernel']}.")
    a = (Decimal(2 * plain["nu"]) * squared).sqrt() / sigma
    return (1 + a + (a * a / 3 if plain["nu"] == 2.5 else 0)) * (-a).exp()


def squared_distances(plain, points, others):
    """K(x, x) + K(y, y) - 2 K(x, y) of shape (n, m), decimals."""
    with decimal.localcontext(CONTEXT):
        points, others = decimals(points), decimals(others)
        own = [kernel_value(plain, x, x) for x in points]
        other = [kernel_value(plain, y, y) for y in others]
        table = [
            [a + b - 2 * kernel_value(plain, x, y) for y, b in zip(others, other, strict=True)]
            for x, a in zip(points, own, strict=True)
        ]
    return np.array(table, dtype=object)


def distances_among(plain, points):
    """The same of all pairs of points, each computed once."""
    table = np.zeros((len(points), len(points)), dtype=object)
    for i in range(len(points)):
        table[i, : i + 1] = table[: i + 1, i] = squared_distances(plain, points[i : i + 1], points[: i + 1])[0]
    return table


def to_centers(table, own, coefficients):
    """Squared distances of n points to k centers, from those to the coreset points (n, s) and among these (s, s).

    Returns them and, of the same shape, the mean squared distance to the points of the center: float64 computes the
    first as a difference from the second, so its rounding is a share of that.
    """
    with decimal.localcontext(CONTEXT):
        rows = decimals(coefficients)
        rows = np.array([row / sum(row) for row in rows], dtype=object)
        means = table @ rows.T
        spreads = np.array([row @ own @ row for row in rows], dtype=object) / 2
        return means - spreads[None, :], means


def partition_cost(own, weights, labels):
    """Least sum of w d2(x, c) over centers, for clusters that are given, z = 2; from distances among the points."""
    with decimal.localcontext(CONTEXT):
        weights, cost = decimals(weights), Decimal(0)
        for cluster in np.unique(labels):
            members = np.flatnonzero(labels == cluster)
            w = weights[members]
            cost += (w @ own[np.ix_(members, members)] @ w) / sum(w) / 2
        return cost


def precise():
    """A context for arithmetic with decimals of this module."""
    return decimal.localcontext(CONTEXT)
