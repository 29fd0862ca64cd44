"""How the error of an estimated examination curve enters the values of ``pbm`` and ``snpbm``.

With b = log th, the value V of a policy moves by grad' (b_hat - b), where grad_j = dV / db_j. The
variance grad' Cov(b) grad is added if the curve comes from another log. If the conditional method
estimated it from the evaluated log itself, both errors depend on the same clicks: then each cluster
g adds grad' H^-1 S_g to its influence on V.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unskew.data.impressions import Impressions
from unskew.errors import NotIdentifiedError
from unskew.estimators.estimate import Estimate
from unskew.policies.columns import ArrayColumns
from unskew.policies.examination import sum_influence
from unskew.policies.position_bias import ExaminationCurve
from unskew.policies.result import LOGGED
from unskew.policies.terms import Term, TermSums
from unskew.types import IntVector, Matrix

STEP = 1e-4
"""Shift of log th for derivatives; the error of a central difference is of the order STEP^2."""


def find_curve(examination: object) -> ExaminationCurve | None:
    """The estimated curve behind an examination; None if it was given as numbers."""
    curve = getattr(examination, "curve_", examination)
    return curve if isinstance(curve, ExaminationCurve) else None


def shift_curve(
    curve: ExaminationCurve,
    find_terms: Callable[[ArrayColumns], list[Term]],
    columns: Mapping[str, ArrayColumns],
    logged: list[Term],
) -> Iterator[TermSums]:
    """The sums of an estimator after shifts of log th by +STEP and -STEP, by position."""
    for position in curve.positions[1:].tolist():
        for shift in (STEP, -STEP):
            quantities = {}
            for name, each in columns.items():
                examination = np.array(each.examination)
                examination[position - 1 : position] *= np.exp(shift)
                quantities[name] = find_terms(replace(each, curve=examination))
            n_requests = next(iter(columns.values())).shown.n_requests
            one_cluster = np.zeros(n_requests, dtype=np.int32)
            yield TermSums.of(quantities | {LOGGED: logged}, one_cluster, np.array([0]))


def find_gradient(shifted: Sequence[TermSums]) -> Matrix:
    """Positions x quantities: dV / db, from the sums of :func:`shift_curve`."""
    values = np.array([sums.find_values() for sums in shifted])
    slopes = (values[::2] - values[1::2]) / (2 * STEP)
    return np.vstack([np.zeros((1, slopes.shape[1])), slopes])


@dataclass(frozen=True, eq=False)
class CurveUncertainty:
    """The error of an estimated examination curve."""

    curve: ExaminationCurve
    influence: Matrix | None = None
    """Clusters x positions: H^-1 S_g of the evaluated log; None if the curve is from another."""
    is_same_log: bool = False

    @classmethod
    def of(
        cls, curve: ExaminationCurve, shown: Impressions, cluster: IntVector, n_clusters: int
    ) -> CurveUncertainty:
        """``cluster`` is the code of each row of the evaluated log."""
        if curve.log_digest != shown.digest:
            if np.isnan(curve.log_covariance).any():
                raise NotIdentifiedError(
                    "the error of `examination` is unknown: its positions are comparable only by "
                    f"way of single {curve.cluster}s.",
                    parameter="examination",
                    remedy="Fit it with PositionBias(cluster='user'), or on a log in which more "
                    "items change their position.",
                )
            return cls(curve)
        if curve.method != "conditional":
            return cls(curve, is_same_log=True)
        log_curve = np.log(curve.examination)
        influence = sum_influence(shown, curve.cell, log_curve, cluster, n_clusters)
        return cls(curve, influence, is_same_log=True)

    def estimate(
        self,
        sums: TermSums,
        shifted: Sequence[TermSums],
        *,
        bounds: tuple[float, float] | None = None,
    ) -> Estimate:
        """The values with both errors: of the rewards, and of the curve."""
        gradient = find_gradient(shifted)
        if self.influence is not None:
            return sums.estimate(bounds=bounds, added_influence=self.influence @ gradient)
        covariance = gradient.T @ self.curve.log_covariance @ gradient
        return sums.estimate(bounds=bounds, added_covariance=covariance)

    def describe(self, estimators: tuple[str, ...]) -> str:
        """What the intervals of these estimators include, in words."""
        names = " and ".join(repr(name) for name in estimators)
        included = f"intervals of {names} include the error of the examination curve to first order"
        if self.influence is not None:
            return f"{included}, which was estimated from this log"
        if self.is_same_log:
            return f"{included} as if it came from another log, though it was estimated from this"
        return f"{included} as that of another log"
