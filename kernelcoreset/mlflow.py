"""Models in MLflow: a pyfunc model around the folder of a saved model. Nothing is pickled.

Needs MLflow: `pip install 'kernelcoreset[mlflow]'`. What is logged loads everywhere as a pyfunc
(`mlflow.pyfunc.load_model`, `mlflow.pyfunc.spark_udf`, served models) and here as the model itself (`load_model`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kernelcoreset._version import __version__
from kernelcoreset.checks import Floats
from kernelcoreset.errors import FormatError, SettingError
from kernelcoreset.spectral.model import PointModel, SpectralModel
from kernelcoreset.spectral.model import load_model as load_folder

_EXAMPLES = 5
"""Points of the coreset that are logged as the input example."""


def log_model(model: Any, name: str = "model", *, features: Sequence[str] | None = None, **options: Any) -> Any:
    """Log a fitted model to the active run of MLflow, or to a new one, and return MLflow's description of it.

    The signature has the features as columns of doubles in the order of `features`, or without names as an array of
    shape (-1, d), and as output the columns `prediction` and `distance`. The input example are points of the coreset.

    Parameters
    ----------
    model : model
        A fitted model of `kernelcoreset` or `kernelcoreset.spark` that labels points.
    name : str
        Name of the model in the run.
    features : sequence of str, optional
        Names of the columns that the model was fitted on.
    **options
        As in `mlflow.pyfunc.log_model`, such as `registered_model_name` or `pip_requirements`.

    Examples
    --------
    >>> info = log_model(model, features=["longitude", "latitude"])  # doctest: +SKIP
    >>> mlflow.pyfunc.load_model(info.model_uri).predict(frame)  # doctest: +SKIP
    """
    fitted = getattr(model, "localModel", model)
    if not isinstance(fitted, PointModel):
        raise SettingError(f"`model` must be a fitted model that labels points; got {type(model).__name__}.")
    example = _input_example(fitted, features)
    from mlflow import pyfunc

    given = {
        "pip_requirements": [f"kernelcoreset=={__version__}", "pandas"],
        "input_example": example,
        "signature": _signature(example),
        **options,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        fitted.save(path)
        return pyfunc.log_model(name=name, loader_module=__name__, data_path=path, **given)


def load_model(model_uri: str, *, trusted_modules: Iterable[str] = ()) -> PointModel:
    """Return the model that `log_model` logged.

    Parameters
    ----------
    model_uri : str
        As MLflow takes it: `models:/name/1`, `runs:/<run id>/model`, a local folder, ...
    trusted_modules : iterable of str
        Modules that may be imported if the kernel is a user's function, as in `KernelKMeansModel.load`. As a pyfunc
        such a model needs the environment variable `KERNELCORESET_TRUSTED_MODULES`.

    Examples
    --------
    >>> load_model("models:/segments/1").predict(points)  # doctest: +SKIP
    """
    from mlflow.artifacts import download_artifacts
    from mlflow.models import Model

    folder = download_artifacts(artifact_uri=model_uri)
    flavor = Model.load(folder).flavors.get("python_function", {})
    if flavor.get("loader_module") != __name__:
        raise FormatError(f"{model_uri} is not a model that kernelcoreset.mlflow.log_model has logged.")
    return load_folder(os.path.join(folder, flavor["data"]), trusted_modules=trusted_modules)


def _load_pyfunc(path: str) -> _Predictor:
    """Return what MLflow calls for predictions; MLflow finds this function by its name."""
    return _Predictor(load_folder(path))


class _Predictor:
    """Labels the rows of a DataFrame or of an array, as MLflow hands them over."""

    def __init__(self, model: PointModel) -> None:
        self._model = model

    def predict(self, rows: Any, params: dict[str, Any] | None = None) -> Any:
        """Return a DataFrame with the cluster and the distance of every row."""
        import pandas as pd

        points = rows.to_numpy() if isinstance(rows, pd.DataFrame) else np.asarray(rows)
        found = self._model.label(points)
        index = rows.index if isinstance(rows, pd.DataFrame) else None
        return pd.DataFrame({"prediction": found.labels, "distance": found.distances}, index=index)


def dimension_of(model: PointModel) -> int:
    """Return the number of features of a model."""
    return int(_some_points(model).shape[1])


def _some_points(model: PointModel) -> Floats:
    """Return a few points of the coreset, without the degree that the points of a spectral model have at their end."""
    if isinstance(model, SpectralModel):
        return model.clustering.coreset.points[:_EXAMPLES, :-1].copy()
    return model.coreset.points[:_EXAMPLES].copy()


def _input_example(model: PointModel, features: Sequence[str] | None) -> Any:
    """Return a few points of the coreset, as rows of named columns or as an array."""
    import pandas as pd

    points = _some_points(model)
    if features is None:
        return points
    names = [features] if isinstance(features, str) else list(features)
    if len(names) != points.shape[1]:
        raise SettingError(f"`features` must name the {points.shape[1]} features of the model; got {names}.")
    return pd.DataFrame(points, columns=names)


def _signature(example: Any) -> Any:
    """Return what goes in and comes out, as MLflow describes it."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema, TensorSpec

    names = getattr(example, "columns", None)
    if names is None:
        inputs = [TensorSpec(np.dtype(np.float64), (-1, example.shape[1]))]
    else:
        inputs = [ColSpec("double", name) for name in names]
    outputs = [ColSpec("integer", "prediction"), ColSpec("double", "distance")]
    return ModelSignature(inputs=Schema(inputs), outputs=Schema(outputs))
