"""The documentation site: builds without a warning, and its pages need nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; strict, so that a broken link, anchor or reference is an error."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_there(site):
    wanted = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    notebooks = [Path("tutorials") / f"{path.stem}.html" for path in (ROOT / "notebooks").glob("*.py")]
    assert len(notebooks) >= 3
    for page in [*wanted, *notebooks, Path("reference/settings.html"), Path("changelog.html")]:
        page = page.with_name("index.html") if page.name == "README.html" else page
        assert (site / page).exists(), page


def test_notebooks_are_pages_with_texts_and_code(site):
    page = (site / "tutorials/customers.html").read_text()
    assert "<h1" in page
    assert "MAGIC" not in page
    assert "COMMAND ------" not in page
    assert page.count('class="highlight"') >= 6


def test_the_reference_has_every_public_name(site):
    import kernelcoreset

    page = (site / "reference/python.html").read_text()
    public = set(kernelcoreset.__all__) - {"__version__"}
    missing = [name for name in public if f'id="kernelcoreset.{name}"' not in page]
    assert not missing


def test_nothing_is_loaded_from_elsewhere(site):
    for path in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', path.read_text())
        assert not loaded, f"{path.name}: {loaded}"
