"""Saving and loading for Spark ML: the numpy face's own folder, and beside it the metadata Spark ML looks for.

Files go through pyarrow, not through the JVM, so that the same lines serve classic Spark and Spark Connect.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from pyarrow import fs
from pyspark.ml.util import MLReader, MLWriter

from kernelcoreset import __version__
from kernelcoreset.errors import FormatError
from kernelcoreset.files.atomic import write_folder
from kernelcoreset.files.paths import open_path
from kernelcoreset.kernels import Kernel
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel as LocalModel

if TYPE_CHECKING:
    from kernelcoreset.spark.ml.base import CoresetEstimator
    from kernelcoreset.spark.ml.kernel_kmeans import KernelKMeansModel

_METADATA = "metadata/part-00000"
# Where a saved stage says its class is: a public name, so that no file's place is part of the format.
_PLACE = "kernelcoreset.spark"


class _FolderWriter(MLWriter):
    """Writes a few small files into a folder that must not be there, unless it is to be overwritten."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def save(self, path: str) -> None:
        """Save to a path that pyarrow can write to."""
        system, folder = open_path(path)
        if system.get_file_info(folder).type != fs.FileType.NotFound:
            if not self.shouldOverwrite:
                raise FileExistsError(f"{path} is there already. Use write().overwrite().save(path), or another path.")
            if system.get_file_info(f"{folder}/metadata").type == fs.FileType.NotFound and not _is_model(
                system, folder
            ):
                raise FileExistsError(
                    f"{path} is there and is not a saved model; it is left alone. Choose another path."
                )
        files = {_METADATA: self._metadata().encode(), "metadata/_SUCCESS": b"", **self._files()}
        write_folder(system, folder, files)

    def _files(self) -> dict[str, bytes]:
        return {}

    def _metadata(self) -> str:
        """What Spark ML's own readers look for to find the class of a stage."""
        instance = self.instance
        return json.dumps(
            {
                "class": f"{_PLACE}.{type(instance).__name__}",
                "timestamp": int(1000 * time.time()),
                "sparkVersion": self.sparkSession.version,
                "kernelcoresetVersion": __version__,
                "uid": instance.uid,
                "paramMap": _plain(instance._paramMap),
                "defaultParamMap": _plain(instance._defaultParamMap),
            }
        )


class EstimatorWriter(_FolderWriter):
    """Writes an estimator: its parameters."""


class ModelWriter(_FolderWriter):
    """Writes a model: its parameters, and the files of the numpy face."""

    def _files(self) -> dict[str, bytes]:
        return self.instance.localModel.to_files()  # type: ignore[no-any-return]


class EstimatorReader(MLReader):  # type: ignore[type-arg]
    """Reads what `EstimatorWriter` wrote."""

    def __init__(self, cls: type[CoresetEstimator]) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> CoresetEstimator:
        """Return the estimator saved at a path."""
        system, folder = open_path(path)
        if _is_model(system, folder):
            raise FormatError(f"{path} holds a fitted model: load it with {self.cls.__name__}Model.load.")
        estimator = self.cls()
        _set_params(estimator, _read_metadata(system, folder, path), path)
        return estimator


class ModelReader(MLReader):  # type: ignore[type-arg]
    """Reads what `ModelWriter` wrote, or the folder of the numpy face, which has no parameters."""

    def __init__(self, cls: type[KernelKMeansModel]) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> KernelKMeansModel:
        """Return the model saved at a path."""
        system, folder = open_path(path)
        if system.get_file_info(folder).type == fs.FileType.NotFound:
            raise FileNotFoundError(f"There is no model folder at {path}.")
        local = self.cls._local
        missing = [name for name in local.FILES if not _is_file(system, f"{folder}/{name}")]
        if missing:
            raise FormatError(f"{path} is not a whole model: {' and '.join(missing)} missing. Save it again.")
        model = self.cls(local.from_files({name: _read(system, f"{folder}/{name}") for name in local.FILES}))
        if _is_file(system, f"{folder}/{_METADATA}"):
            _set_params(model, _read_metadata(system, folder, path), path)
        return model


def _plain(values: dict[Any, Any]) -> dict[str, Any]:
    return {param.name: value.to_dict() if isinstance(value, Kernel) else value for param, value in values.items()}


def _set_params(instance: Any, metadata: dict[str, Any], path: str) -> None:
    instance._resetUid(metadata["uid"])
    for name, value in metadata["paramMap"].items():
        if not instance.hasParam(name):
            raise FormatError(f"The metadata of {path} has an unknown parameter, {name}. Upgrade kernelcoreset.")
        instance._set(**{name: Kernel.from_dict(value) if name == "kernel" else value})


def _read_metadata(system: fs.FileSystem, folder: str, path: str) -> dict[str, Any]:
    try:
        metadata = json.loads(_read(system, f"{folder}/{_METADATA}"))
        return {"uid": metadata["uid"], "paramMap": dict(metadata["paramMap"])}
    except FileNotFoundError:
        raise FileNotFoundError(f"There is nothing saved at {path}.") from None
    except (ValueError, KeyError, TypeError):
        raise FormatError(f"The metadata of {path} is damaged: save it again.") from None


def _read(system: fs.FileSystem, path: str) -> bytes:
    with system.open_input_stream(path) as stream:
        return bytes(stream.read())


def _is_file(system: fs.FileSystem, path: str) -> bool:
    return bool(system.get_file_info(path).type == fs.FileType.File)


def _is_model(system: fs.FileSystem, folder: str) -> bool:
    return all(_is_file(system, f"{folder}/{name}") for name in LocalModel.FILES)
