"""Draw docs/images/clusters.png, the picture of the README: python docs/images/clusters.py."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons

import kernelcoreset as kc

COLOURS = np.array(["#3b6fb6", "#e07b39"])
N = 100_000
SHOWN = 3_000  # points drawn: all of them would merge into solid areas
SIZE = 200  # coreset points, few enough to be told apart in the picture


def draw(axis: Axes, points: np.ndarray, labels: np.ndarray, title: str) -> None:
    """Draw some of the points in the colours of their clusters."""
    axis.scatter(*points[:SHOWN].T, s=3, color=COLOURS[labels[:SHOWN]], alpha=0.5, linewidths=0)
    axis.set_title(title, fontsize=11)
    axis.set_aspect("equal")
    axis.set_axis_off()


def main() -> None:
    """Cluster two moons by plain k-means and by kernel k-means on a coreset, and draw both side by side."""
    mpl.use("agg")
    points, _ = make_moons(N, noise=0.05, random_state=0)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.5), layout="constrained")
    draw(left, points, KMeans(2, n_init=10, random_state=0).fit_predict(points), f"k-means on {N:,} points")
    model = kc.KernelKMeans(n_clusters=2, kernel=kc.Gaussian(sigma=0.2), coreset_size=SIZE, random_state=0).fit(points)
    draw(right, points, model.labels_, f"kernel k-means on {len(model.coreset_)} coreset points (black)")
    right.scatter(*model.coreset_.points.T, s=6, color="black", linewidths=0)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=100)


if __name__ == "__main__":
    main()
