"""Files that name a user's function: its module is imported only if the caller said that it is trusted."""

import json
import pickle
import sys

import cloudpickle
import numpy as np
import pytest

import kernelcoreset as kc
from kernelcoreset.jobs import cluster, store_model
from kernelcoreset.jobs.record import RunRecord
from kernelcoreset.jobs.settings.settings import Settings
from kernelcoreset.kernels.trust import VARIABLE, modules_of
from kernelcoreset.spectral.model import load_model
from tests.user_kernels import rational

POINTS = np.random.default_rng(0).normal(size=(40, 2))
TRUSTED = ["tests.user_kernels"]
REFUSED = r"module 'trap_\w+', which is not trusted and was not imported. If you trust it: trusted_modules=\['trap_"


@pytest.fixture
def trap(tmp_path, monkeypatch, request):
    """The name of a module on the path that holds a kernel and leaves a file behind when it is imported."""
    name = f"trap_{abs(hash(request.node.name))}"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{name}.py").write_text(
        f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n\n\ndef dot(x, y):\n    return (x * y).sum()\n"
    )
    yield name
    sys.modules.pop(name, None)


def with_function(content, module):
    """A file of ours whose user kernel is replaced by one of another module, signed again."""
    from kernelcoreset.files.documents import signed

    about = {field: value for field, value in json.loads(content).items() if field != "checksum"}
    text = json.dumps(about).replace("tests.user_kernels:rational", f"{module}:dot")
    return json.dumps(signed(json.loads(text))).encode()


def test_a_kernel(trap, tmp_path, monkeypatch):
    plain = {
        "kernel": "Sum",
        "left": {"kernel": "Linear"},
        "right": {"kernel": "UserKernel", "function": f"{trap}:dot"},
    }
    for trusted in ((), ["os"], [trap[:-1]], [f"{trap}.dot"]):
        with pytest.raises(kc.FormatError, match=REFUSED):
            kc.Kernel.from_dict(plain, trusted_modules=trusted)
    assert not (tmp_path / "sprung").exists()
    assert trap not in sys.modules
    assert kc.Kernel.from_dict(plain, trusted_modules=[trap])([1.0], [2.0]) == 4.0
    assert (tmp_path / "sprung").exists()
    assert modules_of(plain) == (trap,)
    with pytest.raises(kc.FormatError, match="not trusted"):  # also if it happens to be imported
        kc.Kernel.from_dict(plain)
    monkeypatch.setenv(VARIABLE, f"other, {trap}")
    assert kc.Kernel.from_dict(plain)([1.0], [2.0]) == 4.0


def test_a_trusted_package_has_trusted_modules():
    plain = kc.UserKernel(rational).to_dict()
    assert kc.Kernel.from_dict(plain, trusted_modules=["tests"]) == kc.UserKernel(rational)
    with pytest.raises(kc.FormatError, match="not trusted"):
        kc.Kernel.from_dict(plain, trusted_modules=["test"])


@pytest.mark.parametrize("modules", ["tests", [7], ["a b"], [""], None, {"tests": 1}])
def test_trusted_modules_are_a_list_of_names(modules):
    with pytest.raises(kc.SettingError, match="`trusted_modules` must be a list of module names"):
        kc.Kernel.from_dict({"kernel": "Linear"}, trusted_modules=modules)


def test_a_model(trap, tmp_path):
    kernel = kc.UserKernel(rational)
    coreset = kc.build_coreset(POINTS, 2, kernel, 20)
    model = kc.KernelKMeansModel.fit_coreset(coreset, 2, kernel)
    model.save(tmp_path / "model")
    for load in (kc.KernelKMeansModel.load, load_model):
        with pytest.raises(kc.FormatError, match=r"'tests.user_kernels', which is not trusted"):
            load(tmp_path / "model")
        assert load(tmp_path / "model", trusted_modules=TRUSTED).kernel == kernel
    about = tmp_path / "model" / "model.json"
    about.write_bytes(with_function(about.read_bytes(), trap))
    for load in (kc.KernelKMeansModel.load, load_model):
        with pytest.raises(kc.FormatError, match=REFUSED):
            load(tmp_path / "model", trusted_modules=TRUSTED)
    assert not (tmp_path / "sprung").exists()


def test_a_spectral_model(tmp_path):
    kernel = kc.UserKernel(rational)
    kc.fit_spectral(POINTS, 2, kernel, 20, degree_sample=20).save(tmp_path / "model")
    for load in (kc.SpectralModel.load, kc.SpectralClustering.load, load_model):
        with pytest.raises(kc.FormatError, match="not trusted"):
            load(tmp_path / "model")
        load(tmp_path / "model", trusted_modules=TRUSTED)


def test_a_store(tmp_path):
    kernel = kc.UserKernel(rational)
    store = kc.CoresetStore.open_or_create(tmp_path / "store", 2, kernel, 10)
    store.add("a", POINTS)
    with pytest.raises(kc.FormatError, match="not trusted"):
        kc.CoresetStore.open(tmp_path / "store")
    assert kc.CoresetStore.open(tmp_path / "store", trusted_modules=TRUSTED).kernel == kernel
    # Who gives the kernel has imported its module.
    assert kc.CoresetStore.open_or_create(tmp_path / "store", 2, kernel, 10).keys() == ["a"]
    with pytest.raises(kc.FormatError, match="not trusted"):
        kc.CoresetStore.open_or_create(tmp_path / "store", 2, kc.Linear(), 10)


def test_jobs_read_what_run_trusted_modules_says(tmp_path):
    kernel = kc.UserKernel(rational)
    coreset = kc.build_coreset(POINTS, 2, kernel, 20)
    coreset.write_parquet(tmp_path / "coreset.parquet")  # a coreset alone imports nothing
    tables = {
        "input": {"demo_rows": 9, "features": ["x", "y"]},
        "kernel": {"name": "UserKernel", "function": "tests.user_kernels:rational"},
        "coreset": {"k": 2, "coreset_size": 10, "path": str(tmp_path / "coreset.parquet")},
        "store": {"path": str(tmp_path / "store")},
        "run": {"trusted_modules": TRUSTED},
    }
    settings = Settings.from_dict(tables)
    assert Settings.from_dict(settings.to_dict()) == settings
    store = store_model.make_store(settings, settings.kernel.build())
    store.add("a", POINTS)
    found = store_model.find_store(settings, "update")
    tracked, state = store_model.fit_store(found, settings, store_model.JobState(), None, {})
    assert store_model.read_model(found, state.model).kernel == kernel == tracked.model.kernel
    cluster.run(settings, RunRecord("cluster", settings, str(tmp_path / "r.json")))
    untrusting = Settings.from_dict({**tables, "kernel": {"name": "Linear"}, "run": {}})
    with pytest.raises(kc.FormatError, match="not trusted"):
        store_model.find_store(untrusting, "update")
    with pytest.raises(kc.FormatError, match="not trusted"):
        cluster.run(untrusting, RunRecord("cluster", untrusting, str(tmp_path / "r.json")))


def test_kernels_still_travel_to_other_processes():
    kernel = kc.UserKernel(rational) + kc.Linear()
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    assert cloudpickle.loads(cloudpickle.dumps(kernel))([1.0], [2.0]) == kernel([1.0], [2.0])
