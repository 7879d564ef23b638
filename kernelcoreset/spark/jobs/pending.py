"""Labels of the keys of an update that are pending: written for keys with rows, removed for keys without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.background import in_background
from kernelcoreset.jobs.settings.rows import OutputSettings
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.jobs.delta import FORMAT as DELTA
from kernelcoreset.spark.jobs.delta import Commit, existing_rows
from kernelcoreset.spark.jobs.keys import KeyedInput
from kernelcoreset.spark.jobs.labels import (
    check_output_columns,
    label_input,
    measurement_of,
    quarantined_rows,
    summary_of,
)
from kernelcoreset.spark.jobs.output import check_output, check_tables, remove_partitions, write_output
from kernelcoreset.spark.keyed_leaves import KEY
from kernelcoreset.store.store import CoresetStore


def keyed_output(data: KeyedInput, settings: Settings, *, is_first_run: bool) -> OutputSettings | None:
    """Return the output with the partitions of the keys; None if no labels are wanted.

    Everything that can be checked before the work starts is checked here.
    """
    check_tables(data.spark, settings, data.data.source)
    if settings.update.label == "none":
        return None
    partition_by, output = data.partition_by, settings.output
    if output.partition_by and output.partition_by != partition_by:
        raise SettingError(
            f"`output.partition_by` must be {list(partition_by)} for this input, so that the labels of a key can be "
            f"replaced, or be left out; got {list(output.partition_by)}."
        )
    if is_first_run:
        check_output(data.spark, output)
    columns = None if output.columns is None else tuple(dict.fromkeys([*output.columns, *partition_by]))
    keyed = replace(output, partition_by=partition_by, mode="overwrite-partitions", columns=columns)
    check_output_columns(data.columns, keyed, settings.input)
    return keyed


class PendingLabels:
    """Writes the labels of pending keys with one model.

    Parameters
    ----------
    data : KeyedInput
    store : CoresetStore
    model : KernelKMeansModel
    settings : Settings
    output : OutputSettings
        That of `keyed_output`.
    commit : Commit
        What the history of a Delta output says.
    """

    def __init__(
        self,
        data: KeyedInput,
        store: CoresetStore,
        model: KernelKMeansModel,
        settings: Settings,
        output: OutputSettings,
        commit: Commit,
    ) -> None:
        self._data = data
        self._store = store
        self._model = model
        self._settings = settings
        self._output = output
        self._commit = commit
        self.unlabelled: list[str] = []
        """Keys that were to be labelled, but that the input no longer has."""

    def write(self, pending: Sequence[str], gone: Sequence[str]) -> dict[str, Any]:
        """Write the labels of the keys `pending`, remove those of the keys `gone`; return values for the record."""
        # A key that the input no longer has, but the store keeps (vanished = "keep"), has no rows to label.
        here = [key for key in pending if key in self._data.parts]
        self.unlabelled = sorted(set(pending) - set(here))
        # Whether a key that has left the store has good rows is not known.
        left = [key for key in here if key not in self._store]
        full = [key for key in here if key in left or self._store.info(key)["rows"]]
        removed = [*gone, *left, *sorted(set(here) - set(full))]
        is_delta = self._output.format == DELTA
        if not is_delta:
            # Spark overwrites the folders of keys with rows. Those of keys without rows have to be removed.
            remove_partitions(self._data.spark, self._output, [self._data.partition_of(key) for key in removed])
        if self._settings.input.bad_rows == "quarantine":
            self._write_quarantine(here, [*gone, *here])
        if full:
            values = self._write_labels(full, removed)
        else:
            values = {}
            if is_delta and removed:
                self._delete(removed)
        return {**values, "unlabelled": self.unlabelled}

    def _write_quarantine(self, keys: list[str], replaced: list[str]) -> None:
        path, partition_by = str(self._settings.input.quarantine_path), self._output.partition_by
        quarantine = OutputSettings(path=path, partition_by=partition_by)
        remove_partitions(self._data.spark, quarantine, [self._data.partition_of(key) for key in replaced])
        if not keys:
            return
        bad = quarantined_rows(self._data.traced_rows_of(keys), self._data.data.layout, self._model).drop(KEY)
        write_output(bad, replace(quarantine, mode="append"), "input.quarantine_path")

    def _delete(self, keys: list[str]) -> None:
        rows = existing_rows(self._data.spark, self._output)
        if rows is not None:
            partitions = [self._data.partition_of(key) for key in keys]
            write_output(rows.where("false"), self._output, commit=self._commit, replaced=partitions)

    def _write_labels(self, keys: list[str], removed: list[str]) -> dict[str, Any]:
        # The certificate compares rows with the coreset, which must be that of the same rows and weights.
        is_whole = keys == self._store.keys() and self._settings.update.half_life is None
        measurement = measurement_of(self._model, self._settings, with_certificate=is_whole)
        labelled = label_input(
            self._data.rows_of(keys).drop(KEY),
            self._data.data.layout,
            self._model,
            self._settings,
            columns=self._output.columns,
            measurement=measurement,
        )
        place = self._output.path or self._output.table
        # A Delta table replaces all of them in one commit; other formats have removed the second kind before.
        replaced = [self._data.partition_of(key) for key in sorted({*keys, *removed})]
        with in_background(*measurement.preparations):
            is_new = write_output(labelled, self._output, commit=self._commit, replaced=replaced)
        if not is_new:
            return {"output": place, "labelled_rows": 0}  # written by a run that was killed before it could say so
        found = measurement.summary()
        values = (
            summary_of(found, self._model)
            if is_whole
            else {"cluster_sizes": found.cluster_sizes, "labelled_cost": found.cost}
        )
        return {**values, "labelled_rows": found.rows - found.bad_rows, "output": place}
