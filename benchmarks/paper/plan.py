"""How much to measure: the full run, or a quick one that takes minutes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.paper.data import PAPER_ROWS


@dataclass(frozen=True)
class Plan:
    """What a run measures. The defaults are the full run.

    Parameters
    ----------
    data, out : Path
        Folders of the data sets, and of tables and plots.
    processes : int
        Cells measured at once, in experiments that do not measure time.
    with_spark : bool
        Whether the parts that need Spark are measured.
    until : float
        Start no cell after this time of `time.monotonic`.
    """

    data: Path
    out: Path
    processes: int = 2
    with_spark: bool = True
    until: float = math.inf
    most_rows: int = PAPER_ROWS
    check_rows: bool = True
    # Figure 1
    error_sizes: tuple[int, ...] = (100, 200, 500, 1000, 2000)
    runs: int = 100
    tree_runs: int = 100
    center_sets: int = 500
    spark_size: int = 1000
    spark_runs: int = 3
    # Figure 2
    kmeans_rows: int = 20_000
    kmeans_sizes: tuple[int, ...] = (20, 50, 100, 200, 500, 1000, 2000)
    kmeans_runs: int = 10
    # Figure 3: (number of points, runs of scikit-learn), and numbers of points for ours alone
    spectral_theirs: tuple[tuple[int, int], ...] = ((1_000, 10), (2_000, 10), (4_000, 3), (8_000, 1), (16_000, 1))
    spectral_ours: tuple[int, ...] = (40_000,)
    spectral_size: int = 2_000
    spectral_runs: int = 10
    # Alternatives
    alternative_rows: int = 20_000
    alternative_sizes: tuple[int, ...] = (100, 300, 1000)
    feature_sizes: tuple[int, ...] = (30, 100, 300)
    alternative_runs: int = 3
    large_rows: int = 200_000
    large_sizes: tuple[int, ...] = (100, 300)
    mllib_rows: int = 21_040_936
    mllib_features: int = 32
    # Variations
    variation_runs: int = 100
    variation_sets: int = 500
    variation_size: int = 1000
    variation_rows: int = 20_000
    largest_rows: int = 1_000_000


def quick(full: Plan) -> Plan:
    """Return a plan of the same shape that takes minutes: fewer rows, sizes and runs, in a folder `quick`."""
    return replace(
        full,
        out=full.out / "quick",
        most_rows=4_000,
        error_sizes=(50, 200),
        runs=4,
        tree_runs=2,
        center_sets=50,
        spark_size=200,
        spark_runs=1,
        kmeans_rows=1_000,
        kmeans_sizes=(20, 100),
        kmeans_runs=3,
        spectral_theirs=((300, 1), (600, 1)),
        spectral_ours=(2_000,),
        spectral_size=200,
        spectral_runs=2,
        alternative_rows=1_000,
        alternative_sizes=(50, 100),
        feature_sizes=(20, 50),
        alternative_runs=2,
        large_rows=2_000,
        large_sizes=(50,),
        mllib_rows=4_000,
        mllib_features=16,
        variation_runs=3,
        variation_sets=20,
        variation_size=200,
        variation_rows=2_000,
        largest_rows=10_000,
    )
