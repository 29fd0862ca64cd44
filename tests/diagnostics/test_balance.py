from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unskew import simulate
from unskew.diagnostics.balance import Balance
from unskew.propensity.covariate.covariates import Covariates
from unskew.types import Matrix, Vector

WORLD = simulate(30, 40, density=0.2, alpha=0.5, random_state=1)
LOG, WEIGHT = WORLD.log, WORLD.propensities.inverse
RNG = np.random.default_rng(0)
AGE, KIND = RNG.normal(40, 10, (30, 1)), RNG.integers(0, 3, 40)
USERS = Covariates.of(AGE, LOG.users, "user")
ITEMS = Covariates.of(
    pd.DataFrame({"kind": np.array(["coat", "hat", "shoe"])[KIND]}), LOG.items, "item"
)


def dense(values: Matrix, weight: Vector) -> Vector:
    """The slow twin: every cell written out, ``values`` users x items."""
    logged = values[LOG.user, LOG.item]
    return (np.average(logged, weights=weight) - values.mean()) / values.std()


def test_differences_are_those_over_every_cell() -> None:
    found = Balance.of(LOG, [USERS, ITEMS], WEIGHT)
    columns = [
        np.repeat(AGE, 40, axis=1),
        *(np.tile(level == KIND, (30, 1)).astype(float) for level in range(3)),
    ]

    assert found.names == ("user:0", "item:kind=coat", "item:kind=hat", "item:kind=shoe")
    np.testing.assert_allclose(
        found.before, [dense(values, np.ones(len(LOG))) for values in columns]
    )
    np.testing.assert_allclose(found.after, [dense(values, WEIGHT) for values in columns])
    assert found.asam == pytest.approx(np.abs(found.after).mean())
    assert found.asam_before == pytest.approx(np.abs(found.before).mean())


def test_the_worst_covariate_keeps_its_sign() -> None:
    found = Balance(("a", "b"), np.array([0.1, 0.2]), np.array([0.1, -0.4]))

    assert (found.worst_covariate, found.worst_difference) == ("b", -0.4)
    (complaint,) = found.warning_texts()
    assert complaint.startswith(
        "after weighting, the covariates are off by 0.250 standard deviations on average (before: 0.150)"
    )
    assert "'b' by -0.400" in complaint


def test_weighting_that_makes_it_worse_is_named_and_a_small_rest_is_not() -> None:
    assert list(Balance(("a",), np.array([0.01]), np.array([0.06])).warning_texts()) != []
    assert list(Balance(("a",), np.array([0.30]), np.array([0.05])).warning_texts()) == []


def test_a_log_of_everything_is_balanced_exactly() -> None:
    log = simulate(5, 6, density=1.0, alpha=1.0, random_state=0).log
    found = Balance.of(log, [Covariates.of(np.arange(5.0), log.users, "user")], np.ones(30))

    assert found.before.tolist() == found.after.tolist() == [0.0]
