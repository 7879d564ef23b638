"""The sections of a settings file, one frozen dataclass each: every field is a key, checked when it is made.

conf/reference.toml shows the same as a file. Messages name the full key, such as `coreset.k`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelcoreset.checks import check_at_least, check_count, check_positive
from kernelcoreset.errors import SettingError
from kernelcoreset.files.paths import SCHEMES, is_known

# Read by Spark before any line of Python runs: set in a settings file they would be silently ignored.
_TOO_LATE = (
    "spark.master",
    "spark.submit.",
    "spark.driver.memory",
    "spark.driver.cores",
    "spark.driver.extra",
    "spark.driver.defaultJavaOptions",
)


@dataclass(frozen=True)
class CoresetSettings:
    """[coreset]: the small weighted set that stands for all rows.

    Parameters
    ----------
    k : int
        Clusters it is built for; it serves every smaller number too.
    coreset_size : int
        Points drawn; the error falls with it, whatever the number of rows.
    leaf_size : int, optional
        Points kept of each part of the data on the way, at least `coreset_size`; by default 4 times as many.
    z : float
        Power of the distance in the cost, at least 1: 2 is k-means, 1 is k-median.
    seed : int
        The same seed on the same input gives the same result.
    path : str, optional
        Where the build job writes the coreset and the cluster job reads it.
    """

    k: int
    coreset_size: int = 1000
    leaf_size: int | None = None
    z: float = 2.0
    seed: int = 0
    path: str | None = None

    def __post_init__(self) -> None:
        check_count("coreset.k", self.k)
        remedy = "Ask for more coreset points or fewer clusters."
        check_count("coreset.coreset_size", self.coreset_size, least=self.k, remedy=remedy)
        if self.leaf_size is not None:
            remedy = "A leaf keeps at least `coreset.coreset_size` points; leave it out for 4 times as many."
            check_count("coreset.leaf_size", self.leaf_size, least=self.coreset_size, remedy=remedy)
        set_field(self, "z", check_at_least("coreset.z", self.z, 1.0, "Use 2 for k-means, 1 for k-median."))
        check_count("coreset.seed", self.seed, least=0)
        check_texts("coreset", self, "path")


@dataclass(frozen=True)
class ClusterSettings:
    """[cluster]: kernel k-means on the coreset.

    Parameters
    ----------
    k : int
        Clusters wanted; `coreset.k` unless given, and never more.
    n_init : int
        Restarts; the best is kept.
    max_iter : int
        Largest number of rounds of a restart.
    model_path : str, optional
        Where the fitted model is saved, and where the assign job reads it.
    """

    k: int
    n_init: int = 10
    max_iter: int = 300
    model_path: str | None = None

    def __post_init__(self) -> None:
        for name in ("k", "n_init", "max_iter"):
            check_count(f"cluster.{name}", getattr(self, name))
        check_texts("cluster", self, "model_path")

    @property
    def effort(self) -> dict[str, int]:
        """How long a fit tries, as the arguments it takes."""
        return {"n_init": self.n_init, "max_iter": self.max_iter}


@dataclass(frozen=True)
class SpectralSettings:
    """[spectral]: what spectral clustering needs besides.

    Parameters
    ----------
    degree_sample : int
        Rows that degrees are estimated from, at least 2.
    """

    degree_sample: int = 1000

    def __post_init__(self) -> None:
        check_count("spectral.degree_sample", self.degree_sample, least=2)


@dataclass(frozen=True)
class GraphSettings:
    """[graph]: the rows are the edges of a graph, whose nodes are clustered. Weights are `input.weight_col`.

    With this section [kernel] and `input.features` are not needed. `coreset.k` and `coreset.seed` are read; the number
    of nodes drawn stands here.

    Parameters
    ----------
    source_col, target_col : str
        Columns of node ids, both whole numbers or both texts.
    coreset_size : int, optional
        Nodes drawn; by default as many as let walks from them meet.
    most_edges : int
        Rows gathered on the driver at most.
    """

    source_col: str = "src"
    target_col: str = "dst"
    coreset_size: int | None = None
    most_edges: int = 50_000_000

    def __post_init__(self) -> None:
        check_texts("graph", self, "source_col", "target_col")
        check_count("graph.most_edges", self.most_edges)
        if self.coreset_size is not None:
            check_count("graph.coreset_size", self.coreset_size)


@dataclass(frozen=True)
class CertificateSettings:
    """[certificate]: how the error of the coreset is measured while the rows are labelled.

    Parameters
    ----------
    center_sets : int
        Random center sets on which coreset and rows are compared; 0 leaves this part out.
    fraction : float, optional
        Share of the rows on which they are evaluated, above 0 and at most 1; chosen by the number of rows unless given.
    seed : int
        `coreset.seed` unless given.
    """

    center_sets: int = 100
    fraction: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("certificate.center_sets", self.center_sets, least=0)
        check_count("certificate.seed", self.seed, least=0)
        if self.fraction is not None and check_positive("certificate.fraction", self.fraction) > 1.0:
            raise SettingError(f"`certificate.fraction` must be at most 1; got {self.fraction!r}. 1 means all rows.")


@dataclass(frozen=True)
class SparkSettings:
    """[spark]: the session this job asks for.

    Parameters
    ----------
    app_name : str
        The name that Spark's own pages and logs show.
    conf : mapping
        Spark settings that can still be changed when a session is opened.
    """

    app_name: str = "kernelcoreset"
    conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_texts("spark", self, "app_name")
        conf = flat_options("spark.conf", self.conf)
        for key in conf:
            if not key.startswith("spark."):
                raise SettingError(f"`spark.conf` takes Spark's own settings, which start with 'spark.'; got {key!r}.")
            if key.startswith(_TOO_LATE):
                raise SettingError(
                    f"`spark.conf` cannot set {key}: Spark reads it before this file. Give it on the command line "
                    "(./spark-submit.sh --master ..., --conf ...) or in conf/spark-defaults.conf."
                )
        set_field(self, "conf", conf)


@dataclass(frozen=True)
class RunSettings:
    """[run]: what a run leaves behind beside its result.

    Parameters
    ----------
    record : str, optional
        File for the JSON run record: settings, versions, timings, costs. By default beside the output, as
        `<output.path>.run.json`.
    """

    record: str | None = None

    def __post_init__(self) -> None:
        check_texts("run", self, "record")
        if self.record is not None and not is_known(self.record):
            raise SettingError(
                f"`run.record` must be a local path or start with one of {', '.join(SCHEMES)}; got {self.record!r}."
            )


def set_field(section: Any, name: str, value: Any) -> None:
    """Put a checked value into a frozen section, while it is made."""
    object.__setattr__(section, name, value)


def check_texts(section_name: str, section: Any, *names: str) -> None:
    """Refuse fields that are neither None nor a text with something in it."""
    for name in names:
        value = getattr(section, name)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise SettingError(f"`{section_name}.{name}` must be a text that is not empty, in quotes; got {value!r}.")


def flat_options(key: str, values: Any) -> dict[str, str]:
    """Return options as Spark takes them, text to text; nested tables, which TOML makes of dotted names, are joined."""
    if not isinstance(values, Mapping):
        raise SettingError(f"`{key}` must be a table of names and values, such as {{name = 1}}; got {values!r}.")
    flat: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{rest}": text for rest, text in flat_options(f"{key}.{name}", value).items()})
        elif isinstance(value, str | int | float):
            flat[name] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise SettingError(f"`{key}.{name}` must be a text, a number or true/false; got {value!r}.")
    return flat
