"""What came of many cases of one class of fault: counted by `*_cases.py` of this folder, shown by `reliability.py`."""

from __future__ import annotations

from dataclasses import dataclass

HEADER = (
    "| class of fault | cases tried | clear errors | done right | unclear errors | silent wrong | lost rows |\n"
    "|---|---|---|---|---|---|---|"
)


@dataclass
class Tally:
    """Counts of one class of fault.

    Every case ends in one of four ways: a clear error (of the package, or an exit code from 2 to 5 with one clear
    line), the right result, a wrong result without a word, or else an unclear error. Rows, commits or files that were
    there before, or had been reported as written, and are gone are counted as lost, on top of that.

    Examples
    --------
    >>> tally = Tally("odd paths")
    >>> tally.add("clear error")
    >>> tally.add("done right")
    >>> tally.add("silent wrong", lost=3)
    >>> tally.row()
    '| odd paths | 3 | 1 | 1 | 0 | 1 | 3 |'
    >>> tally.is_good
    False
    """

    fault: str
    cases: int = 0
    clear_errors: int = 0
    done_right: int = 0
    silent_wrong: int = 0
    lost: int = 0

    @property
    def unclear(self) -> int:
        """Number of cases that ended in another way: an exception of another kind, exit code 1, a hang."""
        return self.cases - self.clear_errors - self.done_right - self.silent_wrong

    @property
    def is_good(self) -> bool:
        """Whether there were cases, and all of them ended in a clear error or the right result with nothing lost."""
        return self.cases > 0 and not (self.unclear or self.silent_wrong or self.lost)

    def add(self, outcome: str, lost: int = 0) -> None:
        """Count a case: its outcome is "clear error", "done right", "silent wrong" or "unclear error"."""
        if outcome not in ("clear error", "done right", "silent wrong", "unclear error"):
            raise ValueError(f"Unknown outcome {outcome!r}.")
        self.cases += 1
        self.clear_errors += outcome == "clear error"
        self.done_right += outcome == "done right"
        self.silent_wrong += outcome == "silent wrong"
        self.lost += lost

    def merge(self, other: Tally) -> Tally:
        """Return the sum of two tallies, with the name of this one."""
        return Tally(
            self.fault,
            self.cases + other.cases,
            self.clear_errors + other.clear_errors,
            self.done_right + other.done_right,
            self.silent_wrong + other.silent_wrong,
            self.lost + other.lost,
        )

    def row(self) -> str:
        """Return the row of a Markdown table with `HEADER`."""
        counts = (self.cases, self.clear_errors, self.done_right, self.unclear, self.silent_wrong, self.lost)
        return " | ".join([f"| {self.fault}", *(f"{count:,}" for count in counts)]) + " |"
