"""The sections of a settings file for the jobs that keep a clustering up to date: [store], [update] and [stream]."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelcoreset.checks import check_choice, check_count, check_positive
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.settings.sections import check_texts, set_field

AVAILABLE_NOW = "available-now"
_INTERVAL = re.compile(r"\d+ *(milli|micro)?(second|minute|hour|day|week)s?")


@dataclass(frozen=True)
class StoreSettings:
    """[store]: where the coresets of all keys are kept from run to run.

    Parameters
    ----------
    path : str, optional
        Folder of the store, made by the first run. Required by the jobs update and stream.
    """

    path: str | None = None

    def __post_init__(self) -> None:
        check_texts("store", self, "path")


@dataclass(frozen=True)
class UpdateSettings:
    """[update]: how a run follows what has changed in the input since the last one.

    Parameters
    ----------
    key_col : str, optional
        Column by which the input falls into keys that are renewed as a whole, such as the day of a table's row. Without
        it the keys of `input.path` are its partition folders (`date=2026-01-01`) or, where there are none, its files.
    version_col : str, optional
        Column of a table that differs once a key's rows have changed, such as the time they were loaded. Goes with
        `key_col`. Files are told apart by their names, sizes and times.
    label : {"new", "all", "none"}
        Rows to label: those of new and changed keys, all, or none.
    vanished : {"expire", "keep"}
        What to do with a key that the input has no more: take it out of the store, its labels too, or keep both.
    window : int, optional
        Only the newest keys count, that many; those that fall out keep their labels.
    half_life : float, optional
        A key that is so many keys older than the newest counts half.
    """

    key_col: str | None = None
    version_col: str | None = None
    label: str = "new"
    vanished: str = "expire"
    window: int | None = None
    half_life: float | None = None

    def __post_init__(self) -> None:
        check_texts("update", self, "key_col", "version_col")
        if self.version_col is not None and self.key_col is None:
            raise SettingError("`update.version_col` goes with `update.key_col`: set that too, or leave both out.")
        if self.version_col is not None and self.version_col == self.key_col:
            raise SettingError(f"`update.version_col` must not be `update.key_col`; got {self.key_col!r} for both.")
        check_choice("update.label", self.label, ("new", "all", "none"))
        check_choice("update.vanished", self.vanished, ("expire", "keep"))
        if self.window is not None:
            check_count("update.window", self.window)
        if self.half_life is not None:
            set_field(self, "half_life", check_positive("update.half_life", self.half_life))


@dataclass(frozen=True)
class StreamSettings:
    """[stream]: how a stream is followed, micro-batch by micro-batch.

    Parameters
    ----------
    checkpoint : str, optional
        Folder in which Spark notes how far it has read. Required by the job stream; belongs to one store.
    trigger : str
        "available-now": take in what is there, then end. Or how long to wait between micro-batches, such as
        "10 seconds": go on until stopped.
    refit_batches : int
        Find the clusters anew after so many micro-batches ...
    refit_minutes : float, optional
        ... or after so many minutes, whichever comes first.
    fan_in : int
        So many micro-batches become one key of the store, so many of these one of the next level, and so on: the
        number of keys stays small however long the stream.
    batch_col : str
        Name of the output's partition column, the number of the micro-batch.
    """

    checkpoint: str | None = None
    trigger: str = AVAILABLE_NOW
    refit_batches: int = 50
    refit_minutes: float | None = None
    fan_in: int = 16
    batch_col: str = "batch"

    def __post_init__(self) -> None:
        check_texts("stream", self, "checkpoint", "trigger", "batch_col")
        if self.trigger != AVAILABLE_NOW and not _INTERVAL.fullmatch(self.trigger.strip().lower()):
            raise SettingError(
                f'`stream.trigger` must be "{AVAILABLE_NOW}" or a time such as "10 seconds"; got {self.trigger!r}.'
            )
        check_count("stream.refit_batches", self.refit_batches)
        if self.refit_minutes is not None:
            set_field(self, "refit_minutes", check_positive("stream.refit_minutes", self.refit_minutes))
        check_count("stream.fan_in", self.fan_in, 2, "At least two keys become one.")
