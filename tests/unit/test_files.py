"""Files: what a path means on every file system, and writes that are whole or not there."""

import os
from pathlib import Path

import pytest
from pyarrow import fs

import kernelcoreset as kc
from kernelcoreset.files import atomic, paths
from kernelcoreset.files.folder import Folder
from kernelcoreset.jobs.settings.settings import Settings

LOCAL = fs.LocalFileSystem()
TABLES = {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}


def load(path):
    return kc.KernelKMeansModel.load(path)


def settings(path):
    return Settings.load(path)


@pytest.fixture(params=["local", "object store"])
def system_and_place(request, tmp_path):
    """A file system and a folder on it that is not there yet. The second is not known to be local, as S3 is not."""
    if request.param == "local":
        return LOCAL, f"{tmp_path}/new"
    return fs.SubTreeFileSystem(str(tmp_path), LOCAL), "new"


@pytest.mark.parametrize(
    ("path", "scheme", "within", "local"),
    [
        ("data/x", "file", "data/x", "data/x"),
        ("/data/x", "file", "/data/x", "/data/x"),
        ("file:/data/x", "file", "/data/x", "/data/x"),
        ("file:///data/x", "file", "/data/x", "/data/x"),
        ("file:///data/a b#c?d", "file", "/data/a b#c?d", "/data/a b#c?d"),
        ("file:///data/50%25", "file", "/data/50%25", "/data/50%25"),
        ("data/day:/x", "file", "data/day:/x", "data/day:/x"),
        ("s3a://bucket/x", "s3a", "/x", None),
        ("dbfs:/x", "dbfs", "/x", None),
    ],
)
def test_a_path_means_what_it_means_to_spark(path, scheme, within, local):
    assert paths.scheme_of(path) == scheme
    assert paths.is_known(path) == (scheme != "dbfs")
    assert paths.path_within(path) == within
    assert paths.local_path(path) == (None if local is None else Path(local))
    if local is not None:
        system, place = paths.open_path(path)
        assert isinstance(system, fs.LocalFileSystem)
        assert place == os.path.abspath(local)


def test_addresses_that_spark_reports_are_encoded():
    assert paths.decoded_path("file:///data/a%20b;c%23.parquet") == Path("/data/a b;c#.parquet")
    assert paths.decoded_path("hdfs://host/data/a.parquet") is None


@pytest.mark.parametrize(
    "opened", [paths.open_path, Folder, kc.Coreset.read_parquet, kc.CoresetStore.open, load, settings]
)
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("dbfs:/models/m", "only where Databricks mounts DBFS"),
        ("wasbs://c@account/x", "must be local or start with one of file, s3"),
        ("day:/x", "write ./day:/x for a local file of that name"),
        ("file://host/x", "must not name a host"),
        ("s3:bucket/x", "has a slash after the colon"),
        ("file:data/x", "has a slash after the colon"),
        ("s3:///x", "must name a bucket"),
        ("s3://bucket/x?no_such_option=1", "pyarrow cannot open"),
    ],
)
def test_a_path_that_cannot_be_opened_is_refused_and_no_local_folder_is_made(
    opened, path, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kc.SettingError, match=message):
        opened(path)
    assert os.listdir(tmp_path) == []


def test_dbfs_is_a_mount_of_databricks(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "DBFS_MOUNT", str(tmp_path))
    for path in ("dbfs:/models/m", "dbfs:///models/m", "DBFS:/models/m"):
        assert paths.is_known(path)
        system, place = paths.open_path(path)
        assert isinstance(system, fs.LocalFileSystem)
        assert place == f"{tmp_path}/models/m"
    # Spark does not read /dbfs/x as dbfs:/x: what Spark writes is not renamed through the mount.
    assert paths.local_path("dbfs:/models/m") is None
    monkeypatch.setattr(paths, "_VOLUMES", f"{tmp_path}/")
    assert paths.open_path(f"dbfs:{tmp_path}/c/s/v/m")[1] == f"{tmp_path}/c/s/v/m"


def test_the_path_of_an_object_store_is_text_and_its_query_is_not_part_of_it():
    assert paths.open_path("s3a://bucket/50%25 a#b/c d?region=eu-west-1")[1] == "bucket/50%25 a#b/c d"
    assert paths.extend_path("s3://b/x.json?region=y.json", ".failed.json", without=".json").startswith(
        "s3://b/x.failed.json?region"
    )
    assert paths.extend_path("/data/what?", "/models") == "/data/what?/models"
    assert Settings.from_dict({**TABLES, "output": {"path": "s3://b/out/?region=x"}}).record_path() == (
        "s3://b/out.run.json?region=x"
    )


def test_a_file_system_within_another_is_the_other(tmp_path):
    below = fs.SubTreeFileSystem("sub", fs.SubTreeFileSystem(str(tmp_path), LOCAL))
    assert paths.open_path("x", below) == (LOCAL, f"{tmp_path}/sub/x")


def test_s3_has_another_name_in_hadoop():
    for scheme in ("s3", "s3a"):
        system, place = paths.open_path(f"{scheme}://bucket/to-s3a:/x?region=us-east-1")
        assert (system.type_name, system.region, place) == ("s3", "us-east-1", "bucket/to-s3a:/x")


def test_a_file_is_created_once_and_replaced_often(system_and_place, tmp_path):
    folder = Folder(system_and_place[1], system_and_place[0])
    assert folder.create("a.json", b"1")
    assert not folder.create("a.json", b"2")
    assert folder.read("a.json") == b"1"
    folder.write("a.json", b"3")
    folder.write("sub/b.json", b"4", durable=False)
    assert list(folder.names()) == ["a.json"]
    assert list(folder.names("sub")) == ["sub/b.json"]
    folder.sync("sub")
    folder.remove("sub/b.json")
    folder.remove("sub/b.json")
    assert folder.names("sub") == {}
    assert sorted(os.listdir(tmp_path / "new")) == ["a.json", "sub"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    atomic.write_file(LOCAL, f"{tmp_path}/a", b"old")

    def no_replace(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_replace)
    with pytest.raises(OSError, match="No space left"):
        atomic.write_file(LOCAL, f"{tmp_path}/a", b"new")
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_folder_is_replaced_as_a_whole(system_and_place, tmp_path):
    system, place = system_and_place
    atomic.write_folder(system, place, {"a": b"1", "sub/b": b"2"})
    atomic.write_folder(system, place, {"c": b"3"})
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["new", "new/c"]
    assert (tmp_path / "new" / "c").read_bytes() == b"3"


def test_a_folder_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    target = tmp_path / "model"
    atomic.write_folder(LOCAL, str(target), {"a": b"old"})

    def fail_half_way():
        with atomic.new_folder(target) as fresh:
            fresh.mkdir()
            (fresh / "a").write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    rename = Path.rename

    def only_once(path, other):
        if other == target and not path.joinpath("a").read_bytes() == b"old":
            raise OSError(5, "Input/output error")
        return rename(path, other)

    monkeypatch.setattr(Path, "rename", only_once)
    monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    with pytest.raises(OSError, match="Input/output error"):
        atomic.write_folder(LOCAL, str(target), {"a": b"new"})
    assert os.listdir(tmp_path) == ["model"]
    assert (target / "a").read_bytes() == b"old"


def test_a_folder_changes_in_one_step(tmp_path):
    target = tmp_path / "model"
    atomic.write_folder(LOCAL, str(target), {"a": b"old"})
    before = target.stat().st_ino
    with atomic.new_folder(target) as fresh:
        fresh.mkdir()
        inode = fresh.stat().st_ino
    assert (target.stat().st_ino, os.listdir(tmp_path)) == (inode, ["model"])
    assert inode != before


def test_a_folder_that_lost_its_name_gets_it_back(tmp_path):
    (tmp_path / ".model.0123.old").mkdir()
    (tmp_path / ".model.0123.old" / "a").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic.new_folder(tmp_path / "model"):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == ["model"]
    assert (tmp_path / "model" / "a").read_bytes() == b"old"


def test_links_stay_and_devices_are_left_alone(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    atomic.write_folder(LOCAL, str(tmp_path / "link"), {"a": b"1"})
    (tmp_path / "to a").symlink_to(tmp_path / "real" / "a")
    atomic.write_file(LOCAL, str(tmp_path / "to a"), b"2")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "to a").is_symlink()
    assert (tmp_path / "real" / "a").read_bytes() == b"2"
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "real"):
        with pytest.raises(FileExistsError, match="is a folder or a device"):
            atomic.write_file(LOCAL, str(tmp_path / name), b"3")
