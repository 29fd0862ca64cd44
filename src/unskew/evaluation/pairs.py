"""All pairs of models compared at once, with a correction for the number of comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from unskew.data.result import DrawableResult
from unskew.estimators.intervals import adjust_p_values
from unskew.estimators.point import Naive
from unskew.tables import UNDECIDED, count_noun

if TYPE_CHECKING:
    from unskew.evaluation.result import Comparison, Premise


@dataclass(frozen=True, slots=True)
class AdjustedPair:
    """Two models, the difference of their risks, and a p-value adjusted for all pairs."""

    first: str
    second: str
    difference: float
    ci_low: float
    ci_high: float
    p_value: float
    p_adjusted: float
    better: str | None
    """The better model, or None if the adjusted p-value is not below 1 - level."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PairwiseComparison(DrawableResult):
    """All pairs of models by one metric and one estimator.

    With k pairs, some of them differ at the 5 % level by chance. Holm's adjustment keeps the
    probability of any wrong winner among all pairs at 5 %. Intervals are those of each pair alone.
    """

    kind: ClassVar[str] = "pairwise_comparison"
    metric: str
    estimator: str
    level: float
    higher_is_better: bool
    models: tuple[str, ...]
    """From the best estimate to the worst."""
    pairs: tuple[AdjustedPair, ...]
    backend: str | None = None
    warnings: tuple[str, ...] = ()
    """Why estimates cannot be used, such as values outside the range of the metric."""
    premise: Premise | None = None
    """What a weighted estimator rests on; None for one without weights."""

    @property
    def best(self) -> tuple[str, ...]:
        """The model with the best estimate, and all models that are not told apart from it."""
        leader = self.models[0]
        behind = {
            name
            for pair in self.pairs
            if pair.better == leader
            for name in (pair.first, pair.second)
            if name != leader
        }
        return tuple(name for name in self.models if name not in behind)

    def to_columns(self) -> dict[str, list[Any]]:
        """One row for each pair."""
        rows = [asdict(pair) for pair in self.pairs]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        columns["better"] = [better or UNDECIDED for better in columns["better"]]
        return columns

    def to_record(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "estimator": self.estimator,
            "level": self.level,
            "higher_is_better": self.higher_is_better,
            "models": list(self.models),
            "best": list(self.best),
            "pairs": [asdict(pair) for pair in self.pairs],
            "warnings": list(self.warnings),
            "premise": None if self.premise is None else asdict(self.premise),
        }

    def describe(self) -> str:
        """Which models share the first place, what may be wrong, and how p-values were adjusted."""
        leader, *ties = self.best
        measure = f"{self.metric} by {self.estimator}"
        consequence = "the order can also be another one"
        caution = describe_caution(self.estimator, self.premise, consequence)
        verdict = f"{'ahead' if caution else 'best'} on {measure}: {leader}"
        if all(math.isnan(pair.p_value) for pair in self.pairs):
            verdict = f"no model is best on {measure}: the differences have no interval"
        elif ties:
            verdict += f"; {UNDECIDED} from it: {', '.join(ties)}"
        verdict += f"; {caution}" if caution else ""
        count = count_noun(len(self.pairs), "pair")
        return (
            f"{verdict}\np-values are adjusted for {count} by Holm's method; "
            f"{self.level:.0%} intervals are for each pair alone"
        )

    def _footer(self) -> list[str]:
        return [*self.warnings, self.describe()]


def describe_caution(estimator: str, premise: Premise | None, consequence: str) -> str:
    """Why an order by this estimator may be another one over all cells; empty without a reason."""
    if estimator == Naive.name:
        return "for ratings like those in the log, not for all cells"
    return "" if premise is None else premise.describe_caution(consequence)


def adjust_pairs(
    comparisons: Sequence[Comparison], models: Sequence[str], backend: str | None
) -> PairwiseComparison:
    """All comparisons of one metric and estimator, with p-values by Holm's method."""
    first = comparisons[0]
    adjusted = adjust_p_values([each.p_value for each in comparisons])
    pairs = tuple(
        AdjustedPair(
            first=each.first,
            second=each.second,
            difference=each.difference,
            ci_low=each.ci_low,
            ci_high=each.ci_high,
            p_value=each.p_value,
            p_adjusted=p_adjusted,
            better=each.better if p_adjusted < 1 - each.level else None,
        )
        for each, p_adjusted in zip(comparisons, adjusted, strict=True)
    )
    return PairwiseComparison(
        first.metric,
        first.estimator,
        first.level,
        first.higher_is_better,
        tuple(models),
        pairs,
        backend,
        tuple(dict.fromkeys(text for each in comparisons for text in each.warnings)),
        first.premise,
    )
