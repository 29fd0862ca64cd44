"""New users and items, similar items, recommendations in blocks, and exports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unskew
from unskew import models
from unskew.data.ratings import Ratings
from unskew.errors import PropensityWarning, UnknownIdError, UsageError
from unskew.io.files import read_table
from unskew.models.logistic import LogisticFactorization
from unskew.models.matrix_factorization import MatrixFactorization

WORLD = unskew.simulate(n_users=120, n_items=90, density=0.15, alpha=0.5, random_state=5)
LOG, P = WORLD.log, WORLD.propensities.values


def renamed(rows: np.ndarray, side: str) -> Ratings:
    """Some ratings of the log with other ids of their users (or items)."""
    users, items = LOG.users[LOG.user[rows]], LOG.items[LOG.item[rows]]
    if side == "user":
        return Ratings.from_arrays(users + 1000, items, LOG.rating[rows])
    return Ratings.from_arrays(users, items + 1000, LOG.rating[rows])


def solve_by_hand(
    model: MatrixFactorization, weight: np.ndarray, rows: np.ndarray, side: str
) -> np.ndarray:
    """The ridge regression of one user (or item) on the factors of the other side, in NumPy."""
    factors, penalty = model.factors_, model.penalty_
    code, own = (LOG.item, "user_offset") if side == "user" else (LOG.user, "item_offset")
    others, offset = factors.item_side if side == "user" else factors.user_side
    design = np.column_stack([others[code[rows]], np.ones(rows.sum())])
    target = LOG.rating[rows] - offset[code[rows]] - factors.global_offset
    ridge = np.diag(np.r_[np.full(factors.n_factors, penalty.factors), getattr(penalty, own)])
    normal = design.T @ (weight[rows, None] * design) + ridge
    return np.linalg.solve(normal, design.T @ (weight[rows] * target))


def test_a_single_id_is_refused_by_name() -> None:
    model = MatrixFactorization(1, 2.0).fit(LOG)

    with pytest.raises(UsageError, match=r"users must be a list of ids; got the single id 3\."):
        model.recommend(3)
    with pytest.raises(UsageError, match=r"Pass a list: users=\['cust-1'\]"):
        model.predict("cust-1", "SKU1")
    with pytest.raises(UsageError, match=r"Pass a list: items=\['SKU1'\]"):
        model.predict([3], "SKU1")
    with pytest.raises(UsageError, match=r"Pass a list: candidates=\['SKU1'\]"):
        model.recommend([3], candidates="SKU1")


def test_what_fills_up_a_list_is_told_by_its_scores() -> None:
    model = MatrixFactorization(1, 2.0).fit(LOG)
    chosen = LOG.items[:2]
    found = model.recommend([LOG.users[0]], k=5, candidates=chosen, exclude_seen=False)

    assert np.isfinite(found.scores).tolist() == [[True, True, False, False, False]]
    assert set(found.items[np.isfinite(found.scores)]) == set(chosen)
    assert set(found.to_columns()["item_id"]) == set(chosen)
    assert "np.isfinite(scores)" in str(type(found).__doc__)
    assert "np.isfinite(scores)" in str(MatrixFactorization.recommend.__doc__)


@pytest.mark.parametrize("side", ["user", "item"])
@pytest.mark.parametrize("l2", ["auto", 2.0])
@pytest.mark.parametrize("is_naive", [True, False])
def test_a_folded_row_is_the_refit_of_that_row(side: Any, l2: Any, is_naive: bool) -> None:
    model = MatrixFactorization(3, l2).fit(LOG, None if is_naive else P)
    weight = np.full(len(LOG), LOG.n_cells / len(LOG)) if is_naive else 1 / P
    code = LOG.user if side == "user" else LOG.item
    rows = np.isin(code, (4, 7))

    folded = model.fold_in(renamed(rows, side), None if is_naive else P[rows], side=side)

    found = folded.factors_.user_side if side == "user" else folded.factors_.item_side
    for row, known in ((-2, 4), (-1, 7)):
        exact = solve_by_hand(model, weight, code == known, side)
        np.testing.assert_allclose(np.r_[found[0][row], found[1][row]], exact, atol=1e-9)
    ids = folded.users_ if side == "user" else folded.items_
    assert ids[-2:].tolist() == [1004, 1007]
    old = model.factors_.user_factors if side == "user" else model.factors_.item_factors
    assert np.array_equal(found[0][:-2], old)


def test_a_converged_users_row_does_not_move() -> None:
    """Solved users given the items: a last half-sweep of the fit itself."""
    model = MatrixFactorization(3, 5.0, tol=1e-13, max_iter=3000).fit(LOG, P)

    folded = model.fold_in(LOG, P)

    assert folded.users_.tolist() == model.users_.tolist()
    np.testing.assert_allclose(folded.factors_.user_factors, model.factors_.user_factors, atol=1e-4)


def test_new_users_get_recommendations_without_what_they_rated() -> None:
    model = MatrixFactorization(3, 2.0).fit(LOG, P)
    rows = LOG.user < 3
    block = model.fold_in(renamed(rows, "user"), P[rows], keep_known=False)

    best = block.recommend(k=90)
    known = model.recommend([0, 1, 2], k=90)

    assert block.users_.tolist() == [1000, 1001, 1002]
    assert block.seen_items_.size == rows.sum()
    for user in range(3):
        rated = set(LOG.items[LOG.item[LOG.user == user]].tolist())
        shown = best.items[user][np.isfinite(best.scores[user])].tolist()
        assert not rated & set(shown)
        assert len(shown) == 90 - len(rated)
    assert known.items.shape == best.items.shape


def test_new_items_can_be_recommended_to_old_users() -> None:
    model = MatrixFactorization(3, 2.0).fit(LOG, P)
    rows = LOG.item == 5
    folded = model.fold_in(renamed(rows, "item"), P[rows], side="item")

    rated = LOG.users[LOG.user[rows]][0]
    assert folded.items_[-1] == 1005
    assert 1005 not in folded.recommend([rated], k=91).to_columns()["item_id"]
    np.testing.assert_allclose(folded.predict([rated], [1005]).shape, (1,))


def test_a_saved_folded_model_is_whole(tmp_path: Any) -> None:
    rows = LOG.user < 3
    folded = MatrixFactorization(3, 2.0).fit(LOG).fold_in(renamed(rows, "user"))
    folded.save(tmp_path / "m.unskew")

    loaded: Any = unskew.load(tmp_path / "m.unskew")
    assert np.array_equal(loaded.recommend(k=4).items, folded.recommend(k=4).items)


def test_new_ratings_without_propensities_get_the_mean_weight_with_a_warning() -> None:
    model, rows = MatrixFactorization(3, 2.0).fit(LOG, P), LOG.user < 3
    same = np.full(rows.sum(), 1 / np.mean(1 / P))

    with pytest.warns(PropensityWarning, match=r"have none: each gets the mean weight of the fit"):
        folded = model.fold_in(renamed(rows, "user"))

    expected = model.fold_in(renamed(rows, "user"), same)
    np.testing.assert_allclose(folded.factors_.user_factors, expected.factors_.user_factors)


def test_fold_in_says_what_it_cannot_do() -> None:
    model, rows = MatrixFactorization(3, 2.0).fit(LOG, P), LOG.user < 3
    with pytest.raises(UsageError, match="was fitted without propensities"):
        MatrixFactorization(3, 2.0).fit(LOG).fold_in(renamed(rows, "user"), P[rows])
    with pytest.raises(UnknownIdError, match=r"1 of 1 items were not in the log.*first is 9999"):
        model.fold_in(Ratings.from_arrays([1], [9999], [3.0]), [0.5])
    text = Ratings.from_arrays([1, 2], ["x", "x"], [3.0, 4.0])
    with pytest.raises(UnknownIdError, match=r"the item 'x' has another type.*\(text, where a num"):
        model.fold_in(text, [0.5, 0.5], side="item")
    with pytest.raises(UsageError, match="rows of squared loss with weights 1 / P"):
        MatrixFactorization(3, 2.0, normalize="self").fit(LOG, P).fold_in(LOG, P)
    with pytest.raises(UsageError, match="log loss has no exact row solution"):
        LogisticFactorization(2, 1.0, relevance_threshold=4).fit(LOG).fold_in(LOG)


def test_similar_items_have_the_largest_cosines() -> None:
    model = MatrixFactorization(3, 0.5).fit(LOG, P)
    rows = model.factors_.item_factors
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -np.inf)

    found = model.similar_items([7, 3], k=4)

    order = np.argsort(-cosines[[7, 3]], axis=1)[:, :4]
    assert found.neighbors.tolist() == LOG.items[order].tolist()
    np.testing.assert_allclose(found.similarity, np.take_along_axis(cosines[[7, 3]], order, 1))
    assert found.to_columns()["position"].tolist() == [1, 2, 3, 4] * 2
    assert model.similar_users([0], k=200).neighbors.shape == (1, 119)
    assert found.to_record()["rows"][0]["id"] == 7


def test_factors_of_zero_have_no_neighbours() -> None:
    with pytest.raises(UsageError, match="the factors of this model are zero"):
        MatrixFactorization(3, 1e5).fit(LOG).similar_items([1])
    with pytest.raises(UnknownIdError, match="1 of 1 items were not in the log"):
        MatrixFactorization(3, 0.5).fit(LOG).similar_items([999])


@pytest.mark.parametrize("name", ["best.parquet", "best.csv"])
def test_blocks_write_what_recommend_gives(tmp_path: Any, name: str) -> None:
    pytest.importorskip("pyarrow")
    model = MatrixFactorization(3, 0.5).fit(LOG, P)

    n_rows = model.write_recommendations(tmp_path / name, k=3, block_size=7)

    whole = model.recommend(k=3).to_columns()
    table = read_table(str(tmp_path / name))
    assert n_rows == len(whole["item_id"]) == 360
    for column, values in whole.items():
        written = np.asarray(table.columns[column].numbers(), dtype=np.float64)
        np.testing.assert_allclose(written, values)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_other_file_names_are_refused_and_leave_nothing(tmp_path: Any) -> None:
    model = MatrixFactorization(3, 0.5).fit(LOG, P)
    with pytest.raises(UsageError, match=r"best\.txt must end in \.parquet or \.csv"):
        model.write_recommendations(tmp_path / "best.txt")
    with pytest.raises(UsageError, match="block_size must be a whole number"):
        model.write_recommendations(tmp_path / "best.csv", block_size=0)
    assert not list(tmp_path.iterdir())


def test_recommendations_show_items_and_scores() -> None:
    best = MatrixFactorization(3, 0.5).fit(LOG, P).recommend(k=2)

    text = repr(best)
    assert f"{best.items[0, 0]} ({best.scores[0, 0]:.3g})" in text
    assert "120 users, 2 items each; 10 shown" in text
    assert "<table>" in best._repr_html_()


def test_predictions_stay_within_the_ratings_of_the_log() -> None:
    settings: dict[str, Any] = {"n_factors": 10, "l2": 0.01, "tol": 1e-3}
    free = MatrixFactorization(**settings, clip_predictions=False).fit(LOG, P)
    kept = MatrixFactorization(**settings).fit(LOG, P)
    users, items = (part.ravel() for part in np.indices((120, 90)))
    low, high = LOG.rating.min(), LOG.rating.max()
    raw = free.predict(users, items)
    n_outside = int(((raw < low) | (raw > high)).sum())

    np.testing.assert_array_equal(kept.predict(users, items), np.clip(raw, low, high))
    assert kept.count_outside(users, items) == n_outside > 0
    assert free.count_outside(users, items) == 0
    best, ranked = kept.recommend(k=5), free.recommend(k=5)
    assert np.array_equal(best.items, ranked.items)
    assert best.scores.max() == high
    assert best.n_clipped == (ranked.scores > high).sum() > 0
    assert f"{best.n_clipped} of 600 scores were outside" in repr(best)
    assert best.to_record()["n_clipped"] == best.n_clipped


@pytest.mark.filterwarnings("ignore:model .* was trained on")
@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_evaluation_reads_clipped_predictions_in_all_cells() -> None:
    model = MatrixFactorization(10, 0.01, tol=1e-3).fit(LOG, P)
    users, items = np.indices((120, 90))
    matrix = model.predict(users.ravel(), items.ravel()).reshape(120, 90)
    settings: dict[str, Any] = {
        "propensities": P,
        "metrics": ["mse"],
        "estimators": ["dr"],
        "imputation": np.full((120, 90), 3.0),
    }

    by_model = unskew.evaluate(LOG, {"m": model}, **settings).to_columns()["estimate"]
    by_matrix = unskew.evaluate(LOG, {"m": matrix}, **settings).to_columns()["estimate"]

    np.testing.assert_allclose(by_model, by_matrix, rtol=1e-9)


def test_exported_rows_multiply_to_predictions() -> None:
    model = MatrixFactorization(3, 0.5, clip_predictions=False).fit(LOG, P)

    users, items = model.export_factors("user"), model.export_factors("item")
    frame: Any = model.factors_to_frame("item", "pandas")

    assert users.dtype == items.dtype == np.float32
    assert users.flags.c_contiguous
    assert items.flags.c_contiguous
    codes = np.indices((120, 90))
    predicted = model.predict(*(part.ravel() for part in codes)).reshape(120, 90)
    np.testing.assert_allclose(users @ items.T, predicted, atol=1e-5)
    assert list(frame.columns) == ["item_id", "offset", "factor_1", "factor_2", "factor_3"]
    np.testing.assert_array_equal(frame["factor_2"], model.factors_.item_factors[:, 1])


@pytest.mark.parametrize(
    ("kind", "name", "which"),
    [
        (models.DoublyRobustFactorization, "fold_in", "MatrixFactorization"),
        (models.OrdinalMNAR, "similar_items", "factors_"),
        (models.WeightedFactorization, "partial_fit", "Popularity"),
    ],
    ids=str,
)
def test_what_a_recommender_lacks_is_told_with_those_that_have_it(
    kind: Any, name: str, which: str
) -> None:
    assert not hasattr(kind(), name)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'. Only .*{which}"):
        getattr(kind(), name)
