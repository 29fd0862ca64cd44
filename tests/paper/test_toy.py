from __future__ import annotations

import json

import numpy as np
import pytest

from unskew.metrics.metric import find_metric
from unskew.paper.draws import all_deltas
from unskew.paper.reproduction import Reproduction
from unskew.paper.toy import MovieLovers, make_movie_lovers, reproduce_toy
from unskew.theory import ips_bias
from unskew.types import Matrix, Vector

TRIALS = 400


@pytest.fixture(scope="module")
def world() -> MovieLovers:
    return make_movie_lovers()


@pytest.fixture(scope="module")
def result() -> Reproduction:
    return reproduce_toy(trials=TRIALS, random_state=1)


@pytest.fixture(scope="module")
def deltas(world: MovieLovers) -> Matrix:
    """MAE of Y1, MAE of Y2, CG of Y3, of every cell."""
    errors = all_deltas(world.truth, {"Y1": world.y1, "Y2": world.y2}, [find_metric("mae")])
    gains = all_deltas(world.truth, {"Y3": world.y3}, [find_metric(f"cg@{world.n_recommended}")])
    return np.vstack([errors, gains])


def all_propensities(world: MovieLovers) -> Vector:
    return world.observation.propensities(slice(0, 20)).ravel()


def test_a_third_of_the_cells_each_is_liked_neutral_and_disliked(world: MovieLovers) -> None:
    assert {rating: int((world.truth == rating).sum()) for rating in (1, 3, 5)} == {
        1: 200,
        3: 200,
        5: 200,
    }
    by_rating = [
        np.unique(world.propensities[world.truth == rating]).tolist() for rating in (5, 3, 1)
    ]
    assert [each for (each,) in by_rating] == pytest.approx([0.5, 0.25, 0.05])
    assert all_propensities(world) == pytest.approx(world.propensities.ravel())


def test_lovers_love_their_genre_and_dislike_the_other(world: MovieLovers) -> None:
    assert (world.truth[np.ix_(world.likes == "horror", world.genre == "horror")] == 5).all()
    assert (world.truth[np.ix_(world.likes == "horror", world.genre == "romance")] == 1).all()
    assert (world.truth[:, world.genre == "drama"] == 3).all()


def test_the_true_errors_and_gain(deltas: Matrix) -> None:
    """Y1 is one star off on a third of the cells, Y2 four stars.

    Y3 shows as many fives and ones as threes.
    """
    assert deltas.mean(axis=1) == pytest.approx([1 / 3, 4 / 3, 3.0])


def test_the_expected_naive_errors_are_in_the_wrong_order(
    world: MovieLovers, deltas: Matrix
) -> None:
    """1/1.6 and 0.4/1.6, since the log holds fives, threes and ones as 10 : 5 : 1."""
    naive = deltas @ all_propensities(world) / all_propensities(world).sum()

    assert naive[:2] == pytest.approx([0.625, 0.25])


def test_ips_has_no_bias(world: MovieLovers, deltas: Matrix) -> None:
    for delta in deltas:
        assert ips_bias(
            delta, true=all_propensities(world), assumed=all_propensities(world)
        ) == pytest.approx(0.0, abs=1e-12)


def test_the_run_agrees_with_the_expectations(result: Reproduction, deltas: Matrix) -> None:
    """Means of 400 draws within four standard errors of the mean, for a fixed seed."""
    expected = {"naive": [0.625, 0.25], "ips": [1 / 3, 4 / 3, 3.0], "snips": [1 / 3, 4 / 3, 3.0]}
    for name, values in expected.items():
        for row, value in zip(result.rows, values, strict=False):
            assert row[name]["mean"] == pytest.approx(value, abs=4 * row[name]["std"] / TRIALS**0.5)


def test_naive_prefers_y2_and_the_others_y1(result: Reproduction) -> None:
    y1, y2, y3 = result.rows

    assert [(row["prediction"], row["metric"]) for row in result.rows] == [
        ("Y1", "mae"),
        ("Y2", "mae"),
        ("Y3", "cg@10"),
    ]
    assert y2["naive"]["mean"] < y1["naive"]["mean"]
    assert y1["ips"]["mean"] < y2["ips"]["mean"]
    assert y1["snips"]["mean"] < y2["snips"]["mean"]
    assert y3["naive"]["mean"] > y3["true"] + 0.5


def test_the_setting_shows_every_matrix(result: Reproduction) -> None:
    assert [title.split(":")[0] for title in result.input_matrices] == [
        "Y",
        "P",
        "O",
        "Y1",
        "Y2",
        "Y3",
    ]
    assert all(matrix.shape == (20, 30) for matrix in result.input_matrices.values())
    assert {"Y", "P", "O", "Y1", "Y2", "Y3"} <= result.input_table.keys()


def test_the_same_seed_gives_the_same_rows() -> None:
    one, again, other = (reproduce_toy(trials=3, random_state=seed).to_json() for seed in (5, 5, 6))

    assert one == again
    assert json.loads(one)["rows"] != json.loads(other)["rows"]
