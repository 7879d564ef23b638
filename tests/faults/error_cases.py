"""Faults that a user, a machine or a cluster brings into a job: each must end in its exit code and one clear line.

Everything is real: full and read-only disks are small file systems that are mounted, files without permission are read
by a process without root's right to do so, workers are killed. Most cases run one after the other in a child process
with one Spark session, whose standard error, Java's included, is looked through. The others need their own process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.faults.tally import Tally

ROOT = Path(__file__).parents[2]
ROWS = 2_000
SETTINGS = """
[input]
path = "HERE/in"
features = ["x", "y"]
[kernel]
name = "Gaussian"
sigma = 5.0
[coreset]
k = 3
coreset_size = 60
[cluster]
n_init = 2
[certificate]
center_sets = 0
[graph]
source_col = "a"
target_col = "b"
[output]
path = "HERE/out"
mode = "overwrite"
"""
MOST_LINES = 30
"""Lines that a failing job may log: its stages, events of Spark, where its record is, and what is wrong."""
_CLEAR = re.compile(r"(Bad settings|Bad data|Environment|Conflict|Interrupted)\b.+")
_PROGRESS = re.compile(r" INFO [\w ]+: [\d,]+ (of [\d,]+ )?(rows|tasks)\b")
_STACK = re.compile(r"^\s+at [\w.$/]+\(|^Traceback \(most recent call last\)", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A fault: the settings that bring it in, and the exit code it must end in (0: the rows must be right)."""

    name: str
    code: int
    overrides: tuple[str, ...] = ()
    without: str = ""
    job: str = "run"
    alone: str = ""
    """How the process of its own is made to fail; "" for a case that shares a session."""
    variables: dict[str, str] = field(default_factory=dict)
    says: str = ""
    """What the last line must tell."""


def _case(name: str, code: int, *overrides: str, without: str = "", job: str = "run") -> Case:
    return Case(name, code, overrides, without, job)


_PLACE_IN, _PLACE_OUT = 'path = "HERE/in"\n', 'path = "HERE/out"\n'
SHARED = (
    _case("nothing wrong", 0),
    _case("full disk: output", 4, "output.path=HERE/full/out"),
    _case("full disk: run record", 4, "run.record=HERE/full/r.json"),
    _case("full disk: coreset", 4, "coreset.path=HERE/full/c.parquet"),
    _case("full disk: model", 4, "cluster.model_path=HERE/full/m"),
    _case("full disk: csv output", 4, "output.path=HERE/full/o", "output.format=csv"),
    _case(
        "full disk: quarantine",
        4,
        "input.path=HERE/nulls",
        "input.bad_rows=quarantine",
        "input.quarantine_path=HERE/full/bad",
    ),
    _case("full disk on an executor", 4, 'input.select=["x", "no_space(y) AS y"]'),
    _case("read-only disk: output", 4, "output.path=HERE/fixed/out"),
    _case("read-only disk: coreset", 4, "coreset.path=HERE/fixed/c.parquet"),
    _case("read-only disk: model", 4, "cluster.model_path=HERE/fixed/m"),
    _case("read-only disk: run record", 4, "run.record=HERE/fixed/r.json"),
    _case("no permission: input file", 4, "input.path=HERE/secret/p.parquet"),
    _case("no permission: input folder", 4, "input.path=HERE/closed"),
    _case("no permission: output", 4, "output.path=HERE/closed/out"),
    _case("no permission: model", 4, "cluster.model_path=HERE/closed/m"),
    _case("glob without end", 2, "input.path=HERE/[a-"),
    _case("group without end", 2, "input.path=HERE/{a,b"),
    _case("glob with a wrong range", 2, "input.path=HERE/[z-a]*"),
    _case("glob that matches nothing", 3, "input.path=HERE/in/*.orc"),
    _case("unknown scheme: input", 2, "input.path=foo://x/y"),
    _case("unknown scheme: output", 2, "output.path=foo://x/y"),
    _case("unknown scheme: coreset", 2, "coreset.path=foo://x/y"),
    _case("unknown scheme: model", 2, "cluster.model_path=foo://x/y"),
    _case("unknown scheme: record", 2, "run.record=foo://a/b.json"),
    _case("no package for s3a", 4, "input.path=s3a://b/k"),
    _case("unknown host", 4, "input.path=hdfs://no-such-host.invalid/k"),
    _case("wrong port", 2, "input.path=hdfs://host:foo/k"),
    _case("NUL in the input", 2, "input.path=/a\0b"),
    _case("NUL in the output", 2, "output.path=/a\0b"),
    _case("NUL in the record", 2, "run.record=/a\0b"),
    _case("name too long: output", 2, f"output.path=HERE/{'a' * 300}"),
    _case("name too long: input", 3, f"input.path=HERE/{'a' * 300}"),
    _case("missing input", 3, "input.path=HERE/absent"),
    _case("empty folder", 3, "input.path=HERE/empty"),
    _case("truncated file", 3, "input.path=HERE/truncated"),
    _case("noise as a file", 3, "input.path=HERE/noise"),
    _case("empty file", 3, "input.path=HERE/zero"),
    _case("loop of links", 3, "input.path=HERE/loop"),
    _case("parquet read as json", 2, "input.format=json"),
    _case("parquet read as orc", 3, "input.format=orc"),
    _case("missing table", 3, "input.table=absent", without=_PLACE_IN),
    _case("table name with too many parts", 2, "input.table=a.b.c.d", without=_PLACE_IN),
    _case("bad query", 2, "input.query=SELEC x", without=_PLACE_IN),
    _case("unknown format: input", 2, "input.format=foo"),
    _case("unknown format: output", 2, "output.format=foo"),
    _case("no package: kafka", 4, "input.format=kafka"),
    _case("no package: delta input", 4, "input.format=delta"),
    _case("no package: delta output", 4, "output.format=delta"),
    _case("no package: avro", 4, "input.format=avro"),
    _case("unknown codec", 2, 'output.options={compression="foo"}'),
    _case("bad condition", 2, "input.where=x >"),
    _case("condition that is a number", 2, "input.where=x"),
    _case("unknown function", 2, "input.where=no_such(x)"),
    _case("division by zero", 3, "input.where=1/0 > x"),
    _case("text that is no number", 3, "input.where=cast(s AS int) > 0"),
    _case("missing feature", 2, 'input.features=["x", "z"]'),
    _case("text as a feature", 2, 'input.features=["x", "s"]'),
    _case("bad schema", 2, "input.schema=x blah"),
    _case("partitioned by all columns", 2, 'output.columns=["x"]', 'output.partition_by=["x","prediction","distance"]'),
    _case("bad name of the output table", 2, "output.table=a..b", without=_PLACE_OUT),
    _case("output table in no schema", 2, "output.table=absent.t", without=_PLACE_OUT),
    _case("columns that differ in case", 2, "output.prediction_col=Distance"),
    _case("feature that differs in case", 2, "output.prediction_col=X"),
    _case("column of a graph", 2, "input.path=HERE/edges", "output.prediction_col=node", job="graph"),
    _case("column of a graph in capitals", 2, "input.path=HERE/edges", "output.prediction_col=Node", job="graph"),
    _case("killed Python worker", 4, 'input.select=["x", "die(y) AS y"]'),
    _case("out of memory on an executor", 4, 'input.select=["x", "no_memory(y) AS y"]'),
    _case("another job was faster", 5, 'input.select=["x", "conflict(y) AS y"]'),
)
ALONE = (
    Case("SIGTERM", 5, alone="SIGTERM"),
    Case("SIGTERM to the process group", 5, alone="SIGTERM to the group"),
    Case("SIGINT", 5, alone="SIGINT"),
    Case("bad Spark conf: number", 2, ("spark.conf={spark.sql.shuffle.partitions=\"abc\"}",), alone="run"),
    Case("bad Spark conf: class", 4, ("spark.conf={spark.serializer=\"no.such.Class\"}",), alone="run"),
    Case("full disk: spark.local.dir", 4, ("spark.conf={spark.local.dir=\"HERE/full\"}",), alone="run"),
    Case("no Java", 4, alone="run", variables={"JAVA_HOME": "HERE/absent"}),
    Case("memory of Java", 4, ("input.query=SELECT x, y, big FROM (SELECT x, y, collect_list(repeat('a', 100000)) "
         "OVER () AS big FROM parquet.`HERE/in`)",), without=_PLACE_IN, alone="run",
         variables={"PYSPARK_SUBMIT_ARGS": "--driver-memory 500m pyspark-shell"}, says="memory ran out"),
)  # fmt: skip
CASES = (*SHARED, *ALONE)


def run(folder: Path, cases: int | None = None) -> Tally:
    """Try all cases, or this many of them, in an empty folder."""
    return _tally(folder, CASES if cases is None else CASES[:: max(1, len(CASES) // cases)][:cases])


def run_shared(folder: Path) -> Tally:
    """Try all cases that share a session."""
    return _tally(folder, SHARED)


def _tally(folder: Path, cases: Sequence[Case]) -> Tally:
    tally = Tally("errors of users, disks, memory, network and packages")
    make_places(folder)
    with mounted(folder):
        before = digests(folder)
        results = _run_shared_session(folder, [case for case in cases if not case.alone])
        results |= {case.name: _run_alone(folder, case) for case in cases if case.alone}
    after = digests(folder)
    for case in cases:
        code, said = results[case.name]
        outcome = judge(case, code, said)
        if outcome not in ("clear error", "done right"):
            print(f"{case.name}: {outcome}, exit code {code} (wanted {case.code})\n{said}", file=sys.stderr)
        tally.add(outcome)
    gone = sorted(name for name, digest in before.items() if after.get(name) != digest)
    if gone:
        print(f"Changed or gone: {gone}", file=sys.stderr)
    tally.lost += len(gone)
    return tally


def judge(case: Case, code: int, said: str) -> str:
    """Return how a case ended, by its exit code and what was logged."""
    # Spark's progress bar leaves empty ones, and a slow machine has a progress line every ten seconds.
    lines = [line for line in said.splitlines() if line.strip() and not _PROGRESS.search(line)]
    if code == 0:
        return "done right" if case.code == 0 and "wrong rows" not in said else "silent wrong"
    is_clear = code == case.code and len(lines) <= MOST_LINES and not _STACK.search(said)
    return "clear error" if is_clear and _CLEAR.search(lines[-1]) and case.says in lines[-1] else "unclear error"


# --- places ----------------------------------------------------------------------------------------------------------


def make_places(folder: Path) -> None:
    """Write the inputs of all cases."""
    values = np.repeat([[0.0, 0.0], [40.0, 0.0], [0.0, 40.0], [40.0, 40.0]], ROWS // 4, axis=0)
    values += np.random.default_rng(0).normal(size=values.shape)
    table = pa.table({"x": values[:, 0], "y": values[:, 1], "s": ["abc"] * ROWS})
    for name in ("in", "secret", "nulls", "edges", "truncated", "noise", "zero", "empty", "loop", "full", "fixed"):
        (folder / name).mkdir()
    for name in ("in", "secret"):
        pq.write_table(table, folder / name / "p.parquet")
    good = (folder / "in" / "p.parquet").read_bytes()
    some = pa.table({"x": [*values[:-5, 0], *[None] * 5], "y": values[:, 1]})
    pq.write_table(some, folder / "nulls" / "p.parquet")
    pq.write_table(pa.table({"a": list(range(50)), "b": [*range(1, 50), 0]}), folder / "edges" / "p.parquet")
    (folder / "truncated" / "p.parquet").write_bytes(good[: len(good) // 2])
    (folder / "noise" / "p.parquet").write_bytes(np.random.default_rng(1).bytes(3_000))
    (folder / "zero" / "p.parquet").write_bytes(b"")
    (folder / "loop" / "p.parquet").symlink_to("p.parquet")
    shutil.copytree(folder / "in", folder / "closed")


def digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file of the inputs."""
    own = [folder / name for name in ("in", "secret", "nulls", "edges", "truncated", "noise", "closed")]
    files = [path for place in own for path in sorted(place.rglob("*.parquet"))]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@contextlib.contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """Fill a disk, make another read-only, and take permissions away; undo it all at the end."""
    full, fixed = folder / "full", folder / "fixed"
    for place in (full, fixed):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
    try:
        with contextlib.suppress(OSError), (full / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4_096))
        subprocess.run(["mount", "-o", "remount,ro", fixed], check=True)
        (folder / "secret" / "p.parquet").chmod(0)
        (folder / "closed").chmod(0)
        yield
    finally:
        (folder / "secret" / "p.parquet").chmod(0o600)
        (folder / "closed").chmod(0o700)
        for place in (full, fixed):
            subprocess.run(["umount", "--lazy", place], check=True)


def without_rights(command: Sequence[str]) -> list[str]:
    """Return a command that is run without root's right to read and write every file."""
    rights = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", *command] if os.getuid() == 0 else [*command]


# --- one after the other in one session ------------------------------------------------------------------------------


def _run_shared_session(folder: Path, cases: Sequence[Case]) -> dict[str, tuple[int, str]]:
    if not cases:
        return {}
    names = json.dumps([case.name for case in cases])
    command = without_rights([sys.executable, "-m", "tests.faults.error_cases", str(folder), names])
    with (folder / "said").open("wb") as said:
        subprocess.run(command, cwd=ROOT, env=_environment(), stdout=said, stderr=said, check=False)
    lines = (folder / "results").read_text().splitlines() if (folder / "results").exists() else []
    found = {name: (code, text) for name, code, text in map(json.loads, lines)}
    died = (folder / "said").read_text(errors="replace")[-2_000:]
    return {case.name: found.get(case.name, (-1, f"The session died before this case: {died}")) for case in cases}


def _environment(**own: str) -> dict[str, str]:
    rights = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return kept | rights | own


def _arguments(folder: Path, case: Case) -> list[str]:
    config = folder / "job.toml"
    config.write_text(SETTINGS.replace(case.without, "").replace("HERE", str(folder)))
    overrides = [text.replace("HERE", str(folder)) for text in case.overrides]
    return ["--config", str(config), *(part for text in overrides for part in ("--set", text))]


def _child(folder: Path, names: Sequence[str]) -> None:
    """Run cases in this process, with one session; both, and Java, write to the file `said`."""
    from pyspark.sql.types import DoubleType

    from kernelcoreset.jobs.cli import JOBS, run_job
    from kernelcoreset.spark.jobs.session import session_of

    os.chdir(folder)
    conf = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}
    with session_of("errors", conf) as spark, (folder / "results").open("w") as results:
        for function in (no_space, no_memory, die, conflict):
            spark.udf.register(function.__name__, function, DoubleType())
        for name in names:
            case = next(case for case in SHARED if case.name == name)
            start = (folder / "said").stat().st_size
            try:
                code = run_job(JOBS[case.job], _arguments(folder, case))
            except SystemExit as ended:
                code = int(ended.code or 0)
            if code == 0 and (wrong := wrong_rows(folder / "out")):
                print(f"wrong rows: {wrong}", file=sys.stderr)
            sys.stderr.flush()
            time.sleep(0.05)  # Java may still be writing
            with (folder / "said").open("rb") as said:
                said.seek(start)
                print(json.dumps([name, code, said.read().decode(errors="replace")]), file=results, flush=True)


def no_space(_: float) -> float:
    raise OSError(28, "No space left on device")


def no_memory(_: float) -> float:
    raise MemoryError("Unable to allocate 8.00 TiB")


def die(_: float) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def conflict(_: float) -> float:
    from kernelcoreset.errors import ConflictError

    raise ConflictError("Another process changed the store. Run it again.")


def wrong_rows(output: Path) -> str:
    """Return what is wrong with the labels of all rows, "" if nothing is."""
    table = pq.read_table(output)
    if len(table) != ROWS:
        return f"{len(table)} of {ROWS}"
    labels = np.asarray(table["prediction"])
    return "" if set(labels.tolist()) == {0, 1, 2} else f"labels {sorted(set(labels.tolist()))}"


# --- in a process of its own -----------------------------------------------------------------------------------------


def _run_alone(folder: Path, case: Case) -> tuple[int, str]:
    command = without_rights([sys.executable, str(ROOT / "jobs" / f"{case.job}.py"), *_arguments(folder, case)])
    own = {name: value.replace("HERE", str(folder)) for name, value in case.variables.items()}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(**own), stdout=said, stderr=said, start_new_session=True
        )
    if case.alone != "run":
        _interrupt(process, case.alone, folder / "said")
    try:
        code = process.wait(600)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    text = (folder / "said").read_text(errors="replace")
    lines = [line for line in text.splitlines() if "incubator modules" not in line and "[Stage" not in line]
    return code, "\n".join(lines)


def _interrupt(process: subprocess.Popen[bytes], how: str, said: Path) -> None:
    """Wait until the job has begun to build, then send it a signal."""
    deadline = time.monotonic() + 300
    while "build/leaves ..." not in said.read_text(errors="replace") and time.monotonic() < deadline:
        time.sleep(0.05)
    number = signal.SIGINT if how == "SIGINT" else signal.SIGTERM
    if how.endswith("group"):
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)


if __name__ == "__main__":
    _child(Path(sys.argv[1]), json.loads(sys.argv[2]))
