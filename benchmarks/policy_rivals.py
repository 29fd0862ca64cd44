"""Values of policies by unskew and by obp's slate estimators, on the same logs.

    python benchmarks/policy_rivals.py            # 100,000 impressions: values and seconds

Three slots show items of six, drawn by a Plackett-Luce policy; the target is another one. obp gets
the probabilities of all three kinds. The regression of cascade-dr is random, and so wrong. obp does
not install on Python 3.10 or later by itself: use ``--ignore-requires-python --no-deps``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew import Impressions, evaluate_policies, simulate_impressions
from unskew.policies import PlackettLuce, PolicyEvaluation, TargetProbability
from unskew.policies.columns import pivot
from unskew.policies.plan import PolicyPlan
from unskew.simulation.impressions import ImpressionSimulation, KindScores

N_ITEMS, N_SLOTS, TEMPERATURE = 6, 3, 0.5
OF_STEP = ("ips", "snips", "rips", "snrips", "cascade-dr")
OF_MARGINAL = ("iips", "sniips")
Array = npt.NDArray[Any]


def make_world(n_requests: int) -> ImpressionSimulation:
    """A world whose log has about ``n_requests`` requests."""
    world = simulate_impressions(100, n_items=N_ITEMS, n_slots=N_SLOTS, random_state=5)
    n_users = max(2, round(100 * n_requests / world.log.n_requests))
    return simulate_impressions(n_users, n_items=N_ITEMS, n_slots=N_SLOTS, random_state=5)


def find_probabilities(
    world: ImpressionSimulation, log: Impressions
) -> dict[str, dict[str, Array]]:
    """By policy and kind: slots x requests."""
    scores = {"logged": world.logging_scores, "new": 2 * world.relevance / TEMPERATURE}
    targets = {name: PlackettLuce(KindScores(table)) for name, table in scores.items()}
    bound = PolicyPlan(targets, ("ips",), logging=targets["logged"]).bind(log)
    return {
        name: {"step": each.target.step(), "marginal": each.target.marginal()}
        for name, each in bound.items()
    }


def draw_regression(
    world: ImpressionSimulation, log: Impressions, rng: np.random.Generator
) -> tuple[Array, Array]:
    """A random q of each request, slot and item, and the target's distribution given the slots."""
    q = rng.random((log.n_requests, N_SLOTS, N_ITEMS))
    kind = log.users[log.user_of_request] % len(world.relevance)
    rate = np.exp(2 * world.relevance / TEMPERATURE)[kind]
    chance = np.empty_like(q)
    for slot in range(N_SLOTS):
        chance[:, slot] = rate / rate.sum(axis=1, keepdims=True)
        rate[np.arange(log.n_requests), log.item[log.slots[:, slot]]] = 0.0
    return q, chance


class Race:
    """One log, as both libraries want it."""

    def __init__(self, world: ImpressionSimulation, log: Impressions, seed: int) -> None:
        probability = find_probabilities(world, log)
        q, chance = draw_regression(world, log, np.random.default_rng(seed))
        item = pivot(log, log.item, 0).astype(int).T
        shown_q = np.take_along_axis(q, item[:, :, None], axis=2)[:, :, 0]
        columns = {"item": item.ravel(), "reward": pivot(log, log.reward, 0.0).T.ravel()}
        columns["request"] = np.repeat(np.arange(log.n_requests), N_SLOTS)
        columns["user"] = np.repeat(log.user_of_request, N_SLOTS)
        columns["position"] = np.tile(np.arange(1, N_SLOTS + 1), log.n_requests)
        self.columns = columns
        self.other = {"q": shown_q.ravel(), "v": (q * chance).sum(axis=2).ravel()}
        self.probability = {
            name: {kind: values.T.ravel() for kind, values in kinds.items()}
            for name, kinds in probability.items()
        }
        running = {name: np.cumprod(each["step"].T, axis=1) for name, each in probability.items()}
        self.rival = {
            "slate_id": columns["request"],
            "action": columns["item"],
            "reward": columns["reward"],
            "position": columns["position"] - 1,
            "q_hat": q.ravel(),
            "evaluation_policy_action_dist": chance.ravel(),
        }
        for name, prefix in (("logged", ""), ("new", "evaluation_policy_")):
            self.rival |= {
                f"{prefix}pscore": np.repeat(running[name][:, -1], N_SLOTS),
                f"{prefix}pscore_cascade": running[name].ravel(),
                f"{prefix}pscore_item_position": self.probability[name]["marginal"],
            }

    def evaluate(self, kind: str, estimators: tuple[str, ...]) -> PolicyEvaluation:
        """Our values from columns of probabilities of one kind, with intervals by request."""
        log = Impressions.from_arrays(
            **self.columns,
            probability=self.probability["logged"][kind],
            probability_is=kind,  # type: ignore[arg-type]
            other=self.other,
        )
        return evaluate_policies(
            log,
            {"new": TargetProbability(self.probability["new"][kind])},
            estimators=estimators,
            regression=("q", "v") if "cascade-dr" in estimators else None,
            cluster="request",
        )


def list_rivals() -> dict[str, Any]:
    """obp's estimators by our names; empty if it cannot be imported."""
    try:
        from obp import ope
    except ImportError as error:
        print(f"Skipped: obp cannot be imported ({error}).")
        return {}
    return {
        "ips": ope.SlateStandardIPS(len_list=N_SLOTS),
        "snips": ope.SelfNormalizedSlateStandardIPS(len_list=N_SLOTS),
        "rips": ope.SlateRewardInteractionIPS(len_list=N_SLOTS),
        "snrips": ope.SelfNormalizedSlateRewardInteractionIPS(len_list=N_SLOTS),
        "cascade-dr": ope.SlateCascadeDoublyRobust(len_list=N_SLOTS, n_unique_action=N_ITEMS),
        "iips": ope.SlateIndependentIPS(len_list=N_SLOTS),
        "sniips": ope.SelfNormalizedSlateIndependentIPS(len_list=N_SLOTS),
    }


def measure_time(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = call()
    return result, time.perf_counter() - started


def compare_values(rivals: dict[str, Any], n_requests: int) -> None:
    """Values and seconds on one log."""
    world = make_world(n_requests)
    race = Race(world, world.log, seed=0)
    truth = world.value(2 * world.relevance, temperature=TEMPERATURE)
    print(f"{len(world.log):,} impressions, {world.log.n_requests:,} requests; truth {truth:.5f}\n")
    print("| estimator | unskew | obp | difference | obp: seconds |\n|---|---|---|---|---|")
    total, ours = 0.0, 0.0
    for kind, names in (("step", OF_STEP), ("marginal", OF_MARGINAL)):
        race.evaluate(kind, names)  # compiles
        result, seconds = measure_time(partial(race.evaluate, kind, names))
        ours += seconds
        for name in names:
            value, seconds = measure_time(partial(rivals[name].estimate_policy_value, **race.rival))
            total += seconds
            estimate = result.value("new", estimator=name).estimate
            difference = estimate - value
            print(f"| {name} | {estimate:.7f} | {value:.7f} | {difference:.0e} | {seconds:.2f} |")
    print(
        f"\nAll seven: obp {total:.1f} s without intervals; unskew {ours:.1f} s with intervals, "
        "and with the checks of the log."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=33_333)
    arguments = parser.parse_args()
    if found := list_rivals():
        compare_values(found, arguments.requests)
