"""Simulated impressions: the truth is exact, and logs agree with it."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from unskew import simulate_impressions
from unskew.errors import UsageError
from unskew.simulation import CascadeUsers, GeneralUsers, PositionBasedUsers
from unskew.simulation.impressions import UserModel

MODELS: list[UserModel] = [
    PositionBasedUsers((1.0, 0.5, 0.2)),
    CascadeUsers(),
    CascadeUsers(stay=0.4),
    GeneralUsers((1.0, 0.5, 0.2)),
]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_drawn_clicks_have_the_expected_means(model: UserModel) -> None:
    relevance = np.array([[0.7, 0.4, 0.9]])

    clicks = model.draw_clicks(np.repeat(relevance, 200_000, axis=0), np.random.default_rng(0))

    expected = model.expect_clicks(relevance)[0]
    error = np.sqrt(expected * (1 - expected) / len(clicks))
    assert (np.abs(clicks.mean(axis=0) - expected) < 5 * error).all()


def test_cascade_users_stop_at_the_first_click() -> None:
    expected = CascadeUsers().expect_clicks(np.array([[0.5, 0.5, 1.0]]))

    assert expected.tolist() == [[0.5, 0.25, 0.25]]


@pytest.mark.parametrize("users", ["position", "cascade", "general"])
@pytest.mark.parametrize("logging", ["uniform", "plackett-luce", "product", "rankers"])
def test_the_log_agrees_with_the_exact_value(users: str, logging: str) -> None:
    world = simulate_impressions(30_000, users=users, logging=logging, random_state=3)  # type: ignore[arg-type]

    by_request = world.log.reward[world.log.slots].sum(axis=1)
    by_user = np.bincount(world.log.user_of_request, weights=by_request - by_request.mean())
    error = np.sqrt(np.square(by_user).sum()) / by_request.size

    assert abs(by_request.mean() - world.logged_value) < 4 * error


def test_the_value_of_a_soft_ranking_is_a_sum_over_slates() -> None:
    world = simulate_impressions(10, n_items=4, n_slots=2, users="position", n_kinds=1)
    score = world.target.table[0]
    value = 0.0
    for first, second in permutations(range(4), 2):
        rate = np.exp(score)
        chance = rate[first] / rate.sum()
        chance *= rate[second] / (rate.sum() - rate[first])
        value += chance * (world.relevance[0, first] + world.relevance[0, second] / 2)

    assert world.value(world.target.table, temperature=1.0) == pytest.approx(value, abs=1e-12)


def test_logged_step_probabilities_are_those_of_the_policy() -> None:
    world = simulate_impressions(5, n_items=4, n_slots=2, logging="plackett-luce", n_kinds=1)
    log, rate = world.log, np.exp(world.logging_scores[0])
    first, second = log.item[log.slots].T

    assert log.probability is not None
    logged = log.probability[log.slots]

    np.testing.assert_allclose(logged[:, 0], rate[first] / rate.sum())
    np.testing.assert_allclose(logged[:, 1], rate[second] / (rate.sum() - rate[first]))


def test_the_same_seed_gives_the_same_log() -> None:
    first, second = (simulate_impressions(50, random_state=4).log for _ in range(2))

    np.testing.assert_array_equal(first.reward, second.reward)
    np.testing.assert_array_equal(first.item, second.item)


def test_arguments_are_checked() -> None:
    with pytest.raises(UsageError, match="7 slots cannot show 6 items without repeats"):
        simulate_impressions(n_slots=7)
    with pytest.raises(UsageError, match=r"unknown value 'swaps' of logging"):
        simulate_impressions(logging="swaps")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"examination must have a number in \(0, 1\] for each"):
        simulate_impressions(examination=[1.0])
    with pytest.raises(UsageError, match=r"30 items in 5 slots have 1\.71e\+07 slates"):
        simulate_impressions(5, 30, 5, users="cascade").value(np.arange(30.0), temperature=1.0)
