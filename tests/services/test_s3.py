"""Everything that this package keeps in files, on a real S3 server."""

import json

import numpy as np
import pytest
from pyarrow import fs

import kernelcoreset as kc
from kernelcoreset.files import conditional
from kernelcoreset.files.atomic import read_file, write_file
from kernelcoreset.files.folder import Folder
from kernelcoreset.files.paths import open_path
from kernelcoreset.jobs import store_model
from kernelcoreset.jobs.record import RunRecord, read_record
from kernelcoreset.jobs.settings.settings import Settings
from tests.faults import commit_cases
from tests.stores import DAYS, day, filled, same

PLATFORM = "S3 (moto or versitygw)", "stores, coresets, models, records and settings; two writers at once"
TABLES = {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}


@pytest.fixture(params=["s3 with a query", "s3a and the environment"])
def uri(request, s3):
    """Two ways to say where the server is; names that must be escaped on the way."""
    if request.param.startswith("s3a"):
        return lambda path: f"s3a://bucket/by 50%25 environment/{path}"
    return lambda path: s3.uri(f"by query #1/{path}")


def test_400_commits_of_two_processes_and_none_is_lost(s3):
    tally = commit_cases.write_at_once(s3.uri("two writers/store"), commit_cases.COMMITS, "conditional put")
    assert (tally.cases, tally.done_right, tally.silent_wrong, tally.lost) == (commit_cases.COMMITS, 400, 0, 0)


def test_a_store(uri, tmp_path):
    store = filled(uri("store"), DAYS[:3])
    same(store.result(), filled(tmp_path / "local", DAYS[:3]).result())
    other = kc.CoresetStore.open(uri("store"))
    store.expire(DAYS[0])
    other.expire(DAYS[1])
    with pytest.raises(kc.ConflictError, match="Another writer changed 2024-01-02"):
        store.expire(DAYS[1])
    assert kc.CoresetStore.open(uri("store")).keys() == DAYS[2:3]
    assert other.guarantee == "conditional put"
    assert other.vacuum(older_than=0)
    with pytest.raises(FileExistsError, match="A store already exists at"):
        filled(uri("store"), [])


def test_a_put_that_is_sent_again_meets_itself(uri):
    folder = Folder(uri("again"))
    assert folder.create("a", b"1")
    assert folder.create("a", b"1")
    assert not folder.create("a", b"2")
    assert folder.read("a") == b"1"
    assert list(folder.names()) == ["a"]


def test_a_server_that_ignores_the_condition_is_refused(uri, monkeypatch):
    import obstore

    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda store, key, content, mode: put(store, key, content))
    with pytest.raises(kc.SettingError, match="ignores the condition of a put"):
        filled(uri("ignores"), [])
    assert Folder(uri("ignores")).names() == {}


def test_a_file_system_made_by_the_user(s3):
    system = fs.S3FileSystem(
        access_key="testing", secret_key="testing12", region="us-east-1", endpoint_override=s3.endpoint
    )
    store = filled("bucket/by hand", DAYS[:1], filesystem=system)
    filled("inner", DAYS[:1], filesystem=fs.SubTreeFileSystem("bucket/outer", system))
    assert store.guarantee == "conditional put"
    assert kc.CoresetStore.open(s3.uri("outer/inner")).keys() == DAYS[:1]
    with pytest.raises(kc.SettingError, match="cannot assume a role"):
        conditional.ConditionalPut(fs.S3FileSystem(role_arn="arn:aws:iam::1:role/x", region="us-east-1"), "bucket/x")


def test_coresets_models_records_and_settings(uri):
    points = day(DAYS[0])
    coreset = kc.build_coreset(points, 3, kc.Gaussian(sigma=1.0), 20)
    coreset.write_parquet(uri("coreset.parquet"))
    same(kc.Coreset.read_parquet(uri("coreset.parquet")), coreset)
    record = RunRecord("run", Settings.from_dict(TABLES), uri("out.run.json"))
    failed = record.write(ValueError("no"))
    assert "out.run.failed.json" in failed
    assert read_record(failed)["status"] == "failed"
    assert read_record(record.write())["status"] == "done"
    with pytest.raises(FileNotFoundError):
        read_record(failed)
    write_file(*open_path(uri("job.toml")), b'[kernel]\nname = "Linear"\n[coreset]\nk = 7\n[input]\ndemo_rows = 9\n')
    assert Settings.load(uri("job.toml")).coreset.k == 7
    assert json.loads(read_file(*open_path(uri("out.run.json"))))["job"] == "run"


def test_the_models_of_a_store(uri):
    settings = Settings.from_dict(
        {**TABLES, "coreset": {"k": 2, "coreset_size": 20}, "store": {"path": uri("with models")}}
    )
    store = store_model.make_store(settings, kc.Linear())
    store.add("a", np.random.default_rng(0).normal(size=(50, 2)))
    for _ in range(3):
        state = store_model.JobState.of(store)
        before = store_model.read_model(store, state.model)
        tracked, state = store_model.fit_store(store, settings, state, before, None)
        store_model.keep_state(store, settings, "update", state)
        store_model.remove_old_models(store, state)
    found = store_model.read_model(kc.CoresetStore.open(uri("with models")), state.model)
    np.testing.assert_array_equal(found.predict([[0.0, 1.0]]), tracked.model.predict([[0.0, 1.0]]))
    kept = store.folder("models")
    assert len(kept.system.get_file_info(fs.FileSelector(kept.path))) == 2
    tracked.model.save(uri("model"))
    assert kc.KernelKMeansModel.load(uri("model")).solution.cost == tracked.model.solution.cost
    with pytest.raises(FileExistsError):
        tracked.model.save(uri("model"))
    tracked.model.save(uri("model"), overwrite=True)
