"""The report of a run in a real browser: light, dark and on paper, without scripts."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from kernelcoreset.jobs.cli import main
from kernelcoreset.jobs.report import add_history, write_report
from kernelcoreset.reporting.style import DARK as DARK_COLORS
from kernelcoreset.reporting.style import LIGHT as LIGHT_COLORS
from tests.services.browser import DARK, Browser
from tests.unit.test_reporting import EVIL, coreset_settings, full_record

PLATFORM = ("Chromium", "reports in light, dark and print")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    return Browser(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with all sections and hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    for _ in range(3):
        record = full_record(folder / "out.run.json", job="update", cluster_shares=[0.5, 0.3, 0.2])
        add_history(record)
        record.write()
    write_report(record.path, str(folder / "out.report.html"))
    return folder / "out.report.html"


def rgb(color):
    return np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)])


def pixels(path):
    return np.round(imread(path)[:, :, :3] * 255).astype(int).reshape(-1, 3)


@pytest.mark.parametrize(("options", "colors"), [((), LIGHT_COLORS), ((DARK,), DARK_COLORS)], ids=["light", "dark"])
def test_the_page_follows_the_scheme_of_the_reader(browser, page, tmp_path, options, colors):
    shown = pixels(browser.screenshot(page, tmp_path / "page.png", *options))
    ground = np.abs(shown - rgb(colors["page"])).max(axis=1) <= 2
    assert ground.mean() > 0.3
    for name in ("text", "good", "panel", "muted"):
        assert (np.abs(shown - rgb(colors[name])).max(axis=1) <= 2).sum() > 20, name


@pytest.mark.parametrize("width", [1120, 400])
def test_nothing_is_wider_than_the_window(browser, page, tmp_path, width):
    """To the right of the text there is only the margin, also on a telephone."""
    size = max(width, 500)  # a window has at least this width
    shown = imread(browser.screenshot(page, tmp_path / "page.png", width=size))[:, :, :3]
    margin = np.round(shown[:, -12:] * 255).reshape(-1, 3)
    assert np.abs(margin - rgb(LIGHT_COLORS["page"])).max() <= 2


def test_no_text_of_a_user_is_run(browser, page):
    content = browser.content(page)
    assert EVIL.split("(")[0].replace("<", "&lt;").replace(">", "&gt;") in content
    assert "<script" not in content


def test_a_page_is_printed_light_on_several_sheets(browser, page, tmp_path):
    printed = browser.pdf(page, tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 8


def test_the_report_of_a_job_is_shown(browser, tmp_path):
    assert main(coreset_settings(tmp_path)) == 0
    content = browser.content(tmp_path / "model.report.html")
    assert "Cluster quality" in content
    assert content.count("<circle") > 80


def test_the_pictures_in_the_documentation_are_small():
    found = list((Path(__file__).parents[2] / "docs" / "images").glob("report-*.png"))
    assert len(found) >= 3
    assert all(path.stat().st_size < 300_000 for path in found)
