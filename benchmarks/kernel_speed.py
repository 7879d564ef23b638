"""Kernel evaluations per second on one core, compared with the same loop in C and in numpy.

Run from the project's root: python benchmarks/kernel_speed.py
The C loops are compiled on the spot with `gcc -O3 -march=native -ffast-math`, once over rows and once over columns
(the layout of this package); the faster of the two is the one compared with.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import tables
from kernelcoreset import Cosine, Exponential, Gaussian, Kernel, Laplacian, Linear, Matern, Polynomial
from kernelcoreset.kernels.evaluator import evaluator_of
from kernelcoreset.kernels.loops import passes

N = 16_384  # points that stay in the second-level cache, as a chunk's tiles do
DIMENSIONS = (2, 10, 100)
_C_TEMPLATE = """
#include <math.h>
static inline double finish(double s, double nx, double ny) {{ return {finish}; }}
void over_rows(const double *x, long n, long d, const double *y, double *out) {{
  double ny = 0; for (long j = 0; j < d; j++) ny += y[j] * y[j];
  for (long i = 0; i < n; i++) {{
    double s = 0, nx = 0;
    for (long j = 0; j < d; j++) {{ double a = x[i * d + j], b = y[j]; s += {term}; {norm} }}
    out[i] = finish(s, nx, ny);
  }}
}}
void over_columns(const double *x, long n, long d, const double *y, double *out) {{
  double ny = 0; for (long j = 0; j < d; j++) ny += y[j] * y[j];
  for (long low = 0; low < n; low += 1024) {{
    long high = low + 1024 < n ? low + 1024 : n;
    double s[1024], nx[1024];
    for (long i = 0; i < 1024; i++) {{ s[i] = 0; nx[i] = 0; }}
    for (long j = 0; j < d; j++) {{
      const double *column = x + j * n + low; double b = y[j];
      for (long i = 0; i < high - low; i++) {{ double a = column[i]; s[i] += {term}; {norm_i} }}
    }}
    for (long i = 0; i < high - low; i++) out[low + i] = finish(s[i], nx[i], ny);
  }}
}}
"""
_SQUARED, _ABSOLUTE, _INNER = "(a - b) * (a - b)", "fabs(a - b)", "a * b"


def kernels(d: int) -> list[tuple[Kernel, str, str, Callable[[np.ndarray, np.ndarray], np.ndarray]]]:
    """Return each kernel with its C and numpy forms: kernel, term of the sum, finish, numpy function of (X, y)."""
    sigma = float(np.sqrt(d))
    rate = 0.5 / sigma**2

    def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.sqrt(((x - y) ** 2).sum(axis=1))

    def matern32(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        a = np.sqrt(3) / sigma * distance(x, y)
        return (1 + a) * np.exp(-a)

    def matern52(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        a = np.sqrt(5) / sigma * distance(x, y)
        return (1 + a + a * a / 3) * np.exp(-a)

    a3, a5 = (f"double t = {float(np.sqrt(nu)) / sigma!r} * sqrt(s);" for nu in (3.0, 5.0))
    return [
        (Gaussian(sigma), _SQUARED, f"exp(-{rate!r} * s)", lambda x, y: np.exp(-rate * ((x - y) ** 2).sum(axis=1))),
        (Exponential(sigma), _SQUARED, f"exp(-{rate!r} * sqrt(s))", lambda x, y: np.exp(-rate * distance(x, y))),
        (Laplacian(sigma), _ABSOLUTE, f"exp(-s / {sigma!r})", lambda x, y: np.exp(-np.abs(x - y).sum(axis=1) / sigma)),
        (Matern(sigma, nu=1.5), _SQUARED, f"({{ {a3} (1 + t) * exp(-t); }})", matern32),
        (Matern(sigma, nu=2.5), _SQUARED, f"({{ {a5} (1 + t + t * t / 3) * exp(-t); }})", matern52),
        (Polynomial(degree=4), _INNER, "s * s * s * s", lambda x, y: (x @ y) ** 4),
        (Linear(), _INNER, "s", lambda x, y: x @ y),
        (Cosine(), _INNER, "s / sqrt(nx * ny)", lambda x, y: x @ y / (np.sqrt((x * x).sum(axis=1)) * np.sqrt(y @ y))),
    ]


def compile_c(folder: Path, term: str, finish: str) -> ctypes.CDLL:
    needs_norm = "nx" in finish
    source = _C_TEMPLATE.format(
        term=term,
        finish=finish,
        norm="nx += a * a;" if needs_norm else "",
        norm_i="nx[i] += a * a;" if needs_norm else "",
    )
    file = folder / f"loop{len(list(folder.iterdir()))}.c"
    file.write_text(source)
    library = file.with_suffix(".so")
    subprocess.run(
        ["gcc", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", str(file), "-o", str(library), "-lm"],
        check=True,
    )
    loaded = ctypes.CDLL(str(library))
    for function in (loaded.over_rows, loaded.over_columns):
        function.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    return loaded


def best_times(functions: list[Callable[[], object]], seconds: float) -> list[float]:
    """Return the fastest time of each function, taking turns so that other work on the machine affects all."""
    best = [np.inf] * len(functions)
    for function in functions:
        function()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, function in enumerate(functions):
            begin = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best


def measure(kernel: Kernel, library: ctypes.CDLL, numpy_form: Callable, d: int, seconds: float) -> list[float]:
    """Return million evaluations per second: ours, C over columns, C over rows, numpy."""
    pivots = 8
    points = np.random.default_rng(0).normal(size=(N, d))
    columns, rows = np.ascontiguousarray(points.T), np.ascontiguousarray(points[:pivots])
    out, expected = np.empty((pivots, N)), np.empty((pivots, N))
    compiled = evaluator_of(kernel)

    def ours() -> None:
        passes.block(compiled.values, columns, rows, out)

    def in_c(function: Callable[..., None], data: np.ndarray) -> Callable[[], None]:
        def run() -> None:
            for r in range(pivots):
                function(data.ctypes.data, N, d, rows[r].ctypes.data, expected[r].ctypes.data)

        return run

    def in_numpy() -> None:
        for r in range(pivots):
            numpy_form(points, rows[r])

    by_columns, by_rows = in_c(library.over_columns, columns), in_c(library.over_rows, points)
    times = best_times([ours, by_columns, by_rows, in_numpy], seconds)
    if not np.allclose(out, expected, rtol=1e-9):
        sys.exit(f"{kernel}: the C loop and ours disagree.")
    return [pivots * N / 1e6 / seconds_taken for seconds_taken in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each kernel and dimension (2)")
    parser.add_argument("--out", type=Path, default=Path("docs/results/kernel_speed.md"))
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for d in DIMENSIONS:
            for kernel, term, finish, numpy_form in kernels(d):
                library = compile_c(Path(folder), term, finish)
                ours, c_columns, c_rows, in_numpy = measure(kernel, library, numpy_form, d, options.seconds)
                name = type(kernel).__name__ + (f" {kernel.nu:g}" if isinstance(kernel, Matern) else "")
                speeds = [f"{value:,.0f}" for value in (ours, c_columns, c_rows, in_numpy)]
                ratios = [f"{ours / max(c_columns, c_rows):.2f}x", f"{ours / in_numpy:.1f}x"]
                rows.append([name, d, *speeds, *ratios])
    header = ["kernel", "d", "ours", "C, columns", "C, rows", "numpy", "ours / best C", "ours / numpy"]
    tables.write_results(
        options.out,
        "Kernel evaluations",
        [f"Million evaluations per second, float64, one core, {N:,} points.", tables.table(header, rows)],
    )


if __name__ == "__main__":
    main()
