"""Coresets kept by key: what is there, what a change does, and what cannot go in."""

import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.jobs import store_model
from kernelcoreset.store import key_tree, manifest, nodes
from tests.cases import some_points
from tests.stores import DAYS, KERNEL, day, filled, new_store, same

REDUCE = nodes.reduce_union


@pytest.fixture(autouse=True)
def narrow_tree(monkeypatch):
    """A tree of several levels over a few keys."""
    monkeypatch.setattr(key_tree, "MOST_LEAVES", 3)


def test_what_is_there(tmp_path):
    store = new_store(tmp_path / "store", z=1.5, seed=7)
    store.add("b", day(DAYS[0]), weights=np.full(100, 2.0))
    store.add("a", day(DAYS[1]), ids=None)
    again = kc.CoresetStore.open(tmp_path / "store")
    for one in (store, again):
        assert (one.k, one.kernel, one.size, one.z, one.leaf_size, one.seed) == (3, KERNEL, 20, 1.5, 40, 7)
        assert one.version == 2
        assert one.keys() == ["a", "b"]
        assert one.path == str(tmp_path / "store")
        assert one.state == {}
        points = len(one.leaf("b"))  # a point that is drawn twice is kept once
        assert 30 < points <= 40
        assert one.info("b") == {"rows": 100, "points": points, "weight": pytest.approx(200, rel=0.2), "tag": None}
        assert "version 2, 2 keys" in repr(one)
    same(store.result(), again.result())
    assert len(store.leaf("a")) <= 40
    assert store.leaf_seed("a") == again.leaf_seed("a") != store.leaf_seed("b")


def test_default_leaf_size_and_leaves_are_those_of_a_tree(tmp_path):
    store = kc.CoresetStore.create(tmp_path / "store", k=3, kernel=KERNEL, size=10)
    assert store.leaf_size == 40
    store.add("a", day(DAYS[0]))
    tree = kc.CoresetTree(3, KERNEL, 10, leaf_size=40, seed=store.leaf_seed("a"))
    tree.add(day(DAYS[0]))
    np.testing.assert_array_equal(store.leaf("a").points, tree.result(40, refine=False).points)


def test_a_store_with_a_history_equals_a_fresh_one(tmp_path):
    old = filled(tmp_path / "old", ["2024-01-09", "2024-01-03", "2024-01-01", "2024-01-12"])
    old.result()
    old.replace("2024-01-03", day("2024-01-05"))
    old.expire("2024-01-01")
    for key in ("2024-01-11", "2024-01-02", "2024-01-07"):
        old.add(key, day(key))
        old.result()
    old.replace("2024-01-03", day("2024-01-03"))
    fresh = filled(
        tmp_path / "fresh", ["2024-01-02", "2024-01-03", "2024-01-07", "2024-01-09", "2024-01-11", "2024-01-12"]
    )
    same(old.result(), fresh.result())
    names = {"old": old._tree.files(), "fresh": fresh._tree.files()}
    assert set(names["old"]) == set(names["fresh"])


def test_one_changed_key_merges_its_path_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(key_tree, "MOST_LEAVES", 8)
    store = new_store(tmp_path / "store", size=5, leaf_size=5)
    store.change({f"day {i}": kc.Coreset(some_points(5, 2, seed=i), np.ones(5)) for i in range(400)})
    merges = []
    monkeypatch.setattr("kernelcoreset.store.nodes.reduce_union", lambda *a, **o: merges.append(o) or REDUCE(*a, **o))
    store.result()
    assert len(merges) > 200 / 8
    merges.clear()
    store.result()
    assert not merges
    for change in (
        lambda: store.add("new", some_points(9, 2)),
        lambda: store.replace("day 7", some_points(9, 2)),
        lambda: store.expire("day 8"),
    ):
        change()
        merges.clear()
        store.result()
        assert 2 <= len(merges) <= 5  # a path of log_16(400 / 8) and some, and the result


def test_sliding_window(tmp_path):
    store = filled(tmp_path / "store")
    fresh = filled(tmp_path / "fresh", DAYS[3:9])
    same(store.result(keys=DAYS[3:9]), fresh.result())
    same(store.result(keys=reversed(DAYS[3:9])), fresh.result())


def test_a_smaller_result(tmp_path):
    store = filled(tmp_path / "store")
    assert len(store.result(10)) <= 10
    assert 20 < len(store.result(40)) <= 40
    with pytest.raises(kc.SettingError, match=r"`size` must be at most the store's leaf_size \(40\); got 41"):
        store.result(41)
    with pytest.raises(kc.SettingError, match=r"`size` must be at least k \(3\); got 2"):
        store.result(2)


def test_exponential_decay_keeps_the_cached_nodes(tmp_path, monkeypatch):
    store = filled(tmp_path / "store", size=2_000, leaf_size=2_000)  # all points are kept: weights are exact
    decayed = store.result(weight_of=lambda key: 0.9 ** (12 - int(key[-2:])))
    expected = sum(100 * 0.9 ** (12 - i) for i in range(1, 13))
    assert decayed.weights.sum() == pytest.approx(expected, rel=1e-7)
    made = []
    monkeypatch.setattr("kernelcoreset.store.nodes.reduce_union", lambda *a, **o: made.append(o) or REDUCE(*a, **o))
    later = store.result(weight_of=lambda key: 0.9 ** (13 - int(key[-2:])))
    assert not made
    np.testing.assert_allclose(later.weights, 0.9 * decayed.weights, rtol=1e-7)
    without = store.result(weight_of=lambda key: float(key > DAYS[5]))
    assert without.weights.sum() == 600
    with pytest.raises(kc.SettingError, match="`weight_of` must give a finite number of at least 0; got nan"):
        store.result(weight_of=lambda key: float("nan"))
    with pytest.raises(kc.SettingError, match="at least 0; got 'x' for '2024-01-01'"):
        store.result(weight_of=lambda key: "x")
    with pytest.raises(kc.DataError, match="at least one row of positive weight"):
        store.result(weight_of=lambda key: 0)


def test_many_keys_and_the_state_in_one_change(tmp_path):
    store = filled(tmp_path / "store", DAYS[:3])
    leaf = kc.build_coreset(day(DAYS[3]), 3, KERNEL, 40, seed=store.leaf_seed(DAYS[3]))
    store.change(
        put={
            DAYS[3]: kc.LeafUpdate(leaf, rows=100, tag={"modified": 12.5}),
            DAYS[0]: leaf,
            "none": kc.LeafUpdate(None),
        },
        expire=[DAYS[1]],
        state={"batch": 7},
        expected_version=3,
    )
    again = kc.CoresetStore.open(tmp_path / "store")
    assert again.version == store.version == 4
    assert again.keys() == [DAYS[0], DAYS[2], DAYS[3], "none"]
    assert again.info(DAYS[3]) == {
        "rows": 100,
        "points": len(leaf),
        "weight": float(leaf.weights.sum()),
        "tag": {"modified": 12.5},
    }
    assert again.info(DAYS[0])["rows"] is None
    assert again.state == {"batch": 7}
    again.state["batch"] = 8
    assert again.state == {"batch": 7}
    assert store.expire_where(lambda key: key > "2024") == [DAYS[0], DAYS[2], DAYS[3], "none"]
    assert store.state == {"batch": 7}


def test_a_change_of_nothing_makes_no_version(tmp_path):
    store = filled(tmp_path / "store", DAYS[:2])
    store.change()
    store.change(state={})
    store.replace(DAYS[0], day(DAYS[0]))
    assert store.expire_where(lambda key: False) == []
    assert store.version == 2


def test_an_empty_day_is_kept_and_adds_nothing(tmp_path):
    store = filled(tmp_path / "store", DAYS[:2])
    before = store.result()
    store.add("empty", np.empty((0, 2)))
    store.add("weightless", day(DAYS[3]), weights=np.zeros(100))
    assert store.info("empty") == {"rows": 0, "points": 0, "weight": 0.0, "tag": None}
    assert store.info("weightless") == {"rows": 100, "points": 0, "weight": 0.0, "tag": None}
    assert store.leaf("empty") is None
    same(store.result(), before)
    only = new_store(tmp_path / "only")
    only.add("empty", np.empty((0, 2)))
    with pytest.raises(kc.DataError, match="at least one row of positive weight; the store at"):
        only.result()
    with pytest.raises(kc.DataError, match="positive weight"):
        new_store(tmp_path / "nothing").result()
    assert only.vacuum(older_than=0) == [manifest.manifest_name(0)]


def test_what_cannot_go_in_changes_nothing(tmp_path):
    store = filled(tmp_path / "store", DAYS[:2])
    files = sorted(tmp_path.rglob("*"))
    good = kc.Coreset(day(DAYS[2]), np.ones(100))
    for error, message, call in [
        (
            kc.SettingError,
            r"`key` must be new; '2024-01-01' already exists. Use replace",
            lambda: store.add(DAYS[0], [[1.0, 2.0]]),
        ),
        (
            kc.SettingError,
            "has no key '2024-01-7'. Did you mean '2024-01-0",
            lambda: store.replace("2024-01-7", [[1.0, 2.0]]),
        ),
        (kc.SettingError, "has no key 'x'. It has 2 keys", lambda: store.expire("x")),
        (kc.SettingError, "has no key 'x'", lambda: store.info("x")),
        (kc.SettingError, "has no key 'x'", lambda: store.result(keys=["x"])),
        (kc.SettingError, "`key` must be a string that is not empty; got 7", lambda: store.add(7, [[1.0, 2.0]])),
        (kc.SettingError, "`key` must be a string that is not empty; got ''", lambda: store.change({"": good})),
        (
            kc.DataError,
            "`points` must have 2 columns like the store's; got 3",
            lambda: store.add("x", day(DAYS[2], d=3)),
        ),
        (kc.DataError, "`points` must be finite", lambda: store.add("x", [[1.0, np.nan]])),
        (kc.DataError, "`weights` must have shape", lambda: store.add("x", [[1.0, 2.0]], [1.0, 2.0])),
        (kc.DataError, "must have 2 columns", lambda: store.change({"x": kc.Coreset([[1.0]], [1.0])})),
        (
            kc.SettingError,
            "A merge needs one kernel; got Gaussian",
            lambda: store.change({"x": foreign(kernel=kc.Linear())}),
        ),
        (kc.SettingError, "A merge needs one z", lambda: store.change({"x": foreign(z=1.0)})),
        (kc.SettingError, "built for k=2 works for that many", lambda: store.change({"x": foreign(k=2)})),
        (kc.SettingError, "takes a Coreset or a LeafUpdate per key; got list for 'x'", lambda: store.change({"x": []})),
        (kc.SettingError, "`rows` must be at least 0", lambda: store.change({"x": kc.LeafUpdate(good, rows=-1)})),
        (
            kc.SettingError,
            "`tag` must be plain data that JSON can hold",
            lambda: store.change({"x": kc.LeafUpdate(good, tag={1j})}),
        ),
        (kc.SettingError, "`state` must be plain data", lambda: store.change(state={"x": float("nan")})),
        (
            kc.SettingError,
            r"either put or expired; got both for \['2024-01-01'\]",
            lambda: store.change({DAYS[0]: good}, [DAYS[0]]),
        ),
    ]:
        with pytest.raises(error, match=message):
            call()
        assert sorted(tmp_path.rglob("*")) == files
        assert kc.CoresetStore.open(tmp_path / "store").version == 2


def foreign(k=3, kernel=KERNEL, z=2.0):
    return kc.build_coreset(day(DAYS[2]), k, kernel, 40, z=z)


def test_leaves_of_one_change_must_fit_each_other(tmp_path):
    store = new_store(tmp_path / "store")
    with pytest.raises(kc.DataError, match="`points` must have 1 columns like those of 'a' in the store; got 2"):
        store.change({"a": kc.Coreset([[1.0]], [1.0]), "b": kc.Coreset([[1.0, 2.0]], [1.0])})
    with pytest.raises(
        kc.DataError, match="ids of the same kind, or all have none; those of 'b' are texts, those of 'a' are whole"
    ):
        store.change({"a": kc.Coreset([[1.0]], [1.0], [1]), "b": kc.Coreset([[1.0]], [1.0], ["x"])})
    assert store.version == 0


def test_ids_are_carried_to_the_result(tmp_path):
    store = new_store(tmp_path / "store")
    rows = {key: day(key) for key in DAYS}
    for i, key in enumerate(DAYS):
        store.add(key, rows[key], ids=np.arange(100) + 1000 * i)
    result = store.result()
    for point, name in zip(result.points, result.ids, strict=True):
        np.testing.assert_array_equal(point, rows[DAYS[name // 1000]][name % 1000])


def test_create_and_open(tmp_path):
    path = tmp_path / "store"
    with pytest.raises(FileNotFoundError, match=r"There is no store at .*store. Make one with CoresetStore.create"):
        kc.CoresetStore.open(path)
    first = kc.CoresetStore.open_or_create(path, 3, KERNEL, 20)
    with pytest.raises(FileExistsError, match=r"A store already exists at .*store\."):
        new_store(path)
    assert kc.CoresetStore.open_or_create(path, 3, KERNEL, 20, leaf_size=80, seed=0).version == first.version == 0
    for other in ({"kernel": kc.Linear()}, {"k": 4}, {"size": 30}, {"z": 1.0}, {"leaf_size": 90}, {"seed": 1}):
        with pytest.raises(
            kc.SettingError, match=f"was made with {next(iter(other))}=.*; got .*new store at another path"
        ):
            kc.CoresetStore.open_or_create(path, **{"k": 3, "kernel": KERNEL, "size": 20, "leaf_size": 80} | other)
    for wrong, message in (
        ({"size": 2}, r"`size` must be at least k \(3\)"),
        ({"leaf_size": 5}, "`leaf_size` must be at least 20"),
    ):
        with pytest.raises(kc.SettingError, match=message):
            new_store(tmp_path / "other", **wrong)
    with pytest.raises(kc.SettingError, match="`kernel` must be a kernel object"):
        kc.CoresetStore.create(tmp_path / "other", 3, "gaussian", 20)
    with pytest.raises(kc.KernelError, match="import"):
        kc.CoresetStore.create(tmp_path / "other", 3, kc.UserKernel(lambda x, y: x @ y), 20)
    assert not (tmp_path / "other").exists()
    for store_path in path.iterdir():
        store_path.unlink()
    with pytest.raises(FileNotFoundError, match="is gone"):
        first.change(state={"a": 1})


def test_a_folder_of_the_user_does_not_become_a_store(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").touch()
    (tmp_path / "file").write_text("mine")
    for name, reason in {"photos": r"it holds one\.jpg, but no manifest", "file": "it is a file"}.items():
        with pytest.raises(FileExistsError, match=f"{name} exists and is not a store: {reason}. Remove it yourself"):
            new_store(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "one.jpg", "photos"]


def test_old_keys_are_put_together_in_one_change(tmp_path):
    store = filled(tmp_path / "store")
    before = store.result()
    old = DAYS[:9]
    store.change(put={"2024-01": store.result(40, keys=old)}, expire=old)
    assert store.keys() == ["2024-01", *DAYS[9:]]
    assert store.result().weights.sum() == pytest.approx(before.weights.sum(), rel=0.2)


def test_the_state_of_another_program_is_no_state_of_a_job(tmp_path):
    store = new_store(tmp_path / "store")
    store.change(state={"job": "update", "run": 3})
    assert store_model.JobState.of(store).run == 3
    store.change(state={"job": "update", "colour": "red"})
    with pytest.raises(
        kc.FormatError, match=r"state of the store at .* has unknown fields: colour. It is not the store"
    ):
        store_model.JobState.of(store)
    store.change(state={"run": "three"})
    with pytest.raises(kc.FormatError, match=r"state of the store at .* is damaged: `run` must be a whole number"):
        store_model.JobState.of(store)


def test_every_set_of_labels_has_a_number_of_its_own(monkeypatch):
    first = store_model.JobState().stamped()
    monkeypatch.setattr(store_model.time, "time_ns", lambda: 0)  # a clock that was set back
    second = first.stamped()
    assert second.stamp == first.stamp + 1
    assert second.writer == first.writer
    assert store_model.JobState().stamped().writer != first.writer
