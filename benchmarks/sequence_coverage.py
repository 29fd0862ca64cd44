"""How often limits of a growing log hold at every look: SNIPS, about 100 looks, weights up to 50.

    python benchmarks/sequence_coverage.py                                  # 1 minute
    python benchmarks/sequence_coverage.py --arrivals 1000000 --logs 120    # 2 minutes

In the world "smooth" losses fall with the propensity. In the world "adverse" a tenth of the
arrivals has a propensity of 0.02 and the largest losses, and is hardly seen in a short log.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from unskew.estimators.sequences import SequenceClock

LEVEL, FIRST_ARRIVAL, N_LOOKS = 0.95, 100, 110
PROPENSITIES = np.array([0.02, 0.05, 0.1, 0.3, 0.6])
SHARES = np.array([0.1, 0.25, 0.35, 0.2, 0.1])
MEAN_LOSSES = np.array([1.6, 1.2, 1.0, 0.8, 0.6])

Draw = Callable[[np.random.Generator, int], tuple[Any, Any]]
"""Weights, 0 for arrivals that are not rated, and losses of n arrivals."""


def draw_smooth(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    quality = rng.random(n)
    propensity = np.maximum(0.02, 0.6 * quality**3)
    loss = 0.5 + (1 - quality) + rng.uniform(-0.5, 0.5, n)
    return np.where(rng.random(n) < propensity, 1 / propensity, 0.0), loss


def draw_adverse(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    kind = rng.choice(PROPENSITIES.size, p=SHARES, size=n)
    propensity = PROPENSITIES[kind]
    loss = rng.gamma(2.0, MEAN_LOSSES[kind] / 2)
    return np.where(rng.random(n) < propensity, 1 / propensity, 0.0), loss


WORLDS: dict[str, tuple[Draw, float]] = {
    "smooth": (draw_smooth, 1.0),
    "adverse": (draw_adverse, float(SHARES @ MEAN_LOSSES)),
}
"""How arrivals are drawn, and the mean loss over all of them."""


def count_covered(world: str, options: argparse.Namespace) -> dict[tuple[str, int], int]:
    """Logs whose limits hold at every look from an effective sample size on."""
    draw, truth = WORLDS[world]
    rng = np.random.default_rng(options.seed)
    looks = np.geomspace(FIRST_ARRIVAL, options.arrivals, N_LOOKS).astype(int)
    clocks = [SequenceClock(look, options.planned_size, np.inf) for look in looks]
    widths = {
        "at all looks": np.array([clock.multiplier(LEVEL) for clock in clocks]),
        "ordinary": np.full(looks.size, 1.96),
    }
    covered = dict.fromkeys(((name, size) for name in widths for size in options.least), 0)
    for _ in range(options.logs):
        h, loss = draw(rng, options.arrivals)
        columns = np.stack([h, h * loss, h * h, h * h * loss, (h * loss) ** 2])
        total, weighted, squares, cross, losses = np.cumsum(columns, axis=1)[:, looks - 1]
        total = np.maximum(total, 1e-9)
        value = weighted / total
        variance = losses - 2 * value * cross + value**2 * squares
        distance = np.abs(value - truth) / (np.sqrt(np.maximum(variance, 1e-300)) / total)
        effective = total**2 / np.maximum(squares, 1e-9)
        for name, size in covered:
            covered[name, size] += bool((distance <= widths[name])[effective >= size].all())
    return covered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arrivals", type=int, default=30_000)
    parser.add_argument("--logs", type=int, default=1_500)
    parser.add_argument("--planned-size", type=float, default=10_000)
    parser.add_argument("--least", type=int, nargs="+", default=[100, 300, 1_000])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("| world | limits | " + " | ".join(f"from ESS {size:,}" for size in options.least) + " |")
    print("|---|---|" + "---|" * len(options.least))
    for world in WORLDS:
        covered = count_covered(world, options)
        for name in dict.fromkeys(name for name, _ in covered):
            shares = [f"{covered[name, size] / options.logs:.1%}" for size in options.least]
            print(f"| {world} | {name} | {' | '.join(shares)} |", flush=True)
    multipliers = [
        f"{SequenceClock(size, options.planned_size, np.inf).multiplier(LEVEL) / 1.96:.2f}"
        for size in (100, 1_000, 10_000, 100_000, 1_000_000)
    ]
    print(f"width / ordinary width at 1e2, 1e3, 1e4, 1e5, 1e6 arrivals: {', '.join(multipliers)}")


if __name__ == "__main__":
    main()
