"""What a few ratings of cells picked at random tell: how often each rating occurs among all cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.columns import find_column
from unskew.data.frames import is_frame, number_column, open_frame
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import BadRatingError, UsageError
from unskew.propensity.model import PropensityModel
from unskew.types import Vector

SampleLike: TypeAlias = Ratings | Mapping[float, float] | npt.ArrayLike
"""Ratings of cells picked at random: a log or frame of them, the ratings alone, {rating: count} or {rating: share}."""


class LearnsFromSample(PropensityModel):
    """A model whose fit may need, beside the log, ratings that are missing completely at random."""

    def fit(
        self, log: Ratings, *, mcar: SampleLike | None = None, universe: UniverseLike = None
    ) -> Self:
        """Learn from a log and a sample."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Marginal:
    """How often each rating occurs: counts of a sample, or shares that are known."""

    rating: Vector
    """Each once, rising."""
    weight: Vector
    is_share: bool
    """Whether the weights are shares of all cells, to be taken as they are."""


def marginal_of(given: SampleLike) -> Marginal:
    """The marginal of a sample in any of its forms."""
    if isinstance(given, Mapping):
        return _of_table(given)
    if is_frame(given):
        frame = open_frame(given)
        values = number_column(
            frame,
            frame.columns[0]
            if len(frame.columns) == 1
            else find_column("rating", None, frame.columns),
        )
    else:
        values = (
            given.rating
            if isinstance(given, Ratings)
            else float_array(given, "mcar ratings", BadRatingError)
        )
    if values.ndim != 1 or values.size == 0:
        raise UsageError(
            f"mcar must hold at least one rating, in one column; got shape {values.shape}. "
            "Give a log, a list of ratings, or a table {rating: share}."
        )
    _require_finite(values)
    rating, count = np.unique(values, return_counts=True)
    return Marginal(rating, count.astype(np.float64), is_share=False)


def _of_table(table: Mapping[float, float]) -> Marginal:
    rating = float_array(list(table.keys()), "ratings of the mcar table", BadRatingError)
    weight = float_array(list(table.values()), "counts or shares of the mcar table", BadRatingError)
    _require_finite(rating)
    if not ((weight >= 0).all() and np.isfinite(weight).all() and weight.sum() > 0):
        raise UsageError(
            f"an mcar table gives each rating a count or a share of at least 0, not all of them 0; got {dict(table)}."
        )
    is_share = bool(abs(weight.sum() - 1) <= 1e-6)
    if not is_share and (weight != np.floor(weight)).any():
        raise UsageError(
            f"the mcar table adds up to {weight.sum():g}: shares of all cells must add up to 1, and counts be whole numbers."
        )
    order = np.argsort(rating)
    return Marginal(rating[order], weight[order] / (weight.sum() if is_share else 1.0), is_share)


def _require_finite(values: Vector) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(bad.argmax())
        raise BadRatingError(
            f"{int(bad.sum())} of {bad.size} mcar ratings are missing or not finite; the first is {values[row]} at place {row}. "
            "Leave them out."
        )
