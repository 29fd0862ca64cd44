"""How well propensities predict which cells are observed, and how close they are to true ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unskew.data.propensities import SMALLEST
from unskew.diagnostics.cells import CellPropensities
from unskew.errors import PropensityWarning
from unskew.theory.bounds import as_propensity_cells, bias_bound
from unskew.types import IntVector, Vector

MAX_MASS_ERROR = 0.20
MAX_SHARE_BELOW = 0.01
N_BINS = 10
CALIBRATION_SLOPES = (0.5, 2.0)
"""Calibration slopes outside these limits cause a warning."""
NEWTON_TOLERANCE, NEWTON_STEPS = 1e-12, 100
INTERCEPT_ROUNDING, ERROR_ROUNDING = 1e-9, 1e-12
"""Smaller intercepts and calibration errors are rounding and are shown as 0."""


@dataclass(frozen=True, slots=True)
class PropensityFit:
    """Scores of the propensities as forecasts of O, over all cells.

    Standard errors are None if no cell was sampled.
    """

    n_observed: int
    log_loss: float
    """Mean of -log P of observed cells and -log(1 - P) of unobserved ones; infinite if an
    unobserved cell has P = 1."""
    log_loss_error: float | None
    brier: float
    """Mean of (O - P)^2."""
    brier_error: float | None
    sum_of_propensities: float
    """Sum of P over all cells: the expected number of observed cells."""
    sum_of_propensities_error: float | None
    floor: float
    share_below: float
    """Share of all cells with P below ``floor``."""
    smallest: float
    """The smallest P of all cells that were examined."""
    n_certain: int
    """Unobserved cells with P = 1, among those that were examined."""
    n_unobserved: int
    """Unobserved cells that were examined."""

    @classmethod
    def of(cls, cells: CellPropensities, *, floor: float) -> PropensityFit:
        """Compare the propensities of observed and unobserved cells."""
        observed, unobserved = cells.observed, cells.unobserved
        log_loss, log_loss_error = math.inf, None
        n_certain = int((unobserved >= 1).sum())
        if n_certain == 0:
            log_loss, log_loss_error = cells.mean(-np.log(observed), -np.log1p(-unobserved))
        brier, brier_error = cells.mean(np.square(1 - observed), np.square(unobserved))
        mean, mean_error = cells.mean(observed, unobserved)
        share_below, _ = cells.mean(
            (observed < floor).astype(np.float64), (unobserved < floor).astype(np.float64)
        )
        return cls(
            n_observed=observed.size,
            log_loss=log_loss,
            log_loss_error=log_loss_error,
            brier=brier,
            brier_error=brier_error,
            sum_of_propensities=mean * cells.n_cells,
            sum_of_propensities_error=None if mean_error is None else mean_error * cells.n_cells,
            floor=floor,
            share_below=share_below,
            smallest=float(min(observed.min(), unobserved.min(initial=1.0))),
            n_certain=n_certain,
            n_unobserved=unobserved.size,
        )

    @property
    def mass_ratio(self) -> float:
        """Sum of P over the number of observed cells: 1 if propensities are right on average."""
        return self.sum_of_propensities / self.n_observed

    @property
    def mass_ratio_error(self) -> float | None:
        """Standard error of ``mass_ratio``; None if no cell was sampled."""
        error = self.sum_of_propensities_error
        return None if error is None else error / self.n_observed

    def warnings(self) -> Iterator[PropensityWarning]:
        """One warning for each thing that looks wrong."""
        if abs(self.mass_ratio - 1) > MAX_MASS_ERROR:
            yield PropensityWarning(
                f"the propensities of all cells add up to {self.sum_of_propensities:,.0f}, "
                f"but {self.n_observed:,} cells were observed ({self.mass_ratio - 1:+.0%}).",
                remedy="Scale the propensities to the density of the log.",
            )
        if self.share_below > MAX_SHARE_BELOW:
            yield PropensityWarning(
                f"{self.share_below:.1%} of all cells have a propensity below {self.floor:.3g}. "
                "Such cells are almost never observed, and one that is observed outweighs all "
                "others.",
                remedy="Remove them from the universe, or clip the weights.",
            )
        if math.isinf(self.log_loss):
            yield PropensityWarning(
                f"{self.n_certain:,} of {self.n_unobserved:,} unobserved cells that were examined "
                "have a propensity of 1, so the log-loss is infinite.",
                parameter="propensities",
                remedy="Use propensities below 1 for cells that can be unobserved.",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Propensities against observed shares, over all cells."""

    slope: float | None
    """b of logit P(O = 1) = a + b logit P. It is 1 for calibrated propensities, below 1 if they
    vary too much between cells and above 1 if they vary too little. None if P is constant, or if
    P separates observed from unobserved cells perfectly. A logistic model without a penalty has
    b = 1 by construction on the log that it was fitted to."""
    intercept: float | None
    """a; 0 for calibrated propensities."""
    error: float
    """Expected calibration error: mean over all cells of |mean P - observed share| of their bin."""
    predicted: Vector = field(repr=False)
    """Mean P of each bin, in increasing order. Bins have equally many cells, except that equal
    propensities share a bin."""
    observed: Vector = field(repr=False)
    """The observed share of each bin."""
    count: Vector = field(repr=False)
    """Cells in each bin; estimated if cells were sampled."""

    @classmethod
    def of(cls, cells: CellPropensities) -> Calibration:
        """Fit the line and compute the bins."""
        p, is_observed, weight = cells.values, cells.is_observed, cells.weight
        intercept, slope = fit_logistic_line(p, is_observed, weight) or (None, None)
        bins = equal_count_bins(p, weight)
        count, predicted, observed = (
            np.bincount(bins, weights=weight * values).astype(np.float64)
            for values in (np.ones_like(p), p, is_observed)
        )
        error = float(np.abs(predicted - observed).sum() / count.sum())
        return cls(
            slope,
            intercept,
            error if error > ERROR_ROUNDING else 0.0,
            predicted / count,
            observed / count,
            count,
        )

    def to_columns(self) -> dict[str, list[Any]]:
        """The curve: one row per bin."""
        names = ("predicted", "observed", "count")
        return {name: getattr(self, name).tolist() for name in names}

    def warnings(self) -> Iterator[PropensityWarning]:
        """One warning for each thing that looks wrong."""
        lowest, highest = CALIBRATION_SLOPES
        if self.slope is None or lowest <= self.slope <= highest:
            return
        amount, remedy = "much", "Cross-fit the model, or calibrate it."
        if self.slope > 1:
            amount = "little"
            remedy = "Use a weaker penalty, or calibrate the model if it was fitted to other cells."
        yield PropensityWarning(
            f"the calibration slope is {self.slope:.2f} and should be 1: "
            f"the propensities vary too {amount} between cells.",
            remedy=remedy,
        )


def equal_count_bins(values: Vector, weight: Vector, n_bins: int = N_BINS) -> IntVector:
    """The bin of each value, numbered from 0 in increasing order of the values.

    The bins have equal weight, as far as that is possible with equal values in one bin. Empty
    bins are dropped.
    """
    order = np.argsort(values)
    cumulative = np.cumsum(weight[order])
    ends = np.searchsorted(cumulative, cumulative[-1] * np.arange(1, n_bins) / n_bins)
    edges = np.unique(values[order[ends]])
    bins = np.searchsorted(edges, values, side="left")  # an edge is the last value of its bin
    return np.unique(bins, return_inverse=True)[1].astype(np.int32)


def fit_logistic_line(p: Vector, is_observed: Vector, weight: Vector) -> tuple[float, float] | None:
    """Intercept and slope of the weighted logistic regression of O on logit P.

    Cells with P of exactly 0 or 1 have no logit and are ignored. None if no finite line maximises
    the likelihood.
    """
    from sklearn.linear_model import LogisticRegression

    has_logit = (p > 0) & (p < 1)
    p, is_observed, weight = p[has_logit], is_observed[has_logit], weight[has_logit]
    logit = np.log(p) - np.log1p(-p)
    if _is_separated(logit[is_observed == 1], logit[is_observed == 0]):
        return None
    regression = LogisticRegression(
        C=np.inf, solver="newton-cholesky", tol=NEWTON_TOLERANCE, max_iter=NEWTON_STEPS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a line that is not finite: see n_iter_ below
        regression.fit(logit[:, None], is_observed, sample_weight=weight)
    if regression.n_iter_[0] >= NEWTON_STEPS:
        return None
    intercept, slope = float(regression.intercept_[0]), float(regression.coef_[0, 0])
    return intercept if abs(intercept) > INTERCEPT_ROUNDING else 0.0, slope


def _is_separated(first: Vector, second: Vector) -> bool:
    """Whether one threshold separates the values, ties at the threshold allowed.

    This includes values that are all equal and groups that are empty.
    """
    if not first.size or not second.size:
        return True
    return bool(first.min() >= second.max() or second.min() >= first.max())


@dataclass(frozen=True, slots=True)
class PropensityAccuracy:
    """Propensities against the true ones, and how much their error can matter."""

    relative_error: float
    """Mean over all cells of |P-hat / P - 1|."""
    bias_bound: float
    """Second term of Eq. (16), Thm 5.2, for losses in [0, 1]: the largest possible bias of IPS.
    Infinite if some P-hat is 0."""
    is_estimated: bool
    """Whether the mean over all cells is estimated from a sample, or from the logged cells
    weighted by 1/P."""

    @classmethod
    def over_cells(cls, assumed: CellPropensities, true: CellPropensities) -> PropensityAccuracy:
        """Compare the propensities of all cells, or of a sample."""
        return cls._of(assumed.values, true.values, assumed.weight, assumed.is_sample)

    @classmethod
    def over_log(cls, assumed: Vector, true: Vector) -> PropensityAccuracy:
        """Compare the propensities of logged cells, each weighted by 1/P."""
        return cls._of(assumed, true, 1.0 / true, True)

    @classmethod
    def _of(
        cls, assumed: Vector, true: Vector, weight: Vector, is_estimated: bool
    ) -> PropensityAccuracy:
        ratio = assumed / as_propensity_cells("true", true)
        error = float(np.average(np.abs(ratio - 1.0), weights=weight))
        bound = math.inf
        if assumed.min() >= SMALLEST:
            bound = bias_bound(true=true, assumed=assumed, weight=weight)
        return cls(error, bound, is_estimated)
