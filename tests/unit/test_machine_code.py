"""Machine code: one set of types per function, kept by content, lent to others, never run on a lesser processor."""

import gc
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import errors, event

import kernelcoreset
from kernelcoreset.kernels import machine_code
from kernelcoreset.kernels.jit import address_of, calling, compiled, part
from kernelcoreset.kernels.machine_code import ARCHIVE_PREFIX, Archive, MachineCode, Target
from kernelcoreset.kernels.second_process import ALONE

ROOT = Path(kernelcoreset.__file__).parents[1]
SAID = "kernelcoreset: compiling for this machine, once"

# Calls one compiled function, and prints how many were compiled for that, by numba's own count.
ONE_CALL = """
import sys
from numba.core import event
from kernelcoreset.kernels import machine_code
from kernelcoreset.kernels.loops.center_tiles import to_distances
import numpy
machine_code.SAID_AFTER = 0.0
with event.install_recorder("numba:compile") as compiled:
    to_distances(numpy.array([169.0]))
print(len([each for _, each in compiled.buffer if each.is_start]), machine_code.machine_code().pack())
"""

# Calls what users call, with points of several types and layouts, and prints the functions of several signatures.
MANY_CALLS = """
import sys
import numpy as np
from numba.core.dispatcher import Dispatcher
import kernelcoreset as kc
from kernelcoreset.models.rehearsal import call_everything

call_everything()
points = np.random.default_rng(0).normal(size=(1200, 2))
frozen = points.copy()
frozen.setflags(write=False)
for given in (points.astype(np.float32), np.asfortranarray(points), frozen, points[::2], points.tolist()):
    weights = np.ones(len(given), dtype=np.float32)
    for kernel in (kc.Gaussian(1.0), kc.Cosine(), kc.Gaussian(1.0) + 2.0 * kc.Polynomial(degree=3)):
        coreset = kc.build_coreset(given, 3, kernel, 60, weights=weights)
        both = kc.merge_coresets([coreset, coreset], 3, kernel, 60)
        model = kc.KernelKMeansModel.fit_coreset(both, 3, kernel, n_init=1)
        model.label(given, margins=True)
        model.predict(given[:1])
        model.distances(given[:2])
found = {id(value): value for module in list(sys.modules.values()) if module.__name__.startswith("kernelcoreset")
         for value in vars(module).values() if isinstance(value, Dispatcher)}
called = [value for value in found.values() if value.signatures]
print(len(called))
for value in called:
    if len(value.signatures) > 1:
        print(value.py_func.__qualname__, value.signatures)
"""


def run(program, **environment):
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        env={"PYTHONPATH": str(ROOT), ALONE: "1"} | kept | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def compilations(**environment):
    """How many functions one call compiles, the archive of the code after it, and what it says."""
    done = run(ONE_CALL, **environment)
    count, archive = done.stdout.split()
    return int(count), archive, done.stderr


def test_no_function_is_compiled_for_two_signatures(tmp_path):
    # Without a cache: functions that only cached ones call would not be seen.
    called, *twice = run(MANY_CALLS, NUMBA_CACHE_DIR=tmp_path).stdout.splitlines()
    assert int(called) > 30
    assert twice == []


def test_code_is_kept_and_compiling_is_announced_once(tmp_path):
    count, _, said = compilations(NUMBA_CACHE_DIR=tmp_path)
    assert count == 1
    assert said.count(SAID) == 1
    count, _, said = compilations(NUMBA_CACHE_DIR=tmp_path)
    assert (count, said) == (0, "")


def test_kept_code_is_loaded_without_what_only_a_compilation_needs(tmp_path):
    program = ONE_CALL + "print('numba.np.arraymath' in sys.modules, 'scipy.linalg' in sys.modules)"
    needed = [run(program, NUMBA_CACHE_DIR=tmp_path).stdout.splitlines()[-1] for _ in range(2)]
    assert needed == ["True True", "False False"]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_damaged_code_is_compiled_again_and_not_run(tmp_path, damage):
    _, archive, _ = compilations(NUMBA_CACHE_DIR=tmp_path)
    (file,) = Path(archive).parent.glob("*.code")
    whole = file.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    file.write_bytes({"flip": flipped, "cut": whole[:middle], "empty": b""}[damage])
    assert compilations(NUMBA_CACHE_DIR=tmp_path)[0] == 1
    assert compilations(NUMBA_CACHE_DIR=tmp_path)[0] == 0


@pytest.mark.parametrize("home", [{"HOME": "/dev/null"}, {}], ids=["read-only", "none"])
def test_without_a_home_code_is_kept_in_a_temporary_folder(tmp_path, home):
    # XDG_CACHE_HOME stands for the home that the user database knows, which cannot be taken away.
    environment = {**home, "XDG_CACHE_HOME": "/dev/null", "TMPDIR": tmp_path}
    count, archive, _ = compilations(**environment)
    assert count == 1
    assert Path(archive).is_relative_to(tmp_path)
    assert compilations(**environment)[0] == 0


def test_code_in_a_folder_that_others_can_write_is_not_run(tmp_path):
    environment = {"HOME": "/dev/null", "TMPDIR": tmp_path}
    _, archive, _ = compilations(**environment)
    shared = tmp_path / Path(archive).relative_to(tmp_path).parts[0]
    shared.chmod(0o777)
    count, archive, said = compilations(**environment)
    assert (count, archive) == (1, "None")
    assert "in every process: its code cannot be kept. Set NUMBA_CACHE_DIR" in said


def test_lent_code_is_not_compiled_again(tmp_path):
    lent = compilations(NUMBA_CACHE_DIR=tmp_path / "lender")[1]
    count, archive, said = compilations(NUMBA_CACHE_DIR=tmp_path / "fresh", PYTHONPATH=f"{lent}{os.pathsep}{ROOT}")
    assert (count, said) == (0, "")
    assert [path.name for path in Path(archive).parent.iterdir()] == [Path(archive).name]  # nothing of its own


def test_lent_code_for_another_processor_or_package_is_refused(tmp_path):
    lent = compilations(NUMBA_CACHE_DIR=tmp_path / "lender")[1]

    def compilations_with(**changed):
        archive = tmp_path / f"{ARCHIVE_PREFIX}{'_'.join(changed)}.zip"
        with zipfile.ZipFile(lent) as old, zipfile.ZipFile(archive, "w") as new:
            manifest = json.loads(old.read("manifest.json")) | changed
            for name in old.namelist():
                new.writestr(name, json.dumps(manifest) if name == "manifest.json" else old.read(name))
        fresh = {"NUMBA_CACHE_DIR": archive.with_suffix(""), "PYTHONPATH": f"{archive}{os.pathsep}{ROOT}"}
        return compilations(**fresh)[0]

    with zipfile.ZipFile(lent) as archive:
        triple, cpu, features = json.loads(archive.read("manifest.json"))["target"]
    assert compilations_with() == 0
    assert compilations_with(target=[triple, cpu, f"{features},+another"]) == 1
    assert compilations_with(package="another") == 1


def test_code_runs_on_every_processor_with_at_least_its_features():
    def runs(cpu, features, *host):
        return Target("x86_64-linux", cpu, features).runs_on("some", set(host))

    assert runs("skylake", "+avx,-avx512f,+fma", "avx", "fma", "avx512f")
    assert not runs("skylake", "+avx,+fma", "avx")
    # fmt: off
    level_3 = ["avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf", "sse3",
               "sse4.1", "sse4.2", "ssse3", "xsave"]
    # fmt: on
    assert runs("x86-64-v3", "", *level_3, "avx512f")
    assert not runs("x86-64-v3", "", *level_3[1:])
    assert runs("some", "")
    assert not runs("another", "")


def test_more_features_come_first(tmp_path, monkeypatch):
    own = machine_code.machine_code()
    plain, rich = tmp_path / f"{ARCHIVE_PREFIX}1.zip", tmp_path / f"{ARCHIVE_PREFIX}2.zip"
    features = [name for name in own.target.features.split(",") if name.startswith("+")]
    for path, some in ((plain, features[:1]), (rich, features)):
        with zipfile.ZipFile(path, "w") as archive:
            target = own.target._replace(features=",".join(some))
            archive.writestr("manifest.json", json.dumps({**machine_code.CONTENT, "target": target}))
            archive.writestr("name", path.name)
    monkeypatch.setattr(sys, "path", [str(plain), str(rich), *sys.path])
    found = MachineCode(own.target)
    found.folder = None
    assert found.read("name") == rich.name.encode()
    assert found.read("another") is None
    assert not Archive(plain).is_rehearsed()


def test_folders_that_nobody_uses_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    old = [tmp_path / f"kernelcoreset-{number}-old" for number in range(20)]
    for number, path in enumerate(old):
        path.mkdir()
        (path / "some.code").touch()
        os.utime(path, (number, number))
    (tmp_path / "of somebody else").mkdir()
    folder = MachineCode(machine_code.machine_code().target).folder
    assert set(tmp_path.iterdir()) == {folder, tmp_path / "of somebody else", *old[4:]}


def test_compiled_functions_call_by_address():
    kinds = (numba.typeof(np.zeros(1)), numba.int64)
    call = calling(*kinds)

    @numba.njit
    def fill(out, value):
        if value < 0:
            raise ValueError("below 0")
        out[:] = value

    @numba.njit
    def caller(address, out, value):
        call(address, (out, value))

    out = np.zeros(3)
    caller(address_of(fill, kinds), out, 7)
    assert out.tolist() == [7.0, 7.0, 7.0]
    with pytest.raises(ValueError, match="below 0"):
        caller(address_of(fill, kinds), out, -1)


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_and_nothing_coloured_while_a_function_is_compiled(collects):
    states = []

    class Looks(event.Listener):
        def on_start(self, event):
            states.append(gc.isenabled())
            assert errors.termcolor().errmsg("plain") == "plain"

        on_end = on_start

    before, colours = gc.isenabled(), errors.termcolor()
    (gc.enable if collects else gc.disable)()
    try:
        with event.install_listener("numba:run_pass", Looks()):
            assert numba.njit(lambda value: value + 1)(1) == 2
        assert gc.isenabled() is collects
        assert errors.termcolor() is colours
    finally:
        (gc.enable if before else gc.disable)()
    assert states
    assert not any(states)


def test_a_part_is_called_by_compiled_functions_only():
    @part()
    def double(value):
        return 2.0 * value

    @compiled()
    def four_times(value):
        return double(double(value))

    for _ in range(2):  # before and after it is compiled
        with pytest.raises(TypeError, match="`double` is part of compiled functions and cannot be called from Python"):
            double(1.0)
        assert four_times(1.0) == 4.0
