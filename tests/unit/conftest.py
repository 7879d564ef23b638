"""Settings and a stub for the tests of the jobs' command line."""

import sys
from types import ModuleType

import pytest


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A settings file with every path a job may need, in a new working directory."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "job.toml"
    file.write_text(
        "[input]\ndemo_rows = 400\n"
        '[kernel]\nname = "Gaussian"\nsigma = 3.0\n'
        '[coreset]\nk = 2\ncoreset_size = 50\npath = "coreset.parquet"\n'
        '[cluster]\nmodel_path = "model"\n'
        '[output]\npath = "out"\n'
    )
    return str(file)


@pytest.fixture
def batch(monkeypatch):
    """A stub for kernelcoreset.spark.jobs.batch that writes no rows and notes which functions were called.

    `fail_with` makes its `run` raise an error.
    """
    stub = ModuleType("kernelcoreset.spark.jobs.batch")
    stub.calls = []

    def plan(settings):
        stub.calls.append("plan")
        return {"rows": 400, "leaves": 1, "driver_bytes": 12_000, "kernel_evaluations": 10**6, "estimated_seconds": 1.5}

    def work(name):
        def run(settings, record):
            stub.calls.append(name)
            with record.stage("session"):
                pass
            with record.stage(name):
                record.add(rows=400, cluster_sizes=[300, 100])

        return run

    def fail_with(error):
        def run(settings, record):
            raise error

        stub.run = run

    stub.plan, stub.fail_with = plan, fail_with
    for name in ("build_coreset", "assign", "run", "spectral"):
        setattr(stub, name, work(name))
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    return stub
