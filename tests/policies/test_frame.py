"""Frames and arrays give the same numbers; impossible frames are refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unskew import (
    Impressions,
    evaluate_policies,
    evaluate_policies_frame,
    simulate_impressions,
)
from unskew.errors import (
    BadImpressionError,
    BadPropensityError,
    ColumnError,
    DataError,
    UsageError,
)
from unskew.policies import PlackettLuce, PolicyEvaluation, TargetProbability, TargetRanking

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")


def open_duckdb(frame: pd.DataFrame) -> Any:
    import duckdb

    return duckdb.from_df(frame)


ENGINES: Mapping[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "polars lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "duckdb": open_duckdb,
}
RANKING = {"sorted": TargetRanking(position="new_position")}
CASES: Mapping[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "step": ("plackett-luce", ("ips", "snips", "rips", "snrips"), {}),
    "product": ("product", ("iips", "sniips", "pi", "snpi", "ips"), {}),
    "regression": (
        "plackett-luce",
        ("dm", "dr", "cascade-dr"),
        {"regression": {"soft": ("q", "v"), "sorted": ("q", "v2")}, "slot_worth": "dcg"},
    ),
    "requests": ("plackett-luce", ("snrips",), {"cluster": "request", "level": 0.9}),
}


def make_log(logging: Any, *, drops: bool = True) -> Impressions:
    """A log with target columns, in which some requests have only one or two slots."""
    world = simulate_impressions(60, 5, 3, logging=logging, random_state=4)
    log, rng = world.log, np.random.default_rng(0)
    other = {
        "p_new": rng.uniform(0.05, 0.9, len(log)),
        "new_position": np.where(log.position == 2, np.nan, log.position).astype(float),
        "q": rng.random(len(log)),
        "v": rng.random(len(log)),
        "v2": rng.random(len(log)),
    }
    is_kept = log.position <= log.request % 4 + 1
    rows = np.flatnonzero(is_kept) if drops else np.arange(len(log))
    assert log.probability is not None or logging == "rankers"
    return Impressions.from_arrays(
        log.request[rows],
        log.user[rows],
        log.item[rows],
        log.reward[rows],
        position=log.position[rows],
        probability=None if log.probability is None else log.probability[rows],
        probability_is=log.probability_is,
        other={name: column[rows] for name, column in other.items()},
    )


def to_pandas(log: Impressions) -> pd.DataFrame:
    frame: pd.DataFrame = log.to_frame("pandas")
    return frame.sample(frac=1, random_state=1)


def numbers(result: PolicyEvaluation) -> list[float]:
    """Every number of a result and of its comparisons and checks."""
    rows = [
        [each.estimate, each.std_error, each.ci_low, each.ci_high, each.degrees] for each in result
    ]
    pairs = [
        result.compare(policy, estimator=estimator)
        for policy in result.policies
        for estimator in result.estimators
    ]
    checks = [
        [each.mean, each.std_error, each.n_positive, each.effective, each.largest]
        for each in result.checks
    ]
    return [
        *(number for row in (*rows, *checks) for number in row),
        *(number for pair in pairs for number in (pair.difference, pair.ci_low, pair.ci_high)),
    ]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("drops", [True, False], ids=["some slots", "all slots"])
def test_frames_give_the_numbers_of_arrays(engine: str, case: str, drops: bool) -> None:
    logging, estimators, options = CASES[case]
    log = make_log(logging, drops=drops)
    targets = {"soft": TargetProbability("p_new"), **RANKING}
    arrays = evaluate_policies(log, targets, estimators=estimators, **options)
    framed = evaluate_policies_frame(
        ENGINES[engine](to_pandas(log)),
        targets,
        request="request",
        user="user",
        item="item",
        reward="reward",
        probability="probability",
        probability_is=log.probability_is,
        estimators=estimators,
        **options,
    )

    np.testing.assert_allclose(numbers(framed), numbers(arrays), rtol=1e-9, atol=1e-12)
    kind_notes = {note for note in framed.notes if "it is not checked whether" in note}
    assert len(kind_notes) == (log.probability is not None)
    assert tuple(note for note in framed.notes if note not in kind_notes) == arrays.notes
    assert framed.n_impressions == arrays.n_impressions == len(log)


@pytest.mark.filterwarnings("ignore::FutureWarning:pyspark", "ignore::ResourceWarning")
def test_spark_gives_the_numbers_of_arrays(spark: Any) -> None:
    logging, _, options = CASES["regression"]
    log = make_log(logging)
    targets = {"soft": TargetProbability("p_new"), **RANKING}
    estimators = ("snrips", "dr")
    arrays = evaluate_policies(log, targets, estimators=estimators, **options)
    rows = pa.Table.from_pandas(to_pandas(log), preserve_index=False)
    framed = evaluate_policies_frame(
        spark.createDataFrame(rows).repartition(3), targets, request="request", user="user",
        item="item", reward="reward", probability="probability", probability_is="step",
        estimators=estimators, **options,
    )  # fmt: skip

    np.testing.assert_allclose(numbers(framed), numbers(arrays), rtol=1e-9, atol=1e-12)
    doubled = spark.createDataFrame(pa.concat_tables([rows, rows.slice(0, 1)]))
    with pytest.raises(BadImpressionError, match=r"two items at one position .* one is request"):
        evaluate_policies_frame(
            doubled, targets, request="request", user="user", item="item",
            probability="probability", probability_is="step",
        )  # fmt: skip
    infinite = to_pandas(log).assign(reward=np.inf)
    bad = spark.createDataFrame(pa.Table.from_pandas(infinite, preserve_index=False))
    with pytest.raises(BadImpressionError, match=r"not finite; request \d+ has inf"):
        evaluate_policies_frame(
            bad, targets, request="request", user="user", item="item",
            probability="probability", probability_is="step",
        )  # fmt: skip


def test_a_log_without_probabilities_has_pbm() -> None:
    log = make_log("rankers", drops=False)
    curve = [1.0, 0.5, 0.3]
    arrays = evaluate_policies(log, RANKING, estimators=["pbm", "snpbm"], examination=curve)
    framed = evaluate_policies_frame(
        to_pandas(log), RANKING, request="request", user="user", item="item", reward="reward",
        estimators=["pbm", "snpbm"], examination=curve,
    )  # fmt: skip

    np.testing.assert_allclose(numbers(framed), numbers(arrays), rtol=1e-9, atol=1e-12)


def test_slates_that_only_look_complete_are_read_as_they_are() -> None:
    """The positions of these requests have the sum of those of complete ones."""
    columns = {
        "request_id": [1, 1, 2, 2, 3, 4, 5, 6],
        "user_id": [1, 1, 2, 2, 3, 4, 5, 6],
        "item_id": [7, 8, 8, 7, 7, 8, 7, 8],
        "position": [1, 2, 1, 2, 1, 2, 2, 1],
        "reward": [1.0, 0, 0, 1, 1, 1, 0, 1],
        "p": [0.5, 0.3, 0.4, 0.6, 0.5, 0.7, 0.2, 0.1],
        "new": [0.2, 0.9, 0.4, 0.3, 0.1, 0.2, 0.5, 0.8],
    }
    frame = pd.DataFrame(columns)
    log = Impressions.from_frame(frame, probability="p", probability_is="marginal")
    targets = {"new": TargetProbability("new")}
    arrays = evaluate_policies(log, targets, estimators=["iips", "sniips"])
    framed = evaluate_policies_frame(
        frame, targets, probability="p", probability_is="marginal", estimators=["iips", "sniips"]
    )

    np.testing.assert_allclose(numbers(framed), numbers(arrays), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_rewards_can_be_any_numbers(engine: str) -> None:
    frame = bandit(reward=[2.5, 0.0, -1.0, 0.5])
    log = Impressions.from_frame(frame, probability="p", probability_is="step")
    arrays = evaluate_policies(log, {"new": "new"}, estimators=["ips", "snips"])
    framed = evaluate_policies_frame(
        ENGINES[engine](frame), {"new": "new"}, probability="p", estimators=["ips", "snips"]
    )

    np.testing.assert_allclose(numbers(framed), numbers(arrays), rtol=1e-9, atol=1e-12)


def test_weights_of_zero_are_counted() -> None:
    """One row has the target probability 0; two ratios of 1/2 give an additive weight of 0."""
    frame = bandit(
        request_id=[1, 1, 2, 2], user_id=[1, 1, 2, 2], position=[1, 2, 1, 2],
        new=[0.25, 0.25, 0.5, 0.1],
    )  # fmt: skip
    options: dict[str, Any] = {"probability": "p", "probability_is": "product"}
    positive = evaluate_policies_frame(frame, {"new": "new"}, estimators=["iips", "pi"], **options)
    frame.loc[2, "new"] = 0.0
    zero = evaluate_policies_frame(frame, {"new": "new"}, estimators=["iips"], **options)

    assert [each.n_positive for each in positive.checks] == [2, 2, 1]
    assert [each.n_positive for each in zero.checks] == [1, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_examples_of_bad_requests_are_named_by_every_engine(engine: str) -> None:
    frame = ENGINES[engine](bandit(request_id=[1, 3, 3, 4], user_id=[1, 2, 2, 3]))
    with pytest.raises(BadImpressionError, match="one is request 3, position 1"):
        evaluate_policies_frame(frame, {"new": "new"}, probability="p")
    with pytest.raises(BadImpressionError, match="one is request 3"):
        evaluate_policies_frame(
            ENGINES[engine](bandit(request_id=[1, 3, 3, 4])), {"new": "new"}, probability="p"
        )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_ids_may_be_categories(library: str) -> None:
    ids = ["a", "b", "c", "d"]
    frame = bandit(request_id=ids, user_id=ids)
    expected = evaluate_policies_frame(frame, {"new": "new"}, probability="p")
    categories = frame.astype({"request_id": "category", "user_id": "category"})

    result = evaluate_policies_frame(
        categories if library == "pandas" else pl.from_pandas(categories),
        {"new": "new"},
        probability="p",
    )

    assert numbers(result) == numbers(expected)


@pytest.mark.parametrize("is_frame", [False, True])
@pytest.mark.parametrize(("place", "is_told"), [([2, 1, 2, 1], True), ([2, 1, 3, 1], False)])
def test_a_ranking_of_the_shown_items_alone_is_told(
    is_frame: bool, place: list[int], is_told: bool
) -> None:
    frame = bandit(
        request_id=[1, 1, 2, 2], user_id=[1, 1, 2, 2], position=[1, 2, 1, 2], place=place
    )
    targets = {"new": TargetRanking(position="place")}
    options: dict[str, Any] = {"estimators": ["pbm"], "examination": [1, 0.5]}
    result = (
        evaluate_policies_frame(frame, targets, **options)
        if is_frame
        else evaluate_policies(Impressions.from_frame(frame), targets, **options)
    )

    assert any("same items as the log" in note for note in result.notes) == is_told


def test_infinite_weights_are_refused() -> None:
    with pytest.raises(BadPropensityError, match="some weights are infinite"):
        evaluate_policies_frame(
            bandit(p=[1e-310, 0.5, 0.5, 0.5]), {"new": "new"}, probability="p", estimators=["ips"]
        )


def bandit(**changes: Any) -> pd.DataFrame:
    columns: dict[str, Any] = {
        "request_id": [1, 2, 3, 4],
        "user_id": [1, 2, 3, 4],
        "item_id": [7, 8, 7, 8],
        "position": [1, 1, 1, 1],
        "reward": [1.0, 0.0, 1.0, 1.0],
        "p": [0.5, 0.5, 0.5, 0.5],
        "new": [0.9, 0.1, 0.9, 0.1],
    }
    return pd.DataFrame(columns | changes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"user_id": [1, None, 3, 4]},
            BadImpressionError,
            "1 of 4 rows have a user",
        ),
        ({"position": [0, 1, 1, 1]}, BadImpressionError, "position that is not a whole number"),
        ({"reward": [1, np.inf, 0, 0]}, BadImpressionError, "reward that is missing or not finite"),
        ({"p": [0.5, 0.0, 1.5, 1]}, BadPropensityError, "probability: 2 of 4 rows have a value"),
        ({"new": [0.5, -0.1, 1, 1]}, BadPropensityError, "policy 'new': 1 of 4 rows"),
        ({"new": [0.5, np.nan, 1, 1]}, BadPropensityError, "policy 'new': 1 of 4 rows"),
        (
            {"position": [1, 1, 0, 1]},
            BadImpressionError,
            r"1 of 4 rows .* whole number from 1 on; request 3 has 0\. The top position is 1",
        ),
        (
            {"reward": [1, None, 0, 0]},
            BadImpressionError,
            r"request 2 has \w+\. An item without a click has the reward 0: fill",
        ),
        ({"p": [0.5, 0.0, 0.5, 1]}, BadPropensityError, r"impossible; request 2 has 0\.0\."),
        (
            {"request_id": [1, 1, 3, 4]},
            BadImpressionError,
            r"two users in 1 request; one is request 1\.",
        ),
        (
            {"request_id": [1, 3, 3, 4], "user_id": [1, 2, 2, 3]},
            BadImpressionError,
            r"two items at one position in 1 request; one is request 3, position 1\..* twice",
        ),
        ({"reward": ["a"] * 4}, ColumnError, "column 'reward' has the type String, not numbers"),
        ({"position": [1, 1, 1, 500]}, BadImpressionError, "positions reach 500"),
        (
            {"position": [2, 1, 1, 1]},
            BadImpressionError,
            r"'ips' needs every slot above .* in 1 request; one is request 1\. .* without a click",
        ),
    ],
)
def test_impossible_rows_are_refused(
    changes: dict[str, Any], error: type[DataError], message: str
) -> None:
    with pytest.raises(error, match=message):
        evaluate_policies_frame(
            bandit(**changes), {"new": "new"}, probability="p", probability_is="step",
            estimators=["ips"],
        )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": {"new": PlackettLuce("score")}}, "policy 'new' is not a column of the frame"),
        ({"probability": "q"}, "the frame has no column 'q'"),
        ({"probability": None}, "no estimator of another policy can be computed"),
        ({"estimators": ["cascade-dr"]}, "need a regression"),
        ({"probability": None, "probability_is": "step"}, "probability_is is given, but"),
        (
            {"targets": {"new": "new", "same": "new"}, "regression": ("q", "v")},
            "regression names one pair of columns for 2 policies",
        ),
        ({"estimators": ["tips"]}, "unknown policy estimator 'tips'"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"targets": {"new": "new"}, "probability": "p"} | options
    with pytest.raises((UsageError, ColumnError), match=message):
        evaluate_policies_frame(bandit(), **arguments)


def test_a_slate_needs_to_say_what_its_probabilities_are() -> None:
    frame = bandit(request_id=[1, 1, 2, 2], user_id=[1, 1, 2, 2], position=[1, 2, 1, 2])
    with pytest.raises(UsageError, match="probability_is is missing: requests show several"):
        evaluate_policies_frame(frame, {"new": "new"}, probability="p")
