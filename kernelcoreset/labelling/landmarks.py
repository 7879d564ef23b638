"""The landmark ladder: inner products with centers from a few kernel values, with a proof of how far they may be off.

A center c = sum_j a_j phi(s_j) is replaced by chat = sum_t b_t phi(l_t), with few landmarks l_t among the s_j. Then

    |<phi(x), c> - <phi(x), chat>| <= r(x) |c - chat| + rounding,

where r(x) is the norm of the part of phi(x) outside the span of the landmarks: chat is the projection of c onto that
span, so c - chat is orthogonal to it. r(x) for the first few landmarks only is cheaper to compute and larger, so it
still gives a bound. |c - chat| is measured for the coefficients b that are used.

A `Ladder` tries every point on a few landmarks, those without a proof on more, and evaluates the rest directly. Labels
(`Centers`) and degrees (`Degrees`) both use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.kernels import program as operations
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.kernels.loops.center_tiles import Bounds
from kernelcoreset.kernels.loops.near import NOISE
from kernelcoreset.kernels.loops.passes import GROUP, Cloud, Combinations, Landmarks
from kernelcoreset.kernels.loops.tiles import TILE
from kernelcoreset.labelling.products import Entries

CHUNK = 32 * TILE
"""Points processed at a time: what they need stays in the second-level cache."""
_CHUNK_NUMBERS = 4_194_304  # and at most 32 MiB of coordinates

_UNIT = 2.0**-53  # largest relative rounding of one operation
_USER_NOISE = 1e-10  # assumed rounding of a user's function, which may cancel or iterate
_LEAST_SHARE = 1e-11  # a point that is spanned up to this share of K(x, x) adds nothing but rounding
_SAFE_SHARE = 1e-4  # of the largest share left
_CHECKED = 256  # points that a user's function is checked on
_LARGEST_SPAN_ROUNDING = 1e-6  # a basis with larger rounding is shortened: it would hide the residuals it measures
_COUNTS = (4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 256)
_LEAST_LANDMARKS = 64
_LARGEST_SHARE = 0.25  # of the coreset: with more landmarks there is little left to gain
_TRIAL = 1024  # coreset points that landmarks are tried on
_MANY_CENTERS = 64
_FEW_LEFT = 1e-3  # share of unproved points below which more landmarks are not tried

Out = TypeVar("Out", bound=tuple[NDArray[Any], ...])


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some of many points, for a ladder. Columns are made when they are first asked for.

    Parameters
    ----------
    some : slice
        Which points.
    rows : ndarray of shape (n, d)
        The points as given, of any real type.
    kernel : Kernel
    origin : ndarray of shape (d,), optional
        What is subtracted from points before landmarks are compared with them.
    """

    some: slice
    rows: NDArray[Any]
    kernel: Kernel
    origin: Floats | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def columns(self) -> Floats:
        """The points in float64, shape (d, n), which are evaluated directly."""
        return as_columns(np.asarray(self.rows, dtype=np.float64))

    @cached_property
    def cloud(self) -> Cloud:
        """The points less the origin, which landmarks are compared with, and their K(x, x)."""
        moved = self.columns if self.origin is None else self.columns - self.origin[:, np.newaxis]
        return Cloud(moved, evaluator_of(self.kernel).diagonal(moved))

    def take(self, rest: NDArray[np.int64]) -> Chunk:
        """Return some of these points."""
        columns = self.__dict__.get("columns")
        return Chunk(self.some, self.rows[rest] if columns is None else columns[:, rest].T, self.kernel, self.origin)


def chunks(kernel: Kernel, rows: NDArray[Any], origin: Floats | None = None) -> Iterator[Chunk]:
    """Yield rows (n, d) in chunks. Columns (d, n) are given as `columns.T`. A chunk at a time is copied."""
    n, d = rows.shape
    size = min(CHUNK, max(TILE, _CHUNK_NUMBERS // d))
    for low in range(0, n, size):
        yield Chunk(slice(low, min(low + size, n)), rows[low : low + size], kernel, origin)


# --- the ladder -------------------------------------------------------------------------------------------------------


class Method(Protocol[Out]):
    """A result per point that depends on inner products with centers, such as a label or a degree."""

    def new(self, n: int) -> Out:
        """Return arrays for the results of n points."""

    def by_landmarks(self, landmarks: Landmarks, cloud: Cloud, out: Out, sure: NDArray[np.bool_]) -> float:
        """Fill in results from landmarks, and `sure` where they are proved; return the largest error among those."""

    def directly(self, chunk: Chunk, out: Out) -> tuple[int, float]:
        """Fill in results from all points that the centers are made of.

        Return how many were proved without evaluating the formula as it is, and the largest error of these.
        """


@dataclass(frozen=True, eq=False)
class Ladder(Generic[Out]):
    """Sets of landmarks to try one after another before a point is evaluated directly.

    Parameters
    ----------
    method : Method
        What is computed per point.
    levels : tuple of Landmarks
        With more and more landmarks. Without any, all points are evaluated directly.
    """

    method: Method[Out]
    levels: tuple[Landmarks, ...] = ()

    @staticmethod
    def choose(
        kernel: Kernel, centers: SparseCenters, method: Method[Out], direct: float, *, trial: int = _TRIAL
    ) -> Ladder[Out]:
        """Return the ladder with the least expected work per point.

        Parameters
        ----------
        kernel : Kernel
        centers : SparseCenters
            What the landmarks stand for. The ladder depends on these alone, not on the points that are asked first.
        method : Method
        direct : float
            Work of a direct evaluation, see `direct_work`.
        trial : int
            At most about so many points of the centers are used to find out how many points each set of landmarks
            proves.
        """
        s, d = centers.points.shape
        tried, works, left = [], [], []
        for span in pick_landmarks(kernel, centers):
            landmarks = compress(kernel, centers, span)
            # A landmark has no error for itself, so it says nothing about other points.
            others = np.delete(np.arange(s), span.pivots)
            sample = others[:: -(-len(others) // trial)]
            cloud = Cloud(as_columns(centers.points[sample]), centers.diagonals[sample])
            share = _share_proved(method, landmarks, cloud)
            # Landmarks that span everything, as for a polynomial, do not need r(x).
            bare = without_basis(landmarks)
            tried.append(bare if _share_proved(method, bare, cloud) >= share else landmarks)
            works.append(work(tried[-1], d))
            left.append(1.0 - share)
            if left[-1] < _FEW_LEFT or works[-1] > direct:
                break
        return Ladder(method, tuple(tried[i] for i in cheapest(works, left, direct)))

    def run(self, chunk: Chunk, out: Out) -> tuple[int, float]:
        """Fill in the results of a chunk; return how many were proved and not evaluated, and their largest error."""
        if not self.levels:
            return self.method.directly(chunk, out)
        sure = np.empty(len(chunk), dtype=np.bool_)
        error = self.method.by_landmarks(self.levels[0], chunk.cloud, out, sure)
        return finish(chunk, out, sure, error, self.method.new, Ladder(self.method, self.levels[1:]).run)


def finish(
    chunk: Chunk,
    out: Out,
    sure: NDArray[np.bool_],
    error: float,
    new: Callable[[int], Out],
    run: Callable[[Chunk, Out], tuple[int, float]],
) -> tuple[int, float]:
    """Run the points that are not sure on the rest of a ladder, and fill in what it finds.

    `error` is that of the others. Return how many of all points were proved, and their largest error.
    """
    rest = np.flatnonzero(~sure)
    if len(rest) == 0:
        return len(sure), error
    found = new(len(rest))
    proved, other_error = run(chunk.take(rest), found)
    for whole, part in zip(out, found, strict=True):
        whole[rest] = part
    return len(sure) - len(rest) + proved, max(error, other_error)


def _share_proved(method: Method[Out], landmarks: Landmarks, cloud: Cloud) -> float:
    sure = np.empty(cloud.columns.shape[1], dtype=np.bool_)
    method.by_landmarks(landmarks, cloud, method.new(len(sure)), sure)
    return float(sure.mean())


def work(landmarks: Landmarks, d: int) -> float:
    """Return the cost per point of some landmarks, in kernel values: a multiply-add is about 1 / (20 + d) of one."""
    k, m = landmarks.factors.shape
    p = len(landmarks.basis)
    return float(m + (m * k + p * p / 2 + 8 * k + 20) / (20 + d))


def least_work(k: int, d: int) -> float:
    """Return the cost per point of the fewest landmarks that prove much among many centers, in kernel values."""
    return float(_LEAST_LANDMARKS + (_LEAST_LANDMARKS + 8) * k / (20 + d))


def direct_work(centers: Combinations, k: int) -> float:
    """Return the cost per point of a direct evaluation, in kernel values."""
    s, d = centers.rows.points.shape
    return float(s + (len(centers.factors) + 8 * k) / (20 + d))


def cheapest(works: list[float], left: list[float], direct: float) -> list[int]:
    """Return which sets of landmarks to try, one after another, before the rest is evaluated directly.

    Set i costs works[i] per point and leaves the share left[i] of the points unproved. Every point is tried on the
    first set, those without a proof on the next, and so on. If less than a tenth is saved, none are used.
    """
    best: list[tuple[float, list[int]]] = []  # of the sets after i, if all points reach them
    for i in reversed(range(-1, len(works))):
        reach = 1.0 if i < 0 else left[i]
        options = [(reach * direct, list[int]())]
        for later, (cost, path) in enumerate(reversed(best), start=i + 1):
            options.append((reach * works[later] + cost, [later, *path]))
        best.append(min(options, key=lambda option: option[0]))
    cost, path = best[-1]
    return path if cost < 0.9 * direct else []


# --- landmarks and their bounds ---------------------------------------------------------------------------------------


class SparseCenters(NamedTuple):
    """Centers c_i = sum_j a_ij phi(s_j), and what is needed to express them by landmarks."""

    points: Floats
    """s_j, shape (s, d)."""
    coefficients: Any
    """a, shape (k, s), as `without_zeros` returns it."""
    diagonals: Floats
    """K(s_j, s_j), shape (s,)."""
    products: Floats
    """<c_i, phi(s_j)>, shape (k, s)."""

    @property
    def gram(self) -> Floats:
        """<c_i, c_j>, shape (k, k)."""
        gram: Floats = self.products @ self.coefficients.T
        return gram


def without_zeros(coefficients: Floats, entries: Entries) -> Any:
    """Return what multiplies like the coefficients: a sparse matrix of those of many centers, which are mostly 0."""
    if len(coefficients) <= _MANY_CENTERS:
        return coefficients
    from scipy.sparse import csr_array  # slow to import

    return csr_array((entries.factors, (entries.which, entries.point)), shape=coefficients.shape)


class Span(NamedTuple):
    """Landmarks in the order they were picked, and the coordinates of all coreset points in an orthonormal basis."""

    pivots: list[int]
    coordinates: Floats
    """Shape (m, s); the first t rows belong to the first t landmarks."""


def kernel_noise(kernel: Kernel, d: int) -> float:
    """Return the largest rounding of a kernel value, relative to sqrt(K(x, x) K(y, y)).

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
    """Yield growing sets of landmarks by pivoted Cholesky; each pivot lowers the sum of |c - chat|^2 most.

    With the residual kernel R, adding point j lowers |c - chat|^2 by <c, R_j>^2 / R_jj. A pivot costs s kernel values
    and O(m s) operations; the Gram matrix is never stored. Yields the span so far at every number of landmarks worth a
    trial, and ends when nothing but rounding is left to span. Yields nothing for a function that is not positive
    semidefinite: the bounds would not hold.
    """
    if not is_semidefinite(kernel, centers.points):
        return
    s, d = centers.points.shape
    columns = as_columns(centers.points)
    left = centers.diagonals.copy()
    scale = 1.0 / np.maximum(centers.diagonals, np.finfo(np.float64).tiny)
    least = max(_LEAST_SHARE, 1e4 * kernel_noise(kernel, d))
    coefficients, gains = centers.coefficients, centers.products.copy()  # of c and <c, R_j>
    if len(gains) > _MANY_CENTERS:
        # Random sums of all centers stand for them: the sum of squares of their gains is the same in expectation.
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(_MANY_CENTERS, len(gains)))
        coefficients, gains = signs @ coefficients, signs @ gains
    most = min(_COUNTS[-1], int(_LARGEST_SHARE * s))
    coordinates = np.empty((most, s))
    pivots: list[int] = []
    for step in range(most):
        share = left * scale
        if not share.max() > least:
            break
        # A gain over a tiny residual is mostly rounding, and such a landmark makes all later ones inaccurate.
        safe = share > max(_SAFE_SHARE * share.max(), least)
        scores = np.full(s, -1.0)
        np.divide(np.square(gains).sum(axis=0), left, out=scores, where=safe)
        j = int(np.argmax(scores))
        row = evaluator_of(kernel).block(columns, centers.points[j : j + 1])[0]
        row -= coordinates[:step, j] @ coordinates[:step]
        row /= np.sqrt(left[j])
        gains -= np.outer(coefficients @ row, row)
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
    """Return whether a kernel is positive semidefinite: by proof if it is built in, else on some of the points."""
    if not evaluator_of(kernel).is_user:
        return True
    some = np.ascontiguousarray(points[:: -(-len(points) // _CHECKED)])
    eigenvalues = np.linalg.eigvalsh(evaluator_of(kernel).block(as_columns(some), some))
    return bool(eigenvalues[0] >= -1e-8 * eigenvalues[-1])


def compress(kernel: Kernel, centers: SparseCenters, span: Span) -> Landmarks:
    """Return the centers expressed by these landmarks, with their bounds."""
    from scipy.linalg import solve_triangular  # slow to import, and a build labels nothing

    pivots, coordinates = span
    points = np.ascontiguousarray(centers.points[pivots])
    gram = evaluator_of(kernel).block(as_columns(points), points)
    # Row t of `lower` holds the coordinates of landmark t, so b @ lower are the coordinates of the center.
    lower = np.tril(coordinates[:, pivots].T)
    products = coordinates @ centers.coefficients.T
    # In C order, so that bounds are the same to the last bit whatever order scipy returns.
    factors = np.ascontiguousarray(solve_triangular(lower, products, lower=True, trans="T", check_finite=False)).T
    noise = kernel_noise(kernel, points.shape[1])
    basis, span_rounding = _basis(lower, gram, noise)
    bounds = _bounds(centers, pivots, factors, gram, noise, span_rounding)
    rounding, norms = direct_rounding(kernel, centers.points, centers.coefficients, centers.diagonals)
    bounds = bounds._replace(rounding=bounds.rounding + rounding, norms=bounds.norms + norms)
    return Landmarks(points, np.ascontiguousarray(factors), basis, bounds)


def without_basis(landmarks: Landmarks) -> Landmarks:
    """Return the same landmarks with sqrt(K(x, x)) instead of r(x): cheaper, and enough if |c - chat| is tiny."""
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
    """Bounds of how far centers on landmarks differ from the centers themselves, rounding included.

    With e_i = c_i - chat_i, <e_i, e_j> is a sum of kernel values, each off by `noise` times its coefficients, with at
    most 2 (s + m) roundings on top; `reach` sums |coefficient| sqrt(K), which every such error is relative to.
    <x, c> computed directly errs by (noise + s units) reach sqrt(K(x, x)), from landmarks by (noise + m units) of
    theirs; both are doubled for 2 <x, c> and doubled again for terms of second order and for c.c - 2 <x, c> itself. A
    square root per point is saved by sqrt(K(x, x)) <= K(x, x) / (2 t) + t / 2 for any t; t is that of a typical point.
    """
    scales = np.sqrt(centers.diagonals)
    s, m = len(scales), len(pivots)
    direct_reach = abs(centers.coefficients) @ scales
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


def direct_rounding(kernel: Kernel, points: Floats, coefficients: Any, diagonals: Floats) -> tuple[float, float]:
    """Return the rounding of a squared distance by its direct evaluation and by c.c: relative to K(x, x), and the rest.

    The direct evaluation adds up s terms a_j D(x, s_j) and subtracts the spread of the center. D is at most
    2 (K(x, x) + K(s, s)) and rounded like K if it has a closed form; else it is a difference of kernel values, with
    what is below `NOISE` of them set to 0. Coefficients that sum to 1 + delta shift it by delta times such a value. So
    each center errs by at most `each` (|a| K(x, x) + 3 |a| sum_j |a_j| K(s_j, s_j)). The spread has no part in the
    evaluation by landmarks, c.c has none in the direct one: the rounding of c.c counts in full.
    """
    s, d = points.shape
    noise = kernel_noise(kernel, d)
    sizes = abs(coefficients)
    total = float(sizes.sum(axis=1).max())
    off = float(np.abs(coefficients.sum(axis=1) - 1.0).max())
    each = 2.0 * noise + 2.0 * (s + 8) * _UNIT + off + (0.0 if evaluator_of(kernel).distances.squared else NOISE)
    reach = float((sizes @ np.sqrt(diagonals)).max())
    norms = 3.0 * each * total * float((sizes @ diagonals).max())
    return each * total, norms + (noise + 2.0 * (s + 8) * _UNIT) * reach**2
