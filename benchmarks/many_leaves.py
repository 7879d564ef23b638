"""The merge of very many leaves, replayed: error, memory of the driver and time for 10^5 and 10^6 leaves.

Run from the project's root: python benchmarks/many_leaves.py
Groups are merged as in a Spark job (`merging_of`), one after another in one process. Leaves are drawn with repetition
from real ones. Only some groups are merged, and the others are copies of them: so the error shown is at least that of a
real run, whose groups differ more and whose errors cancel more.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from kernelcoreset import Coreset, Gaussian, build_coreset
from kernelcoreset.coresets.error import empirical_error
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.coresets.reduce import Part, reduce_union
from kernelcoreset.coresets.tree import CoresetTree, reduction_seed
from kernelcoreset.spark.merge import merging_of

K, SIZE, KERNEL = 5, 1000, Gaussian(sigma=2.0)
PARTS, PART_ROWS, SEEDS = 32, 32_768, 4
CENTER_SETS = 100


def make_parts(generator: np.random.Generator) -> list[np.ndarray]:
    """Parts of the data that differ from one another: each has its own shares of nine clusters."""
    places = 6.0 * np.array([(i, j) for i in range(3) for j in range(3)])
    shares = generator.dirichlet(np.ones(len(places)), size=PARTS)
    return [generator.normal(size=(PART_ROWS, 2)) + places[generator.choice(9, PART_ROWS, p=own)] for own in shares]


def replay(leaves: list[Coreset], counts: int, merged: int, seed: int) -> tuple[list[object], Coreset, np.ndarray]:
    """Merge `counts` leaves; return cells of the table, the coreset, and how often each part is in it."""
    generator = np.random.default_rng(seed)
    recipe = Recipe(K, KERNEL, SIZE, seed=seed)
    leaf_size = leaf_size_of(SIZE, None)
    leaf_bytes = 8 * leaf_size * 4
    nodes: Sequence[Coreset | Part] = leaves
    parts, seconds, number = np.repeat(np.eye(PARTS), SEEDS, axis=0), 0.0, counts
    merging = merging_of(counts, leaf_bytes)
    if merging is not None:
        some, number = min(merging.groups, merged), merging.groups
        begin = time.process_time()
        made, mixed = [], []
        for group in range(some):
            drawn = generator.integers(len(nodes), size=-(-counts // merging.groups))
            own = recipe.varied(seed=reduction_seed(seed, 2, group))
            tree = CoresetTree.from_recipe(own, leaf_size, merging.fan_in)
            for i in drawn:
                tree.add_part(Part(leaves[i].points, leaves[i].weights))
            made.append(tree.part(leaf_size))
            mixed.append(parts[drawn].sum(axis=0))
        seconds = (time.process_time() - begin) / some * merging.groups
        nodes, parts = made, np.array(mixed)
    last = generator.integers(len(nodes), size=number) if number > len(nodes) else np.arange(number)
    held = sum(nodes[i].points.nbytes + nodes[i].weights.nbytes for i in last)
    begin = time.process_time()
    coreset = reduce_union([nodes[i] for i in last], recipe.varied(seed=reduction_seed(seed, 1, 0)))
    driver = time.process_time() - begin
    groups = "none" if merging is None else f"{merging.groups:,}, up to {merging.fan_in:,} at once"
    cells = [groups, f"{seconds:,.0f}", f"{held / 1e6:,.0f}", f"{driver:.1f}"]
    return cells, coreset, parts[last].sum(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leaves", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--merged", type=int, default=16, help="groups that are merged")
    parser.add_argument("--out", type=Path, default=Path("docs/results/many_leaves.md"))
    arguments = parser.parse_args()
    parts = make_parts(np.random.default_rng(0))
    points = np.concatenate(parts)
    leaf_size = leaf_size_of(SIZE, None)
    leaves = [
        build_coreset(part, K, KERNEL, leaf_size, seed=reduction_seed(0, number, seed))
        for number, part in enumerate(parts)
        for seed in range(SEEDS)
    ]
    rows = []
    for count in arguments.leaves:
        cells, coreset, times = replay(leaves, count, arguments.merged, seed=1)
        weights = np.repeat(times, PART_ROWS)
        error = empirical_error(points, coreset, K, KERNEL, n_center_sets=CENTER_SETS, weights=weights)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        rows.append([f"{count:,}", *cells, f"{memory / 1e6:,.0f}", f"{100 * float(error):.2f}"])
        print(*rows[-1], flush=True)
    words = (
        f"Leaves of {leaf_size:,} points of real parts ({PARTS} parts of {PART_ROWS:,} rows, {SEEDS} leaves of each), "
        f"drawn with repetition and merged to {SIZE:,} points, k = {K}, Gaussian. Groups: their number, and how many "
        f"leaves are merged at once in each; a group keeps {leaf_size:,} points. Seconds are processor "
        "seconds; those of all groups on the executors are divided among the cores. "
        f"At most {arguments.merged} groups are merged, the others are copies. Memory of "
        "the driver: what it holds of leaves, and the most that this process ever used, with the data for the error. "
        f"The error is the largest of {CENTER_SETS} sets of random centers, in percent, on all rows."
    )
    header = (
        *("leaves", "groups on executors", "seconds on executors", "MB on the driver", "seconds on the driver"),
        *("MB of the process", "error in %"),
    )
    tables.write_results(arguments.out, "Very many leaves", [words, tables.table(header, rows)])


if __name__ == "__main__":
    main()
