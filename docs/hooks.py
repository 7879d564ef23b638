"""What the documentation site has beside the pages in docs/: notebooks, settings, and files of the project's root.

Pages link to these files as they are in the repository; here the links lead to the pages made of them.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Files outside docs/ that are pages of the site.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "conf/reference.toml": "reference/settings.md",
    "notebooks/customers.py": "tutorials/customers.md",
    "notebooks/places.py": "tutorials/places.md",
    "notebooks/segment.py": "tutorials/segment.md",
}
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<heading>#[^)\s]*)?\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of files outside docs/, and the results, which the overview links to."""
    for source, page in PAGES.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=_relinked(_as_page(source), source, page)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links to files outside docs/ lead to their pages."""
    source = page.file.src_uri
    if source in PAGES.values() and source != "index.md":
        return markdown
    return _relinked(markdown, f"docs/{source}", source)


def _as_page(source: str) -> str:
    text = (ROOT / source).read_text()
    if source.endswith(".toml"):
        return f"# Settings\n\nEvery setting of the jobs, with its default.\n\n```toml\n{text}```\n"
    return _notebook(text) if source.endswith(".py") else text


def _notebook(text: str) -> str:
    """The cells of a notebook in source format: texts as they are, code in fences."""
    parts = []
    for cell in text.removeprefix("# Databricks notebook source\n").split("# COMMAND ----------"):
        lines = cell.strip().splitlines()
        if lines and all(line.startswith("# MAGIC") for line in lines):
            parts.append("\n".join(line.removeprefix("# MAGIC").removeprefix(" ") for line in lines[1:]))
        else:
            code = re.sub(r"  # noqa: \w+$", "", "\n".join(lines), flags=re.MULTILINE)
            parts.append(f"```python\n{code}\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def _relinked(text: str, source: str, page: str) -> str:
    """Text of a file of the repository with its links as those of a page of the site."""

    def replace(match: re.Match[str]) -> str:
        target = match["target"]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path in PAGES:
            path = f"docs/{PAGES[path]}"
        if not path.startswith("docs/") or not (ROOT / path).suffix:
            return match["text"] if match["text"].startswith("`") else f"`{path}`"  # a file that is no page
        link = posixpath.relpath(path.removeprefix("docs/"), posixpath.dirname(page) or ".")
        return f"{match['image']}[{match['text']}]({link}{match['heading'] or ''})"

    # Code is left alone.
    pieces, last = [], 0
    for fence in _FENCE.finditer(text):
        pieces += [_LINK.sub(replace, text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*pieces, _LINK.sub(replace, text[last:])])
