"""The servers, each started once, and the table of what was run on which platform."""

from collections import Counter
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pyspark
import pytest

from tests.services.s3 import s3_server
from tests.services.tracking import tracking_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """An S3 server with one bucket."""
    with s3_server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def tracking(tmp_path_factory):
    """The address of a tracking server of MLflow."""
    with tracking_server(tmp_path_factory.mktemp("mlflow") / "server") as address:
        yield address


# --- docs/platforms.md -----------------------------------------------------------------------------------------------

_PAGE = Path(__file__).parents[2] / "docs" / "platforms.md"
_START, _END = "<!-- rows of the tests -->\n", "<!-- end of the rows -->\n"


def pytest_addoption(parser):
    parser.addoption("--platforms", action="store_true", help="write what was run to docs/platforms.md")


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome == "failed":
        _outcomes.setdefault(Path(report.fspath).name, Counter())[report.outcome] += 1


_outcomes: dict[str, Counter[str]] = {}


def pytest_sessionfinish(session):
    """Replace the rows of the files that were run. Of several processes only the one that hands out files knows all."""
    if not session.config.getoption("--platforms") or hasattr(session.config, "workerinput"):
        return
    before, _, rest = _PAGE.read_text().partition(_START)
    rows, _, after = rest.partition(_END)
    kept = {line.rsplit("`", 2)[1]: line for line in rows.splitlines() if line.endswith("` |")}
    for file, outcomes in _outcomes.items():
        name, what = import_module(f"{__package__}.{Path(file).stem}").PLATFORM
        tally = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        day = datetime.now(UTC).date()
        kept[file] = f"| {name} | {pyspark.__version__} | {what} | {tally} | {day} | `{file}` |"
    lines = "".join(line + "\n" for _, line in sorted(kept.items()))
    heads = "| platform | pyspark | what was run | tests | on | file |\n| --- | --- | --- | --- | --- | --- |\n"
    _PAGE.write_text(f"{before}{_START}{heads}{lines}{_END}{after}")
