"""The bias of every estimator, by enumeration of all slates of a small world.

Estimators are linear in the rewards, so their expectation is a sum over slates of the probability
of the slate times the value at the expected rewards.
"""

from __future__ import annotations

import numpy as np
import pytest

from slates import (
    Rewards,
    Slates,
    find_marginals,
    list_all,
    make_log,
    make_policy,
    slate_probability,
)
from unskew.policies import POLICY_ESTIMATORS
from unskew.policies.columns import ArrayColumns
from unskew.policies.plan import PolicyPlan
from unskew.types import Matrix, Vector

N_ITEMS, K = 5, 3
CURVE = np.array([1.0, 0.6, 0.3])
RNG = np.random.default_rng(5)
RELEVANCE = RNG.uniform(0.1, 0.9, N_ITEMS)
EFFECT = RNG.uniform(0.05, 0.6, (K, N_ITEMS))
SCORES = {"log": RNG.normal(0, 0.8, N_ITEMS), "target": RNG.normal(0, 1, N_ITEMS)}
PAIRS = [
    (logger, target)
    for logger in ("uniform", "plackett-luce", "product")
    for target in ("sorted", "plackett-luce", "product")
    if logger == "product" or target != "product"  # else slates with repeats are never shown
]
FIXED = ("ips", "rips", "iips", "pbm", "pi", "dr", "iips-dr", "cascade-dr")


def position_based(slates: Slates) -> Matrix:
    return CURVE * RELEVANCE[slates]


def any_effect(slates: Slates) -> Matrix:
    return EFFECT[np.arange(K), slates]


def cascade(slates: Slates, stay: float = 0.0) -> Matrix:
    relevance = RELEVANCE[slates]
    goes_on = np.cumprod(1 - (1 - stay) * relevance, axis=1)
    return relevance * np.column_stack([np.ones(len(slates)), goes_on[:, :-1]])


def cascade_that_goes_on(slates: Slates) -> Matrix:
    return cascade(slates, stay=0.4)


def _mix(slates: Slates, seed: float) -> Matrix:
    """Numbers in (0, 1) for each slot that depend on the whole slate."""
    code = slates @ np.array([1.0, 7.0, 49.0])
    return np.modf(np.sin(code[:, None] * 12.9898 + np.arange(K) * seed) * 43758.5453)[0] ** 2


def additive_in_sum(slates: Slates) -> Matrix:
    noise = _mix(slates, 78.2)
    return any_effect(slates) + 0.3 * (noise - noise.mean(axis=1, keepdims=True))


def general(slates: Slates) -> Matrix:
    return 0.5 * _mix(slates, 37.7) + 0.3 * RELEVANCE[slates]


USERS: dict[str, Rewards] = {
    "position-based": position_based,
    "any effect": any_effect,
    "cascade": cascade,
    "cascade, may go on": cascade_that_goes_on,
    "only the sum additive": additive_in_sum,
    "general": general,
}
UNBIASED = {
    "position-based": set(FIXED),
    "any effect": set(FIXED) - {"pbm"},
    "cascade": {"ips", "dr", "rips", "cascade-dr"},
    "cascade, may go on": {"ips", "dr", "rips", "cascade-dr"},
    "only the sum additive": {"ips", "dr", "pi"},
    "general": {"ips", "dr"},
}


class World:
    """A logging policy, a target and users; what each estimator gives in expectation."""

    def __init__(self, logger: str, target: str, users: str) -> None:
        self.slates = list_all(N_ITEMS, K, repeats=logger == "product")
        self.logged = slate_probability(logger, SCORES["log"], self.slates)
        self.logger, self.target = logger, target
        self.rewards = USERS[users](self.slates)
        all_slates = list_all(N_ITEMS, K, repeats=True)
        self.all_slates = all_slates
        self.all_target = slate_probability(target, SCORES["target"], all_slates)
        self.truth = float(self.all_target @ USERS[users](all_slates).sum(axis=1))

    def columns(self, q: Matrix, v: Matrix) -> ArrayColumns:
        shown = make_log(self.slates, self.rewards, {"q": q, "v": v})
        plan = PolicyPlan(
            {"new": make_policy(self.target, SCORES["target"])},
            logging=make_policy(self.logger, SCORES["log"]),
            examination=CURVE,
            regression=("q", "v"),
        )
        return plan.bind(shown)["new"]

    def expect(self, estimator: str) -> float:
        q, v = self.regress(estimator)
        (term,) = POLICY_ESTIMATORS.find(estimator).target(self.columns(q, v))
        return float(self.logged @ term.numerator)

    def regress(self, estimator: str) -> tuple[Matrix, Matrix]:
        """A wrong regression, and its mean under the target policy."""
        rng = np.random.default_rng(3)
        if estimator == "cascade-dr":
            table = rng.uniform(0, 1, (K, N_ITEMS**K))
            power = N_ITEMS ** np.arange(K)
            q = np.column_stack(
                [table[k, self.slates[:, : k + 1] @ power[: k + 1]] for k in range(K)]
            )
            return q, np.column_stack([self._mean_of_step(table, k) for k in range(K)])
        effect = rng.uniform(0, 1, (K, N_ITEMS))
        marginal = find_marginals(self.all_target, self.all_slates, N_ITEMS)
        v = np.tile((marginal * effect).sum(axis=1), (len(self.slates), 1))
        return effect[np.arange(K), self.slates], v

    def _mean_of_step(self, table: Matrix, k: int) -> Vector:
        """E[q_k given the slots above] under the target, by the ratio of two sums over slates."""
        power = N_ITEMS ** np.arange(K)
        prefix_all = self.all_slates[:, :k] @ power[:k]
        value_all = table[k, self.all_slates[:, : k + 1] @ power[: k + 1]]
        total = np.bincount(prefix_all, weights=self.all_target, minlength=N_ITEMS**K)
        sums = np.bincount(prefix_all, weights=self.all_target * value_all, minlength=N_ITEMS**K)
        mean = np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
        return np.asarray(mean[self.slates[:, :k] @ power[:k]])


@pytest.mark.parametrize("users", USERS)
@pytest.mark.parametrize(("logger", "target"), PAIRS)
def test_estimators_are_unbiased_exactly_where_they_should_be(
    logger: str, target: str, users: str
) -> None:
    world = World(logger, target, users)
    for estimator in FIXED:
        if estimator == "pi" and logger == "plackett-luce":
            continue
        if estimator in UNBIASED[users]:
            assert abs(world.expect(estimator) - world.truth) < 1e-10, estimator


@pytest.mark.parametrize(
    ("users", "estimator"),
    [(users, name) for users in USERS for name in FIXED if name not in UNBIASED[users]],
)
def test_estimators_are_biased_where_their_condition_fails(users: str, estimator: str) -> None:
    world = World("uniform", "sorted", users)

    assert abs(world.expect(estimator) - world.truth) > 1e-3


@pytest.mark.parametrize(("logger", "target"), PAIRS)
def test_all_weights_have_the_mean_1(logger: str, target: str) -> None:
    world = World(logger, target, "general")
    columns = world.columns(world.rewards, world.rewards)

    assert world.logged @ columns.slate_weight == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(columns.step_weight @ world.logged, 1, atol=1e-12)
    np.testing.assert_allclose(columns.marginal_weight @ world.logged, 1, atol=1e-12)
    exposure = columns.exposure_weight @ world.logged
    assert exposure @ CURVE == pytest.approx(CURVE.sum(), abs=1e-12)
    if logger != "plackett-luce":
        assert world.logged @ columns.additive_weight == pytest.approx(1, abs=1e-12)


def test_slot_by_slot_the_mean_weight_of_pbm_is_not_1() -> None:
    world = World("plackett-luce", "sorted", "general")

    exposure = world.columns(world.rewards, world.rewards).exposure_weight @ world.logged

    assert np.abs(exposure - 1).min() > 0.01


def test_rips_and_iips_differ_without_repeats() -> None:
    world = World("plackett-luce", "sorted", "cascade")

    assert abs(world.expect("rips") - world.expect("iips")) > 1e-3


@pytest.mark.parametrize(("n_items", "n_slots"), [(5, 3), (4, 4), (3, 1), (6, 2)])
@pytest.mark.parametrize("logger", ["uniform", "product"])
@pytest.mark.parametrize("target", ["sorted", "plackett-luce"])
def test_pi_in_closed_form_is_the_pseudo_inverse(
    n_items: int, n_slots: int, logger: str, target: str
) -> None:
    rng = np.random.default_rng(n_items)
    scores, target_scores = rng.normal(size=n_items), rng.normal(size=n_items)
    slates = list_all(n_items, n_slots, repeats=logger == "product")
    logged = slate_probability(logger, scores, slates)
    chosen = slate_probability(target, target_scores, slates)
    marginal = find_marginals(chosen, slates, n_items)
    indicator = np.zeros((len(slates), n_slots * n_items))
    for slot in range(n_slots):
        indicator[np.arange(len(slates)), slot * n_items + slates[:, slot]] = 1
    gram = (indicator * logged[:, None]).T @ indicator
    expected = marginal.ravel() @ np.linalg.pinv(gram, rcond=1e-10) @ indicator.T

    plan = PolicyPlan(
        {"new": make_policy(target, target_scores)}, logging=make_policy(logger, scores)
    )
    weight = plan.bind(make_log(slates, np.zeros(slates.shape)))["new"].additive_weight

    np.testing.assert_allclose(weight, expected, atol=1e-9)
