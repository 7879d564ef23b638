"""One round of sampling: from many weighted points, or from several coresets, to one coreset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.checks import Floats, check_same_dimension
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.sampling import draw_sample
from kernelcoreset.errors import DataError, KernelError
from kernelcoreset.kernels.evaluator import as_columns, evaluator_of
from kernelcoreset.kernels.kernel import Kernel


def concatenate(coresets: Sequence[Coreset]) -> tuple[Floats, Floats, NDArray[Any] | None]:
    """Return points, weights and ids of the union; empty coresets add nothing."""
    full = [coreset for coreset in coresets if len(coreset)]
    if not full:
        raise DataError(f"A merge needs at least one coreset that is not empty; got {len(coresets)} empty ones.")
    for coreset in full[1:]:
        check_same_dimension("coresets", coreset.points.shape[1], full[0].points.shape[1], "the first")
    ids = [coreset.ids for coreset in full if coreset.ids is not None]
    if ids and len(ids) < len(full):
        raise DataError(f"Coresets must all have ids or none; got {len(ids)} of {len(full)} with ids.")
    return (
        np.concatenate([coreset.points for coreset in full]),
        np.concatenate([coreset.weights for coreset in full]),
        np.concatenate(ids) if ids else None,
    )


def reduce_points(
    points: Floats,
    weights: Floats,
    ids: NDArray[Any] | None,
    *,
    k: int,
    kernel: Kernel,
    size: int,
    z: float,
    seed: int,
    draw: str = "ordered",
    refine: bool = True,
) -> Coreset:
    """One round of sampling. Assumes validated input; `refine` as in `draw_sample`."""
    settings = {"k": k, "z": z, "kernel": plain_kernel(kernel), "size": size, "draw": draw, "seed": seed}
    positive = int(np.count_nonzero(weights))
    columns = as_columns(points)
    evaluator_of(kernel).check(columns)
    if positive <= size:
        chosen = np.flatnonzero(weights)
        new_weights = weights[chosen]
    else:
        chosen, new_weights = draw_sample(
            kernel,
            columns,
            weights,
            k=k,
            size=size,
            z=z,
            draw=draw,
            generator=np.random.default_rng(seed),
            refine=refine,
        )
    return Coreset(points[chosen], new_weights, None if ids is None else ids[chosen], settings)


def plain_kernel(kernel: Kernel) -> dict[str, Any]:
    """A kernel for the settings; a user's function that cannot be imported by name is only described."""
    try:
        return kernel.to_dict()
    except KernelError:
        return {"kernel": repr(kernel)}
