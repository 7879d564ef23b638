"""Creation of a file in an object store: by a conditional put, which the server refuses if the name is taken.

pyarrow has no such request, so it goes through obstore, with the keys and the endpoint of the pyarrow file system.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import uuid
from typing import Any

from pyarrow import fs

from kernelcoreset.errors import SettingError

TYPES = ("s3", "gcs", "abfs")
"""The pyarrow file systems, by `type_name`, that have this."""


class ConditionalPut:
    """Creates files in a bucket. The server is tried once: one that ignores the condition is refused.

    Parameters
    ----------
    system : pyarrow.fs.FileSystem
        One of `TYPES`.
    folder : str
        Bucket and folder, as pyarrow writes them.
    """

    def __init__(self, system: fs.FileSystem, folder: str) -> None:
        try:
            self._obstore: Any = importlib.import_module("obstore")
        except ImportError:
            raise ImportError(
                f"Commits to the object store of {folder} need obstore. Install it: pip install 'kernelcoreset[cloud]'"
            ) from None
        self._store = _open(system, folder.partition("/")[0])
        self._try_server(folder)

    def create(self, path: str, content: bytes) -> bool:
        """Write a new file; return False, and write nothing, if the name is taken by other content."""
        key = path.partition("/")[2]
        try:
            self._obstore.put(self._store, key, content, mode="create")
        except self._obstore.exceptions.AlreadyExistsError:
            # A request that is sent again after a lost answer meets its own file.
            try:
                return bytes(self._obstore.get(self._store, key).bytes()) == content
            except FileNotFoundError:
                return False
        return True

    def _try_server(self, folder: str) -> None:
        probe = f"{folder}/.probe.{uuid.uuid4().hex}.tmp"
        try:
            if self.create(probe, b"1") and not self.create(probe, b"2"):
                return
        finally:
            self._obstore.delete(self._store, probe.partition("/")[2])
        raise SettingError(
            f"The object store of {folder} ignores the condition of a put (If-None-Match): two writers would overwrite "
            "each other. Keep the store on another server or on a disk."
        )


def _open(system: fs.FileSystem, bucket: str) -> Any:
    """Return the bucket as obstore opens it, with the options of the pyarrow file system."""
    stores: Any = importlib.import_module("obstore.store")
    # What a file system is pickled with is what it was made with.
    options = system.__reduce__()[1][0]
    if system.type_name == "s3":
        return stores.S3Store(bucket, **_s3_options(options))
    if system.type_name == "gcs":
        return stores.GCSStore(bucket, **_gcs_options(options))
    return stores.AzureStore(bucket, **_azure_options(options))


def _s3_options(options: dict[str, Any]) -> dict[str, Any]:
    if options["role_arn"]:
        raise SettingError(
            f"Commits to S3 cannot assume a role (role_arn = {options['role_arn']!r}). Give the keys of the role by "
            "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) or of the machine."
        )
    endpoint = f"{options['scheme']}://{options['endpoint_override']}" if options["endpoint_override"] else None
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    found: dict[str, Any] = {
        "region": options["region"],
        "endpoint": endpoint,
        "access_key_id": options["access_key"],
        "secret_access_key": options["secret_key"],
        "session_token": options["session_token"],
        "skip_signature": options["anonymous"] or None,
        "virtual_hosted_style_request": options["force_virtual_addressing"] or None,
    }
    if found["access_key_id"] is None and not options["anonymous"] and _has_profile():
        found["credential_provider"] = importlib.import_module("obstore.auth.boto3").Boto3CredentialProvider()
    return {**_given(found), **_client(endpoint)}


def _has_profile() -> bool:
    """Whether the keys of AWS are in a file, which boto3 can read and obstore cannot."""
    if "AWS_ACCESS_KEY_ID" in os.environ or importlib.util.find_spec("boto3") is None:
        return False
    named = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", os.path.expanduser("~/.aws/credentials"))
    return "AWS_PROFILE" in os.environ or os.path.exists(named)


def _gcs_options(options: dict[str, Any]) -> dict[str, Any]:
    endpoint = f"{options['scheme']}://{options['endpoint_override']}" if options["endpoint_override"] else None
    found = {
        "base_url": endpoint,
        "bearer_token": options["access_token"],
        "skip_signature": options["anonymous"] or None,
    }
    return {**_given(found), **_client(endpoint)}


def _azure_options(options: dict[str, Any]) -> dict[str, Any]:
    account, authority = options["account_name"], options["blob_storage_authority"]
    endpoint = None
    if authority != ".blob.core.windows.net":
        host = f"{account}{authority}" if authority.startswith(".") else f"{authority}/{account}"
        endpoint = f"{options['blob_storage_scheme']}://{host}"
    found = {
        "account_name": account,
        "endpoint": endpoint,
        "account_key": options["account_key"],
        "sas_key": options["sas_token"],
        "client_id": options["client_id"],
        "client_secret": options["client_secret"],
        "tenant_id": options["tenant_id"],
    }
    return {**_given(found), **_client(endpoint)}


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value not in (None, "")}


def _client(endpoint: str | None) -> dict[str, Any]:
    return {"client_options": {"allow_http": True}} if (endpoint or "").startswith("http:") else {}
