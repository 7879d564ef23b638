"""A real Airflow for tests, in an environment of its own: its requirements do not go with those of the project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENT = "apache-airflow==3.3.2"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
TRIES = 3


def airflow_program() -> Path:
    """Return the command of Airflow; installed once, and kept for other clones too, as the jars are."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelcoreset"
    environment = cache / "airflow" / f"{REQUIREMENT}-{PYTHON}"
    stamp = environment / "installed"
    if not stamp.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        # Few of the modules are ever imported: they are compiled when they are.
        options = ["--quiet", "--disable-pip-version-check", "--no-compile"]
        install = [environment / "bin" / "pip", "install", *options, REQUIREMENT]
        for left in reversed(range(TRIES)):
            if subprocess.run(install, check=left == 0).returncode == 0:
                break
        stamp.touch()
    return environment / "bin" / "airflow"


class Airflow:
    """An Airflow with its own database and a folder of DAGs."""

    def __init__(self, home: Path) -> None:
        self._program = airflow_program()
        self.home = home
        self.dags = home / "dags"
        self.dags.mkdir(parents=True)
        self.call("db", "migrate", timeout=300)

    def call(self, *arguments: str, timeout: float = 600, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Airflow with variables of Airflow; it must end well unless it is a test of a DAG."""
        own = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            **{f"AIRFLOW_VAR_{name.upper()}": value for name, value in variables.items()},
        }
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "AIRFLOW"))
        }
        done = subprocess.run(
            [self._program, *arguments],
            cwd=self.home,
            env=kept | own | {"SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if arguments[:2] != ("dags", "test") and done.returncode != 0:
            raise RuntimeError(f"airflow {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        return done
