"""Estimates of a growing log whose limits hold at every look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unskew.data.estimation import Estimation, Strata
from unskew.errors import UsageError
from unskew.estimators.estimate import Estimate, OutsideError
from unskew.estimators.observed import Deltas, ObservedCells
from unskew.estimators.point import IPS, SNIPS, Estimator, Naive, universe_error
from unskew.estimators.sequences import (
    MIN_EFFECTIVE_SIZE,
    RunningMean,
    SequenceClock,
    UnitMoments,
)
from unskew.estimators.variance import linearize
from unskew.evaluation.weight_changes import EvaluationInputs
from unskew.settings import WholeNumber
from unskew.types import Vector

ESTIMATORS_OF_SEQUENCES = (Naive, IPS, SNIPS)


def plan_sequence(
    sequence: bool, planned_size: int | None, estimators: Sequence[Estimator], cells: ObservedCells
) -> int:
    """The planned size; an error if limits that hold at every look are not available."""
    if not sequence:
        raise UsageError(
            "`planned_size` is for limits that hold at every look.",
            parameter="planned_size",
            value=planned_size,
            remedy="Pass `sequence=True` too.",
        )
    if planned_size is None:
        raise UsageError(
            "`sequence=True` needs the size that the log is planned to have. It decides where the "
            "limits are narrowest, and must be fixed before the first look.",
            parameter="planned_size",
            remedy="Pass `planned_size=...`: the number of users, or of ratings if `cluster=None`.",
        )
    WholeNumber(least=1)("planned_size", planned_size)
    other = next((e for e in estimators if not isinstance(e, ESTIMATORS_OF_SEQUENCES)), None)
    if other is not None:
        raise UsageError(
            f"{other.name!r} has no confidence sequence: its limits do not hold at every look.",
            parameter="estimators",
            value=other.name,
            remedy="Use 'snips', 'ips' or 'naive'.",
        )
    if cells.cluster not in ("user", None):
        raise UsageError(
            "`sequence=True` needs units that arrive one after the other, which are users or "
            f"single cells; got `cluster={cells.cluster!r}`.",
            parameter="cluster",
            value=cells.cluster,
            remedy="Use `cluster='user'` or `cluster=None`.",
        )
    if cells.users.resampling is not None:
        raise UsageError(
            "a bootstrap has no limits that hold at every look.",
            parameter="bootstrap",
            value=cells.users.resampling.n_resamples,
            remedy="Leave `bootstrap` out.",
        )
    _require_fixed(cells.estimation)
    return planned_size


def _require_fixed(estimation: Estimation | None) -> None:
    """Raise an error if the propensities were estimated from the log that grows."""
    if estimation is None or (isinstance(estimation, Strata) and estimation.relation != "same"):
        return
    if isinstance(estimation, Strata):
        reason = "was fitted to this log, so its propensities change with every look"
    else:
        reason = "has no formula for the error of propensities that come from an earlier log"
    raise UsageError(
        f"{estimation.model} {reason}; a confidence sequence (limits that hold at every look) "
        "needs propensities that stay the same.",
        parameter="propensities",
        remedy="Pass propensities that the logging system recorded, or a naive Bayes or popularity "
        "model that was fitted to an earlier log.",
    )


def estimate_sequences(
    inputs: EvaluationInputs, planned_size: int
) -> dict[tuple[str, str], Estimate]:
    """The estimate of each metric by each estimator, with limits that hold at every look."""
    return {
        (metric, name): _estimate(metric, deltas, estimator, inputs.cells, planned_size)
        for metric, deltas in inputs.deltas.items()
        for name, estimator in inputs.estimators.items()
    }


def describe_sequence(
    cells: ObservedCells, planned_size: int, estimates: Mapping[tuple[str, str], Estimate]
) -> str:
    """How the limits were computed, in words; or that it is too early for them."""
    units = "ratings" if cells.cluster is None else "users"
    sizes = [each.clock.effective_size for each in estimates.values() if each.clock is not None]
    if min(sizes) < MIN_EFFECTIVE_SIZE:
        return (
            f"too early for some of them: {min(sizes):,.0f} effective {units} of the "
            f"{MIN_EFFECTIVE_SIZE:.0f} that limits at every look need"
        )
    text = f"valid at every look, planned size {planned_size:,} {units}"
    if cells.estimation is not None:
        text += f", {cells.estimation.model} taken as fitted to an earlier log"
    return text


def _estimate(
    metric: str, deltas: Deltas, estimator: Estimator, cells: ObservedCells, planned_size: int
) -> Estimate:
    if deltas.is_mean_of_users or not deltas.is_sum:
        raise UsageError(
            f"{metric!r} is not a sum over cells, nor a ratio of such sums, so it has no limits "
            "that hold at every look.",
            parameter="metrics",
            value=metric,
            remedy="Use a metric that is a mean over cells.",
        )
    weight = cells.weight if estimator.is_weighted else np.ones(cells.users.code.size)
    base = np.ones(weight.size) if deltas.base is None else deltas.base
    columns = np.vstack([deltas.value, base]) * weight
    units = columns.T if cells.cluster is None else cells.users.add_up(columns)
    moments = UnitMoments.empty(len(deltas.value)).update(units)
    n_units = weight.size if cells.cluster is None else np.unique(cells.users.code).size
    clock = SequenceClock(n_units, planned_size, moments.effective_size)
    if isinstance(estimator, IPS) and deltas.base is None:
        mean = _mean_over_universe(moments, cells)
    else:
        mean = moments.ratio()
    estimate = Estimate(mean.value, mean.covariance, moments=mean.moments, clock=clock)
    if not estimator.is_weighted or cells.estimation is None:
        return estimate
    return _add_earlier_fit(estimate, deltas, estimator, cells, weight)


def _mean_over_universe(moments: UnitMoments, cells: ObservedCells) -> RunningMean:
    if cells.universe is None:
        raise universe_error(IPS.name)
    if cells.cluster is None:
        return moments.mean(n_units=cells.universe.n_cells)
    return moments.mean(n_units=cells.universe.n_users, size=cells.universe.n_items)


def _add_earlier_fit(
    estimate: Estimate,
    deltas: Deltas,
    estimator: Estimator,
    cells: ObservedCells,
    weight: Vector,
) -> Estimate:
    """Adds the error of propensities from an earlier log, which is the same at every look.

    It is B' Var(counts) B / C^2 through the counts of that log, plus G Sigma G' through its random
    sample.
    """
    spec = estimator.sums_needed(
        is_ratio=deltas.base is not None, is_mean_of_users=False, cluster=None
    )
    linearization = linearize(spec, deltas, cells, estimate, weight)
    assert cells.estimation is not None
    correction = cells.estimation.correct(linearization.residual, weight, cells.weight_derivative)
    covariance = estimate.covariance
    for of_counts in (correction.reduction, correction.addition):
        if of_counts is not None:
            covariance = covariance + of_counts / linearization.normalizer**2
    if correction.outside is not None and correction.sample is not None:
        gradient = correction.outside / linearization.normalizer
        covariance = covariance + OutsideError(gradient, correction.sample).covariance
    return Estimate(
        estimate.value,
        covariance,
        moments=estimate.moments,
        clock=estimate.clock,
        known_covariance=estimate.covariance,
    )
