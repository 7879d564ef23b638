"""A short suite against the lowest versions of all dependencies, and against several versions of pyspark.

Called by `./tests/run.sh --versions [NAME ...]`. Each environment is a virtual environment in a temporary folder,
and removed before the next one is made: a pyspark is 400 MB to download. Writes a table to docs/versions.md, in which
environments that are not named keep their rows, and what it says of Spark to README.md.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "versions.md"
README = ROOT / "README.md"
START, END = "<!-- rows of the tests -->\n", "<!-- end of the rows -->\n"
EXTRAS = ("spark", "scikit-learn")
TOOLS = ("pytest", "hypothesis", "chispa", "polars")
SHOWN = ("pyspark", "numpy", "numba", "scipy", "pyarrow", "pandas", "scikit-learn")
UNIT = [
    f"tests/unit/test_{name}.py"
    for name in ("kernels", "coreset", "build", "tree", "solve", "centers", "model", "store", "estimator", "spectral",
                 "graph", "settings")
]  # fmt: skip
ESTIMATOR = ["tests/spark/test_estimator.py::test_the_summary"]
JOBS = ["tests/spark/test_update.py::test_nights", "tests/spark/test_stream.py::test_a_stream_in_two_sittings"]
CONNECT = ["tests/spark/test_connect.py"]
PARTS = ("unit tests", "estimator", "demo job", "update, stream", "Connect")
HEADER = ["environment", "tested on", *SHOWN, *PARTS]
OF_SPARK = ["pyspark", "tested on", *PARTS[1:]]
"""The columns that the README shows."""


@dataclass(frozen=True)
class Environment:
    """Versions to install: what pip is told beside the project's own requirements."""

    name: str
    constraints: list[str]


@dataclass
class Outcome:
    """What was installed, and how each part of the suite ended."""

    environment: Environment
    versions: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)

    @property
    def without_spark(self) -> dict[str, str]:
        """The versions that unit tests depend on."""
        return {name: version for name, version in self.versions.items() if name != "pyspark"}

    @property
    def passed(self) -> bool:
        """Whether everything was installed and passed."""
        return list(self.parts.values()) == ["passed"] * len(PARTS)

    def row(self) -> list[str]:
        """Return the cells of the table."""
        versions = [self.versions.get(name, "") for name in SHOWN]
        today = datetime.date.today().isoformat()
        return [self.environment.name, today, *versions, *(self.parts.get(part, "not run") for part in PARTS)]


def lowest_versions(pyproject: str) -> list[str]:
    """Return every lower bound of the dependencies and the tested extras, as an exact version."""
    project = tomllib.loads(pyproject)["project"]
    wanted = [*project["dependencies"], *(own for extra in EXTRAS for own in project["optional-dependencies"][extra])]
    found = []
    for requirement in wanted:
        match = re.fullmatch(r"([A-Za-z0-9_-]+)(?:\[\w+\])?>=([\d.]+)(?:,.*)?", requirement)
        if match is None:
            raise ValueError(f"{requirement!r} has no lower bound: write it as NAME>=VERSION.")
        found.append(f"{match[1]}=={match[2]}")
    return found


def environments() -> list[Environment]:
    """Return the environments in the order of the table."""
    return [
        Environment("lowest", lowest_versions((ROOT / "pyproject.toml").read_text())),
        *(Environment(f"pyspark-{minor}", [f"pyspark=={minor}.*"]) for minor in ("4.0", "4.1", "4.2")),
        Environment("newest", ["pyspark>=4,<5"]),
    ]


def run(command: list[str], folder: Path, log: Path) -> bool:
    """Run a command with all its files in a folder; what it prints goes to the log. Return whether it succeeded."""
    variables = {
        "PIP_CACHE_DIR": str(folder.parent / "pip"),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "PYSPARK_PYTHON": str(folder / "venv" / "bin" / "python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(folder.parent),
    }
    kept = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    with log.open("a") as file:
        print(f"$ {' '.join(command)}", file=file, flush=True)
        done = subprocess.run(command, cwd=ROOT, env=kept | variables, stdout=file, stderr=subprocess.STDOUT)
    return done.returncode == 0


def parts(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Return the commands of the suite by name."""
    programs = folder / "venv" / "bin"
    # Other versions warn of other things; only failures count here.
    pytest = [str(programs / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default"]
    yield PARTS[0], [*pytest, *UNIT]
    yield PARTS[1], [*pytest, *ESTIMATOR]
    yield PARTS[2], [
        str(programs / "spark-submit"), "--master", "local[2]", "--properties-file", "conf/spark-defaults.conf",
        "jobs/run.py", "--config", "conf/demo.toml", "--set", f"output.path={folder / 'labels'}",
    ]  # fmt: skip
    yield PARTS[3], [*pytest, *JOBS]
    yield PARTS[4], [*pytest, *CONNECT]


def check(environment: Environment, folder: Path, log: Path, before: list[Outcome]) -> Outcome:
    """Install an environment in a folder and run the suite in it.

    Unit tests need no Spark: they are not repeated if an environment before had the same versions but for pyspark.
    """
    outcome = Outcome(environment)
    python = str(folder / "venv" / "bin" / "python")
    (folder / "constraints.txt").write_text("\n".join(environment.constraints) + "\n")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--constraint", str(folder / "constraints.txt"), f".[{','.join(EXTRAS)}]", *TOOLS]
    say(f"{environment.name}: installing")
    if not run([sys.executable, "-m", "venv", str(folder / "venv")], folder, log) or not run(install, folder, log):
        outcome.parts["unit tests"] = "not installed"
        return outcome
    ask = f"from importlib.metadata import version; print(*map(version, {SHOWN!r}))"
    printed = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout
    outcome.versions = dict(zip(SHOWN, printed.split(), strict=True))
    same = [own for own in before if own.without_spark == outcome.without_spark]
    for name, command in parts(folder):
        if name == PARTS[0] and same:
            outcome.parts[name] = same[0].parts[name]
        else:
            outcome.parts[name] = "passed" if run(command, folder, log) else "FAILED"
        say(f"{environment.name}: {name} {outcome.parts[name]}")
    return outcome


def say(line: str) -> None:
    """Tell how far it is."""
    print(line, file=sys.stderr, flush=True)


def read_rows(text: str) -> dict[str, list[str]]:
    """Return the rows of the table on the page by the names of their environments; parts that are new were not run."""
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in re.findall(r"^\|.*\|$", text, re.MULTILINE)
    ]
    cells = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    return {row[HEADER[0]]: [row.get(name, "not run") for name in HEADER] for row in cells}


def table(rows: Iterable[list[str]], header: list[str] = HEADER) -> str:
    """Return a Markdown table of environments."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def readme(text: str, rows: Iterable[list[str]]) -> str:
    """Return the text of README.md with what the rows of docs/versions.md say of Spark."""
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    shown = table(([dict(zip(HEADER, row, strict=True))[name] for name in OF_SPARK] for row in rows), OF_SPARK)
    return f"{before}{start}{shown}\n{end}{after}"


def page(outcomes: list[Outcome], before: str = "") -> str:
    """Return the text of docs/versions.md; environments that were not tested keep their rows of the page before."""
    rows = read_rows(before) | {outcome.environment.name: outcome.row() for outcome in outcomes}
    ordered = [rows[own.name] for own in environments() if own.name in rows]
    return f"""# Versions

Written by `./tests/run.sh --versions`; with names of environments it replaces their rows alone.

{table(ordered)}

- **lowest** has the lowest version of every dependency that `pyproject.toml` allows. The others have the newest of
  everything, and the pyspark of their name; **newest** has the newest pyspark 4. All run on Python
  {platform.python_version()}, {platform.system()}.
- The tests and `./spark-submit.sh` of a checkout use the pyspark of `constraints.txt`.
- Unit tests: {len(UNIT)} files that need no Spark. In one run they are not repeated for an environment that differs
  from an earlier one in pyspark alone. Estimator: a test of `kernelcoreset.spark.KernelKMeans` and its summary. Demo
  job: `jobs/run.py --config conf/demo.toml`. Update, stream: nights of the job `update`, and a stream in two runs.
  Connect: estimators, the job `run` and a function of SQL on Spark Connect give what they give on classic Spark.
"""


def main(names: list[str]) -> int:
    """Check all environments, or those named, and return 1 if one of them fails."""
    wanted = [own for own in environments() if not names or own.name in names]
    unknown = set(names) - {own.name for own in wanted}
    if unknown:
        sys.exit(f"Unknown environment: {', '.join(sorted(unknown))}. There are: "
                 f"{', '.join(own.name for own in environments())}.")  # fmt: skip
    outcomes = []
    logs = Path(tempfile.mkdtemp(prefix="kernelcoreset-versions-logs-"))
    with tempfile.TemporaryDirectory(prefix="kernelcoreset-versions-") as scratch:
        for environment in wanted:
            folder = Path(scratch) / environment.name
            folder.mkdir()
            outcomes.append(check(environment, folder, logs / f"{environment.name}.log", outcomes))
            shutil.rmtree(folder)
    print(table(outcome.row() for outcome in outcomes))
    if all(outcome.passed for outcome in outcomes):
        shutil.rmtree(logs)
    else:
        say(f"The logs are in {logs}.")
    PAGE.write_text(page(outcomes, PAGE.read_text() if PAGE.exists() else ""))
    README.write_text(readme(README.read_text(), read_rows(PAGE.read_text()).values()))
    return int(not all(outcome.passed for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
