"""Functions a user might write, at the top level of a module so that they can be imported by name.

Compiling the passes around a function takes seconds: there are two, and every test uses one of them.
"""

import numpy as np
from numba import njit

NOT_A_FUNCTION = 3.0


@njit
def rational(x, y):
    """1 / (1 + |x - y|^2), a true kernel."""
    total = 0.0
    for j in range(len(x)):
        total += (x[j] - y[j]) ** 2
    return 1.0 / (1.0 + total)


@njit
def ill(x, y):
    """No kernel; the first coordinate of x says what is wrong with it."""
    if x[0] == 1.0:
        return np.nan
    if x[0] == 2.0:
        return -1.0
    return x[0] - y[0]
