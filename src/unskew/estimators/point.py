"""The estimators: which sums each one needs, and the risk that follows from them.

    Rhat = (1/C) sum over all cells of [ imputed + O h (delta - imputed) ]

    name              h         C                          imputed
    naive             1         n observed                 no
    ips               1/P       U * I                      no
    snips             1/P       sum h                      no
    user_normalized   1/P       sum h, user by user        no
    item_normalized   1/P       sum h, item by item        no
    eib               1         U * I                      yes
    dr                1/P       U * I                      yes
    sndr              1/P       sum h for the errors       yes
    mr                mixed     U * I                      yes (:mod:`.multiple_robust`)

For a metric of recommended items, such as precision@k, naive and snips divide by the weights of
the slots: C = sum h over the observed items that a model recommends, scaled to mean U * I. They
then stay within the range of the metric. A weight transform replaces 1/P by another h in any of
them. The denominator of a ratio metric is unknown and is estimated with the same weights, so for
such a metric IPS equals SNIPS.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from unskew.data.estimation import Replicates, TakenAsKnown, Unit
from unskew.errors import UniverseError, UnknownNameError, UsageError
from unskew.estimators import ESTIMATORS
from unskew.estimators.estimate import Estimate, RatioBias, SlotSample
from unskew.estimators.observed import Deltas, ObservedCells, Scope, SumSpec
from unskew.estimators.odds import ExtremeWeights, WeightBox, largest_ratio, largest_sum
from unskew.estimators.sums import Sums, add_up, mean_influence, ratio_influence
from unskew.estimators.variance import (
    add_uncertainty,
    find_uncertain_share,
    half_sample_covariance,
)
from unskew.types import Matrix, Vector

IMPUTED_ALONE = (
    "its error is that of the imputation in the cells that were not logged, which cannot be "
    "computed from the log"
)

UNKNOWN_BIAS = (
    "the sum of the weights of {model} is biased by an amount that cannot be computed, and only "
    "self-normalised estimators such as snips and sndr are free of most of it"
)


class Estimator:
    """Turns the deltas of observed cells into the risks of all models, with their covariance.

    A subclass defines :meth:`sums_needed` and :meth:`from_sums`, and is declared with
    ``ESTIMATORS.declare``. One that cannot be computed from sums overrides :meth:`estimate`; data
    frames cannot be evaluated with it.
    """

    name: str
    """What users type."""
    is_weighted: bool = True
    """Whether it needs propensities."""
    imputes: bool = False
    """Whether it needs imputed deltas."""
    needs_random_test: bool = False
    """Whether the cells must be drawn at random from all cells."""
    needs_universe: bool = False
    """Whether it divides by the number of all cells."""
    has_own_models: bool = False
    """Whether it reads several propensity models of its own, in place of the propensities."""
    has_worst_case: bool = False
    """Whether :meth:`largest_weights` is defined."""

    def estimate(self, deltas: Deltas, cells: ObservedCells) -> Estimate:
        """The risk of each model: the sums it needs, the risk from them, then its uncertainty."""
        self._require_imputed(deltas)
        spec = self.sums_needed(
            is_ratio=deltas.base is not None,
            is_mean_of_users=deltas.is_mean_of_users,
            cluster="user" if cells.cluster == "both" else cells.cluster,
        )
        estimate = replace(
            self.from_sums(spec, add_up(spec, deltas, cells), cells.scope),
            bounds=deltas.bounds,
            no_interval=self._explain_no_interval(deltas, cells),
            max_relative_error=deltas.max_relative_error if self.is_weighted else None,
        )
        if estimate.replicates is None:
            if self.is_weighted and isinstance(cells.estimation, Replicates):
                estimate = self._add_half_sample_covariance(estimate, spec, deltas, cells)
            else:
                estimate = add_uncertainty(estimate, spec, deltas, cells)
        return estimate.take_root() if deltas.is_root else estimate

    def _require_imputed(self, deltas: Deltas) -> None:
        if self.imputes and deltas.imputed is None:
            raise UsageError(
                f"{self.name!r} needs a model of the ratings for cells that were not observed.",
                parameter="imputation",
                remedy="Pass `imputation=...`: a model, a matrix or a callable.",
                shell_remedy="The command line has no imputation: use `estimators=['snips']`, or "
                "call unskew.evaluate(..., imputation=model) in Python.",
            )

    def _explain_no_interval(self, deltas: Deltas, cells: ObservedCells) -> str | None:
        """Why an interval would be wrong; None if the estimate has one."""
        if self.imputes and deltas.imputed is not None and deltas.imputed.no_interval:
            return deltas.imputed.no_interval
        estimation = cells.estimation if self.is_weighted else None
        if isinstance(estimation, TakenAsKnown) and not estimation.has_interval:
            return estimation.reason
        return None

    def _add_half_sample_covariance(
        self, estimate: Estimate, spec: SumSpec, deltas: Deltas, cells: ObservedCells
    ) -> Estimate:
        """The estimate with a covariance that includes the error of the propensity model.

        The model is fitted to both halves of each of ``n_pairs`` random splits of the log.
        Estimators that do not divide by the sum of weights get no interval, only the reason.
        """

        def values_of(half: Deltas, half_cells: ObservedCells) -> Vector:
            return self.from_sums(spec, add_up(spec, half, half_cells), half_cells.scope).value

        assert isinstance(cells.estimation, Replicates)
        if not spec.divides_by_base:
            reason = UNKNOWN_BIAS.format(model=cells.estimation.model)
            return replace(estimate, no_interval=estimate.no_interval or reason)
        share = find_uncertain_share(spec, deltas, cells, estimate)
        covariance = half_sample_covariance(values_of, deltas, cells) * share
        if cells.cluster == "both":
            covariance = covariance + self._find_item_part(deltas, cells)
        return replace(
            estimate,
            covariance=covariance,
            known_covariance=estimate.covariance,
            n_clusters=None,
            degrees=float(cells.estimation.n_pairs),
        )

    def _find_item_part(self, deltas: Deltas, cells: ObservedCells) -> Matrix:
        """What clusters of items add to those of users, with propensities taken as known.

        Halves of the log are split by user. An item part that is not positive is left out.
        """
        assert cells.propensities is not None
        fixed = replace(cells, propensities=cells.propensities.as_known())
        by_both, by_user = (
            self.estimate(deltas, replace(fixed, cluster=cluster)).covariance
            for cluster in ("both", "user")
        )
        size, vectors = np.linalg.eigh(by_both - by_user)
        part: Matrix = (vectors * np.maximum(size, 0.0)) @ vectors.T
        return part

    def sums_needed(
        self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None
    ) -> SumSpec:
        """The sums for a metric that is a ratio, or a mean over users of their ratios."""
        raise UsageError(
            f"{self.name!r} cannot be computed from sums over the logged cells, which is all that "
            "a data frame provides.",
            remedy="Build a log with Ratings.from_frame and call evaluate().",
            shell_remedy="Use `reader='memory'`.",
        )

    def from_sums(self, spec: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        """The risk of each model, from the sums that ``spec`` describes."""
        raise NotImplementedError

    def can_fix_sums(self, deltas: Deltas) -> bool:
        """Whether :meth:`largest_weights` is defined for boxes with fixed sums of weights."""
        return not deltas.is_mean_of_users

    def largest_weights(
        self, deltas: Deltas, cells: ObservedCells, box: WeightBox
    ) -> ExtremeWeights:
        """The weights in the box at which the risk of the first model is largest."""
        raise NotImplementedError


def find_estimator(estimator: str | Estimator) -> Estimator:
    """The estimator with this name; an estimator object is returned unchanged."""
    if isinstance(estimator, Estimator):
        return estimator
    if not isinstance(estimator, str):
        raise UnknownNameError("estimator", estimator, ESTIMATORS, parameter="estimators")
    return ESTIMATORS.find(estimator).target()


def self_normalized(sums: Sums) -> Estimate:
    """Eq. (11), SNIPS: sum h delta / sum h. With h = 1 it is Eq. (5), the naive average.

    By the delta method its error is the sum over cells of h (delta - R) / sum h.
    """
    base = sums.weighted_bases
    _require_weight(base)
    shifted_risk = sums.weighted_delta / base
    influence = ratio_influence(base, shifted_risk)
    replicates = None
    if sums.replicates is not None:
        n_bases = sums.n_bases
        replicates = sums.replicates[:, :-n_bases] / sums.replicates[:, -n_bases:] + sums.shift
    estimate = _with_covariance(shifted_risk + sums.shift, sums, influence, replicates)
    if sums.ratio_bias is not None:
        gap = None
        if sums.pooled is not None:
            gap = shifted_risk - sums.pooled[:-1] / sums.pooled[-1]
        bias = RatioBias(sums.ratio_bias / (sums.n_biases or math.nan), gap)
        estimate = replace(estimate, ratio_bias=bias)
    return replace(estimate, slots=SlotSample.of(sums))


def ips(sums: Sums, *, n_cells: int) -> Estimate:
    """Eq. (10), inverse propensity scoring: sum h delta / (U * I). Unbiased. ``n_cells`` is U * I.

    Doubly robust estimation uses it for sums to which imputed deltas were added.
    """
    risk = sums.weighted_delta / n_cells
    influence = mean_influence(risk.size, n_cells)
    replicates = None if sums.replicates is None else sums.replicates[:, :-1] / n_cells
    return _with_covariance(risk, sums, influence, replicates)


def self_normalized_dr(sums: Sums, *, n_cells: int) -> Estimate:
    """Mean imputed delta + sum h (delta - imputed delta) / sum h, from sums that keep them apart.

    By the delta method the error of its second part is the sum over cells of h (e - m) / sum h,
    with e = delta - imputed delta and m its weighted mean.
    """
    _require_weight(sums.weighted_bases)
    n_models = sums.weighted_delta.size // 2
    identity = np.eye(n_models)
    mean_error = sums.weighted_delta[n_models:] / sums.last_weighted_base
    influence = np.column_stack(
        [
            identity / n_cells,
            identity / sums.last_weighted_base,
            -mean_error / sums.last_weighted_base,
        ]
    )
    replicates = None
    if sums.replicates is not None:
        imputed, error = sums.replicates[:, :n_models], sums.replicates[:, n_models:-1]
        replicates = imputed / n_cells + error / sums.replicates[:, -1:]
    risk = sums.weighted_delta[:n_models] / n_cells + mean_error
    return _with_covariance(risk, sums, influence, replicates)


def _require_weight(bases: Vector) -> None:
    """Raise an error if a risk would be divided by 0."""
    if (bases == 0).all():
        raise UsageError(
            "every cell that this metric counts has weight 0, so there is nothing to average.",
            remedy="Use a `weight_transform` that keeps some weights above 0, or a lower "
            "`relevance_threshold`.",
        )
    if (bases == 0).any():
        raise UsageError(
            f"no item that model {int((bases == 0).argmax()) + 1} of {bases.size} recommends was "
            "rated by the user it is recommended to: the log says nothing about its list.",
            remedy="Use more positions, such as dcg@50, or leave this model out.",
        )


def _with_covariance(
    risk: Vector, sums: Sums, influence: Matrix, replicates: Matrix | None
) -> Estimate:
    if replicates is None:
        covariance = sums.covariance(influence)
    else:
        covariance = np.atleast_2d(np.cov(replicates.T))
    return Estimate(risk, covariance, sums.n_clusters, sums.n_left_out, replicates)


class _WeightedMean(Estimator):
    """Sum h delta / sum h, or the mean over users of that ratio if the metric is such a mean."""

    has_worst_case = True

    def sums_needed(
        self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None
    ) -> SumSpec:
        if is_mean_of_users:
            return SumSpec(self.is_weighted, "user", of_ratios=True)
        return SumSpec(self.is_weighted, cluster, is_ratio=True)

    def from_sums(self, spec: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        _require_two_cells(self.name, sums, scope)
        return self_normalized(sums)

    def largest_weights(
        self, deltas: Deltas, cells: ObservedCells, box: WeightBox
    ) -> ExtremeWeights:
        groups = cells.users if deltas.is_mean_of_users else None
        base = deltas.base if deltas.slots is None else deltas.slots[0]
        return largest_ratio(deltas.value[0], box, base=base, groups=groups)


@ESTIMATORS.declare(
    "naive",
    label="Naive",
    summary="Naive is the plain average over the log, as if people rated at random.",
    traits={"order": 1, "color": "seen", "marker": "square", "is_hollow": True},
)
class Naive(_WeightedMean):
    """Eq. (5): the mean delta of the observed cells."""

    name = "naive"
    is_weighted = False


@ESTIMATORS.declare(
    "test_mean",
    label="Random test",
    summary="Random test is the mean over a test that was drawn at random from all cells.",
    traits={"order": 9, "color": "accent", "marker": "square", "headline_rank": -1},
)
class RandomTestMean(Naive):
    """The mean delta of a test whose cells were drawn at random: right without weights."""

    name = "test_mean"
    needs_random_test = True


@ESTIMATORS.declare(
    "ips",
    label="IPS",
    summary="IPS counts each rating 1/P times, where P is the probability that it was logged.",
    traits={
        "order": 2,
        "color": "accent",
        "marker": "triangle",
        "is_hollow": True,
        "headline_rank": 5,
    },
)
class IPS(_WeightedMean):
    """Eq. (10): sum h delta / (U * I). For a ratio metric, the ratio of two such estimates."""

    name = "ips"
    needs_universe = True

    def sums_needed(
        self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None
    ) -> SumSpec:
        if not is_ratio:
            return SumSpec(self.is_weighted, cluster)
        return super().sums_needed(
            is_ratio=is_ratio, is_mean_of_users=is_mean_of_users, cluster=cluster
        )

    def from_sums(self, spec: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        if spec.divides_by_base:
            return super().from_sums(spec, sums, scope)
        if sums.last_weighted_base == 0:
            raise UsageError(
                f"all weights are zero: {self.name!r} would be 0 for any data.",
                remedy="Use a `weight_transform` that keeps some weights above 0.",
            )
        return ips(sums, n_cells=_count_cells(scope, self.name))

    def largest_weights(
        self, deltas: Deltas, cells: ObservedCells, box: WeightBox
    ) -> ExtremeWeights:
        if deltas.base is None:
            n_cells = _count_cells(cells.scope, self.name)
            return largest_sum(deltas.value[0], box, n_cells=n_cells)
        return super().largest_weights(deltas, cells, box)


@ESTIMATORS.declare(
    "snips",
    label="SNIPS",
    summary="SNIPS counts each rating 1/P times and divides by the sum of the weights.",
    traits={"order": 3, "color": "accent", "marker": "circle", "headline_rank": 2},
)
class SNIPS(_WeightedMean):
    """Eq. (11): sum h delta / sum h."""

    name = "snips"


class _MeanOfGroups(Estimator):
    """The mean over users (or items) with data of each one's own SNIPS, with equal weight.

    The users (or items) are the sample, whatever the clusters.
    """

    unit: ClassVar[Unit]
    has_worst_case = True

    def sums_needed(
        self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None
    ) -> SumSpec:
        refuse_ratio(self.name, is_ratio=is_ratio)
        return SumSpec(self.is_weighted, self.unit, of_ratios=True)

    def from_sums(self, spec: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        return self_normalized(sums)

    def can_fix_sums(self, deltas: Deltas) -> bool:
        return False

    def largest_weights(
        self, deltas: Deltas, cells: ObservedCells, box: WeightBox
    ) -> ExtremeWeights:
        groups = cells.clusters_of(self.unit)
        return largest_ratio(deltas.value[0], box, groups=groups)


@ESTIMATORS.declare(
    "user_normalized",
    label="SNIPS by user",
    summary="SNIPS by user is the mean over users of each user's SNIPS.",
    traits={"order": 4, "color": "c4", "marker": "pentagon", "headline_rank": 3},
)
class UserNormalized(_MeanOfGroups):
    """(1/U) sum over users of (sum h delta / sum h) over the user's cells."""

    name = "user_normalized"
    unit = "user"


@ESTIMATORS.declare(
    "item_normalized",
    label="SNIPS by item",
    summary="SNIPS by item is the mean over items of each item's SNIPS.",
    traits={"order": 5, "color": "c5", "marker": "hexagon", "headline_rank": 4},
)
class ItemNormalized(_MeanOfGroups):
    """(1/I) sum over items of (sum h delta / sum h) over the item's cells."""

    name = "item_normalized"
    unit = "item"


@ESTIMATORS.declare(
    "eib",
    label="Imputed",
    summary="Imputed fills the cells that were not logged; right if the imputation is.",
    traits={"order": 6, "color": "c3", "marker": "down", "is_hollow": True, "headline_rank": 6},
)
class ErrorImputation(Estimator):
    """EIB: the mean over all cells of the delta if observed, and of the imputed delta if not.

    Right if the imputed deltas of unobserved cells are right. It has no interval: most of its error
    is that of the imputation, about which the log says nothing.
    """

    name = "eib"
    is_weighted = False
    imputes = True
    needs_universe = True
    has_worst_case = True

    def sums_needed(
        self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None
    ) -> SumSpec:
        refuse_ratio(self.name, is_ratio=is_ratio)
        return SumSpec(self.is_weighted, cluster, adds_imputed=True)

    def from_sums(self, spec: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        return ips(sums, n_cells=_count_cells(scope, self.name))

    def _explain_no_interval(self, deltas: Deltas, cells: ObservedCells) -> str | None:
        if not self.is_weighted:
            return IMPUTED_ALONE
        return super()._explain_no_interval(deltas, cells)

    def largest_weights(
        self, deltas: Deltas, cells: ObservedCells, box: WeightBox
    ) -> ExtremeWeights:
        n_cells = _count_cells(cells.scope, self.name)
        return largest_sum(_imputation_error(deltas), box, n_cells=n_cells)


@ESTIMATORS.declare(
    "dr",
    label="Doubly robust",
    summary="Doubly robust imputes all cells and adds IPS of the errors of the imputation.",
    traits={"order": 7, "color": "c2", "marker": "diamond", "headline_rank": 1},
)
class DoublyRobust(ErrorImputation):
    """The mean imputed delta plus IPS of (delta - imputed delta).

    Unbiased if the propensities are right. Also unbiased if the imputed delta of each cell is
    E[delta] over its possible ratings, and the error of the propensities does not depend on which
    of them it is: its bias is the mean of (1 - P / Phat) (delta - imputed delta).
    """

    name = "dr"
    is_weighted = True


@ESTIMATORS.declare(
    "sndr",
    label="Normalised doubly robust",
    summary="Normalised doubly robust adds SNIPS of the errors of the imputation, not IPS.",
    traits={
        "order": 8,
        "color": "c2",
        "marker": "diamond",
        "is_hollow": True,
        "headline_rank": 0,
    },
)
class SelfNormalizedDoublyRobust(DoublyRobust):
    """The mean imputed delta plus SNIPS of (delta - imputed delta).

    Right, up to a bias of the order of 1/n, where DR is; and if all propensities are wrong by the
    same factor, or all imputed deltas by the same number.
    """

    name = "sndr"

    def sums_needed(
        self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Unit | None
    ) -> SumSpec:
        refuse_ratio(self.name, is_ratio=is_ratio)
        return SumSpec(self.is_weighted, cluster, is_ratio=True, adds_imputed=True)

    def from_sums(self, spec: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        _require_two_cells(self.name, sums, scope)
        return self_normalized_dr(sums, n_cells=_count_cells(scope, self.name))

    def largest_weights(
        self, deltas: Deltas, cells: ObservedCells, box: WeightBox
    ) -> ExtremeWeights:
        return largest_ratio(_imputation_error(deltas), box)


def _imputation_error(deltas: Deltas) -> Vector:
    """Delta minus imputed delta of the first model, on the observed cells."""
    assert deltas.imputed is not None
    error: Vector = deltas.value[0] - deltas.imputed.observed[0]
    return error


def _require_two_cells(estimator: str, sums: Sums, scope: Scope) -> None:
    if sums.n_clusters is None and scope.n_observed < 2:
        raise UsageError(
            f"{estimator!r} has no standard error for a single cell.",
            remedy="Evaluate on a longer log.",
        )


def universe_error(estimator: str) -> UniverseError:
    """The estimator needs the number of all cells, and the caller did not pass it."""
    return UniverseError(
        f"{estimator!r} divides by the number of all cells, which the log does not contain.",
        parameter="universe",
        remedy="Pass `universe=(n_users, n_items)`, counting all that could have been logged, "
        "or `universe='log'` if the users and items of the log are all there are.",
    )


def _count_cells(scope: Scope, estimator: str) -> int:
    if scope.universe is None:
        raise universe_error(estimator)
    return scope.universe.n_cells


def refuse_ratio(estimator: str, *, is_ratio: bool) -> None:
    """Raise an error if the metric is a ratio, which has no imputed deltas."""
    if is_ratio:
        raise UsageError(
            f"{estimator!r} is for metrics that are means over all cells, not for ratios such as "
            "recall.",
            remedy="Use 'snips' for ratios.",
        )
