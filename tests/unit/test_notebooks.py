"""What notebooks show: readable texts, cards that are well formed and escaped, plots, and steps of a verbose fit."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

import kernelcoreset as kc
from kernelcoreset.graphs.model import fit_graph
from kernelcoreset.reporting.notebook import card, picture_chart
from kernelcoreset.reporting.style import card_css
from tests.unit.test_reporting import EVIL, Page, fitted

BLOCKS = sp.csr_matrix(np.kron(np.eye(2), np.ones((5, 5))) - np.eye(10))
MODELS = {
    "KernelKMeansModel": lambda points: fitted()[0],
    "NeighborModel": lambda points: kc.fit_neighbors(points, k=3, size=60),
    "SpectralModel": lambda points: kc.fit_spectral(points, k=3, kernel=kc.Gaussian(sigma=2.0), size=60),
    "GraphModel": lambda points: fit_graph(BLOCKS, k=2),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_what_it_is(name):
    model = MODELS[name](fitted()[1])
    assert type(model).__name__ == name
    text = repr(model)
    assert text.startswith(f"{type(model).__name__}(")
    assert len(text) < 200
    page = Page(model._repr_html_())
    assert type(model).__name__ in page.text
    assert page.tags.count("tr") == model.k + 1
    assert ("circle" in page.tags) == hasattr(model, "picture")


def test_a_coreset_a_certificate_and_a_description_are_cards():
    model, points = fitted()
    assert "92" in Page(model.coreset._repr_html_()).text
    certificate = model.coreset.certify(points)
    assert "Coreset error: " in Page(certificate._repr_html_()).text
    assert "Cluster quality: good" in Page(model.describe()._repr_html_()).text


def test_an_exploration_is_a_card():
    _, points = fitted()
    found = kc.explore(points, ks=[2, 3])
    page = Page(found._repr_html_())
    assert page.tags.count("tr") == len(found.findings) + 1
    for sentence in found.sentences:
        assert sentence in page.text


def test_texts_of_a_card_are_escaped():
    page = card(EVIL, {EVIL: EVIL})
    assert Page(page).text.count(EVIL) == 3
    model, _ = fitted()
    assert EVIL in picture_chart(model.picture([EVIL, "y"])).replace("&lt;", "<").replace("&gt;", ">").replace(
        "&#x27;", "'"
    ).replace("&quot;", '"').replace("&amp;", "&")


def test_the_style_of_a_card_stays_within_it():
    rules = re.sub(r"@media[^{]*\{", "", card_css())
    selectors = [part.strip() for found in re.findall(r"([^{}]+)\{", rules) for part in found.split(",")]
    assert selectors
    assert all(selector.startswith(".kc-card") for selector in selectors)


@pytest.mark.parametrize("estimator", [kc.KernelKMeans, kc.SpectralClustering, kc.StreamingKernelKMeans])
def test_an_estimator_is_shown_with_its_clusters(estimator):
    _, points = fitted()
    model = estimator(3, random_state=0)
    assert "Not fitted yet" in model._repr_mimebundle_()["text/html"]
    bundle = model.fit(points)._repr_mimebundle_(include=None)
    assert bundle["text/plain"] == repr(model)
    assert estimator.__name__ in bundle["text/html"]
    assert "kc-card" in bundle["text/html"]


def test_a_plot_has_all_clusters():
    import matplotlib.pyplot as plt

    model, _ = fitted()
    axes = model.plot()
    assert len(axes.collections) == 3
    assert sum(len(part.get_offsets()) for part in axes.collections) == len(model.coreset)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x0", "x1")
    assert kc.fit_neighbors(fitted(names=("a", "b", "c"))[1], 3, 50).plot().get_xlabel() == "first component"
    plt.close("all")


@pytest.mark.parametrize(
    ("estimator", "steps"),
    [
        (
            kc.KernelKMeans(3, random_state=0, coreset_size=50),
            ["kernel", "coreset of 300", "labelling 300"],
        ),
        (kc.KernelKMeans(3, kernel="linear", random_state=0, coreset_size=50), ["moving the centers", "labelling"]),
        (kc.SpectralClustering(3, random_state=0), ["nearest neighbors", "labelling 300"]),
        (kc.SpectralClustering(3, sigma=2.0, random_state=0), ["degrees of 300", "coreset", "labelling"]),
        (kc.StreamingKernelKMeans(3, random_state=0), ["a batch of 300 rows", "clustering 300 rows"]),
    ],
    ids=repr,
)
def test_a_verbose_fit_tells_its_steps(estimator, steps, capsys):
    _, points = fitted()
    quiet = estimator.fit(points).labels_
    assert capsys.readouterr().out == ""
    loud = estimator.set_params(verbose=True).fit(points).labels_
    out = capsys.readouterr().out
    assert re.search(".*".join(steps), out, re.DOTALL)
    assert all(re.fullmatch(r".+ \.\.\. \d+\.\d\d s", line) for line in out.splitlines())
    np.testing.assert_array_equal(quiet, loud)
