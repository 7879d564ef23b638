"""The path of a new user at a terminal, on the bank's customers: how long each step takes, and what is silent.

Run from the project's root: python benchmarks/new_user.py --data DIR
The package is built as a wheel and installed in an empty environment, which borrows the packages of this one. The
folder of machine code is empty, so the first step compiles. Every step has a terminal of its own.
"""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from tests.environments import lend_packages, make_environment

NEW = 1_000
STEPS = {
    "five lines": """
import pandas, kernelcoreset as kc
rows = pandas.read_parquet("bank.parquet")[["age", "campaign", "euribor3m"]]
model = kc.KernelKMeans(n_clusters=3, features={}, random_state=0).fit(rows)
print(model.labels_)
print(model.describe(rows).sentences[0])
""",
    "explore": """
import pandas, kernelcoreset as kc
rows = pandas.read_parquet("bank.parquet")
names = ["job", "marital"]
features = kc.Features(categorical=names, log=["campaign"])
print(kc.explore(rows[["age", "campaign", "euribor3m", *names]], features=features, ks=range(2, 6)))
""",
    "fit, describe, label new rows": """
import pandas, kernelcoreset as kc
rows = pandas.read_parquet("bank.parquet")
names = ["job", "marital"]
features = kc.Features(categorical=names, log=["campaign"])
model = kc.KernelKMeans(n_clusters=3, kernel=kc.Gaussian(sigma=3.0), features=features, random_state=0, verbose=True)
model.fit(rows[["age", "campaign", "euribor3m", *names]])
print(model.describe(rows))
print(model.predict(pandas.read_parquet("new.parquet")[["age", "campaign", "euribor3m", *names]]))
""",
}
SETTINGS = """
[input]
path = "bank.parquet"
features = ["age", "campaign", "euribor3m", "job", "marital"]
[features]
categorical = ["job", "marital"]
log = ["campaign"]
[kernel]
name = "Gaussian"
sigma = 3.0
[coreset]
k = 3
coreset_size = 1000
[cluster]
model_path = "model"
[output]
path = "labels"
margin_col = "margin"
[spark]
conf = {"spark.ui.enabled" = "false", "spark.sql.shuffle.partitions" = "2"}
"""


@dataclass(frozen=True)
class Seen:
    """What a person at a terminal saw of a command: exit code, text, seconds, and the longest silence in seconds."""

    code: int
    text: str
    seconds: float
    silence: float


def at_terminal(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Seen:
    """Run a command whose output goes to a terminal of its own."""
    own, other = pty.openpty()
    process = subprocess.Popen(
        [*command], cwd=folder, env={**environment}, stdin=subprocess.DEVNULL, stdout=other, stderr=other
    )
    os.close(other)
    begin = last = time.monotonic()
    silence, parts = 0.0, []
    while True:
        try:
            part = os.read(own, 65_536)
        except OSError:  # the way Linux says that nobody has the terminal open any more
            part = b""
        now = time.monotonic()
        silence, last = max(silence, now - last), now
        if not part:
            break
        parts.append(part)
    os.close(own)
    return Seen(process.wait(), b"".join(parts).decode(errors="replace"), last - begin, silence)


def install(folder: Path) -> Path:
    """Return the folder of the programs of a new environment with the wheel of this project."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", tables.ROOT, "--no-deps", "--wheel-dir", folder], check=True, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    python = make_environment(folder / "environment")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], check=True, cwd=folder)
    lend_packages(folder / "environment")
    return python.parent


def prepare(data: Path, folder: Path) -> None:
    """Put the customers, the new ones and the settings of the job into a folder."""
    import pyarrow.parquet as pq

    rows = pq.read_table(data / "bank.parquet")
    pq.write_table(rows.slice(0, len(rows) - NEW), folder / "bank.parquet")
    pq.write_table(rows.slice(len(rows) - NEW), folder / "new.parquet")
    (folder / "bank.toml").write_text(SETTINGS)


def commands(programs: Path) -> dict[str, list[str]]:
    """Return the commands of the path by name, in their order."""
    python, program = str(programs / "python"), str(programs / "kernelcoreset")
    new = ["--set", "input.path=new.parquet", "--set", "output.path=new-labels"]
    return {
        **{name: [python, "-c", code] for name, code in STEPS.items()},
        "the job, with its report": [program, "run", "--config", "bank.toml"],
        "the report again": [program, "report", "labels.run.json", "--output", "again.html"],
        "the job for new rows": [program, "assign", "--config", "bank.toml", *new],
    }


def environment_of(folder: Path) -> dict[str, str]:
    """Return the variables of this process without those of Spark and Python, and an empty folder of machine code."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON"))}
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", "NUMBA_CACHE_DIR": str(folder / "machine-code")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--out", type=Path, default=Path("docs/results/new_user.md"))
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        programs = install(folder)
        prepare(options.data, folder)
        for name, command in commands(programs).items():
            seen = at_terminal(command, folder, environment_of(folder))
            if seen.code:
                raise SystemExit(f"{name} ended with {seen.code}:\n{seen.text}")
            found.append([name, f"{seen.seconds:.1f}", f"{seen.silence:.1f}"])
        size = (folder / "labels.report.html").stat().st_size
    tables.write_results(
        options.out,
        "The path of a new user",
        [
            "The bank's customers (41,188 rows), the package from its wheel in an empty environment, no machine code. "
            "Each step is a new process at a terminal. Silence is the longest time in which nothing new is shown, "
            "from the start of the process on (required: at most 3 s).",
            tables.table(["step", "seconds", "longest silence"], found),
            f"The report has {size:,} bytes.",
        ],
    )


if __name__ == "__main__":
    main()
