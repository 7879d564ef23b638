"""The sections of a settings file for the run itself: [spark], its session, [run], its record, and [mlflow]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelcoreset.checks import shown
from kernelcoreset.errors import SettingError
from kernelcoreset.files.paths import SCHEMES, is_known
from kernelcoreset.jobs.settings.fields import check_texts, flat_options, plain_text, set_field
from kernelcoreset.kernels.trust import check_modules

# Spark reads these before any Python code runs: in a settings file they would be ignored silently.
_TOO_LATE = (
    "spark.master",
    "spark.submit.",
    "spark.driver.memory",
    "spark.driver.cores",
    "spark.driver.extra",
    "spark.driver.defaultJavaOptions",
)


@dataclass(frozen=True)
class SparkSettings:
    """[spark]: the Spark session of the job.

    Parameters
    ----------
    app_name : str
        Name of the application in the web UI and the logs of Spark.
    conf : mapping
        Spark settings that can be set when a session is opened.
    """

    app_name: str = "kernelcoreset"
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_texts("spark", self, "app_name")
        conf = flat_options("spark.conf", self.conf)
        for key in conf:
            if not key.startswith("spark."):
                raise SettingError(f"`spark.conf` takes settings of Spark, which start with 'spark.'; got {key!r}.")
            if key.startswith(_TOO_LATE):
                raise SettingError(
                    f"`spark.conf` cannot set {key}: Spark reads it before this file. Give it on the command line "
                    "(./spark-submit.sh --master ..., --conf ...) or in conf/spark-defaults.conf."
                )
        set_field(self, "conf", conf)


@dataclass(frozen=True)
class RunSettings:
    """[run]: the run record, and the modules that may be imported.

    Parameters
    ----------
    record : str, optional
        JSON file for settings, versions, times and costs of the run; by default `<output.path>.run.json`.
    report : bool or str
        Whether a page for people is written beside the record, `<output.path>.report.html`; or where it is written.
    id : str, optional
        The id of the run in the record and in the history of a Delta output, such as the run id of a scheduler; by
        default a random one. A run that is repeated with the same id does not add its rows to a Delta output twice.
    history_table : str, optional
        Table to which every run of a job with Spark adds a row: id, job, status, times, rows, costs and the record.
    trusted_modules : list of str
        Modules that may be imported if the settings, a coreset, a model or a store name a user's function as kernel.
    """

    record: str | None = None
    report: bool | str = True
    id: str | None = None
    history_table: str | None = None
    trusted_modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.id is not None and not isinstance(self.id, str):  # a number or a date, as schedulers have them
            set_field(self, "id", plain_text("run.id", self.id))
        check_texts("run", self, "record", "id", "history_table")
        set_field(self, "trusted_modules", check_modules("run.trusted_modules", self.trusted_modules))
        if not isinstance(self.report, bool | str) or self.report == "":
            raise SettingError(f"`run.report` must be true, false or a path; got {shown(self.report)}.")
        for name in ("record", "report"):
            path = getattr(self, name)
            if isinstance(path, str) and not is_known(path):
                raise SettingError(
                    f"`run.{name}` must be a local path or start with one of {', '.join(SCHEMES)} (dbfs where it is "
                    f"mounted); got {path!r}. Choose another path."
                )


@dataclass(frozen=True)
class MlflowSettings:
    """[mlflow]: where the run is logged in MLflow; nothing is logged without an experiment.

    Parameters
    ----------
    experiment : str, optional
        Name of the experiment that gets a run with the settings, the figures, the record and the model.
    tracking_uri : str, optional
        The tracking server; by default that of the environment (`MLFLOW_TRACKING_URI`, or that of Databricks).
    registered_model : str, optional
        Name under which the model is registered as a new version; with Unity Catalog `catalog.schema.name`.
    """

    experiment: str | None = None
    tracking_uri: str | None = None
    registered_model: str | None = None

    def __post_init__(self) -> None:
        check_texts("mlflow", self, "experiment", "tracking_uri", "registered_model")
        for name in ("tracking_uri", "registered_model"):
            if self.experiment is None and getattr(self, name) is not None:
                raise SettingError(f"`mlflow.{name}` needs `mlflow.experiment`: without it nothing is logged.")
