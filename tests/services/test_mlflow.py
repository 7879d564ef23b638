"""Models and runs of jobs on a real tracking server of MLflow."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the packages that MLflow imports
    import mlflow

import kernelcoreset as kc
from kernelcoreset import mlflow as models
from kernelcoreset.jobs import cli
from tests.user_kernels import rational

PLATFORM = "MLflow 3", "models and runs of jobs on a tracking server"

# MLflow leaves connections and files to the garbage collector, and warns about itself.
pytestmark = pytest.mark.filterwarnings("ignore")

POINTS = np.repeat([[0.0, 0.0], [9.0, 1.0], [3.0, 20.0]], 100, axis=0) + np.random.default_rng(0).normal(size=(300, 2))
KERNEL = kc.Gaussian(sigma=5.0)
MAKERS = {
    "k-means": lambda: kc.KernelKMeans(3, kernel=KERNEL, coreset_size=60, n_init=2, random_state=0).fit(POINTS).model_,
    "spectral": lambda: kc.fit_spectral(POINTS, 3, kc.Gaussian(sigma=3.0), 60, n_init=2),
    "neighbors": lambda: kc.fit_neighbors(POINTS, 3, 60),
}


@pytest.fixture
def client(tracking, tmp_path, monkeypatch):
    """The server, and this process as its client."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking)
    mlflow.set_tracking_uri(tracking)
    yield mlflow.MlflowClient(tracking)
    while mlflow.active_run() is not None:
        mlflow.end_run()
    mlflow.set_tracking_uri(None)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_model_comes_back_as_it_was_and_as_a_pyfunc(client, kind):
    model = MAKERS[kind]()
    mlflow.set_experiment(f"models {kind}")
    info = models.log_model(model, features=["x", "y"], registered_model_name=f"by {kind}")
    assert info.signature.inputs.to_dict() == [
        {"type": "double", "name": "x", "required": True},
        {"type": "double", "name": "y", "required": True},
    ]
    assert info.signature.outputs.input_names() == ["prediction", "distance"]
    expected = model.label(POINTS)
    frame = pd.DataFrame({"other": 1, "y": POINTS[:, 1], "x": POINTS[:, 0]}, index=np.arange(300)[::-1])
    for uri in (info.model_uri, f"models:/by {kind}/{info.registered_model_version}"):
        found = mlflow.pyfunc.load_model(uri).predict(frame)
        assert found["prediction"].tolist() == expected.labels.tolist()
        np.testing.assert_array_equal(found["distance"], expected.distances)
        assert found.index.tolist() == frame.index.tolist()
        again = models.load_model(uri)
        assert type(again) is type(model)
        np.testing.assert_array_equal(again.predict(POINTS), expected.labels)
    with pytest.raises(mlflow.MlflowException, match="Model is missing inputs"):
        mlflow.pyfunc.load_model(info.model_uri).predict(frame[["x"]])


def test_the_input_example_are_points_of_the_coreset(client):
    model = MAKERS["spectral"]()
    mlflow.set_experiment("examples")
    info = models.log_model(model)
    logged = mlflow.pyfunc.load_model(info.model_uri)
    np.testing.assert_array_equal(logged.input_example, model.clustering.coreset.points[:5, :2])
    assert logged.predict(POINTS)["prediction"].tolist() == model.predict(POINTS).tolist()
    assert info.signature.inputs.to_dict()[0]["tensor-spec"] == {"dtype": "float64", "shape": (-1, 2)}


def test_what_is_no_model_is_said(client):
    mlflow.set_experiment("refused")
    with pytest.raises(kc.SettingError, match="`model` must be a fitted model that labels points; got KernelKMeans"):
        models.log_model(kc.KernelKMeans(2))
    with pytest.raises(kc.SettingError, match=r"`features` must name the 2 features of the model; got \['x'\]"):
        models.log_model(MAKERS["k-means"](), features=["x"])
    with mlflow.start_run():
        other = mlflow.pyfunc.log_model(name="other", python_model=lambda model_input: model_input, pip_requirements=[])
    with pytest.raises(kc.FormatError, match=r"is not a model that kernelcoreset\.mlflow\.log_model has logged"):
        models.load_model(other.model_uri)
    assert client.search_registered_models("name = 'refused'") == []


def test_a_user_s_function_needs_trust(client, monkeypatch):
    kernel = kc.UserKernel(rational)
    coreset = kc.build_coreset(POINTS, 3, kernel, 60)
    mlflow.set_experiment("trust")
    info = models.log_model(kc.KernelKMeansModel.fit_coreset(coreset, 3, kernel, n_init=1))
    with pytest.raises(kc.KernelCoresetError, match="trusted_modules"):
        models.load_model(info.model_uri)
    assert models.load_model(info.model_uri, trusted_modules=["tests.user_kernels"]).k == 3
    with pytest.raises(kc.KernelCoresetError, match="trusted_modules"):
        mlflow.pyfunc.load_model(info.model_uri)
    monkeypatch.setenv("KERNELCORESET_TRUSTED_MODULES", "tests.user_kernels")
    assert len(mlflow.pyfunc.load_model(info.model_uri).predict(POINTS)) == 300


# --- jobs ------------------------------------------------------------------------------------------------------------

JOB = """
[input]
path = "HERE/days"
features = ["x", "y"]
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
coreset_size = 60
[cluster]
n_init = 2
[certificate]
center_sets = 10
[store]
path = "HERE/store"
[output]
path = "HERE/out"
options = {"maxRecordsPerFile" = 1000, "secret.option" = "tr0ub4dor"}
[spark]
conf = {"spark.ui.enabled" = "false"}
[mlflow]
experiment = "nights"
registered_model = "segments"
"""


@pytest.fixture
def job(client, tmp_path):
    """Rows of two days, and the settings of jobs on them."""
    for day in (1, 2):
        path = tmp_path / "days" / f"date=2026-01-0{day}" / "part-0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"x": POINTS[:, 0], "y": POINTS[:, 1], "id": np.arange(300)}), path)
    Path("job.toml").write_text(JOB.replace("HERE", str(tmp_path)))

    def run(main, *overrides):
        return main(["--config", "job.toml", *(part for text in overrides for part in ("--set", text))])

    return run


def runs_of(client, experiment):
    found = client.get_experiment_by_name(experiment)
    return [] if found is None else client.search_runs([found.experiment_id], order_by=["attribute.start_time DESC"])


def artifact(run, name):
    return Path(mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path=name)).read_text()


def test_jobs_log_settings_figures_and_the_model(job, client, tmp_path):
    for main, name, overrides in (
        (cli.run_main, "run", ()),
        (cli.spectral_main, "spectral", (f"output.path={tmp_path}/other",)),
        (cli.update_main, "update", (f"output.path={tmp_path}/third",)),
    ):
        assert job(main, *overrides, f"mlflow.experiment=jobs {name}", f"mlflow.registered_model=by job {name}") == 0
        (run,) = runs_of(client, f"jobs {name}")
        assert (run.info.status, run.info.run_name) == ("FINISHED", name)
        assert run.data.params["coreset.k"] == "3"
        assert run.data.params["input.features"] == "['x', 'y']"
        assert run.data.params["output.options.secret.option"] == "(hidden)"
        assert run.data.metrics["rows"] == 600
        assert run.data.tags["kernelcoreset.status"] == "done"
        record = json.loads(artifact(run, "run.json"))
        assert (record["job"], record["status"], record["rows"]) == (name, "done", 600)
        assert "rows         600" in artifact(run, "summary.txt")
        assert "tr0ub4dor" not in json.dumps(run.data.params) + json.dumps(record)
        found = mlflow.pyfunc.load_model(f"models:/by job {name}/1").predict(pd.DataFrame(POINTS, columns=["x", "y"]))
        assert sorted(np.bincount(found["prediction"])) == [100, 100, 100]
    # A night without news logs its figures, and no model.
    assert job(cli.update_main, f"output.path={tmp_path}/third", "mlflow.registered_model=by job update") == 0
    (run,) = runs_of(client, "nights")
    assert json.loads(artifact(run, "run.json"))["outcome"] == "nothing to do"
    assert [version.version for version in client.search_model_versions("name = 'by job update'")] == ["1"]


def test_a_job_without_spark_and_one_that_fails(job, client, capsys):
    kc.build_coreset(POINTS, 3, KERNEL, 60).write_parquet("coreset.parquet")
    paths = ("coreset.path=coreset.parquet", "cluster.model_path=model", "mlflow.experiment=failures")
    assert job(cli.cluster_main, *paths) == 0
    (run,) = runs_of(client, "failures")
    assert run.info.status == "FINISHED"
    assert run.data.metrics["coreset_cost"] == pytest.approx(kc.KernelKMeansModel.load("model").solution.cost)
    Path("coreset.parquet").write_bytes(b"damaged")
    assert job(cli.cluster_main, *paths) == 3
    failed, _ = runs_of(client, "failures")
    assert failed.info.status == "FAILED"
    assert mlflow.active_run() is None
    assert "Bad data: " in capsys.readouterr().err.splitlines()[-1]


def test_a_server_that_cannot_be_reached_is_known_before_the_work(job, capsys, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr("kernelcoreset.spark.jobs.batch.open_session", lambda *_: pytest.fail("Spark was started"))
    assert job(cli.run_main, "mlflow.tracking_uri=http://me:pw@127.0.0.1:9") == 4
    last = capsys.readouterr().err.splitlines()[-1]
    assert "Environment: MLflow cannot be used at http://(hidden)@127.0.0.1:9 (see mlflow.tracking_uri" in last
    assert not Path("out").exists()


def test_a_server_that_goes_away_takes_nothing_with_it(job, capsys, monkeypatch):
    kc.build_coreset(POINTS, 3, KERNEL, 60).write_parquet("coreset.parquet")

    def gone(*_, **__):
        raise mlflow.MlflowException("Connection refused")

    monkeypatch.setattr(mlflow, "log_metrics", gone)
    assert job(cli.cluster_main, "coreset.path=coreset.parquet", "cluster.model_path=model") == 4
    last = capsys.readouterr().err.splitlines()[-1]
    assert "Done, but the run could not be logged. Environment: MLflow cannot be used" in last
    assert json.loads(Path("model.run.json").read_text())["status"] == "done"
    assert kc.KernelKMeansModel.load("model").k == 3
