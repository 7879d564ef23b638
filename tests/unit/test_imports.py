"""Importing the package: without Spark, from a zip, without a home folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kernelcoreset
from kernelcoreset.kernels.second_process import ALONE

PACKAGE = Path(kernelcoreset.__file__).parent

EVERY_MODULE = """
import importlib, pkgutil, sys
sys.modules["pyspark"] = None  # from here on `import pyspark` fails
import pytest

import kernelcoreset
found = [module.name for module in pkgutil.walk_packages(kernelcoreset.__path__, "kernelcoreset.")
         if not module.name.startswith("kernelcoreset.spark")]
for name in found:
    importlib.import_module(name)
print("kernelcoreset", *found)
"""

ONE_FUNCTION = """
import numpy, kernelcoreset
assert ".zip" in kernelcoreset.__file__, kernelcoreset.__file__
from kernelcoreset.kernels.loops.center_tiles import to_distances
out = numpy.array([169.0])
to_distances(out)
print(out[0])
"""


def run(program, **environment):
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        env=kept | {ALONE: "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_but_spark_imports_without_pyspark():
    files = {path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")}
    names = {".".join(path.parts).removesuffix(".__init__") for path in files if path.parts[1] != "spark"}
    assert set(run(EVERY_MODULE, PYTHONPATH=str(PACKAGE.parent)).split()) == names


def zip_package(archive, *extra):
    archive.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in PACKAGE.rglob("*.py"):
            zipped.write(path, path.relative_to(PACKAGE.parent))
        for name in extra:
            zipped.writestr(name, "")
    return archive


def test_a_zipped_package_without_a_home_works(tmp_path):
    # Nothing can be written beside a zip, and /dev/null is no folder, not even for root.
    archive = zip_package(tmp_path / "package.zip")
    assert run(ONE_FUNCTION, PYTHONPATH=str(archive), HOME="/dev/null", TMPDIR=str(tmp_path)) == "13.0"


def test_a_zipped_package_is_compiled_once_wherever_it_lies(tmp_path):
    def machine_code():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").rglob("*.code")}

    def run_from(archive):
        assert run(ONE_FUNCTION, PYTHONPATH=str(archive), NUMBA_CACHE_DIR=str(tmp_path / "kept")) == "13.0"

    first = zip_package(tmp_path / "one" / "package.zip")
    run_from(first)
    compiled = machine_code()
    assert compiled
    second = tmp_path / "two" / "package.zip"
    second.parent.mkdir()
    second.write_bytes(first.read_bytes())
    run_from(second)
    assert machine_code() == compiled
    run_from(zip_package(tmp_path / "three" / "package.zip", "kernelcoreset/another_file.py"))
    assert len(machine_code()) == 2 * len(compiled)


def test_all_public_names_are_there():
    assert sorted(kernelcoreset.__all__) == kernelcoreset.__all__
    assert all(hasattr(kernelcoreset, name) for name in kernelcoreset.__all__)
    assert dir(kernelcoreset) == sorted(kernelcoreset.__all__)


WORKER = """
import sys
import kernelcoreset.spark.labels, kernelcoreset.spark.leaves, kernelcoreset.spark.merge
print("slow:", *sorted({"pandas", "pyspark.ml", "scipy.linalg", "sklearn"} & set(sys.modules)))
from kernelcoreset.spark import KernelKMeans, explore, register
print(KernelKMeans.__name__, explore.__name__, register.__name__)
"""


def test_workers_import_nothing_slow_that_tasks_do_not_need():
    assert run(WORKER, PYTHONPATH=str(PACKAGE.parent)).splitlines() == ["slow:", "KernelKMeans explore register"]


def test_a_mistyped_name_and_a_missing_pyspark_are_answered():
    script = (
        "import kernelcoreset\ntry:\n    import kernelcoreset.spark\nexcept ImportError as error:\n    print(error)"
    )
    blocked = f"import sys\nsys.modules['pyspark'] = None\n{script}"
    assert "pip install 'kernelcoreset[spark]'" in run(blocked, PYTHONPATH=str(PACKAGE.parent))
    with pytest.raises(AttributeError) as raised:
        kernelcoreset.KernelKmeans  # noqa: B018
    assert (raised.value.name, raised.value.obj) == ("KernelKmeans", kernelcoreset)  # what Python suggests a name by
