"""The servers, each started once."""

import pytest

from tests.services.s3 import s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """An S3 server with one bucket."""
    with s3_server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server
