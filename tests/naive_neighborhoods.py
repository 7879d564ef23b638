"""The search among near centers, one center at a time: slow and obvious, for tests."""

import math

import numpy as np


def search(kernel, near, row, rounding, both, roundings):
    """Return (label, first, second, sure) of one row, from the lists of `near`."""

    def squared(point):
        return max(kernel(row, row) + kernel(point, point) - 2.0 * kernel(row, point), 0.0)

    heads, pivots, points = (cloud.columns.T for cloud in (near.heads, near.pivots, near.points))
    head = min(range(len(heads)), key=lambda h: squared(heads[h]))
    pivot = min(range(near.starts[head], near.starts[head + 1]), key=lambda p: squared(pivots[p]))
    reach = math.sqrt(squared(pivots[pivot]) + rounding)
    found = []  # (squared distance, center)
    beyond = None
    for c, apart in zip(near.centers[pivot], near.apart[pivot], strict=False):
        best = sorted(found)[: 2 if both else 1]
        lower = max(apart - reach, 0.0) ** 2
        if len(best) == (2 if both else 1) and lower > best[-1][0] + roundings * rounding:
            beyond = lower
            break
        own = range(near.ends[c], near.ends[c + 1])
        found.append((sum(near.factors[j] * squared(points[j]) for j in own) - near.spreads[c], int(c)))
    if beyond is None:
        beyond = max(near.apart[pivot, -1] - reach, 0.0) ** 2
    found.sort()
    first, label = found[0]
    second = found[1][0] if len(found) > 1 else np.inf
    sure = min(second, beyond) - first > roundings * rounding and (not both or beyond > second + roundings * rounding)
    return label, first, second, sure
