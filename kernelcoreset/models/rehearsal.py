"""A rehearsal: calls once what jobs and tasks call, on a few points, so that its machine code is kept on disk."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.descent import descend
from kernelcoreset.clustering.problem import Problem
from kernelcoreset.clustering.swaps import prices_of, propose_swap
from kernelcoreset.coresets.build import build_coreset
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.error import empirical_error
from kernelcoreset.coresets.tree import CoresetTree
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.families import Cosine, Gaussian, Linear, Polynomial
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.center_tiles import Bounds
from kernelcoreset.kernels.loops.passes import Cloud, Combinations, Landmarks
from kernelcoreset.kernels.machine_code import machine_code
from kernelcoreset.kernels.products import LEAST_DIMENSION
from kernelcoreset.kernels.rounding import Precision
from kernelcoreset.labelling.centers import ACCURACY, Centers
from kernelcoreset.labelling.certificate import Probe
from kernelcoreset.labelling.levels import level_of_products
from kernelcoreset.labelling.neighborhoods import LEAST_CENTERS
from kernelcoreset.labelling.rungs import new_nearest
from kernelcoreset.labelling.written_out import RowSums
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel

_POINTS, _SIZE, _CLUSTERS = 1_200, 100, 3
_MANY_CLUSTERS = 40


def is_large(k: int, d: int) -> bool:
    """Return whether k clusters of rows of d columns call more than a few clusters of few columns do."""
    return k >= LEAST_CENTERS or d >= LEAST_DIMENSION


def rehearse(*, large: bool = False) -> None:
    """Compile what builds, merges, solves and labels call, unless it is there already.

    One kernel with exact squared distances and one without call everything: no loop is compiled again for another one.
    With `large` also what rows of many columns and many clusters call (`is_large`), which takes nearly as long again.
    """
    code = machine_code()
    for own, call in ((False, call_everything), (True, call_large))[: 1 + large]:
        if not code.is_rehearsed(large=own):
            call()
            code.note_rehearsal(large=own)


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


def call_large() -> None:
    """Build and label rows of many columns, by matrix products, and many clusters of rows of few columns."""
    generator = np.random.default_rng(0)
    points = generator.normal(size=(_POINTS, 2))
    coreset = build_coreset(points, _MANY_CLUSTERS, Gaussian(sigma=1.0), 4 * _MANY_CLUSTERS)
    labels = np.arange(len(coreset)) % _MANY_CLUSTERS  # tasks solve nothing: any centers do
    members = labels == np.arange(_MANY_CLUSTERS)[:, np.newaxis]
    Centers(coreset.points, members / members.sum(axis=1, keepdims=True), Gaussian(sigma=1.0)).label(points)
    rows = generator.normal(size=(_POINTS, LEAST_DIMENSION))
    for kernel in (Gaussian(sigma=4.0), Polynomial(degree=2), Linear(), Cosine()):
        for own in (rows.astype(np.float32), rows):
            own.setflags(write=False)  # as rows from Arrow
            tree = CoresetTree(_CLUSTERS, kernel, _SIZE)
            tree.add(own)
            _label_products(KernelKMeansModel.fit_coreset(tree.result(_SIZE), _CLUSTERS, kernel, n_init=1), own)


def _label_products(model: KernelKMeansModel, rows: NDArray[Any]) -> None:
    """Label and measure rows, and move centers that are vectors."""
    among = np.asarray(rows[:_CLUSTERS], dtype=np.float64)
    probe = Probe(among, np.arange(_CLUSTERS)[np.newaxis], model.kernel, model.z, fraction=1.0, seed=0)
    probe.costs(rows, np.ones((len(rows), 1)))
    for centers in (model.centers, model.refine_by_points(rows, None, 1).centers):
        centers.label_rows(rows, margins=True)
        precisions: tuple[Precision, ...] = ("float32", "float64")
        for precision in precisions:  # which of them labels use depends on the rows
            level = level_of_products(centers.many, precision, ACCURACY)
            level.run(rows, new_nearest(len(rows)), np.empty(len(rows), dtype=np.bool_))
    if model.can_be_refined:
        RowSums(model.written_out(), model.kernel).add(rows, None)


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
    problem.has_rank(_SIZE // 2)
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
        rehearse(large=True)
        print(machine_code().pack())
