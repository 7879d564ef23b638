"""Merge-and-reduce: the result does not depend on how rows are split into calls, and memory is bounded."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kernelcoreset import CoresetTree, DataError, Gaussian, Linear, SettingError, UserKernel
from kernelcoreset.coresets.reduce import Part
from tests.cases import read_only, some_points
from tests.user_kernels import rational


def small_tree(**changes):
    options = {"k": 2, "kernel": Gaussian(1.0), "size": 4, "leaf_size": 6, "chunk_size": 16, "fan_in": 3, "seed": 0}
    return CoresetTree(**(options | changes))


def added(points, cuts=(), weights=None, ids=None, **changes):
    """A tree to which the points were added in several calls, split at the given rows."""
    tree = small_tree(**changes)
    for rows in np.split(np.arange(len(points)), cuts):
        tree.add(
            points[rows], None if weights is None else weights[rows], None if ids is None else np.asarray(ids)[rows]
        )
    return tree


def assert_same_bytes(left, right):
    assert left.points.tobytes() == right.points.tobytes()
    assert left.weights.tobytes() == right.weights.tobytes()
    assert (left.ids is None) == (right.ids is None)
    if left.ids is not None:
        assert left.ids.tolist() == right.ids.tolist()


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [[1], [16], [15, 17], [100, 100, 101], list(range(1, 500))], ids=len)
def test_the_result_does_not_depend_on_the_cuts(cuts):
    points, weights = some_points(500, 2), np.random.default_rng(0).exponential(size=500)
    whole = added(points, weights=weights, ids=np.arange(500))
    cut = added(points, cuts, weights=weights, ids=np.arange(500))
    assert_same_bytes(whole.result(), cut.result())
    assert whole.n_rows == cut.n_rows == 500
    assert whole.n_reductions == cut.n_reductions


def test_the_same_rows_and_seed_give_the_same_bytes():
    points = some_points(500, 2)
    assert_same_bytes(added(points, seed=5).result(), added(points, seed=5).result())


def test_another_seed_gives_another_coreset():
    points = some_points(500, 2)
    assert added(points, seed=5).result().points.tobytes() != added(points, seed=6).result().points.tobytes()


def test_asking_changes_nothing():
    points = some_points(500, 2)
    asked, unasked = small_tree(), small_tree()
    for start in range(0, 500, 50):
        asked.add(points[start : start + 50])
        unasked.add(points[start : start + 50])
        assert_same_bytes(asked.result(), asked.result())
    assert_same_bytes(asked.result(), unasked.result())


@pytest.mark.parametrize("ids", [np.arange(1000, 1300), np.array([f"row {i}" for i in range(300)])], ids=["int", "str"])
def test_ids_follow_their_points(ids):
    points = some_points(300, 2)
    coreset = added(points, [7, 90, 91], ids=ids).result()
    row = {own: i for i, own in enumerate(ids.tolist())}
    assert_array_equal(coreset.points, points[[row[own] for own in coreset.ids.tolist()]])
    assert len(set(coreset.ids.tolist())) == len(coreset) <= 4


@pytest.mark.parametrize("n", [1, 3, 4])
def test_few_rows_are_the_result_themselves(n):
    points = some_points(n, 2)
    coreset = added(points, ids=list("abcd")[:n]).result()
    assert_array_equal(coreset.points, points)
    assert_array_equal(coreset.weights, np.ones(n))
    assert coreset.ids.tolist() == list("abcd")[:n]


def test_another_size_may_be_asked_for():
    tree = added(some_points(500, 2))
    assert len(tree.result(size=2)) <= 2 < len(tree.result(size=6)) <= 6


def test_every_kernel_and_z(kernel):
    coreset = added(some_points(100, 2), kernel=kernel, z=1.5).result()
    assert 0 < len(coreset) <= 4
    assert coreset.settings["z"] == 1.5


def test_the_inputs_are_not_changed_nor_kept():
    points, weights, ids = read_only(some_points(40, 2)), read_only(np.ones(40)), read_only(np.arange(40))
    tree = small_tree()
    tree.add(np.asfortranarray(points), weights, ids)
    own, own_ids = np.array(points), np.array(ids)
    other = small_tree()
    other.add(own, weights, own_ids)
    own[:], own_ids[:] = 99.0, -1  # the caller may use its arrays again
    assert_same_bytes(tree.result(), other.result())


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fan_in", [2, 3])
def test_the_number_of_nodes_is_bounded(fan_in, monkeypatch):
    # With three levels instead of eight the last one is reached soon, and merges into itself from then on.
    monkeypatch.setattr("kernelcoreset.coresets.tree._MOST_LEVELS", 3)
    tree = CoresetTree(k=1, kernel=Linear(), size=2, leaf_size=3, chunk_size=4, fan_in=fan_in)
    most = 0
    for points in np.split(some_points(4 * 128 + 2, 1), range(2, 4 * 128 + 2, 4)):
        tree.add(points)
        nodes = tree.nodes()
        most = max(most, len(nodes))
        assert all(len(node) <= 3 for node in nodes)
    assert most == 3 * (fan_in - 1) + 1  # no level is ever full, and some rows wait in the buffer
    assert tree.n_rows == 4 * 128 + 2


def test_the_last_part_is_the_result():
    points = some_points(500, 14).astype(np.float32)
    one, other = added(points, chunk_size=100, fan_in=2), added(points, chunk_size=100, fan_in=2)
    part, expected = one.last_part(), other.result()
    assert part.points.dtype == np.float32
    np.testing.assert_array_equal(part.points, expected.points)
    np.testing.assert_array_equal(part.weights, expected.weights)


def test_parts_are_merged_like_rows_that_are_few():
    points = some_points(90, 14).astype(np.float32)
    tree = CoresetTree(k=2, kernel=Gaussian(sigma=3.0), size=100, fan_in=2)
    for some in np.split(points, 3):
        tree.add_part(Part(some, np.ones(30)))
    np.testing.assert_array_equal(np.sort(tree.part().points, axis=0), np.sort(points, axis=0))


def test_no_row_is_forgotten():
    # Rows that can all be kept are all kept: nothing is lost between buffer, leaves and levels.
    points = some_points(200, 1)
    tree = added(points, ids=np.arange(200), leaf_size=200, size=200, chunk_size=7, fan_in=2)
    assert sorted(tree.result().ids.tolist()) == list(range(200))
    assert tree.result().weights.sum() == 200


# --- rows without weight ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 40])
def test_batches_without_rows_or_weight_are_fine(size):
    points, tree = some_points(40, 2), small_tree(size=size, leaf_size=max(size, 6))
    tree.add(np.empty((0, 2)), ids=np.arange(0))
    tree.add(points, np.zeros(40), ids=np.arange(40))
    tree.add(points, np.ones(40), ids=np.arange(40, 80))
    tree.add(points, np.zeros(40), ids=np.arange(80, 120))
    tree.add(np.empty((0, 2)), ids=np.arange(0))
    assert (tree.n_rows, tree.n_weighted) == (120, 40)
    coreset = tree.result()
    assert 0 < len(coreset) <= size
    assert set(coreset.ids.tolist()) <= set(range(40, 80))
    if size == 40:  # room for every row of positive weight, so each is kept as it is
        assert sorted(coreset.ids.tolist()) == list(range(40, 80))
        assert_array_equal(coreset.weights, np.ones(40))


def test_a_long_stretch_without_weight_is_fine():
    # Whole levels are empty then.
    tree = small_tree()
    tree.add(np.ones((16 * 20, 2)), np.zeros(16 * 20))
    tree.add([[3.0, 4.0]], [2.0])
    coreset = tree.result()
    assert_array_equal(coreset.points, [[3.0, 4.0]])
    assert_array_equal(coreset.weights, [2.0])


def test_rows_without_weight_are_never_drawn():
    points, weights = some_points(300, 2), np.where(np.arange(300) % 3 == 0, 1.0, 0.0)
    assert (added(points, weights=weights, ids=np.arange(300)).result().ids % 3 == 0).all()


@pytest.mark.parametrize("n", [0, 5, 100])
def test_a_tree_without_weight_has_no_result(n):
    tree = small_tree()
    tree.add(np.ones((n, 2)), np.zeros(n))
    with pytest.raises(DataError, match=r"needs at least one row of positive weight; none was added. Call `add` first"):
        tree.result()


def test_a_new_tree_has_no_result():
    with pytest.raises(DataError, match="none was added"):
        small_tree().result()


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0}, "`k` must be at least 1; got 0"),
        ({"size": 1}, r"`size` must be at least k \(2\); got 1. Ask for more coreset points or fewer clusters"),
        ({"leaf_size": 3}, "`leaf_size` must be at least 4; got 3. A node keeps at least `size`"),
        ({"leaf_size": 0}, "`leaf_size` must be at least 4; got 0"),
        ({"chunk_size": 0}, "`chunk_size` must be at least 1; got 0"),
        ({"fan_in": 1}, "`fan_in` must be at least 2; got 1"),
        ({"z": 0.5}, "`z` must be a finite number of at least 1; got 0.5"),
        ({"seed": -1}, "`seed` must be at least 0; got -1"),
        ({"kernel": "rbf"}, "`kernel` must be a kernel object .* A name has no width here: write Gaussian"),
    ],
)
def test_settings_are_checked(changes, message):
    with pytest.raises(SettingError, match=message):
        small_tree(**changes)


@pytest.mark.parametrize("size", [0, 1])
def test_the_size_asked_for_is_checked(size):
    with pytest.raises(SettingError, match="`size` must be at least"):
        added(some_points(10, 2)).result(size=size)


def test_another_dimension_is_refused():
    tree = added(some_points(10, 2))
    with pytest.raises(DataError, match="`points` must have 2 columns like the rows before; got 3"):
        tree.add(np.ones((2, 3)))


@pytest.mark.parametrize("first", [None, [0]])
def test_ids_come_always_or_never(first):
    tree = small_tree()
    tree.add([[1.0]], ids=first)
    with pytest.raises(DataError, match="`ids` must be given in every call of `add` or in none; this call differs"):
        tree.add([[1.0]], ids=[1] if first is None else None)


def test_a_refused_batch_leaves_the_tree_as_it_was():
    points = some_points(40, 2)
    tree, other = added(points), added(points)
    for bad in ({"points": [[np.nan, 1.0]]}, {"points": [[1.0, 1.0]], "weights": [-1.0]}, {"points": [[1.0]]}):
        with pytest.raises(DataError):
            tree.add(**bad)
    assert tree.n_rows == 40
    assert_same_bytes(tree.result(), other.result())


def test_a_user_kernel_goes_through_the_tree():
    coreset = added(some_points(100, 2), kernel=UserKernel(rational)).result()
    assert coreset.settings["kernel"] == UserKernel(rational).to_dict()
