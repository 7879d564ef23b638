"""Arrow arrays to NumPy and back: as pyarrow does it, without the pandas that it imports."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import kernelcoreset
from kernelcoreset.features.arrays import to_arrow, to_floats, to_numbers, view

ROOT = Path(kernelcoreset.__file__).parents[1]

ARRAYS = {
    "floats": pa.array([1.5, 2.5, -0.0, float("nan")]),
    "singles": pa.array([1.5, 2.5], pa.float32()),
    "longs": pa.array([2**62, -1, 0]),
    "bytes": pa.array([0, 255], pa.uint8()),
    "part": pa.array([1, 2, 3, 4], pa.int16())[1:3],
    "none": pa.array([], pa.float64()),
    "missing": pa.array([1.0, None, 3.0]),
    "missing longs": pa.array([1, None, 3]),
    "texts": pa.array(["a", None]),
    "truths": pa.array([True, False]),
}

# What tasks do that build a leaf and label, with columns and with an array column; prints whether pandas was imported.
TASKS = """
import sys
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType
import kernelcoreset as kc
from kernelcoreset.features.arrays import to_arrow
from kernelcoreset.coresets.recipe import Recipe
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.columns import BatchReader, Layout
from kernelcoreset.spark.leaves import LeafSettings, collect_leaves, leaf_row, leaf_schema

n, kernel = 500, kc.Gaussian(sigma=1.0)
points = np.random.default_rng(0).normal(size=(n, 2))
columns = [to_arrow(column.copy()) for column in points.T]
lists = pa.ListArray.from_arrays(to_arrow(np.arange(0, 2 * n + 1, 2, dtype=np.int32)), to_arrow(points.ravel()))
ids = to_arrow(np.arange(n))
for features, arrays in ((("x", "y"), columns), (("p",), [lists])):
    layout = Layout(features, len(features) == 1, id_col="id", dimension=2)
    settings = LeafSettings(Recipe(3, kernel, 100), 100, layout)
    row = leaf_row(0, [[*arrays, ids]], settings, to_arrow_schema(leaf_schema(LongType())))
    (coreset,) = collect_leaves(pa.Table.from_batches([row]), {}).coresets
    model = KernelKMeansModel.fit_coreset(coreset, 3, kernel, n_init=1)
    rows, _, _ = BatchReader(layout).read_rows([*arrays, ids])
    found = model.centers.label_rows(rows)
    out = pa.RecordBatch.from_arrays([to_arrow(found.labels), to_arrow(found.distances)], names=["label", "distance"])
    assert out.num_rows == n
    print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("name", ARRAYS)
def test_a_view_is_what_pyarrow_returns(name):
    expected = ARRAYS[name].to_numpy(zero_copy_only=False)
    found = view(ARRAYS[name])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_numbers_are_not_copied():
    array = pa.array(np.arange(8.0))
    assert view(array[2:]).ctypes.data == array.buffers()[1].address + 16
    assert not view(array).flags.writeable
    assert to_numbers(array.cast(pa.float32())).dtype == np.float32
    values = np.arange(8.0)
    assert to_arrow(values).buffers()[1].address == values.ctypes.data


@pytest.mark.parametrize("kind", [None, pa.int32(), pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize(
    "values", [np.arange(5), np.arange(10.0)[::2], np.zeros(0, dtype=np.float32)], ids=["a", "b", "c"]
)
def test_an_arrow_array_is_what_pyarrow_makes(values, kind):
    found = to_arrow(values, kind)
    found.validate(full=True)
    assert found.equals(pa.array(values, kind))


def test_other_values_are_left_to_pyarrow():
    assert to_arrow(np.array(["a", "b"])).to_pylist() == ["a", "b"]
    assert to_arrow(np.array([True, False])).to_pylist() == [True, False]


def test_missing_values_are_nan():
    np.testing.assert_array_equal(to_floats(pa.array([1, None, 2**53 + 1])), [1.0, np.nan, np.nan])


def test_tasks_need_no_pandas():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TASKS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "False"]
