"""Secrets in settings: hidden in the run record, in logs and on the terminal, whatever their name."""

import json
import logging

import pytest

from kernelcoreset import DataError
from kernelcoreset.errors import SettingError
from kernelcoreset.jobs import cli
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.runner import log_to_stderr
from kernelcoreset.jobs.secrets import HIDDEN, Secrets, shown_settings
from kernelcoreset.jobs.settings.settings import Settings

TABLES = {"input": {"demo_rows": 100}, "kernel": {"name": "Linear"}, "coreset": {"k": 3}}
SECRET = "tr0ub4dor"
WAYS = {
    "password": SECRET,
    "pwd": SECRET,
    "pass": SECRET,
    "passphrase": SECRET,
    "apiKey": SECRET,
    "sasl.jaas.config": f'org.apache.kafka...PlainLoginModule required username="me" password="{SECRET}";',
    "kafka.sasl.jaas.config": f'ScramLoginModule required password="{SECRET}";',
    "kafka.ssl.keystore.password": SECRET,
    "url": f"jdbc:postgresql://host/db?user=me&password={SECRET}",
    "dbtable": f"(SELECT '{SECRET}') AS t",
    "fs.azure.sas.container.account.blob.core.windows.net": f"?sv=2020&sig={SECRET}",
    "fs.azure.account.key.x.dfs.core.windows.net": SECRET,
    "fs.s3a.access.key": SECRET,
    "fs.s3a.session.token": SECRET,
    "sfSecret": SECRET,
    "pem_private_key": SECRET,
    "Authorization": f"Bearer {SECRET}",
    "es.net.http.auth.pass": SECRET,
    "connection.uri": f"mongodb://me:{SECRET}@host/db",
}


def settings_with(**sections):
    return Settings.from_dict({**TABLES, **sections})


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(
    "tables",
    [
        lambda name, text: {"input": {"demo_rows": 100, "options": {name: text}}},
        lambda name, text: {"output": {"options": {name: text}}},
        lambda name, text: {"spark": {"conf": {f"spark.hadoop.{name}": text}}},
        lambda name, text: {"spark": {"conf": {f"spark.sql.catalog.prod.{name}": text}}},
    ],
    ids=["input", "output", "hadoop", "catalog"],
)
def test_no_option_shows_a_secret(name, tables, capsys):
    settings = settings_with(**tables(name, WAYS[name]))
    record = RunRecord("run", settings, "r.json")
    record.add(note=f"read with {WAYS[name]}")
    text = json.dumps(record.to_dict(DataError(f"cannot open {WAYS[name]}")))
    assert SECRET not in text
    assert name in text
    log_to_stderr(Secrets.of(settings))
    log = logging.getLogger("kernelcoreset")
    try:
        raise RuntimeError(f"no access: {WAYS[name]}")
    except RuntimeError as error:
        log.error("Failed: %s", error, exc_info=error)
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert SECRET not in printed


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f"s3a://key:{SECRET}@bucket/rows", "s3a://(hidden)@bucket/rows"),
        (f"https://{SECRET}@host/rows", "https://(hidden)@host/rows"),
        (f"https://host/rows?sv=1&sig={SECRET}", "https://host/rows?(hidden)"),
        (f"s3://bucket/rows?secret_key={SECRET}&region=x", "s3://bucket/rows?(hidden)"),
        (f"wasbs://me:{SECRET}@account.blob.core.windows.net/rows", "wasbs://(hidden)@account.blob.core.windows.net/rows"),
        ("abfss://container@account.dfs.core.windows.net/rows", "abfss://container@account.dfs.core.windows.net/rows"),
        ("s3a://bucket/day-?/part-*.parquet", "s3a://bucket/day-?/part-*.parquet"),
        ("/data/what?/a@b", "/data/what?/a@b"),
        ("file:///data/rows", "file:///data/rows"),
    ],
)  # fmt: skip
def test_paths_are_shown_without_users_and_queries(path, shown):
    settings = settings_with(input={"path": path, "features": ["x"]}, output={"path": path + "x"}, coreset={"k": 2})
    assert shown_settings(settings)["input"]["path"] == shown
    record = RunRecord("run", settings, "r.json")
    record.add(output=path)
    assert record.to_dict()["output"] == shown
    assert SECRET not in json.dumps(record.to_dict())


def test_harmless_options_are_shown():
    options = {
        "header": True,
        "inferSchema": "true",
        "sep": ";",
        "maxFilesPerTrigger": 5,
        "startingOffsets": "earliest",
    }
    conf = {"spark.sql.shuffle.partitions": 64, "spark.executor.memory": "4g", "spark.executorEnv.TOKEN": SECRET}
    shown = shown_settings(settings_with(input={"demo_rows": 9, "options": options}, spark={"conf": conf}))
    assert HIDDEN not in shown["input"]["options"].values()
    assert shown["spark"]["conf"] == {
        "spark.sql.shuffle.partitions": "64", "spark.executor.memory": "4g", "spark.executorEnv.TOKEN": HIDDEN,
    }  # fmt: skip


def test_short_values_do_not_garble_texts():
    settings = settings_with(input={"demo_rows": 9, "options": {"unknown": "on"}})
    assert Secrets.of(settings).hide("an error on the moon") == "an error on the moon"


@pytest.mark.parametrize(
    "override",
    [
        f"input.options.password=['{SECRET}']",
        f"input.options=['{SECRET}']",
        f"input.demo_rows.password={SECRET}",
        f"password={SECRET}",
        f"input.path=https://me:{SECRET}@host",
    ],
)
def test_bad_settings_are_reported_without_the_secret(override, tmp_path, capsys):
    file = tmp_path / "job.toml"
    file.write_text("[input]\ndemo_rows = 9\n[kernel]\nname = 'Linear'\n[coreset]\nk = 2\n[output]\npath = 'out'\n")
    assert cli.run_main(["--config", str(file), "--set", override]) == 2
    assert SECRET not in capsys.readouterr().err
    with pytest.raises(SettingError):
        Settings.load(file, [override])
