"""A model as a function of SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.functions import pandas_udf

from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.kernels.machine_code import compile_alone
from kernelcoreset.spark.columns import BatchReader, Layout
from kernelcoreset.spark.labels import LabelSettings
from kernelcoreset.spark.tasks import lend_machine_code
from kernelcoreset.spectral.model import PointModel

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BUILT_IN = "org.apache.spark.sql.catalyst."
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_NAMES = (*_NUMBERS, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean)


def register(spark: SparkSession, name: str, model: Any) -> None:
    """Register a model as a function of SQL, which returns the cluster of a row; on classic Spark and Spark Connect.

    The function takes the features, in the order in which the model was fitted, or as one array of numbers. They are
    prepared as those of the fit were. A row that cannot be labelled (null, NaN, infinite, a whole number that float64
    would round, an array of another length) gives NULL. It lives as long as the session; registering the name again
    replaces it.

    Parameters
    ----------
    spark : SparkSession
    name : str
        Letters, digits and underscores; not the name of a function that Spark has.
    model : model
        A fitted model of `kernelcoreset` or `kernelcoreset.spark`.

    Examples
    --------
    >>> register(spark, "segment", model)  # doctest: +SKIP
    >>> spark.sql("SELECT segment(longitude, latitude) FROM places")  # doctest: +SKIP
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SettingError(f"`name` must be letters, digits and underscores, as in SQL; got {name!r}.")
    fitted = getattr(model, "localModel", model)
    if not isinstance(fitted, PointModel):
        raise SettingError(f"`model` must be a fitted model that labels points; got {type(model).__name__}.")
    if spark.catalog.functionExists(name) and str(spark.catalog.getFunction(name).className).startswith(_BUILT_IN):
        raise SettingError(f"`name`: Spark has a function {name}, which would no longer work. Choose another name.")
    settings = LabelSettings.of(fitted, _layout_of_fit(fitted, name))
    # Errors call the values by the name of the function. How they come, one by one or as an array, only tasks know.
    settings = replace(settings, layout=replace(settings.layout, features=(name,), is_array=True))
    lend_machine_code(spark, large=settings.is_large)
    spark.udf.register(name, _function(settings))


def _layout_of_fit(fitted: PointModel, name: str) -> Layout:
    preparation = fitted.preparation
    if preparation is None:
        return Layout((name,), is_array=True)
    return Layout(tuple(preparation.names), is_array=False, categorical=tuple(preparation.categorical))


def _function(settings: LabelSettings) -> Any:
    """The function as Spark calls it, with the columns of a batch."""
    if not hasattr(F, "arrow_udf"):  # pyspark 4.0. Its pandas turns whole numbers beside nulls into float64.

        def label_series(*columns: pd.Series) -> pd.Series:
            arrays = [pa.Array.from_pandas(column) for column in columns]
            return _labels(arrays, settings).to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get)

        return pandas_udf(label_series, "int")  # type: ignore[call-overload]

    def label_arrays(*columns: pa.Array) -> pa.Array:
        return _labels(columns, settings)

    return F.arrow_udf(label_arrays, "int")


def _labels(arrays: Sequence[pa.Array], settings: LabelSettings) -> pa.Array:
    """Return the cluster of every row; null for rows that cannot be labelled."""
    compile_alone()
    if any(pa.types.is_null(array.type) for array in arrays):  # nothing but NULL
        return pa.nulls(len(arrays[0]), pa.int32())
    rows, _, good = BatchReader(_layout(arrays, settings.layout)).read_rows(arrays)
    if good is None:
        good = np.ones(len(rows), dtype=bool)
    labels = np.zeros(len(rows), dtype=np.int32)
    if good.any():
        kept = rows[good]
        if settings.degrees is not None:
            kept = settings.degrees.lift(kept.T, None)[0].T
        labels[good] = settings.centers.label_rows(kept, margins=False).labels
    return pa.array(labels, mask=~good)


def _layout(arrays: Sequence[pa.Array], layout: Layout) -> Layout:
    """Return the layout of the columns that the function was called with, which only its tasks know."""
    name, d = layout.features[0], layout.length
    types = [array.type for array in arrays]
    is_array = len(types) == 1 and (pa.types.is_list(types[0]) or pa.types.is_large_list(types[0]))
    if not is_array and len(types) != d:
        raise DataError(f"{name} takes {d} numbers, or one array of {d}; got {len(types)} values.")
    names = () if layout.preparation is None else layout.preparation.categorical
    for place, kind in enumerate([types[0].value_type] if is_array else types):
        is_name = layout.preparation is not None and layout.preparation.names[place] in names
        if not any(is_kind(kind) for is_kind in (_NAMES if is_name else _NUMBERS)):
            raise DataError(f"{name} takes numbers, or an array of numbers; got {kind}. Cast it.")
    features = layout.features if is_array else tuple(f"{name} {i + 1}" for i in range(len(types)))
    return Layout(features, is_array, dimension=layout.dimension, preparation=layout.preparation)
