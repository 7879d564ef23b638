"""Delta tables written and read without Spark: commits are JSON files. The slow, obvious twin for tests."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TYPES = {pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}


class HandMadeTable:
    """A table of files, perhaps partitioned by one column of strings; each call is one commit."""

    def __init__(self, path: Path, schema: pa.Schema, partition: str | None = None) -> None:
        self.path, self.partition, self.version = path, partition, 0
        (path / "_delta_log").mkdir(parents=True)
        fields = [{"name": each.name, "type": _TYPES[each.type], "nullable": True, "metadata": {}} for each in schema]
        self._write(
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": str(uuid.uuid4()),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps({"type": "struct", "fields": fields}),
                    "partitionColumns": [partition] if partition else [],
                    "configuration": {},
                    "createdTime": 0,
                }
            },
        )

    def change(self, add: list[pa.Table] = [], remove: list[str] = []) -> list[str]:  # noqa: B006
        """Add files and remove others, by name; return the names of the new ones."""
        actions, names = [], []
        for table in add:
            value = table[self.partition][0].as_py() if self.partition else None
            name = (f"{self.partition}={value}/" if self.partition else "") + f"{uuid.uuid4().hex}.parquet"
            file = self.path / name
            file.parent.mkdir(exist_ok=True)
            pq.write_table(table.drop_columns([self.partition]) if self.partition else table, file)
            values = {self.partition: value} if self.partition else {}
            own = {"path": name, "partitionValues": values, "size": file.stat().st_size, "dataChange": True}
            actions.append({"add": {**own, "modificationTime": int(time.time() * 1000)}})
            names.append(name)
        actions += [{"remove": {"path": name, "deletionTimestamp": 1, "dataChange": True}} for name in remove]
        if self.partition:
            for action in actions[len(add) :]:
                value = action["remove"]["path"].partition("/")[0].partition("=")[2]
                action["remove"].update(partitionValues={self.partition: value}, extendedFileMetadata=True, size=1)
        self._write(*actions)
        return names

    def _write(self, *actions: dict[str, Any]) -> None:
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        fresh = self.path / "_delta_log" / f".{self.version}.tmp"
        fresh.write_text(lines)
        fresh.rename(self.path / "_delta_log" / f"{self.version:020d}.json")
        self.version += 1


def commits_of(path: Path) -> list[dict[str, Any]]:
    """Return what each commit says about itself."""
    return [action["commitInfo"] for commit in _actions(path) for action in commit if "commitInfo" in action]


def ids_of(path: Path) -> list[int]:
    """Return the ids of all rows of a table, by replaying its log."""
    files: set[str] = set()
    for commit in _actions(path):
        for action in commit:  # a file may be removed and added in one commit only under different names
            if "remove" in action:
                files.discard(action["remove"]["path"])
            if "add" in action:
                files.add(action["add"]["path"])
    return sorted(value for name in files for value in pq.ParquetFile(path / name).read(["id"])["id"].to_pylist())


def _actions(path: Path) -> list[list[dict[str, Any]]]:
    logs = sorted((path / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in log.read_text().splitlines()] for log in logs]
