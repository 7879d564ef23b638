"""Paths that meet: every two settings of a job that name the same place, one inside the other, or what is a user's.

The first table checks settings in this process. The second runs whole jobs from their command line, and compares the
bytes of the input and of all that is a user's before and after.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.places import check_apart, check_places
from kernelcoreset.jobs.settings.settings import Settings
from tests.faults.tally import Tally

ROOT = Path(__file__).parents[2]
WRITTEN = (
    "output.path",
    "input.quarantine_path",
    "coreset.path",
    "cluster.model_path",
    "store.path",
    "stream.checkpoint",
    "run.record",
    "run.report",
)
# The same place in other words; {} is its name in the working directory, HERE the directory itself.
FORMS = (
    "{}",
    "./{}",
    "{}/",
    "{}//",
    "far/../{}",
    "HERE/{}",
    "HERE/./far/..//{}",
    "file:HERE/{}",
    "file://HERE/{}",
    "FILE://HERE/{}/",
    "file://HERE/far/../{}",
    "here/{}",
    "HERE/here/here/{}",
    "file://HERE/here/{}",
)
REMOTE = (
    ("s3a://bucket/{}", "s3://bucket/{}"),
    ("s3a://bucket/{}", "s3a://bucket/x/../{}/"),
    ("s3://bucket/{}?region=eu-west-1", "s3a://bucket/{}"),
    ("s3://bucket/{}?endpoint_override=localhost:9000&scheme=http", "s3://bucket/{}"),
    ("s3a://bucket/my%20{}", "s3a://bucket/my {}"),
    ("s3a://bucket//{}", "s3n://bucket/{}"),
    ("gs://bucket/{}", "gcs://bucket/{}"),
    ("abfss://box@who.dfs.core.windows.net/{}", "wasbs://box@who.blob.core.windows.net/{}"),
    ("hdfs://host:8020/{}", "hdfs://host/{}"),
    ("hdfs:///{}", "hdfs://host/{}"),
    ("dbfs:/mnt/{}", "/dbfs/mnt/{}"),
    ("dbfs:/Volumes/a/{}", "/Volumes/a/{}"),
)
APART = (
    ("in", "in2"),
    ("in", "in.parquet"),
    ("in", "./far/in"),
    ("in", "file://HERE/new"),
    ("in", "In"),
    ("s3a://bucket/in", "s3a://bucket/out"),
    ("s3a://bucket/in", "s3a://other/in"),
    ("s3a://bucket/in", "gs://bucket/in"),
    ("hdfs://prod/in", "hdfs://backup/in"),
    ("s3a://bucket/in/*.parquet", "s3a://bucket/in/labels"),
    ("in/*.parquet", "in/labels"),
    ("in/date={1,2}", "in/labels"),
    ("in/part-[0-3]", "in/part-4"),
)
MEETING = (
    ("in/*.parquet", "in/labels.parquet"),
    ("in/*", "in/labels"),
    ("in/*/x", "in/labels"),
    ("in/{a,b}/*.parquet", "in/b"),
    ("in/{a,b}", "in/b/labels"),
    ("in/part-[^0]", "in/part-4"),
    ("s3a://bucket/day=*/", "s3a://bucket/day=1"),
    ("linked", "elsewhere"),
)
USERS = ("photos", "photos/one.jpg", "pipe", "nowhere", "table")


def prepare(folder: Path) -> None:
    """Put an input, folders and files of a user, and links to them into a folder."""
    for name in ("in", "far", "photos", "table", "elsewhere", "linked"):
        (folder / name).mkdir()
    pq.write_table(pa.table({"x": np.arange(200.0) % 7, "y": np.arange(200.0) % 3}), folder / "in" / "1.parquet")
    pq.write_table(pa.table({"x": [1.0]}), folder / "table" / "mine.parquet")
    (folder / "photos" / "one.jpg").write_bytes(b"a picture")
    (folder / "here").symlink_to(folder)
    (folder / "nowhere").symlink_to(folder / "absent")
    (folder / "linked" / "day").symlink_to(folder / "elsewhere")
    os.mkfifo(folder / "pipe")
    (folder / "job.toml").write_text("")


def settings_of(paths: dict[str, str], mode: str = "overwrite") -> Settings:
    """Return settings with these paths, and paths of their own for all others."""
    tables: dict[str, dict[str, object]] = {
        "input": {"path": "in", "features": ["x"], "bad_rows": "quarantine", "quarantine_path": "aside"},
        "kernel": {"name": "Linear"},
        "coreset": {"k": 2, "path": "coreset.parquet"},
        "cluster": {"model_path": "model"},
        "output": {"path": "out", "mode": mode},
        "store": {"path": "store"},
        "stream": {"checkpoint": "checkpoint"},
        "run": {"record": "record.json"},
    }
    for key, path in paths.items():
        section, _, name = key.partition(".")
        tables[section][name] = path
    return Settings.from_dict(tables)


def cases(here: Path) -> Iterator[tuple[dict[str, str], tuple[str, ...] | None]]:
    """Return paths, and the settings that the error must name; None if there must be no error."""
    for key in WRITTEN:
        for form in FORMS:
            yield {key: form.format("in")}, (key, "input.path")
            yield {key: form.format("in/deeper")}, (key, "input.path")
            yield {"input.path": form.format("far/in"), key: "far"}, (key, "input.path")
        yield {key: "in/1.parquet"}, (key, "input.path")
        yield {key: "."}, (key,)
        yield {key: "job.toml"}, (key, "--config")
        for one, other in REMOTE:
            for inner in ("in", "in/deeper"):
                yield {"input.path": one.format("in"), key: other.format(inner)}, (key, "input.path")
        for one, other in APART:
            yield {"input.path": one, key: other}, None
        for one, other in MEETING:
            yield {"input.path": one, key: other}, (key, "input.path")
        for users in USERS:
            yield {key: users}, (key,)
        yield {key: "bad\0name"}, ("null character",)
    for one, other in itertools.combinations(WRITTEN, 2):
        for form in FORMS:
            yield {one: "place", other: form.format("place")}, (one, other)
            yield {one: "place", other: form.format("place/deeper")}, (one, other)
        yield {one: "place/deeper", other: "place"}, (one, other)
        yield {one: "place", other: "place2"}, None
    yield {"run.record": "out.run.json"}, None
    yield {"run.record": "far/r.json", "output.path": "far/out"}, None


# Refused before paths are compared: a scheme that no record can have, and a character that no path can have.
OTHER_REFUSALS = (
    "`run.record` must be a local path or",
    "`run.report` must be a local path or",
    "must not contain the character of code 0",
)


def check_settings(folder: Path, most: int | None) -> Tally:
    """Check the settings of every case; nothing is run."""
    tally = Tally("paths that meet, or lead to what is a user's")
    with _inside(folder):
        prepare(folder)
        before = digest(folder)
        found = list(cases(folder))
        chosen = found if most is None else found[:: max(1, len(found) // most)]
        for paths, named in chosen:
            paths = {key: path.replace("HERE", str(folder)) for key, path in paths.items()}
            try:
                settings = settings_of(paths)
                # What is on another machine is compared, but not looked up.
                check = (
                    check_apart if any("://" in path or "dbfs:" in path for path in paths.values()) else check_places
                )
                check(settings, "job.toml", settings.record_path(), ("coreset.path", "cluster.model_path"))
            except SettingError as error:
                is_named = named is not None and all(name in str(error) for name in named)
                is_clear = is_named or any(own in str(error) for own in OTHER_REFUSALS)
                tally.add("clear error" if is_clear else "unclear error")
                if not is_clear:
                    print(f"unclear: {paths}: {error}", file=sys.stderr)
            else:
                tally.add("done right" if named is None else "silent wrong", lost=named is not None)
                if named is not None:
                    print(f"not refused: {paths}", file=sys.stderr)
        tally.lost += digest(folder) != before
    return tally


# --- whole jobs ------------------------------------------------------------------------------------------------------

JOB = """
[input]
path = "in"
features = ["x", "y"]
[kernel]
name = "Gaussian"
sigma = 3.0
[coreset]
k = 2
coreset_size = 50
[certificate]
center_sets = 0
[output]
path = "out"
mode = "overwrite"
"""
REFUSED = (
    ("output.path=.",),
    ("output.path=./in",),
    ("output.path=file://HERE/in/",),
    ("output.path=here/in", "output.mode=append"),
    ("output.path=photos",),
    ("output.path=pipe",),
    ("input.bad_rows=quarantine", "input.quarantine_path=in"),
    ("input.bad_rows=quarantine", "input.quarantine_path=photos"),
    ("input.bad_rows=quarantine", "input.quarantine_path=out"),
    ("coreset.path=in/1.parquet",),
    ("coreset.path=table/mine.parquet",),
    ("run.record=in/1.parquet",),
    ("cluster.model_path=out/model",),
)
DONE = ((), ("input.bad_rows=quarantine", "input.quarantine_path=aside"), ("output.path=to-out",))


def run_jobs(folder: Path, most: int | None) -> Tally:
    """Run whole jobs, those that must be refused and a few that must not, one after the other with one session."""
    prepare(folder)
    (folder / "job.toml").write_text(JOB)
    (folder / "to-out").symlink_to("out")
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", "tests.faults.path_cases", str(len(DONE + REFUSED) if most is None else most)]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, timeout=600)
    tally = Tally("whole jobs with paths that meet")
    for outcome, lost in json.loads(done.stdout.splitlines()[-1]):
        tally.add(outcome, lost)
    return tally


def _child(most: int) -> None:
    """Run the jobs in the working directory; print the outcome of each, and whether it changed what is not its own."""
    from kernelcoreset.jobs.cli import JOBS, run_job
    from kernelcoreset.spark.jobs.session import session_of

    folder, found = Path.cwd(), []
    before = digest(folder)
    with session_of("paths", {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}):
        for overrides in [*DONE, *REFUSED][:most]:
            options = [part for text in overrides for part in ("--set", text.replace("HERE", str(folder)))]
            said = io.StringIO()
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                try:
                    code = run_job(JOBS["run"], ["--config", "job.toml", *options])
                except SystemExit as ended:
                    code = int(ended.code or 0)
            lost = digest(folder) != before
            found.append((_outcome(folder, overrides, code, said.getvalue()), lost))
            if lost or code != (0 if overrides in DONE else 2):
                print(f"{overrides}: {code}: {said.getvalue()[-2000:]}", file=sys.stderr)
    print(json.dumps(found))


def _outcome(folder: Path, overrides: tuple[str, ...], code: int, said: str) -> str:
    if overrides in DONE:
        is_whole = code == 0 and pq.read_table(folder / "out").num_rows == 200
        return "done right" if is_whole else "unclear error"
    if code == 0:
        return "silent wrong"
    last = (said.splitlines() or [""])[-1]
    return "clear error" if code == 2 and "Bad settings: " in last else "unclear error"


def digest(folder: Path) -> str:
    """Return a digest of the names, kinds and bytes of all that jobs did not write."""
    own = {"out", "aside", "spark-warehouse", "artifacts"}
    own |= {f"{name}.{kind}" for name in ("out", "to-out") for kind in ("run.json", "report.html")}
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.relative_to(folder).parts[0] not in own:
            content = path.read_bytes() if path.is_file() else b""
            found.update(repr((str(path.relative_to(folder)), path.is_symlink(), path.lstat().st_mode)).encode())
            found.update(hashlib.sha256(content).digest())
    return found.hexdigest()


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run(folder: Path, cases: int | None = None) -> Tally:
    """Try that many cases of each kind, by default all."""
    for name in ("settings", "jobs"):
        (folder / name).mkdir()
    return check_settings(folder / "settings", cases).merge(run_jobs(folder / "jobs", cases))


if __name__ == "__main__":
    _child(int(sys.argv[1]))
