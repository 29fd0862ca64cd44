from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import unskew
from unskew.data.estimation import Unit
from unskew.data.propensities import Propensities
from unskew.estimators.observed import Clusters, ObservedCells
from unskew.estimators.weight_checks import (
    Dispersion,
    WeightSummary,
    find_missing_dependence,
    find_shared_variance,
)
from unskew.types import Matrix


def test_equal_weights_bring_no_warning() -> None:
    summary = WeightSummary.of(np.full(1000, 20.0), n_cells=20_000)

    assert summary.effective_sample_size == pytest.approx(1000)
    assert summary.top_share == pytest.approx(0.01)
    assert list(summary.warning_texts()) == []


def test_one_giant_weight_is_named_with_its_numbers() -> None:
    weight = np.ones(1000)
    weight[3] = 1e6

    warning_texts = " ".join(WeightSummary.of(weight, n_cells=1_000_999).warning_texts())

    assert "effective sample size is 1 of 1,000 rows (0.1%)" in warning_texts
    assert "1% of rows with the largest weights hold 100% of all weight" in warning_texts
    assert "add up" not in warning_texts


@pytest.mark.parametrize(("n_cells", "share"), [(10_000, "+100.0%"), (40_000, "-50.0%")])
def test_weights_that_do_not_add_up_to_the_universe(n_cells: int, share: str) -> None:
    (warning,) = WeightSummary.of(np.full(1000, 20.0), n_cells=n_cells).warning_texts()

    assert f"add up to 20,000, but there are {n_cells:,} cells ({share}, " in warning


def test_clipping_is_named_as_the_cause_of_too_small_a_sum() -> None:
    log = unskew.Ratings.from_codes(
        np.arange(2_000) % 100, np.arange(2_000) // 100, np.arange(2_000) % 5 + 1, shape=(100, 200)
    ).with_universe((100, 200))
    model = unskew.propensity.ClippedPropensity(
        unskew.propensity.PopularityPropensity("user"), min_propensity=0.4
    ).fit(log)

    with pytest.warns(unskew.errors.PropensityWarning, match="of 100% of the rows were clipped"):
        result = unskew.evaluate(log, np.full(2_000, 3.0), propensities=model, metrics=["mse"])
    assert result.doubt == "the propensities do not fit this log"
    assert not any("depend on the rating alone" in str(each) for each in result.problems())
    assert f"not reliable, a check failed: {result.doubt}" in repr(unskew.sensitivity(result))


def test_shares_of_the_log_and_of_all_cells() -> None:
    summary = WeightSummary.of(np.array([1.0, 3.0]), n_cells=8)

    assert summary.sample_share == pytest.approx(16 / 10 / 2)
    assert summary.mass_ratio == pytest.approx(0.5)
    assert WeightSummary.of(np.ones(2)).mass_ratio is None


def draw_mass(assumed_factor: float, seed: int) -> WeightSummary:
    """Weights of a log of 20,000 cells whose propensities are assumed to be a factor off."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.02, 0.5, 20_000)
    seen = rng.random(p.size) < p
    return WeightSummary.of(1 / (assumed_factor * p[seen]), n_cells=p.size)


def test_z_of_the_mass_by_hand() -> None:
    weight = np.array([2.0, 4.0, 10.0])

    summary = WeightSummary.of(weight, n_cells=10)

    assert summary.mass_z == pytest.approx((16 - 10) / np.sqrt((weight**2 - weight).sum()))
    assert WeightSummary.of(weight).mass_z is None
    assert WeightSummary.of(weight, n_cells=10, is_balanced=True).mass_z is None


def test_right_propensities_pass_and_a_tenth_less_is_found() -> None:
    """300 logs: z is standard normal if P is right, and 0.9 of the right P is always found."""
    right = np.array([draw_mass(1.0, seed).mass_z for seed in range(300)])
    assert abs(right.mean()) < 0.25
    assert 0.85 < right.std() < 1.15
    assert sum("add up" in " ".join(draw_mass(1.0, s).warning_texts()) for s in range(100)) <= 2

    found = [any("add up" in text for text in draw_mass(0.9, s).warning_texts()) for s in range(50)]
    assert all(found)


def test_certain_cells_must_add_up_exactly() -> None:
    assert WeightSummary.of(np.ones(10), n_cells=10).mass_z == 0.0
    assert WeightSummary.of(np.ones(10), n_cells=12).mass_z == -np.inf


def test_an_error_too_small_to_matter_brings_no_warning() -> None:
    """A million cells show a mass that is 0.5 % off at more than three standard errors."""
    summary = WeightSummary.of(np.full(1_000_000, 2.01), n_cells=2_000_000)

    assert summary.mass_z is not None
    assert summary.mass_z > 3
    assert summary.warning_texts() == []


def test_a_large_effective_sample_is_enough_however_long_the_log() -> None:
    """Two per cent of a long log, but 2,000 equally weighted cells' worth."""
    weight = np.r_[np.full(100_000, 1.0), np.full(1_000, 1_500.0)]

    assert WeightSummary.of(weight).sample_share < 0.05
    assert not any(
        "effective sample size" in text for text in WeightSummary.of(weight).warning_texts()
    )


SHAPE = (200, 60)
UNITS: tuple[Unit, ...] = ("user", "item")


def observe(seen: Matrix, propensity: Matrix) -> ObservedCells:
    user, item = (code.astype(np.int32) for code in np.nonzero(seen))
    n_users, n_items = seen.shape
    return ObservedCells(
        Clusters(user, n_users), Clusters(item, n_items), Propensities(propensity[seen])
    )


def test_the_excess_is_zero_in_expectation_if_cells_are_independent() -> None:
    """All patterns of a matrix in which no user and no item can be without a cell."""
    propensity = np.array([[1.0, 0.1, 0.9], [0.3, 1.0, 0.2], [0.6, 0.4, 1.0]])
    expected = dict.fromkeys(["user", "item"], 0.0)
    variance = 0.0
    for bits in itertools.product([False, True], repeat=9):
        seen = np.reshape(bits, (3, 3))
        probability = float(np.where(seen, propensity, 1 - propensity).prod())
        if probability == 0:
            continue
        cells = observe(seen, propensity)
        by_item = Dispersion.of("item", cells)
        expected["user"] += probability * Dispersion.of("user", cells).excess
        expected["item"] += probability * by_item.excess
        variance += probability * by_item.variance
    assert expected == pytest.approx({"user": 0.0, "item": 0.0}, abs=1e-12)
    odds = (1 - propensity) / propensity
    assert variance == pytest.approx((1 - 1 / 3) * odds.sum())


def test_items_that_can_be_unseen_make_false_alarms_rarer() -> None:
    propensity = np.array([[0.5, 0.1], [0.3, 0.2]])
    expected = 0.0
    for bits in itertools.product([False, True], repeat=4):
        seen = np.reshape(bits, (2, 2))
        if seen.any():
            probability = float(np.where(seen, propensity, 1 - propensity).prod())
            expected += probability * Dispersion.of("item", observe(seen, propensity)).excess
    assert expected < 0


def draw(
    rng: np.random.Generator, propensity: Matrix, user_shock: float = 0.0, item_shock: float = 0.0
) -> ObservedCells:
    n_users, n_items = propensity.shape
    user = 1 + user_shock * rng.choice([-1, 1], size=(n_users, 1))
    item = 1 + item_shock * rng.choice([-1, 1], size=(1, n_items))
    seen = rng.random(propensity.shape) < propensity * user * item
    return observe(seen, propensity)


@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_false_alarms_are_rarer_than_one_percent(spread: float) -> None:
    """The nominal rate is 0.1 %: 4 or more of 400 logs would have a probability of 0.1 %."""
    rng = np.random.default_rng(1)
    propensity = 1 / (1 + np.exp(2 + spread * rng.normal(size=SHAPE)))
    logs = [draw(rng, propensity) for _ in range(400)]
    for unit in UNITS:
        assert sum(Dispersion.of(unit, log).is_significant for log in logs) < 4


def test_shocks_of_items_are_found_and_belong_to_items() -> None:
    rng = np.random.default_rng(2)
    propensity = np.full(SHAPE, 0.1)
    logs = [draw(rng, propensity, item_shock=0.4) for _ in range(50)]
    assert all(find_missing_dependence(log, "user") for log in logs)
    assert not any(find_missing_dependence(log, "item") for log in logs)
    logs = [draw(rng, propensity, user_shock=0.4) for _ in range(50)]
    assert all(find_missing_dependence(log, "item") for log in logs)
    assert not any(find_missing_dependence(log, "user") for log in logs)


def test_shocks_that_add_little_to_those_of_users_do_not_matter() -> None:
    """A tenth of the shock in a hundredth of the units: significant, but not material."""
    rng = np.random.default_rng(6)
    cells = draw(rng, np.full((50, 4000), 0.2), user_shock=0.5, item_shock=0.25)
    dispersion = Dispersion.of("item", cells)
    assert dispersion.is_significant
    assert dispersion.ratio > 1.5
    assert find_missing_dependence(cells, None) == dispersion
    assert find_missing_dependence(cells, "user") is None


def test_totals_that_the_propensities_explain_do_not_count() -> None:
    rng = np.random.default_rng(3)
    share = np.exp(0.8 * rng.normal(size=(1, SHAPE[1])))
    propensity = np.broadcast_to(np.clip(0.1 * share, 0.01, 0.9), SHAPE)
    seen = rng.random(SHAPE) < propensity
    assert not Dispersion.of("item", observe(seen, propensity)).is_significant
    flat = np.full(SHAPE, seen.mean())
    ignored = Dispersion.of("item", observe(seen, flat))
    assert ignored.is_significant
    total = seen.sum(axis=0) / flat[0, 0]
    explained = (1 - 1 / SHAPE[1]) * (total * (1 / flat[0, 0] - 1)).sum()
    assert ignored.ratio == pytest.approx(np.square(total - total.mean()).sum() / explained)


def test_shocks_are_no_sign_of_wrong_propensities() -> None:
    """The sum of the weights follows the shocks; a universe of twice the size is still found."""
    rng, n_false, n_alone, n_found = np.random.default_rng(5), 0, 0, 0
    for _ in range(60):
        shock = rng.gamma(4.0, 0.25, (1, SHAPE[1])) * rng.gamma(4.0, 0.25, (SHAPE[0], 1))
        seen = rng.random(SHAPE) < 0.1 * shock
        cells = observe(seen, np.full(SHAPE, 0.1))
        summary = WeightSummary.of(cells.weight, n_cells=12_000)
        shared = find_shared_variance(cells)
        n_alone += not summary.fits_universe
        n_false += not replace(summary, shared_variance=shared).fits_universe
        n_found += not replace(summary, shared_variance=shared, n_cells=24_000).fits_universe

    assert n_false <= 3
    assert n_alone > 10
    assert n_found == 60
    independent = observe(rng.random(SHAPE) < 0.1, np.full(SHAPE, 0.1))
    assert find_shared_variance(independent) == 0.0


def test_certain_cells_explain_nothing() -> None:
    dispersion = Dispersion.of("user", observe(np.array([[1, 1], [0, 1]], bool), np.ones((2, 2))))
    assert dispersion.ratio == np.inf
    assert "explain none of it" in dispersion.describe()


# In evaluate


def shocked_log(seed: int = 0, item_shock: float = 0.6) -> tuple[unskew.Ratings, Any]:
    rng = np.random.default_rng(seed)
    shock = 1 + item_shock * np.resize([-1, 1], (1, SHAPE[1]))
    seen = rng.random(SHAPE) < 0.2 * shock
    truth = rng.integers(1, 6, SHAPE).astype(float)
    return unskew.Ratings.from_dense(np.where(seen, truth, 0)), np.full(SHAPE, 0.2)


def judge(log: unskew.Ratings, propensities: Any, **options: Any) -> unskew.Evaluation:
    model = {"three": np.full(SHAPE, 3.0)}
    return unskew.evaluate(log, model, propensities=propensities, **options)


def test_the_default_adds_clusters_of_items_and_says_why() -> None:
    log, propensities = shocked_log()
    result = judge(log, propensities)
    assert result.clusters is not None
    assert result.clusters.cluster == "both"
    sentence = result.clusters.sentence
    assert sentence.startswith("Clusters: users and items, because users have several cells and ")
    assert "times what the propensities explain." in sentence
    assert sentence in " ".join(repr(result).split())
    assert result.to_record()["clusters"] == sentence
    expected = judge(log, propensities, cluster="both")
    assert result.to_columns() == expected.to_columns()


def test_the_default_is_users_without_such_shocks() -> None:
    result = judge(*shocked_log(item_shock=0.0))
    assert result.intervals == "clustered by user"
    assert result.to_record()["clusters"] == (
        "Clusters: users, because users have several cells and item totals vary hardly more than "
        "the propensities explain."
    )
    assert "Clusters:" not in repr(result)


def test_requested_clusters_that_leave_shocks_out_warn_with_the_ratio() -> None:
    log, propensities = shocked_log()
    with pytest.warns(unskew.errors.PropensityWarning, match="which clusters of users leave out"):
        by_user = judge(log, propensities, cluster="user", metrics=["mse"])
    by_both = judge(log, propensities, cluster="both", metrics=["mse"])
    first, second = (
        each.risk("three", metric="mse", estimator="ips").std_error for each in (by_both, by_user)
    )
    assert f"{first / second:.2g} by ips" in str(by_user.cluster_warning)
    assert any("leave out" in text for text in by_user.to_record()["warnings"])
    assert judge(log, propensities, cluster=None).cluster_warning is None


def test_items_are_the_clusters_if_users_have_one_cell_each() -> None:
    rng = np.random.default_rng(4)
    share = np.resize([1.0, 4.0], 50)
    item = rng.choice(50, size=400, p=share / share.sum())
    log = unskew.Ratings.from_arrays(np.arange(400), item, rng.integers(1, 6, 400))
    result = unskew.evaluate(
        log, {"three": np.full(400, 3.0)}, propensities=np.full(400, 0.02), estimators=["snips"]
    )
    assert result.intervals == "clustered by item"
    assert "each user has one cell" in result.to_record()["clusters"]


def test_a_bootstrap_keeps_users_and_warns() -> None:
    log, propensities = shocked_log()
    with pytest.warns(unskew.errors.PropensityWarning, match="limits of 'ips' are too narrow"):
        result = judge(log, propensities, bootstrap=20)
    assert result.intervals.startswith("bootstrap of users")


# Sums by cluster


def test_two_way_clusters_of_one_user_are_an_error() -> None:
    log = unskew.Ratings.from_arrays(["a"] * 3, [0, 1, 2], [1, 2, 3])
    with pytest.raises(unskew.errors.UsageError, match="at least 2 clusters"):
        unskew.evaluate(log, np.ones(3), propensities=np.full(3, 0.5), cluster="both")


def test_the_order_of_users_does_not_change_intervals() -> None:
    """A universe with users that have no rating, at the end or at the beginning."""
    rng = np.random.default_rng(5)
    seen = rng.random((30, 20)) < 0.3
    seen[20:] = False
    truth = rng.integers(1, 6, seen.shape).astype(float)
    rows = []
    for order in (np.arange(30), np.arange(30)[::-1]):
        log = unskew.Ratings.from_dense(np.where(seen, truth, 0)[order])
        model = unskew.propensity.PopularityPropensity("item").fit(log)
        for cluster in ("user", "both"):
            result = unskew.evaluate(
                log, {"m": np.full(seen.shape, 3.0)}, propensities=model, cluster=cluster
            )
            rows.append([risk.std_error for risk in result])
    assert rows[0] == pytest.approx(rows[2])
    assert rows[1] == pytest.approx(rows[3])
