"""Polynomials in the cells of a grid, point by point in plain Python: slow and obvious."""

import math

import numpy as np


def exponents(d, degree):
    """Exponents of all monomials of at most this degree, by size, the first coordinates first."""
    found = {()}
    for _ in range(d):
        found = {(*some, e) for some in found for e in range(degree + 1)}
    return sorted((e for e in found if sum(e) <= degree), key=lambda e: (sum(e), [-each for each in e]))


def squared_distances(grid, k, point):
    """Squared distances to all centers by the polynomials of the point's cell; None outside the grid."""
    places = [math.floor((x - low) / grid.side) for x, low in zip(point, grid.low, strict=True)]
    if not all(0 <= place < count for place, count in zip(places, grid.counts, strict=True)):
        return None
    cell = 0
    for place, count in zip(places, grid.counts, strict=True):
        cell = cell * int(count) + place
    middles = [grid.low[j] + (place + 0.5) * grid.side for j, place in enumerate(places)]
    local = [(x - middle) / (grid.side / 2) for x, middle in zip(point, middles, strict=True)]
    terms = grid.table.shape[1]
    degree = next(p for p in range(20) if math.comb(len(local) + p, p) == terms)
    monomials = [math.prod(u**e for u, e in zip(local, own, strict=True)) for own in exponents(len(local), degree)]
    return np.array(
        [math.fsum(w * m for w, m in zip(grid.table[cell, :, c], monomials, strict=True)) for c in range(k)]
    )
