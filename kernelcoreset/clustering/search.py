"""The search for k clusters of explicit vectors, z = 2: a race of runs from seeds, then better places for centers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.clustering.means import Means, Narrow, Run, Vectors, blocks, descend_rows, no_means, place_means
from kernelcoreset.clustering.problem import Labels
from kernelcoreset.clustering.swaps import SWAPS, SWAPS_PER_CENTER, swap_center
from kernelcoreset.kernels.jit import compiled
from kernelcoreset.kernels.threads import equal_parts, map_in_threads

# Products of points with centers: what may be spent on further trials, seedings, runs to the end, and swaps.
_SEED_WORK, _RACE_WORK, _FINAL_WORK, _SWAP_WORK = 1.6e10, 1.6e8, 1.6e8, 4e8
_RACE_STEPS = 2
_CANDIDATES = 128
_CANDIDATE_SWAPS = 16
_EXCHANGES = 10
_HALVING_STEPS = 4
_PARTS = 4  # of rows for threads: their number changes no digit
# Mean squared distance to the seeds, of the largest squared norm: below it, float32 is too coarse for seeds.
_COARSE = 1e-4


def search(
    vectors: Vectors, k: int, starts: Sequence[Labels], n_init: int, max_iter: int, generator: np.random.Generator
) -> Run:
    """Return the best run found: from given starting labels and up to `n_init` greedy k-means++ seedings.

    There are as many seedings as the size of the problem allows: with many clusters, one is as good as another. All
    runs make a few steps; the best ones, again as many as the size allows, go on to the end. The best
    result is improved by exchanges and swaps. Assumes validated input.
    """
    s, r = vectors.rows.shape
    if k == 1:
        return descend_rows(vectors, np.zeros(s, dtype=np.int32), 1, max_iter)
    work = float(s) * k * (r + 8)
    trials = max(1, min(2 + int(np.log(k)), int(_SEED_WORK / work)))
    runs = [descend_rows(vectors, labels, k, min(_RACE_STEPS, max_iter)) for labels in starts]
    precise = False
    for _ in range(max(1, min(n_init, int(_RACE_WORK / work)))):
        labels = seed_rows(vectors, k, generator, trials, precise)
        run = descend_rows(vectors, labels, k, min(_RACE_STEPS, max_iter))
        if not precise and run.cost < _COARSE * vectors.weights.sum():
            precise = True
            labels = seed_rows(vectors, k, generator, trials, precise)
            run = descend_rows(vectors, labels, k, min(_RACE_STEPS, max_iter))
        runs.append(run)
    finalists = sorted(runs, key=lambda run: run.cost)[: max(1, int(_FINAL_WORK / work))]
    different = {run.labels.tobytes(): run for run in reversed(finalists)}  # the same labels end in the same way
    best = _best_finished(vectors, [*reversed(different.values())], k, max_iter)
    best = _exchanged(vectors, best, k, max_iter)
    return _swapped(vectors, best, k, max_iter, min(SWAPS + SWAPS_PER_CENTER * k, int(_SWAP_WORK / work)), generator)


def _best_finished(vectors: Vectors, runs: Sequence[Run], k: int, max_iter: int) -> Run:
    """Return the best of the runs of the race, each continued until nothing moves or until it can no longer win."""
    best = _finished(vectors, runs[0], k, max_iter, np.inf)
    for run in runs[1:]:
        end = _finished(vectors, run, k, max_iter, best.cost)
        best = end if end.cost < best.cost else best
    return best


def _finished(vectors: Vectors, run: Run, k: int, max_iter: int, beat: float) -> Run:
    if run.converged or run.steps >= max_iter:
        return run
    end = descend_rows(vectors, run.labels, k, max_iter - run.steps, beat=beat)
    return end._replace(steps=run.steps + end.steps)


def _better(vectors: Vectors, best: Run, labels: Labels, k: int, max_iter: int) -> Run | None:
    """Return the run from labels that differ from the best ones in a few clusters, or None if it costs no less."""
    different = labels != best.labels
    changed = np.zeros(k, dtype=np.bool_)
    changed[labels[different]] = changed[best.labels[different]] = True
    run = descend_rows(vectors, labels, k, max_iter, changed if best.converged else None, best.cost)
    return run if run.cost < best.cost else None


def _exchanged(vectors: Vectors, best: Run, k: int, max_iter: int) -> Run:
    """Return the best run after removing clusters that are cheap to remove and splitting as many others."""
    most = k // 2
    for _ in range(_EXCHANGES):
        labels, count = exchange(vectors, best.labels, k, most)
        if count == 0:
            break
        better = _better(vectors, best, labels, k, max_iter)
        best, most = (best, count // 2) if better is None else (better, most)
    return best


def _swapped(vectors: Vectors, best: Run, k: int, max_iter: int, count: int, generator: np.random.Generator) -> Run:
    """Return the best run after `count` trials to replace one center by a point drawn by its cost."""
    rows, norms, weights = vectors.narrow, vectors.norms, vectors.weights
    tried = set[bytes]()  # labels that led to nothing better would do so again
    while count > 0:
        near = _two_nearest(vectors, best.labels, k)
        running = np.cumsum(weights * near.own)
        if not running[-1] > 0.0:
            break
        drawn = np.searchsorted(running, running[-1] * generator.random(_CANDIDATE_SWAPS), side="right")
        candidates = np.minimum(drawn, len(weights) - 1)
        fresh = np.maximum(norms + norms[candidates, np.newaxis] - 2.0 * (rows[candidates] @ rows.T), 0.0)
        for own in fresh[: min(count, _CANDIDATE_SWAPS)]:
            count -= 1
            labels = np.empty_like(best.labels)
            swap_center(own, weights, near.own, near.beyond, best.labels, near.second, k, labels)
            if labels.tobytes() in tried:
                continue
            tried.add(labels.tobytes())
            better = _better(vectors, best, labels, k, max_iter)
            if better is not None:
                best = better
                break
    return best


def seed_rows(
    vectors: Vectors, k: int, generator: np.random.Generator, trials: int, precise: bool = True, threads: int = 0
) -> Labels:
    """Return the nearest of k pivots drawn by weight times squared distance to those before (greedy k-means++).

    Each pivot is the best of `trials` candidates. Candidates are drawn in batches from the distances so far, and each
    is kept with the probability by which its distance has fallen since. That is the distribution of drawing one by
    one, with fewer and larger matrix products: in float64 if `precise`, else in float32. These are made by so many
    `threads`, or by those of BLAS if there are none.
    """
    norms, weights = vectors.norms, vectors.weights
    rows = vectors.rows if precise else vectors.narrow
    labels, away = np.zeros(len(weights), dtype=np.int32), np.full(len(weights), np.inf)
    running = np.cumsum(weights)
    count = 0
    while count < k and running[-1] > 0.0:
        size = min(trials * (1 + count // 8), trials * (k - count), _CANDIDATES)
        drawn = np.searchsorted(running, running[-1] * generator.random(size), side="right")
        candidates = np.minimum(drawn, len(weights) - 1)
        products = _products(rows, candidates, threads)
        keep = generator.random(size) * (away[candidates] if count else 0.0)
        count = take_pivots(products, norms, candidates, keep, trials, weights, away, labels, count, k)
        running = np.cumsum(weights * away)
    return labels


def _products(rows: Floats | Narrow, candidates: NDArray[np.int64], threads: int) -> Floats:
    """Products of candidates with all rows, in float64 from those of the type of the rows."""
    if threads == 0:
        return (rows[candidates] @ rows.T).astype(np.float64, copy=False)
    own, products = rows[candidates], np.empty((len(candidates), len(rows)))

    def multiply(part: slice) -> None:
        products[:, part] = own @ rows[part].T

    map_in_threads(multiply, equal_parts(len(rows), _PARTS), threads)
    return products


@compiled(fastmath={"contract", "reassoc", "nsz"})
def take_pivots(
    products: Floats,
    norms: Floats,
    candidates: NDArray[np.int64],
    keep: Floats,
    trials: int,
    weights: Floats,
    away: Floats,
    labels: Labels,
    count: int,
    most: int,
) -> int:
    """Make pivots of the best of each `trials` candidates that are kept; return the new number of pivots.

    A candidate is kept if `away`, the least squared distance to pivots, is above `keep` for it. `products` with all
    points are turned into squared distances; `away`, and `labels`, the nearest pivots, are updated.
    """
    best, least, tried = -1, np.inf, 0
    for j in range(len(candidates)):
        if count == most:
            break
        own = norms[candidates[j]]
        if keep[j] < away[candidates[j]]:
            tried += 1
            cost = 0.0
            for i in range(len(away)):
                products[j, i] = max(norms[i] + own - 2.0 * products[j, i], 0.0)
                cost += weights[i] * min(products[j, i], away[i])
            if cost < least:
                best, least = j, cost
        if best >= 0 and (tried == trials or j == len(candidates) - 1):
            for i in range(len(away)):
                if products[best, i] < away[i]:
                    away[i] = products[best, i]
                    labels[i] = count
            away[candidates[best]] = 0.0
            labels[candidates[best]] = count
            count += 1
            best, least, tried = -1, np.inf, 0
    return count


class _Near(NamedTuple):
    """Squared distances of the points to their own and to the second nearest center, and which that is."""

    own: Floats
    beyond: Floats
    second: Labels


def _two_nearest(vectors: Vectors, labels: Labels, k: int, means: Means | None = None) -> _Near:
    near = _Near(np.empty(len(labels)), np.empty(len(labels)), np.empty_like(labels))
    means = no_means(k, vectors.rows.shape[1]) if means is None else means
    place_means(vectors, labels, means, np.ones(k, dtype=np.bool_), near.own)
    for block in blocks(len(labels), k):
        products = vectors.narrow[block] @ means.narrow.T
        find_second(products, vectors.norms[block], labels[block], means.halves, near.second[block], near.beyond[block])
    np.maximum(near.beyond, near.own, out=near.beyond)
    return near


@compiled()
def find_second(
    products: Narrow, norms: Floats, labels: Labels, halves: Narrow, second: Labels, beyond: Floats
) -> None:
    """Write the nearest center other than the own one, and the squared distance to it."""
    for p in range(len(products)):
        least, best = np.float32(np.inf), -1
        for c in range(products.shape[1]):
            half = halves[c] - products[p, c]
            if half < least and c != labels[p]:
                least, best = half, c
        second[p] = best
        beyond[p] = norms[p] + 2.0 * least


def exchange(vectors: Vectors, labels: Labels, k: int, most: int) -> tuple[Labels, int]:
    """Return labels with up to `most` clusters removed and as many others split, and how many.

    A cluster is removed if its points pay less for their second nearest centers than the split of another one saves.
    Both are estimates before any descent, so the cost may rise if many change at once.
    """
    means = no_means(k, vectors.rows.shape[1])
    near = _two_nearest(vectors, labels, k, means)
    leave, gains = _halved(vectors, labels, means, near.own)
    losses = np.bincount(labels, vectors.weights * (near.beyond - near.own), minlength=k)
    used, place = np.zeros(k, dtype=np.bool_), np.full(k, -1, dtype=np.int32)
    gone = np.zeros(k, dtype=np.bool_)
    removals, t = np.argsort(losses, kind="stable"), 0
    for split in np.argsort(-gains, kind="stable"):
        while t < k and used[removals[t]]:
            t += 1
        if t == k or gains[split] <= losses[removals[t]] or np.count_nonzero(gone) >= most:
            break
        if split != removals[t] and not used[split]:
            removed = removals[t]
            # The cluster that takes most points of the removed one stays as it is: its loss was counted with it.
            heir = np.bincount(near.second[labels == removed], minlength=k).argmax()
            used[[split, removed, heir]] = gone[removed] = True
            place[split] = removed
    changed = np.where(gone[labels], near.second, labels)
    splits = (place[labels] >= 0) & leave
    changed[splits] = place[labels[splits]]
    return changed, int(np.count_nonzero(gone))


def _halved(vectors: Vectors, labels: Labels, means: Means, own: Floats) -> tuple[NDArray[np.bool_], Floats]:
    """Return which points leave if every cluster is split by a few steps of Lloyd, and what each split saves."""
    k = len(means.mass)
    halves, away, doubled = no_means(2 * k, vectors.rows.shape[1]), np.empty(len(labels)), np.empty_like(labels)
    order = np.lexsort((vectors.weights * own, labels))
    costliest = order[np.searchsorted(labels[order], np.arange(k), side="right") - 1]
    halves.centers[0::2], halves.centers[1::2] = means.centers, vectors.rows[costliest]
    for _ in range(_HALVING_STEPS):
        choose_halves(vectors.rows, labels, halves.centers, doubled)
        place_means(vectors, doubled, halves, np.ones(2 * k, dtype=np.bool_), away)
    gains = np.bincount(labels, vectors.weights * (own - away), minlength=k).astype(np.float64)
    return doubled % 2 == 1, gains


@compiled(fastmath={"contract", "reassoc", "nsz"})
def choose_halves(rows: Floats, labels: Labels, centers: Floats, doubled: Labels) -> None:
    """Write 2c or 2c + 1 for a point of cluster c, whichever center is nearer."""
    for i in range(len(labels)):
        h = 2 * labels[i]
        near, far = 0.0, 0.0
        for j in range(rows.shape[1]):
            near += (rows[i, j] - centers[h, j]) ** 2
            far += (rows[i, j] - centers[h + 1, j]) ** 2
        doubled[i] = h + 1 if far < near else h
