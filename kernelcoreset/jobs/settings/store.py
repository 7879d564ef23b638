"""The sections of a settings file for the jobs update and stream: [store], [update] and [stream]."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelcoreset.checks import check_choice, check_count, check_positive
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs.settings.fields import check_texts, set_field
from kernelcoreset.jobs.settings.key_ranges import KeyScope, key_texts

AVAILABLE_NOW = "available-now"
_INTERVAL = re.compile(r"\d+ *(milli|micro)?(second|minute|hour|day|week)s?")


@dataclass(frozen=True)
class StoreSettings:
    """[store]: where the coresets of all keys are kept between runs.

    Parameters
    ----------
    path : str, optional
        Folder of the store; the first run creates it. Required by the jobs update and stream.
    """

    path: str | None = None

    def __post_init__(self) -> None:
        check_texts("store", self, "path")


@dataclass(frozen=True)
class UpdateSettings:
    """[update]: how the job update follows changes of the input since the last run.

    Parameters
    ----------
    key_col : str, optional
        Column that divides the input into keys, such as the day of a row. All rows of a key are read again if one of
        them changes. Without it the keys of `input.path` are its partition folders (`date=2026-01-01`) or, if it has
        none, its files.
    version_col : str, optional
        Column whose values change when rows of a key change, such as the time of loading. Needs `key_col`. Without it
        a hash of all columns is compared; for files it is their names, sizes and times.
    label : {"new", "all", "none"}
        Rows to label: those of new and changed keys, all, or none.
    vanished : {"expire", "keep"}
        What to do with a key that is no longer in the input: remove it and its labels, or keep both.
    window : int, optional
        Number of newest keys to use; older ones are removed from the store and keep their labels.
    half_life : float, optional
        A key that is this many keys older than the newest has half its weight.
    until : str, optional
        The run is as of this key, such as the date that a scheduler gives: later keys are left as they are.
    keys : str or list of str
        The run is about these keys only, such as "2026-01-01..2026-01-31"; all others are left as they are.
    """

    key_col: str | None = None
    version_col: str | None = None
    label: str = "new"
    vanished: str = "expire"
    window: int | None = None
    half_life: float | None = None
    until: str | None = None
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_texts("update", self, "key_col", "version_col")
        set_field(self, "keys", key_texts("update.keys", self.keys))
        if self.until is not None:
            until = key_texts("update.until", self.until)
            if len(until) != 1 or ".." in until[0]:
                raise SettingError(f"`update.until` must be one key, such as 2026-01-31; got {self.until!r}.")
            set_field(self, "until", until[0])
        if self.version_col is not None and self.key_col is None:
            raise SettingError("`update.version_col` needs `update.key_col`: set that too, or leave both out.")
        if self.version_col is not None and self.version_col == self.key_col:
            raise SettingError(f"`update.version_col` must not be `update.key_col`; got {self.key_col!r} for both.")
        check_choice("update.label", self.label, ("new", "all", "none"))
        check_choice("update.vanished", self.vanished, ("expire", "keep"))
        if self.window is not None:
            check_count("update.window", self.window)
        if self.half_life is not None:
            set_field(self, "half_life", check_positive("update.half_life", self.half_life))

    @property
    def scope(self) -> KeyScope:
        """The keys that a run may change."""
        return KeyScope(self.until, self.keys)


@dataclass(frozen=True)
class StreamSettings:
    """[stream]: how the job stream follows a stream of micro-batches.

    Parameters
    ----------
    checkpoint : str, optional
        Checkpoint folder of Spark's streaming query. Required by the job stream; one checkpoint belongs to one store.
    trigger : str
        "available-now": process what is there, then end. Or the time between micro-batches, such as "10 seconds": run
        until stopped.
    refit_batches : int
        Fit again after this many micro-batches ...
    refit_minutes : float, optional
        ... or after this many minutes, whichever comes first.
    fan_in : int
        This many micro-batches are merged into one key of the store, this many of those keys into one of the next
        level, and so on, which keeps the number of keys small in a long stream.
    batch_col : str
        Name of the output's partition column, which holds the number of the micro-batch.
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
        check_count("stream.fan_in", self.fan_in, 2, "At least two keys are merged into one.")
