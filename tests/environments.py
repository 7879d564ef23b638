"""Virtual environments that have all the packages of the one the tests run in, but not this project."""

import sysconfig
import venv
from pathlib import Path


def make_environment(folder: Path) -> Path:
    """Return the Python of a new virtual environment with nothing in it, not even pip."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    return folder / "bin" / "python"


def lend_packages(folder: Path) -> None:
    """Let an environment import this one's packages.

    Python follows the .pth files of an environment's own folder only, so this one's editable install stays unseen.
    """
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
