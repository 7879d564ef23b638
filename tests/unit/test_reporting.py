"""The report of a run: complete, escaped, readable in both schemes, and never in the way of a job."""

import json
import logging
import re
import tomllib
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kernelcoreset as kc
from kernelcoreset.describing.picture import leading_components, picture_of
from kernelcoreset.jobs.cli import main
from kernelcoreset.jobs.record import RunRecord, read_record
from kernelcoreset.jobs.report import add_history, show_model, write_report
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.reporting import charts, style
from kernelcoreset.reporting.elements import Html, element, join
from kernelcoreset.reporting.page import is_report, report_page
from kernelcoreset.reporting.reproduce import settings_text
from kernelcoreset.reporting.sections import SECTIONS
from kernelcoreset.reporting.verdict import cluster_verdict, coreset_verdict
from tests.naive_describe import naive_components

EVIL = "<script>alert('x')</script>\"&"
TABLES = {
    "input": {"demo_rows": 100},
    "kernel": {"name": "Gaussian", "sigma": "median"},
    "coreset": {"k": 3},
    "output": {"path": "labels"},
}


class Page(HTMLParser):
    """The elements of a page; an element that is not closed in its place is an error."""

    VOID = frozenset({"meta"})

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.links, self._open = [], [], [], []
        self.feed(page)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


def fitted(k=3, n=300, names=("longitude", "latitude")):
    points = np.random.default_rng(0).normal(size=(n, len(names))) + np.repeat(np.arange(3) * 9.0, n // 3)[:, None]
    kernel = kc.Gaussian(sigma=5.0)
    coreset = kc.build_coreset(points, k, kernel, 100, seed=0)
    return kc.KernelKMeansModel.fit_coreset(coreset, k, kernel), points


def full_record(path, job="run", **values):
    """A record with all that a page shows, some of it hostile."""
    record = RunRecord(job, Settings.from_dict(TABLES), str(path))
    model, points = fitted()
    table = pa.table({"longitude": points[:, 0], "latitude": points[:, 1], EVIL: [EVIL] * 150 + ["tame"] * 150})
    found = model.label(points, margins=True)
    description = model.describe(names=["longitude", EVIL]).to_dict()
    description["clusters"][0]["differences"] = [
        {"column": EVIL, "difference": 2.0, "value": EVIL, "share": 0.9, "overall": 0.2}
    ]
    description["far"] = [{"outlier_score": 3.0, "row": {EVIL: EVIL, "longitude": 1.5}}]
    with record.stage("build"), record.stage("leaves"):
        pass
    record.add(
        rows=table.num_rows, bad_rows=7, bad_columns={EVIL: 7}, kernel=repr(model.kernel), output=EVIL,
        coreset_points=len(model.coreset), cost=10.0, coreset_cost=10.1, description=description,
        cluster_sizes=np.bincount(found.labels), certificate={"largest_error": 0.01, "center_sets": 100},
        warnings=[EVIL], changes={"new": [EVIL]}, moved=0.25, **values,
    )  # fmt: skip
    show_model(record, model)
    return record


def test_a_page_has_all_sections_and_every_text_is_escaped(tmp_path):
    record = full_record(tmp_path / "out.run.json", choice={"reason": "because", "sigma": 1.0})
    add_history(record)
    text = report_page(record.to_dict())
    page = Page(text)
    for name, _ in SECTIONS:
        assert name in page.texts
    assert "script" not in page.tags
    assert "<script" not in text
    assert page.text.count(EVIL) >= 7  # columns, values, warnings, keys, output: shown as they are
    assert "7 bad rows were left out" in page.text
    assert "The number of clusters, 3, is from the settings" in page.text
    assert "75.0% of the weight is in the same cluster" in page.text


def test_a_page_loads_nothing_and_needs_no_script(tmp_path):
    text = report_page(full_record(tmp_path / "out.run.json").to_dict())
    page = Page(text)
    assert page.links == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not re.search(r"@import|url\(|https?:", text)
    assert "default-src 'none'" in text


@pytest.mark.parametrize("job", ["run", "cluster", "assign", "graph", "spectral", "build-coreset", "update", "stream"])
def test_a_record_without_values_gives_a_page_too(job):
    page = Page(report_page({"job": job, "status": "done", "settings": {}}))
    assert f"Run of the job {job}" in page.text


def test_a_failed_run_says_why():
    page = Page(report_page({"job": "run", "status": "failed", "error": "DataError: no rows", "settings": {}}))
    assert "The run failed. DataError: no rows" in page.text


def test_a_graph_has_its_nodes_and_cut():
    values = {"rows": 90, "nodes": 40, "cluster_sizes": [30, 9], "nodes_without_edges": 1, "exact_normalized_cut": 0.25}
    page = Page(report_page({"job": "graph", "status": "done", "settings": {}, **values}))
    assert "40 nodes in 2 clusters" in page.text
    assert "Normalized cut 0.25" in page.text
    assert "1 nodes have no edges" in page.text


# --- colours ---------------------------------------------------------------------------------------------------------


def luminance(color):
    """Relative luminance of a colour, as WCAG 2.2 defines it."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # just below AA


@pytest.mark.parametrize("colors", [style.LIGHT, style.DARK], ids=["light", "dark"])
def test_every_text_has_the_contrast_of_wcag_aa(colors):
    texts = {name: color for name, color in colors.items() if name not in ("page", "panel", "line")}
    for name, color in texts.items():
        for ground in ("page", "panel"):
            assert contrast(color, colors[ground]) >= 4.5, (name, ground)


@pytest.mark.parametrize(
    ("clusters", "colors"),
    [(style.LIGHT_CLUSTERS, style.LIGHT), (style.DARK_CLUSTERS, style.DARK)],
    ids=["light", "dark"],
)
def test_every_cluster_has_the_contrast_of_graphics(clusters, colors):
    for color in clusters:
        assert contrast(color, colors["panel"]) >= 3.0, color
        assert contrast(color, colors["page"]) >= 3.0, color
    assert len(set(clusters)) == len(clusters) == 10


def test_the_page_uses_no_other_colours():
    known = {*style.LIGHT.values(), *style.DARK.values(), *style.LIGHT_CLUSTERS, *style.DARK_CLUSTERS}
    assert set(re.findall(r"#[0-9a-fA-F]{3,8}\b", style.css())) <= known


# --- parts -----------------------------------------------------------------------------------------------------------


def test_only_elements_are_not_escaped():
    assert join(Html("<b>"), "<b>") == "<b>&lt;b&gt;"
    assert element("p", None, 0, title='"') == '<p title="&quot;">0</p>'


def test_a_scatter_keeps_the_shape_of_a_map():
    """With equal units, a square of points is a square on the chart."""
    chart = charts.scatter(
        [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 1, 4], names=("x", "y"), title="t", aspect=1
    )
    dots = [
        tuple(map(float, found)) for found in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"', chart)
    ]
    (x0, y0, r0), (x1, _, _), (_, y2, _), (_, _, r3) = dots
    assert x1 - x0 == pytest.approx(y0 - y2, abs=0.2)
    assert r3 > r0
    assert len(re.findall(r"<g class=\"dots c\d\"", chart)) == 2


@pytest.mark.parametrize("values", [[5.0], [3.0, 3.0], [-1e9, 1e9], [0.0, 1e-9], []])
def test_charts_take_any_numbers(values):
    x = list(values)
    chart = charts.scatter(x, x, [0] * len(x), [1.0] * len(x), names=(EVIL, EVIL), title=EVIL)
    Page(chart)
    assert "nan" not in chart
    assert "inf" not in chart
    Page(charts.line([(value, value) for value in x], names=("a", "b"), title="t", marked=None))


def test_shares_of_clusters_fill_their_columns():
    chart = charts.stacked([("mon", [0.5, 0.5]), ("tue", [0.25, 0.75])], "shares")
    sizes = [float(found) for found in re.findall(r'height="([\d.]+)" class="c\d"', chart)]
    assert sizes[0] == pytest.approx(sizes[1])
    assert sizes[3] + 1 == pytest.approx(3 * (sizes[2] + 1), abs=0.3)
    assert ">mon<" in chart


def test_settings_are_toml_that_gives_the_same_settings():
    tables = {
        "input": {"path": 'a "b"\\c\n\x7f', "features": ["x", "y.z"], "options": {"header": True, "odd key": "ü"}},
        "kernel": {"name": "Sum", "left": {"name": "Linear"}, "right": {"name": "Gaussian", "sigma": 1e-7}},
        "coreset": {"k": 5},
    }
    settings = Settings.from_dict(tables)
    assert Settings.from_dict(tomllib.loads(settings_text(settings.to_dict()))) == settings


@pytest.mark.parametrize(
    ("error", "light"), [(0.005, "good"), (0.02, "good"), (0.05, "fair"), (0.3, "poor"), (None, "unknown")]
)
def test_the_light_of_the_coreset_follows_its_error(error, light):
    found = coreset_verdict({"largest_error": error})
    assert found.light == light
    assert ("coreset_size" in found.follows) == (light in ("fair", "poor"))


@pytest.mark.parametrize(
    ("stability", "separation", "light"),
    [
        (0.95, 0.3, "good"),
        (0.95, 0.04, "fair"),  # comes back with other rows, but nothing lies between
        (0.95, None, "fair"),  # the record of an earlier version
        (0.7, 0.3, "fair"),
        (0.7, 0.04, "poor"),
        (0.1, 0.3, "poor"),
        (None, 0.3, "unknown"),
    ],
)
def test_the_light_of_the_clusters_follows_stability_and_separation(stability, separation, light):
    found = cluster_verdict({"stability": stability, "separation": separation})
    assert found.light == light
    assert ("explore" in found.follows) == (light in ("fair", "poor"))
    assert ("give them names" in found.follows.replace("do not give them names", "")) == (light == "good")


# --- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [kc.Gaussian(sigma=2.0), kc.Linear(), kc.Polynomial(degree=3, c=1.0)], ids=repr)
def test_components_are_those_of_weighted_copies(kernel):
    generator = np.random.default_rng(3)
    points, weights = generator.normal(size=(30, 3)), generator.integers(1, 5, size=30).astype(float)
    places, shares = leading_components(points, weights, kernel)
    slow_places, slow_shares = naive_components(points, weights, kernel)
    np.testing.assert_allclose(shares, slow_shares, rtol=1e-8)
    np.testing.assert_allclose(places, slow_places, atol=1e-7 * np.abs(slow_places).max())
    assert shares[0] >= shares[1] > 0


@pytest.mark.parametrize("points", [np.zeros((1, 2)), np.ones((4, 2)), np.array([[0.0, 0.0], [1.0, 1.0]])])
def test_few_or_equal_points_have_a_picture(points):
    found = picture_of(points, np.ones(len(points)), np.zeros(len(points), int), kc.Gaussian(sigma=1.0))
    assert np.isfinite(found["components"]["x"] + found["components"]["y"]).all()
    assert len(found["labels"]) == len(points)


def test_longitude_and_latitude_are_a_map_and_two_columns_a_plane():
    model, _ = fitted()
    found = model.picture(["Longitude", "LAT"])["columns"]
    assert found["names"] == ["Longitude", "LAT"]
    mean = np.average(model.coreset.points[:, 1], weights=model.coreset.weights)
    assert found["aspect"] == pytest.approx(np.cos(np.radians(mean)))
    np.testing.assert_allclose(found["x"], model.coreset.points[:, 0], rtol=1e-5)
    assert "aspect" not in model.picture(["a", "b"])["columns"]
    assert fitted(names=("a", "b", "c"))[0].picture(["a", "b", "c"]).get("columns") is None


def test_a_large_coreset_has_a_small_picture():
    points = np.random.default_rng(0).normal(size=(5_000, 2))
    found = picture_of(points, np.ones(5_000), np.zeros(5_000, int), None)
    assert len(found["labels"]) == len(found["components"]["x"]) == 1_000
    assert len(json.dumps(found)) < 50_000


# --- jobs ------------------------------------------------------------------------------------------------------------


def coreset_settings(tmp_path, *more):
    model, _ = fitted()
    model.coreset.write_parquet(tmp_path / "coreset.parquet")
    config = tmp_path / "job.toml"
    config.write_text(
        f'[coreset]\nk = 3\npath = "{tmp_path}/coreset.parquet"\n[cluster]\nmodel_path = "{tmp_path}/model"\n'
    )
    return ["cluster", "--config", str(config), *more]


def test_a_job_writes_a_report_and_the_command_makes_the_same_again(tmp_path, capsys):
    assert main(coreset_settings(tmp_path)) == 0
    assert f"report       {tmp_path}/model.report.html" in capsys.readouterr().out
    place = tmp_path / "model.report.html"
    first = place.read_bytes()
    assert is_report(first)
    assert len(first) < 200_000
    page = Page(first.decode())
    assert "two halves of the data agree" in page.text
    assert "first component" in page.text
    place.unlink()
    assert main(["report", str(tmp_path / "model.run.json")]) == 0
    assert capsys.readouterr().out == f"{place}\n"
    assert place.read_bytes() == first
    assert main(["report", str(tmp_path / "model.run.json"), "--output", str(tmp_path / "other.html")]) == 0
    assert (tmp_path / "other.html").read_bytes() == first


def test_reports_can_be_switched_off_and_put_elsewhere(tmp_path, capsys):
    assert main(coreset_settings(tmp_path, "--set", "run.report=false")) == 0
    assert not list(tmp_path.glob("*.html"))
    assert not {"picture", "history"} & read_record(tmp_path / "model.run.json").keys()
    assert "report  " not in capsys.readouterr().out
    assert main(coreset_settings(tmp_path, "--set", f"run.report={tmp_path}/page.html")) == 0
    assert is_report((tmp_path / "page.html").read_bytes())


def test_a_file_of_a_user_is_never_replaced(tmp_path, caplog):
    own = tmp_path / "model.report.html"
    own.write_text("<p>my page</p>")
    assert main(coreset_settings(tmp_path)) == 2
    assert not (tmp_path / "model").exists()
    assert main(coreset_settings(tmp_path, "--set", "run.report=false")) == 0
    assert main(["report", str(tmp_path / "model.run.json")]) == 2
    assert own.read_text() == "<p>my page</p>"
    with pytest.raises(kc.SettingError, match=r"The report: .*model\.report\.html is not an output of a job"):
        write_report(str(tmp_path / "model.run.json"), str(own))


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch, capfd):
    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kernelcoreset.jobs.report.write_file", fail)
    assert main(coreset_settings(tmp_path)) == 0
    assert "WARNING The report could not be written" in capfd.readouterr().err
    assert read_record(tmp_path / "model.run.json")["status"] == "done"


@pytest.mark.parametrize("value", ["3", "[]", '""', "weird://x"])
def test_a_wrong_place_of_the_report_is_an_error(tmp_path, value, capfd):
    assert main(coreset_settings(tmp_path, "--set", f"run.report={value}")) == 2
    assert "`run.report` must be" in capfd.readouterr().err


def test_a_damaged_record_gives_no_page(tmp_path, capfd):
    (tmp_path / "x.run.json").write_text("{")
    assert main(["report", str(tmp_path / "x.run.json")]) == 3
    assert "x.run.json is damaged" in capfd.readouterr().err
    assert main(["report", str(tmp_path / "none.json")]) != 0
    assert not list(tmp_path.glob("*.html"))


def test_runs_follow_each_other_in_the_history(tmp_path):
    path = tmp_path / "out.run.json"
    for run in range(70):
        record = RunRecord("update", Settings.from_dict(TABLES), str(path))
        record.add(rows=run, cluster_shares=[0.25, 0.75], outcome="updated")
        add_history(record)
        record.write()
    history = read_record(path)["history"]
    assert [entry["rows"] for entry in history] == list(range(10, 70))
    assert all(one["finished"] <= other["finished"] for one, other in pairwise(history))
    quiet = RunRecord("update", Settings.from_dict(TABLES), str(path))
    quiet.add(outcome="nothing to do")
    add_history(quiet)
    assert quiet.values["history"] == history
    page = Page(report_page(quiet.to_dict()))
    assert "in the last 60 runs" in page.text
    other = RunRecord("run", Settings.from_dict(TABLES), str(path))
    add_history(other)
    assert len(other.values["history"]) == 1


def test_warnings_of_a_run_are_in_its_record(tmp_path, monkeypatch):
    def work(settings, record):
        logging.getLogger("kernelcoreset").warning("%d keys are odd", 3)
        logging.getLogger("kernelcoreset").info("not this one")

    monkeypatch.setattr("kernelcoreset.jobs.cluster.run", work)
    assert main(coreset_settings(tmp_path)) == 0
    assert read_record(tmp_path / "model.run.json")["warnings"] == ["3 keys are odd"]
    assert "3 keys are odd" in Page((tmp_path / "model.report.html").read_text()).text


def test_numbers_of_a_record_are_on_one_line(tmp_path):
    record = RunRecord("run", Settings.from_dict(TABLES), str(tmp_path / "out.run.json"))
    record.add(sizes=list(range(500)), texts=["[\n 1,  2]", "[1,   2]"], nested={"x": [1.5, -2e-9]})
    record.write()
    text = Path(record.path).read_text()
    assert len(text.splitlines()) < 200
    found = read_record(record.path)
    assert (found["sizes"], found["texts"]) == (list(range(500)), ["[\n 1,  2]", "[1,   2]"])
    assert found["nested"]["x"] == [1.5, -2e-9]


def test_the_command_needs_a_known_job(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["clusters"])
    assert "invalid choice: 'clusters'" in capsys.readouterr().err
