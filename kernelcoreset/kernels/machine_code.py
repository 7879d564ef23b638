"""Machine code of the compiled functions: where it is kept, how it is found, and how one process lends it to others.

Code is found by content: the sources of the whole package, the versions of Python, numba and llvmlite, and the
processor it is built for. So it is the same code wherever the package is installed or unpacked, and a changed source
never meets code of an older one. It is kept in `NUMBA_CACHE_DIR`, else in the user's cache folder (not on Databricks),
else in a temporary folder of the user's own; if none of them can be written, it is in memory only. Every file carries a
digest of its code; damaged code is compiled again, not run.

An archive (`pack`) holds the code of one machine. Archives are found on `sys.path`, where Spark puts the files that are
shipped to its workers, and inside the package (`machine_code/*.zip`), where a wheel may bring them. Code is taken from
an archive only if this machine has every feature of the processor that it was built for.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from functools import cache, cached_property
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
from llvmlite import binding
from numba.core import caching, event
from numba.core.runtime.nrt import rtsys
from numba.misc import appdirs

from kernelcoreset.kernels.second_process import Claims, SecondProcess

PACKAGE = __name__.partition(".")[0]
ARCHIVE_PREFIX = f"{PACKAGE}_code_"
"""How the names of archives start."""
SAID_AFTER = 2.0
"""Seconds of compiling after which a line on stderr says so."""

_MANIFEST, _SUFFIX = "manifest.json", ".code"
_REHEARSED, _REHEARSED_LARGE = _MARKS = "rehearsed", "rehearsed_large"
_MOST_FOLDERS = 16  # versions, environments and processors that share a folder; each is a few megabytes
_LEVEL_2 = {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
_LEVEL_3 = _LEVEL_2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_LEVEL_4 = _LEVEL_3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
_LEVELS = {"x86-64": set[str](), "x86-64-v2": _LEVEL_2, "x86-64-v3": _LEVEL_3, "x86-64-v4": _LEVEL_4}

SECOND_PROCESS = SecondProcess(f"{PACKAGE}.models.rehearsal")
"""Started when the first function is compiled for an empty folder."""

_config: Any = numba.config
_appdirs: Any = appdirs
_event: Any = event
_CompiledFunction: Any = caching.CompileResultCacheImpl
_NullCache: Any = caching.NullCache
_rtsys: Any = rtsys


class Target(NamedTuple):
    """What code is built for, as numba names it. `features` are such as "+avx2,-avx512f"."""

    triple: str
    cpu: str
    features: str

    def runs_on(self, cpu: str, features: set[str]) -> bool:
        """Return whether a machine with this processor and these features can run the code."""
        if self.features:
            return {name[1:] for name in self.features.split(",") if name.startswith("+")} <= features
        return _LEVELS[self.cpu] <= features if self.cpu in _LEVELS else self.cpu == cpu


def _digest(parts: Iterator[bytes]) -> str:
    """Return a digest in which every part counts with its length."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little"))
        whole.update(part)
    return whole.hexdigest()[:24]


def _sources(folder: Any, prefix: str = "") -> Iterator[bytes]:
    """Yield names and contents of all Python files, in the order of their names; also of a zipped package."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".py"):
            yield f"{prefix}{entry.name}".encode()
            yield entry.read_bytes()
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _sources(entry, f"{prefix}{entry.name}/")


# When the package is imported, not later: its sources may change while it runs.
CONTENT = {
    "package": _digest(_sources(files(PACKAGE))),
    "versions": f"{sys.implementation.cache_tag}-numba-{numba.__version__}-llvmlite-{llvmlite.__version__}",
}


class Archive:
    """Code that another process has packed."""

    def __init__(self, path_or_bytes: Path | bytes) -> None:
        source = BytesIO(path_or_bytes) if isinstance(path_or_bytes, bytes) else path_or_bytes
        self._zip = zipfile.ZipFile(source)
        self.manifest = json.loads(self._zip.read(_MANIFEST))
        self._names = set(self._zip.namelist())

    @property
    def target(self) -> Target:
        """What the code is built for."""
        return Target(*self.manifest["target"])

    def is_rehearsed(self, *, large: bool = False) -> bool:
        """Return whether it has all that a rehearsal calls, or one of many columns and clusters."""
        return _mark(large) in self._names

    def suits(self, own: Target) -> bool:
        """Return whether it is of this very package and runs on this machine."""
        same = all(self.manifest[name] == value for name, value in CONTENT.items()) and self.target.triple == own.triple
        return same and (self.target == own or self.target.runs_on(*_host()))

    def read(self, name: str) -> bytes | None:
        """Return an entry, None if there is none of this name."""
        return self._zip.read(name) if name in self._names else None


def _mark(large: bool) -> str:
    """The name of the empty file that says that a rehearsal has run."""
    return _REHEARSED_LARGE if large else _REHEARSED


@cache
def _host() -> tuple[str, set[str]]:
    features = binding.get_host_cpu_features()
    return binding.get_host_cpu_name(), {name for name, there in features.items() if there}


class MachineCode:
    """The code that this process can use: its own folder, and archives that it was lent."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._searched: list[str] = []
        self._archives: list[Archive] = []
        self._claims = Claims()

    @cached_property
    def folder(self) -> Path | None:
        """Where code is kept; None if nothing can be written anywhere."""
        built_for = _digest(part.encode() for part in self.target)[:8]
        name = f"{PACKAGE}-{CONTENT['package']}-{CONTENT['versions']}-{self.target.cpu}-{built_for}"
        folder = next(filter(None, (_writable(base / name, private) for base, private in _bases())), None)
        if folder is not None:
            _remove_unused(folder)
        return folder

    @property
    def archives(self) -> list[Archive]:
        """The archives that suit this machine, most features first. Looks again if `sys.path` changed."""
        if self._searched != sys.path:
            self._searched = list(sys.path)
            found = [archive for archive in _find_archives() if archive.suits(self.target)]
            self._archives = sorted(found, key=lambda archive: -archive.target.features.count("+"))
        return self._archives

    def read(self, name: str) -> bytes | None:
        """Return kept or lent code; None if it must be compiled."""
        if self.folder is not None:
            try:
                return (self.folder / name).read_bytes()
            except FileNotFoundError:
                pass
        return next(filter(None, (archive.read(name) for archive in self.archives)), None)

    def write(self, name: str, content: bytes) -> None:
        """Keep code. Another process sees it whole or not at all."""
        if self.folder is None:
            return
        try:
            handle, fresh = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(fresh, self.folder / name)
        except OSError:  # the disk is full, or the folder is gone: what is compiled stays in memory
            self.folder = None

    def claim(self, name: str) -> bytes | None:
        """Return code that another process was compiling just now; None if this one should compile it and `release`."""
        if self.folder is None:
            return None
        _NOTICE.begin()
        try:
            if not self.is_rehearsed() and not any(self.folder.iterdir()):  # nobody has compiled or claimed anything
                SECOND_PROCESS.start()
            return self.read(name) if self._claims.take(self.folder / name, _NOTICE.say) else None
        except FileNotFoundError:  # the folder is gone
            return None
        finally:
            _NOTICE.end()

    def release(self, name: str) -> None:
        """End the claim of a function, after its code is kept."""
        if self.folder is not None:
            self._claims.release(self.folder / name)

    def is_rehearsed(self, *, large: bool = False) -> bool:
        """Return whether everything that a rehearsal calls is there, or one of many columns and clusters."""
        own = self.folder is not None and (self.folder / _mark(large)).exists()
        return own or any(archive.is_rehearsed(large=large) for archive in self.archives)

    def note_rehearsal(self, *, large: bool = False) -> None:
        """Note that everything such a rehearsal calls is in the folder."""
        self.write(_mark(large), b"")

    def pack(self) -> Path | None:
        """Return an archive of the folder, named by its content; None if there is no folder."""
        if self.folder is None:
            return None
        kept = sorted(path for path in self.folder.iterdir() if path.suffix == _SUFFIX or path.name in _MARKS)
        entries = {path.name: path.read_bytes() for path in kept}
        entries[_MANIFEST] = json.dumps({**CONTENT, "target": self.target}).encode()
        content = _digest(part for entry, code in entries.items() for part in (entry.encode(), code))
        name = f"{ARCHIVE_PREFIX}{content}.zip"
        if not (self.folder / name).exists():
            whole = BytesIO()
            with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
                for entry, code in entries.items():
                    archive.writestr(zipfile.ZipInfo(entry), code, zipfile.ZIP_DEFLATED)
            self.write(name, whole.getvalue())
        return None if self.folder is None else self.folder / name


@cache
def machine_code() -> MachineCode:
    """Return the code of this process, built for the processor that numba builds for."""
    from numba.core.registry import cpu_target

    return MachineCode(Target(*cpu_target.target_context.codegen().magic_tuple()))


def compile_alone() -> None:
    """Never start a second process from this one."""
    SECOND_PROCESS.stay_alone()


def _bases() -> Iterator[tuple[Path, bool]]:
    """Yield folders to keep code in, best first, and whether others may write beside it."""
    if _config.CACHE_DIR:
        yield Path(_config.CACHE_DIR), False
    if "DATABRICKS_RUNTIME_VERSION" not in os.environ:  # there HOME is not kept, and not for jobs to write to
        yield Path(_appdirs.AppDirs(PACKAGE, appauthor=False).user_cache_dir), False
    try:
        yield Path(tempfile.gettempdir()) / f"{PACKAGE}-{os.getuid() if hasattr(os, 'getuid') else 'code'}", True
    except FileNotFoundError:  # no temporary folder that can be written
        return


def _writable(folder: Path, private: bool) -> Path | None:
    """Return the folder if it is there or can be made, and can be written.

    Code is run. In a folder that all users share, it must be the user's own, and no other may write to it.
    """
    try:
        if private:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            state = os.lstat(folder.parent)
            own = not hasattr(os, "getuid") or state.st_uid == os.getuid()
            if not (stat.S_ISDIR(state.st_mode) and own and not state.st_mode & 0o022):
                return None
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return None


def _remove_unused(folder: Path) -> None:
    """Mark a folder as used just now, and remove others beside it that were not used for long, if there are many."""
    os.utime(folder)
    others = [path for path in folder.parent.glob(f"{PACKAGE}-*-*") if path != folder and path.is_dir()]
    for path in sorted(others, key=lambda path: path.stat().st_mtime)[:-_MOST_FOLDERS]:
        shutil.rmtree(path, ignore_errors=True)  # another process may be removing it too


def _find_archives() -> Iterator[Archive]:
    """Yield the archives on `sys.path` and those inside the package."""
    for path in map(Path, sys.path):
        if path.name.startswith(ARCHIVE_PREFIX) and path.suffix == ".zip" and path.is_file():
            yield Archive(path)
    inside = files(PACKAGE) / "machine_code"
    if inside.is_dir():
        for entry in inside.iterdir():
            if entry.name.startswith(ARCHIVE_PREFIX):
                yield Archive(entry.read_bytes())


def _sealed(code: bytes) -> bytes:
    """Return code with its digest before it."""
    return hashlib.sha256(code).digest() + code


def _unsealed(content: bytes) -> bytes | None:
    """Return the code of `_sealed`; None if it is damaged or not there: code with a flipped bit would still run."""
    size = hashlib.sha256().digest_size
    code = content[size:]
    return code if content[:size] == hashlib.sha256(code).digest() else None


class KeptCode(_NullCache):  # type: ignore[misc]
    """What a dispatcher of numba asks for code before it compiles: one file per function and types of arguments."""

    def __init__(self, function: Any) -> None:
        self._name = f"{function.__module__}.{function.__qualname__}"

    @property
    def cache_path(self) -> str:
        """The folder, as numba's statistics show it."""
        return str(machine_code().folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function, None if it must be compiled."""
        _rtsys.initialize(target_context)  # all that code needs; a refresh imports what only a compilation does
        own, name = machine_code(), self._file(sig)
        code = _unsealed(own.read(name) or b"") or _unsealed(own.claim(name) or b"")
        if code is None:
            return None
        own.release(name)
        return _CompiledFunction.rebuild(None, target_context, pickle.loads(code))

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Keep a function that was compiled, unless it holds addresses of this process."""
        if not cres.library.has_dynamic_globals:
            code = pickle.dumps(_CompiledFunction.reduce(None, cres), protocol=pickle.HIGHEST_PROTOCOL)
            machine_code().write(self._file(sig), _sealed(code))
        machine_code().release(self._file(sig))

    def _file(self, sig: Any) -> str:
        return f"{self._name}-{_digest(str(part).encode() for part in sig)}{_SUFFIX}"


class _Notice(event.Listener):
    """Says on stderr that the package is being compiled, once, if that takes longer than a moment."""

    def __init__(self) -> None:
        self._depth, self._since, self._before, self._said = 0, 0.0, 0.0, False

    def on_start(self, event: Any) -> None:
        if _is_own(event):
            self.begin()

    def on_end(self, event: Any) -> None:
        if _is_own(event):
            self.end()

    def begin(self) -> None:
        """Note that a function is being compiled, here or by a process that this one waits for."""
        if self._depth == 0:
            self._since = time.monotonic()
        self._depth += 1
        self.say()

    def end(self) -> None:
        """Note that it is there."""
        self.say()
        self._depth -= 1
        if self._depth == 0:
            self._before += time.monotonic() - self._since

    def say(self) -> None:
        """Say it if it took long enough."""
        if self._said or self._before + time.monotonic() - self._since < SAID_AFTER or sys.stderr is None:
            return
        self._said = True
        if machine_code().folder is None:
            how = "in every process: its code cannot be kept. Set NUMBA_CACHE_DIR to a folder that can be written"
        else:
            how = "once; this takes some seconds"
        print(f"{PACKAGE}: compiling for this machine, {how} ...", file=sys.stderr, flush=True)


def _is_own(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith(f"{PACKAGE}.")


_NOTICE = _Notice()
_event.register("numba:compile", _NOTICE)
