"""[features]: the same preparation in jobs, Spark ML, SQL and numpy, kept in the model and in the store."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812
from sklearn.metrics import adjusted_rand_score

import kernelcoreset as kc
from kernelcoreset.features.preparation import Preparation, preparation_of
from kernelcoreset.jobs import cli
from kernelcoreset.spark import KernelKMeans, KernelKMeansModel, SpectralClustering
from kernelcoreset.spark.columns import BatchReader, layout_of, selection, why_bad, with_dimension
from kernelcoreset.spark.sample import first_rows, fit_preparation
from kernelcoreset.spark.sql import register
from kernelcoreset.spectral.model import load_model
from tests.spark.job_runs import record_of, run, write_config

COLUMNS = ["age", "balance", "job", "contact"]
WANTED = {"categorical": ["job", "contact"], "log": ["balance"], "impute": "median"}
FEATURES = '[features]\ncategorical = ["job", "contact"]\nlog = ["balance"]\nimpute = "median"\n'


def customers(n: int = 900, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows in the shape of the bank's customers: three groups, balances with a long tail, missing values."""
    generator = np.random.default_rng(seed)
    group = generator.integers(0, 3, n)
    jobs = np.array(["student", "clerk", "retired"])
    age = np.array([22.0, 41.0, 68.0])[group] + generator.normal(size=n) * 3
    table = pd.DataFrame(
        {
            "id": np.arange(n) + 10_000 * seed,
            "age": np.where(generator.random(n) < 0.02, np.nan, age.round()),
            "balance": (np.array([300.0, 9_000.0, 90_000.0])[group] * np.exp(generator.normal(size=n) * 0.3)).round(2),
            "job": np.where(generator.random(n) < 0.9, jobs[group], "other job"),
            "contact": np.where(generator.random(n) < 0.1, None, generator.choice(["phone", "mail"], n)),
        }
    )
    return table, group


def config(where: str, more: str = "") -> None:
    write_config(
        f'[input]\n{where}\nfeatures = {COLUMNS}\nid_col = "id"\n{FEATURES}'
        '[kernel]\nname = "Gaussian"\nsigma = "median"\n'
        "[coreset]\nk = 3\ncoreset_size = 200\nseed = 3\n"
        f'[cluster]\nn_init = 3\nmodel_path = "model"\n[output]\npath = "HERE/out"\n{more}'
    )


CSV = 'path = "HERE/rows.csv"\nformat = "csv"\noptions = {header = true, inferSchema = true}'


def test_a_csv_of_customers_as_a_job_and_in_python(spark):
    rows, group = customers()
    rows.to_csv("rows.csv", index=False)
    config(CSV)
    assert run(cli.run_main) == 0
    out = pq.read_table("out").to_pandas().set_index("id").loc[rows["id"]]
    assert adjusted_rand_score(group, out["prediction"]) > 0.95
    local = kc.KernelKMeans(3, features=WANTED, coreset_size=200, random_state=3).fit(rows[COLUMNS])
    assert adjusted_rand_score(local.labels_, out["prediction"]) > 0.98
    model = load_model("model")
    assert model.preparation == local.preparation_  # all rows are in the sample
    np.testing.assert_array_equal(out["prediction"], model.predict(rows))

    new, _ = customers(80, 1)
    new.loc[5, "job"] = "astronaut"
    new.to_csv("new.csv", index=False)
    assert run(cli.assign_main, "input.path=HERE/new.csv", "output.path=HERE/new") == 0
    labelled = pq.read_table("new").to_pandas().set_index("id").loc[new["id"]]
    np.testing.assert_array_equal(labelled["prediction"], model.predict(new))
    assert adjusted_rand_score(labelled["prediction"], local.model_.predict(new)) > 0.95

    assert run(cli.assign_main, "input.path=HERE/new.csv", "output.path=HERE/x", "input.features=['job', 'age']") == 2


def test_a_csv_without_its_header_is_answered_with_the_option(spark, capsys):
    customers()[0].to_csv("rows.csv", index=False)
    config(CSV.replace("{header = true, inferSchema = true}", "{}"))
    assert run(cli.run_main) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "`input.features`: there is no column `age`. " in said
    assert (
        "or input.options = {header = true, inferSchema = true} in the settings of a job. The columns are: _c0" in said
    )
    path = str(Path("rows.csv").absolute())
    for attempt in (
        lambda frame: KernelKMeans(k=3, inputCols=["age", "balance"]).fit(frame),
        lambda frame: kc.explore(frame, inputCols=["age", "balance"]),
    ):
        with pytest.raises(kc.SettingError, match=r"set header=True and inferSchema=True in spark\.read\.csv"):
            attempt(spark.read.csv(path))
        with pytest.raises(kc.SettingError, match=r"are strings unless it is read with inferSchema=True"):
            attempt(spark.read.csv(path, header=True))


def test_a_run_describes_all_columns_that_it_writes(spark, capsys):
    rows, group = customers()
    rows["city"] = np.where(group == 0, "Bern", "Basel")
    rows.to_csv("rows.csv", index=False)
    config(CSV)
    assert run(cli.run_main, "output.outlier_col=score", "output.margin_col=margin") == 0
    out = pq.read_table("out").to_pandas().set_index("id", drop=False).loc[rows["id"]]
    model, description = load_model("model"), record_of()["description"]
    expected = model.describe(rows)
    assert [told["size"] for told in description["clusters"]] == np.bincount(out["prediction"]).tolist()
    for told, by_numpy in zip(description["clusters"], expected.clusters, strict=True):
        assert told["share"] == pytest.approx(by_numpy["share"])
        differences = {each["column"]: each["difference"] for each in told["differences"]}
        others = {each["column"]: each["difference"] for each in by_numpy["differences"]}
        assert differences == pytest.approx(others)
        assert "city" in differences
        assert "id" not in differences
        assert [row["id"] for row in told["typical"]] == [row["id"] for row in by_numpy["typical"]]
    scores = model.outlier_scores(model.label(rows))
    # Distances come from products in float32, and BLAS rounds those of a row differently in a block of another size:
    # here all rows at once, on Spark a partition. A task that is retried has the same blocks, so the same values.
    np.testing.assert_allclose(out["score"], scores, rtol=1e-5)
    assert [each["row"]["id"] for each in description["far"]] == rows["id"].iloc[np.argsort(-scores)[:5]].tolist()
    assert len(description["borderline"]) == 5
    assert description["quality"] == pytest.approx(model.quality())
    printed = capsys.readouterr().out
    assert f"described    {description['sentences'][0]}" in printed
    assert "city is Bern in 100%" in printed

    assert run(cli.run_main, "output.path=HERE/quiet", "output.describe=false") == 0
    assert record_of("quiet.run.json")["description"] is None


def test_a_function_of_sql_prepares_its_rows(spark):
    rows, _ = customers()
    model = kc.KernelKMeans(3, features=WANTED, random_state=0).fit(rows[COLUMNS]).model_
    register(spark, "segment", model)
    spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False)).createOrReplaceTempView("customers")
    found = spark.sql(f"SELECT id, segment({', '.join(COLUMNS)}) AS cluster FROM customers").toPandas()
    np.testing.assert_array_equal(found.set_index("id").loc[rows["id"], "cluster"], model.predict(rows))
    with pytest.raises(Exception, match="segment takes 4 numbers, or one array of 4; got 1 values"):
        spark.sql("SELECT segment(age) FROM customers").collect()


def test_step_by_step_and_by_direct_scan(spark):
    rows, _ = customers()
    pq.write_table(pa.Table.from_pandas(rows), "rows.parquet", row_group_size=300)
    config('path = "HERE/rows.parquet"')
    steps = ("coreset.path=coreset.parquet", "output.path=HERE/steps", "input.scan=direct")
    for main in (cli.build_coreset_main, cli.cluster_main, cli.assign_main):
        assert run(main, *steps) == 0
    assert preparation_of(kc.Coreset.read_parquet("coreset.parquet").settings) == Preparation.fit(
        rows[COLUMNS], kc.Features(**WANTED)
    )
    steps = pq.read_table("steps").to_pandas().set_index("id").loc[rows["id"]]
    np.testing.assert_array_equal(steps["prediction"], load_model("model").predict(rows))
    assert run(cli.spectral_main, "output.path=HERE/cut", "cluster.model_path=cut-model") == 0
    cut = pq.read_table("cut").to_pandas().set_index("id").loc[rows["id"]]
    np.testing.assert_array_equal(cut["prediction"], load_model("cut-model").predict(rows))


def test_a_dry_run_shows_who_carries_the_distances(spark, capsys):
    rows, _ = customers()
    rows["pdays"] = np.where(rows.index % 20 == 0, rows.index % 28, 999.0)
    rows.to_csv("rows.csv", index=False)
    config(CSV)
    raw = ["--set", 'input.features=["age", "balance", "pdays"]', "--set", "features.categorical=[]"]
    plain = [*raw, "--set", "features.scale=none", "--set", "features.log=[]"]
    assert cli.run_main(["--config", "job.toml", "--dry-run", *plain]) == 0
    lines = capsys.readouterr().out
    assert "distance shares      balance: 100.0%" in lines
    assert "warnings             balance carries 100.0 % of the squared distances" in lines
    assert "warnings             pdays is 999 in 95.0 % of the rows" in lines
    assert cli.run_main(["--config", "job.toml", "--dry-run"]) == 0
    lines = capsys.readouterr().out
    assert "warnings" not in lines
    assert "balance: 30" in lines


def test_the_estimators_of_spark(spark, tmp_path):
    rows, group = customers()
    frame = spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False)).repartition(3)
    options = {"k": 3, "inputCols": COLUMNS, "seed": 1, "features": kc.Features(**WANTED), "coresetSize": 200}
    for estimator in (KernelKMeans(kernel=kc.Gaussian(sigma=2.0), **options), SpectralClustering(**options)):
        model = estimator.fit(frame)
        out = model.transform(frame).toPandas().set_index("id").loc[rows["id"]]
        assert adjusted_rand_score(group, out["prediction"]) > 0.95
        np.testing.assert_array_equal(out["prediction"], model.localModel.predict(rows))
        sizes = [told["size"] for told in model.summary.description["clusters"]]
        assert sizes == np.bincount(out["prediction"]).tolist()
        assert model.describe().clusters[0]["share"] == pytest.approx(sizes[0] / 900, abs=0.1)
    estimator = KernelKMeans(kernel=kc.Gaussian(sigma=2.0), **options)
    estimator.write().save(str(tmp_path / "estimator"))
    again = KernelKMeans.load(str(tmp_path / "estimator"))
    assert again.getOrDefault("features") == kc.Features(**WANTED)
    model = again.fit(frame)
    model.write().save(str(tmp_path / "model"))
    loaded = KernelKMeansModel.load(str(tmp_path / "model"))
    assert loaded.localModel.preparation == model.localModel.preparation
    assert (
        loaded.transform(frame).where("prediction = 0").count()
        == model.transform(frame).where("prediction = 0").count()
    )
    with pytest.raises(kc.SettingError, match=r"`features.categorical`: there is no column `jobs`; did you mean `job`"):
        estimator.copy({estimator.features: kc.Features(categorical=["jobs", "contact", "job"])}).fit(frame)
    with pytest.raises(kc.SettingError, match="must have names of columns for a DataFrame; got"):
        estimator.copy({estimator.inputCols: ["age"], estimator.features: kc.Features(log=[0])}).fit(frame)


def test_arrays_are_scaled_too(spark):
    values = np.random.default_rng(0).normal(size=(300, 3)) * [1.0, 50.0, 0.1] + [5.0, 0.0, 1.0]
    table = pa.table({"v": pa.array(values.tolist()), "w": 1.0 + np.arange(300) % 2})
    frame = spark.createDataFrame(table)
    layout = with_dimension(frame, layout_of(frame, "v", "w"))
    found = fit_preparation(frame, layout, kc.Features(scale="robust"))
    columns = dict(zip(["v[0]", "v[1]", "v[2]"], values.T, strict=True))
    assert found == Preparation.fit(columns, kc.Features(scale="robust"), 1.0 + np.arange(300) % 2)
    estimator = KernelKMeans(k=2, kernel=kc.Linear(), featuresCol="v", features={"scale": "standard"}, coresetSize=50)
    model = estimator.fit(frame)
    np.testing.assert_allclose(
        sorted(row.prediction for row in model.transform(frame).select("prediction").collect()),
        sorted(model.localModel.predict(values)),
    )


@pytest.mark.parametrize("impute", ["none", "mean"])
def test_bad_rows_are_the_same_for_tasks_and_for_sql(spark, impute):
    rows = [(1.0, "a", 1.0), (None, "b", 1.0), (2.0, None, 1.0), (float("inf"), "a", 1.0), (float("nan"), "c", 1.0)]
    frame = spark.createDataFrame(rows, "x double, c string, w double")
    layout = layout_of(frame, ["x", "c"], "w", categorical=["c"])
    wanted = kc.Features(categorical=["c"], impute=impute)
    layout = layout.prepared_by(fit_preparation(frame, layout, wanted))
    reader = BatchReader(layout)
    good = reader.read(frame.select(*selection(frame, layout)).toArrow().combine_chunks().to_batches()[0].columns)[2]
    by_sql = [row[0] is None for row in frame.select(why_bad(frame, layout)).collect()]
    assert (
        good.tolist()
        == by_sql
        == ([True, False, False, False, False] if impute == "none" else [True] * 3 + [False, True])
    )


def test_a_sample_takes_first_rows_of_parts_only(spark):
    frame = spark.range(0, 4_000_000, 1, 40).select(F.col("id").cast("double").alias("x"))
    found = first_rows(frame, layout_of(frame, ["x"]))
    assert found.num_rows == 16 * 65_536
    starts = np.sort(found.column(0).to_numpy())
    assert starts[0] == 0.0
    assert starts[-1] > 3_700_000


def day(number: int) -> None:
    rows, _ = customers(300, number)
    if number > 1:
        rows["age"] += 10.0  # another mean: the first day's must be used
    Path(f"days/day={number}").mkdir(parents=True)
    pq.write_table(pa.Table.from_pandas(rows), f"days/day={number}/rows.parquet")


def test_an_update_keeps_the_preparation_of_its_first_run(spark, caplog):
    day(1)
    config('path = "HERE/days"', '[store]\npath = "HERE/store"\n')
    assert run(cli.update_main) == 0
    first = kc.CoresetStore.open("store").state["preparation"]
    assert Preparation.from_dict(first) == Preparation.fit(customers(300, 1)[0][COLUMNS], kc.Features(**WANTED))
    day(2)
    assert run(cli.update_main) == 0
    store = kc.CoresetStore.open("store")
    assert store.state["preparation"] == first
    model = load_model(f"store/{store.state['model']}")
    out = pq.read_table("out").to_pandas().set_index("id")
    second = pq.read_table("days/day=2").to_pandas()
    np.testing.assert_array_equal(out.loc[second["id"], "prediction"], model.predict(second))
    assert run(cli.update_main, "features.scale=robust") == 2


def test_a_stream_keeps_the_preparation_of_its_first_batch(spark):
    for number in (1, 2):
        rows, _ = customers(200, number)
        rows["age"] += 10.0 * number
        Path("in").mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pandas(rows), f"in/{number}.parquet")
        os.utime(f"in/{number}.parquet", (1_700_000_000 + number, 1_700_000_000 + number))
    schema = "id long, age double, balance double, job string, contact string"
    config(
        f'path = "HERE/in"\nschema = "{schema}"\noptions = {{maxFilesPerTrigger = 1}}',
        '[store]\npath = "HERE/store"\n[stream]\ncheckpoint = "HERE/checkpoint"\n',
    )
    assert run(cli.stream_main) == 0
    store = kc.CoresetStore.open("store")
    first = pq.read_table("in/1.parquet").to_pandas()
    assert Preparation.from_dict(store.state["preparation"]) == Preparation.fit(first[COLUMNS], kc.Features(**WANTED))
    model = load_model(f"store/{store.state['model']}")
    second = pq.read_table("in/2.parquet").to_pandas()
    out = pq.read_table("out").to_pandas().set_index("id")
    np.testing.assert_array_equal(out.loc[second["id"], "prediction"], model.predict(second))
    assert record_of()["batches"] == 2


def test_a_description_without_features_has_the_names_of_the_columns():
    coreset = kc.Coreset([[0.0, 1.0], [1.0, 2.0], [9.0, 5.0]], np.ones(3))
    fitted = kc.KernelKMeansModel.fit_coreset(coreset, k=2, kernel=kc.Linear())
    description = KernelKMeansModel(fitted).setParams(inputCols=["age", "income"]).describe()
    assert description.sentences[0].startswith("Cluster 0: 2 rows (66.7%); age is low: 0.5 on average")
