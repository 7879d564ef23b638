"""Try every class of fault and write docs/reliability.md.

    python -m tests.faults.reliability                  all cases; writes the page
    python -m tests.faults.reliability --quick          a few cases of each class; prints the table only
    python -m tests.faults.reliability --only path      one class, all cases; replaces its rows in the page

A class of fault is a module `NAME_cases.py` of this folder with a function `run(folder, cases=None)`. It tries that
many cases (by default all) in an empty folder and returns a Tally, or several. Exit code: 0 if every class was tried
often enough and every case ended in a clear error or the right result with nothing lost, else 1.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import platform
import re
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.tally import HEADER, Tally

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
QUICK = 6
LEAST_CASES = {"path": 200, "format": 10_000, "number": 300, "kill": 60, "commit": 400, "error": 20}
"""The classes of fault, and how many cases each row of one must have."""


@dataclass
class Outcome:
    """What came of a class of fault: its tallies, or why there are none."""

    name: str
    tallies: list[Tally] = field(default_factory=list)
    problem: str = ""
    seconds: float = 0.0

    def is_good(self, least: int = 1) -> bool:
        """Whether the class ran, and each of its tallies is good and has that many cases."""
        return not self.problem and all(tally.is_good and tally.cases >= least for tally in self.tallies)

    def rows(self) -> str:
        """Return the rows of the class in the table."""
        if self.problem:
            return f"| {self.name}: {self.problem} | 0 | | | | | |"
        return "\n".join(tally.row() for tally in self.tallies)


def names() -> list[str]:
    """Return the classes that must be there, then any others with a module in this folder."""
    found = [path.stem.removesuffix("_cases") for path in sorted(Path(__file__).parent.glob("*_cases.py"))]
    return [*LEAST_CASES, *(name for name in found if name not in LEAST_CASES)]


def try_class(name: str, cases: int | None, package: str = __package__) -> Outcome:
    """Run the cases of one class; a class that is missing or breaks off is an outcome with a problem."""
    module = f"{package}.{name}_cases"
    start = time.perf_counter()
    try:
        run = importlib.import_module(module).run
        with tempfile.TemporaryDirectory(prefix=f"kernelcoreset-{name}-") as folder:
            result: Tally | Iterable[Tally] = run(Path(folder), cases)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return Outcome(name, problem=f"MISSING, there is no {name}_cases.py")
    except Exception as error:
        traceback.print_exc()
        return Outcome(name, problem=f"BROKE OFF with {type(error).__name__}")
    tallies = [result] if isinstance(result, Tally) else list(result)
    problem = "" if tallies else "MISSING, it returned no tally"
    return Outcome(name, tallies, problem, time.perf_counter() - start)


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the Markdown table of all classes."""
    return "\n".join([HEADER, *(outcome.rows() for outcome in outcomes)])


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the text of docs/reliability.md."""
    minutes = sum(outcome.seconds for outcome in outcomes) / 60
    return f"""# Reliability

Written by `python -m tests.faults.reliability` on {datetime.date.today()}, Python {platform.python_version()},
{platform.system()}, in {minutes:.0f} minutes. Each class of fault is a module of `tests/faults/`.

{table(outcomes)}

- **Clear errors** name what is wrong and what to do: an error of the package, or an exit code from 2 to 5 with one
  line.
- **Done right**: the job or call went on, or was repeated, and its result was compared with the right one.
- **Unclear errors** end in any other way.
- **Silent wrong** results differ from the right one, and nothing was said.
- **Lost rows** are rows, commits or files that were there before, or had been reported as written, and are gone.
"""


def with_new_rows(text: str, outcomes: Iterable[Outcome]) -> str:
    """Return the text of the page with the rows of some classes replaced, and a line that says so."""
    for outcome in outcomes:
        for tally in outcome.tallies:
            row = re.compile(rf"^\| {re.escape(tally.fault)} \|.*$", re.MULTILINE)
            if not row.search(text):
                raise ValueError(f"{PAGE} has no row {tally.fault!r}. Run the command without --only.")
            text = row.sub(lambda _, tally=tally: tally.row(), text)  # type: ignore[misc]
        said = f"Run again alone: {outcome.name}, on {datetime.date.today()}."
        text = re.sub(rf"^Run again alone: {outcome.name}, .*\n\n", "", text, flags=re.MULTILINE)
        text = text.replace(f"\n{HEADER}", f"\n{said}\n\n{HEADER}")
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.reliability", description="Try every class of fault and write docs/reliability.md."
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} cases of each class; print the table only")
    parser.add_argument("--only", action="append", metavar="NAME", choices=names(), help="this class alone")
    given = parser.parse_args(argv)
    outcomes = []
    for name in given.only or names():
        print(f"{name} ...", file=sys.stderr, flush=True)
        outcomes.append(try_class(name, QUICK if given.quick else None))
        print(f"{name}: {outcomes[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    print(table(outcomes))
    if not given.quick:
        PAGE.write_text(with_new_rows(PAGE.read_text(), outcomes) if given.only else page(outcomes))
    failed = [own.name for own in outcomes if not own.is_good(1 if given.quick else LEAST_CASES.get(own.name, 1))]
    if failed:
        print(f"Not good, or too few cases: {', '.join(failed)}.", file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers which a class has started are stopped
    sys.exit(main())
