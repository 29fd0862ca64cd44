"""Estimates over repeated draws of the log, with the deltas of all cells known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.propensities import Propensities
from unskew.estimators.point import ips, self_normalized
from unskew.estimators.sums import Sums
from unskew.metrics.metric import Metric, MetricInput
from unskew.progress import Track, no_progress
from unskew.ranking.positions import positions
from unskew.simulation.observation import Observation
from unskew.types import IntVector, Matrix, Scores, Vector

ESTIMATORS = ("naive", "ips", "snips")
N_RESAMPLES = 2000
"""Resamples of trials behind a band."""


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Estimates of several risks in every draw, and the risks themselves."""

    true: Vector
    """The mean of delta over all cells."""
    estimates: Mapping[str, Matrix]
    """By estimator: draws x risks."""

    def mean(self, estimator: str) -> Vector:
        """Mean over draws."""
        mean: Vector = self.estimates[estimator].mean(axis=0)
        return mean

    def std(self, estimator: str) -> Vector:
        """Standard deviation over draws."""
        spread: Vector = self.estimates[estimator].std(axis=0, ddof=1)
        return spread

    def row(self, place: int) -> dict[str, Any]:
        """One risk: its true value, and the mean and standard deviation of every estimator."""
        estimates = {
            name: {"mean": float(self.mean(name)[place]), "std": float(self.std(name)[place])}
            for name in ESTIMATORS
        }
        return {"true": float(self.true[place]), **estimates}


def plus_minus(value: Mapping[str, float], digits: int) -> str:
    """``mean ± std``."""
    return f"{value['mean']:.{digits}f} ± {value['std']:.{digits}f}"


def two_streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """For predictions and for draws: independent of each other and of what ``simulate`` takes from the same seed."""
    predictions, draws = np.random.default_rng([seed, 1]).spawn(2)
    return predictions, draws


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One log, as cells of the truth."""

    cells: npt.NDArray[np.intp]
    """Places in the truth, row after row; rising."""
    deltas: Matrix
    """Risks x those cells."""
    chance: Vector
    """Their true propensities."""
    n_cells: int
    """U * I."""
    rng: np.random.Generator
    """For whatever else is random in this trial."""

    def weighted(self, propensities: Vector) -> tuple[Vector, Vector]:
        """Eq. (10) and (11): IPS and SNIPS of every risk with some propensities of the cells, right or wrong."""
        sums = Sums.of(self.deltas, Propensities(propensities))
        return ips(sums, n_cells=self.n_cells).value, self_normalized(sums).value


Estimate: TypeAlias = Callable[[Drawn], Mapping[str, Vector]]
"""What is made of one log: estimates of every risk, by the name of the estimator."""


def with_known_propensities(drawn: Drawn) -> dict[str, Vector]:
    """Naive, and IPS and SNIPS with the true propensities."""
    weighted, normalized = drawn.weighted(drawn.chance)
    return {
        "naive": self_normalized(Sums.of(drawn.deltas)).value,
        "ips": weighted,
        "snips": normalized,
    }


def draw_estimates(
    deltas: Matrix,
    observation: Observation,
    *,
    trials: int,
    seed: int,
    estimate: Estimate = with_known_propensities,
    track: Track = no_progress,
    label: str = "draws",
) -> Draws:
    """Draw a log ``trials`` times and estimate the mean of each row of ``deltas`` (risks x cells) from it alone."""
    chance = observation.propensities(slice(0, len(observation.truth))).ravel()
    streams = np.random.default_rng(seed).spawn(trials)
    found: list[Mapping[str, Vector]] = []
    for rng in track(streams, label=label, total=trials):
        seen = np.flatnonzero(rng.random(chance.size) < chance)
        found.append(estimate(Drawn(seen, deltas[:, seen], chance[seen], chance.size, rng)))
    return Draws(
        deltas.mean(axis=1), {name: np.stack([each[name] for each in found]) for name in found[0]}
    )


def random_ratings(truth: npt.NDArray[np.floating], size: int, rng: np.random.Generator) -> Vector:
    """Ratings of ``size`` cells, each picked uniformly from all: a sample that is missing completely at random."""
    picked: Vector = truth.ravel()[rng.integers(truth.size, size=size)].astype(np.float64)
    return picked


def all_deltas(
    truth: npt.NDArray[np.floating],
    predictions: Mapping[str, npt.NDArray[np.floating]],
    metrics: Sequence[Metric],
) -> Matrix:
    """Deltas of every cell: a row for each prediction and metric, predictions outermost."""
    return np.stack(
        [
            metric(judged).value
            for judged in (judge(truth, scores, metrics) for scores in predictions.values())
            for metric in metrics
        ]
    )


def judge(
    truth: npt.NDArray[np.floating], scores: npt.NDArray[np.floating], metrics: Sequence[Metric]
) -> MetricInput:
    """A complete truth as cells to judge, with what ``scores`` says of every one."""
    n_users, n_items = truth.shape
    user = np.repeat(np.arange(n_users, dtype=np.int32), n_items)
    item = np.tile(np.arange(n_items, dtype=np.int32), n_users)
    rating = truth.astype(np.float64).ravel()

    def scorer(users: IntVector, /) -> Scores:
        return scores[users]

    return MetricInput(
        rating,
        item,
        rating,
        prediction=scores.astype(np.float64).ravel(),
        positions=positions(user, item, n_users, n_items, scorer)
        if any(metric.ranks for metric in metrics)
        else None,
        n_items=n_items,
    )


def rmse_with_band(error: Matrix, seed: int) -> dict[str, Any]:
    """Root mean squared error over trials, mean over predictions, with a 95 % bootstrap band over trials."""
    squared = error**2
    picks = np.random.default_rng(seed).integers(0, len(error), (N_RESAMPLES, len(error)))
    resampled = np.sqrt(squared[picks].mean(axis=1)).mean(axis=1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    return {
        "ours": float(np.sqrt(squared.mean(axis=0)).mean()),
        "ci_low": float(low),
        "ci_high": float(high),
        "paper": None,
    }
