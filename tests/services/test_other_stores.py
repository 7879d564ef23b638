"""Google Cloud Storage and Azure: how a pyarrow file system becomes the client that commits. No server is here."""

import datetime

import pytest
from pyarrow import fs

from kernelcoreset.files import conditional
from kernelcoreset.files.paths import open_path

PLATFORM = "Google Cloud Storage, Azure", "how a pyarrow file system becomes the client that commits; no server is here"

KEY = "aGVsbG8="
AZURITE = {"blob_storage_authority": "127.0.0.1:1", "blob_storage_scheme": "http"}
LATER = datetime.datetime(2100, 1, 1)


@pytest.mark.parametrize(("make", "bucket", "config", "is_plain"), [
    (lambda: fs.GcsFileSystem(anonymous=True, endpoint_override="127.0.0.1:9", scheme="http"), "bucket",
     {"bucket": "bucket", "base_url": "http://127.0.0.1:9", "skip_signature": "true"}, True),
    (lambda: fs.GcsFileSystem(access_token="abc", credential_token_expiration=LATER), "bucket",
     {"bucket": "bucket", "bearer_token": "abc"}, False),
    (lambda: fs.AzureFileSystem("account", account_key=KEY), "box",
     {"account_name": "account", "account_key": KEY, "container_name": "box"}, False),
    (lambda: fs.AzureFileSystem("account", sas_token="?sv=1&sig=abc"), "box",
     {"account_name": "account", "sas_key": "?sv=1&sig=abc", "container_name": "box"}, False),
    (lambda: fs.AzureFileSystem("account", client_id="a", client_secret="b", tenant_id="c"), "box",
     {"account_name": "account", "client_id": "a", "client_secret": "b", "tenant_id": "c", "container_name": "box"},
     False),
    (lambda: fs.AzureFileSystem("dev", account_key=KEY, **AZURITE),
     "box", {"account_name": "dev", "account_key": KEY, "container_name": "box", "endpoint": "http://127.0.0.1:1/dev"},
     True),
], ids=["gs anonymous", "gs token", "azure key", "azure sas", "azure identity", "azurite"])  # fmt: skip
def test_the_client_has_the_options_of_the_file_system(make, bucket, config, is_plain):
    system = make()
    assert system.type_name in conditional.TYPES
    store = conditional._open(system, bucket)
    assert store.config == config
    assert store.client_options == ({"allow_http": "true"} if is_plain else None)


@pytest.mark.parametrize(("path", "place", "kind"), [
    ("abfss://box@account.dfs.core.windows.net/x/y z", "box/x/y z", "abfs"),
    ("gs://bucket/x/y z", "bucket/x/y z", "gcs"),
])  # fmt: skip
def test_paths_of_other_stores_are_opened(path, place, kind):
    system, found = open_path(path)
    assert (system.type_name, found) == (kind, place)
