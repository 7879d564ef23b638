"""Jobs run from their command line, in this process, on the session of the tests; HERE is the working directory."""

import json
import os
from pathlib import Path


def write_config(text):
    """Write the settings of a job; paths must be absolute, for Java keeps the directory it was started in."""
    Path("job.toml").write_text(text.replace("HERE", os.getcwd()))


def run(main, *overrides):
    """Return the exit code of a job with these settings changed."""
    overrides = [text.replace("HERE", os.getcwd()) for text in overrides]
    return main(["--config", "job.toml", *(part for text in overrides for part in ("--set", text))])


def record_of(path="out.run.json"):
    """Return what a job wrote about itself."""
    return json.loads(Path(path).read_text())
