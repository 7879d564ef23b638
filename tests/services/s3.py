"""A real S3 server for tests: versitygw if it is installed, else moto with one request at a time.

moto checks If-None-Match and then writes in two steps, so its own threads could let two puts pass.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "bucket"
_KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing12", "AWS_REGION": "us-east-1"}
_MOTO = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
"""


class Server:
    """A server with one empty bucket."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.endpoint = f"http://127.0.0.1:{port}"
        self.query = f"?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"
        self.environment = {
            **_KEYS,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def uri(self, path: str, scheme: str = "s3") -> str:
        """Return the address of a path in the bucket."""
        return f"{scheme}://{BUCKET}/{path}{self.query}"


@contextmanager
def s3_server(folder: Path) -> Iterator[Server]:
    """Start a server with one bucket, for the keys of `Server.environment`, which this process gets too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gateway = shutil.which("versitygw") or shutil.which("versitygw", path=str(Path.home() / "go" / "bin"))
    server = Server("versitygw" if gateway else "moto", port)
    (folder / "root").mkdir(parents=True)
    (folder / "sidecar").mkdir()
    command = [sys.executable, "-c", _MOTO, str(port)]
    if gateway:
        keys = ["--access", _KEYS["AWS_ACCESS_KEY_ID"], "--secret", _KEYS["AWS_SECRET_ACCESS_KEY"]]
        place = ["--port", f"127.0.0.1:{port}", "--region", "us-east-1", "posix"]
        command = [gateway, *keys, *place, "--sidecar", str(folder / "sidecar"), str(folder / "root")]
    before = dict(os.environ)
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for(port, process, folder / "server.log")
            os.environ.update(server.environment)
            _make_bucket(server)
            yield server
        finally:
            os.environ.clear()
            os.environ.update(before)
            process.terminate()
            process.wait(timeout=30)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"The S3 server did not start: {log.read_text()[-2000:]}")


def _make_bucket(server: Server) -> None:
    from pyarrow import fs

    keys = {"access_key": _KEYS["AWS_ACCESS_KEY_ID"], "secret_key": _KEYS["AWS_SECRET_ACCESS_KEY"]}
    system = fs.S3FileSystem(**keys, region="us-east-1", endpoint_override=server.endpoint, allow_bucket_creation=True)
    system.create_dir(BUCKET)
