"""A folder of small files on any file system that pyarrow knows."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from os import PathLike

from pyarrow import fs

from kernelcoreset.files.atomic import is_local, read_file, remove_file, sync_folder, write_file
from kernelcoreset.files.create import Creation, creation_in
from kernelcoreset.files.exclusive import is_unfinished
from kernelcoreset.files.paths import open_path


class Folder:
    """Files by name under one path, each there as a whole or not at all.

    Parameters
    ----------
    path : path-like
        A local path, or a URI that `open_path` knows.
    filesystem : pyarrow.fs.FileSystem, optional
        Where to look `path` up, for storage that a URI cannot describe.
    """

    def __init__(self, path: str | PathLike[str], filesystem: fs.FileSystem | None = None) -> None:
        self.system, self.path = open_path(path, filesystem)

    def below(self, name: str) -> Folder:
        """Return a folder in this one."""
        return Folder(self._place(name), self.system)

    def names(self, under: str = "") -> dict[str, datetime]:
        """Return the names of the files directly in a subfolder, with the time of their last change."""
        found = self.system.get_file_info(fs.FileSelector(self._place(under), allow_not_found=True))
        prefix = f"{under}/" if under else ""
        return {
            prefix + info.base_name: info.mtime or datetime.now(UTC) for info in found if info.type == fs.FileType.File
        }

    def kind(self, name: str = "") -> fs.FileType:
        """Return whether a name, by default the folder itself, is a file, a directory or not there."""
        return self.system.get_file_info(self._place(name)).type

    def read(self, name: str) -> bytes:
        """Return a file's content, or raise FileNotFoundError."""
        return read_file(self.system, self._place(name))

    def write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Write a file, replacing one of the same name; `durable` if it must survive a power cut after `sync`."""
        write_file(self.system, self._place(name), content, durable=durable)

    def create(self, name: str, content: bytes) -> bool:
        """Write a new file; return False, and write nothing, if the name is taken.

        If two processes try at once, exactly one succeeds, by the way that `guarantee` names.
        """
        return self._creation.create(self._place(name), content)

    @property
    def guarantee(self) -> str:
        """How `create` keeps two processes apart here; it is tried once. See `kernelcoreset.files.create`."""
        return self._creation.guarantee

    @cached_property
    def _creation(self) -> Creation:
        return creation_in(self.system, self.path)

    def is_unfinished(self, name: str) -> bool:
        """Whether `create` has not finished a file yet, or a crash left it so: then it counts as not there."""
        return is_local(self.system) and is_unfinished(self._place(name))

    def sync(self, under: str = "") -> None:
        """Bring the names in a subfolder to the disk, as `write` does with the content."""
        sync_folder(self.system, self._place(under))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        remove_file(self.system, self._place(name))

    def _place(self, name: str) -> str:
        return f"{self.path}/{name}" if name else self.path
