"""Centers on a few landmarks, and a proof of how far they may be off: what makes labelling cheap and keeps it exact.

A center c = sum_j a_j phi(s_j) is replaced by chat = sum_t b_t phi(l_t), with few landmarks l_t among the s_j. Then

    |<phi(x), c> - <phi(x), chat>| <= r(x) |c - chat| + rounding,

where r(x) is the norm of the part of phi(x) outside the span of the landmarks: chat is the projection of c onto that
span, so c - chat is orthogonal to it. r(x) for the first few landmarks only is cheaper, and larger, so still a bound.
|c - chat| is measured for the very coefficients b that are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.center_tiles import Bounds
from kernelcoreset.kernels.loops.passes import GROUP, Combinations, Landmarks

_UNIT = 2.0**-53  # largest relative rounding of one operation
_USER_NOISE = 1e-10  # what a user's function is trusted to: it may cancel or iterate as it likes
_LEAST_SHARE = 1e-11  # a point that is spanned up to this share of K(x, x) adds nothing but rounding
_SAFE_SHARE = 1e-4  # of the largest share left
_CHECKED = 256  # points a user's function is checked on
_LARGEST_SPAN_ROUNDING = 1e-6  # a basis whose rounding is larger is cut short: it would hide what it is to show
_COUNTS = (4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256)
_LARGEST_SHARE = 0.25  # of the coreset: with more landmarks there is little left to gain


class SparseCenters(NamedTuple):
    """Centers c_i = sum_j a_ij phi(s_j), and all that their compression needs to know of them."""

    points: Floats
    """s_j, shape (s, d)."""
    coefficients: Floats
    """a, shape (k, s)."""
    diagonals: Floats
    """K(s_j, s_j), shape (s,)."""
    products: Floats
    """<c_i, phi(s_j)>, shape (k, s)."""

    @property
    def gram(self) -> Floats:
        """<c_i, c_j>, shape (k, k)."""
        return self.products @ self.coefficients.T


class Span(NamedTuple):
    """Landmarks in the order they were picked, and the coordinates of all coreset points in an orthonormal basis."""

    pivots: list[int]
    coordinates: Floats
    """Shape (m, s); the first t rows belong to the first t landmarks."""


def kernel_noise(kernel: Kernel, d: int) -> float:
    """Largest rounding of a kernel value, relative to sqrt(K(x, x) K(y, y)).

    The statistic of a pair (distance, inner product) sums d terms: d + 2 roundings. A power of degree p multiplies
    them by p; t -> exp(-t) keeps t exp(-t) <= 0.37 of them, plus its own last bits; Cosine divides by two norms with
    d / 2 + 2 each. So 4 (d + 8) p covers each kernel of a combination with room to spare, and these add up.
    """
    evaluator = evaluator_of(kernel)
    if evaluator.is_user:
        return _USER_NOISE
    program = evaluator.values
    degrees = 0.0
    for code, start in program.operations:
        degrees += program.parameters[start + 1] if code == operations.POLYNOMIAL else 1.0
    return float(4.0 * (d + 8) * degrees * _UNIT)


def pick_landmarks(kernel: Kernel, centers: SparseCenters) -> Iterator[Span]:
    """Pivoted Cholesky; each pivot is the coreset point that brings the sum of |c - chat|^2 down most.

    With the residual kernel R, adding point j lowers |c - chat|^2 by <c, R_j>^2 / R_jj. A pivot costs s kernel values
    and O(m s); never holds a Gram matrix. Yields the span so far at every number of landmarks worth a trial, and
    ends where nothing but rounding is left to span. Yields nothing for a function that is no kernel: the bounds would
    not hold.
    """
    if not is_semidefinite(kernel, centers.points):
        return
    s, d = centers.points.shape
    columns = as_columns(centers.points)
    left = centers.diagonals.copy()
    scale = 1.0 / np.maximum(centers.diagonals, np.finfo(np.float64).tiny)
    least = max(_LEAST_SHARE, 1e4 * kernel_noise(kernel, d))
    gains = centers.products.copy()  # <c, R_j>
    most = min(_COUNTS[-1], int(_LARGEST_SHARE * s))
    coordinates = np.empty((most, s))
    pivots: list[int] = []
    for step in range(most):
        share = left * scale
        if not share.max() > least:
            break
        # A gain over a tiny residual is mostly rounding, and a landmark picked for it spoils all that follow.
        safe = share > max(_SAFE_SHARE * share.max(), least)
        scores = np.full(s, -1.0)
        np.divide(np.square(gains).sum(axis=0), left, out=scores, where=safe)
        j = int(np.argmax(scores))
        row = evaluator_of(kernel).block(columns, centers.points[j : j + 1])[0]
        row -= coordinates[:step, j] @ coordinates[:step]
        row /= np.sqrt(left[j])
        gains -= np.outer(centers.coefficients @ row, row)
        left -= row * row
        left[j] = 0.0
        if (left * scale).min() < -1e-6:
            break
        coordinates[step] = row
        pivots.append(j)
        if len(pivots) in _COUNTS:
            yield Span(pivots.copy(), coordinates[: len(pivots)])
    if pivots and len(pivots) not in _COUNTS:
        yield Span(pivots, coordinates[: len(pivots)])


def is_semidefinite(kernel: Kernel, points: Floats) -> bool:
    """Whether some points show no sign that a user's function is indefinite. Built-in kernels pass by proof."""
    if not evaluator_of(kernel).is_user:
        return True
    some = np.ascontiguousarray(points[:: -(-len(points) // _CHECKED)])
    eigenvalues = np.linalg.eigvalsh(evaluator_of(kernel).block(as_columns(some), some))
    return bool(eigenvalues[0] >= -1e-8 * eigenvalues[-1])


def compress(kernel: Kernel, centers: SparseCenters, span: Span) -> Landmarks:
    """The centers on these landmarks, with their bounds."""
    pivots, coordinates = span
    points = np.ascontiguousarray(centers.points[pivots])
    gram = evaluator_of(kernel).block(as_columns(points), points)
    # Row t of `lower` holds the coordinates of landmark t, so b @ lower are the coordinates of the center.
    lower = np.tril(coordinates[:, pivots].T)
    factors = np.linalg.solve(lower.T, coordinates @ centers.coefficients.T).T.astype(np.float64)
    noise = kernel_noise(kernel, points.shape[1])
    basis, span_rounding = _basis(lower, gram, noise)
    return Landmarks(
        points, np.ascontiguousarray(factors), basis, _bounds(centers, pivots, factors, gram, noise, span_rounding)
    )


def without_basis(landmarks: Landmarks) -> Landmarks:
    """The same landmarks with sqrt(K(x, x)) in place of r(x): cheaper, and enough where |c - chat| is tiny."""
    return landmarks._replace(basis=np.zeros((0, 0)), bounds=landmarks.bounds._replace(span=0.0))


def _basis(lower: Floats, gram: Floats, noise: float) -> tuple[Floats, float]:
    """Coefficients W of an orthonormal basis of the first landmarks, and the rounding of K(x, x) - |W k(x)|^2.

    Let W gram W^T = I + F, |F| <= f, for the W that is stored. The projection of phi(x) onto the span has the squared
    norm u^T (I + F)^-1 u >= |u|^2 / (1 + f) with u = W k(x), so K(x, x) - |u|^2 is too small by at most f |u|^2, less
    than 2 f K(x, x). F is measured; measuring it errs by |W|^2 p (noise + 2 p units). Values that are off by `noise`
    put u off by w = |W| sqrt(p) (noise + 2 p units) sqrt(K(x, x)), and |u|^2 by less than 3 w sqrt(K(x, x)).
    The noise of a value is relative to sqrt(K(l, l)), hence the scaling.
    """
    scales = np.sqrt(np.diag(gram))
    for p in range(min(GROUP, len(scales)), 0, -1):
        basis = np.tril(np.linalg.inv(lower[:p, :p]))
        size = float(np.linalg.norm(basis * scales[:p]))
        each = noise + 2 * p * _UNIT
        error = np.linalg.norm(basis @ gram[:p, :p] @ basis.T - np.eye(p)) + size**2 * p * each
        rounding = float(2.0 * error + 3.0 * size * np.sqrt(p) * each)
        if rounding <= _LARGEST_SPAN_ROUNDING:
            return np.ascontiguousarray(basis), rounding
    return np.zeros((0, 0)), 0.0


def _bounds(
    centers: SparseCenters, pivots: list[int], factors: Floats, gram: Floats, noise: float, span: float
) -> Bounds:
    """How far off the compressed centers are, rounding included.

    With e_i = c_i - chat_i, <e_i, e_j> is a sum of kernel values, each off by `noise` times its coefficients, with at
    most 2 (s + m) roundings on top; `reach` sums |coefficient| sqrt(K), which every such error is relative to.
    <x, c> computed directly errs by (noise + s units) reach sqrt(K(x, x)), from landmarks by (noise + m units) of
    theirs; both are doubled for 2 <x, c> and doubled again for terms of second order and for c.c - 2 <x, c> itself. A
    square root a point is saved by sqrt(K(x, x)) <= K(x, x) / (2 t) + t / 2, for any t: that of a typical point.
    """
    scales = np.sqrt(centers.diagonals)
    s, m = len(scales), len(pivots)
    direct_reach = np.abs(centers.coefficients) @ scales
    reach = np.abs(factors) @ scales[pivots]
    cross = factors @ centers.products[:, pivots].T
    errors = centers.gram - cross - cross.T + factors @ gram @ factors.T
    both = direct_reach + reach
    relative = noise + 2 * (s + m + 8) * _UNIT
    own = np.diag(errors)
    pairs = own[:, None] + own[None, :] - 2.0 * errors + relative * (both[:, None] + both[None, :]) ** 2
    np.fill_diagonal(pairs, 0.0)
    rounding = (noise + (s + 8) * _UNIT) * direct_reach + (noise + (m + 8) * _UNIT) * reach
    largest = 4.0 * float(rounding.max())
    typical = float(np.median(scales[scales > 0.0]))
    return Bounds(
        span=span,
        center=float(np.sqrt(np.maximum(own + relative * both**2, 0.0).max())),
        pair=float(np.sqrt(np.maximum(pairs, 0.0).max())),
        rounding=largest / (2.0 * typical) + 8.0 * _UNIT,
        norms=largest * typical / 2.0 + 4.0 * _UNIT * float(np.abs(np.diag(centers.gram)).max()),
    )


def work(landmarks: Landmarks, d: int) -> float:
    """What labelling one point costs, in kernel values: a multiply-add is about 1 / (20 + d) of one."""
    k, m = landmarks.factors.shape
    p = len(landmarks.basis)
    return float(m + (m * k + p * p / 2 + 8 * k + 20) / (20 + d))


def direct_work(centers: Combinations, k: int) -> float:
    """What labelling one point from all coreset points costs, in kernel values."""
    s, d = centers.points.shape
    return float(s + (len(centers.factors) + 8 * k) / (20 + d))


def cheapest(works: list[float], left: list[float], direct: float) -> list[int]:
    """The compressions to go through one after another, before the rest is evaluated directly.

    left[i] is the share of points that compression i leaves unlabelled. Every point is tried on the first one, what
    that leaves on the next, and so on. Saving less than a tenth is not worth it.
    """
    best: list[tuple[float, list[int]]] = []  # of the compressions after i, given that all points reach them
    for i in reversed(range(-1, len(works))):
        reach = 1.0 if i < 0 else left[i]
        options = [(reach * direct, list[int]())]
        for later, (cost, path) in enumerate(reversed(best), start=i + 1):
            options.append((reach * works[later] + cost, [later, *path]))
        best.append(min(options, key=lambda option: option[0]))
    cost, path = best[-1]
    return path if cost < 0.9 * direct else []
