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
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent.parent))
import kernelcoreset as kc
from benchmarks import datasets, tables
from benchmarks.paper.data import DATA_SETS

NAMES = ("adult", "bank", "twitter", "census")


def load_table(folder: Path, name: str) -> pd.DataFrame:
    """Return a data set with the names of its columns, which sentences use; census has numbers for names."""
    return pd.DataFrame(datasets.load(folder, name), columns=DATA_SETS[name].columns or None)


def described(found: kc.Exploration, title: str, seconds: float) -> str:
    rows = [[("" if cell is None else cell) for cell in row.values()] for row in found.table]
    rows = [[f"{cell:.3g}" if isinstance(cell, float) else cell for cell in row] for row in rows]
    sentences = "\n".join(f"- {sentence}" for sentence in found.sentences)
    table = tables.table(list(found.table[0]), rows)
    return f"## {title}\n\n{sentences}\n\n{table}\n\n{seconds:.0f} seconds of processor."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/results/explore"))
    options = parser.parse_args()
    sections = [
        "What `kc.explore` says about the real data sets: sentences, table and plot. A circle marks the chosen k of "
        "each method; the dotted line is data without clusters. Data of which one column carries nearly all of the "
        "squared distances are explored as they are and with `features=kc.Features()`, standardised; census comes "
        "standardised."
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        table = load_table(options.data, name)
        waiting: list[tuple[str, kc.Features | None]] = [(name, None)]
        while waiting:
            title, features = waiting.pop()
            start = time.process_time()
            found = kc.explore(table, features=features)
            if found.dominant is not None and features is None:
                waiting.append((f"{name}, standardised", kc.Features()))
            sections.append(described(found, title, time.process_time() - start))
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
