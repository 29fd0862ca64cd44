from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from frame_engines import columns_of, each_engine
from unskew import Ratings, evaluate, simulate
from unskew.errors import UnknownNameError
from unskew.evaluation import Comparison, Evaluation
from unskew.evaluation.result import Premise
from unskew.metrics.metric import Delta, MetricInput
from unskew.report.comparison import build_comparison_page
from unskew.types import Vector

WORLD = simulate(40, 50, density=0.2, alpha=0.6, random_state=1)
LOG, P = WORLD.log, WORLD.propensities
RNG = np.random.default_rng(7)
A, B = (WORLD.truth + RNG.normal(0, spread, WORLD.truth.shape) for spread in (1.0, 0.6))
ESTIMATORS = ("naive", "ips", "snips", "user_normalized", "item_normalized")
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


def judge(**options: Any) -> Evaluation:
    given: dict[str, Any] = {
        "propensities": P,
        "metrics": ["mae", "dcg@5"],
        "estimators": ESTIMATORS,
    } | options
    return evaluate(LOG, {"a": A, "b": B}, **given)


@pytest.fixture(scope="module")
def result() -> Evaluation:
    return judge()


# Comparisons


@dataclass(frozen=True, eq=False)
class AbsoluteErrorAgainst:
    """The absolute error of a model minus that of another, cell by cell."""

    other: Vector
    name: str = "mae difference"
    higher_is_better: bool = False
    ranks: bool = False
    top: None = None

    def __call__(self, judged: MetricInput, /) -> Delta:
        return Delta(
            np.abs(judged.rating - judged.require_predictions())
            - np.abs(judged.rating - self.other)
        )


@each_estimator
@pytest.mark.parametrize("cluster", [None, "user"])
def test_a_comparison_is_the_evaluation_of_the_difference(estimator: str, cluster: Any) -> None:
    compared = judge(cluster=cluster).compare("a", "b", metric="mae", estimator=estimator)
    metric = AbsoluteErrorAgainst(B[LOG.user, LOG.item])
    directly = next(
        iter(
            evaluate(
                LOG, A, propensities=P, metrics=[metric], estimators=[estimator], cluster=cluster
            )
        )
    )

    assert compared.difference == pytest.approx(directly.estimate)
    assert compared.std_error == pytest.approx(directly.std_error)
    assert (compared.ci_low, compared.ci_high) == pytest.approx((directly.ci_low, directly.ci_high))


@each_estimator
def test_turning_a_comparison_around_turns_its_signs(result: Evaluation, estimator: str) -> None:
    one, other = (
        result.compare(*pair, metric="mae", estimator=estimator)
        for pair in (("a", "b"), ("b", "a"))
    )

    assert (one.difference, one.ci_low, one.ci_high) == pytest.approx(
        (-other.difference, -other.ci_high, -other.ci_low)
    )
    assert (one.std_error, one.p_value) == pytest.approx((other.std_error, other.p_value))
    assert one.better == other.better == "b"


@each_estimator
@pytest.mark.parametrize("metric", ["mae", "dcg@5"])
def test_a_model_does_not_beat_itself(result: Evaluation, metric: str, estimator: str) -> None:
    compared = result.compare("a", "a", metric=metric, estimator=estimator)

    assert (compared.difference, compared.std_error, compared.p_value, compared.better) == (
        0.0,
        0.0,
        1.0,
        None,
    )


def test_a_paired_interval_is_narrower_than_two_separate_ones(result: Evaluation) -> None:
    shifted = evaluate(LOG, {"a": A, "b": A + 0.01}, propensities=P)
    compared = shifted.compare("a", "b", metric="mse", estimator="ips")

    assert compared.std_error < 0.2 * shifted.risk("a", metric="mse", estimator="ips").std_error


def comparison(difference: float, *, higher_is_better: bool) -> Comparison:
    low, high = difference - 0.1, difference + 0.1
    return Comparison(
        "a", "b", "mae", "snips", difference, 0.05, low, high, 0.01, 0.95, higher_is_better
    )


@pytest.mark.parametrize(
    ("difference", "higher_is_better", "better", "verdict"),
    [
        (
            0.5,
            True,
            "a",
            "a beats b on mae by snips: difference +0.5 [+0.4, +0.6] at 95%, p = 0.01",
        ),
        (0.5, False, "b", "a loses to b on mae by snips"),
        (-0.5, False, "a", "a beats b on mae by snips: difference -0.5 [-0.6, -0.4]"),
        (-0.5, True, "b", "a loses to b"),
        (0.05, True, None, "a cannot be told apart from b"),
        (-0.05, False, None, "a cannot be told apart from b"),
    ],
)
def test_who_is_better(
    difference: float, higher_is_better: bool, better: str | None, verdict: str
) -> None:
    compared = comparison(difference, higher_is_better=higher_is_better)

    assert compared.better == better
    assert str(compared).startswith(verdict)
    assert json.loads(compared.to_json())["better"] == better


@pytest.mark.parametrize(
    ("premise", "start", "end"),
    [
        (Premise("", False, "items", None), "a is behind b", "adjusted for items only: if people"),
        (Premise("", False, "", None), "a is behind b", "p = 0.01; not adjusted: if people rate"),
        (Premise("", True, None, "odd"), "not reliable, a check failed: odd; a is behind b", "p ="),
        (Premise("", True, None, None), "a loses to b", "at 95%, p = 0.01"),
    ],
)
def test_an_order_that_the_data_cannot_know_is_no_verdict(
    premise: Premise, start: str, end: str
) -> None:
    compared = replace(comparison(0.5, higher_is_better=False), premise=premise)
    tied = replace(comparison(0.05, higher_is_better=False), premise=premise)

    assert str(compared).startswith(start)
    assert end in str(compared)
    assert compared.better == "b"
    assert str(tied).startswith("a cannot be told apart from b")
    if "if people" in end:
        assert str(compared).endswith("the order can also be the other way round")
        assert str(tied).endswith("either can be better")


def test_a_p_value_is_never_shown_as_zero() -> None:
    compared = replace(comparison(0.5, higher_is_better=True), p_value=0.0)

    assert str(compared).endswith("p < 0.001")
    assert "< 0.001" in repr(compared).splitlines()[1]
    assert "<td>&lt; 0.001</td>" in compared._repr_html_()
    page = build_comparison_page(json.loads(compared.to_json()))
    (table,) = page.sections[0].tables
    assert [cell.text for cell in table.rows[0]][-1] == "< 0.001"
    assert page.tiles[2].value == "< 0.001"


def test_plain_averages_beat_nobody_over_all_cells(result: Evaluation) -> None:
    first, second = result.models[:2]
    metric = next(iter(result.metrics))
    text = str(result.compare(first, second, metric=metric, estimator="naive"))

    assert text.endswith("for ratings like those in the log, not for all cells")
    assert "beats" not in text
    assert "loses to" not in text
    assert "ratings like those in the log" in repr(result.compare_all(estimator="naive"))


def test_a_comparison_as_json_has_every_field() -> None:
    assert json.loads(comparison(0.5, higher_is_better=True).to_json()).keys() == {
        *("kind", "version"),
        *(
            "first",
            "second",
            "metric",
            "estimator",
            "difference",
            "std_error",
            "ci_low",
            "ci_high",
            "p_value",
            "level",
        ),
        *("higher_is_better", "better", "warnings", "premise"),
    }


# The table in its forms


def test_rows_come_by_metric_then_model_then_estimator(result: Evaluation) -> None:
    keys = [(risk.metric, risk.model, risk.estimator) for risk in result]

    assert keys == [
        (metric, model, name)
        for metric in ("mae", "dcg@5")
        for model in ("a", "b")
        for name in ESTIMATORS
    ]


@each_engine
def test_to_frame_answers_in_the_callers_library(make: Callable[..., Any]) -> None:
    frame = make({"user_id": LOG.user, "item_id": LOG.item, "rating": LOG.rating})
    log = Ratings.from_frame(frame)
    table = evaluate(log, log.rating + 1, estimators=["naive"]).to_frame()

    assert type(table) is type(frame)
    columns = columns_of(table)
    assert list(columns) == [
        "model",
        "metric",
        "estimator",
        "estimate",
        "std_error",
        "ci_low",
        "ci_high",
        "degrees",
    ]
    assert columns["metric"] == ["mse", "mae"]
    assert columns["estimate"] == pytest.approx([1.0, 1.0])


def test_to_frame_answers_in_the_named_library(result: Evaluation) -> None:
    table = result.to_frame("pandas")

    assert isinstance(table, pd.DataFrame)
    pd.testing.assert_frame_equal(table, pd.DataFrame(result.to_columns()))


@pytest.mark.parametrize(
    "options",
    [{}, {"cluster": "user"}, {"bootstrap": 20}, {"estimators": ["naive"], "propensities": None}],
)
def test_json_holds_the_table_and_what_it_came_from_and_no_nan(options: dict[str, Any]) -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    found = judge(**options)
    parsed = json.loads(found.to_json(), parse_constant=refuse)

    assert (parsed["level"], parsed["n_observed"], parsed["universe"]) == (0.95, len(LOG), [40, 50])
    assert [row["estimate"] for row in parsed["rows"]] == found.to_columns()["estimate"]
    assert all(row.keys() >= found.to_columns().keys() for row in parsed["rows"])
    if options.get("estimators") == ["naive"]:
        assert parsed["weights"] is None
    else:
        assert parsed["weights"]["n_touched"] == 0
        assert 0 < parsed["weights"]["effective_sample_size"] < len(LOG)


def test_json_of_an_unknown_universe() -> None:
    log = Ratings.from_arrays(["ann", "bob"], ["up", "up"], [5, 3])

    assert json.loads(evaluate(log, [4.0, 4.0], estimators=["naive"]).to_json())["universe"] is None


def test_repr_is_a_table_with_a_footer() -> None:
    shown = repr(judge(metrics=["mae"], estimators=["naive", "snips"])).splitlines()

    assert shown[0].split() == [
        "model",
        "metric",
        "estimator",
        "estimate",
        "std_error",
        "ci_low",
        "ci_high",
        "degrees",
    ]
    assert [line.split()[0] + " " + line.split()[2] for line in shown[1:5]] == [
        "a naive",
        "a snips",
        "b naive",
        "b snips",
    ]
    footer = " ".join(shown[5:-1])
    assert footer.startswith(
        f"{len(LOG)} observed cells of 40 users x 50 items; effective sample size "
    )
    assert footer.endswith("; 95% intervals, clustered by user")
    assert shown[-1] == ("these propensities are taken as known, and nothing here can confirm them")


def test_html_escapes_names() -> None:
    html = evaluate(LOG, {"<script>alert(1)</script>": A}, propensities=P)._repr_html_()

    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert html.count("<tr>") == 1 + 2 * 3
    assert "95% intervals" in html


# Errors


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("c", "mae", "ips"), "unknown model of this evaluation 'c'; valid names are: a, b"),
        (
            ("a", "mse", "ips"),
            "unknown metric of this evaluation 'mse'; valid names are: mae, dcg@5",
        ),
        (
            ("a", "mae", "dr"),
            "unknown estimator of this evaluation 'dr'; valid names are: naive, ips, snips",
        ),
    ],
)
def test_what_was_not_evaluated_cannot_be_asked_for(
    result: Evaluation, asked: tuple[str, str, str], message: str
) -> None:
    model, metric, estimator = asked

    with pytest.raises(UnknownNameError, match=message):
        result.risk(model, metric=metric, estimator=estimator)
    with pytest.raises(UnknownNameError, match=message):
        result.compare(model, "b", metric=metric, estimator=estimator)


def test_a_comparison_says_if_a_value_is_outside_the_range_of_the_metric(tmp_path: Path) -> None:
    """IPS of precision@1 is above 1, because both logged cells stand for more cells than exist."""
    log = Ratings.from_codes([0, 1, 2], [0, 0, 1], [5.0, 5.0, 1.0], shape=(3, 2))
    best_first, best_second = np.array([[2.0, 1.0]] * 3), np.array([[1.0, 2.0]] * 3)
    result = evaluate(
        log,
        {"first": best_first, "second": best_second},
        propensities=[0.1, 0.5, 0.5],
        metrics=["precision@1"],
        estimators=["ips"],
        relevance_threshold=4,
        universe=(3, 2),
        cluster=None,
    )
    comparison = result.compare("first", "second", metric="precision@1", estimator="ips")
    reason = "precision@1 by IPS is 4 for 'first', outside its range of 0 to 1"

    assert comparison.warnings[0].startswith(reason)
    assert reason in str(comparison)
    assert json.loads(comparison.to_json())["warnings"] == list(comparison.warnings)
    page = comparison.to_html(tmp_path / "page.html").read_text()
    assert "No verdict on first and second" in page
    assert "outside its range of 0 to 1" in page
