"""The report of a run as one HTML file, made from its record alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernelcoreset._version import __version__
from kernelcoreset.reporting.elements import Html, element, join, number
from kernelcoreset.reporting.sections import SECTIONS
from kernelcoreset.reporting.style import css

_HEAD = '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
_GENERATOR = '<meta name="generator" content="kernelcoreset'
# Nothing is loaded and no script runs, also if a browser is told otherwise.
_POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"


def report_page(record: Mapping[str, Any]) -> str:
    """Return the report of a run: a self-contained page in light and dark, for screens and paper, without JavaScript.

    Parameters
    ----------
    record : mapping
        As `kernelcoreset.jobs.record.read_record` returns it.

    Examples
    --------
    >>> page = report_page({"job": "run", "status": "done", "rows": 9, "settings": {}})
    >>> is_report(page.encode())
    True
    """
    title = (
        f"kernelcoreset {record['job']}: {record.get('output') or record.get('model') or record.get('coreset') or ''}"
    )
    body = [_header(record)]
    for name, make in SECTIONS:
        content = make(record)
        if content:
            body.append(element("section", element("h2", name), content, id=name.lower().replace(" ", "-")))
    footer = element("footer", f"Made by kernelcoreset {__version__} from the record of run {record.get('id', '')}.")
    parts = [
        f'{_HEAD}{_GENERATOR} {__version__}">{_POLICY}',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        element("title", title.removesuffix(": ")),
        f"<style>{css()}</style></head><body>",
        element("main", *body, footer),
        "</body></html>\n",
    ]
    return "".join(parts)


def is_report(content: bytes) -> bool:
    """Whether a file is a page that `report_page` made, by its beginning."""
    return content.startswith(f"{_HEAD}{_GENERATOR}".encode())


def _header(record: Mapping[str, Any]) -> Html:
    where = record.get("output") or record.get("model") or record.get("coreset")
    about = [
        f"Job {record['job']}",
        record.get("status"),
        str(record.get("finished", ""))[:16].replace("T", " ") + " UTC",
    ]
    shown = " · ".join(str(part) for part in [*about, where] if part)
    k = len(record.get("cluster_sizes") or (record.get("description") or {}).get("clusters") or ())
    facts = {
        "rows": number(record.get("rows")),
        "coreset points": number(record.get("coreset_points")),
        "clusters": number(k or None),
        # A width that was chosen has many digits; the record has them all.
        "kernel": re.sub(r"\d+\.\d{6,}(e-?\d+)?", lambda found: f"{float(found[0]):.5g}", record.get("kernel") or ""),
        "seconds": f"{record['seconds']:,.1f}" if record.get("seconds") else None,
        "outcome": record.get("outcome"),
    }
    listed = [
        element("li", element("b", text), element("span", name, class_="muted")) for name, text in facts.items() if text
    ]
    return element(
        "header",
        element("h1", _headline(record, k)),
        element("p", shown, class_="muted"),
        element("ul", *listed, class_="facts"),
    )


def _headline(record: Mapping[str, Any], k: int) -> Html:
    rows = record.get("rows")
    if record.get("nodes"):
        return join(f"{record['nodes']:,} nodes in {k} clusters")
    if rows and k:
        new = " new" if record["job"] in ("update", "stream") else ""
        return join(f"{rows:,}{new} rows in {k} clusters")
    return join(f"{rows:,} rows" if rows else f"Run of the job {record['job']}")
