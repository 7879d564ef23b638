"""Values that are odd in themselves, given to every public function that takes numbers; used by `number_cases`.

A value is either refused with an error of the package, or it means the same as a plain one and gives the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

import kernelcoreset as kc

N = 24
PLAIN = np.random.default_rng(3).integers(-40, 40, size=(N, 2)) / 4.0  # exact in float32, and as decimals
KERNEL = kc.Gaussian(sigma=4.0)
BIG = 2**53


def with_value(value: Any, at: tuple[int, int] = (5, 1)) -> np.ndarray:
    """The plain points with one other value."""
    points = PLAIN.astype(object) if not isinstance(value, float) else PLAIN.copy()
    points[at] = value
    return points


def whole(value: int, kind: Any = np.int64) -> np.ndarray:
    """Whole numbers, one of them large."""
    points = np.rint(PLAIN).astype(np.int64).astype(kind)
    points[5, 1] = value
    return points


def masked(where: Any) -> np.ma.MaskedArray:
    return np.ma.MaskedArray(PLAIN, mask=np.broadcast_to(where, PLAIN.shape))


one_masked = np.zeros(PLAIN.shape, dtype=bool)
one_masked[5, 1] = True
swapped = PLAIN.astype(">f8")

# By name: the odd points, and the plain ones they must be equal to; None if they must be refused.
POINTS: dict[str, tuple[Any, Any]] = {
    "NaN": (with_value(math.nan), None),
    "infinity": (with_value(math.inf), None),
    "-infinity": (with_value(-math.inf), None),
    "None": (with_value(None), None),
    "text": (with_value("4.5x"), None),
    "complex": (PLAIN + 1j, None),
    "dates": (np.full(PLAIN.shape, np.datetime64("2026-01-01")), None),
    "durations": (np.full(PLAIN.shape, np.timedelta64(3, "s")), None),
    "bytes": (np.full(PLAIN.shape, b"1"), None),
    "records": (np.zeros(N, dtype=[("x", float), ("y", float)]), None),
    "masked value": (masked(one_masked), None),
    "all masked": (masked(True), None),
    "nothing masked": (masked(False), PLAIN),
    "masked rows in a list": ([row for row in masked(one_masked)], None),  # noqa: C416
    "2^53 + 1": (whole(BIG + 1), None),
    "-2^53 - 1": (whole(-BIG - 1), None),
    "2^62": (whole(2**62), whole(2**62).astype(float)),
    "2^63 - 1": (whole(2**63 - 1), None),
    "-2^63": (whole(-(2**63)), whole(-(2**63)).astype(float)),
    "2^64 - 1 unsigned": (np.abs(whole(3)).astype(np.uint64) + np.uint64(2**64 - 60), None),
    "10^400": (with_value(10**400), None),
    "whole object beyond 2^53": (with_value(BIG + 1), None),
    "decimals": (np.vectorize(Decimal, otypes=[object])(PLAIN), PLAIN),
    "decimal NaN": (with_value(Decimal("NaN")), None),
    "decimal beyond float64": (with_value(Decimal("1e400")), None),
    "fractions": (np.vectorize(Fraction, otypes=[object])(PLAIN), PLAIN),
    "float32": (PLAIN.astype(np.float32), PLAIN),
    "float16": (PLAIN.astype(np.float16), PLAIN),
    "longdouble": (PLAIN.astype(np.longdouble), PLAIN),
    "longdouble beyond float64": (with_value(math.nan).astype(np.longdouble) * np.longdouble("1e4000"), None),
    "other byte order": (swapped, PLAIN),
    "Fortran order": (np.asfortranarray(PLAIN), PLAIN),
    "every other row": (np.repeat(PLAIN, 2, axis=0)[::2], PLAIN),
    "reversed view": (PLAIN[::-1][::-1], PLAIN),
    "lists": (PLAIN.tolist(), PLAIN),
    "booleans": (PLAIN > 0, (PLAIN > 0).astype(float)),
    "negative zeros": (np.where(PLAIN == 0.0, -0.0, PLAIN), PLAIN),
    "one dimension": (PLAIN[:, 0], None),
    "three dimensions": (PLAIN[:, :, None], None),
    "ragged": ([[1.0, 2.0], [3.0]] * (N // 2), None),
    "no rows": (PLAIN[:0], None),
    "no columns": (PLAIN[:, :0], None),
    "a number": (3.0, None),
    "nothing": (None, None),
    "a text": ("points", None),
    "a dictionary": ({"x": [1.0]}, None),
    "a set": ({1.0, 2.0}, None),
}
# Squares of their differences leave float64: any function that needs distances must refuse them.
EXTREMES = {
    "denormals": np.where(PLAIN > 0, 5e-324, 0.0),
    "differences that underflow": PLAIN * 1e-160,
    "beyond squares": PLAIN * 1e160,
    "largest numbers": np.where(PLAIN > 0, 1.7e308, -1.7e308),
}
WEIGHTS: dict[str, tuple[Any, Any]] = {
    "ones": (np.ones(N), None),
    "whole numbers": (np.arange(1, N + 1), np.arange(1.0, N + 1)),
    "booleans": (np.ones(N, dtype=bool), np.ones(N)),
    "decimals": ([Decimal(i + 1) for i in range(N)], np.arange(1.0, N + 1)),
    "float32": (np.ones(N, dtype=np.float32), np.ones(N)),
    "1e-300": (np.full(N, 1e-300), np.full(N, 1.0)),
    "1e300": (np.full(N, 1e300), np.full(N, 1.0)),
    "sum beyond float64": (np.full(N, 1e308), "refuse"),
    "a negative one": (np.where(np.arange(N) == 3, -1.0, 1.0), "refuse"),
    "NaN": (np.where(np.arange(N) == 3, np.nan, 1.0), "refuse"),
    "infinity": (np.where(np.arange(N) == 3, np.inf, 1.0), "refuse"),
    "all zero": (np.zeros(N), "refuse"),
    "masked": (np.ma.MaskedArray(np.ones(N), mask=np.arange(N) == 3), "refuse"),
    "too few": (np.ones(N - 1), "refuse"),
    "two dimensions": (np.ones((N, 1)), "refuse"),
    "text": (["a"] * N, "refuse"),
}


def _plain(coreset: kc.Coreset) -> Any:
    return coreset.points.tolist(), coreset.weights.tolist()


def _of_weights(coreset: kc.Coreset) -> Any:
    """Without the unit of the weights, which is given."""
    return coreset.points.tolist(), np.round(coreset.weights / coreset.weights.sum(), 12).tolist()


def _estimator(kernel: kc.Kernel = KERNEL) -> Any:
    return kc.KernelKMeans(2, kernel=kernel, coreset_size=12, random_state=0)


def _tree_of(points: Any) -> kc.CoresetTree:
    tree = kc.CoresetTree(2, KERNEL, 12)
    tree.add(points)
    return tree


ESTIMATOR = _estimator().fit(PLAIN)
MODEL = kc.KernelKMeansModel.fit_coreset(kc.Coreset(PLAIN, np.ones(N)), 3, KERNEL)
WHOLE_CORESET = kc.Coreset(PLAIN, np.ones(N))
USES: dict[str, Callable[[Any], Any]] = {
    "build_coreset": lambda points: _plain(kc.build_coreset(points, 3, KERNEL, 12)),
    "Coreset": lambda points: _plain(kc.Coreset(points, np.ones(N))),
    "Centers": lambda points: kc.Centers(points, np.full((1, N), 1 / N), KERNEL).distances(PLAIN).tolist(),
    "predict": lambda points: MODEL.predict(points).tolist(),
    "cost": MODEL.cost,
    "empirical_error": lambda points: kc.empirical_error(points, WHOLE_CORESET, 3, KERNEL, n_center_sets=5),
    "choose_sigma": kc.choose_sigma,
    "spectral": lambda points: kc.fit_spectral(points, 2, KERNEL, 12).predict(PLAIN).tolist(),
    "CoresetTree": lambda points: _plain(_tree_of(points).result()),
    "block": lambda points: KERNEL.block(points, PLAIN).tolist(),
    "SpectralClustering": lambda points: (
        kc.SpectralClustering(2, kernel=KERNEL, coreset_size=12, random_state=0).fit(points).labels_.tolist()
    ),
    "KernelKMeans": lambda points: _estimator().fit(points).labels_.tolist(),
    "KernelKMeans.predict": lambda points: ESTIMATOR.predict(points).tolist(),
    "KernelKMeans.transform": lambda points: ESTIMATOR.transform(points).tolist(),
}
EXTREME_USES: dict[str, Callable[[Any], Any]] = {
    "solve": lambda points: kc.solve(kc.Coreset(points, np.ones(N)), 2, kc.Linear()),
    "solve_exact": lambda points: kc.solve_exact(kc.Coreset(points[:9], np.ones(9)), 2, kc.Linear()),
    "Centers": lambda points: kc.Centers(points, np.full((1, N), 1 / N), kc.Linear()).distances(PLAIN),
    "KernelKMeans": lambda points: _estimator(kc.Linear()).fit(points),
    "StreamingKernelKMeans": lambda points: (
        kc.StreamingKernelKMeans(2, kernel=kc.Linear(), coreset_size=12, random_state=0)
        .partial_fit(points)
        .predict(PLAIN)
    ),
}
WEIGHT_USES: dict[str, Callable[[Any], Any]] = {
    "build_coreset": lambda weights: _of_weights(kc.build_coreset(PLAIN, 3, KERNEL, 12, weights=weights)),
    "Coreset": lambda weights: kc.solve(kc.Coreset(PLAIN, weights), 3, KERNEL).labels.tolist(),
    "cost": lambda weights: round(MODEL.cost(PLAIN, weights) / float(np.sum(np.asarray(weights, dtype=float))), 12),
    "KernelKMeans": lambda weights: _estimator().fit(PLAIN, sample_weight=weights).labels_.tolist(),
}
ODD_NUMBERS: tuple[Any, ...] = (0, -1, 2**63, 2**64, 10**400, 1.5, math.nan, math.inf, True, "3", None, [3], 1e400, 3j)
SETTINGS: dict[str, Callable[[Any], Any]] = {
    "degree": lambda value: kc.Polynomial(degree=value),
    "sigma": lambda value: kc.Gaussian(sigma=value if value not in (1.5, 2**63, 2**64) else -value),
    "nu": lambda value: kc.Matern(sigma=1.0, nu=value if value != 1.5 else 0.5),
    "k": lambda value: kc.build_coreset(PLAIN, value, KERNEL, 12),
    "size": lambda value: kc.build_coreset(PLAIN, 3, KERNEL, value),
    "seed": lambda value: kc.build_coreset(PLAIN, 3, KERNEL, 12, seed=value if value not in (0, 2**63, 2**64) else -9),
    "z": lambda value: kc.build_coreset(PLAIN, 3, KERNEL, 12, z=value if value != 1.5 else 0.5),
    "n_init": lambda value: kc.solve(WHOLE_CORESET, 3, KERNEL, n_init=value),
}


SAID_BY_SCIKIT_LEARN = (
    *("Input X contains", "Input sample_weight contains", "Complex data not supported", "Expected 2D array"),
    *("Found array with", "could not convert string to float", "Sample weights must", "sample_weight.shape =="),
    *("inhomogeneous shape", "argument must be a string or a real number", "Cannot cast array data"),
)
"""What its checks say of input that no estimator takes; users know these messages, and its own tests demand them."""


def cases() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    """Yield name, the odd call, and the plain call that must give the same; None if the odd one must be refused."""
    for name, (odd, plain) in POINTS.items():
        for use, call in USES.items():
            expected = None if plain is None else (lambda call=call, plain=plain: call(plain))
            yield f"points: {name}, {use}", lambda call=call, odd=odd: call(odd), expected
    for name, points in EXTREMES.items():
        for use, call in EXTREME_USES.items():
            yield f"points: {name}, {use}", lambda call=call, points=points: call(points), None
    for name, (odd, plain) in WEIGHTS.items():
        for use, call in WEIGHT_USES.items():
            same = odd if plain is None else plain
            refused = isinstance(plain, str)
            expected = None if refused else (lambda call=call, same=same: call(same))
            yield f"weights: {name}, {use}", lambda call=call, odd=odd: call(odd), expected
    for name, call in SETTINGS.items():
        for value in ODD_NUMBERS:
            shown = str(value)[:12]
            yield f"setting {name}: {shown}", lambda call=call, value=value: call(value), None


def try_case(odd: Callable[[], Any], plain: Callable[[], Any] | None) -> tuple[str, str]:
    """Return what came of a case and, if that is bad, why."""
    try:
        found = odd()
    except kc.KernelCoresetError:
        return ("clear error", "") if plain is None else ("unclear error", "refused, but it means a plain value")
    except Exception as error:
        if any(name in str(error) for name in SAID_BY_SCIKIT_LEARN):
            return "clear error", ""
        return "unclear error", f"{type(error).__name__}: {str(error)[:150]}"
    if plain is None:
        return "silent wrong", "accepted"
    return ("done right", "") if found == plain() else ("silent wrong", "another result than that of plain values")
