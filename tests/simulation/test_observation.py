from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.data.universe import Universe
from unskew.errors import BadRatingError, EmptyLogError, UsageError
from unskew.simulation import observation
from unskew.simulation.observation import (
    ByCovariates,
    ByRating,
    Observation,
    ObservationModel,
    Uniform,
)
from unskew.simulation.simulator import MARLIN_ZEMEL, quantize
from unskew.types import Matrix

SHAPE = (12, 10)
EVERY_ROW = slice(0, SHAPE[0])
TRUTH = np.array([[1 + (user * item) % 5 for item in range(SHAPE[1])] for user in range(SHAPE[0])])
MODELS: dict[str, ObservationModel] = {
    "uniform": Uniform(),
    "by rating": ByRating(0.3),
    "by covariates": ByCovariates.long_tail(*SHAPE, random_state=3),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
truths = arrays(np.float64, SHAPE, elements=st.integers(1, 5).map(float))
ALWAYS_POSSIBLE = 1 / 120
"""A density that every model can have, even if one of the 120 cells is far more likely."""


def all_propensities(truth: Matrix, model: ObservationModel, density: float) -> Matrix:
    return Observation.of(truth, model, density=density).propensities(slice(0, len(truth)))


# The scale


@each_model
@given(truth=truths, density=st.floats(0.0001, ALWAYS_POSSIBLE))
def test_the_expected_share_is_exactly_the_density(
    model: ObservationModel, truth: Matrix, density: float
) -> None:
    assert all_propensities(truth, model, density).mean() == pytest.approx(density, rel=1e-12)


def test_the_papers_numbers_follow_from_the_marginals() -> None:
    """k = .3398 at alpha = .25, and the propensity of each rating."""
    truth = quantize(np.random.default_rng(0).random((500, 400), dtype=np.float32), MARLIN_ZEMEL)
    seen = Observation.of(truth, ByRating(0.25), density=0.05)
    propensity = seen.propensities(slice(0, len(truth)))

    assert seen.scale == pytest.approx(0.3398, abs=5e-5)
    by_rating = [float(np.unique(propensity[truth == rating]).item()) for rating in (1, 2, 3, 4, 5)]
    assert by_rating == pytest.approx([0.00531, 0.0212, 0.0850, 0.3398, 0.3398], abs=5e-5)
    observed = [
        float(propensity[truth == rating].sum() / propensity.sum()) for rating in (1, 2, 3, 4, 5)
    ]
    assert observed == pytest.approx([0.056, 0.103, 0.245, 0.423, 0.173], abs=5e-4)


@given(truth=truths, alpha=st.floats(0.05, 1))
def test_each_star_below_four_costs_a_factor_alpha(truth: Matrix, alpha: float) -> None:
    propensity = all_propensities(truth, ByRating(alpha), ALWAYS_POSSIBLE)
    scale = ALWAYS_POSSIBLE / np.mean(alpha ** np.maximum(4 - truth, 0))

    assert propensity == pytest.approx(scale * alpha ** np.maximum(4 - truth, 0))


def test_alpha_1_is_uniform() -> None:
    assert all_propensities(TRUTH, ByRating(1.0), 0.2) == pytest.approx(
        all_propensities(TRUTH, Uniform(), 0.2)
    )
    assert all_propensities(TRUTH, Uniform(), 0.2) == pytest.approx(np.full(SHAPE, 0.2))


def test_a_truth_and_covariates_may_be_lists() -> None:
    truth: Any = [[1, 5], [5, 1]]

    assert all_propensities(truth, ByCovariates([1, 2], [1, 3]), 0.3) == pytest.approx(
        np.array([[0.1, 0.3], [0.2, 0.6]])
    )  # type: ignore[arg-type]


def test_covariates_multiply_whatever_the_rating() -> None:
    model = ByCovariates(np.array([1.0, 2.0] * 6), np.array([1.0, 10.0] * 5))
    propensity = all_propensities(TRUTH, model, 0.02)

    assert propensity[1, 1] / propensity[0, 0] == pytest.approx(20)
    assert propensity == pytest.approx(all_propensities(TRUTH[::-1], model, 0.02))


def test_a_long_tail_falls_as_a_power_in_random_order() -> None:
    model = ByCovariates.long_tail(4, 9, skew=0.5, random_state=0)

    assert np.sort(model.activity)[::-1] == pytest.approx([1, 2**-0.5, 3**-0.5, 1 / 2])
    assert model.popularity.max() / model.popularity.min() == pytest.approx(3)
    assert model.popularity.tolist() != sorted(model.popularity, reverse=True)


@pytest.mark.parametrize(
    "model", [ByRating(0.3), ByCovariates.long_tail(*SHAPE)], ids=["by rating", "by covariates"]
)
def test_the_error_names_the_largest_density_and_it_is_accepted(model: ObservationModel) -> None:
    relative = model.relative_propensities(TRUTH, EVERY_ROW)
    largest = float(relative.mean() / relative.max())

    assert all_propensities(TRUTH, model, largest).max() == pytest.approx(1.0)
    problem = (
        f"a density of 1 would need a propensity of {1 / largest:.3g}; the largest density that "
        f"this observation model can have is {largest:.3g}."
    )
    with pytest.raises(
        UsageError, match=f"{re.escape(problem)} Lower density, or use a larger alpha"
    ):
        Observation.of(TRUTH, model, density=1.0)


@given(truth=truths, alpha=st.floats(0.05, 1))
def test_at_the_largest_density_no_propensity_exceeds_1(truth: Matrix, alpha: float) -> None:
    relative = ByRating(alpha).relative_propensities(truth, EVERY_ROW)
    largest = min(1.0, float(relative.mean() / relative.max()))
    log, propensities = Observation.of(truth, ByRating(alpha), density=largest).draw(
        np.random.default_rng(0)
    )

    assert propensities.values.max() <= 1
    assert len(log) >= (relative == relative.max()).sum()


def test_all_cells_can_be_observed() -> None:
    log, propensities = Observation.of(TRUTH, Uniform(), density=1.0).draw(np.random.default_rng(0))

    assert len(log) == TRUTH.size
    assert set(propensities.values) == {1.0}


# Draws


@each_model
def test_cells_are_seen_as_often_as_their_propensities_say(model: ObservationModel) -> None:
    """1,000 draws, each of 120 cells within 5 standard deviations; one seed in 15,000 fails."""
    seen = Observation.of(TRUTH, model, density=0.15)
    rng, n_draws = np.random.default_rng(11), 1000
    counts = np.zeros(SHAPE)
    for _ in range(n_draws):
        log, _ = seen.draw(rng)
        counts[log.user, log.item] += 1

    propensity = seen.propensities(EVERY_ROW)
    assert (
        np.abs(counts - n_draws * propensity)
        <= 5 * np.sqrt(n_draws * propensity * (1 - propensity))
    ).all()


@each_model
def test_a_draw_shows_true_ratings_with_their_true_propensities(model: ObservationModel) -> None:
    seen = Observation.of(TRUTH, model, density=0.15)
    log, propensities = seen.draw(np.random.default_rng(0))

    assert log.rating.tolist() == TRUTH[log.user, log.item].tolist()
    assert propensities.values.tolist() == seen.propensities(EVERY_ROW)[log.user, log.item].tolist()


def test_a_draw_knows_its_universe_and_its_ids() -> None:
    users, items = np.array([f"u{code}" for code in range(12)]), np.arange(10, 110, 10)
    log, _ = Observation.of(TRUTH, Uniform(), density=0.3, users=users, items=items).draw(
        np.random.default_rng(0)
    )

    assert log.universe == Universe(12, 10)
    assert (log.users.tolist(), log.items.tolist()) == (users.tolist(), items.tolist())


@each_model
def test_the_size_of_the_blocks_changes_nothing(
    model: ObservationModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def draw() -> tuple[list[int], list[int], list[float]]:
        log, propensities = Observation.of(TRUTH, model, density=0.15).draw(
            np.random.default_rng(5)
        )
        return log.user.tolist(), log.item.tolist(), propensities.values.round(12).tolist()

    at_once = draw()
    monkeypatch.setattr(observation, "BLOCK_CELLS", 2 * SHAPE[1] + 1)

    assert draw() == at_once


# Errors


@pytest.mark.parametrize("density", [0.0, -0.1, 1.1, float("nan"), "5%", None])
def test_a_density_outside_0_to_1_is_refused(density: Any) -> None:
    with pytest.raises(
        UsageError, match="density must be a finite number, above 0 and at most 1; got"
    ):
        Observation.of(TRUTH, Uniform(), density=density)


@pytest.mark.parametrize("alpha", [0.0, -1.0, 1.5, float("nan"), "x"])
def test_an_alpha_outside_0_to_1_is_refused(alpha: Any) -> None:
    with pytest.raises(
        UsageError, match="alpha must be a finite number, above 0 and at most 1; got"
    ):
        ByRating(alpha)
    with pytest.raises(UsageError, match="full_from must be a finite number; got 'x'"):
        ByRating(full_from="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_covariates_must_be_positive_and_finite(bad: float) -> None:
    with pytest.raises(
        UsageError,
        match=r"popularity must be positive and finite for every item; got .* for item 1",
    ):
        ByCovariates(np.ones(2), np.array([1.0, bad]))


def test_covariates_must_fit_the_matrix() -> None:
    for n_users, n_items in ((12, 4), (20, 10), (5, 10)):
        problem = (
            f"the observation model is for {n_users} users x {n_items} items, "
            "but the rating matrix has 12 users x 10 items"
        )
        with pytest.raises(UsageError, match=problem):
            Observation.of(TRUTH, ByCovariates(np.ones(n_users), np.ones(n_items)), density=0.1)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (5.0, r"activity must be a list with one number for each user; got shape \(\)"),
        ([], r"activity must be a list with one number for each user; got shape \(0,\)"),
        ([[1.0]], r"activity must be a list with one number for each user; got shape \(1, 1\)"),
        (["a", "b"], "activity must be numbers; got text"),
        ([[1], [1, 2]], "activity must be numbers: "),
    ],
    ids=["scalar", "empty", "2-d", "text", "ragged"],
)
def test_covariates_must_be_lists_of_numbers(bad: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ByCovariates(bad, np.ones(2))


@dataclass
class Answers:
    """An observation model that a user wrote."""

    answer: Any

    def relative_propensities(self, rating: Any, users: slice, /) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            np.ones(10),
            r"\.relative_propensities returned shape \(10,\) for ratings of shape \(12, 10\)",
        ),
        (
            np.where(TRUTH == 3, 0.0, 1.0),
            r"must be positive and finite .* it is 0\.0 at row 1, column 2, where the rating is 3",
        ),
        (
            np.where(TRUTH == 1, np.nan, 1.0),
            r"must be positive and finite .* it is nan at row 0, column 0",
        ),
        (np.full(SHAPE, np.inf), r"must be positive and finite .* it is inf at row 0, column 0"),
        (
            np.full(SHAPE, "a"),
            r"values of Answers\.relative_propensities must be numbers; got text",
        ),
    ],
    ids=["shape", "zero", "nan", "inf", "text"],
)
def test_a_models_relative_propensities_are_checked(answer: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Observation.of(TRUTH, Answers(answer), density=0.1)


@pytest.mark.parametrize("model", ["uniform", Uniform, None], ids=["text", "class", "None"])
def test_an_object_that_is_not_an_observation_model_is_refused(model: Any) -> None:
    with pytest.raises(
        UsageError, match=r"an observation model is an object such as Uniform\(\), .*; got"
    ):
        Observation.of(TRUTH, model, density=0.1)


def test_a_truth_must_have_rows_of_one_length() -> None:
    with pytest.raises(
        UsageError, match="users x items matrix of ratings; its rows differ in length"
    ):
        Observation.of([[1, 2], [3]], Uniform(), density=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [np.nan, np.inf])
def test_a_truth_must_have_a_rating_in_every_cell(missing: float) -> None:
    truth = np.ones((3, 4))
    truth[1, 2] = missing

    match = rf"truth must have a finite rating in every cell; got {missing} at row 1, column 2\."
    with pytest.raises(UsageError, match=match):
        Observation.of(truth, Uniform(), density=0.1)


@pytest.mark.parametrize(
    "truth", [[1.0, 2.0], [["a"]], np.ones((0, 3))], ids=["1-d", "text", "empty"]
)
def test_a_truth_must_be_a_matrix_of_ratings(truth: Any) -> None:
    with pytest.raises(UsageError, match="truth must be a users x items matrix of ratings; got"):
        Observation.of(truth, Uniform(), density=0.1)


@pytest.mark.parametrize(
    "wrong", [{"skew": np.nan}, {"skew": "much"}, {"random_state": -1}], ids=str
)
def test_a_long_tail_needs_numbers(wrong: Any) -> None:
    with pytest.raises(
        UsageError,
        match=r"(skew must be a finite number|random_state must be a whole number, at least 0)",
    ):
        ByCovariates.long_tail(3, 4, **wrong)


def test_reprs_show_sizes_and_not_values() -> None:
    model = ByCovariates(np.ones(12), np.ones(10))

    assert repr(model) == "ByCovariates(12 users x 10 items)"
    assert (
        repr(Observation.of(TRUTH, Uniform(), density=0.25))
        == "Observation(12 users x 10 items; Uniform(); scale 0.25)"
    )


def test_ids_must_fit_the_matrix() -> None:
    seen = Observation.of(TRUTH, Uniform(), density=0.5, users=np.array(["a", "b"]))
    with pytest.raises(BadRatingError, match=r"the matrix has 12 users, but users=\.\.\. lists 2"):
        seen.draw(np.random.default_rng(0))


def test_a_draw_without_a_cell_is_an_empty_log() -> None:
    with pytest.raises(EmptyLogError, match="the log has no ratings"):
        Observation.of(TRUTH, Uniform(), density=1e-9).draw(np.random.default_rng(0))
