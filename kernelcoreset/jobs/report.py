"""The report of a run: what the record keeps for it, and the page beside the record.

The page is made from the record alone, so `kernelcoreset report RECORD` makes the same page again.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from typing import Any

from kernelcoreset.describing.tally import MOST_CLUSTERS
from kernelcoreset.errors import FormatError, SettingError
from kernelcoreset.files.atomic import write_file
from kernelcoreset.files.paths import open_path
from kernelcoreset.jobs.places import not_own, why_no_report
from kernelcoreset.jobs.record import RunRecord, read_record, report_path
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.reporting.page import report_page
from kernelcoreset.spectral.model import PointModel

NOTHING_TO_DO = "nothing to do"
"""The outcome of a run that found everything up to date."""
_FOLLOWING = ("update", "stream")  # jobs whose clusters keep their numbers from run to run
_MOST_RUNS = 60
_MOST_WARNINGS = 50
_KEPT = ("picture", "description", "cluster_shares", "kernel", "coreset_points")


class Warnings(logging.Handler):
    """Keeps the warnings of a run for its report."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one, unless there are very many."""
        if len(self.texts) < _MOST_WARNINGS:
            self.texts.append(record.getMessage())


def show_model(record: RunRecord, model: PointModel, *, describe: bool = False) -> None:
    """Add to the record what its report shows of a model: the coreset in the plane.

    With `describe` also what the clusters are, by the coreset, if no labelled rows have said it.
    """
    settings = record.settings
    if settings.run.report is False:
        return
    names = settings.input.feature_columns if settings.has("input") else None
    record.add(picture=model.picture(names))
    if record.job in _FOLLOWING and isinstance(model, KernelKMeansModel):
        record.add(cluster_shares=model.cluster_weights / model.cluster_weights.sum())
    wanted = describe and (not settings.has("output") or settings.output.describe) and model.k <= MOST_CLUSTERS
    if wanted and record.values.get("description") is None:
        record.add(description=model.describe(names=names).to_dict())


def add_history(record: RunRecord) -> None:
    """Add the runs before, from the record that this one replaces, and this run to the record.

    A run that found nothing to do keeps what the run before said of the clusters.
    """
    if record.settings.run.report is False:
        return
    try:
        before = read_record(record.path)
    except (FileNotFoundError, FormatError):
        before = {}
    if before.get("job") != record.job:
        before = {}
    known = before.get("history")
    known = known if isinstance(known, list) else []
    if record.job in _FOLLOWING and "choice" in before and "choice" not in record.values:
        record.add(choice=before["choice"])  # of the run that made the store
    if record.values.get("outcome") == NOTHING_TO_DO:
        record.add(**{name: before[name] for name in _KEPT if name in before and name not in record.values})
    if record.values.get("outcome") != NOTHING_TO_DO or not known:
        known = [*known, _entry(record.to_dict())]
    record.add(history=known[-_MOST_RUNS:])


def _entry(plain: dict[str, Any]) -> dict[str, Any]:
    """What later reports show of a run."""
    kept = {name: plain.get(name) for name in ("id", "finished", "seconds", "rows", "cost", "coreset_cost", "moved")}
    kept["largest_error"] = (plain.get("certificate") or {}).get("largest_error")
    kept["shares"] = plain.get("cluster_shares")
    return {name: value for name, value in kept.items() if value is not None}


def write_report(record: str, place: str) -> None:
    """Write the page of a record; SettingError if something else is at that place."""
    page = report_page(read_record(record)).encode()
    reason = why_no_report(place)
    if reason is not None:
        raise SettingError(not_own("The report", place, reason))
    write_file(*open_path(place), page)


def make_report(argv: Sequence[str] | None = None) -> None:
    """Do what `kernelcoreset report` does."""
    parser = argparse.ArgumentParser(
        prog="kernelcoreset report",
        description="Make the report of a run from its record: one HTML file, which needs nothing else.",
        allow_abbrev=False,
    )
    parser.add_argument("record", metavar="RECORD", help="the record of a run, such as labels.run.json")
    parser.add_argument("--output", metavar="FILE", help="the page to write; RECORD.report.html by default")
    given = parser.parse_args(argv)
    place = given.output or report_path(given.record)
    write_report(given.record, place)
    print(place)
