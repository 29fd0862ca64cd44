"""Coverage of nominal 95 % intervals of `mr`, and of `snips` with raked propensities.

    python benchmarks/several_models_coverage.py [--logs 300] [--only NAME ...]

Worlds of 150 users x 100 items with two possible ratings for each cell. Selection depends on users
and items, with about a fifth of the cells logged. Each log draws ratings and observations anew;
coverage is of the risk over the distribution of the ratings.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import unskew
from unskew.evaluation import Imputation, ModelSet
from unskew.models.baselines import OffsetsOnly
from unskew.propensity import PopularityPropensity, RakedPropensity, UniformPropensity

SHAPE = 150, 100
METRICS = {"mse": lambda y, f: np.square(y - f), "mae": lambda y, f: np.abs(y - f)}


class KnownDistribution:
    """Predicts that a rating is 5 with these probabilities, and else 1."""

    def __init__(self, share: np.ndarray) -> None:
        self.levels_, self.share = np.array([1.0, 5.0]), share

    def predict_distribution(self, users: Any, items: Any) -> np.ndarray:
        share = self.share[users, items]
        return np.column_stack([1 - share, share])


class World:
    """The probability of a 5 and of an observation, by cell."""

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        by_user, by_item = rng.standard_normal((SHAPE[0], 1)), rng.standard_normal((1, SHAPE[1]))
        self.share = 1 / (1 + np.exp(-0.7 * by_user - 0.7 * by_item))
        self.true = 1 / (1 + np.exp(1.6 - 0.5 * by_user - 0.5 * by_item))
        self.predictions = {"a": np.full(SHAPE, 2.5), "b": 1 + 4 * self.share}

    def risk(self, metric: str, model: str) -> float:
        delta, scores = METRICS[metric], self.predictions[model]
        expected = (1 - self.share) * delta(1.0, scores) + self.share * delta(5.0, scores)
        return float(expected.mean())

    def draw(self, seed: int) -> unskew.Ratings:
        rng = np.random.default_rng(seed)
        rating = np.where(rng.random(SHAPE) < self.share, 5.0, 1.0)
        return unskew.Ratings.from_dense(np.where(rng.random(SHAPE) < self.true, rating, 0))


def flat(world: World) -> np.ndarray:
    return np.full(SHAPE, world.true.mean())


def reversed_odds(world: World) -> np.ndarray:
    return np.clip(world.true.mean() ** 2 / world.true, 0.02, 0.9)


def wrong_distribution(world: World) -> Imputation:
    return Imputation(KnownDistribution(1 - world.share), is_independent=True)


def right_distribution(world: World) -> Imputation:
    return Imputation(KnownDistribution(world.share), is_independent=True)


SETS: dict[str, Callable[[World], ModelSet]] = {
    "one of two propensities right, imputation wrong": lambda world: ModelSet(
        [flat(world), world.true], [wrong_distribution(world)]
    ),
    "one of two propensities right, offsets cross-fitted": lambda world: ModelSet(
        [reversed_odds(world), world.true], [OffsetsOnly(l2=5.0)]
    ),
    "both propensities wrong, one of two imputations right": lambda world: ModelSet(
        [flat(world), reversed_odds(world)],
        [wrong_distribution(world), right_distribution(world)],
    ),
}
RAKED = {
    "raked uniform": lambda: RakedPropensity(UniformPropensity()),
    "raked popularity by item": lambda: RakedPropensity(PopularityPropensity("item")),
}


def evaluate(name: str, world: World, log: unskew.Ratings) -> Any:
    common = {"metrics": list(METRICS)}
    if name in SETS:
        models = SETS[name](world)
        return unskew.evaluate(
            log, world.predictions, estimators=["mr"], model_set=models, **common
        )
    propensities = RAKED[name]().fit(log)
    return unskew.evaluate(
        log, world.predictions, propensities=propensities, estimators=["snips"], **common
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=int, default=300)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    world = World()
    for name in options.only or [*SETS, *RAKED]:
        covered: dict[tuple[str, str], list[bool]] = {}
        errors: dict[tuple[str, str], list[float]] = {}
        for seed in range(options.logs):
            for row in evaluate(name, world, world.draw(seed)):
                risk = world.risk(row.metric, row.model)
                covered.setdefault((row.metric, row.model), []).append(
                    row.ci_low <= risk <= row.ci_high
                )
                errors.setdefault((row.metric, row.model), []).append(
                    (row.estimate - risk) / row.std_error
                )
        shares = [100 * np.mean(each) for each in covered.values()]
        bias = [np.mean(each) for each in errors.values()]
        print(
            f"{name}: {min(shares):.1f} to {max(shares):.1f} %, bias "
            f"{min(bias):+.2f} to {max(bias):+.2f} standard errors",
            flush=True,
        )


if __name__ == "__main__":
    main()
