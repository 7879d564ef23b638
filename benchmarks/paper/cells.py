"""Cells of an experiment: a finished cell is a row of a CSV file, so that a stopped run can be resumed."""

from __future__ import annotations

import csv
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TextIO

from kernelcoreset.errors import FormatError

Row = dict[str, Any]
_BAR = 24


@dataclass(frozen=True)
class Cell:
    """One thing to measure: its key, and its share of the work."""

    key: Mapping[str, Any]
    effort: float = 1.0


class OutOfTime(Exception):  # noqa: N818
    """The time limit is reached, and cells are left for another run."""


class Table:
    """The CSV file of an experiment: key columns, then measured ones."""

    def __init__(self, path: Path, keys: Sequence[str], values: Sequence[str]) -> None:
        self.path, self.keys, self.columns = path, tuple(keys), (*keys, *values)
        self.rows: list[Row] = []
        if path.exists():
            self._read()

    def _read(self) -> None:
        with self.path.open(newline="") as file:
            lines = list(csv.reader(file))
        if not lines or tuple(lines[0]) != self.columns:
            raise FormatError(
                f"{self.path} must have the columns {', '.join(self.columns)}; it is from another version. Remove it "
                "to measure again."
            )
        whole = [line for line in lines[1:] if len(line) == len(self.columns)]
        self.rows = [dict(zip(self.columns, map(_value, line), strict=True)) for line in whole]
        if len(whole) < len(lines) - 1:  # the run stopped in the middle of a line: remove it
            self._write_all()

    def _write_all(self) -> None:
        with self.path.open("w", newline="") as file:
            csv.writer(file).writerows([self.columns, *([row[name] for name in self.columns] for row in self.rows)])

    def __contains__(self, cell: Cell) -> bool:
        return self._key(cell.key) in {self._key(row) for row in self.rows}

    def _key(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(_value(str(row[name]))) for name in self.keys)

    def add(self, row: Row) -> None:
        """Append a finished cell and write it to the file."""
        self.rows.append({name: _value(_text(row[name])) for name in self.columns})
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write_all()
            return
        with self.path.open("a", newline="") as file:
            csv.writer(file).writerow([_text(row[name]) for name in self.columns])

    def where(self, **wanted: Any) -> list[Row]:
        """Return the rows that have these values."""
        return [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Progress:
    """A progress bar with the time left: one line on a terminal, one line per cell in a log."""

    def __init__(self, name: str, efforts: Sequence[float], done: float, stream: TextIO | None = None) -> None:
        self.name, self.total, self.done = name, sum(efforts) + done, done
        self.begin, self.before = time.monotonic(), done
        self.stream = sys.stderr if stream is None else stream

    def step(self, effort: float, what: str) -> None:
        """Show one more finished cell."""
        self.done += effort
        elapsed = time.monotonic() - self.begin
        left = elapsed * (self.total - self.done) / max(self.done - self.before, 1e-9)
        filled = round(_BAR * self.done / self.total)
        line = f"{self.name} [{'#' * filled}{'.' * (_BAR - filled)}] {self.done / self.total:4.0%}, {_clock(left)} left"
        is_terminal = self.stream.isatty()
        end = "\n" if not is_terminal or self.done >= self.total - 1e-9 else ""
        print(f"\r\x1b[K{line}" if is_terminal else f"{line}  {what}", end=end, file=self.stream, flush=True)


def _clock(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def run_cells(
    name: str,
    table: Table,
    cells: Sequence[Cell],
    measure: Callable[[Mapping[str, Any]], Row],
    *,
    processes: int = 1,
    until: float = math.inf,
) -> None:
    """Measure every cell that the table does not have yet.

    Parameters
    ----------
    name : str
        Name shown by the progress bar.
    table : Table
    cells : sequence of Cell
    measure : callable
        From a key to the measured values; with several processes it must be importable by name.
    processes : int
        Number of cells measured at once; 1 if time is measured.
    until : float
        Start no cell after this time of `time.monotonic`; raises OutOfTime if cells are left.
    """
    todo = [cell for cell in cells if cell not in table]
    done = sum(cell.effort for cell in cells) - sum(cell.effort for cell in todo)
    progress = Progress(name, [cell.effort for cell in todo], done)
    started = itertools.takewhile(lambda _: time.monotonic() < until, todo)
    for cell, values in _measured(started, measure, processes):
        table.add({**cell.key, **values})
        progress.step(cell.effort, ", ".join(f"{key} {value}" for key, value in cell.key.items()))
    left = sum(cell not in table for cell in todo)
    if left:
        raise OutOfTime(f"{name}: {left} of {len(cells)} cells are left. Start it again to continue.")


def _measured(
    cells: Iterator[Cell], measure: Callable[[Mapping[str, Any]], Row], processes: int
) -> Iterator[tuple[Cell, Row]]:
    if processes == 1:
        for cell in cells:
            yield cell, measure(cell.key)
        return
    # Spawned processes: a forked one would copy locks held by other threads.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting: dict[Future[Row], Cell] = {}
        while True:
            for cell in itertools.islice(cells, processes - len(waiting)):
                waiting[pool.submit(measure, dict(cell.key))] = cell
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()
