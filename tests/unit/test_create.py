"""Creation of a file by one of several writers, in each of the ways, and what a crash leaves of it."""

import errno
import fcntl
import os
import sys
import threading
from pathlib import Path

import pytest
from pyarrow import fs

import kernelcoreset as kc
from kernelcoreset.files import claim, create, exclusive
from kernelcoreset.files.folder import Folder
from kernelcoreset.store import manifest
from tests.stores import DAYS, filled, new_store

NAME = manifest.manifest_name(2)
INTENT = f".{NAME}.{'0' * 32}.intent"


class Plain(fs.FileSystemHandler):
    """A file system that only writes, lists and renames, as HDFS does through pyarrow."""

    local = fs.LocalFileSystem()

    def get_type_name(self):
        return "plain"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self.local.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self.local.get_file_info(selector)

    def create_dir(self, path, recursive):
        self.local.create_dir(path, recursive=recursive)

    def delete_file(self, path):
        self.local.delete_file(path)

    def move(self, source, target):
        self.local.move(source, target)

    def open_input_stream(self, path):
        return self.local.open_input_stream(path, compression=None)

    def open_output_stream(self, path, metadata):
        return self.local.open_output_stream(path, compression=None)


Plain.__abstractmethods__ = frozenset()  # nothing else is asked of it
PLAIN = fs.PyFileSystem(Plain())


@pytest.fixture
def no_links(monkeypatch):
    """No real file system here refuses links, so the one place that makes them does."""

    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(create, "link", refuse)
    monkeypatch.setattr(exclusive, "GRACE", 0.2)


@pytest.fixture(params=["hard link", "exclusive create", "claim"])
def folder(request, tmp_path, monkeypatch):
    if request.param == "exclusive create":
        request.getfixturevalue("no_links")
    made = Folder(f"{tmp_path}/new", PLAIN if request.param == "claim" else None)
    assert made.guarantee == request.param
    return made


def test_one_of_many_writers_creates_a_file(folder):
    won = []

    def write(writer):
        own = Folder(folder.path, folder.system)
        for i in range(10):
            if own.create(f"{i}.json", f"{writer}".encode() * 5000):
                won.append((i, writer))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(i for i, _ in won) == list(range(10))
    for i, writer in won:
        assert folder.read(f"{i}.json") == f"{writer}".encode() * 5000
    assert sorted(os.listdir(folder.path)) == [f"{i}.json" for i in range(10)]


def test_the_run_record_can_say_the_guarantee(tmp_path, no_links):
    assert new_store(tmp_path / "store").guarantee == "exclusive create"
    assert new_store(str(tmp_path / "plain"), filesystem=PLAIN).guarantee == "claim"


def torn(path, share=0.5, intent=True):
    """What a process that was killed while it committed version 2 leaves; return the whole content."""
    filled(path, DAYS[:1]).change(state={"batch": 1})
    whole = (path / NAME).read_bytes()
    (path / NAME).write_bytes(whole[: int(share * len(whole))])
    if intent:
        (path / INTENT).write_bytes(whole)
    return whole


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
def test_an_unfinished_commit_is_not_there_and_another_writer_takes_over(tmp_path, no_links, share):
    path = tmp_path / "store"
    torn(path, share)
    store = kc.CoresetStore.open(path)
    assert (store.version, store.state, store.keys()) == (1, {}, DAYS[:1])
    store.vacuum(older_than=0)
    assert (path / INTENT).exists()  # else the file would be a damaged one
    store.change(state={"batch": 2})
    again = kc.CoresetStore.open(path)
    assert (again.version, again.state) == (2, {"batch": 2})
    assert [name for name in os.listdir(path) if name.startswith(".")] == []


def test_a_writer_with_links_takes_over_too(tmp_path, monkeypatch):
    monkeypatch.setattr(exclusive, "GRACE", 0.1)
    torn(tmp_path / "store")
    store = kc.CoresetStore.open(tmp_path / "store")
    store.change(state={"batch": 2})
    assert kc.CoresetStore.open(tmp_path / "store").state == {"batch": 2}


def test_a_truncated_manifest_without_an_intent_is_damage(tmp_path, no_links):
    for share in (0.0, 0.5, 0.999):
        torn(tmp_path / f"store {share}", share, intent=False)
        with pytest.raises(kc.FormatError, match="damaged"):
            kc.CoresetStore.open(tmp_path / f"store {share}")


def test_a_living_writer_is_waited_for_and_then_reported(tmp_path, no_links):
    path = tmp_path / "store"
    whole = torn(path)
    store = kc.CoresetStore.open(path)
    with open(path / NAME, "r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(
            kc.ConflictError, match=r"has not finished .*manifest-0000000002.json for 0 s, but it is alive"
        ):
            store.change(state={"batch": 2})

        def finish():
            held.write(whole)
            held.flush()

        timer = threading.Timer(0.1, finish)
        timer.start()
        with pytest.raises(kc.ConflictError, match="Another writer changed the state"):
            store.change(state={"batch": 2})
        timer.join()
    assert kc.CoresetStore.open(path).state == {"batch": 1}


def test_a_writer_that_was_taken_as_dead_is_not_told_that_it_committed(tmp_path, no_links, monkeypatch):
    folder = Folder(tmp_path / "new")
    fill = exclusive._fill

    def slow(descriptor, content):
        monkeypatch.setattr(exclusive, "_fill", fill)
        assert Folder(tmp_path / "new").create("a", b"other")  # waits, and takes over
        fill(descriptor, content)

    monkeypatch.setattr(exclusive, "_fill", slow)
    assert not folder.create("a", b"own")
    assert folder.read("a") == b"other"
    assert os.listdir(tmp_path / "new") == ["a"]


def test_a_writer_without_locks_that_wakes_at_the_worst_moment_is_reported(tmp_path, no_links, monkeypatch):
    path = tmp_path / "store"
    whole = torn(path)
    store = kc.CoresetStore.open(path)
    rename = os.rename

    def wakes(source, target):
        Path(source).write_bytes(whole)
        rename(source, target)

    monkeypatch.setattr(os, "rename", wakes)
    with pytest.raises(kc.ConflictError, match=r"dead after 0 s without a write.* Its content is in .*\.tmp"):
        store.change(state={"batch": 2})


def test_a_disk_that_fills_up_leaves_an_unfinished_file(tmp_path, no_links, monkeypatch):
    store = filled(tmp_path / "store", DAYS[:1])
    fill = exclusive._fill

    def full(descriptor, content):
        os.write(descriptor, content[:9])
        os.close(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(exclusive, "_fill", full)
    with pytest.raises(OSError, match="No space left"):
        store.change(state={"batch": 1})
    monkeypatch.setattr(exclusive, "_fill", fill)
    assert kc.CoresetStore.open(tmp_path / "store").version == 1
    store.change(state={"batch": 2})
    assert kc.CoresetStore.open(tmp_path / "store").state == {"batch": 2}


def test_vacuum_removes_the_intent_of_a_finished_commit(tmp_path, no_links):
    store = filled(tmp_path / "store", DAYS[:2])
    (tmp_path / "store" / INTENT).write_bytes((tmp_path / "store" / NAME).read_bytes())
    assert kc.CoresetStore.open(tmp_path / "store").version == 2
    assert INTENT in store.vacuum(older_than=0)


def test_the_claim_of_a_dead_process_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "GRACE", 0.1)
    folder = Folder(f"{tmp_path}/new", PLAIN)
    folder.write(".a.json.x.claim", b"host 1")
    with pytest.raises(kc.ConflictError, match=r"If it is dead, remove its claim .*/new/\.a\.json\.x\.claim"):
        folder.create("a.json", b"1")
    folder.remove(".a.json.x.claim")
    assert folder.create("a.json", b"1")


def test_an_object_store_needs_obstore(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    system = fs.S3FileSystem(region="us-east-1", access_key="a", secret_key="b", endpoint_override="127.0.0.1:9")
    with pytest.raises(ImportError, match=r"pip install 'kernelcoreset\[cloud\]'"):
        Folder("bucket/store", system).create("a", b"1")
