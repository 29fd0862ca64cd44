"""Coverage of the intervals of policy values, on worlds where each estimator is unbiased.

Each case draws logs of 400 users from one simulated world; users who click more make more requests,
so requests of one user depend on one another. The truth is exact. The target is a Plackett-Luce
policy. It is compared with the truth, and with a policy of the same value that prefers other items.

    python benchmarks/policy_coverage.py --logs 2000 [--only cascade]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import unskew
from unskew.data.impressions import Impressions
from unskew.policies.checks import LEVEL, MAX_ERRORS
from unskew.policies.plan import PolicyPlan
from unskew.policies.targets import IndependentSlots, PlackettLuce, Policy, UniformSlate
from unskew.policies.terms import TermSums
from unskew.simulation.impressions import ImpressionSimulation, KindScores

N_USERS, TEMPERATURE = 400, 0.5
LOGS_AT_ONCE = 50
Table = npt.NDArray[np.float64]
ANY_USERS = ("ips", "snips", "dr")
OF_CASCADE = (*ANY_USERS, "rips", "snrips", "cascade-dr")
OF_POSITIONS = (*OF_CASCADE, "iips", "sniips", "iips-dr", "pbm", "snpbm", "dm")


@dataclass(frozen=True)
class Case:
    """Users and logging policy of a world, and the estimators that are unbiased there."""

    users: str
    logging: str
    estimators: tuple[str, ...]
    n_slots: int = 3


CASES = {
    "position-uniform": Case("position", "uniform", (*OF_POSITIONS, "pi", "snpi")),
    "position-plackett-luce": Case("position", "plackett-luce", OF_POSITIONS),
    "position-product": Case("position", "product", (*ANY_USERS, "rips", "iips", "pbm", "pi")),
    "cascade-uniform": Case("cascade", "uniform", OF_CASCADE),
    "cascade-plackett-luce": Case("cascade", "plackett-luce", OF_CASCADE),
    "general-plackett-luce": Case("general", "plackett-luce", ANY_USERS),
    "bandit-plackett-luce": Case("position", "plackett-luce", (*ANY_USERS, "dm"), n_slots=1),
}


def make_world(case: Case) -> ImpressionSimulation:
    """A world of six items in three pairs of equal relevance, so that equal policies differ."""
    world = unskew.simulate_impressions(
        N_USERS,
        n_slots=case.n_slots,
        users=case.users,  # type: ignore[arg-type]
        logging=case.logging,  # type: ignore[arg-type]
        random_state=11,
    )
    relevance = np.repeat(world.relevance[:, :3], 2, axis=1)
    scores = world.logging_scores
    if case.logging != "uniform":
        scores = relevance + np.random.default_rng(3).normal(0, 0.4, relevance.shape)
    return replace(world, relevance=relevance, logging_scores=scores)


def find_logging(world: ImpressionSimulation) -> Policy:
    """The logging policy of the world, from which all kinds of probabilities follow."""
    scores = KindScores(world.logging_scores)
    if world.logging == "uniform":
        return UniformSlate()
    return IndependentSlots(scores) if world.logging == "product" else PlackettLuce(scores)


def make_scores(world: ImpressionSimulation, *, is_even: bool) -> Table:
    """Scores that prefer the first, or the second, item of each pair of equal items."""
    bonus = np.tile([1.0, 0.0] if is_even else [0.0, 1.0], 3)
    return 2 * world.relevance + 0.5 * bonus


def add_regression(world: ImpressionSimulation, log: Impressions, scores: Table) -> Impressions:
    """The log with a regression: right for position-based users without other slots.

    q_k is the examination times the relevance; v_k its mean under the target policy (`v`), and its
    mean given the slots above (`v_step`). For other users q is wrong, which only adds variance.
    """
    kind = log.users[log.user_of_request] % len(world.relevance)
    curve = 1 / np.arange(1, world.n_slots + 1)
    slates, rows = log.item[log.slots], log.slots
    rate = np.exp(scores / TEMPERATURE)[kind]
    relevance = world.relevance[kind]
    q, v_step = np.empty(rows.shape), np.empty(rows.shape)
    request = np.arange(log.n_requests)
    for slot in range(world.n_slots):
        q[:, slot] = curve[slot] * relevance[request, slates[:, slot]]
        total = np.maximum(rate.sum(axis=1), 1e-300)
        v_step[:, slot] = curve[slot] * (rate * relevance).sum(axis=1) / total
        rate[request, slates[:, slot]] = 0.0
    marginal = [find_marginals(world, row) for row in scores]
    means = np.array([curve * (world.relevance[k] @ marginal[k]) for k in range(len(marginal))])
    other = {"q": q, "v": means[kind], "v_step": v_step}
    flat = {}
    for name, table in other.items():
        column = np.empty(len(log))
        column[rows] = table
        flat[name] = column
    return log._replace_valid(other=flat)


def find_marginals(world: ImpressionSimulation, scores: Table) -> Table:
    """Items x slots, of the target policy."""
    from unskew.kernels.plackett_luce import find_marginals as find

    return find(scores / TEMPERATURE, world.n_slots)


def make_plans(case: Case, world: ImpressionSimulation) -> tuple[list[PolicyPlan], float]:
    """Plans by user and by request, those with a regression, and the true value."""
    first, second = (make_scores(world, is_even=each) for each in (True, False))
    truth = world.value(first, temperature=TEMPERATURE)
    assert abs(truth - world.value(second, temperature=TEMPERATURE)) < 1e-9
    new, equal = (PlackettLuce(KindScores(each), TEMPERATURE) for each in (first, second))
    plain = tuple(each for each in case.estimators if "dr" not in each and each != "dm")
    plan = PolicyPlan(
        {"new": new, "equal": equal},
        plain,
        logging=find_logging(world),
        examination=1 / np.arange(1, 1 + world.n_slots),
    )
    plans = [plan, replace(plan, cluster="request")]
    for names, columns in (
        (("dm", "dr", "iips-dr"), ("q", "v")),
        (("cascade-dr",), ("q", "v_step")),
    ):
        chosen = tuple(each for each in names if each in case.estimators)
        if chosen:
            regressed = replace(plan, targets={"new": new}, estimators=chosen, regression=columns)
            plans.append(regressed)
    return plans, truth


def split_logs(sums: TermSums, log_of_cluster: npt.NDArray[np.int64]) -> Iterator[TermSums]:
    """The sums of each log; clusters are sorted by log."""
    starts = np.searchsorted(log_of_cluster, np.arange(LOGS_AT_ONCE + 1))
    for first, last in pairwise(starts.tolist()):
        rows = slice(first, last)
        yield replace(
            sums,
            clusters=sums.clusters[rows],
            n_requests=sums.n_requests[rows],
            numerator=sums.numerator[rows],
            base=sums.base[rows],
            expected=sums.expected[rows],
        )


def run(name: str, n_logs: int, seed: int) -> None:
    """Draw logs, many at once, and print bias and coverage of each estimator.

    Users are independent, so a log of many users is many logs of 400 users.
    """
    case = CASES[name]
    world = make_world(case)
    plans, truth = make_plans(case, world)
    bounds = (0.0, float(world.n_slots))
    many = replace(world, n_users=N_USERS * LOGS_AT_ONCE)
    rows: dict[str, list[list[float]]] = {}
    alarms: list[bool] = []
    started, rng = time.perf_counter(), np.random.default_rng(seed)
    for _ in range(n_logs // LOGS_AT_ONCE):
        log = add_regression(many, many.draw(rng), make_scores(world, is_even=True))
        log_of_user = log.users // len(world.relevance) // N_USERS
        for plan in plans:
            sums = plan.add_up(log, plan.bind(log))
            is_by_user = plan.cluster == "user"
            log_of = log_of_user if is_by_user else log_of_user[log.user_of_request]
            for estimator, terms in sums.estimators.items():
                key = estimator if is_by_user else f"{estimator} by request"
                for part in split_logs(terms, log_of):
                    estimate = part.estimate(bounds=bounds)
                    value = estimate.of(0, level=0.95)
                    row = [value.value, value.std_error, value.low <= truth <= value.high]
                    if "equal" in plan.targets:
                        difference = estimate.difference(0, 1, level=0.95)
                        row.append(difference.low > 0 or difference.high < 0)
                    rows.setdefault(key, []).append(row)
            if plan is plans[0]:
                for part in split_logs(sums.checks, log_of):
                    checks = part.estimate()
                    means = [checks.of(k, level=LEVEL) for k in range(checks.value.size)]
                    alarms.append(
                        any(
                            not each.value - MAX_ERRORS * each.std_error <= 1 <= each.high
                            for each in means
                        )
                    )
    seconds = time.perf_counter() - started
    print(
        f"\n{name}: value {truth:.4f}, logged {world.logged_value:.4f}, {len(alarms)} logs, ",
        end="",
    )
    print(f"false alarms of {len(checks.value)} checks {np.mean(alarms):.2%}, {seconds:.0f} s\n")
    print("| estimator | bias / sd | sd | error / sd | covered | by request | equal differ |")
    print("|---|---|---|---|---|---|---|")
    for estimator in case.estimators:
        table = np.array(rows[estimator], dtype=float)
        by_request = rows.get(f"{estimator} by request")
        sd = table[:, 0].std()
        print(
            f"| {estimator} | {(table[:, 0].mean() - truth) / sd:+.2f} | {sd:.4f} "
            f"| {table[:, 1].mean() / sd:.3f} | {table[:, 2].mean():.1%} "
            f"| {'' if by_request is None else f'{np.array(by_request)[:, 2].mean():.1%}'} "
            f"| {f'{table[:, 3].mean():.1%}' if table.shape[1] > 3 else ''} |",
            flush=True,
        )


def main() -> None:
    """Run the cases whose names contain ``--only``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    for name in CASES:
        if arguments.only in name:
            run(name, arguments.logs, arguments.seed)


if __name__ == "__main__":
    main()
