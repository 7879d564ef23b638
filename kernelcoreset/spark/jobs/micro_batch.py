"""What the streaming job does with one micro-batch: add its leaf to the store, refit the model if due, write labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kernelcoreset.coresets.build import merge_coresets
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.errors import DataError
from kernelcoreset.jobs import store_model
from kernelcoreset.jobs.places import FILE_FORMATS
from kernelcoreset.jobs.record import log
from kernelcoreset.jobs.settings.rows import OutputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.columns import Layout, refuse_bad_rows, with_dimension
from kernelcoreset.spark.jobs.compaction import compacted, key_of
from kernelcoreset.spark.jobs.coreset import kernel_of_rows, leaf_settings_of
from kernelcoreset.spark.jobs.delta import FORMAT as DELTA
from kernelcoreset.spark.jobs.delta import Commit
from kernelcoreset.spark.jobs.input import input_layout
from kernelcoreset.spark.jobs.labels import label_input, quarantined_rows
from kernelcoreset.spark.jobs.output import partition_folder, write_output
from kernelcoreset.spark.leaves import LeafSettings, Leaves, leaves_by_spark
from kernelcoreset.spark.merge import gather
from kernelcoreset.spark.observed_leaves import ObservedLeaves
from kernelcoreset.spark.sample import fit_preparation, random_order
from kernelcoreset.store.store import CoresetStore, LeafUpdate

JOB = "stream"
_KEPT_SECONDS = 3600.0  # files that the store no longer uses are removed after that; readers have finished by then


@dataclass(frozen=True)
class StreamState(store_model.JobState):
    """What the store remembers for this job."""

    checkpoint: str | None = None
    batch: int = -1
    """The last micro-batch whose leaf is in the store."""
    rows: int = 0
    bad_rows: int = 0
    fit_batch: int = -1
    fit_time: float = 0.0
    moved: float | None = None


class MicroBatchHandler:
    """The function that Spark calls with each micro-batch.

    It is pickled before it is first called: on Spark Connect it runs in a process beside the server.

    Parameters
    ----------
    settings : Settings
    source_columns : sequence of str
        Columns of the frame that say where a row is from. Only the quarantine has them.
    run_id : str
        Of the run, for the history of a Delta output.
    """

    def __init__(self, settings: Settings, source_columns: Sequence[str] = (), run_id: str = "") -> None:
        self.settings = settings
        self.run_id = run_id
        self._source_columns = tuple(source_columns)
        self._store: CoresetStore | None = None
        self._model: tuple[str, KernelKMeansModel] | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Add one micro-batch to the store, refit the model if it is due, and write the labels."""
        traced, frame = frame, frame.drop(*self._source_columns)
        # The same object from batch to batch, so that a commit of another writer in between is noticed.
        self._store = self._store or store_model.find_store(self.settings, JOB)
        # Read once per micro-batch: every step below gets the state and returns the new one.
        state = StreamState.of(self._store)
        model = None if self._store is None else self._model_of(self._store, state)
        layout = self._layout(frame, state, model)
        if self._store is None:
            order = random_order(self.settings.coreset.seed, by_file=False)
            kernel = kernel_of_rows(frame, layout, self.settings, order)
            self._store = store_model.make_store(self.settings, kernel)
        if batch > state.batch + 1 and state.batch >= 0:
            raise DataError(
                f"Micro-batch {batch} follows {state.batch} in the store at {self._store.path}: those between are "
                "missing. The checkpoint went on without this store. Start again with a new checkpoint and a new store."
            )
        leaves = _leaf_settings(self._store, self.settings, layout, batch)
        if batch > state.batch and model is not None and self._is_one_pass(state, batch, leaves):
            self._label_and_add(self._store, state, traced, layout, model, leaves, batch)
            return
        bad_rows = None
        if batch > state.batch:
            found = gather(leaves_by_spark(frame, leaves), leaves)
            bad_rows = found.bad.rows
            state = self._add_leaf(self._store, state, found, leaves, batch)
        self._put_aside(traced, layout, batch, state, bad_rows)  # there may be bad rows before there is a model
        model = self._refit_if_due(self._store, state, model)
        if model is not None:
            labelled = label_input(frame, layout, model, self.settings, columns=self.settings.output.columns)
            self._write_batch(labelled, self.settings.output, batch, state)

    def _layout(self, frame: DataFrame, state: StreamState, model: KernelKMeansModel | None) -> Layout:
        """Which columns hold the points. Means and scales are those of the first micro-batch."""
        wanted = self.settings.wanted_features
        layout = input_layout(frame, self.settings.input, wanted)
        if state.preparation is not None:
            return layout.prepared_by(store_model.preparation_in(state))
        if model is not None:
            return replace(layout, dimension=model.coreset.points.shape[1])
        layout = with_dimension(frame, layout)
        return layout.prepared_by(fit_preparation(frame, layout, wanted))

    # --- leaf --------------------------------------------------------------------------------------------------------

    def _is_one_pass(self, state: StreamState, batch: int, leaves: LeafSettings) -> bool:
        """Whether one pass over the rows can label them and build their leaf.

        Not if the model is to see the rows first. Not for tables: a Delta table must have the number of the write from
        the store before it is written, and not every other table lets a write be observed.
        """
        output = self.settings.output
        is_file = output.table is None and output.format in FILE_FORMATS
        return is_file and ObservedLeaves.can_hold(leaves) and not self._is_fit_due(replace(state, batch=batch))

    def _label_and_add(
        self,
        store: CoresetStore,
        state: StreamState,
        traced: DataFrame,
        layout: Layout,
        model: KernelKMeansModel,
        leaves: LeafSettings,
        batch: int,
    ) -> None:
        """Write the labels of a micro-batch and then commit its leaf, both from one pass over its rows.

        A crash in between leaves labels that the next attempt writes again, by the same model.
        """
        frame, columns = traced.drop(*self._source_columns), self.settings.output.columns
        observed = ObservedLeaves(frame, leaves)
        labelled = label_input(frame, layout, model, self.settings, columns=columns, measurement=observed)
        self._write_batch(labelled, self.settings.output, batch, state)
        found = observed.leaves()
        self._put_aside(traced, layout, batch, state, found.bad.rows)
        self._add_leaf(store, state, found, leaves, batch)

    def _add_leaf(
        self, store: CoresetStore, state: StreamState, found: Leaves, settings: LeafSettings, batch: int
    ) -> StreamState:
        """Commit the leaf of a micro-batch, and return the state with it."""
        if self.settings.input.bad_rows == "fail":
            refuse_bad_rows(found.bad, found.rows)
        good, preparation = found.rows - found.bad.rows, settings.layout.preparation
        state = replace(
            state,
            preparation=None if preparation is None else preparation.to_dict(),
            checkpoint=self.settings.stream.checkpoint,
            batch=batch,
            rows=state.rows + good,
            bad_rows=state.bad_rows + found.bad.rows,
        ).stamped()
        put, expired = dict[str, LeafUpdate](), list[str]()
        if found.coresets:
            leaf = LeafUpdate(_one_leaf(found, store, settings), rows=good)
            put, expired = compacted(store, key_of(0, batch, batch), leaf, self.settings.stream.fan_in)
        store_model.keep_state(store, self.settings, JOB, state, put=put, expire=expired)
        return state

    def _put_aside(
        self, traced: DataFrame, layout: Layout, batch: int, state: StreamState, bad_rows: int | None
    ) -> None:
        """Write the bad rows of a micro-batch to the quarantine, if it has any or their number is not known."""
        if self.settings.input.bad_rows == "quarantine" and bad_rows != 0:
            quarantine = OutputSettings(path=self.settings.input.quarantine_path)
            self._write_batch(quarantined_rows(traced, layout), quarantine, batch, state)

    # --- model -------------------------------------------------------------------------------------------------------

    def _refit_if_due(
        self, store: CoresetStore, state: StreamState, before: KernelKMeansModel | None
    ) -> KernelKMeansModel | None:
        """Return the model to label with: a new one if it is due, else the one before."""
        if not any(store.info(key)["points"] for key in store.keys()):  # noqa: SIM118
            return before
        if before is not None and not self._is_fit_due(state):
            return before
        fit = store_model.plain_fit(self.settings)
        tracked, state = store_model.fit_store(store, self.settings, state, before, fit)
        state = replace(state, fit_batch=state.batch, fit_time=time.time(), moved=tracked.moved)
        store_model.keep_state(store, self.settings, JOB, state)
        self._model = (str(state.model), tracked.model)
        log.info("micro-batch %d: model %d, moved %s", state.batch, state.run, tracked.moved)
        store_model.remove_old_models(store, state)
        store.vacuum(older_than=_KEPT_SECONDS)
        return tracked.model

    def _is_fit_due(self, state: StreamState) -> bool:
        wanted = self.settings.stream
        if state.fit != store_model.plain_fit(self.settings):
            return True
        minutes = float("inf") if wanted.refit_minutes is None else wanted.refit_minutes
        is_late = state.batch > state.fit_batch and time.time() - state.fit_time >= 60 * minutes
        return is_late or state.batch - state.fit_batch >= wanted.refit_batches

    def _model_of(self, store: CoresetStore, state: StreamState) -> KernelKMeansModel | None:
        """The model that the state names, read from the store unless it is in memory."""
        name = state.model
        if name is not None and (self._model is None or self._model[0] != name):
            found = store_model.read_model(store, name)
            self._model = None if found is None else (name, found)
        return None if name is None or self._model is None else self._model[1]

    # --- labels ------------------------------------------------------------------------------------------------------

    def _write_batch(self, frame: DataFrame, output: OutputSettings, batch: int, state: StreamState) -> None:
        """Write the rows of a micro-batch; they replace what an earlier attempt may have written."""
        column = self.settings.stream.batch_col
        if output.format == DELTA:
            frame = frame.withColumn(column, F.lit(batch))
            table = replace(output, partition_by=(column,), columns=None)
            commit = Commit(JOB, self.run_id, state.writer, state.stamp)
            write_output(frame, table, commit=commit, replaced=[{column: str(batch)}])
        elif output.table is not None:
            frame = frame.withColumn(column, F.lit(batch))
            write_output(frame, replace(output, mode="overwrite-partitions", partition_by=(column,), columns=None))
        else:
            place = f"{str(output.path).rstrip('/')}/{partition_folder({column: str(batch)})}"
            part = replace(output, path=place, mode="overwrite", partition_by=(), columns=None)
            write_output(frame, part, is_part=True)


def _leaf_settings(store: CoresetStore, settings: Settings, layout: Layout, batch: int) -> LeafSettings:
    found = leaf_settings_of(settings, store.kernel, layout)
    return replace(found, recipe=found.recipe.varied(seed=store.leaf_seed(key_of(0, batch, batch))))


def _one_leaf(found: Leaves, store: CoresetStore, settings: LeafSettings) -> Coreset:
    if len(found.coresets) == 1:
        return found.coresets[0]
    return merge_coresets(
        found.coresets, store.k, store.kernel, store.leaf_size, z=store.z, seed=settings.seed_of(1, 0)
    )
