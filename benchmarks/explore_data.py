"""`kc.explore` on the real data sets: the sentences, the table and the plot of each.

Run from the project's root: python benchmarks/explore_data.py --data DIR (docs/data.md)
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
import kernelcoreset as kc
from benchmarks import datasets, tables

NAMES = ("adult", "bank", "twitter", "census")


def standardised(points: np.ndarray) -> np.ndarray:
    spread = points.std(axis=0)
    return (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def described(found: kc.Exploration, title: str, seconds: float) -> str:
    rows = [[("" if cell is None else cell) for cell in row.values()] for row in found.table]
    rows = [[f"{cell:.3g}" if isinstance(cell, float) else cell for cell in row] for row in rows]
    sentences = "\n".join(f"- {sentence}" for sentence in found.sentences)
    return f"## {title}\n\n{sentences}\n\n{tables.table(list(found.table[0]), rows)}\n\n{seconds:.0f} seconds."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/results/explore"))
    options = parser.parse_args()
    sections = [
        "What `kc.explore` says about the real data sets: sentences, table and plot. A circle marks the chosen k of "
        "each method; the dotted line is data without clusters. Data of which one column carries nearly all of the "
        "squared distances are explored as they are and standardised; census comes standardised."
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        waiting = [(name, datasets.load(options.data, name))]
        while waiting:
            title, points = waiting.pop()
            start = time.perf_counter()
            found = kc.explore(points)
            if found.dominant is not None:
                waiting.append((f"{name}, standardised", standardised(points)))
            sections.append(described(found, title, time.perf_counter() - start))
            file = title.replace(", ", "_") + ".png"
            figure = plt.figure(figsize=(6.0, 3.6))
            found.plot(figure.gca())
            figure.tight_layout()
            figure.savefig(options.out / file, dpi=100)
            plt.close(figure)
            sections.append(f"![Persistence of the clusters of {title}]({file})")
            print(title, file=sys.stderr, flush=True)
    tables.write_results(options.out / "index.md", "Exploring the real data sets", sections)


if __name__ == "__main__":
    main()
