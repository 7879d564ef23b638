"""The coreset object: immutable, checked, and unchanged by writing and reading Arrow and Parquet."""

import dataclasses
import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

from kernelcoreset import Coreset, DataError, FormatError, Gaussian, UserKernel, build_coreset
from kernelcoreset.coresets.recipe import plain_kernel
from tests.cases import some_points
from tests.user_kernels import rational


def example(ids=None, n=3):
    return Coreset(some_points(n, 2), np.arange(1.0, n + 1), ids, {"k": 2, "z": 2.0})


def assert_same(found, expected):
    assert_array_equal(found.points, expected.points)
    assert_array_equal(found.weights, expected.weights)
    assert (found.ids is None) == (expected.ids is None)
    if expected.ids is not None:
        assert_array_equal(found.ids, expected.ids)
        assert found.ids.dtype == expected.ids.dtype
    assert dict(found.settings) == dict(expected.settings)


# --- the object ------------------------------------------------------------------------------------------------------


def test_a_coreset_cannot_be_changed():
    coreset = example(ids=[1, 2, 3])
    with pytest.raises(dataclasses.FrozenInstanceError):
        coreset.weights = None
    for array in (coreset.points, coreset.weights, coreset.ids):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(TypeError, match="does not support item assignment"):
        coreset.settings["k"] = 3


def test_a_coreset_keeps_its_own_copy():
    points, weights, ids = np.ones((2, 2)), np.ones(2), np.array([1, 2])
    coreset = Coreset(points, weights, ids)
    points[:], weights[:], ids[:] = 7, 7, 7
    assert_array_equal(coreset.points, np.ones((2, 2)))
    assert_array_equal(coreset.weights, np.ones(2))
    assert_array_equal(coreset.ids, [1, 2])


def test_weights_of_a_coreset_are_above_zero():
    with pytest.raises(DataError, match="`weights` of a coreset must be above 0; drop the points of weight 0"):
        Coreset([[1.0], [2.0]], [1.0, 0.0])


@pytest.mark.parametrize("weights", [[1.0, -1.0], [1.0, np.nan], [1.0], [0.0, 0.0]])
def test_weights_of_a_coreset_are_checked(weights):
    with pytest.raises(DataError, match="`weights` must"):
        Coreset([[1.0], [2.0]], weights)


def test_points_and_ids_of_a_coreset_are_checked():
    with pytest.raises(DataError, match="`points` must be finite"):
        Coreset([[np.nan]], [1.0])
    with pytest.raises(DataError, match="`ids` must have shape"):
        Coreset([[1.0]], [1.0], [1, 2])


def test_an_empty_coreset_is_a_coreset():
    coreset = Coreset(np.empty((0, 2)), [])
    assert len(coreset) == 0
    assert "0 points in 2 dimensions" in repr(coreset)


def test_the_repr_says_what_it_is():
    assert repr(example()) == "Coreset(3 points in 2 dimensions, total weight 6)"
    assert repr(example(ids=[1, 2, 3])) == "Coreset(3 points in 2 dimensions with ids, total weight 6)"


def test_a_coreset_survives_pickle():
    coreset = example(ids=["a", "b", "c"])
    assert_same(pickle.loads(pickle.dumps(coreset)), coreset)


# --- Arrow and Parquet -----------------------------------------------------------------------------------------------

IDS = {
    "none": None,
    "integers": np.array([3, 1, 2**60]),
    "small integers": np.array([3, 1, 2], dtype=np.int16),
    "strings": np.array(["x", "", "äß"]),
    "bytes": np.array([b"x", b"yz", b"w"]),
    "times": np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[us]"),
}


@pytest.mark.parametrize("kind", IDS)
def test_a_coreset_survives_arrow_and_parquet(kind, tmp_path):
    coreset = example(ids=IDS[kind])
    assert_same(Coreset.from_arrow(coreset.to_arrow()), coreset)
    coreset.write_parquet(tmp_path / "coreset.parquet")
    assert_same(Coreset.read_parquet(tmp_path / "coreset.parquet"), coreset)
    assert_same(Coreset.read_parquet(str(tmp_path / "coreset.parquet")), coreset)


def test_only_a_coreset_is_replaced(tmp_path):
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "rows.parquet")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "folder").mkdir()
    reasons = {
        "rows.parquet": "a Parquet file without the metadata of a coreset",
        "notes.txt": "not a whole Parquet file",
        "folder": "a folder",
    }
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for name, reason in reasons.items():
        with pytest.raises(FileExistsError, match=f"{name} exists and is not a coreset: it is {reason}. Remove it"):
            example().write_parquet(tmp_path / name)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    example().write_parquet(tmp_path / "own.parquet")
    other = example(ids=IDS["strings"])
    other.write_parquet(tmp_path / "own.parquet")
    assert_same(Coreset.read_parquet(tmp_path / "own.parquet"), other)


@pytest.mark.parametrize("kernel", [Gaussian(2.0), UserKernel(rational)], ids=repr)
def test_settings_of_a_built_coreset_survive_parquet(kernel, tmp_path):
    coreset = build_coreset(some_points(50, 2), k=2, kernel=kernel, size=10, ids=np.arange(50), seed=3)
    coreset.write_parquet(tmp_path / "coreset.parquet")
    found = Coreset.read_parquet(tmp_path / "coreset.parquet")
    assert_same(found, coreset)
    assert dict(found.settings) == {
        "k": 2, "z": 2.0, "kernel": kernel.to_dict(), "size": 10, "draw": "ordered", "seed": 3,
    }  # fmt: skip


def test_a_kernel_without_import_path_is_only_described():
    def inner(x, y):
        return x[0] * y[0]

    assert plain_kernel(UserKernel(inner)) == {"kernel": repr(UserKernel(inner))}


@pytest.mark.parametrize("ids", [None, np.array([], dtype=int), np.array([], dtype="U1")])
def test_an_empty_coreset_survives_arrow(ids):
    found = Coreset.from_arrow(Coreset(np.empty((0, 4)), [], ids).to_arrow())
    assert found.points.shape == (0, 4)
    assert (found.ids is None) == (ids is None)


def test_tables_in_pieces_are_read():
    table = example(ids=[1, 2, 3]).to_arrow()
    pieces = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert_same(Coreset.from_arrow(pieces), example(ids=[1, 2, 3]))


def test_a_foreign_table_is_refused():
    with pytest.raises(FormatError, match="not a coreset: its schema has no 'kernelcoreset' metadata"):
        Coreset.from_arrow(pa.table({"point": [[1.0]], "weight": [1.0]}))


def test_a_table_without_its_columns_is_refused():
    with pytest.raises(
        FormatError, match=r"needs the columns point and weight of a coreset; missing: \['weight'\], there: \['point'\]"
    ):
        Coreset.from_arrow(example().to_arrow().drop_columns(["weight"]))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("point", [[1.0, 2.0], None, [5.0, 6.0]]),
        ("point", [[1.0, 2.0], [3.0], [5.0, 6.0]]),
        ("point", [[1.0, 2.0], [3.0], [4.0, 5.0, 6.0]]),
        ("weight", [1.0, None, 2.0]),
    ],
)
def test_a_table_with_gaps_is_refused(column, values):
    table = example().to_arrow()
    damaged = table.set_column(table.column_names.index(column), column, pa.array(values))
    with pytest.raises(FormatError, match="in every row; some are missing"):
        Coreset.from_arrow(damaged)


@pytest.mark.parametrize("about", ["{", "[]", "{}", json.dumps({"format": 1, "dimension": 2})])
def test_damaged_metadata_is_refused(about):
    table = example().to_arrow().replace_schema_metadata({"kernelcoreset": about})
    with pytest.raises(FormatError, match=r"(metadata of )?This table is damaged: .* Restore it, or make it again"):
        Coreset.from_arrow(table)


def test_a_newer_format_is_refused():
    about = json.dumps({"format": 3, "dimension": 2, "settings": {}})
    with pytest.raises(FormatError, match=r"has format 3; this version reads up to 2. Upgrade kernelcoreset"):
        Coreset.from_arrow(example().to_arrow().replace_schema_metadata({"kernelcoreset": about}))


def test_a_damaged_file_is_refused(tmp_path):
    file = tmp_path / "coreset.parquet"
    example().write_parquet(file)
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 4] ^= 1
    file.write_bytes(flipped)
    with pytest.raises(FormatError, match=r"coreset.parquet is damaged: its digest is wrong. Restore it, or make it"):
        Coreset.read_parquet(file)
    # Whether half of a file still has its digest depends on the version of pyarrow that wrote it.
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(FormatError, match=r"coreset.parquet is .*damaged.* Restore it, or make it again"):
        Coreset.read_parquet(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Coreset.read_parquet(tmp_path / "nowhere.parquet")


def test_a_parquet_file_that_is_no_coreset_is_refused(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(FormatError, match="not a coreset"):
        Coreset.read_parquet(tmp_path / "other.parquet")
