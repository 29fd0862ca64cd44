from __future__ import annotations

import numpy as np
import pytest

from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.errors import UniverseError, UnknownNameError, UsageError
from unskew.estimators.cells import Deltas, Imputed, Sample
from unskew.estimators.family import ESTIMATORS, find_estimator
from unskew.estimators.sums import Clusters
from unskew.estimators.transforms import Clip

rng = np.random.default_rng(3)
U, I = 30, 20  # noqa: E741
P_ALL = rng.uniform(0.1, 0.9, (U, I))
SEEN = rng.random((U, I)) < P_ALL
USER, ITEM = (codes.astype(np.int32) for codes in np.nonzero(SEEN))
DELTA_ALL = rng.normal(3, 1, (U, I))
IMPUTED_ALL = DELTA_ALL + rng.normal(0, 0.5, (U, I))


def sample(**changes: object) -> Sample:
    users, items = Clusters(USER, U), Clusters(ITEM, I)
    chosen = {None: None, "user": users, "item": items}[changes.pop("cluster", None)]  # type: ignore[index]
    return Sample(
        users,
        items,
        Propensities(P_ALL[SEEN]),
        clusters=chosen,
        universe=changes.pop("universe", Universe(U, I)),  # type: ignore[arg-type]
        **changes,  # type: ignore[arg-type]
    )


DELTAS = Deltas(
    DELTA_ALL[SEEN][None],
    imputed=Imputed(IMPUTED_ALL[SEEN][None], IMPUTED_ALL.sum(axis=1)[:, None]),
)
WEIGHT = 1 / P_ALL
BY_HAND = {
    "naive": DELTA_ALL[SEEN].mean(),
    "ips": (SEEN * WEIGHT * DELTA_ALL).mean(),
    "snips": (SEEN * WEIGHT * DELTA_ALL).sum() / (SEEN * WEIGHT).sum(),
    "user_normalized": ((SEEN * WEIGHT * DELTA_ALL).sum(1) / (SEEN * WEIGHT).sum(1)).mean(),
    "item_normalized": ((SEEN * WEIGHT * DELTA_ALL).sum(0) / (SEEN * WEIGHT).sum(0)).mean(),
    "eib": np.where(SEEN, DELTA_ALL, IMPUTED_ALL).mean(),
    "dr": (IMPUTED_ALL + SEEN * WEIGHT * (DELTA_ALL - IMPUTED_ALL)).mean(),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("cluster", [None, "user"])
def test_value_by_a_dense_formula(name: str, cluster: str | None) -> None:
    estimate = find_estimator(name)(DELTAS, sample(cluster=cluster))

    assert estimate.value[0] == pytest.approx(BY_HAND[name])
    assert estimate.covariance[0, 0] > 0


def test_clustered_doubly_robust_counts_the_imputed_part_of_each_user() -> None:
    totals = (IMPUTED_ALL + SEEN * WEIGHT * (DELTA_ALL - IMPUTED_ALL)).sum(axis=1) / (U * I)

    estimate = find_estimator("dr")(DELTAS, sample(cluster="user"))

    assert estimate.covariance[0, 0] == pytest.approx(
        U / (U - 1) * ((totals - totals.mean()) ** 2).sum()
    )


def test_a_transform_replaces_the_weights() -> None:
    clipped = sample(transform=Clip(3.0))

    estimate = find_estimator("ips")(DELTAS, clipped)

    assert estimate.value[0] == pytest.approx((SEEN * np.minimum(WEIGHT, 3) * DELTA_ALL).mean())
    assert clipped.n_touched == (WEIGHT[SEEN] > 3).sum()


def test_ips_of_a_ratio_metric_is_snips() -> None:
    base = (DELTA_ALL[SEEN] > 3).astype(float)
    ratio = Deltas(DELTAS.value * base, base)

    assert find_estimator("ips")(ratio, sample()).value == pytest.approx(
        find_estimator("snips")(ratio, sample()).value
    )


def test_a_mean_of_users_is_user_normalised_whatever_the_weights() -> None:
    per_user = Deltas(DELTAS.value, is_mean_of_users=True)
    naive = find_estimator("naive")(per_user, sample())

    by_hand = np.mean([DELTA_ALL[u][SEEN[u]].mean() for u in range(U)])
    assert naive.value[0] == pytest.approx(by_hand)
    assert find_estimator("snips")(per_user, sample()).value[0] == pytest.approx(
        BY_HAND["user_normalized"]
    )


@pytest.mark.parametrize("name", ["ips", "dr", "eib"])
def test_an_unknown_universe_is_an_error_that_says_what_to_pass(name: str) -> None:
    with pytest.raises(UniverseError, match=r"universe=\(n_users, n_items\)"):
        find_estimator(name)(DELTAS, sample(universe=None))


def test_doubly_robust_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="needs imputed deltas"):
        find_estimator("dr")(Deltas(DELTAS.value), sample())
    with pytest.raises(UsageError, match="not for ratios"):
        find_estimator("dr")(
            Deltas(DELTAS.value, np.ones(len(USER)), imputed=DELTAS.imputed), sample()
        )
    with pytest.raises(UsageError, match="clusters of users, not of items"):
        find_estimator("dr")(DELTAS, sample(cluster="item"))


def test_group_normalised_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="not for ratios"):
        find_estimator("user_normalized")(Deltas(DELTAS.value, np.ones(len(USER))), sample())


def test_a_single_cell_has_no_standard_error() -> None:
    one = Sample(Clusters(np.zeros(1, dtype=np.int32), 1), Clusters(np.zeros(1, dtype=np.int32), 1))
    with pytest.raises(UsageError, match="no standard error on a single cell"):
        find_estimator("naive")(Deltas(np.ones((1, 1))), one)


@pytest.mark.parametrize(
    "transform",
    [lambda weight: -weight, lambda weight: weight[:-1], lambda weight: weight * np.inf],
)
def test_weights_that_are_none_are_refused(transform: object) -> None:
    with pytest.raises(UsageError, match="one finite weight of at least 0 for each cell"):
        find_estimator("ips")(DELTAS, sample(transform=transform))


def test_unknown_estimator_lists_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match="'ipw'; valid ones are: naive, ips, snips"):
        find_estimator("ipw")
