"""What follows from the figures of a run, in plain sentences: how good coreset and clusters are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GOOD, FAIR, POOR, UNKNOWN = "good", "fair", "poor", "unknown"
_SMALL_ERROR, _LARGE_ERROR = 0.02, 0.10
_STABLE, _UNSTABLE = 0.9, 0.6


@dataclass(frozen=True)
class Verdict:
    """A light and what it means.

    Attributes
    ----------
    light : {"good", "fair", "poor", "unknown"}
    state : str
        In a few words.
    follows : str
        What the reader can do with it, in one or two sentences.
    """

    light: str
    state: str
    follows: str


def coreset_verdict(certificate: Mapping[str, Any] | None) -> Verdict:
    """Return how well the coreset stands for all rows, from the certificate of a record.

    Examples
    --------
    >>> coreset_verdict({"largest_error": 0.009}).state
    'costs within 0.90%'
    """
    error = (certificate or {}).get("largest_error")
    if error is None:
        return Verdict(
            UNKNOWN, "not measured", "This run did not compare the coreset with all rows, so nothing is said about it."
        )
    state = f"costs within {error:.2%}"
    if error <= _SMALL_ERROR:
        return Verdict(
            GOOD,
            state,
            f"You can decide on the coreset: of two clusterings whose costs differ by more than {2 * error:.1%} there, "
            "the better one is also better on all rows.",
        )
    larger = "A larger coreset.coreset_size makes the error smaller."
    if error <= _LARGE_ERROR:
        return Verdict(
            FAIR,
            state,
            f"Good enough to find clusters, but two clusterings whose costs differ by less than {2 * error:.0%} cannot "
            f"be told apart. {larger}",
        )
    return Verdict(POOR, state, f"The clusters of the coreset may not be those of all rows. {larger}")


def cluster_verdict(quality: Mapping[str, Any] | None) -> Verdict:
    """Return how far the clusters can be trusted, from the quality in the description of a record.

    Examples
    --------
    >>> cluster_verdict({"stability": 0.97}).light
    'good'
    """
    stability = (quality or {}).get("stability")
    if stability is None:
        return Verdict(UNKNOWN, "not judged", "This run did not judge the clusters, so nothing is said about them.")
    state = f"two halves of the data agree to {stability:.2f}"
    if stability >= _STABLE:
        return Verdict(GOOD, state, "Other rows of the same kind would give the same clusters: give them names.")
    if stability >= _UNSTABLE:
        return Verdict(
            FAIR,
            state,
            "The clusters are there, but some borders would move with other rows. Look at the borderline rows, and try "
            "other numbers of clusters with kernelcoreset.explore.",
        )
    return Verdict(
        POOR,
        state,
        "Other rows of the same kind would give other clusters: do not build on them. kernelcoreset.explore says which "
        "number of clusters and which width hold.",
    )
