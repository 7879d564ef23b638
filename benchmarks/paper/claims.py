"""The paper's claims, one by one, against what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.paper import error, kmeans, spectral, variations
from benchmarks.paper.cells import Row, Table


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, its figures, what we measured, and whether it holds."""

    claim: str
    paper: str
    ours: str
    holds: str

    def row(self) -> list[str]:
        """Return the cells of a table."""
        return [self.claim, self.paper, self.ours, self.holds]


def check_claims(out: Path) -> list[Claim]:
    """Return the claims that can be checked with the tables in a folder."""
    found: list[Claim] = []
    tables: list[tuple[str, tuple[str, ...], tuple[str, ...], Callable[[Table], list[Claim]]]] = [
        ("error", error.KEYS, error.VALUES, _of_error),
        ("kmeans", kmeans.KEYS, kmeans.VALUES, _of_kmeans),
        ("spectral", spectral.KEYS, spectral.VALUES, _of_spectral),
        ("variations", variations.KEYS, variations.VALUES, _of_variations),
    ]
    for name, keys, values, check in tables:
        path = out / f"{name}.csv"
        if path.exists():
            found += check(Table(path, keys, values))
    return found


def _answer(holds: bool) -> str:
    return "holds" if holds else "does not hold"


def _pair(row: Row) -> str:
    return f"{row['data']} {row['kernel']}"


def _of_error(table: Table) -> list[Claim]:
    sizes = sorted({row["size"] for row in table.rows})
    size = 1000 if 1000 in sizes else sizes[-1]
    worst = {method: max(table.where(method=method, size=size), key=lambda row: float(row["mean"]))
             for method in ("iid", "ordered", "uniform")}  # fmt: skip
    holds = worst["iid"]["mean"] <= 0.1
    at_most = Claim(
        f"at most 10 % error at {size:,} points on every data set",
        "at most 10 %, all data sets and kernels",
        f"over {len(table.where(method='ordered', size=size))} pairs of data and kernel: "
        + "; ".join(
            f"{name} at most {worst[method]['mean']:.2%} ({_pair(worst[method])})"
            for name, method in (("the paper's draw", "iid"), ("ours", "ordered"))
        ),
        f"paper's draw: {_answer(holds)}; ours: {_answer(worst['ordered']['mean'] <= 0.1)}",
    )  # fmt: skip
    return [at_most, _against_uniform(table), _alike(table, size)]


def _against_uniform(table: Table) -> Claim:
    won: dict[str, list[float]] = {"iid": [], "ordered": []}
    lost = []
    for uniform in table.where(method="uniform"):
        for method, ratios in won.items():
            same = table.where(data=uniform["data"], kernel=uniform["kernel"], size=uniform["size"], method=method)
            ratios += [uniform["mean"] / row["mean"] for row in same]
            lost += [
                f"{_pair(row)} N={row['size']}" for row in same if method == "iid" and row["mean"] > uniform["mean"]
            ]
    counts = {method: sum(ratio > 1 for ratio in ratios) for method, ratios in won.items()}
    pairs = sorted({name.rsplit(" N=", 1)[0] for name in lost})
    return Claim(
        "better than uniform on every data set, kernel and size",
        '"generally superior", most at small sizes',
        f"the paper's draw in {counts['iid']} of {len(won['iid'])} cells (not in {len(lost)}: "
        f"{', '.join(pairs) or 'none'}); ours in {counts['ordered']} of {len(won['ordered'])}, the "
        f"error {min(won['ordered']):.1f} to {max(won['ordered']):.0f} times smaller",
        f"paper's draw: {_answer(not lost)}; ours: {_answer(counts['ordered'] == len(won['ordered']))}",
    )


def _alike(table: Table, size: int) -> Claim:
    spans = {}
    for method in ("iid", "ordered", "uniform"):
        means = [row["mean"] for row in table.where(method=method, size=size)]
        spans[method] = (min(means), max(means))
    ratio = spans["iid"][1] / spans["iid"][0]
    ours = "; ".join(
        f"{name} {spans[method][0]:.2%} to {spans[method][1]:.2%}"
        for name, method in (("the paper's draw", "iid"), ("ours", "ordered"), ("uniform", "uniform"))
    )
    return Claim(
        "the same error curve whatever the data set and kernel",
        "similar curves",
        f"at N = {size:,}: {ours}",
        f"roughly (factor {ratio:.1f} for the paper's draw): the bound is common, the error is often below it"
        if ratio <= 10
        else f"does not hold (factor {ratio:.0f})",
    )


def _of_kmeans(table: Table) -> list[Claim]:
    sizes = sorted({row["size"] for row in table.where(method=kmeans.CORESET)})
    size = 100 if 100 in sizes else sizes[-1]
    above, faster = [], []
    for full in table.where(method=kmeans.PLAIN):
        for row in table.where(kernel=full["kernel"], method=kmeans.CORESET):
            faster.append((full["seconds"] / row["seconds"], row["size"]))
            if row["size"] == size:
                above.append(row["cost_least"] / full["cost_least"] - 1)
    n = table.rows[0]["n"]
    slowest = min(faster)
    return [
        Claim(
            f"below 5 % objective error at N = {size}",
            "< 5 %",
            ", ".join(f"{value:+.2%}" for value in above) + " (least of the runs, one figure per kernel)",
            _answer(max(above) < 0.05),
        ),
        Claim(
            "orders of magnitude faster than without coresets, even the slowest",
            "several orders of magnitude",
            f"{slowest[0]:,.0f} times (N = {slowest[1]:,}) to {max(faster)[0]:,.0f} times at n = {n:,}; the ratio "
            "grows with n",
            _answer(slowest[0] >= 100)
            if slowest[0] >= 100
            else f"{np.log10(slowest[0]):.1f} orders at this n for N = {slowest[1]:,}, more for smaller",
        ),
    ]


def _of_spectral(table: Table) -> list[Claim]:
    said, ratios, cuts = [], [], []
    for kernel in spectral.KERNELS:
        theirs = table.where(kernel=kernel, method=spectral.THEIRS)
        ours = table.where(kernel=kernel, method=spectral.OURS)
        own = max((row for row in ours if row["n"] <= spectral.LARGEST), key=lambda row: float(row["n"]))
        expected, exponent = spectral.expected_seconds(theirs, own["n"])
        ratios.append(expected / own["seconds"])
        said.append(f"{kernel} {ratios[-1]:,.0f} times (scikit-learn {expected:,.0f} s, its growth n^{exponent:.1f} "
                    f"carried on from n = {max(row['n'] for row in theirs):,})")  # fmt: skip
        for row in theirs:
            cuts += [row["cut_least"] / other["cut_least"] - 1 for other in ours if other["n"] == row["n"]]
    return [
        Claim(
            f"more than 1,000 times faster than scikit-learn's spectral clustering at n = {spectral.LARGEST:,}",
            "> 1,000 times",
            "; ".join(said),
            _answer(min(ratios) >= 1_000) + ", by extrapolation",
        ),
        Claim(
            "better objective than scikit-learn's",
            "better",
            f"scikit-learn's normalized cut is {min(cuts):+.2%} to {max(cuts):+.2%} of ours",
            _answer(min(cuts) >= -1e-9)
            if min(cuts) >= -1e-9
            else f"in {np.mean(np.array(cuts) >= -1e-9):.0%} of the cells",
        ),
    ]


def _of_variations(table: Table) -> list[Claim]:
    said = []
    ratio = 1.0
    for name, method in (("the paper's draw", "iid"), ("ours", "ordered")):
        rows = sorted(table.where(what="points", method=method), key=lambda row: float(row["n"]))
        if not rows:
            return []
        errors = ", ".join(f"{row['mean']:.2%}" for row in rows)
        said.append(f"{name} {errors}")
        if method == "iid":
            ratio = max(row["mean"] for row in rows) / min(row["mean"] for row in rows)
    ns = ", ".join(f"{row['n']:,}" for row in rows)
    return [Claim("error independent of n", "follows from the theory", f"n = {ns}: {'; '.join(said)}",
                  _answer(ratio <= 1.25))]  # fmt: skip
