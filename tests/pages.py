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
            assert out.getvalue() == expected, f"{page}:{block.line}"
