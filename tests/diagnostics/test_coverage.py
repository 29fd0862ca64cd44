from __future__ import annotations

import numpy as np
import pytest

from unskew import Ratings
from unskew.data import Universe
from unskew.diagnostics.coverage import Coverage
from unskew.propensity.covariates import CovariateProfiles

LOG = Ratings.from_dense([[5, 1, 0], [2, 0, 0], [0, 0, 0]])


def covariates(users: list[float] | None, items: list[float] | None) -> list[CovariateProfiles]:
    parts = (("user", users, LOG.users), ("item", items, LOG.items))
    return [
        CovariateProfiles.read(np.array(values), ids, kind)
        for kind, values, ids in parts
        if values is not None
    ]  # type: ignore[arg-type]


def test_users_and_items_without_an_observation() -> None:
    assert Coverage.of(LOG, LOG.universe, []) == Coverage(3, 3, 1, 1)
    assert Coverage.of(LOG, Universe(10, 5), []) == Coverage(10, 5, 8, 3)
    assert str(Coverage.of(LOG, None, [])) == "1 user, 1 item"


def test_profiles_by_hand() -> None:
    coverage = Coverage.of(LOG, LOG.universe, covariates([0, 0, 1], [0, 1, 1]))

    assert (coverage.profiles, coverage.profiles_unseen) == (
        4,
        2,
    )  # the third user's profile, with either kind of item
    assert coverage.share_unseen == pytest.approx(3 / 9)
    assert str(coverage) == "1 user, 1 item, 2 of 4 covariate profiles"


def test_with_covariates_of_one_side_the_other_is_one_profile() -> None:
    by_user, by_item = (
        Coverage.of(LOG, None, covariates(*parts))
        for parts in (([0, 0, 1], None), (None, [0, 1, 2]))
    )

    assert (by_user.profiles, by_user.profiles_unseen) == (2, 1)
    assert (by_item.profiles, by_item.profiles_unseen) == (3, 1)


def test_holes_are_large_profiles_that_were_never_observed() -> None:
    rng = np.random.default_rng(0)
    seen = rng.random((40, 50)) < 0.3
    seen[:20, :25] = False  # 500 cells, 110 expected
    user, item = np.nonzero(seen)
    log = Ratings.from_codes(user, item, np.ones(user.size), shape=(40, 50))
    sides = [
        CovariateProfiles.read(np.repeat([0.0, 1.0], n // 2), ids, kind)
        for kind, ids, n in _sides(log)
    ]  # type: ignore[arg-type]
    coverage = Coverage.of(log, log.universe, sides)

    assert (coverage.profiles, coverage.profiles_unseen, coverage.holes) == (4, 1, 1)
    (warning,) = coverage.warnings()
    assert str(warning).startswith(
        "1 of 4 covariate profiles were never observed, although at least 10 observations "
    )


def _sides(log: Ratings) -> list[tuple[str, np.ndarray, int]]:
    return [("user", log.users, log.n_users), ("item", log.items, log.n_items)]


def test_small_profiles_may_be_missed_by_chance() -> None:
    assert Coverage.of(LOG, LOG.universe, covariates([0, 1, 2], [0, 1, 2])).holes == 0


def test_many_unseen_are_named() -> None:
    one, two = Coverage(10, 4, 8, 2).warnings()

    assert str(one).startswith("8 of 10 users have no observation (80%)")
    assert str(two).startswith("2 of 4 items have no observation (50%)")
