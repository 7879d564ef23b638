"""Features: scaled numbers, categories, logarithms and missing values, and what a look at them says."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sklearn
from sklearn.metrics import adjusted_rand_score

import kernelcoreset as kc
from kernelcoreset.features.look import look_at
from kernelcoreset.features.preparation import Preparation, preparation_of
from kernelcoreset.spectral.model import load_model
from tests import naive_features


def customers(n: int = 400, seed: int = 0, *, missing: bool = False) -> dict[str, list]:
    """Columns in the shape of the bank's customers: ages, amounts with a long tail, and jobs, one of them rare."""
    generator = np.random.default_rng(seed)
    jobs = ["clerk", "cook", "smith", "pilot"]
    table = {
        "age": generator.integers(18, 80, n).tolist(),
        "balance": (generator.normal(size=n) ** 3 * 900.0).tolist(),
        "job": [jobs[place] for place in generator.choice(4, n, p=[0.5, 0.3, 0.15, 0.05])],
        "married": generator.choice([True, False], n).tolist(),
    }
    if missing:
        for place, name in enumerate(table):
            table[name][place :: 7 + place] = [None] * len(table[name][place :: 7 + place])
    return table


WANTED = [
    {},
    {"scale": "robust", "log": ["balance"], "categorical": ["job", "married"]},
    {"scale": "none", "categorical": ["job", "married"], "most_categories": 2},
    {"impute": "median", "categorical": ["job", "married"], "log": ["balance"]},
    {"impute": "mean", "scale": "robust", "categorical": ["job", "married"]},
]


@pytest.mark.parametrize("wanted", WANTED)
def test_points_are_those_of_the_slow_twin(wanted):
    fitted, rows = customers(missing="impute" in wanted), customers(90, 1, missing="impute" in wanted)
    if not wanted:
        for table in (fitted, rows):
            del table["job"], table["married"]
    preparation = Preparation.fit(fitted, kc.Features(**wanted))
    texts = {True: "true", False: "false"}
    as_text = [
        {name: [texts.get(value, value) if name == "married" else value for value in table[name]] for name in table}
        for table in (fitted, rows)
    ]
    expected = naive_features.prepare(*as_text, wanted)
    np.testing.assert_allclose(preparation.transform(rows), expected, rtol=1e-12, atol=1e-12)
    again = Preparation.from_dict(json.loads(json.dumps(preparation.to_dict())))
    assert again == preparation
    for table in (pd.DataFrame(rows), pa.table(rows)):
        np.testing.assert_array_equal(again.transform(table), preparation.transform(rows))


def test_a_row_of_weight_n_counts_as_n_rows():
    table = customers(60, missing=True)
    weights = np.random.default_rng(3).integers(0, 4, 60)
    repeated = {
        name: [value for value, count in zip(values, weights, strict=True) for _ in range(count)]
        for name, values in table.items()
    }
    for scale in ("standard", "robust"):
        wanted = kc.Features(scale=scale, categorical=["job", "married"], impute="median")
        by_weights = Preparation.fit(table, wanted, weights).transform(table)
        np.testing.assert_allclose(
            by_weights, Preparation.fit(repeated, wanted).transform(table), rtol=1e-10, atol=1e-12
        )


def test_values_that_were_not_there_before():
    preparation = Preparation.fit(customers(), kc.Features(categorical=["job", "married"]))
    rows = customers(3)
    rows["job"] = ["diver", "cook", "clerk"]
    points = dict(zip(preparation.coordinates, preparation.transform(rows).T.tolist(), strict=True))
    assert points["job=other"] == [1.0, 0.0, 0.0]
    assert points["job=cook"] == [0.0, 1.0, 0.0]


def test_arrays_without_names_and_constant_columns():
    array = np.column_stack([np.arange(10.0), np.full(10, 7.1), np.tile([1.0, 2.0], 5)])
    preparation = Preparation.fit(array, kc.Features(categorical=[2]))
    assert preparation.coordinates == ["x0", "x1", "x2=1", "x2=2", "x2=other"]
    points = preparation.transform(array)
    np.testing.assert_allclose(points[:, 0], (np.arange(10) - 4.5) / np.arange(10).std())
    assert np.abs(points[:, 1]).max() < 1e-12
    np.testing.assert_array_equal(points[:, 2], np.tile([1.0, 0.0], 5))


def test_what_a_preparation_refuses():
    wanted = kc.Features(categorical=["job", "married"])
    preparation = Preparation.fit(customers(), wanted)
    with pytest.raises(kc.DataError, match=r"Some rows cannot be used .* by column: age: 58, balance: 50, job: 45"):
        preparation.transform(customers(missing=True))
    infinite = customers(5)
    infinite["balance"][2] = float("inf")
    imputing = Preparation.fit(customers(), kc.Features(categorical=["job", "married"], impute="mean"))
    with pytest.raises(kc.DataError, match="by column: balance: 1"):
        imputing.transform(infinite)
    rounded = {**customers(5), "age": pa.array([2**53 + 1, 2, 3, 4, 5])}
    with pytest.raises(kc.DataError, match="by column: age: 1"):
        imputing.transform(rounded)
    with pytest.raises(
        kc.SettingError, match=r"Column job must hold numbers; it holds string. Name it in features.cat"
    ):
        Preparation.fit(customers(), kc.Features(categorical=["married"]))
    with pytest.raises(kc.SettingError, match=r"`features.categorical`: there is no column `jobb`; did you mean `job`"):
        Preparation.fit(customers(), kc.Features(categorical=["jobb", "married", "job"]))
    with pytest.raises(kc.SettingError, match="there is no column `age`"):
        preparation.transform({"job": ["cook"]})
    with pytest.raises(kc.DataError, match="there is no row"):
        Preparation.fit(customers(0), wanted)
    with pytest.raises(kc.DataError, match="Column age has no number"):
        Preparation.fit({"age": [None, None]}, kc.Features())
    with pytest.raises(kc.DataError, match="Column age mixes types"):
        Preparation.fit({"age": [1, "a"]}, kc.Features())
    with pytest.raises(kc.DataError, match="equal lengths"):
        Preparation.fit({"age": [1], "year": [1, 2]}, kc.Features())
    with pytest.raises(kc.DataError, match="rows and columns; got an array of shape"):
        Preparation.fit([1.0, 2.0], kc.Features())


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"scale": "minmax"}, "`features.scale` must be one of 'standard', 'robust', 'none'"),
        ({"impute": "zero"}, "`features.impute` must be one of"),
        ({"categorical": "job"}, "`features.categorical` must be a list of different columns"),
        ({"log": ["a", "a"]}, "`features.log` must be a list of different columns"),
        ({"log": ["a"], "categorical": ["a"]}, "`features.log` must not name categorical columns"),
        ({"most_categories": 0}, "`features.most_categories` must be"),
        ({"scales": "robust"}, "`features` has no parameter 'scales'. Did you mean 'scale'?"),
        ({"whiten": True}, "`features` has no parameter 'whiten'. Known: scale, categorical"),
    ],
)
def test_what_features_refuse(wanted, message):
    with pytest.raises(kc.SettingError, match=message):
        kc.Features.of(wanted)
    with pytest.raises(kc.SettingError, match="must be a Features object or a mapping"):
        kc.Features.of("standard")


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": [{"kind": "date"}]},
        {"columns": [{"kind": "number", "name": "a", "log": False, "center": 0.0, "scale": 0.0, "fill": None}]},
        {"columns": [{"kind": "category", "name": "a", "values": [1], "missing": False}]},
        {"wanted": {"scale": "minmax"}},
        {"wanted": None},
    ],
)
def test_a_damaged_preparation_is_refused(change):
    plain = Preparation.fit({"a": [1.0, 2.0]}, kc.Features()).to_dict()
    with pytest.raises(kc.FormatError, match="damaged"):
        preparation_of({"preparation": {**plain, **change}})


def test_a_look_says_who_carries_the_distances_and_what_looks_wrong():
    generator = np.random.default_rng(0)
    n = 1_000
    days = generator.integers(0, 28, n).astype(float)
    days[: int(0.96 * n)] = 999.0
    table = {
        "age": generator.integers(18, 80, n).astype(float),
        "pdays": days,
        "children": np.where(generator.random(n) < 0.05, -1.0, generator.integers(0, 5, n)),
        "country": ["CH"] * (n - 1) + ["DE"],
        "planet": np.r_[np.zeros(n - 2), 1.0, 2.0],
    }
    wanted = kc.Features(scale="none", categorical=["country"])
    look = look_at(list(table), [pa.array(v) for v in table.values()], Preparation.fit(table, wanted))
    raw = np.column_stack([table[name] for name in ("age", "pdays", "children", "planet")])
    # The mean squared distance of two rows, column by column, from all pairs.
    pairs = [float(np.mean((column[:, None] - column) ** 2)) for column in raw.T]
    country = 2 * 2 * (n - 1) / n**2
    total = sum(pairs) + country
    expected = [pairs[0], pairs[1], pairs[2], country, pairs[3]]
    np.testing.assert_allclose(list(look.shares.values()), np.array(expected) / total, rtol=1e-9)
    assert len(look.warnings) == 5
    assert look.warnings[0].startswith("pdays carries 9")
    assert "pdays is 999 in 96.0 % of the rows, far from its other values" in look.warnings[1]
    assert "as NULLIF(pdays, 999) does in input.query" in look.warnings[1]
    assert "children is -1 in" in look.warnings[2]
    assert look.warnings[3] == "country is nearly constant: CH in 99.9 % of the rows. Leave it out."
    assert look.warnings[4].startswith("planet is nearly constant: 0 in 99.8 %")
    scaled = Preparation.fit(table, kc.Features(categorical=["country"]))
    shares = look_at(list(table), [pa.array(v) for v in table.values()], scaled).shares
    assert max(shares.values()) < 0.3
    assert sum(shares.values()) == pytest.approx(1.0)


def test_a_look_at_numbers_as_they_are_leaves_ordinary_values_alone():
    values = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 2.0, 1.5]
    ages = np.random.default_rng(1).integers(0, 100, 500).astype(float)
    look = look_at(["a", "b", "c", "age"], [*values.T, ages])
    assert look.warnings == [w for w in look.warnings if w.startswith("age carries")]
    assert look_at(["age"], [ages]).warnings == []
    wide = np.random.default_rng(0).normal(size=(500, 7)) * [1.0, 250.0, 1.0, 2.0, 90.0, 1.0, 1.0]
    (warning,) = look_at(list("abcdefg"), list(wide.T)).warnings
    assert warning.startswith("b and e carry 100.0 % of the squared distances: the clusters are those of these columns")
    assert look_at(list("abcde"), list(wide.T[:5])).warnings == []  # two of five are not few


def clustered(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Two groups of customers that age, income and job tell apart, but for the scale of the income."""
    generator = np.random.default_rng(seed)
    group = generator.integers(0, 2, n)
    table = {
        "age": np.where(group, 60.0, 25.0) + generator.normal(size=n) * 3,
        "income": np.exp(generator.normal(size=n) * 0.5) * np.where(group, 90_000.0, 30_000.0),
        "job": np.where(generator.random(n) < 0.9, np.where(group, "retired", "student"), "clerk"),
    }
    return pd.DataFrame(table), group


ASKED = kc.Features(categorical=["job"], log=["income"])


@pytest.mark.parametrize(
    "estimator",
    [
        kc.KernelKMeans(2, coreset_size=200, random_state=0),
        kc.SpectralClustering(2, coreset_size=200, random_state=0),
        kc.SpectralClustering(2, sigma="median", coreset_size=200, random_state=0),
        kc.StreamingKernelKMeans(2, coreset_size=200, random_state=0),
    ],
)
def test_estimators_prepare_the_rows_that_they_fit_and_predict(estimator, tmp_path):
    rows, group = clustered()
    fitted = sklearn.clone(estimator).set_params(features={"categorical": ["job"], "log": ["income"]}).fit(rows)
    points = Preparation.fit(rows, ASKED).transform(rows)
    plain = sklearn.clone(estimator).fit(points)
    np.testing.assert_array_equal(fitted.labels_, plain.labels_)
    assert adjusted_rand_score(group, fitted.labels_) > 0.95
    new, _ = clustered(50, 1)
    new.loc[3, "job"] = "pilot"
    expected = plain.predict(Preparation.fit(rows, ASKED).transform(new))
    np.testing.assert_array_equal(fitted.predict(new), expected)
    np.testing.assert_array_equal(fitted.predict(new.iloc[:1]), expected[:1])
    assert fitted.score(rows) == plain.score(points)
    assert fitted.preparation_.names == ["age", "income", "job"]
    fitted.model_.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(new), expected)
    np.testing.assert_array_equal(loaded.label(new, margins=True).labels, expected)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(new[["income", "age", "job"]])
    if isinstance(estimator, kc.SpectralClustering):
        fitted.save(tmp_path / "estimator")
        again = kc.SpectralClustering.load(tmp_path / "estimator")
        np.testing.assert_array_equal(again.predict(new), expected)
        assert again.n_features_in_ == 3


def test_distances_costs_and_batches_are_those_of_prepared_rows():
    rows, _ = clustered()
    points = Preparation.fit(rows, ASKED).transform(rows)
    fitted = kc.KernelKMeans(2, features=ASKED, random_state=0).fit(rows)
    plain = kc.KernelKMeans(2, random_state=0).fit(points)
    np.testing.assert_array_equal(fitted.transform(rows), plain.transform(points))
    assert fitted.model_.cost(rows) == plain.model_.cost(points)
    assert fitted.model_.representatives()[0].tolist() == plain.model_.representatives()[0].tolist()
    stream = kc.StreamingKernelKMeans(2, features=ASKED, random_state=0)
    stream.partial_fit(rows).partial_fit(clustered(300, 1)[0])
    assert stream.preparation_ == Preparation.fit(rows, ASKED)
    assert adjusted_rand_score(stream.predict(rows), fitted.labels_) > 0.95


def test_prepared_coresets_keep_their_preparation(tmp_path):
    rows, _ = clustered()
    preparation = Preparation.fit(rows, ASKED)
    coreset = kc.build_coreset(preparation.transform(rows), 2, kc.Linear(), 100)
    prepared = coreset.with_preparation(preparation)
    prepared.write_parquet(tmp_path / "coreset.parquet")
    again = kc.Coreset.read_parquet(tmp_path / "coreset.parquet")
    assert preparation_of(again.settings) == preparation
    # Readers that do not know of preparations must refuse such a file; others still read every other coreset.
    formats = [json.loads(each.to_arrow().schema.metadata[b"kernelcoreset"])["format"] for each in (prepared, coreset)]
    assert formats == [2, 1]
    merged = kc.merge_coresets([again, prepared], 2, kc.Linear(), 100)
    assert preparation_of(merged.settings) == preparation
    with pytest.raises(kc.SettingError, match="whose features were prepared in the same way"):
        kc.merge_coresets([prepared, coreset], 2, kc.Linear(), 100)
