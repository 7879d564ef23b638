"""How often the jobs open their input: once per run, and every Parquet footer is read once on the driver."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrameReader

from kernelcoreset.jobs import cli
from tests.spark.conftest import table_of
from tests.spark.job_runs import record_of, run, write_config

DAYS = ["2026-03-01", "2026-03-02", "2026-03-03"]


def write_day(points, day, start):
    folder = Path("points") / f"date={day}"
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table_of(points).slice(start, 100), folder / "part.parquet", row_group_size=50)


@pytest.fixture
def config(spark, points):
    """Three folders with one file each, and the settings of all jobs."""
    for number, day in enumerate(DAYS):
        write_day(points, day, 100 * number)
    write_config(
        '[input]\npath = "HERE/points"\nfeatures = ["x", "y"]\n'
        '[kernel]\nname = "Gaussian"\nsigma = "median"\n'
        '[coreset]\nk = 3\ncoreset_size = 60\npath = "coreset.parquet"\n'
        '[cluster]\nn_init = 3\nmodel_path = "model"\n'
        '[store]\npath = "store"\n'
        '[output]\npath = "HERE/out"\nmode = "overwrite"\ncolumns = ["id"]\n'
    )


class Reads:
    """Counts, on the driver, how often files are listed and opened by Spark, and how often a footer is read."""

    def __init__(self, monkeypatch):
        self.clear()
        formats = {}
        set_format, load, read_metadata = DataFrameReader.format, DataFrameReader.load, pq.read_metadata

        def counting_format(reader, source):
            formats[id(reader)] = source
            return set_format(reader, source)

        def counting_load(reader, path=None, *arguments, **options):
            if isinstance(path, str):  # a list names files of an input that has been opened
                self.loads[formats.get(id(reader)), Path(path).name] += 1
            return load(reader, path, *arguments, **options)

        def counting_read(where, *arguments, **options):
            self.footers[Path(where).parent.name.partition("=")[2]] += 1
            return read_metadata(where, *arguments, **options)

        monkeypatch.setattr(DataFrameReader, "format", counting_format)
        monkeypatch.setattr(DataFrameReader, "load", counting_load)
        monkeypatch.setattr(pq, "read_metadata", counting_read)

    def clear(self):
        self.loads, self.footers = Counter(), Counter()


@pytest.fixture
def reads(config, monkeypatch):
    return Reads(monkeypatch)


@pytest.mark.parametrize(
    "main", [cli.run_main, cli.spectral_main, cli.build_coreset_main], ids=["run", "spectral", "build-coreset"]
)
def test_the_batch_jobs(reads, main):
    assert run(main) == 0
    assert reads.loads == {("parquet", "points"): 1}
    assert reads.footers == dict.fromkeys(DAYS, 1)


@pytest.mark.parametrize("scan", ["auto", "spark"])
def test_assign(reads, scan):
    assert run(cli.run_main) == 0
    reads.clear()
    assert run(cli.assign_main, f"input.scan={scan}") == 0
    assert reads.loads == {("parquet", "points"): 1}
    assert reads.footers == (dict.fromkeys(DAYS, 1) if scan == "auto" else {})


def test_a_dry_run(reads, capsys):
    assert cli.run_main(["--config", "job.toml", "--dry-run"]) == 0
    assert reads.loads == {("parquet", "points"): 1}
    assert reads.footers == dict.fromkeys(DAYS, 1)


def test_update_reads_the_footers_of_new_and_changed_files_only(reads, points):
    once = {("parquet", "points"): 1, ("binaryFile", "points"): 1}  # opened for its schema, and listed
    assert run(cli.update_main) == 0
    assert (reads.loads, reads.footers) == (once, dict.fromkeys(DAYS, 1))
    reads.clear()
    write_day(points, DAYS[1], 400)
    write_day(points, "2026-03-04", 500)
    assert run(cli.update_main) == 0
    assert record_of()["keys"] == {"new": 1, "changed": 1, "vanished": 0, "left_window": 0}
    assert (reads.loads, reads.footers) == (once, {DAYS[1]: 1, "2026-03-04": 1})
