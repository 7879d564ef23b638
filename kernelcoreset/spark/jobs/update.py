"""The update job: adds what has changed in the input since the last run to the store, the model and the labels.

A run makes three commits to the store: the leaves, the model, the labels. Each commit holds what was done and what is
still to do (`state`), in one atomic step. The next run completes a run that was killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.files.paths import extend_path
from kernelcoreset.jobs import store_model
from kernelcoreset.jobs.record import RunRecord, log
from kernelcoreset.jobs.report import NOTHING_TO_DO, show_model
from kernelcoreset.jobs.settings.key_ranges import natural_order
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.columns import Layout, refuse_bad_rows, with_dimension
from kernelcoreset.spark.jobs.coreset import kernel_of_input, kernel_of_rows, leaf_settings_of
from kernelcoreset.spark.jobs.delta import Commit
from kernelcoreset.spark.jobs.history import recorded_session
from kernelcoreset.spark.jobs.keys import KeyedInput, check_input
from kernelcoreset.spark.jobs.pending import PendingLabels, keyed_output
from kernelcoreset.spark.jobs.session import open_session
from kernelcoreset.spark.keyed_leaves import KeyLeaf, collect_keys, leaves_by_files, leaves_by_spark
from kernelcoreset.spark.leaves import LeafSettings
from kernelcoreset.spark.merge import DRIVER_BUDGET
from kernelcoreset.spark.progress import watched
from kernelcoreset.spark.sample import fit_preparation, random_order
from kernelcoreset.spark.scan import RowGroups
from kernelcoreset.store.store import CoresetStore, LeafUpdate

JOB = "update"
_FILE_BYTES = 32 * 1024**2  # a file that Spark reads gets another leaf for every so many bytes, at most


@dataclass(frozen=True)
class UpdateState(store_model.JobState):
    """What the store remembers for this job."""

    pending: list[str] = field(default_factory=list)
    """Keys whose labels are to be written."""
    gone: list[str] = field(default_factory=list)
    """Keys whose labels are to be removed."""
    root: str | None = None
    """The folder of the input, if keys are folders or files."""
    source: dict[str, Any] | None = None
    """The version of the Delta table up to which all changes are known, as `KeyedInput.seen_now` returns it."""


@dataclass(frozen=True)
class Changes:
    """How the input differs from the store."""

    new: list[str]
    changed: list[str]
    vanished: list[str]
    left_window: list[str]


def run(settings: Settings, record: RunRecord) -> None:
    """Bring store, model and labels up to date with the input; do nothing if they are."""
    check_input(settings)
    with recorded_session(settings, record) as spark:
        Update(spark, settings, record).run()


def plan(settings: Settings) -> dict[str, Any]:
    """Return what a run would do, without doing it."""
    check_input(settings)
    with open_session(settings) as spark:
        found = Update(spark, settings, RunRecord(JOB, settings, settings.record_path()))
        changes = found.compare()
        return {"keys": len(found.wanted_keys), **{name: len(keys) for name, keys in asdict(changes).items()}}


class Update:
    """One run of the job."""

    def __init__(self, spark: SparkSession, settings: Settings, record: RunRecord) -> None:
        self.settings = settings
        self.record = record
        with record.stage("look"):
            self._store = store_model.find_store(settings, JOB)
            self._state = UpdateState.of(self._store)
            keys = [] if self._store is None else self._store.keys()
            self._known = {key: self.store.info(key) for key in keys}
            tags = {key: info["tag"] for key, info in self._known.items()}
            self.input = KeyedInput(spark, settings, tags, self._state.source)
            self._refuse_other_folder()
            self.wanted_keys = self._find_wanted_keys()
            self.output = keyed_output(self.input, settings, is_first_run=self._state.run == 0)

    @property
    def store(self) -> CoresetStore:
        """The store; the first run creates it."""
        if self._store is None:
            data, settings = self.input.data, self.settings
            if settings.update.scope.is_limited:
                rows = self.input.rows_of(self.wanted_keys)
                order = random_order(settings.coreset.seed, by_file=False)
                kernel = kernel_of_rows(rows, self._layout, settings, order, self.record)
            else:
                kernel = kernel_of_input(data, settings, self.record)
            self._store = store_model.make_store(settings, kernel)
        return self._store

    @cached_property
    def _layout(self) -> Layout:
        """Which columns hold the points, with the preparation that the first run found."""
        data, scope = self.input.data, self.settings.update.scope
        layout = with_dimension(data.frame, data.layout)
        if self._state.preparation is not None:
            return layout.prepared_by(store_model.preparation_in(self._state))
        if self.settings.wanted_features is None:
            return layout  # without a look at files that have not changed
        if scope.is_limited:
            rows = self.input.rows_of(self.wanted_keys)
            return layout.prepared_by(fit_preparation(rows, layout, self.settings.wanted_features))
        return data.sized_layout

    def run(self) -> None:
        """Do what is left to do, step by step; each step ends with a commit."""
        changes = self.compare()
        self.record.add(keys={name: len(keys) for name, keys in asdict(changes).items()}, changes=asdict(changes))
        others = [key for key in changes.changed if _selection(self._known[key]["tag"]) != self.input.selection]
        if others:
            log.warning("The input is selected otherwise than in the run before: %d keys are read again.", len(others))
        has_new_leaves = self._update_leaves(changes)
        model, is_new_model = self._update_model()
        has_new_labels = self._update_labels(model)
        is_updated = has_new_leaves or is_new_model or has_new_labels
        self.record.add(outcome="updated" if is_updated else NOTHING_TO_DO)
        if is_updated:
            show_model(self.record, model, describe=True)

    def compare(self) -> Changes:
        """Return how the input differs from the store, as far as the run is about it."""
        parts, known = self.input.parts, self._known
        of_run = self.settings.update.scope.within(known)
        vanished = [key for key in of_run if key not in parts]
        return Changes(
            new=[key for key in self.wanted_keys if key not in known],
            changed=[key for key in self.wanted_keys if key in known and known[key]["tag"] != parts[key].tag],
            vanished=vanished if self.settings.update.vanished == "expire" else [],
            left_window=[key for key in of_run if key in parts and key not in self.wanted_keys],
        )

    def _find_wanted_keys(self) -> list[str]:
        """The keys of the input that the store is to have, as far as the run is about them."""
        scope, update = self.settings.update.scope, self.settings.update
        here = scope.within(self.input.parts)
        if not here and not scope.within(self._known):
            ordered = newest(self.input.parts, None)
            raise DataError(
                f"No key of the input is within update.keys = {list(update.keys)} and update.until = {update.until!r}. "
                f"Its keys go from {ordered[0]!r} to {ordered[-1]!r}."
            )
        if update.keys:  # asked for by name: no window applies
            return newest(here, None)
        # Keys after `until` that the store has already count for the window, so that the order of the runs does not.
        later = set(self._known) - set(scope.within(self._known))
        return [key for key in newest([*here, *later], update.window) if key not in later]

    def _refuse_other_folder(self) -> None:
        """Files of another folder must not replace those of the same name, unless they are the same files, moved."""
        before, now = self._state.root, self.input.root
        if None in (before, now) or before == now:
            return
        parts = self.input.parts
        for key, info in self._known.items():
            is_missing = key not in parts and self.settings.update.vanished == "expire"
            if is_missing or (key in parts and _sizes(info["tag"]) != _sizes(parts[key].tag)):
                raise SettingError(
                    f"The store at {self.settings.store.path} follows the files in {before}; `input.path` is "
                    f"{self.settings.input.path!r}, where {key!r} is not the same. Each run needs the folder of all "
                    "keys: change input.path back (update.keys and update.until select keys in it), or set another "
                    "store.path."
                )

    # --- step 1: leaves ----------------------------------------------------------------------------------------------

    def _update_leaves(self, changes: Changes) -> bool:
        keys = sorted([*changes.new, *changes.changed])
        expired = sorted([*changes.vanished, *changes.left_window])
        if not keys and not expired:
            source = self._source_after(set(self._known))
            if source != self._state.source:  # a new version without changes, such as OPTIMIZE makes
                self._commit(replace(self._state, source=source))
            return False
        with self.record.stage("leaves"):
            found = self._leaf_settings()
            rows = bad = 0
            emptied: list[str] = []
            # Expired keys are removed with the first wave; nearly always it is the only one.
            waves = list(self._waves(keys, found)) or [[]]
            for wave in waves:
                leaves = self._build(wave, found) if wave else {}
                rows += sum(leaf.rows for leaf in leaves.values())
                bad += sum(leaf.bad.rows for leaf in leaves.values())
                emptied += [key for key in wave if not leaves[key].rows and self._known.get(key, {}).get("rows")]
                if wave is waves[-1]:
                    self._refuse_empty_store(leaves, expired)
                self._commit_leaves(leaves, expired, changes, is_last=wave is waves[-1])
                expired = []
        self.record.add(rows=rows, bad_rows=bad, emptied=emptied)
        if emptied:
            log.warning("%d keys had rows and now have none; their labels are removed: %s", len(emptied), _few(emptied))
        return True

    def _refuse_empty_store(self, leaves: dict[str, KeyLeaf], expired: list[str]) -> None:
        gone = {*leaves, *expired}
        if any(leaf.coreset for leaf in leaves.values()):
            return
        if not any(self.store.info(key)["points"] for key in self.store.keys() if key not in gone):  # noqa: SIM118
            where = self.settings.input.where
            raise DataError(
                "No row would be left: there is nothing to cluster, and the store stays as it was. Check the input"
                + ("." if where is None else f", and input.where = {where!r}.")
            )

    def _leaf_settings(self) -> LeafSettings:
        return leaf_settings_of(self.settings, self.store.kernel, self._layout)

    def _waves(self, keys: list[str], settings: LeafSettings) -> Iterator[list[str]]:
        """Groups of keys whose leaves fit on the driver together."""
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
        row_groups = self.input.data.row_groups_of(frame) if self.input.key_col is None else None
        total = None if row_groups is None else sum(part.rows for part in row_groups)
        with watched(self.input.spark, "leaves", total):
            found = collect_keys(self._leaf_frame(frame, row_groups, seeds, settings), seeds, settings)
        if self.settings.input.bad_rows == "fail":
            for leaf in found.values():
                refuse_bad_rows(leaf.bad, leaf.rows)
        return found

    def _leaf_frame(
        self, frame: DataFrame, row_groups: list[RowGroups] | None, seeds: dict[str, int], settings: LeafSettings
    ) -> DataFrame:
        """The leaves of keys, not built yet."""
        if row_groups is None:
            too_many = any(self._most_leaves(key) > DRIVER_BUDGET // settings.leaf_bytes for key in seeds)
            return leaves_by_spark(frame, seeds, settings, gather_keys=self.input.key_col is not None or too_many)
        by_key: dict[str, list[RowGroups]] = {key: [] for key in seeds}
        for part in row_groups:
            by_key[self.input.key_of_file(part.file)].append(part)
        id_col = settings.layout.id_col
        id_type = frame.schema[id_col].dataType if id_col else None
        return leaves_by_files(self.input.spark, by_key, seeds, settings, id_type)

    def _commit_leaves(
        self, leaves: dict[str, KeyLeaf], expired: list[str], changes: Changes, *, is_last: bool
    ) -> None:
        state = self._state
        put = {
            key: LeafUpdate(leaf.coreset, rows=leaf.rows - leaf.bad.rows, tag=self.input.parts[key].tag)
            for key, leaf in leaves.items()
        }
        relabel = set() if self.settings.update.label == "none" else set(put)
        gone = {*state.gone, *(set(expired) & set(changes.vanished))} - set(put)
        # A key that leaves the window before its labels were written still gets them.
        pending = {*state.pending, *relabel} - set(changes.vanished)
        prepared = self._layout.preparation
        state = replace(
            state,
            fit=None,
            pending=sorted(pending),
            gone=sorted(gone),
            root=self.input.root,
            preparation=None if prepared is None else prepared.to_dict(),
        )
        if is_last:  # before that, keys that changed are still to be read
            state = replace(state, source=self._source_after({*self._known, *put} - set(expired)))
        self._commit(state.stamped(), put=put, expire=expired)

    def _source_after(self, stored: set[str]) -> dict[str, Any] | None:
        """How far the changes of the input are known, if the store then has these keys; a limited run knows no more."""
        source = self._state.source
        if self.settings.update.scope.is_limited:
            others = self.input.parts.keys() - stored
            return source and {**source, "others": sorted({*source["others"], *others})}
        return self.input.seen_now(stored)

    def _commit(self, state: UpdateState, **change: Any) -> None:
        store_model.keep_state(self.store, self.settings, JOB, state, **change)
        self._state = state

    # --- step 2: model -----------------------------------------------------------------------------------------------

    def _update_model(self) -> tuple[KernelKMeansModel, bool]:
        """The current model, and whether it is new."""
        state, wanted = self._state, self._wanted_fit()
        before = store_model.read_model(self.store, state.model)
        if state.fit == wanted and before is not None:
            return before, False
        with self.record.stage("fit"):
            tracked, state = store_model.fit_store(self.store, self.settings, state, before, wanted, self._weight_of())
            pending = self.store.keys() if self.settings.update.label == "all" else state.pending
            self._commit(replace(state, pending=pending).stamped())
            store_model.remove_old_models(self.store, state)
        self.record.add(
            kernel=repr(self.store.kernel),
            coreset_points=len(tracked.model.coreset),
            coreset_weight=float(tracked.model.coreset.weights.sum()),
            coreset_cost=tracked.model.solution.cost,
            n_iter=tracked.model.solution.n_iter,
            moved=tracked.moved,
        )
        return tracked.model, True

    def _wanted_fit(self) -> dict[str, Any]:
        """What the model depends on besides the leaves. If `label` has become "all", all labels are written again."""
        wanted = self.settings.update
        return store_model.plain_fit(self.settings, half_life=wanted.half_life, label_all=wanted.label == "all")

    def _weight_of(self) -> Callable[[str], float] | None:
        half_life = self.settings.update.half_life
        if half_life is None:
            return None
        ages = {key: age for age, key in enumerate(sorted(self.store.keys(), key=natural_order, reverse=True))}
        return lambda key: 0.5 ** (ages[key] / half_life)

    # --- step 3: labels ----------------------------------------------------------------------------------------------

    def _update_labels(self, model: KernelKMeansModel) -> bool:
        state = self._state
        self.record.add(
            run=state.run,
            model=extend_path(self.store.path, f"/{state.model}"),
            store_version=self.store.version,
            store_commit=self.store.guarantee,
        )
        if not state.pending and not state.gone:
            return False
        if self.output is not None:
            commit = Commit(JOB, self.record.id, state.writer, state.stamp)
            labels = PendingLabels(self.input, self.store, model, self.settings, self.output, commit)
            rows = sum(self.store.info(key)["rows"] for key in state.pending if key in self.store)
            with self.record.stage("label"), watched(self.input.spark, "label", rows):
                values = labels.write(state.pending, state.gone)
            self.record.add(**values)
            if labels.unlabelled:
                log.warning(
                    "%d keys get no labels, because the input no longer has their rows: %s",
                    len(labels.unlabelled),
                    _few(labels.unlabelled),
                )
        self._commit(replace(state, pending=[], gone=[]))
        self.record.add(store_version=self.store.version)
        return True


def newest(keys: Iterable[str], window: int | None) -> list[str]:
    """Return the newest keys, or all without a window. Numbers within a key are compared as numbers."""
    ordered = sorted(keys, key=natural_order)
    return ordered if window is None else ordered[-window:]


def _selection(tag: Any) -> str | None:
    """Which rows and columns a key was built from; None in stores of version 0.1, which do not say."""
    return tag["input"] if isinstance(tag, dict) else None


def _sizes(tag: Any) -> list[Any]:
    """Names and sizes of the files of a key."""
    files = tag["files"] if isinstance(tag, dict) else tag  # a list in stores of version 0.1
    return [file[:2] for file in files]


def _few(keys: list[str]) -> str:
    return ", ".join(keys[:5]) + (", ..." if len(keys) > 5 else "")
