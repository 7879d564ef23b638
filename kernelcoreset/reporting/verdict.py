"""What follows from the figures of a run, in plain sentences: how good coreset and clusters are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GOOD, FAIR, POOR, UNKNOWN = "good", "fair", "poor", "unknown"
_SMALL_ERROR, _LARGE_ERROR = 0.02, 0.10
_STABLE, _UNSTABLE = 0.9, 0.6
# The silhouette of data without clusters differs from its reference by less, if the data are not very skewed.
_APART = 0.05


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
    if error == math.inf:
        return Verdict(
            POOR,
            "costs where the rows have none",
            "The coreset does not stand for these rows. Are they the rows that it was built from?",
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

    Two questions: would other rows give the same clusters (`stability`), and do they lie farther apart than in data
    without clusters (`separation`)? Two times yes is good, one doubt is fair, two are poor, and so is a clear no to the
    first. Neither question depends on the width of the kernel, as variance explained and silhouette do.

    Examples
    --------
    >>> cluster_verdict({"stability": 0.97, "separation": 0.3}).light
    'good'
    >>> cluster_verdict({"stability": 0.97, "separation": 0.01}).state
    'two halves of the data agree to 0.97, separation +0.01'
    """
    stability, separation = ((quality or {}).get(name) for name in ("stability", "separation"))
    if stability is None:
        return Verdict(UNKNOWN, "not judged", "This run did not judge the clusters, so nothing is said about them.")
    measured = "not measured" if separation is None else f"{separation:+.2f}"
    state = f"two halves of the data agree to {stability:.2f}, separation {measured}"
    is_apart = separation is not None and separation >= _APART
    if stability < _UNSTABLE:
        return Verdict(
            POOR,
            state,
            "Other rows of the same kind would give other clusters: do not build on them. kernelcoreset.explore says "
            "which number of clusters and which width hold.",
        )
    if stability >= _STABLE and is_apart:
        return Verdict(
            GOOD,
            state,
            "Other rows of the same kind would give the same clusters, and they lie apart: give them names.",
        )
    if is_apart:
        return Verdict(
            FAIR,
            state,
            "The clusters lie apart, but some borders would move with other rows. Look at the borderline rows, and try "
            "other numbers of clusters with kernelcoreset.explore.",
        )
    if stability >= _STABLE:
        between = (
            "whether they lie apart was not measured"
            if separation is None
            else "they lie no farther apart than parts of data without clusters"
        )
        return Verdict(
            FAIR,
            state,
            f"Other rows of the same kind would give the same clusters, but {between}. Use them to divide the rows, "
            "not as groups of their own; kernelcoreset.explore says whether another number of clusters stands out.",
        )
    return Verdict(
        POOR,
        state,
        "The clusters are parts of one cloud, and their borders would move with other rows: do not give them names. "
        "kernelcoreset.explore says whether another number of clusters or another width stands out.",
    )


def confidence_in_words(proved: Mapping[str, Any]) -> str:
    """Return what to add to a sentence about what is proved: nothing if all rows were looked at."""
    return f", with {proved['confidence']:.0%} confidence" if (proved.get("confidence") or 1.0) < 1.0 else ""
