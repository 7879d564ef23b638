"""Where the result goes, and that a failure leaves the old one as it was."""

from pathlib import Path

import pytest

from kernelcoreset import SettingError
from kernelcoreset.files.outputs import why_foreign
from kernelcoreset.jobs.settings.rows import OutputSettings
from kernelcoreset.spark.hadoop import exists, names_below, qualified_path
from kernelcoreset.spark.jobs.output import check_output, write_output


def fail(batches):
    """Pass the first batch on, then fail."""
    yield next(iter(batches))
    raise ValueError("in the middle")


@pytest.fixture
def rows(spark):
    return spark.range(0, 40, 1, 2).selectExpr("id", "cast(id % 2 as int) half")


@pytest.fixture
def failing(rows):
    return rows.mapInArrow(fail, rows.schema)


@pytest.fixture
def new_rows(spark):
    """Rows of one half only."""
    return spark.range(100, 105).selectExpr("id", "1 half")


def ids(spark, path):
    return sorted(row.id for row in spark.read.parquet(str(Path(path).absolute())).collect())


def leftovers():
    return [path.name for path in Path().iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_error_refuses_what_is_there(spark, rows, scheme):
    settings = OutputSettings(path=f"{scheme}{Path('out').absolute()}")
    check_output(spark, settings)
    write_output(rows, settings)
    with pytest.raises(SettingError, match=r"`output.path` already exists: .*out\. Set output.mode to overwrite or"):
        check_output(spark, settings)
    assert ids(spark, "out") == list(range(40))


def test_a_failed_first_write_is_not_in_the_way_of_the_next(spark, rows, failing):
    settings = OutputSettings(path=str(Path("out").absolute()))
    with pytest.raises(Exception, match="in the middle"):
        write_output(failing, settings)
    check_output(spark, settings)
    write_output(rows, settings)
    assert ids(spark, "out") == list(range(40))


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_new_folder_has_its_name_only_when_it_is_whole(spark, rows, mode):
    """A kill at any moment before that leaves nothing that stops the next run."""
    place = str(Path("out").absolute())

    def look(batches):
        assert not Path(place).exists()
        yield from batches

    write_output(rows.mapInArrow(look, rows.schema), OutputSettings(path=place, mode=mode))
    assert ids(spark, "out") == list(range(40))
    assert not leftovers()


def test_error_refuses_what_another_job_wrote_meanwhile(spark, rows):
    place = Path("out").absolute()

    def meanwhile(batches):
        place.mkdir(exist_ok=True)
        (place / "theirs").touch()
        yield from batches

    with pytest.raises(FileExistsError, match=r"did not when it was begun\. Nothing was written there"):
        write_output(rows.mapInArrow(meanwhile, rows.schema), OutputSettings(path=str(place)))
    assert [path.name for path in place.iterdir()] == ["theirs"]
    assert not leftovers()


def test_overwrite_replaces_all_or_nothing(spark, rows, failing, new_rows):
    settings = OutputSettings(path=str(Path("out").absolute()), mode="overwrite")
    write_output(rows, settings)
    with pytest.raises(Exception, match="in the middle"):
        write_output(failing, settings)
    assert ids(spark, "out") == list(range(40))
    assert leftovers() == []
    write_output(new_rows, settings)
    assert ids(spark, "out") == list(range(100, 105))
    assert leftovers() == []


def test_overwriting_what_is_being_read(spark, rows):
    settings = OutputSettings(path=str(Path("out").absolute()), mode="overwrite")
    write_output(rows, settings)
    write_output(spark.read.parquet(str(Path("out").absolute())).where("id < 3"), settings)
    assert ids(spark, "out") == [0, 1, 2]


def test_append_adds_all_or_nothing(spark, rows, failing, new_rows):
    settings = OutputSettings(path=str(Path("out").absolute()), mode="append")
    write_output(rows, settings)
    with pytest.raises(Exception, match="in the middle"):
        write_output(failing, settings)
    assert ids(spark, "out") == list(range(40))
    write_output(new_rows, settings)
    assert ids(spark, "out") == [*range(40), *range(100, 105)]


def test_overwrite_partitions_leaves_the_others(spark, rows, failing, new_rows):
    settings = OutputSettings(path=str(Path("out").absolute()), mode="overwrite-partitions", partition_by=["half"])
    write_output(rows, settings)
    with pytest.raises(Exception, match="in the middle"):
        write_output(failing, settings)
    assert ids(spark, "out") == list(range(40))
    write_output(new_rows, settings)
    assert ids(spark, "out") == [*range(0, 40, 2), *range(100, 105)]


def test_formats_and_options(spark, rows):
    write_output(
        rows, OutputSettings(path=str(Path("out").absolute()), format="csv", options={"header": True, "sep": ";"})
    )
    assert spark.read.csv(str(Path("out").absolute()), header=True, sep=";").columns == ["id", "half"]


def test_tables(spark, rows, new_rows):
    def found():
        return sorted(row.id for row in spark.table("labels").collect())

    settings = OutputSettings(table="labels", partition_by=["half"])
    try:
        check_output(spark, settings)
        write_output(rows, settings)
        assert found() == list(range(40))
        with pytest.raises(SettingError, match=r"`output.table` already exists: labels\. Set output.mode to"):
            check_output(spark, settings)
        write_output(new_rows, OutputSettings(table="labels", mode="append", partition_by=["half"]))
        assert found() == [*range(40), *range(100, 105)]
        write_output(
            new_rows.selectExpr("half", "id + 1 id"), OutputSettings(table="labels", mode="overwrite-partitions")
        )
        assert found() == [*range(0, 40, 2), *range(101, 106)]
        write_output(new_rows, OutputSettings(table="labels", mode="overwrite", partition_by=["half"]))
        assert found() == list(range(100, 105))
    finally:
        spark.sql("drop table if exists labels")


def test_what_is_not_an_output_stays(spark, rows):
    Path("photos").mkdir()
    Path("photos/one.jpg").write_text("a picture")
    settings = OutputSettings(path=str(Path("photos").absolute()), mode="overwrite")
    for work in (lambda: check_output(spark, settings), lambda: write_output(rows, settings)):
        with pytest.raises(SettingError, match=r"photos is not an output of a job: it holds one\.jpg, .* Remove it"):
            work()
    assert Path("photos/one.jpg").read_text() == "a picture"


def test_spark_sees_the_same_files(spark, rows):
    place = Path("o u%20t").absolute()
    write_output(rows, OutputSettings(path=str(place), partition_by=["half"]))
    found = {f"{path.relative_to(place)}{'/' * path.is_dir()}" for path in place.rglob("*")}
    # Spark hides its checksum files.
    assert set(names_below(spark, str(place))) == {name for name in found if not name.endswith(".crc")}
    assert names_below(spark, str(place / "absent")) == []
    assert why_foreign(found) is None


def test_spark_says_whether_something_is_at_a_path(rows, tmp_path):
    spark, place = rows.sparkSession, str(tmp_path / "rows")
    assert not exists(spark, place)
    rows.write.parquet(place)
    assert exists(spark, place)
    assert qualified_path(spark, place) == f"file:{place}"
