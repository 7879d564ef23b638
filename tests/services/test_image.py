"""The commands of the Dockerfile, in order, in a folder instead of an image; then a job as a pod would run it.

There is no Docker here: what is not tested is the image of Spark that it starts from.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark

PLATFORM = "Dockerfile", "its commands without Docker, and the job run with what they install"
ROOT = Path(__file__).parents[2]
JOB = """
[input]
demo_rows = 3_000
[kernel]
name = "Gaussian"
sigma = 50.0
[coreset]
k = 3
coreset_size = 100
[output]
path = "{folder}/labels"
"""


def instructions():
    """Name and text of each, without comments; lines that go on are one."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / "Dockerfile").read_text()).replace("\\\n", " ")
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line.strip()]


def call(command, environment, folder):
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def build(folder):
    """Follow the Dockerfile with `folder` as the root of the image; return the environment of its processes."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "system")], check=True)
    context = folder / "context"
    shutil.copytree(ROOT, context, ignore=shutil.ignore_patterns(".*", "dist", "__pycache__"))
    python = str(folder / "system" / "bin" / "python")
    call([python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", "."], dict(os.environ), context)
    environment = {"PATH": f"{folder}/system/bin:{os.environ['PATH']}", "HOME": str(folder / "home")}
    # The argument of the build: nothing is downloaded for it.
    environment["PYTHON"] = sys.executable
    environment |= {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "JAVA_HOME"))
    }
    for name, text in instructions():
        placed = re.sub(r"(?<![\w.])/(?=opt/|tmp/)", f"{folder}/", text)
        if name == "RUN":
            call(["sh", "-c", placed], environment, folder)
        elif name == "ENV":
            for variable, value in re.findall(r"(\w+)=(\S*)", placed):
                environment[variable] = value.replace("${PATH}", environment["PATH"])
        elif name == "COPY":
            source, target = placed.split()
            Path(target).mkdir(parents=True, exist_ok=True)
            for path in context.glob(source):
                if path.is_dir():
                    shutil.copytree(path, target, dirs_exist_ok=True)
                else:
                    shutil.copy(path, target)
        else:
            assert name in ("ARG", "FROM", "USER"), name
    return environment


def machine_code(home):
    return {path: path.stat().st_mtime_ns for path in (home / "machine_code").rglob("*") if path.is_file()}


def test_a_job_runs_with_what_the_commands_install(tmp_path):
    environment = build(tmp_path)
    home = tmp_path / "opt" / "kernelcoreset"
    (tmp_path / "job.toml").write_text(JOB.format(folder=tmp_path))
    where = call(["python3", "-c", "import kernelcoreset; print(kernelcoreset.__file__)"], environment, tmp_path)
    assert Path(where.strip()).is_relative_to(home / "python")
    # As the entry point of Spark's image does it: pyspark is that of SPARK_HOME.
    spark = Path(pyspark.__file__).parent
    run = environment | {"SPARK_HOME": str(spark), "SPARK_LOCAL_IP": "127.0.0.1"}
    job = [str(home / "jobs" / "run.py"), "--config", str(tmp_path / "job.toml")]
    code = machine_code(home)
    assert code
    call([str(spark / "bin" / "spark-submit"), "--master", "local[2]", *job], run, tmp_path)
    assert len(pq.read_table(tmp_path / "labels")) == 3_000
    record = json.loads((tmp_path / "labels.run.json").read_text())
    assert (record["status"], sum(record["cluster_sizes"])) == ("done", 3_000)
    # What was compiled for the image was not compiled again; the driver may need more.
    assert code.items() <= machine_code(home).items()
