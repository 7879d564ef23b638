"""Which levels come after the landmarks: those that pay, tried on the coreset points themselves."""

from __future__ import annotations

import numpy as np

from kernelcoreset.kernels.loops.passes import Combinations
from kernelcoreset.kernels.products import products_pay
from kernelcoreset.kernels.rounding import Precision
from kernelcoreset.labelling.directions import by_directions
from kernelcoreset.labelling.landmarks import cheapest, direct_work
from kernelcoreset.labelling.mixtures import by_mixtures
from kernelcoreset.labelling.monomials import by_monomials
from kernelcoreset.labelling.neighborhoods import by_neighborhoods
from kernelcoreset.labelling.products import LABELS_ONLY, ByProducts, ManyCenters, by_sums, by_vectors
from kernelcoreset.labelling.rungs import Level, new_nearest

_PRODUCT_TRIAL = 256  # coreset points that matrix products are tried on
_FEW_LEFT = 0.1  # share of points that float32 may leave to float64


def levels_that_pay(
    centers: ManyCenters, combinations: Combinations, accuracy: float
) -> tuple[tuple[Level, ...], float]:
    """Return the levels after landmarks, and the work per point with them and direct evaluation of the rest."""
    direct = direct_work(combinations, len(centers.spreads))
    if not products_pay(centers.kernel, centers.points.shape[1]):
        written = by_monomials(centers, accuracy)
        return _near(centers, combinations, accuracy, direct) if written is None else ((written,), written.work)
    levels, work = _by_products(centers, accuracy, direct)
    coarse = by_directions(centers, accuracy)
    if coarse is not None:
        share = _left_by(coarse, centers)
        if cheapest([coarse.work], [share], work):
            return (coarse, *levels), coarse.work + share * work
    return levels, work


def _by_products(centers: ManyCenters, accuracy: float, direct: float) -> tuple[tuple[Level, ...], float]:
    """As `levels_that_pay`, for the levels of products in all columns."""
    levels, works, left = list[Level](), list[float](), list[float]()
    precisions: tuple[Precision, ...] = ("float32", "float64")
    for precision in precisions:
        level = level_of_products(centers, precision, accuracy)
        levels.append(level)
        works.append(level.work)
        if left and left[0] < _FEW_LEFT:  # float64 decides nearly all of these; no need to compile it for a trial
            return tuple(levels), works[0] + left[0] * works[1]
        left.append(_left_by(level, centers))
    chosen = cheapest(works, left, direct)
    reach, total = 1.0, 0.0
    for i in chosen:
        total, reach = total + reach * works[i], left[i]
    return tuple(levels[i] for i in chosen), total + reach * direct


def level_of_products(centers: ManyCenters, precision: Precision, accuracy: float) -> ByProducts:
    """Return the level of products in all columns that suits the centers."""
    return (
        by_vectors(centers, precision, accuracy)
        or by_sums(centers, precision, accuracy)
        or by_mixtures(centers, precision, accuracy)
    )


def _left_by(level: Level, centers: ManyCenters) -> float:
    """The share of some coreset points that a level of products leaves without a proof."""
    sample = centers.points[:: -(-len(centers.points) // _PRODUCT_TRIAL)]
    sure = np.empty(len(sample), dtype=np.bool_)
    level.run(sample, new_nearest(len(sample)), sure)
    return 1.0 - float(sure.mean())


def _near(
    centers: ManyCenters, combinations: Combinations, accuracy: float, direct: float
) -> tuple[tuple[Level, ...], float]:
    """As `levels_that_pay`, with the level of near centers if it pays."""
    level = by_neighborhoods(centers, combinations, accuracy, accuracy < LABELS_ONLY)
    if level is not None:
        work, left = level.tried()
        if cheapest([work], [left], direct):
            return (level,), work + left * direct
    return (), direct
