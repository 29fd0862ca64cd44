"""How likely a cell is to be logged, given its rating: what likelihood models of the selection are told.

Such models do not weight ratings. Of ``propensities``, one for each logged cell, which every fit takes, they use what they can:
the share of logged cells at each rating, P(O = 1 | Y = r) = n_r / (sum over the log's ratings r of 1 / P). It is the
inverse-propensity estimate, whatever P depends on; where P depends on the rating alone it is P itself, and in a fold of
cross-validation, with P scaled to the fold, it is that of the fold. ``value_propensities`` say the same directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.propensities import PropensitiesLike, PropensityPredictor, as_propensities
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError, UniverseError, UsageError
from unskew.types import Vector

MOST_LEVELS = 100
"""More distinct ratings than this are taken for a continuous scale, which needs bins."""

Codes: TypeAlias = npt.NDArray[np.uint8]


@runtime_checkable
class RatesValues(Protocol):
    """A fitted model, such as naive Bayes, whose propensities depend on the rating alone."""

    def of_ratings(self, ratings: npt.ArrayLike, /) -> npt.ArrayLike:
        """P(O = 1 | Y = r) of each rating."""
        ...


ValuePropensities: TypeAlias = RatesValues | Mapping[float, float] | npt.ArrayLike
"""P(O = 1 | Y = r): a fitted naive Bayes model, a table {rating: P}, or values in the order of the log's rating levels."""


def levels_of(log: Ratings) -> tuple[Vector, Codes]:
    """The distinct ratings of a log, rising, and the place of each of its ratings among them."""
    levels, codes = np.unique(log.rating, return_inverse=True)
    if levels.size > MOST_LEVELS:
        raise UsageError(
            f"the log has {levels.size:,} distinct ratings, more than the {MOST_LEVELS} that a model of rating levels "
            "takes: they look continuous. Bin the ratings first, to whole or half points, say."
        )
    return levels, codes.reshape(-1).astype(np.uint8)


def value_propensities_of(levels: Vector, given: ValuePropensities) -> Vector:
    """P(O = 1 | Y = r) of each level, checked: one for each, finite, in (0, 1)."""
    values = _listed(levels, given)
    if values.shape != levels.shape:
        raise BadPropensityError(
            f"value_propensities have shape {values.shape}, but the log has {levels.size} rating levels ({_named(levels)}): "
            "give one for each in this order, or a table {rating: P}."
        )
    bad = ~(np.isfinite(values) & (values > 0) & (values < 1))
    if bad.any():
        first = int(bad.argmax())
        raise BadPropensityError(
            f"{int(bad.sum())} of {bad.size} value_propensities lie outside (0, 1); the first is {values[first]:g}, of rating "
            f"{levels[first]:g}. A rating that is never or always logged has no odds: smooth the sample, or take a larger one."
        )
    return values


def given_value_propensities(
    log: Ratings,
    levels: Vector,
    codes: Codes,
    propensities: PropensitiesLike | None,
    value_propensities: ValuePropensities | None,
) -> Vector | None:
    """P(O = 1 | Y = r) of each level, from whichever of the two was given; None where neither was."""
    if value_propensities is None:
        return None if propensities is None else _from_cells(log, levels, codes, propensities)
    if propensities is not None:
        raise UsageError(
            "pass propensities or value_propensities, not both: either tells how likely each rating is to be logged, and this "
            "model does not weight ratings."
        )
    return value_propensities_of(levels, value_propensities)


def require_listed(log: Ratings) -> None:
    """Refuse a log of a larger universe: a model of the selection looks at every cell, logged or not."""
    space = log.universe
    if space is not None and (space.n_users, space.n_items) != (log.n_users, log.n_items):
        raise UniverseError(
            f"the universe has {space}, but the log lists {log.n_users:,} users and {log.n_items:,} items, and this model looks "
            "at the unlogged cells of each. List them all with Ratings.from_frame(..., users=..., items=...)."
        )


def _from_cells(
    log: Ratings, levels: Vector, codes: Codes, propensities: PropensitiesLike
) -> Vector:
    """n_r / sum of 1 / P."""
    inverse = as_propensities(log, propensities).inverse
    cells = np.bincount(codes, weights=inverse, minlength=levels.size)
    share = np.bincount(codes, minlength=levels.size) / cells
    if (share >= 1).any():
        raise BadPropensityError(
            f"by the propensities every cell of rating {_named(levels[share >= 1])} is logged, which leaves nothing to tell of "
            "the others. Pass propensities below 1, or value_propensities=...."
        )
    return value_propensities_of(levels, share)


def _listed(levels: Vector, given: ValuePropensities) -> Vector:
    """The values as they come, in the order of the levels."""
    if isinstance(given, RatesValues):
        return float_array(given.of_ratings(levels), "value_propensities", BadPropensityError)
    if isinstance(given, Mapping) or (hasattr(given, "to_dict") and hasattr(given, "index")):
        return _looked_up(levels, given if isinstance(given, Mapping) else given.to_dict())
    if isinstance(given, PropensityPredictor):
        raise UsageError(
            f"{type(given).__name__} tells no propensity from a rating alone. Pass it as propensities instead: the share of "
            "logged cells at each rating follows from them."
        )
    return float_array(given, "value_propensities", BadPropensityError)


def _looked_up(levels: Vector, table: Mapping[float, float]) -> Vector:
    ratings = float_array(
        list(table.keys()), "the ratings of value_propensities", BadPropensityError
    )
    values = float_array(list(table.values()), "value_propensities", BadPropensityError)
    missing = levels[~np.isin(levels, ratings)]
    if missing.size:
        raise BadPropensityError(
            f"value_propensities lack rating {_named(missing)}, which the log has. Add what is missing."
        )
    known = dict(zip(ratings.tolist(), values.tolist(), strict=True))
    return np.array([known[level] for level in levels.tolist()])


def _named(levels: Vector) -> str:
    return ", ".join(f"{level:g}" for level in levels)


def log_odds(chance: Vector) -> Vector:
    """log(p / (1 - p))."""
    odds: Vector = np.log(chance) - np.log1p(-chance)
    return odds
