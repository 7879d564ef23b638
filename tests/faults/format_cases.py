"""Damaged files: one of ours with a fault in it gives an error of the package or the same data, never other data.

Every kind of file is made once, small. A case damages one file and reads it back. What was read is compared with what
the whole file holds. `value_faults.py` has the odd values in signed files and settings. Everything comes from a seed.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import kernelcoreset as kc
from kernelcoreset.jobs.record import RunRecord, read_record
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.store import manifest as manifests
from tests.faults import value_faults
from tests.faults.tally import Tally

POINTS = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0.0, 0.0], [9.0, 9.0]], 30, axis=0)
KERNEL = kc.Gaussian(sigma=2.0)


@dataclasses.dataclass
class Kind:
    """A kind of file: a whole one, and how it is read as plain data."""

    name: str
    content: bytes
    read: Callable[[bytes], Any]
    """Returns plain data that can be compared; an error of the package is fine."""
    alone: bool = False
    """Whether any other whole file of this kind may stand in its place."""

    def __post_init__(self) -> None:
        self.expected = self.read(self.content)


def make_kinds(folder: Path) -> list[Kind]:
    """Return a whole file of every kind."""
    folder.mkdir(parents=True, exist_ok=True)
    coreset = kc.build_coreset(POINTS, 2, KERNEL, 20, seed=1, ids=np.arange(60))
    model = kc.KernelKMeansModel.fit_coreset(coreset, 2, KERNEL)
    spectral = kc.fit_spectral(POINTS, 2, KERNEL, 20, degree_sample=30)
    graph = kc.fit_graph(kc.Graph.from_edges([0, 1, 2, 3, 4, 5, 0], [1, 2, 0, 4, 5, 3, 3]), 2)
    kinds = [Kind("coreset", coreset.to_bytes(), lambda content: of_coreset(kc.Coreset.from_bytes(content)), True)]
    for made, cls, of in (
        (model, kc.KernelKMeansModel, of_model),
        (spectral, kc.SpectralModel, of_spectral),
        (kc.fit_neighbors(POINTS, 2, 20), kc.NeighborModel, of_neighbors),
        (graph, kc.GraphModel, of_graph),
    ):
        files = made.to_files()
        for name, content in files.items():
            read = lambda damaged, files=files, name=name, cls=cls, of=of: of(cls.from_files({**files, name: damaged}))  # noqa: E731
            kinds.append(Kind(f"{cls.__name__}/{name}", content, read))
    return [*kinds, *store_kinds(folder / "store"), record_kind(folder / "out.run.json")]


def store_kinds(path: Path) -> list[Kind]:
    """Return the files of a store: the newest manifest, a leaf and a cached node."""
    store = kc.CoresetStore.create(path, k=2, kernel=KERNEL, size=5, leaf_size=5)
    store.change(put={f"day {day}": store.build_leaf(f"day {day}", POINTS[day::6]) for day in range(4)})
    store.change(state={"night": 7})
    store.result()

    def kind(file: Path, of: Callable[[kc.CoresetStore], Any]) -> Kind:
        def read(damaged: bytes) -> Any:
            file.write_bytes(damaged)
            try:
                return of(kc.CoresetStore.open(path))
            finally:
                file.write_bytes(whole)

        whole = file.read_bytes()
        return Kind(f"store/{file.parent.name}/{file.suffix}", whole, read)

    return [
        kind(path / manifests.manifest_name(2), lambda found: (found.version, found.state, infos(found))),
        kind(next((path / "leaves").glob("day_0*")), lambda found: of_coreset(found.leaf("day 0"))),
        kind(next((path / "nodes").iterdir()), lambda found: of_coreset(found.result())),
    ]


def infos(store: kc.CoresetStore) -> Any:
    return [(key, store.info(key), of_coreset(store.leaf(key))) for key in sorted(store.keys())]


def record_kind(path: Path) -> Kind:
    """Return a run record."""
    tables = {"input": {"demo_rows": 9}, "kernel": {"name": "Linear"}, "coreset": {"k": 2}}
    record = RunRecord("run", Settings.from_dict(tables), str(path))
    record.add(rows=9, cost=0.5, place="größer")
    record.write()

    def read(damaged: bytes) -> Any:
        path.write_bytes(damaged)
        return json.dumps(read_record(path))

    return Kind("run record", path.read_bytes(), read, True)


def of_coreset(coreset: kc.Coreset) -> Any:
    ids = None if coreset.ids is None else (coreset.ids.dtype.str, coreset.ids.tobytes())
    shape = coreset.points.shape
    return shape, coreset.points.tobytes(), coreset.weights.tobytes(), ids, json.dumps(dict(coreset.settings))


def of_model(model: kc.KernelKMeansModel) -> Any:
    solution = model.solution
    arrays = solution.labels.tobytes(), solution.coefficients.tobytes()
    rest = solution.cost, solution.n_iter, solution.converged, model.z, model.kernel.to_dict()
    return of_coreset(model.coreset), arrays, rest


def of_spectral(model: kc.SpectralModel) -> Any:
    degrees = model.degrees
    arrays = degrees.points.tobytes(), degrees.weights.tobytes()
    return of_model(model.clustering), arrays, degrees.total, degrees.exact, degrees.kernel.to_dict()


def of_neighbors(model: kc.NeighborModel) -> Any:
    return of_coreset(model.coreset), model.labels.tobytes(), model.normalized_cut


def of_graph(model: kc.GraphModel) -> Any:
    parts = (getattr(model, field.name) for field in dataclasses.fields(model))
    return [part.tobytes() if isinstance(part, np.ndarray) else part for part in parts]


# --- faults of bytes -------------------------------------------------------------------------------------------------


def flipped(content: bytes, place: int, bit: int) -> bytes:
    """Return the content with one bit changed."""
    return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]


def flips(kinds: list[Kind], cases: int, seed: int) -> Iterator[tuple[Kind, bytes, str]]:
    """Yield files with one flipped bit."""
    generator = np.random.default_rng(seed)
    for case in range(cases):
        kind = kinds[case % len(kinds)]
        place, bit = int(generator.integers(len(kind.content))), int(generator.integers(8))
        yield kind, flipped(kind.content, place, bit), f"bit {bit} of byte {place}"


def byte_faults(kinds: list[Kind], cases: int, seed: int) -> Iterator[tuple[Kind, bytes, str]]:
    """Yield damaged files: cuts, inserted bytes, and files in the place of others."""
    generator = np.random.default_rng(seed)
    for case in range(cases):
        kind = kinds[case % len(kinds)]
        content, fault = kind.content, case // len(kinds) % 3
        place = int(generator.integers(len(content)))
        if fault == 0:
            yield kind, content[:place], "cut"
        elif fault == 1:
            more = generator.bytes(int(generator.integers(1, 20)))
            yield kind, content[:place] + more + content[place:], "insert"
        elif not kind.alone:
            yield kind, kinds[int(generator.integers(len(kinds)))].content, "swap"
        else:
            yield kind, content[place:] + content[:place], "turn"


def try_case(kind: Kind, content: bytes) -> tuple[str, str]:
    """Read one damaged file; return what came of it, as a Tally counts it, and the reason if that is bad."""
    try:
        found = kind.read(content)
    except kc.KernelCoresetError:
        return "clear error", ""
    except Exception as error:
        return "unclear error", f"{type(error).__name__}: {str(error)[:200]}"
    return ("done right", "") if found == kind.expected else ("silent wrong", "loads as other data")


def try_bytes(kinds: list[Kind], faults: Iterator[tuple[Kind, bytes, str]], tally: Tally) -> list[str]:
    """Count what comes of damaged files; return a line for every case that ended badly."""
    bad = []
    for kind, content, fault in faults:
        outcome, reason = try_case(kind, content)
        tally.add(outcome)
        if reason:
            bad.append(f"{kind.name}, {fault}: {reason}")
    return bad


def try_values(folder: Path, cases: int, tally: Tally) -> list[str]:
    """Count what comes of odd values in signed files and in settings; return a line for every bad case."""
    bad = []
    kinds = value_faults.all_cases(folder, seed=1)
    for case in range(cases):
        name, use = next(kinds[case % len(kinds)])
        try:
            use()
        except kc.KernelCoresetError:
            tally.add("clear error")
        except Exception as error:
            tally.add("silent wrong" if isinstance(error, AssertionError) else "unclear error")
            bad.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        else:
            tally.add("done right")
    return bad


def try_cases(folder: Path, cases: int) -> tuple[list[Tally], list[str]]:
    """Return two tallies of that many cases each, and a line for every case that ended badly."""
    kinds = make_kinds(Path(folder) / "bytes")
    flipped_bits, others = Tally("one flipped bit in a file"), Tally("cut, swapped and odd files and settings")
    third = cases // 3
    bad = try_bytes(kinds, flips(kinds, cases, seed=0), flipped_bits)
    bad += try_bytes(kinds, byte_faults(kinds, third, seed=0), others)
    bad += try_values(Path(folder) / "values", cases - third, others)
    return [flipped_bits, others], bad


def run(folder: Path, cases: int | None = None) -> list[Tally]:
    """Return what came of damaged files, 10,000 by default for each of two tallies; say which ended badly."""
    tallies, bad = try_cases(folder, 10_000 if cases is None else cases)
    print(*bad, sep="\n", end="\n" if bad else "", file=sys.stderr)
    return tallies
