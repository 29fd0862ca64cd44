"""How many random ratings are needed for an interval of a given width."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import special

from unskew.data.checks import float_array
from unskew.data.ratings import Ratings, require_log
from unskew.data.result import Result
from unskew.data.universe import UniverseLike, resolve_universe
from unskew.errors import UsageError
from unskew.settings import Instance, Number
from unskew.types import Vector

LARGEST_WIDTH = 1e150
"""Wider intervals need no more ratings than this one, and its square is finite."""


@dataclass(frozen=True, slots=True, repr=False)
class SamplePlan(Result):
    """The number of random ratings for an interval of a given width."""

    kind: ClassVar[str] = "sample_plan"
    n_ratings: int | None
    """Ratings of random cells to collect; None if no number is enough."""
    width: float
    """The width of the interval that was asked for, from limit to limit."""
    smallest_width: float
    """The width with infinitely many random ratings: what the log itself leaves."""
    level: float
    shares_known: bool
    """Whether shares of the ratings were passed; otherwise the worst case was taken."""

    def __str__(self) -> str:
        worst = "" if self.shares_known else " for any distribution of the ratings"
        if self.n_ratings is None:
            return (
                f"no number of random ratings gives a {self.level:.0%} interval of width "
                f"{self.width:g}{worst}: the ratings of the log alone make it "
                f"{self.smallest_width:.3g} wide"
            )
        least = ""
        if self.smallest_width > 0:
            least = f"; more of them cannot make it narrower than {self.smallest_width:.3g}"
        return (
            f"{self.n_ratings:,} random ratings give a {self.level:.0%} interval of width "
            f"{self.width:g}{worst}{least}"
        )

    def __repr__(self) -> str:
        return str(self)

    def _headline(self) -> str:
        return str(self)

    def to_columns(self) -> dict[str, list[Any]]:
        """All fields, as a table of one row."""
        return {name: [value] for name, value in self.to_record().items()}

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def plan_random_sample(
    log: Ratings,
    *,
    width: float,
    losses: npt.ArrayLike | None = None,
    shares: Mapping[float, float] | None = None,
    universe: UniverseLike = None,
    level: float = 0.95,
) -> SamplePlan:
    """How many random ratings :class:`NaiveBayesPropensity` needs for an interval of ``width``.

    The variance of an estimate with naive Bayes propensities is the variance within the rating
    levels of the log, plus the variance between the levels divided by the number of random
    ratings. Ratings must be drawn from all cells at random, one by one. If each sampled user
    rates several items, more ratings are needed.

    Parameters
    ----------
    log
        The observed ratings.
    width
        The width of the interval, from limit to limit, in units of the metric.
    losses
        The loss of each rating of the log, such as ``(rating - prediction) ** 2``, or the
        difference of the losses of two models. By default the rating itself: the interval is that
        of the mean rating of all cells.
    shares
        A guess of the share of each rating among all cells, such as ``{1: 0.5, 2: 0.3, ...}``.
        By default the worst case over all distributions.
    universe
        (n_users, n_items) or ``"log"``; only for the finite population correction.
    level
        Confidence level of the interval.

    Examples
    --------
    >>> from unskew.simulation.simulator import simulate
    >>> log = simulate(100, 200, random_state=1).log
    >>> plan_random_sample(log, width=0.2, shares={1: 0.5, 2: 0.3, 3: 0.1, 4: 0.05, 5: 0.05})
    461 random ratings give a 95% interval of width 0.2
    """
    require_log(log)
    Number(above=0, below=1)("level", level)
    Number(above=0)("width", width)
    values = log.rating if losses is None else float_array(losses, "losses")
    if values.shape != (len(log),) or not np.isfinite(values).all():
        raise UsageError(
            f"`losses` must have one finite number for each of the {len(log)} ratings; got shape "
            f"{values.shape}.",
            parameter="losses",
        )
    levels, code = np.unique(log.rating, return_inverse=True)
    count = np.bincount(code).astype(np.float64)
    mean = np.bincount(code, weights=values) / count
    spread = np.bincount(code, weights=np.square(values - mean[code])) / np.maximum(count - 1, 1)
    mean_variance = spread / count
    between, within = float(np.ptp(mean)) ** 2 / 4, float(mean_variance.max())
    if shares is not None:
        share = _read_shares(shares, levels)
        between = float(share @ np.square(mean) - (share @ mean) ** 2)
        within = float(np.square(share) @ mean_variance)
    z = float(special.ndtri((1 + level) / 2))
    allowed = min(width / (2 * z), LARGEST_WIDTH) ** 2
    n_ratings = None
    if between == 0:
        n_ratings = 0 if allowed >= within else None
    elif allowed > within:
        size = between / (allowed - within)
        resolved = resolve_universe(log, universe)
        if resolved is not None:
            size = size / (1 + size / resolved.n_cells)
        n_ratings = math.ceil(size)
    return SamplePlan(n_ratings, width, 2 * z * math.sqrt(within), level, shares is not None)


def _read_shares(shares: Mapping[float, float], levels: Vector) -> Vector:
    Instance(Mapping, remedy="Pass the share of each rating, such as {1: 0.5, 2: 0.5}.")(
        "shares", shares
    )
    for each in shares.values():
        Number()("shares", each)
    share = np.array([float(shares.get(level, 0.0)) for level in levels.tolist()])
    total = float(sum(shares.values()))
    if (share < 0).any() or abs(total - 1) > 1e-6:
        raise UsageError(
            f"`shares` must be at least 0 and add up to 1; they add up to {total:g}.",
            parameter="shares",
        )
    return share
