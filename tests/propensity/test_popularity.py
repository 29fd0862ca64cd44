from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq

import unskew
from known_propensity import every_cell
from unskew.data.ratings import Ratings
from unskew.errors import (
    BadPropensityError,
    BadRatingError,
    PropensityWarning,
    UniverseError,
    UnknownIdError,
    UnknownNameError,
    UsageError,
)
from unskew.propensity.popularity import PopularityPropensity, UniformPropensity
from unskew.propensity.wrapper import CappedSum, scale_to_total
from unskew.simulation.observation import ByCovariates
from unskew.types import Matrix, Vector

LOG = Ratings.from_arrays(
    ["ann", "ann", "bob", "cat"],
    ["up", "heat", "up", "up"],
    [5, 1, 3, 2],
    items=["heat", "jaws", "up"],
    universe="log",
)
masks = arrays(np.bool_, (5, 4)).filter(lambda seen: seen.any())
powers = st.floats(0.1, 4)
smoothings = st.just(0.0) | st.floats(0.01, 10)


def slow_twin(
    seen: np.ndarray, shape: tuple[int, int], by: str, power: float, smoothing: float
) -> Matrix:
    """min(1, k score) on a dense matrix of the whole universe, k by a root finder."""
    whole = np.zeros(shape)
    whole[: seen.shape[0], : seen.shape[1]] = seen
    score = np.ones(shape)
    if by != "item":
        score = score * (whole.sum(axis=1, keepdims=True) + smoothing) ** power
    if by != "user":
        score = score * (whole.sum(axis=0, keepdims=True) + smoothing) ** power
    n = seen.sum()
    if (score > 0).sum() <= n:
        return (score > 0).astype(float)
    score = score / score.max()
    largest = 1 / score[score > 0].min()
    scale = brentq(
        lambda k: np.minimum(1, k * score).sum() - n,
        0,
        largest,
        xtol=1e-14,
        rtol=1e-14,
        maxiter=1000,
    )
    return np.minimum(1, scale * score)[: seen.shape[0], : seen.shape[1]]


def test_uniform_by_hand() -> None:
    assert UniformPropensity().fit(LOG).predict(LOG).values.tolist() == [4 / 9] * 4
    assert (
        UniformPropensity().fit(LOG, universe=(4, 5)).predict(LOG).values.tolist() == [4 / 20] * 4
    )


def test_items_by_hand() -> None:
    model = PopularityPropensity().fit(LOG)

    np.testing.assert_allclose(every_cell(model), [[1 / 3, 0, 3 / 3]] * 3)
    np.testing.assert_allclose(model.predict(LOG).values, [1, 1 / 3, 1, 1])


def test_users_by_hand() -> None:
    np.testing.assert_allclose(
        every_cell(PopularityPropensity("user").fit(LOG)), [[2 / 3] * 3, [1 / 3] * 3, [1 / 3] * 3]
    )


def test_both_by_hand() -> None:
    """n_u n_i / n is 1.5 for (ann, up), so it is limited to 1 and 1 + k (2 + 3 + 3 + 1 + 1) = 4."""
    model = PopularityPropensity("both").fit(LOG)

    np.testing.assert_allclose(every_cell(model), [[0.6, 0, 1], [0.3, 0, 0.9], [0.3, 0, 0.9]])
    assert model.n_capped_ == 1


def test_power_and_smoothing_by_hand() -> None:
    """Scores sqrt(1 + 1), sqrt(0 + 1) and sqrt(3 + 1) of the items, three users each."""
    score = np.sqrt([2, 1, 4])

    model = PopularityPropensity(power=0.5, smoothing=1).fit(LOG)

    np.testing.assert_allclose(every_cell(model), [4 / 3 * score / score.sum()] * 3)


def test_unlisted_users_and_items_have_a_share_of_the_sum_if_counts_are_smoothed() -> None:
    """Two more items of count 0: 1 + 1, 0 + 1, 3 + 1 and twice 0 + 1, for six users."""
    smoothed = PopularityPropensity(smoothing=1).fit(LOG, universe=(6, 5))
    plain = PopularityPropensity().fit(LOG, universe=(6, 5))

    np.testing.assert_allclose(every_cell(smoothed)[0], 4 / 6 * np.array([2, 1, 4]) / 9)
    np.testing.assert_allclose(every_cell(plain)[0], np.array([1, 0, 3]) / 6)


@pytest.mark.parametrize("by", ["item", "user", "both"])
@given(
    seen=masks,
    power=powers,
    smoothing=smoothings,
    more=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_it_is_the_dense_solution(
    by: str, seen: np.ndarray, power: float, smoothing: float, more: tuple[int, int]
) -> None:
    log = Ratings.from_dense(seen.astype(float))
    shape = (seen.shape[0] + more[0], seen.shape[1] + more[1])

    model = PopularityPropensity(by, power=power, smoothing=smoothing).fit(log, universe=shape)  # type: ignore[arg-type]

    dense = slow_twin(seen, shape, by, power, smoothing)[: seen.shape[0], : seen.shape[1]]
    np.testing.assert_allclose(every_cell(model), dense, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("by", ["item", "user", "both"])
@given(seen=masks, power=powers, smoothing=smoothings)
def test_propensities_of_all_cells_add_up_to_the_ratings(
    by: Any, seen: np.ndarray, power: float, smoothing: float
) -> None:
    log = Ratings.from_dense(seen.astype(float))

    values = every_cell(PopularityPropensity(by, power=power, smoothing=smoothing).fit(log))

    assert values.sum() == pytest.approx(len(log))
    assert values.max() <= 1


@given(score=arrays(np.float64, 8, elements=st.floats(0.01, 100)), share=st.floats(0.01, 1))
def test_the_scale_is_the_root(score: Vector, share: float) -> None:
    total = share * score.size

    def split_at_cap(scale: float) -> CappedSum:
        below = scale * score < 1
        return CappedSum(float((~below).sum()), float(score[below].sum()))

    scale, n_capped = scale_to_total(total, split_at_cap)

    assert np.minimum(1, scale * score).sum() == pytest.approx(total)
    assert n_capped <= (scale * score >= 1 - 1e-9).sum()


def test_a_total_that_cannot_be_had_is_refused() -> None:
    with pytest.raises(
        BadPropensityError,
        match="cannot add up to 3 ratings: only 2 cells have a propensity above 0",
    ):
        scale_to_total(3, lambda k: CappedSum(0, 2) if k < 1 else CappedSum(2, 0))


def mean_error(by: Any, observation: ByCovariates, density: float) -> float:
    """Mean of abs(P-hat / P - 1) over the ratings of a log."""
    size = observation.universe
    world = unskew.simulate(size.n_users, size.n_items, density=density, observation=observation)
    fitted = PopularityPropensity(by).fit(world.log).predict(world.log).values
    return float(np.abs(fitted / world.propensities.values - 1).mean())


def test_it_recovers_popularity_the_better_the_more_users_there_are() -> None:
    popularity = np.linspace(1, 5, 60)

    errors = [mean_error("item", ByCovariates(np.ones(n), popularity), 0.1) for n in (100, 1600)]

    assert errors[1] < 0.3 * errors[0]
    assert errors[1] < 0.08


def test_it_recovers_activity_times_popularity_the_better_the_larger_the_matrix_is() -> None:
    errors = [mean_error("both", ByCovariates.long_tail(n, n, skew=0.2), 0.08) for n in (100, 1600)]

    assert errors[1] < 0.35 * errors[0]
    assert errors[1] < 0.1


def test_a_model_comes_back_from_its_file(tmp_path: Path) -> None:
    model = PopularityPropensity("both", power=0.5, smoothing=2).fit(LOG, universe=(9, 9))
    model.save(tmp_path / "model.unskew")

    again = unskew.load(tmp_path / "model.unskew")

    assert repr(again) == "PopularityPropensity(by='both', power=0.5, smoothing=2)"
    assert (every_cell(again) == every_cell(model)).all()


def test_a_file_whose_parts_do_not_belong_together_is_refused() -> None:
    model = PopularityPropensity().fit(LOG)
    model.item_score_ = np.ones(7)

    assert (
        model._find_inconsistency()
        == "item_score has shape (7,), but the rest of the model needs (3,)."
    )


@pytest.mark.parametrize(
    ("model", "error", "match"),
    [
        (
            PopularityPropensity("genre"),
            UnknownNameError,
            "unknown value 'genre' of by; valid values are: item, user, both",
        ),  # type: ignore[arg-type]
        (
            PopularityPropensity(power=0),
            UsageError,
            "power must be a finite number, above 0; got 0",
        ),
        (
            PopularityPropensity(smoothing=-1),
            UsageError,
            "smoothing must be a finite number, at least 0; got -1",
        ),
    ],
)
def test_settings_are_checked(model: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        model.fit(LOG)


def test_the_universe_is_never_guessed() -> None:
    with pytest.raises(UniverseError, match="propensities are shares of all cells"):
        PopularityPropensity().fit(Ratings.from_arrays([0], [0], [1]))


def test_a_rating_of_an_item_that_had_none_is_refused() -> None:
    model = PopularityPropensity().fit(LOG)
    later = Ratings.from_arrays(["bob"], ["jaws"], [4])

    with pytest.raises(
        BadPropensityError, match=r"the first is 0.0 at row 0 \(user 'bob', item 'jaws'\)"
    ):
        model.predict(later)


# Users and items that were not in the log


KNOWN = Ratings.from_arrays(["a", "a", "b"], [1, 2, 1], [1.0, 1.0, 1.0], universe=(4, 5))
NEW = Ratings.from_arrays(["c", "a"], [3, 1], [1.0, 1.0])


def test_a_new_item_counts_as_one_without_ratings() -> None:
    """Counts 2, 1, 0, 0, 0 plus 1 add up to 8, and propensities to 3 ratings over 4 users."""
    model = PopularityPropensity(smoothing=1).fit(KNOWN)

    with pytest.warns(PropensityWarning, match="1 of 2 items were not .* as items without ratings"):
        values = model.predict(NEW).values

    assert values == pytest.approx([3 / 4 * 1 / 8, 3 / 4 * 3 / 8])


def test_a_new_item_without_smoothing_is_refused() -> None:
    with pytest.raises(UnknownIdError, match=r"the first is 3\. .*PopularityPropensity\(smoothing"):
        PopularityPropensity().fit(KNOWN).predict(NEW)


def test_new_users_do_not_matter_if_items_are_counted() -> None:
    new_user = Ratings.from_arrays(["c"], [1], [1.0])

    assert PopularityPropensity().fit(KNOWN).predict(new_user).values == pytest.approx([2 / 4])
    assert UniformPropensity().fit(KNOWN).predict(NEW).values == pytest.approx([3 / 20] * 2)


@pytest.mark.parametrize("model", [UniformPropensity(), PopularityPropensity(smoothing=1.0)])
@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_id_is_refused_even_where_unknown_ones_are_not(model: Any, missing: Any) -> None:
    fitted = model.fit(LOG)

    with pytest.raises(BadRatingError, match="lists a missing id at position 1"):
        fitted.predict_pairs([LOG.users[0], missing], LOG.items[:2])
