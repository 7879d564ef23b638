"""The package by itself: without Spark, from a zip, without a home."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import kernelcoreset

PACKAGE = Path(kernelcoreset.__file__).parent

EVERY_MODULE = """
import importlib, pkgutil, sys
sys.modules["pyspark"] = None  # from here on `import pyspark` fails
import kernelcoreset
found = [module.name for module in pkgutil.walk_packages(kernelcoreset.__path__, "kernelcoreset.")
         if not module.name.startswith("kernelcoreset.spark")]
for name in found:
    importlib.import_module(name)
print(len(found))
"""

ONE_BLOCK = """
import kernelcoreset, sys
assert ".zip" in kernelcoreset.__file__, kernelcoreset.__file__
print(kernelcoreset.Linear().block([[1.0, 2.0]], [[3.0, 4.0]])[0, 0])
"""


def run(program, **environment):
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_but_spark_imports_without_pyspark():
    assert int(run(EVERY_MODULE, PYTHONPATH=str(PACKAGE.parent))) >= 15


def test_a_zipped_package_without_a_home_compiles_in_memory(tmp_path):
    # Nothing can be written beside a zip, and /dev/null is no folder, not even for root.
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in PACKAGE.rglob("*.py"):
            zipped.write(path, path.relative_to(PACKAGE.parent))
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "IPYTHONDIR": "/dev/null"}
    assert run(ONE_BLOCK, PYTHONPATH=str(archive), **nowhere) == "11.0"


def test_all_public_names_are_there():
    assert sorted(kernelcoreset.__all__) == kernelcoreset.__all__
    assert all(hasattr(kernelcoreset, name) for name in kernelcoreset.__all__)
