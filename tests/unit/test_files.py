"""Files: what a path means on every file system, and writes that are whole or not there."""

import os
from pathlib import Path

import pytest
from pyarrow import fs

from kernelcoreset.files import atomic, paths
from kernelcoreset.files.folder import Folder

LOCAL = fs.LocalFileSystem()


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
    with pytest.raises(OSError, match="Input/output error"):
        atomic.write_folder(LOCAL, str(target), {"a": b"new"})
    assert os.listdir(tmp_path) == ["model"]
    assert (target / "a").read_bytes() == b"old"
