"""The step from rows to a coreset, by the settings of a job: kernel, degrees, leaves, and their merge."""

from __future__ import annotations

from dataclasses import asdict, replace

from pyspark.sql import Column, DataFrame

from kernelcoreset.clustering.choosing import compare_sigmas
from kernelcoreset.coresets.coreset import Coreset
from kernelcoreset.coresets.recipe import Recipe, leaf_size_of
from kernelcoreset.errors import DataError
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.kernels.kernel import Kernel
from kernelcoreset.models.kernel_kmeans import KernelKMeansModel
from kernelcoreset.spark.columns import Layout
from kernelcoreset.spark.jobs.input import Input
from kernelcoreset.spark.leaves import LeafSettings, Leaves, leaves_by_files, leaves_by_spark, refuse_unusable
from kernelcoreset.spark.means import move_centers
from kernelcoreset.spark.merge import gather, merge_leaves
from kernelcoreset.spark.progress import watched
from kernelcoreset.spark.sample import random_order, sample_degrees, sample_rows
from kernelcoreset.spectral.degrees import Degrees

_SIGMA_SAMPLE = 2_000


def build(
    data: Input,
    settings: Settings,
    record: RunRecord,
    kernel: Kernel | None = None,
    *,
    draw: str = "ordered",
    degrees: Degrees | None = None,
) -> Coreset:
    """Read all rows once and return their coreset; the settings say what to do with bad rows.

    For spectral clustering, either with degrees and the normalized kernel, or drawn uniformly. By default with the
    kernel of the settings.
    """
    kernel = kernel_of_input(data, settings, record) if kernel is None else kernel
    record.add(kernel=repr(kernel))
    leaf_settings = replace(leaf_settings_of(settings, kernel, data.sized_layout, draw), degrees=degrees)
    with record.stage("leaves"), watched(data.spark, "leaves", data.known_rows):
        found = _leaves(data, leaf_settings)
    record.add(rows=found.rows, bad_rows=found.bad.rows, bad_columns=found.bad.counts, leaves=found.leaves)
    refuse_unusable(found, settings.input.bad_rows)
    with record.stage("merge"):
        coreset = merge_leaves(found, leaf_settings)
    record.add(coreset_points=len(coreset), coreset_weight=float(coreset.weights.sum()))
    if settings.coreset.path is not None:
        coreset.write_parquet(settings.coreset.path)
        record.add(coreset=settings.coreset.path)
    return coreset


def refined(data: Input, settings: Settings, record: RunRecord, model: KernelKMeansModel) -> KernelKMeansModel:
    """Return a model whose centers were moved by all rows, as often as `cluster.refine_iter` says."""
    wanted = settings.cluster.refine_iter
    steps = model.usual_refinements if wanted is None else wanted
    if not steps or not model.can_be_refined:
        return model
    with record.stage("refine"), watched(data.spark, "refine", data.known_rows):
        return move_centers(data.frame, data.sized_layout, model, steps, groups=data.leaf_groups)


def _leaves(data: Input, settings: LeafSettings) -> Leaves:
    groups = data.leaf_groups
    if groups is None:
        return gather(leaves_by_spark(data.frame, settings), settings)
    id_col = data.settings.id_col
    id_type = data.frame.schema[id_col].dataType if id_col else None
    leaves = leaves_by_files(data.spark, groups, settings, id_type)
    # The last row groups of a file are often few, and make a small leaf.
    most_leaves = settings.full_leaves(sum(part.rows for part in group) for group in groups)
    return gather(leaves, settings, most_leaves)


def leaf_settings_of(settings: Settings, kernel: Kernel, layout: Layout, draw: str = "ordered") -> LeafSettings:
    """Return what the tasks that build leaves need to know."""
    wanted = settings.coreset
    return LeafSettings(
        Recipe(wanted.k, kernel, wanted.coreset_size, z=wanted.z, draw=draw, seed=wanted.seed),
        leaf_size=leaf_size_of(wanted.coreset_size, wanted.leaf_size),
        layout=layout,
    )


def estimate_degrees(data: Input, settings: Settings, record: RunRecord) -> Degrees:
    """Return the degrees for spectral clustering, estimated from a uniform sample of the rows."""
    layout = data.sized_layout
    # The footers hold the number of rows. If some rows are bad, the smallest degree comes out a little smaller.
    is_counted = data.row_groups is not None and layout.weight_col is None
    total = float(sum(part.rows for part in data.row_groups or ())) if is_counted else None
    kernel = kernel_of_input(data, settings, record)
    found = sample_degrees(data.frame, layout, kernel, settings.spectral.degree_sample, _order(data, settings), total)
    record.add(degree_sample=len(found.points))
    return found


def kernel_of_input(data: Input, settings: Settings, record: RunRecord | None = None) -> Kernel:
    """Return the kernel of the settings; the width is estimated from the rows if the settings ask for it.

    The record gets how it was chosen.
    """
    if settings.kernel.sigma_rule is None:
        return settings.kernel.build()
    return kernel_of_rows(data.frame, data.sized_layout, settings, _order(data, settings), record)


def kernel_of_rows(
    frame: DataFrame, layout: Layout, settings: Settings, order: Column, record: RunRecord | None = None
) -> Kernel:
    """Return the same for a frame of rows in the random order `order`; the layout must have its dimension."""
    rule = settings.kernel.sigma_rule
    if rule is None:
        return settings.kernel.build()
    points, _ = sample_rows(frame, replace(layout, weight_col=None, id_col=None), _SIGMA_SAMPLE, order)
    if not len(points):
        raise DataError("`kernel.sigma` cannot be chosen: there is no row that can be used.")
    k = settings.cluster.k if settings.has("cluster") else settings.coreset.k
    found = compare_sigmas(points, rule, k=k, spectral=settings.has("spectral"), seed=settings.coreset.seed)
    if record is not None:
        record.add(choice={**asdict(found), "reason": found.reason})
    return settings.kernel.build(sigma=found.sigma)


def _order(data: Input, settings: Settings) -> Column:
    return random_order(settings.coreset.seed, by_file=data.row_groups is not None)
