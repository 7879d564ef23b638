"""SIGKILL at random moments of Delta nights and Delta streams, and what the tables then hold."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tests.faults.followers import settings_of
from tests.services.delta_log import HandMadeTable, commits_of, ids_of
from tests.services.jars import DELTA, DELTA_GROUPS, jars
from tests.services.killed_runs import Runs
from tests.spark.nights import points_of

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # 50 by default, for tables of millions of files
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # VACUUM makes so many tasks; 10,000 by default
}
SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("day", pa.string())])


@dataclass
class Tally:
    """What was found after each round: some kills, then a run to its end."""

    kills: int = 0
    rounds: int = 0
    rows: int = 0
    lost: int = 0
    twice: int = 0
    commits: int = 0
    expected_commits: int = 0
    run_ids: set[str] = field(default_factory=set)

    def add(self, folder, expected_commits):
        """Compare input and output."""
        wanted, found = ids_of(folder / "in"), ids_of(folder / "out")
        writes = [info for info in commits_of(folder / "out") if info["operation"] == "WRITE"]
        self.rounds += 1
        self.rows += len(wanted)
        self.lost += len(set(wanted) - set(found))
        self.twice += len(found) - len(set(found)) + len(set(found) - set(wanted))
        self.commits, self.expected_commits = len(writes), expected_commits
        self.run_ids = {info["userMetadata"] for info in writes}


def rows(seed, day, n=80):
    points = points_of(seed, n)
    return pa.table({"id": 1000 * seed + np.arange(n), "x": points[:, 0], "y": points[:, 1], "day": [day] * n})


def kill_nights(folder, kills, per_night=1, seed=0):
    """Kill nights of the job update; each has a new day, a changed one and, every second night, one that vanishes."""
    table = HandMadeTable(folder / "in", SCHEMA, "day")
    (folder / "job.toml").write_text(
        settings_of(folder, 'format = "delta"') + 'format = "delta"\n[update]\nkey_col = "day"\n'
    )
    runs, nights, tally = Runs("update", folder, jars(DELTA, DELTA_GROUPS), DELTA_CONF, seed), 1, Tally()
    files = table.change([rows(seed, f"2026-01-{seed:02}") for seed in (1, 2, 3, 4)])
    runs.finish()
    while tally.kills < kills:
        nights += 1
        gone = [files.pop(0), *([files.pop(0)] if nights % 2 else [])]
        changed = gone[-1].partition("=")[2].partition("/")[0]
        fresh = [rows(100 + nights, f"2026-02-{nights:02}"), rows(200 + nights, changed)]
        files += table.change(fresh, gone)
        tally.kills += sum(runs.kill_within() for _ in range(per_night))
        runs.finish()
        tally.add(folder, nights)
    return tally


def kill_streams(folder, kills, per_round=1, seed=0):
    """Kill runs of the job stream, each with two new micro-batches."""
    table = HandMadeTable(folder / "in", SCHEMA)
    source = 'format = "delta"\noptions = {maxFilesPerTrigger = 1}'
    (folder / "job.toml").write_text(settings_of(folder, source) + 'format = "delta"\n')
    runs, files, tally = Runs("stream", folder, jars(DELTA, DELTA_GROUPS), DELTA_CONF, seed), 2, Tally()
    table.change([rows(1, "a"), rows(2, "b")])
    runs.finish()
    while tally.kills < kills:
        table.change([rows(10 + files, "a"), rows(11 + files, "b")])
        files += 2
        tally.kills += sum(runs.kill_within() for _ in range(per_round))
        runs.finish()
        tally.add(folder, files)  # one commit per micro-batch
    return tally
