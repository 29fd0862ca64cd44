"""Coverage of the interval of the headline, whose estimator is chosen by its rule from each log.

Logs of 400 users, from the worlds of ``policy_coverage.py``. The truth is the exact difference of
the target from the logging policy. Where users are general, the assumption of ``rips`` and
``snrips`` is wrong.

    python benchmarks/policy_headline.py --logs 400
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
from policy_coverage import CASES, TEMPERATURE, Case, find_logging, make_scores, make_world

from unskew.policies import PlackettLuce
from unskew.policies.plan import PolicyPlan
from unskew.simulation.impressions import KindScores

STEP = ("ips", "snips", "rips", "snrips")
WORLDS = {
    "position-plackett-luce": STEP,
    "cascade-plackett-luce": STEP,
    "general-plackett-luce": STEP,
}


def run(case: Case, name: str, n_logs: int) -> None:
    """Draw logs and print which estimators were chosen, and how often intervals cover."""
    world, rng = make_world(case), np.random.default_rng(0)
    scores = make_scores(world, is_even=True)
    truth = world.value(scores, temperature=TEMPERATURE) - world.logged_value
    plan = PolicyPlan(
        {"new": PlackettLuce(KindScores(scores), TEMPERATURE)},
        WORLDS[name],
        logging=find_logging(world),
    )
    chosen, covered, fixed = Counter[str](), [], []
    for _ in range(n_logs):
        result = plan.evaluate([world.draw(rng)])
        difference, first = result.compare("new"), result.compare("new", estimator="snrips")
        chosen[difference.estimator] += 1
        covered.append(difference.ci_low <= truth <= difference.ci_high)
        fixed.append(first.ci_low <= truth <= first.ci_high)
    listed = ", ".join(f"{each} {count / n_logs:.0%}" for each, count in chosen.most_common())
    print(f"| {name} | {listed} | {np.mean(covered):.1%} | {np.mean(fixed):.1%} |", flush=True)


def main() -> None:
    """Run all worlds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=400)
    arguments = parser.parse_args()
    print("| world | chosen | headline covers | `snrips` covers |")
    print("|---|---|---|---|")
    for name in WORLDS:
        run(CASES[name], name, arguments.logs)


if __name__ == "__main__":
    main()
