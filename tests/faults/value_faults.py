"""Odd values in whole files: every field of every file in turn becomes something that no version of ours writes.

These files are signed, as a program with a bug or a hostile one would sign them: so the fields themselves are checked.
A case is right if reading gives an error of the package, or something that can be used like any other of its kind.
"""

import hashlib
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import kernelcoreset as kc
from kernelcoreset.files.documents import signed
from kernelcoreset.files.tables import table_from_bytes, table_to_bytes
from kernelcoreset.jobs.record import RunRecord, read_record
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.store import manifest as manifests

Case = tuple[str, Callable[[], Any]]
"""What is odd, and the reading and use of it."""

DEEP = 100_000
# Texts of JSON and TOML that stand for values which Python could not write.
MARK = "@odd@"
ODD_TEXTS = ["[" * DEEP + "]" * DEEP, "9" * 5_000, "-" + "9" * 5_000, "1e999", '"\\u0000"', '"\\ud800"']
ODD_VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 0.7, -0.0, 1e9, 10**9, 2**31, 2**63, 10**30, 1e-300, 1e308, math.nan, math.inf, "",
    "x", "nan", "a:b", "\x00", [], [1], [None], ["x"] * 2, list(range(2_000)), {}, {"kernel": "Linear"}, {"kernel": []},
    {"kernel": "Gaussian", "sigma": 10**400}, {"kernel": "Gaussian", "sigma": math.nan},
    {"kernel": "Matern", "sigma": 1},
    {"kernel": "Polynomial", "degree": 2.5}, {"kernel": "UserKernel", "function": "os:system"}, {"": {"": ""}},
]  # fmt: skip


def nested_kernel(depth: int) -> dict[str, Any]:
    """The plain form of a kernel in a kernel in a kernel."""
    kernel: dict[str, Any] = {"kernel": "Linear"}
    for _ in range(depth):
        kernel = {"kernel": "Scaled", "factor": 1.0, "inner": kernel}
    return kernel


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value within plain data."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """Return a copy of plain data with another value at a path; with `...` the value is left out."""
    if not path:
        return odd
    copy = dict(value) if isinstance(value, Mapping) else list(value)
    if len(path) == 1 and odd is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], odd)
    return copy


def odd_versions(data: Any, generator: np.random.Generator) -> Iterator[tuple[str, Any, str | None]]:
    """Yield a name, plain data with one odd value, and the text that takes the place of the mark in it."""
    where = list(places(data))
    while True:
        path = where[int(generator.integers(len(where)))]
        which = int(generator.integers(len(ODD_VALUES) + len(ODD_TEXTS) + 3))
        name = ".".join(map(str, path))
        if which < len(ODD_VALUES):
            yield f"{name} = {str(ODD_VALUES[which])[:40]}", changed(data, path, ODD_VALUES[which]), None
        elif which < len(ODD_VALUES) + len(ODD_TEXTS):
            text = ODD_TEXTS[which - len(ODD_VALUES)]
            yield f"{name} = {text[:10]}", changed(data, path, MARK), text
        elif which % 2:
            yield f"without {name}", changed(data, path, ...), None
        else:
            depth = int(generator.integers(50, 700))
            yield f"{name} nested {depth}", changed(data, path, nested_kernel(depth)), None


def as_json(data: Any, text: str | None) -> bytes:
    """Return plain data as JSON, with a text in the place of the mark."""
    content = json.dumps(data)
    return (content if text is None else content.replace(json.dumps(MARK), text)).encode()


# --- the files -------------------------------------------------------------------------------------------------------


def model_cases(model: Any, use: Callable[[Any], None], generator: np.random.Generator) -> Iterator[Case]:
    """Yield models with an odd value in model.json."""
    files = model.to_files()
    about = json.loads(files["model.json"])
    del about["checksum"]
    for name, data, text in odd_versions(about, generator):
        content = as_json(data if not isinstance(data, dict) else signed(data), text)
        read = lambda content=content: use(type(model).from_files({**files, "model.json": content}))  # noqa: E731
        yield f"{type(model).__name__}: {name}", read


def column_cases(model: Any, use: Callable[[Any], None], generator: np.random.Generator) -> Iterator[Case]:
    """Yield models with an odd column in a table, signed."""
    files = model.to_files()
    tables = [name for name in files if name.endswith(".parquet")]
    while True:
        file = tables[int(generator.integers(len(tables)))]
        table = table_from_bytes(files[file], file)
        name, odd = odd_table(table, generator)
        content = table_to_bytes(odd)
        about = json.loads(files["model.json"])
        del about["checksum"]
        digest = hashlib.sha256(content).hexdigest()
        if file in about.get("files", {}):
            about["files"][file] = digest
        else:
            about["sha256"] = digest
        changed_files = {**files, file: content, "model.json": json.dumps(signed(about)).encode()}
        yield f"{type(model).__name__}: {file} {name}", lambda some=changed_files: use(type(model).from_files(some))


def odd_table(table: pa.Table, generator: np.random.Generator) -> tuple[str, pa.Table]:
    """Return a table with one odd column, fewer rows or odd metadata, and what is odd."""
    place = int(generator.integers(table.num_columns))
    column, n = table.column_names[place], table.num_rows
    arrays: list[Any] = [
        [-1] * n, [0.7] * n, [0] * n, [10**9] * n, [math.nan] * n, [math.inf] * n, [None] * n, ["x"] * n, [True] * n,
        [[]] * n, [[1.0]] * n, [[math.nan, math.nan]] * n, [[None, None]] * n, [[10**9]] * n, [{"a": 1}] * n,
        [1e-310] * n, [1e200] * n, [-(2**63)] * n, [b"\xff"] * n, [[[1.0]]] * n,
    ]  # fmt: skip
    which = int(generator.integers(len(arrays) + 5))
    if which < len(arrays):
        values = arrays[which]
        return f"{column} = {str(values[:1])[:40]}", table.set_column(place, column, pa.array(values))
    if which == len(arrays):
        return f"without {column}", table.drop_columns([column])
    if which == len(arrays) + 1:
        return f"{column} twice", table.append_column(column, table[column])
    if which == len(arrays) + 2:
        return "without rows", table.slice(0, int(generator.integers(2)))
    metadata = dict(table.schema.metadata or {b"none": b""})
    key = sorted(metadata)[int(generator.integers(len(metadata)))]
    odd = [b"", b"0", b"-1", b"nan", b"1e999", b"9" * 5_000, b"[" * DEEP, b"\xff\xfe", b"{}", b"null", b"0.7"]
    metadata[key] = odd[int(generator.integers(len(odd)))]
    if which == len(arrays) + 3:
        return f"metadata {key!r} = {metadata[key][:20]!r}", table.replace_schema_metadata(metadata)
    return "without metadata", table.replace_schema_metadata(None)


def coreset_cases(coreset: kc.Coreset, generator: np.random.Generator) -> Iterator[Case]:
    """Yield coresets with an odd column, or an odd value in the metadata."""
    table = coreset.to_arrow()
    about = json.loads(table.schema.metadata[b"kernelcoreset"])
    versions = odd_versions(about, generator)
    while True:
        if generator.integers(2):
            name, odd = odd_table(table, generator)
        else:
            name, data, text = next(versions)
            odd = table.replace_schema_metadata({b"kernelcoreset": as_json(data, text)})
        content = table_to_bytes(odd)
        yield f"coreset: {name}", lambda content=content: use_coreset(kc.Coreset.from_bytes(content))


def manifest_cases(path: Path, generator: np.random.Generator) -> Iterator[Case]:
    """Yield stores with an odd value in the newest manifest."""
    file = path / manifests.manifest_name(2)
    whole = file.read_bytes()

    def read(content: bytes) -> None:
        file.write_bytes(content)
        try:
            use_store(kc.CoresetStore.open(path))
        finally:
            file.write_bytes(whole)

    for name, data, text in odd_versions(json.loads(whole)["manifest"], generator):
        body = as_json(data, text)
        checksum = hashlib.sha256(body).hexdigest().encode()
        content = b'{"checksum": "%s", "manifest": %s}\n' % (checksum, body)
        yield f"manifest: {name}", lambda content=content: read(content)


def record_cases(path: Path, generator: np.random.Generator) -> Iterator[Case]:
    """Yield run records with an odd value."""

    def read(content: bytes) -> None:
        path.write_bytes(content)
        found = read_record(path)
        assert isinstance(found["job"], str)

    record = json.loads(path.read_bytes())
    del record["checksum"]
    for name, data, text in odd_versions(record, generator):
        content = as_json(signed(data), text)
        yield f"record: {name}", lambda content=content: read(content)


# --- settings --------------------------------------------------------------------------------------------------------

REFERENCE = Path(__file__).parents[2] / "conf" / "reference.toml"


def settings_cases(path: Path, generator: np.random.Generator) -> Iterator[Case]:
    """Yield settings with an odd value: as plain data, as a TOML file, and as an option of the command line."""
    text = REFERENCE.read_text()
    tables = tomllib.loads(text)
    versions = odd_versions(tables, generator)
    lines = [number for number, line in enumerate(text.splitlines()) if " = " in line and not line.startswith("#")]
    odd_toml = [
        "[" * DEEP + "]" * DEEP, "{a=" * 2_000 + "1" + "}" * 2_000, "9" * 5_000, "0x" + "f" * 5_000, "1e999", "nan",
        "-inf", "2024-01-01", "23:59:59", '"\\u0000"', "[1, 2]", "{}", "{a.b.c = 1}", "-1", "true", '""', "1e9",
        "1000000000", '["a", "a"]', f"[{'1,' * 2_000}]", "'''" + "x" * 5_000 + "'''", '"\\uD800"', "0x" + "f" * 20,
    ]  # fmt: skip
    while True:
        which = int(generator.integers(4))
        odd = odd_toml[int(generator.integers(len(odd_toml)))]
        number = lines[int(generator.integers(len(lines)))]
        changed_lines = text.splitlines()
        key = changed_lines[number].partition(" = ")[0]
        if which == 0:
            name, data, _ = next(versions)
            yield f"settings: {name}", lambda data=data: use_settings(Settings.from_dict(data))
        elif which == 1:
            changed_lines[number] = f"{key} = {odd}"
            content = "\n".join(changed_lines).encode()
            yield f"toml: {key} = {odd[:20]}", lambda content=content: load_toml(path, content)
        elif which == 2:
            content = bytearray(text.encode())
            content[int(generator.integers(len(content)))] ^= 1 << int(generator.integers(8))
            yield "toml: flip", lambda content=bytes(content): load_toml(path, content)
        else:
            section = [line for line in changed_lines[:number] if line.startswith("[")][-1].partition("]")[0][1:]
            keys = [f"{section}.{key}", f"{section}.{key}.x", f"{section}." + "x." * 3_000 + "x", key, "", "."]
            option = f"{keys[int(generator.integers(len(keys)))]}={odd}"
            content = text.encode()
            yield f"--set {option[:60]}", lambda option=option, content=content: load_toml(path, content, option)


def load_toml(path: Path, content: bytes, *options: str) -> None:
    path.write_bytes(content)
    use_settings(Settings.load(path, options))


# --- use -------------------------------------------------------------------------------------------------------------

POINTS = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0.0, 0.0], [9.0, 9.0]], 30, axis=0)


def use_coreset(coreset: kc.Coreset) -> None:
    assert np.isfinite(coreset.points).all()
    assert (coreset.weights > 0).all()
    assert len(coreset.weights) == len(coreset.points)


def use_model(model: Any) -> None:
    found = model.label(POINTS)
    assert set(np.unique(found.labels)) <= set(range(model.k))
    assert np.isfinite(found.distances).all()


def use_graph(model: kc.GraphModel) -> None:
    assert set(np.unique(model.predict(np.ones((2, len(model.labels)))))) <= set(range(-1, model.k))


def use_store(store: kc.CoresetStore) -> None:
    for key in sorted(store.keys()):
        store.info(key)
    json.dumps(store.state)
    use_coreset(store.result())


def use_settings(settings: Settings) -> None:
    record = RunRecord("run", settings, "r.json")
    json.dumps(record.to_dict(), allow_nan=False)
    settings.kernel.build(sigma=1.0)


def all_cases(folder: Path, seed: int) -> list[Iterator[Case]]:
    """Return an endless run of cases for every kind of file."""
    folder.mkdir(parents=True, exist_ok=True)
    kernel = kc.Gaussian(sigma=2.0)
    coreset = kc.build_coreset(POINTS, 2, kernel, 20, seed=1, ids=np.arange(60))
    model = kc.KernelKMeansModel.fit_coreset(coreset, 2, kernel)
    spectral = kc.fit_spectral(POINTS, 2, kernel, 20, degree_sample=30)
    graph = kc.fit_graph(kc.Graph.from_edges([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3]), 2)
    store = kc.CoresetStore.create(folder / "store", k=2, kernel=kernel, size=5, leaf_size=5)
    store.change(put={f"day {day}": store.build_leaf(f"day {day}", POINTS[day::6]) for day in range(4)})
    store.change(state={"night": 7})
    store.result()
    tables = {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}
    RunRecord("run", Settings.from_dict(tables), str(folder / "run.json")).write()
    generators = iter(np.random.default_rng(seed).spawn(20))
    neighbors = kc.fit_neighbors(POINTS, 2, 20)
    models = [(model, use_model), (spectral, use_model), (neighbors, use_model), (graph, use_graph)]
    return [
        *(model_cases(some, use, next(generators)) for some, use in models),
        *(column_cases(some, use, next(generators)) for some, use in models),
        coreset_cases(coreset, next(generators)),
        manifest_cases(folder / "store", next(generators)),
        record_cases(folder / "run.json", next(generators)),
        settings_cases(folder / "job.toml", next(generators)),
    ]
