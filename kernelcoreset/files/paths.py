"""A folder of small files on any file system pyarrow knows: each file there whole, or not at all."""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from os import PathLike

from pyarrow import fs

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EMLINK}
_TEMPORARY = ".tmp"


def open_path(path: str | PathLike[str], filesystem: fs.FileSystem | None = None) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI and the path on it."""
    text = os.fspath(path)
    if filesystem is not None:
        return filesystem, text
    if "://" in text or text.startswith("file:"):
        system, place = fs.FileSystem.from_uri(text.replace("s3a://", "s3://"))
        return system, place
    return fs.LocalFileSystem(), os.path.abspath(text)


class Folder:
    """Files by name under one path.

    On a local disk a file is written under a temporary name, brought to the disk, and then given its name, so that
    a crash at any moment leaves the name with the old content, the new content, or no file. An object store shows a
    file only once it is whole.

    Parameters
    ----------
    path : path-like
        A local path, or a URI that pyarrow can open.
    filesystem : pyarrow.fs.FileSystem, optional
        Where `path` is to be looked up, for storage that a URI cannot describe.
    """

    def __init__(self, path: str | PathLike[str], filesystem: fs.FileSystem | None = None) -> None:
        self.system, self.path = open_path(path, filesystem)
        self._local = isinstance(self.system, fs.LocalFileSystem)

    def names(self, under: str = "") -> dict[str, datetime]:
        """Return the names of the files directly under a subfolder, with the time of their last change."""
        place = self._place(under) if under else self.path
        found = self.system.get_file_info(fs.FileSelector(place, allow_not_found=True))
        prefix = f"{under}/" if under else ""
        return {
            prefix + info.base_name: info.mtime or datetime.now(UTC) for info in found if info.type == fs.FileType.File
        }

    def read(self, name: str) -> bytes:
        """Return a file's content, or raise FileNotFoundError."""
        with self.system.open_input_stream(self._place(name), compression=None) as stream:
            return bytes(stream.read())

    def write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Write a file, over one of the same name; `durable` if it must outlast a power cut once `sync` was called."""
        place = self._place(name)
        if not self._local:
            self._put(place, content)
            return
        temporary = _write_beside(place, content, durable)
        os.replace(temporary, place)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file of a new name; return False, and write nothing, if there is one.

        Of two that try at once on a local disk exactly one succeeds. Where the file system has no links, and on object
        stores, through pyarrow, nothing can be made only if it is absent: there the second one is noticed if it
        comes after the first has finished, or overwrites it before the first has looked again.
        """
        place = self._place(name)
        if self._local:
            temporary = _write_beside(place, content, durable=True)
            try:
                os.link(temporary, place)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            else:
                self.sync()
                return True
            finally:
                os.unlink(temporary)
        if self.system.get_file_info(place).type != fs.FileType.NotFound:
            return False
        self.write(name, content)
        self.sync()
        return self.read(name) == content

    def sync(self, under: str = "") -> None:
        """Bring the names under a subfolder to the disk, as `write` does with what is in the files."""
        if not self._local or os.name != "posix":
            return
        descriptor = os.open(self._place(under) if under else self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, name: str) -> None:
        """Remove a file; no matter if somebody else did."""
        with suppress(FileNotFoundError):
            if self._local:
                os.unlink(self._place(name))
            else:
                self.system.delete_file(self._place(name))

    def _place(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _put(self, place: str, content: bytes) -> None:
        self.system.create_dir(place.rpartition("/")[0], recursive=True)
        with self.system.open_output_stream(place, compression=None) as stream:
            stream.write(content)


def is_temporary(name: str) -> bool:
    """Whether a file is what a crash left of one that never got its name."""
    return name.endswith(_TEMPORARY)


def _write_beside(place: str, content: bytes, durable: bool) -> str:
    """Write a file under a name of its own in the folder of `place`, and return that name."""
    folder, _, name = place.rpartition("/")
    os.makedirs(folder, exist_ok=True)
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}{_TEMPORARY}"
    with open(temporary, "xb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    return temporary
