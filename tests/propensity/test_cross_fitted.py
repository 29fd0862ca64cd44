from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import unskew
from known_propensity import KnownPropensity, draw, every_cell
from unskew.data.ratings import Ratings
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.propensity.cross_fitted import CrossFittedPropensity, assign_cell_folds
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.popularity import PopularityPropensity, UniformPropensity
from unskew.propensity.wrapper import ClippedPropensity, assign_user_folds
from unskew.types import Matrix

TRUE = np.outer(np.linspace(0.3, 0.9, 40), np.linspace(0.2, 0.7, 25))
LOG = draw(TRUE)
SHARES = dict.fromkeys(range(1, 6), 0.2)


def flipped(log: Ratings, user: int, item: int) -> Ratings:
    """The log with one cell more, or one less."""
    seen = np.zeros((log.n_users, log.n_items))
    seen[log.user, log.item] = log.rating
    seen[user, item] = 0 if seen[user, item] else 3
    return Ratings.from_dense(seen)


def test_by_hand() -> None:
    """Four users, two folds: a user gets the popularity among the users of the other fold."""
    seen = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]])
    fold = assign_user_folds(4, n_folds=2, seed=0)

    model = CrossFittedPropensity(PopularityPropensity(smoothing=0), n_folds=2).fit(
        Ratings.from_dense(seen)
    )

    expected = [seen[fold != fold[user]].sum(axis=0) / 2 for user in range(4)]
    np.testing.assert_allclose(every_cell(model), expected)


def test_cells_by_hand() -> None:
    """Uniform: the ratings outside the fold of a cell / (all cells * training share)."""
    fold = assign_cell_folds(LOG.user.astype(np.int64) * 25 + LOG.item, n_folds=4, seed=7)

    model = CrossFittedPropensity(UniformPropensity(), n_folds=4, by="cell", random_state=7).fit(
        LOG
    )

    n_left = len(LOG) - np.bincount(fold, minlength=4)
    np.testing.assert_allclose(model.predict(LOG).values, n_left[fold] / 1000 / 0.75)


@pytest.mark.parametrize(
    "inner",
    [
        PopularityPropensity("both", smoothing=1),
        PopularityPropensity(smoothing=1),
        UniformPropensity(),
    ],
)
@pytest.mark.filterwarnings("ignore:the inverse propensities")
@given(user=st.integers(0, 39), item=st.integers(0, 24), seed=st.integers(0, 5))
def test_the_propensity_of_a_cell_does_not_depend_on_whether_it_was_observed(
    inner: Any, user: int, item: int, seed: int
) -> None:
    by = "cell" if inner.get_params().get("by") == "both" else "user"
    one, other = (
        CrossFittedPropensity(inner, by=by, random_state=seed)
        .fit(log)
        .predict_pairs([user], [item])
        for log in (LOG, flipped(LOG, user, item))
    )

    assert one == other
    plain, changed = (
        clone(inner).fit(log).predict_pairs([user], [item])
        for log in (LOG, flipped(LOG, user, item))
    )
    assert plain != changed


@pytest.mark.parametrize("by", ["user", "cell"])
def test_it_is_a_model_of_each_fold(by: Any) -> None:
    """A slow twin: fit on the log without the fold, in a loop over cells."""
    model = CrossFittedPropensity(
        PopularityPropensity(smoothing=2), n_folds=3, by=by, random_state=1
    ).fit(LOG)
    of_user = assign_user_folds(40, n_folds=3, seed=1)
    number = np.arange(1000).reshape(40, 25)
    fold = (
        of_user[:, None] + np.zeros((1, 25), int)
        if by == "user"
        else assign_cell_folds(number, n_folds=3, seed=1)
    )

    expected = np.empty((40, 25))
    for held_out in range(3):
        inner = PopularityPropensity(smoothing=2).fit(
            LOG.take(fold[LOG.user, LOG.item] != held_out)
        )
        left = (of_user != held_out).mean() if by == "user" else 2 / 3
        expected[fold == held_out] = every_cell(inner)[fold == held_out] / left

    np.testing.assert_allclose(every_cell(model), np.minimum(expected, 1))


def test_naive_bayes_is_cross_fitted_with_its_sample() -> None:
    model = CrossFittedPropensity(NaiveBayesPropensity(), by="cell").fit(LOG, mcar=SHARES)
    fold = assign_cell_folds(LOG.user.astype(np.int64) * 25 + LOG.item, n_folds=5, seed=0)

    n_left = np.array(
        [
            [((LOG.rating == r) & (fold != held_out)).sum() for r in range(1, 6)]
            for held_out in range(5)
        ]
    )

    np.testing.assert_allclose(
        model.predict(LOG).values, n_left[fold, LOG.rating.astype(int) - 1] / (1000 * 0.2) / 0.8
    )
    assert model.sees_ratings


@pytest.mark.parametrize("by", ["user", "cell"])
def test_folds_are_near_to_even_and_differ_by_seed(by: str) -> None:
    def folds(seed: int) -> Any:
        if by == "user":
            return assign_user_folds(100_000, n_folds=5, seed=seed)
        return assign_cell_folds(np.arange(100_000), n_folds=5, seed=seed)

    count = np.bincount(folds(0))
    assert np.abs(count - 20_000).max() < 5 * np.sqrt(20_000 * 0.8)
    joint = np.bincount(5 * folds(0) + folds(1))
    assert np.abs(joint - 4_000).max() < 5 * np.sqrt(4_000)
    assert (folds(3) == folds(3)).all()


def test_neighbouring_cells_fall_into_folds_independently() -> None:
    fold = assign_cell_folds(np.arange(90_000).reshape(300, 300), n_folds=3, seed=0)

    for one, other in (
        (fold[:, 1:], fold[:, :-1]),
        (fold[1:], fold[:-1]),
        (fold[1:, 1:], fold[:-1, :-1]),
    ):
        assert (one == other).mean() == pytest.approx(1 / 3, abs=0.01)


@pytest.mark.filterwarnings("ignore:the inverse propensities")
@pytest.mark.parametrize(
    ("by", "inner"), [("user", PopularityPropensity()), ("cell", PopularityPropensity("both"))]
)
def test_it_recovers_propensities_the_better_the_larger_the_log_is(by: Any, inner: Any) -> None:
    def mean_error(n: int) -> float:
        activity = np.linspace(0.4, 0.8, n) if by == "cell" else np.full(n, 0.5)
        true = np.outer(activity, np.linspace(0.1, 0.5, n))
        return float(
            np.abs(
                every_cell(CrossFittedPropensity(inner, by=by).fit(draw(true))) / true - 1
            ).mean()
        )

    errors = [mean_error(n) for n in (80, 800)]

    assert errors[1] < 0.4 * errors[0]
    assert errors[1] < 0.12


@pytest.mark.filterwarnings("ignore:the inverse propensities")
@pytest.mark.parametrize("by", ["user", "cell"])
def test_a_model_comes_back_from_its_file(tmp_path: Path, by: Any) -> None:
    model = CrossFittedPropensity(
        ClippedPropensity(PopularityPropensity(smoothing=1), min_propensity=0.3), n_folds=3, by=by
    ).fit(LOG)
    model.save(tmp_path / "model.unskew")

    again = unskew.load(tmp_path / "model.unskew")

    assert (every_cell(again) == every_cell(model)).all()
    assert repr(again) == repr(model)
    again.models_ = again.models_[:1]
    assert (
        again._find_inconsistency()
        == "training_share has shape (3,), but the rest of the model needs (1,)."
    )


def test_settings_changed_after_the_fit_do_not_move_cells_to_other_folds() -> None:
    model = CrossFittedPropensity(PopularityPropensity(smoothing=1), by="cell").fit(LOG)
    before = every_cell(model)

    model.set_params(random_state=9, n_folds=2, by="user")

    assert (every_cell(model) == before).all()


def test_values_above_1_are_capped_with_a_warning() -> None:
    matrix: Matrix = np.full((40, 25), 0.9)

    with pytest.warns(
        PropensityWarning, match=rf"{len(LOG)} of {len(LOG)} cross-fitted propensities exceed 1"
    ):
        model = CrossFittedPropensity(KnownPropensity(matrix), by="cell").fit(LOG)

    assert (every_cell(model) == 1).all()
    assert model.n_capped_ == len(LOG)


def test_inverse_propensities_that_do_not_add_up_to_all_cells_are_reported() -> None:
    """P has the right mean, but 1 / P is too large by about one over the ratings of an item."""
    log = draw(np.full((400, 200), 0.03))

    with pytest.warns(PropensityWarning, match=r"1\.1\d* times the number .* IPS with these"):
        model = CrossFittedPropensity(PopularityPropensity(), by="cell").fit(log)

    assert every_cell(model).mean() == pytest.approx(0.03, rel=0.05)
    assert model.predict(log).inverse.sum() / log.n_cells == pytest.approx(1.1, abs=0.05)


def test_inverse_propensities_within_three_standard_errors_are_not_reported() -> None:
    log = draw(np.full((200, 20), 0.4))

    model = CrossFittedPropensity(UniformPropensity(), by="cell").fit(log)

    assert model.predict(log).inverse.sum() == pytest.approx(log.n_cells, rel=0.05)


def test_parameters_of_each_user_cannot_be_held_out_by_users() -> None:
    with pytest.raises(
        UsageError,
        match=rf"{len(LOG)} of {len(LOG)} ratings have propensity 0 by the model that was fitted "
        "with their user held out;.*use by='cell'",
    ):
        CrossFittedPropensity(PopularityPropensity("user"), by="user").fit(LOG)
    with pytest.warns(
        PropensityWarning, match=r"add up to .* times the number of cells.*use by='cell'"
    ):
        CrossFittedPropensity(PopularityPropensity("user", smoothing=1), by="user").fit(LOG)


def test_by_itself_it_holds_out_what_suits_the_model() -> None:
    of_items, of_users = (
        CrossFittedPropensity(PopularityPropensity(by, smoothing=1)).fit(LOG)
        for by in ("item", "user")
    )

    assert of_items.fold_of_user_.size == LOG.n_users
    assert of_users.fold_of_user_.size == 0


def test_an_item_whose_only_rating_is_held_out_needs_smoothing() -> None:
    log = Ratings.from_dense(np.column_stack([np.ones(10), np.eye(10)[0]]))

    with pytest.raises(
        UsageError,
        match=r"1 of 11 ratings have propensity 0 .* held out; the first is row 1 "
        r"\(user 0, item 1\). Smooth the model",
    ):
        CrossFittedPropensity(PopularityPropensity(), by="cell").fit(log)


@pytest.mark.parametrize(
    ("model", "error", "match"),
    [
        (
            CrossFittedPropensity(PopularityPropensity(), by="item"),
            UnknownNameError,
            "unknown value 'item' of by; valid values are: user, cell",
        ),  # type: ignore[arg-type]
        (
            CrossFittedPropensity(PopularityPropensity(), n_folds=1),
            UsageError,
            "n_folds must be a whole number, at least 2; got 1",
        ),
        (
            CrossFittedPropensity(PopularityPropensity(), n_folds=41),
            UsageError,
            "at most the number of users, 40; got 41",
        ),
        (
            CrossFittedPropensity(PopularityPropensity().fit(LOG)),
            UsageError,
            "is fitted already, to ratings that must be held out",
        ),
        (
            CrossFittedPropensity(
                ClippedPropensity(PopularityPropensity().fit(LOG), min_propensity=0.1)
            ),
            UsageError,
            "is fitted already, to ratings that must be held out",
        ),
        (
            CrossFittedPropensity(0.3),
            UsageError,
            "CrossFittedPropensity wraps a propensity model.*got 0.3",
        ),  # type: ignore[arg-type]
    ],
)
def test_settings_are_checked(
    model: CrossFittedPropensity, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        model.fit(LOG)


def test_a_fold_that_leaves_nothing_is_refused() -> None:
    log = Ratings.from_codes([0], [0], [1], shape=(4, 3))

    with pytest.raises(
        UsageError,
        match=r"fold [01] has every rating of the log \(1\), so none .* Use another random_state",
    ):
        CrossFittedPropensity(UniformPropensity(), n_folds=2, by="cell").fit(log)
