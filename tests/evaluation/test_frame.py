"""One log in every engine: the same numbers as from arrays, to nine digits."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import duckdb
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unskew import Ratings, evaluate, evaluate_frame, simulate
from unskew.errors import (
    BadPredictionError,
    BadPropensityError,
    BadRatingError,
    ColumnError,
    DataError,
    DuplicateCellError,
    EmptyLogError,
    UniverseError,
    UnknownNameError,
    UnskewError,
    UnskewWarning,
    UsageError,
)
from unskew.estimators import Clip, Estimate, Shrink, SubGaussian, Switch
from unskew.evaluation import Evaluation
from unskew.evaluation.backends.narwhals import table
from unskew.evaluation.backends.narwhals.table import FrameTable
from unskew.evaluation.frame import GroupedEvaluation
from unskew.metrics.metric import Delta, MetricInput
from unskew.metrics.top_k import NormalizedGain, ReciprocalRank
from unskew.propensity import (
    LogisticPropensity,
    NaiveBayesPropensity,
    PopularityPropensity,
    UniformPropensity,
)
from unskew.types import Matrix, Vector

WORLD = simulate(40, 50, density=0.2, alpha=0.6, random_state=0)
LOG, TRUTH, P = WORLD.log, WORLD.truth.astype(float), WORLD.propensities.values
RNG = np.random.default_rng(7)
A: Matrix = TRUTH + RNG.normal(0, 1.0, TRUTH.shape)
B: Matrix = TRUTH + RNG.normal(0.3, 0.8, TRUTH.shape)
SPACE = (40, 50)

MEANS = ("mse", "mae", "accuracy", "dcg", "dcg@5", "cg@5", "precision@5")
RATIOS = ("recall@5", "stratified_recall@5", "atop")
LISTS = ("ndcg@5", "ndcg", "map", "map@5", "mrr", "hit_rate@5", "auc", "pooled_auc")
"""Metrics of whole lists, which are no sums over cells."""
TRANSFORMS = (Clip(6), Switch(6), Shrink(30), SubGaussian(0.2))


def positions(scores: Matrix) -> Vector:
    return (np.argsort(np.argsort(-scores, axis=1), axis=1) + 1)[LOG.user, LOG.item]


COLUMNS: dict[str, Any] = {
    "user_id": LOG.user,
    "item_id": LOG.item,
    "rating": LOG.rating,
    "a": A[LOG.user, LOG.item],
    "b": B[LOG.user, LOG.item],
    "propensity": P,
    "position_a": positions(A),
    "position_b": positions(B),
    "half": np.where(LOG.user < 15, "first", "second"),
}
MODELS: dict[str, Any] = {"prediction": ["a", "b"], "position": ["position_a", "position_b"]}

# The engines


def duckdb_relation(columns: dict[str, Any]) -> Any:
    return duckdb.from_arrow(pa.table(columns))


LOCAL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "polars-lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "duckdb": duckdb_relation,
}
Make = Callable[[dict[str, Any]], Any]


@pytest.fixture(params=[*LOCAL, "pyspark"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a frame of the engine from columns."""
    if request.param in LOCAL:
        return LOCAL[request.param]
    session = request.getfixturevalue("spark")
    return lambda columns: session.createDataFrame(pa.table(columns))


pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning:pyspark",
    "ignore::ResourceWarning",
    "ignore:few cells decide",
    "ignore:.* outside its range",
)

# Agreement with evaluate()


def from_arrays(rows: Vector | None = None, **options: Any) -> Evaluation:
    """What evaluate() says of the same log, or of some rows of it."""
    rows = np.ones(len(LOG), dtype=bool) if rows is None else rows
    ids = {name: COLUMNS[name][rows] for name in ("user_id", "item_id")}
    frames = {
        name: pl.DataFrame(
            ids | {"prediction": COLUMNS[name][rows], "position": COLUMNS[f"position_{name}"][rows]}
        )
        for name in "ab"
    }
    log = Ratings.from_arrays(LOG.user[rows], LOG.item[rows], LOG.rating[rows])
    return evaluate(
        log,
        frames,
        position="position",
        **({"propensities": P[rows], "universe": SPACE, "relevance_threshold": 4} | options),
    )


def from_frame(frame: Any, **options: Any) -> Any:
    return evaluate_frame(
        frame, **(MODELS | {"universe": SPACE, "relevance_threshold": 4} | options)
    )


def assert_same(result: Evaluation, expected: Evaluation) -> None:
    assert (result.models, result.metrics, result.estimators) == (
        expected.models,
        expected.metrics,
        expected.estimators,
    )
    assert (result.n_observed, result.universe, result.n_transformed) == (
        expected.n_observed,
        expected.universe,
        expected.n_transformed,
    )
    assert result.intervals == expected.intervals
    assert result.describe_propensities() == expected.describe_propensities()
    for key, theirs in expected.estimates.items():
        ours = result.estimates[key]
        assert ours.n_left_out == theirs.n_left_out
        for model in range(theirs.value.size):
            known = ours.known_std_error(model), theirs.known_std_error(model)
            assert known == (None, None) or known[0] == pytest.approx(known[1], rel=1e-9)
        by_t = replace(theirs, moments=None, degrees=ours.degrees)
        if key[0] in LISTS:  # its bias is estimated from random halves of the log
            assert (ours.ratio_bias is None) == (theirs.ratio_bias is None)
            by_t = replace(by_t, ratio_bias=ours.ratio_bias)
        for first, second in ((0, None), (1, None), (0, 1))[: 2 * theirs.value.size - 1]:
            numbers, wanted = interval(ours, first, second), interval(by_t, first, second)
            assert numbers == pytest.approx(wanted, rel=1e-9, nan_ok=True), (key, first, second)


def interval(estimate: Estimate, first: int, second: int | None) -> tuple[float, ...]:
    """Value, standard error, limits, p-value and degrees of freedom."""
    found = (
        estimate.of(first, level=0.95)
        if second is None
        else estimate.difference(first, second, level=0.95)
    )
    return found.value, found.std_error, found.low, found.high, found.p_value, found.degrees


@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
def test_every_engine_says_what_numpy_says(make: Make, cluster: Any) -> None:
    options = {"metrics": [*MEANS, *RATIOS, *LISTS], "cluster": cluster}

    assert_same(from_frame(make(COLUMNS), **options), from_arrays(**options))


def test_users_and_items_that_count_once_each(make: Make) -> None:
    options = {
        "metrics": ["mae", "cg@5"],
        "estimators": ["user_normalized", "item_normalized", "snips"],
        "cluster": "user",
    }

    assert_same(from_frame(make(COLUMNS), **options), from_arrays(**options))


@pytest.mark.parametrize("estimator", ["user_normalized", "item_normalized"])
@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
def test_an_estimator_alone_whose_units_are_not_the_clusters(cluster: Any, estimator: str) -> None:
    """Clusters are counted although no sum of the estimator is over them."""
    options = {"metrics": ["mse"], "estimators": [estimator], "cluster": cluster}

    assert_same(from_frame(pl.DataFrame(COLUMNS), **options), from_arrays(**options))


@pytest.mark.parametrize("metric", ["logged_ndcg@5", "logged_auc", "logged_user_auc"])
def test_metrics_of_logged_items_are_refused_by_name(metric: str) -> None:
    with pytest.raises(UsageError, match=f"^{metric} reads all .* of a sample of the users if"):
        from_frame(pl.DataFrame(COLUMNS), metrics=[metric], estimators=["naive"])


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda each: type(each).__name__)
def test_weight_transforms_are_the_same_formulas(make: Make, transform: Any) -> None:
    options = {
        "metrics": ["mae"],
        "weight_transform": transform,
        "estimators": ["ips", "snips", "user_normalized"],
    }
    result, expected = from_frame(make(COLUMNS), **options), from_arrays(**options)
    lists = options | {"metrics": LISTS, "estimators": ["snips"], "cluster": "user"}

    assert_same(result, expected)
    assert_same(from_frame(make(COLUMNS), **lists), from_arrays(**lists))
    assert result.n_transformed > 0
    assert result.weight_summary.effective_sample_size == pytest.approx(
        expected.weight_summary.effective_sample_size
    )


def test_groups_are_judged_in_one_pass_as_each_alone(make: Make) -> None:
    options = {
        "metrics": ["mse", "recall@5", "stratified_recall@5", "ndcg@5", "mrr"],
        "cluster": "user",
        "estimators": ["naive", "snips", "ips"],
    }
    sizes = {"first": (15, 50), "second": (25, 50)}
    result = from_frame(make(COLUMNS), by="half", universe=sizes, **options)

    assert isinstance(result, GroupedEvaluation)
    assert sorted(result) == ["first", "second"]
    for half, size in sizes.items():
        assert_same(result[half], from_arrays(COLUMNS["half"] == half, universe=size, **options))
    assert len(result.to_columns()["half"]) == 2 * 2 * 5 * 3


def test_rankings_from_a_frame_of_all_cells_share_tied_places(
    make: Make, request: pytest.FixtureRequest
) -> None:
    """Scores in halves tie often; unobserved cells have no rating and no propensity."""
    rounded = np.round(2 * A) / 2
    observed = np.zeros(SPACE, dtype=bool)
    observed[LOG.user, LOG.item] = True
    user, item = np.indices(SPACE)
    chance = np.zeros(SPACE)
    chance[LOG.user, LOG.item] = P
    columns = {
        "user_id": user.ravel(),
        "item_id": item.ravel(),
        "rating": [
            value if seen else None
            for value, seen in zip(TRUTH.ravel(), observed.ravel(), strict=True)
        ],
        "model": rounded.ravel(),
        "propensity": [
            value if seen else None
            for value, seen in zip(chance.ravel(), observed.ravel(), strict=True)
        ],
    }
    options: dict[str, Any] = {
        "metrics": ["mae", "dcg", "dcg@5", "recall@5", "atop", *LISTS],
        "universe": SPACE,
        "relevance_threshold": 4,
    }
    if "pyarrow" in request.node.callspec.id:
        with pytest.raises(DataError, match="pyarrow cannot rank rows within users"):
            evaluate_frame(make(columns), prediction="model", is_complete=True, **options)
        return
    result = evaluate_frame(make(columns), prediction="model", is_complete=True, **options)
    expected = evaluate(LOG, {"model": rounded}, propensities=P, **options)

    assert [risk.estimate for risk in result] == pytest.approx(
        [risk.estimate for risk in expected], rel=1e-9
    )
    assert [risk.std_error for risk in result] == pytest.approx(
        [risk.std_error for risk in expected], rel=1e-9
    )
    assert result.n_observed == len(LOG)


# Metrics of whole lists


@pytest.mark.filterwarnings("ignore:the inverse propensities add up")
@pytest.mark.parametrize("empty_users", ["drop", "one", "zero"])
def test_users_without_relevant_items_count_as_in_memory(empty_users: Any) -> None:
    """Also those of the universe who have no row at all."""
    few = LOG.user < 30
    metrics = [NormalizedGain(5, 4.0, empty_users), ReciprocalRank(None, 4.0, empty_users)]
    options: dict[str, Any] = {"metrics": metrics, "universe": (60, 50), "cluster": "user"}

    assert_same(
        from_frame(pl.DataFrame(take(few, COLUMNS)), **options), from_arrays(few, **options)
    )


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_blocks_of_users_change_nothing(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the order of rows nor the block in which a user is, nor the draws of the bias."""
    options: dict[str, Any] = {"metrics": ["ndcg@5", "auc"], "cluster": "user"}
    expected = from_frame(LOCAL[engine](COLUMNS), **options)
    shuffled = take(np.random.default_rng(0).permutation(len(LOG)), COLUMNS)
    monkeypatch.setattr(table, "BLOCK_ROWS", 7)
    result = from_frame(LOCAL[engine](shuffled), **options)

    assert_same(result, expected)
    for key, estimate in expected.estimates.items():
        if estimate.ratio_bias is not None:
            bias = result.estimates[key].ratio_bias
            assert bias is not None
            assert bias.first_order == pytest.approx(estimate.ratio_bias.first_order, nan_ok=True)


def test_the_bias_that_is_left_is_that_of_arrays() -> None:
    """Up to the draws of the halves: it is 0.2 of a standard error, and draws change it little."""
    options: dict[str, Any] = {
        "metrics": ["ndcg"],
        "estimators": ["snips"],
        "weight_transform": Clip(3),
        "cluster": "user",
    }
    ours, theirs = (
        result.estimates["ndcg", "snips"]
        for result in (from_frame(pl.DataFrame(COLUMNS), **options), from_arrays(**options))
    )
    for model in (0, 1):
        std_error = theirs.plain_std_error(model)
        assert 0.1 * std_error < theirs.find_ratio_bias(model) < 0.3 * std_error
        difference = ours.find_ratio_bias(model) - theirs.find_ratio_bias(model)
        assert abs(difference) < 0.1 * std_error


def test_metrics_with_a_plug_in_bias_are_named_as_in_memory() -> None:
    options: dict[str, Any] = {"metrics": ["map", "mrr", "ndcg@5"], "cluster": "user"}
    ours, theirs = from_frame(pl.DataFrame(COLUMNS), **options), from_arrays(**options)
    (note,) = [text for text in theirs.notes if "few observed relevant items" in text]

    assert "map and ndcg@5 by weights are biased" in note
    assert note in ours.notes


def test_gains_are_ratings_from_zero_on() -> None:
    options: dict[str, Any] = {"relevance_threshold": None, "metrics": ["ndcg@5"]}
    assert_same(from_frame(pl.DataFrame(COLUMNS), **options), from_arrays(**options))
    with pytest.raises(UsageError, match=r"ratings are gains here, but one is -2, which is"):
        from_frame(pl.DataFrame(broken("rating", -2.0)), **options)
    with pytest.raises(UsageError, match="all ratings are 0, so no item is relevant"):
        from_frame(pl.DataFrame(COLUMNS | {"rating": np.zeros(len(LOG))}), **options)


@pytest.mark.filterwarnings("ignore:the inverse propensities add up")
@pytest.mark.parametrize("engine", ["pandas", "polars", "duckdb"])
def test_dropped_rows_and_a_missing_group_do_not_change_the_lists_of_others(engine: str) -> None:
    """The first row of the log is bad, and users from 15 on have no group."""
    options: dict[str, Any] = {"metrics": ["ndcg@5", "mrr"], "cluster": "user"}
    columns = COLUMNS | {
        "rating": [None, *LOG.rating.tolist()[1:]],
        "half": [name if name == "first" else None for name in COLUMNS["half"]],
    }
    with pytest.warns(UnskewWarning, match=r"1 of 408 rows are dropped"):
        result = from_frame(LOCAL[engine](columns), by="half", on_bad="drop", **options)
    is_kept = np.arange(len(LOG)) > 0
    for group, is_in in (("first", LOG.user < 15), (None, LOG.user >= 15)):
        expected = from_arrays(is_in & is_kept, **options)
        for key, estimate in expected.estimates.items():
            assert result[group].estimates[key].value == pytest.approx(estimate.value, rel=1e-9)


def test_two_rows_of_a_user_with_one_position_are_named() -> None:
    relevant = np.flatnonzero(LOG.rating >= 4)[:1]
    twice = take(np.append(np.arange(len(LOG)), relevant), COLUMNS)
    with pytest.raises(BadPredictionError, match=r"two rows of a user have the same position"):
        from_frame(pl.DataFrame(twice), metrics=["mrr"])


@pytest.mark.parametrize("metric", ["mrr", "hit_rate@2"])
def test_two_relevant_cells_with_one_position_are_named_in_memory_too(metric: str) -> None:
    log = Ratings.from_arrays([0, 0, 0, 1], [0, 1, 2, 0], [1, 1, 0, 1], universe=(2, 4))
    options: dict[str, Any] = {"propensities": np.full(4, 0.5), "position": "place"}

    def judge(places: list[int]) -> Any:
        frame = pl.DataFrame({"user": [0, 0, 0, 1], "item": [0, 1, 2, 0], "place": places})
        return evaluate(log, {"m": frame}, metrics=[metric], universe=(2, 4), **options)

    with pytest.raises(BadPredictionError, match=r"two rows of a user have the same position"):
        judge([2, 2, 1, 1])
    assert np.isfinite([risk.estimate for risk in judge([2, 3, 1, 2])]).all()


def test_one_user_whose_rows_fill_several_blocks() -> None:
    blocks = [{"user": np.array(codes), "row": np.array(rows)} for codes, rows in BLOCKS]
    cut = [rows["row"].tolist() for rows in table.cut_users(iter(blocks), 2)]

    assert cut == [[0], [1, 2, 3, 4], [5]]


BLOCKS = (([1, 2], [0, 1]), ([2, 2], [2, 3]), ([2, 3], [4, 5]))

# Bad rows


def broken(column: str, *values: Any) -> dict[str, Any]:
    """The log with its first rows changed."""
    return COLUMNS | {column: [*values, *COLUMNS[column].tolist()[len(values) :]]}


BAD = {
    "rating null": (
        "rating",
        None,
        BadRatingError,
        r"1 of \d+ ratings are missing or not finite; one is (None|nan) at user",
    ),
    "rating nan": ("rating", float("nan"), BadRatingError, "ratings are missing or not finite"),
    "rating infinite": ("rating", float("inf"), BadRatingError, "one is inf at user 0, item"),
    "prediction null": ("b", None, BadPredictionError, "predictions of 'b' are missing"),
    "prediction nan": ("a", float("nan"), BadPredictionError, "predictions of 'a' are missing"),
    "propensity null": ("propensity", None, BadPropensityError, "propensities are missing"),
    "propensity nan": ("propensity", float("nan"), BadPropensityError, "propensities are missing"),
    "propensity zero": (
        "propensity",
        0.0,
        BadPropensityError,
        r"are 0, negative or too small.*one is 0.0 at user 0, item",
    ),
    "propensity negative": ("propensity", -0.1, BadPropensityError, "are 0, negative"),
    "propensity above one": ("propensity", 1.5, BadPropensityError, "above 1; one is 1.5"),
    "user null": ("user_id", None, BadRatingError, "1 of .* user ids are missing"),
    "position zero": (
        "position_a",
        0,
        BadPredictionError,
        "positions of 'a' are not whole numbers",
    ),
    "position half": (
        "position_a",
        1.5,
        BadPredictionError,
        "positions of 'a' are not whole numbers",
    ),
    "position null": (
        "position_b",
        None,
        BadPredictionError,
        "positions of 'b' are not whole numbers",
    ),
    "position infinite": (
        "position_b",
        float("inf"),
        BadPredictionError,
        "positions of 'b' are not whole numbers",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_counted_and_shown_or_dropped(make: Make, case: str) -> None:
    column, value, error, match = BAD[case]
    columns = broken(column, value)
    if column == "position_a" and value == 1.5:
        columns[column] = list(map(float, columns[column]))
    options: dict[str, Any] = {"metrics": ["mse", "dcg@5"], "cluster": "user"}
    with pytest.raises(error, match=match):
        from_frame(make(columns), **options)

    with pytest.warns(UnskewWarning, match="1 of .* rows are dropped: 1 "):
        result = from_frame(make(columns), on_bad="drop", **options)
    rows = np.arange(len(LOG)) > 0
    assert_same(result, from_arrays(rows, **options))
    assert result.n_dropped == json.loads(result.to_json())["n_dropped"] == 1
    assert "1 bad row dropped" in repr(result)


def without_rows(make: Make) -> Any:
    frame = make(COLUMNS)
    if isinstance(frame, (pd.DataFrame, pa.Table)):
        return frame[:0]
    return frame.filter(
        pl.col("rating") > 99 if isinstance(frame, (pl.DataFrame, pl.LazyFrame)) else "rating > 99"
    )


def test_no_rows_is_an_error(make: Make) -> None:
    with pytest.raises(EmptyLogError, match="the frame has no ratings"):
        from_frame(without_rows(make))
    with pytest.raises(EmptyLogError):
        from_frame(
            without_rows(make), metrics=["accuracy", "recall@5"], universe="log", cluster="user"
        )


def test_no_rows_left_is_an_error() -> None:
    columns = COLUMNS | {"rating": [None] * len(LOG)}
    with pytest.raises(
        EmptyLogError, match=f"none of {len(LOG)} rows can be used: {len(LOG)} ratings are missing"
    ):
        from_frame(pl.DataFrame(columns, schema_overrides={"rating": pl.Float64}), on_bad="drop")


def test_repeated_cells_are_refused_on_request(make: Make) -> None:
    columns = {name: [*values, values[3]] for name, values in COLUMNS.items()}
    with pytest.raises(
        DuplicateCellError, match=f"1 rows repeat .* user {LOG.user[3]}, item {LOG.item[3]}"
    ):
        from_frame(make(columns), check_duplicates=True)
    assert from_frame(make(COLUMNS), check_duplicates=True).n_observed == len(LOG)


def test_any_name_of_a_column_will_do(make: Make) -> None:
    odd = {
        "user_id": "the user.id",
        "rating": "ra`ting",
        "a": 'model "A".1',
        "b": "b' $[0]",
        "propensity": "é p%",
    }
    columns = {
        odd.get(name, name): values
        for name, values in COLUMNS.items()
        if not name.startswith("place")
    }
    result = evaluate_frame(
        make(columns),
        prediction=[odd["a"], odd["b"]],
        user=odd["user_id"],
        rating=odd["rating"],
        propensity=odd["propensity"],
        cluster="user",
        universe={"first": (15, 50), "second": (25, 50)},
        by="half",
    )["first"]
    expected = from_arrays(
        COLUMNS["half"] == "first", cluster="user", universe=(15, 50), metrics=["mse", "mae"]
    )
    assert [risk.estimate for risk in result] == pytest.approx([risk.estimate for risk in expected])


def test_the_log_can_be_its_own_universe(make: Make) -> None:
    result = from_frame(make(COLUMNS), universe="log", metrics=["dcg@5"])

    assert_same(result, from_arrays(universe="log", metrics=["dcg@5"]))


# What is read, and how often


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cluster": None},
        {"cluster": "user"},
        {"cluster": "both"},
        {"cluster": "item", "by": "half", "universe": {"first": (15, 50), "second": (25, 50)}},
        {"estimators": ["naive", "user_normalized"]},
    ],
)
def test_the_log_is_read_once_and_nothing_but_sums_is_fetched(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    fetched: list[int] = []
    fetch = FrameTable._fetch

    def counting(table: FrameTable, frame: Any) -> dict[str, list[Any]]:
        result = fetch(table, frame)
        fetched.append(len(next(iter(result.values()))))
        return result

    monkeypatch.setattr(FrameTable, "_fetch", counting)
    from_frame(
        pl.LazyFrame(COLUMNS),
        metrics=["mse", "dcg@5", "recall@5"] if "estimators" not in options else ["mse"],
        **options,
    )
    assert len(fetched) == 1
    assert fetched[0] <= 4


def test_ids_are_read_only_if_something_depends_on_them() -> None:
    columns = broken("user_id", None)
    result = from_frame(pl.DataFrame(columns), metrics=["mse"], cluster=None)
    assert result.n_observed == len(LOG)
    with pytest.raises(BadRatingError, match=r"1 of .* user ids are missing"):
        from_frame(pl.DataFrame(columns), metrics=["mse"])
    without = {
        name: values for name, values in COLUMNS.items() if name not in ("user_id", "item_id")
    }
    assert from_frame(pl.DataFrame(without), metrics=["mse", "dcg@5"]).n_observed == len(LOG)
    for options in (
        {"cluster": "user"},
        {"metrics": ["recall@5"]},
        {"estimators": ["item_normalized"], "metrics": ["mse"]},
    ):
        with pytest.raises(ColumnError, match=r"no column looks like the (user|item)"):
            from_frame(pl.DataFrame(without), **options)


def test_the_naive_average_needs_no_propensity(make: Make) -> None:
    columns = {name: COLUMNS[name] for name in ("rating", "a", "b")}
    result = evaluate_frame(make(columns), prediction=["a", "b"], estimators="naive", metrics="mae")
    delta = np.abs(LOG.rating - COLUMNS["a"])

    risk = result.risk("a", metric="mae", estimator="naive")
    assert (risk.estimate, risk.std_error) == pytest.approx(
        (delta.mean(), delta.std() / np.sqrt(delta.size))
    )
    assert result.weight_summary is None


# What the caller may bring, and what is refused


class Hinge:
    """A metric of the caller, written with NumPy functions."""

    name, higher_is_better, ranks, top = "hinge", False, False, None

    def __call__(self, cells: MetricInput, /) -> Delta:
        return Delta(
            np.maximum(np.abs(cells.rating - cells.require_predictions()) - 0.5, 0.0) ** 1.5
        )


class Median(Hinge):
    """A metric that is not elementwise."""

    name = "median"

    def __call__(self, cells: MetricInput, /) -> Delta:
        return Delta(np.abs(cells.rating - np.median(cells.require_predictions())))


def test_a_metric_of_the_caller_is_evaluated_by_the_engine(make: Make) -> None:
    assert_same(from_frame(make(COLUMNS), metrics=[Hinge()]), from_arrays(metrics=[Hinge()]))


def test_formulas_that_are_not_elementwise_raise_an_error() -> None:
    with pytest.raises(UsageError, match=r"numpy.median, which data frames cannot evaluate"):
        from_frame(pl.DataFrame(COLUMNS), metrics=[Median()])
    with pytest.raises(UsageError, match="returned float for a column of a data frame"):
        from_frame(pl.DataFrame(COLUMNS), metrics=["mse"], weight_transform=lambda weight: 1.0)
    with pytest.raises(UsageError, match="one finite weight of at least 0"):
        from_frame(pl.DataFrame(COLUMNS), metrics=["mse"], weight_transform=lambda weight: -weight)
    with pytest.raises(
        UsageError, match="'dr' needs imputed ratings of all cells, but a data frame has only"
    ):
        from_frame(pl.DataFrame(COLUMNS), metrics=["mse"], estimators=["dr"])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"universe": None}, UniverseError, "'ips' divides by the number of all cells"),
        (
            {"universe": None, "metrics": ["dcg"], "estimators": ["snips"]},
            UniverseError,
            "needs the number of all items",
        ),
        (
            {"universe": (3, 4)},
            UniverseError,
            r"the universe has 3 users x 4 items, but the log alone has \d+ rows",
        ),
        (
            {"universe": (39, 500), "cluster": "user"},
            UniverseError,
            "the log alone has .* 40 users",
        ),
        (
            {"universe": {"first": (40, 50)}},
            UsageError,
            "size for each group, but there are no groups",
        ),
        (
            {"universe": {"first": (15, 50)}, "by": "half"},
            UniverseError,
            "universe has no entry for the group 'second'",
        ),
        (
            {"universe": (40, 20), "metrics": ["dcg"]},
            BadPredictionError,
            "positions of 'a' are beyond the 20 items",
        ),
        (
            {"metrics": ["precision@5"], "relevance_threshold": None},
            UsageError,
            "ratings other than 0 and 1, such as 5",
        ),
        (
            {"metrics": ["recall@5"], "relevance_threshold": 6},
            UsageError,
            "no rating is relevant: the largest is 5",
        ),
        (
            {"metrics": ["mse"], "position": None, "prediction": ["a", "a"]},
            UsageError,
            "names a column twice",
        ),
        (
            {"metrics": ["dcg"], "position": "position_a"},
            UsageError,
            "there are 2 models, 'a', 'b', but 1 column of positions, 'position_a'. ",
        ),
        ({"prediction": "c"}, ColumnError, "there is no column 'c' for prediction="),
        ({"prediction": []}, UsageError, "must be the name of a column"),
        ({"prediction": 3}, UsageError, "must be the name of a column"),
        ({"by": "country"}, ColumnError, "there is no column 'country' for by; the columns are"),
        ({"rating": "half"}, BadRatingError, "column 'half' has the type String, not numbers"),
        ({"cluster": "country"}, UnknownNameError, "unknown value 'country' of cluster"),
        ({"on_bad": "ignore"}, UnknownNameError, "unknown value 'ignore' of on_bad"),
        ({"level": 95}, UsageError, "level must lie"),
        (
            {"estimators": ["user_normalized"], "metrics": ["recall@5"]},
            UsageError,
            "not for ratios such as recall",
        ),
        (
            {"weight_transform": Switch(1), "estimators": ["snips"]},
            UsageError,
            "every cell that this metric counts has weight 0",
        ),
        (
            {"weight_transform": Switch(1), "estimators": ["ips"]},
            UsageError,
            "all weights are zero",
        ),
    ],
)
def test_invalid_arguments_raise_an_error(
    options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        from_frame(pl.DataFrame(COLUMNS), **({"metrics": ["mse"]} | options))


def test_only_frames_are_accepted() -> None:
    with pytest.raises(DataError, match=r"expected a data frame .*got builtins.str"):
        evaluate_frame("log.csv")
    twice = pd.DataFrame([[1.0, 2.0]], columns=["rating", "rating"])
    with pytest.raises(ColumnError, match="two columns of the frame have one name"):
        evaluate_frame(twice)


def test_users_with_missing_items_have_no_full_ranking() -> None:
    with pytest.raises(BadPredictionError, match="40 users have more or fewer than 50 rows"):
        evaluate_frame(
            pl.DataFrame(COLUMNS), prediction="a", metrics=["dcg"], universe=SPACE, is_complete=True
        )


def test_weak_weights_are_warned_about() -> None:
    with pytest.warns(UnskewWarning, match="add up to"):
        result = from_frame(pl.DataFrame(COLUMNS), metrics=["mse"], universe=(400, 500))
    assert result.weight_summary.top_share is None


def test_groups_show_themselves() -> None:
    result = from_frame(
        pl.DataFrame(COLUMNS), metrics=["mae"], estimators=["snips"], by="half", universe=None
    )

    assert repr(result).splitlines()[0].split() == [
        "half",
        "model",
        "metric",
        "estimator",
        "estimate",
        "std_error",
        "ci_low",
        "ci_high",
        "degrees",
    ]
    assert result.to_frame().shape == (4, 9)
    assert {each["group"] for each in json.loads(result.to_json())["groups"]} == {"first", "second"}
    assert "<table>" in result._repr_html_()
    with pytest.raises(UnknownNameError, match="unknown half 'third'"):
        result["third"]


# Never a silent NaN

numbers = st.one_of(
    st.none(),
    st.floats(allow_subnormal=False),
    st.sampled_from([0.0, 0.5, 1.0, 4.0, 5.0]),
    st.integers(-3, 9),
)
anything = st.one_of(numbers, st.text(max_size=3), st.booleans(), st.dates())


@st.composite
def small_frames(draw: st.DrawFn) -> pd.DataFrame | pl.DataFrame | pa.Table:
    names = draw(
        st.lists(
            st.sampled_from(["user_id", "item_id", "rating", "prediction", "propensity", "x"]),
            min_size=1,
            max_size=7,
        )
    )
    n_rows = draw(st.integers(0, 6))
    values = [
        draw(st.lists(draw(st.sampled_from([numbers, anything])), min_size=n_rows, max_size=n_rows))
        for _ in names
    ]
    if draw(st.booleans()) or len(set(names)) < len(names):
        frame = pd.DataFrame(dict(enumerate(values)))
        frame.columns = names
        return frame
    return pl.DataFrame(dict(zip(names, values, strict=True)), strict=False)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@given(
    frame=small_frames(),
    on_bad=st.sampled_from(["raise", "drop"]),
    cluster=st.sampled_from([None, "user", "item", "both", "auto"]),
    estimators=st.sampled_from(
        [["naive", "ips", "snips"], ["user_normalized"], ["item_normalized", "naive"]]
    ),
    metrics=st.sampled_from([["mse", "mae"], ["accuracy"]]),
)
def test_a_frame_of_anything_gives_finite_numbers_or_an_error_of_ours(
    frame: Any, on_bad: Any, cluster: Any, estimators: list[str], metrics: list[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = evaluate_frame(
                frame,
                metrics=metrics,
                estimators=estimators,
                cluster=cluster,
                on_bad=on_bad,
                universe=(9, 9),
                check_duplicates=True,
            )
        except UnskewError:
            return
    assert all(
        np.isfinite([risk.estimate, risk.std_error, risk.ci_low, risk.ci_high]).all()
        for risk in result
    )


# From a log to an estimate without fetching it


def test_propensities_of_counts_are_a_column_that_can_be_weighted_by(make: Make) -> None:
    columns = {name: values for name, values in COLUMNS.items() if name != "propensity"}
    by_frame = PopularityPropensity("both", smoothing=1.0).fit_frame(make(columns), universe=SPACE)
    weighted = by_frame.predict_frame(make(columns))
    model = PopularityPropensity("both", smoothing=1.0).fit(LOG, universe=SPACE)
    options = {"metrics": ["mae"], "estimators": ["snips"]}
    known = model.predict(LOG).as_known()

    assert_same(from_frame(weighted, **options), from_arrays(propensities=known, **options))


# A cluster's troubles


def test_a_task_that_dies_is_run_again_and_changes_nothing(spark: Any) -> None:
    def dies_once(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and context.partitionId() == 0:
            raise RuntimeError("the machine of this task is gone")
        yield from batches

    frame = spark.createDataFrame(pa.table(COLUMNS)).repartition(4)
    shaky = frame.mapInArrow(dies_once, frame.schema)
    options = {"metrics": ["mse", "mae"], "cluster": "user"}

    assert_same(from_frame(shaky, **options), from_arrays(**options))


def test_a_duplicate_cell_counts_twice_by_default() -> None:
    frame = pl.DataFrame(
        {
            "user_id": [1, 1, 2],
            "item_id": [1, 1, 1],
            "rating": [5, 5, 1],
            "prediction": [4.0, 4.0, 1.0],
        }
    )
    result = evaluate_frame(frame, metrics=["mae"], estimators=["naive"])

    assert result.to_columns()["estimate"] == [pytest.approx(2 / 3)]
    assert "count as often as they occur" in str(evaluate_frame.__doc__)
    with pytest.raises(DuplicateCellError):
        evaluate_frame(frame, metrics=["mae"], estimators=["naive"], check_duplicates=True)


# Clusters by default


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
def test_users_are_the_clusters_unless_each_has_one_row() -> None:
    frame = pl.DataFrame(COLUMNS)
    options: dict[str, Any] = {
        "metrics": ["mse", "stratified_recall@5"],
        "estimators": ["naive", "snips"],
    }
    assert_same(from_frame(frame, **options), from_arrays(cluster="user", **options))
    assert "clustered by user" in repr(from_frame(frame, **options))

    first = np.unique(LOG.user, return_index=True)[1]
    rows = np.isin(np.arange(len(LOG)), first)
    result = from_frame(frame.filter(rows), **options)
    assert_same(result, from_arrays(rows, cluster=None, **options))
    assert "cells independent" in repr(result)

    mixed = np.where(COLUMNS["half"] == "first", rows, True)
    grouped = from_frame(frame.filter(mixed), by="half", universe=SPACE, **options)
    for half, cluster, words in (
        ("first", None, "cells independent"),
        ("second", "user", "clustered by user"),
    ):
        assert grouped[half].intervals == words
        expected = from_arrays(mixed & (COLUMNS["half"] == half), cluster=cluster, **options)
        assert_same(grouped[half], expected)


def test_rows_without_a_user_are_dropped_also_if_each_user_has_one_row() -> None:
    frame = pl.DataFrame(
        {
            "user_id": ["a", "b", "c", None],
            "item_id": [1, 2, 3, 4],
            "rating": [1.0, 2.0, 3.0, 4.0],
            "prediction": [2.0] * 4,
        }
    )
    with pytest.warns(UnskewWarning, match="1 of 4 rows are dropped"):
        result = evaluate_frame(frame, metrics=["mse"], estimators=["naive"], on_bad="drop")
    assert (result.n_observed, result.n_dropped) == (3, 1)  # type: ignore[union-attr]


def test_frames_without_users_have_independent_cells() -> None:
    without = pl.DataFrame(COLUMNS).drop("user_id")
    assert_same(from_frame(without, metrics=["mse"]), from_arrays(metrics=["mse"], cluster=None))
    with pytest.raises(ColumnError, match="there is no column 'who' for user="):
        from_frame(without, metrics=["mse"], user="who")
    two = pl.DataFrame(COLUMNS).rename({"user_id": "user"}).with_columns(uid=pl.col("user"))
    with pytest.raises(ColumnError, match="several columns could be the user: 'user', 'uid'"):
        from_frame(two, metrics=["mse"])


def test_the_result_says_that_its_intervals_are_not_corrected_for_skewness() -> None:
    result = from_frame(pl.DataFrame(COLUMNS), metrics=["mse"])

    note = "intervals are Student's t, not corrected for skewness"
    assert note in repr(result).splitlines()
    assert result.to_record()["notes"] == [note]


def test_degrees_of_freedom() -> None:
    """Clusters less 1; effective cells less 1, of those that the base of a ratio counts."""
    frame, weight = pl.DataFrame(COLUMNS), 1 / P
    is_relevant = LOG.rating >= 4
    expected = {
        ("mse", "naive"): len(LOG) - 1,
        ("mse", "snips"): weight.sum() ** 2 / np.square(weight).sum() - 1,
        ("cg@5", "ips"): weight.sum() ** 2 / np.square(weight).sum() - 1,
    }
    result = from_frame(frame, metrics=["mse", "cg@5", "stratified_recall@5"], cluster=None)
    for key, degrees in expected.items():
        assert result.estimates[key].of(0, level=0.9).degrees == pytest.approx(degrees)
    ratio = result.estimates["stratified_recall@5", "snips"].of(0, level=0.9).degrees
    assert ratio < is_relevant.sum()
    both = from_frame(frame, metrics=["mse"], cluster="both")
    assert both.estimates["mse", "ips"].of(0, level=0.9).degrees == min(SPACE) - 1


@pytest.mark.parametrize("cluster", ["user", "item", "both"])
def test_one_cluster_has_no_standard_error(cluster: Any) -> None:
    frame = pl.DataFrame(COLUMNS).filter(LOG.user == 0)
    options: dict[str, Any] = {"metrics": ["mse"], "estimators": ["snips"], "universe": None}
    if cluster == "item":
        frame = pl.DataFrame(COLUMNS).filter(LOG.item == LOG.item[0])
    with pytest.raises(UsageError, match="needs at least 2 clusters"):
        from_frame(frame, cluster=cluster, **options)


# Estimated propensities

SAMPLE = RNG.choice(np.arange(1.0, 6.0), 300, p=[0.3, 0.25, 0.2, 0.15, 0.1])
BY_USER = Ratings.from_arrays(np.repeat(np.arange(30), 10), np.tile(np.arange(10), 30), SAMPLE)
SHARES = {1.0: 0.3, 2.0: 0.25, 3.0: 0.2, 4.0: 0.15, 5.0: 0.1}
UNWEIGHTED = {name: values for name, values in COLUMNS.items() if name != "propensity"}
FITS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "naive Bayes": (NaiveBayesPropensity, {"mcar": SAMPLE}),
    "naive Bayes, users": (NaiveBayesPropensity, {"mcar": BY_USER}),
    "naive Bayes, shares": (NaiveBayesPropensity, {"mcar": SHARES}),
    "items": (PopularityPropensity, {}),
    "users": (lambda: PopularityPropensity("user"), {}),
    "uniform": (UniformPropensity, {}),
}


def take(rows: Vector | None, columns: dict[str, Any] = UNWEIGHTED) -> dict[str, Any]:
    return columns if rows is None else {name: values[rows] for name, values in columns.items()}


def fit_both(fit: str, make: Make, rows: Vector | None = None) -> tuple[Any, Any]:
    """The same model, fitted to arrays and to a frame."""
    columns = take(rows)
    new, options = FITS[fit]
    log = Ratings.from_arrays(columns["user_id"], columns["item_id"], columns["rating"])
    of_log = new().fit(log, universe=SPACE, **options)
    if isinstance(of_log, UniformPropensity):
        return of_log, of_log
    return of_log, new().fit_frame(make(columns), universe=SPACE, **options)


ESTIMATED: dict[str, Any] = {
    "metrics": ["mse", "mae", "recall@5", "stratified_recall@5", "ndcg@5", "mrr"],
    "estimators": ["naive", "ips", "snips"],
}


@pytest.mark.filterwarnings("ignore:the variance of item totals")
@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
@pytest.mark.parametrize("fit", FITS)
def test_the_error_of_estimated_propensities_is_that_of_arrays(
    make: Make, fit: str, cluster: Any, request: pytest.FixtureRequest
) -> None:
    if "pyspark" in request.node.callspec.id and (
        fit not in ("naive Bayes", "items") or cluster in ("user", "item")
    ):
        pytest.skip("Spark is slow; the other cases test the same queries")
    of_log, of_frame = fit_both(fit, make)
    options = ESTIMATED | {"cluster": cluster}
    result = from_frame(make(UNWEIGHTED), propensity=of_frame, **options)
    expected = from_arrays(propensities=of_log, **options)

    assert_same(result, expected)
    risk = result.risk("a", metric="mse", estimator="ips")
    assert risk.std_error_known is not None
    assert risk.std_error != pytest.approx(risk.std_error_known, rel=1e-3) or cluster is not None
    assert (result.estimates["mse", "ips"].outside is None) == (
        fit not in ("naive Bayes", "naive Bayes, users")
    )


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
@pytest.mark.parametrize("cluster", [None, "user", "both"])
@pytest.mark.parametrize("fit", ["naive Bayes", "items", "users", "uniform"])
def test_groups_are_parts_of_the_log_of_the_fit(fit: str, cluster: Any) -> None:
    """Also if one group is all of it, because the model was fitted to that group alone."""
    options = ESTIMATED | {"cluster": cluster}
    is_even = np.arange(len(LOG)) % 2 == 0
    columns = UNWEIGHTED | {"part": np.where(is_even, "even", "odd")}
    is_listed = np.isin(LOG.item, LOG.item[is_even]) & np.isin(LOG.user, LOG.user[is_even])
    for fitted, judged in ((None, np.ones(len(LOG), dtype=bool)), (is_even, is_listed)):
        of_log, of_frame = fit_both(fit, pl.DataFrame, fitted)
        frame = pl.DataFrame(take(judged, columns))
        result = from_frame(frame, propensity=of_frame, by="part", **options)
        for part in ("even", "odd"):
            rows = judged & (columns["part"] == part)
            log = Ratings.from_arrays(LOG.user[rows], LOG.item[rows], LOG.rating[rows])
            propensities = of_log.predict(log)
            if fitted is None:
                propensities = of_log.predict(LOG).take(np.flatnonzero(rows).astype(np.int32))
            expected = from_arrays(rows, propensities=propensities, **options)
            assert_same(result[part], expected)


@pytest.mark.filterwarnings("ignore:the variance of item totals")
@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
@pytest.mark.parametrize("transform", [Clip(6), Shrink(30)], ids=["clip", "shrink"])
@pytest.mark.parametrize("fit", ["naive Bayes", "items", "users"])
def test_weights_that_move_less_than_propensities(fit: str, transform: Any, cluster: Any) -> None:
    of_log, of_frame = fit_both(fit, pl.LazyFrame)
    options = ESTIMATED | {"cluster": cluster, "weight_transform": transform}
    result = from_frame(pl.LazyFrame(UNWEIGHTED), propensity=of_frame, **options)
    assert_same(result, from_arrays(propensities=of_log, **options))


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
@pytest.mark.parametrize("every", [7, 40])
@pytest.mark.parametrize("fit", ["naive Bayes", "items", "users"])
def test_strata_of_one_cell_have_the_variance_of_others(fit: str, every: int, cluster: Any) -> None:
    rows = np.arange(len(LOG)) % every == 0
    of_log, of_frame = fit_both(fit, pl.DataFrame, rows)
    options = ESTIMATED | {"cluster": cluster, "metrics": ["mse"]}
    result = from_frame(pl.DataFrame(take(rows)), propensity=of_frame, **options)
    assert_same(result, from_arrays(rows, propensities=of_log, **options))


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
@pytest.mark.parametrize("cluster", [None, "user", "item", "both"])
def test_propensities_that_are_limited_to_one(cluster: Any) -> None:
    """Naive Bayes with too few ratings of a level in the sample, and items that all users rate."""
    sample = {1.0: 400, 2.0: 400, 3.0: 400, 4.0: 100, 5.0: 1}
    options = ESTIMATED | {"cluster": cluster, "universe": (40, 50)}
    log = Ratings.from_arrays(LOG.user, LOG.item, LOG.rating)
    model = NaiveBayesPropensity(smoothing=0).fit(log, universe=SPACE, mcar=sample)
    assert model.propensity_by_level_.max() == 1
    result = from_frame(pl.DataFrame(UNWEIGHTED), propensity=model, **options)
    assert_same(result, from_arrays(propensities=model, **options))

    user, item = np.divmod(np.arange(200), 10)
    rng = np.random.default_rng(0)
    is_kept = (item < 3) | (rng.random(200) < 0.3)
    columns = {
        "user_id": user[is_kept],
        "item_id": item[is_kept],
        "rating": rng.integers(1, 6, is_kept.sum()).astype(float),
        "a": rng.normal(3, 1, is_kept.sum()),
    }
    log = Ratings.from_arrays(*list(columns.values())[:3])
    settings: dict[str, Any] = {"universe": (20, 10), "cluster": cluster}
    counted = PopularityPropensity().fit_frame(pl.DataFrame(columns), universe=(20, 10))
    result = evaluate_frame(pl.DataFrame(columns), prediction="a", propensity=counted, **settings)
    model = PopularityPropensity().fit(log, universe=(20, 10))
    expected = evaluate(log, {"a": columns["a"]}, propensities=model, **settings)
    assert_same(result, expected)


def test_means_over_users_and_over_items_with_estimated_propensities(make: Make) -> None:
    of_log, of_frame = fit_both("naive Bayes, users", make)
    options = {"metrics": ["mse"], "estimators": ["user_normalized", "item_normalized", "snips"]}
    assert_same(
        from_frame(make(UNWEIGHTED), propensity=of_frame, **options),
        from_arrays(propensities=of_log, **options),
    )


def test_dropped_rows_make_the_log_a_part(make: Make) -> None:
    of_log, of_frame = fit_both("naive Bayes", make)
    columns = UNWEIGHTED | {"a": [None, *COLUMNS["a"].tolist()[1:]]}
    options = ESTIMATED | {"cluster": None}
    with pytest.warns(UnskewWarning, match=r"1 of .* rows are dropped"):
        result = from_frame(make(columns), propensity=of_frame, on_bad="drop", **options)
    rows = np.arange(len(LOG)) > 0
    part = of_log.predict(LOG).take(np.flatnonzero(rows).astype(np.int32))
    assert_same(result, from_arrays(rows, propensities=part, **options))


@pytest.mark.filterwarnings("ignore:the variance of item totals")
@pytest.mark.parametrize("fit", ["naive Bayes", "items", "uniform"])
def test_estimated_propensities_can_be_taken_as_known(make: Make, fit: str) -> None:
    of_log, of_frame = fit_both(fit, make)
    options = {"metrics": ["mse"], "propensities_known": True, "cluster": "user"}
    result = from_frame(make(UNWEIGHTED), propensity=of_frame, **options)
    assert_same(result, from_arrays(propensities=of_log, **options))
    assert "because the caller takes them as known" in " ".join(repr(result).split())


def test_the_result_says_how_propensities_were_estimated() -> None:
    _, model = fit_both("naive Bayes, users", pl.DataFrame)
    text = repr(from_frame(pl.DataFrame(UNWEIGHTED), propensity=model, metrics=["mse"]))
    assert "estimated by NaiveBayesPropensity from the log and 300 random ratings of 30" in text
    assert "taken as known" in repr(from_frame(pl.DataFrame(COLUMNS), metrics=["mse"]))


def test_columns_of_the_caller_may_have_any_name(make: Make) -> None:
    of_log, of_frame = fit_both("items", make)
    odd = ("propensity_of_model", "propensity_of_model__item_count", "item_count", "stratum")
    columns = UNWEIGHTED | dict.fromkeys(odd, np.full(len(LOG), 7.0))
    result = from_frame(make(columns), propensity=of_frame, metrics=["mse"])
    assert_same(result, from_arrays(propensities=of_log, metrics=["mse"]))


def test_models_without_strata_are_refused_by_name() -> None:
    frame = pl.DataFrame(UNWEIGHTED)
    log = Ratings.from_arrays(LOG.user, LOG.item, LOG.rating)
    both = PopularityPropensity("both").fit_frame(frame, universe=SPACE)
    options: dict[str, Any] = {"metrics": ["mse"], "estimators": ["snips"]}
    for model in (both, PopularityPropensity(power=0.5).fit_frame(frame, universe=SPACE)):
        with pytest.raises(UsageError, match=r"the error of propensities by Popularity.*strata"):
            from_frame(frame, propensity=model, **options)
    known = from_frame(frame, propensity=both, propensities_known=True, **options)
    model = PopularityPropensity("both").fit(log, universe=SPACE)
    assert_same(known, from_arrays(propensities=model, propensities_known=True, **options))
    with pytest.raises(UsageError, match="the error of propensities by LogisticPropensity"):
        from_frame(frame, propensity=LogisticPropensity(), **options)
    with pytest.raises(UsageError, match=r"LogisticPropensity\(\) is not fitted yet"):
        from_frame(frame, propensity=LogisticPropensity(), propensities_known=True, **options)
    binned = NaiveBayesPropensity(bins=[2.5]).fit(log, universe=SPACE, mcar=SAMPLE)
    with pytest.raises(UsageError, match="bins are not supported for frames"):
        from_frame(frame, propensity=binned, **options)
    with pytest.raises(UsageError, match="needs a model that was fitted with fit_frame"):
        from_frame(frame, propensity=PopularityPropensity().fit(log, universe=SPACE), **options)
    with pytest.raises(UsageError, match="not fitted yet"):
        from_frame(frame, propensity=UniformPropensity(), **options)


def test_a_rating_that_the_fit_never_saw_has_no_propensity(make: Make) -> None:
    _, model = fit_both("naive Bayes", make)
    columns = UNWEIGHTED | {"rating": np.where(np.arange(len(LOG)) == 3, 2.5, LOG.rating)}
    with pytest.raises(BadRatingError, match=r"1 of .* ratings were not in the log that.* 2.5 at"):
        from_frame(make(columns), propensity=model, metrics=["mse"])


@pytest.mark.parametrize(
    ("fit", "cluster", "n_queries"),
    [
        ("naive Bayes", None, 1),
        ("naive Bayes", "user", 2),
        ("items", None, 1),
        ("items", "user", 1),
        ("items", "both", 1),
    ],
)
def test_estimated_propensities_take_at_most_one_more_query(
    monkeypatch: pytest.MonkeyPatch, fit: str, cluster: Any, n_queries: int
) -> None:
    _, model = fit_both(fit, pl.LazyFrame)
    fetched: list[int] = []
    fetch = FrameTable._fetch

    def counting(table: FrameTable, frame: Any) -> dict[str, list[Any]]:
        result = fetch(table, frame)
        fetched.append(len(next(iter(result.values()))))
        return result

    monkeypatch.setattr(FrameTable, "_fetch", counting)
    options: dict[str, Any] = {"metrics": ["mse", "mae"], "cluster": cluster}
    from_frame(pl.LazyFrame(UNWEIGHTED), propensity=model, **options)
    assert len(fetched) == n_queries
    assert max(fetched) <= 5


def test_no_query_adds_an_empty_set_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark Connect refuses ``withColumns`` without columns, and no other library does."""
    n_added: list[int] = []
    add = nw.LazyFrame.with_columns

    def count(frame: Any, *columns: Any) -> Any:
        listed = [each for part in columns for each in (part if is_iterator(part) else [part])]
        n_added.append(len(listed))
        return add(frame, *listed)

    def is_iterator(part: Any) -> bool:
        return hasattr(part, "__next__") or isinstance(part, list)

    monkeypatch.setattr(nw.LazyFrame, "with_columns", count)
    sample = dict.fromkeys(map(float, range(1, 6)), 10)
    weigh = NaiveBayesPropensity().fit(LOG, mcar=sample, universe=SPACE)
    evaluate_frame(
        pl.DataFrame(COLUMNS), prediction="a", propensity=weigh, metrics=["mse"], universe=SPACE
    )

    assert n_added
    assert min(n_added) > 0
