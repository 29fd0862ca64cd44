"""How often the check of the stated kind of probability is right: step or marginal.

Each case draws logs of 400 users and about 2,000 requests from one simulated world, with the step
or the marginal probabilities of its Plackett-Luce logging policy. Each log is checked as what it
is, and as the other kind.

    python benchmarks/probability_kinds.py --logs 500
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace

import numpy as np

import unskew
from unskew.data.impressions import Impressions
from unskew.data.probability_kind import check_kind
from unskew.policies import PlackettLuce
from unskew.policies.plan import PolicyPlan
from unskew.simulation.impressions import KindScores

N_USERS = 400
CASES = {
    "6 items, 2 slots": (6, 2, 1.0),
    "6 items, 3 slots": (6, 3, 1.0),
    "6 items, 3 slots, uniform": (6, 3, 0.0),
    "20 items, 5 slots": (20, 5, 1.0),
    "50 items, 5 slots, sharp": (50, 5, 3.0),
}


def find_marginals(log: Impressions, scores: KindScores) -> np.ndarray:
    """The marginal probability of each row under the logging policy."""
    policy = PlackettLuce(scores)
    plan = PolicyPlan({"same": policy}, estimators=("iips",), logging=policy)
    values = np.empty(len(log))
    values[log.slots.T] = plan.bind(log)["same"].target.marginal()
    return values


def judge(log: Impressions) -> str:
    """What the check says: fits, open or contradicted."""
    check = check_kind(log)
    if check is None or check.is_open:
        return "open"
    return "contradicted" if check.is_contradicted else "fits"


def run(name: str, n_logs: int) -> None:
    """Draw logs of one case and print how often the check is right."""
    n_items, n_slots, sharpness = CASES[name]
    world = unskew.simulate_impressions(
        N_USERS, n_items, n_slots, logging="plackett-luce", random_state=1
    )
    world = replace(world, logging_scores=sharpness * world.logging_scores)
    rng, counts = np.random.default_rng(0), Counter[tuple[bool, str]]()
    for _ in range(n_logs):
        log = world.draw(rng)
        marginal = find_marginals(log, KindScores(world.logging_scores))
        for kind, values in (("step", log.probability), ("marginal", marginal)):
            for stated in ("step", "marginal"):
                labelled = log._replace_valid(probability=values, probability_is=stated)
                counts[stated == kind, judge(labelled)] += 1
    cells = [
        f"{counts[is_right, verdict] / (2 * n_logs):.1%}"
        for is_right in (True, False)
        for verdict in ("fits", "open", "contradicted")
    ]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=500)
    arguments = parser.parse_args()
    print("| logging policy | right: fits | open | contradicted | wrong: fits | open | caught |")
    print("|---|---|---|---|---|---|---|")
    for name in CASES:
        run(name, arguments.logs)


if __name__ == "__main__":
    main()
