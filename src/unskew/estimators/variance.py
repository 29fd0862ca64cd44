"""The uncertainty of risks from the contributions of single cells.

To first order the error of a risk is (1/C) sum over all cells of (O - P) (h e - B's), plus G xi
from an outside sample (:mod:`unskew.data.estimation`). With independent cells its variance is
(1/C^2) sum over observed cells of (1 - P) r^2 with r = h e - B's; with clusters, contributions are
added up within each cluster first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unskew.data.estimation import Correction, Estimation, Replicates, TakenAsKnown, Unit
from unskew.data.propensities import Propensities
from unskew.estimators.estimate import Estimate, OutsideError
from unskew.estimators.intervals import Moments
from unskew.estimators.sums import Clusters, Deltas, Imputed, ObservedCells, SumSpec
from unskew.estimators.user_functions import UserFunctions
from unskew.types import IntVector, Matrix, Vector

MAX_LEVERAGE = 0.9
"""A cell with a higher leverage is treated as if it had this one."""


@dataclass(frozen=True, slots=True, eq=False)
class Linearization:
    """A risk as (1/C) sum h e over observed cells, to first order."""

    residual: Matrix
    """e: models x observed cells."""
    normalizer: float
    """C."""
    leverage: Vector | Matrix | None = None
    """Share of each cell in C, if C was computed from the same cells; else None. One row for each
    model if they have different bases."""
    imputed: Imputed | None = None
    """Imputed deltas, whose mean over all cells is a part of the risk."""
    n_cells: int = 1
    """All cells, over which imputed deltas are averaged."""

    def impute(self, unit: Unit) -> Matrix | None:
        """What the imputed deltas add to the risks by user or item, times C; None without them."""
        if self.imputed is None:
            return None
        return self.imputed.by_cluster(unit) * (self.normalizer / self.n_cells)


def linearize(
    spec: SumSpec, deltas: Deltas, cells: ObservedCells, estimate: Estimate, weight: Vector
) -> Linearization:
    """The residuals and the normaliser of the risks that were computed from ``spec``."""
    bases = deltas.base_of(spec)
    base: Any = 1.0 if bases is None else bases
    groups = cells.clusters_by(spec.unit)
    if spec.adds_imputed and deltas.imputed is not None:
        return _linearize_imputed(spec, deltas.value, deltas.imputed, cells, weight)
    if deltas.functions is not None:
        total = float(deltas.functions.measure(weight)[:, -1].sum())
        return Linearization(deltas.functions.differentiate(weight, estimate.value), total)
    if spec.of_ratios and groups is not None:
        return _linearize_mean_of_groups(deltas.value, base, weight, groups)
    if spec.divides_by_base:
        share = weight if bases is None else weight * bases
        totals = share.sum(axis=-1, keepdims=True)
        total = float(totals.max())
        residual = deltas.value - estimate.value[:, None] * base
        if totals.size > 1:
            residual *= total / totals
        return Linearization(residual, total, share / totals)
    assert cells.universe is not None
    return Linearization(deltas.value, float(cells.universe.n_cells))


def _linearize_imputed(
    spec: SumSpec, delta: Matrix, imputed: Imputed, cells: ObservedCells, weight: Vector
) -> Linearization:
    """e = delta - imputed delta and C = U * I, or e minus its mean and C = sum h if normalised."""
    assert cells.universe is not None
    n_cells = cells.universe.n_cells
    error = delta - imputed.observed
    if not spec.is_ratio:
        return Linearization(error, float(n_cells), imputed=imputed, n_cells=n_cells)
    total = float(weight.sum())
    mean = (error * weight).sum(axis=1, keepdims=True) / total
    return Linearization(error - mean, total, weight / total, imputed, n_cells)


def _linearize_mean_of_groups(
    delta: Matrix, base: Vector | float, weight: Vector, groups: Clusters
) -> Linearization:
    """(1/U) sum over users of sum h delta / sum h base: e = (delta - R_u base) / sum_u h base."""
    bases = np.broadcast_to(base, weight.shape)
    sums = groups.add_up(np.vstack([delta, bases]) * weight)
    is_used = sums[:, -1] > 0
    total = np.where(is_used, sums[:, -1], 1.0)
    ratio = sums[:, :-1] / total[:, None]
    code = groups.code
    residual = (delta - ratio[code].T * base) / total[code]
    return Linearization(residual * is_used[code], float(is_used.sum()))


def add_uncertainty(
    estimate: Estimate, spec: SumSpec, deltas: Deltas, cells: ObservedCells
) -> Estimate:
    """The estimate with moments for its intervals, and with the error of the propensities."""
    is_sum = not spec.of_ratios and not spec.adds_imputed
    if is_sum and cells.cluster is not None and cells.cluster != "both":
        return _add_from_columns(estimate, spec, deltas, cells, cells.cluster)
    weight = cells.weight_of(spec)
    if deltas.functions is not None:
        estimate = _add_moments(estimate, deltas.functions, weight)
        if _find_estimation(spec, cells) is None:
            return estimate
    linearization = linearize(spec, deltas, cells, estimate, weight)
    contributions = linearization.residual * weight
    covariance, moments = estimate.covariance, None
    estimation = _find_estimation(spec, cells)
    if not spec.of_ratios and (estimation is None or cells.cluster == "both"):
        measured, moments = _measure(contributions, linearization, None, cells, estimate)
        covariance = measured if cells.cluster == "both" else estimate.covariance
    if deltas.functions is not None:
        moments = estimate.moments
    estimate = replace(estimate, covariance=covariance, moments=moments)
    if estimation is None:
        return estimate
    correction = estimation.correct(linearization.residual, weight, cells.elasticity)
    if not spec.of_ratios:
        contributions -= correction.score
        covariance, moments = _measure(contributions, linearization, correction, cells, estimate)
    return _add_estimation(estimate, correction, covariance, moments, linearization.normalizer)


def _add_moments(estimate: Estimate, functions: UserFunctions, weight: Vector) -> Estimate:
    """The estimate with moments of what each user adds to it."""
    by_user = functions.measure(weight)
    residual = by_user[:, :-1] - np.outer(by_user[:, -1], estimate.value)
    _, moments = _measure_sums(residual / by_user[:, -1].sum(), len(by_user), None)
    return replace(estimate, moments=moments)


def _find_estimation(spec: SumSpec, cells: ObservedCells) -> Estimation | None:
    """How the weights were estimated; None if they are taken as known, or if there are none."""
    estimation = cells.estimation if spec.is_weighted else None
    return None if isinstance(estimation, TakenAsKnown) else estimation


def _add_estimation(
    estimate: Estimate,
    correction: Correction,
    covariance: Matrix,
    moments: Moments | None,
    normalizer: float,
) -> Estimate:
    outside = None
    if correction.outside is not None and correction.sample is not None:
        outside = OutsideError(correction.outside / normalizer, correction.sample)
        covariance = covariance + outside.covariance
    bias = None if correction.bias is None else correction.bias / normalizer
    return replace(
        estimate,
        value=estimate.value if bias is None else estimate.value - bias,
        covariance=covariance,
        moments=moments,
        outside=outside,
        known_covariance=estimate.covariance,
        bias=bias,
    )


def _add_from_columns(
    estimate: Estimate, spec: SumSpec, deltas: Deltas, cells: ObservedCells, unit: Unit
) -> Estimate:
    """The uncertainty with clusters, from sums of the columns x = (deltas, base) by cluster.

    Residuals are linear in these columns, e = J x. So the sums are computed once for all estimators
    that use the same weights, and no estimator passes over the cells again.
    """
    sums = cells.sum_by_cluster(deltas, spec)
    influence = _column_influence(spec, sums.sum(axis=0), estimate.value, cells)
    n_bases = sums.shape[1] - estimate.value.size
    leverage = None
    if spec.divides_by_base:
        leverage = sums[:, -n_bases:] / sums[:, -n_bases:].sum(axis=0)
    clusters = cells.clusters_by(unit)
    assert clusters is not None
    n = max(estimate.n_clusters or clusters.n, len(sums))
    estimation = _find_estimation(spec, cells)
    if estimation is None:
        _, moments = _measure_sums(sums @ influence.T, n, leverage)
        return replace(estimate, moments=moments)

    def correct() -> tuple[Correction, Matrix]:
        return _correct_columns(estimation, spec, deltas, cells, unit)

    correction, corrected = cells.compute_once("correction", deltas, spec, correct)
    covariance, moments = _measure_sums(corrected @ influence.T, max(n, len(corrected)), None)
    correction = correction.combine(influence)
    for part in (correction.pooled, correction.addition):
        covariance = covariance if part is None else covariance + part
    moments = moments.with_variance(covariance)
    return _add_estimation(estimate, correction, covariance, moments, 1.0)


def _column_influence(spec: SumSpec, total: Vector, value: Vector, cells: ObservedCells) -> Matrix:
    """J / C: models x columns, where the residuals are J x."""
    n_models = value.size
    base = total[n_models:]
    if not spec.divides_by_base:
        assert cells.universe is not None
        by_base = np.zeros((n_models, base.size))
        return np.hstack([np.eye(n_models), by_base]) / cells.universe.n_cells
    by_base = -np.diag(value) if base.size > 1 else -value[:, None]
    return np.hstack([np.eye(n_models), by_base]) / np.broadcast_to(base, value.shape)[:, None]


def _correct_columns(
    estimation: Estimation, spec: SumSpec, deltas: Deltas, cells: ObservedCells, unit: Unit
) -> tuple[Correction, Matrix]:
    """The correction of the columns x, and the sums by cluster of ``h x - B's``."""
    base, weight = deltas.base_of(spec), cells.weight_of(spec)
    bases = np.ones((1, weight.size)) if base is None else np.atleast_2d(base)
    columns = np.vstack([deltas.value, bases])
    correction = estimation.correct(columns, weight, cells.elasticity)
    columns *= weight
    columns -= correction.score
    columns /= _leverage_scale(correction)
    clusters = cells.clusters_by(unit)
    assert clusters is not None
    by_cluster = clusters.add_up(columns)
    expected = correction.expected_by_user if unit == "user" else correction.expected_by_item
    if expected is not None:
        by_cluster = _add_rows(by_cluster, expected)
    return replace(correction, score=columns[:, :0], leverage=weight[:0]), by_cluster


def _leverage_scale(correction: Correction) -> Vector:
    """Residuals are divided by this to make up for cells that pull their own propensity."""
    room = 1.0 - np.minimum(correction.leverage, MAX_LEVERAGE)
    return np.sqrt(room) if correction.leverage_power == 1 else room


def _measure_sums(by_cluster: Matrix, n: int, leverage: Matrix | None) -> tuple[Matrix, Moments]:
    """Covariance and moments of n clusters, which are a sample of more clusters.

    ``by_cluster`` (clusters x models) has what each cluster adds to the risks; clusters after its
    last row add 0. ``leverage`` is the share of each cluster in the normaliser.
    """
    by_cluster = np.pad(by_cluster, ((0, n - len(by_cluster)), (0, 0)))
    centred = by_cluster - by_cluster.mean(axis=0)
    factor = n / (n - 1)
    covariance = factor * np.einsum("ci,cj->ij", centred, centred)
    if leverage is not None:
        leverage = np.pad(leverage, ((0, n - len(leverage)), (0, 0)))
        centred = centred / (1.0 - np.minimum(leverage, MAX_LEVERAGE))
    return covariance, Moments.of(np.sqrt(factor) * centred.T)


def _measure(
    contributions: Matrix,
    linearization: Linearization,
    correction: Correction | None,
    cells: ObservedCells,
    estimate: Estimate,
) -> tuple[Matrix, Moments]:
    """Covariance and moments of the risks, given K x observed cells of ``h e - B's``."""
    scale = 1.0 / linearization.normalizer
    if correction is not None:
        contributions /= _leverage_scale(correction)
    if cells.cluster is None:
        covariance, moments = _measure_cells(
            contributions * scale, linearization, correction, cells
        )
    elif cells.cluster == "both":
        covariance, moments = _measure_both(contributions, linearization, correction, cells)
    else:
        covariance, moments = _measure_clusters(
            contributions, linearization, correction, cells, cells.cluster, estimate.n_clusters
        )
    if correction is None:
        return covariance, moments
    if correction.pooled is not None:
        covariance = covariance + correction.pooled * scale**2
    if correction.addition is not None:
        covariance = covariance + correction.addition * scale**2
    if correction.reduction is not None and cells.cluster is None:
        covariance = covariance - correction.reduction * scale**2
    return covariance, moments.with_variance(covariance)


def _measure_cells(
    contributions: Matrix,
    linearization: Linearization,
    correction: Correction | None,
    cells: ObservedCells,
) -> tuple[Matrix, Moments]:
    """Independent cells: Var(O) = P (1 - P), of which 1 - P remains for an observed cell."""
    propensity = None if cells.propensities is None else cells.propensities.values
    uncertainty = np.ones(contributions.shape[1]) if propensity is None else 1.0 - propensity
    third = None if propensity is None else uncertainty * (1.0 - 2.0 * propensity)
    covariance = np.einsum("in,jn->ij", contributions * uncertainty, contributions)
    if correction is None and linearization.leverage is not None:
        contributions = contributions / (1.0 - np.minimum(linearization.leverage, MAX_LEVERAGE))
    return covariance, Moments.of(contributions, uncertainty, third)


def _measure_clusters(
    contributions: Matrix,
    linearization: Linearization,
    correction: Correction | None,
    cells: ObservedCells,
    unit: Unit,
    n_clusters: int | None,
) -> tuple[Matrix, Moments]:
    """Independent clusters, which are a sample of more clusters."""
    clusters = cells.clusters_by(unit)
    assert clusters is not None
    by_cluster = clusters.add_up(contributions)
    imputed = linearization.impute(unit)
    if imputed is not None:
        by_cluster = _add_rows(by_cluster, imputed)
    if correction is not None:
        expected = correction.expected_by_user if unit == "user" else correction.expected_by_item
        if expected is not None:
            by_cluster = _add_rows(by_cluster, expected)
    n = max(n_clusters or clusters.n, len(by_cluster))
    leverage = None
    if correction is None and linearization.leverage is not None:
        leverage = clusters.add_up(np.atleast_2d(linearization.leverage))
    return _measure_sums(by_cluster / linearization.normalizer, n, leverage)


def _measure_both(
    contributions: Matrix,
    linearization: Linearization,
    correction: Correction | None,
    cells: ObservedCells,
) -> tuple[Matrix, Moments]:
    """Two-way clusters: the variance by users, plus by items, minus by cells.

    If the difference is not a covariance, the variance by cells is not subtracted. The part of it
    that imputed deltas have is never subtracted; it is smaller by the density of the log.
    """
    parts = [
        _measure_clusters(contributions, linearization, correction, cells, unit, None)
        for unit in ("user", "item")
    ]
    covariance = parts[0][0] + parts[1][0]
    scaled = contributions / linearization.normalizer
    reduced = covariance - np.einsum("in,jn->ij", scaled, scaled)
    if np.linalg.eigvalsh(reduced)[0] > 0:
        covariance = reduced
    fewest = [moments.degrees for _, moments in parts]
    moments = parts[0][1].with_variance(covariance, np.minimum(*fewest))
    return covariance, moments


def _add_rows(first: Matrix, second: Matrix) -> Matrix:
    """The sum of two matrices, of which one may have more rows than the other."""
    n = max(len(first), len(second))
    first, second = (np.pad(each, ((0, n - len(each)), (0, 0))) for each in (first, second))
    return first + second


def half_sample_covariance(
    values_of: Callable[[Deltas, ObservedCells], Vector],
    deltas: Deltas,
    cells: ObservedCells,
    *,
    is_normalized: bool,
) -> Matrix:
    """Mean over pairs of complementary half-samples of (R_a - R_b)^2 / 4.

    The propensity model is fitted again to each half, so its estimation is included. A half has
    the universe of the whole log. A risk that is divided by all cells rather than by the sum of
    weights (``is_normalized``) is then too small by the share of the cells that the weights of the
    half represent: half of them if half of the users are left out and users have parameters, all
    of them if propensities are halved. The differences are multiplied by the inverse share.
    """
    estimation = cells.estimation
    assert isinstance(estimation, Replicates)
    unit: Unit | None = "user" if cells.cluster == "both" else cells.cluster
    clusters = cells.clusters_by(unit)
    code = None if clusters is None else clusters.code
    total = float(cells.weight.sum())
    differences = []
    for halves in estimation.fit_halves(code, cells.users.code.size):
        parts = [
            (_take_half(deltas, rows, cells, unit), cells.take(rows, Propensities(p)))
            for rows, p in halves
        ]
        first, second = (values_of(*part) for part in parts)
        represented = float(np.mean([part.weight.sum() for _, part in parts]))
        factor = 1.0 if is_normalized or represented == 0 else total / represented
        differences.append(factor * (first - second))
    spread = np.stack(differences)
    return spread.T @ spread / (4 * len(spread))


def _take_half(deltas: Deltas, rows: IntVector, cells: ObservedCells, unit: Unit | None) -> Deltas:
    """Deltas of half of the cells; if clusters are split, with the imputed deltas of this half."""
    half, clusters = deltas.take(rows), cells.clusters_by(unit)
    if half.imputed is None or unit is None or clusters is None:
        return half
    return replace(half, imputed=half.imputed.project(unit, np.unique(clusters.code[rows])))
