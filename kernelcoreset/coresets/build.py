"""The entry points: `build_coreset` from points, by size or by error, and `merge_coresets` from several coresets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from kernelcoreset.checks import check_ids, check_positive, check_rows, check_weights
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe, plain_kernel
from kernelcoreset.coresets.reduce import reduce_points, reduce_union
from kernelcoreset.coresets.sizing import by_measured_error, by_theory
from kernelcoreset.errors import SettingError
from kernelcoreset.features.preparation import KEY
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
    """Return a weighted subset of `points` that preserves the cost of every set of k centers.

    The cost of centers C is sum_x w_x min_c dist(x, c)^z with the kernel's distance. With high probability the cost of
    the coreset is within a factor 1 +- epsilon of it for every C. epsilon falls with the size and does not depend on
    the number of points. For a given `size` the cost of the coreset is an unbiased estimate.

    Parameters
    ----------
    points : array-like of shape (n, d)
        Finite numbers. Not modified.
    k : int
        Number of centers the coreset is for. It also works for any smaller number.
    kernel : Kernel
    size : int, optional
        Number of draws, at least k. The coreset has at most that many points: a point drawn twice is kept once. Give
        either `size` or `eps`. If no more than `size` points have a positive weight, they are the coreset.
    eps : float, optional
        Largest acceptable error, between 0 and 1. The smallest size whose measured error on random and adversarial
        center sets is within it is used. `settings["measured_error"]` is the error that was measured.
    theory : bool
        With `eps`: make the worst-case number of independent draws of the best known theorem instead. For z = 2 that is
        sensitivity sampling for k-means (17,100 draws for eps = 0.1, k = 5, with the constant taken as 1), for other z
        the paper's iterated Algorithm 1, which nearly always returns the input itself. `settings["theory_bound"]` says
        which one, see also `settings["theory_draws"]` and `settings["theory_note"]`.
    z : float
        At least 1; 2 is k-means, 1 is k-median.
    weights : array-like of shape (n,), optional
        At least 0. A point of weight 0 is never drawn.
    ids : array-like of shape (n,), optional
        Ids of the rows. The coreset keeps those of its points.
    seed : int
        The same seed and input give the same coreset.
    draw : {"ordered", "iid", "uniform"}
        How points are drawn. "ordered" has the smallest error, "iid" is the paper's method, "uniform" its baseline.

    Returns
    -------
    Coreset

    Notes
    -----
    Takes O(n k) kernel evaluations for small k and O(n sqrt(k)) for large k (`draw="ordered"`), and O(n) memory in
    addition to the input.

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
    points = check_rows(points)
    weights = check_weights(weights, len(points))
    ids = check_ids(ids, len(points))
    if size is not None:
        return reduce_points(points, weights, ids, recipe)
    eps = check_positive("eps", eps)
    if eps >= 1.0:
        raise SettingError(f"`eps` must be between 0 and 1; got {eps:g}. 0.05 keeps every cost within 5 %.")
    find = by_theory if theory else by_measured_error
    return find(points, weights, ids, eps, recipe)


def build_rough_coreset(
    points: ArrayLike, k: int, kernel: Kernel, size: int, *, weights: ArrayLike | None = None, seed: int = 0
) -> Coreset:
    """Return a coreset in less time than `build_coreset` and with more error: for fits that then see all points again.

    Parameters as there; z = 2. It has the same settings and is unbiased too. One pivot per cluster is drawn, as in the
    paper, and the draws are not balanced.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcoreset import Linear
    >>> points = np.random.default_rng(0).normal(size=(10_000, 2))
    >>> len(build_rough_coreset(points, 5, Linear(), 200)) <= 200
    True
    """
    points = check_rows(points)
    recipe = Recipe(k, kernel, size, seed=seed)
    return reduce_points(points, check_weights(weights, len(points)), None, recipe, refine=False, pivots=1)


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
    """Return one coreset of all the points that the given coresets represent.

    The union of coresets is a coreset of the union. If it has more than `size` points, it is reduced once.

    Parameters
    ----------
    coresets : sequence of Coreset
        At least one must not be empty. All must have the same dimension, and all or none must have ids. Those with
        settings must have been built with the same kernel and z, and for at least k clusters.
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
        if coreset.settings.get(KEY) != coresets[0].settings.get(KEY):
            raise SettingError("A merge needs coresets whose features were prepared in the same way; these were not.")
    # A draw from a draw is only unbiased if their random numbers are independent, also if a user gives the same seed
    # to all. So each further merge has random numbers of its own.
    merges = 1 + max((coreset.settings.get("merges", 0) for coreset in coresets), default=0)
    merge_seed = int(np.random.SeedSequence([recipe.seed, merges]).generate_state(1, np.uint64)[0])
    merged = reduce_union(coresets, recipe.varied(seed=merge_seed))
    preparation = {KEY: coresets[0].settings[KEY]} if KEY in coresets[0].settings else {}
    return replace(merged, settings={**recipe.settings, "merges": merges, **preparation})


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
            f"A coreset built for k={settings['k']} works for that many centers or fewer; got k={k}. "
            "Build the coresets again with the larger k."
        )
