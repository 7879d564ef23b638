"""Sums of kernel values in a few directions and their bounds, one center and one point at a time, for tests."""

import math

import numpy as np


def sums(level, row):
    """Return (middle, half) for each center: the sum of a_j K(x, s_j) is within half of middle, without rounding."""
    few, rate = level.points.shape[1], level.rate
    axes = level.axes[:few].astype(float)
    x = np.asarray(row, dtype=float) - level.frame.mean
    left = x - axes.T @ (axes @ x)
    which, point, factors = level.centers.entries
    found = []
    for c in range(len(level.offsets)):
        own = np.flatnonzero(which == c)
        vectors, a = level.centers.points[point[own]] - level.frame.mean, factors[own]
        middle = sum(a_j * s for a_j, s in zip(a, vectors, strict=True))
        values, rests = [], []
        for s in vectors:
            part = axes @ (s - middle)
            inner = x @ middle + (axes @ x) @ part
            values.append(math.exp(-rate * (x @ x + s @ s - 2.0 * inner)))
            rests.append(s - middle - axes.T @ part)
        total = sum(a_j * value for a_j, value in zip(a, values, strict=True))
        spread = math.sqrt(sum(a_j * (value - total) ** 2 for a_j, value in zip(a, values, strict=True)))
        matrix = sum(a_j * np.outer(q, q) for a_j, q in zip(a, rests, strict=True))
        size = 2.0 * rate * np.linalg.norm(left) * math.sqrt(np.linalg.eigvalsh(matrix)[-1])
        largest = 2.0 * rate * np.linalg.norm(left) * level.rest.longest
        most = max(values) * (math.exp(largest) if largest < 700.0 else math.inf) * size**2 / 2.0
        found.append((total + most / 2.0, spread * size + most / 2.0))
    return found
