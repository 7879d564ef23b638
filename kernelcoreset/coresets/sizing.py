"""The size of a coreset for a wanted error: by the worst-case bound of the theory, or by measurement."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.error import center_set_costs, draw_center_sets, relative_errors
from kernelcoreset.coresets.points import Points, points_of
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.coresets.reduce import reduce_points, reduce_union
from kernelcoreset.coresets.sampling import draw_sample, theory_sample

_FIRST_REFERENCE = 16_384
_FOR_K_MEANS = "sensitivity sampling for k-means: k/eps^2 min(sqrt(k), 1/eps^2) log(k/eps)^2 (Bansal et al., 2024)"
_FOR_ANY_POWER = "the paper's: 2^(2z) z k^2/eps^4 log(k)^2 log(n), iterated (Jiang et al., Algorithm 1)"
_CENTER_SETS = 100  # of each kind


def theory_draws(eps: float, k: int, z: float, n: int) -> float:
    """Return the paper's number of draws, eps^-4 2^(2z) z k^2 log(k)^2 log(n), with the constant taken as 1."""
    log_k = max(1.0, math.log(k))
    return float(eps**-4 * 2 ** (2 * z) * z * k**2 * log_k**2 * max(1.0, math.log(n)))


def sensitivity_draws(eps: float, k: int) -> float:
    """Return k eps^-2 min(sqrt(k), eps^-2) log(k / eps)^2: sensitivity sampling for k-means, with the constant 1.

    The bound of Bansal, Cohen-Addad, Prabhu, Saulpic and Schwiegelshohn (2024) without its constant, and with its
    logarithms taken as log(k / eps)^2. It depends neither on n nor on the dimension, and the draw reads distances only,
    so it holds in the feature space of a kernel (docs/algorithms.md).
    """
    return float(k * eps**-2 * min(math.sqrt(k), eps**-2) * max(1.0, math.log(k / eps)) ** 2)


def by_theory(points: Floats, weights: Floats, ids: NDArray[Any] | None, eps: float, recipe: Recipe) -> Coreset:
    """Return a coreset of the size that the best known theorem asks for. Assumes validated input.

    For z = 2 that is one round of independent draws; for other z the paper's Algorithm 1: reduce until the number of
    points no longer falls. The draws are those of the theorems, whatever the recipe's `draw` is.
    """
    current = Coreset(points[weights > 0], weights[weights > 0], None if ids is None else ids[weights > 0])
    n, k, z = len(current), recipe.k, recipe.z
    if z == 2.0:
        bound, first_draws, rounds = _FOR_K_MEANS, math.ceil(sensitivity_draws(eps, k)), 1
        reduced = _drawn(current, recipe.varied(size=max(first_draws, recipe.size)), theory_sample)
    else:
        bound, iterated_log, rounds = _FOR_ANY_POWER, float(n), 0
        first_draws = math.ceil(theory_draws(eps / max(1.0, math.log(n)) ** 0.25, k, z, n))
        reduced = current
        while rounds == 0 or len(reduced) < len(current):
            current, iterated_log, rounds = reduced, max(1.0, math.log(iterated_log)), rounds + 1
            draws = math.ceil(theory_draws(eps / iterated_log**0.25, k, z, len(current)))
            round_recipe = recipe.varied(size=max(draws, recipe.size), seed=recipe.seed + rounds)
            reduced = _drawn(current, replace(round_recipe, draw="iid"), draw_sample)
    note = f"The worst-case bound asks for {first_draws:.3g} draws in the first round; there are {n} points."
    about = {
        "eps": eps,
        "theory_bound": bound,
        "theory_draws": first_draws,
        "theory_rounds": rounds,
        "theory_note": note,
        "seed": recipe.seed,
    }
    return replace(reduced, settings={**recipe.settings, "size": len(reduced), **about})


def _drawn(
    source: Coreset, recipe: Recipe, sample: Callable[[Points, Floats, Recipe], tuple[NDArray[np.int64], Floats]]
) -> Coreset:
    """The source itself if it is no larger than the recipe's size, else what `sample` draws from it."""
    points = points_of(recipe.kernel, source.points)
    points.check()
    if len(source) <= recipe.size:
        return source
    chosen, new_weights = sample(points, np.array(source.weights), recipe)
    return Coreset(source.points[chosen], new_weights, None if source.ids is None else source.ids[chosen])


def by_measured_error(points: Floats, weights: Floats, ids: NDArray[Any] | None, eps: float, recipe: Recipe) -> Coreset:
    """Return a coreset of the smallest size whose measured error is at most eps. Assumes validated input.

    A large coreset is drawn from the points as a reference. Smaller ones are drawn from it and measured against it, so
    the points are read once. Only if a quarter of the reference is not enough, a larger reference is drawn. The last
    reference is the points themselves. `recipe.size` is the smallest size that is tried.
    """

    def drawn_from(source: Coreset, size: int) -> Coreset:
        return reduce_union([source], recipe.varied(size=max(size, recipe.size)))

    k = recipe.k
    reference_size = max(_FIRST_REFERENCE, 16 * k)
    while True:
        reference = reduce_points(points, weights, ids, recipe.varied(size=reference_size, seed=recipe.seed + 1))
        is_whole = len(reference) == np.count_nonzero(weights)
        measure = _Measure(reference, recipe)
        largest = len(reference) if is_whole else max(len(reference) // 4, recipe.size)
        low, high = recipe.size - 1, min(max(2 * k, 32), largest)  # low counts as too small, high is tried next
        while high < largest and measure(drawn_from(reference, high)) > eps:
            low, high = high, min(2 * high, largest)
        if measure(drawn_from(reference, high)) <= eps:
            while high > max(low + 1, math.ceil(1.05 * low)):  # to within 5 % of the smallest
                middle = (low + high) // 2
                low, high = (low, middle) if measure(drawn_from(reference, middle)) <= eps else (middle, high)
            found = drawn_from(reference, high)
            about = {"eps": eps, "measured_error": measure(found), "measured_against": len(reference), "size": high}
            return replace(found, settings={**found.settings, **about})
        reference_size *= 4


class _Measure:
    """The largest relative error against a reference, over uniform, spread and crowded center sets."""

    def __init__(self, reference: Coreset, recipe: Recipe) -> None:
        self.recipe = recipe
        self.sets = np.concatenate(
            [
                draw_center_sets(
                    reference.points,
                    recipe.k,
                    recipe.kernel,
                    kind=kind,
                    n_center_sets=_CENTER_SETS,
                    z=recipe.z,
                    weights=reference.weights,
                    seed=recipe.seed,
                )
                for kind in ("uniform", "spread", "crowded")
            ]
        )
        self.truth = self._costs(reference)

    def __call__(self, coreset: Coreset) -> float:
        return float(relative_errors(self.truth, self._costs(coreset)).max())

    def _costs(self, coreset: Coreset) -> Floats:
        return center_set_costs(coreset.points, self.sets, self.recipe.kernel, z=self.recipe.z, weights=coreset.weights)
