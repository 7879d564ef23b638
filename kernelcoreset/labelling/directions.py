"""Labels by matrix products in a few directions: a rung of the ladder for the Gaussian kernel in many columns.

The points s_j of a center differ from their mean m in a few directions more than in the others. With these directions
as the rows of W, s_j = m + W^T p_j + q_j, where q_j is small in every direction, so

    <x, s_j> = <x, m> + <W x, p_j> + <x, q_j>,

and products with W and with k means, then with s vectors p_j of few columns, take the place of one with s points. The
last term is left out, and bounded.

Bounds
------
All vectors are centred, a_j >= 0 are the coefficients of a center and sum to 1, r = 1 / (2 sigma^2). Let K_j be the
kernel value without the last term, t_j = 2 r <x, q_j>, and v = x - W^T W x. The sum wanted is

    S = sum_j a_j K_j exp(t_j) = sum_j a_j K_j + sum_j a_j K_j t_j + R,
    0 <= R <= max_j K_j exp(T) sum_j a_j t_j^2 / 2,

where T >= |t_j|. The squares add up to 4 r^2 x^T M x, M = sum_j a_j q_j q_j^T, at most 4 r^2 |v|^2 times the largest
eigenvalue of M. The second term is a covariance, as the mean of the q_j is 0 up to rounding:

    |sum_j a_j K_j t_j| <= sqrt(sum_j a_j (K_j - S_0)^2) sqrt(sum_j a_j t_j^2),     S_0 = sum_j a_j K_j.

Both factors are small: the first is measured by the loop that adds up S_0, with the largest K_j. S_0 + R / 2 stands for
S, and the label is proved if the largest S that the nearest center may have is below the least of all others.

Rounding, with u, v and g as in `kernels.rounding`, X = |x|, Y = max |s_j|, P = max |p_j|, h >= |(|W|)|, and at most 1 %
more for the length of W x: the term <x, m> is off by (g(d) + 3 u) X Y, W x by g(d) h X, and <W x, p_j> by
(g(d) h + 1.1 g(r) + 4 u) X P for r directions. Norms and rounded rows add (10 u + 2 d v) (X^2 + Y^2) to a squared
distance, and putting the terms together, at most Q = 2 (X^2 + Y^2) + 3 X P, adds 4 u Q. K_j is the value as computed;
how much its exponent may be off counts for the whole sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.checks import Floats, Ints
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.loops import products as loops
from kernelcoreset.kernels.loops.center_tiles import two_nearest
from kernelcoreset.kernels.loops.passes import Nearest
from kernelcoreset.kernels.loops.products import Moments, Reals, RowErrors
from kernelcoreset.kernels.products import Frame, frame_of
from kernelcoreset.labelling.products import LABELS_ONLY, MOST_ENTRIES, ByProducts, ManyCenters, Scores

_DIRECTIONS = 64
_MOST_WORK = 0.6  # of all columns: with more, little is saved
_TURNS = 2  # of the subspace iteration
_BLOCK = 1 << 19  # numbers in a block
_U, _V = 2.0**-24, 2.0**-53
_LOST = 1e-37  # more than what underflow loses
_LARGEST = 1e15  # of |x|: beyond, squares come near to the limits of float32
_UNDERFLOW = 1e-20  # of an exponent, by points that are rounded in units of 2 r
_EXPONENTIAL = 30.0 * _U  # rounding of 2^x, relative
_ROUNDED = 1e-12  # more than what sums in float64 are off, relative
_LOG2E = float(np.log2(np.e))


class Rest(NamedTuple):
    """What directions leave of the points of the centers."""

    roots: Floats
    """Largest eigenvalue of each M, its root; shape (k,)."""
    longest: float
    """max |q_j|."""
    along: float
    """max |W q_j|, which is 0 up to rounding."""
    means: float
    """Largest |sum_j a_j q_j| of a center, which is 0 up to rounding."""
    skewed: float
    """Norm of W W^T - 1: far below the 1 % that |W x| may be longer than |x|."""
    height: float
    """At least the norm of |W|, the matrix of absolute values."""


@dataclass(frozen=True, eq=False)
class ByDirections(ByProducts):
    """A rung for labels alone: of the second nearest center it only proves that it is farther."""

    frame: Frame
    axes: Reals
    """W and below it the means of the centers; shape (directions + k, d)."""
    points: Reals
    """2 r log2(e) p_j, so that products are exponents of 2; shape (m, directions)."""
    own: Reals
    """-r log2(e) |s_j|^2."""
    starts: Ints
    factors: Reals
    lengths: tuple[float, float]
    """Y and P."""
    rest: Rest
    rate: float
    """r."""

    @property
    def work(self) -> float:
        (m, few), d = self.points.shape, self.axes.shape[1]
        return float((m * (4.0 + 0.1 * few) + len(self.axes) * 0.1 * d + 5.0 * (d + len(self.offsets))) / (20.0 + d))

    @property
    def is_squared(self) -> bool:
        return True

    def score(self, rows: NDArray[Any], out: Nearest) -> Scores:
        (m, few), d = self.points.shape, self.axes.shape[1]
        n, k = len(rows), len(self.offsets)
        step = int(np.clip(_BLOCK // m, 128, 1024))
        errors = np.empty(n)
        vectors, space = np.empty((step, d), dtype=np.float32), np.empty(m * step, dtype=np.float32)
        for low in range(0, n, step):
            some = slice(low, min(low + step, n))
            size = some.stop - low
            part = self.frame.prepare(rows[some], vectors[:size])
            along = np.matmul(self.axes, part.vectors.T)
            block = np.matmul(self.points, along[:few], out=space[: m * size].reshape(m, size))
            exponents = (self.rate * _LOG2E) * (2.0 * along[few:].astype(np.float64) - part.norms)
            moments = Moments(np.empty((k, size)), np.empty((k, size)), np.empty((k, size), dtype=np.float32))
            loops.center_moments(block, exponents.astype(np.float32), self.own, self.starts, self.factors, moments)
            loops.largest_sums(moments, self.rest.roots, self._errors(part.norms, along[:few]))
            first, second = out.first[some], out.second[some]
            two_nearest(moments.sums, -2.0, self.offsets, size, out.labels[some], first, second)
            # From the least to the middle of what the distance may be.
            half = 2.0 * moments.squares[out.labels[some], np.arange(size)]
            first += half
            second += half
            errors[some] = half
        return Scores(np.ones(n), errors, np.zeros(n))

    def _errors(self, norms: Floats, along: Reals) -> RowErrors:
        """What bounds need of some rows: see `RowErrors`."""
        (few, d), rest, rate = (len(along), self.axes.shape[1]), self.rest, self.rate
        y, p = self.lengths
        x = np.sqrt(norms)
        x = np.where(x <= _LARGEST, x, np.inf)
        of_axes = _terms(d) * rest.height
        inner = np.sqrt(np.einsum("ij,ij->j", along, along, dtype=np.float64))
        left = np.sqrt(np.maximum(norms - (1.0 - rest.skewed) * np.maximum(inner - of_axes * x, 0.0) ** 2, 0.0))
        off = (10.0 * _U + 2.0 * d * _V) * (norms + y**2) + 2.0 * (_terms(d) + 3.0 * _U) * x * y
        off += 2.0 * (of_axes + 1.1 * _terms(few) + 4.0 * _U) * x * p
        off += 2.0 * (1.0 + 2.0 * np.sqrt(few)) * d * _LOST * (1.0 + x + y)
        off += 4.0 * _U * (2.0 * (norms + y**2) + 3.0 * x * p)
        relative = np.expm1(rate * off + _UNDERFLOW) + _EXPONENTIAL
        across = 2.02 * rate * rest.along * x
        grows = np.exp(2.0 * rate * left * rest.longest + across)
        return RowErrors(left, across, 2.0 * rate * rest.means * x, grows, relative)


def _terms(d: int) -> float:
    """g(d)."""
    share = d * _U
    return share / (1.0 - share) if share < 0.5 else np.inf


def by_directions(centers: ManyCenters, accuracy: float) -> ByDirections | None:
    """Return the rung, or None if it cannot save much, the kernel is not Gaussian, or a coefficient is negative."""
    program = evaluator_of(centers.kernel).values
    which, point, factors = centers.entries
    k, d, m = len(centers.coefficients), centers.points.shape[1], len(point)
    if (
        accuracy < LABELS_ONLY
        or len(program.operations) > 1
        or program.operations[0, 0] != operations.GAUSSIAN
        or _DIRECTIONS / d + (_DIRECTIONS + k) / m > _MOST_WORK
        or m > MOST_ENTRIES * centers.coefficients.shape[1]
        or not (factors >= 0.0).all()
    ):
        return None
    rate = float(program.parameters[program.operations[0, 1]])
    frame = frame_of(centers.points, "float32", centers.origin)
    starts = np.searchsorted(which, np.arange(k + 1))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"), one_blas_thread():
        norms = np.square(centers.points - frame.mean).sum(axis=1)
        if not (norms <= _LARGEST**2).all():
            return None
        axes, means, parts, rest = _split(_Clusters(centers, frame.mean, starts))
        scale = rate * _LOG2E
        return ByDirections(
            centers,
            2.0 * np.bincount(which, factors, minlength=k) - centers.spreads,
            accuracy,
            frame,
            np.concatenate([axes, means.astype(np.float32)]),
            (2.0 * scale * parts).astype(np.float32),
            (-scale * norms[point]).astype(np.float32),
            starts,
            factors.astype(np.float32),
            (float(np.sqrt(norms.max())), _longest(parts)),
            rest._replace(roots=2.0 * rate * rest.roots),
            rate,
        )


class _Clusters(NamedTuple):
    """The points of each center, less the mean of all, one center after another: so there are never two copies."""

    centers: ManyCenters
    mean: Floats
    starts: Ints

    def each(self) -> Iterator[tuple[slice, Floats, Floats, Floats]]:
        """Yield where the points of a center are, their a_j as a column, m, and the points less m."""
        _, point, factors = self.centers.entries
        for low, high in pairwise(self.starts):
            vectors = self.centers.points[point[low:high]] - self.mean
            a = factors[low:high, np.newaxis]
            middle = (a * vectors).sum(axis=0)
            vectors -= middle
            yield slice(low, high), a, middle, vectors


def _split(clusters: _Clusters) -> tuple[Reals, Floats, Floats, Rest]:
    """Return W, the means, the p_j, and what is left."""
    k, m, d = len(clusters.starts) - 1, int(clusters.starts[-1]), len(clusters.mean)
    axes = _axes(clusters)
    wide = axes.astype(np.float64)
    means, parts, roots = np.empty((k, d)), np.empty((m, len(axes))), np.empty(k)
    longest = along = shift = size = 0.0
    for c, (some, a, middle, vectors) in enumerate(clusters.each()):
        means[c] = middle
        size = max(size, _longest(vectors))
        parts[some] = vectors @ wide.T
        vectors -= parts[some] @ wide
        longest, along = max(longest, _longest(vectors)), max(along, _longest(vectors @ wide.T))
        shift = max(shift, float(np.linalg.norm((a * vectors).sum(axis=0))))
        vectors *= np.sqrt(a)
        roots[c] = np.sqrt(_largest_eigenvalue(vectors @ vectors.T if len(vectors) <= d else vectors.T @ vectors))
    skewed = float(np.linalg.norm(wide @ wide.T - np.eye(len(axes)))) + _ROUNDED
    height = np.sqrt(_largest_eigenvalue(np.abs(wide) @ np.abs(wide).T))
    rest = Rest(roots, longest, along + _ROUNDED * size, shift + _ROUNDED * size, skewed, float(height))
    return axes, means, parts, rest


def _largest_eigenvalue(gram: Floats) -> float:
    """Return at least the largest eigenvalue of a Gram matrix."""
    return float(max(np.linalg.eigvalsh(gram)[-1], 0.0) + _ROUNDED * np.trace(gram))


def _longest(vectors: Floats) -> float:
    return float(np.sqrt(np.square(vectors).sum(axis=1).max()))


def _axes(clusters: _Clusters) -> Reals:
    """Return about the directions in which points differ most from the means, as the rows of an array of float32."""
    axes = np.random.default_rng(0).standard_normal((len(clusters.mean), _DIRECTIONS))
    for _ in range(_TURNS):
        turned = np.zeros_like(axes)
        for _, a, _, vectors in clusters.each():
            turned += vectors.T @ (a * (vectors @ axes))
        axes, _ = np.linalg.qr(turned)
    return np.ascontiguousarray(axes.T, dtype=np.float32)
