"""Labels of many rows by several threads at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelcoreset.blas import one_blas_thread
from kernelcoreset.kernels.products import products_pay
from kernelcoreset.kernels.threads import equal_parts, map_in_threads
from kernelcoreset.labelling.centers import ACCURACY, Centers, Labels

_LEAST_PART = 2_048


def label_in_threads(centers: Centers, rows: NDArray[Any]) -> Labels:
    """Return `Centers.label_rows` of rows (n, d), n > 0, parts of which are labelled at the same time.

    Where products do not pay, the loops over columns take their place, and one thread does all. Assumes validated
    input.
    """
    if not products_pay(centers.kernel, rows.shape[1]):
        return centers.label_rows(rows)
    centers.ladder(ACCURACY)  # prepared once, before there are threads
    with one_blas_thread() as threads:
        parts = equal_parts(len(rows), max(1, min(threads, len(rows) // _LEAST_PART)))
        found = map_in_threads(lambda part: centers.label_rows(rows[part]), parts, threads)
    return Labels(
        np.concatenate([own.labels for own in found]),
        np.concatenate([own.distances for own in found]),
        None,
        sum(len(own.labels) * own.certified for own in found) / len(rows),
        max(own.distance_error for own in found),
    )
