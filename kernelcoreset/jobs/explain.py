"""From an error to the exit code of a job and one line for its user.

Errors of this package say themselves what is wrong. Those of the operating system, of Java and of Spark are known by
their text, because it is the same from Python, through py4j, from an executor and through Spark Connect: first by
`_KNOWN`, a table of phrases, then by the SQLSTATE that ends the messages of Spark.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from kernelcoreset.errors import (
    ConflictError,
    DataError,
    FormatError,
    KernelCoresetError,
    KernelError,
    SettingError,
)

DONE, FAILED, BAD_SETTINGS, BAD_DATA, BAD_ENVIRONMENT, CONFLICT = range(6)

_BEGINNINGS = {
    FAILED: "Failed",
    BAD_SETTINGS: "Bad settings",
    BAD_DATA: "Bad data",
    BAD_ENVIRONMENT: "Environment",
    CONFLICT: "Conflict",
}
_PACKAGE_ERRORS: dict[str, int] = {
    SettingError.__name__: BAD_SETTINGS,
    DataError.__name__: BAD_DATA,
    KernelError.__name__: BAD_DATA,
    FormatError.__name__: BAD_DATA,
    ConflictError.__name__: CONFLICT,
}
_EXTRAS = {"matplotlib": "plots", "sklearn": "scikit-learn", "obstore": "cloud", "mlflow": "mlflow"}
_PACKAGES = "Add it with --packages, or install it on the cluster."
_LONGEST = 400

# Phrases of known errors, in the order in which they are looked for: what says more comes first. {line} is the line
# that has the phrase, {1} its first group.
_KNOWN: tuple[tuple[re.Pattern[str], int, str], ...] = tuple(
    (re.compile(phrase), code, message)
    for phrase, code, message in (
        (r"MLflow cannot be used", BAD_ENVIRONMENT, "{line}."),
        (
            r"(?:ModuleNotFound|Import)Error: No module named '(\w+)",
            BAD_ENVIRONMENT,
            "the Python of the executors has no module '{1}'. Set PYSPARK_PYTHON to one that has it, or submit with "
            "./spark-submit.sh --ship-environment.",
        ),
        (
            r"JAVA_GATEWAY_EXITED|JAVA_HOME is not set",
            BAD_ENVIRONMENT,
            "Spark could not start Java. Install Java 17 or 21 and set JAVA_HOME, or use ./spark-submit.sh, which "
            "installs one. If there is one, a setting of the JVM is wrong, such as spark.driver.memory.",
        ),
        (
            r"No space left on device|Disk quota exceeded|DiskOutOfSpaceException|File too large",
            BAD_ENVIRONMENT,
            "a disk is full: {line}. Free space there (the output, the run record, spark.local.dir, /tmp), or choose "
            "another path.",
        ),
        (
            r"Read-only file system|Permission denied|AccessControlException|AccessDenied|Access Denied|"
            r"Operation not permitted|Forbidden|Mkdirs failed to create",
            BAD_ENVIRONMENT,
            "no access: {line}. Give the user of the job the right to read or write there, or choose another path.",
        ),
        (
            r"Too many open files|Input/output error|Stale file handle|Transport endpoint is not connected",
            BAD_ENVIRONMENT,
            "this machine cannot read or write any more: {line}.",
        ),
        (
            r"spark\.driver\.maxResultSize",
            BAD_SETTINGS,
            "{line}. Raise it with --conf spark.driver.maxResultSize=4g.",
        ),
        (
            r"OutOfMemoryError|MemoryError|Cannot allocate memory|UNABLE_TO_ACQUIRE_MEMORY|exceeding memory limits|"
            r"exceeding physical memory|OOMKilled|exit code 137|exited with code 137",
            BAD_ENVIRONMENT,
            "memory ran out: {line}. Raise spark.driver.memory, spark.executor.memory or "
            "spark.executor.memoryOverhead, or use fewer cores per executor.",
        ),
        (
            r"Python worker failed to connect back",
            BAD_ENVIRONMENT,
            "a Python worker did not start in time: the machine is too busy, or has no memory left. Run it again, or "
            "use fewer cores per executor.",
        ),
        (
            r"Python worker exited unexpectedly|Could not recover from a failed",
            BAD_ENVIRONMENT,
            "a Python worker on an executor was killed, most often because memory ran out. Raise "
            "spark.executor.memoryOverhead, or use fewer cores per executor.",
        ),
        (
            r"ExecutorLostFailure|Executor heartbeat timed out|SparkContext was shut down|stopped SparkContext|"
            r"Answer from Java side is empty|Error while sending or receiving|Error while obtaining a new connection|"
            r"error occurred while trying to connect to the Java server|StatusCode\.UNAVAILABLE|"
            r"\AAn error occurred while calling [\w.$]+\Z",  # Java did not say which: it is gone
            BAD_ENVIRONMENT,
            "Spark stopped in the middle of the job: {line}. Its own log says why; most often memory ran out.",
        ),
        (
            r"No FileSystem for scheme \"?([\w.+-]*)|Unrecognized filesystem type in URI: ([\w.+-]*)",
            BAD_SETTINGS,
            "{line}. Correct the path, or add the package of that file system with --packages.",
        ),
        (
            r"Class org\.apache\.hadoop\.fs\.s3a\S* not found",
            BAD_ENVIRONMENT,
            "Spark has no file system for s3a. Add it with --packages org.apache.hadoop:hadoop-aws:VERSION, the "
            "version of Spark's Hadoop.",
        ),
        (
            r"Failed to find (?:the )?data source: (kafka|avro|delta|iceberg|hudi|protobuf|bigquery|mongodb)\b",
            BAD_ENVIRONMENT,
            f"Spark has no package for the format '{{1}}'. {_PACKAGES}",
        ),
        (
            r"Failed to find (?:the )?data source: ([^\s.]+)",
            BAD_SETTINGS,
            f"Spark has no format '{{1}}'. Correct the name, or install its package. {_PACKAGES}",
        ),
        (
            r"Class (\S+) not found|ClassNotFoundException: (\S+)|NoClassDefFoundError: (\S+)",
            BAD_ENVIRONMENT,
            f"a Java package is missing: {{line}}. {_PACKAGES}",
        ),
        (
            r"DELTA_METADATA_MISMATCH|DELTA_FAILED_TO_MERGE_FIELDS",
            BAD_SETTINGS,
            "the Delta table has other columns than the new rows. Let it take new columns "
            "(--set output.options.mergeSchema=true), let a run with output.mode=overwrite change them all "
            "(--set output.options.overwriteSchema=true), or select the old ones with output.columns.",
        ),
        (
            r"DELTA_CONCURRENT|Concurrent(?:Append|Transaction|DeleteRead|DeleteDelete|Write)Exception|"
            r"(?:MetadataChanged|ProtocolChanged)Exception",
            CONFLICT,
            "another job changed the same Delta table: {line}. Run it again.",
        ),
        (
            r"UnknownHostException|NoRouteToHost|ConnectException|Connection refused|SocketTimeoutException|"
            r"Could not resolve host|Temporary failure in name resolution|COULD_NOT_CONNECT",
            BAD_ENVIRONMENT,
            "a server cannot be reached: {line}. Check the address and the network.",
        ),
        (
            r"Illegal file pattern|PatternSyntaxException|URISyntaxException|Incomplete HDFS URI|"
            r"Can not create a Path|Invalid host name|embedded null byte|File name too long|Pathname .+ is not a valid",
            BAD_SETTINGS,
            "a path cannot be used: {line}. Correct it; the characters * ? [ ] {{ }} are a pattern.",
        ),
    )
)
# What the class of a SQLSTATE (its first two characters) means for a job.
_STATES = {
    "08": BAD_ENVIRONMENT,  # connection
    "0A": BAD_SETTINGS,  # feature that Spark does not have
    "21": BAD_DATA,  # too many rows where one was wanted
    "22": BAD_DATA,  # a value that cannot be used, such as a division by zero
    "23": BAD_DATA,  # a constraint of a table
    "42": BAD_SETTINGS,  # syntax, unknown names, other types
    "46": BAD_SETTINGS,  # unknown class
    "53": BAD_ENVIRONMENT,  # resources
    "54": BAD_SETTINGS,  # limits of Spark
    "56": BAD_SETTINGS,  # unknown configuration
    "58": BAD_ENVIRONMENT,  # files that cannot be written
    "KD": BAD_DATA,  # files that cannot be read
}
_ALSO_DATA = ("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "FAILED_READ_FILE")
_ALSO_SETTINGS = ("ALL_PARTITION_COLUMNS_NOT_ALLOWED", "INVALID_CONF_VALUE")
_FROM_EXECUTOR = re.compile(r"kernelcoreset\.errors\.(\w+): (.+)")
_FROM_PYTHON_WORKER = re.compile(r"thrown from the Python worker.*?^(\w[\w.]*: .+)", re.DOTALL | re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] (.+?)\s*(?:SQLSTATE: .*)?$", re.MULTILINE)
_STATE = re.compile(r"SQLSTATE: (\w{2})\w{3}")
_STACK = re.compile(r"(?m)^(?:\s*at \S+\(.*|\s*\.\.\. \d+ more| {2,}.*)\n?")  # of Java and of Python
_SOURCE = re.compile(
    r"^(?:Caused by: |Suppressed: |: |.* Lost task [^:]*: |\[[Ee]rrno \d+\] )"
    r"|^(?:[\w$]+\.)+[\w$]*(?:Exception|Error)(?:: |$)"
)


def explain(error: BaseException) -> tuple[int, str]:
    """Return the exit code of an error, and one line that says what is wrong and what to do.

    Examples
    --------
    >>> explain(SettingError("`coreset.k` must be at least 1; got 0."))
    (2, 'Bad settings: `coreset.k` must be at least 1; got 0.')
    """
    if isinstance(error, KeyboardInterrupt):
        return CONFLICT, f"Interrupted{f' by {error}' if str(error) else ''}. Run it again."
    text = text_of(error)
    if isinstance(error, KernelCoresetError):
        return _said(_PACKAGE_ERRORS.get(type(error).__name__, FAILED), text)
    if isinstance(error, ImportError):
        return _said(BAD_ENVIRONMENT, _explain_import(error, text))
    if isinstance(error, MemoryError):
        text = f"MemoryError: {text}"
    known = explain_text(text)
    if known is not None:
        return known
    if isinstance(error, FileNotFoundError):
        return _said(BAD_DATA, text)
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
        return _said(BAD_SETTINGS, f"{text}. Choose another path.")
    return _said(FAILED, f"{type(error).__name__}: {text.splitlines()[0]}")


def text_of(error: BaseException) -> str:
    """Return the text of an error, its class if it has none. Errors of Java are asked for theirs, and Java may be gone.

    Examples
    --------
    >>> text_of(ValueError("k")), text_of(ValueError())
    ('k', 'ValueError')
    """
    try:
        text = str(error).strip() or type(error).__name__
    except Exception as lost:
        return f"Answer from Java side is empty, asked for a {type(error).__name__} ({lost})"
    frames = traceback.walk_tb(error.__traceback__) if isinstance(error, ConnectionError) else ()
    if any("py4j" in Path(frame.f_code.co_filename).parts for frame, _ in frames):
        return f"Answer from Java side is empty ({text})"
    return text


def explain_text(text: str) -> tuple[int, str] | None:
    """Return the same for the text of an error of the operating system, of Java or of Spark; None if it is unknown."""
    text = _STACK.sub("", text)
    from_executor = _FROM_EXECUTOR.search(text)
    if from_executor:
        return _said(_PACKAGE_ERRORS.get(from_executor[1], FAILED), from_executor[2])
    for phrase, code, message in _KNOWN:
        found = phrase.search(text)
        if found:
            first = next((group for group in found.groups() if group), "")
            return _said(code, message.format(found[0], first, line=_line_at(text, found.start())))
    for found in _CONDITION.finditer(text):
        condition, line = found.groups()
        state = _STATE.search(text, found.start())
        if condition.startswith(_ALSO_DATA):
            return _said(BAD_DATA, line)
        if condition.startswith(_ALSO_SETTINGS):
            return _said(BAD_SETTINGS, line)
        if state is not None and state[1] in _STATES:
            return _said(_STATES[state[1]], line)
    worker = _FROM_PYTHON_WORKER.search(text)
    if worker:  # the last line of its traceback says what went wrong
        return FAILED, f"Failed on an executor: {worker[1].splitlines()[0]}"
    return None


def _explain_import(error: ImportError, text: str) -> str:
    missing = (error.name or text).partition(".")[0]
    wanted = f"{missing} cannot be imported ({text}). Install it with pip install 'kernelcoreset"
    if missing in _EXTRAS:
        return f"{wanted}[{_EXTRAS[missing]}]'."
    return f"{wanted}[spark]', or use ./spark-submit.sh, which installs it."


def _said(code: int, text: str) -> tuple[int, str]:
    text = " ".join(text.split())  # one line
    return code, f"{_BEGINNINGS[code]}: {text if len(text) <= _LONGEST else text[:_LONGEST] + ' ...'}"


def _line_at(text: str, place: int) -> str:
    """The line around a place, without the classes of exceptions that begin it."""
    end = text.find("\n", place)
    line = text[text.rfind("\n", 0, place) + 1 : len(text) if end < 0 else end].strip()
    while _SOURCE.match(line):
        shorter = _SOURCE.sub("", line, count=1).strip()
        if not shorter:
            break
        line = shorter
    return line.rstrip(".")
