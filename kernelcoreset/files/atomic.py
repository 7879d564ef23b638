"""Writes that a crash cannot leave half done: a file or a folder is there as a whole, or it is not there.

On a local disk the content is written under a temporary name in the same folder, brought to the disk, and then renamed.
An object store shows a file only when it is complete, so there a file is written under its own name at once.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyarrow import fs

_NO_EXCHANGE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM}
_AT_FDCWD, _EXCHANGE = -100, 2  # both systems have the same flag
_TEMPORARY, _OLD = ".tmp", ".old"


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

    Raises
    ------
    FileExistsError
        If a folder or a device is there. A link stays: what it leads to is replaced.
    """
    if not is_local(system):
        parent = path.rpartition("/")[0]
        if parent:
            system.create_dir(parent, recursive=True)
        with system.open_output_stream(path, compression=None) as stream:
            stream.write(content)
        return
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileExistsError(f"{path} is a folder or a device; a file is to be written there. Choose another path.")
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

    An object store cannot rename a folder: there the files are written one by one, in their order, and what else the
    old folder had is deleted after that. So the last file should be the one that names the others.
    """
    if is_local(system):
        with new_folder(Path(path)) as fresh:
            for name, content in files.items():
                write_synced(str(fresh / name), content)
        return
    for name, content in files.items():
        write_file(system, f"{path}/{name}", content)
    kept = {f"{path}/{name}" for name in files}
    found = system.get_file_info(fs.FileSelector(path, recursive=True))
    for info in sorted(found, key=lambda info: info.path, reverse=True):  # what is in a folder comes before it
        if info.type == fs.FileType.File and info.path not in kept:
            system.delete_file(info.path)
        elif info.type == fs.FileType.Directory and not any(name.startswith(f"{info.path}/") for name in kept):
            system.delete_dir(info.path)


@contextmanager
def new_folder(folder: Path, *, replace: bool = True) -> Iterator[Path]:
    """Yield a path beside a local folder; what is written there replaces the folder when the block ends.

    If the block fails, what it wrote is removed and the folder stays as it was. A link to a folder stays: the folder it
    leads to is replaced. The two folders exchange their names in one step where the system can do that, so that a kill
    at any moment leaves one of them. Where it cannot (network file systems), there is no folder of that name between
    two renames; a process that is killed there leaves the old one beside it, as `.name.` and a random part, and the
    next call puts it back. Without `replace`, a folder that is there when the block ends is a FileExistsError.
    """
    folder = Path(os.path.realpath(folder))
    _put_back(folder)
    fresh = hidden_name(folder)
    try:
        yield fresh
        if not folder.exists():
            fresh.rename(folder)
        elif not replace:
            raise FileExistsError(f"{folder} exists now, and did not when it was begun. Nothing was written there")
        elif not _exchange(fresh, folder):
            _rename_over(fresh, folder)
    finally:
        # What is there now is the old folder, or what a failed block wrote. The new folder has its name: files of the
        # old one that cannot be removed are no reason to fail.
        shutil.rmtree(fresh, ignore_errors=True)


def _rename_over(fresh: Path, folder: Path) -> None:
    """Give a folder's name to another one, in two steps; the old one gets the name of the other."""
    old = folder.with_name(f"{hidden_name(folder).name}{_OLD}")
    folder.rename(old)
    try:
        fresh.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _put_back(folder: Path) -> None:
    """Undo the first of two renames after which a process was killed."""
    if folder.exists() or not folder.parent.is_dir():
        return
    left = [path for path in folder.parent.glob(f".{glob.escape(folder.name)}.*{_OLD}") if path.is_dir()]
    if left:
        max(left, key=lambda path: path.stat().st_mtime).rename(folder)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; return False, and do nothing, if the system cannot do that."""
    library: Any = ctypes.CDLL(None, use_errno=True) if sys.platform in ("linux", "darwin") else None
    names = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):  # Linux
        failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)
    elif hasattr(library, "renamex_np"):  # macOS
        failed = library.renamex_np(*names, _EXCHANGE)
    else:
        return False
    if failed and ctypes.get_errno() not in _NO_EXCHANGE:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(one), None, str(other))
    return not failed


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
