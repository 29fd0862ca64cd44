"""Histograms of ratings and weights, and the effect of clipping, for the page of an evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unskew.data.cells import RowNumbers
from unskew.evaluation.weight_changes import EvaluationInputs, Shift
from unskew.metrics import metric_label
from unskew.types import Vector

MAX_RATING_BINS = 20
"""More distinct ratings than this are put into as many bins."""
MAX_DISTINCT_WEIGHTS, WEIGHT_BINS = 8, 16
N_CLIPS = 8
MAX_ROBUSTNESS_CELLS = 1_000_000
"""For longer logs the odds error that reverses a verdict is not computed for a page."""
MEASURED_SELECTION = 5.0
"""The odds error of propensities that ignore ratings, in one log with a random counterpart."""
SMALL_ODDS_ERROR = 1.5
"""An odds error below this is called small on a page."""
MEASURED = (
    "In a public log with ratings of random cells, self-selection that nothing corrected was a "
    f"factor of about {MEASURED_SELECTION:g}"
)


def share_ratings(rating: Vector, weight: Vector | None) -> dict[str, Any]:
    """The share of each rating in the log (``seen``) and among all cells (``corrected``).

    The latter is weighted by 1/P; None without weights. ``low`` and ``high`` are the same if each
    distinct rating has its own bin.
    """
    values, bins = np.unique(rating, return_inverse=True)
    low = high = values
    if values.size > MAX_RATING_BINS:
        edges = np.linspace(values[0], values[-1], MAX_RATING_BINS + 1)
        bins, low, high = _bin(rating, edges), edges[:-1], edges[1:]
    return {
        "low": low.tolist(),
        "high": high.tolist(),
        "seen": _share(bins, low.size, None),
        "corrected": None if weight is None else _share(bins, low.size, weight),
    }


def share_weights(weight: Vector) -> dict[str, Any]:
    """The share of ``rows`` by size of their weight, and the share of all weight they ``held``.

    ``low`` and ``high`` are the same if each distinct weight has its own bin; else bins have equal
    width on a log scale. Weights of zero are counted in the first bin.
    """
    values = np.unique(weight[weight > 0])
    bins, low, high = np.clip(np.searchsorted(values, weight), 0, values.size - 1), values, values
    if values.size > MAX_DISTINCT_WEIGHTS:
        edges = np.geomspace(values[0], values[-1], WEIGHT_BINS + 1)
        bins, low, high = _bin(weight, edges), edges[:-1], edges[1:]
    return {
        "low": low.tolist(),
        "high": high.tolist(),
        "rows": _share(bins, low.size, None),
        "held": _share(bins, low.size, weight),
        "median": float(np.median(weight)),
        "largest": float(values[-1]),
    }


def _share(bins: RowNumbers, n_bins: int, weight: Vector | None) -> list[float]:
    """The share of each bin of all rows, or of all weight."""
    total = bins.size if weight is None else weight.sum()
    shares: list[float] = (np.bincount(bins, weights=weight, minlength=n_bins) / total).tolist()
    return shares


def describe_distributions(inputs: EvaluationInputs | None) -> dict[str, Any]:
    """The JSON of ratings, weights and clipping; null for what does not apply."""
    if inputs is None:
        return {"ratings": None, "weight_shares": None, "clipping": None}
    is_weighted = any(estimator.is_weighted for estimator in inputs.estimators.values())
    weight = inputs.cells.weight if is_weighted and inputs.cells.weight.any() else None
    ratings = weight_shares = clipping = None
    if inputs.rating is not None:
        ratings = share_ratings(inputs.rating, weight)
    if weight is not None:
        weight_shares = share_weights(weight)
        clipping = [asdict(shift) for shift in _clip_estimates(inputs)]
    return {"ratings": ratings, "weight_shares": weight_shares, "clipping": clipping}


@dataclass(frozen=True, slots=True)
class LeadRobustness:
    """How wrong the odds of being logged must be so that the best model can lose its lead."""

    metric: str
    pair: tuple[str, str]
    """The best model and the closest other one."""
    flips_at: float | None
    """The factor of the odds. None if it is not computed for this metric; inf if there is none."""

    @property
    def is_fragile(self) -> bool:
        """Whether a small error of the propensities could change the order."""
        return self.flips_at is not None and self.flips_at < SMALL_ODDS_ERROR

    def describe(self, *, sees_ratings: bool) -> str:
        """In words. ``sees_ratings`` is whether the propensities can depend on ratings.

        If they do not, the self-selection of a real log is the yardstick.
        """
        yardstick = "" if sees_ratings else f" {MEASURED}."
        if self.flips_at is None:
            return (
                "How wrong the odds of being logged may be until this order changes is not "
                f"computed for {metric_label(self.metric)}.{yardstick}"
            )
        order = f"the order of {self.pair[0]} and {self.pair[1]}"
        if np.isinf(self.flips_at):
            return (
                f"However wrong the odds of being logged are, {order} stays; sampling error is not "
                "included."
            )
        text = (
            f"{order[:1].upper()}{order[1:]} would flip if the odds of being logged were wrong by "
            f"a factor of {self.flips_at:.3g} in the worst pattern (1 is right); sampling error is "
            "not included."
        )
        if not sees_ratings:
            is_unsafe = self.flips_at < MEASURED_SELECTION
            return f"{text}{yardstick}{' So this result is not safe.' if is_unsafe else ''}"
        if self.is_fragile:
            text += " That is a small factor: treat the order as open."
        return text


def find_robustness(inputs: EvaluationInputs | None, best: str) -> LeadRobustness | None:
    """Of the first metric by SNIPS or else IPS, against the closest model; weights keep their sum.

    None if there are no weights, no other model, a weight transform, more than a million cells, or
    no lead.
    """
    if inputs is None or inputs.cells.scope.n_observed > MAX_ROBUSTNESS_CELLS:
        return None
    rivals = [model for model in inputs.models if model != best]
    metric, cells = next(iter(inputs.deltas)), inputs.cells
    name = next((each for each in ("snips", "ips") if each in inputs.estimators), None)
    is_plain = cells.weight_transform is None and cells.users.resampling is None
    deltas = inputs.deltas[metric]
    if name is None or not is_plain or not rivals:
        return None
    if deltas.slots is not None or not deltas.is_sum:
        return LeadRobustness(metric, (best, rivals[0]), None)
    varied = [
        inputs.vary(best, rival, metric=metric, estimator=name, constraint="mass")
        for rival in rivals
    ]
    differences = [each.extreme(1.0, is_largest=True).value for each in varied]
    closest = int(np.abs(differences).argmin())
    lead = varied[closest].extreme(1.0, is_largest=True) if varied[closest].has_worst_case else None
    if lead is None or lead.low <= 0 <= lead.high:
        return None
    flips_at = varied[closest].find_flip(is_positive=differences[closest] > 0)
    return LeadRobustness(metric, (best, rivals[closest]), float(flips_at))


def _clip_estimates(inputs: EvaluationInputs) -> list[Shift]:
    """The first metric under clipped weights, by SNIPS or else the first weighted estimator.

    Empty if the weights are transformed or the intervals are bootstrapped.
    """
    cells, weight = inputs.cells, inputs.cells.weight
    if cells.weight_transform is not None or cells.users.resampling is not None:
        return []
    metric = next(iter(inputs.deltas))
    weighted = [name for name, est in inputs.estimators.items() if est.is_weighted]
    name = "snips" if "snips" in weighted else weighted[0]
    limits = np.geomspace(max(np.median(weight), 1.0), weight.max(), N_CLIPS)
    limits[-1] = weight.max()
    varied = [
        inputs.vary(model, metric=metric, estimator=name, constraint=None)
        for model in inputs.models
    ]
    return [each.clip(limit) for limit in sorted(set(limits.tolist())) for each in varied]


def _bin(values: Vector, edges: Vector) -> RowNumbers:
    """The bin of each value; the last bin includes its upper edge."""
    return np.clip(np.searchsorted(edges, values, side="right") - 1, 0, edges.size - 2)
