"""Centers: distances against the naive version, the choice of landmarks, and error messages."""

import pickle

import numpy as np
import pytest

from kernelcoreset import DataError, Gaussian, KernelError, Linear, Polynomial, SettingError, UserKernel
from kernelcoreset.labelling import centers as centers_module
from kernelcoreset.labelling import landmarks as landmarks_module
from kernelcoreset.labelling.centers import LABELS_ONLY, Centers
from kernelcoreset.labelling.landmarks import Chunk, Ladder, cheapest, kernel_noise, pick_landmarks
from tests import naive_centers
from tests.cases import KERNELS, read_only, some_points, spaced_out
from tests.user_kernels import ill, rational


def k_means_like(points, k, kernel=None, seed=0):
    """Coefficients of k cluster means: points go to the nearest of k random ones, with random weights."""
    generator = np.random.default_rng(seed)
    pivots = points[generator.choice(len(points), size=k, replace=False)]
    near = ((points[:, None] - pivots) ** 2).sum(axis=2).argmin(axis=1)
    weights = generator.uniform(0.5, 1.5, size=len(points))
    coefficients = np.where(near == np.arange(k)[:, None], weights, 0.0)
    return coefficients / coefficients.sum(axis=1, keepdims=True)


def centers_of(kernel, s=300, d=2, k=4):
    points = some_points(s, d)
    return Centers(points, k_means_like(points, k), kernel)


def test_distances_and_norms_equal_the_naive_version(kernel):
    centers = centers_of(kernel, s=80)
    points = some_points(1500, 2, seed=1)
    gram = kernel.block(centers.points, centers.points)
    naive = naive_centers.distances(
        kernel.block(points, centers.points), kernel.diagonal(points), gram, centers.coefficients
    )
    noise = 1e-6 * np.sqrt(kernel.diagonal(points).max())  # a square root makes 1e-12 of cancellation 1e-6
    np.testing.assert_allclose(centers.distances(points), naive, rtol=1e-9, atol=noise)
    np.testing.assert_allclose(
        centers.squared_norms, naive_centers.squared_center_norms(gram, centers.coefficients), rtol=1e-10
    )


def test_labels_by_hand():
    centers = Centers([[0.0], [2.0], [10.0]], [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], Linear())
    found = centers.label([[1.0], [5.5], [7.0]], margins=True)
    assert found.labels.tolist() == [0, 0, 1]  # 5.5 is as far from 1 as from 10: the lowest index wins
    assert found.labels.dtype == np.int32
    np.testing.assert_allclose(found.distances, [0.0, 4.5, 3.0], atol=1e-7)
    np.testing.assert_allclose(found.margins, [9.0, 0.0, 3.0], atol=1e-7)


def test_one_center_has_no_second():
    found = Centers([[0.0], [2.0]], [[0.5, 0.5]], Linear()).label([[1.0], [4.0]], margins=True)
    assert found.labels.tolist() == [0, 0]
    assert np.isinf(found.margins).all()


def test_margins_only_on_request():
    assert centers_of(Linear()).label([[0.0, 0.0]]).margins is None


@pytest.mark.parametrize(
    ("kernel", "share"), [(Gaussian(sigma=5.0), 0.99), (Polynomial(degree=4), 0.99), (Linear(), 0.99)], ids=repr
)
def test_a_smooth_kernel_is_labelled_by_landmarks(kernel, share):
    found = centers_of(kernel).label(some_points(3000, 2, seed=1))
    assert found.certified >= share


def test_a_sharp_kernel_is_evaluated_directly():
    # With sigma far below the spacing of the points every feature vector is nearly orthogonal to all others.
    found = centers_of(Gaussian(sigma=1e-3)).label(some_points(3000, 2, seed=1))
    assert found.certified == 0.0
    assert found.distance_error == 0.0


def test_a_function_that_is_not_a_kernel_gets_no_landmarks():
    sparse = centers_of(Linear()).sparse
    assert list(pick_landmarks(UserKernel(ill), sparse)) == []
    assert list(pick_landmarks(Linear(), sparse)) != []


def test_polynomial_in_the_plane_needs_its_rank():
    centers = centers_of(Polynomial(degree=4))
    *_, largest = pick_landmarks(centers.kernel, centers.sparse)
    assert len(largest.pivots) == 5


def test_exact_distances_are_the_direct_ones():
    centers = centers_of(Gaussian(sigma=5.0))
    points = some_points(3000, 2, seed=1)
    found = centers.label(points, exact_distances=True)
    assert (found.certified, found.distance_error) == (0.0, 0.0)
    np.testing.assert_array_equal(found.distances, centers.distances(points).min(axis=1))


def test_predict_gives_the_labels_of_label(kernel):
    centers = centers_of(kernel, s=120)
    points = some_points(2000, 2, seed=1)
    np.testing.assert_array_equal(centers.predict(points), centers.label(points, exact_distances=True).labels)


def test_the_first_few_points_are_predicted_without_preparation():
    points = some_points(300, 2)
    centers = Centers(points, np.kron(np.eye(3), np.full(100, 0.01)), Gaussian(sigma=6.0))
    rows = some_points(900, 2, seed=4)
    direct = centers.label(rows, exact_distances=True).labels
    first = centers.predict(rows[:300])
    assert LABELS_ONLY not in vars(centers)["_ladders"]
    second = centers.predict(rows[300:])
    assert LABELS_ONLY in vars(centers)["_ladders"]
    np.testing.assert_array_equal(np.concatenate([first, second]), direct)


def test_a_result_does_not_depend_on_the_other_points(monkeypatch):
    centers = centers_of(Gaussian(sigma=3.0))
    points = some_points(5000, 2, seed=1)
    whole = centers.label(points, margins=True)
    for module in (centers_module, landmarks_module):
        monkeypatch.setattr(module, "CHUNK", 700)
    columns = np.ascontiguousarray(points.T)
    for other in (centers.label(points, margins=True), centers.label_rows(columns.T, margins=True)):
        np.testing.assert_array_equal(other.labels, whole.labels)
        np.testing.assert_allclose(other.distances, whole.distances, rtol=1e-12)
        np.testing.assert_allclose(other.margins, whole.margins, rtol=1e-9)
        assert (other.certified, other.distance_error) == (whole.certified, pytest.approx(whole.distance_error))


def test_no_columns_no_labels():
    found = centers_of(Linear()).label_rows(np.empty((0, 2)), margins=True)
    assert (len(found.labels), len(found.distances), len(found.margins), found.certified) == (0, 0, 0, 0.0)


@pytest.mark.parametrize("change", [read_only, spaced_out, np.asfortranarray, np.ndarray.tolist])
def test_every_memory_layout_gives_the_same(change):
    centers = centers_of(Gaussian(sigma=3.0))
    points = some_points(500, 2, seed=1)
    np.testing.assert_array_equal(centers.label(change(points)).distances, centers.label(points).distances)


@pytest.mark.parametrize("kernel", [Gaussian(sigma=3.0), UserKernel(rational)], ids=repr)
def test_pickling_leaves_out_what_was_prepared_and_changes_no_result(kernel):
    centers = centers_of(kernel)
    points = some_points(500, 2, seed=1)
    before = centers.label(points)
    packed = pickle.dumps(centers)
    assert len(packed) < 3 * (centers.points.nbytes + centers.coefficients.nbytes)
    after = pickle.loads(packed).label(points)
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(after.distances, before.distances)


def test_centers_cannot_be_changed():
    points, coefficients = np.eye(2), np.eye(2)
    centers = Centers(points, coefficients, Linear())
    with pytest.raises(ValueError, match="read-only"):
        centers.points[0, 0] = 3.0
    points[0, 0] = 7.0
    assert centers.points[0, 0] == 1.0


def test_unused_coreset_points_cost_nothing():
    points = some_points(50, 2)
    coefficients = np.zeros((2, 50))
    coefficients[0, 3] = coefficients[1, 7] = 1.0
    assert len(Centers(points, coefficients, Linear()).combinations.rows.points) == 2


def test_cheapest_chooses_the_least_work():
    assert cheapest([10.0, 100.0], [0.0, 0.0], 1000.0) == [0]
    assert cheapest([10.0, 100.0], [1.0, 0.0], 1000.0) == [1]
    assert cheapest([10.0, 100.0], [0.5, 0.0], 1000.0) == [0, 1]  # 10 + 50 against 100
    assert cheapest([10.0, 100.0], [1.0, 1.0], 1000.0) == []
    assert cheapest([950.0], [0.0], 1000.0) == []  # less than a tenth saved
    assert cheapest([], [], 1000.0) == []


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if "User" not in repr(kernel)], ids=repr)
@pytest.mark.parametrize("d", [1, 3, 40])
def test_kernel_noise_covers_the_rounding_of_a_kernel_value(kernel, d):
    # The same kernel on the same points rounds differently if the coordinates are in another order.
    points = some_points(60, d) * 3.0
    order = np.random.default_rng(0).permutation(d)
    scale = np.sqrt(kernel.diagonal(points))
    gap = np.abs(kernel.block(points, points) - kernel.block(points[:, order], points[:, order]))
    assert (gap <= 2 * kernel_noise(kernel, d) * np.outer(scale, scale)).all()


@pytest.mark.parametrize("method", ["label", "predict", "distances"])
def test_bad_points_are_refused(method):
    centers = centers_of(Linear())
    with pytest.raises(DataError, match="`points` must have 2 columns like the centers; got 3"):
        getattr(centers, method)(np.zeros((4, 3)))
    with pytest.raises(DataError, match="first at row 1, column 0: nan"):
        getattr(centers, method)([[0.0, 0.0], [np.nan, 0.0]])


def test_bad_centers_are_refused():
    with pytest.raises(DataError, match=r"`coefficients` must sum to 1 .* row 1 sums to 0.5\. Divide each row"):
        Centers(np.eye(2), [[1.0, 0.0], [0.5, 0.0]], Linear())
    with pytest.raises(DataError, match="column 0, the widest, ranges over 1e-160"):
        Centers([[0.0], [1e-160]], np.eye(2), Linear())
    with pytest.raises(DataError, match=r"`coefficients` must have shape \(k, 2\), one column per point; got \(1, 3\)"):
        Centers(np.eye(2), np.ones((1, 3)), Linear())
    with pytest.raises(DataError, match="`coefficients` must be finite"):
        Centers(np.eye(2), [[np.inf, 0.0]], Linear())
    with pytest.raises(SettingError, match="`kernel` must be a kernel object"):
        Centers(np.eye(2), np.eye(2), "rbf")


@pytest.mark.parametrize("method", ["label", "predict", "distances"])
def test_overflow_is_named(method):
    centers = centers_of(Polynomial(degree=4))
    with pytest.raises(KernelError, match="overflows"):
        getattr(centers, method)([[1e60, 1e60]])


def test_repr_says_what_it_is():
    assert repr(centers_of(Linear())) == "Centers(4 of 300 points in 2 dimensions, Linear())"
    assert len(centers_of(Linear())) == 4


class NumbersUpTo:
    """Stands for a method that proves the points x <= level, and notes which points it sees."""

    def __init__(self):
        self.seen = []

    def new(self, n):
        return (np.empty(n),)

    def by_landmarks(self, level, cloud, out, sure):
        self.seen.append((level, cloud.columns[0].tolist()))
        sure[:] = cloud.columns[0] <= level
        out[0][:] = 10.0 * cloud.columns[0] + level
        return 0.1 * level

    def directly(self, chunk, out):
        self.seen.append(("directly", chunk.columns[0].tolist()))
        out[0][:] = -chunk.columns[0]
        return 0, 0.0


def chunk_of(numbers):
    return Chunk(slice(0, len(numbers)), np.array([numbers]).T, Linear())


def test_a_ladder_passes_on_only_the_points_without_a_proof():
    method, out = NumbersUpTo(), np.empty(5)
    assert Ladder(method, (2.0, 4.0)).run(chunk_of([3.0, 1.0, 4.0, 2.0, 5.0]), (out,)) == (4, pytest.approx(0.4))
    assert method.seen == [(2.0, [3, 1, 4, 2, 5]), (4.0, [3, 4, 5]), ("directly", [5])]
    assert out.tolist() == [34.0, 12.0, 44.0, 22.0, -5.0]


def test_a_ladder_stops_when_all_points_have_a_proof():
    method = NumbersUpTo()
    assert Ladder(method, (2.0, 4.0)).run(chunk_of([1.0, 2.0]), (np.empty(2),)) == (2, 0.2)
    assert len(method.seen) == 1


def test_landmarks_of_many_centers_give_the_labels_of_direct_evaluation():
    """Above 64 centers, landmarks are picked for random sums of the centers, and zeros are left out of products."""
    generator = np.random.default_rng(0)
    points = generator.normal(scale=3.0, size=(900, 2))
    owner = generator.integers(90, size=900)
    coefficients = np.zeros((90, 900))
    coefficients[owner, np.arange(900)] = 1.0 / np.bincount(owner, minlength=90)[owner]
    centers = Centers(points, coefficients, Gaussian(sigma=4.0))
    rows = generator.normal(scale=3.0, size=(2_000, 2))
    found = centers.label(rows)
    assert found.certified > 0.5
    assert (found.labels == centers.label(rows, exact_distances=True).labels).all()
    np.testing.assert_allclose(
        centers.sparse.gram, coefficients @ centers.kernel.block(points, points) @ coefficients.T
    )
