"""Changes a store step by step, is killed at every write in turn, and started again: run by test_store_crashes.

Everything is imported and compiled once; each life is a fork, so that a hundred of them take seconds.
"""

import errno
import hashlib
import io
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

import kernelcoreset as kc
from kernelcoreset.files import atomic, create, exclusive
from kernelcoreset.store import key_tree

KERNEL = kc.Gaussian(sigma=1.0)
KEYS = [f"2024-01-{day:02}" for day in range(1, 7)]


def day(seed):
    return np.random.default_rng(seed).normal(size=(60, 2))


def leaf(seed):
    return kc.LeafUpdate(kc.build_coreset(day(seed), 3, KERNEL, 20, seed=seed), rows=60, tag=f"tag {seed}")


# What takes the store from version i to version i + 1.
CHANGES = [
    lambda store: store.change(put={key: leaf(i) for i, key in enumerate(KEYS[:4])}, state={"batch": 0}),
    lambda store: store.add(KEYS[4], day(4)),
    lambda store: store.replace(KEYS[1], day(11)),
    lambda store: store.expire(KEYS[0]),
    lambda store: store.change(put={KEYS[5]: leaf(5)}, expire=[KEYS[2]], state={"batch": 1}),
]


def live(path):
    """Go on from wherever the store is, as a job that was started again would."""
    store = kc.CoresetStore.open_or_create(path, 3, KERNEL, 10, leaf_size=20)
    while store.version < len(CHANGES):
        CHANGES[store.version](store)
        store.result()
    store.vacuum(older_than=0)
    store.result()


def describe(path):
    """All that a caller can see of the store, and the names of its files."""
    store = kc.CoresetStore.open(path)
    result = hashlib.sha256(store.result().to_bytes()).hexdigest()
    keys = store.keys()
    infos = {key: store.info(key) for key in keys}
    names = sorted(str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file())
    return {"version": store.version, "state": store.state, "keys": infos, "result": result, "files": names}


class Death:
    """Kills this process before the n-th thing that writes to the disk, or in the middle of it."""

    def __init__(self, path, step):
        self.path, self.left = str(path), step

    def reached(self):
        self.left -= 1
        return self.left == 0

    def step(self):
        if self.reached():
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(self, event, arguments):
        if event not in ("open", "os.mkdir", "os.rename", "os.link", "os.remove"):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if str(arguments[0]).startswith(self.path):
            self.step()

    def open_file(self, *arguments):
        return HalfFile(self, *arguments)

    def arm(self):
        sys.addaudithook(self.hear)
        atomic.open = exclusive.open = self.open_file
        # A killed process loses nothing that it has written: only a power cut would, and syncing takes long.
        os.fsync = lambda _: self.step()


class HalfFile(io.FileIO):
    """A file whose writer may die when half of it is written."""

    def __init__(self, death, *arguments):
        super().__init__(*arguments)
        self.death = death

    def write(self, content):
        if self.death.reached():
            super().write(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(content)


def in_a_fork(work):
    """Run `work` in a child and return how it ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def no_link(*_):
    """What a volume of Databricks answers."""
    raise OSError(errno.ENOSYS, "Function not implemented")


def main():
    folder = Path(sys.argv[1])
    if sys.argv[2] == "no-links":
        create.link, exclusive.GRACE = no_link, 0.02
    key_tree.MOST_LEAVES = 2
    live(folder / "undisturbed")
    expected = describe(folder / "undisturbed")
    step, differing, ended = 0, [], -signal.SIGKILL
    while ended == -signal.SIGKILL:
        step += 1
        path = folder / f"killed-{step}"

        def first_life(path=path, step=step):
            Death(path, step).arm()
            live(path)

        ended = in_a_fork(first_life)
        if ended not in (0, -signal.SIGKILL) or in_a_fork(lambda path=path: live(path)) != 0:
            differing.append(f"step {step}: ended with {ended}, or could not go on")
        elif describe(path) != expected:
            differing.append(f"step {step}: {describe(path)}")
        shutil.rmtree(path)
    print(json.dumps({"steps": step - 1, "differing": differing, "expected": expected}))


if __name__ == "__main__":
    main()
