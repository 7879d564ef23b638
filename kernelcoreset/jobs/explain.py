"""From an error to the exit code of a job and one line for its user."""

from __future__ import annotations

import re

from kernelcoreset.errors import DataError, FormatError, KernelCoresetError, KernelError, SettingError

DONE, FAILED, BAD_SETTINGS, BAD_DATA, BAD_ENVIRONMENT = 0, 1, 2, 3, 4

_FROM_EXECUTOR = re.compile(r"kernelcoreset\.errors\.(\w+): (.+)")
_NOT_ON_EXECUTOR = re.compile(r"(?:ModuleNotFound|Import)Error: No module named '(\w+)")
_FROM_PYTHON_WORKER = re.compile(r"thrown from the Python worker.*^(\w[\w.]*: .+)", re.DOTALL | re.MULTILINE)
_UNREADABLE = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] (.+)")
_EXTRAS = {"matplotlib": "plots", "sklearn": "scikit-learn"}


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error, and one line that says what is wrong and what to do.

    Examples
    --------
    >>> explain(SettingError("`coreset.k` must be at least 1; got 0."))
    (2, 'Bad settings: `coreset.k` must be at least 1; got 0.')
    """
    if isinstance(error, KeyboardInterrupt):
        return FAILED, "Interrupted."
    text = str(error).strip() or type(error).__name__
    if isinstance(error, KernelCoresetError):
        return _explain_package_error(type(error).__name__, text)
    if isinstance(error, ImportError):
        missing = (error.name or text).partition(".")[0]
        wanted = f"Environment: {missing} cannot be imported ({text}). Install it with pip install 'kernelcoreset"
        if missing in _EXTRAS:
            return BAD_ENVIRONMENT, f"{wanted}[{_EXTRAS[missing]}]'."
        return BAD_ENVIRONMENT, f"{wanted}[spark]', or use ./spark-submit.sh, which installs it."
    if isinstance(error, FileExistsError):
        return BAD_SETTINGS, f"Bad settings: {text}"
    if isinstance(error, FileNotFoundError):
        return BAD_DATA, f"Bad data: {text}"
    return _explain_spark(text) or (FAILED, f"Failed: {type(error).__name__}: {text.splitlines()[0]}")


def _explain_spark(text: str) -> tuple[int, str] | None:
    """Return the same for a known error that Spark reports as text, else None."""
    from_executor = _FROM_EXECUTOR.search(text)
    if from_executor:
        return _explain_package_error(from_executor[1], from_executor[2])
    absent = _NOT_ON_EXECUTOR.search(text)
    if absent:
        return BAD_ENVIRONMENT, (
            f"Environment: the Python of the executors has no module {absent[1]!r}. Set PYSPARK_PYTHON to one that "
            "has it, or submit with ./spark-submit.sh --ship-environment."
        )
    if "JAVA_GATEWAY_EXITED" in text or "JAVA_HOME is not set" in text:
        return BAD_ENVIRONMENT, (
            "Environment: Spark could not start Java. Install Java 17 or 21 and set JAVA_HOME, "
            "or use ./spark-submit.sh, which installs one."
        )
    unreadable = _UNREADABLE.search(text)
    if unreadable:
        return BAD_DATA, f"Bad data: {unreadable[1]}"
    worker = _FROM_PYTHON_WORKER.search(text)
    if worker:  # the last line of its traceback says what went wrong
        return FAILED, f"Failed on an executor: {worker[1].splitlines()[0]}"
    return None


def _explain_package_error(kind: str, text: str) -> tuple[int, str]:
    if kind == SettingError.__name__:
        return BAD_SETTINGS, f"Bad settings: {text}"
    if kind in (DataError.__name__, KernelError.__name__, FormatError.__name__):
        return BAD_DATA, f"Bad data: {text}"
    return FAILED, f"Failed: {text}"
