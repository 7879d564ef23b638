"""Saving and loading for Spark ML: the model's own folder, and in it the metadata that Spark ML looks for.

Files go through pyarrow, not through the JVM, so the same code works on classic Spark and on Spark Connect.
"""

from __future__ import annotations

import json
import logging
import platform
import re
import time
from typing import TYPE_CHECKING, Any

from pyarrow import fs
from pyspark.ml.util import MLReader, MLWriter
from pyspark.sql.utils import is_remote

from kernelcoreset import __version__
from kernelcoreset.errors import FormatError
from kernelcoreset.features.wanted import Features
from kernelcoreset.files.atomic import is_local
from kernelcoreset.files.documents import Fields, parse_json, signed, unsigned
from kernelcoreset.files.folder import Folder
from kernelcoreset.kernels import Kernel
from kernelcoreset.models.folder import ABOUT, why_no_model, write_model_files
from kernelcoreset.spark.same_files import refuse_two_meanings, sees_these_disks

if TYPE_CHECKING:
    from kernelcoreset.spark.ml.base import CoresetEstimator
    from kernelcoreset.spark.ml.kernel_kmeans import KernelKMeansModel

log = logging.getLogger("kernelcoreset")

_METADATA = "metadata/part-00000"
_REMEDY = "Save it again."
_STAGE = re.compile(r"/stages/\d+_[^/]+/?$")  # where Spark ML puts a stage of a pipeline, whose other files it writes
# The module that a saved stage names for its class: a public one, so that no file's place is part of the format.
_PUBLIC_MODULE = "kernelcoreset.spark"


class EstimatorWriter(MLWriter):
    """Writes an estimator: its parameters."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance

    def save(self, path: str) -> None:
        """Save to a local path or a URI that pyarrow can open; the folder is there as a whole or not at all."""
        if _STAGE.search(path):
            refuse_two_meanings(self.sparkSession, "The path of a pipeline", _STAGE.sub("", path))
        folder = Folder(path)
        if folder.kind() != fs.FileType.NotFound:
            if not self.shouldOverwrite:
                raise FileExistsError(f"{path} already exists. Use write().overwrite().save(path), or another path.")
            reason = why_no_model(path, _METADATA if folder.kind(ABOUT) == fs.FileType.NotFound else ABOUT)
            if reason is not None:
                raise FileExistsError(
                    f"{path} exists and is not a saved model: {reason}. Remove it yourself, or choose another path."
                )
        write_model_files(folder, self.files())
        if is_remote() and is_local(folder.system) and not sees_these_disks(self.sparkSession):
            log.warning(
                "%s is on the disk of %s, which the Spark Connect server does not see. To use it there, save to a path "
                "that both see, such as /Volumes/... or s3a://...",
                folder.path,
                platform.node(),
            )

    def files(self) -> dict[str, bytes]:
        """Return what is to be written, by relative names."""
        return {_METADATA: self._metadata().encode(), "metadata/_SUCCESS": b""}

    def _metadata(self) -> str:
        """What Spark ML's own readers need to find the class of a stage."""
        instance = self.instance
        metadata = signed(
            {
                "class": f"{_PUBLIC_MODULE}.{type(instance).__name__}",
                "timestamp": int(1000 * time.time()),
                "sparkVersion": self.sparkSession.version,
                "kernelcoresetVersion": __version__,
                "uid": instance.uid,
                "paramMap": _plain(instance._paramMap),
                "defaultParamMap": _plain(instance._defaultParamMap),
            }
        )
        return json.dumps(metadata)


class ModelWriter(EstimatorWriter):
    """Writes a model: its parameters, and the files of the numpy model in it."""

    def files(self) -> dict[str, bytes]:
        """Return what is to be written, by relative names."""
        return {**super().files(), **self.instance.localModel.to_files()}


class EstimatorReader(MLReader):  # type: ignore[type-arg]
    """Reads what `EstimatorWriter` wrote."""

    def __init__(self, cls: type[CoresetEstimator]) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> CoresetEstimator:
        """Return the estimator saved at a path."""
        folder = Folder(path)
        if folder.kind(ABOUT) == fs.FileType.File:
            raise FormatError(f"{path} holds a fitted model: load it with {self.cls.__name__}Model.load.")
        estimator = self.cls()
        _set_params(estimator, _read_metadata(folder, path), path)
        return estimator


class ModelReader(MLReader):  # type: ignore[type-arg]
    """Reads what `ModelWriter` wrote, or what the numpy model saved, which has no parameters."""

    def __init__(self, cls: type[KernelKMeansModel]) -> None:
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> KernelKMeansModel:
        """Return the model saved at a path."""
        model = self.cls(self.cls.loadLocal(path))
        folder = Folder(path)
        if folder.kind(_METADATA) == fs.FileType.File:
            _set_params(model, _read_metadata(folder, path), path)
        return model


def _plain(values: dict[Any, Any]) -> dict[str, Any]:
    return {
        param.name: value.to_dict() if isinstance(value, Kernel | Features) else value
        for param, value in values.items()
    }


def _set_params(instance: Any, metadata: dict[str, Any], path: str) -> None:
    instance._resetUid(metadata["uid"])
    for name, value in metadata["paramMap"].items():
        if not instance.hasParam(name):
            raise FormatError(f"The metadata of {path} has an unknown parameter, {name}. Upgrade kernelcoreset.")
        read = Kernel.from_dict(value) if name == "kernel" else value
        try:
            instance._set(**{name: read})
        except (TypeError, ValueError) as error:
            raise FormatError(f"The metadata of {path} is damaged: {error} {_REMEDY}") from None


def _read_metadata(folder: Folder, path: str) -> dict[str, Any]:
    try:
        content = folder.read(_METADATA)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is nothing saved at {path}.") from None
    name = f"The metadata of {path}"
    metadata = parse_json(content, name, _REMEDY)
    if "checksum" in metadata:  # earlier versions wrote none
        metadata = unsigned(metadata, name, _REMEDY)
    fields = Fields(metadata, name, _REMEDY)
    return {"uid": fields.text("uid"), "paramMap": fields.mapping("paramMap")}
