"""Estimates under other weights, and distributions of ratings and weights, from an evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from unskew.data.cells import RowNumbers
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.estimators.estimate import Interval
from unskew.estimators.observed import Deltas, ObservedCells
from unskew.estimators.odds import Constraint, FixedSums, WeightBox, move_to_extreme
from unskew.estimators.point import Estimator
from unskew.estimators.transforms import Clip
from unskew.metrics import metric_label
from unskew.settings import is_finite_number
from unskew.types import Vector

CLIP = "clip"
ODDS_ERROR = "odds_error"
LARGEST_ODDS_ERROR = 1e6
"""An order of two models that holds up to this odds error is reported to hold at any."""
GRID_STEP = 0.02
"""Step in log odds error of the search for the first sign change of a confidence limit."""
WIDE_FROM = 3.0
"""From this log odds error on, steps are five times as wide."""
SMOOTH_FROM = 10_000
"""Cells from which the limit is so smooth in the odds error that twice the step is enough."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EvaluationInputs:
    """What an evaluation was computed from: references to arrays, not copies."""

    models: tuple[str, ...]
    level: float
    deltas: Mapping[str, Deltas]
    """By metric."""
    cells: ObservedCells
    estimators: Mapping[str, Estimator]
    """By name."""
    rating: Vector | None = None

    def vary(
        self,
        first: str,
        second: str | None = None,
        *,
        metric: str,
        estimator: str,
        constraint: Constraint | None,
    ) -> VariedEstimate:
        """The risk of one model, or ``first`` minus ``second``, as a function of the weights.

        Under an odds error the weights keep the sums that ``constraint`` names, if the estimator
        can do that.
        """
        deltas, name = self.deltas[metric], first
        contrast = np.eye(len(self.models))[self.models.index(first)]
        if second is not None:
            name = f"{first} - {second}"
            contrast[self.models.index(second)] -= 1.0
        if deltas.is_root and np.count_nonzero(contrast) > 1:
            raise UsageError(
                f"the range of a difference of {metric} is unknown: a difference of roots is no "
                "function of one sum.",
                parameter="metric",
                value=metric,
                remedy="Compare by 'mse'.",
            )
        combined = deltas.combine(contrast)
        if combined.slots is None:
            self._require_common_base(metric, estimator)
        return VariedEstimate(
            (name, metric, estimator),
            combined,
            self.cells,
            self.estimators[estimator],
            self.level,
            constraint if self.can_fix_sums(metric, estimator) else None,
        )

    def can_fix_sums(self, metric: str, estimator: str) -> bool:
        """Whether the extremes are known for weights whose sums are given."""
        return self.estimators[estimator].can_fix_sums(self.deltas[metric])

    def _require_common_base(self, metric: str, estimator: str) -> None:
        deltas, chosen = self.deltas[metric], self.estimators[estimator]
        if deltas.slots is None or not chosen.has_worst_case:
            return
        spec = chosen.sums_needed(
            is_ratio=deltas.base is not None,
            is_mean_of_users=deltas.is_mean_of_users,
            cluster=None,
        )
        if deltas.base_of(spec) is deltas.slots:
            raise UsageError(
                f"the range of a difference of {metric} by {estimator!r} is unknown: the two "
                "models recommend different items, so their estimates have different denominators.",
                parameter="estimator",
                value=estimator,
                remedy="Evaluate and compare by 'ips'. Or look at the table: the order of the two "
                "models is safe where their ranges from low to high do not overlap.",
            )


@dataclass(frozen=True, slots=True)
class Shift:
    """One estimate under changed weights."""

    model: str
    metric: str
    estimator: str
    change: str
    """``clip`` or ``odds_error``."""
    amount: float
    """The largest weight allowed, or the factor by which odds may be wrong."""
    low: float
    """The least estimate; equal to ``high`` under clipping."""
    high: float
    ci_low: float
    ci_high: float
    share_clipped: float | None = None
    """Share of rows whose weight was clipped."""


@dataclass(frozen=True, eq=False, repr=False)
class VariedEstimate:
    """One number (a risk, or a difference of two) as a function of the weights."""

    name: tuple[str, str, str]
    """Model, metric and estimator."""
    deltas: Deltas
    """One row."""
    cells: ObservedCells
    estimator: Estimator
    level: float
    constraint: Constraint | None = None
    """Which sums of weights are held fixed under an odds error."""

    @property
    def has_worst_case(self) -> bool:
        """Whether the extremes under an odds error are known."""
        is_sum = self.deltas.functions is None
        return is_sum and self.estimator.is_weighted and self.estimator.has_worst_case

    @cached_property
    def sums(self) -> FixedSums | None:
        """Groups of cells whose weights keep their sum; None if no sum is kept."""
        if self.constraint is None:
            return None
        if self.constraint == "mass":
            return FixedSums.of_all(self.cells.scope.n_observed)
        clusters = self.cells.users if self.constraint == "user" else self.cells.items
        return FixedSums.of_clusters(clusters)

    def clip(self, max_weight: float) -> Shift:
        """The estimate with weights min(w, max_weight)."""
        is_clipped = self.cells.weight > max_weight
        cells = self.cells
        if is_clipped.any():
            cells = replace(cells, weight_transform=Clip(max_weight))
        interval = self._estimate(self.deltas, cells)
        limits = interval.value, interval.value, interval.low, interval.high
        return Shift(*self.name, CLIP, max_weight, *limits, float(is_clipped.mean()))

    def distort_odds(self, odds_error: float) -> Shift:
        """The range of the estimate if odds are wrong by up to a factor."""
        least, largest = (
            self.extreme(odds_error, is_largest=is_largest) for is_largest in (False, True)
        )
        limits = least.value, largest.value, least.low, largest.high
        return Shift(*self.name, ODDS_ERROR, odds_error, *limits)

    def extreme(self, odds_error: float, *, is_largest: bool) -> Interval:
        """The least or the largest estimate within the odds error, with its interval there.

        The interval takes the extreme propensities as the true ones. If the assumed ones were
        estimated, their error is included: the extreme ones move with them. The interval is wider
        by the optimism of the extreme, which was found from the same cells.
        """
        if odds_error == 1:
            return self._estimate(self.deltas, self.cells)
        box = WeightBox.around(self.cells.weight, odds_error, self.sums)
        sign = 1.0 if is_largest else -1.0
        oriented = self.deltas.combine(np.array([sign]))
        extreme = self.estimator.largest_weights(oriented, self.cells, box)
        extreme = replace(extreme, multiplier=sign * extreme.multiplier)
        interval = self._estimate(*move_to_extreme(self.deltas, self.cells, box, extreme))
        low, high = interval.low - extreme.optimism, interval.high + extreme.optimism
        return replace(interval, low=low, high=high)

    def _estimate(self, deltas: Deltas, cells: ObservedCells) -> Interval:
        return self.estimator.estimate(deltas, cells).of(0, level=self.level)

    def find_flip(self, *, is_positive: bool) -> float:
        """The smallest odds error at which the estimate can be zero, or infinity.

        ``is_positive`` is the sign of the estimate. Ranges of a larger odds error contain those of
        a smaller one, so there is one sign change.
        """
        sign = 1.0 if is_positive else -1.0
        grid = [0.0, math.log(LARGEST_ODDS_ERROR)]
        return self._find_crossing(lambda end: sign * end.value, grid, is_positive=is_positive)

    def find_unsure(self, *, is_positive: bool, flips_at: float) -> float:
        """The smallest odds error at which the interval can include zero, at most ``flips_at``.

        NaN if there is no interval even with the assumed propensities.

        The limit is not monotone in the odds error, because the standard error changes with the
        weights. Therefore its first sign change is searched on a grid.
        """
        if math.isnan(self.extreme(1.0, is_largest=not is_positive).low):
            return math.nan
        last = math.log(min(flips_at, LARGEST_ODDS_ERROR))
        step = GRID_STEP * (2 if self.cells.scope.n_observed >= SMOOTH_FROM else 1)
        steps = [np.arange(0, WIDE_FROM, step), np.arange(WIDE_FROM, last, 5 * step)]
        grid = [*(float(point) for point in np.concatenate(steps) if point < last), last]
        unsure_at = self._find_crossing(
            lambda end: end.low if is_positive else -end.high, grid, is_positive=is_positive
        )
        return min(unsure_at, flips_at)

    def _find_crossing(
        self, margin: Callable[[Interval], float], grid: Sequence[float], *, is_positive: bool
    ) -> float:
        """The first odds error at which ``margin`` of the extreme nearer to zero is not positive.

        ``grid`` has logarithms of odds errors and starts with 0. An unknown margin counts as
        negative.
        """
        from scipy.optimize import brentq

        def margin_at(log_factor: float) -> float:
            distance = margin(self.extreme(math.exp(log_factor), is_largest=not is_positive))
            return -1.0 if math.isnan(distance) else distance

        if margin_at(0.0) <= 0:
            return 1.0
        for before, after in pairwise(grid):
            if margin_at(after) <= 0:
                return math.exp(brentq(margin_at, before, after, xtol=1e-9))
        return math.inf


def odds_error_between(
    first: PropensitiesLike, second: PropensitiesLike, log: Ratings, *, quantile: float = 0.95
) -> float:
    """The factor by which the odds P / (1 - P) of two propensities differ on the logged cells.

    It is a benchmark for :func:`unskew.sensitivity`: a model with and without a covariate says how
    strong an unknown covariate would have to be; naive Bayes and popularity say how strongly people
    select by rating. The factor of a cell is at least 1, whichever odds are larger.

    Parameters
    ----------
    first, second
        Propensities of the log: values in its order, a matrix, or a fitted model.
    log
        The logged cells.
    quantile
        The share of the cells whose odds differ by at most this factor.

    Examples
    --------
    >>> log = Ratings.from_dense([[5, 1, 0], [0, 5, 0]])
    >>> odds_error_between([0.5, 0.5, 0.5], [0.5, 0.6, 0.25], log, quantile=1)
    3.0
    """
    if not (is_finite_number(quantile) and 0 <= quantile <= 1):
        raise UsageError(
            f"`quantile` must be a number from 0 to 1, such as 0.95; got {quantile!r}.",
            parameter="quantile",
            value=quantile,
        )
    excess = [as_propensities(log, each).inverse - 1.0 for each in (first, second)]
    low, high = np.minimum(*excess), np.maximum(*excess)
    with np.errstate(divide="ignore"):
        factor = np.divide(high, low, out=np.ones_like(high), where=high > 0)
    return float(np.quantile(factor, quantile, method="inverted_cdf"))


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
            f"{order[:1].upper()}{order[1:]} could flip if the odds that some cells are logged "
            f"were wrong by a factor of {self.flips_at:.3g}, in the worst case. With sampling "
            "error, a smaller factor can be enough."
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
