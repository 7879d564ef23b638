"""The code blocks of the README and of the pages in docs/, and a way to run them.

A block is one of these, by the word after its opening fence:

python
    Run in order, all blocks of a page in one namespace. A block that says "spark" needs a Spark session.
text
    If it follows a python block, what that block prints. If it follows a comment `<!-- not run: reason -->`, anything.
sh
    Commands of this project, checked for existing files, options and settings.

A block that cannot be run or checked has the comment `<!-- not run: reason -->` in the line above its fence.
"""

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    path.relative_to(ROOT).as_posix()
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    if path.name != "LICENSE.md"
]
_FENCE = re.compile(r"^```(?P<language>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?<!,)")
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n$", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: where it is, its language, its text, and why it is not run, if so."""

    line: int
    language: str
    text: str
    reason: str | None
    follows: "Block | None"
    """The block just before this one, with nothing but blank lines in between."""

    @property
    def needs_spark(self):
        return "spark" in self.text


def blocks_of(page):
    """Return the fenced blocks of a page."""
    text = (ROOT / page).read_text()
    found, end = [], 0
    for match in _FENCE.finditer(text):
        between = text[end : match.start()]
        reason = _NOT_RUN.search(between)
        follows = found[-1] if found and not between.strip() else None
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(line, match["language"], match["text"], reason and reason[1].strip(), follows))
        end = match.end()
    return found


def python_blocks(page):
    """Return the python blocks of a page that are run, each with the output it must have or None."""
    blocks = blocks_of(page)
    outputs = {id(block.follows): block.text for block in blocks if block.language == "text" and block.follows}
    return [(b, outputs.get(id(b))) for b in blocks if b.language == "python" and b.reason is None]


def reads_alike(found, expected):
    """Whether two texts are the same, but for the last digits of their numbers.

    Processors round in different ways, and a difference in the last bit can draw another point into a coreset: its
    total weight of 99,926 on one machine is 99,918 on another. Numbers may differ by a thousandth, or by one in their
    last digit. Whole numbers below 1,000 must be the same.
    """
    numbers, wanted = _NUMBER.findall(found), _NUMBER.findall(expected)
    same_words = _NUMBER.sub("0", found) == _NUMBER.sub("0", expected)
    return same_words and all(_is_near(*pair) for pair in zip(numbers, wanted, strict=True))


def _is_near(one, other):
    digits = len(other.partition(".")[2])
    number, wanted = (float(text.replace(",", "")) for text in (one, other))
    exact = not digits and abs(wanted) < 1_000  # labels, counts and numbers of clusters
    return number == wanted if exact else abs(number - wanted) <= max(1.01 * 10.0**-digits, 1e-3 * abs(wanted))


def run_page(page, names, *, with_spark):
    """Run the python blocks of a page in these names and compare what they print."""
    for block, expected in python_blocks(page):
        if block.needs_spark and not with_spark:
            continue
        out = io.StringIO()
        code = compile("\n" * block.line + block.text, str(ROOT / page), "exec")
        with contextlib.redirect_stdout(out):
            exec(code, names)
        if expected is not None:
            assert reads_alike(out.getvalue(), expected), f"{page}:{block.line}:\n{out.getvalue()}"
