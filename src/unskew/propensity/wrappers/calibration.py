"""Propensities put right by how often cells of each propensity really were observed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from unskew.data.cells import are_among, cell_numbers, observed_cells
from unskew.data.checks import whole_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.propensity.model import PropensityModel, listed_universe
from unskew.propensity.sample import SampleLike
from unskew.propensity.wrappers.cell_blocks import CellBlock, cell_blocks
from unskew.propensity.wrappers.held_out import folds_of_users
from unskew.propensity.wrappers.wrapper import Wrapper
from unskew.types import IntVector, Matrix, Vector

Method: TypeAlias = Literal["platt", "isotonic"]
LIMIT = 30.0
"""Logits beyond this are taken as this: P below 1e-13."""
BINS_PER_LOGIT = 64
N_BINS = int(2 * LIMIT * BINS_PER_LOGIT)


class CalibratedPropensity(Wrapper):
    """logit P' = f(logit P), with f fitted to O over all U I cells: ``a + b x`` (Platt), or any rising f (isotonic).

    Cells are counted in bins of 1/64 of a logit, a block of users at a time, so the inner model must be one that can
    :meth:`predict_pairs`, and the log must list all users and items. The f of a user is fitted to the cells of other users.
    The inner model has seen all of the log; around ``CrossFittedPropensity(model)`` this calibrates what it says of unseen cells.

    Where isotonic regression says 0, because N cells of low P hold no rating, half a rating among them is assumed: 1 / (2 N),
    or the next higher level where that is less.

    Parameters
    ----------
    model
        The propensity model: fitted, or not yet.
    method
        ``"platt"``, two numbers, or ``"isotonic"``, which needs some thousand ratings.
    n_folds
        Folds of users.
    max_cells
        Beyond this many cells, unobserved ones are represented by so many drawn uniformly.
    random_state
        Seed of folds and draws.
    """

    model_: PropensityModel
    fold_of_user_: IntVector
    knots_: tuple[Vector, ...]
    """For each fold, logits of P at which f is known; straight lines between them."""
    levels_: tuple[Vector, ...]
    """For each fold, f at its knots: logits of the calibrated propensity."""
    floors_: Vector
    """For each fold, the propensity in place of an isotonic 0; 0 where it had none."""

    def __init__(
        self,
        model: PropensityModel,
        *,
        method: Method = "platt",
        n_folds: int = 5,
        max_cells: int = 1 << 24,
        random_state: int = 0,
    ) -> None:
        self.model = model
        self.method: Method = method
        self.n_folds = n_folds
        self.max_cells = max_cells
        self.random_state = random_state

    def fit(
        self, log: Ratings, *, mcar: SampleLike | None = None, universe: UniverseLike = None
    ) -> Self:
        """Fit the inner model, unless it is fitted, then f."""
        if self.method not in METHODS:
            raise UnknownNameError("method", self.method, METHODS)
        max_cells = whole_number("max_cells", self.max_cells, least=1)
        seed = whole_number("random_state", self.random_state, least=0)
        space = listed_universe(log, universe)
        self._require_every_cell()
        fold_of_user = folds_of_users(log.n_users, n_folds=self.n_folds, seed=seed)
        inner = self._fit_inner(log, mcar=mcar, universe=space)
        blocks = cell_blocks(space.n_users, space.n_items, max_cells=max_cells, random_state=seed)
        tally = _count_cells(inner, log, blocks, fold_of_user, self.n_folds)
        points = [tally.without(fold) for fold in range(self.n_folds)]
        curves = [METHODS[self.method](each) for each in points]
        _warn_of_wrong_order(self.model, points, curves)
        self._remember(log, space)
        self.model_, self.fold_of_user_ = inner, fold_of_user
        self.knots_, self.levels_ = (
            tuple(each.knots for each in curves),
            tuple(each.levels for each in curves),
        )
        self.floors_ = np.array([each.floor for each in curves])
        return self

    def _find_inconsistency(self) -> str | None:
        """Whether each user has a fold, and each fold a curve, once fitted."""
        alike = [
            knots.shape == levels.shape
            for knots, levels in zip(self.knots_, self.levels_, strict=True)
        ]
        if (
            self.fold_of_user_.size != len(self.users_)
            or len(alike) != self.floors_.size
            or not all(alike)
        ):
            return "it does not have a curve for each fold and a fold for each user."
        return None

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        x, fold = _logit(self.model_._predict_codes(user, item, rating)), self.fold_of_user_[user]
        level = np.empty(x.size)
        for each, (knots, levels) in enumerate(zip(self.knots_, self.levels_, strict=True)):
            level[fold == each] = np.interp(x[fold == each], knots, levels)
        return np.asarray(expit(level), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    """Bins of cells: their mean logit, rising, and how many were observed and how many not."""

    x: Vector
    ones: Vector
    zeros: Vector


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """A polyline in logits."""

    knots: Vector
    levels: Vector
    floor: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Tally:
    """By fold of users and bin of logits: observed cells, unobserved cells, and the sum of all their logits."""

    ones: Matrix
    zeros: Matrix
    logits: Matrix

    def without(self, fold: int) -> _Points:
        """The bins of all other folds."""
        ones, zeros, logits = (
            each.sum(axis=0) - each[fold] for each in (self.ones, self.zeros, self.logits)
        )
        if ones.sum() <= 0 or zeros.sum() <= 0:
            raise UsageError(
                f"without the users of fold {fold} there are {ones.sum():.0f} observed and {zeros.sum():.0f} unobserved cells, "
                "and calibration needs both. Take fewer folds."
            )
        held = ones + zeros > 0
        return _Points(logits[held] / (ones + zeros)[held], ones[held], zeros[held])


def _count_cells(
    model: PropensityModel,
    log: Ratings,
    blocks: Iterable[CellBlock],
    fold_of_user: IntVector,
    n_folds: int,
) -> _Tally:
    ones, zeros, logits = (np.zeros(n_folds * N_BINS) for _ in range(3))

    def add(user: IntVector, item: IntVector, weight: float, counts: Vector) -> None:
        x = _logit(model._in_blocks(user, item, None))
        place = fold_of_user[user] * np.int64(N_BINS) + _bin(x)
        counts += weight * np.bincount(place, minlength=counts.size)
        logits[:] += weight * np.bincount(place, weights=x, minlength=counts.size)

    add(log.user, log.item, 1.0, ones)
    seen = observed_cells(log)
    for block in blocks:
        new = ~are_among(cell_numbers(block.user, block.item, log.n_items), seen)
        add(block.user[new], block.item[new], block.weight, zeros)
    return _Tally(*(each.reshape(n_folds, N_BINS) for each in (ones, zeros, logits)))


def _logit(chance: Vector) -> Vector:
    with np.errstate(divide="ignore"):
        logit: Vector = np.log(chance) - np.log1p(-chance)
    return np.clip(logit, -LIMIT, LIMIT)


def _bin(x: Vector) -> npt.NDArray[np.int64]:
    return np.minimum((x + LIMIT) * BINS_PER_LOGIT, N_BINS - 1).astype(np.int64)


def _platt(points: _Points) -> _Curve:
    """The line a + b x that maximises the likelihood of O."""
    from sklearn.linear_model import LogisticRegression

    cells = points.ones + points.zeros
    centre = float(np.average(points.x, weights=cells))
    spread = float(np.sqrt(np.average((points.x - centre) ** 2, weights=cells))) or 1.0
    standard = (points.x - centre) / spread
    weight = np.concatenate([points.ones, points.zeros]) / cells.sum()
    observed = np.repeat([1, 0], points.x.size)
    line = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    line.fit(np.concatenate([standard, standard])[:, None], observed, sample_weight=weight)
    ends = np.array([-LIMIT, LIMIT])
    return _Curve(ends, line.intercept_[0] + line.coef_[0, 0] * (ends - centre) / spread)


def _isotonic(points: _Points) -> _Curve:
    """The rising steps that are nearest to the observed shares, without zeros."""
    from sklearn.isotonic import IsotonicRegression

    cells = points.ones + points.zeros
    steps = IsotonicRegression(y_min=0, y_max=1).fit(
        points.x, points.ones / cells, sample_weight=cells
    )
    value = steps.y_thresholds_
    n_without = float(cells[steps.predict(points.x) <= 0].sum())
    floor = min(0.5 / n_without, float(value[value > 0].min())) if n_without else 0.0
    return _Curve(steps.X_thresholds_, _logit(np.maximum(value, floor)), floor)


METHODS: Mapping[str, Callable[[_Points], _Curve]] = {"platt": _platt, "isotonic": _isotonic}


def _warn_of_wrong_order(
    model: PropensityModel, points: list[_Points], curves: list[_Curve]
) -> None:
    falling = [
        each.x.size > 1 and curve.levels[-1] <= curve.levels[0]
        for each, curve in zip(points, curves, strict=True)
    ]
    if any(falling):
        warnings.warn(
            f"cells that {model!r} takes for likelier are not observed more often in {sum(falling)} of {len(falling)} folds: "
            "what it says of single cells is worth nothing. Take another model.",
            PropensityWarning,
            stacklevel=3,
        )
