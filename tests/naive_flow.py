"""Slow, obvious versions of the bound by shares and a flow: every pair by a loop, from the definitions."""

import numpy as np


def dense(edges, values, size):
    """Values of edges as a matrix of shape (rows, coreset points)."""
    whole = np.zeros((len(edges.starts) - 1, size))
    for row in range(len(whole)):
        for e in range(edges.starts[row], edges.starts[row + 1]):
            whole[row, edges.targets[e]] = values[e]
    return whole


def moved(rows, points, row_weights, shares, z):
    """What moving costs, for vectors of the feature space."""
    return sum(
        row_weights[i] * shares[i, j] * np.linalg.norm(rows[i] - points[j]) ** z
        for i in range(len(rows))
        for j in range(len(points))
    )


def pull(rows, points, row_weights, shares):
    """How far the means of the shares are from the rows."""
    return sum(w * np.linalg.norm(x - t @ points) ** 2 for w, x, t in zip(row_weights, rows, shares, strict=True))


def effort(points, weights, flow, z):
    """What the flow asks of the points at both ends of each way."""
    at = np.zeros(len(points))
    for i in range(len(points)):
        for j in range(len(points)):
            at[i] += abs(flow[i, j]) * np.linalg.norm(points[i] - points[j])
    return sum(h**z * w ** (1 - z) for h, w in zip(at, weights, strict=True)) ** (1 / z)


def surrounding_shares(row, points, nearness, steps=20_000):
    """Shares by projected gradients on |mean - x|^2 + nearness * sum t d^2, with very many small steps."""
    squared = ((points - row) ** 2).sum(axis=1)
    shares = np.full(len(points), 1 / len(points))
    slope = 2 * np.linalg.norm((points - row) @ (points - row).T, 2)
    for _ in range(steps):
        gradient = 2 * (points - row) @ (shares @ points - row) + nearness * squared
        shares = project(shares - gradient / slope)
    return shares


def scaled_shares(shares, row_weights, weights, rounds):
    """A matrix of shares, columns scaled towards the weights and rows back to 1, again and again."""
    for _ in range(rounds):
        shares = shares * (weights / np.maximum(row_weights @ shares, 1e-12 * weights))
        shares = shares / shares.sum(axis=1, keepdims=True)
    return shares


def project(values):
    """The nearest shares to any values."""
    ordered = np.sort(values)[::-1]
    tops = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    return np.maximum(values - tops[ordered > tops][-1], 0.0)


def costs(points, weights, centers, z):
    """The cost of center sets of shape (m, k, d), for vectors of the feature space."""
    return np.array([weights @ distances(points, own) ** z for own in centers])


def distances(points, centers):
    """The distance of each point to its nearest center."""
    return np.linalg.norm(points[:, None] - centers, axis=2).min(axis=1)
