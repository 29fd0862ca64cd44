from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unskew import simulate
from unskew.errors import DatasetNotFoundError
from unskew.paper.world import World, find_world


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSKEW_DATA", raising=False)


def test_without_data_the_truth_is_that_of_the_simulator() -> None:
    world = find_world(seed=3)

    assert np.array_equal(world.truth, simulate(random_state=3).truth)
    assert world.origin == "Truth: simulated, as large as MovieLens 100K."


def test_movielens_takes_its_place_where_it_is_given_or_named_by_the_variable(
    movielens_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = find_world(movielens_folder)
    monkeypatch.setenv("UNSKEW_DATA", str(movielens_folder))
    named = find_world()

    assert given.truth.shape == (40, 60)
    assert given.origin.startswith("Truth: MovieLens 100K, completed by ")
    assert np.array_equal(given.truth, named.truth)


def test_a_completion_is_made_once_and_cannot_be_spoiled(movielens_folder: Path) -> None:
    world = find_world(movielens_folder, seed=5)

    assert find_world(movielens_folder, seed=5) is world
    assert not world.truth.flags.writeable


def test_a_variable_that_leads_nowhere_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))

    assert find_world().origin.startswith("Truth: simulated")


def test_a_folder_that_lacks_the_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="MovieLens 100K was not found"):
        find_world(tmp_path)


@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_logs_show_five_percent_and_less_of_what_is_liked_less(alpha: float) -> None:
    world = World(np.tile(np.arange(1.0, 6.0, dtype=np.float32), (4, 3)), "")
    chance = world.observation(alpha).propensities(slice(0, 4))

    assert chance.mean() == pytest.approx(0.05)
    assert chance[0, :5] / chance[0, 4] == pytest.approx([alpha**3, alpha**2, alpha, 1, 1])
