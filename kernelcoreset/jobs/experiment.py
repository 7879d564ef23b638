"""A run of a job as a run of MLflow, if `mlflow.experiment` is set: settings, figures, record, summary and model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kernelcoreset import mlflow as models
from kernelcoreset._version import __version__
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.report import NOTHING_TO_DO
from kernelcoreset.jobs.secrets import Secrets, shown_settings
from kernelcoreset.jobs.summary import summary_of
from kernelcoreset.spectral.model import PointModel, load_model

_MOST_PARAMETERS, _LONGEST = 100, 6_000  # what a tracking server takes in one request, and as one value


class ExperimentRun:
    """The run of MLflow that belongs to a run of a job; without `mlflow.experiment` all methods do nothing.

    Parameters
    ----------
    record : RunRecord
        What is logged.

    Examples
    --------
    >>> from kernelcoreset.jobs.settings.settings import Settings
    >>> tables = {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}
    >>> ExperimentRun(RunRecord("run", Settings.from_dict(tables), "labels.run.json")).start()
    """

    def __init__(self, record: RunRecord) -> None:
        settings = record.settings
        self._record = record
        self._wanted = settings.mlflow if settings.has("mlflow") and settings.mlflow.experiment else None
        self._is_open = False

    def start(self) -> None:
        """Start the run and log the settings, so that a server that cannot be used is known before the work."""
        if self._wanted is None:
            return
        import mlflow

        with _explained(self._hidden):
            if self._wanted.tracking_uri is not None:
                mlflow.set_tracking_uri(self._wanted.tracking_uri)
            mlflow.set_experiment(self._wanted.experiment)
            tags = {"kernelcoreset.job": self._record.job, "kernelcoreset.version": __version__}
            mlflow.start_run(run_name=self._record.job, nested=mlflow.active_run() is not None, tags=tags)
            self._is_open = True
            parameters = [(name, text[:_LONGEST]) for name, text in _texts(shown_settings(self._record.settings))]
            for first in range(0, len(parameters), _MOST_PARAMETERS):
                mlflow.log_params(dict(parameters[first : first + _MOST_PARAMETERS]))

    def fail(self) -> None:
        """End the run as failed."""
        if self._is_open:
            with self._ending("FAILED") as mlflow:
                mlflow.log_dict(self._record.to_dict(), "run.json")

    def finish(self) -> None:
        """Log what came out, and end the run."""
        if self._wanted is None or not self._is_open:
            return
        record = self._record
        with self._ending("FINISHED") as mlflow:
            mlflow.log_metrics(dict(_figures(record)))
            mlflow.log_dict(record.to_dict(), "run.json")
            mlflow.log_text(self._hidden(summary_of(record)) + "\n", "summary.txt")
            mlflow.set_tag("kernelcoreset.status", record.status)
            model = _model_of(record)
            if model is not None:
                features = record.settings.input.feature_columns if record.settings.has("input") else ()
                models.log_model(
                    model,
                    features=features if len(features) == models.dimension_of(model) else None,
                    registered_model_name=self._wanted.registered_model,
                )

    @contextmanager
    def _ending(self, status: str) -> Iterator[Any]:
        """Give MLflow, and end the run whatever happens."""
        import mlflow

        with _explained(self._hidden):
            try:
                yield mlflow
            finally:
                mlflow.end_run(status)

    def _hidden(self, text: str) -> str:
        return Secrets.of(self._record.settings).hide(text)


@contextmanager
def _explained(hidden: Callable[[str], str]) -> Iterator[None]:
    """Raise errors of MLflow as one that says what to do."""
    import mlflow

    try:
        yield
    except (mlflow.MlflowException, OSError) as error:
        where = hidden(str(mlflow.get_tracking_uri()))
        reason = hidden(" ".join(str(error).split()))
        raise OSError(
            f"MLflow cannot be used at {where} (see mlflow.tracking_uri, or leave mlflow.experiment out): {reason}"
        ) from error


def _model_of(record: RunRecord) -> PointModel | None:
    """The model that the run has fitted: its own, or the one that it has put into its store."""
    if record.model is not None:
        return record.model if isinstance(record.model, PointModel) else None
    path = record.values.get("model")
    if path is None or record.values.get("outcome") == NOTHING_TO_DO:
        return None
    return load_model(path, trusted_modules=record.settings.run.trusted_modules)


def _figures(record: RunRecord) -> Iterator[tuple[str, float]]:
    """The numbers of a record, and the seconds of every stage."""
    yield from _numbers({name: value for name, value in record.values.items() if name != "picture"})
    for stage in record.stages:
        yield f"seconds/{stage['stage']}", stage["seconds"]


def _numbers(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)


def _texts(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _texts(value, f"{prefix}{name}.")
        elif value is not None and value != []:
            yield f"{prefix}{name}", str(value)
