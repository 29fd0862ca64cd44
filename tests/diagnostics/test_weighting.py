from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from unskew import simulate
from unskew.diagnostics.weighting import CovariateBalance, WeightDistribution
from unskew.propensity.covariates import CovariateProfiles
from unskew.types import Matrix, Vector

# Weights

WEIGHT = 1 + np.random.default_rng(0).pareto(1.5, 1000)


def test_quantiles_and_shares_by_their_definitions() -> None:
    result = WeightDistribution.of(WEIGHT, n_cells=3000)

    assert result.quantiles == pytest.approx(tuple(np.quantile(WEIGHT, [0, 0.5, 0.9, 0.99, 1])))
    assert result.largest_share == pytest.approx(WEIGHT.max() / WEIGHT.sum())
    assert result.summary.mass_ratio == pytest.approx(WEIGHT.sum() / 3000)
    assert result.summary.sample_share == pytest.approx(
        WEIGHT.sum() ** 2 / (WEIGHT**2).sum() / 1000
    )


def test_the_curve_says_what_the_heaviest_rows_hold() -> None:
    result = WeightDistribution.of(WEIGHT, n_cells=None)
    heaviest_first = np.sort(WEIGHT)[::-1]

    assert (result.row_share[0], result.weight_share[0]) == (
        pytest.approx(1 / 1000),
        pytest.approx(result.largest_share),
    )
    assert (result.row_share[-1], result.weight_share[-1]) == (1.0, pytest.approx(1.0))
    for share, held in zip(result.row_share, result.weight_share, strict=True):
        assert held == pytest.approx(heaviest_first[: round(share * 1000)].sum() / WEIGHT.sum())


def test_without_a_universe_there_is_no_mass_to_compare() -> None:
    assert WeightDistribution.of(WEIGHT, n_cells=None).summary.mass_ratio is None


def test_warnings_are_those_of_the_weight_summary() -> None:
    weight = np.ones(1000)
    weight[0] = 1e6
    result = WeightDistribution.of(weight, n_cells=None)

    assert list(map(str, result.warnings())) == list(map(str, result.summary.warnings())) != []


# Balance

WORLD = simulate(30, 40, density=0.2, alpha=0.5, random_state=1)
LOG, INVERSE = WORLD.log, WORLD.propensities.inverse
RNG = np.random.default_rng(0)
AGE, KIND = RNG.normal(40, 10, (30, 1)), RNG.integers(0, 3, 40)
USERS = CovariateProfiles.read(AGE, LOG.users, "user")
ITEMS = CovariateProfiles.read(
    pd.DataFrame({"kind": np.array(["coat", "hat", "shoe"])[KIND]}), LOG.items, "item"
)


def dense(values: Matrix, weight: Vector) -> Vector:
    """The slow twin: every cell written out, ``values`` users x items."""
    logged = values[LOG.user, LOG.item]
    return (np.average(logged, weights=weight) - values.mean()) / values.std()


def test_differences_are_those_over_every_cell() -> None:
    result = CovariateBalance.of(LOG, [USERS, ITEMS], INVERSE)
    columns = [
        np.repeat(AGE, 40, axis=1),
        *(np.tile(level == KIND, (30, 1)).astype(float) for level in range(3)),
    ]

    assert result.names == ("user:0", "item:kind=coat", "item:kind=hat", "item:kind=shoe")
    np.testing.assert_allclose(
        result.before, [dense(values, np.ones(len(LOG))) for values in columns]
    )
    np.testing.assert_allclose(result.after, [dense(values, INVERSE) for values in columns])
    assert result.asam == pytest.approx(np.abs(result.after).mean())
    assert result.asam_before == pytest.approx(np.abs(result.before).mean())


def test_the_worst_covariate_keeps_its_sign() -> None:
    result = CovariateBalance(("a", "b"), np.array([0.1, 0.2]), np.array([0.1, -0.4]))

    assert (result.worst_covariate, result.worst_difference) == ("b", -0.4)
    (warning,) = result.warnings()
    assert str(warning).startswith(
        "after weighting, the mean covariates of the log differ from those of all cells by 0.250 "
    )
    assert "on average (before: 0.150)" in str(warning)
    assert "'b' by -0.400" in str(warning)


def test_weighting_that_makes_it_worse_is_named_and_a_small_rest_is_not() -> None:
    assert list(CovariateBalance(("a",), np.array([0.01]), np.array([0.06])).warnings()) != []
    assert list(CovariateBalance(("a",), np.array([0.30]), np.array([0.05])).warnings()) == []


def test_a_log_of_everything_is_balanced_exactly() -> None:
    log = simulate(5, 6, density=1.0, alpha=1.0, random_state=0).log
    result = CovariateBalance.of(
        log, [CovariateProfiles.read(np.arange(5.0), log.users, "user")], np.ones(30)
    )

    assert result.before.tolist() == result.after.tolist() == [0.0]
