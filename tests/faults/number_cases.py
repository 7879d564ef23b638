"""Odd numbers: offsets, scales, weights and values that float64 rounds, overflows or cannot hold.

A case of the law clusters three tight blobs with some kernel, offset, scale, weights and z, and judges the result by
exact distances (`tests/naive_exact.py`): every label is a nearest center wherever distances differ by more than their
rounding, the costs that the solver and the model report are the exact one, and no better clusters were at hand. Odd
values are given to every public function that takes numbers. A package error, or a warning that names the column and
the remedy, is clear; it counts as unclear where float64 can carry the numbers and the answer had to be right.
"""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

import kernelcoreset as kc
from tests import naive_exact
from tests.faults import odd_values
from tests.faults.tally import Tally

BLOBS, EACH = 3, 8
OFFSETS = (0.0, 1e3, 1e7, 1e9, 1e12)
SCALES = (1e-150, 1e-100, 1e-30, 1e30, 1e100, 1e150)
ROUNDING = Decimal("1e-9")
"""Of the mean squared distance to the points of a center, and of costs: the share that counts as rounding."""


@dataclass(frozen=True)
class Law:
    """Blobs, 5 apart and 0.1 wide, moved by `offset`, all times `scale`; the kernel's width goes with the scale."""

    kernel: str
    offset: float = 0.0
    scale: float = 1.0
    weights: str = "ones"
    z: float = 2.0
    d: int = 2

    @property
    def name(self) -> str:
        """What is odd about it."""
        numbers = f"offset {self.offset:g}, scale {self.scale:g}, z {self.z:g}, {self.d} columns"
        return f"{self.kernel}, {numbers}, weights: {self.weights}"


KERNELS: dict[str, Callable[[float], kc.Kernel]] = {
    "Linear": lambda scale: kc.Linear(),
    "Gaussian": lambda scale: kc.Gaussian(sigma=3.0 * scale),
    "wide Gaussian": lambda scale: kc.Gaussian(sigma=1e9 * scale),
    "Exponential": lambda scale: kc.Exponential(sigma=(3.0 * scale) ** 0.5),
    "Laplacian": lambda scale: kc.Laplacian(sigma=3.0 * scale),
    "wide Laplacian": lambda scale: kc.Laplacian(sigma=1e9 * scale),
    "Matern 3/2": lambda scale: kc.Matern(sigma=3.0 * scale, nu=1.5),
    "Matern 5/2": lambda scale: kc.Matern(sigma=3.0 * scale, nu=2.5),
    "wide Matern": lambda scale: kc.Matern(sigma=1e9 * scale, nu=2.5),
    "Polynomial 1": lambda scale: kc.Polynomial(degree=1, c=1.0),
    "Polynomial 2": lambda scale: kc.Polynomial(degree=2),
    "Polynomial 3": lambda scale: kc.Polynomial(degree=3, c=1.0),
    "Polynomial 4": lambda scale: kc.Polynomial(degree=4, c=2.0),
    "Polynomial 7": lambda scale: kc.Polynomial(degree=7, c=0.5),
    "Cosine": lambda scale: kc.Cosine(),
    "multiple": lambda scale: 2.5 * kc.Gaussian(sigma=2.0 * scale),
    "sum": lambda scale: kc.Gaussian(sigma=3.0 * scale) + 0.5 * kc.Linear(),
    "product": lambda scale: kc.Laplacian(sigma=5.0 * scale) * kc.Gaussian(sigma=5.0 * scale),
}


def laws() -> Iterator[Law]:
    """Every kernel with every offset, every scale, both; with odd weights, other powers, and many columns."""
    for kernel in KERNELS:
        yield from (Law(kernel, offset=offset) for offset in OFFSETS)
        yield from (Law(kernel, scale=scale) for scale in SCALES)
        yield from (Law(kernel, 1e9, scale) for scale in (1e-100, 1e100))
        yield from (Law(kernel, 1e3, weights=weights) for weights in ("tiny", "huge", "mixed"))
        yield from (Law(kernel, offset, d=24) for offset in OFFSETS)
        yield from (Law(kernel, scale=scale, d=24) for scale in (1e-100, 1e100))
        yield from (Law(kernel, offset, z=z) for offset, z in itertools.product((0.0, 1e7), (1.0, 3.0)))


def points_of(law: Law) -> tuple[np.ndarray, np.ndarray]:
    """The blobs, and which blob each point is from."""
    generator = np.random.default_rng(5)
    blob = np.repeat(np.arange(BLOBS), EACH)
    middles = np.zeros((BLOBS, law.d))
    middles[1, 0] = middles[2, 1] = 5.0
    rest = middles[blob] + generator.uniform(-0.05, 0.05, size=(len(blob), law.d)) + np.arange(1, law.d + 1)
    return (rest + law.offset) * law.scale, blob


def weights_of(law: Law, n: int) -> np.ndarray:
    """Weights as the case asks for them."""
    plain = 1.0 + np.arange(n) % 3
    if law.weights == "tiny":
        return plain * 1e-300
    if law.weights == "huge":
        return plain * 1e300
    return np.where(np.arange(n) % 2, plain, 1e-300) if law.weights == "mixed" else plain


def try_law(law: Law) -> tuple[str, str]:
    """Cluster the blobs and judge the result; return the outcome and, if it is bad, why."""
    points, blob = points_of(law)
    weights = weights_of(law, len(points))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            kernel = KERNELS[law.kernel](law.scale)
            coreset = kc.Coreset(points, weights)
            model = kc.KernelKMeansModel.fit_coreset(coreset, BLOBS, kernel, z=law.z, seed=1, n_init=3)
            found = {"labels": model.label(points).labels, "predicted": model.centers.predict(points)}
            cost = model.cost(points, weights)
        except kc.KernelCoresetError as error:
            return ("clear error", "") if may_refuse(law) else ("unclear error", f"refused: {error}")
        except Exception as error:
            return "unclear error", f"{type(error).__name__}: {error}"
    wrong = wrong_with(law, model, found, cost, points, weights, blob)
    if not wrong:
        return "done right", ""
    said = [str(own.message) for own in caught if "olumn" in str(own.message) or "digits" in str(own.message)]
    return ("clear error", "") if said and may_refuse(law) else ("silent wrong" if not said else "unclear error", wrong)


def wrong_with(
    law: Law,
    model: kc.KernelKMeansModel,
    found: dict[str, np.ndarray],
    cost: float,
    points: np.ndarray,
    weights: np.ndarray,
    blob: np.ndarray,
) -> str:
    """What differs from exact distances, "" if nothing does."""
    own = naive_exact.distances_among(model.kernel.to_dict(), points)
    squared, means = naive_exact.to_centers(own, own, model.solution.coefficients)
    rows = np.arange(len(points))
    for name, labels in found.items():
        excess = squared[rows, labels] - squared.min(axis=1)
        if (excess > ROUNDING * means.max(axis=1)).any():
            return f"{name} differ from exact distances at {int((excess > ROUNDING * means.max(axis=1)).sum())} points"
    with naive_exact.precise():
        nearest = [max(value, Decimal(0)) ** (Decimal(law.z) / 2) for value in squared.min(axis=1)]
        exact = sum(Decimal(float(w)) * value for w, value in zip(weights, nearest, strict=True))
        for name, value in {"model.cost": cost, "solution.cost": model.solution.cost}.items():
            # Each term of the sum may lose half a step of the smallest numbers.
            if abs(Decimal(value) - exact) > Decimal("1e-6") * exact + len(points) * Decimal("5e-324"):
                return f"{name} is {value:g}, exactly {exact:.6g}"
        best = naive_exact.partition_cost(own, weights, blob)
        if law.z == 2.0 and exact > best * (1 + ROUNDING):
            return f"cost {exact:.6g}, that of the blobs {best:.6g}"
    return ""


def may_refuse(law: Law) -> bool:
    """Whether float64 cannot carry the numbers: sigma, K(x, x), a squared distance or the cost leaves its range."""
    if law.scale == 1e150 and law.kernel.startswith("wide"):  # sigma = 1e159, whose square is no float64
        return True
    points, _ = points_of(law)
    plain = KERNELS[law.kernel](law.scale).to_dict()
    with naive_exact.precise():
        corners = naive_exact.decimals(points[[0, EACH, 2 * EACH]])
        values = max(naive_exact.kernel_value(plain, x, x) for x in corners)
        squared = naive_exact.distances_among(plain, points[[0, EACH, 2 * EACH]]).max()
        power = squared ** (Decimal(law.z) / 2)
        heaviest = Decimal(float(weights_of(law, len(points)).sum()))
        # A distance is a mean of squared ones, and a cost a sum: both need some room.
        largest, smallest = max(values, squared, power, power * heaviest), min(squared, power)
        return bool(largest > Decimal("1e305") or smallest < Decimal("1e-300"))


def run(folder: Path, cases: int | None = None) -> list[Tally]:
    """Return what came of the law and of odd values; say which cases ended badly."""
    tallies, bad = try_cases(folder, cases)
    print(*bad, sep="\n", end="\n" if bad else "", file=sys.stderr)
    return tallies


def try_cases(folder: Path, cases: int | None = None) -> tuple[list[Tally], list[str]]:
    """Try that many cases of each kind, by default all; return the tallies and a line for every bad case."""
    law_tally, odd_tally = Tally("offsets, scales, weights and powers"), Tally("odd values")
    bad = []
    every = list(laws())
    for law in every if cases is None else every[:: max(1, len(every) // cases)][:cases]:
        outcome, reason = try_law(law)
        law_tally.add(outcome)
        if reason:
            bad.append(f"{law.name}: {outcome}: {reason}")
    others = list(odd_values.cases())
    for name, odd, plain in others if cases is None else others[:: max(1, len(others) // cases)][:cases]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome, reason = odd_values.try_case(odd, plain)
        odd_tally.add(outcome)
        if reason:
            bad.append(f"{name}: {outcome}: {reason}")
    return [law_tally, odd_tally], bad


if __name__ == "__main__":
    tallies, lines = try_cases(Path())
    print("\n".join([*lines, *(tally.row() for tally in tallies)]))
