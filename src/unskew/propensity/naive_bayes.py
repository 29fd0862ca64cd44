"""Propensities by rating, from a small sample of ratings missing completely at random."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import special

from unskew.data.cells import cell_numbers, is_among
from unskew.data.checks import float_array
from unskew.data.columns import find_column
from unskew.data.estimation import Estimation, FrameStrata, RandomSample, Strata, compare_counts
from unskew.data.frames import (
    LazyFrame,
    count_values,
    frame_of_series,
    is_frame,
    look_up,
    number_column,
    open_frame,
    open_lazily,
)
from unskew.data.ids import as_ids, encode, find_codes
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import BadRatingError, ColumnError, PropensityWarning, UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import (
    McarPropensityModel,
    SampleLike,
    empty_frame_error,
    require_frame_universe,
    require_universe,
)
from unskew.settings import Number, WholeNumber, setting
from unskew.tables import count_noun
from unskew.types import ArrayShapes, IntVector, Matrix, Vector

COUNT_NAMES = ("count", "counts", "proportion")
"""Names of the columns that data frame libraries give to counts of values."""
MAX_LEVELS = 50
"""More distinct ratings than this are assumed to be a continuous scale, which needs bins."""
MIN_COMPARED = 200
"""Smaller samples are not compared with the log."""
MAX_COUNT = 2.0**53
"""The largest count that a float holds."""
MAX_COMPARED = 20
"""With more levels, a binary search is faster than a comparison with each."""
SMALLEST_P_VALUE = 1e-3
"""Below this p-value the log has too many cells of a sample for a random draw."""
EQUAL_SHARES = 0.2
"""Above this p-value the ratings of sample and log are said to have the same distribution."""


def _check_bins(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, Sequence | np.ndarray):
        WholeNumber(least=2)(name, value)
        return
    cuts = float_array(value, name)
    is_valid = cuts.ndim == 1 and cuts.size > 0 and bool(np.isfinite(cuts).all())
    if not (is_valid and (np.diff(cuts) > 0).all()):
        raise UsageError(
            f"`{name}` must be a number of bins, or finite cut points in ascending order; "
            f"got {value!r}.",
            parameter=name,
        )


@PROPENSITY_MODELS.declare(
    "nb",
    label="Naive Bayes",
    summary="By rating, from the log and a small random sample of ratings (Eq. 18).",
    aliases=("naive_bayes",),
    traits={"sees_ratings": True, "needs_mcar": True},
)
@dataclass(eq=False, repr=False)
class NaiveBayesPropensity(McarPropensityModel):
    """Eq. (18): P(O = 1 | Y = r) = P(Y = r | O = 1) P(O = 1) / P(Y = r) = n_r / (U I pi_r).

    The log has n_r ratings r. The share of r among all cells is estimated from m ratings of cells
    chosen at random: pi_r = ``(m_r + smoothing) / (m + smoothing * n_levels)``. The sample causes
    a relative error of sqrt((1 - pi_r) / (m pi_r)) for level r.

    The inverse propensities of the log add up to U I, so IPS and SNIPS agree, unless a level is
    limited to 1 or does not occur in the log; both cause a warning. The sample must not be among
    the ratings that evaluate a model later.

    Parameters
    ----------
    smoothing
        Ratings added to each level of the sample. None adds 1 / n_levels, one rating in all,
        which hardly moves the shares even if there are many levels. The paper uses 1.
    bins
        For ratings on a continuous scale: the number of bins, with equal parts of the sample, or
        the cut points between bins in ascending order. A rating equal to a cut point belongs to
        the bin above it.

    Attributes
    ----------
    levels_ : distinct ratings of log and sample in ascending order; with bins, their numbers.
    cuts_ : the lowest rating of each level but the first.
    marginal_ : pi_r of each level.
    propensity_by_level_ : P(O = 1 | Y = r); 0 if the log has no such rating.
    observed_by_level_ : n_r, the ratings of the log.
    sample_by_level_ : m_r, the ratings of the sample; empty if the shares are known.
    sample_by_user_ : the same by user of the sample; empty if the sample does not name users.

    Examples
    --------
    Half of the random ratings are 1, but only one of the four logged ratings is:

    >>> from unskew.data.ratings import Ratings
    >>> log = Ratings.from_arrays([0, 0, 1, 1], [0, 1, 0, 2], [5, 5, 5, 1], universe=(2, 4))
    >>> model = NaiveBayesPropensity(smoothing=0).fit(log, mcar={1: 10, 5: 10})
    >>> model.predict(log).values
    array([0.75, 0.75, 0.75, 0.25])
    """

    _: KW_ONLY
    smoothing: float | None = setting(None, Number(least=0, allow_none=True))
    bins: int | npt.ArrayLike | None = setting(None, _check_bins)

    levels_: Vector = field(init=False)
    cuts_: Vector = field(init=False)
    marginal_: Vector = field(init=False)
    propensity_by_level_: Vector = field(init=False)
    observed_by_level_: Vector = field(init=False)
    sample_by_level_: Vector = field(init=False)
    sample_by_user_: Matrix = field(init=False)

    sees_ratings = True
    adjusts_for = ""

    def fit(
        self, log: Ratings, *, universe: UniverseLike = None, mcar: SampleLike | None = None
    ) -> Self:
        """Count the ratings of the log and of the sample.

        Parameters
        ----------
        log
            The log, missing not at random.
        universe
            (n_users, n_items) or ``"log"``; by default the universe that the log states.
        mcar
            Ratings of cells chosen at random: a log, a column of ratings, or a table
            ``{rating: count}``. A table ``{rating: share}`` whose shares add up to 1 is used
            without smoothing. If it names users and items, a warning says whether it shares more
            cells with the log than chance explains.
        """
        self._check_settings()
        self._require_log(log)
        sample = RatingFrequencies.of_sample(_require_sample(mcar))
        size = require_universe(log, universe)
        if self.bins is None:
            levels = _distinct_ratings(np.unique(log.rating), sample)
            cuts = levels[1:]
        else:
            cuts = _find_cuts(sample, self.bins)
            levels = np.arange(cuts.size + 1.0)
        self._fit_levels(levels, cuts, _count_levels(log.rating, cuts), sample, size.n_cells)
        _warn_of_shared_cells(log, _find_cells(mcar, log), size.n_items)
        self._record_log(log, size)
        return self

    def fit_frame(
        self,
        frame: object,
        *,
        universe: UniverseLike = None,
        mcar: SampleLike | None = None,
        rating: str | None = None,
    ) -> Self:
        """Fit the model to a log that stays in its frame or database.

        Only the number of each rating is fetched. The ids of users and items are not kept, so
        :meth:`predict` accepts any.

        Parameters
        ----------
        frame
            An eager or lazy frame, or a relation, of any library that narwhals supports.
        universe
            (n_users, n_items) or ``"log"``.
        mcar
            As for :meth:`fit`.
        rating
            The column of ratings; found by common names by default.
        """
        self._check_settings()
        self._require_no_bins()
        sample = RatingFrequencies.of_sample(_require_sample(mcar))
        opened, names = open_lazily(frame)
        column = names[find_column("rating", rating, list(names))]
        counts = count_values(opened, column, most=MAX_LEVELS + 1)
        log_levels, log_counts = _sort_counts(counts)
        levels = _distinct_ratings(log_levels, sample)
        observed = np.zeros(levels.size)
        observed[np.searchsorted(levels, log_levels)] = log_counts
        size = require_frame_universe(opened, names, universe, {})
        self._fit_levels(levels, levels[1:], observed, sample, size.n_cells)
        self._record_frame(int(log_counts.sum()), size)
        return self

    def add_to_frame(
        self,
        frame: LazyFrame,
        names: Mapping[str, str],
        columns: Mapping[str, str | None],
        name: str,
    ) -> LazyFrame:
        """``frame`` with a column of the propensity of each rating."""
        self._require_fitted()
        self._require_no_bins()
        is_observed = self.propensity_by_level_ > 0
        levels, propensities = self.levels_[is_observed], self.propensity_by_level_[is_observed]
        table = dict(zip(levels.tolist(), propensities.tolist(), strict=True))
        column = find_column("rating", columns.get("rating"), list(names))
        return look_up(frame, names[column], table, name)

    def describe_frame(self) -> FrameStrata:
        """The strata by rating, and the random sample."""
        self._require_fitted()
        self._require_no_bins()
        sample, source = self._describe_sample()
        return FrameStrata(
            estimation=Estimation(
                model=type(self).__name__,
                source=source,
                n_parameters=self.levels_.size,
                sees_ratings=True,
            ),
            kind="rating",
            n_observed=self.n_observed_,
            has_limit=sample is None,
            levels=self.levels_,
            propensity=self.propensity_by_level_,
            count=self.observed_by_level_,
            sample=sample,
        )

    def predict_ratings(self, ratings: npt.ArrayLike) -> Vector:
        """P(O = 1 | Y = r) of each rating, which must have been in the log or the sample."""
        self._require_fitted()
        values = float_array(ratings, "ratings", BadRatingError)
        if values.ndim != 1:
            raise BadRatingError(
                f"`ratings` must form one column; got shape {values.shape}.", parameter="ratings"
            )
        return self._predict_values(values)

    def _fit_levels(
        self,
        levels: Vector,
        cuts: Vector,
        observed: Vector,
        sample: RatingFrequencies,
        n_cells: int,
    ) -> None:
        """Eq. (18) for each level, from the number of observed ratings of each level."""
        share = sample.shares(cuts, 1 / levels.size if self.smoothing is None else self.smoothing)
        _require_shares(levels, observed, share, has_bins=self.bins is not None)
        ratio = np.divide(observed, n_cells * share, out=np.zeros(levels.size), where=share > 0)
        _warn_of_capped_and_missing(levels, observed, share, ratio)
        self.levels_, self.cuts_, self.marginal_ = levels, cuts, share
        self.propensity_by_level_ = np.minimum(ratio, 1.0)
        self.observed_by_level_ = observed
        self.sample_by_level_, self.sample_by_user_ = sample.counts(cuts)
        _warn_of_equal_shares(observed, self.sample_by_level_)

    def _find_inconsistency(self) -> str | None:
        for counts in (self.observed_by_level_, self.sample_by_level_, self.sample_by_user_):
            if counts.size and not 0 <= counts.min() <= counts.max() <= MAX_COUNT:
                return f"it has counts of ratings that are not from 0 to {MAX_COUNT:g}."
        return super()._find_inconsistency()

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        n_levels = self.levels_.size
        n_sampled = n_levels if self.sample_by_level_.size else 0
        n_named = len(self.sample_by_user_)
        return {
            "levels": (self.levels_, (n_levels,)),
            "cuts": (self.cuts_, (n_levels - 1,)),
            "marginal": (self.marginal_, (n_levels,)),
            "propensity_by_level": (self.propensity_by_level_, (n_levels,)),
            "observed_by_level": (self.observed_by_level_, (n_levels,)),
            "sample_by_level": (self.sample_by_level_, (n_sampled,)),
            "sample_by_user": (self.sample_by_user_, (n_named, n_sampled if n_named else 0)),
        }

    def _describe_unknown(self, kind: str) -> str | None:
        return ""

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        return self._predict_values(np.asarray(rating))  # a caller that has none is refused

    def _predict_values(self, rating: Vector) -> Vector:
        level = _find_levels(rating, self.cuts_)
        is_new = rating != self.levels_[level]
        if self.bins is None and is_new.any():
            raise BadRatingError(
                f"{int(is_new.sum())} of {is_new.size} ratings were neither in the log nor in "
                f"the sample of the fit; the first is {rating[is_new][0]:g}. "
                f"Ratings {_join_levels(self.levels_)} were.",
                parameter="rating",
                remedy="Fit with a sample that has them, or with `bins=...`.",
                shell_remedy="Fit with a sample that has them.",
            )
        return self.propensity_by_level_[level]

    def _describe_estimation(self, log: Ratings, values: Vector) -> Estimation:
        level = _find_levels(log.rating, self.cuts_).astype(np.int32)
        count = np.bincount(level, minlength=self.levels_.size)
        is_full = (self.propensity_by_level_ >= 1) & (count > 0)
        sample, source = self._describe_sample()
        return Strata(
            model=type(self).__name__,
            source=source,
            n_parameters=self.levels_.size,
            sees_ratings=True,
            fixed=is_full[level] if sample is None and is_full.any() else None,
            group=level,
            n_observed=self.observed_by_level_,
            propensity=self.propensity_by_level_,
            kind="rating",
            sample=sample,
            relation=self._relate(log, np.array_equal(count, self.observed_by_level_)),
        )

    def _describe_sample(self) -> tuple[RandomSample | None, str]:
        """The random sample, None if the shares are known; and what the fit used, in words.

        A share is at least that of the observed cells, as where a propensity is limited to 1. The
        weights of such a level move with the sample too: it has more cells, never fewer.
        """
        if not self.sample_by_level_.size:
            return None, "the log and known shares of the ratings"
        by_user = self.sample_by_user_ if len(self.sample_by_user_) > 1 else None
        share = np.maximum(self.marginal_, self.observed_by_level_ / self.n_cells_)
        sample = RandomSample(share, self.sample_by_level_, by_user, self.n_cells_)
        return sample, f"the log and {sample.describe()}"

    def _require_no_bins(self) -> None:
        if self.bins is not None:
            raise UsageError(
                f"bins are not supported for frames; got bins {self.bins!r}.",
                parameter="bins",
                remedy="Round the ratings of the frame instead.",
            )


@dataclass(frozen=True, slots=True, eq=False)
class RatingFrequencies:
    """How often each rating occurs: counts of a random sample, or known shares of all cells."""

    rating: Vector
    weight: Vector
    """How often each rating counts; a rating may occur more than once."""
    is_share: bool
    """Whether the weights are known shares of all cells, which are not smoothed."""
    users: IntVector | None = None
    """Who gave each rating of a sample, as codes from 0 on, if the sample names users."""

    @classmethod
    def of_sample(cls, sample: SampleLike) -> RatingFrequencies:
        """Count the ratings of a sample in any of its forms."""
        if isinstance(sample, Mapping):
            return cls._of_table(sample)
        values = _read_ratings(sample)
        if values.ndim != 1 or values.size == 0:
            raise UsageError(
                f"`mcar` must have at least one rating, in one column; got shape {values.shape}.",
                parameter="mcar",
                remedy="Pass a log, a list of ratings, or a table {rating: share}.",
            )
        _require_finite(values)
        return cls(values, np.ones(values.size), False, _read_users(sample))

    @classmethod
    def _of_table(cls, table: Mapping[float, float]) -> RatingFrequencies:
        rating = float_array(list(table.keys()), "ratings of the mcar table", BadRatingError)
        weight = float_array(
            list(table.values()), "counts or shares of the mcar table", BadRatingError
        )
        _require_finite(rating)
        total = weight.sum()
        if not ((weight >= 0).all() and np.isfinite(weight).all() and total > 0):
            raise UsageError(
                "counts or shares of the mcar table must be at least 0, and not all 0; "
                f"got {dict(table)}.",
                parameter="mcar",
                remedy="Pass how often each rating occurs in a random sample, such as "
                "`mcar={1: 50, 5: 20}`.",
            )
        is_share = bool(abs(total - 1) <= 1e-6)
        if not is_share and (weight != np.floor(weight)).any():
            raise UsageError(
                f"the values of the `mcar` table are neither shares, as they add up to {total:g}, "
                "nor counts, as they are not all whole numbers.",
                parameter="mcar",
                value=dict(table),
                remedy="Pass the share of each rating among all cells, which add up to 1, or how "
                "often each rating occurs in a random sample.",
            )
        return cls(rating, weight / (total if is_share else 1.0), is_share)

    def counts(self, cuts: Vector) -> tuple[Vector, Matrix]:
        """Ratings of each level, and of each user and level; empty if they are unknown."""
        if self.is_share:
            return np.empty(0), np.empty((0, 0))
        counts = _count_levels(self.rating, cuts, self.weight)
        if self.users is None:
            return counts, np.empty((0, 0))
        by_user = np.zeros((int(self.users.max()) + 1, counts.size))
        np.add.at(by_user, (self.users, _find_levels(self.rating, cuts)), 1.0)
        return counts, by_user

    def shares(self, cuts: Vector, smoothing: float) -> Vector:
        """P(Y = r) of each level; counts are smoothed."""
        weight = _count_levels(self.rating, cuts, self.weight)
        if self.is_share:
            return weight
        smoothed = weight + smoothing
        return smoothed / float(smoothed.sum())


def _require_sample(mcar: SampleLike | None) -> SampleLike:
    if mcar is None:
        raise UsageError(
            "naive Bayes compares the log with ratings of cells chosen at random, "
            "and none were passed.",
            parameter="mcar",
            remedy="Pass them as `mcar=...`; a thousand give narrow intervals. "
            "Without such ratings, use LogisticPropensity or PopularityPropensity, which cannot "
            "see whether people rate what they like.",
            shell_remedy="Pass a file of them as `mcar=...`; a thousand give narrow intervals. "
            "Without such ratings, use the model logistic or popularity, which cannot see whether "
            "people rate what they like.",
        )
    return mcar


def _read_ratings(sample: Any) -> Vector:
    if isinstance(sample, Ratings):
        return sample.rating
    table = frame_of_series(sample)
    if is_frame(table):
        _refuse_counts(open_frame(table).columns)
    if not is_frame(sample):
        return float_array(sample, "mcar ratings", BadRatingError)
    frame = open_frame(sample)
    has_one_column = len(frame.columns) == 1
    name = frame.columns[0] if has_one_column else find_column("rating", None, frame.columns)
    return number_column(frame, name)


def _refuse_counts(columns: Sequence[str]) -> None:
    """Raise an error for what value_counts() returns: its ratings are not those of a sample."""
    counts = next((name for name in columns if name in COUNT_NAMES), None)
    if counts is not None and len(columns) <= 2:
        raise UsageError(
            f"`mcar` has a column {counts!r} of how often ratings occur, as value_counts() returns "
            "it, where a rating is expected.",
            parameter="mcar",
            remedy="Pass the ratings themselves, or a table: dict(counts), where the keys are the "
            "ratings.",
        )


def _read_users(sample: Any) -> IntVector | None:
    """Codes of the users who gave the ratings of a sample; None if it does not name them."""
    if isinstance(sample, Ratings):
        return np.unique(sample.user, return_inverse=True)[1].astype(np.int32)
    if not is_frame(sample):
        return None
    frame = open_frame(sample)
    try:
        name = find_column("user", None, frame.columns)
    except ColumnError:
        return None
    return encode(as_ids(frame[name].to_numpy()))[0]


def _find_cells(sample: Any, log: Ratings) -> tuple[IntVector, IntVector] | None:
    """Codes of the log, or -1, for users and items of a sample; None if it does not name them."""
    if isinstance(sample, Ratings):
        user = find_codes(sample.users, log.users)[sample.user]
        return user, find_codes(sample.items, log.items)[sample.item]
    if not is_frame(sample):
        return None
    frame = open_frame(sample)
    try:
        user, item = (
            find_codes(as_ids(frame[find_column(role, None, frame.columns)].to_numpy()), ids)
            for role, ids in (("user", log.users), ("item", log.items))
        )
    except ColumnError:
        return None
    return user, item


def _require_finite(values: Vector) -> None:
    is_bad = ~np.isfinite(values)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise BadRatingError(
            f"{int(is_bad.sum())} of {is_bad.size} mcar ratings are missing or not finite; "
            f"the first is {values[row]} at row {row}.",
            parameter="mcar",
            where=f"row {row}",
            remedy="Drop those rows.",
        )


def _sort_counts(count_by_rating: Mapping[Any, int]) -> tuple[Vector, Vector]:
    """Ratings in ascending order, and how often each occurs."""
    if not count_by_rating:
        raise empty_frame_error()
    values = float_array(list(count_by_rating), "ratings", BadRatingError)
    if not np.isfinite(values).all():
        n_bad = int(sum(np.asarray(list(count_by_rating.values()))[~np.isfinite(values)]))
        raise BadRatingError(
            f"{count_noun(n_bad, 'rating')} of the log must not be NaN or infinite.",
            parameter="rating",
            remedy="Drop those rows: a cell without a rating is an unobserved cell.",
        )
    order = np.argsort(values)
    return values[order], np.array(list(count_by_rating.values()), dtype=np.float64)[order]


def _distinct_ratings(log_levels: Vector, sample: RatingFrequencies) -> Vector:
    random, levels = np.unique(sample.rating), np.union1d(log_levels, sample.rating)
    if levels.size > MAX_LEVELS:
        raise UsageError(
            f"log and sample have {levels.size} or more distinct ratings, more than "
            f"{MAX_LEVELS}: they seem to be continuous, and each would get its own propensity.",
            parameter="bins",
            remedy="Put ratings into bins by `bins=10`, or by cut points such as "
            "`bins=[-5, 0, 5]`. In a frame, round them first.",
            shell_remedy="Round them first.",
        )
    if not np.isin(random, log_levels).any():
        raise UsageError(
            f"the random ratings ({_join_levels(random[:5])}, ...) and those of the log "
            f"({_join_levels(log_levels[:5])}, ...) have no value in common.",
            parameter="mcar",
            remedy="Put both on the same scale.",
        )
    return levels


def _find_cuts(sample: RatingFrequencies, bins: int | npt.ArrayLike) -> Vector:
    """The cut points, or those nearest to equal parts of the sample in each bin."""
    if np.ndim(bins) > 0:
        return float_array(bins, "bins")
    n_bins = int(bins)  # type: ignore[arg-type]
    rating, index = np.unique(sample.rating, return_inverse=True)
    below = np.concatenate([[0.0], np.cumsum(np.bincount(index, sample.weight))])
    targets = np.arange(1, n_bins) * (below[-1] / n_bins)
    nearest = np.abs(below[:, None] - targets).argmin(axis=0)
    return np.unique(rating[nearest[(nearest > 0) & (nearest < rating.size)]])


def _find_levels(rating: Vector, cuts: Vector) -> npt.NDArray[np.intp]:
    """The level of each rating, counted from 0."""
    if cuts.size > MAX_COMPARED:
        return np.searchsorted(cuts, rating, side="right")
    level = np.zeros(rating.size, dtype=np.intp)
    for cut in cuts:
        level += rating >= cut
    return level


def _count_levels(rating: Vector, cuts: Vector, weight: Vector | None = None) -> Vector:
    counts = np.bincount(_find_levels(rating, cuts), weights=weight, minlength=cuts.size + 1)
    return counts.astype(np.float64)


def _require_shares(levels: Vector, observed: Vector, share: Vector, *, has_bins: bool) -> None:
    """Raise an error if a rating of the log has a share of 0 among all cells."""
    is_bad = (observed > 0) & (share <= 0)
    if is_bad.any():
        first = int(is_bad.argmax())
        level = f"ratings in bin {levels[first]:g}" if has_bins else f"rating {levels[first]:g}"
        raise UsageError(
            f"the mcar sample has no {level}, but the log has {int(observed[first]):,}, whose "
            f"propensity is therefore unknown; this affects {int(is_bad.sum())} of {levels.size} "
            f"{'bins' if has_bins else 'distinct ratings'}.",
            parameter="mcar",
            remedy="Use a larger sample, or `smoothing` above 0. In a table of shares, give every "
            "rating a share above 0.",
            shell_remedy="Use a larger sample.",
        )


def _warn_of_capped_and_missing(
    levels: Vector, observed: Vector, share: Vector, ratio: Vector
) -> None:
    is_capped, is_missing = ratio > 1, (observed == 0) & (share > 0)
    if is_capped.any():
        warnings.warn(
            PropensityWarning(
                f"{int(is_capped.sum())} of {levels.size} propensities exceed 1 and were set to "
                f"1: the log has more ratings {_join_levels(levels[is_capped])} than all cells "
                "have according to the mcar sample.",
                parameter="mcar",
                remedy="Use a larger sample.",
            ),
            stacklevel=4,
        )
    if is_missing.any():
        warnings.warn(
            PropensityWarning(
                f"ratings {_join_levels(levels[is_missing])} are {share[is_missing].sum():.3g} "
                "of all cells, but the log has none of them: no weights can represent those cells.",
                remedy="Estimates describe the other cells only.",
            ),
            stacklevel=4,
        )


def _warn_of_equal_shares(observed: Vector, sample: Vector) -> None:
    """Warn if the sample has the ratings of the log: then the weights correct nothing."""
    if sample.sum() < MIN_COMPARED:
        return
    p_value = compare_counts(observed, sample)
    if p_value > EQUAL_SHARES:
        warnings.warn(
            PropensityWarning(
                f"the {int(sample.sum()):,} random ratings have the same distribution as the log "
                f"(p = {p_value:.2g}): either people do not rate what they like, or the sample was "
                "drawn from the log and the correction does nothing.",
                parameter="mcar",
                remedy="Check that the sample was drawn from all cells, rated or not.",
            ),
            stacklevel=4,
        )


def _warn_of_shared_cells(
    log: Ratings, sample: tuple[IntVector, IntVector] | None, n_items: int
) -> None:
    """Warn if the log has more cells of the sample than a random draw of items would hit.

    A random item of a user is in the log with the user's share of all items. A sum of such draws
    has at most the variance of a Poisson number.
    """
    if sample is None:
        return
    user, item = sample
    is_sampled = np.zeros(log.n_users, dtype=bool)
    is_sampled[user[user >= 0]] = True
    rows = np.flatnonzero(is_sampled[log.user])
    is_known = (user >= 0) & (item >= 0)
    n_shared = int(
        is_among(
            cell_numbers(user[is_known], item[is_known], log.n_items),
            np.sort(cell_numbers(log.user[rows], log.item[rows], log.n_items)),
        ).sum()
    )
    count = np.bincount(log.user, minlength=log.n_users)
    expected = float(count[user[user >= 0]].sum()) / n_items
    if n_shared > expected and special.pdtrc(n_shared - 1, expected) < SMALLEST_P_VALUE:
        warnings.warn(
            PropensityWarning(
                f"the log has {n_shared:,} cells of the {user.size:,} random ratings; about "
                f"{expected:,.0f} are expected if all were drawn at random from all cells. Either "
                "some were drawn from the log, or they were added to it.",
                parameter="mcar",
                remedy="Draw the sample from all cells, rated or not, and keep its ratings out of "
                "the log.",
            ),
            stacklevel=3,
        )


def _join_levels(levels: Vector) -> str:
    return ", ".join(f"{level:g}" for level in levels)
