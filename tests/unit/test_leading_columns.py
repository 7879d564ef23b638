"""Rows in fewer columns, by about their leading principal components."""

import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.labelling.leading_columns import leading_columns

D, K = 400, 12


def topics(n=20_000, seed=0):
    generator = np.random.default_rng(seed)
    middles = 2.0 * generator.normal(size=(K, D))
    return middles[generator.integers(K, size=n)] + 0.7 * generator.normal(size=(n, D))


def reduced(rows, kernel=None, weights=None):
    weights = np.ones(len(rows)) if weights is None else weights
    return leading_columns(rows, weights, K, kernel or kc.Linear(), np.random.default_rng(0))


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [kc.Linear(), kc.Cosine()], ids=repr)
def test_the_distances_of_centers_stay(kernel, kind, offset):
    """All that sets clusters apart is in a few directions, which are among the leading ones."""
    if offset and isinstance(kernel, kc.Cosine):
        pytest.skip("an offset is no offset of unit vectors")
    rows = (topics() + offset).astype(kind)
    vectors = rows.astype(float)
    if isinstance(kernel, kc.Cosine):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = reduced(rows, kernel)
    assert found.rows.shape == (len(rows), 192)
    assert found.rows.dtype == np.float32
    groups = np.random.default_rng(0)
    groups.normal(size=(K, D))
    groups = groups.integers(K, size=len(rows))
    before, after = (np.stack([part[groups == c].mean(axis=0) for c in range(K)]) for part in (vectors, found.rows))
    apart = [np.linalg.norm(part[:, None] - part, axis=2)[np.triu_indices(K, 1)] for part in (before, after)]
    np.testing.assert_allclose(apart[1], apart[0], rtol=2e-3)
    # What is left out is left out of all lengths.
    centred = vectors - vectors.mean(axis=0)
    left = np.square(centred).sum(axis=1).mean() - np.square(found.rows - found.rows.mean(axis=0)).sum(axis=1).mean()
    assert found.left_out == pytest.approx(left, rel=0.02)


def test_the_leading_columns_have_more_variance_than_others():
    """With rows of 400 unequal variances, 192 columns keep at least 0.98 of what the best 192 would."""
    generator = np.random.default_rng(0)
    scales = 1.0 / np.arange(1, D + 1) ** 0.5
    rows = (generator.normal(size=(20_000, D)) * scales) @ np.linalg.qr(generator.normal(size=(D, D)))[0]
    kept = reduced(rows).rows.var(axis=0).sum()
    assert 0.98 * np.square(scales[:192]).sum() < kept < np.square(scales[:192]).sum() * 1.02


def test_weights_count():
    rows = topics(n=4_000)
    rows[::2, :150] *= 30.0  # rows that count for nothing
    weights = np.where(np.arange(4_000) % 2, 1.0, 1e-12)
    alone = reduced(rows[1::2])
    together = reduced(rows, weights=weights)
    assert together.rows[1::2].var(axis=0).sum() == pytest.approx(alone.rows.var(axis=0).sum(), rel=0.02)


@pytest.mark.parametrize(("d", "k"), [(383, K), (400, 201)])
def test_few_columns_are_all_kept(d, k):
    rows = topics(n=2_000)[:, :d] + 7.0
    found = leading_columns(rows, np.ones(2_000), k, kc.Linear(), np.random.default_rng(0))
    assert found.rows.shape == (2_000, d)
    np.testing.assert_allclose(found.rows - found.rows.mean(axis=0), rows - rows.mean(axis=0), atol=1e-4)
    assert found.left_out == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("d", [383, 400])
def test_numbers_beyond_float32_are_left_as_they_are(d):
    rows = topics(n=2_000)[:, :d]
    rows[::100] *= 1e60
    assert reduced(rows) is None
