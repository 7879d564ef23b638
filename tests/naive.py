"""Slow, obvious twins of the fast loops: the formulas in plain numpy, with no tiles and nothing of the package.

A kernel comes as its plain form, the dict of `Kernel.to_dict`.
"""

import importlib

import numpy as np


def gram(plain, points, others):
    """K(points[i], others[j]) by the formula, shape (n, m)."""
    points, others = np.asarray(points, dtype=float), np.asarray(others, dtype=float)
    name = plain["kernel"]
    if name == "Sum":
        return gram(plain["left"], points, others) + gram(plain["right"], points, others)
    if name == "Product":
        return gram(plain["left"], points, others) * gram(plain["right"], points, others)
    if name == "Scaled":
        return plain["factor"] * gram(plain["inner"], points, others)
    if name == "UserKernel":
        module, function = plain["function"].split(":")
        python = getattr(importlib.import_module(module), function).py_func
        return np.array([[python(x, y) for y in others] for x in points])
    if name in ("Linear", "Polynomial", "Cosine"):
        return _of_inner_products(plain, points, others)
    return _of_differences(plain, points[:, None, :] - others[None, :, :])


def _of_inner_products(plain, points, others):
    inner = points @ others.T
    if plain["kernel"] == "Linear":
        return inner
    if plain["kernel"] == "Polynomial":
        return (inner + plain["c"]) ** plain["degree"]
    norms = np.linalg.norm(points, axis=1)[:, None] * np.linalg.norm(others, axis=1)[None, :]
    return np.where(norms > 0, inner / np.where(norms > 0, norms, 1.0), 0.0)


def _of_differences(plain, differences):
    sigma = plain["sigma"]
    distance = np.sqrt((differences**2).sum(axis=2))
    if plain["kernel"] == "Gaussian":
        return np.exp(-(distance**2) / (2 * sigma**2))
    if plain["kernel"] == "Exponential":
        return np.exp(-distance / (2 * sigma**2))
    if plain["kernel"] == "Laplacian":
        return np.exp(-np.abs(differences).sum(axis=2) / sigma)
    a = np.sqrt(2 * plain["nu"]) * distance / sigma
    return (1 + a + (a**2 / 3 if plain["nu"] == 2.5 else 0)) * np.exp(-a)


def diagonal(plain, points):
    """K(x, x) of every point."""
    return np.array([gram(plain, [x], [x])[0, 0] for x in np.asarray(points, dtype=float)])


def squared_distances(plain, points, others):
    """max(0, K(x, x) + K(y, y) - 2 K(x, y)), shape (n, m)."""
    own, other = diagonal(plain, points), diagonal(plain, others)
    return np.maximum(0.0, own[:, None] + other[None, :] - 2 * gram(plain, points, others))


def nearest(plain, points, pivots):
    """For every point the smallest squared distance to a pivot, and which pivot that is."""
    table = squared_distances(plain, points, pivots)
    best, which = np.empty(len(table)), np.empty(len(table), dtype=int)
    for i, row in enumerate(table):
        which[i] = 0
        for j in range(1, len(row)):
            if row[j] < row[which[i]]:
                which[i] = j
        best[i] = row[which[i]]
    return best, which


def pair_probabilities(plain, points, weights, z):
    """P(first pivot is i, second is j) of D^z sampling, shape (n, n)."""
    mass = weights[None, :] * squared_distances(plain, points, points) ** (z / 2)
    return (weights / weights.sum())[:, None] * mass / mass.sum(axis=1, keepdims=True)


def sensitivities(plain, points, weights, pivots, z):
    """Probabilities proportional to w d^z / cost + w / W(cluster), with the clusters of the given pivots (indices)."""
    best, which = nearest(plain, points, points[pivots])
    distances = best ** (z / 2)
    cost = (weights * distances).sum()
    cluster_weight = np.array([weights[which == own].sum() for own in which])
    scores = weights * distances / cost + weights / cluster_weight
    return scores / scores.sum()


def closest(block, count):
    """The nearest of the first `count` rows, and the entries of it, of the row after it (or 0) and of the first row."""
    at = [min(range(count), key=lambda r: column[r]) for column in block.T]
    padded = np.vstack([block, np.zeros(block.shape[1])])
    columns = np.arange(block.shape[1])
    return np.array(at), np.array([block[at, columns], padded[np.array(at) + 1, columns], block[0]])


def landmark_set_costs(distances, weights, order, sets):
    """Weighted distance of every point, in the given order, to the nearest landmark of each set."""
    return np.array([distances[own].min(axis=0)[order] * weights[order] for own in sets])


def center_set_costs(plain, points, weights, center_sets, z):
    """sum_x w_x min_c dist(x, c)^z of every set."""
    return np.array([(weights * nearest(plain, points, centers)[0] ** (z / 2)).sum() for centers in center_sets])


def empirical_error(plain, points, weights, coreset_points, coreset_weights, center_sets, z):
    """Largest |cost(S, C) - cost(X, C)| / cost(X, C)."""
    truth = center_set_costs(plain, points, weights, center_sets, z)
    estimate = center_set_costs(plain, coreset_points, coreset_weights, center_sets, z)
    return max(abs(e - t) / t for e, t in zip(estimate, truth, strict=True))


def pick(mass, shares):
    """For each share of all the mass, the first index where the running sum passes it."""
    total = sum(mass)
    picked = []
    for share in shares:
        running = 0.0
        for i, own in enumerate(mass):
            running += own
            if running > share * total:
                picked.append(i)
                break
    return picked


def centered_gram(squared, weights):
    """Inner products around the weighted mean, from squared distances, by the matrix that takes the mean away."""
    away = np.eye(len(weights)) - np.outer(np.ones(len(weights)), weights / weights.sum())
    return -0.5 * away @ squared @ away.T
