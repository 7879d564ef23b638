"""The plain formulas of kernelcoreset.neighbors and kernelcoreset.labelling.nearest, point by point."""

import itertools
import math

import numpy as np


def graph(points, weights, neighbors=15, rank=7):
    """Return the matrix of similarities, written as loops over points; components are joined as Kruskal does."""
    n = len(points)
    away = [[math.dist(x, y) for y in points] for x in points]
    near = [sorted((j for j in range(n) if j != i), key=lambda j, i=i: away[i][j])[:neighbors] for i in range(n)]
    scale = [away[i][near[i][min(rank, len(near[i])) - 1]] for i in range(n)]
    matrix = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        if j in near[i] or i in near[j]:
            matrix[i, j] = max(math.exp(-(away[i][j] ** 2) / (scale[i] * scale[j])), math.exp(-5.0))
    component, shortest = list(range(n)), None
    for i, j in [*np.argwhere(matrix), *sorted(itertools.combinations(range(n), 2), key=lambda p: away[p[0]][p[1]])]:
        if component[i] != component[j]:
            if matrix[i, j] == 0.0:
                shortest = shortest or away[i][j]
                matrix[i, j] = matrix[j, i] = 1e-3 * (shortest / away[i][j]) ** 2
            component = [component[j] if c == component[i] else c for c in component]
    return matrix * np.sqrt(np.outer(weights, weights)) / np.mean(weights)


def persistence(points, labels, k, lengths=40):
    """Return it by powers of the matrix of a lazy walk; powers that are not whole numbers by its eigenvalues."""
    matrix = graph(points, np.ones(len(points)))
    degrees = matrix.sum(axis=1)
    step = 0.5 * np.eye(len(points)) + 0.5 * matrix / degrees[:, None]
    values, vectors = np.linalg.eig(step)
    inverse = np.linalg.inv(vectors)
    shares = degrees / degrees.sum()
    stays = []
    for length in np.geomspace(1.0, 0.6 * len(points), lengths):
        ends = (vectors * values.real.clip(0.0) ** length) @ inverse
        stays.append(sum(shares[labels == c] @ ends.real[labels == c][:, labels == c].sum(axis=1) for c in range(k)))
    chance = sum(shares[labels == c].sum() ** 2 for c in range(k))
    return (np.mean(stays) - chance) / (1 - 1 / k)


def label(points, clusters, new):
    """Return label, distance and margin of every new point by all distances."""
    away = np.linalg.norm(new[:, None] - points, axis=2)
    nearest = away.argmin(axis=1)
    labels, distances = clusters[nearest], away.min(axis=1)
    others = np.where(clusters == labels[:, None], np.inf, away).min(axis=1)
    return labels, distances, others - distances
