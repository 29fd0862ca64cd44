"""Estimates over repeated draws of the log, with the deltas of all cells known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.observation import Observation
from unskew.data.propensities import Propensities
from unskew.estimators.point import ips, self_normalized
from unskew.estimators.sums import Sums
from unskew.metrics.judged import Judged, Metric
from unskew.metrics.positions import positions
from unskew.progress import Track, silent
from unskew.types import IntVector, Matrix, Scores, Vector

ESTIMATORS = ("naive", "ips", "snips")


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
        estimates = {name: {"mean": float(self.mean(name)[place]), "std": float(self.std(name)[place])} for name in ESTIMATORS}
        return {"true": float(self.true[place]), **estimates}


def plus_minus(value: Mapping[str, float], digits: int) -> str:
    """``mean ± std``."""
    return f"{value['mean']:.{digits}f} ± {value['std']:.{digits}f}"


def two_streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """For predictions and for draws: independent of each other and of what ``simulate`` takes from the same seed."""
    predictions, draws = np.random.default_rng([seed, 1]).spawn(2)
    return predictions, draws


def draw_estimates(
    deltas: Matrix, observation: Observation, *, trials: int, seed: int, track: Track = silent, label: str = "draws"
) -> Draws:
    """Draw a log ``trials`` times and estimate the mean of each row of ``deltas`` (risks x cells) from it alone."""
    chance = observation.propensities(slice(0, len(observation.truth))).ravel()
    streams = np.random.default_rng(seed).spawn(trials)
    estimates: dict[str, list[Vector]] = {name: [] for name in ESTIMATORS}
    for rng in track(streams, label=label, total=trials):
        seen = np.flatnonzero(rng.random(chance.size) < chance)
        for name, estimate in _estimate(deltas[:, seen], chance[seen], n_cells=chance.size).items():
            estimates[name].append(estimate)
    return Draws(deltas.mean(axis=1), {name: np.stack(rows) for name, rows in estimates.items()})


def _estimate(deltas: Matrix, chance: Vector, *, n_cells: int) -> dict[str, Vector]:
    weighted = Sums.of(deltas, Propensities(chance))
    return {
        "naive": self_normalized(Sums.of(deltas)).value,
        "ips": ips(weighted, n_cells=n_cells).value,
        "snips": self_normalized(weighted).value,
    }


def all_deltas(
    truth: npt.NDArray[np.floating], predictions: Mapping[str, npt.NDArray[np.floating]], metrics: Sequence[Metric]
) -> Matrix:
    """Deltas of every cell: a row for each prediction and metric, predictions outermost."""
    return np.stack(
        [
            metric(judged).value
            for judged in (judge(truth, scores, metrics) for scores in predictions.values())
            for metric in metrics
        ]
    )


def judge(truth: npt.NDArray[np.floating], scores: npt.NDArray[np.floating], metrics: Sequence[Metric]) -> Judged:
    """A complete truth as cells to judge, with what ``scores`` says of every one."""
    n_users, n_items = truth.shape
    user = np.repeat(np.arange(n_users, dtype=np.int32), n_items)
    item = np.tile(np.arange(n_items, dtype=np.int32), n_users)
    rating = truth.astype(np.float64).ravel()

    def scorer(users: IntVector, /) -> Scores:
        return scores[users]

    return Judged(
        rating,
        item,
        rating,
        prediction=scores.astype(np.float64).ravel(),
        positions=positions(user, item, n_users, n_items, scorer) if any(metric.ranks for metric in metrics) else None,
        n_items=n_items,
    )
