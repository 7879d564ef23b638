"""What the ladder of labels does on its rungs: a grid, landmarks, products or monomials, and the formula itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.loops import passes
from kernelcoreset.kernels.loops.passes import Cloud, Landmarks, Nearest
from kernelcoreset.labelling.grid import ByGrid
from kernelcoreset.labelling.landmarks import Chunk, finish
from kernelcoreset.labelling.monomials import ByMonomials
from kernelcoreset.labelling.neighborhoods import ByNeighborhoods
from kernelcoreset.labelling.products import ByProducts

if TYPE_CHECKING:
    from kernelcoreset.labelling.centers import Centers

Level = ByProducts | ByMonomials | ByNeighborhoods
"""A rung after the landmarks."""


def new_nearest(n: int) -> Nearest:
    """Return arrays for the results of n points."""
    return Nearest(np.empty(n, dtype=np.int32), np.empty(n), np.empty(n))


@dataclass(frozen=True, eq=False)
class TwoNearest:
    """What a ladder computes for labels: the nearest and the second nearest center of a point."""

    centers: Centers
    accuracy: float
    levels: tuple[Level, ...]

    def new(self, n: int) -> Nearest:
        return new_nearest(n)

    def by_landmarks(self, landmarks: Landmarks, cloud: Cloud, out: Nearest, sure: NDArray[np.bool_]) -> float:
        program = evaluator_of(self.centers.kernel).values
        error = passes.label_by_landmarks(
            program, cloud, landmarks, self._squared_norms, self.accuracy, self.centers.typical, out, sure
        )
        return float(error)

    @cached_property
    def _squared_norms(self) -> Floats:
        return np.diag(self.centers.sparse.gram).copy()

    def directly(self, chunk: Chunk, out: Nearest) -> tuple[int, float]:
        if not self.levels:
            self.centers.nearest_directly(chunk.columns, out)
            return 0, 0.0
        sure = np.empty(len(chunk), dtype=np.bool_)
        error = self.levels[0].run(chunk.rows, out, sure)
        later = TwoNearest(self.centers, self.accuracy, self.levels[1:])
        return finish(chunk, out, sure, error, new_nearest, later.directly)


@dataclass(frozen=True, eq=False)
class GridFirst:
    """A ladder that begins with a grid. The rest of it is prepared when a point first needs it."""

    grid: ByGrid
    centers: Centers
    accuracy: float

    def run(self, chunk: Chunk, out: Nearest) -> tuple[int, float]:
        """Fill in the results of a chunk; return how many were proved and not evaluated, and their largest error."""
        sure = np.empty(len(chunk), dtype=np.bool_)
        error = self.grid.run(chunk.columns, out, sure)
        return finish(chunk, out, sure, error, new_nearest, self._rest)

    def _rest(self, chunk: Chunk, out: Nearest) -> tuple[int, float]:
        return self.centers.ladder(self.accuracy).run(chunk, out)
