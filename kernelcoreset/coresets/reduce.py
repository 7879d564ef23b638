"""One round of sampling: from many weighted points, or from several coresets, to one coreset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, check_same_dimension, scaled_weights
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.points import Indices, points_of
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.sampling import PIVOTS_PER_CLUSTER, draw_along_cells, draw_sample, merge_picks
from kernelcoreset.coresets.seeding import Seeding
from kernelcoreset.errors import DataError


@dataclass(frozen=True, eq=False)
class Part:
    """A coreset on its way: points in the type of the rows they are from, so float32 takes half the memory."""

    points: NDArray[Any]
    weights: Floats
    ids: NDArray[Any] | None = None

    def __len__(self) -> int:
        return len(self.weights)


def reduce_points(
    points: NDArray[Any],
    weights: Floats,
    ids: NDArray[Any] | None,
    recipe: Recipe,
    *,
    refine: bool = True,
    pivots: int = PIVOTS_PER_CLUSTER,
    of_coresets: bool = False,
) -> Coreset:
    """Return a coreset of the points, drawn once by the recipe. Assumes validated input.

    If no more than `recipe.size` points have a positive weight, these points are the coreset.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Of any real type.
    weights : ndarray of shape (n,)
    ids : ndarray of shape (n,) or None
    recipe : Recipe
    refine, pivots, of_coresets
        As in `draw_sample`.

    Returns
    -------
    Coreset
        Its settings are those of the recipe.
    """
    part = reduce_part(points, weights, ids, recipe, refine=refine, pivots=pivots, of_coresets=of_coresets)
    return Coreset(part.points, part.weights, part.ids, recipe.settings)


def reduce_part(
    points: NDArray[Any],
    weights: Floats,
    ids: NDArray[Any] | None,
    recipe: Recipe,
    *,
    refine: bool = True,
    pivots: int = PIVOTS_PER_CLUSTER,
    of_coresets: bool = False,
) -> Part:
    """Return the same in the type of the points."""
    prepared = points_of(recipe.kernel, points)
    prepared.check()
    if np.count_nonzero(weights) <= recipe.size:
        chosen = np.flatnonzero(weights)
        new_weights = weights[chosen]
    else:
        chosen, new_weights = draw_sample(
            prepared, weights, recipe, refine=refine, pivots=pivots, of_coresets=of_coresets
        )
    return Part(points[chosen], new_weights, None if ids is None else ids[chosen])


def reduce_by_clusters(
    points: NDArray[Any], weights: Floats, labels: NDArray[np.int32], costs: Floats, recipe: Recipe
) -> tuple[Coreset, Indices]:
    """Return a coreset for which the clusters of all points, already known, take the place of pivots; and its rows.

    It is unbiased as any other. Good clusters are better pivots than drawn ones, and no distance is evaluated. The
    draws are not balanced.

    Parameters
    ----------
    points : ndarray of shape (n, d)
    weights : ndarray of shape (n,)
        More than `recipe.size` of them positive.
    labels : ndarray of int32, shape (n,)
        Cluster of each point, below `recipe.k`.
    costs : ndarray of shape (n,)
        dist^z to its center. It also orders the points of a cluster.
    recipe : Recipe

    Returns
    -------
    coreset : Coreset
    indices : ndarray of shape (m,)
        Rows of its points, ascending.
    """
    scaled, unit = scaled_weights(weights)
    generator = np.random.default_rng(recipe.seed)
    seeding = Seeding(np.arange(recipe.k), costs.copy(), labels.copy(), costs, float(scaled @ costs))
    indices, drawn = merge_picks(*draw_along_cells(seeding, scaled, recipe.size, generator))
    return Coreset(points[indices], drawn * unit, None, recipe.settings), indices


def reduce_union(coresets: Sequence[Coreset | Part], recipe: Recipe, *, refine: bool = True) -> Coreset:
    """Return one coreset of the union of coresets: the union of coresets is a coreset of the union.

    Parameters and result as in `reduce_points`. At least one coreset must not be empty.
    """
    return reduce_points(*concatenate(coresets), recipe, refine=refine, of_coresets=True)


def concatenate(coresets: Sequence[Coreset | Part]) -> tuple[NDArray[Any], Floats, NDArray[Any] | None]:
    """Return points, weights and ids of the union; empty coresets add nothing."""
    full = [coreset for coreset in coresets if len(coreset)]
    if not full:
        raise DataError(f"A merge needs at least one coreset that is not empty; got {len(coresets)} empty ones.")
    for coreset in full[1:]:
        check_same_dimension("coresets", coreset.points.shape[1], full[0].points.shape[1], "the first")
    ids = [coreset.ids for coreset in full if coreset.ids is not None]
    if ids and len(ids) < len(full):
        raise DataError(f"Coresets must all have ids or none; got {len(ids)} of {len(full)} with ids.")
    return (
        np.concatenate([coreset.points for coreset in full]),
        np.concatenate([coreset.weights for coreset in full]),
        np.concatenate(ids) if ids else None,
    )
