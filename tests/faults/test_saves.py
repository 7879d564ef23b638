"""Saving in place of something older: killed at every write, the old one or the new one is there as a whole."""

import json
import subprocess
import sys

import pytest
from pyarrow import fs

import kernelcoreset as kc
from kernelcoreset.files.folder import Folder
from kernelcoreset.models.folder import read_model_files, write_model_files
from tests.faults import save_script
from tests.faults.standalone import ROOT


def test_killed_at_every_write_the_old_or_the_new_is_there(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.save_script", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 6
    assert {name: kind["wrong"] for name, kind in found.items() if kind["wrong"]} == {}
    # How many writes there are depends on the file system, so only the fewest of each way count.
    assert all(kind["steps"] >= 5 for kind in found.values()), found


class DeadError(Exception):
    """The process would be gone."""


class DyingStore(fs.FileSystemHandler):
    """A file system in memory, without renames of folders, that dies before its n-th change."""

    def __init__(self):
        self.store = fs._MockFileSystem()
        self.left = -1

    def change(self, name, *arguments):
        self.left -= 1
        if self.left == 0:
            raise DeadError
        return getattr(self.store, name)(*arguments)

    def get_type_name(self):
        return "dying"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self.store.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self.store.get_file_info(selector)

    def create_dir(self, path, recursive):
        self.store.create_dir(path, recursive=recursive)

    def delete_dir(self, path):
        self.change("delete_dir", path)

    def delete_dir_contents(self, path, missing_dir_ok):
        self.change("delete_dir_contents", path)

    def delete_root_dir_contents(self):
        raise NotImplementedError

    def delete_file(self, path):
        self.change("delete_file", path)

    def move(self, source, target):
        raise NotImplementedError

    def copy_file(self, source, target):
        raise NotImplementedError

    def open_input_stream(self, path):
        return self.store.open_input_stream(path, compression=None)

    def open_input_file(self, path):
        return self.store.open_input_file(path)

    def open_output_stream(self, path, metadata):
        return self.change("open_output_stream", path, None)

    def open_append_stream(self, path, metadata):
        raise NotImplementedError


def test_a_crash_on_an_object_store_leaves_the_old_model_or_the_new(tmp_path):
    old, new = save_script.model(1), save_script.model(2)
    left = {}
    for step in range(1, 20):
        store = DyingStore()
        folder = Folder("bucket/model", fs.PyFileSystem(store))
        write_model_files(folder, old.to_files())
        store.left = step
        try:
            write_model_files(folder, new.to_files())
        except DeadError:
            left[step] = kc.KernelKMeansModel.from_files(read_model_files(folder, old.FILES))
        else:
            break
    found = [model.coreset.points.tolist() for model in left.values()]
    assert {str(points) for points in found} == {str(model.coreset.points.tolist()) for model in (old, new)}
    assert len(folder.names()) == 2
    # What earlier versions wrote there, under plain names, still loads.
    folder = Folder("bucket/plain", fs.PyFileSystem(DyingStore()))
    for name, content in old.to_files().items():
        folder.write(name, content)
    assert read_model_files(folder, old.FILES) == old.to_files()
    folder.remove("coreset.parquet")
    with pytest.raises(kc.FormatError, match=r"is not a whole model: coreset\.parquet missing"):
        read_model_files(folder, old.FILES)
