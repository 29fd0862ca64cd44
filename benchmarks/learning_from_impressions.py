"""Models trained on logged impressions: do weights by examination help, in worlds of known truth?

    python benchmarks/learning_from_impressions.py [--seeds 20]

Settings, fixed before the first run, except for the number of worlds (10 then). Worlds of
``simulate_impressions``: position-based users with examination 1/k, eight fixed rankers, 400 users
of 20 kinds, 40 items, 5 slots; 30 requests a user or 5. ``MatrixFactorization`` with 5 factors is
trained on ``Impressions.to_cells(curve)`` with ``examination_weights()``; the variants differ in
the curve: all ones (clicks over impressions), ``PositionBias().fit(log)``, or the true one; and all
ones without weights. ``RelevanceFactorization`` with 5 factors is trained on the clicked cells with
propensities min(E, 1), E the examination of the cell, or 1 without weights.

The penalty of each variant is the best of five by the truth, on two worlds of their own
(seeds 1000 and 1001), in the first measure. Measures, on all cells of the log's users and items:

    share of the best value   sum over users of the expected clicks of the five items with the
                              highest predictions, over that of the five most relevant items
    error                     root mean squared error to the relevance after the best affine
                              rescaling of the predictions

Differences from clicks without a curve are paired by world; their 95 % intervals are Student's.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats

import unskew
from unskew.data.propensities import Propensities
from unskew.models import RelevanceFactorization
from unskew.simulation import ImpressionSimulation

K, N_FACTORS = 5, 5
CURVE = 1 / np.arange(1, K + 1)
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1000.0)
Variant = Callable[[ImpressionSimulation, float], Any]
BASELINES = {
    "MatrixFactorization": "clicks over impressions",
    "RelevanceFactorization": "clicks, no weights",
}


def make_world(requests_per_user: float, seed: int) -> ImpressionSimulation:
    return unskew.simulate_impressions(
        400, 40, K, logging="rankers", n_rankers=8, n_kinds=20, examination=CURVE,
        requests_per_user=requests_per_user, random_state=seed,
    )  # fmt: skip


def find_curve(world: ImpressionSimulation, curve: str) -> Any:
    if curve == "estimated":
        return unskew.PositionBias().fit(world.log)
    return CURVE if curve == "true" else np.ones(K)


def train_mf(curve: str, *, weighted: bool = True) -> Variant:
    def train(world: ImpressionSimulation, l2: float) -> Any:
        cells = world.log.to_cells(find_curve(world, curve))
        weights = cells.examination_weights() if weighted else None
        return unskew.MatrixFactorization(N_FACTORS, l2).fit(cells, weights)

    return train


def train_relevance(curve: str) -> Variant:
    def train(world: ImpressionSimulation, l2: float) -> Any:
        cells = world.log.to_cells(find_curve(world, curve))
        assert cells.examination is not None
        is_clicked = cells.rating > 0
        clicks = cells.take(is_clicked)
        examined = np.minimum(cells.examination[is_clicked], 1.0)
        return RelevanceFactorization(N_FACTORS, l2).fit(clicks, Propensities(examined))

    return train


MODELS: Mapping[str, Mapping[str, Variant]] = {
    "MatrixFactorization": {
        "clicks over impressions, no weights": train_mf("ones", weighted=False),
        "clicks over impressions": train_mf("ones"),
        "clicks over examination, estimated curve": train_mf("estimated"),
        "clicks over examination, true curve": train_mf("true"),
    },
    "RelevanceFactorization": {
        "clicks, no weights": train_relevance("ones"),
        "examination, estimated curve": train_relevance("estimated"),
        "examination, true curve": train_relevance("true"),
    },
}


def judge(world: ImpressionSimulation, model: Any) -> tuple[float, float]:
    """The share of the best value, and the error after rescaling."""
    users, items = world.log.users, world.log.items
    truth = world.relevance[np.asarray(users) % len(world.relevance)][:, items]
    pairs = np.repeat(users, items.size), np.tile(items, users.size)
    predicted = np.asarray(model.predict(*pairs)).reshape(truth.shape)

    def value(scores: Any) -> float:
        best = np.argsort(-scores, axis=1, kind="stable")[:, :K]
        return float((np.take_along_axis(truth, best, axis=1) * CURVE).sum())

    slope = stats.linregress(predicted.ravel(), truth.ravel())
    error = truth - (slope.intercept + slope.slope * predicted)
    return value(predicted) / value(truth), float(np.sqrt(np.mean(error**2)))


def choose_penalty(variant: Variant, requests_per_user: float) -> float:
    worlds = [make_world(requests_per_user, seed) for seed in (1000, 1001)]
    shares = [np.mean([judge(w, variant(w, l2))[0] for w in worlds]) for l2 in PENALTIES]
    return PENALTIES[int(np.argmax(shares))]


def describe_difference(values: Any, baseline: Any) -> str:
    difference = np.asarray(values) - np.asarray(baseline)
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(difference.size)
    half = stats.t.ppf(0.975, difference.size - 1) * error
    return f"{mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| requests a user | model | trained on | l2 | share of the best value | minus baseline "
          "| error | minus baseline |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    for requests_per_user in (30.0, 5.0):
        worlds = [make_world(requests_per_user, seed) for seed in range(arguments.seeds)]
        for model, variants in MODELS.items():
            penalties = {name: choose_penalty(v, requests_per_user) for name, v in variants.items()}
            judged = {
                name: np.array([judge(w, variant(w, penalties[name])) for w in worlds])
                for name, variant in variants.items()
            }
            for name, numbers in judged.items():
                baseline = BASELINES[model]
                differences = [
                    describe_difference(numbers[:, j], judged[baseline][:, j])
                    if name != baseline
                    else ""
                    for j in range(2)
                ]
                share, error = numbers.mean(axis=0)
                print(
                    f"| {requests_per_user:g} | {model} | {name} | {penalties[name]:g} "
                    f"| {share:.4f} | {differences[0]} | {error:.4f} | {differences[1]} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
