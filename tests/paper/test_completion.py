from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew import MatrixFactorization, Ratings
from unskew.datasets.movielens import load_movielens_100k
from unskew.errors import UsageError
from unskew.factorization.parameters import Parameters
from unskew.paper.completion import (
    L2_PER_FACTOR,
    Completion,
    accuracy,
    all_predictions,
    complete,
    ranks,
)
from unskew.simulation.simulate import MARLIN_ZEMEL, quantize

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
    return complete(log, seed=0)


def test_the_truth_has_the_marginals_to_a_cell(completion: Completion) -> None:
    ends = np.round(np.cumsum(MARLIN_ZEMEL) * completion.truth.size)

    assert (
        np.cumsum(np.bincount(completion.truth.astype(int).ravel(), minlength=6)[1:]).tolist()
        == ends.tolist()
    )


def test_cells_keep_their_order_in_taste(completion: Completion, tastes: np.ndarray) -> None:
    """A log of a rank-2 world shows most of it: whoever is in the top level tastes best, and so on down."""
    means = [tastes[completion.truth == level].mean() for level in range(1, 6)]

    assert means == sorted(means)
    assert (
        np.corrcoef(completion.truth.ravel(), quantize(ranks(tastes), MARLIN_ZEMEL).ravel())[0, 1]
        > 0.9
    )


def test_the_setting_is_the_one_that_hits_most_held_out_ratings(log: Ratings) -> None:
    weak, strong = (complete(log, n_factors=(2,), l2_per_factor=(each,)) for each in (0.05, 50.0))
    both = complete(log, n_factors=(2,), l2_per_factor=(50.0, 0.05))

    assert weak.accuracy > strong.accuracy
    assert (both.n_factors, both.l2, both.accuracy) == (2, 0.1, weak.accuracy)
    assert both.truth.tolist() == weak.truth.tolist()


def test_the_chosen_setting_is_fitted_to_every_rating(log: Ratings) -> None:
    made = complete(log, **ONE_SETTING)
    fitted = MatrixFactorization(2, 0.2, offsets="free", tol=1e-6, random_state=0).fit(log)

    assert made.truth.tolist() == quantize(ranks(all_predictions(fitted)), MARLIN_ZEMEL).tolist()


def test_the_same_seed_gives_the_same_truth(log: Ratings) -> None:
    one, again, other = (complete(log, seed=seed, **ONE_SETTING) for seed in (1, 1, 2))

    assert one.truth.tolist() == again.truth.tolist()
    assert one.accuracy == again.accuracy != other.accuracy


def test_a_log_too_small_to_hold_out_a_tenth_is_refused(log: Ratings) -> None:
    with pytest.raises(
        UsageError, match=r"a tenth of it held out, so at least 10 ratings; got 9\."
    ):
        complete(log.take(np.arange(9)))


# Its parts


def constant_model(log: Ratings, value: float) -> MatrixFactorization:
    """Predicts ``value`` everywhere, with an item offset of 0, 1, 2, ..."""
    model = MatrixFactorization(1)
    offsets = np.arange(log.n_items, dtype=float)
    model._remember(
        log,
        Parameters(
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
    everyone, everything = np.repeat(log.users, 3), np.tile(log.items, 2)
    model = constant_model(log, 1.5)

    assert (
        all_predictions(model).ravel().tolist()
        == model.predict(everyone, everything).tolist()
        == [1.5, 2.5, 3.5] * 2
    )


def test_ranks_by_hand() -> None:
    assert ranks(np.array([[2.0, 1.0], [1.0, 0.0]])).tolist() == [[3, 1], [2, 0]]


@given(arrays(np.float64, (4, 5), elements=st.sampled_from([0.0, 1.0, 2.0])))
def test_ties_are_split_to_the_cell_in_the_order_of_the_matrix(values: np.ndarray) -> None:
    found = quantize(ranks(values), (0.5, 0.25, 0.25)).ravel()
    in_order = sorted(range(values.size), key=lambda cell: (values.flat[cell], cell))

    assert found[in_order].tolist() == [1] * 10 + [2] * 5 + [3] * 5


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
def test_movielens_is_completed_as_well_as_others_report() -> None:
    """An accuracy of 0.44 is what plain factorisation gets; both ends of the grid of penalties do worse."""
    made = complete(load_movielens_100k(os.environ["UNSKEW_DATA"]).ratings)

    assert made.accuracy == pytest.approx(0.444, abs=0.005)
    assert min(L2_PER_FACTOR) < made.l2 / made.n_factors < max(L2_PER_FACTOR)
