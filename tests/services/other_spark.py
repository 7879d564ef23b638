"""Another pyspark than that of the environment: downloaded once by pip and kept. What cannot be had is an error."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def other_pyspark(series: str) -> Path:
    """Return a folder with the newest pyspark of a series, such as 4.1, and nothing else, for PYTHONPATH."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelcoreset" / "pyspark"
    folder = cache / series
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as place:
            fresh = Path(place) / "packages"
            # Its dependencies, such as py4j, are those of the environment.
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--retries", "10", "--target", str(fresh)]
            subprocess.run([sys.executable, "-m", "pip", "install", *options, f"pyspark=={series}.*"], check=True)
            fresh.rename(folder)
    return folder
