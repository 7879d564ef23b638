"""The public doors: a coreset from points, by size or by error, and one coreset from many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from kernelcoreset.checks import check_ids, check_points, check_positive, check_weights
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe, plain_kernel
from kernelcoreset.coresets.reduce import reduce_points, reduce_union
from kernelcoreset.coresets.sizing import by_measured_error, by_theory
from kernelcoreset.errors import SettingError
from kernelcoreset.kernels.kernel import Kernel


def build_coreset(
    points: ArrayLike,
    k: int,
    kernel: Kernel,
    size: int | None = None,
    *,
    eps: float | None = None,
    theory: bool = False,
    z: float = 2.0,
    weights: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    seed: int = 0,
    draw: str = "ordered",
) -> Coreset:
    """Return a weighted subset of `points` that keeps the cost of every k centers.

    The cost of centers C is sum_x w_x min_c dist(x, c)^z with the kernel's distance. For every C it is kept within
    1 +- epsilon with high probability, epsilon falling with the size and independent of the number of points. The
    estimate of every cost is unbiased for a given `size`.

    Parameters
    ----------
    points : array-like of shape (n, d)
        Finite numbers. Never changed.
    k : int
        Number of centers the coreset is for; it serves every smaller number too.
    kernel : Kernel
    size : int, optional
        Number of points drawn, at least k. The coreset has at most that many: equal picks are one point. Give `size`
        or `eps`. If there are no more points than `size`, the points themselves (of positive weight) are the coreset.
    eps : float, optional
        Largest measured error wanted, between 0 and 1: the smallest size whose error on random and adversarial
        center sets meets it. `settings["measured_error"]` says what was measured.
    theory : bool
        With `eps`: the paper's iterated Algorithm 1 with its worst-case number of draws instead. That number is
        astronomical in practice (3e8 for eps = 0.1, k = 5), so the result is nearly always the input itself;
        `settings["theory_draws"]` and `settings["theory_note"]` say so.
    z : float
        At least 1; 2 is k-means, 1 is k-median.
    weights : array-like of shape (n,), optional
        At least 0; a point of weight 0 is never drawn.
    ids : array-like of shape (n,), optional
        Ids of the rows, kept with the points.
    seed : int
        Same seed, same input, same coreset.
    draw : {"ordered", "iid", "uniform"}
        How points are drawn: "ordered" has the smallest error, "iid" is the paper's, "uniform" its baseline.

    Returns
    -------
    Coreset

    Notes
    -----
    Costs O(n k) kernel evaluations and O(n) memory beside the input.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Gaussian, build_coreset
    >>> points = np.random.default_rng(0).normal(size=(10_000, 2))
    >>> coreset = build_coreset(points, k=5, kernel=Gaussian(sigma=1.0), size=200, seed=0)
    >>> len(coreset) <= 200
    True
    """
    if (size is None) == (eps is None):
        raise SettingError(f"Give either `size` or `eps`; got size={size!r} and eps={eps!r}.")
    # A search for the size starts from the smallest one allowed.
    recipe = Recipe(k, kernel, k if size is None else size, z=z, draw=draw, seed=seed)
    points = check_points(points)
    weights = check_weights(weights, len(points))
    own_ids = check_ids(ids, len(points))
    if size is not None:
        return reduce_points(points, weights, own_ids, recipe)
    eps = check_positive("eps", eps)
    if eps >= 1.0:
        raise SettingError(f"`eps` must be between 0 and 1; got {eps:g}. 0.05 means every cost within 5 %.")
    find = by_theory if theory else by_measured_error
    return find(points, weights, own_ids, eps, recipe)


def merge_coresets(
    coresets: Sequence[Coreset],
    k: int,
    kernel: Kernel,
    size: int,
    *,
    z: float = 2.0,
    seed: int = 0,
    draw: str = "ordered",
) -> Coreset:
    """Return one coreset that stands for all that the given ones stand for.

    The union of coresets is a coreset of the union; if it has more than `size` points it is reduced once.

    Parameters
    ----------
    coresets : sequence of Coreset
        At least one that is not empty, all of one dimension, all with ids or none. Where their settings are known,
        they must have been built for the same kernel and z, and for at least k clusters.
    k, kernel, size, z, seed, draw
        As in `build_coreset`.

    Returns
    -------
    Coreset

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Linear, build_coreset, merge_coresets
    >>> halves = np.random.default_rng(0).normal(size=(2, 5_000, 3))
    >>> a, b = (build_coreset(half, k=5, kernel=Linear(), size=400, seed=0) for half in halves)
    >>> len(merge_coresets([a, b], k=5, kernel=Linear(), size=200, seed=0)) <= 200
    True
    """
    recipe = Recipe(k, kernel, size, z=z, draw=draw, seed=seed)
    for coreset in coresets:
        check_mergeable(coreset, recipe)
    # A draw from a draw is only unbiased if their random numbers are independent, also where a user gives one seed to
    # all: each further merge has random numbers of its own.
    merges = 1 + max((coreset.settings.get("merges", 0) for coreset in coresets), default=0)
    merge_seed = int(np.random.SeedSequence([recipe.seed, merges]).generate_state(1, np.uint64)[0])
    merged = reduce_union(coresets, recipe.varied(seed=merge_seed))
    return replace(merged, settings={**recipe.settings, "merges": merges})


def check_mergeable(coreset: Coreset, recipe: Recipe) -> None:
    """Raise SettingError if a coreset was built for another kernel or z than the recipe's, or for a smaller k."""
    if not isinstance(coreset, Coreset):
        raise SettingError(f"`coresets` must be Coreset objects; got {type(coreset).__name__}.")
    settings, k, kernel, z = coreset.settings, recipe.k, recipe.kernel, recipe.z
    if "kernel" in settings and settings["kernel"] != plain_kernel(kernel):
        raise SettingError(f"A merge needs one kernel; got {kernel!r} for a coreset built with {settings['kernel']}.")
    if settings.get("z", z) != z:
        raise SettingError(f"A merge needs one z; got z={z:g} for a coreset built with z={settings['z']:g}.")
    if settings.get("k", k) < k:
        raise SettingError(
            f"A coreset built for k={settings['k']} serves that many centers or fewer; got k={k}. "
            "Build the coresets again with the larger k."
        )
