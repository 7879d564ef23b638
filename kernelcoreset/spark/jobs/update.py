"""The nightly job: what has changed in the input since the last run goes into the store, the model and the labels.

Three commits of the store lead from one run to the next: the leaves, the model, the labels. Each holds, in one atomic
step, both what was done and what is still to do (`state`), so that a run that was killed is completed by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from kernelcoreset.errors import SettingError
from kernelcoreset.jobs import store_model as upkeep
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.rows import OutputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark import scan as direct
from kernelcoreset.spark.columns import refuse_bad_rows, with_dimension
from kernelcoreset.spark.jobs.batch import check_columns, kernel_of, label_and_write, leaf_settings_of, quarantined
from kernelcoreset.spark.jobs.keys import KEY, KeyedInput, natural_order
from kernelcoreset.spark.jobs.output import check_output, remove_partitions
from kernelcoreset.spark.jobs.session import open_session
from kernelcoreset.spark.keyed_leaves import KeyLeaf, collect_keys, group_runs, leaves_by_files, leaves_by_spark
from kernelcoreset.spark.leaves import LeafSettings
from kernelcoreset.spark.merge import DRIVER_BUDGET
from kernelcoreset.spark.summary import make_probe
from kernelcoreset.store.store import CoresetStore, LeafUpdate

JOB = "update"
_FILE_BYTES = 32 * 1024**2  # of a file read through Spark: at least so much makes another leaf


@dataclass(frozen=True)
class UpdateState(upkeep.JobState):
    """What the store remembers for this job."""

    pending: list[str] = field(default_factory=list)
    """Keys whose labels are to be written."""
    gone: list[str] = field(default_factory=list)
    """Keys whose labels are to be removed."""


@dataclass(frozen=True)
class Changes:
    """How the input differs from the store."""

    new: list[str]
    changed: list[str]
    vanished: list[str]
    left_window: list[str]


def run(settings: Settings, record: RunRecord) -> None:
    """Do the work of the job update: bring store, model and labels up to date with the input, if they are not."""
    with open_session(settings, record.stage("session")) as spark:
        Update(spark, settings, record).run()


def plan(settings: Settings) -> dict[str, Any]:
    """Return what a dry run prints."""
    with open_session(settings) as spark:
        found = Update(spark, settings, RunRecord(JOB, settings, settings.record_path()))
        changes = found.compare()
        return {"keys": len(found.wanted_keys), **{name: len(keys) for name, keys in asdict(changes).items()}}


class Update:
    """One run of the job."""

    def __init__(self, spark: SparkSession, settings: Settings, record: RunRecord) -> None:
        self.spark = spark
        self.settings = settings
        self.record = record
        self._model: KernelKMeansModel
        with record.stage("look"):
            self._store = upkeep.find_store(settings, JOB)
            self.input = KeyedInput(spark, settings)
            self.wanted_keys = newest(self.input.parts, settings.update.window)
            self.output = self._checked_output()

    @property
    def store(self) -> CoresetStore:
        """The store, made now if this is the first run."""
        if self._store is None:
            data = self.input.data
            kernel = kernel_of(data.frame, data.layout, self.settings, by_file=data.runs is not None)
            self._store = upkeep.make_store(self.settings, kernel)
        return self._store

    def run(self) -> None:
        """Do what is left to do, step by step; each step ends with a commit."""
        changes = self.compare()
        self.record.add(keys={name: len(keys) for name, keys in asdict(changes).items()}, changes=asdict(changes))
        did = [self._take_in(changes), self._fit(), self._label()]
        self.record.add(outcome="updated" if any(did) else "nothing to do")

    def compare(self) -> Changes:
        """Return how the input differs from the store. Tags are compared for difference, not for order."""
        known = {} if self._store is None else {key: self.store.info(key)["tag"] for key in self.store.keys()}  # noqa: SIM118
        parts = self.input.parts
        out_of_window = [key for key in known if key in parts and key not in self.wanted_keys]
        vanished = [key for key in known if key not in parts]
        return Changes(
            new=[key for key in self.wanted_keys if key not in known],
            changed=[key for key in self.wanted_keys if key in known and known[key] != parts[key].tag],
            vanished=vanished if self.settings.update.vanished == "expire" else [],
            left_window=out_of_window,
        )

    # --- step 1: leaves ----------------------------------------------------------------------------------------------

    def _take_in(self, changes: Changes) -> bool:
        keys = sorted([*changes.new, *changes.changed])
        expired = sorted([*changes.vanished, *changes.left_window])
        if not keys and not expired:
            return False
        with self.record.stage("leaves"):
            found = self._leaf_settings()
            rows = bad = 0
            for wave in self._waves(keys, found):
                leaves = self._build(wave, found)
                rows += sum(leaf.rows for leaf in leaves.values())
                bad += sum(leaf.bad.rows for leaf in leaves.values())
                # What is expired goes with the first wave: nearly always there is one only.
                self._commit_leaves(leaves, expired, changes)
                expired = []
            if expired:
                self._commit_leaves({}, expired, changes)
        self.record.add(rows=rows, bad_rows=bad)
        return True

    def _leaf_settings(self) -> LeafSettings:
        data = self.input.data
        return leaf_settings_of(self.settings, self.store.kernel, with_dimension(data.frame, data.layout))

    def _waves(self, keys: list[str], settings: LeafSettings) -> Iterator[list[str]]:
        """Keys that the driver can take the leaves of at once."""
        wave: list[str] = []
        room = fitting = DRIVER_BUDGET // settings.leaf_bytes
        for key in keys:
            most = self._most_leaves(key)
            if wave and most > room:
                yield wave
                wave, room = [], fitting
            wave.append(key)
            room -= most
        if wave:
            yield wave

    def _most_leaves(self, key: str) -> int:
        part = self.input.parts[key]
        return len(part.files) + part.size // _FILE_BYTES if part.files else 1

    def _build(self, keys: list[str], settings: LeafSettings) -> dict[str, KeyLeaf]:
        seeds = {key: self.store.leaf_seed(key) for key in keys}
        frame = self.input.rows_of(keys)
        runs = self.input.data.runs_of(frame) if self.input.key_col is None else None
        if runs is not None:
            by_key: dict[str, list[direct.Run]] = {key: [] for key in keys}
            for run in runs:
                by_key[self.input.key_of_file(run.file)].append(run)
            groups = {key: group_runs(own) for key, own in by_key.items()}
            id_col = settings.layout.id_col
            id_type = frame.schema[id_col].dataType if id_col else None
            leaves = leaves_by_files(self.spark, groups, seeds, settings, id_type)
        else:
            too_many = any(self._most_leaves(key) > DRIVER_BUDGET // settings.leaf_bytes for key in keys)
            gather_keys = self.input.key_col is not None or too_many
            leaves = leaves_by_spark(frame, seeds, settings, gather_keys=gather_keys)
        found = collect_keys(leaves, seeds, settings)
        if self.settings.input.bad_rows == "fail":
            for leaf in found.values():
                refuse_bad_rows(leaf.bad, leaf.rows)
        return found

    def _commit_leaves(self, leaves: dict[str, KeyLeaf], expired: list[str], changes: Changes) -> None:
        state = UpdateState.of(self.store)
        put = {
            key: LeafUpdate(leaf.coreset, rows=leaf.rows - leaf.bad.rows, tag=self.input.parts[key].tag)
            for key, leaf in leaves.items()
        }
        relabel = set() if self.settings.update.label == "none" else set(put)
        gone = {*state.gone, *(set(expired) & set(changes.vanished))} - set(put)
        pending = ({*state.pending, *relabel}) - set(expired)
        state = replace(state, fit=None, pending=sorted(pending), gone=sorted(gone))
        self._keep(state, put=put, expire=expired)

    def _keep(self, state: UpdateState, **change: Any) -> None:
        upkeep.keep_state(self.store, self.settings, JOB, state, **change)

    # --- step 2: model -----------------------------------------------------------------------------------------------

    def _fit(self) -> bool:
        state, wanted = UpdateState.of(self.store), self._wanted_fit()
        before = upkeep.read_model(self.store, state.model)
        if state.fit == wanted and before is not None:
            self._model = before
            return False
        with self.record.stage("fit"):
            tracked, state = upkeep.fit_store(self.store, self.settings, state, before, wanted, self._weight_of())
            pending = self.store.keys() if self.settings.update.label == "all" else state.pending
            self._keep(replace(state, pending=pending))
            self._model = tracked.model
            upkeep.remove_old_models(self.store, state)
        self.record.add(
            kernel=repr(self.store.kernel),
            coreset_points=len(tracked.model.coreset),
            coreset_weight=float(tracked.model.coreset.weights.sum()),
            coreset_cost=tracked.model.solution.cost,
            n_iter=tracked.model.solution.n_iter,
            moved=tracked.moved,
        )
        return True

    def _wanted_fit(self) -> dict[str, Any]:
        """With labels of all rows asked for now, and not the last time, they are made anew too."""
        wanted = self.settings.update
        return upkeep.plain_fit(self.settings, half_life=wanted.half_life, label_all=wanted.label == "all")

    def _weight_of(self) -> Callable[[str], float] | None:
        half_life = self.settings.update.half_life
        if half_life is None:
            return None
        ages = {key: age for age, key in enumerate(sorted(self.store.keys(), key=natural_order, reverse=True))}
        return lambda key: 0.5 ** (ages[key] / half_life)

    # --- step 3: labels ----------------------------------------------------------------------------------------------

    def _label(self) -> bool:
        state = UpdateState.of(self.store)
        self.record.add(run=state.run, model=f"{self.store.path}/{state.model}", store_version=self.store.version)
        if not state.pending and not state.gone:
            return False
        if self.output is not None:
            with self.record.stage("label"):
                self._write_labels(state, self.output)
        self._keep(replace(state, pending=[], gone=[]))
        self.record.add(store_version=self.store.version)
        return True

    def _write_labels(self, state: UpdateState, output: OutputSettings) -> None:
        # A key of the store that the input has lost (vanished = "keep") has nothing to label.
        here = [key for key in state.pending if key in self.input.parts]
        full = [key for key in here if self.store.info(key)["rows"]]
        # Spark replaces the folders that get rows; those that get none, not any more, are removed by name.
        empty = [self.input.partition_of(key) for key in [*state.gone, *sorted(set(here) - set(full))]]
        remove_partitions(self.spark, output, empty)
        if not full:
            return
        frame, layout = self.input.rows_of(full), self.input.data.layout
        if self.settings.input.bad_rows == "quarantine":
            aside = OutputSettings(path=self.settings.input.quarantine_path, partition_by=output.partition_by)
            remove_partitions(self.spark, aside, [self.input.partition_of(key) for key in [*state.gone, *here]])
            bad = quarantined(frame, layout, self._model).drop(KEY)
            bad.write.mode("append").partitionBy(*output.partition_by).parquet(str(aside.path))
        is_whole = full == self.store.keys() and self.settings.update.half_life is None
        wanted = self.settings.certificate
        weighted = self.settings.input.weight_col is not None
        probe = (
            make_probe(self._model, weighted, wanted.center_sets, wanted.fraction, wanted.seed) if is_whole else None
        )
        found = label_and_write(frame.drop(KEY), layout, self._model, self.settings, output, probe)
        summary = asdict(found) if is_whole else {"cluster_sizes": found.cluster_sizes, "labelled_cost": found.cost}
        self.record.add(**summary, labelled_rows=found.rows - found.bad_rows, output=output.path or output.table)

    def _checked_output(self) -> OutputSettings | None:
        """The output with the partitions of the keys; None where nothing is to be labelled."""
        if self.settings.update.label == "none":
            return None
        own = self.input.partition_by
        output = self.settings.output
        if output.partition_by and output.partition_by != own:
            raise SettingError(
                f"`output.partition_by` must be {list(own)} for this input, so that the labels of a key can be "
                f"replaced, or be left out; got {list(output.partition_by)}."
            )
        if self._store is None or UpdateState.of(self._store).run == 0:
            check_output(self.spark, output)
        columns = None if output.columns is None else tuple(dict.fromkeys([*output.columns, *own]))
        keyed = replace(output, partition_by=own, mode="overwrite-partitions", columns=columns)
        first = self.input.rows_of(list(self.input.parts)[:1])
        check_columns([name for name in first.columns if name != KEY], keyed, self.settings.input)
        return keyed


def newest(keys: Iterable[str], window: int | None) -> list[str]:
    """Return the newest keys, all where there is no window. Numbers within a key count as numbers."""
    ordered = sorted(keys, key=natural_order)
    return ordered if window is None else ordered[-window:]
