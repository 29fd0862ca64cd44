"""Propensities that depend on the rating alone, from a small sample of ratings missing completely at random."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array, is_finite_number, whole_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import BadRatingError, PropensityWarning, UsageError
from unskew.propensity.model import known_universe
from unskew.propensity.sample import LearnsFromSample, Marginal, SampleLike, marginal_of
from unskew.settings import require_fitted
from unskew.types import IntVector, Vector

MOST_LEVELS = 50
"""More distinct ratings than this are taken for a continuous scale, which needs bins."""


class NaiveBayesPropensity(LearnsFromSample):
    """Eq. (18): P(O = 1 | Y = r) = P(Y = r | O = 1) P(O = 1) / P(Y = r) = n_r / (U I pi_r).

    n_r ratings of the log are r, and pi_r is the share of r among all cells: ``(m_r + smoothing) / (m + smoothing * levels)``
    from m ratings of cells picked at random. Relative error of level r through the sample: sqrt((1 - pi_r) / (m pi_r)).
    The inverses add up to U I over the log, so that IPS and SNIPS agree, unless a level is capped at 1 or missing from the log;
    both are warned about. The sample must not be among the ratings that judge a model later.

    Parameters
    ----------
    smoothing
        Ratings added to each level of the sample; 1 is the paper's.
    bins
        For ratings on a continuous scale: the number of bins, each with as much of the sample as the others, or the rising cut
        points between bins. A rating that equals a cut point belongs to the bin above it.
    """

    levels_: Vector
    """Distinct ratings of log and sample, rising; with bins their numbers, from 0."""
    cuts_: Vector
    """Where one level ends and the next begins; a rating that equals a cut belongs to the level above it."""
    marginal_: Vector
    """pi_r of each level."""
    propensity_by_level_: Vector
    """P(O = 1 | Y = r); 0 where the log has no such rating."""

    sees_ratings = True

    def __init__(self, *, smoothing: float = 1.0, bins: int | npt.ArrayLike | None = None) -> None:
        self.smoothing = smoothing
        self.bins = bins

    def fit(
        self, log: Ratings, *, mcar: SampleLike | None = None, universe: UniverseLike = None
    ) -> Self:
        """Count the ratings of the log and of the sample.

        Parameters
        ----------
        log
            The log, missing not at random.
        mcar
            Ratings of cells picked at random: a log, a column of ratings, a table ``{rating: count}``, or a table
            ``{rating: share}`` whose shares add up to 1 and are taken as they are, without smoothing.
        universe
            (n_users, n_items) or ``"log"``; without it the one that the log has.
        """
        if not (is_finite_number(self.smoothing) and self.smoothing >= 0):
            raise UsageError(
                f"smoothing must be a number of ratings, at least 0; got {self.smoothing!r}."
            )
        if mcar is None:
            raise UsageError(
                "naive Bayes compares the log with ratings of cells picked at random: pass them as mcar=.... Some dozens of each "
                "rating are enough; collect them, or model the log alone with LogisticPropensity or OneBitPropensity."
            )
        space, sample = known_universe(log, universe), marginal_of(mcar)
        levels, cuts = self._levels(log, sample)
        observed = _count(log.rating, cuts)
        share = smoothed_shares(
            _count(sample.rating, cuts, sample.weight), sample.is_share, self.smoothing
        )
        require_shares(levels, observed, share)
        ratio = np.divide(
            observed, space.n_cells * share, out=np.zeros(levels.size), where=share > 0
        )
        warn_of_losses(levels, observed, share, ratio)
        self._remember(log, space)
        self.levels_, self.cuts_ = levels, cuts
        self.marginal_, self.propensity_by_level_ = share, np.minimum(ratio, 1.0)
        return self

    def of_ratings(self, ratings: npt.ArrayLike) -> Vector:
        """P(O = 1 | Y = r) of each of the given ratings, which must have been in the log or the sample of the fit."""
        require_fitted(self)
        return self._of_values(float_array(ratings, "ratings", BadRatingError))

    def _find_inconsistency(self) -> str | None:
        """Whether there is a propensity for each level, once fitted."""
        if self.propensity_by_level_.size != self.levels_.size:
            return "it does not have one propensity for each level."
        return None

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        if rating is None:
            raise UsageError(
                "naive Bayes needs the rating of a cell, which an unobserved one does not have; use predict(log)."
            )
        return self._of_values(rating)

    def _of_values(self, rating: Vector) -> Vector:
        level = _level_of(rating, self.cuts_)
        if self.bins is None:
            self._require_known(rating, self.levels_[level])
        return self.propensity_by_level_[level]

    def _levels(self, log: Ratings, sample: Marginal) -> tuple[Vector, Vector]:
        """Levels, and the cuts between them: without bins each rating is a level that reaches up to the next."""
        if self.bins is None:
            levels = _distinct(log, sample)
            return levels, levels[1:]
        cuts = _bin_cuts(sample, self.bins)
        return np.arange(cuts.size + 1.0), cuts

    def _require_known(self, rating: Vector, level: Vector) -> None:
        new = rating != level
        if new.any():
            raise BadRatingError(
                f"{int(new.sum())} of {new.size} ratings were neither in the log nor in the sample of the fit; the first is "
                f"{rating[new][0]:g}, and the known ones are {_named(self.levels_)}. Fit with a sample that has them, "
                "or with bins."
            )


def smoothed_shares(weight: Vector, is_share: bool, smoothing: float) -> Vector:
    """P(Y = r) of each level."""
    if is_share:
        return weight
    smoothed = weight + smoothing
    return smoothed / float(smoothed.sum())


def _distinct(log: Ratings, sample: Marginal) -> Vector:
    levels = np.union1d(np.unique(log.rating), sample.rating)
    if levels.size > MOST_LEVELS:
        raise UsageError(
            f"log and sample have {levels.size} distinct ratings, too many to count each: they look continuous. "
            "Say how to put them into bins: bins=10, or the cut points, such as bins=[-5, 0, 5]."
        )
    return levels


def _bin_cuts(sample: Marginal, bins: int | npt.ArrayLike) -> Vector:
    """Cut points as given, or those nearest to equal parts of the sample in each bin; equal ratings stay together."""
    if np.ndim(bins) == 0:
        n_bins = whole_number("bins", bins, least=2)
        below = np.concatenate([[0.0], np.cumsum(sample.weight)])
        wanted = np.arange(1, n_bins) * (below[-1] / n_bins)
        nearest = np.abs(below[:, None] - wanted).argmin(axis=0)
        return np.unique(sample.rating[nearest[(nearest > 0) & (nearest < sample.rating.size)]])
    cuts = float_array(bins, "bins")
    if (
        cuts.ndim != 1
        or cuts.size == 0
        or not (np.isfinite(cuts).all() and (np.diff(cuts) > 0).all())
    ):
        raise UsageError(
            f"bins must be a number of bins, or finite cut points that rise; got {bins!r}."
        )
    return cuts


def _level_of(rating: Vector, cuts: Vector) -> npt.NDArray[np.intp]:
    """The place of each rating among the levels."""
    return np.searchsorted(cuts, rating, side="right")


def _count(rating: Vector, cuts: Vector, weight: Vector | None = None) -> Vector:
    return np.bincount(_level_of(rating, cuts), weights=weight, minlength=cuts.size + 1).astype(
        np.float64
    )


def require_shares(levels: Vector, observed: Vector, share: Vector) -> None:
    """Refuse a rating that the log has and the sample rules out."""
    bad = (observed > 0) & (share <= 0)
    if bad.any():
        first = int(bad.argmax())
        raise UsageError(
            f"{int(observed[first]):,} ratings of the log are {levels[first]:g}, to which the mcar sample gives no share at all "
            f"({int(bad.sum())} of {levels.size} levels are like that). Take smoothing above 0, a larger sample, or shares of "
            "every rating."
        )


def warn_of_losses(levels: Vector, observed: Vector, share: Vector, ratio: Vector) -> None:
    """Say which levels are capped at 1, and which the log lacks."""
    capped, lost = ratio > 1, (observed == 0) & (share > 0)
    if capped.any():
        warnings.warn(
            f"{int(capped.sum())} of {levels.size} propensities would be above 1 and are taken as 1: the log has more ratings "
            f"{_named(levels[capped])} than the mcar sample allows for all cells. A larger sample would settle it.",
            PropensityWarning,
            stacklevel=3,
        )
    if lost.any():
        warnings.warn(
            f"ratings {_named(levels[lost])} are {share[lost].sum():.3g} of all cells, but the log has none of them: no weight "
            "can stand for that part of the cells.",
            PropensityWarning,
            stacklevel=3,
        )


def _named(levels: Vector) -> str:
    return ", ".join(f"{level:g}" for level in levels)
