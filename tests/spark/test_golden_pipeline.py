"""A Spark pipeline that an earlier version saved, with the module paths of that version in it."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyspark.ml import PipelineModel

from kernelcoreset.spark import KernelKMeans
from tests.golden.test_golden_files import DATA, EXPECTED, FOLDER


@pytest.fixture
def data(spark):
    return spark.createDataFrame(pa.table({"id": np.arange(len(DATA)), "x": DATA[:, 0], "y": DATA[:, 1]}))


def test_a_pipeline_model_loads_and_labels(data):
    model = PipelineModel.load(str(FOLDER / "pipeline_model"))
    rows = model.transform(data).orderBy("id").select("prediction", "cut").toArrow().to_pydict()
    assert rows == EXPECTED["pipeline"]
    cost = model.stages[1].evaluate(model.stages[0].transform(data)).cost
    assert cost == pytest.approx(EXPECTED["pipeline cost"], rel=1e-9)


def test_an_estimator_loads():
    estimator = KernelKMeans.load(str(FOLDER / "estimator"))
    assert estimator.getOrDefault("coresetSize") == 40


@pytest.mark.parametrize("path", ["kernelcoreset.spark.estimator", "kernelcoreset.spark.spectral"])
def test_the_module_paths_in_saved_pipelines_can_be_imported_first(path):
    name = "KernelKMeansModel" if path.endswith("estimator") else "SpectralClusteringModel"
    program = f"import {path}, sys; print(getattr(sys.modules[{path!r}], {name!r}).__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == name, done.stderr
