"""Writes that a crash cannot leave half done: a file or a folder is there as a whole, or it is not there.

On a local disk the content is written under a temporary name in the same folder, brought to the disk, and then renamed.
An object store shows a file only when it is complete, so there a file is written under its own name at once.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyarrow import fs

_TEMPORARY = ".tmp"


def is_local(system: fs.FileSystem) -> bool:
    """Whether files of a file system can be renamed, linked and synced through `os`."""
    return isinstance(system, fs.LocalFileSystem)


def read_file(system: fs.FileSystem, path: str) -> bytes:
    """Return a file's content, or raise FileNotFoundError."""
    with system.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())


def write_file(system: fs.FileSystem, path: str, content: bytes, *, durable: bool = True) -> None:
    """Write a file, replacing one of the same name; folders above it are created.

    Parameters
    ----------
    system : pyarrow.fs.FileSystem
    path : str
        Absolute, on `system`.
    content : bytes
    durable : bool
        Whether the content must survive a power cut. `sync_folder` does the same for the name.
    """
    if not is_local(system):
        parent = path.rpartition("/")[0]
        if parent:
            system.create_dir(parent, recursive=True)
        with system.open_output_stream(path, compression=None) as stream:
            stream.write(content)
        return
    temporary = write_beside(path, content, durable)
    try:
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def sync_folder(system: fs.FileSystem, path: str) -> None:
    """Bring the names in a folder to the disk, so that they survive a power cut."""
    if not is_local(system) or os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_folder(system: fs.FileSystem, path: str, files: Mapping[str, bytes]) -> None:
    """Write a folder of files, by their relative names, replacing a folder that is there.

    An object store cannot rename a folder: there the old files are deleted before the new ones are written.
    """
    if is_local(system):
        with new_folder(Path(path)) as fresh:
            for name, content in files.items():
                write_synced(str(fresh / name), content)
        return
    if system.get_file_info(path).type != fs.FileType.NotFound:
        system.delete_dir(path)
    for name, content in files.items():
        write_file(system, f"{path}/{name}", content)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a path beside a local folder; what is written there replaces the folder when the block ends.

    If the block fails, what it wrote is removed and the folder stays as it was. Between the two renames of a
    replacement there is no folder of that name; a process that is killed there leaves the old one beside it, as
    `.name.` and a random part.
    """
    fresh, old = hidden_name(folder), hidden_name(folder)
    try:
        yield fresh
        was_there = folder.exists()
        if was_there:
            folder.rename(old)
        try:
            fresh.rename(folder)
        except BaseException:
            if was_there:
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # it is there only if something failed
    # The new folder has its name: files of the old one that cannot be removed are no reason to fail.
    shutil.rmtree(old, ignore_errors=True)


def remove_file(system: fs.FileSystem, path: str) -> None:
    """Remove a file, if it is there."""
    with suppress(FileNotFoundError):
        if is_local(system):
            os.unlink(path)
        else:
            system.delete_file(path)


def is_temporary(name: str) -> bool:
    """Whether a file is what a crash left of a file that never got its name."""
    return name.endswith(_TEMPORARY)


def hidden_name(path: Path) -> Path:
    """Return a free name in the same folder. Spark and this package skip names that start with a dot."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def write_beside(path: str, content: bytes, durable: bool) -> str:
    """Write a file under a temporary name in the folder of `path`, and return that name."""
    temporary = f"{hidden_name(Path(path))}{_TEMPORARY}"
    write_synced(temporary, content, durable)
    return temporary


def write_synced(path: str, content: bytes, durable: bool = True) -> None:
    """Write a new local file and bring it to the disk; folders above it are created."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
