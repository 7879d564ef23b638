"""The files of a store: two writers, what is removed and what is spared, damage, and other file systems."""

import os
import time

import numpy as np
import pytest
from pyarrow import fs

import kernelcoreset as kc
from kernelcoreset.store import commit, key_tree, manifest, nodes
from tests.stores import DAYS, day, filled, new_store, same


@pytest.fixture(autouse=True)
def narrow_tree(monkeypatch):
    """A tree of several levels over a few keys."""
    monkeypatch.setattr(key_tree, "MOST_LEAVES", 3)


def test_cached_nodes_are_only_a_cache(tmp_path):
    store = filled(tmp_path / "store")
    before = store.result()
    nodes = sorted((tmp_path / "store" / "nodes").iterdir())
    assert len(nodes) > 3
    for node in nodes[::3]:
        node.unlink()
    for node in nodes[1::3]:
        node.write_bytes(node.read_bytes()[:-20])
    for node in nodes[2::3]:
        content = bytearray(node.read_bytes())
        content[100] ^= 1  # in the pages of the first column
        node.write_bytes(content)
    same(kc.CoresetStore.open(tmp_path / "store").result(), before)
    assert sorted((tmp_path / "store" / "nodes").iterdir()) == nodes
    same(store.result(), before)


def test_two_objects_of_one_store(tmp_path):
    first = filled(tmp_path / "store", DAYS[:2])
    second = kc.CoresetStore.open(tmp_path / "store")
    first.add(DAYS[2], day(DAYS[2]))
    second.add(DAYS[3], day(DAYS[3]))  # another key: no obstacle
    assert second.keys() == DAYS[:4]
    assert second.version == 4
    with pytest.raises(
        kc.ConflictError, match=r"Another writer changed 2024-01-04 in the store at .*now version 4, opened at 3"
    ):
        first.add(DAYS[3], day(DAYS[3]))
    with pytest.raises(kc.ConflictError, match="is at version 4; the change is for version 3"):
        first.change(expire=[DAYS[0]], expected_version=3)
    assert first.version == 3
    second.change(state={"batch": 1})
    with pytest.raises(kc.ConflictError, match="Another writer changed the state"):
        first.change(state={"batch": 1})
    first.expire(DAYS[0])
    assert first.version == 6
    assert first.state == {"batch": 1}


def test_a_change_that_cannot_win_gives_up(tmp_path, monkeypatch):
    store = filled(tmp_path / "store", DAYS[:1])
    monkeypatch.setattr("kernelcoreset.store.commit.commit", lambda *_: False)
    with pytest.raises(
        kc.ConflictError, match=r"Other writers keep changing the store at .*: 50 attempts to commit failed"
    ):
        store.expire(DAYS[0])


def test_a_writer_that_was_paused_for_many_versions_gets_a_conflict(tmp_path, monkeypatch):
    store = filled(tmp_path / "store", DAYS[:1])
    create = store._folder.create

    def late(name, content):
        other = kc.CoresetStore.open(tmp_path / "store")
        for i in range(commit.KEPT + 1):
            other.change(state={"batch": i})
        return create(name, content)

    monkeypatch.setattr(store._folder, "create", late)
    with pytest.raises(kc.ConflictError, match="went from version 1 to 22 during one change"):
        store.expire(DAYS[0])
    assert kc.CoresetStore.open(tmp_path / "store").keys() == DAYS[:1]


def test_old_manifests_do_not_pile_up(tmp_path):
    store = new_store(tmp_path / "store")
    for i in range(30):
        store.change(state={"batch": i})
    assert list(manifest.versions(store._folder)) == list(range(11, 31))


def test_vacuum_spares_what_is_in_use(tmp_path):
    store = filled(tmp_path / "store")
    store.result()
    reader = kc.CoresetStore.open(tmp_path / "store")
    store.expire(DAYS[0])
    store.replace(DAYS[1], day(DAYS[0]))
    expected = store.result()
    (tmp_path / "store" / "leaves" / ".x.parquet.tmp").write_bytes(b"half")
    (tmp_path / "store" / "readme.txt").write_bytes(b"not ours")
    assert store.vacuum() == []
    reader.result()
    age_all(tmp_path / "store", 3600)
    store.change(state={"batch": 1})
    gone = store.vacuum(older_than=1800)
    # The version before was the newest until just now.
    assert gone == [*map(manifest.manifest_name, range(13)), *gone[13:]]
    assert "leaves/.x.parquet.tmp" in gone
    assert not any(name.startswith("leaves/2024-01-03") for name in gone)
    assert sum(name.startswith("leaves/2024") for name in gone) == 1 + 1
    same(store.result(), expected)
    assert (tmp_path / "store" / "readme.txt").exists()
    with pytest.raises(kc.ConflictError, match=r"belonged to version 12 .* the store is at version 15. Open it again"):
        reader.result(15)
    store.vacuum(older_than=0)
    assert store.vacuum(older_than=0) == []
    assert len(list((tmp_path / "store" / "leaves").iterdir())) == 11
    same(kc.CoresetStore.open(tmp_path / "store").result(), expected)
    with pytest.raises(kc.SettingError, match="`older_than` must be a finite number of at least 0; got -1"):
        store.vacuum(older_than=-1)


def age_all(folder, seconds):
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - seconds,) * 2)


def test_a_missing_or_damaged_leaf_names_its_key_and_the_remedy(tmp_path):
    store = filled(tmp_path / "store", DAYS[:3])
    path = tmp_path / "store" / next(name for name in store._tree.files() if DAYS[1] in name)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(
        kc.FormatError, match=r"leaf of '2024-01-02' is damaged or truncated.*replace\('2024-01-02', points\)"
    ):
        store.result()
    path.unlink()
    with pytest.raises(kc.FormatError, match=r"leaf of '2024-01-02' is missing: .*expire\('2024-01-02'\)"):
        store.result()
    store.replace(DAYS[1], day(DAYS[1]))
    assert path.read_bytes() == whole
    store.result()


def test_a_damaged_or_newer_manifest(tmp_path):
    filled(tmp_path / "store", DAYS[:2])
    path = tmp_path / "store" / manifest.manifest_name(2)
    content = path.read_text()
    for damaged in (content[:-10], "", "[]", content.replace("2024-01-02", "2024-01-03"), content + " "):
        path.write_text(damaged)
        with pytest.raises(kc.FormatError, match=r"manifest-0000000002.json is damaged.*go back to the version before"):
            kc.CoresetStore.open(tmp_path / "store")
    path.write_text(content.replace('"format": 1', '"format": 2'))
    with pytest.raises(kc.FormatError, match=r"has format 2; this version reads up to 1. Upgrade kernelcoreset"):
        kc.CoresetStore.open(tmp_path / "store")
    path.unlink()
    assert kc.CoresetStore.open(tmp_path / "store").keys() == DAYS[:1]


def test_any_file_system_pyarrow_has(tmp_path):
    local = filled(tmp_path / "local")
    by_uri = filled((tmp_path / "uri").as_uri())
    # Not known to be local, as an object store is not: nothing is linked, renamed or synced.
    (tmp_path / "remote").mkdir()
    remote = fs.SubTreeFileSystem(str(tmp_path / "remote"), fs.LocalFileSystem())
    by_system = filled("store", filesystem=remote)
    same(local.result(), by_uri.result())
    same(local.result(), by_system.result())
    again = kc.CoresetStore.open("store", filesystem=remote)
    with pytest.raises(FileExistsError, match="already"):
        new_store("store", filesystem=remote)
    again.expire(DAYS[0])
    by_system.expire(DAYS[1])
    assert by_system.keys() == DAYS[2:]
    assert any(name.startswith("leaves/2024-01-01") for name in by_system.vacuum(older_than=0))


def test_a_disk_without_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    store = filled(tmp_path / "store", DAYS[:2])
    assert kc.CoresetStore.open(tmp_path / "store").keys() == store.keys() == DAYS[:2]
    with pytest.raises(FileExistsError, match="already"):
        new_store(tmp_path / "store")
    assert not list((tmp_path / "store").glob(".*"))


def test_the_cache_keeps_what_was_used_last_within_bounds():
    cache, made = nodes.CoresetCache(most_numbers=100), []

    def read(name, rows):
        def make():
            made.append(name)
            return kc.Coreset(np.ones((rows, 2)), np.ones(rows))

        return cache.get(name, make)

    for name in "abcda":  # 40 numbers each: c drives a out, d drives b out, a drives c out
        read(name, 20)
    assert made == ["a", "b", "c", "d", "a"]
    read("d", 20)
    assert len(made) == 5
    assert len(read("large", 500)) == 500
    read("large", 500)
    read("d", 20)
    assert made[5:] == ["large", "d"]
