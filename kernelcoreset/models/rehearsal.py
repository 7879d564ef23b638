"""A rehearsal: calls once what jobs and tasks call, on a few points, so that its machine code is kept on disk."""

from __future__ import annotations

import sys

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.descent import descend
from kernelcoreset.clustering.problem import Problem
from kernelcoreset.clustering.swaps import prices_of, propose_swap
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.error import empirical_error
from kernelcoreset.coresets.tree import CoresetTree
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.families import Gaussian, Polynomial
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.center_tiles import Bounds
from kernelcoreset.kernels.loops.passes import Cloud, Combinations, Landmarks
from kernelcoreset.kernels.machine_code import machine_code
from kernelcoreset.labelling.rungs import new_nearest
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel

_POINTS, _SIZE, _CLUSTERS = 1_200, 100, 3


def rehearse() -> None:
    """Compile what builds, merges, solves and labels call, unless it is there already.

    One kernel with exact squared distances and one without call everything: no loop is compiled again for another one.
    """
    if not machine_code().is_rehearsed:
        call_everything()
        machine_code().note_rehearsal()


def call_everything() -> None:
    """Build, merge, solve, label and measure a few points."""
    points = np.random.default_rng(0).normal(size=(_POINTS, 2))
    for kernel in (Gaussian(sigma=1.0), Polynomial(degree=2)):
        coreset = build_coreset(points, _CLUSTERS, kernel, _SIZE)
        tree = CoresetTree(_CLUSTERS, kernel, _SIZE)
        tree.add(points)
        tree.result(_SIZE)
        empirical_error(points, coreset, _CLUSTERS, kernel, n_center_sets=2)
        _fit_and_label(coreset, kernel, points)
    # More points than these, or more clusters, are solved by other loops.
    KernelKMeansModel.fit_coreset(Coreset(points, np.ones(_POINTS)), _CLUSTERS, Gaussian(sigma=1.0), n_init=1)


def call_rest() -> None:
    """Solve and label a few points: what follows a build.

    First what needs only a matrix of distances: the process that builds is compiling the loops of kernels. Passes that
    label are compiled from the last to the first: the other process starts with the first, so that they meet half-way.
    """
    points = np.random.default_rng(0).normal(size=(_POINTS, 2))
    columns, weights = np.ascontiguousarray(points[:_SIZE].T), np.ones(_SIZE)
    problem = Problem(Gaussian(sigma=1.0), Cloud(columns, np.ones(_SIZE)), weights, largest=1.0)
    vars(problem)["squared"] = ((columns[:, :, None] - columns[:, None]) ** 2).sum(axis=0)
    labels = np.arange(_SIZE, dtype=np.int32) % _CLUSTERS
    solution = descend(problem, labels, np.zeros((_CLUSTERS, _SIZE)), 2.0, 2)
    propose_swap(problem, prices_of(problem, solution, 2.0), _CLUSTERS, 2.0, np.random.default_rng(0))
    _label_backwards(problem.kernel, columns)
    _fit_and_label(Coreset(points[:_SIZE], weights), problem.kernel, points)


def _label_backwards(kernel: Kernel, columns: Floats) -> None:
    """Call the passes that label, the last one first, with one landmark and one center."""
    evaluator, one, n = evaluator_of(kernel), np.ones((1, 1)), columns.shape[1]
    point, found = columns.T[:1].copy(), new_nearest(n)
    cloud = Cloud(columns, evaluator.diagonal(columns))
    landmarks = Landmarks(point, one, one, Bounds(0.0, 0.0, 0.0, 0.0, 0.0))
    passes.label_by_landmarks(evaluator.values, cloud, landmarks, one[0], 1.0, 1.0, found, np.empty(n, dtype=np.bool_))
    evaluator.block(columns, point)
    center = Combinations(evaluator.rows(point), np.arange(2), np.zeros(1, dtype=np.int64), one[0])
    passes.label_directly(evaluator.distances, evaluator.cloud(columns), center, np.zeros(1), found)


def _fit_and_label(coreset: Coreset, kernel: Kernel, points: Floats) -> None:
    model = KernelKMeansModel.fit_coreset(coreset, _CLUSTERS, kernel, n_init=1)
    model.label(points, margins=True)
    model.centers.label_rows(points, many=True)
    model.distances(points[:1])
    model.centers.label(points[:1], exact_distances=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["--rest"]:
        call_rest()
    else:
        rehearse()
        print(machine_code().pack())
