"""The streaming job: every micro-batch goes into the store once and is labelled; the model is refitted in turn.

Spark gives a micro-batch at least once: after a crash the last one comes again, with the same number and the same rows.
Its leaf and its number go into the store in one commit, so it is known whether it is in already; its labels have a
folder of their own, which is written anew.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.coresets.build import merge_coresets
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.files.paths import is_known, open_path
from kernelcoreset.jobs import store_model as upkeep
from kernelcoreset.jobs.record import RunRecord, log
from kernelcoreset.jobs.settings.rows import InputSettings, OutputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.jobs.settings.store import AVAILABLE_NOW
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.columns import Layout, layout_of, refuse_bad_rows, with_dimension
from kernelcoreset.spark.jobs.batch import (
    check_columns,
    chosen_columns,
    kernel_of,
    label_settings_of,
    leaf_settings_of,
    quarantined,
)
from kernelcoreset.spark.jobs.input import chosen_rows, in_one_line
from kernelcoreset.spark.jobs.output import partition_folder, write_output
from kernelcoreset.spark.jobs.session import open_session
from kernelcoreset.spark.labels import label_rows
from kernelcoreset.spark.leaves import LeafSettings, Leaves, leaves_by_spark
from kernelcoreset.spark.merge import gather
from kernelcoreset.store.store import CoresetStore, LeafUpdate

JOB = "stream"
_KEPT_SECONDS = 3600.0  # what the store no longer names is removed after that; readers have finished by then


@dataclass(frozen=True)
class StreamState(upkeep.JobState):
    """What the store remembers for this job."""

    checkpoint: str | None = None
    batch: int = -1
    """The last micro-batch that is in."""
    rows: int = 0
    bad_rows: int = 0
    fit_batch: int = -1
    fit_time: float = 0.0
    moved: float | None = None


def run(settings: Settings, record: RunRecord) -> None:
    """Do the work of the job stream."""
    with open_session(settings, record.stage("session")) as spark:
        stream(spark, settings, record)


def stream(spark: SparkSession, settings: Settings, record: RunRecord) -> None:
    """Follow the input until it has nothing more for now, or until stopped, by the trigger of the settings."""
    wanted = settings.stream
    with record.stage("look"):
        before = _checked_state(settings)
        frame = read_stream(spark, settings.input)
        layout_of(frame, settings.input.features, settings.input.weight_col, settings.input.id_col)
        output = replace(settings.output, partition_by=(wanted.batch_col,))
        check_columns([*frame.columns, wanted.batch_col], output, settings.input)
        if wanted.batch_col in frame.columns:
            raise SettingError(f"Columns are there already: {wanted.batch_col}. Set stream.batch_col to another name.")
        _remove_leftovers(settings)
    trigger: dict[str, Any] = (
        {"availableNow": True} if wanted.trigger == AVAILABLE_NOW else {"processingTime": wanted.trigger}
    )
    writer = frame.writeStream.foreachBatch(BatchTaker(settings)).trigger(**trigger)
    with record.stage("stream"), _terminate_is_interrupt():
        query = writer.option("checkpointLocation", str(wanted.checkpoint)).queryName(settings.spark.app_name).start()
        try:
            while not query.awaitTermination(1):
                pass
        except KeyboardInterrupt:
            log.info("Stopping; a micro-batch under way comes again next time.")
            query.stop()
    store = upkeep.find_store(settings, JOB)
    state = StreamState.of(store)
    batches = state.batch - before.batch
    record.add(
        outcome="nothing to do" if batches == 0 else f"{batches:,} micro-batches taken in",
        batches=batches,
        last_batch=state.batch,
        rows=state.rows + state.bad_rows,
        bad_rows=state.bad_rows,
        moved=state.moved,
        run=state.run,
        output=settings.output.path or settings.output.table,
    )
    if store is not None:
        record.add(kernel=repr(store.kernel), model=f"{store.path}/{state.model}", store_keys=len(store.keys()))


def read_stream(spark: SparkSession, settings: InputSettings) -> DataFrame:
    """Return the input as a stream, or say in one line why it is none."""
    if settings.query is not None or settings.demo_rows is not None:
        raise SettingError("The job stream needs a source that streams: `input.path`, `input.table` or a `format`.")
    try:
        reader = spark.readStream.format(settings.format).options(**settings.options)
        reader = reader if settings.schema is None else reader.schema(settings.schema)
        frame = reader.table(settings.table) if settings.table is not None else reader.load(settings.path)
        frame = chosen_rows(frame, settings)
        frame.schema  # noqa: B018  on Spark Connect nothing is looked up before this
    except Exception as error:  # some of Spark's errors come as py4j's, which Spark Connect does not have
        known = in_one_line(error, settings)
        if "does not support streamed reading" in str(error):
            known = SettingError(
                f"`input.format` must be one that streams, such as json or kafka; got {settings.format!r}."
            )
        if known is None:
            raise
        raise known from None
    return frame


def plan(settings: Settings) -> dict[str, Any]:
    """Return what a dry run prints."""
    with open_session(settings) as spark:
        state = _checked_state(settings)
        frame = read_stream(spark, settings.input)
        layout_of(frame, settings.input.features, settings.input.weight_col, settings.input.id_col)
        return {
            "columns": ", ".join(frame.columns),
            "last_batch": state.batch,
            "rows_so_far": state.rows,
            "fits": state.run,
        }


class BatchTaker:
    """What is done with each micro-batch. Plain data when it travels: on Spark Connect it runs beside the server."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._store: CoresetStore | None = None
        self._model: tuple[str, KernelKMeansModel] | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Take in one micro-batch, refit if it is time, and write its labels."""
        wanted = self.settings.input
        layout = layout_of(frame, wanted.features, wanted.weight_col, wanted.id_col)
        # Kept from batch to batch, so that another writer in between is noticed.
        self._store = self._store or upkeep.find_store(self.settings, JOB)
        # Read once per micro-batch; every step below gives back what it has made of it.
        state = StreamState.of(self._store)
        model = None if self._store is None else self._model_of(self._store, state)
        layout = (
            with_dimension(frame, layout) if model is None else replace(layout, dimension=model.coreset.points.shape[1])
        )
        if self._store is None:
            self._store = upkeep.make_store(self.settings, kernel_of(frame, layout, self.settings))
        if batch > state.batch + 1 and state.batch >= 0:
            raise DataError(
                f"Micro-batch {batch} follows {state.batch} in the store at {self._store.path}: those between are "
                "missing. The checkpoint went on without this store. Start again with a new checkpoint and a new store."
            )
        if batch > state.batch:
            state = self._take_in(self._store, state, frame, layout, batch)
        model = self._fit_if_due(self._store, state, model)
        if model is not None:
            self._write(frame, layout, model, batch)

    # --- leaves ------------------------------------------------------------------------------------------------------

    def _take_in(
        self, store: CoresetStore, state: StreamState, frame: DataFrame, layout: Layout, batch: int
    ) -> StreamState:
        """Commit the leaf of a micro-batch, and return the state with it."""
        key = key_of(0, batch, batch)
        settings = leaf_settings_of(self.settings, store.kernel, layout)
        settings = replace(settings, recipe=settings.recipe.varied(seed=store.leaf_seed(key)))
        found = gather(leaves_by_spark(frame, settings), settings)
        if self.settings.input.bad_rows == "fail":
            refuse_bad_rows(found.bad, found.rows)
        good = found.rows - found.bad.rows
        state = replace(
            state,
            checkpoint=self.settings.stream.checkpoint,
            batch=batch,
            rows=state.rows + good,
            bad_rows=state.bad_rows + found.bad.rows,
        )
        put, expired = dict[str, LeafUpdate](), list[str]()
        if found.coresets:
            leaf = LeafUpdate(_one_leaf(found, store, settings), rows=good)
            put, expired = compacted(store, key, leaf, self.settings.stream.fan_in)
        upkeep.keep_state(store, self.settings, JOB, state, put=put, expire=expired)
        return state

    # --- model -------------------------------------------------------------------------------------------------------

    def _fit_if_due(
        self, store: CoresetStore, state: StreamState, before: KernelKMeansModel | None
    ) -> KernelKMeansModel | None:
        """Return the model to label with: the one before, or a new one if it is time for it."""
        wanted = self.settings.stream
        if not any(store.info(key)["points"] for key in store.keys()):  # noqa: SIM118
            return before
        fit = upkeep.plain_fit(self.settings)
        is_due = before is None or state.fit != fit or state.batch - state.fit_batch >= wanted.refit_batches
        if wanted.refit_minutes is not None and state.batch > state.fit_batch:
            is_due = is_due or time.time() - state.fit_time >= 60 * wanted.refit_minutes
        if not is_due:
            return before
        tracked, state = upkeep.fit_store(store, self.settings, state, before, fit)
        state = replace(state, fit_batch=state.batch, fit_time=time.time(), moved=tracked.moved)
        upkeep.keep_state(store, self.settings, JOB, state)
        self._model = (str(state.model), tracked.model)
        log.info("micro-batch %d: model %d, moved %s", state.batch, state.run, tracked.moved)
        upkeep.remove_old_models(store, state)
        store.vacuum(older_than=_KEPT_SECONDS)
        return tracked.model

    def _model_of(self, store: CoresetStore, state: StreamState) -> KernelKMeansModel | None:
        """The model that the state names, read from the store only if it is not the one at hand."""
        name = state.model
        if name is not None and (self._model is None or self._model[0] != name):
            found = upkeep.read_model(store, name)
            self._model = None if found is None else (name, found)
        return None if name is None or self._model is None else self._model[1]

    # --- labels ------------------------------------------------------------------------------------------------------

    def _write(self, frame: DataFrame, layout: Layout, model: KernelKMeansModel, batch: int) -> None:
        settings = self.settings
        if settings.input.bad_rows == "quarantine":
            aside = OutputSettings(path=settings.input.quarantine_path)
            self._write_batch(quarantined(frame, layout, model), aside, batch)
        labelled = label_rows(frame, label_settings_of(layout, model, settings))
        self._write_batch(chosen_columns(labelled, settings.output), settings.output, batch)

    def _write_batch(self, frame: DataFrame, output: OutputSettings, batch: int) -> None:
        """Write the rows of a micro-batch in the place of what an earlier attempt may have left."""
        column = self.settings.stream.batch_col
        if output.table is not None:
            frame = frame.withColumn(column, F.lit(batch))
            write_output(frame, replace(output, mode="overwrite-partitions", partition_by=(column,), columns=None))
        else:
            place = f"{str(output.path).rstrip('/')}/{partition_folder({column: str(batch)})}"
            write_output(frame, replace(output, path=place, mode="overwrite", partition_by=(), columns=None))


def _one_leaf(found: Leaves, store: CoresetStore, settings: LeafSettings) -> Coreset:
    if len(found.coresets) == 1:
        return found.coresets[0]
    return merge_coresets(
        found.coresets, store.k, store.kernel, store.leaf_size, z=store.z, seed=settings.seed_of(1, 0)
    )


# --- keys: batches that are merged into fewer as they get older ------------------------------------------------------


def key_of(level: int, first: int, last: int) -> str:
    """Return the key of some micro-batches: how often they were merged, then the first and the last of them."""
    return f"{level}:{first:012d}-{last:012d}"


def compacted(store: CoresetStore, key: str, leaf: LeafUpdate, fan_in: int) -> tuple[dict[str, LeafUpdate], list[str]]:
    """Return what to put and what to expire so that a new leaf is in: where it fills its level, it is merged with it.

    `fan_in` keys of one level become one of the next, which keeps the number of keys below
    (fan_in - 1) log_fan_in(micro-batches), and so memory and time of a micro-batch flat.
    """
    expired: list[str] = []
    level = 0
    while True:
        own = [name for name in store.keys() if name.startswith(f"{level}:")]  # noqa: SIM118
        if len(own) + 1 < fan_in:
            return {key: leaf}, expired
        parts = [part for name in own if (part := store.leaf(name)) is not None]
        parts += [] if leaf.coreset is None else [leaf.coreset]
        rows = sum(store.info(name)["rows"] for name in own) + (leaf.rows or 0)
        first, last = min([*own, key]).partition(":")[2][:12], key[-12:]
        level += 1
        key = key_of(level, int(first), int(last))
        merged = merge_coresets(parts, store.k, store.kernel, store.leaf_size, z=store.z, seed=store.leaf_seed(key))
        leaf = LeafUpdate(merged, rows=rows)
        expired += own


# --- before the stream starts ----------------------------------------------------------------------------------------


def _checked_state(settings: Settings) -> StreamState:
    """The state of the store, if checkpoint and store belong together: otherwise rows would be lost or count twice."""
    store, checkpoint = upkeep.find_store(settings, JOB), str(settings.stream.checkpoint)
    state = StreamState.of(store)
    if state.checkpoint not in (None, checkpoint):
        raise SettingError(
            f"The store at {settings.store.path} belongs to the checkpoint {state.checkpoint}; the settings say "
            f"{checkpoint}: its rows would count twice. Use the old checkpoint, or another store.path."
        )
    if not is_known(checkpoint):  # only Spark can look there
        return state
    system, place = open_path(checkpoint)
    offsets = system.get_file_info(fs.FileSelector(f"{place}/offsets", allow_not_found=True))
    started = any(info.base_name.isdigit() for info in offsets)
    if state.batch >= 0 and not started:
        raise DataError(
            f"The store at {settings.store.path} holds micro-batches up to {state.batch}, but the checkpoint "
            f"{checkpoint} is empty: the stream would begin anew and its rows count twice. Bring the checkpoint back, "
            "or set another store.path."
        )
    committed = system.get_file_info(fs.FileSelector(f"{place}/commits", allow_not_found=True))
    if state.batch < 0 and any(info.base_name.isdigit() for info in committed):
        raise DataError(
            f"The checkpoint {checkpoint} says that micro-batches were taken in, but the store at "
            f"{settings.store.path} has none: they would be missing. Bring the store back, or set another checkpoint."
        )
    return state


def _remove_leftovers(settings: Settings) -> None:
    """Remove what a writer that was killed may have left beside the folders of the micro-batches."""
    if settings.output.path is None:
        return
    system, place = open_path(settings.output.path)
    for info in system.get_file_info(fs.FileSelector(place, allow_not_found=True)):
        if info.base_name.startswith((".spark-staging-", f".{settings.stream.batch_col}=")):
            system.delete_dir(info.path)


@contextmanager
def _terminate_is_interrupt() -> Iterator[None]:
    """Let SIGTERM, by which schedulers end a job, do what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
