"""A job's settings: read from TOML and all checked before any work starts.

Every section of the file is a dataclass of `sections.py` (the kernel's stands here). Messages name the file and the
full key, such as `coreset.k`, and what was probably meant.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from kernelcoreset.checks import closest_name
from kernelcoreset.errors import KernelCoresetError, SettingError
from kernelcoreset.files.paths import is_known
from kernelcoreset.jobs.settings.rows import InputSettings, OutputSettings
from kernelcoreset.jobs.settings.sections import (
    CertificateSettings,
    ClusterSettings,
    CoresetSettings,
    GraphSettings,
    RunSettings,
    SparkSettings,
    SpectralSettings,
)
from kernelcoreset.jobs.settings.store import StoreSettings, StreamSettings, UpdateSettings
from kernelcoreset.kernels import Kernel
from kernelcoreset.kernels.kernel import kernel_classes

_SIGMA_RULES = ("median", "auto")  # those of kernelcoreset.clustering.choosing.choose_sigma

Section = TypeVar("Section")


@dataclass(frozen=True)
class KernelSettings:
    """[kernel]: the kernel by its class name and parameters, possibly nested.

    `name = "Gaussian"`, `sigma = 50.0`; or `name = "Sum"` with `left = {name = "Gaussian", sigma = 50.0}` and
    `right = {name = "Linear"}`; or `name = "UserKernel"` with `function = "my_module:my_function"`. A sigma may be a
    rule, "median" or "auto": then it is chosen from the data when the job runs.

    Parameters
    ----------
    plain : mapping
        The kernel as `Kernel.to_dict` gives it, a rule standing for a sigma not known yet.

    Examples
    --------
    >>> settings = KernelSettings({"kernel": "Gaussian", "sigma": "median"})
    >>> settings.sigma_rule, settings.build(sigma=2.0)
    ('median', Gaussian(sigma=2.0))
    """

    plain: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", _plain_kernel("kernel", self.plain))
        self.build(sigma=1.0)  # any width shows whether all the rest is right

    @property
    def sigma_rule(self) -> str | None:
        """The rule by which sigma is to be chosen from the data; None where the kernel is complete."""
        rules = sorted(_sigma_rules(self.plain))
        return rules[0] if rules else None

    def build(self, sigma: float | None = None) -> Kernel:
        """Return the kernel; `sigma` stands in wherever a rule was given."""
        if sigma is None and self.sigma_rule is not None:
            raise SettingError(f"`kernel.sigma` = {self.sigma_rule!r} needs the data: pass the sigma chosen from it.")
        return _kernel("kernel", self.plain, sigma)


@dataclass(frozen=True)
class Settings:
    """All settings of a job.

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

    input: InputSettings
    kernel: KernelSettings
    coreset: CoresetSettings
    cluster: ClusterSettings
    spectral: SpectralSettings
    graph: GraphSettings
    output: OutputSettings
    certificate: CertificateSettings
    store: StoreSettings
    update: UpdateSettings
    stream: StreamSettings
    spark: SparkSettings
    run: RunSettings

    def __post_init__(self) -> None:
        if self.cluster.k > self.coreset.k:
            raise SettingError(
                f"`cluster.k` must be at most `coreset.k` ({self.coreset.k}); got {self.cluster.k}. "
                "Build the coreset for more clusters."
            )
        if self.output.path is not None and self.output.path.rstrip("/") == (self.input.path or "").rstrip("/"):
            raise SettingError(f"`output.path` must not be `input.path`; got {self.output.path!r} for both.")
        taken = sorted(set(self.output.new_columns) & {*self.input.feature_columns, self.input.weight_col})
        if taken:
            raise SettingError(
                f"The new columns of `output` must not be named like the features or the weight; got {taken}. "
                "Set output.prediction_col, output.distance_col or output.margin_col."
            )

    @staticmethod
    def load(path: str | PathLike[str], overrides: Sequence[str] = ()) -> Settings:
        """Return the settings of a TOML file, with `section.key=value` overrides on top."""
        tables = _read_toml(Path(path))
        for override in overrides:
            _override(tables, override)
        try:
            return Settings.from_dict(tables)
        except SettingError as error:
            raise SettingError(f"{path}{' with --set' if overrides else ''}: {error}") from None

    @staticmethod
    def from_dict(tables: Mapping[str, Any]) -> Settings:
        """Return the settings that a mapping of sections holds; `to_dict` gives such a mapping."""
        _refuse_unknown("section", "", tables, [part.name for part in dataclasses.fields(Settings)])
        for name, table in tables.items():
            if not isinstance(table, Mapping):
                raise SettingError(f"`{name}` must be a section, written [{name}]; got {table!r}.")
        tables = _with_graph_defaults(tables)
        coreset = _section(CoresetSettings, "coreset", tables)
        if "kernel" not in tables:
            raise SettingError('The section [kernel] is required, such as name = "Gaussian" and sigma = 50.0.')
        return Settings(
            input=_section(InputSettings, "input", tables),
            kernel=KernelSettings(tables["kernel"]),
            coreset=coreset,
            cluster=_section(ClusterSettings, "cluster", tables, k=coreset.k),
            spectral=_section(SpectralSettings, "spectral", tables),
            graph=_section(GraphSettings, "graph", tables),
            output=_section(OutputSettings, "output", tables),
            certificate=_section(CertificateSettings, "certificate", tables, seed=coreset.seed),
            store=_section(StoreSettings, "store", tables),
            update=_section(UpdateSettings, "update", tables),
            stream=_section(StreamSettings, "stream", tables),
            spark=_section(SparkSettings, "spark", tables),
            run=_section(RunSettings, "run", tables),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all settings, defaults included, as plain data that survives JSON."""
        plain = dataclasses.asdict(self)
        plain["kernel"] = self.kernel.plain
        return {name: _listed(section) for name, section in plain.items()}

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
                self.get(key) == value if equals else self.get(key) is not None for key, equals, value in alternatives
            ):
                listed = " or ".join(
                    f'`{key}` = "{value}"' if equals else f"`{key}`" for key, equals, value in alternatives
                )
                raise SettingError(
                    f"{listed} is required by the job {job}. Add it to the file, or --set {alternatives[0][0]}=..."
                )

    def record_path(self, beside: str | None = None) -> str:
        """Return the place of the run record: `run.record`, or beside the output (or the path of the key `beside`)."""
        if self.run.record is not None:
            return self.run.record
        place = self.get(beside) if beside else self.output.path or self.output.table
        place = (place or self.spark.app_name).rstrip("/")
        if not is_known(place):  # only Spark can write there: the record stays in the working directory
            place = place.rpartition("/")[2]
        return f"{place}.run.json"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SettingError(f"The settings file {path} does not exist. Relative to {Path.cwd()}.") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingError(f"{path} is not valid TOML: {error}. Text values need quotes.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"The settings file {path} cannot be read: {error}.") from None


def _override(tables: dict[str, Any], override: str) -> None:
    """Put one `section.key=value` into the tables; what is not TOML is taken as text."""
    full_key, equals, text = override.partition("=")
    *path, last = [part.strip() for part in full_key.split(".")]
    if not equals or not path or not all([*path, last]):
        raise SettingError(f"--set takes section.key=value, such as coreset.k=8; got {override!r}.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    table = tables
    for part in path:
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise SettingError(f"--set {override}: `{part}` is a value, not a section.")
    table[last] = value


def _section(cls: type[Section], name: str, tables: Mapping[str, Any], **defaults: Any) -> Section:
    """One section as its dataclass, or an error that names the key."""
    table = {**defaults, **tables.get(name, {})}
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    _refuse_unknown("key", f"{name}.", table, [part.name for part in fields])
    for part in fields:
        if part.name not in table and part.default is part.default_factory is dataclasses.MISSING:
            raise SettingError(f"`{name}.{part.name}` is required; it is not set.")
    return cls(**table)


def _with_graph_defaults(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tables, and where there is a [graph], what its edges say themselves: the kernel and the columns."""
    if "graph" not in tables:
        return tables
    graph = _section(GraphSettings, "graph", tables)
    rows = {"features": [graph.source_col, graph.target_col], **tables.get("input", {})}
    return {"kernel": {"name": "Linear"}, **tables, "input": rows}


def _refuse_unknown(what: str, prefix: str, found: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in found:
        if name not in known:
            meant = closest_name(name, known)
            hint = f"Did you mean `{prefix}{meant}`?" if meant else f"Known: {', '.join(known) or 'none'}."
            raise SettingError(f"Unknown {what} `{prefix}{name}`. {hint}")


def _plain_kernel(key: str, table: Any) -> dict[str, Any]:
    """A [kernel] table in the form of `Kernel.to_dict`, its names checked."""
    if not isinstance(table, Mapping):
        raise SettingError(f'`{key}` must be a table such as {{name = "Gaussian", sigma = 50.0}}; got {table!r}.')
    parameters = {name: value for name, value in table.items() if name not in ("name", "kernel")}
    name = table.get("name", table.get("kernel"))
    classes = kernel_classes()
    if not isinstance(name, str) or name not in classes:
        meant = closest_name(name, sorted(classes)) if isinstance(name, str) else None
        hint = f"Did you mean {meant!r}?" if meant else f"Known: {', '.join(sorted(classes))}."
        raise SettingError(f"`{key}.name` must be the name of a kernel; got {name!r}. {hint}")
    expected = dataclasses.fields(classes[name])  # type: ignore[arg-type]
    _refuse_unknown("key", f"{key}.", parameters, [part.name for part in expected])
    for part in expected:
        if part.name not in parameters and part.default is dataclasses.MISSING:
            raise SettingError(f"`{key}.{part.name}` is required by {name}; it is not set.")
    nested = ("left", "right", "inner")
    return {"kernel": name} | {
        part: _plain_kernel(f"{key}.{part}", value) if part in nested else value for part, value in parameters.items()
    }


def _kernel(key: str, plain: Mapping[str, Any], sigma: float | None) -> Kernel:
    """The kernel of a plain form, built inside out so that an error names the part it is in."""
    parts: dict[str, Any] = {name: _kernel(f"{key}.{name}", part, sigma).to_dict() for name, part in _nested(plain)}
    if sigma is not None and plain.get("sigma") in _SIGMA_RULES:
        parts["sigma"] = sigma
    try:
        return Kernel.from_dict({**plain, **parts})
    except KernelCoresetError as error:
        message = str(error)
        raise SettingError(f"`{key}.{message[1:]}" if message.startswith("`") else f"`{key}`: {message}") from None


def _nested(plain: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, value) for name, value in plain.items() if isinstance(value, Mapping)]


def _sigma_rules(plain: Mapping[str, Any]) -> set[str]:
    own = {plain["sigma"]} if plain.get("sigma") in _SIGMA_RULES else set()
    return own.union(*(_sigma_rules(part) for _, part in _nested(plain)))


def _listed(value: Any) -> Any:
    """Tuples as lists, so that a trip through JSON changes nothing."""
    if isinstance(value, Mapping):
        return {name: _listed(part) for name, part in value.items()}
    return [_listed(part) for part in value] if isinstance(value, list | tuple) else value
