"""Impressions: what the type holds, what it refuses, and what it reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unskew import Impressions, simulate_impressions, validate
from unskew.data.impression_checks import ImpressionFinding
from unskew.data.impressions import ProbabilityKind
from unskew.errors import (
    BadImpressionError,
    BadPropensityError,
    ColumnError,
    DataError,
    EmptyLogError,
    UnknownNameError,
    UnskewWarning,
    UsageError,
)

ROWS: dict[str, list[Any]] = {
    "request_id": [7, 7, 9, 9],
    "user_id": ["ann", "ann", "bob", "bob"],
    "item_id": ["up", "heat", "heat", "big"],
    "position": [1, 2, 2, 1],
    "clicked": [0, 1, 0, 1],
    "p": [0.5, 0.25, 0.5, 1.0],
    "p_new": [0.1, None, 0.3, 0.4],
    "note": list("abcd"),
}


def build(**changes: Any) -> Impressions:
    return Impressions.from_frame(
        pd.DataFrame(ROWS | changes), probability="p", probability_is="step"
    )


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_any_frame_gives_the_same_log(library: Any) -> None:
    shown = Impressions.from_frame(library(ROWS), probability="p", probability_is="step")

    assert shown.requests[shown.request].tolist() == ROWS["request_id"]
    assert shown.items[shown.item].tolist() == ROWS["item_id"]
    assert shown.position.tolist() == ROWS["position"]
    assert shown.reward.tolist() == ROWS["clicked"]
    assert shown.slots.tolist() == [[0, 1], [3, 2]]
    assert (shown.n_requests, shown.n_users, shown.n_items, shown.n_slots) == (2, 2, 3, 2)
    assert set(shown.other) == {"p_new"}
    np.testing.assert_array_equal(shown.other["p_new"], [0.1, np.nan, 0.3, 0.4])
    assert shown.columns["reward"] == "clicked"
    assert (
        type(shown.to_frame()).__module__.split(".")[0]
        == type(library(ROWS)).__module__.split(".")[0]
    )


def test_the_log_can_be_written_back_and_read_again() -> None:
    shown = build()

    again = Impressions.from_frame(shown.to_frame(), probability="p", probability_is="step")

    np.testing.assert_array_equal(again.reward, shown.reward)
    np.testing.assert_array_equal(again.slots, shown.slots)


def test_a_bandit_log_needs_no_requests_and_positions() -> None:
    frame = pd.DataFrame({"user_id": [1, 1], "item_id": [3, 4], "reward": [0.5, 2], "p": [0.1, 1]})

    shown = Impressions.from_frame(frame, probability="p")

    assert (shown.n_requests, shown.n_slots, shown.probability_is) == (2, 1, "product")


def test_some_requests_keep_their_rows() -> None:
    part = build().take(np.array([1]))

    assert part.requests.tolist() == [9]
    assert part.items[part.item].tolist() == ["heat", "big"]
    assert part.slots.tolist() == [[1, 0]]
    np.testing.assert_array_equal(part.other["p_new"], [0.3, 0.4])


def test_clicks_of_another_table_are_joined_once() -> None:
    frame = pd.DataFrame(ROWS).drop(columns="clicked")
    clicks = pd.DataFrame({"request_id": [9, 9, 7], "item_id": ["big", "big", "up"]})

    assert Impressions.from_frame(frame, clicks=clicks).reward.tolist() == [1, 0, 0, 1]


def test_a_click_without_an_impression_is_refused() -> None:
    frame = pd.DataFrame(ROWS).drop(columns="clicked")
    clicks = pd.DataFrame({"request_id": [9, 7], "item_id": ["big", "big"]})

    with pytest.raises(
        BadImpressionError,
        match=r"1 click belongs to no impression, of 2; the .* request 7, item 'big', at row 1",
    ):
        Impressions.from_frame(frame, clicks=clicks)


@pytest.mark.parametrize(
    ("column", "values", "error", "message"),
    [
        (
            "request_id",
            [7, None, 9, 9],
            BadImpressionError,
            r"'request_id' has 1 missing id.* row 1",
        ),
        (
            "user_id",
            ["a", None, "b", "b"],
            BadImpressionError,
            r"'user_id' has 1 missing id.* row 1",
        ),
        (
            "item_id",
            ["a", "b", None, "c"],
            BadImpressionError,
            r"'item_id' has 1 missing id.* row 2",
        ),
        ("position", [1, 2, 2, 0], BadImpressionError, r"1 of 4 .* 0 at row 3\. The top .* is 1"),
        ("position", [1, 2.5, 2, 1], BadImpressionError, r"1 of 4 positions .* 2\.5 at row 1"),
        ("position", [1, 2, None, 1], BadImpressionError, r"nan at row 2\. Drop those rows"),
        ("position", [1, 1, 2, 1], BadImpressionError, r"1 row shows a second .* after row 0"),
        ("item_id", ["a", "a", "b", "c"], BadImpressionError, r"an item again .* repeats=True"),
        ("user_id", ["a", "c", "b", "b"], BadImpressionError, r"1 request belongs to two users"),
        ("p", [0.5, 0.0, 1, 1], BadPropensityError, r"1 of 4 .* 0 at row 1 \(request 7, item 'h"),
        ("p", [0.5, 0.1, 1.5, 1], BadPropensityError, r"1 of 4 .* 1\.5 at row 2"),
        ("p", [0.5, 0.1, 1, None], BadPropensityError, r"1 of 4 .* nan at row 3"),
        ("clicked", [0, 1, np.inf, 0], BadImpressionError, r"1 of 4 rewards .* inf at row 2"),
        ("clicked", [0, None, 1, 0], BadImpressionError, r"1 of 4 rewards .* nan at row 1"),
    ],
    ids=[
        *("missing request", "missing user", "missing item"),
        *("position from 0", "position between two", "missing position"),
        *("two items at a position", "an item twice", "two users of a request"),
        *("probability 0", "probability above 1", "missing probability"),
        *("infinite reward", "missing reward"),
    ],
)
def test_impossible_rows_are_refused(
    column: str, values: list[Any], error: type[DataError], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(**{column: values})


def test_a_slate_may_repeat_items_if_the_caller_says_so() -> None:
    frame = pd.DataFrame(ROWS | {"item_id": ["a", "a", "b", "c"]})

    assert len(Impressions.from_frame(frame, repeats=True)) == 4
    assert Impressions.from_frame(frame, probability="p", probability_is="product").repeats


def test_several_slots_need_to_know_what_the_probability_is_of() -> None:
    with pytest.raises(UsageError, match=r"up to 2 items, so probability_is must say .* 'step'"):
        Impressions.from_frame(pd.DataFrame(ROWS), probability="p")
    with pytest.raises(UnknownNameError, match=r"unknown value 'steps' of probability_is"):
        Impressions.from_frame(pd.DataFrame(ROWS), probability="p", probability_is="steps")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"probability_is is given, but .* no probability"):
        Impressions.from_frame(pd.DataFrame(ROWS), probability_is="step")


def test_several_items_without_positions_are_refused() -> None:
    frame = pd.DataFrame(ROWS).drop(columns="position")

    with pytest.raises(BadImpressionError, match=r"2 rows belong to a request that already shows"):
        Impressions.from_frame(frame)


def test_a_log_without_rows_is_refused() -> None:
    with pytest.raises(EmptyLogError, match="the log has no impressions"):
        Impressions.from_frame(pd.DataFrame(ROWS).iloc[:0])


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadImpressionError, match=r"one length; got request \(2,\), user \(1,\)"):
        Impressions.from_arrays([1, 2], [1], [1, 2], [0, 0])


def test_rewards_and_clicks_exclude_one_another() -> None:
    with pytest.raises(ColumnError, match="reward and clicks are both given"):
        Impressions.from_frame(pd.DataFrame(ROWS), reward="clicked", clicks=pd.DataFrame(ROWS))


def test_positions_that_are_no_places_are_refused_before_they_fill_the_memory() -> None:
    size = 2000
    shown = Impressions.from_arrays(
        np.arange(size), np.arange(size), np.arange(size), np.zeros(size),
        position=np.where(np.arange(size) == 5, 1 << 20, 1),
    )  # fmt: skip

    with pytest.raises(BadImpressionError, match=r"positions reach 1,048,576.* row 5"):
        _ = shown.slots


def test_copies_of_rows_are_dropped_with_a_warning() -> None:
    frame = pd.DataFrame(ROWS)
    frame = pd.concat([frame, frame.iloc[[1]]])

    with pytest.warns(
        UnskewWarning, match=r"dropped copies: 1 row repeats an earlier .* row 4 \(request 7"
    ):
        shown = Impressions.from_frame(frame, probability="p", probability_is="step")

    assert len(shown) == 4
    assert [finding.check for finding in validate(shown).findings] == ["copies of rows"]


def test_gaps_and_different_sizes_are_reported() -> None:
    report = validate(build(position=[1, 3, 2, 1]))

    (gap,) = [each for each in report.findings if each.check == "positions with gaps"]
    assert (gap.count, gap.example) == (1, "request 7: [1, 3]")
    assert "positions with gaps" in repr(report)
    shown = Impressions.from_frame(pd.DataFrame(ROWS).iloc[[0, 2, 3]])
    assert [each.check for each in validate(shown).findings] == ["slates of different sizes"]


def test_unequal_step_probabilities_of_equal_prefixes_are_reported() -> None:
    shown = Impressions.from_arrays(
        [1, 1, 2, 2, 3, 3], [5] * 6, [1, 2, 1, 2, 1, 3], [0, 1] * 3, position=[1, 2] * 3,
        probability=[0.5, 0.5, 0.5, 0.4, 0.5, 0.1], probability_is="step",
    )  # fmt: skip

    (finding,) = validate(shown).findings

    assert (finding.check, finding.count) == ("unequal step probabilities", 1)
    assert "0.4, 0.5" in finding.example


def test_probabilities_of_another_kind_are_reported() -> None:
    log = simulate_impressions(300, logging="plackett-luce", random_state=0).log

    def find(kind: ProbabilityKind) -> list[ImpressionFinding]:
        findings = validate(log._replace_valid(probability_is=kind)).findings
        return [each for each in findings if each.check == "probabilities of another kind"]

    (finding,) = find("marginal")
    assert finding.example == "stated marginal, found step"
    assert find("step") == []


@pytest.mark.parametrize(("value", "meaning"), [(1.0, "deterministic"), (0.2, "uniform")])
def test_a_constant_probability_is_reported(value: float, meaning: str) -> None:
    (finding,) = validate(build(p=[value] * 4)).findings

    assert meaning in finding.meaning


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_rewards_that_are_all_equal_are_reported(value: float) -> None:
    (finding,) = validate(build(reward=[value] * 4)).findings

    assert (finding.check, finding.count) == ("rewards all equal", 4)
    assert finding.example == f"{value:g} in every row"


def test_a_clean_log_has_no_findings() -> None:
    assert repr(validate(build())).endswith("no findings")
