"""What an exploration found, in plain sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelcoreset.clustering.trials import STANDS_OUT, TIE

if TYPE_CHECKING:
    from kernelcoreset.exploring.explore import Exploration, Finding

_SAME = 0.9
_TINY = 0.01


def sentences_of(found: Exploration) -> list[str]:
    """Return the sentences of an exploration: the sample, what to take, each method, and what to doubt."""
    sentences = [_about_sample(found)]
    if found.dominant is not None:
        name, share = found.dominant
        sentences.append(
            f"Column {name} carries {100 * share:.1f} % of the squared distances, so the clusters are those of this "
            "column alone. Set features=kc.Features(), here and in the estimators, to scale the columns."
        )
    sentences.append(_advice(found, recommended_method(found)))
    sentences += [_about_method(found, name) for name in found.findings]
    return sentences + _agreement(found)


def recommended_method(found: Exploration) -> str:
    """Return the simplest method whose best clusters persist about as long as those of any other.

    The default of SpectralClustering comes first, since it has no width to choose; then the other methods, by how
    long their clusters persist.
    """
    top = max(finding.trial.persistence for finding in found.findings.values())
    return next(name for name, finding in found.findings.items() if finding.trial.persistence >= top - TIE)


def _about_sample(found: Exploration) -> str:
    if found.sampled == found.rows:
        return f"All {found.rows:,} rows were clustered with every method, width and number of clusters."
    return f"{found.sampled:,} distinct points stand for {found.rows:,} rows: a uniform sample, clustered in every way."


def _stands_out(found: Exploration, finding: Finding) -> bool:
    return finding.trial.persistence - found.references[finding.trial.k] >= STANDS_OUT


def _advice(found: Exploration, best: str) -> str:
    finding = found.findings[best]
    trial = finding.trial
    if not _stands_out(found, finding):
        return (
            f"Nothing stands out: the clusters of no method persist clearly longer (k = {trial.k}: "
            f"{trial.persistence:.2f}) than those in data without clusters ({found.references[trial.k]:.2f}). Clusters "
            "may still be useful to summarize the data, but their number is a matter of taste."
        )
    same = [name for name in found.findings if name != best and found.agreements[best, name] >= _SAME]
    finders = _listed([_call(best, trial.k, trial.sigma), *same])
    return f"Take k = {trial.k}: {finders}{' find the same clusters' if same else ''}."


def _call(method: str, k: int, sigma: float | None) -> str:
    name = method.partition(" with ")[0]
    if name == "plain k-means":
        return "plain k-means"
    return f"{name}(n_clusters={k})" if sigma is None else f"{name}(n_clusters={k}, sigma={sigma:.3g})"


def _about_method(found: Exploration, name: str) -> str:
    finding = found.findings[name]
    trial = finding.trial
    width = "" if trial.sigma is None else f", sigma {trial.sigma:.3g}"
    words = []
    if finding.stable_widths is not None:
        low, high = finding.stable_widths
        words.append(f"stable over {low:.3g} to {high:.3g}" if high > low else "other widths give other clusters")
    words.append(
        "halves of the data agree" if finding.stability >= _SAME else f"halves agree only to {finding.stability:.2f}"
    )
    if not _stands_out(found, finding):
        words.append("no better than in data without clusters")
    if finding.tied_ks:
        are = "is" if len(finding.tied_ks) == 1 else "are"
        words.append(f"k = {_listed([str(k) for k in finding.tied_ks])} {are} about as good")
    if trial.k == max(found.references):
        words.append("the largest k tried, so try more")
    if finding.shares[-1] < _TINY:
        words.append(f"the smallest cluster has {100 * finding.shares[-1]:.1f} % of the rows")
    return f"{name}{width}, k = {trial.k}: {'; '.join(words)}."


def _agreement(found: Exploration) -> list[str]:
    kernel, plain = "KernelKMeans", "plain k-means"
    neighbors, cut = "SpectralClustering", "SpectralClustering with a kernel"
    sentences = []
    if found.agreements[kernel, plain] >= _SAME:
        sentences.append("Kernel k-means agrees with plain k-means here: you may not need a kernel.")
    if found.agreements[neighbors, plain] >= _SAME:
        sentences.append(
            "Spectral clustering agrees with plain k-means here: the clusters are round enough for either."
        )
    elif _stands_out(found, found.findings[neighbors]):
        sentences.append(
            f"Plain k-means finds other clusters than spectral clustering (adjusted Rand index "
            f"{found.agreements[neighbors, plain]:.2f}): the clusters are not round."
        )
    if found.agreements[neighbors, cut] < _SAME and _stands_out(found, found.findings[neighbors]):
        sentences.append(
            "Nearest neighbors and a kernel give different cuts (adjusted Rand index "
            f"{found.agreements[neighbors, cut]:.2f}): look at the clusters before you trust either."
        )
    return sentences


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
