"""Slow, obvious versions of labelling: the whole Gram matrix, plain numpy."""

import numpy as np


def squared_center_norms(gram, coefficients):
    """c.c of every center, from the Gram matrix (s, s) of the coreset."""
    return np.array([a @ gram @ a for a in coefficients])


def scores(cross, gram, coefficients):
    """c.c - 2 <x, c> of shape (n, k), from kernel values (n, s) between points and coreset points."""
    return squared_center_norms(gram, coefficients) - 2.0 * cross @ coefficients.T


def distances(cross, diagonal, gram, coefficients):
    """Distance of every point to every center, shape (n, k)."""
    return np.sqrt(np.maximum(diagonal[:, None] + scores(cross, gram, coefficients), 0.0))


def labels(cross, gram, coefficients):
    """The nearest center of every point."""
    return scores(cross, gram, coefficients).argmin(axis=1)


def same_labels_but_for_ties(found, all_scores, noise):
    """Whether every label found is a minimum of its scores, up to rounding of size `noise`, shape (n,)."""
    chosen = all_scores[np.arange(len(found)), found]
    return bool((chosen <= all_scores.min(axis=1) + noise).all())


def vectors(points, is_cosine):
    """phi(x) of Linear or Cosine, in float64."""
    points = np.asarray(points, dtype=np.float64)
    return points / np.linalg.norm(points, axis=1, keepdims=True) if is_cosine else points


def lloyd(means, points, weights, steps):
    """Centers after some iterations of weighted k-means; none may lose all its points."""
    for _ in range(steps):
        nearest = ((points[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        members = [nearest == c for c in range(len(means))]
        means = np.stack([np.average(points[own], axis=0, weights=weights[own]) for own in members])
    return means
