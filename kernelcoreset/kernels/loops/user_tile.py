"""A user's function on one tile of points, called by its address.

The passes are compiled once for all kernels. A user's function is compiled into a loop over a tile with a C signature,
and the program holds the address of that loop. So a function costs one indirect call per tile, and only its own loop
is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, types  # type: ignore[attr-defined]
from numba.extending import intrinsic

_FLOATS = types.CPointer(types.float64)  # type: ignore[no-untyped-call]
_SIGNATURE = types.void(_FLOATS, types.int64, types.int64, types.int64, types.int64, _FLOATS, types.boolean, _FLOATS)


@cache  # never freed: a program holds the bare address and may outlive every other reference to the loop
def user_tile(function: Callable[..., Any]) -> Any:
    """Return the compiled loop of a user's function over a tile; its `address` goes into a program.

    An exception cannot leave a function with a C signature: it becomes NaN, which every caller refuses.
    """

    def loop(columns: Any, n: int, low: int, m: int, d: int, y: Any, on_itself: bool, out: Any) -> None:
        points, other, values = carray(columns, (d, n)), carray(y, (d,)), carray(out, (m,))
        x = np.empty(d)
        try:
            for i in range(m):
                for j in range(d):
                    x[j] = points[j, low + i]
                values[i] = function(x, x) if on_itself else function(x, other)
        except Exception:
            values[:] = np.nan

    return cfunc(_SIGNATURE)(loop)


def _call_user_tile(
    typing: Any,
    address: Any,
    columns: Any,
    n: Any,
    low: Any,
    m: Any,
    d: Any,
    y: Any,
    on_itself: Any,
    out: Any,
) -> Any:
    """Call the loop at an address for points low..low + m of columns with n points: out[i] = f(x_i, y)."""
    array = types.Array(types.float64, 1, "C")
    integer = types.int64
    signature = types.void(
        integer, types.Array(types.float64, 2, "C"), integer, integer, integer, integer, array, types.boolean, array
    )

    def generate(context: Any, builder: Any, own: Any, values: Any) -> Any:
        def data(index: int) -> Any:
            return context.make_array(own.args[index])(context, builder, values[index]).data

        flag = builder.zext(values[7], ir.IntType(8)) if values[7].type.width == 1 else values[7]
        given = [data(1), *values[2:6], data(6), flag, data(8)]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), given)
        return context.get_dummy_value()

    return signature, generate


call_user_tile: Any = intrinsic(_call_user_tile)
