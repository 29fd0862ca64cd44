"""The error of an estimated examination curve, in the intervals of pbm."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from unskew import Impressions, PositionBias, evaluate_policies, simulate_impressions
from unskew.policies import PolicyEvaluation, TargetRanking
from unskew.policies.curve_uncertainty import find_gradient, shift_curve
from unskew.policies.estimators import pbm
from unskew.policies.examination import ClickTable, estimate_conditional, sum_influence
from unskew.policies.plan import PolicyPlan
from unskew.policies.terms import Term, TermSums
from unskew.simulation import ImpressionSimulation

TRUE = [1.0, 0.5, 0.3]
CELL = ("user", "item")


@pytest.fixture(scope="module")
def world() -> ImpressionSimulation:
    return simulate_impressions(200, 3, 3, logging="rankers", examination=TRUE, random_state=3)


def evaluate(world: ImpressionSimulation, examination: object, **options: Any) -> PolicyEvaluation:
    options = {"estimators": ["pbm", "snpbm"]} | options
    return evaluate_policies(world.log, {"new": world.target}, examination=examination, **options)


@pytest.mark.parametrize("role", ["user", "item"])
def test_rows_of_a_cluster_move_the_curve_as_its_cells_do(
    world: ImpressionSimulation, role: str
) -> None:
    log = world.log
    curve, by_cells = estimate_conditional(ClickTable.count(log, CELL, role))
    by_rows = sum_influence(log, CELL, curve, getattr(log, role), len(by_cells))

    np.testing.assert_allclose(by_rows, by_cells, atol=1e-12)


def test_requests_move_the_curve_as_much_as_their_user(world: ImpressionSimulation) -> None:
    log = world.log
    curve, by_user = estimate_conditional(ClickTable.count(log, CELL, "user"))
    by_request = sum_influence(log, CELL, curve, log.request, log.n_requests)
    sums = np.zeros_like(by_user)
    np.add.at(sums, log.user_of_request, by_request)

    np.testing.assert_allclose(sums, by_user, atol=1e-12)
    assert np.abs(by_request).max() > 0


def find_terms(log: Impressions, target: object, curve: Any) -> Any:
    plan = PolicyPlan({"new": TargetRanking(scores=target)}, ("pbm",), examination=curve)  # type: ignore[arg-type]
    return plan.bind(log)


def test_the_gradient_is_that_of_the_formula(world: ImpressionSimulation) -> None:
    """With weights th_new / th_old: dV / db_j = mean of w c (1{new = j} - 1{old = j})."""
    bias = PositionBias().fit(world.log)
    columns = find_terms(world.log, world.target, bias.examination)
    logged = [Term(columns["new"].reward.sum(axis=0))]
    gradient = find_gradient(list(shift_curve(bias.curve_, pbm, columns, logged)))
    new = columns["new"].target.start
    parts = columns["new"].exposure_weight * columns["new"].reward
    old = np.arange(3)[:, None]
    expected = [((new == j).astype(float) - (old == j)) * parts for j in range(3)]

    np.testing.assert_allclose(
        gradient[1:, 0], [each.sum(axis=0).mean() for each in expected[1:]], rtol=1e-6
    )
    assert gradient[:, 1].tolist() == [0, 0, 0]  # the logged value does not depend on the curve


def test_the_influence_of_a_user_is_the_derivative_of_curve_and_value_together(
    world: ImpressionSimulation,
) -> None:
    log, step = world.log, 1e-4
    table = ClickTable.count(log, CELL, "user")
    user = int(table.cluster[table.clicks_of_cell.argmax()])

    def find_value(weight: float) -> float:
        moved = ClickTable.count(log, CELL, "user")
        factor = np.where(moved.cluster == user, weight, 1.0)[moved.row]
        moved.shown.data *= factor
        moved.clicks.data *= factor
        curve, _ = estimate_conditional(moved)
        columns = find_terms(log, world.target, np.exp(curve))["new"]
        of_request = np.where(log.user_of_request == user, weight, 1.0)
        earned = (columns.exposure_weight * columns.reward).sum(axis=0)
        return float(of_request @ earned / of_request.sum())

    bias = PositionBias().fit(log)
    columns = find_terms(log, world.target, bias.examination)
    logged = [Term(columns["new"].reward.sum(axis=0))]
    gradient = find_gradient(list(shift_curve(bias.curve_, pbm, columns, logged)))
    sums = TermSums.of({"new": pbm(columns["new"])}, log.user_of_request, log.users)
    of_curve = sum_influence(log, CELL, np.log(bias.examination), log.user, log.n_users)
    total = sums._find_influence()[1][user, 0] + of_curve[user] @ gradient[:, 0]
    derivative = (find_value(1 + step) - find_value(1 - step)) / (2 * step)

    assert total == pytest.approx(derivative, rel=1e-3)
    assert abs(of_curve[user] @ gradient[:, 0]) > 1e-6


@pytest.mark.parametrize("estimator", ["pbm", "snpbm"])
def test_an_estimated_curve_makes_intervals_wider(
    world: ImpressionSimulation, estimator: str
) -> None:
    bias = PositionBias().fit(world.log)
    known = evaluate(world, bias.examination)
    carried = evaluate(world, bias)

    assert "the examination curve is taken as known" in known.notes
    assert carried.notes[1:] == (
        "intervals of 'pbm' and 'snpbm' include the error of the examination curve to first order, "
        "which was estimated from this log",
    )
    before, after = (each.value("new", estimator=estimator) for each in (known, carried))
    assert after.estimate == before.estimate
    assert after.std_error > 1.5 * before.std_error
    assert carried.value("logged").std_error == known.value("logged").std_error


def test_the_error_of_another_log_is_added(world: ImpressionSimulation) -> None:
    other = PositionBias().fit(world.draw(np.random.default_rng(1)))
    known, carried = evaluate(world, other.examination), evaluate(world, other)
    columns = find_terms(world.log, world.target, other.examination)
    logged = [Term(columns["new"].reward.sum(axis=0))]
    gradient = find_gradient(list(shift_curve(other.curve_, pbm, columns, logged)))[:, 0]
    added = gradient @ other.covariance @ gradient

    assert "as that of another log" in carried.notes[-1]
    assert carried.value("new").std_error ** 2 == pytest.approx(
        known.value("new").std_error ** 2 + added
    )
    assert carried.value("new").ci_high > known.value("new").ci_high


def test_other_methods_say_that_they_ignore_the_dependence(world: ImpressionSimulation) -> None:
    pairs = PositionBias(method="all_pairs", n_bootstrap=5).fit(world.log)

    (_, note) = evaluate(world, pairs).notes
    assert "as if it came from another log, though it was estimated from this" in note


def test_parts_of_a_log_have_the_error_of_another_log(world: ImpressionSimulation) -> None:
    bias = PositionBias().fit(world.draw(np.random.default_rng(1)))
    plan = PolicyPlan(
        {"new": TargetRanking(scores=world.target)},
        ("pbm",),
        examination=bias.examination,
        curve=bias.curve_,
    )
    requests = np.arange(world.log.n_requests)
    parts = plan.evaluate([world.log.take(requests[:300]), world.log.take(requests[300:])])
    whole = plan.evaluate([world.log])

    assert parts.value("new").std_error == pytest.approx(whole.value("new").std_error)
    assert parts.notes == whole.notes


def test_examination_of_items_that_were_never_shown_leaves_no_value() -> None:
    world = simulate_impressions(500, 6, 2, logging="rankers", n_rankers=1, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = evaluate(world, [1, 0.5])

    assert any("are not in the requests it is" in str(each.message) for each in caught)
    for estimator in ("pbm", "snpbm"):
        assert np.isnan(result.value("new", estimator=estimator).estimate)
        assert np.isnan(result.value("new", estimator=estimator).ci_low)
        assert np.isnan(result.compare("new", estimator=estimator).ci_low)
