"""The streaming job: every micro-batch is added to the store once and labelled; the model is refitted now and then.

Spark delivers a micro-batch at least once: after a crash the last one comes again, with the same number and the same
rows. One commit of the store holds both the leaf of a micro-batch and its number, so the job knows whether it has been
added. The labels of a micro-batch have their own folder, which is overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from kernelcoreset.errors import DataError, SettingError
from kernelcoreset.files.paths import extend_path, is_known, open_path
from kernelcoreset.jobs import store_model
from kernelcoreset.jobs.progress import Progress, shown
from kernelcoreset.jobs.record import RunRecord, log
from kernelcoreset.jobs.report import NOTHING_TO_DO, show_model
from kernelcoreset.jobs.settings.rows import InputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.jobs.settings.store import AVAILABLE_NOW
from kernelcoreset.spark.jobs.history import recorded_session
from kernelcoreset.spark.jobs.input import in_one_line, input_layout, selected_rows
from kernelcoreset.spark.jobs.labels import check_output_columns
from kernelcoreset.spark.jobs.micro_batch import JOB, MicroBatchHandler, StreamState
from kernelcoreset.spark.jobs.output import check_tables
from kernelcoreset.spark.jobs.session import open_session
from kernelcoreset.spark.jobs.stop import StopRequest
from kernelcoreset.spark.jobs.trace import traced

# Options of sources that their own defaults make slow. Kafka's client hands out 500 records per call, which takes as
# long as all the rest; how many bytes it holds is limited by other options.
_FASTER = {"kafka": {"kafka.max.poll.records": "20000"}}


def run(settings: Settings, record: RunRecord) -> None:
    """Follow the input until it has no more rows for now, or until stopped, as the trigger of the settings says."""
    with StopRequest() as stop:
        before = StreamState()
        try:
            before = _checked_state(settings)
            with recorded_session(settings, record) as spark:
                stop.listen()
                follow(spark, settings, record, stop)
                if stop.received is not None:
                    record.status = "stopped"
                _add_results(settings, record, before)
        except BaseException as error:  # also when Spark is started or stopped
            if not stop.explains(error):
                raise
        if stop.received is not None:
            log.info("Stopped by %s. A micro-batch that is not finished is read again.", stop.received.name)
            record.status = "stopped"
        _add_results(settings, record, before)
        if record.values["outcome"] != NOTHING_TO_DO:
            _show_last_model(settings, record)


def plan(settings: Settings) -> dict[str, Any]:
    """Return from where a run would go on, without starting it."""
    with open_session(settings) as spark:
        state = _checked_state(settings)
        frame = read_stream(spark, settings.input)
        input_layout(frame, settings.input, settings.wanted_features)
        return {
            "columns": ", ".join(frame.columns),
            "last_batch": state.batch,
            "rows_so_far": state.rows,
            "fits": state.run,
        }


def follow(spark: SparkSession, settings: Settings, record: RunRecord, stop: StopRequest) -> None:
    """Do what `run` does, in a session that is open."""
    wanted = settings.stream
    with record.stage("look"):
        check_tables(spark, settings)
        frame = read_stream(spark, settings.input)
        input_layout(frame, settings.input, settings.wanted_features)
        columns = None if settings.output.columns is None else (*settings.output.columns, wanted.batch_col)
        output = replace(settings.output, partition_by=(wanted.batch_col,), columns=columns)
        check_output_columns([*frame.columns, wanted.batch_col], output, settings.input)
        if wanted.batch_col in frame.columns:
            raise SettingError(f"Columns already exist: {wanted.batch_col}. Set stream.batch_col to another name.")
        names: tuple[str, ...] = ()
        if settings.input.bad_rows == "quarantine":
            frame, names = trace_stream(spark, settings.input, frame)
        _remove_leftovers(settings)
    trigger: dict[str, Any] = (
        {"availableNow": True} if wanted.trigger == AVAILABLE_NOW else {"processingTime": wanted.trigger}
    )
    writer = frame.writeStream.foreachBatch(MicroBatchHandler(settings, names, record.id)).trigger(**trigger)
    with record.stage("stream"):
        query = writer.option("checkpointLocation", str(wanted.checkpoint)).queryName(settings.spark.app_name).start()
        try:
            progress = Progress("stream")
            with shown(progress):
                while not query.awaitTermination(1):
                    _count_rows(query, progress)
        except BaseException as error:
            if not stop.explains(error):
                raise
            _stop_query(query, stop)


def _count_rows(query: StreamingQuery, progress: Progress) -> None:
    """Count the rows of the micro-batches that have ended. Spark keeps reports of the last ones only."""
    for report in query.recentProgress:
        if report["batchId"] > progress.last_batch:
            progress.last_batch = report["batchId"]
            # The property, not the item: reports that come through Connect have the rows per source only.
            progress.rows += max(report.numInputRows, 0)


def _stop_query(query: StreamingQuery, stop: StopRequest) -> None:
    try:
        query.stop()
    except Exception as error:
        if not stop.explains(error):
            raise
        log.info("Java has ended too (%s).", type(error).__name__)


def _add_results(settings: Settings, record: RunRecord, before: StreamState) -> None:
    """Add to the record what the store has now and did not have before."""
    store = store_model.find_store(settings, JOB)
    state = StreamState.of(store)
    batches = state.batch - before.batch
    record.add(
        outcome=NOTHING_TO_DO if batches == 0 else f"{batches:,} micro-batches added",
        batches=batches,
        last_batch=state.batch,
        rows=state.rows + state.bad_rows,
        bad_rows=state.bad_rows,
        moved=state.moved,
        run=state.run,
        output=settings.output.path or settings.output.table,
    )
    if store is not None:
        record.add(
            kernel=repr(store.kernel),
            model=extend_path(store.path, f"/{state.model}"),
            store_keys=len(store.keys()),
            store_commit=store.guarantee,
        )


def _show_last_model(settings: Settings, record: RunRecord) -> None:
    store = store_model.find_store(settings, JOB)
    model = None if store is None else store_model.read_model(store, StreamState.of(store).model)
    if model is not None:
        show_model(record, model, describe=True)


def read_stream(spark: SparkSession, settings: InputSettings) -> DataFrame:
    """Return the input as a stream, or an error of one line that says why it cannot be streamed."""
    if settings.query is not None or settings.demo_rows is not None:
        raise SettingError(
            "The job stream needs a source that can be streamed: `input.path`, `input.table` or a `format`."
        )
    try:
        frame = selected_rows(_open_stream(spark, settings), settings)
        frame.schema  # noqa: B018  Spark Connect looks nothing up before this
    except Exception as error:  # some errors of Spark are of py4j's classes, which Spark Connect does not have
        known = in_one_line(error, settings)
        if "does not support streamed reading" in str(error):
            known = SettingError(
                f"`input.format` must be one that streams, such as json or kafka; got {settings.format!r}."
            )
        if known is None:
            raise
        raise known from None
    return frame


def trace_stream(spark: SparkSession, settings: InputSettings, frame: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
    """Return what `read_stream` returned with the columns that say where each row is from, and their names."""
    source, names = traced(
        _open_stream(spark, settings),
        settings,
        frame.columns,
        lambda schema, options: _open_stream(spark, settings, schema, options),
    )
    return selected_rows(source, settings, *names), names


def _open_stream(
    spark: SparkSession,
    settings: InputSettings,
    schema: StructType | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    wanted_options = {**_FASTER.get(settings.format, {}), **settings.options, **(options or {})}
    reader = spark.readStream.format(settings.format).options(**wanted_options)
    wanted = schema or settings.schema
    reader = reader if wanted is None else reader.schema(wanted)
    return reader.table(settings.table) if settings.table is not None else reader.load(settings.path)


def _checked_state(settings: Settings) -> StreamState:
    """The state of the store. Raises an error if store and checkpoint do not belong together."""
    store, checkpoint = store_model.find_store(settings, JOB), str(settings.stream.checkpoint)
    state = StreamState.of(store)
    if state.checkpoint not in (None, checkpoint):
        raise SettingError(
            f"The store at {settings.store.path} belongs to the checkpoint {state.checkpoint}; the settings say "
            f"{checkpoint}: its rows would count twice. Use the old checkpoint, or another store.path."
        )
    if not is_known(checkpoint):  # only Spark can read it
        return state
    system, place = open_path(checkpoint)
    offsets = system.get_file_info(fs.FileSelector(f"{place}/offsets", allow_not_found=True))
    started = any(info.base_name.isdigit() for info in offsets)
    if state.batch >= 0 and not started:
        raise DataError(
            f"The store at {settings.store.path} holds micro-batches up to {state.batch}, but the checkpoint "
            f"{checkpoint} is empty: the stream would start again and its rows would count twice. Restore the "
            "checkpoint, or set another store.path."
        )
    committed = system.get_file_info(fs.FileSelector(f"{place}/commits", allow_not_found=True))
    if state.batch < 0 and any(info.base_name.isdigit() for info in committed):
        raise DataError(
            f"The checkpoint {checkpoint} says that micro-batches were added, but the store at {settings.store.path} "
            "has none: they would be missing. Restore the store, or set another checkpoint."
        )
    return state


def _remove_leftovers(settings: Settings) -> None:
    """Remove what a killed writer may have left beside the folders of the micro-batches."""
    if settings.output.path is None:
        return
    system, place = open_path(settings.output.path)
    for info in system.get_file_info(fs.FileSelector(place, allow_not_found=True)):
        if info.base_name.startswith((".spark-staging-", f".{settings.stream.batch_col}=")):
            system.delete_dir(info.path)
