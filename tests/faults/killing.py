"""Ends a job's process, without warning, just before one of its writes; for the tests of this folder.

The writes of a run are the leaves, manifests and model files of the store, and the labels that Spark writes.
"""

import os
import signal
from pathlib import Path

from kernelcoreset.files import atomic
from kernelcoreset.files.folder import Folder
from kernelcoreset.spark.jobs import batch, micro_batch, pending
from kernelcoreset.spark.jobs.micro_batch import MicroBatchHandler


def arm(point, log):
    """Let this process die at a point such as "leaf", "commit 2" or "labels done"; note all points passed in a file."""

    def kind_of_file(folder, name, *_):
        return {"leaves": "leaf", "nodes": None}.get(name.partition("/")[0], name.partition(".")[0])

    wrap = _wrapping(point, log)
    wrap(Folder, "write", kind_of_file)
    wrap(Folder, "create", lambda *_: "commit")
    wrap(pending, "remove_partitions", lambda *_: "removal")
    for module in (pending, micro_batch):
        wrap(module, "write_output", lambda *_: "labels")


def arm_files(point, log):
    """The same for a job that writes single files and folders: a coreset, a model, labels and a record."""
    wrap = _wrapping(point, log)
    wrap(atomic, "write_synced", lambda *_: "file")
    wrap(os, "replace", lambda *_: "replace")
    wrap(Path, "rename", lambda *_: "rename")
    wrap(atomic, "_exchange", lambda *_: "exchange")
    wrap(batch, "write_output", lambda *_: "labels")


def _wrapping(point, log):
    """Return a function that lets the callers of a function pass a point before it and one after it."""
    counts = {}

    def passing(name):
        counts[name] = counts.get(name, 0) + 1
        here = name if counts[name] == 1 else f"{name} {counts[name]}"
        with Path(log).open("a") as file:
            file.write(here + "\n")
        if here == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(owner, attribute, name_of):
        plain = getattr(owner, attribute)

        def wrapped(*arguments, **options):
            name = name_of(*arguments)
            if name:
                passing(name)
            found = plain(*arguments, **options)
            if name:
                passing(f"{name} done")
            return found

        setattr(owner, attribute, wrapped)

    return wrap


class KillingHandler(MicroBatchHandler):
    """A streaming job's function that ends the process it runs in, once, at a point of one micro-batch."""

    def __init__(self, settings, batch, point, log):
        super().__init__(settings)
        self.batch, self.point, self.log = batch, point, log

    def __call__(self, frame, batch):
        """Handle a micro-batch, or die in it."""
        if batch == self.batch:
            arm(self.point, self.log)
        super().__call__(frame, batch)
