"""What of a job's settings may be shown: in the run record, in logs and on the terminal.

A secret can have any name, so options are shown only if they are known to be harmless. In all other texts the values of
hidden options, user names and query strings in URLs, and `password=...` are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelcoreset.jobs.settings.settings import Settings

HIDDEN = "(hidden)"

_OPTIONS = [("input", "options"), ("output", "options"), ("spark", "conf")]

# Options of Spark's readers and writers, in lower case.
_READERS_AND_WRITERS = """
    allowbackslashescapinganycharacter allowcomments allownonnumericnumbers allownumericleadingzeros
    allowsinglequotes allowunquotedcontrolchars allowunquotedfieldnames attributeprefix basepath batchsize
    charset chartoescapequoteescaping cleansource columnnameofcorruptrecord comment compression
    dateformat datetimerebasemode delimiter delta.autooptimize.optimizewrite delta.enablechangedatafeed emptyvalue
    encoding endingoffsets endingtimestamp endingversion enforceschema escape escapequotes excludeattribute
    failondataloss fetchsize header ignorechanges ignorecorruptfiles ignoredeletes ignoreleadingwhitespace
    ignoremissingfiles ignorenamespace ignorenullfields ignoresurroundingspaces ignoretrailingwhitespace includeheaders
    inferschema int96rebasemode kafka.bootstrap.servers kafka.security.protocol kafka.sasl.mechanism latestfirst linesep
    locale lowerbound maxbytespertrigger maxcharspercolumn maxcolumns maxfileage maxfilespertrigger
    maxoffsetspertrigger maxrecordsperfile mergeschema minoffsetspertrigger minpartitions mode modifiedafter
    modifiedbefore multiline nanvalue negativeinf nullvalue numpartitions optimizewrite overwriteschema
    partitioncolumn partitionoverwritemode pathglobfilter positiveinf preferdecimal primitivesasstring quote quoteall
    quotemode rampuptime readchangefeed recursivefilelookup replacewhere roottag rowspersecond rowtag
    samplingratio sep startingoffsets startingoffsetsbytimestamp startingtimestamp startingversion subscribe
    subscribepattern timestampasof timestampformat timestampntzformat timezone
    truncate unescapedquotehandling upperbound valuetag versionasof wholetext wildcardcolname
"""
_HARMLESS = frozenset(_READERS_AND_WRITERS.split())
# Settings of Spark, as beginnings of their names.
_HARMLESS_CONF = (
    "spark.app.name",
    "spark.cleaner.",
    "spark.default.parallelism",
    "spark.dynamicAllocation.",
    "spark.eventLog.enabled",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.locality.",
    "spark.log.level",
    "spark.memory.",
    "spark.network.timeout",
    "spark.python.worker.",
    "spark.rdd.",
    "spark.scheduler.",
    "spark.serializer",
    "spark.shuffle.",
    "spark.speculation",
    "spark.sql.adaptive.",
    "spark.sql.ansi.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.caseSensitive",
    "spark.sql.execution.",
    "spark.sql.files.",
    "spark.sql.legacy.",
    "spark.sql.orc.",
    "spark.sql.parquet.",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.",
    "spark.sql.sources.",
    "spark.sql.streaming.",
    "spark.stage.",
    "spark.task.",
    "spark.ui.enabled",
    "spark.ui.port",
    "spark.ui.showConsoleProgress",
)

_USER = re.compile(r"\b(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/@\s?'\"]+)@")
# The part before @ is a container there, unless it has a password.
_CONTAINERS = ("abfs://", "abfss://", "wasb://", "wasbs://")
_QUERY = re.compile(r"\b(?P<url>[A-Za-z][A-Za-z0-9+.-]*:/[^\s?'\"]*)\?(?P<query>[^\s'\"]*=[^\s'\"]*)")
_NAMED = re.compile(
    r"(?P<name>[\w.-]*(?:passw|passphrase|pwd|secret|token|credential|api.?key|access.?key|account.?key|signature)[\w.-]*"
    r"\s*=\s*)(?P<value>\"[^\"]*\"|'[^']*'|[^\s&;,\"']+)",
    re.IGNORECASE,
)
_LEAST_LENGTH = 4  # shorter values stand in many texts by chance


@dataclass(frozen=True)
class Secrets:
    """The values that no text of a job may show.

    Parameters
    ----------
    values : tuple of str
        Longest first.

    Examples
    --------
    >>> Secrets(("hunter2",)).hide("cannot log in with hunter2 at https://me:pw@host/x?sig=abc")
    'cannot log in with (hidden) at https://(hidden)@host/x?(hidden)'
    """

    values: tuple[str, ...] = ()

    @staticmethod
    def of(settings: Settings) -> Secrets:
        """Return the values of all options that are not known to be harmless."""
        found: set[str] = set()
        for section, key in _OPTIONS:
            if settings.has(section):
                options = getattr(settings.sections[section], key)
                found.update(text for name, text in options.items() if not _is_harmless(name))
        return Secrets(_longest_first(text for text in found if len(text) >= _LEAST_LENGTH))

    def hide(self, text: str) -> str:
        """Return a text without secrets."""
        for value in self.values:
            text = text.replace(value, HIDDEN)
        text = _USER.sub(_hide_user, text)
        text = _QUERY.sub(rf"\g<url>?{HIDDEN}", text)
        return _NAMED.sub(rf"\g<name>{HIDDEN}", text)

    def hide_all(self, value: Any) -> Any:
        """Return plain data with all its texts hidden like that."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {name: self.hide_all(part) for name, part in value.items()}
        return [self.hide_all(part) for part in value] if isinstance(value, list) else value


def shown_settings(settings: Settings) -> dict[str, Any]:
    """Return all settings as plain data for the run record: options that may be secrets are hidden, and URLs shortened.

    Examples
    --------
    >>> tables = {"input": {"demo_rows": 9, "options": {"header": True, "pwd": "x"}}, "kernel": {"name": "Linear"}}
    >>> shown_settings(Settings.from_dict({**tables, "coreset": {"k": 2}}))["input"]["options"]
    {'header': 'true', 'pwd': '(hidden)'}
    """
    plain = settings.to_dict()
    for section, key in _OPTIONS:
        if section in plain:
            options = plain[section][key]
            plain[section][key] = {name: text if _is_harmless(name) else HIDDEN for name, text in options.items()}
    return dict(Secrets().hide_all(plain))


def _is_harmless(name: str) -> bool:
    return name.lower() in _HARMLESS or name.startswith(_HARMLESS_CONF)


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=lambda text: (-len(text), text)))


def _hide_user(match: re.Match[str]) -> str:
    if match["scheme"].lower() in _CONTAINERS and ":" not in match["user"]:
        return match[0]
    return f"{match['scheme']}{HIDDEN}@"
