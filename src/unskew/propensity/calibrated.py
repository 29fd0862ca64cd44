"""Propensities that are calibrated to the observed share of cells with similar propensity."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from unskew.data.cells import (
    cell_numbers,
    is_among,
    iterate_cells,
    observed_cells,
    user_and_item,
)
from unskew.data.frames import LazyFrame
from unskew.data.ids import Ids
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike, parse_universe
from unskew.errors import PropensityWarning, UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.logistic_frame import (
    GroupCounts,
    add_group_propensities,
    require_group_settings,
)
from unskew.propensity.model import PropensityModel, SampleLike, require_listed_universe
from unskew.propensity.wrapper import PropensityWrapper, assign_user_folds
from unskew.settings import (
    OneOf,
    WholeNumber,
    check_random_state,
    draw_seeds,
    fitted_state,
    setting,
    unfitted_copy,
)
from unskew.types import ArrayShapes, IntVector, RandomState, Vector

Method: TypeAlias = Literal["platt", "isotonic"]
MAX_LOGIT = 30.0
"""Logits are limited to [-30, 30], or P to [1e-13, 1 - 1e-13]."""
BINS_PER_LOGIT = 64
N_BINS = int(2 * MAX_LOGIT * BINS_PER_LOGIT)


@PROPENSITY_MODELS.declare(
    "calibrated",
    label="Calibrated",
    summary="P is mapped to the observed share of the cells with this P.",
    traits={"is_wrapper": True},
)
@dataclass(eq=False, repr=False)
class CalibratedPropensity(PropensityWrapper):
    """logit P' = f(logit P), with f fitted to O over all U I cells.

    f is a line, ``a + b x`` (Platt), or any increasing function (isotonic). Cells are counted in
    bins of 1/64 of a logit, one block of users at a time, so the inner model must support
    :meth:`predict_pairs`, and the log must list all users and items. The f of a user is fitted to
    the cells of other users. The inner model has seen the whole log; around
    ``CrossFittedPropensity(model)``, its predictions of unseen cells are calibrated.

    If isotonic regression gives 0, because N cells of low P have no rating, half a rating among
    them is assumed: P' = 1 / (2 N), or the next higher level if that is smaller.

    Parameters
    ----------
    model
        The propensity model; if it is not fitted, a copy of it is.
    method
        ``"platt"`` has two parameters; ``"isotonic"`` needs some thousand ratings.
    n_folds
        Folds of users.
    max_cells
        If there are more cells than this, unobserved cells are estimated from this many cells,
        drawn uniformly.
    random_state
        Seed of the folds and the draw.

    Attributes
    ----------
    model_ : the fitted inner model.
    fold_of_user_ : the fold of each user.
    knots_, levels_ : for each fold, logits x and f(x), with straight lines between them.
    floors_ : for each fold, the propensity that replaced an isotonic 0; 0 if there was none.
    """

    model: PropensityModel
    _: KW_ONLY
    method: Method = setting("platt", OneOf(get_args(Method)))
    n_folds: int = setting(5, WholeNumber(least=2))
    max_cells: int = setting(1 << 24, WholeNumber(least=1))
    random_state: RandomState = setting(0, check_random_state)

    model_: PropensityModel = field(init=False)
    fold_of_user_: IntVector = field(init=False)
    knots_: tuple[Vector, ...] = field(init=False)
    levels_: tuple[Vector, ...] = field(init=False)
    floors_: Vector = field(init=False)

    def fit(
        self, log: Ratings, *, universe: UniverseLike = None, mcar: SampleLike | None = None
    ) -> Self:
        """Fit the inner model if it is not fitted, then f."""
        self._check_settings()
        self._require_log(log)
        size, seed = require_listed_universe(log, universe), draw_seeds(self.random_state)[0]
        self._require_all_cells()
        folds = assign_user_folds(log.n_users, n_folds=self.n_folds, seed=seed)
        inner = self._fit_inner(log, mcar=mcar, universe=size)
        totals = count_cells(inner, log, folds, self.n_folds, self.max_cells, seed)
        bins = [exclude_fold(totals, fold) for fold in range(self.n_folds)]
        curves = [METHODS[self.method](fold_bins) for fold_bins in bins]
        self._record_log(log, size)
        self.model_, self.fold_of_user_ = inner, folds
        self.knots_ = tuple(curve.knots for curve in curves)
        self.levels_ = tuple(curve.levels for curve in curves)
        self.floors_ = np.array([curve.floor for curve in curves])
        self._warn_of_wrong_order(bins, curves)
        return self

    def fit_frame(
        self,
        frame: object,
        *,
        universe: UniverseLike = None,
        items: npt.ArrayLike = (),
        group: str | None = None,
        group_sizes: Mapping[Any, int] | None = None,
        item: str | None = None,
    ) -> Self:
        """Fit a :class:`LogisticPropensity`, and f, to a log that stays in its frame or database.

        The arguments are those of :meth:`LogisticPropensity.fit_frame`. The users of a group have
        the same propensities, so f is fitted to all users at once, without folds.
        """
        self._check_settings()
        if not isinstance(self.model, LogisticPropensity):
            return super().fit_frame(frame)
        if fitted_state(self.model):
            raise UsageError(
                "in a data frame the model is fitted to the same counts as f, but this "
                "LogisticPropensity is fitted already.",
                parameter="model",
                remedy="Wrap one that is not fitted.",
            )
        require_group_settings(self.model)
        counts = GroupCounts.read(frame, parse_universe(universe), items, group, group_sizes, item)
        inner = unfitted_copy(self.model)._fit_counts(counts)
        bins = count_pairs(inner, counts)
        curve = METHODS[self.method](bins)
        self._record_frame(inner.n_observed_, counts.universe)
        self.users_, self.items_, self.model_ = inner.users_, inner.items_, inner
        self.fold_of_user_ = np.zeros(len(inner.users_), np.int32)
        self.knots_, self.levels_ = (curve.knots,), (curve.levels,)
        self.floors_ = np.array([curve.floor])
        self._warn_of_wrong_order([bins], [curve])
        return self

    def add_to_frame(
        self,
        frame: LazyFrame,
        names: Mapping[str, str],
        columns: Mapping[str, str | None],
        name: str,
    ) -> LazyFrame:
        """``frame`` with a column of propensities by the group and the item of the row."""
        self._require_fitted()
        inner = self.model_
        if not isinstance(inner, LogisticPropensity) or inner.group_ is None:
            return super().add_to_frame(frame, names, columns, name)
        return add_group_propensities(self, inner.group_, frame, names, columns, name)

    def _find_codes(self, values: npt.ArrayLike, vocabulary: Ids, kind: str) -> IntVector:
        """The codes of the inner model, which may know groups of users only."""
        return self.model_._find_codes(values, vocabulary, kind)

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        x = limited_logit(self.model_._predict_codes(user, item, rating))
        fold_of_cell = self.fold_of_user_[user]
        level = np.empty(x.size)
        for fold, (knots, levels) in enumerate(zip(self.knots_, self.levels_, strict=True)):
            is_in_fold = fold_of_cell == fold
            level[is_in_fold] = np.interp(x[is_in_fold], knots, levels)
        return np.asarray(expit(level), dtype=np.float64)

    def _warn_of_wrong_order(self, bins: list[LogitBins], curves: list[CalibrationCurve]) -> None:
        is_falling = [
            fold_bins.x.size > 1 and curve.levels[-1] <= curve.levels[0]
            for fold_bins, curve in zip(bins, curves, strict=True)
        ]
        if any(is_falling):
            warnings.warn(
                PropensityWarning(
                    f"in {sum(is_falling)} of {len(is_falling)} folds, cells with a larger "
                    f"propensity according to {self.model!r} are not observed more often.",
                    parameter="model",
                    remedy="Use another model: this one does not separate likely from unlikely "
                    "cells.",
                ),
                stacklevel=3,
            )

    def _find_inconsistency(self) -> str | None:
        misfit = super()._find_inconsistency()
        if misfit is not None:
            return misfit
        has_curves = len(self.knots_) == len(self.levels_) == self.floors_.size and all(
            knots.shape == levels.shape == (knots.size,)
            for knots, levels in zip(self.knots_, self.levels_, strict=True)
        )
        return None if has_curves else "it does not have a curve for each fold."

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        return {
            "fold_of_user": (self.fold_of_user_, (len(self.users_),)),
            "floors": (self.floors_, (self.floors_.size,)),
        }


@dataclass(frozen=True, slots=True, eq=False)
class LogitBins:
    """Bins of cells: their mean logit in ascending order, and observed and unobserved cells."""

    x: Vector
    observed: Vector
    unobserved: Vector

    @classmethod
    def of(cls, observed: Vector, unobserved: Vector, logits: Vector) -> LogitBins:
        """The bins that have cells, from their cells and the sums of their logits."""
        has_cells = observed + unobserved > 0
        mean = logits[has_cells] / (observed + unobserved)[has_cells]
        return cls(mean, observed[has_cells], unobserved[has_cells])


@dataclass(frozen=True, slots=True, eq=False)
class CalibrationCurve:
    """f as straight lines between knots, both axes in logits."""

    knots: Vector
    levels: Vector
    floor: float = 0.0


def count_cells(
    model: PropensityModel,
    log: Ratings,
    fold_of_user: IntVector,
    n_folds: int,
    max_cells: int,
    seed: int,
) -> npt.NDArray[np.float64]:
    """Observed cells, unobserved cells, and the sum of their logits, by fold of users and bin.

    Unobserved are all other cells, or a sample of them with its weight.
    """
    totals = np.zeros((3, n_folds * N_BINS))

    def add(user: IntVector, item: IntVector, weight: float, counts: Vector) -> None:
        x = limited_logit(model._predict_in_blocks(user, item, None))
        index = fold_of_user[user] * np.int64(N_BINS) + find_bins(x)
        counts += weight * np.bincount(index, minlength=counts.size)
        totals[2] += weight * np.bincount(index, weights=x, minlength=counts.size)

    add(log.user, log.item, 1.0, totals[0])
    logged, weight = observed_cells(log), log.n_cells / min(log.n_cells, max_cells)
    rng = np.random.default_rng(seed)
    for cells in iterate_cells(log.n_users, log.n_items, max_cells=max_cells, rng=rng):
        new_cells = np.compress(~is_among(cells, logged), cells)
        add(*user_and_item(new_cells, log.n_items), weight, totals[1])
    return totals.reshape(3, n_folds, N_BINS)


def exclude_fold(totals: npt.NDArray[np.float64], fold: int) -> LogitBins:
    """The bins of all other folds."""
    observed, unobserved, logits = totals.sum(axis=1) - totals[:, fold]
    if observed.sum() <= 0 or unobserved.sum() <= 0:
        raise UsageError(
            f"without the users of fold {fold} there are {observed.sum():.0f} observed and "
            f"{unobserved.sum():.0f} unobserved cells, and calibration needs both.",
            parameter="n_folds",
            remedy="Use fewer folds.",
        )
    return LogitBins.of(observed, unobserved, logits)


def count_pairs(model: PropensityModel, counts: GroupCounts) -> LogitBins:
    """The bins of all cells, which have the same propensity in a group and for an item."""
    log, n_items = counts.log, counts.log.n_items
    group, item = user_and_item(np.arange(log.n_cells), n_items)
    x = limited_logit(model._predict_in_blocks(group, item, None))
    observed = np.zeros(log.n_cells)
    observed[cell_numbers(log.user, log.item, n_items)] = log.rating
    n_cells, index = counts.sizes[group], find_bins(x)
    terms = observed, n_cells - observed, n_cells * x
    sums = (np.bincount(index, weights=term, minlength=N_BINS) for term in terms)
    return LogitBins.of(*(each.astype(np.float64) for each in sums))


def limited_logit(propensity: Vector) -> Vector:
    """log(P / (1 - P)), limited to [-MAX_LOGIT, MAX_LOGIT]."""
    return np.clip(logit(propensity), -MAX_LOGIT, MAX_LOGIT)


def find_bins(x: Vector) -> npt.NDArray[np.int64]:
    return np.minimum((x + MAX_LOGIT) * BINS_PER_LOGIT, N_BINS - 1).astype(np.int64)


def fit_platt(bins: LogitBins) -> CalibrationCurve:
    """The line a + b x that maximises the likelihood of O."""
    from sklearn.linear_model import LogisticRegression

    n_cells = bins.observed + bins.unobserved
    center = float(np.average(bins.x, weights=n_cells))
    scale = float(np.sqrt(np.average((bins.x - center) ** 2, weights=n_cells))) or 1.0
    standard = (bins.x - center) / scale
    weight = np.concatenate([bins.observed, bins.unobserved]) / n_cells.sum()
    label = np.repeat([1, 0], bins.x.size)
    line = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    line.fit(np.concatenate([standard, standard])[:, None], label, sample_weight=weight)
    ends = np.array([-MAX_LOGIT, MAX_LOGIT])
    levels = line.intercept_[0] + line.coef_[0, 0] * (ends - center) / scale
    return CalibrationCurve(ends, levels)


def fit_isotonic(bins: LogitBins) -> CalibrationCurve:
    """The increasing step function nearest to the observed shares; zeros get a floor."""
    from sklearn.isotonic import IsotonicRegression

    n_cells = bins.observed + bins.unobserved
    steps = IsotonicRegression(y_min=0, y_max=1)
    steps.fit(bins.x, bins.observed / n_cells, sample_weight=n_cells)
    value = steps.y_thresholds_
    n_zero = float(n_cells[steps.predict(bins.x) <= 0].sum())
    floor = min(0.5 / n_zero, float(value[value > 0].min())) if n_zero else 0.0
    return CalibrationCurve(steps.X_thresholds_, limited_logit(np.maximum(value, floor)), floor)


METHODS: Mapping[str, Callable[[LogitBins], CalibrationCurve]] = {
    "platt": fit_platt,
    "isotonic": fit_isotonic,
}
