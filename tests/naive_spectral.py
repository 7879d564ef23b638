"""Slow, obvious versions of spectral clustering: the whole similarity matrix, plain numpy."""

import numpy as np


def degrees(gram, weights):
    """Mean similarity of every point to all points, by weight."""
    return gram @ weights / weights.sum()


def normalized_cut(gram, labels, weights):
    """Sum over the clusters of (similarity to the other clusters) / volume."""
    total = 0.0
    for c in np.unique(labels):
        own = np.where(labels == c, weights, 0.0)
        total += own @ gram @ (weights - own) / (own @ gram @ weights)
    return total


def k_means_cost(gram, labels, weights):
    """Weighted kernel k-means cost of a partition: sum w |phi(x) - mean of its cluster|^2."""
    total = 0.0
    for c in np.unique(labels):
        own = np.where(labels == c, weights, 0.0)
        total += own @ np.diag(gram) - own @ gram @ own / own.sum()
    return total
