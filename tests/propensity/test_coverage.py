"""Intervals with estimated propensities hold the truth as often as they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import expit

from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.estimators.observed import Clusters, Deltas, ObservedCells
from unskew.estimators.point import find_estimator
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.model import PropensityModel
from unskew.propensity.popularity import PopularityPropensity
from unskew.types import Matrix

N_USERS, N_ITEMS, N_DRAWS = 200, 150, 300
RNG = np.random.default_rng(7)
X, Z = RNG.normal(size=(N_USERS, 3)), RNG.normal(size=(N_ITEMS, 3))
COVARIATES = (X @ [0.4, -0.3, 0.2])[:, None] + Z @ [0.5, 0.3, -0.2]
USER, ITEM = RNG.normal(0, 0.35, N_USERS)[:, None], RNG.normal(0, 0.45, N_ITEMS)
EFFECT = USER + ITEM + COVARIATES
DELTA = np.stack(
    [
        np.square(RNG.normal(size=EFFECT.shape) + 0.7 * EFFECT),
        np.square(0.98 * RNG.normal(size=EFFECT.shape) + 0.75 * EFFECT),
    ]
)
WORLDS: dict[str, tuple[Matrix, Callable[[], PropensityModel]]] = {
    "logistic": (
        expit(COVARIATES - 2.1),
        lambda: LogisticPropensity(X, Z, item_offsets=False, interactions="none", ridge=0),
    ),
    "offsets": (
        expit(USER + ITEM + 0.3 * COVARIATES - 2),
        lambda: LogisticPropensity(X, Z, user_offsets=True, interactions="none", ridge=0.1),
    ),
    "popularity by item": (
        np.broadcast_to(expit(1.2 * ITEM - 2.1), EFFECT.shape),
        PopularityPropensity,
    ),
    "popularity by both": (
        np.minimum(0.13 * np.exp(USER + ITEM), 0.9),
        lambda: PopularityPropensity("both"),
    ),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
@pytest.mark.parametrize("world", WORLDS)
def test_intervals_of_risks_and_of_their_difference_cover_the_truth(world: str) -> None:
    """Nominal 95 %. With 300 draws, [0.92, 0.985] fails by accident in about 1 % of cases."""
    propensity, build = WORLDS[world]
    rng, truth = np.random.default_rng(0), DELTA.mean(axis=(1, 2))
    covered = {"ips": np.zeros(3), "snips": np.zeros(3)}
    for _ in range(N_DRAWS):
        log = Ratings.from_dense((rng.random(propensity.shape) < propensity) * 1.0)
        propensities = build().fit(log, universe="log").predict(log)
        cells = ObservedCells(
            Clusters(log.user, N_USERS),
            Clusters(log.item, N_ITEMS),
            propensities,
            universe=Universe(N_USERS, N_ITEMS),
        )
        for name, counts in covered.items():
            result = find_estimator(name).estimate(Deltas(DELTA[:, log.user, log.item]), cells)
            intervals = [
                (result.of(0, level=0.95), truth[0]),
                (result.of(1, level=0.95), truth[1]),
                (result.difference(0, 1, level=0.95), truth[0] - truth[1]),
            ]
            counts += [each.low <= value <= each.high for each, value in intervals]

    for counts in covered.values():
        assert (counts / N_DRAWS >= 0.92).all()
        assert (counts / N_DRAWS <= 0.985).all()
