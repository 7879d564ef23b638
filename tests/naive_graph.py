"""Slow and simple versions of the graph loops on dense matrices, without kernelcoreset."""

import numpy as np


def matrix_of_edges(source, target, weights, n):
    matrix = np.zeros((n, n))
    for i, j, weight in zip(source, target, weights, strict=True):
        matrix[i, j] += weight
        if i != j:
            matrix[j, i] += weight
    return matrix


def normalized_cut(labels, matrix):
    """Sum over clusters of the weight of edges leaving it divided by the sum of its degrees."""
    degrees = matrix.sum(axis=1)
    total = 0.0
    for cluster in set(labels) - {-1}:
        inside = np.asarray(labels) == cluster
        if degrees[inside].sum() > 0:
            total += matrix[inside][:, ~inside].sum() / degrees[inside].sum()
    return total


def look_up_kernel(matrix, shift):
    """D^-1 A D^-1 + shift D^-1; every node needs an edge."""
    degrees = matrix.sum(axis=1)
    return matrix / np.outer(degrees, degrees) + np.diag(shift / degrees)


def distances_to_pivots(kernel, pivots):
    """Least over the pivots of the squared kernel distance, 0 for a pivot itself."""
    own = np.diag(kernel)
    squared = own[:, None] + own[pivots] - 2 * kernel[:, pivots]
    squared[pivots, np.arange(len(pivots))] = 0.0
    return np.maximum(squared, 0.0).min(axis=1)


def diffused_kernel(matrix, hops, lazy=False):
    """P^t D^-1 (P^t)^T, where half of the mass stays in the last step of a lazy walk."""
    degrees = matrix.sum(axis=1)
    step = matrix / degrees[:, None]
    last = 0.5 * (np.eye(len(matrix)) + step) if lazy else step
    walked = np.linalg.matrix_power(step, hops - 1) @ last
    return walked @ np.diag(1 / degrees) @ walked.T


def improve(matrix, labels, k):
    """One sweep: each node moves to the cluster with the least cut, computed from all labels; last nodes stay."""
    labels = np.array(labels)
    degrees = matrix.sum(axis=1)
    for i in range(len(labels)):
        near = {labels[j] for j in np.flatnonzero(matrix[i]) if j != i} - {-1}
        mine = degrees[labels == labels[i]].sum()
        if labels[i] >= 0 and mine - degrees[i] <= 1e-12 * mine:
            continue
        cuts = {}
        for cluster in sorted(near | ({labels[i]} - {-1})):
            tried = labels.copy()
            tried[i] = cluster
            known = tried >= 0
            # k minus the cut among the labelled nodes, with the degrees of the whole graph.
            cuts[cluster] = -sum(
                matrix[np.ix_(tried == c, tried == c)].sum() / degrees[tried == c].sum() for c in set(tried[known])
            )
        if cuts:
            best = min(cuts, key=lambda cluster: (cuts[cluster], cluster))
            if labels[i] < 0 or cuts[best] < cuts[labels[i]] - 1e-9:
                labels[i] = best
    return labels


def best_cluster_of_new(row, labels, matrix, k):
    """The cluster whose (inner + 2 shared) / (volume + degree) - inner / volume is largest; -1 without neighbours."""
    gains = {}
    degrees = matrix.sum(axis=1)
    for cluster in range(k):
        inside = labels == cluster
        shared, volume = row[inside].sum(), degrees[inside].sum()
        if shared > 0:
            inner = matrix[np.ix_(inside, inside)].sum()
            gains[cluster] = (inner + 2 * shared) / (volume + row.sum()) - inner / volume
    return max(gains, key=lambda cluster: (gains[cluster], -cluster)) if gains else -1
