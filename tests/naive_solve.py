"""Slow and simple versions of the solvers in plain numpy: brute force, Lloyd, and the objective for any z."""

from __future__ import annotations

import itertools

import numpy as np


def squared_to_centers(gram, coefficients):
    """d2(x, c) = K(x, x) - 2 sum_j a_j K(x, x_j) + sum_ij a_i a_j K(x_i, x_j), shape (k, s)."""
    own = np.array([a @ gram @ a for a in coefficients])
    return np.maximum(np.diag(gram)[None, :] - 2.0 * coefficients @ gram + own[:, None], 0.0)


def cost_of_centers(gram, weights, coefficients, z):
    return float(weights @ squared_to_centers(gram, coefficients).min(axis=0) ** (0.5 * z))


def partition_cost(gram, weights, labels):
    """Sum over clusters of w_x |phi(x) - mean|^2, with explicit means."""
    cost = 0.0
    for c in np.unique(labels):
        a = np.where(labels == c, weights, 0.0)
        a = a / a.sum()
        cost += float(weights[labels == c] @ squared_to_centers(gram, a[None, :])[0, labels == c])
    return cost


def partitions(s, k):
    """Labels of every partition of s points into exactly k clusters, each once."""
    for labels in itertools.product(range(k), repeat=s - 1):
        labels = (0, *labels)
        first = [labels.index(c) for c in range(k) if c in labels]
        if len(first) == k and first == sorted(first):
            yield np.array(labels)


def brute_force(gram, weights, k):
    """The least cost of any partition, z = 2."""
    return min(partition_cost(gram, weights, labels) for labels in partitions(len(weights), k))


def lloyd(gram, weights, labels, k):
    """Plain weighted kernel Lloyd from the given labels; labels and cost after every step."""
    costs = [partition_cost(gram, weights, labels)]
    while True:
        a = np.array([np.where(labels == c, weights, 0.0) for c in range(k)])
        a = a / a.sum(axis=1, keepdims=True)
        fresh = squared_to_centers(gram, a).argmin(axis=0)
        if len(np.unique(fresh)) < k or (fresh == labels).all():
            return labels, costs
        labels = fresh
        costs.append(partition_cost(gram, weights, labels))


def best_single_move(gram, weights, labels, k):
    """The least cost after moving any one point to any other cluster, clusters kept non-empty."""
    least = np.inf
    for i in range(len(labels)):
        if (labels == labels[i]).sum() > 1:
            for c in range(k):
                if c != labels[i]:
                    moved = labels.copy()
                    moved[i] = c
                    two = np.isin(moved, [c, labels[i]])
                    change = partition_cost(gram[np.ix_(two, two)], weights[two], moved[two]) - partition_cost(
                        gram[np.ix_(two, two)], weights[two], labels[two]
                    )
                    least = min(least, change)
    return partition_cost(gram, weights, labels) + least


def pivot_law(rows, weights, count):
    """Probability of every ordered tuple of pivots drawn by weight, then by weight times squared distance."""
    law = {(): 1.0}
    for _ in range(count):
        longer = {}
        for pivots, chance in law.items():
            away = np.ones(len(rows))
            if pivots:
                away = ((rows[:, None] - rows[list(pivots)]) ** 2).sum(axis=2).min(axis=1)
            mass = weights * away
            for i in np.flatnonzero(mass):
                longer[(*pivots, int(i))] = chance * mass[i] / mass.sum()
        law = longer
    return law


def best_center_cost(points, weights, z):
    """Least sum of w |x - y|^z over y in the plane of the points, by ever finer grids (linear kernel only)."""
    low, high = points.min(axis=0), points.max(axis=0)
    middle, width = (low + high) / 2, (high - low).max() / 2 + 1e-9
    steps = np.linspace(-1.0, 1.0, 21)
    offsets = np.array(list(itertools.product(steps, repeat=points.shape[1])))
    least = np.inf
    for _ in range(40):
        tries = np.vstack([middle + width * offsets, points])
        costs = (np.linalg.norm(tries[:, None, :] - points[None, :, :], axis=2) ** z) @ weights
        best = int(costs.argmin())
        least, middle, width = min(least, float(costs[best])), tries[best], width / 2
    return least


def vector_lloyd(points, weights, labels, k, steps):
    """Steps of weighted k-means on vectors; an empty cluster is at the origin."""
    for _ in range(steps):
        centers = np.zeros((k, points.shape[1]))
        for c in np.unique(labels):
            centers[c] = np.average(points[labels == c], axis=0, weights=weights[labels == c])
        labels = np.square(points[:, None] - centers[None]).sum(axis=2).argmin(axis=1)
    return labels


def columns_to_keep(rows, weights, most):
    """Number of columns left when those at the end are taken away one by one, at most `most` of the squares in all."""
    count = rows.shape[1]
    while count > 1 and (weights[:, None] * rows[:, count - 1 :] ** 2).sum() <= most:
        count -= 1
    return count


def vector_seeds(points, weights, uniforms):
    """Nearest of seeds drawn by weight times squared distance to those before; all at distance 0 ends the draws."""
    seeds, mass = [], weights
    for uniform in uniforms:
        if not mass.any():
            break
        seeds.append(points[np.searchsorted(np.cumsum(mass), uniform * mass.sum(), side="right")])
        away = np.square(points[:, None] - np.array(seeds)).sum(axis=2)
        mass = weights * away.min(axis=1)
    return away.argmin(axis=1)


def pivoted_cholesky(gram, least):
    """Pivots by the largest diagonal entry of the Schur complement, until none is above `least`; and the factor."""
    rest, kept = np.array(gram, dtype=float), []
    factor = np.zeros((len(gram), 0))
    while len(kept) < len(gram) and (not kept or np.diag(rest).max() > least):
        p = int(np.argmax(np.diag(rest)))
        column = rest[:, p] / np.sqrt(rest[p, p])
        factor = np.column_stack([factor, column])
        rest = rest - np.outer(column, column)
        kept.append(p)
    return np.array(kept), factor
