"""Small matrices on one thread: a limit within a block, and nothing changed after it."""

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import kernelcoreset as kc
from kernelcoreset.blas import one_blas_thread
from kernelcoreset.describing.quality import quality_of


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    """Also where the environment allows one thread only, as the test command does."""
    import scipy.linalg  # noqa: F401

    with ThreadpoolController().limit(limits=2, user_api="blas"):
        yield


@pytest.mark.usefixtures("two_threads")
def test_the_limit_ends_with_the_block():
    assert blas_threads() == {2}
    with one_blas_thread():
        assert blas_threads() == {1}
        with one_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        1 / 0  # noqa: B018
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_threads")
def test_quality_is_judged_on_one_thread():
    points = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0.0], [9.0]], 30, axis=0)
    model = kc.KernelKMeansModel.fit_coreset(kc.Coreset(points, np.ones(60)), 2, kc.Gaussian(3.0))
    seen = []

    def fit(coreset):
        seen.append(blas_threads())
        return model.similar_fit(coreset)

    quality_of(model.coreset, model.coreset_labels, fit, model.kernel)
    assert seen == [{1}] * 8  # three pairs of halves, and two clouds without clusters
    assert blas_threads() == {2}
