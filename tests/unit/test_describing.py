"""Descriptions of clusters: sums and rows collected by cluster, merged in any order, and put into words."""

import json
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import kernelcoreset as kc
from kernelcoreset.describing.description import Description
from kernelcoreset.describing.quality import RESTARTS, quality_of
from kernelcoreset.describing.tally import ALL_UP_TO, RowTally
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
    assert "age is low: 1,000,000 on average" in description.sentences[0]
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


def test_dates_and_decimals_are_described_by_their_means():
    days = [date(2020, 1, 1), date(2020, 1, 3), None, date(2024, 5, 1), date(2024, 5, 3)]
    columns = {
        "since": pa.array(days),
        "seen": pa.array([None if day is None else datetime(day.year, day.month, day.day, 12) for day in days]),
        "paid": pa.array([Decimal("1.50"), Decimal("2.50"), Decimal("3.50"), Decimal("9.00"), Decimal("11.00")]),
    }
    labels = np.array([0, 0, 0, 1, 1], dtype=np.int32)
    tally = RowTally(2, np.ones(2))
    tally.add(columns, kc.Labels(labels, np.zeros(5), None, 0.0, 0.0))
    whole = RowTally.total([json.loads(json.dumps(tally.to_dict()))], 2)
    description = Description.of(whole, [3.0, 2.0], {})
    told = {each["column"]: each for each in description.clusters[0]["differences"]}
    assert (told["since"]["mean"], told["seen"]["mean"], told["paid"]["mean"]) == ("2020-01-02", "2020-01-02", 2.5)
    assert "since is early: 2020-01-02 on average (of all rows 2022-03-03)" in description.sentences[0]
    assert "seen is late: 2024-05-02 on average" in description.sentences[1]


def test_rare_values_are_named_only_if_they_are_typical():
    generator = np.random.default_rng(0)
    labels = (np.arange(400) % 2).astype(np.int32)
    towns = np.array([f"town {i}" for i in generator.integers(0, 60, 400)], dtype=object)
    scarce = np.where(labels & (generator.random(400) < 0.09), "yes", "no")
    tally = RowTally(2, np.ones(2))
    found = kc.Labels(labels, np.zeros(400), None, 0.0, 0.0)
    tally.add({"town": pa.array(towns), "scarce": pa.array(scarce), "defaulted": pa.array(labels == 1)}, found)
    told = Description.of(tally, [200.0, 200.0], {}).clusters
    assert "town" not in {each["column"] for cluster in told for each in cluster["differences"]}
    assert told[1]["differences"][0]["value"] == "true"


def test_one_row_per_cluster_in_words():
    tally = RowTally(2, np.ones(2))
    tally.add({"age": pa.array([20.0, 60.0])}, kc.Labels(np.array([0, 1], dtype=np.int32), np.zeros(2), None, 0.0, 0.0))
    first = Description.of(tally, [1.0, 1.0], {}).sentences[0]
    assert first == "Cluster 0: 1 row (50.0%); age is low: 20 on average (of all rows 40)."


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.large_list(pa.float32()), pa.list_(pa.int64(), 500)])
def test_long_lists_are_shown_as_far_as_text_goes(kind):
    lists = [[1] * 500, list(range(500)), None]
    tally = RowTally(1, np.ones(1))
    found = kc.Labels(np.zeros(3, dtype=np.int32), np.arange(3.0), None, 0.0, 0.0)
    tally.add({"v": pa.array(lists, kind)}, found)
    wanted = [None if each is None else str(pa.scalar(each, kind).as_py())[:200] for each in lists]
    assert [row["v"] for _, row in tally.nearest[0]] == wanted


@pytest.mark.parametrize("features", [None, {}])
@pytest.mark.parametrize("cls", [kc.KernelKMeans, kc.SpectralClustering, kc.StreamingKernelKMeans])
def test_estimators_describe_tables_with_more_columns(cls, features):
    rows, _ = two_groups()
    estimator = cls(2, features=features, random_state=0).fit(rows[["age", "income"]])
    description = estimator.describe(rows)
    columns = {each["column"] for told in description.clusters for each in told["differences"]}
    assert {"income", "job"} <= columns
    assert "position" not in columns
    for cluster, told in enumerate(description.clusters):
        places = [row["position"] for row in told["typical"]]
        assert [row["age"] for row in told["typical"]] == rows["age"].iloc[places].tolist()
        assert (estimator.predict(rows[["age", "income"]].iloc[places]) == cluster).all()
    assert {each["column"] for told in estimator.describe().clusters for each in told["differences"]} <= {
        "age",
        "income",
    }
    by_array = estimator.model_.describe(rows[["age", "income"]].to_numpy(), names=["age", "income"])
    assert [told["size"] for told in by_array.clusters] == [told["size"] for told in description.clusters]
    with pytest.raises(kc.SettingError, match="there is no column `income`"):
        estimator.describe(rows[["age", "job"]])


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
    assert [one[name] for name in ("silhouette", "stability", "persistence", "separation")] == [None] * 4
    half = kc.Coreset(points[::2], weights[::2])
    again = kc.KernelKMeansModel.fit_coreset(half, 3, kernel, n_init=RESTARTS)
    np.testing.assert_array_equal(model.similar_fit(half)(points), again.predict(points))  # with and without landmarks
    few = kc.Coreset(points[:4], weights[:4])
    labels = np.array([0, 1, 2, 2])
    assert quality_of(few, labels, model.similar_fit, kernel)["stability"] is None


@pytest.mark.parametrize("kernel", [kc.Gaussian(sigma=30.0), kc.Linear(), kc.Cosine(), kc.Laplacian(sigma=300.0)])
def test_quality_of_more_columns_than_points_is_that_of_the_slow_twin(kernel):
    """Most kernels see such points in fewer columns, where they have the same inner products."""
    points = np.random.default_rng(0).normal(size=(90, 200)) + np.kron(np.eye(3), np.full((30, 200), 4.0))[:, ::3]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 90)
    model = kc.KernelKMeansModel.fit_coreset(kc.Coreset(points, weights), 3, kernel)
    found = model.quality()
    explained, silhouette = naive_describe.quality(points, weights, model.solution.labels, kernel)
    assert found["explained"] == pytest.approx(explained)
    assert found["silhouette"] == pytest.approx(silhouette)
    # What needs no kernel is that of the same points in other columns.
    axes, _ = np.linalg.qr(np.random.default_rng(2).normal(size=(200, 200)))
    if kernel != kc.Laplacian(sigma=300.0):
        turned = kc.KernelKMeansModel.fit_coreset(kc.Coreset(points @ axes, weights), 3, kernel).quality()
        assert turned == pytest.approx(found, rel=1e-6)
    assert found["stability"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda k: kc.KernelKMeans(k, sigma="median", coreset_size=300, random_state=0),
        lambda k: kc.KernelKMeans(k, kernel="linear", coreset_size=300, random_state=0),
        lambda k: kc.SpectralClustering(k, coreset_size=300, random_state=0),
        lambda k: kc.SpectralClustering(k, kernel=kc.Gaussian(3.0), coreset_size=300, random_state=0),
    ],
    ids=["gaussian", "linear", "neighbors", "cut"],
)
def test_separation_tells_clusters_from_parts_of_a_cloud(make):
    """Also of a long cloud, whose parts come back with other rows."""
    rng = np.random.default_rng(0)
    clusters = rng.normal(size=(3_000, 2)) + rng.integers(0, 4, (3_000, 1)) * [9.0, 4.0]
    assert make(4).fit(clusters).model_.quality()["separation"] > 0.1
    for cloud in (rng.normal(size=(3_000, 2)) * [9.0, 3.0], rng.uniform(size=(3_000, 2)) * [20.0, 2.0]):
        assert make(3).fit(cloud).model_.quality()["separation"] < 0.05


@pytest.mark.parametrize("weighted", [False, True])
def test_columns_that_come_with_a_sample_are_estimated_from_it(weighted):
    """All rows up to a number, then fewer and fewer that weigh more; distances and features are those of all rows."""
    n, k = 40 * ALL_UP_TO, 3
    generator = np.random.default_rng(1)
    labels = generator.integers(0, k, n).astype(np.int32)
    found = kc.Labels(labels, generator.random(n), generator.random(n), 0.0, 0.0)
    weights = generator.integers(1, 4, n).astype(float) if weighted else None
    # Later rows are others: an estimate that forgot the weights of the sample would be far off.
    job = np.where(np.arange(n) < n // 2, "cook", np.where(labels == 1, "clerk", "smith"))
    columns = {"x": pa.array(np.arange(n) + 0.0), "id": pa.array(np.arange(n))}
    everything = RowTally(k, np.ones(k), ["id"])
    everything.add({**columns, "job": pa.array(job)}, found, weights)
    sampled = RowTally(k, np.ones(k), ["id"])
    for part in np.array_split(np.arange(n), 7):
        kept = np.flatnonzero(generator.random(len(part)) * part < ALL_UP_TO)
        own = kc.Labels(labels[part], found.distances[part], found.margins[part], 0.0, 0.0)
        others = {"job": pa.array(job[part][kept])}
        rows = {name: values.take(pa.array(part)) for name, values in columns.items()}
        sampled.add_sampled(rows, others, kept, part, own, None if weights is None else weights[part])
    assert (sampled.rows, sampled.sampled < 6 * ALL_UP_TO) == (n, True)  # 1 + log(40) = 4.7 are expected
    for name in ("mean", "weight", "squares"):
        np.testing.assert_allclose(sampled.numbers["x"][name], everything.numbers["x"][name], rtol=1e-9)
    assert sampled.farthest == [(score, {name: row[name] for name in columns}) for score, row in everything.farthest]
    assert [row["id"] for _, row in sampled.borderline] == [row["id"] for _, row in everything.borderline]
    assert all(set(row) == {"x", "id", "job"} for rows in sampled.nearest for _, row in rows)
    total = sum(everything.values["job"].values()).sum()
    for text, counts in everything.values["job"].items():
        # The variance of a count is sum w^2 (1 / p - 1) <= 9 n^2 / (2 ALL_UP_TO): 0.0075 of all rows' weight, six
        # standard deviations are 0.05.
        np.testing.assert_allclose(sampled.values["job"][text] / total, counts / total, atol=0.05)
    sizes = np.bincount(labels, weights, minlength=k).tolist()
    assert Description.of(everything, sizes, {}).sampled is None
    whole = RowTally.total([sampled.to_dict()], k)
    described = Description.of(whole, sizes, {})
    assert (
        described.sentences[-1]
        == f"Columns other than the features are described by a sample of {described.sampled:,} rows."
    )


def test_a_sample_of_all_rows_describes_as_all_rows_do():
    columns, found, weights = labelled()
    arrays, own, weights = part_of(columns, found, weights, np.arange(500))
    exact, sampled = RowTally(3, np.ones(3), ["id"]), RowTally(3, np.ones(3), ["id"])
    exact.add(arrays, own, weights)
    others = {name: arrays.pop(name) for name in ("job", "member", "visits")}
    sampled.add_sampled(arrays, others, np.arange(500), np.arange(500), own, weights)
    one, other = exact.to_dict(), sampled.to_dict()
    assert [one[name] for name in ("values", "sampled", "rows")] == [
        other[name] for name in ("values", "sampled", "rows")
    ]
    assert one["numbers"] == other["numbers"]
    assert one["nearest"] == other["nearest"]
