from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from unskew.data.estimation import Replicates
from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.errors import UniverseError, UnknownNameError, UsageError
from unskew.estimators import ESTIMATORS
from unskew.estimators.estimate import Estimate
from unskew.estimators.observed import (
    Cluster,
    Clusters,
    Deltas,
    Imputed,
    ObservedCells,
    Resampling,
    Scope,
    SumSpec,
)
from unskew.estimators.odds import WeightBox
from unskew.estimators.point import SNIPS, Estimator, find_estimator
from unskew.estimators.sums import Sums
from unskew.estimators.transforms import Clip, Switch
from unskew.types import Vector

rng = np.random.default_rng(3)
U, I = 30, 20  # noqa: E741
P_ALL = rng.uniform(0.1, 0.9, (U, I))
SEEN = rng.random((U, I)) < P_ALL
USER, ITEM = (codes.astype(np.int32) for codes in np.nonzero(SEEN))
DELTA_ALL = rng.normal(3, 1, (U, I))
IMPUTED_ALL = DELTA_ALL + rng.normal(0, 0.5, (U, I))


def observe(**changes: Any) -> ObservedCells:
    return ObservedCells(
        Clusters(USER, U),
        Clusters(ITEM, I),
        Propensities(P_ALL[SEEN]),
        **({"universe": Universe(U, I)} | changes),
    )


DELTAS = Deltas(
    DELTA_ALL[SEEN][None],
    imputed=Imputed(
        IMPUTED_ALL[SEEN][None], IMPUTED_ALL.sum(axis=1)[:, None], IMPUTED_ALL.sum(axis=0)[:, None]
    ),
)
WEIGHT = 1 / P_ALL
ERROR = SEEN * WEIGHT * (DELTA_ALL - IMPUTED_ALL)
MEAN_ERROR = ERROR.sum() / (SEEN * WEIGHT).sum()
BY_HAND = {
    "naive": DELTA_ALL[SEEN].mean(),
    "ips": (SEEN * WEIGHT * DELTA_ALL).mean(),
    "snips": (SEEN * WEIGHT * DELTA_ALL).sum() / (SEEN * WEIGHT).sum(),
    "user_normalized": ((SEEN * WEIGHT * DELTA_ALL).sum(1) / (SEEN * WEIGHT).sum(1)).mean(),
    "item_normalized": ((SEEN * WEIGHT * DELTA_ALL).sum(0) / (SEEN * WEIGHT).sum(0)).mean(),
    "eib": np.where(SEEN, DELTA_ALL, IMPUTED_ALL).mean(),
    "dr": (IMPUTED_ALL + ERROR).mean(),
    "sndr": IMPUTED_ALL.mean() + MEAN_ERROR,
}
BY_HAND["test_mean"] = BY_HAND["naive"]
PARTS = {
    "dr": (IMPUTED_ALL + ERROR) / (U * I),
    "sndr": IMPUTED_ALL / (U * I)
    + SEEN * WEIGHT * (DELTA_ALL - IMPUTED_ALL - MEAN_ERROR) / (SEEN * WEIGHT).sum(),
}
"""What each cell contributes to the estimate, to first order."""


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"mr"}))
@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
def test_value_by_a_dense_formula(name: str, cluster: str | None) -> None:
    """``mr`` has models of its own, and its dense formula in tests/evaluation/test_model_set.py."""
    estimate = find_estimator(name).estimate(DELTAS, observe(cluster=cluster))

    assert estimate.value[0] == pytest.approx(BY_HAND[name])
    assert estimate.covariance[0, 0] > 0


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("cluster", ["user", "item"])
def test_clustered_doubly_robust_counts_the_imputed_part(name: str, cluster: str) -> None:
    totals = PARTS[name].sum(axis=1 if cluster == "user" else 0)

    estimate = find_estimator(name).estimate(DELTAS, observe(cluster=cluster))

    variance = len(totals) / (len(totals) - 1) * ((totals - totals.mean()) ** 2).sum()
    assert estimate.covariance[0, 0] == pytest.approx(variance)
    if name == "dr":
        assert estimate.moments is not None
        assert estimate.moments.second[0, 0] == pytest.approx(variance)


@pytest.mark.parametrize("name", PARTS)
def test_two_way_clusters_add_up_users_and_items_and_subtract_cells(name: str) -> None:
    by = {
        cluster: find_estimator(name).estimate(DELTAS, observe(cluster=cluster)).covariance[0, 0]
        for cluster in ("user", "item", "both")
    }
    observed = np.where(SEEN, PARTS[name] - IMPUTED_ALL / (U * I), 0.0)

    assert by["both"] == pytest.approx(by["user"] + by["item"] - (observed**2).sum())


def test_the_variance_of_sndr_is_that_of_its_numerical_derivative() -> None:
    """Var = sum over observed cells of (1 - P) (w dR / dw)^2."""

    def value_at(weight: Vector) -> float:
        propensities = Propensities(1 / weight)
        cells = ObservedCells(
            Clusters(USER, U), Clusters(ITEM, I), propensities, universe=Universe(U, I)
        )
        return float(find_estimator("sndr").estimate(DELTAS, cells).value[0])

    weight, step = WEIGHT[SEEN], 1e-5
    derivative = np.empty(weight.size)
    for cell in range(weight.size):
        up, down = weight.copy(), weight.copy()
        up[cell] *= 1 + step
        down[cell] *= 1 - step
        derivative[cell] = (value_at(up) - value_at(down)) / (2 * step)

    estimate = find_estimator("sndr").estimate(DELTAS, observe())
    assert estimate.covariance[0, 0] == pytest.approx(
        ((1 - P_ALL[SEEN]) * derivative**2).sum(), rel=1e-6
    )


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("cluster", ["user", "item"])
def test_a_bootstrap_agrees_with_the_formula_of_clusters(name: str, cluster: str) -> None:
    resampling = Resampling(2000, seed=1)
    cells = ObservedCells(
        Clusters(USER, U, resampling),
        Clusters(ITEM, I, resampling),
        Propensities(P_ALL[SEEN]),
        cluster=cluster,  # type: ignore[arg-type]
        universe=Universe(U, I),
    )

    drawn = find_estimator(name).estimate(DELTAS, cells).covariance[0, 0]

    formula = find_estimator(name).estimate(DELTAS, observe(cluster=cluster)).covariance[0, 0]
    assert drawn == pytest.approx(formula, rel=0.15)


@pytest.mark.parametrize("name", PARTS)
def test_halves_of_users_have_their_own_imputed_deltas(name: str) -> None:
    """A perfect imputation leaves only the spread of imputed deltas between users."""
    assert DELTAS.imputed is not None
    perfect = Deltas(DELTAS.imputed.observed, imputed=DELTAS.imputed)
    refitted = Replicates(
        model="halves", refit=lambda rows: P_ALL[SEEN][rows] / 2, n_pairs=400, seed=2
    )
    cells = observe(cluster="user")
    halves = replace(cells, propensities=Propensities(P_ALL[SEEN], estimation=refitted))

    by_halves = find_estimator(name).estimate(perfect, halves).covariance[0, 0]

    formula = find_estimator(name).estimate(perfect, cells).covariance[0, 0]
    assert by_halves == pytest.approx(formula, rel=0.2)


def test_sndr_is_largest_at_its_largest_weights() -> None:
    """Of all 64 corners of the box of weights."""
    delta, imputed = np.array([1.0, 4, 2, 0, 3, 5]), np.array([2.0, 2, 2, 1, 1, 1])
    deltas = Deltas(delta[None], imputed=Imputed(imputed[None], np.ones((2, 1)), np.ones((3, 1))))
    code = np.array([0, 0, 0, 1, 1, 1], dtype=np.int32)

    def value_at(weight: Vector) -> float:
        users, items = Clusters(code, 2), Clusters(np.arange(6, dtype=np.int32) % 3, 3)
        cells = ObservedCells(users, items, Propensities(1 / weight), universe=Universe(2, 3))
        return float(find_estimator("sndr").estimate(deltas, cells).value[0])

    box = WeightBox(np.ones(6), np.full(6, 3.0), np.full(6, 9.0))
    largest = find_estimator("sndr").largest_weights(deltas, observe(), box).weight

    corners = (np.array(corner) for corner in product([1.0, 9.0], repeat=6))
    assert value_at(largest) == pytest.approx(max(map(value_at, corners)), rel=1e-12)


def test_a_transform_replaces_the_weights() -> None:
    clipped = observe(weight_transform=Clip(3.0))

    estimate = find_estimator("ips").estimate(DELTAS, clipped)

    assert estimate.value[0] == pytest.approx((SEEN * np.minimum(WEIGHT, 3) * DELTA_ALL).mean())
    assert clipped.n_transformed == (WEIGHT[SEEN] > 3).sum()


def test_ips_of_a_ratio_metric_is_snips() -> None:
    base = (DELTA_ALL[SEEN] > 3).astype(float)
    ratio = Deltas(DELTAS.value * base, base)

    assert find_estimator("ips").estimate(ratio, observe()).value == pytest.approx(
        find_estimator("snips").estimate(ratio, observe()).value
    )


def test_a_mean_of_users_is_user_normalised_whatever_the_weights() -> None:
    per_user = Deltas(DELTAS.value, is_mean_of_users=True)
    naive = find_estimator("naive").estimate(per_user, observe())

    by_hand = np.mean([DELTA_ALL[u][SEEN[u]].mean() for u in range(U)])
    assert naive.value[0] == pytest.approx(by_hand)
    assert find_estimator("snips").estimate(per_user, observe()).value[0] == pytest.approx(
        BY_HAND["user_normalized"]
    )


@pytest.mark.parametrize("name", ["ips", "dr", "sndr", "eib"])
def test_an_unknown_universe_is_an_error_that_says_what_to_pass(name: str) -> None:
    with pytest.raises(UniverseError, match=r"universe=\(n_users, n_items\)"):
        find_estimator(name).estimate(DELTAS, observe(universe=None))


def test_doubly_robust_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="'dr' needs a model of the ratings"):
        find_estimator("dr").estimate(Deltas(DELTAS.value), observe())
    with pytest.raises(UsageError, match="not for ratios"):
        find_estimator("dr").estimate(
            Deltas(DELTAS.value, np.ones(len(USER)), imputed=DELTAS.imputed), observe()
        )


def test_sndr_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="every cell that this metric counts has weight 0"):
        find_estimator("sndr").estimate(DELTAS, observe(weight_transform=Switch(1.0)))
    with pytest.raises(UsageError, match="not for ratios"):
        find_estimator("sndr").estimate(
            Deltas(DELTAS.value, np.ones(len(USER)), imputed=DELTAS.imputed), observe()
        )
    one = np.zeros(1, dtype=np.int32)
    cells = ObservedCells(
        Clusters(one, U), Clusters(one, I), Propensities(np.ones(1)), universe=Universe(U, I)
    )
    with pytest.raises(UsageError, match="'sndr' has no standard error for a single cell"):
        find_estimator("sndr").estimate(DELTAS.take(one), cells)


def test_group_normalised_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="not for ratios"):
        find_estimator("user_normalized").estimate(
            Deltas(DELTAS.value, np.ones(len(USER))), observe()
        )


def test_a_single_cell_has_no_standard_error() -> None:
    alone = Clusters(np.zeros(1, dtype=np.int32), 1)
    with pytest.raises(UsageError, match="no standard error for a single cell"):
        find_estimator("naive").estimate(Deltas(np.ones((1, 1))), ObservedCells(alone, alone))


@pytest.mark.parametrize(
    "transform",
    [lambda weight: -weight, lambda weight: weight[:-1], lambda weight: weight * np.inf],
)
def test_weights_that_are_none_are_refused(transform: object) -> None:
    with pytest.raises(UsageError, match="one finite weight of at least 0 for each cell"):
        find_estimator("ips").estimate(DELTAS, observe(weight_transform=transform))


def test_unknown_estimator_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match="'ipw'; valid names are: naive, ips, snips"):
        find_estimator("ipw")


def test_estimators_are_declared_under_their_own_names() -> None:
    for name, declaration in ESTIMATORS.items():
        assert declaration.target().name == name
        assert declaration.summary.startswith(declaration.label)
        assert declaration.summary.endswith(".")


@pytest.mark.parametrize("estimator", [None, 3, SNIPS], ids=repr)
def test_what_is_not_an_estimator_is_refused(estimator: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown estimator .*; valid names are: naive"):
        find_estimator(estimator)


class TotalWeight(Estimator):
    """The sum of the weights, as an estimator that a caller adds."""

    name = "total_weight"

    def sums_needed(self, *, is_ratio: bool, is_mean_of_users: bool, cluster: Cluster) -> SumSpec:
        return SumSpec(True, cluster)

    def from_sums(self, spec: SumSpec, sums: Sums, scope: Scope) -> Estimate:
        return Estimate(
            np.full(sums.weighted_delta.size, sums.last_weighted_base), np.zeros((1, 1))
        )


def test_an_estimator_is_two_functions_and_can_be_declared_anywhere() -> None:
    declare = ESTIMATORS.declare("total_weight", label="Total weight", summary="Total weight.")
    try:
        declare(TotalWeight)
        estimate = find_estimator("total_weight").estimate(DELTAS, observe())
    finally:
        del ESTIMATORS._declarations["total_weight"]

    assert estimate.value == pytest.approx([(SEEN * WEIGHT).sum()])
