"""The store under real faults: killed at every write, and two processes that write at once."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelcoreset as kc
from tests.faults import commit_cases

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

WRITER = '''
import sys, time
from pathlib import Path
import numpy as np
import pytest
import kernelcoreset as kc
path, name, keys, shared = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = kc.CoresetStore.open(path)
points = np.random.default_rng(0).normal(size=(30, 2))
store.build_leaf("warm", points)
(path / f"ready-{name}").touch()
while len(list(path.glob("ready-*"))) < 2:
    time.sleep(0.001)
def add(key, own):
    """Return whether this process added the key. After a conflict look for it, as the message says, and try again."""
    global store
    try:
        store.add(key, own)
        return True
    except kc.KernelCoresetError as error:
        # Before the race was over, or after it.
        assert isinstance(error, kc.ConflictError) or "already exists" in str(error), error
        store = kc.CoresetStore.open(path)
    return np.array_equal(store.leaf(key).points, own) if key in store else add(key, own)
for i in range(keys):
    assert add(f"{name}-{i}", points + i)
won = sum(add(f"shared-{i}", points + ord(name)) for i in range(shared))
print(won)
'''


def run(*arguments):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def output_of(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("links", ["links", "no-links"])
def test_killed_at_every_write_the_store_ends_the_same(tmp_path, links):
    found = json.loads(output_of(run("-m", "tests.faults.store_script", tmp_path, links)))
    assert found["differing"] == []
    # Six manifests and seven leaves, each with several writes, besides nodes and what vacuum removes.
    assert found["steps"] > 100


@pytest.mark.parametrize(("guarantee", "links"), [("hard link", True), ("exclusive create", False)])
def test_no_acknowledged_commit_is_lost(tmp_path, guarantee, links):
    tally = commit_cases.write_at_once(f"{tmp_path}/store", 100, guarantee, links=links)
    assert (tally.cases, tally.done_right, tally.lost) == (100, 100, 0)


def test_two_processes_write_at_once(tmp_path):
    path = tmp_path / "store"
    kc.CoresetStore.create(path, 3, kc.Gaussian(sigma=1.0), 10)
    writers = {name: run("-c", WRITER, path, name, 15, 15) for name in "ab"}
    won = {name: int(output_of(process)) for name, process in writers.items()}
    store = kc.CoresetStore.open(path)
    # Nothing is lost: every key of each, and each shared key from one of them.
    assert store.keys() == sorted(
        [f"{name}-{i}" for name in "ab" for i in range(15)] + [f"shared-{i}" for i in range(15)]
    )
    assert won["a"] + won["b"] == 15
    assert store.version == 45
    for name in "ab":
        leaves = [store.leaf(f"shared-{i}").points for i in range(15)]
        points = np.random.default_rng(0).normal(size=(30, 2)) + ord(name)
        assert sum(np.array_equal(leaf, points) for leaf in leaves) == won[name]
    assert not list(path.rglob("*.tmp"))
