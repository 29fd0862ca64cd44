"""The sums over observed cells from which estimates and their covariances follow.

With ``x``, the weight ``h`` and the propensity ``P`` of each observed cell:

    total  = sum h x
    moment = sum h^2 (1 - P) x x'           for independent cells, since Var(O) = P (1 - P)
    moment = sum_c A_c A_c', A_c = sum h x  over the cells of cluster c, for dependent cells

An estimator says which sums it needs (:class:`SumSpec`). :func:`add_up` fills them from arrays; a
data frame or an SQL engine fills the same record with one query.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.estimators.observed import Clusters, Deltas, Imputed, ObservedCells, SumSpec
from unskew.estimators.user_functions import (
    KEPT_SHARE,
    MIN_CELLS_PER_USER,
    N_THINNINGS,
    THINNING_SEED,
    BiasSums,
    UserFunctions,
)
from unskew.kernels.blocks import BLOCK, cut_rows, dot, sum_products
from unskew.threads import single_blas_thread
from unskew.types import Matrix, Vector

SINGLE_CELL = 1e-9
"""A group whose effective size exceeds 1 by less than about this share has a single cell."""
NEARLY_EQUAL = 1e-3
"""Deltas that differ from the first by at most this share of it are nearly equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over cells. Those of disjoint sets of cells (or of clusters) can be added."""

    total: Vector
    moment: Matrix
    n_clusters: int | None = None
    """The number of independent clusters; None if cells are independent."""
    n_left_out: int = 0
    """Units with cells but without weight, which a mean over units leaves out."""
    replicates: Matrix | None = None
    """``total`` of each bootstrap resample."""
    slot_totals: Matrix | None = None
    """Models x 3, if each model has its own base: the number of cells with weight and base, the
    sum of (h base)^2, and the sum of (1 - P) (h base)^2."""
    ratio_bias: Vector | None = None
    """Of ``n_biases`` units: the sum over units of the bias of each unit's own ratio."""
    n_biases: int = 0
    pooled: Vector | None = None
    """Of ratios without a base of their own: sum h delta of each model, then sum h, over the cells
    of all units. Their ratio has the same expectation, up to a bias of the order of 1/n."""
    shift: Vector | float = 0.0
    """What was subtracted from each model's deltas, and must be added to a ratio of the sums."""

    @classmethod
    def of(
        cls,
        delta: Matrix | Vector,
        propensities: Propensities | None = None,
        *,
        weight: Vector | None = None,
        base: Vector | Matrix | None = None,
        clusters: Clusters | None = None,
        is_ratio: bool = False,
        imputed_by_cluster: Matrix | None = None,
        by_cluster: Matrix | None = None,
    ) -> Sums:
        """Sums of ``delta``, one row for each model, weighted by 1/P or by ``weight``.

        With ``is_ratio``, clusters whose base adds up to 0 are not counted.
        ``imputed_by_cluster`` (clusters x models) is added to the sums of each cluster.
        ``by_cluster`` are the sums of each cluster, if they are known already.
        """
        deltas = np.atleast_2d(delta)
        if weight is None:
            weight = np.ones(deltas.shape[1]) if propensities is None else propensities.inverse
        slot_totals = None
        if base is not None and base.ndim == 2:
            slot_totals = _summarize_slots(base * weight, propensities)
        if clusters is None:
            sums = _sum_cells(deltas, propensities, weight, base, imputed_by_cluster)
            return replace(sums, slot_totals=slot_totals)
        if by_cluster is None:
            by_cluster = clusters.add_up_weighted(deltas, base, weight)
        if imputed_by_cluster is not None:
            n_missing = len(imputed_by_cluster) - len(by_cluster)
            by_cluster = np.pad(by_cluster, ((0, n_missing), (0, 0)))
            by_cluster[:, :-1] += imputed_by_cluster
        if is_ratio:
            is_used = by_cluster[:, -1] > 0
            if slot_totals is not None:
                is_used = np.bincount(clusters.code, weights=weight) > 0
            by_cluster = by_cluster[is_used]
            clusters = replace(clusters, n=len(by_cluster))
        return replace(_sum_clusters(by_cluster, clusters), slot_totals=slot_totals)

    @classmethod
    def of_functions(cls, by_user: Matrix, groups: Clusters, bias: Vector | None) -> Sums:
        """Sums over users of the numerators and the base of functions of their weights.

        ``bias`` is what remains after the first-order bias was subtracted; None without weights.
        """
        sums = _sum_clusters(by_user, replace(groups, n=len(by_user)))
        n_with_cells = int((np.bincount(groups.code) > 0).sum())
        sums = replace(sums, n_left_out=max(n_with_cells - len(by_user), 0))
        return sums if bias is None else replace(sums, ratio_bias=bias, n_biases=1)

    @classmethod
    def of_ratios(
        cls,
        delta: Matrix,
        *,
        weight: Vector,
        base: Vector | None,
        groups: Clusters,
        propensities: Propensities | None = None,
    ) -> Sums:
        """Sums over groups of each group's ratio: total = (sum_g R_g, number of groups).

        The groups are the sample, so the spread between them includes the noise within them.
        Groups whose base adds up to 0 are left out and counted. ``propensities`` are those behind
        the weights; with them the bias of the ratios is estimated. It is NaN if groups have too
        few cells with a base to estimate it.
        """
        by_group = groups.add_up(_stack(delta, base) * weight)
        with_base = by_group[by_group[:, -1] > 0]
        n_groups = len(with_base)
        ratios = with_base[:, :-1] / with_base[:, -1:]
        sums = _sum_clusters(
            np.column_stack([ratios, np.ones(n_groups)]), replace(groups, n=n_groups)
        )
        n_with_cells = int((np.bincount(groups.code) > 0).sum())
        sums = replace(sums, n_left_out=n_with_cells - n_groups)
        if propensities is None:
            return sums
        bias, n_biases = _add_up_biases(delta, weight, base, groups, propensities)
        if base is not None:
            users = groups.code[(base > 0) & (weight > 0)]
            if users.size < MIN_CELLS_PER_USER * n_groups:
                bias = np.full_like(bias, np.nan)
        pooled = by_group.sum(axis=0) if base is None else None
        return replace(sums, ratio_bias=bias, n_biases=n_biases, pooled=pooled)

    def __add__(self, other: Sums) -> Sums:
        if (self.n_clusters is None) != (other.n_clusters is None):
            raise UsageError(
                "sums over clusters and sums over independent cells cannot be added.",
                remedy="Use the same `cluster` for all of them.",
            )
        if self.replicates is not None or other.replicates is not None:
            raise UsageError(
                "sums with bootstrap replicates cannot be added.",
                remedy="Compute the sums of the whole log at once.",
            )
        if not np.array_equal(self.shift, other.shift):
            raise UsageError(
                "sums of deltas that were shifted by different numbers cannot be added.",
                remedy="Compute all of them with the same `shift`.",
            )
        return Sums(
            self.total + other.total,
            self.moment + other.moment,
            None if self.n_clusters is None else self.n_clusters + (other.n_clusters or 0),
            self.n_left_out + other.n_left_out,
            slot_totals=_add_optional(self.slot_totals, other.slot_totals),
            ratio_bias=_add_optional(self.ratio_bias, other.ratio_bias),
            n_biases=self.n_biases + other.n_biases,
            pooled=_add_optional(self.pooled, other.pooled),
            shift=self.shift,
        )

    @property
    def n_bases(self) -> int:
        """The number of bases: one for all models, or one for each."""
        return 1 if self.slot_totals is None else len(self.slot_totals)

    @property
    def weighted_delta(self) -> Vector:
        """Sum of h * delta, for each model."""
        return self.total[: -self.n_bases]

    @property
    def last_weighted_base(self) -> float:
        """Sum of h * base, of the last model if each has its own base."""
        return float(self.total[-1])

    @property
    def weighted_bases(self) -> Vector:
        """Sum of h * base: one for all models, or one for each."""
        return self.total[-self.n_bases :]

    @property
    def weighted_base(self) -> Vector:
        """Sum of h * base, for each model."""
        return np.broadcast_to(self.weighted_bases, self.weighted_delta.shape)

    @property
    def ratio(self) -> Vector:
        """Sum of h * delta divided by the sum of h * base, for each model."""
        return self.weighted_delta / self.weighted_base + self.shift

    def covariance(self, influence: Matrix) -> Matrix:
        """Covariance of estimates whose error is the sum of ``influence @ (h x)`` over cells."""
        spread = influence @ self.moment @ influence.T
        if self.n_clusters is None:
            return spread
        if self.n_clusters < 2:
            raise few_clusters_error(self.n_clusters)
        mean = influence @ self.total
        factor = self.n_clusters / (self.n_clusters - 1)
        return factor * (spread - np.outer(mean, mean) / self.n_clusters)


def measure_functions(spec: SumSpec, deltas: Deltas, cells: ObservedCells) -> Matrix:
    """Users x (risks + 1): numerators and base of a metric that is no sum over cells."""
    functions = deltas.functions
    assert functions is not None
    p_unobserved = _find_unobserved_probability(functions, spec, cells)
    return cells.compute_once(
        "functions", deltas, spec, lambda: functions.measure(cells.weight_of(spec), p_unobserved)
    )


def _find_unobserved_probability(
    functions: UserFunctions, spec: SumSpec, cells: ObservedCells
) -> Vector | None:
    """1 - P of each cell, for functions of weights that are biased; None for others."""
    if cells.propensities is None or not (spec.is_weighted and functions.has_bias):
        return None
    return 1.0 - cells.propensities.values


def _find_remaining_bias(
    functions: UserFunctions,
    spec: SumSpec,
    deltas: Deltas,
    cells: ObservedCells,
    by_user: Matrix,
) -> Vector | None:
    """The bias that is left after the first-order correction, for each model.

    None for unweighted estimates and for functions that are linear in each weight. NaN if too few
    relevant cells were observed to estimate it.
    """
    p_unobserved = _find_unobserved_probability(functions, spec, cells)
    if p_unobserved is None or not len(by_user):
        return None
    weight = cells.weight_of(spec)
    is_relevant = (weight > 0) & (True if deltas.base is None else deltas.base > 0)
    rng = np.random.default_rng(THINNING_SEED)
    draws = (rng.random(weight.size) < KEPT_SHARE for _ in range(N_THINNINGS))
    users = cells.users.code[is_relevant]
    sums = BiasSums.of(functions, weight, p_unobserved, users, is_relevant, draws)
    total = by_user.sum(axis=0)
    return sums.estimate(total[:-1] / total[-1])


def ratio_influence(base: Vector, ratio: Vector) -> Matrix:
    """Models x columns: the derivative of each ratio by the sums of deltas and bases.

    ``base`` is the sum of h * base: one for all models, or one for each.
    """
    by_base = -np.diag(ratio) if base.size > 1 else -ratio
    return np.column_stack([np.eye(ratio.size), by_base]) / base.reshape(-1, 1)


def mean_influence(n_models: int, n_cells: int) -> Matrix:
    """Models x columns: the derivative of each mean over all cells by the same sums."""
    return np.column_stack([np.eye(n_models), np.zeros(n_models)]) / n_cells


def find_influence(spec: SumSpec, base: Vector, value: Vector, universe: Universe | None) -> Matrix:
    """The derivative of the risks ``value`` by the sums that ``spec`` asks for."""
    if spec.divides_by_base:
        return ratio_influence(base, value)
    assert universe is not None  # without it there is no estimate
    return mean_influence(value.size, universe.n_cells)


def add_up(spec: SumSpec, deltas: Deltas, cells: ObservedCells) -> Sums:
    """The sums that ``spec`` asks for, from arrays.

    If they will be divided by their base, the part that is common to all cells is subtracted first,
    which keeps the digits of a small standard error. Otherwise estimators share sums of one weight.
    """
    clusters = cells.clusters_of(spec.unit)
    if spec.adds_imputed and deltas.imputed is not None:
        return _add_up_errors(spec, deltas.value, deltas.imputed, cells)
    if deltas.functions is not None and clusters is not None:
        by_user = measure_functions(spec, deltas, cells)
        bias = _find_remaining_bias(deltas.functions, spec, deltas, cells, by_user)
        return Sums.of_functions(by_user, clusters, bias)
    weight, base = cells.weight_of(spec), deltas.base_of(spec)
    value, shift = deltas.value, np.zeros(len(deltas.value))
    if spec.divides_by_base and base is None:
        shift = _common_part(value)
        value = value - shift[:, None] if shift.any() else value
    if spec.of_ratios and clusters is not None:
        sums = Sums.of_ratios(
            value,
            weight=weight,
            base=base,
            groups=clusters,
            propensities=cells.propensities if spec.is_weighted else None,
        )
    elif clusters is not None:
        by_cluster = None if shift.any() else cells.sum_by_cluster(deltas, spec)
        sums = Sums.of(
            value,
            cells.propensities,
            weight=weight,
            base=base,
            clusters=clusters,
            is_ratio=spec.is_ratio,
            by_cluster=by_cluster,
        )
    elif shift.any():
        sums = Sums.of(value, cells.propensities, weight=weight)
    else:
        sums = cells.compute_once(
            "sums",
            deltas,
            spec,
            lambda: Sums.of(value, cells.propensities, weight=weight, base=base),
        )
    return replace(sums, shift=shift)


def _add_up_errors(spec: SumSpec, value: Matrix, imputed: Imputed, cells: ObservedCells) -> Sums:
    """Sums of delta - imputed delta, to which the imputed deltas of all cells are added."""
    error, by_cluster = value - imputed.observed, imputed.by_cluster(spec.unit)
    if spec.is_ratio:
        error = np.vstack([np.zeros_like(error), error])
        by_cluster = np.hstack([by_cluster, np.zeros_like(by_cluster)])
    return Sums.of(
        error,
        cells.propensities,
        weight=cells.weight_of(spec),
        clusters=cells.clusters_of(spec.unit),
        imputed_by_cluster=by_cluster,
    )


def _summarize_slots(weighted: Matrix, propensities: Propensities | None) -> Matrix:
    """Models x 3: see :attr:`Sums.slot_totals`, from h * base of each model and cell."""
    squared = np.square(weighted)
    uncertain = squared if propensities is None else squared * (1.0 - propensities.values)
    return np.column_stack([(weighted > 0).sum(axis=1), squared.sum(axis=1), uncertain.sum(axis=1)])


def _add_up_biases(
    delta: Matrix,
    weight: Vector,
    base: Vector | None,
    groups: Clusters,
    propensities: Propensities,
) -> tuple[Vector, int]:
    """The sum over groups of the bias of R_g = sum h delta / sum h base, and the number of groups.

    To first order the bias is -Cov(sum h e, sum h base) / (sum h base)^2 with e = delta - R_g base,
    which is estimated by -sum (1 - P) h^2 e base / (sum h base)^2. Residuals from a group's own
    ratio are too small; the factor 1 / (1 - 1 / effective size of the group) makes up for it. A
    group with a single cell shows no residual and is not counted.
    """
    of_base = weight if base is None else weight * base
    uncertain = of_base * weight * (1.0 - propensities.values)
    ones = np.ones_like(weight) if base is None else base
    sums = groups.add_up(np.vstack([of_base, of_base**2, uncertain * ones, weight * delta]))
    products = groups.add_up(uncertain * delta)
    total, squared, spread = sums[:, 0], sums[:, 1], sums[:, 2]
    pair_sum = total**2 - squared  # over pairs of different cells: 0 for a single cell
    is_used = pair_sum > SINGLE_CELL * total**2
    ratio = sums[is_used, 3:] / total[is_used, None]
    excess = products[is_used] - ratio * spread[is_used, None]
    return -(excess / pair_sum[is_used, None]).sum(axis=0), int(is_used.sum())


def _add_optional(first: Matrix | None, second: Matrix | None) -> Matrix | None:
    return second if first is None else first if second is None else first + second


def _sum_clusters(by_cluster: Matrix, clusters: Clusters) -> Sums:
    """Sums from one row for each cluster; clusters without a row have sums of 0."""
    return Sums(
        total=by_cluster.sum(axis=0),
        moment=np.einsum("ci,cj->ij", by_cluster, by_cluster),
        n_clusters=clusters.n,
        replicates=clusters.resample(by_cluster),
    )


def _sum_cells(
    deltas: Matrix,
    propensities: Propensities | None,
    weight: Vector,
    base: Vector | Matrix | None,
    imputed_by_cluster: Matrix | None,
) -> Sums:
    """The sums if all cells are independent."""
    n_models = len(deltas)
    size = n_models + (1 if base is None else len(np.atleast_2d(base)))
    total, moment = np.zeros(size), np.zeros((size, size))
    buffer, ones = np.empty((2, size, BLOCK)), np.ones(BLOCK)
    with single_blas_thread():
        for rows in cut_rows(weight.size):
            h = weight[rows]
            weighted, uncertain = buffer[:, :, : h.size]
            np.multiply(deltas[:, rows], h, out=weighted[:n_models])
            weighted[n_models:] = h if base is None else base[..., rows] * h
            total += [dot(row, ones[: h.size]) for row in weighted]
            if propensities is None:
                uncertain = weighted
            else:
                np.multiply(weighted, 1.0 - propensities.values[rows], out=uncertain)
            moment += sum_products(uncertain, weighted)
    if imputed_by_cluster is not None:
        total[:-1] += imputed_by_cluster.sum(axis=0)
    return Sums(total, moment)


def _stack(deltas: Matrix, base: Vector | Matrix | None) -> Matrix:
    return np.vstack([deltas, np.ones(deltas.shape[1]) if base is None else base])


def _common_part(deltas: Matrix) -> Vector:
    """The first delta of each model whose deltas are nearly equal; 0 for other models."""
    first = deltas[:, 0]
    is_constant = np.ones(len(first), dtype=bool)
    for rows in cut_rows(deltas.shape[1]):
        distance = np.abs(deltas[:, rows] - first[:, None]).max(axis=1)
        is_constant &= distance <= NEARLY_EQUAL * np.abs(first)
        if not is_constant.any():
            break
    return np.where(is_constant, first, 0.0)


def few_clusters_error(n_clusters: int) -> UsageError:
    """The error of a standard error by cluster that has too few clusters."""
    return UsageError(
        "a standard error by cluster needs at least 2 clusters (users or items) with data; got "
        f"{n_clusters}.",
        remedy="Use a metric that is a mean over all cells, such as mse, with `cluster=None` and "
        "no `bootstrap`. A mean over users, such as recall@10, counts only users with an observed "
        "relevant item.",
    )
