from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from frame_engines import ENGINES, each_engine
from unskew import Ratings, evaluate
from unskew.data import Factors
from unskew.errors import (
    BadPredictionError,
    ColumnError,
    DataError,
    UniverseError,
    UnskewWarning,
    UsageError,
)
from unskew.evaluation import Evaluation
from unskew.types import IntVector, Matrix, Scores, Vector

Make = Callable[..., Any]
N_USERS, N_ITEMS = 7, 9
RNG = np.random.default_rng(20)
TRUTH = RNG.integers(1, 6, (N_USERS, N_ITEMS)).astype(float)
SEEN = RNG.random((N_USERS, N_ITEMS)) < 0.5
SCORES = RNG.random((N_USERS, N_ITEMS)).astype(np.float32).astype(float)
"""Without ties, so that a column of positions can say the same."""
POSITIONS = np.argsort(np.argsort(-SCORES, axis=1), axis=1) + 1
USERS = np.array([f"u{place}" for place in RNG.permutation(N_USERS)])
ITEMS = RNG.permutation(100)[:N_ITEMS]
RATING_METRICS = ("mse", "mae", "accuracy")
RANKING_METRICS = ("dcg", "dcg@3", "cg@3", "precision@3", "recall@3", "stratified_recall@3", "atop")


@pytest.fixture(scope="module")
def log() -> Ratings:
    """In shuffled order, with ids whose order is not that of their codes."""
    dense = Ratings.from_dense(np.where(SEEN, TRUTH, 0), users=USERS, items=ITEMS)
    return dense.take(np.random.default_rng(1).permutation(len(dense)))


def score_ids(users: np.ndarray, items: np.ndarray) -> Matrix:
    """A callable that gets ids, and returns a row for each user."""
    row, column = (np.argsort(ids) for ids in (USERS, ITEMS))
    rows = row[np.searchsorted(USERS, users, sorter=row)]
    return SCORES[np.ix_(rows, column[np.searchsorted(ITEMS, items, sorter=column)])]


class Pairs:
    """Predicts pairs of ids, as a fitted model does."""

    def predict(self, users: np.ndarray, items: np.ndarray) -> Vector:
        row, column = (
            {value: place for place, value in enumerate(ids.tolist())} for ids in (USERS, ITEMS)
        )
        return np.array(
            [
                SCORES[row[user], column[item]]
                for user, item in zip(users.tolist(), items.tolist(), strict=True)
            ]
        )


class Blocks(Pairs):
    """Scores blocks of users against all items too."""

    def scorer(self, users: np.ndarray, items: np.ndarray) -> Callable[[IntVector], Scores]:
        assert (users.tolist(), items.tolist()) == (USERS.tolist(), ITEMS.tolist())
        return lambda codes: SCORES[codes]


def as_columns(scores: Matrix = SCORES) -> dict[str, Any]:
    """Every cell of the matrix, not only the logged ones, in an order of its own."""
    order = np.random.default_rng(2).permutation(scores.size)
    cells = {
        "user_id": np.repeat(USERS, N_ITEMS),
        "item_id": np.tile(ITEMS, N_USERS),
        "prediction": scores.ravel(),
        "position": POSITIONS.ravel(),
    }
    return {name: values[order] for name, values in cells.items()}


EVERYWHERE: Mapping[str, Callable[[], object]] = {
    "matrix": lambda: SCORES,
    "nested lists": SCORES.tolist,
    "model": Pairs,
    "model with a scorer": Blocks,
    "callable": lambda: score_ids,
    "float32 callable": lambda: lambda users, items: score_ids(users, items).astype(np.float32),
    "factors": lambda: Factors(SCORES, np.eye(N_ITEMS)),
    **{f"{name} frame": (lambda make=make: make(as_columns())) for name, make in ENGINES.items()},
}
each_kind = pytest.mark.parametrize("kind", EVERYWHERE)


def judge(
    log: Ratings, predictions: object, metrics: tuple[str, ...] = RATING_METRICS, **options: Any
) -> Evaluation:
    chances = np.random.default_rng(3).uniform(0.4, 0.6, len(log))
    return evaluate(
        log,
        {"a": predictions},
        propensities=chances,
        metrics=metrics,
        relevance_threshold=4,
        **options,
    )


def same(expected: Any, rel: float | None = None) -> Any:
    """Equal numbers; limits of intervals that are not printed are NaN in both."""
    return pytest.approx(expected, rel=rel, nan_ok=True)


def numbers(result: Evaluation) -> list[float]:
    return [value for risk in result for value in (risk.estimate, risk.std_error)]


# One model, however it is passed


@each_kind
def test_every_kind_that_knows_all_cells_gives_the_same_numbers(log: Ratings, kind: str) -> None:
    metrics = RATING_METRICS + RANKING_METRICS

    assert numbers(judge(log, EVERYWHERE[kind](), metrics)) == same(
        numbers(judge(log, SCORES, metrics)), rel=1e-12
    )


@pytest.mark.parametrize(
    "convert", [np.asarray, list, pd.Series, pl.Series], ids=["array", "list", "pandas", "polars"]
)
def test_aligned_values_give_the_same_numbers(
    log: Ratings, convert: Callable[[Vector], object]
) -> None:
    aligned = convert(SCORES[log.user, log.item])

    assert numbers(judge(log, aligned)) == same(numbers(judge(log, SCORES)), rel=1e-12)


@each_engine
def test_a_frame_may_have_any_order_and_rows_of_cells_and_ids_that_the_log_lacks(
    log: Ratings, make: Make
) -> None:
    rows = {
        "user_id": USERS[log.user],
        "item_id": ITEMS[log.item],
        "prediction": SCORES[log.user, log.item],
    }
    order = np.random.default_rng(4).permutation(len(log))
    more = {
        "user_id": ["stranger", USERS[0]],
        "item_id": [ITEMS[0], 12345],
        "prediction": [np.nan, 7.0],
    }
    longer = {
        name: np.concatenate([values[order], np.array(more[name])]) for name, values in rows.items()
    }

    assert numbers(judge(log, make(longer))) == numbers(judge(log, make(rows)))


@each_engine
def test_a_frame_may_use_known_spellings_or_the_logs_own_names(log: Ratings, make: Make) -> None:
    expected = numbers(judge(log, SCORES))
    columns = as_columns()
    spelled = make(
        {"userId": columns["user_id"], "movieId": columns["item_id"], "pred": columns["prediction"]}
    )
    assert numbers(judge(log, spelled)) == same(expected)

    own = make({"reader": USERS[log.user], "what": ITEMS[log.item], "stars": log.rating})
    renamed = Ratings.from_frame(
        own, user="reader", item="what", rating="stars", users=USERS, items=ITEMS
    )
    named = make(
        {
            "reader": columns["user_id"],
            "what": columns["item_id"],
            "prediction": columns["prediction"],
        }
    )
    assert numbers(judge(renamed, named)) == same(expected)


def test_one_model_alone_needs_no_name(log: Ratings) -> None:
    result = evaluate(log, SCORES, metrics=["mae"], estimators=["naive"])

    assert result.models == ("model",)
    assert result.risk("model", metric="mae", estimator="naive").estimate == pytest.approx(
        np.abs(SCORES - TRUTH)[log.user, log.item].mean()
    )


def test_positions_of_a_frame_need_no_predictions(log: Ratings) -> None:
    columns = as_columns()
    del columns["prediction"]

    found = judge(log, pd.DataFrame(columns), RANKING_METRICS, position="position")
    assert numbers(found) == same(numbers(judge(log, SCORES, RANKING_METRICS)))


def test_users_in_small_blocks_give_the_same_numbers(
    log: Ratings, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = numbers(judge(log, score_ids))
    monkeypatch.setattr("unskew.evaluation.predictions.BLOCK_CELLS", 2 * N_ITEMS)

    assert numbers(judge(log, score_ids)) == expected


def test_a_scorer_is_never_asked_for_all_users_at_once(
    log: Ratings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("unskew.evaluation.predictions.BLOCK_CELLS", 2 * N_ITEMS)

    def scorer(users: np.ndarray, items: np.ndarray) -> Scores:
        asked.append(users.size)
        return score_ids(users, items)

    judge(log, scorer)
    assert max(asked) == 2


# What cannot be read


def test_values_for_some_cells_only(log: Ratings) -> None:
    with pytest.raises(
        BadPredictionError,
        match=rf"'a': got predictions of shape \(3,\) for a log of {len(log)} ratings",
    ):
        judge(log, [1.0, 2.0, 3.0])


@each_engine
def test_a_frame_that_misses_cells_names_their_number_and_the_first(
    log: Ratings, make: Make
) -> None:
    rows = {
        "user_id": USERS[log.user],
        "item_id": ITEMS[log.item],
        "prediction": SCORES[log.user, log.item],
    }
    kept = np.ones(len(log), dtype=bool)
    kept[[4, 9]] = False

    with pytest.raises(
        BadPredictionError,
        match=rf"missing for 2 of {len(log)} logged cells; the first is row 4 \(user 'u",
    ):
        judge(log, make({name: values[kept] for name, values in rows.items()}))


def test_an_empty_frame_misses_every_cell(log: Ratings) -> None:
    with pytest.raises(
        BadPredictionError,
        match=rf"missing for {len(log)} of {len(log)} logged cells; the first is row 0",
    ):
        judge(log, pd.DataFrame(as_columns()).iloc[:0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("kind", ["aligned", "matrix", "callable", "model", "frame"])
def test_a_prediction_that_is_no_number_is_named(log: Ratings, kind: str, bad: float) -> None:
    scores = SCORES.copy()
    scores[log.user[5], log.item[5]] = bad
    frame = pd.DataFrame(
        {
            "user_id": USERS[log.user],
            "item_id": ITEMS[log.item],
            "prediction": scores[log.user, log.item],
        }
    )

    class Model:
        def predict(self, users: object, items: object) -> Vector:
            return scores[log.user, log.item]

    given = {
        "aligned": scores[log.user, log.item],
        "matrix": scores,
        "callable": lambda users, items: scores[[log.users.tolist().index(u) for u in users]],
        "model": Model(),
        "frame": frame,
    }[kind]
    with pytest.raises(
        BadPredictionError,
        match=rf"'a': predictions are missing for 1 of {len(log)} .* the first is row 5 ",
    ):
        judge(log, given)


@each_engine
def test_repeated_predictions_are_refused(log: Ratings, make: Make) -> None:
    columns = as_columns()
    repeated = {name: np.append(values, values[[3, 5, 3]]) for name, values in columns.items()}

    with pytest.raises(
        BadPredictionError,
        match=r"has more than one prediction for 2 cells; the first to repeat one is row 63 of",
    ):
        judge(log, make(repeated))


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (N_ITEMS + 1, "a position is 10, but there are 9 items"),
        (0, "positions are not whole numbers from 1 on; the first is 0"),
        (1.5, r"positions are not whole numbers from 1 on; the first is 1\.5"),
        (np.nan, "positions are not whole numbers from 1 on; the first is nan"),
    ],
)
def test_positions_that_cannot_be(log: Ratings, position: float, message: str) -> None:
    frame = pd.DataFrame(as_columns()).assign(position=position)

    with pytest.raises(BadPredictionError, match=message):
        judge(log, frame, ("dcg",), position="position")


def test_positions_of_aligned_values_are_not_to_be_had(log: Ratings) -> None:
    with pytest.raises(
        BadPredictionError,
        match="'a': ranking metrics need the position of each cell among all items",
    ):
        judge(log, SCORES[log.user, log.item], ("dcg@3",))


def test_a_frame_without_the_column_says_what_to_rename(log: Ratings) -> None:
    frame = pd.DataFrame(as_columns())

    with pytest.raises(
        ColumnError, match=r"'a': there is no column 'rank' for position=; the columns are 'user_id"
    ):
        judge(log, frame, ("dcg@3",), position="rank")
    with pytest.raises(
        ColumnError,
        match=r"can be read as the prediction; the columns are 'user_id', 'item_id'",
    ):
        judge(log, frame.rename(columns={"prediction": "svd"}))


@pytest.mark.parametrize("name", ["position", "rank", "Positions"])
def test_a_column_is_read_as_positions_only_if_it_is_named(log: Ratings, name: str) -> None:
    shown = np.random.default_rng(0).integers(1, 4, SCORES.size)
    frame = pd.DataFrame(as_columns()).drop(columns="position").assign(**{name: shown})
    expected = numbers(judge(log, SCORES, RANKING_METRICS))

    assert numbers(judge(log, frame, RANKING_METRICS)) == same(expected, rel=1e-12)
    named = numbers(judge(log, frame, RANKING_METRICS, position=name))
    assert named != pytest.approx(expected, rel=1e-3)
    assert numbers(judge(log, frame, RANKING_METRICS, position={"a": name})) == named


def test_positions_of_what_is_no_frame_are_refused(log: Ratings) -> None:
    for position in ("place", {"a": "place"}, {"b": "place"}):
        with pytest.raises(UsageError, match=r"position names a column of a frame"):
            judge(log, SCORES, ("dcg@3",), position=position)


@each_engine
def test_a_frame_of_all_items_ranks_them_with_their_ties(log: Ratings, make: Make) -> None:
    for scores in (SCORES, np.round(3 * SCORES)):
        columns = as_columns(scores)
        columns.pop("position")
        more = {"user_id": ["stranger"], "item_id": [ITEMS[0]], "prediction": [np.nan]}
        longer = {name: np.append(values, more[name]) for name, values in columns.items()}
        by_frame = judge(log, make(longer), RANKING_METRICS)
        expected = judge(log, scores, RANKING_METRICS)

        assert numbers(by_frame) == same(numbers(expected), rel=1e-12)


def test_a_frame_that_lacks_items_names_the_user(log: Ratings) -> None:
    frame = pd.DataFrame(as_columns()).drop(columns="position")
    user = frame.user_id[0]
    seen = set(ITEMS[log.item[USERS[log.user] == user]].tolist())
    unseen = frame.index[(frame.user_id == user) & ~frame.item_id.isin(seen)][0]

    with pytest.raises(BadPredictionError, match=f"user '{user}' has predictions of 8 items"):
        judge(log, frame.drop(index=unseen), ("dcg@3",))
    with pytest.raises(BadPredictionError, match="among all 10 items, but no column of positions"):
        judge(log, frame, ("dcg@3",), universe=(N_USERS, 10))
    frame.loc[unseen, "prediction"] = np.inf
    with pytest.raises(BadPredictionError, match=f"at row {unseen} is missing or not finite"):
        judge(log, frame, ("dcg@3",))


def test_the_index_of_a_series_must_agree_with_the_rows_of_the_log() -> None:
    frame = pd.DataFrame(
        {"user_id": [3, 1, 2, 1], "item_id": [1, 1, 2, 2], "rating": [1, 2, 3, 4]},
        index=[7, 5, 6, 4],
    )
    log, scores = Ratings.from_frame(frame), frame.rating + 0.5

    def mse(log: Ratings, predictions: object) -> float:
        result = evaluate(log, predictions, metrics=["mse"], estimators=["naive"])
        return result.risk("model", metric="mse", estimator="naive").estimate

    assert mse(log, scores) == mse(log, scores.reset_index(drop=True)) == 0.25
    assert mse(log.take([2, 0]), scores.iloc[[2, 0]]) == 0.25
    plain = Ratings.from_frame(frame.reset_index(drop=True))
    assert mse(plain.take([2, 0]), scores.reset_index(drop=True).iloc[[2, 0]]) == 0.25
    with pytest.raises(
        BadPredictionError,
        match=r"another order; the first difference is at row 0: 4, not 7.* with \.to_numpy\(\)",
    ):
        mse(log, scores.sort_index())
    shuffled = Ratings.from_frame(frame.reset_index(drop=True).iloc[[1, 0, 3, 2]])
    with pytest.raises(BadPredictionError, match="another order"):
        mse(shuffled, scores.reset_index(drop=True))
    with pytest.warns(UnskewWarning, match="is not that of the log's rows; they are taken in"):
        assert mse(log, scores.set_axis(["a", "b", "c", "d"])) == 0.25


@pytest.mark.parametrize(
    "given",
    ["file.csv", object(), [[1.0], [2.0, 3.0]], pl.LazyFrame(as_columns())],
    ids=lambda each: type(each).__name__,
)
def test_what_is_no_prediction_at_all(log: Ratings, given: object) -> None:
    with pytest.raises(
        BadPredictionError,
        match=r"'a': an object of type .* cannot be read as predictions.*Pass an array.* a "
        r"callable that gets user ids and item ids\. Fitted models of .*: .*LensKit, .*, Surprise",
    ):
        judge(log, given)


def test_an_unknown_object_is_not_called_a_bad_number(log: Ratings) -> None:
    with pytest.raises(BadPredictionError) as caught:
        judge(log, object())

    assert "float" not in str(caught.value)
    assert caught.value.value == "object"


@pytest.mark.parametrize("metric", ["mae", "dcg@3"])
def test_a_model_that_predicts_too_few_pairs(log: Ratings, metric: str) -> None:
    class Short:
        def predict(self, users: object, items: object) -> list[float]:
            return [1.0]

    with pytest.raises(
        BadPredictionError, match=r"'a': (got predictions of|predict returned) shape \(1,\) for"
    ):
        judge(log, Short(), (metric,))


@pytest.mark.parametrize("metric", ["mae", "dcg@3"])
def test_a_scorer_of_the_wrong_shape(log: Ratings, metric: str) -> None:
    with pytest.raises(BadPredictionError, match=r"shape \(7, 8\)"):
        judge(log, lambda users, items: score_ids(users, items)[:, 1:], (metric,))


def test_a_callable_gets_ids_and_not_codes() -> None:
    """Ids 1, 2, 3 that were taken for the codes 0, 1, 2 once gave wrong numbers in silence."""
    log = Ratings.from_dense([[5, 0, 1], [0, 4, 0]], users=[1, 2], items=[1, 2, 3])
    asked: list[list[int]] = []

    def score(users: np.ndarray, items: np.ndarray) -> Matrix:
        asked.extend([users.tolist(), items.tolist()])
        return np.add.outer(10.0 * users, items)

    result = evaluate(log, score, metrics=["mae"], estimators=["naive"])

    assert asked == [[1, 2], [1, 2, 3]]
    assert result.risk("model", metric="mae", estimator="naive").estimate == pytest.approx(12)


def test_a_callable_whose_frame_has_items_in_another_order_is_an_error(log: Ratings) -> None:
    def score_frame(users: np.ndarray, items: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(score_ids(users, items), users, items)

    def score_reordered(users: np.ndarray, items: np.ndarray) -> pd.DataFrame:
        return score_frame(users, items)[sorted(items)]

    models = {"frame": score_frame, "array": score_ids}
    result = evaluate(log, models, metrics=["mse"], estimators=["naive"])
    risks = [result.risk(name, metric="mse", estimator="naive").estimate for name in models]
    assert risks[0] == risks[1]
    with pytest.raises(DataError, match="are the items of the log in another order"):
        evaluate(log, {"frame": score_reordered}, metrics=["mse"], estimators=["naive"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda users: users, r"cannot be called with two arguments .* gets an array of user ids"),
        (
            lambda users, items: np.zeros((99, 99))[users, items],
            r"the callable failed for .* user ids .*\(.*Error: .*predict\(users, items\)",
        ),
        (Pairs, "'a': Pairs is a class, not a fitted model"),
    ],
)
def test_a_callable_that_cannot_be_asked(log: Ratings, given: object, message: str) -> None:
    with pytest.raises(BadPredictionError, match=message):
        judge(log, given)


# Ranking among more items than the log knows


def test_a_scorer_cannot_rank_items_without_ids(log: Ratings) -> None:
    with pytest.raises(
        BadPredictionError, match="the universe has 12 items, but the log has the ids of only 9"
    ):
        judge(log, SCORES, ("dcg@3",), universe=(N_USERS, 12), estimators=["snips"])


def test_a_frame_of_positions_can(log: Ratings) -> None:
    frame = pd.DataFrame(as_columns()).assign(position=lambda cells: cells["position"] + 3)
    result = judge(
        log,
        frame,
        ("dcg",),
        universe=(N_USERS, 12),
        estimators=["naive"],
        position="position",
    )

    discount = (1 / np.log2(POSITIONS + 4))[log.user, log.item]
    per_slot = (discount * TRUTH[log.user, log.item]).sum() / discount.sum()
    assert result.risk("a", metric="dcg", estimator="naive").estimate == pytest.approx(
        per_slot * (1 / np.log2(np.arange(12) + 2)).sum()
    )


@pytest.mark.parametrize("kind", ["matrix", "callable", "pandas frame"])
def test_without_a_universe_nothing_can_be_ranked(log: Ratings, kind: str) -> None:
    alone = Ratings.from_frame(log.to_frame("pandas"))

    with pytest.raises(
        UniverseError, match=r"a ranking metric needs the number of all items\. Pass universe="
    ):
        judge(alone, EVERYWHERE[kind](), ("dcg@3",), estimators=["snips"])


@pytest.mark.parametrize("scores", [SCORES.T, np.stack([SCORES, SCORES])], ids=["turned", "both"])
def test_a_matrix_of_another_shape_is_named_by_ranking_metrics_too(
    log: Ratings, scores: Matrix
) -> None:
    with pytest.raises(BadPredictionError, match=rf"got predictions of shape \({len(scores)}, "):
        evaluate(log, scores, metrics=["recall@3"], estimators=["naive"], relevance_threshold=4)


def test_a_score_that_is_nan_names_model_user_and_item(log: Ratings) -> None:
    def score(users: np.ndarray, items: np.ndarray) -> Matrix:
        is_bad = (users == "u3")[:, None] & (items == ITEMS[2])
        return np.where(is_bad, np.nan, score_ids(users, items))

    message = f"model 'broken': the score of user 'u3' for item {ITEMS[2]} is NaN"
    with pytest.raises(BadPredictionError, match=message):
        evaluate(log, {"broken": score}, metrics=["dcg@3"], estimators=["naive"])
