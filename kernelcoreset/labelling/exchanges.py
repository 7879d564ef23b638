"""Centers as vectors that move to where they are needed: some clusters are removed, and as many others are split.

Lloyd moves a center a little in each iteration, and never from one cluster to another one far away. So two centers that
share a cluster stay there, and another center stays between two clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats, Ints
from kernelcoreset.clustering.means import blocks
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.products import Reals
from kernelcoreset.kernels.products import Frame
from kernelcoreset.kernels.threads import equal_parts, map_in_threads
from kernelcoreset.labelling.written_out import PARTS, frame_for, means_of, row_scales

_SPLIT_STEPS = 4
_REMOVED_SHARE = 10  # one in so many centers is removed in a round; fewer rounds end at a higher cost


class _Vectors(NamedTuple):
    """Rows as the vectors that centers are means of."""

    rows: NDArray[Any]
    scales: Floats
    frame: Frame

    def take(self, which: slice | Ints) -> Reals:
        vectors: Reals = self.frame.round(self.rows[which]) * self.scales[which, np.newaxis].astype(self.frame.dtype)
        return vectors


class _Near(NamedTuple):
    """The nearest and the second nearest center of every row, and how much larger the squared distance to that is."""

    first: NDArray[np.int32]
    second: NDArray[np.int32]
    more: Floats


class _Split(NamedTuple):
    """How much less a cluster costs with two centers, and these."""

    gain: float
    halves: tuple[Reals, Reals]


def exchange_centers(means: Floats, rows: NDArray[Any], weights: Floats, kernel: Kernel) -> Floats:
    """Return written-out centers, some of which have moved into clusters that gain more by a second one.

    A cluster is removed if its rows pay less for their second nearest centers than the split of another cluster saves.
    The cost of the rows does not rise, up to rounding: what the rows of a removed cluster pay is measured at the end,
    and if that is more than the split saves, both stay as they are. Assumes validated input.

    Costs O(n k d), about as much as two iterations of `lloyd_over_rows`.

    Parameters
    ----------
    means : ndarray of shape (k, d)
    rows : ndarray of shape (n, d)
        Of any real type.
    weights : ndarray of shape (n,)
    kernel : Kernel
        Linear or Cosine.

    Returns
    -------
    ndarray of shape (k, d)
    """
    k = len(means)
    if k == 1:
        return means
    frame = frame_for(means, rows, kernel)
    vectors = _Vectors(rows, row_scales(rows, kernel), frame)
    centers = (means - frame.mean).astype(frame.dtype)
    with one_blas_thread() as threads:
        near = _nearest(vectors, centers, threads)
        members = _members(near, k)
        splits = _splits(vectors, weights, members, threads)
        losses = np.bincount(near.first, weights * near.more, minlength=k).astype(np.float64)
        pairs = _pairs(np.array([split.gain for split in splits]), losses, near.second, members)
        moved = centers.copy()
        while pairs:
            moved = centers.copy()
            for split, removed in pairs:
                moved[split], moved[removed] = splits[split].halves
            paid = [_price(vectors.take(members[c]), weights[members[c]], centers[c], moved) for _, c in pairs]
            # Not those whose rows pay more than expected, since other centers left too; also if it is no number.
            kept = [pair for pair, price in zip(pairs, paid, strict=True) if price < splits[pair[0]].gain]
            if len(kept) == len(pairs):
                break
            pairs = kept
    if not pairs:
        return means
    changed = np.array(pairs).ravel()
    result = means.copy()
    result[changed] = frame.mean + moved[changed]
    return result


def prune_centers(means: Floats, rows: NDArray[Any], weights: Floats, kernel: Kernel, k: int) -> Floats:
    """Return k written-out centers, made of more: in each round a tenth of them is removed, and the others move.

    Those are removed whose rows pay least for their second nearest centers. These rows go there, and all centers become
    the means of their rows. From twice as many seeds this ends at a lower cost than Lloyd from k seeds: a cluster that
    has too many centers loses some, and hardly any has too few. Assumes validated input.

    Costs O(n k d) per round, as a matrix product; seven rounds for twice as many centers.

    Parameters
    ----------
    means : ndarray of shape (more, d)
    rows : ndarray of shape (n, d)
        Of any real type.
    weights : ndarray of shape (n,)
    kernel : Kernel
        Linear or Cosine.
    k : int

    Returns
    -------
    ndarray of shape (k, d)
    """
    frame = frame_for(means, rows, kernel)
    vectors = _Vectors(rows, row_scales(rows, kernel), frame)
    while len(means) > k:
        with one_blas_thread() as threads:
            near = _nearest(vectors, (means - frame.mean).astype(frame.dtype), threads)
        count = min(len(means) - k, max(1, len(means) // _REMOVED_SHARE))
        losses = np.bincount(near.first, weights * near.more, minlength=len(means)).astype(np.float64)
        gone = _cheapest(losses, near.second, _members(near, len(means)), count)
        labels = np.where(gone[near.first], near.second, near.first)
        moved = means_of(labels, len(means), rows, weights, kernel)
        mass = np.bincount(labels, weights, minlength=len(means))[:, np.newaxis]
        means = np.where(mass > 0.0, moved, means)[~gone]
    return means


def _cheapest(losses: Floats, second: NDArray[np.int32], members: Sequence[Ints], count: int) -> NDArray[np.bool_]:
    """Which centers to remove: up to `count`, the least loss first, and none that takes most rows of another one."""
    k = len(losses)
    gone, heirs = np.zeros(k, dtype=np.bool_), np.zeros(k, dtype=np.bool_)
    for c in np.argsort(losses, kind="stable"):
        if np.count_nonzero(gone) == count:
            break
        if not heirs[c]:
            gone[c] = True
            if len(members[c]):
                heirs[np.bincount(second[members[c]], minlength=k).argmax()] = True
    return gone


def _nearest(vectors: _Vectors, centers: Reals, threads: int) -> _Near:
    parts = equal_parts(len(vectors.rows), PARTS)
    found = map_in_threads(lambda part: _two_nearest(vectors, part, centers), parts, threads)
    return _Near(*(np.concatenate(own) for own in zip(*found, strict=True)))


def _members(near: _Near, k: int) -> list[Ints]:
    """The rows of each center."""
    order = np.argsort(near.first, kind="stable")
    return np.split(order, np.searchsorted(near.first[order], np.arange(1, k)))


def _two_nearest(vectors: _Vectors, part: slice, centers: Reals) -> _Near:
    halves = 0.5 * np.einsum("ij,ij->i", centers, centers)
    n = part.stop - part.start
    near = _Near(np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32), np.empty(n))
    for block in blocks(n, max(centers.shape)):
        own = vectors.take(slice(part.start + block.start, part.start + block.stop))
        scores = halves - own @ centers.T
        each = np.arange(len(own))
        near.first[block] = first = scores.argmin(axis=1)
        least = scores[each, first]
        scores[each, first] = np.inf
        near.second[block] = second = scores.argmin(axis=1)
        near.more[block] = 2.0 * (scores[each, second] - least)
    return near


def _splits(vectors: _Vectors, weights: Floats, members: Sequence[Ints], threads: int) -> list[_Split]:
    """Split every cluster in two."""

    def some(part: slice) -> list[_Split]:
        return [_split(vectors.take(own), weights[own]) for own in members[part]]

    return list(chain.from_iterable(map_in_threads(some, equal_parts(len(members), PARTS), threads)))


def _split(own: Reals, weights: Floats) -> _Split:
    """Split the rows of a cluster by a few iterations of Lloyd, from its mean and its costliest row."""
    mass = weights.sum()
    if len(own) < 2 or not mass > 0.0:
        return _Split(0.0, (np.zeros(own.shape[1]),) * 2)
    largest = weights.max()  # float32 holds weights relative to it, whatever their unit
    weights, mass = weights / largest, mass / largest
    narrow = weights.astype(own.dtype)
    mean = (narrow @ own) / own.dtype.type(mass)
    away = own - mean
    one, two = np.zeros_like(mean), away[np.argmax(weights * np.einsum("ij,ij->i", away, away))]
    total = narrow @ away
    masses = (mass, 0.0)
    for _ in range(_SPLIT_STEPS):
        leaves = away @ (two - one) > 0.5 * (two @ two - one @ one)
        leaving = weights @ leaves
        masses = (mass - leaving, leaving)
        if not min(masses) > 0.0:
            return _Split(0.0, (mean, mean))
        sums = (narrow * leaves) @ away
        one, two = (total - sums) / own.dtype.type(masses[0]), sums / own.dtype.type(masses[1])
    gain = largest * (masses[0] * (one @ one) + masses[1] * (two @ two))
    return _Split(float(gain), (mean + one, mean + two))


def _pairs(gains: Floats, losses: Floats, second: NDArray[np.int32], members: Sequence[Ints]) -> list[tuple[int, int]]:
    """Which cluster to split and which one to remove for it: the largest gain with the least loss, and so on."""
    k = len(gains)
    used = np.zeros(k, dtype=np.bool_)
    removals = iter(np.argsort(losses, kind="stable"))
    removed = next(removals)
    pairs = list[tuple[int, int]]()
    for split in np.argsort(-gains, kind="stable"):
        while used[removed]:
            removed = next(removals, -1)
            if removed < 0:
                return pairs
        if gains[split] <= losses[removed]:
            return pairs
        if split != removed and not used[split]:
            pairs.append((int(split), int(removed)))
            used[[split, removed]] = True
            if len(members[removed]):
                # The cluster that takes most rows of the removed one stays as it is: its loss was counted with it.
                used[np.bincount(second[members[removed]], minlength=k).argmax()] = True
    return pairs


def _price(own: Reals, weights: Floats, center: Reals, moved: Reals) -> float:
    """What the rows of a removed cluster pay for their nearest centers, more than before."""
    scores = 0.5 * np.einsum("ij,ij->i", moved, moved) - own @ moved.T
    before = 0.5 * (center @ center) - own @ center
    return float(weights @ (2.0 * (scores.min(axis=1, initial=np.inf) - before)))
