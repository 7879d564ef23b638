"""The experiments end to end on small data, their preparation of raw files, and resuming after a stop."""

import functools
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.paper import __main__ as command
from benchmarks.paper import claims, data, error, kmeans, rivals, variations
from benchmarks.paper.cells import Cell, OutOfTime, Table, run_cells
from benchmarks.paper.plan import Plan, quick
from kernelcoreset import DataError, FormatError, Gaussian, Linear, Polynomial
from kernelcoreset.coresets.coreset import Coreset

ROOT = Path(__file__).parents[2]
REAL = Path(os.environ.get("KERNELCORESET_DATA", "no such folder"))  # of the data sets of docs/data.md


def bank_lines(n):
    features = data.DATA_SETS["bank"].columns
    lines = [";".join(f'"{name}"' for name in ("job", *features, "y"))]
    lines += [";".join(['"admin."', *(str(i + j / 10) for j in range(len(features))), '"no"']) for i in range(n)]
    return "\n".join(lines) + "\n"


def adult_line(i, end=""):
    texts = "Never-married, Sales, Unmarried, White, Male"
    return f"{i}, Private, {1000 + i}, Bachelors, 13, {texts}, {i}, 0, 40, ?, <=50K{end}"


def census_line(age, worker, origin, income):
    """42 fields; the twelfth is the Hispanic origin, the 25th the weight, the last the income."""
    fields = [str(age), worker, *["7"] * 9, origin, *["7"] * 12, "1700.09", *["7"] * 16, income]
    return ", ".join(fields)


def write_raw(folder):
    """Tiny files in the publishers' formats."""
    (folder / "adult.data").write_text("\n".join([adult_line(0), adult_line(1), ""]))
    (folder / "adult.test").write_text("\n".join(["|1x3 Cross validator", adult_line(2, "."), ""]))
    (folder / "bank-additional-full.csv").write_text(bank_lines(4))
    (folder / "twitter.txt").write_text("1349000000 -77.5 38.25\n1349000001 139.75 35.5\n")
    (folder / "census-income.data").write_text(census_line(40, "Private", "NA", "- 50000.") + "\n")
    (folder / "census-income.test").write_text(census_line(20, "Never worked", "Cuban", "50000+.") + "\n")
    (folder / "USCensus1990.data.txt").write_text("caseid,dAge,dHours\n10000,5,3\n10001,6,1\n10002,3,2\n")


def write_parquet(folder, n):
    """Generated points in place of the prepared Parquet files, with duplicates."""
    generator = np.random.default_rng(0)
    for name, file, d in (("adult", "adult", 6), ("bank", "bank", 10), ("twitter", "twitter_first100k", 2)):
        places = 20.0 * generator.normal(size=(6, d))
        points = places[generator.integers(6, size=n)] + generator.normal(size=(n, d))
        points[n // 2 :] = points[n // 2 :].round()
        columns = data.DATA_SETS[name].columns
        pq.write_table(pa.table({c: points[:, i] for i, c in enumerate(columns)}), folder / f"{file}.parquet")
    table = {f"c{i}": generator.integers(9, size=n) for i in range(5)}
    table |= {"instance_weight": generator.random(n), "split": ["train"] * n}
    pq.write_table(pa.table(table), folder / "census_income_kdd.parquet")


def smallest(folder, out):
    """A plan that takes seconds."""
    plan = Plan(folder, out, processes=1, with_spark=False, check_rows=False)
    return replace(
        quick(plan), most_rows=500, error_sizes=(20, 60), runs=2, tree_runs=2, center_sets=10, kmeans_rows=200,
        kmeans_runs=2, kmeans_sizes=(20, 100), spectral_theirs=((100, 1), (150, 1)), spectral_ours=(400,),
        spectral_size=60, alternative_rows=200, alternative_sizes=(20, 40), feature_sizes=(10, 20),
        alternative_runs=1, large_rows=300, large_sizes=(20,), variation_runs=2, variation_sets=5,
        variation_size=100, variation_rows=400,
    )  # fmt: skip


class TestPreparation:
    def test_raw_files_as_published(self, tmp_path):
        write_raw(tmp_path)
        load = functools.partial(data.load, tmp_path, check_rows=False)
        adult = load("adult")
        assert adult.points.tolist() == [[i, 1000 + i, 13, i, 0, 40] for i in range(3)]
        assert adult.kernels["Gaussian"] == Gaussian(200_000.0)
        assert adult.kernels["Polynomial"] == Polynomial(degree=2)
        bank = load("bank")
        assert bank.points.shape == (4, 10)
        assert bank.points[3].tolist() == [3 + j / 10 for j in range(10)]
        assert load("twitter").points.tolist() == [[-77.5, 38.25], [139.75, 35.5]]
        assert load("census1990").points.tolist() == [[5, 3], [6, 1], [3, 2]]
        assert data.figure_sets(tmp_path)[-1] == "census1990"

    def test_texts_of_the_census_become_their_rank_over_both_files(self, tmp_path):
        write_raw(tmp_path)
        written = data.DATA_SETS["census"].sources[0]
        (tmp_path / "expected").mkdir()
        columns = {"age": [40, 20], "class_of_worker": [1, 0], "hispanic_origin": [-1, 0], "year": [7, 7]}
        pq.write_table(pa.table(columns), tmp_path / "expected" / "census_income_kdd.parquet")
        census = data.load(tmp_path, "census", check_rows=False).points
        assert census.shape == (2, 40)
        assert "census-income.data" in written.files
        expected = data.load(tmp_path / "expected", "census", check_rows=False).points
        # Age, class of worker, Hispanic origin and year; both are standardised.
        np.testing.assert_array_equal(census[:, [0, 1, 11, 39]], expected)

    def test_prepare_writes_parquet_that_gives_the_same_points(self, tmp_path, monkeypatch, capsys):
        write_raw(tmp_path)
        for name, about in data.DATA_SETS.items():
            rows = {"adult": 3, "bank": 4, "census1990": 3}.get(name, 2)
            sources = tuple(replace(source, rows=(rows,)) for source in about.sources)
            monkeypatch.setitem(data.DATA_SETS, name, replace(about, sources=sources))
        before = {name: data.load(tmp_path, name).points for name in data.DATA_SETS}
        assert command.main(["prepare", "--data", str(tmp_path)]) == 0
        assert "adult.parquet: 3 rows, 6 columns" in capsys.readouterr().out
        for about in data.DATA_SETS.values():
            for file in {file for source in about.sources for file in source.files}:
                (tmp_path / file).unlink(missing_ok=True)
        for name, points in before.items():
            np.testing.assert_array_equal(data.load(tmp_path, name).points, points)

    def test_prepare_in_a_folder_without_files_says_where_to_get_them(self, tmp_path, capsys):
        assert command.main(["prepare", "--data", str(tmp_path)]) == 3
        printed = capsys.readouterr()
        assert 'not there: Bank: UCI Machine Learning Repository, data set "Bank Marketing"' in printed.out
        assert "docs/data.md lists the files" in printed.err

    def test_the_page_on_data_names_every_file_column_and_publisher(self):
        page = (ROOT / "docs" / "data.md").read_text()
        for about in data.DATA_SETS.values():
            for word in (about.prepared, *about.columns, *(f for source in about.sources for f in source.files)):
                assert f"`{word}`" in page, word

    def test_prepared_files_without_weight_and_label_and_standardised(self, tmp_path):
        write_parquet(tmp_path, 300)
        census = data.load(tmp_path, "census", check_rows=False)
        assert census.points.shape == (300, 5)
        np.testing.assert_allclose(census.points.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(census.points.std(axis=0), 1.0)
        assert data.figure_sets(tmp_path)[-1] == "census"

    def test_a_sample_is_part_of_the_rows(self, tmp_path):
        write_parquet(tmp_path, 300)
        everything, cut = (
            data.load(tmp_path, "twitter", check_rows=False, most_rows=rows).points for rows in (None, 40)
        )
        assert cut.shape == (40, 2)
        assert {tuple(row) for row in cut} <= {tuple(row) for row in everything}

    def test_another_number_of_rows_is_refused(self, tmp_path):
        write_raw(tmp_path)
        with pytest.raises(DataError, match=r"adult\.data and adult\.test must have 48,842 rows, as published; got 3"):
            data.load(tmp_path, "adult")

    def test_a_missing_file_says_where_to_get_it(self, tmp_path):
        with pytest.raises(DataError, match=r"Bank is missing in .* UCI Machine Learning Repository.*Bank Marketing"):
            data.load(tmp_path, "bank")

    def test_a_missing_column_is_named(self, tmp_path):
        pq.write_table(pa.table({"longitude": [1.0]}), tmp_path / "twitter_first100k.parquet")
        with pytest.raises(DataError, match="must have the columns latitude; got longitude"):
            data.load(tmp_path, "twitter", check_rows=False)

    def test_gaps_are_refused(self, tmp_path):
        table = pa.table({"longitude": [1.0, float("nan")], "latitude": [1.0, 2.0]})
        pq.write_table(table, tmp_path / "twitter_first100k.parquet")
        with pytest.raises(
            DataError, match="must hold finite numbers; got missing or infinite ones in 1 rows, the first of them row 1"
        ):
            data.load(tmp_path, "twitter", check_rows=False)

    def test_swapped_coordinates_are_refused(self, tmp_path):
        (tmp_path / "twitter.txt").write_text("1349000000 35.5 139.75\n")
        with pytest.raises(DataError, match=r"a latitude is 139\.75, beyond 90"):
            data.load(tmp_path, "twitter", check_rows=False)

    def test_a_line_of_another_length_is_refused(self, tmp_path):
        write_raw(tmp_path)
        (tmp_path / "adult.data").write_text("39, State-gov\n")
        with pytest.raises(DataError, match="cannot be read as Adult: a line does not have 15 fields"):
            data.load(tmp_path, "adult", check_rows=False)


class TestCells:
    CELLS = tuple(Cell({"a": name, "size": size}) for name in "xy" for size in (1, 2))

    def table(self, folder):
        return Table(folder / "t.csv", ("a", "size"), ("value",))

    def test_a_stopped_run_resumes_and_measures_nothing_twice(self, tmp_path, capsys):
        measured = []

        def measure(key):
            if len(measured) == 3:
                raise KeyboardInterrupt
            measured.append((key["a"], key["size"]))
            return {"value": 0.1 * len(measured)}

        with pytest.raises(KeyboardInterrupt):
            run_cells("Try", self.table(tmp_path), self.CELLS, measure)
        again = self.table(tmp_path)
        assert len(again.rows) == 3
        run_cells("Try", again, self.CELLS, lambda key: {"value": 9.0})
        assert measured == [("x", 1), ("x", 2), ("y", 1)]
        assert [row["value"] for row in self.table(tmp_path).rows] == [0.1, 0.2, 0.3, 9.0]
        assert "75%" in capsys.readouterr().err

    def test_half_a_line_is_measured_again(self, tmp_path):
        run_cells("Try", self.table(tmp_path), self.CELLS[:2], lambda key: {"value": 1.0})
        path = tmp_path / "t.csv"
        path.write_text(path.read_text().rstrip("\r\n").removesuffix(",1"))
        run_cells("Try", self.table(tmp_path), self.CELLS[:2], lambda key: {"value": 2.0})
        assert [(row["size"], row["value"]) for row in self.table(tmp_path).rows] == [(1, 1), (2, 2)]

    def test_no_cell_begins_when_time_is_over(self, tmp_path):
        with pytest.raises(OutOfTime, match=r"4 of 4 cells are left\. Start it again to continue"):
            run_cells("Try", self.table(tmp_path), self.CELLS, lambda key: {"value": 1.0}, until=0.0)

    def test_several_processes_give_the_same_rows(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        for folder, processes in (("a", 1), ("b", 2)):
            run_cells("Try", self.table(tmp_path / folder), self.CELLS, double, processes=processes)
        rows = [sorted(map(str, self.table(tmp_path / folder).rows)) for folder in "ab"]
        assert rows[0] == rows[1]

    def test_a_table_of_another_version_is_refused(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,value\nx,1\n")
        with pytest.raises(FormatError, match="must have the columns a, size, value; it is from another version"):
            self.table(tmp_path)


def double(key):
    return {"value": 2 * key["size"]}


class TestRivals:
    POINTS = np.concatenate([np.random.default_rng(0).normal(c, 0.5, size=(40, 2)) for c in (0.0, 6.0, 12.0)])
    TRUTH = np.repeat(np.arange(3), 40)

    @pytest.mark.parametrize("method", [m for n, m in command.alternatives.METHODS.items()], ids=lambda m: m.__name__)
    def test_every_method_finds_clusters_that_lie_apart(self, method):
        labels = method(self.POINTS, 3, Gaussian(4.0), 30, 0)
        pairs = {(int(a), int(b)) for a, b in zip(self.TRUTH, labels, strict=True)}
        assert len(pairs) == 3
        assert len({b for _, b in pairs}) == 3

    def test_partition_cost_by_hand(self):
        points = np.array([[0.0], [2.0], [10.0]])
        assert rivals.partition_cost(points, np.array([0, 0, 1]), Linear()) == pytest.approx(2.0)

    def test_landmark_features_at_all_points_give_the_kernel_back(self):
        kernel = Gaussian(3.0)
        features = rivals.landmark_features(self.POINTS, self.POINTS, kernel)
        np.testing.assert_allclose(features @ features.T, kernel.block(self.POINTS, self.POINTS), atol=1e-4)

    def test_leverage_scores_are_those_of_the_whole_matrix_where_the_sample_is_everything(self):
        kernel = Gaussian(1.0)
        scores = rivals.leverage_scores(self.POINTS, kernel, len(self.POINTS), np.random.default_rng(0))
        gram = kernel.block(self.POINTS, self.POINTS)
        values = np.linalg.eigvalsh(gram)
        ridge = max(values[: len(gram) // 2].clip(min=0).mean(), 1e-10 * values[-1])
        # diag(K (K + r)^-1) = diag(K - K (K + r)^-1 K) / r
        expected = np.diag(gram @ np.linalg.inv(gram + ridge * np.eye(len(gram))))
        np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-6)

    def test_random_features_are_for_the_gaussian_kernel(self):
        with pytest.raises(TypeError, match="Gaussian"):
            rivals.by_random_features(self.POINTS, 3, Linear(), 10, 0)


def test_k_means_on_all_points_is_lloyd():
    points = np.array([[0.0], [1.0], [10.0], [11.0]])
    found = kmeans.kernel_k_means(Coreset(points, np.ones(4)), 2, Linear(), 0)
    assert found.cost == pytest.approx(1.0)
    assert kmeans.cost_on_all(points, Coreset(points, np.ones(4)), found, Linear()) == pytest.approx(1.0)


def test_skew_has_one_small_far_cluster():
    points = variations.skewed(10_000)
    assert (points[:, 0] > 30).sum() == 10


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """All experiments on generated data, once."""
    folder, out = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("out")
    write_parquet(folder, 1_200)
    plan = smallest(folder, out)
    command.run_experiments(list(command.EXPERIMENTS), plan, "python -m benchmarks.paper all")
    return plan


class TestEndToEnd:
    def test_tables_plots_and_page_are_there(self, done):
        for name in command.EXPERIMENTS:
            for kind in ("csv", "png", "svg"):
                assert (done.out / f"{name}.{kind}").stat().st_size > 200, (name, kind)
        page = (done.out / "README.md").read_text()
        assert "Figure 1" in page
        assert page.count("| `python -m benchmarks.paper all` |") == len(command.EXPERIMENTS)
        assert len(claims.check_claims(done.out)) == 8

    def test_all_cells_of_figure_1(self, done):
        rows = Table(done.out / "error.csv", error.KEYS, error.VALUES).rows
        assert len(rows) == 4 * 3 * 2 * 4
        assert all(row["least"] <= row["mean"] <= row["most"] for row in rows)

    def test_done_again_measures_nothing(self, done, capsys):
        before = {name: (done.out / f"{name}.csv").read_bytes() for name in command.EXPERIMENTS}
        for _, run, _ in command.EXPERIMENTS.values():
            run(done)
        assert before == {name: (done.out / f"{name}.csv").read_bytes() for name in command.EXPERIMENTS}
        assert "left" not in capsys.readouterr().err


def test_a_machine_without_matplotlib_says_what_to_install_before_it_measures(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert command.main(["error", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 4
    assert capsys.readouterr().err.rstrip().endswith("Install it with pip install 'kernelcoreset[plots]'.")
    assert not (tmp_path / "out").exists()


def test_missing_data_is_reported_in_one_line(tmp_path, capsys):
    code = command.main(["error", "--data", str(tmp_path), "--out", str(tmp_path), "--quick", "--no-spark"])
    assert code == 3
    assert "Adult is missing in" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(
    not (REAL / "adult.parquet").exists(),
    reason="no real data: set KERNELCORESET_DATA to a folder of the data sets of docs/data.md",
)
def test_quick_figure_2_and_3_on_real_data(tmp_path):
    for what in ("kmeans", "spectral"):
        assert command.main([what, "--data", str(REAL), "--out", str(tmp_path), "--quick", "--no-spark"]) == 0
    rows = Table(tmp_path / "quick" / "kmeans.csv", kmeans.KEYS, kmeans.VALUES).rows
    assert {row["n"] for row in rows} == {1_000}
    checked = {claim.claim: claim for claim in claims.check_claims(tmp_path / "quick")}
    assert checked["below 5 % objective error at N = 100"].holds == "holds"
