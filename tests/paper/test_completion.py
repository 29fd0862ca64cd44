from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew import MatrixFactorization, Ratings, simulate
from unskew.data.factors import Factors
from unskew.datasets.movielens import load_movielens_100k
from unskew.errors import DatasetNotFoundError, UsageError
from unskew.paper.completion import (
    L2_PER_FACTOR,
    Completion,
    GroundTruth,
    accuracy,
    complete,
    find_ground_truth,
    predict_all_cells,
    rank_cells,
)
from unskew.simulation.simulator import MARLIN_ZEMEL, quantize

ONE_SETTING = {"n_factors": (2,), "l2_per_factor": (0.1,)}


@pytest.fixture(scope="module")
def tastes() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(50, 2)) @ rng.normal(size=(2, 70)) + 3.0


@pytest.fixture(scope="module")
def log(tastes: np.ndarray) -> Ratings:
    """Six cells in ten, rounded to ratings."""
    seen = np.random.default_rng(1).random(tastes.shape) < 0.6
    user, item = np.nonzero(seen)
    return Ratings.from_codes(user, item, np.clip(np.round(tastes[seen]), 1, 5), shape=tastes.shape)


@pytest.fixture(scope="module")
def completion(log: Ratings) -> Completion:
    return complete(log, random_state=0)


def test_the_truth_has_the_marginals_to_a_cell(completion: Completion) -> None:
    ends = np.round(np.cumsum(MARLIN_ZEMEL) * completion.ratings.size)

    assert (
        np.cumsum(np.bincount(completion.ratings.astype(int).ravel(), minlength=6)[1:]).tolist()
        == ends.tolist()
    )


def test_cells_keep_their_order_in_taste(completion: Completion, tastes: np.ndarray) -> None:
    """Most of a rank-2 matrix can be learned from its log: higher levels have higher tastes."""
    means = [tastes[completion.ratings == level].mean() for level in range(1, 6)]

    assert means == sorted(means)
    assert (
        np.corrcoef(completion.ratings.ravel(), quantize(rank_cells(tastes), MARLIN_ZEMEL).ravel())[
            0, 1
        ]
        > 0.9
    )


def test_the_setting_is_the_one_that_hits_most_held_out_ratings(log: Ratings) -> None:
    weak, strong = (complete(log, n_factors=(2,), l2_per_factor=(each,)) for each in (0.05, 50.0))
    both = complete(log, n_factors=(2,), l2_per_factor=(50.0, 0.05))

    assert weak.accuracy > strong.accuracy
    assert (both.n_factors, both.l2, both.accuracy) == (2, 0.1, weak.accuracy)
    assert both.ratings.tolist() == weak.ratings.tolist()


def test_the_chosen_setting_is_fitted_to_every_rating(log: Ratings) -> None:
    made = complete(log, **ONE_SETTING)
    fitted = MatrixFactorization(2, 0.2, offsets="free", tol=1e-6, random_state=0).fit(log)

    assert (
        made.ratings.tolist()
        == quantize(rank_cells(predict_all_cells(fitted)), MARLIN_ZEMEL).tolist()
    )


def test_the_same_seed_gives_the_same_truth(log: Ratings) -> None:
    one, again, other = (complete(log, random_state=seed, **ONE_SETTING) for seed in (1, 1, 2))

    assert one.ratings.tolist() == again.ratings.tolist()
    assert one.accuracy == again.accuracy != other.accuracy


def test_a_log_too_small_to_hold_out_a_tenth_is_refused(log: Ratings) -> None:
    with pytest.raises(
        UsageError, match=r"needs at least 10 ratings, because a tenth is held out; got 9\."
    ):
        complete(log.take(np.arange(9)))


# Its parts


def constant_model(log: Ratings, value: float) -> MatrixFactorization:
    """Predicts ``value`` for all cells, plus an item offset of 0, 1, 2, ..."""
    model = MatrixFactorization(1)
    offsets = np.arange(log.n_items, dtype=float)
    model._record_factors(
        log,
        Factors(
            np.zeros((log.n_users, 1)),
            np.zeros((log.n_items, 1)),
            np.zeros(log.n_users),
            offsets,
            value,
        ),
        0,
    )
    return model


def test_accuracy_rounds_and_clips() -> None:
    log = Ratings.from_codes([0, 0, 1, 1], [0, 1, 0, 6], [1, 2, 2, 5], shape=(2, 7))

    assert accuracy(constant_model(log, 0.7), log) == 0.75


def test_predictions_of_all_cells_are_those_of_predict() -> None:
    log = Ratings.from_codes([0, 1], [0, 2], [1, 5], shape=(2, 3))
    all_users, all_items = np.repeat(log.users, 3), np.tile(log.items, 2)
    model = constant_model(log, 1.5)

    assert (
        predict_all_cells(model).ravel().tolist()
        == model.predict(all_users, all_items).tolist()
        == [1.5, 2.5, 3.5] * 2
    )


def test_ranks_by_hand() -> None:
    assert rank_cells(np.array([[2.0, 1.0], [1.0, 0.0]])).tolist() == [[3, 1], [2, 0]]


@given(arrays(np.float64, (4, 5), elements=st.sampled_from([0.0, 1.0, 2.0])))
def test_ties_are_split_to_the_cell_in_the_order_of_the_matrix(values: np.ndarray) -> None:
    levels = quantize(rank_cells(values), (0.5, 0.25, 0.25)).ravel()
    in_order = sorted(range(values.size), key=lambda cell: (values.flat[cell], cell))

    assert levels[in_order].tolist() == [1] * 10 + [2] * 5 + [3] * 5


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
def test_movielens_is_completed_as_well_as_others_report() -> None:
    """Plain factorization has an accuracy of 0.44; both ends of the grid do worse."""
    made = complete(load_movielens_100k(os.environ["UNSKEW_DATA"]).ratings)

    assert made.accuracy == pytest.approx(0.444, abs=0.005)
    assert min(L2_PER_FACTOR) < made.l2 / made.n_factors < max(L2_PER_FACTOR)


# The complete ratings that logs are drawn from


@pytest.fixture
def without_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSKEW_DATA", raising=False)


@pytest.mark.usefixtures("without_data")
def test_without_data_the_truth_is_that_of_the_simulator() -> None:
    ground_truth = find_ground_truth(random_state=3)

    assert np.array_equal(ground_truth.ratings, simulate(random_state=3).truth)
    assert ground_truth.origin == "Truth: simulated, as large as MovieLens 100K."


def test_movielens_is_found_by_the_argument_or_by_the_variable(
    movielens_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = find_ground_truth(movielens_folder)
    monkeypatch.setenv("UNSKEW_DATA", str(movielens_folder))
    named = find_ground_truth()

    assert passed.ratings.shape == (40, 60)
    assert passed.origin.startswith("Truth: MovieLens 100K, completed by ")
    assert np.array_equal(passed.ratings, named.ratings)


def test_a_completion_is_made_once_and_cannot_be_changed(movielens_folder: Path) -> None:
    ground_truth = find_ground_truth(movielens_folder, random_state=5)

    assert find_ground_truth(movielens_folder, random_state=5) is ground_truth
    assert not ground_truth.ratings.flags.writeable


def test_a_variable_that_names_a_folder_without_the_data_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))

    assert find_ground_truth().origin.startswith("Truth: simulated")


def test_a_folder_that_lacks_the_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="MovieLens 100K was not found"):
        find_ground_truth(tmp_path)


@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_logs_show_five_percent_and_less_of_what_is_liked_less(alpha: float) -> None:
    ground_truth = GroundTruth(np.tile(np.arange(1.0, 6.0, dtype=np.float32), (4, 3)), "")
    propensities = ground_truth.observation(alpha).propensities(slice(0, 4))

    assert propensities.mean() == pytest.approx(0.05)
    assert propensities[0, :5] / propensities[0, 4] == pytest.approx(
        [alpha**3, alpha**2, alpha, 1, 1]
    )
