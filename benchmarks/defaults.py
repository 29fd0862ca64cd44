"""Every recommender of ratings with its default settings, before and after a change of defaults.

    python benchmarks/defaults.py --json after.json [--only NAME ...] [--worlds NAME ...]
    python benchmarks/defaults.py --worlds stress [--seeds 6 7 8]    worlds hard for defaults
    PYTHONPATH=OLD/src python benchmarks/defaults.py --json before.json     OLD: an older checkout
    python benchmarks/defaults.py --compare before.json after.json

Worlds: simulated ratings with offsets, factors and noise, completed MovieLens 100K, and the random
test of Coat without the cells that are also in its training log. Propensities are those of naive
Bayes with 1,000 random ratings, on Coat the published ones. Errors are squared errors over all
cells (Coat: over the test). Intervals of simulated worlds and MovieLens are over draws of the log
(Student's t), those of Coat over test users; differences are paired. Data come from $UNSKEW_DATA.
Worlds are named in full or by the word before the colon. Those of "stress" (decision 026) run only
if named.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy import stats

import unskew
from unskew import models
from unskew.models.baselines import OffsetsOnly
from unskew.paper.completion import find_ground_truth
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.simulation.observation import ByRating, Observation

LEARNERS: dict[str, Callable[[], Any]] = {
    "GlobalMean": models.GlobalMean,
    "OffsetsOnly": OffsetsOnly,
    "MatrixFactorization": models.MatrixFactorization,
    "MatrixFactorization, naive": models.MatrixFactorization,
    "DoublyRobustFactorization": models.DoublyRobustFactorization,
    "MRDR": models.MRDR,
    "DR_BIAS": models.DR_BIAS,
    "DR_MSE": models.DR_MSE,
    "DRV2": models.DRV2,
    "EIB": models.EIB,
    "IPSV2": models.IPSV2,
    "StableDR": models.StableDR,
    "TriTraining": models.TriTraining,
    "CalibratedDoublyRobust": models.CalibratedDoublyRobust,
    "AKBIPS": models.AKBIPS,
    "AKBDR": models.AKBDR,
    "MultipleRobustFactorization": models.MultipleRobustFactorization,
    "RandomSampleFactorization": models.RandomSampleFactorization,
    "MultinomialMixture": models.MultinomialMixture,
    "OrdinalFactorization": models.OrdinalFactorization,
}
WITHOUT_PROPENSITIES = (
    "MatrixFactorization, naive",
    "EIB",
    "OrdinalFactorization",
)
SIMULATED = {
    "sim: noisy, strong selection": (500, 400, 0.05, 0.25, 1.0, 0.5),
    "sim: noisy, weak selection": (500, 400, 0.05, 0.7, 1.0, 0.5),
    "sim: clean, strong selection": (500, 400, 0.1, 0.25, 0.3, 0.7),
    "sim: few items": (1000, 100, 0.1, 0.5, 0.7, 0.6),
    "sim: sparse": (1000, 500, 0.01, 0.5, 0.7, 0.5),
}
"""Users, items, density, alpha of the selection, standard deviations of noise and of factors."""
FIVE_STARS = np.arange(1, 6.0)


@dataclass(frozen=True, slots=True)
class StressRecipe:
    """A log of about ``n_ratings`` of a matrix of offsets, four factors and noise.

    The log propensity is ``slope`` times the standardised rating, ``bowl`` times its square, and
    normal effects of items and users. The propensities are those of naive Bayes with ``n_sample``
    random ratings; with 0 they are known.
    """

    users: int
    items: int
    sd: tuple[float, float, float, float]
    """Standard deviations of user offsets, item offsets, factors and noise."""
    mean: float
    levels: np.ndarray
    slope: float
    popularity: float
    activity: float
    n_sample: int
    n_ratings: int = 9_300
    bowl: float = 0.0


STRESS = {
    "stress: hardly any signal": StressRecipe(
        1000, 300, (0.25, 0.2, 0.15, 0.9), 2.2, FIVE_STARS, 0.9, 1.0, 0.8, 5000
    ),
    "stress: noise alone": StressRecipe(
        1000, 300, (0.0, 0.0, 0.0, 0.95), 2.5, FIVE_STARS, 1.0, 0.7, 0.7, 5000
    ),
    "stress: ten items": StressRecipe(
        2000, 10, (0.4, 0.4, 0.3, 0.8), 2.5, FIVE_STARS, 0.8, 0.3, 0.5, 1000
    ),
    "stress: -10 to 10": StressRecipe(
        1000, 100, (2.0, 1.5, 2.0, 4.0), 0.0, np.arange(-10, 11.0), 1.0, 0.5, 0.5, 3000
    ),
    "stress: half stars": StressRecipe(
        800, 400, (0.4, 0.35, 0.3, 0.8), 3.2, np.arange(0.5, 5.1, 0.5), 1.0, 1.0, 0.8, 1500
    ),
    "stress: 0 or 1": StressRecipe(
        1000, 200, (0.2, 0.15, 0.15, 0.4), 0.35, np.arange(2.0), 0.9, 0.7, 0.7, 1000
    ),
    "stress: extreme weights": StressRecipe(
        1000, 300, (0.45, 0.4, 0.4, 0.8), 2.5, FIVE_STARS, 2.2, 0.5, 0.5, 300
    ),
    "stress: selection by rating alone": StressRecipe(
        1000, 100, (0.6, 0.4, 0.6, 0.7), 2.8, FIVE_STARS, 1.2, 0.0, 0.0, 1000, 10_000
    ),
    "stress: selection by rating and item": StressRecipe(
        1000, 100, (0.5, 0.3, 0.5, 1.0), 2.6, FIVE_STARS, 1.2, 0.6, 0.3, 5000, 10_000
    ),
    "stress: 600 ratings": StressRecipe(
        100, 60, (0.5, 0.4, 0.4, 0.7), 3.0, FIVE_STARS, 0.8, 0.3, 0.3, 200, 600
    ),
    "stress: long tail, known": StressRecipe(
        1000, 300, (0.45, 0.4, 0.3, 0.8), 3.0, FIVE_STARS, 0.3, 2.0, 1.0, 0
    ),
    "stress: selection of extremes": StressRecipe(
        1000, 200, (0.5, 0.4, 0.4, 0.8), 3.0, FIVE_STARS, 0.5, 0.5, 0.5, 2000, bowl=0.8
    ),
}
MOVIELENS = {
    "MovieLens, strong selection": 0.25,
    "MovieLens, weak selection": 0.5,
    "MovieLens, no selection": 1.0,
}
COAT = "Coat, clean"
N_SAMPLE = 1000
NEEDS_SAMPLE = ("RandomSampleFactorization",)
"""Learners that are fitted with the random ratings too; worlds without them leave them out."""


@dataclass(frozen=True, slots=True, eq=False)
class World:
    log: unskew.Ratings
    propensities: Any
    sample: unskew.Ratings | None
    """Ratings of random cells, from which the propensities were estimated."""
    errors: Callable[[Any], np.ndarray]
    """The squared errors of a model, by user."""


def simulate_ratings(users: int, items: int, noise: float, factors: float, seed: int) -> Any:
    """Rounded ratings 1 to 5 of offsets, four factors and noise."""
    rng = np.random.default_rng([seed, users, items])
    mean = 3 + 0.45 * rng.standard_normal((users, 1)) + 0.45 * rng.standard_normal((1, items))
    mean += factors / 2 * rng.standard_normal((users, 4)) @ rng.standard_normal((4, items))
    ratings = mean + noise * rng.standard_normal((users, items))
    return np.clip(np.rint(ratings), 1, 5).astype(np.float32)


def draw_world(truth: Any, alpha: float, density: float, seed: int) -> World:
    rng = np.random.default_rng((seed, 9))
    log, _ = Observation.of(truth, ByRating(alpha), density=density).draw(rng)
    cells = rng.integers(truth.size, size=N_SAMPLE)
    bayes = NaiveBayesPropensity().fit(log, mcar=truth.ravel()[cells].astype(np.float64))
    user, item = np.divmod(np.unique(cells), truth.shape[1])
    ids = {"users": np.arange(truth.shape[0]), "items": np.arange(truth.shape[1])}
    sample = unskew.Ratings.from_arrays(user, item, truth[user, item], **ids)
    return World(log, bayes, sample, errors_over(truth))


def errors_over(truth: Any) -> Callable[[Any], np.ndarray]:
    """The mean squared error of a model over all cells of each user."""

    def errors(model: Any) -> np.ndarray:
        items = np.arange(truth.shape[1])
        blocks = [
            np.square(truth[user] - model.predict(np.full(items.size, user), items)).mean()
            for user in range(truth.shape[0])
        ]
        return np.array(blocks, dtype=np.float64)

    return errors


def draw_stress_world(name: str, seed: int) -> World:
    recipe = STRESS[name]
    rng = np.random.default_rng([seed, list(STRESS).index(name), 77])
    shape = recipe.users, recipe.items
    of_user, of_item, of_factors, of_noise = recipe.sd
    score = recipe.mean + of_user * rng.standard_normal((recipe.users, 1))
    score = score + of_item * rng.standard_normal((1, recipe.items))
    sides = rng.standard_normal((recipe.users, 4)), rng.standard_normal((4, recipe.items))
    score = score + of_factors / 2 * sides[0] @ sides[1] + of_noise * rng.standard_normal(shape)
    truth = recipe.levels[np.abs(score[..., None] - recipe.levels).argmin(-1)]
    standard = (truth - truth.mean()) / truth.std()
    effect = recipe.slope * standard + recipe.bowl * (standard**2 - 1)
    effect = effect + recipe.popularity * rng.standard_normal((1, recipe.items))
    effect = effect + recipe.activity * rng.standard_normal((recipe.users, 1))
    propensity = scale_to_total(np.exp(effect - effect.max()), recipe.n_ratings)
    user, item = np.nonzero(rng.random(shape) < propensity)
    ids = {"users": np.arange(recipe.users), "items": np.arange(recipe.items)}
    log = unskew.Ratings.from_arrays(user, item, truth[user, item], **ids)
    propensities: Any = propensity[user, item]
    if recipe.n_sample:
        sample = rng.choice(truth.ravel(), recipe.n_sample)
        propensities = NaiveBayesPropensity().fit(log, mcar=sample)
    return World(log, propensities, None, errors_over(truth))


def scale_to_total(relative: np.ndarray, total: float) -> np.ndarray:
    """Propensities of at most 0.95 that add up to ``total``."""
    low, high = 1e-9, 1e9
    for _ in range(100):
        middle = np.sqrt(low * high)
        is_low = np.minimum(middle * relative, 0.95).sum() < total
        low, high = (middle, high) if is_low else (low, middle)
    return np.minimum(low * relative, 0.95)


def load_coat() -> World:
    coat = unskew.datasets.load_coat(None)
    test = coat.test.take(~coat.overlap)

    def errors(model: Any) -> np.ndarray:
        error = test.rating - model.predict(test.users[test.user], test.items[test.item])
        by_user = np.bincount(test.user, weights=np.square(error), minlength=test.n_users)
        return by_user / (len(test) / test.n_users)

    return World(coat.train, coat.propensities, None, errors)


def draw_all(chosen: list[str] | None, seeds: list[int]) -> Iterator[tuple[str, int, World]]:
    def is_chosen(name: str) -> bool:
        if not chosen:
            return name not in STRESS
        return name in chosen or name.partition(":")[0] in chosen

    for name, (users, items, density, alpha, noise, factors) in SIMULATED.items():
        for seed in seeds if is_chosen(name) else ():
            truth = simulate_ratings(users, items, noise, factors, seed)
            yield name, seed, draw_world(truth, alpha, density, seed)
    for name in STRESS:
        for seed in seeds if is_chosen(name) else ():
            yield name, seed, draw_stress_world(name, seed)
    for name, alpha in MOVIELENS.items():
        for seed in seeds if is_chosen(name) else ():
            yield name, seed, draw_world(find_ground_truth(None).ratings, alpha, 0.05, seed)
    if is_chosen(COAT):
        yield COAT, 0, load_coat()


def run(only: list[str] | None, worlds: list[str] | None, seeds: list[int]) -> list[dict[str, Any]]:
    rows = []
    for name, seed, world in draw_all(worlds, seeds):
        for learner, make in LEARNERS.items():
            if only and learner not in only:
                continue
            more = {"mcar": world.sample} if learner in NEEDS_SAMPLE else {}
            if more and world.sample is None:
                continue
            propensities = None if learner in WITHOUT_PROPENSITIES else world.propensities
            began = perf_counter()
            try:
                model = make().fit(world.log, propensities, **more)
                by_user = world.errors(model)
            except unskew.errors.UnskewError as error:
                print(name, seed, learner, "failed:", error, flush=True)
                continue
            seconds = perf_counter() - began
            row = {"world": name, "seed": seed, "learner": learner, "seconds": seconds}
            rows.append(row | {"mse": by_user.mean(), "by_user": by_user.round(6).tolist()})
            print(name, seed, learner, f"{by_user.mean():.4f} {seconds:.1f} s", flush=True)
    return rows


def interval(world: str, differences: list[np.ndarray]) -> tuple[float, float]:
    """The mean and half the width of its 95 % interval: over users on Coat, else over draws."""
    values = differences[0] if world == COAT else np.array([each.mean() for each in differences])
    if values.size < 2:
        return float(values.mean()), float("nan")
    half = stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean()), float(half)


def compare(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> None:
    """A table in Markdown: errors before and after, and differences to OffsetsOnly after."""
    errors = [
        {(row["world"], row["learner"], row["seed"]): np.array(row["by_user"]) for row in rows}
        for rows in (before, after)
    ]
    print("| world | learner | before | after | after - before | after - `OffsetsOnly` |")
    print("|---|---|---|---|---|---|")
    for world, learner in dict.fromkeys((world, learner) for world, learner, _ in errors[1]):
        seeds = [seed for w, name, seed in errors[1] if (w, name) == (world, learner)]
        now = [errors[1][world, learner, seed] for seed in seeds]
        offsets = [errors[1][world, "OffsetsOnly", seed] for seed in seeds]
        old = [errors[0].get((world, learner, seed)) for seed in seeds]
        cells = ["", ""]
        if all(each is not None for each in old):
            mean, half = interval(world, [a - b for a, b in zip(now, old, strict=True)])
            cells = [f"{np.mean([each.mean() for each in old]):.3f}", f"{mean:+.3f} ± {half:.3f}"]
        mean, half = interval(world, [a - b for a, b in zip(now, offsets, strict=True)])
        current = np.mean([each.mean() for each in now])
        print(
            f"| {world} | {learner} | {cells[0]} | {current:.3f} | {cells[1]} | "
            f"{mean:+.3f} ± {half:.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--worlds", nargs="*")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--compare", nargs=2, type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.compare:
        compare(*(json.loads(path.read_text()) for path in options.compare))
        return
    rows = run(options.only, options.worlds, options.seeds)
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
