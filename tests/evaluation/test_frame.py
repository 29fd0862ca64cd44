"""One log in every engine: the same numbers as from arrays, to nine digits."""

from __future__ import annotations

import json
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
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
from unskew.estimators import Clip, Shrink, SubGaussian, Switch
from unskew.evaluation import Evaluation
from unskew.evaluation.backends.narwhals.table import FrameTable
from unskew.evaluation.frame import GroupedEvaluation
from unskew.metrics.metric import Delta, MetricInput
from unskew.propensity import PopularityPropensity
from unskew.types import Matrix, Vector

WORLD = simulate(40, 50, density=0.2, alpha=0.6, random_state=0)
LOG, TRUTH, P = WORLD.log, WORLD.truth.astype(float), WORLD.propensities.values
RNG = np.random.default_rng(7)
A: Matrix = TRUTH + RNG.normal(0, 1.0, TRUTH.shape)
B: Matrix = TRUTH + RNG.normal(0.3, 0.8, TRUTH.shape)
SPACE = (40, 50)

MEANS = ("mse", "mae", "accuracy", "dcg", "dcg@5", "cg@5", "precision@5")
RATIOS = ("recall@5", "stratified_recall@5", "atop")
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


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session of two threads in this process, whose tasks may fail three times."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        pytest.skip("pyspark is not installed: pip install 'unskew[spark]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java, and there is none")
    options = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
    }
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # PySpark's own, about pandas and sockets
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2,4]").appName("unskew tests")
        for name, value in options.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


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


pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:pyspark", "ignore::ResourceWarning")

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
    for ours, theirs in zip(result, expected, strict=True):
        numbers = [ours.estimate, ours.std_error, ours.ci_low, ours.ci_high]
        assert numbers == pytest.approx(
            [theirs.estimate, theirs.std_error, theirs.ci_low, theirs.ci_high], rel=1e-9
        ), ours
    for (metric, estimator), estimate in expected.estimates.items():
        assert result.estimates[metric, estimator].n_left_out == estimate.n_left_out
        ours, theirs = (
            each.compare("a", "b", metric=metric, estimator=estimator)
            for each in (result, expected)
        )
        assert [ours.difference, ours.std_error, ours.p_value] == pytest.approx(
            [theirs.difference, theirs.std_error, theirs.p_value], rel=1e-9
        )


@pytest.mark.parametrize("cluster", [None, "user", "item"])
def test_every_engine_says_what_numpy_says(make: Make, cluster: Any) -> None:
    options = {"metrics": [*MEANS, *RATIOS], "cluster": cluster}

    assert_same(from_frame(make(COLUMNS), **options), from_arrays(**options))


def test_users_and_items_that_count_once_each(make: Make) -> None:
    options = {
        "metrics": ["mae", "cg@5"],
        "estimators": ["user_normalized", "item_normalized", "snips"],
        "cluster": "user",
    }

    assert_same(from_frame(make(COLUMNS), **options), from_arrays(**options))


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda each: type(each).__name__)
def test_weight_transforms_are_the_same_formulas(make: Make, transform: Any) -> None:
    options = {
        "metrics": ["mae"],
        "weight_transform": transform,
        "estimators": ["ips", "snips", "user_normalized"],
    }
    result, expected = from_frame(make(COLUMNS), **options), from_arrays(**options)

    assert_same(result, expected)
    assert result.n_transformed > 0
    assert result.weight_summary.effective_sample_size == pytest.approx(
        expected.weight_summary.effective_sample_size
    )


def test_groups_are_judged_in_one_pass_as_each_alone(make: Make) -> None:
    options = {
        "metrics": ["mse", "recall@5"],
        "cluster": "user",
        "estimators": ["naive", "snips", "ips"],
    }
    sizes = {"first": (15, 50), "second": (25, 50)}
    result = from_frame(make(COLUMNS), by="half", universe=sizes, **options)

    assert isinstance(result, GroupedEvaluation)
    assert sorted(result) == ["first", "second"]
    for half, size in sizes.items():
        assert_same(result[half], from_arrays(COLUMNS["half"] == half, universe=size, **options))
    assert len(result.to_columns()["half"]) == 2 * 2 * 2 * 3


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
        "metrics": ["mae", "dcg", "dcg@5", "recall@5", "atop"],
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
        {"cluster": "user"},
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
    assert from_frame(pl.DataFrame(columns), metrics=["mse"]).n_observed == len(LOG)
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
            "there are 2 models, 'a', 'b', but 1 columns of positions",
        ),
        ({"prediction": "c"}, ColumnError, "there is no column 'c' for prediction="),
        ({"prediction": []}, UsageError, "must be the name of a column"),
        ({"prediction": 3}, UsageError, "must be the name of a column"),
        ({"by": "country"}, ColumnError, "there is no column 'country'; the columns are"),
        ({"rating": "half"}, BadRatingError, "column 'half' has the type String, not numbers"),
        ({"cluster": "country"}, UnknownNameError, "unknown cluster 'country'"),
        ({"on_bad": "ignore"}, UnknownNameError, "unknown on_bad 'ignore'"),
        ({"level": 95}, UsageError, "level must lie"),
        (
            {"estimators": ["user_normalized"], "metrics": ["recall@5"]},
            UsageError,
            "not for ratios such as recall",
        ),
        (
            {"weight_transform": Switch(1), "estimators": ["snips"]},
            UsageError,
            "all weights are zero",
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
    with pytest.raises(BadPredictionError, match="users do not have 50 rows with a prediction"):
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
    ]
    assert result.to_frame().shape == (4, 8)
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
    cluster=st.sampled_from([None, "user", "item"]),
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

    assert_same(
        from_frame(weighted, **options), from_arrays(propensities=model.predict(LOG), **options)
    )


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
