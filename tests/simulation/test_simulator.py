from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.universe import Universe
from unskew.errors import UniverseError, UsageError
from unskew.simulation.observation import ByCovariates, ByRating, Uniform
from unskew.simulation.simulator import MARLIN_ZEMEL, Simulation, quantize, simulate


@pytest.fixture(scope="module")
def full_size() -> Simulation:
    return simulate(random_state=0)


def counts(truth: np.ndarray) -> list[int]:
    return [int((truth == level).sum()) for level in range(1, 6)]


def test_the_default_world_has_the_size_of_movielens_and_the_papers_marginals(
    full_size: Simulation,
) -> None:
    shares = np.array(counts(full_size.truth)) / full_size.truth.size

    assert full_size.truth.shape == (943, 1682)
    assert shares == pytest.approx(MARLIN_ZEMEL, abs=2e-6)
    assert full_size.observation.scale == pytest.approx(0.3398, abs=5e-5)
    assert full_size.log.density == pytest.approx(0.05, rel=0.02)


def test_every_user_of_the_default_world_has_fifty_ones(full_size: Simulation) -> None:
    """What makes ROTATE's DCG@50 exactly 12.898."""
    assert (full_size.truth == 1).sum(axis=1).min() >= 50


def test_people_rate_what_they_like(full_size: Simulation) -> None:
    observed = np.array([(full_size.log.rating == level).mean() for level in range(1, 6)])

    assert observed == pytest.approx([0.056, 0.103, 0.245, 0.423, 0.173], abs=0.01)


# The truth


@given(
    weights=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    n_rows=st.integers(1, 9),
    n_columns=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_marginals_are_met_exactly_up_to_rounding(
    weights: list[int], n_rows: int, n_columns: int, seed: int
) -> None:
    shares = np.array(weights) / sum(weights)
    values = (
        np.random.default_rng(seed)
        .permutation(n_rows * n_columns)
        .astype(np.float32)
        .reshape(n_rows, n_columns)
    )

    levels = quantize(values, tuple(shares))

    ends = np.round(np.cumsum(shares) * values.size)
    assert [(levels <= level).sum() for level in range(1, len(weights) + 1)] == ends.tolist()
    assert np.array_equal(levels.ravel()[np.argsort(values, axis=None)], np.sort(levels, axis=None))


def test_levels_by_hand() -> None:
    assert quantize(np.array([[0.3, 0.1], [0.9, 0.2]], np.float32), (0.5, 0.25, 0.25)).tolist() == [
        [2, 1],
        [3, 1],
    ]


def test_other_marginals() -> None:
    assert counts(simulate(20, 30, marginals=(0.2, 0.2, 0.2, 0.2, 0.2)).truth) == [120] * 5


def test_the_truth_is_low_rank_under_little_noise() -> None:
    """Five factors and two offsets explain nearly all of it, which they do not of pure noise."""

    def explained(noise: float) -> float:
        truth = simulate(60, 80, noise=noise, marginals=(0.2,) * 5, random_state=3).truth
        singular = np.linalg.svd(truth - truth.mean(), compute_uv=False)
        return float((singular[:7] ** 2).sum() / (singular**2).sum())

    assert explained(0.0) > 0.85 > 0.5 > explained(20.0)


# Seeds


def test_the_same_seed_gives_the_same_world() -> None:
    one, other = simulate(20, 30, random_state=4), simulate(20, 30, random_state=4)

    assert one.truth.tolist() == other.truth.tolist()
    assert one.log.user.tolist() == other.log.user.tolist()
    assert one.log.item.tolist() == other.log.item.tolist()
    assert one.propensities.values.tolist() == other.propensities.values.tolist()
    assert one.truth.tolist() != simulate(20, 30, random_state=5).truth.tolist()


def test_the_truth_does_not_depend_on_how_it_is_observed() -> None:
    truth = simulate(20, 30, random_state=4).truth.tolist()

    assert simulate(20, 30, density=0.1, random_state=4).truth.tolist() == truth
    assert simulate(20, 30, alpha=0.9, random_state=4).truth.tolist() == truth
    assert simulate(20, 30, observation=Uniform(), random_state=4).truth.tolist() == truth


def test_a_generator_gives_another_world_at_each_call() -> None:
    rng = np.random.default_rng(4)
    one, other = simulate(20, 30, random_state=rng), simulate(20, 30, random_state=rng)

    assert one.truth.tolist() == simulate(20, 30, random_state=4).truth.tolist()
    assert one.truth.tolist() != other.truth.tolist()
    assert simulate(20, 30, random_state=None).truth.tolist() != one.truth.tolist()


def test_alpha_and_an_observation_model_are_not_combined() -> None:
    with pytest.raises(UsageError, match=r"alpha is a setting of the default .*observation=ByRat"):
        simulate(4, 5, alpha=0.5, observation=Uniform())


# The log


def test_propensities_belong_to_the_cells_of_the_log() -> None:
    world = simulate(20, 30, alpha=0.5, density=0.1, random_state=1)
    propensities = world.observation.propensities(slice(0, 20))

    assert len(world.propensities) == len(world.log)
    assert (
        world.propensities.values.tolist() == propensities[world.log.user, world.log.item].tolist()
    )
    assert world.log.rating.tolist() == world.truth[world.log.user, world.log.item].tolist()
    assert propensities.mean() == pytest.approx(0.1)


def test_the_universe_is_known_and_ids_are_kept() -> None:
    users, items = [f"user {code}" for code in range(20)], list(range(100, 130))
    world = simulate(20, 30, users=users, items=items, density=0.1, random_state=1)

    assert world.log.universe == Universe(20, 30)
    assert (world.log.users.tolist(), world.log.items.tolist()) == (users, items)
    assert world.log.name_cell(0).startswith("row 0 (user 'user ")


def test_another_observation_model_takes_the_place_of_the_papers() -> None:
    model = ByCovariates.long_tail(20, 30, random_state=2)
    world = simulate(20, 30, observation=model, density=0.1, random_state=1)
    relative = np.outer(model.activity, model.popularity)

    assert world.observation.propensities(slice(0, 20)) == pytest.approx(
        0.1 * relative / relative.mean()
    )
    assert simulate(20, 30, alpha=0.5, random_state=1).observation.model == ByRating(0.5)


# Errors


@pytest.mark.parametrize("marginals", [(0.5, 0.4), (1.2, -0.2), (float("nan"), 0.5), ()])
def test_marginals_must_be_shares(marginals: tuple[float, ...]) -> None:
    with pytest.raises(
        UsageError, match="marginals must be shares that add up to 1; these add up to"
    ):
        simulate(4, 5, marginals=marginals)


@pytest.mark.parametrize("size", [(0, 5), (5, -1), (2.5, 4)])
def test_a_world_needs_users_and_items(size: tuple[int, int]) -> None:
    with pytest.raises(UniverseError, match=r"whole number of (users|items), at least 1; got"):
        simulate(*size)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"noise": -1.0}, r"noise must be a finite number, at least 0; got -1\.0"),
        ({"noise": float("nan")}, "noise must be a finite number"),
        ({"noise": "loud"}, "noise must be a finite number, at least 0; got 'loud'"),
        ({"n_factors": -1}, "n_factors must be a whole number, at least 0; got -1"),
        ({"n_factors": 1.5}, "n_factors must be a whole number"),
        ({"random_state": -1}, "random_state must be a whole number, at least 0; got -1"),
        ({"random_state": "x"}, "random_state must be a whole number"),
        ({"density": "5%"}, "density must be a finite number, above 0 and at most 1; got '5%'"),
        ({"marginals": "half"}, "marginals must be numbers; got text"),
        (
            {"marginals": 1.0},
            r"marginals must be a list with the share of each rating; got shape \(\)",
        ),
        ({"users": ["a"]}, r"users lists 1 ids, but n_users is 4\. Make the two numbers equal"),
        ({"items": range(9)}, "items lists 9 ids, but n_items is 5"),
        ({"observation": "uniform"}, "an observation model is an object such as .*; got 'uniform'"),
        ({"observation": ""}, "an observation model is an object such as .*; got ''"),
        (
            {"observation": Uniform},
            r"an observation model is an object such as Uniform\(\), .*; got <class",
        ),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(wrong: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        simulate(4, 5, **wrong)


def test_repr_shows_sizes_and_not_values() -> None:
    world = simulate(20, 30, density=0.1)

    model = "ByRating(alpha=0.25, full_from=4.0)"
    assert repr(world) == f"Simulation({len(world.log)} ratings of 20 users x 30 items; {model})"


def test_a_density_that_cannot_be_had_names_the_largest() -> None:
    with pytest.raises(
        UsageError,
        match=r"density of 0.5 would need a propensity of 3.4; the largest .* is 0.147. Lower",
    ):
        simulate(100, 200, density=0.5)
