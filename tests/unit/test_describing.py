"""Descriptions of clusters: sums and rows collected by cluster, merged in any order, and put into words."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kernelcoreset as kc
from kernelcoreset.describing.description import Description
from kernelcoreset.describing.quality import quality_of
from kernelcoreset.describing.tally import RowTally
from tests import naive_describe


def labelled(n: int = 500, k: int = 3, seed: int = 0) -> tuple[dict[str, list], kc.Labels, np.ndarray]:
    """Columns of all kinds with missing values, labels that some of them depend on, and weights."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, k, n).astype(np.int32)
    columns = {
        "id": [f"row {i}" for i in range(n)],
        "age": [None if i % 11 == 3 else float(v) for i, v in enumerate(1e6 + 10 * labels + generator.normal(size=n))],
        "visits": generator.integers(0, 9, n).tolist(),
        "job": [
            None if i % 13 == 5 else ["cook", "clerk", "smith"][v] for i, v in enumerate(generator.integers(0, 3, n))
        ],
        "member": [bool(v) for v in labels == 1],
    }
    distances, margins = generator.random(n), generator.random(n)
    return columns, kc.Labels(labels, distances, margins, 0.0, 0.0), generator.integers(1, 4, n).astype(float)


def part_of(columns, found, weights, rows):
    arrays = {name: pa.array([values[row] for row in rows]) for name, values in columns.items()}
    labels = kc.Labels(found.labels[rows], found.distances[rows], found.margins[rows], 0.0, 0.0)
    return arrays, labels, weights[rows]


@pytest.mark.parametrize("parts", [1, 4])
def test_merged_tallies_are_those_of_the_slow_twin(parts):
    columns, found, weights = labelled(6_000)
    typical = np.array([0.5, 1.0, 2.0])
    tallies = []
    for rows in np.array_split(np.arange(6_000), parts):
        tally = RowTally(3, typical, ["id"])
        for batch in np.array_split(rows, min(parts, 3)):  # in one batch, the first rows set thresholds for the others
            tally.add(*part_of(columns, found, weights, batch))
        tallies.append(json.loads(json.dumps(tally.to_dict())))
    whole = RowTally.total(tallies[::-1], 3)
    expected = naive_describe.tally(columns, found, weights, typical, silent=["id"])
    for name, own in expected["numbers"].items():
        for what, values in own.items():
            np.testing.assert_allclose(whole.numbers[name][what], values, rtol=1e-9)
    assert set(whole.numbers) == {"age", "visits"}
    assert {n: {t: c.tolist() for t, c in own.items()} for n, own in whole.values.items()} == expected["values"]
    for name in ("farthest", "borderline"):
        assert [row["id"] for _, row in getattr(whole, name)] == expected[name]
    assert [[row["id"] for _, row in rows] for rows in whole.nearest] == expected["nearest"]


def test_a_description_says_what_sets_clusters_apart():
    columns, found, weights = labelled()
    tally = RowTally(3, np.ones(3), ["id"])
    tally.add(*part_of(columns, found, weights, np.arange(500)))
    sizes = np.bincount(found.labels, weights, minlength=3).tolist()
    description = Description.of(tally, sizes, {"explained": 0.5, "silhouette": None})
    expected = naive_describe.differences(columns, found.labels, weights)
    for cluster, told in enumerate(description.clusters):
        assert told["share"] == pytest.approx(sizes[cluster] / sum(sizes))
        for each in told["differences"]:
            key = (cluster, each["column"], each.get("value"))
            assert each["difference"] == pytest.approx(expected[key])
            if "value" in each:  # the most typical one
                others = [v for (c, name, _), v in expected.items() if (c, name) == (cluster, each["column"])]
                assert each["difference"] == pytest.approx(max(others))
    assert description.clusters[2]["differences"][0]["column"] == "age"
    assert description.clusters[1]["differences"][0]["value"] == "true"
    assert description.sentences[0].startswith("Cluster 0: ")
    assert "age is low: 1e+06 on average" in description.sentences[0]
    assert "member is true in 100%" in description.sentences[1]
    assert description.sentences[-1].startswith("The clusters explain 50%")
    assert str(description).splitlines() == description.sentences
    assert json.loads(json.dumps(description.to_dict()))["sentences"] == description.sentences


def test_names_and_odd_columns_are_not_described():
    n = 1_200
    columns = {
        "name": pa.array([f"row {i}" for i in range(n)]),
        "list": pa.array([[1, 2]] * n),
        "constant": pa.array([3.0] * n),
        "empty": pa.array([None] * n, pa.float64()),
    }
    found = kc.Labels(np.zeros(n, np.int32), np.zeros(n), None, 0.0, 0.0)
    tally = RowTally(1, np.zeros(1))
    tally.add(columns, found)
    tally.add(columns, found)
    assert tally.skipped == {"name"}
    assert tally.values == {}
    assert set(tally.numbers) == {"constant"}
    assert len(tally.nearest[0]) == 3
    assert tally.nearest[0][0][1]["list"] == "[1, 2]"
    sentence = Description.of(tally, [n], {}).sentences[0]
    assert sentence == "Cluster 0: 1,200 rows (100.0%); like all rows in every column."
    # Another part of the rows with few names: the column is still one of names.
    other = RowTally(1, np.zeros(1))
    other.add({"name": pa.array(["row 1"])}, kc.Labels(np.zeros(1, np.int32), np.zeros(1), None, 0.0, 0.0))
    assert RowTally.total([other.to_dict(), tally.to_dict()], 1).values == {}


def two_groups(n: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    generator = np.random.default_rng(0)
    group = np.arange(n) % 2
    table = {
        "age": np.where(group, 60.0, 25.0) + generator.normal(size=n) * 3,
        "income": np.exp(generator.normal(size=n) * 0.3) * np.where(group, 90_000.0, 30_000.0),
        "job": np.where(generator.random(n) < 0.9, np.where(group, "retired", "student"), "clerk"),
        "city": generator.choice(["Bern", "Basel"], n),
    }
    return pd.DataFrame(table), group


@pytest.mark.parametrize(
    "estimator",
    [
        kc.KernelKMeans(2, coreset_size=150, random_state=0),
        kc.SpectralClustering(2, coreset_size=150, random_state=0),
        kc.SpectralClustering(2, sigma="median", coreset_size=150, random_state=0),
    ],
)
def test_models_describe_rows_and_their_coreset(estimator):
    rows, _ = two_groups()
    estimator.set_params(features=kc.Features(categorical=["job"], log=["income"])).fit(rows[["age", "income", "job"]])
    model = estimator.model_
    exact, estimated = model.describe(rows), model.describe()
    old = int(model.predict(rows.iloc[1:2])[0])
    for description, tolerance in ((exact, 0.01), (estimated, 0.25)):
        told = description.clusters[old]
        assert told["share"] == pytest.approx(0.5, abs=0.15)
        by_column = {each["column"]: each for each in told["differences"]}
        assert by_column["age"]["mean"] == pytest.approx(60.0, rel=tolerance)
        assert by_column["income"]["mean"] == pytest.approx(90_000.0 * np.exp(0.045), rel=0.2)
        assert by_column["job"]["value"] == "retired"
        assert "city" not in by_column
        assert len(told["typical"]) == 3
        assert all(row["job"] == "retired" for row in told["typical"])
        assert description.quality["stability"] > 0.9
        assert description.quality["persistence"] > 0.7
    assert exact.clusters[old]["size"] == int((model.predict(rows) == old).sum())
    found = model.label(rows, margins=True)
    scores = model.outlier_scores(found)
    assert [each["row"]["age"] for each in exact.far] == rows["age"].iloc[np.argsort(-scores)[:5]].tolist()
    assert exact.far[0]["outlier_score"] == pytest.approx(scores.max())
    assert [e["margin"] for e in exact.borderline] == pytest.approx(np.sort(found.margins)[:5])
    is_neighbors = isinstance(model, kc.NeighborModel)
    assert (exact.quality["explained"] is None) == is_neighbors


def test_typical_rows_have_their_ids():
    points = np.random.default_rng(0).normal(size=(200, 2)) + np.repeat([[0.0], [9.0]], 100, axis=0)
    coreset = kc.build_coreset(points, 2, kc.Linear(), 60, ids=np.arange(200) + 1_000)
    model = kc.KernelKMeansModel.fit_coreset(coreset, 2, kc.Linear())
    ids = [row["id"] for told in model.describe().clusters for row in told["typical"]]
    assert ids == [name for names in model.representatives(3) for name in names]
    assert "id" not in {each["column"] for told in model.describe().clusters for each in told["differences"]}


def test_quality_is_that_of_the_slow_twin():
    points = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0.0], [4.0], [9.0]], 30, axis=0)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 90)
    kernel = kc.Gaussian(sigma=3.0)
    model = kc.KernelKMeansModel.fit_coreset(kc.Coreset(points, weights), 3, kernel)
    found = model.quality()
    explained, silhouette = naive_describe.quality(points, weights, model.solution.labels, kernel)
    assert found["explained"] == pytest.approx(explained)
    assert found["silhouette"] == pytest.approx(silhouette)
    assert found["stability"] == pytest.approx(1.0)
    one = kc.KernelKMeansModel.fit_coreset(kc.Coreset(points, weights), 1, kernel).quality()
    assert one["explained"] == pytest.approx(0.0, abs=1e-12)
    assert (one["silhouette"], one["stability"], one["persistence"]) == (None, None, None)
    few = kc.Coreset(points[:4], weights[:4])
    labels = np.array([0, 1, 2, 2])
    assert quality_of(few, labels, model.similar_fit, kernel)["stability"] is None
