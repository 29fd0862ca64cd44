"""Data for the leaderboard: Coat, a completed MovieLens 100K, and simulated worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.datasets.coat import load_coat
from unskew.datasets.location import PathLike
from unskew.datasets.reading import find_overlap
from unskew.model_selection.protocols import LeaderboardData, RandomTestData
from unskew.paper import WORLDS
from unskew.paper.completion import MOVIELENS_ALPHA, find_ground_truth
from unskew.paper.table2 import PAPER
from unskew.simulation.observation import ByRating, Observation
from unskew.simulation.simulator import simulate

PART_OF_MOVIELENS, PART_DENSITY = (300, 500), 0.1
"""Users and items of the part that every seed draws, and the share of its cells in the log: with
50 ratings a user, half as many as in MovieLens 100K, and fast enough for every learner."""
SIMULATED, SIMULATED_DENSITY = (300, 200), 0.1
TEST_SHARE = 0.1
"""The share of all cells that are drawn for the test, and leave the log."""
THE_PAPER = "Schnabel et al. 2016, Table 2: protocol 'paper'; HL as they fitted it"
SECOND_HAND = (
    "Wang et al. 2019 (DR-JL), quoted second-hand: a protocol like 'leaky', settings chosen on the "
    "test"
)


def _list_published() -> list[Mapping[str, Any]]:
    """Numbers of the literature on Coat's test, each with its protocol."""
    rows: list[Mapping[str, Any]] = [
        {"learner": model, "metric": metric, "value": value, "source": THE_PAPER}
        for (data, model, metric), value in PAPER.items()
        if data == "coat"
    ]
    second_hand = {"mse": 0.990, "mae": 0.778}
    return rows + [
        {"learner": "MF-DR-JL", "metric": metric, "value": value, "source": SECOND_HAND}
        for metric, value in second_hand.items()
    ]


@WORLDS.declare(
    "coat",
    label="Coat",
    summary="6,960 chosen ratings of coats, published propensities, 4,640 random ratings.",
    traits={"needs_data": True, "order": 1},
)
def open_coat(*, data: PathLike = None) -> LeaderboardData:
    """Coat Shopping: the same log and test for every seed."""
    coat = load_coat(data)
    tested = RandomTestData(coat.train, coat.test, coat.propensities, coat.propensity_matrix)
    return LeaderboardData(
        "Coat",
        lambda _seed: tested,
        description="6,960 ratings that people chose to give, the authors' propensities, and "
        f"4,640 ratings of random coats, of which {int(coat.overlap.sum())} cells are also in the "
        "log.",
        published=_list_published(),
    )


@WORLDS.declare(
    "movielens",
    label="Completed MovieLens",
    summary="Parts of a completed MovieLens 100K, selected by rating, propensities known.",
    traits={"needs_data": False, "order": 2},
)
def open_movielens(*, data: PathLike = None) -> LeaderboardData:
    """A random part of the completed matrix for every seed, with the selection of Table 1.

    Without the files of MovieLens 100K the complete matrix is simulated.
    """
    world = find_ground_truth(data)

    def draw(seed: int) -> RandomTestData:
        rng = np.random.default_rng((seed, 11))
        n_users, n_items = PART_OF_MOVIELENS
        users = np.sort(rng.choice(world.ratings.shape[0], n_users, replace=False))
        items = np.sort(rng.choice(world.ratings.shape[1], n_items, replace=False))
        truth = world.ratings[np.ix_(users, items)]
        return draw_data(truth, MOVIELENS_ALPHA, PART_DENSITY, rng)

    description = (
        f"For every seed {PART_OF_MOVIELENS[0]} users and {PART_OF_MOVIELENS[1]} items, of whose "
        f"cells {PART_DENSITY:.0%} are observed, each star below 4 at {MOVIELENS_ALPHA:g} times "
        f"the odds. {world.origin}"
    )
    return LeaderboardData("completed MovieLens", draw, is_redrawn=True, description=description)


def _open_simulation(name: str, alpha: float) -> LeaderboardData:
    n_users, n_items = SIMULATED

    def draw(seed: int) -> RandomTestData:
        truth = simulate(n_users, n_items, noise=1.0, random_state=seed).truth
        return draw_data(truth, alpha, SIMULATED_DENSITY, np.random.default_rng((seed, 12)))

    description = (
        f"For every seed a new truth of {n_users} users and {n_items} items (five factors and "
        f"noise), of whose cells {SIMULATED_DENSITY:.0%} are observed, each star below 4 with "
        f"{alpha:g} times the propensity."
    )
    return LeaderboardData(name, draw, is_redrawn=True, description=description)


@WORLDS.declare(
    "simulation",
    label="Simulation, strong selection",
    summary="Simulated ratings with noise; few low ratings are observed.",
    traits={"needs_data": False, "order": 3},
)
def open_simulation(*, data: PathLike = None) -> LeaderboardData:  # noqa: ARG001
    """A new truth and log for every seed, with alpha = 0.25."""
    return _open_simulation("simulation, strong selection", 0.25)


@WORLDS.declare(
    "simulation-weak",
    label="Simulation, weak selection",
    summary="Simulated ratings with noise; low ratings are observed almost as often.",
    traits={"needs_data": False, "order": 4},
)
def open_weak_simulation(*, data: PathLike = None) -> LeaderboardData:  # noqa: ARG001
    """A new truth and log for every seed, with alpha = 0.7."""
    return _open_simulation("simulation, weak selection", 0.7)


def draw_data(
    truth: npt.NDArray[np.floating], alpha: float, density: float, rng: np.random.Generator
) -> RandomTestData:
    """A log of a complete matrix selected by rating, its true propensities, and random cells.

    The test is drawn first and its cells leave the log, so it is uniform over all cells and clean.
    A cell is in the log if it is observed and not drawn: with ``1 - TEST_SHARE`` times P.
    """
    observation = Observation.of(truth, ByRating(alpha), density=density)
    log, propensities = observation.draw(rng)
    cells = np.sort(rng.choice(truth.size, round(TEST_SHARE * truth.size), replace=False))
    user, item = np.divmod(cells, truth.shape[1])
    test = Ratings.from_codes(user, item, truth.ravel()[cells], shape=truth.shape)
    is_kept = ~find_overlap(log, test)
    kept = propensities.values[is_kept] * (1 - TEST_SHARE)
    matrix = observation.propensities(slice(0, len(truth))) * (1 - TEST_SHARE)
    return RandomTestData(log.take(is_kept), test, Propensities(kept), matrix)
