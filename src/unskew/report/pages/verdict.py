"""The sentence that a page begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unskew.report.page import Record
from unskew.report.wording import NAIVE, PREFERRED, decimals_for, metric_name, number

Headline = tuple[tuple[str, bool], ...]
AS_SEEN = "Naive says"
CORRECTED = "corrected for selection,"
UNCORRECTED = "; selection is not corrected for."


@dataclass(frozen=True, slots=True)
class Voices:
    """The estimator that takes the log as it is, and the one that corrects; None where it was not asked."""

    naive: str | None
    corrected: str | None

    @classmethod
    def of(cls, estimators: Sequence[str]) -> Voices:
        """The best known of those that are there."""
        others = [name for name in estimators if name != NAIVE]
        known = [name for name in PREFERRED if name in others]
        return cls(
            NAIVE if NAIVE in estimators else None, next(iter(known), next(iter(others), None))
        )

    @property
    def main(self) -> str:
        """Whose word counts."""
        return self.corrected or NAIVE


def headline(record: Record, metric: str) -> Headline:
    """Who beats whom by how much, as the log has it and corrected."""
    voices = Voices.of(record["estimators"])
    if len(record["models"]) == 1:
        return _alone(record, metric, voices)
    best = _ahead(record, metric, voices.main)
    other = _rival(record, metric, voices, best)
    return _spoken(
        None if voices.naive is None else difference(record, metric, voices.naive, best, other),
        None
        if voices.corrected is None
        else difference(record, metric, voices.corrected, best, other),
    )


def difference(
    record: Record, metric: str, estimator: str, first: str, second: str
) -> Mapping[str, Any]:
    """How two models compare; one of them is the leader by this estimator."""
    return next(
        row
        for row in record["differences"]
        if (row["metric"], row["estimator"]) == (metric, estimator)
        and {row["first"], row["second"]} == {first, second}
    )


def told(row: Mapping[str, Any], *, with_interval: bool = True) -> str:
    """A comparison in words."""
    low, high = row["ci_low"], row["ci_high"]
    decimals = decimals_for((high - low) / 2) if with_interval else 2
    if row["better"] is None:
        limits = f"{number(row['difference'], decimals, signed=True)} [{number(low, decimals)}, {number(high, decimals)}]"
        return f"{row['first']} and {row['second']} cannot be told apart ({limits})"
    worse = row["second"] if row["better"] == row["first"] else row["first"]
    near, far = sorted((abs(low), abs(high)))
    limits = f" [{number(near, decimals)}, {number(far, decimals)}]" if with_interval else ""
    return f"{row['better']} beats {worse} by {number(abs(row['difference']), decimals)}{limits}"


def _spoken(seen: Mapping[str, Any] | None, corrected: Mapping[str, Any] | None) -> Headline:
    if seen is not None and corrected is not None:
        naive = told(seen, with_interval=seen["better"] is None)
        return ((f"{AS_SEEN} {naive}; ", False), (f"{CORRECTED} {told(corrected)}.", True))
    if corrected is not None:
        return ((f"Corrected for selection, {told(corrected)}.", True),)
    return ((f"{AS_SEEN} {told(seen or {})}", False), (UNCORRECTED, True))


def _alone(record: Record, metric: str, voices: Voices) -> Headline:
    model = record["models"][0]
    rows = {row["estimator"]: row for row in record["rows"] if row["metric"] == metric}

    def value(row: Mapping[str, Any]) -> str:
        decimals = decimals_for((row["ci_high"] - row["ci_low"]) / 2)
        return f"{number(row['estimate'], decimals)} [{number(row['ci_low'], decimals)}, {number(row['ci_high'], decimals)}]"

    name = metric_name(metric)
    if voices.corrected is None:
        return ((f"{AS_SEEN} {model} has {name} {value(rows[NAIVE])}", False), (UNCORRECTED, True))
    if voices.naive is None:
        return (
            (f"Corrected for selection, {model} has {name} {value(rows[voices.corrected])}.", True),
        )
    decimals = decimals_for(
        (rows[voices.corrected]["ci_high"] - rows[voices.corrected]["ci_low"]) / 2
    )
    return (
        (f"{AS_SEEN} {model} has {name} {number(rows[NAIVE]['estimate'], decimals)}; ", False),
        (f"{CORRECTED} it is {value(rows[voices.corrected])}.", True),
    )


def _ahead(record: Record, metric: str, estimator: str) -> str:
    row = next(
        row
        for row in record["differences"]
        if (row["metric"], row["estimator"]) == (metric, estimator)
    )
    return str(row["first"])


def _rival(record: Record, metric: str, voices: Voices, best: str) -> str:
    """The naive favourite where it is another one; else the runner-up."""
    if voices.naive is not None and (favourite := _ahead(record, metric, voices.naive)) != best:
        return favourite
    others = [
        row
        for row in record["differences"]
        if (row["metric"], row["estimator"]) == (metric, voices.main)
    ]
    return str(min(others, key=lambda row: abs(row["difference"]))["second"])
