"""Descriptions of clusters, row by row in plain Python: slow and obvious."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_number(values: list[Any]) -> bool:
    known = [value for value in values if value is not None]
    return not isinstance(known[0], bool | str)


def tally(columns: dict[str, list[Any]], found: Any, weights: Any, typical: Any, silent: list[str]) -> dict[str, Any]:
    k = len(typical)
    rows = list(zip(found.labels, weights, found.distances, found.margins, columns["id"], strict=True))
    numbers, values = {}, {}
    for name, column in columns.items():
        if name in silent:
            continue
        if is_number(column):
            own: dict[str, list[float]] = {"weight": [], "mean": [], "squares": []}
            for cluster in range(k):
                parts = [
                    (w, v) for v, (label, w, *_) in zip(column, rows, strict=True) if label == cluster and v is not None
                ]
                weight = sum(w for w, _ in parts)
                mean = math.fsum(w * v for w, v in parts) / weight
                own["weight"].append(weight)
                own["mean"].append(mean)
                own["squares"].append(math.fsum(w * (v - mean) ** 2 for w, v in parts))
            numbers[name] = own
        else:
            counts: dict[str, list[float]] = {}
            for value, (label, weight, *_) in zip(column, rows, strict=True):
                if value is not None:
                    counts.setdefault(text_of(value), [0.0] * k)[label] += weight
            values[name] = counts
    return {
        "numbers": numbers,
        "values": values,
        "nearest": [
            [name for _, name in sorted((d, name) for label, _, d, _, name in rows if label == cluster)[:3]]
            for cluster in range(k)
        ],
        "farthest": [name for _, name in sorted((-d / typical[label], name) for label, _, d, _, name in rows)[:5]],
        "borderline": [name for _, name in sorted((margin, name) for _, _, _, margin, name in rows)[:5]],
    }


def differences(columns: dict[str, list[Any]], labels: Any, weights: Any) -> dict[tuple[int, str, Any], float]:
    """Return (mean in the cluster - mean of all) / standard deviation of all, of numbers and of values as 0 or 1."""
    found = {}
    for name, column in columns.items():
        if name == "id":
            continue
        values = [None] if is_number(column) else sorted({text_of(v) for v in column if v is not None})
        for value in values:
            rows = [
                (label, weight, v if value is None else float(text_of(v) == value))
                for v, label, weight in zip(column, labels, weights, strict=True)
                if v is not None
            ]
            total = sum(w for _, w, _ in rows)
            mean = math.fsum(w * v for _, w, v in rows) / total
            spread = math.sqrt(math.fsum(w * (v - mean) ** 2 for _, w, v in rows) / total)
            for cluster in sorted(set(labels.tolist())):
                inside = [(w, v) for label, w, v in rows if label == cluster]
                own = math.fsum(w * v for w, v in inside) / sum(w for w, _ in inside)
                found[cluster, name, value] = (own - mean) / spread
    return found


def quality(points: Any, weights: Any, labels: Any, kernel: Any) -> tuple[float, float]:
    """Return the share of the variance between clusters, and the silhouette by centers, from kernel values."""
    n = len(points)
    value = [[float(kernel(points[i], points[j])) for j in range(n)] for i in range(n)]

    def squared(i: int, members: list[int]) -> float:
        total = sum(weights[j] for j in members)
        cross = sum(weights[j] * value[i][j] for j in members) / total
        inner = sum(weights[j] * weights[m] * value[j][m] for j in members for m in members) / total**2
        return max(0.0, value[i][i] - 2 * cross + inner)

    clusters = [[j for j in range(n) if labels[j] == c] for c in sorted(set(labels.tolist()))]
    everything = list(range(n))
    variance = sum(weights[i] * squared(i, everything) for i in range(n))
    inside = sum(weights[i] * squared(i, members) for members in clusters for i in members)
    gaps = 0.0
    for i in range(n):
        nearest, second = sorted(math.sqrt(squared(i, members)) for members in clusters)[:2]
        gaps += weights[i] * (second - nearest) / second
    return 1.0 - inside / variance, gaps / sum(weights)


def naive_components(points: Any, weights: Any, kernel: Any) -> tuple[Any, Any]:
    """Return the two leading components of kernel PCA, with every point copied as often as its weight says."""
    copies = np.repeat(np.arange(len(points)), weights.astype(int))
    gram = np.array([[float(kernel(points[i], points[j])) for j in copies] for i in copies])
    n = len(copies)
    center = np.eye(n) - np.full((n, n), 1.0 / n)
    variances, vectors = np.linalg.eigh(center @ gram @ center / n)
    places = np.zeros((2, len(points)))
    for part in range(2):
        places[part, copies] = vectors[:, -1 - part] * np.sqrt(variances[-1 - part] * n)
        places[part] *= np.sign(places[part][np.abs(places[part]).argmax()])
    return places, variances[[-1, -2]] / variances.sum()
