"""The figures, from the tables: PNG and SVG. Colours that every kind of eye tells apart, and a mark for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper import alternatives, kmeans, spectral, variations
from benchmarks.paper.cells import Row, Table
from benchmarks.paper.data import DATA_SETS

# Okabe and Ito's colours.
_STYLES: dict[str, tuple[str, str, str]] = {
    "uniform": ("#999999", "s", "uniform sample"),
    "iid": ("#E69F00", "^", "paper's draw (iid)"),
    "ordered": ("#0072B2", "o", "ours (ordered)"),
    "tree": ("#009E73", "D", "ours, Spark tree"),
    "spark": ("#000000", "*", "ours, run on Spark"),
    kmeans.PLAIN: ("#D55E00", "s", "k-means++ on all points"),
    kmeans.CORESET: ("#0072B2", "o", "k-means++ on a coreset"),
    kmeans.SOLVED: ("#009E73", "D", "our solver on a coreset"),
    spectral.THEIRS: ("#D55E00", "s", "scikit-learn"),
    "uniform sample": ("#999999", "s", "uniform sample"),
    "random Fourier features": ("#E69F00", "^", "random Fourier features"),
    "Nystroem, uniform": ("#56B4E9", "v", "Nystroem, uniform"),
    "Nystroem, leverage": ("#009E73", "D", "Nystroem, leverage scores"),
    "sampled centers (Chitta)": ("#CC79A7", "P", "approximate kernel k-means"),
    "mini-batch": ("#D55E00", "X", "mini-batch kernel k-means"),
    alternatives.FULL: ("#000000", "*", "kernel k-means, all points"),
}
_KERNELS = {"Gaussian": "Gaussian (RBF)", "Exponential": "RBF as printed", "Polynomial": "polynomial"}
_LABEL = 9


def check_installed() -> None:
    """Import what draws the figures, so that a missing package is told before hours of measuring."""
    import matplotlib as mpl  # noqa: F401


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "kernelcoreset"  # the same figure gives the same file
    from matplotlib import pyplot as plt

    plt.rcParams.update({"font.size": _LABEL, "axes.titlesize": 10, "axes.grid": True, "grid.alpha": 0.3})
    return plt


def _save(plt: Any, figure: Any, path: Path) -> None:
    figure.savefig(path.with_suffix(".png"), dpi=130)
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def _line(axis: Any, rows: Iterable[Row], x: str, y: str, method: str, *, scale: float = 1.0, **options: Any) -> None:
    chosen = sorted((row for row in rows if math.isfinite(float(row[y]))), key=lambda row: float(row[x]))
    colour, mark, label = _STYLES[method]
    style = {"color": colour, "marker": mark, "markersize": 10 if mark == "*" else 5, "label": label, **options}
    axis.plot([row[x] for row in chosen], [scale * row[y] for row in chosen], **style)


def _legend(figure: Any, axis: Any, columns: int) -> None:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)


def _plain_numbers(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_xticks(ticks, [f"{tick:,.12g}" for tick in ticks])
    axis.minorticks_off()


def plot_error(table: Table, path: Path) -> None:
    """Figure 1: one row per kernel, one column per data set; the band is one standard deviation."""
    plt = _pyplot()
    names = list(dict.fromkeys(row["data"] for row in table.rows))
    kernels = list(dict.fromkeys(row["kernel"] for row in table.rows))
    figure, axes = plt.subplots(
        len(kernels), len(names), figsize=(2.9 * len(names) + 0.6, 2.5 * len(kernels) + 0.8),
        sharex=True, sharey=True, layout="constrained", squeeze=False,
    )  # fmt: skip
    for i, kernel in enumerate(kernels):
        for j, name in enumerate(names):
            axis = axes[i, j]
            for method in ("uniform", "iid", "ordered", "tree", "spark"):
                rows = table.where(data=name, kernel=kernel, method=method)
                if not rows:
                    continue
                # The tree lies upon the single draw: hollow and dashed, both are seen.
                through = {"markerfacecolor": "none", "linestyle": "--", "markersize": 8} if method == "tree" else {}
                _line(axis, rows, "size", "mean", method, scale=100.0, **through)
                rows = sorted(rows, key=lambda row: float(row["size"]))
                low = [100 * max(row["mean"] - row["sd"], row["least"]) for row in rows]
                high = [100 * (row["mean"] + row["sd"]) for row in rows]
                axis.fill_between([row["size"] for row in rows], low, high, color=_STYLES[method][0], alpha=0.15, lw=0)
            axis.axhline(10.0, color="black", lw=0.8, ls=":")
            axis.set(xscale="log", yscale="log")
            _plain_numbers(axis, sorted({row["size"] for row in table.rows}))
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            if i == 0:
                axis.set_title(DATA_SETS[name].title.replace(" (", "\n("))
            if i == len(kernels) - 1:
                axis.set_xlabel("coreset points")
        axes[i, 0].set_ylabel(f"{_KERNELS[kernel]}\nlargest error (%)")
    _legend(figure, axes[0, 0], 5)
    _save(plt, figure, path)


def plot_kmeans(table: Table, path: Path) -> None:
    """Figure 2: time above, error below, one column per kernel."""
    plt = _pyplot()
    kernels = list(dict.fromkeys(row["kernel"] for row in table.rows))
    figure, axes = plt.subplots(2, len(kernels), figsize=(8.4, 6.2), sharex=True, sharey="row", layout="constrained")
    for j, kernel in enumerate(kernels):
        full = table.where(kernel=kernel, method=kmeans.PLAIN)[0]
        axes[0, j].axhline(full["seconds"], color=_STYLES[kmeans.PLAIN][0], label=_STYLES[kmeans.PLAIN][2])
        axes[1, j].axhline(0.0, color=_STYLES[kmeans.PLAIN][0])
        for method in (kmeans.CORESET, kmeans.SOLVED):
            rows = [
                {**row, "above": 100 * (row["cost_least"] / full["cost_least"] - 1)}
                for row in table.where(kernel=kernel, method=method)
            ]
            _line(axes[0, j], rows, "size", "seconds", method)
            _line(axes[1, j], rows, "size", "above", method)
        axes[0, j].set(title=f"{_KERNELS[kernel]}, {full['n']:,} points of Twitter", xscale="log", yscale="log")
        axes[1, j].set(xlabel="coreset points", xscale="log")
        axes[1, j].set_yscale("symlog", linthresh=0.1)
        axes[1, j].axhline(5.0, color="black", lw=0.8, ls=":")
        axes[1, j].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        _plain_numbers(axes[1, j], sorted({row["size"] for row in table.where(method=kmeans.CORESET)}))
    axes[0, 0].set_ylabel("processor seconds per run, mean")
    axes[1, 0].set_ylabel("least cost on all points,\nabove the best without coreset (%)")
    _legend(figure, axes[0, 0], 3)
    _save(plt, figure, path)


def plot_spectral(table: Table, path: Path) -> None:
    """Figure 3: time above, normalized cut below; the dotted line goes on as scikit-learn's times grow."""
    plt = _pyplot()
    kernels = list(dict.fromkeys(row["kernel"] for row in table.rows))
    figure, axes = plt.subplots(2, len(kernels), figsize=(8.4, 6.2), sharex=True, layout="constrained")
    axes[0, 1].sharey(axes[0, 0])  # the cuts of two kernels have nothing in common
    for j, kernel in enumerate(kernels):
        ours, theirs = (table.where(kernel=kernel, method=method) for method in (spectral.OURS, spectral.THEIRS))
        _line(axes[0, j], ours, "n", "seconds", kmeans.CORESET, label="ours")
        _line(axes[0, j], theirs, "n", "seconds", spectral.THEIRS)
        last = max(theirs, key=lambda row: float(row["n"]))
        ahead = spectral.expected_seconds(theirs, spectral.LARGEST)[0]
        axes[0, j].plot(
            [last["n"], spectral.LARGEST], [last["seconds"], ahead], ":", color=_STYLES[spectral.THEIRS][0],
            label="scikit-learn, expected from its growth",
        )  # fmt: skip
        _line(axes[1, j], ours, "n", "cut_least", kmeans.CORESET)
        _line(axes[1, j], theirs, "n", "cut_least", spectral.THEIRS)
        axes[0, j].set(title=f"{_KERNELS[kernel]}, Twitter", xscale="log", yscale="log")
        axes[1, j].set(xlabel="points", xscale="log")
    axes[0, 0].set_ylabel("seconds per run, mean")
    axes[1, 0].set_ylabel("least normalized cut")
    _legend(figure, axes[0, 0], 3)
    _save(plt, figure, path)


def plot_alternatives(table: Table, path: Path) -> None:
    """Time against cost above the best known, a panel a data set; a line joins one method's sizes."""
    plt = _pyplot()
    names = [name for name in (*alternatives.SETS, alternatives.LARGE) if table.where(data=name)]
    figure, axes = plt.subplots(1, len(names), figsize=(3.3 * len(names), 4.6), sharey=True, layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        rows = [row for row in table.where(data=name) if row["method"] in alternatives.METHODS]
        best = min(row["cost_least"] for row in rows)
        for method in alternatives.METHODS:
            own = [{**row, "above": 100 * (row["cost_mean"] / best - 1)} for row in rows if row["method"] == method]
            _line(
                axis,
                own,
                "seconds",
                "above",
                method,
                label="ours (coreset)" if method == "coreset" else _STYLES[method][2],
            )
            if own and method != alternatives.FULL:
                smallest = min(own, key=lambda row: float(row["size"]))
                place = (smallest["seconds"], smallest["above"])
                axis.annotate(f"{smallest['size']}", place, (3, 3), textcoords="offset points", fontsize=7)
        axis.set(title=f"{_title(name)}, {rows[0]['n']:,} points", xlabel="processor seconds,\nfrom points to labels")
        axis.set_xscale("log")
        axis.set_yscale("symlog", linthresh=0.01)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.xaxis.set_minor_formatter(lambda *_: "")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0].set_ylim(bottom=-0.002)
    axes[0].set_ylabel("cost on all points, mean,\nabove the best found (%)")
    _legend(figure, axes[0], 4)
    _save(plt, figure, path)


def _title(name: str) -> str:
    return DATA_SETS[name].title if name in DATA_SETS else "Twitter-like"


def plot_variations(table: Table, path: Path) -> None:
    """Error against k, z, dimension, number of points; with one small cluster also how often it is found."""
    plt = _pyplot()
    figure, axes = plt.subplots(2, 3, figsize=(11.0, 6.6), layout="constrained")
    panels = [
        ("k", "k", "clusters k", True),
        ("z", "z", "power z of the distance", False),
        ("dimension", "dimension", "dimension", True),
        ("points", "n", "points n", True),
    ]
    for axis, (what, title, label, is_log) in zip(axes.flat, panels, strict=False):
        for method in variations.METHODS:
            _line(axis, table.where(what=what, method=method), "value", "mean", method, scale=100.0)
        size = table.where(what=what)[0]["size"]
        axis.set(title=f"varying {title}, {size:,} coreset points", xlabel=label, ylabel="largest error (%)")
        axis.set(xscale="log" if is_log else "linear")
        _plain_numbers(axis, sorted({row["value"] for row in table.where(what=what)}))
    for axis, value, label in (
        (axes[1, 1], "mean", "largest error (%)"),
        (axes[1, 2], "found", "runs that find it (%)"),
    ):
        for method in variations.METHODS:
            _line(axis, table.where(what="skew", method=method), "size", value, method, scale=100.0)
        axis.set(xscale="log", xlabel="coreset points", ylabel=label, title="one cluster with 0.1 % of the points")
        _plain_numbers(axis, sorted({row["size"] for row in table.where(what="skew")}))
    errors = axes.flat[:5]
    for axis in errors:
        axis.set(yscale="log", ylim=(0.1, 100.0))  # the same everywhere: what matters is how far the lines lie apart
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _legend(figure, axes[0, 0], 3)
    _save(plt, figure, path)
