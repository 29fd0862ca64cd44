"""The uncertainty of risks from the contributions of single cells.

To first order the error of a risk is (1/C) sum over all cells of (O - P) (h e - B's), plus G xi
from an outside sample (:mod:`unskew.data.estimation`). With independent cells its variance is
(1/C^2) sum over observed cells of (1 - P) r^2 with r = h e - B's; with clusters, contributions are
added up within each cluster first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from unskew.data.estimation import (
    MAX_LEVERAGE,
    Correction,
    Estimation,
    Replicates,
    TakenAsKnown,
    Unit,
)
from unskew.data.propensities import Propensities
from unskew.estimators.estimate import Estimate, OutsideError
from unskew.estimators.intervals import Moments, covariance_of_contrasts
from unskew.estimators.observed import Clusters, Deltas, Imputed, ObservedCells, SumSpec
from unskew.estimators.sums import (
    Sums,
    few_clusters_error,
    find_influence,
    measure_functions,
)
from unskew.kernels.blocks import cut_rows, sum_products
from unskew.threads import single_blas_thread
from unskew.types import IndexVector, Matrix, Vector

ROUNDING = 1e-13
"""A base is 0 after the correction if it is at most this share of the largest weight."""


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
    groups = cells.clusters_of(spec.unit)
    if spec.adds_imputed and deltas.imputed is not None:
        return _linearize_imputed(spec, deltas.value, deltas.imputed, cells, weight)
    if deltas.functions is not None:
        total = float(measure_functions(spec, deltas, cells)[:, -1].sum())
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
    if is_sum and cells.cluster is not None:
        return _add_from_columns(estimate, spec, deltas, cells)
    if is_sum:
        return _add_from_cells(estimate, spec, deltas, cells)
    weight = cells.weight_of(spec)
    if deltas.functions is not None:
        estimate = _add_moments(estimate, measure_functions(spec, deltas, cells))
        if _find_estimation(spec, cells) is None:
            return estimate
    linearization = linearize(spec, deltas, cells, estimate, weight)
    contributions = linearization.residual * weight
    moments = None
    estimation = _find_estimation(spec, cells)
    if not spec.of_ratios and (estimation is None or cells.cluster == "both"):
        measured, moments = measure_contributions(
            contributions, linearization, None, cells, estimate
        )
        if cells.cluster == "both":
            n_clusters = min(_count_clusters(estimate, cells))
            estimate = replace(estimate, covariance=measured, n_clusters=n_clusters)
    if deltas.functions is not None:
        moments = estimate.moments
    estimate = replace(estimate, moments=moments)
    if estimation is None:
        return estimate
    correction = estimation.correct(linearization.residual, weight, cells.weight_derivative)
    covariance = estimate.covariance
    if not spec.of_ratios:
        correction.correct_rows(contributions, slice(None))
        covariance, moments = measure_contributions(
            contributions, linearization, correction, cells, estimate
        )
    return _add_estimation(estimate, correction, covariance, moments, linearization.normalizer)


def _add_moments(estimate: Estimate, by_user: Matrix) -> Estimate:
    """The estimate with moments of what each user adds to it: numerators and base."""
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


def _add_base_share(estimate: Estimate, columns: Correction, spec: SumSpec) -> Estimate:
    """The estimate with the share of each level of an outside sample in its normaliser."""
    if estimate.outside is None or columns.outside is None:
        return estimate
    outside = OutsideError.of_columns(
        estimate.outside.gradient,
        columns.outside,
        estimate.outside.sample,
        is_ratio=spec.divides_by_base,
    )
    return replace(estimate, outside=outside)


def _add_from_columns(
    estimate: Estimate, spec: SumSpec, deltas: Deltas, cells: ObservedCells
) -> Estimate:
    """The uncertainty with clusters, from sums of the columns x = (deltas, base) by cluster.

    Residuals are linear in these columns, e = J x. So the sums are computed once for all estimators
    that use the same weights, and no estimator passes over the cells again.
    """
    sums = [cells.sum_by_cluster(deltas, replace(spec, unit=unit)) for unit in cells.units]
    totals = sums[0].sum(axis=0)[estimate.value.size :]
    influence = find_influence(spec, totals, estimate.value, cells.universe)
    sizes = _count_clusters(estimate, cells)

    def measure(sums: list[Matrix], moment: Matrix | None, *, has_leverage: bool) -> Measured:
        parts = []
        for by_cluster, n in zip(sums, sizes, strict=True):
            bases = by_cluster[:, -totals.size :]
            leverage = bases / bases.sum(axis=0) if has_leverage else None
            parts.append(_measure_sums(by_cluster @ influence.T, n, leverage))
        return _combine_units(parts, None if moment is None else influence @ moment @ influence.T)

    moment = None
    if cells.cluster == "both":
        moment = cells.compute_once("moment", deltas, spec, lambda: _square(spec, deltas, cells))
    covariance, moments = measure(sums, moment, has_leverage=spec.divides_by_base)
    if cells.cluster == "both":
        estimate = replace(estimate, covariance=covariance, n_clusters=min(sizes))
    estimation = _find_estimation(spec, cells)
    if estimation is None:
        return replace(estimate, moments=moments)
    group = cells.find_group(deltas)
    corrected = cells.compute_once(
        "correction", group[0], spec, lambda: _correct_columns(estimation, spec, group, cells)
    ).select(_find_rows(deltas, spec, group))
    covariance, moments = measure(corrected.sums, corrected.moment, has_leverage=False)
    correction = corrected.correction.combine(influence)
    for part in (correction.pooled, correction.addition):
        covariance = covariance if part is None else covariance + part
    moments = moments.with_variance(covariance)
    estimate = _add_estimation(estimate, correction, covariance, moments, 1.0)
    return _add_base_share(estimate, corrected.correction, spec)


def _count_clusters(estimate: Estimate, cells: ObservedCells) -> list[int]:
    """The number of clusters of each unit. One-way ratios count only those that have cells."""
    if estimate.n_clusters is None or cells.cluster == "both":
        return [cells.clusters_of(unit).n for unit in cells.units]
    return [
        max(estimate.n_clusters, int((cells.count_cells(unit) > 0).sum())) for unit in cells.units
    ]


def _square(spec: SumSpec, deltas: Deltas, cells: ObservedCells) -> Matrix:
    """Sum over cells of (h x)(h x)' with x = (deltas, base)."""
    weight, base = cells.weight_of(spec), deltas.base_of(spec)
    return Sums.of(deltas.value, weight=weight, base=base).moment


def _sum_squares(columns: Matrix) -> Matrix:
    """Sum over cells of x x'."""
    blocks = (columns[:, rows] for rows in cut_rows(columns.shape[1]))
    with single_blas_thread():
        squares: Matrix = np.sum([sum_products(block, block) for block in blocks], axis=0)
    return squares


def _add_from_cells(
    estimate: Estimate, spec: SumSpec, deltas: Deltas, cells: ObservedCells
) -> Estimate:
    """The uncertainty with independent cells, computed in blocks from the columns (deltas, base).

    Without estimated propensities, contributions are divided by 1 minus the share of the cell in
    the normaliser, which makes up for residuals that are too small. With propensities by stratum,
    the correction removes the base, and then all estimators with these weights share moments.
    """
    weight, base, value = cells.weight_of(spec), deltas.base_of(spec), estimate.value
    totals = np.atleast_1d((weight if base is None else weight * base).sum(axis=-1))
    influence = find_influence(spec, totals, value, cells.universe)
    scale = np.diag(influence)[:, None]

    def contribute(rows: slice) -> Matrix:
        h, delta = weight[rows], deltas.value[:, rows]
        contributions: Matrix
        if spec.divides_by_base and base is None and not spec.is_weighted:
            contributions = delta - value[:, None]
            contributions /= float(totals[0]) - min(1.0, MAX_LEVERAGE * float(totals[0]))
        elif spec.divides_by_base:
            block = None if base is None else base[..., rows]
            share = h if block is None else h * block
            rest = totals[:, None] - np.minimum(share, MAX_LEVERAGE * totals[:, None])
            contributions = delta - value[:, None] * (1.0 if block is None else block)
            contributions *= h / rest
        else:
            contributions = delta * (h * scale[0])
        return contributions

    estimation = _find_estimation(spec, cells)
    if estimation is None:
        return replace(estimate, moments=_measure_cells(contribute, cells))
    group = cells.find_group(deltas)
    correction, columns = cells.compute_once(
        "corrected cells" if len(group) == 1 else "corrected cells of several metrics",
        group[0],
        spec,
        lambda: _correct_cells(estimation, spec, group, cells),
        is_large=True,
    )
    selected = _find_rows(deltas, spec, group)
    correction = correction.select(selected)
    risks = columns[selected[0] : selected[0] + value.size]
    bases = columns[selected[value.size] :]
    if spec.divides_by_base and np.abs(bases).max() > ROUNDING * weight.max():

        def subtract_bases(rows: slice) -> Matrix:
            contributions: Matrix = value[:, None] * bases[:, rows]
            np.subtract(risks[:, rows], contributions, out=contributions)
            contributions *= scale
            return contributions

        moments = _measure_cells(subtract_bases, cells)
    else:
        moments = cells.compute_once(
            "moments", deltas, spec, lambda: _measure_cells(lambda rows: risks[:, rows], cells)
        ).scale(float(scale[0, 0]))
    combined = correction.combine(influence)
    covariance = combined.adjust(moments.covariance)
    moments = moments.with_variance(covariance)
    estimate = _add_estimation(estimate, combined, covariance, moments, 1.0)
    return _add_base_share(estimate, correction, spec)


def _measure_cells(contribute: Callable[[slice], Matrix], cells: ObservedCells) -> Moments:
    """Moments of contributions to the risks, given a function of the rows of a block of cells.

    Var(O) = P (1 - P), of which 1 - P remains for an observed cell. The third moment of O is
    P (1 - P) (1 - 2 P).
    """

    def cut_blocks() -> Iterator[tuple[Matrix, Vector | None, Vector | None]]:
        for rows in cut_rows(cells.users.code.size):
            if cells.propensities is None:
                yield contribute(rows), None, None
                continue
            propensity = cells.propensities.values[rows]
            uncertainty = 1.0 - propensity
            yield contribute(rows), uncertainty, uncertainty - propensity

    return Moments.add_up(cut_blocks())


def _count_bases(deltas: Deltas, spec: SumSpec) -> int:
    base = deltas.base_of(spec)
    return 1 if base is None else len(np.atleast_2d(base))


def _find_rows(deltas: Deltas, spec: SumSpec, group: Sequence[Deltas]) -> list[int]:
    """The rows of the deltas, and of their bases, among the columns of a group."""
    ends = list(accumulate(len(each.value) for each in group))
    position = next(k for k, each in enumerate(group) if each is deltas)
    first = ends[position] - len(deltas.value)
    return [*range(first, ends[position]), *range(ends[-1], ends[-1] + _count_bases(deltas, spec))]


def _correct_cells(
    estimation: Estimation, spec: SumSpec, group: Sequence[Deltas], cells: ObservedCells
) -> tuple[Correction, Matrix]:
    """The correction of the columns x, and ``h x - B's`` of each cell.

    The columns are the deltas of one metric or of several, and then the base they have in common.
    """
    base, weight = group[0].base_of(spec), cells.weight_of(spec)
    n_deltas, n_bases = sum(len(each.value) for each in group), _count_bases(group[0], spec)
    columns = np.empty((n_deltas + n_bases, weight.size))
    np.concatenate([each.value for each in group], out=columns[:n_deltas])
    columns[n_deltas:] = 1.0 if base is None else base
    correction = estimation.correct(columns, weight, cells.weight_derivative)
    for rows in cut_rows(weight.size):
        block = columns[:, rows]
        block *= weight[rows]
        correction.correct_rows(block, rows)
    return correction.without_cells(), columns


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedColumns:
    """Sums of ``h x - B's`` by cluster, and what else the estimation of propensities changes."""

    correction: Correction
    """Without the scores of single cells."""
    sums: list[Matrix]
    """For each unit: clusters x columns."""
    moment: Matrix | None
    """Columns x columns, over cells; None unless there are two units."""

    def select(self, rows: Sequence[int]) -> CorrectedColumns:
        """The same record of some of the columns."""
        return CorrectedColumns(
            self.correction.select(rows),
            [by_cluster[:, rows] for by_cluster in self.sums],
            None if self.moment is None else self.moment[np.ix_(rows, rows)],
        )


def _correct_columns(
    estimation: Estimation, spec: SumSpec, group: Sequence[Deltas], cells: ObservedCells
) -> CorrectedColumns:
    correction, columns = _correct_cells(estimation, spec, group, cells)
    sums = []
    for unit in cells.units:
        by_cluster = cells.clusters_of(unit).add_up(columns)
        expected = correction.expected_by(unit)
        sums.append(by_cluster if expected is None else _add_rows(by_cluster, expected))
    return CorrectedColumns(
        correction,
        sums,
        _sum_squares(columns) if len(sums) > 1 else None,
    )


Measured: TypeAlias = tuple[Matrix, Moments]
"""The covariance of the risks, and the moments of what it was measured from."""


def _measure_sums(by_cluster: Matrix, n: int, leverage: Matrix | None) -> Measured:
    """Covariance and moments of n clusters, which are a sample of more clusters.

    ``by_cluster`` (clusters x models) has what each cluster adds to the risks. If there are more
    than ``n`` clusters that add something, all of them count; all further ones add 0. ``leverage``
    is the share of each cluster in the normaliser.
    """
    is_used = by_cluster.any(axis=1)
    by_cluster = by_cluster[is_used]
    n = max(n, len(by_cluster))
    if n < 2:
        raise few_clusters_error(n)
    n_empty = n - len(by_cluster)
    mean = by_cluster.sum(axis=0) / n
    centred = np.pad(by_cluster, ((0, n_empty), (0, 0))) - mean
    factor = n / (n - 1)
    covariance = factor * np.einsum("ci,cj->ij", centred, centred)
    if leverage is not None:
        leverage = np.pad(leverage[is_used], ((0, n_empty), (0, 0)))
        centred = centred / (1.0 - np.minimum(leverage, MAX_LEVERAGE))
    return covariance, Moments.of(np.sqrt(factor) * centred.T)


def _combine_units(parts: list[Measured], by_cell: Matrix | None) -> Measured:
    """One-way clusters as they are; two-way ones: by users, plus by items, minus by cells.

    If the difference is not a covariance, the variance by cells is not subtracted.
    """
    if by_cell is None:
        return parts[0]
    covariance = parts[0][0] + parts[1][0]
    reduced = covariance - by_cell
    if np.linalg.eigvalsh(reduced)[0] > 0:
        covariance = reduced
    (_, by_user), (_, by_item) = parts
    return covariance, by_user.combine(by_item, covariance)


def measure_contributions(
    contributions: Matrix,
    linearization: Linearization,
    correction: Correction | None,
    cells: ObservedCells,
    estimate: Estimate,
) -> tuple[Matrix, Moments]:
    """Covariance and moments of the risks, given K x observed cells of ``h e - B's``."""
    scale = 1.0 / linearization.normalizer
    if cells.cluster is None:
        if correction is None and linearization.leverage is not None:
            contributions /= 1.0 - np.minimum(linearization.leverage, MAX_LEVERAGE)
        moments = _measure_cells(lambda rows: contributions[:, rows] * scale, cells)
        covariance = moments.covariance
    else:
        covariance, moments = _measure_clusters(
            contributions, linearization, correction, cells, _count_clusters(estimate, cells)
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


def _measure_clusters(
    contributions: Matrix,
    linearization: Linearization,
    correction: Correction | None,
    cells: ObservedCells,
    sizes: list[int],
) -> Measured:
    """Independent clusters, which are a sample of more clusters.

    With two-way clusters, the part of the variance by cells that imputed deltas have is never
    subtracted; it is smaller by the density of the log.
    """
    parts = []
    for unit, n in zip(cells.units, sizes, strict=True):
        clusters = cells.clusters_of(unit)
        by_cluster = clusters.add_up(contributions)
        expected = None if correction is None else correction.expected_by(unit)
        for added in (linearization.impute(unit), expected):
            by_cluster = by_cluster if added is None else _add_rows(by_cluster, added)
        leverage = None
        if correction is None and linearization.leverage is not None:
            leverage = clusters.add_up(np.atleast_2d(linearization.leverage))
            leverage = _add_rows(leverage, np.zeros((len(by_cluster), 1)))
        parts.append(_measure_sums(by_cluster / linearization.normalizer, n, leverage))
    scaled = contributions / linearization.normalizer
    return _combine_units(parts, _sum_squares(scaled) if len(parts) > 1 else None)


def _add_rows(first: Matrix, second: Matrix) -> Matrix:
    """The sum of two matrices, of which one may have more rows than the other."""
    n = max(len(first), len(second))
    first, second = (np.pad(each, ((0, n - len(each)), (0, 0))) for each in (first, second))
    return first + second


def half_sample_covariance(
    values_of: Callable[[Deltas, ObservedCells], Vector], deltas: Deltas, cells: ObservedCells
) -> Matrix:
    """Mean over pairs of complementary half-samples of (R_a - R_b)^2 / 4.

    The propensity model is fitted again to each half, so its estimation is included. It is for
    risks that are divided by their sum of weights: the weights of a half add up to less than those
    of the whole log.
    """
    estimation = cells.estimation
    assert isinstance(estimation, Replicates)
    unit: Unit | None = "user" if cells.cluster == "both" else cells.cluster
    clusters = cells.clusters_of(unit)
    code = None if clusters is None else clusters.code
    differences = []
    for halves in estimation.fit_halves(code, cells.users.code.size):
        first, second = (
            values_of(_take_half(deltas, rows, cells, unit), cells.take(rows, Propensities(p)))
            for rows, p in halves
        )
        differences.append(first - second)
    spread = np.stack(differences)
    return spread.T @ spread / (4 * len(spread))


def find_uncertain_share(
    spec: SumSpec, deltas: Deltas, cells: ObservedCells, estimate: Estimate
) -> float:
    """The share of the variance by half-samples that is there if cells are independent.

    Half-samples measure sum z^2 with z = h e, as if the log were drawn from a log without end. Of a
    fixed number of cells the variance is sum (1 - P) z^2. It is the largest share among all risks
    and their differences, so that one number keeps the covariance a covariance.
    """
    if spec.of_ratios or cells.cluster is not None or cells.propensities is None:
        return 1.0
    weight = cells.weight_of(spec)
    residual = linearize(spec, deltas, cells, estimate, weight).residual
    uncertainty = 1.0 - cells.propensities.values
    rest, total = (
        covariance_of_contrasts(np.einsum("in,jn->ij", residual * factor, residual))
        for factor in (np.square(weight) * uncertainty, np.square(weight))
    )
    is_used = total > ROUNDING * total.max()
    return float((rest[is_used] / total[is_used]).max()) if is_used.any() else 1.0


def _take_half(
    deltas: Deltas, rows: IndexVector, cells: ObservedCells, unit: Unit | None
) -> Deltas:
    """Deltas of half of the cells; if clusters are split, with the imputed deltas of this half."""
    half, clusters = deltas.take(rows), cells.clusters_of(unit)
    if half.imputed is None or unit is None or clusters is None:
        return half
    return replace(half, imputed=half.imputed.project(unit, np.unique(clusters.code[rows])))
