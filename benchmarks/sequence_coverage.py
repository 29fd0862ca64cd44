"""How often limits of a growing log hold at every look: SNIPS, about 100 looks, weights up to 50.

    python benchmarks/sequence_coverage.py                                  # 10 minutes
    python benchmarks/sequence_coverage.py --arrivals 1000000 --logs 100    # 2 minutes

In the world "smooth" losses fall with the propensity. In the world "adverse" a tenth of the
arrivals has a propensity of 0.02 and the largest losses, and is hardly seen in a short log. In the
world "hidden" a twentieth of the arrivals has a propensity of 0.01 and the largest losses:
a short log does not show that they are missing, and no limits from the log alone can hold.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from unskew.estimators.estimate import Estimate
from unskew.estimators.sequences import SequenceClock, UnitMoments

LEVEL, FIRST_ARRIVAL, N_LOOKS = 0.95, 100, 110
SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000)
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


def draw_hidden(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    is_hidden = rng.random(n) < 0.05
    propensity = np.where(is_hidden, 0.01, 0.5)
    loss = is_hidden + (rng.random(n) < 0.2)
    return np.where(rng.random(n) < propensity, 1 / propensity, 0.0), loss


WORLDS: dict[str, tuple[Draw, float]] = {
    "smooth": (draw_smooth, 1.0),
    "adverse": (draw_adverse, float(SHARES @ MEAN_LOSSES)),
    "hidden": (draw_hidden, 0.25),
}
"""How arrivals are drawn, and the mean loss over all of them."""


def count_covered(
    world: str, options: argparse.Namespace
) -> tuple[dict[tuple[str, int], int], dict[int, list[float]]]:
    """Logs whose limits hold at every look from an effective sample size on; and how many times
    wider than ordinary limits those at all looks are, by number of arrivals."""
    draw, truth = WORLDS[world]
    rng = np.random.default_rng(options.seed)
    looks = np.geomspace(FIRST_ARRIVAL, options.arrivals, N_LOOKS).astype(int)
    names = ("at all looks", "ordinary")
    covered = dict.fromkeys(((name, size) for name in names for size in options.least), 0)
    widths: dict[int, list[float]] = {}
    for _ in range(options.logs):
        h, loss = draw(rng, options.arrivals)
        units = np.column_stack([h * loss, h])
        moments, misses, start = UnitMoments.empty(1), dict.fromkeys(names, 0.0), 0
        for look in looks:
            moments = moments.update(units[start:look])
            start = look
            if moments.effective_size < min(options.least):
                continue
            mean = moments.ratio()
            clock = SequenceClock(look, options.planned_size, moments.effective_size)
            at_all_looks, ordinary = (
                Estimate(mean.value, mean.covariance, moments=mean.moments, clock=each).of(
                    0, level=LEVEL
                )
                for each in (clock, None)
            )
            for name, interval in zip(names, (at_all_looks, ordinary), strict=True):
                if not interval.low <= truth <= interval.high:
                    misses[name] = max(misses[name], moments.effective_size)
            if (width := ordinary.high - ordinary.low) > 0:
                ratio = (at_all_looks.high - at_all_looks.low) / width
                widths.setdefault(int(look), []).append(ratio)
        for name, size in covered:
            covered[name, size] += misses[name] < size
    return covered, widths


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
        covered, widths = count_covered(world, options)
        for name in dict.fromkeys(name for name, _ in covered):
            shares = [f"{covered[name, size] / options.logs:.1%}" for size in options.least]
            print(f"| {world} | {name} | {' | '.join(shares)} |", flush=True)
        print(f"{world}: width / ordinary width, median of logs: {describe_widths(widths)}")
    multipliers = [
        f"{SequenceClock(size, options.planned_size, np.inf).multiplier(LEVEL) / 1.96:.2f}"
        for size in SIZES
    ]
    sizes = ", ".join(f"{size:,}" for size in SIZES)
    print(f"many units without skewness, at {sizes} arrivals: {', '.join(multipliers)}")


def describe_widths(widths: dict[int, list[float]]) -> str:
    """Median ratios of widths at the looks that are nearest to some numbers of arrivals."""
    looks = np.array(sorted(widths))
    sizes = [size for size in SIZES if looks[0] <= 1.1 * size and size <= 1.1 * looks[-1]]
    nearest = [int(looks[np.abs(np.log(looks / size)).argmin()]) for size in sizes]
    return ", ".join(f"{np.median(widths[look]):.2f} at {look:,} arrivals" for look in nearest)


if __name__ == "__main__":
    main()
