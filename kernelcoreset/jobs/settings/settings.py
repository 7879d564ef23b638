"""The settings of a job: the sections it uses, all checked before any work starts.

Every section of the file is a dataclass of this folder. Messages name the file, the full key, such as `coreset.k`, and
the name that was probably meant. conf/reference.toml shows all sections with their defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Generic, TypeVar, overload

from kernelcoreset.errors import SettingError
from kernelcoreset.features.wanted import Features
from kernelcoreset.files.paths import extend_path, is_known
from kernelcoreset.jobs.settings.clustering import (
    CertificateSettings,
    ClusterSettings,
    CoresetSettings,
    GraphSettings,
    SpectralSettings,
)
from kernelcoreset.jobs.settings.kernel import KernelSettings
from kernelcoreset.jobs.settings.loader import make_sections, read_tables
from kernelcoreset.jobs.settings.rows import InputSettings, OutputSettings
from kernelcoreset.jobs.settings.run import MlflowSettings, RunSettings, SparkSettings
from kernelcoreset.jobs.settings.store import StoreSettings, StreamSettings, UpdateSettings

_Section = TypeVar("_Section")
NODE_COL = "node"
"""The column of the nodes in the output of a graph job."""
_EXAMPLES = {"input.features": '["longitude", "latitude"]'}


class SectionOf(Generic[_Section]):
    """An attribute of `Settings` that gives one section, or says that the job does not use it."""

    def __init__(self, cls: type[_Section]) -> None:
        self.cls = cls

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, settings: None, owner: type) -> SectionOf[_Section]: ...
    @overload
    def __get__(self, settings: Settings, owner: type) -> _Section: ...
    def __get__(self, settings: Settings | None, owner: type) -> SectionOf[_Section] | _Section:
        if settings is None:
            return self
        if self.name not in settings.sections:
            used = ", ".join(settings.sections)
            raise AttributeError(f"These settings have no section [{self.name}]. They have: {used}.")
        section: _Section = settings.sections[self.name]
        return section


@dataclass(frozen=True)
class Settings:
    """The settings of a job.

    Parameters
    ----------
    sections : mapping
        The sections that the job uses, by name. Each is an attribute too.

    Examples
    --------
    >>> settings = Settings.from_dict({
    ...     "input": {"demo_rows": 1000},
    ...     "kernel": {"name": "Gaussian", "sigma": 50.0},
    ...     "coreset": {"k": 5},
    ... })
    >>> settings.cluster.k, settings.kernel.build()
    (5, Gaussian(sigma=50.0))
    """

    sections: Mapping[str, Any]

    input = SectionOf(InputSettings)
    features = SectionOf(Features)
    kernel = SectionOf(KernelSettings)
    coreset = SectionOf(CoresetSettings)
    cluster = SectionOf(ClusterSettings)
    spectral = SectionOf(SpectralSettings)
    graph = SectionOf(GraphSettings)
    output = SectionOf(OutputSettings)
    certificate = SectionOf(CertificateSettings)
    store = SectionOf(StoreSettings)
    update = SectionOf(UpdateSettings)
    stream = SectionOf(StreamSettings)
    spark = SectionOf(SparkSettings)
    run = SectionOf(RunSettings)
    mlflow = SectionOf(MlflowSettings)

    def __post_init__(self) -> None:
        if self.has("coreset", "cluster") and self.cluster.k > self.coreset.k:
            raise SettingError(
                f"`cluster.k` must be at most `coreset.k` ({self.coreset.k}); got {self.cluster.k}. "
                "Build the coreset for more clusters."
            )
        if self.has("input", "output"):
            self._check_output()
        if self.has("spectral") and self.spectral.affinity == "kernel" and not self.has("kernel"):
            raise SettingError(
                'The section [kernel] is required by `spectral.affinity` = "kernel". Add it, such as name = "Gaussian" '
                'and sigma = 50.0, or use "nearest_neighbors".'
            )
        if self.has("input", "graph") and self.input.weight_col in (self.graph.source_col, self.graph.target_col):
            raise SettingError(f"`input.weight_col` must not be a column of node ids; got {self.input.weight_col!r}.")
        is_graph_job = self.has("graph", "output") and not self.has("kernel")
        if is_graph_job and self.output.prediction_col.lower() == NODE_COL:
            raise SettingError(
                f"`output.prediction_col` must not be {NODE_COL!r}, the column of the nodes; got "
                f"{self.output.prediction_col!r}. Choose another name."
            )

    def _check_output(self) -> None:
        used = {
            name.lower() for name in (*self.input.feature_columns, self.input.weight_col or "")
        }  # Spark ignores case
        taken = sorted(name for name in self.output.new_columns if name.lower() in used)
        if taken:
            raise SettingError(
                f"The new columns of `output` must not be named like the features or the weight; got {taken}. "
                "Set output.prediction_col, output.distance_col or output.margin_col."
            )

    @staticmethod
    def load(
        path: str | PathLike[str], overrides: Sequence[str] = (), sections: Sequence[str] | None = None
    ) -> Settings:
        """Return the settings of a TOML file, with `section.key=value` overrides applied.

        Parameters
        ----------
        path : path-like
            The file. It may have sections of other jobs; they are not read.
        overrides : sequence of str
            Changes of single settings; the last one wins.
        sections : sequence of str, optional
            Names of the sections that the job uses; all by default.
        """
        tables = read_tables(path, overrides)
        try:
            return Settings.from_dict(tables, sections)
        except SettingError as error:
            raise SettingError(f"{path}{' with --set' if overrides else ''}: {error}") from None

    @staticmethod
    def from_dict(tables: Mapping[str, Any], sections: Sequence[str] | None = None) -> Settings:
        """Return the settings from a mapping of sections, such as `to_dict` returns."""
        if sections is None:  # all; without [features] numbers are used as they are
            sections = ["features?" if name == "features" else name for name in SECTIONS]
        return Settings(make_sections(tables, SECTIONS, sections))

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, defaults included, as plain data that can be written as JSON."""
        plain = {name: dataclasses.asdict(section) for name, section in self.sections.items()}
        if self.has("kernel"):
            plain["kernel"] = dict(self.kernel.plain)
        return {name: _listed(section) for name, section in plain.items()}

    def has(self, *sections: str) -> bool:
        """Return whether the job uses all of these sections."""
        return all(name in self.sections for name in sections)

    @property
    def wanted_features(self) -> Features | None:
        """How columns become points; None if the file has no section [features]."""
        return self.features if self.has("features") else None

    def get(self, key: str) -> Any:
        """Return one setting by its full key, such as "coreset.k"."""
        section, _, name = key.partition(".")
        return getattr(getattr(self, section), name)

    def require(self, job: str, *needs: str) -> None:
        """Raise SettingError unless every need of a job is met.

        A need lists alternatives, of which one must hold: `output.path|output.table|update.label=none`. An alternative
        is a key that must be set, or a key and the value it must have.
        """
        for need in needs:
            alternatives = [alternative.partition("=") for alternative in need.split("|")]
            if not any(
                self.get(key) == value if equals else self.get(key) not in (None, ())
                for key, equals, value in alternatives
            ):
                listed = " or ".join(
                    f'`{key}` = "{value}"' if equals else f"`{key}`" for key, equals, value in alternatives
                )
                first = alternatives[0][0]
                raise SettingError(
                    f"{listed} is required by the job {job}. Add it to the file, or "
                    f"--set {first}={_EXAMPLES.get(first, '...')}"
                )

    def record_path(self, beside: str | None = None) -> str:
        """Return the path of the run record: `run.record`, or beside the output (or the path of the key `beside`)."""
        if self.run.record is not None:
            return self.run.record
        place = self.get(beside) if beside else self.output.path or self.output.table or self.spark.app_name
        place = place.rstrip("/")
        if not is_known(place):  # only Spark can write there: the record stays in the working directory
            place = place.rpartition("/")[2]
        return extend_path(place, ".run.json", without="/")


SECTIONS = {name: part.cls for name, part in vars(Settings).items() if isinstance(part, SectionOf)}
"""The class of every section, in the order of conf/reference.toml."""


def _listed(value: Any) -> Any:
    """Return tuples as lists, as JSON returns them."""
    if isinstance(value, Mapping):
        return {name: _listed(part) for name, part in value.items()}
    return [_listed(part) for part in value] if isinstance(value, list | tuple) else value
