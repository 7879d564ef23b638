"""A real browser without a window, installed once by apt if it is missing. What cannot be had is an error."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage")
DARK = "--blink-settings=preferredColorScheme=0"


class Browser:
    """Chromium, a new process and profile for every page."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._program = _found() or _installed()

    def _call(self, page: Path, *options: str) -> str:
        profile = f"--user-data-dir={self._home / 'profile'}"
        command = [self._program, *_OPTIONS, profile, *options, page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout

    def screenshot(self, page: Path, picture: Path, *options: str, width: int = 1120, height: int = 1600) -> Path:
        """Write what a reader sees of a page as a PNG."""
        self._call(page, f"--window-size={width},{height}", f"--screenshot={picture}", *options)
        return picture

    def pdf(self, page: Path, document: Path) -> Path:
        """Print a page."""
        self._call(page, f"--print-to-pdf={document}", "--no-pdf-header-footer")
        return document

    def content(self, page: Path, *options: str) -> str:
        """Return the document as the browser has it, after all scripts."""
        return self._call(page, "--dump-dom", *options)


def _found() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


def _installed() -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], env=environment, capture_output=True, check=False)
    done = subprocess.run(
        ["apt-get", "install", "-y", "-q", "chromium"], env=environment, capture_output=True, text=True, check=False
    )
    path = _found()
    if path is None:
        raise RuntimeError(f"apt cannot install chromium:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    return path
