"""Doubly robust learning with calibrated propensities and a calibrated imputation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import WeightTransform, transform_weights, weighted_mean
from unskew.models import RECOMMENDERS
from unskew.models.correction import fit_correction
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import RatingFactorization
from unskew.models.imputation import (
    CLIP_QUANTILE,
    HeldOutImputation,
    HeldOutParts,
    choose_imputer,
    find_imputation_weight,
)
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.settings import WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import IntVector, Matrix, Vector


@RECOMMENDERS.declare(
    "dce-dr",
    label="DCE-DR",
    summary="Doubly robust learning, propensities and imputation calibrated (Kweon & Yu 2024).",
    traits={"needs_propensities": True},
)
@dataclass(eq=False, repr=False)
class CalibratedDoublyRobust(RatingFactorization):
    """Doubly robust learning with P' in place of P and G' in place of G.

        1 / P' = 1 + k_g (1 / P - 1),     sum over the log of 1 / P' = number of cells, in group g
        G' = G + a_g + b_g (G - mean G),  a_g and b_g fitted to held-out ratings of group g

    The groups, the calibration experts of the paper, are users with about equally many ratings.
    P' is calibrated in the large: the weights of each group add up to its cells. Pass
    ``CalibratedPropensity(model)`` to calibrate the shape of P too, which takes all cells. The line
    of G' removes what ``G`` over- or underrates on ratings that it has not seen. Coefficients
    are shrunk by their noise: those within one standard error of 0 are 0. Where a few ratings have
    nearly all of the weight, both calibrations are uncertain, and the error can be several percent
    larger than that of :data:`OffsetsOnly`.

    W. Kweon & H. Yu, *Doubly calibrated estimator for recommendation on data missing not at
    random*, WWW 2024, train the experts and their groups by gradient descent within the model.

    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    imputer
        The factorisation G, not fitted; by default ``MatrixFactorization(n_factors)``.
    n_groups
        The number of groups of users. 1 calibrates all users at once.

    Attributes
    ----------
    factors_, imputed_ : F and G'.
    propensities_ : P', one for each rating.
    odds_factors_ : k of each group.
    lines_ : groups x 2: a and b.
    risk_ : the doubly robust estimate of the mean squared error, on the log of the fit.
    history_ : the objective of the last step. Its first entry is inf: users are solved first.
    """

    _: KW_ONLY
    imputer: MatrixFactorization | None = setting(None)
    n_groups: int = setting(4, WholeNumber(least=1))
    weight_transform: WeightTransform | None = setting(None)
    imputed_: Factors = field(init=False)
    propensities_: Vector = field(init=False)
    odds_factors_: Vector = field(init=False)
    lines_: Matrix = field(init=False)
    risk_: float = field(init=False)

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        engine: str | object = "auto",
    ) -> Self:
        """Fit to a log and the propensities of its cells.

        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        self._check_settings()
        imputer = choose_imputer(self.imputer, self.n_factors)
        original = self._read_propensities(log, propensities, purpose="calibrate")
        group = group_users(log, self.n_groups)
        self.odds_factors_ = calibrate_odds(log, 1 / original - 1, group, self.n_groups)
        self.propensities_ = 1 / (1 + self.odds_factors_[group[log.user]] * (1 / original - 1))
        weight = transform_weights(1 / self.propensities_, self.weight_transform)
        parts = HeldOutParts.draw(log, self.random_state)
        with Workers(self.n_threads) as workers, single_blas_thread(), self._show_steps() as report:
            imputation = HeldOutImputation.fit(
                imputer,
                log,
                find_imputation_weight(
                    self.imputer,
                    "dr-jl",
                    log,
                    self.propensities_,
                    random_state=self.random_state,
                ),
                parts,
                workers,
                dtype=self.dtype,
                random_state=self.random_state,
            )
            mean = imputation.factors.global_offset
            rows = parts.is_held_out
            self.lines_ = fit_lines(
                log.rating[rows] - imputation.held_out,
                imputation.held_out - mean,
                np.minimum(weight, np.quantile(weight, CLIP_QUANTILE))[rows],
                group[log.user[rows]],
                self.n_groups,
            )
            self.imputed_ = apply_lines(imputation.factors, mean, self.lines_[group])
            fit = fit_correction(self, log, weight, self.imputed_, workers, report)
        self.risk_ = fit.risk
        self._record_penalty(log, fit.penalty)
        self._record_fit(log, fit.solution, weighted_mean(log.rating, weight))
        return self


def group_users(log: Ratings, n_groups: int) -> IntVector:
    """The group of each user: users in order of their number of ratings, in equal groups."""
    count = np.bincount(log.user, minlength=log.n_users)
    position = np.empty(log.n_users, np.int64)
    position[np.argsort(count, kind="stable")] = np.arange(log.n_users)
    return (position * n_groups // log.n_users).astype(np.int32)


def calibrate_odds(
    log: Ratings, unobserved_odds: Vector, group: IntVector, n_groups: int
) -> Vector:
    """k of each group: the factor of the odds with which its weights add up to its cells.

    The odds that the cell of a rating stays unobserved are (1 - P) / P = 1 / P - 1. A group without
    ratings, or whose P are all 1, keeps its odds.
    """
    group_of_rating = group[log.user]
    n_cells = np.bincount(group, minlength=n_groups) * float(log.n_items)
    unobserved = n_cells - np.bincount(group_of_rating, minlength=n_groups)
    total = np.bincount(group_of_rating, weights=unobserved_odds, minlength=n_groups)
    can_move = (total > 0) & (unobserved > 0)
    return np.where(can_move, unobserved / np.where(can_move, total, 1.0), 1.0)


def fit_lines(
    error: Vector, deviation: Vector, weight: Vector, group: IntVector, n_groups: int
) -> Matrix:
    """a_g and b_g of each group: weighted least squares of Y - G on 1 and G - mean G.

    A coefficient c with the standard error s is multiplied by max(0, 1 - s^2 / c^2).
    """
    lines = np.zeros((n_groups, 2))
    for number in range(n_groups):
        rows = group == number
        if rows.sum() > 2:
            lines[number] = _fit_line(error[rows], deviation[rows], weight[rows])
    return lines


def _fit_line(error: Vector, deviation: Vector, weight: Vector) -> Vector:
    columns = np.column_stack([np.ones(error.size), deviation])
    inverse = np.linalg.pinv((columns.T * weight) @ columns)
    line: Vector = inverse @ (columns.T @ (weight * error))
    score = columns * (weight * (error - columns @ line))[:, None]
    variance = np.diag(inverse @ (score.T @ score) @ inverse)
    squared = np.square(line)
    shrinkage = np.where(squared > variance, 1 - variance / np.where(squared > 0, squared, 1), 0.0)
    return line * shrinkage


def apply_lines(factors: Factors, mean: float, lines: Matrix) -> Factors:
    """G + a + b (G - mean), with a and b of each user.

    Item offsets times a factor of the user are a further factor, of what the mean factor leaves.
    """
    dtype = factors.dtype
    intercept, factor = lines[:, 0], 1.0 + lines[:, 1]
    typical = float(factor.mean())
    user_offset = factor * (factors.user_offset + factors.global_offset - mean) + intercept
    constant = float(user_offset.mean()) if user_offset.size else 0.0
    if not np.ptp(factor):
        user_factors, item_factors = factor[:, None] * factors.user_factors, factors.item_factors
    else:
        user_factors = np.column_stack([factor[:, None] * factors.user_factors, factor - typical])
        item_factors = np.column_stack([factors.item_factors, factors.item_offset])
    return Factors(
        user_factors.astype(dtype),
        item_factors.astype(dtype),
        (user_offset - constant).astype(dtype),
        (typical * factors.item_offset).astype(dtype),
        mean + constant,
    )
