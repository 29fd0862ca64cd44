"""Whether weighting makes the log look like all cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from unskew.data.ratings import Ratings
from unskew.propensity.covariate.covariates import Covariates
from unskew.types import IntVector, Vector

MIN_MEAN, MAX_MEAN = 0.05, 0.10
MAX_WORST = 0.25
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """Standardised mean differences between the log and all cells, by covariate."""

    names: tuple[str, ...] = field(repr=False)
    before: Vector = field(repr=False)
    """(mean over the log - mean over all cells) / standard deviation over all cells."""
    after: Vector = field(repr=False)
    """The same with the log weighted by 1/P."""

    @classmethod
    def of(cls, log: Ratings, covariates: Sequence[Covariates], weight: Vector) -> Balance:
        """Compare the covariates of users and of items."""
        codes = {"user": log.user, "item": log.item}
        before, after = (
            np.concatenate([differences(each, codes[each.kind], by) for each in covariates])
            for by in (np.ones(len(log)), weight)
        )
        return cls(tuple(name for each in covariates for name in each.names), before, after)

    @property
    def asam_before(self) -> float:
        """Average standardised absolute mean difference of the log as it is."""
        return float(np.abs(self.before).mean())

    @property
    def asam(self) -> float:
        """Average standardised absolute mean difference after weighting."""
        return float(np.abs(self.after).mean())

    @property
    def worst_covariate(self) -> str:
        """The covariate farthest off after weighting."""
        return self.names[int(np.abs(self.after).argmax())]

    @property
    def worst_difference(self) -> float:
        """How far off it is, with its sign."""
        return float(self.after[int(np.abs(self.after).argmax())])

    def warning_texts(self) -> Iterator[str]:
        """What is wrong, with the number and what to do."""
        name, off = self.worst_covariate, self.worst_difference
        if (
            abs(off) > MAX_WORST
            or self.asam > MAX_MEAN
            or self.asam > max(self.asam_before, MIN_MEAN)
        ):
            yield (
                f"after weighting, the covariates are off by {self.asam:.3f} standard deviations on average (before: "
                f"{self.asam_before:.3f}), and {name!r} by {off:+.3f}: the propensities miss what it tells. "
                "A model of covariates that has it would not."
            )


def differences(covariates: Covariates, code: IntVector, weight: Vector) -> Vector:
    """(sum w phi / sum w - mean of phi over all cells) / sd of phi over all cells, for the cells of the given users or items.

    A user has as many cells as any other, so that means over all cells are means over users; of items likewise.
    """
    held = np.bincount(covariates.profile[code], weights=weight, minlength=covariates.n_profiles)
    there = (
        np.bincount(covariates.profile, minlength=covariates.n_profiles) / covariates.profile.size
    )
    mean = there @ covariates.values
    deviation = np.sqrt(there @ np.square(covariates.values - mean))
    difference: Vector = (held @ covariates.values / held.sum() - mean) / deviation
    return np.where(np.abs(difference) > ROUNDING, difference, 0.0)
