"""What clusters are, as plain data and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from kernelcoreset.checks import Floats
from kernelcoreset.describing.tally import RowTally
from kernelcoreset.reporting.notebook import card, sentences, verdicts
from kernelcoreset.reporting.verdict import cluster_verdict

_MOST_DIFFERENCES = 5
_FEWEST = 0.1  # standard deviations from which on a difference is worth a word
# A rare value is worth one only if it is much more frequent: of many values, some are a little more so by chance.
_RARE, _MUCH = 0.1, 0.5

_QUALITY = {
    "explained": "The clusters explain {:.0%} of the variance in the feature space.",
    "silhouette": "Silhouette {:.2f}: 1 if every row is at its center, 0 if halfway to another.",
    "stability": "Halves of the data agree to {:.2f}; 1 if they find the same clusters, 0 for chance.",
    "persistence": "Persistence {:.2f}: 1 if walks over nearest neighbors never leave their cluster, 0 for chance.",
    "separation": "Separation {:+.2f}: above 0 if the clusters are farther apart than in data without clusters.",
}
_SAMPLED = "Columns other than the features are described by a sample of {:,} rows."


@dataclass(frozen=True)
class Description:
    """What the clusters of a model are.

    Attributes
    ----------
    clusters : list of dict
        For each cluster: `cluster`, `size` (rows, or their weight), `share`, `differences` (the columns that set it
        apart, most different first: standardised differences of means, or of the share of a value; means of dates are
        texts) and `typical` (the rows nearest to the center).
    far : list of dict
        Rows that are farthest from their center, by the typical distance in their cluster: `outlier_score` and `row`.
    borderline : list of dict
        Rows nearly as near to another cluster: `margin` and `row`; empty if margins were not computed.
    quality : dict
        As `quality_of` returns it.
    sampled : int or None
        How many rows columns other than the features are described by, and typical rows taken from; None if by all.
    """

    clusters: list[dict[str, Any]]
    far: list[dict[str, Any]]
    borderline: list[dict[str, Any]]
    quality: dict[str, float | None]
    sampled: int | None = None

    @staticmethod
    def of(tally: RowTally, sizes: Sequence[float], quality: Mapping[str, float | None]) -> Description:
        """Return the description from the tally of all rows and the sizes of the clusters."""
        total = float(sum(sizes)) or 1.0
        clusters = [
            {
                "cluster": cluster,
                "size": size,
                "share": size / total,
                "differences": _differences(tally, cluster),
                "typical": [row for _, row in tally.nearest[cluster]],
            }
            for cluster, size in enumerate(sizes)
        ]
        far = [{"outlier_score": -score, "row": row} for score, row in tally.farthest]
        borderline = [{"margin": margin, "row": row} for margin, row in tally.borderline]
        sampled = tally.sampled if tally.sampled < tally.rows else None
        return Description(clusters, far, borderline, dict(quality), sampled)

    @property
    def sentences(self) -> list[str]:
        """The description in words: a sentence per cluster, then the quality, and if there is one, the sample."""
        found = [_sentence(cluster) for cluster in self.clusters]
        known = {name: value for name, value in self.quality.items() if value is not None}
        found += [text.format(known[name]) for name, text in _QUALITY.items() if name in known]
        return found if self.sampled is None else [*found, _SAMPLED.format(self.sampled)]

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain data, the sentences included."""
        return {**vars(self), "sentences": self.sentences}

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the sentences, and what follows."""
        follows = verdicts({"Cluster quality": cluster_verdict(self.quality)})
        return card("Clusters", {}, follows, sentences(self.sentences))


def _differences(tally: RowTally, cluster: int) -> list[dict[str, Any]]:
    """The columns in which a cluster differs most from all rows."""
    found = []
    for name, own in tally.numbers.items():
        weight = own["weight"]
        if weight[cluster] <= 0.0:
            continue
        mean = float(np.average(own["mean"], weights=weight))
        variance = float((own["squares"].sum() + weight @ np.square(own["mean"] - mean)) / weight.sum())
        if variance > 0.0:
            apart = (float(own["mean"][cluster]) - mean) / np.sqrt(variance)
            told = _day if name in tally.dates else float
            found.append(
                {"column": name, "difference": apart, "mean": told(own["mean"][cluster]), "overall": told(mean)}
            )
    for name, counts in tally.values.items():
        best = _most_typical(counts, cluster)
        if best is not None:
            found.append({"column": name, **best})
    kept = [each for each in found if abs(each["difference"]) >= _FEWEST]
    return sorted(kept, key=lambda each: -abs(each["difference"]))[:_MOST_DIFFERENCES]


def _most_typical(counts: Mapping[str, Floats], cluster: int) -> dict[str, Any] | None:
    """The value whose share in a cluster is highest above its share in all rows, in standard deviations."""
    table = np.array(list(counts.values()))
    inside, overall = table[:, cluster], table.sum(axis=1)
    if not len(table) or inside.sum() <= 0.0:
        return None
    shares, all_shares = inside / inside.sum(), overall / overall.sum()
    spread = np.sqrt(all_shares * (1.0 - all_shares))
    apart = np.divide(shares - all_shares, spread, out=np.zeros(len(table)), where=spread > 0.0)
    apart[(shares < _RARE) & (apart < _MUCH)] = 0.0
    best = int(apart.argmax())
    return {
        "difference": float(apart[best]),
        "value": list(counts)[best],
        "share": float(shares[best]),
        "overall": float(all_shares[best]),
    }


def _day(seconds: float) -> str:
    """The date that is this many seconds after the start of 1970."""
    return datetime.fromtimestamp(float(seconds), UTC).date().isoformat()


def _sentence(cluster: Mapping[str, Any]) -> str:
    told = [_difference_in_words(each) for each in cluster["differences"]]
    rows = "row" if cluster["size"] == 1 else "rows"
    start = f"Cluster {cluster['cluster']}: {cluster['size']:,.0f} {rows} ({cluster['share']:.1%})"
    return f"{start}; {', '.join(told)}." if told else f"{start}; like all rows in every column."


def _difference_in_words(each: Mapping[str, Any]) -> str:
    if "value" in each:
        return f"{each['column']} is {each['value']} in {each['share']:.0%} (of all rows {each['overall']:.0%})"
    if isinstance(each["mean"], str):
        later = "late" if each["difference"] > 0 else "early"
        return f"{each['column']} is {later}: {each['mean']} on average (of all rows {each['overall']})"
    higher = "high" if each["difference"] > 0 else "low"
    return f"{each['column']} is {higher}: {_told(each['mean'])} on average (of all rows {_told(each['overall'])})"


def _told(number: float) -> str:
    """A number as people write it: 93,333 and not 9.333e+04."""
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e15 else f"{number:.4g}"
