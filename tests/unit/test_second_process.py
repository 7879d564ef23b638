"""The second process: compiles what comes next, starts only where it is welcome, and harms nothing if it fails."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numba
import pytest

import kernelcoreset
from kernelcoreset.kernels import machine_code, second_process
from kernelcoreset.kernels.machine_code import MachineCode
from kernelcoreset.kernels.second_process import ALONE, Claims, SecondProcess

ROOT = Path(kernelcoreset.__file__).parents[1]

# Compiles a build; prints the exit code of the second process and what this one compiles after its end.
BUILD_SOLVE_LABEL = """
import numpy as np
from numba.core import event
import kernelcoreset as kc
from kernelcoreset.clustering.solve import solve
from kernelcoreset.kernels.machine_code import SECOND_PROCESS
from kernelcoreset.labelling.centers import Centers

points, kernel = np.random.default_rng(0).normal(size=(10_000, 2)), kc.Gaussian(sigma=1.0)
coreset = kc.build_coreset(points, k=5, kernel=kernel, size=1000, seed=0)
print(SECOND_PROCESS.wait())
with event.install_recorder("numba:compile") as compiled:
    solution = solve(coreset, 5, kernel, seed=0)
    Centers(coreset.points, solution.coefficients, kernel).label(points)
print(*(each.data["dispatcher"].py_func.__name__ for _, each in compiled.buffer if each.is_start))
"""

CLAIM = """
import sys, time
from pathlib import Path
from kernelcoreset.kernels.second_process import Claims
Claims().take(Path(sys.argv[1]), lambda: None)
print("taken", flush=True)
time.sleep(600)
"""

START = """
import sys, time
from pathlib import Path
from kernelcoreset.kernels.second_process import SecondProcess
sys.path.insert(0, sys.argv[1])
assert SecondProcess("sleeping").start()
while not (Path(sys.argv[1]) / "pid").exists():
    time.sleep(0.01)
"""


@pytest.fixture
def welcome(monkeypatch):
    monkeypatch.delenv(ALONE, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def test_while_a_build_is_compiled_another_process_compiles_the_rest(tmp_path):
    own = {name: value for name, value in environment(NUMBA_CACHE_DIR=str(tmp_path)).items() if name != ALONE}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BUILD_SOLVE_LABEL], env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if len(os.sched_getaffinity(0)) > 1:
        assert done.stdout.splitlines() == ["0", ""]
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".lock"]


def test_a_claim_makes_others_wait_for_the_code(tmp_path):
    file, said = tmp_path / "f.code", []
    first, second = Claims(), Claims()
    assert not first.take(file, said.clear)
    found = []
    waiting = threading.Thread(target=lambda: found.append(second.take(file, lambda: said.append("waiting"))))
    waiting.start()
    while not said:
        time.sleep(0.001)
    assert not found
    first.release(file)
    waiting.join()
    assert found == [True]
    second.release(file)
    assert not list(tmp_path.iterdir())


def test_a_claim_that_was_interrupted_can_be_taken_again(tmp_path):
    claims = Claims()
    assert not claims.take(tmp_path / "f.code", pytest.fail)
    assert not claims.take(tmp_path / "f.code", pytest.fail)


def test_a_process_that_was_stopped_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(second_process, "MOST_SECONDS", 0.0)
    Claims().take(tmp_path / "f.code", pytest.fail)
    assert Claims().take(tmp_path / "f.code", lambda: None)


def test_the_claim_of_a_killed_process_ends(tmp_path):
    file = tmp_path / "f.code"
    command = [sys.executable, "-c", CLAIM, str(file)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "taken\n"
        os.kill(other.pid, signal.SIGKILL)
    assert not Claims().take(file, pytest.fail)


def test_without_a_folder_nothing_is_claimed(tmp_path):
    assert not Claims().take(tmp_path / "gone" / "f.code", pytest.fail)


def test_a_folder_that_is_gone_is_no_error(welcome, monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    code = MachineCode(machine_code.machine_code().target)
    code.folder.rmdir()
    assert code.claim("f.code") is None
    code.release("f.code")


def test_it_is_started_once_and_its_failure_is_silent(welcome, capfd):
    second = SecondProcess("kernelcoreset.no_such_module")
    assert second.wait() is None
    assert second.start()
    assert not second.start()
    assert second.wait() == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("reason", ["variable", "one core", "inside another program", "frozen", "a worker", "asked"])
def test_it_is_not_started_where_it_is_not_welcome(welcome, monkeypatch, reason):
    second = SecondProcess("kernelcoreset.no_such_module")
    if reason == "variable":
        monkeypatch.setenv(ALONE, "1")
    elif reason == "one core":
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    elif reason == "inside another program":
        monkeypatch.setattr(sys, "executable", "/usr/bin/server")
    elif reason == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    elif reason == "a worker":
        monkeypatch.setattr(multiprocessing, "parent_process", multiprocessing.current_process)
    else:
        second.stay_alone()
    assert not second.start()


def test_a_program_that_cannot_be_run_is_no_error(welcome, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python-gone"))
    assert not SecondProcess("kernelcoreset.no_such_module").start()


def test_it_ends_with_the_process_that_started_it(tmp_path):
    text = "import os, pathlib, time\n(pathlib.Path(__file__).parent / 'new').write_text(str(os.getpid()))\n"
    text += "os.rename(pathlib.Path(__file__).parent / 'new', pathlib.Path(__file__).parent / 'pid')\ntime.sleep(600)\n"
    (tmp_path / "sleeping.py").write_text(text)
    own = {name: value for name, value in environment().items() if name != ALONE}
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one core: no second process")
    subprocess.run([sys.executable, "-c", START, str(tmp_path)], env=own, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("there", ["nothing", "code", "a claim", "a rehearsal"])
def test_it_is_started_for_an_empty_folder_only(welcome, monkeypatch, tmp_path, there):
    (tmp_path / "marking.py").write_text("import pathlib\npathlib.Path(__file__).with_suffix('.txt').touch()\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "code"))
    second = SecondProcess("marking")
    monkeypatch.setattr(machine_code, "SECOND_PROCESS", second)
    code = MachineCode(machine_code.machine_code().target)
    if there == "a rehearsal":
        code.note_rehearsal()
    elif there != "nothing":
        (code.folder / {"code": "f.code", "a claim": "f.lock"}[there]).touch()
    assert code.claim("g.code") is None
    assert second.wait() == (0 if there == "nothing" else None)
    assert (tmp_path / "marking.txt").exists() == (there == "nothing")
    code.release("g.code")
