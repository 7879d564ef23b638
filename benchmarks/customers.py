"""The bank's customers with [features]: a job from CSV beside the same in Python, and the clusters in words.

Run from the project's root: python benchmarks/customers.py --data DIR (docs/data.md)
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from sklearn.metrics import adjusted_rand_score

sys.path.insert(0, str(Path(__file__).parent.parent))
import kernelcoreset as kc
from benchmarks import tables
from kernelcoreset.jobs import cli
from kernelcoreset.spectral.model import load_model

NUMBERS = ["age", "campaign", "previous", "cons.conf.idx", "euribor3m"]
NAMES = ["job", "marital", "education", "contact", "poutcome"]
K, SIZE, SIGMA, NEW = 4, 4_000, 3.0, 1_000
SETTINGS = f"""
[input]
path = "HERE/customers.csv"
format = "csv"
options = {{header = true, inferSchema = true}}
features = {json.dumps(NUMBERS + NAMES)}
id_col = "id"
[features]
scale = "standard"
categorical = {json.dumps(NAMES)}
log = ["campaign"]
[kernel]
name = "Gaussian"
sigma = {SIGMA}
[coreset]
k = {K}
coreset_size = {SIZE}
[cluster]
model_path = "HERE/model"
[output]
path = "HERE/labels"
outlier_col = "outlier_score"
"""


def run(main: object, config: Path, *overrides: str) -> None:
    """Run a job, or end with its exit code."""
    code = main(["--config", str(config), *(part for text in overrides for part in ("--set", text))])  # type: ignore[operator]
    if code:
        raise SystemExit(code)


def labels_of(folder: Path, ids: np.ndarray) -> np.ndarray:
    found = pq.read_table(folder).to_pandas().set_index("id")
    return found.loc[ids, "prediction"].to_numpy()


def measure(data: Path, here: Path) -> list[str]:
    rows = pq.read_table(data / "bank.parquet").to_pandas().drop(columns="y")
    rows.insert(0, "id", np.arange(len(rows)))
    fitted, new = rows.iloc[:-NEW], rows.iloc[-NEW:]
    fitted.to_csv(here / "customers.csv", index=False)
    new.to_csv(here / "new.csv", index=False)
    config = here / "customers.toml"
    config.write_text(SETTINGS.replace("HERE", str(here)))
    run(cli.run_main, config)
    run(cli.assign_main, config, f"input.path={here / 'new.csv'}", f"output.path={here / 'new-labels'}")
    by_job, new_by_job = labels_of(here / "labels", fitted["id"]), labels_of(here / "new-labels", new["id"])

    wanted = kc.Features(categorical=NAMES, log=["campaign"])
    kernel = kc.Gaussian(sigma=SIGMA)
    local = kc.KernelKMeans(K, kernel=kernel, coreset_size=SIZE, features=wanted, random_state=0)
    local.fit(fitted[NUMBERS + NAMES])
    model = load_model(here / "model")
    record = json.loads((here / "labels.run.json").read_text())
    same = float(np.mean(new_by_job == model.predict(new)))
    facts = [
        ["rows of the fit", f"{len(fitted):,}"],
        ["new rows", f"{len(new):,}"],
        ["columns, coordinates", f"{len(NUMBERS + NAMES)}, {model.preparation.dimension}"],
        ["preparation of job and Python the same", model.preparation == local.preparation_],
        ["adjusted Rand index of the job's clusters and Python's", f"{adjusted_rand_score(by_job, local.labels_):.3f}"],
        ["new rows that `assign` labels as the loaded model does in Python", f"{same:.1%}"],
    ]
    description = record["description"]
    typical = [
        [told["cluster"], *(row[name] for name in ("id", "age", "job", "marital", "education", "contact"))]
        for told in description["clusters"]
        for row in told["typical"]
    ]
    header = ["cluster", "id", "age", "job", "marital", "education", "contact"]
    python = local.model_.describe(fitted)
    return [
        "The customers of a bank (UCI Bank Marketing), as a CSV with five columns of numbers and five of names. "
        "Numbers are standardised (calls per campaign as logarithms), names become coordinates of 0 and 1. The last "
        f"{NEW:,} rows are kept apart and labelled by `assign`, whose settings have no [features]: the model has them.",
        tables.table(["", ""], facts),
        "## What the job says",
        "\n".join(f"- {sentence}" for sentence in description["sentences"]),
        "Three typical rows of each cluster:",
        tables.table(header, typical),
        "## What Python says",
        "\n".join(f"- {sentence}" for sentence in python.sentences),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("docs/results/customers.md"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sections = measure(options.data, Path(folder))
    tables.write_results(options.out, "The bank's customers", sections)


if __name__ == "__main__":
    main()
