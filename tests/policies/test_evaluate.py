"""evaluate_policies: values, comparisons, checks of weights, targets, parts and errors."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unskew
from slates import ItemScores, find_marginals, list_all, make_log, slate_probability
from unskew.data.impressions import Impressions
from unskew.errors import (
    BadImpressionError,
    BadPredictionError,
    BadPropensityError,
    DataError,
    PropensityWarning,
    UnknownNameError,
    UnskewWarning,
    UsageError,
)
from unskew.estimators import Clip, Switch
from unskew.estimators.estimate import Estimate
from unskew.estimators.transforms import Dynamic
from unskew.policies import (
    PlackettLuce,
    PolicyEvaluation,
    PolicyMixture,
    TargetProbability,
    TargetRanking,
    UniformSlate,
)
from unskew.policies.checks import MIN_REQUESTS, WeightCheck, make_checks, summarize_weights
from unskew.policies.plan import CandidateReader, PolicyPlan
from unskew.policies.targets import as_policy
from unskew.policies.terms import Term, TermSums
from unskew.simulation import ImpressionSimulation
from unskew.simulation.impressions import KindScores

EVERY = ["ips", "snips", "rips", "snrips", "iips", "sniips", "pbm", "snpbm", "pi", "snpi"]
CURVE = [1.0, 1 / 2, 1 / 3]


@pytest.fixture(scope="module")
def world() -> ImpressionSimulation:
    return unskew.simulate_impressions(3000, random_state=1)


def test_values_are_near_the_truth(world: ImpressionSimulation) -> None:
    result = unskew.evaluate_policies(
        world.log,
        {"sorted": world.target, "soft": PlackettLuce(world.target, 0.5)},
        estimators=EVERY,
        logging=UniformSlate(),
        examination=CURVE,
    )
    truth = {
        "sorted": world.value(world.target.table),
        "soft": world.value(world.target.table, temperature=0.5),
        "logged": world.logged_value,
    }

    for value in result:
        assert abs(value.estimate - truth[value.policy]) < 4 * value.std_error, value


def test_one_slot_is_the_ordinary_contextual_bandit() -> None:
    rng = np.random.default_rng(0)
    p, p_new, reward = rng.uniform(0.1, 1, 200), rng.uniform(0, 1, 200), rng.normal(size=200)
    q, v = rng.normal(size=200), rng.normal(size=200)
    shown = Impressions.from_arrays(
        np.arange(200), np.arange(200) // 4, np.arange(200) % 7, reward,
        probability=p, other={"p_new": p_new, "q": q, "v": v},
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)
        result = unskew.evaluate_policies(
            shown,
            {"new": "p_new"},
            estimators=["ips", "snips", "rips", "iips", "pi", "dm", "dr", "iips-dr", "cascade-dr"],
            regression=("q", "v"),
        )
    w = p_new / p
    expected = {"ips": (w * reward).mean(), "snips": (w * reward).sum() / w.sum()}
    expected |= dict.fromkeys(["rips", "iips", "pi"], expected["ips"])
    expected |= {"dm": v.mean()}
    expected |= dict.fromkeys(["dr", "iips-dr", "cascade-dr"], (w * (reward - q) + v).mean())
    for name, value in expected.items():
        assert result.value("new", estimator=name).estimate == pytest.approx(value, abs=1e-12)


def test_the_standard_error_is_that_of_clusters() -> None:
    rng = np.random.default_rng(1)
    cluster = rng.integers(0, 30, 400).astype(np.int32)
    weight, reward = rng.uniform(0, 2, 400), rng.uniform(0, 1, 400)
    sums = TermSums.of({"new": [Term(weight * reward, weight)]}, cluster, np.arange(30))
    estimate = sums.estimate()

    ratio = (weight * reward).sum() / weight.sum()
    by_cluster = np.bincount(cluster, weights=weight * (reward - ratio)) / weight.sum()
    assert estimate.value[0] == pytest.approx(ratio)
    assert estimate.covariance[0, 0] == pytest.approx(30 / 29 * np.square(by_cluster).sum())


def test_the_influence_of_terms_is_the_derivative_of_the_value() -> None:
    rng = np.random.default_rng(2)
    terms = [Term(*rng.uniform(0.5, 2, (3, 8))) for _ in range(3)] + [Term(rng.uniform(0, 1, 8))]
    code, ids = np.arange(8, dtype=np.int32), np.arange(8)

    def find_value(weight: np.ndarray[Any, Any]) -> float:
        """The value if request r occurs ``weight[r]`` times."""
        total = 0.0
        n = weight.sum()
        for term in terms:
            base = n if term.base is None else weight @ term.base
            expected = n if term.expected is None else weight @ term.expected
            total += (weight @ term.numerator) / base * expected / n
        return total

    sums = TermSums.of({"new": terms}, code, ids)
    value, influence = sums._find_influence()
    assert value[0] == pytest.approx(find_value(np.ones(8)))
    step = 1e-6
    for request in range(8):
        up, down = np.ones(8), np.ones(8)
        up[request] += step
        down[request] -= step
        numerical = (find_value(up) - find_value(down)) / (2 * step)
        assert influence[request, 0] == pytest.approx(numerical, abs=1e-8)


def test_a_policy_against_itself_has_difference_exactly_0(world: ImpressionSimulation) -> None:
    targets = {"one": world.target, "two": world.target, "soft": PlackettLuce(world.target)}
    result = unskew.evaluate_policies(
        world.log, targets, estimators=EVERY, logging=UniformSlate(), examination=CURVE
    )

    for name in EVERY:
        same = result.compare("one", "two", estimator=name)
        assert (same.difference, same.std_error, same.p_value) == (0.0, 0.0, 1.0)
        assert result.compare("one", "soft", estimator=name).std_error > 0


def test_the_logging_policy_as_target_gives_the_logged_mean(world: ImpressionSimulation) -> None:
    result = unskew.evaluate_policies(
        world.log, {"same": UniformSlate()}, estimators=EVERY[:-2], logging=UniformSlate(),
        examination=CURVE,
    )  # fmt: skip

    logged = result.value("logged").estimate
    for name in EVERY[:4]:
        assert result.value("same", estimator=name).estimate == logged
        assert result.compare("same", estimator=name).difference == 0.0
    for name in EVERY[4:-2]:
        assert result.value("same", estimator=name).estimate == pytest.approx(logged, abs=1e-12)


def test_a_paired_comparison_has_the_error_of_the_difference(world: ImpressionSimulation) -> None:
    result = unskew.evaluate_policies(world.log, {"new": world.target}, estimators=["rips"])
    log = world.log
    by_request = result.inputs["new"].step_weight * result.inputs["new"].reward
    z = by_request.sum(axis=0) - log.reward[log.slots].sum(axis=1)
    by_user = np.bincount(log.user_of_request, weights=z - z.mean())
    error = np.sqrt(log.n_users / (log.n_users - 1) * np.square(by_user).sum()) / log.n_requests

    comparison = result.compare("new")

    assert comparison.difference == pytest.approx(z.mean())
    assert comparison.std_error == pytest.approx(error)


def test_step_probabilities_that_are_called_marginal_are_caught(
    world: ImpressionSimulation,
) -> None:
    log = world.log
    wrong = Impressions.from_arrays(
        log.request, log.users[log.user], log.item, log.reward, position=log.position,
        probability=log.probability, probability_is="marginal",
    )  # fmt: skip

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = unskew.evaluate_policies(wrong, {"new": world.target}, estimators=["iips"])

    texts = [str(each.message) for each in caught]
    assert any(
        re.search(
            r"mean of the marginal weights at position 2 of policy 'new' is 0\.8\d* .* must be 1",
            text,
        )
        for text in texts
    )

    assert np.isnan(result.value("new").ci_low)
    assert result.compare("new").better is None
    assert "must be 1" in str(result.compare("new"))
    assert [check.is_off for check in result.checks] == [False, True, True]


def test_arms_without_scores_have_the_means_of_their_requests(
    world: ImpressionSimulation,
) -> None:
    log = world.log
    is_first = np.random.default_rng(0).random(log.n_requests) < 0.3
    arms = {"a": is_first[log.request] * 1.0, "b": ~is_first[log.request] * 1.0}
    served = Impressions.from_arrays(
        log.request, log.users[log.user], log.item, log.reward, position=log.position,
        probability=np.where(is_first, 0.3, 0.7)[log.request], probability_is="slate", other=arms,
    )  # fmt: skip
    result = unskew.evaluate_policies(served, {"a": "a", "b": "b"}, estimators=["snips"])
    reward = np.bincount(log.request, log.reward)

    for name, is_served in (("a", is_first), ("b", ~is_first)):
        assert result.value(name).estimate == pytest.approx(reward[is_served].mean())
    assert result.compare("a", "b").better is None


def test_with_clipped_weights_the_headline_divides_by_their_mean(
    world: ImpressionSimulation,
) -> None:
    targets = {"new": PlackettLuce(world.target, 0.3)}
    clipped = unskew.evaluate_policies(world.log, targets, transform=Clip(2.0))

    assert clipped.incomplete == ("ips", "rips")
    assert clipped.headline().estimator == "snips"
    assert unskew.evaluate_policies(world.log, targets).incomplete == ()


def check_mean(weights: np.ndarray) -> WeightCheck:
    """The check of the weights of requests by as many users."""
    name, code = "1|step|new", np.arange(weights.size)
    sums = TermSums.of({name: [Term(weights)]}, code, code)
    (check,) = make_checks(sums, summarize_weights({name: weights}))
    return check


def test_a_mean_that_lacks_rare_large_weights_by_chance_is_not_reported() -> None:
    """Log-normal weights of mean 1: their mean is often far below 1, with a small error."""
    rng = np.random.default_rng(0)
    right = [check_mean(np.exp(rng.normal(-2, 2, 200))) for _ in range(500)]
    wrong = check_mean(np.full(200, 0.9) + rng.normal(0, 0.1, 200))
    large = check_mean(np.exp(rng.normal(0, 1, 2000)))

    assert large.is_off
    assert large.low == pytest.approx(large.mean - 4 * large.std_error)
    assert np.mean([abs(each.mean - 1) > 4 * each.std_error for each in right]) > 0.02
    assert np.mean([each.is_off for each in right]) < 0.005
    assert wrong.is_off
    assert wrong.std_error * 4 < 1 - wrong.mean


def make_page(result: PolicyEvaluation) -> str:
    with TemporaryDirectory() as folder:
        return result.to_html(Path(folder) / "page.html").read_text()


def relabel(log: Impressions, kind: Any, probability: Any = None) -> Impressions:
    """The log with probabilities of a stated kind, which are also the column ``same``."""
    values = log.probability if probability is None else probability
    return Impressions.from_arrays(
        log.request, log.users[log.user], log.item, log.reward, position=log.position,
        probability=values, probability_is=kind, other={"same": values},
    )  # fmt: skip


@pytest.mark.parametrize("logging", ["uniform", "plackett-luce"])
@pytest.mark.parametrize("true_kind", ["step", "marginal"])
@pytest.mark.parametrize("stated", ["step", "marginal", "product"])
def test_the_stated_kind_is_checked_even_if_log_and_target_are_of_one_kind(
    logging: Any, true_kind: str, stated: Any
) -> None:
    world = unskew.simulate_impressions(400, logging=logging, random_state=1)
    log, policy = world.log, PlackettLuce(KindScores(world.logging_scores))
    probability = log.probability
    if true_kind == "marginal":
        columns = PolicyPlan({"same": policy}, logging=policy, estimators=("iips",)).bind(log)
        probability = np.empty(len(log))
        probability[log.slots.T] = columns["same"].target.marginal()
    wrong = relabel(log, stated, probability)
    estimator = "rips" if stated == "step" else "iips"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)
        result = unskew.evaluate_policies(wrong, {"new": "same"}, estimators=[estimator])

    assert all(check.mean == 1 for check in result.checks)
    is_right = stated in (true_kind, "product") and (stated, true_kind) != ("product", "step")
    assert result.kind_check is not None
    assert result.kind_check.is_contradicted == (not is_right)
    assert np.isnan(result.value("new").ci_low) == (not is_right)
    if not is_right:
        message = f"stated as '{stated}', but this log fits '{true_kind}' probabilities"
        assert message in "".join(map(str, result.problems()))
        assert message in str(result)
        assert "probabilities are stated as" in make_page(result)
        assert message in str(result.compare("new"))


def test_a_log_that_cannot_show_the_kind_says_so_beside_the_number() -> None:
    world = unskew.simulate_impressions(60, 200, 2, logging="plackett-luce", random_state=0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)
        result = unskew.evaluate_policies(
            relabel(world.log, "marginal"), {"new": "same"}, estimators=["iips"]
        )

    assert result.kind_check is not None
    assert result.kind_check.is_open
    assert "cannot show whether its probabilities are 'marginal', as stated" in str(result)
    assert "cannot show whether" in make_page(result)


@pytest.mark.parametrize("convert", [np.asarray, list, pd.Series])
def test_an_array_as_a_target_has_the_probabilities_of_the_shown_items(
    world: ImpressionSimulation, convert: Callable[[Any], Any]
) -> None:
    target = convert(world.log.probability)

    result = unskew.evaluate_policies(world.log, {"same": target}, estimators=["ips"])

    assert result.compare("same", "logged").difference == 0


def test_kinds_that_are_equal_are_not_checked(world: ImpressionSimulation) -> None:
    one_slot = unskew.simulate_impressions(50, n_slots=1, random_state=0)
    independent = unskew.simulate_impressions(300, logging="product", random_state=0)

    for log in (one_slot.log, independent.log):
        result = unskew.evaluate_policies(
            log, {"same": TargetProbability(log.probability)}, estimators=["ips"]
        )
        assert result.kind_check is None
    by_policy = unskew.evaluate_policies(
        world.log, {"new": world.target}, estimators=["iips"], logging=UniformSlate()
    )
    assert by_policy.kind_check is None


def test_an_item_that_is_always_first_does_not_look_like_another_kind() -> None:
    rng = np.random.default_rng(0)
    n = 2000
    second = 1 + rng.integers(3, size=n)
    log = Impressions.from_arrays(
        np.repeat(np.arange(n), 2), np.repeat(np.arange(n), 2),
        np.column_stack([np.zeros(n, dtype=int), second]).ravel(), rng.integers(2, size=2 * n),
        position=np.tile([1, 2], n), probability=np.tile([1, 1 / 3], n), probability_is="step",
    )  # fmt: skip
    result = unskew.evaluate_policies(
        log, {"same": TargetProbability(log.probability)}, estimators=["rips"]
    )

    assert result.kind_check is not None
    assert result.kind_check.is_open


def test_a_log_of_clicks_alone_has_no_interval(world: ImpressionSimulation) -> None:
    log = world.log
    clicks = Impressions.from_arrays(
        log.request, log.user, log.item, np.ones(len(log)), position=log.position,
        probability=log.probability, probability_is="step",
    )  # fmt: skip

    with pytest.warns(UnskewWarning, match=r"all [\d,]+ rewards are 1: .* not clicked"):
        result = unskew.evaluate_policies(clicks, {"same": TargetProbability(log.probability)})

    assert np.isnan(result.value("same").ci_low)
    assert result.value("logged").ci_low == 3
    assert "No verdict" in make_page(result)
    assert "rewards are 1" in str(result)


def test_arms_of_an_ab_test_are_evaluated_as_a_mixture() -> None:
    world = unskew.simulate_impressions(3000, 6, 3, logging="rankers", n_rankers=2, random_state=3)
    arms = [TargetRanking(scores=KindScores(scores)) for scores in world.logging_scores]
    shares = [0.5, 0.5]

    result = unskew.evaluate_policies(
        world.log, {"a": arms[0], "b": arms[1]}, logging=PolicyMixture(arms), examination=CURVE,
        estimators=["ips", "snips", "rips", "iips", "pbm"],
    )  # fmt: skip

    for name, scores in zip("ab", world.logging_scores, strict=True):
        for estimator in result.estimators:
            value = result.value(name, estimator=estimator)
            assert abs(value.estimate - world.value(scores)) < 4 * value.std_error
    assert list(result.problems()) == []
    with pytest.raises(BadImpressionError, match=r"no policy of the mixture .* Name all policies"):
        unskew.evaluate_policies(world.log, {"a": arms[0]}, logging=PolicyMixture(arms[:1]))
    unequal = PolicyMixture(arms, shares).bind(
        world.log, CandidateReader(world.log, None, None), "mix"
    )
    np.testing.assert_allclose(unequal.slate(), unequal.step().prod(axis=0))


def test_a_mixture_has_the_probabilities_of_its_parts() -> None:
    slates = list_all(4, 2, repeats=False)
    log = make_log(slates, np.zeros(slates.shape))
    scores = [np.array([1.0, 0.0, 2.0, 0.5]), np.zeros(4)]
    mixture = PolicyMixture([PlackettLuce(ItemScores(each)) for each in scores], [0.3, 0.7])

    bound = mixture.bind(log, CandidateReader(log, None, None), "mix")

    exact = [slate_probability("plackett-luce", each, slates) for each in scores]
    probability = 0.3 * exact[0] + 0.7 * exact[1]
    np.testing.assert_allclose(bound.slate(), probability)
    np.testing.assert_allclose(bound.step().prod(axis=0), probability)
    by_slot = find_marginals(probability, slates, 4)
    np.testing.assert_allclose(bound.marginal(), by_slot[np.arange(2)[:, None], slates.T])


def test_logged_arms_without_probabilities_have_no_value_by_pbm() -> None:
    world = unskew.simulate_impressions(300, 6, 3, logging="rankers", n_rankers=2, random_state=3)
    arm = TargetRanking(scores=KindScores(world.logging_scores[0]))

    with pytest.warns(PropensityWarning, match=r"not in the requests .* logging=PolicyMixture"):
        result = unskew.evaluate_policies(world.log, {"a": arm}, examination=CURVE)

    assert np.isnan(result.value("a").estimate)
    assert np.isnan(result.compare("a").difference)


def test_a_mixture_may_lack_slots_for_estimators_of_single_slots() -> None:
    world = unskew.simulate_impressions(2000, 6, 3, logging="rankers", n_rankers=2, random_state=3)
    arms = [TargetRanking(scores=KindScores(scores)) for scores in world.logging_scores]
    log = world.log
    rows = np.flatnonzero(np.random.default_rng(0).random(len(log)) < 0.9)
    part = Impressions.from_arrays(
        log.request[rows], log.users[log.user[rows]], log.items[log.item[rows]], log.reward[rows],
        position=log.position[rows],
    )  # fmt: skip

    with pytest.raises(BadImpressionError, match=r"'ips' needs every slot .* without a click"):
        unskew.evaluate_policies(part, {"a": arms[0]}, logging=PolicyMixture(arms))
    result = unskew.evaluate_policies(
        part, {"a": arms[0]}, logging=PolicyMixture(arms), estimators=["iips"]
    )
    assert np.isfinite(result.value("a").estimate)


def test_a_policy_without_any_weight_has_no_value(world: ImpressionSimulation) -> None:
    never = TargetProbability(np.zeros(len(world.log)))

    with pytest.warns(PropensityWarning, match="'ips', 'snips', 'rips' and 'snrips' cannot"):
        result = unskew.evaluate_policies(world.log, {"never": never})

    for estimator in result.estimators:
        assert np.isnan(result.value("never", estimator=estimator).estimate)
        assert np.isnan(result.compare("never", estimator=estimator).difference)


def test_slates_are_checked_step_by_step() -> None:
    """Places among the shown items agree with few requests in all slots, with many in the first."""
    world = unskew.simulate_impressions(300, 30, 5, logging="plackett-luce", random_state=3)
    log = world.log
    score = world.target.table[log.users[log.user] % len(world.target.table), log.item]
    frame = log.to_frame("pandas").assign(score=score)
    frame["place"] = frame.groupby("request")["score"].rank(ascending=False, method="first")
    shown = Impressions.from_frame(
        frame, request="request", user="user", item="item", probability="probability",
        probability_is="step",
    )  # fmt: skip

    with pytest.warns(PropensityWarning) as told:
        result = unskew.evaluate_policies(
            shown, {"new": TargetRanking(position="place")}, estimators=["snips"]
        )

    assert any("step weights at position 1" in str(each.message) for each in told)
    (slate,) = (check for check in result.checks if check.weight == "slate")
    assert slate.n_positive >= MIN_REQUESTS
    assert not slate.is_off
    assert np.isnan(result.value("new").ci_low)


def test_a_wrong_statement_of_the_log_is_named_as_a_cause(world: ImpressionSimulation) -> None:
    stated = PlackettLuce(KindScores(world.target.table), temperature=0.5)
    log = Impressions.from_arrays(
        world.log.request, world.log.users[world.log.user], world.log.items[world.log.item],
        world.log.reward, position=world.log.position,
    )  # fmt: skip

    with pytest.warns(PropensityWarning, match="made in another way than stated: by other scores"):
        unskew.evaluate_policies(log, {"new": world.target}, logging=stated, estimators=["iips"])


@pytest.mark.parametrize(
    ("policies", "shares", "message"),
    [
        ([], None, "policies must be a list of policies"),
        (["p"], None, "policies must be a list of policies"),
        ([UniformSlate()], [0.5], "with the sum 1"),
        ([UniformSlate()] * 2, [1.0], "a number above 0 for each of 2 policies"),
        ([UniformSlate()] * 2, [0.0, 1.0], "a number above 0"),
    ],
)
def test_mixtures_are_checked(policies: Any, shares: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PolicyMixture(policies, shares)


def make_result(
    differences: dict[str, tuple[float, float]], incomplete: tuple[str, ...] = ()
) -> PolicyEvaluation:
    """A result with a difference of ``new`` from ``logged`` and its error, by estimator."""
    estimates = {
        name: Estimate(np.array([1 + difference, 1.0]), np.diag([error**2, 0.0]), 1000)
        for name, (difference, error) in differences.items()
    }
    return PolicyEvaluation(
        ("new",), tuple(differences), estimates, dict.fromkeys(differences, ("new", "logged")),
        0.95, "user", 1000, 2000, 2, incomplete=incomplete,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("differences", "incomplete", "estimator", "others"),
    [
        (
            {"ips": (0.3, 0.2), "rips": (0.25, 0.05)},
            (),
            "ips",
            "rips tells it from the logging policy",
        ),
        (
            {"ips": (0.3, 0.2), "snips": (0.25, 0.05)},
            (),
            "snips",
            "ips cannot tell it from the logging policy",
        ),
        ({"ips": (0.3, 0.1), "rips": (0.25, 0.05)}, (), "ips", "rips agrees"),
        ({"ips": (0.6, 0.1), "rips": (0.1, 0.02)}, (), "ips", "rips disagrees"),
        ({"snips": (0.1, 0.02), "ips": (0.6, 0.1)}, (), "snips", "ips disagrees"),
        ({"rips": (0.2, 0.05), "pi": (0.5, 0.04)}, (), "pi", "rips disagrees"),
        ({"iips": (0.2, 0.05), "rips": (0.2, 0.06)}, (), "rips", "iips agrees"),
        ({"snips": (0.2, 0.1), "dm": (0.21, 0.01)}, ("dm",), "snips", "dm agrees"),
        ({"dm": (0.21, 0.01)}, ("dm",), "dm", ""),
    ],
)
def test_the_headline_assumes_least_and_then_has_the_narrowest_interval(
    differences: Any, incomplete: Any, estimator: str, others: str
) -> None:
    result = make_result(differences, incomplete)

    headline = result.headline()

    assert headline.estimator == result.compare("new").estimator == estimator
    assert headline.describe({}) == others
    if others:
        assert f"headline: 'new' by {estimator}; {others}" in result.describe()


@pytest.mark.parametrize(
    ("values", "others", "better"),
    [
        ([1.0], "rips agrees", "p0"),
        ([1.0, 0.0, 0.0], "rips tells it from the logging policy", None),
        ([0.9, 0.0, 0.0], "rips agrees", None),
        ([1.5, 0.0, 0.0], "rips agrees", "p0"),
        ([-2.0, -2.5, -3.0], "rips agrees", "logged"),
    ],
)
def test_the_best_of_several_policies_can_look_better_by_chance(
    values: list[float], others: str, better: str | None
) -> None:
    """A difference of 1 is 2.08 standard errors of IPS, and 2.5 of RIPS."""
    names = tuple(f"p{number}" for number in range(len(values)))
    estimates = {
        name: Estimate(np.array([*values, 0.0]), np.diag([error**2] * len(values) + [0.0]), 1000)
        for name, error in (("ips", 0.48), ("rips", 0.4))
    }
    result = PolicyEvaluation(
        names, tuple(estimates), estimates, dict.fromkeys(estimates, (*names, "logged")),
        0.95, "user", 1000, 2000, 2,
    )  # fmt: skip

    headline = result.headline()

    assert (headline.estimator, headline.policy) == ("ips", "p0")
    assert (headline.better, headline.describe({})) == (better, others)
    assert (" of 3 policies" in make_page(result)) == (len(values) == 3)
    assert ("highest value of 3 policies and" in result.describe()) == (len(values) == 3)


@pytest.mark.parametrize(
    ("n_intervals", "rank"),
    [
        (2, "has the highest value of the 2 policies with an interval, one of which"),
        (1, "is the only policy with an interval."),
    ],
)
def test_the_headline_ranks_policies_with_an_interval(n_intervals: int, rank: str) -> None:
    names = ("p0", "p1", "p2")
    checks = tuple(
        WeightCheck(name, "slate", None, 1.0, 0.1, 0.6, 1.4, n_positive=1, effective=1, largest=1)
        for name in names[n_intervals:]
    )
    estimate = Estimate(np.array([1.0, 0.5, 9.0, 0.0]), np.diag([1.0, 1.0, 1.0, 0.0]), 1000)
    result = PolicyEvaluation(
        names, ("ips",), {"ips": estimate}, {"ips": (*names, "logged")},
        0.95, "user", 1000, 2000, 2, checks,
    )  # fmt: skip

    assert result.headline().policy == "p0"
    assert f"It {rank}" in make_page(result)
    assert f"'p0' by ips {rank.split(',')[0].rstrip('.')} and" in result.describe()


def test_the_headline_claims_too_much_in_5_percent_of_logs_for_any_number_of_policies() -> None:
    rng = np.random.default_rng(0)
    names = tuple(f"p{number}" for number in range(5))
    claims = 0
    for _ in range(1000):
        values = np.append(rng.standard_normal(5), 0.0)
        estimate = Estimate(values, np.diag([1.0] * 5 + [0.0]), 1000)
        result = PolicyEvaluation(
            names, ("ips",), {"ips": estimate}, {"ips": (*names, "logged")},
            0.95, "user", 1000, 2000, 2,
        )  # fmt: skip
        claims += result.headline().better is not None

    assert claims < 0.05 * 1000


def test_the_headline_needs_enough_weights_above_0() -> None:
    world = unskew.simulate_impressions(60, 6, 4, random_state=0)

    with pytest.warns(PropensityWarning, match=r"only \d+ of [\d,]+ requests have slate weights"):
        result = unskew.evaluate_policies(
            world.log, {"new": world.target}, logging=UniformSlate(), estimators=["snips", "iips"]
        )

    assert result.headline().estimator == "iips"


def test_the_page_says_which_estimator_decides_and_whether_others_agree(
    world: ImpressionSimulation,
) -> None:
    result = unskew.evaluate_policies(world.log, {"new": world.target})
    page = make_page(result)

    assert result.headline().estimator == "snips"
    assert "by SNIPS" in page
    assert "RIPS" in result.to_record()["headline"]["others"]
    assert result.to_record()["headline"]["others"] in page


def test_errors_of_callables_are_named(world: ImpressionSimulation) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("no such table")

    with pytest.raises(BadPredictionError, match=r"scoring [\d,]+ pairs .*no such table") as info:
        unskew.evaluate_policies(world.log, {"new": fail})
    assert isinstance(info.value.__cause__, RuntimeError)
    with pytest.raises(
        UsageError, match=r"transform failed \(RuntimeError: no such table\)\. Pass"
    ):
        unskew.evaluate_policies(
            world.log, {"new": world.target}, estimators=["ips"], transform=fail
        )


def test_checks_of_right_probabilities_are_quiet(world: ImpressionSimulation) -> None:
    result = unskew.evaluate_policies(world.log, {"new": world.target})

    assert result.estimators == ("ips", "snips", "rips", "snrips")
    assert [check.weight for check in result.checks] == ["slate", "step", "step", "step"]
    assert list(result.problems()) == []


@pytest.mark.parametrize(
    "kind", ["probability", "position", "array", "candidates of requests", "candidates of users"]
)
def test_targets_can_be_given_in_several_ways(world: ImpressionSimulation, kind: str) -> None:
    log = world.log
    by_model = unskew.evaluate_policies(log, {"new": world.target}, estimators=["ips", "rips"])
    order = np.argsort(np.argsort(-world.target.table, axis=1), axis=1) + 1.0
    users = log.users[log.user]
    position = order[users % 2, log.item]
    position[position > 3] = np.nan
    agrees = (position == log.position).astype(float)
    frame = log.to_frame("pandas").assign(place=position, p_new=agrees)
    log = Impressions.from_frame(frame, probability="probability", probability_is="step")
    candidates, target = None, as_policy("p_new")
    if kind == "position":
        target = TargetRanking("place")
    elif kind == "array":
        target = TargetProbability(agrees)
    elif kind.startswith("candidates"):
        table = (
            frame[["request", "user"] if kind == "candidates of requests" else ["user"]]
            .drop_duplicates()
            .merge(pd.DataFrame({"item": np.arange(6)}), how="cross")
        )
        candidates = table.assign(score=world.target.predict(table["user"], table["item"]))
        target = TargetRanking(scores="score")

    result = unskew.evaluate_policies(
        log, {"new": target}, estimators=["ips", "rips"], candidates=candidates
    )

    for name in ("ips", "rips"):
        expected = by_model.value("new", estimator=name)
        assert result.value("new", estimator=name).estimate == pytest.approx(expected.estimate)
        assert result.value("new", estimator=name).std_error == pytest.approx(expected.std_error)


def test_a_recommender_ranks_candidates_without_seen_items(world: ImpressionSimulation) -> None:
    log = world.log
    cells = pd.DataFrame({"user": log.users[log.user], "item": log.item, "r": log.reward})
    cells = cells.groupby(["user", "item"], as_index=False).mean()
    ratings = unskew.Ratings.from_frame(cells, rating="r")
    seen = unskew.Ratings.from_arrays(
        np.repeat(log.users, 2), np.tile([0, 5], log.n_users), np.ones(2 * log.n_users)
    )
    model = unskew.MatrixFactorization(n_factors=2, l2=5.0).fit(ratings)

    columns = PolicyPlan({"new": as_policy(model)}, exclude=seen).bind(log)["new"]

    share = columns.target.marginal()
    assert (share[:, np.isin(log.item[log.slots], [0, 5]).T[0]][0] == 0).all()
    users, items = log.users[log.user_of_request], log.item[log.slots]
    first = np.array([1, 2, 3, 4])
    scores = model.predict(np.repeat(users, 4), np.tile(first, users.size)).reshape(-1, 4)
    np.testing.assert_array_equal(share[0], items[:, 0] == first[scores.argmax(axis=1)])


def test_a_model_of_another_library_is_a_target(world: ImpressionSimulation) -> None:
    from sklearn.linear_model import LinearRegression

    quality = np.arange(6.0)
    fitted = LinearRegression().fit([[0, 0], [0, 1], [1, 0]], [0, 1, 0])
    model = unskew.evaluation.wrap_model(
        fitted,
        users=world.log.users,
        items=world.log.items,
        user_features=np.zeros((world.log.n_users, 1)),
        item_features=quality[:, None],
    )

    share = PolicyPlan({"new": as_policy(model)}).bind(world.log)["new"].target.marginal()

    shown = world.log.item[world.log.slots].T
    np.testing.assert_array_equal(share, shown == np.array([[5], [4], [3]]))


@pytest.mark.filterwarnings("ignore:OpenBLAS is configured:RuntimeWarning")
def test_implicit_ranks_candidates_that_users_have_not_seen(world: ImpressionSimulation) -> None:
    als = pytest.importorskip("implicit.als", reason="implicit is not installed")
    from scipy.sparse import csr_matrix

    log = world.log
    amounts = 0.1 + log.reward  # users without clicks would have ties
    clicks = csr_matrix((amounts, (log.user, log.item)), shape=(log.n_users, log.n_items))
    fitted = als.AlternatingLeastSquares(factors=3, random_state=0, num_threads=1)
    fitted.fit(clicks, show_progress=False)
    model = unskew.evaluation.wrap_model(fitted, users=log.users, items=log.items)
    seen = unskew.Ratings.from_arrays(log.users, np.zeros(log.n_users), np.ones(log.n_users))

    plan = PolicyPlan({"als": as_policy(model)}, exclude=seen)
    share = plan.bind(log)["als"].target.marginal()

    scores = fitted.user_factors @ fitted.item_factors.T
    scores[:, log.items == 0] = -np.inf
    best = np.argsort(-scores, axis=1)[:, :3]
    np.testing.assert_array_equal(share, (log.item[log.slots] == best[log.user_of_request]).T)


def test_candidates_that_were_never_shown_can_be_listed(world: ImpressionSimulation) -> None:
    def score(users: Any, items: Any) -> Any:
        return np.where(items == 9, 10.0, -items.astype(float))

    with pytest.warns(PropensityWarning, match="needs less overlap|never shows"):
        result = unskew.evaluate_policies(
            world.log, {"new": score}, estimators=["snips", "ips"], candidates=[0, 1, 2, 9]
        )

    assert np.isnan(result.value("new", estimator="snips").estimate)
    assert np.isnan(result.value("new", estimator="ips").ci_low)
    told = [str(problem) for problem in result.problems()]
    assert sum("never shows" in text for text in told) == 1


def test_parts_of_a_log_give_the_same_result(world: ImpressionSimulation) -> None:
    log = world.log
    plan = PolicyPlan(
        {"new": as_policy(world.target)}, estimators=("snips", "snrips", "iips"),
        logging=UniformSlate(),
    )  # fmt: skip
    cut = log.n_requests // 3
    parts = [log.take(np.arange(cut)), log.take(np.arange(cut, log.n_requests))]

    whole, together = plan.evaluate([log]), plan.evaluate(parts)

    for name in ("snips", "snrips", "iips"):
        one, other = (each.value("new", estimator=name) for each in (whole, together))
        assert one.estimate == pytest.approx(other.estimate, rel=1e-12)
        assert one.std_error == pytest.approx(other.std_error, rel=1e-9)
    assert whole.compare("new").p_value == pytest.approx(together.compare("new").p_value)
    assert [each.mean for each in whole.checks] == pytest.approx(
        [each.mean for each in together.checks]
    )


def test_a_request_that_is_split_over_parts_is_refused(world: ImpressionSimulation) -> None:
    part = world.log.take(np.arange(5))

    with pytest.raises(BadImpressionError, match=r"parts of the log share 5 requests"):
        PolicyPlan({"new": as_policy(world.target)}).evaluate([part, part])


def test_row_order_does_not_matter(world: ImpressionSimulation) -> None:
    frame = world.log.to_frame("pandas")
    logs = [
        Impressions.from_frame(each, probability="probability", probability_is="step")
        for each in (frame, frame.sample(frac=1, random_state=0))
    ]
    values = [
        unskew.evaluate_policies(log, {"new": world.target}, estimators=["snrips"]).value("new")
        for log in logs
    ]

    assert values[0] == values[1]


def test_slates_of_different_sizes_use_the_slots_that_are_there() -> None:
    world = unskew.simulate_impressions(2000, random_state=5)
    frame = world.log.to_frame("pandas")
    frame = frame[(frame["position"] < 3) | (frame["request"] % 2 == 0)]
    log = Impressions.from_frame(frame, probability="probability", probability_is="step")

    result = unskew.evaluate_policies(
        log, {"new": world.target}, estimators=["rips", "snrips", "iips", "sniips", "pbm"],
        logging=UniformSlate(), examination=CURVE,
    )  # fmt: skip

    order = np.argsort(-world.target.table, axis=1)[:, :3]
    rewards = np.take_along_axis(world.relevance, order, axis=1) * np.array(CURVE)
    value = rewards[:, :2].sum(axis=1) + rewards[:, 2] / 2
    truth = float(world.activity @ value / world.activity.sum())
    for estimator in result.estimators:
        each = result.value("new", estimator=estimator)
        assert abs(each.estimate - truth) < 4 * each.std_error
    columns = result.inputs["new"]
    weight, shown = columns.step_weight * columns.is_shown, columns.is_shown
    by_slot = (weight * columns.reward).sum(axis=1) / weight.sum(axis=1) * shown.mean(axis=1)
    assert result.value("new", estimator="snrips").estimate == pytest.approx(by_slot.sum())


def test_a_deterministic_log_without_probabilities_is_evaluated_by_pbm() -> None:
    world = unskew.simulate_impressions(4000, 3, 3, logging="rankers", n_kinds=4, random_state=2)

    result = unskew.evaluate_policies(world.log, {"new": world.target}, examination=CURVE)

    assert result.estimators == ("pbm",)
    value = result.value("new")
    assert abs(value.estimate - world.value(world.target.table)) < 4 * value.std_error
    assert result.checks[0].mean == pytest.approx(1)


def test_items_that_a_deterministic_log_never_shows_are_reported() -> None:
    world = unskew.simulate_impressions(500, 6, 2, logging="rankers", n_rankers=1, random_state=0)

    with pytest.warns(PropensityWarning, match=r"\d+.\d\d% of the examination to items"):
        unskew.evaluate_policies(world.log, {"new": world.target}, examination=[1, 0.5])


def test_slot_worth_multiplies_rewards(world: ImpressionSimulation) -> None:
    result = unskew.evaluate_policies(
        world.log, {"new": world.target}, estimators=["ips"], slot_worth="dcg"
    )
    log = world.log
    worth = 1 / np.log2([2, 3, 4])

    assert result.value("logged").estimate == pytest.approx(
        (log.reward[log.slots] * worth).sum(axis=1).mean()
    )


def test_self_normalised_pbm_divides_by_the_examination_that_it_covers(
    world: ImpressionSimulation,
) -> None:
    result = unskew.evaluate_policies(
        world.log, {"new": world.target}, estimators=["snpbm"], logging=UniformSlate(),
        examination=CURVE,
    )  # fmt: skip
    columns = result.inputs["new"]
    weight, curve = columns.exposure_weight, np.array(CURVE)
    covered = (weight.T @ curve).mean() / curve.sum()

    assert covered != pytest.approx(1, abs=1e-4)
    assert result.value("new").estimate == pytest.approx(
        (weight * columns.reward).sum(axis=0).mean() / covered
    )


def test_transforms_change_weights_and_are_told(world: ImpressionSimulation) -> None:
    values = {}
    for transform in (None, Clip(1e9), Clip(5.0), Switch(5.0)):
        result = unskew.evaluate_policies(
            world.log, {"new": world.target}, estimators=["ips"], transform=transform
        )
        values[repr(transform)] = result.value("new").estimate
    plain, unclipped, clipped, switched = values.values()

    assert plain == unclipped
    assert switched < clipped < plain
    assert "Switch(max_weight=5.0), which adds bias" in repr(result)
    assert result.checks[0].mean == pytest.approx(1, abs=0.2)
    with pytest.raises(UsageError, match="is a function of a propensity"):
        unskew.evaluate_policies(world.log, {"new": world.target}, transform=Dynamic())


def test_results_can_be_shown_and_saved(world: ImpressionSimulation) -> None:
    result = unskew.evaluate_policies(
        world.log, {"new": world.target, "soft": PlackettLuce(world.target)}
    )

    record = json.loads(result.to_json())
    assert record["kind"] == "policy_evaluation"
    assert {"policy", "estimator", "estimate", "std_error", "ci_low", "ci_high"} <= set(
        record["rows"][0]
    )
    assert record["rows"][0]["policy"] == "logged"
    assert len(result.to_frame("pandas")) == 1 + 2 * 4
    assert "right if the logged probabilities are right, whatever users do" in repr(result)
    assert "<table>" in result._repr_html_()
    pairs = result.compare_all(estimator="snrips")
    assert set(pairs.models) == {"new", "soft", "logged"}
    assert len(pairs.pairs) == 3


def test_sensitivity_contains_the_value_and_finds_the_flip(world: ImpressionSimulation) -> None:
    result = unskew.evaluate_policies(
        world.log, {"new": world.target}, estimators=["ips", "snips", "snrips"]
    )
    sensitivity = result.sensitivity(factors=(1.0, 1.5), clips=(2.0, 1e9))

    for estimator in result.estimators:
        value = result.value("new", estimator=estimator).estimate
        rows = [each for each in sensitivity.shifts if each.estimator == estimator]
        clip, free, same, wide = rows
        assert free.low == pytest.approx(value)
        assert (clip.share_clipped or 0) > 0
        assert (same.low, same.high) == pytest.approx((value, value))
        assert wide.low < value < wide.high
        factor = sensitivity.flips_at["new", estimator]
        assert factor > 1
    assert "can change if weights are wrong by a factor of" in repr(sensitivity)


def test_the_sensitivity_of_ratings_names_the_method_of_policies(
    world: ImpressionSimulation,
) -> None:
    result = unskew.evaluate_policies(world.log, {"new": world.target}, estimators=["ips"])

    with pytest.raises(UsageError, match=r"got PolicyEvaluation\. .* result\.sensitivity\(\)"):
        unskew.sensitivity(result)  # type: ignore[arg-type]


def test_ips_under_a_factor_is_divided_by_it(world: ImpressionSimulation) -> None:
    result = unskew.evaluate_policies(world.log, {"new": world.target}, estimators=["ips"])
    value = result.value("new").estimate

    (shift,) = result.sensitivity(factors=(2.0,), clips=()).shifts

    assert (shift.low, shift.high) == pytest.approx((value / 2, value * 2))


BAD_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"targets": {}}, UsageError, "targets must be a dict of one or more target policies"),
    ({"targets": {"logged": "p"}}, UsageError, "'logged' is the name of the logging policy"),
    (
        {"targets": {"new": "p"}},
        UnknownNameError,
        "column of the log 'p'; .* keeps further columns",
    ),
    ({"targets": {"new": TargetProbability([2.0] * 12)}}, BadPropensityError, r"outside \[0, 1\]"),
    ({"targets": {"new": np.full(12, np.nan)}}, BadPropensityError, r"outside \[0, 1\]"),
    ({"targets": {"new": TargetProbability([0.5])}}, BadPropensityError, "for 12 impressions"),
    ({"targets": {"new": TargetRanking([0.0] * 12)}}, BadImpressionError, "whole numbers from 1"),
    ({"targets": {"new": TargetRanking([1.0] * 12)}}, BadImpressionError, "two items at one"),
    ({"targets": {"new": lambda users, items: items * 0.0}}, UsageError, "have the same score"),
    ({"targets": {"new": lambda users, items: [1.0]}}, BadPredictionError, "got scores of shape"),
    ({"targets": {"new": 3.0}}, BadPredictionError, "a float cannot score candidates"),
    ({"estimators": ["iips"]}, UsageError, r"'iips' needs the probability .* 'logged' does not"),
    ({"estimators": ["pbm"], "examination": [1, 1, 1]}, UsageError, "needs .* at every position"),
    ({"estimators": ["pbm"], "logging": UniformSlate()}, UsageError, "needs the examination"),
    ({"estimators": ["pi"]}, UsageError, "'pi' has a closed form only for"),
    ({"estimators": ["dr"]}, UsageError, "need a regression"),
    ({"estimators": ["ipz"]}, UnknownNameError, "Did you mean 'ips'"),
    ({"estimators": []}, UsageError, "estimators is empty"),
    ({"cluster": "item"}, UnknownNameError, "unknown value 'item' of cluster"),
    ({"slot_worth": [1.0]}, UsageError, "slot_worth must have a number for each of 3"),
    ({"slot_worth": [1.0, np.nan, 1.0]}, UsageError, "slot_worth is nan at position 2"),
    (
        {"examination": [0, 1, 1]},
        UsageError,
        "examination must be a list of positive numbers, .*; got .0.0, 1.0, 1.0",
    ),
    ({"candidates": [0, 1]}, UsageError, "have fewer candidates than slots"),
    (
        {"logging": UniformSlate(), "candidates": [0, 1, 2, 3]},
        BadImpressionError,
        r"logging gives the probability 0 to \d+ shown items; the first is row",
    ),
    ({"logging": lambda users, items: 1.0}, UsageError, r"must be a Policy; .* PlackettLuce"),
    (
        {"targets": {"new": np.tile([1.0, 2.0, 3.0], 4)}},
        BadPropensityError,
        r"8 of 12 probabilities .* look like positions of a new ranking: use TargetRanking",
    ),
    (
        {"estimators": ["pbm"], "examination": CURVE},
        UsageError,
        "'pbm' needs .* logging=..., .* reads 'step' probabilities",
    ),
    (
        {"logging": PlackettLuce(lambda users, items: items * 1.0)},
        UsageError,
        "4 of 4 requests were logged with other step probabilities than the policy logging",
    ),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD_ARGUMENTS)
def test_arguments_are_checked(
    changes: dict[str, Any], error: type[Exception], message: str, world: ImpressionSimulation
) -> None:
    arguments = {"targets": {"new": world.target}} | changes
    log = world.log.take(np.arange(4))
    with pytest.raises(error, match=message):
        unskew.evaluate_policies(log, **arguments)


def test_repeated_candidates_are_counted_once_and_the_first_is_named() -> None:
    shown = Impressions.from_arrays(
        [1, 2], [1, 2], [0, 1], [0, 1], probability=[0.5, 0.5], probability_is="slate"
    )
    request, item = [1, 1, 2, 2, 2, 1, 2], [0, 1, 0, 1, 1, 1, 1]
    candidates = pd.DataFrame({"request": request, "item": item, "score": np.ones(7)})

    match = r"requests list 2 candidates more than once; .* row 4 of the candidates, item 1"
    with pytest.raises(BadImpressionError, match=match):
        unskew.evaluate_policies(
            shown, {"new": TargetRanking(scores="score")}, candidates=candidates
        )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"item": [0], "score": [1.0]}, "no column of the candidates looks like the request or"),
        ({"user": [7], "item": [0]}, r"2,999 of 3,000 users have no candidates; .* user 1\."),
        ({"request": [0], "item": [0]}, r"[\d,]+ requests have no candidates; .* request 1\."),
    ],
)
def test_frames_of_candidates_are_checked(
    columns: dict[str, Any], message: str, world: ImpressionSimulation
) -> None:
    with pytest.raises(DataError, match=message):
        unskew.evaluate_policies(
            world.log,
            {"new": TargetRanking(scores="score")},
            candidates=pd.DataFrame(columns),
        )


def test_policies_cannot_share_the_columns_of_a_regression(world: ImpressionSimulation) -> None:
    targets = {"new": world.target, "same": world.target}

    with pytest.raises(UsageError, match="regression names one pair of columns for 2 policies"):
        unskew.evaluate_policies(world.log, targets, estimators=["dr"], regression=("q", "v"))


def test_a_log_with_gaps_is_refused_for_running_products() -> None:
    shown = Impressions.from_arrays(
        [1, 1], [1, 1], [1, 2], [0, 1], position=[1, 3], probability=[0.5, 0.5],
        probability_is="step",
    )  # fmt: skip

    with pytest.raises(BadImpressionError, match=r"'rips' needs every slot above .* request 1"):
        unskew.evaluate_policies(shown, {"new": TargetProbability([0.1, 0.2])}, estimators=["rips"])


def test_ties_in_random_order_are_a_policy() -> None:
    shown = Impressions.from_arrays(
        np.repeat(np.arange(6), 2), np.repeat(np.arange(6), 2),
        [0, 1, 0, 2, 1, 0, 1, 2, 2, 0, 2, 1], np.zeros(12), position=[1, 2] * 6,
    )  # fmt: skip
    target = TargetRanking(scores=lambda users, items: (items == 2) * 1.0, ties="random")

    bound = PolicyPlan({"new": target}).bind(shown)["new"].target

    assert bound.slate().tolist() == [0, 0, 0, 0, 0.5, 0.5]
    assert bound.marginal()[1].tolist() == [0.5, 0, 0.5, 0, 0.5, 0.5]
    np.testing.assert_allclose(
        bound.exposure(np.array([1.0, 0.5]))[0], [0.25, 0.25, 0.25, 0.25, 1, 1]
    )


def test_negative_rewards_are_largest_at_small_weights() -> None:
    n = 60
    shown = Impressions.from_arrays(
        np.arange(n), np.arange(n), np.arange(n), np.tile([3.0, -1.0], n // 2),
        probability=np.full(n, 0.5),
    )  # fmt: skip
    result = unskew.evaluate_policies(
        shown, {"new": TargetProbability(np.full(n, 0.5))}, estimators=["ips"]
    )

    (shift,) = result.sensitivity(factors=(2.0,), clips=()).shifts

    assert (shift.low, shift.high) == pytest.approx(((1.5 - 2) / 2, (6 - 0.5) / 2))


def test_a_tie_that_is_shown_completely_has_one_item_left() -> None:
    shown = Impressions.from_arrays(
        np.repeat([0, 1], 3), np.repeat([0, 1], 3), [2, 0, 1, 2, 1, 0], np.zeros(6),
        position=[1, 2, 3] * 2,
    )  # fmt: skip
    target = TargetRanking(scores=lambda users, items: (items == 2) * 1.0, ties="random")

    bound = PolicyPlan({"new": target}).bind(shown)["new"].target

    assert bound.step().T.tolist() == [[1, 0.5, 1], [1, 0.5, 1]]


def test_weights_that_overflow_are_refused() -> None:
    shown = Impressions.from_arrays(
        np.repeat([1, 2], 4), np.repeat([1, 2], 4), np.tile(np.arange(4), 2), np.ones(8),
        position=[1, 2, 3, 4] * 2, probability=[1e-90] * 8, probability_is="step",
    )  # fmt: skip

    with pytest.raises(BadPropensityError, match=r"2 weights are infinite: logged probabilities"):
        unskew.evaluate_policies(shown, {"new": TargetProbability([0.1] * 8)}, estimators=["ips"])


def test_slate_probabilities_must_be_equal_within_a_request() -> None:
    shown = Impressions.from_arrays(
        [1, 1], [1, 1], [1, 2], [0, 1], position=[1, 2], probability=[0.5, 0.4],
        probability_is="slate",
    )  # fmt: skip

    with pytest.raises(BadPropensityError, match=r"different slate probabilities; .* request 1"):
        unskew.evaluate_policies(shown, {"new": TargetProbability([0.1, 0.1])})
