"""Settings of a job: which sections it uses, what it needs, and where its record goes."""

import json
import pickle

import pytest

from kernelcoreset import SettingError
from kernelcoreset.jobs.cli import JOBS
from kernelcoreset.jobs.settings.settings import SECTIONS, Settings
from tests.unit.test_settings import CONF, LEAST, settings_with


def test_sections_of_other_jobs_are_left_alone():
    tables = {**LEAST, "update": {"lable": "all"}, "stream": {"fan_in": -1}, "kernel": {"name": "no kernel"}}
    settings = Settings.from_dict(tables, ["input", "coreset"])
    assert settings.to_dict().keys() == {"input", "coreset"}
    assert settings.has("input", "coreset")
    assert not settings.has("input", "kernel")
    with pytest.raises(AttributeError, match=r"no section \[kernel\]. They have: input, coreset"):
        settings.kernel  # noqa: B018
    with pytest.raises(SettingError, match=r"Unknown key `update\.lable`"):
        Settings.from_dict({**tables, "kernel": {"name": "Linear"}})
    with pytest.raises(SettingError, match=r"Unknown section `updates`. Did you mean `update`\?"):
        Settings.from_dict({**tables, "updates": {}}, ["input", "coreset"])
    with pytest.raises(SettingError, match=r"`update` must be a section, written \[update\]; got 5"):
        Settings.from_dict({**tables, "update": 5}, ["input", "coreset"])


def test_settings_of_a_job_survive_json_and_pickle():
    settings = Settings.load(CONF / "update.toml", sections=["input", "coreset", "store"])
    assert Settings.from_dict(json.loads(json.dumps(settings.to_dict())), list(settings.sections)) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings != Settings.load(CONF / "update.toml", sections=["input", "coreset"])


def test_every_job_uses_known_sections_and_needs_only_their_keys():
    for job in JOBS.values():
        assert len(set(job.sections)) == len(job.sections)
        assert {name.removesuffix("?") for name in job.sections} <= SECTIONS.keys()
        settings = Settings.load(CONF / "reference.toml", sections=job.sections)
        for alternative in "|".join(job.needs).split("|"):
            settings.get(alternative.partition("=")[0])
    assert {name.removesuffix("?") for job in JOBS.values() for name in job.sections} == SECTIONS.keys()


def test_the_job_spectral_needs_a_kernel_only_if_it_is_asked_for():
    tables = {"input": {"path": "rows", "features": ["x"]}, "coreset": {"k": 3}}
    sections = JOBS["spectral"].sections
    settings = Settings.from_dict(tables, sections)
    assert settings.spectral.affinity == "auto"
    assert not settings.has("kernel")
    assert Settings.from_dict({**tables, "kernel": {"name": "Linear"}}, sections).has("kernel")
    with pytest.raises(SettingError, match=r'\[kernel\] is required by `spectral.affinity` = "kernel"'):
        Settings.from_dict({**tables, "spectral": {"affinity": "rbf"}}, sections)
    with pytest.raises(SettingError, match=r"`spectral.affinity` must be one of 'auto', 'nearest_neighbors', 'kernel'"):
        Settings.from_dict({**tables, "spectral": {"affinity": "knn"}}, sections)


def test_a_graph_needs_no_kernel_and_no_features():
    tables = {"input": {"path": "edges"}, "coreset": {"k": 3}}
    settings = Settings.from_dict(tables, JOBS["graph"].sections)
    assert settings.graph.source_col == "src"
    assert settings.input.features == ()
    assert "kernel" not in settings.to_dict()
    edges = {**tables, "input": {"path": "edges", "weight_col": "dst"}}
    with pytest.raises(SettingError, match=r"`input.weight_col` must not be a column of node ids; got 'dst'"):
        Settings.from_dict(edges, JOBS["graph"].sections)
    assert Settings.from_dict({**edges, "kernel": {"name": "Linear"}}, JOBS["run"].sections).input.weight_col == "dst"


def test_a_job_names_what_it_lacks():
    settings = settings_with()
    with pytest.raises(SettingError, match=r"`output.path` or `output.table` is required by the job run"):
        settings.require("run", "coreset.k", "output.path|output.table")
    settings_with(output={"table": "t"}).require("run", "coreset.k", "output.path|output.table")
    settings = settings_with(input={"demo_rows": None, "path": "x"})
    with pytest.raises(SettingError, match=r'`input.features` is required .* --set input.features=\["longitude", "lat'):
        settings.require("run", "input.features")
    need = "output.path|update.label=all"
    with pytest.raises(SettingError, match=r'`output.path` or `update.label` = "all" is required by the job update'):
        settings.require("update", need)
    settings_with(update={"label": "all"}).require("update", need)


@pytest.mark.parametrize(
    ("sections", "beside", "place"),
    [
        ({"output": {"path": "out/labels/"}}, None, "out/labels.run.json"),
        ({"output": {"path": "s3a://bucket/labels"}}, None, "s3a://bucket/labels.run.json"),
        ({"output": {"path": "dbfs:/mnt/labels"}}, None, "labels.run.json"),
        ({"output": {"table": "main.geo.labels"}}, None, "main.geo.labels.run.json"),
        ({"output": {"path": "out"}, "coreset": {"path": "c.parquet"}}, "coreset.path", "c.parquet.run.json"),
        ({}, None, "kernelcoreset.run.json"),
        ({"output": {"path": "out"}, "run": {"record": "r.json"}}, None, "r.json"),
    ],
)
def test_the_record_goes_beside_the_output(sections, beside, place):
    assert settings_with(**sections).record_path(beside) == place


@pytest.mark.parametrize(
    ("text", "found"), [("7", "7"), ("2026-01-31", "2026-01-31"), ("scheduled__x", "scheduled__x")]
)
def test_the_id_of_a_run_may_be_a_number_or_a_date(text, found, tmp_path):
    (tmp_path / "job.toml").write_text('[input]\ndemo_rows = 9\n[kernel]\nname = "Linear"\n[coreset]\nk = 2\n')
    assert Settings.load(tmp_path / "job.toml", [f"run.id={text}"]).run.id == found
