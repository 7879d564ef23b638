"""Every code block of the README and of docs/: Python is run, commands are checked, links lead somewhere."""

import functools
import os
import re
import shlex
import subprocess
import sys
import tomllib

import pytest

from kernelcoreset.jobs.settings.settings import Settings
from tests.pages import PAGES, ROOT, blocks_of, python_blocks, run_page

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
COMMANDS = [
    pytest.param(command, id=f"{page}: {command}"[:100])
    for page in PAGES
    for block in blocks_of(page)
    if block.language == "sh" and block.reason is None
    for command in block.text.splitlines()
    if command.split("#")[0].strip()
]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_of_a_kind_that_is_tested(page):
    for block in blocks_of(page):
        if block.reason is None:
            assert block.language in ("python", "sh", "text"), (
                f"{page}:{block.line} has the language {block.language!r}"
            )
        if block.language == "text" and not block.reason:
            assert block.follows or page == "README.md", f"{page}:{block.line} is the output of no block"


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)])
def test_python_blocks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, {}, with_spark=False)


def test_the_pages_have_python_blocks():
    assert {"README.md", "docs/guide.md"} <= {page for page in PAGES if python_blocks(page)}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command):
    words = shlex.split(command, comments=True)
    if words[0] == "cd":
        words = words[words.index("&&") + 1 :]
    check = {"./spark-submit.sh": check_submit, "./tests/run.sh": check_paths, "pip": check_pip}
    check |= {"python": check_python, ".venv/bin/python": check_python}
    check[words[0]](words)


def check_submit(words):
    """The script knows the options, the job exists, and the job takes the settings."""
    environment = {**os.environ, "KERNELCORESET_DRY_RUN": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    job = next(word for word in words if word.startswith("jobs/"))
    assert (ROOT / job).exists()
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    Settings.load(ROOT / words[words.index("--config") + 1], settings)


def check_paths(words):
    """Arguments that are paths exist."""
    for word in words:
        if "/" in word:
            assert (ROOT / word.split("::")[0]).exists(), word


def check_pip(words):
    """The extras exist."""
    for word in words[2:]:
        for extra in re.findall(r"\[(.+)\]", word):
            assert set(extra.split(",")) <= set(PROJECT["optional-dependencies"])


def check_python(words):
    """The program exists, and its help names the subcommand and every option."""
    if words[1:3] == ["-m", "pytest"]:
        return check_paths(words[3:])
    program = tuple(words[1:3] if words[1] == "-m" else words[1:2])
    if program[-1].startswith("docs/"):
        return check_paths(program)
    arguments = words[1 + len(program) :]
    said = help_of(*program, *(arguments[:1] if program[-1] == "benchmarks" else []))
    for word in arguments:
        if word.startswith("--") or word == arguments[0]:
            assert word in said, f"{word} is not in the help of {' '.join(program)}"
    return None


@functools.cache
def help_of(*program):
    """What a program of this project prints for --help; its imports take seconds, so once per program."""
    done = subprocess.run(
        [sys.executable, *program, "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, heading = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        if heading:
            found = path.read_text()
            anchors = {
                re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
                for line in found.splitlines()
                if line.startswith("#")
            }
            assert heading in anchors | set(re.findall(r'<a id="([^"]+)">', found)), f"{page} links to {target}"


def test_the_overview_links_all_results():
    text = (ROOT / "docs/results.md").read_text()
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs/results").rglob("*.md")]
    assert len(pages) > 20
    assert [page for page in pages if f"({page}" not in text] == []


def test_every_message_of_the_troubleshooting_page_exists():
    """The first column quotes messages: each is in the sources."""
    rows = re.findall(r"^\| `([^`]+)` \|", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    sources = "".join(path.read_text() for path in (ROOT / "kernelcoreset").rglob("*.py"))
    assert len(rows) >= 4
    for quoted in rows:
        words = quoted.replace("for this machine, once", "for this machine, ")  # the rest of that one is a value
        assert words in sources, quoted


def test_no_page_names_a_folder_of_one_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in (".md", ".py", ".sh", ".toml", ".json", ".conf") and path.exists():
            assert "../shared" + "/data" not in path.read_text(), name


def ways_of_a_row():
    """The numbered lists of docs/architecture.md by their heading: files, and whether each calls the steps."""
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("## One row's way")[1].split("\n## ")[0]
    for part in section.split("\n### ")[1:]:
        heading, _, items = part.partition("\n")
        yield heading, re.findall(r"^\d+\. (\**)`([\w/]+\.py)`", items, re.MULTILINE)


def test_no_way_of_a_row_passes_a_file_twice():
    ways = dict(ways_of_a_row())
    wanted = (
        "`kc.KernelKMeans.fit`",
        "`kc.SpectralClustering.fit`",
        "The job `run`",
        "The job `update`",
        "The job `stream`",
    )
    assert set(wanted) <= set(ways)
    for heading, way in ways.items():
        files = [file for _, file in way]
        assert len(files) >= 5, heading
        assert len(files) == len(set(files)), heading
        assert sum(mark == "**" for mark, _ in way) == 1, f"{heading}: one file calls the steps"


def test_every_file_of_the_architecture_exists():
    text = (ROOT / "docs/architecture.md").read_text()
    section = text.split("## One row's way")[1].split("\n## ")[0]
    for name in re.findall(r"`([a-z_]+/[\w/]+\.py)`", section):
        assert (ROOT / "kernelcoreset" / name).exists(), name
    listed = dict(re.findall(r"^\| `([\w/]+)/` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE))
    for folder in sorted(path.parent for path in (ROOT / "kernelcoreset").rglob("__init__.py")):
        name = folder.relative_to(ROOT / "kernelcoreset").as_posix()
        if name not in (".", "jobs/settings", "kernels/loops"):
            named = set(re.findall(r"`(\w+\.py)`", listed[name]))
            assert named == {path.name for path in folder.glob("*.py")} - {"__init__.py"}, name
