"""Estimates over repeated draws of the log, when the deltas of all cells are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from unskew.data.propensities import Propensities
from unskew.datasets.location import PathLike
from unskew.estimators.point import ips, self_normalized
from unskew.estimators.sums import Sums
from unskew.metrics.metric import Metric, MetricInput, find_metric
from unskew.paper.completion import GroundTruth, find_ground_truth
from unskew.paper.reproduction import Row
from unskew.progress import Track, no_progress
from unskew.ranking.positions import compute_positions
from unskew.settings import WholeNumber
from unskew.simulation.observation import Observation
from unskew.types import IntVector, Matrix, Scores, Vector

ESTIMATORS = ("naive", "ips", "snips")
N_RESAMPLES = 2000
"""Bootstrap resamples of the trials, for the band of an RMSE."""

RatingMatrix: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class EstimateDraws:
    """Estimates of several risks in every draw of the log, and the true risks."""

    true: Vector
    """The mean of delta over all cells, for each risk."""
    estimates: Mapping[str, Matrix]
    """By estimator: draws x risks."""
    random_state: int

    def summarize(self, risk: int) -> Row:
        """The true risk, and the mean and standard deviation of each estimator over the draws."""
        columns = {name: self.estimates[name][:, risk] for name in ESTIMATORS}
        estimates = {
            name: {"mean": float(values.mean()), "std": float(values.std(ddof=1))}
            for name, values in columns.items()
        }
        return {"true": float(self.true[risk]), **estimates}

    def rmse_with_band(self, estimator: str, risks: slice) -> Row:
        """RMSE of the estimates over the draws, averaged over the risks.

        The 95 % band is a bootstrap over the draws.
        """
        squared = (self.estimates[estimator][:, risks] - self.true[risks]) ** 2
        n_draws = len(squared)
        rng = np.random.default_rng(self.random_state)
        picks = rng.integers(0, n_draws, (N_RESAMPLES, n_draws))
        resampled = np.sqrt(squared[picks].mean(axis=1)).mean(axis=1)
        low, high = np.quantile(resampled, [0.025, 0.975])
        return {
            "ours": float(np.sqrt(squared.mean(axis=0)).mean()),
            "ci_low": float(low),
            "ci_high": float(high),
            "paper": None,
        }


@dataclass(frozen=True, slots=True, eq=False)
class DrawnLog:
    """One log, as cells of the complete rating matrix."""

    cells: npt.NDArray[np.intp]
    """Indices into the flattened matrix, in ascending order."""
    deltas: Matrix
    """Risks x cells."""
    propensity: Vector
    """True propensities of the cells."""
    n_cells: int
    """U * I."""
    rng: np.random.Generator
    """For everything else that is random in this trial."""

    def estimate_weighted(self, propensities: Vector) -> tuple[Vector, Vector]:
        """Eq. (10) and (11): IPS and SNIPS of every risk with these propensities of the cells."""
        sums = Sums.of(self.deltas, Propensities(propensities))
        return ips(sums, n_cells=self.n_cells).value, self_normalized(sums).value


EstimateFunction: TypeAlias = Callable[[DrawnLog], Mapping[str, Vector]]
"""Estimates all risks from one log; returns them by the name of the estimator."""


def estimate_with_true_propensities(log: DrawnLog) -> dict[str, Vector]:
    """Naive, and IPS and SNIPS with the true propensities."""
    ips_risk, snips_risk = log.estimate_weighted(log.propensity)
    naive_risk = self_normalized(Sums.of(log.deltas)).value
    return {"naive": naive_risk, "ips": ips_risk, "snips": snips_risk}


def draw_estimates(
    deltas: Matrix,
    observation: Observation,
    *,
    trials: int,
    random_state: int,
    estimate: EstimateFunction = estimate_with_true_propensities,
    track: Track = no_progress,
    label: str = "draws",
) -> EstimateDraws:
    """Draw a log ``trials`` times and estimate the mean of each row of ``deltas`` from each log.

    ``deltas`` are risks x cells.
    """
    propensity = observation.propensities(slice(0, len(observation.truth))).ravel()
    streams = np.random.default_rng(random_state).spawn(trials)
    draws: list[Mapping[str, Vector]] = []
    for rng in track(streams, label=label, total=trials):
        cells = np.flatnonzero(rng.random(propensity.size) < propensity)
        log = DrawnLog(cells, deltas[:, cells], propensity[cells], propensity.size, rng)
        draws.append(estimate(log))
    estimates = {name: np.stack([draw[name] for draw in draws]) for name in draws[0]}
    return EstimateDraws(deltas.mean(axis=1), estimates, random_state)


def sample_ratings(truth: npt.NDArray[np.floating], size: int, rng: np.random.Generator) -> Vector:
    """Ratings of ``size`` cells drawn uniformly from all: missing completely at random."""
    sample: Vector = truth.ravel()[rng.integers(truth.size, size=size)].astype(np.float64)
    return sample


def check_sample_sizes(sample_sizes: Sequence[int]) -> list[int]:
    """The distinct sizes in ascending order; each must be a whole number, at least 1."""
    for size in sample_sizes:
        WholeNumber(least=1)("sample_sizes", size)
    return sorted({int(size) for size in sample_sizes})


def all_deltas(
    truth: npt.NDArray[np.floating],
    predictions: Mapping[str, npt.NDArray[np.floating]],
    metrics: Sequence[Metric],
) -> Matrix:
    """Deltas of every cell: one row for each prediction and metric, predictions outermost."""
    inputs = (build_metric_input(truth, scores, metrics) for scores in predictions.values())
    return np.stack([metric(cells).value for cells in inputs for metric in metrics])


def build_metric_input(
    truth: npt.NDArray[np.floating], scores: npt.NDArray[np.floating], metrics: Sequence[Metric]
) -> MetricInput:
    """All cells of a complete rating matrix, with a prediction for each."""
    n_users, n_items = truth.shape
    user = np.repeat(np.arange(n_users, dtype=np.int32), n_items)
    item = np.tile(np.arange(n_items, dtype=np.int32), n_users)
    rating = truth.astype(np.float64).ravel()

    def scorer(users: IntVector, /) -> Scores:
        return scores[users]

    has_ranking = any(metric.ranks for metric in metrics)
    return MetricInput(
        rating,
        item,
        rating,
        prediction=scores.astype(np.float64).ravel(),
        positions=compute_positions(user, item, n_users, n_items, scorer) if has_ranking else None,
        n_items=n_items,
    )


@dataclass(frozen=True, slots=True, eq=False)
class FivePredictions:
    """The deltas of the five predictions of Section 3.4 on a complete rating matrix."""

    ground_truth: GroundTruth
    names: tuple[str, ...]
    deltas: Matrix
    """One row for each prediction and metric, predictions outermost."""
    draw_rng: np.random.Generator
    """Gives the seeds of the draws."""

    @classmethod
    def prepare(cls, data: PathLike, metrics: Sequence[str], random_state: int) -> FivePredictions:
        """Find the complete ratings, and evaluate the predictions by each of the metrics."""
        ground_truth = find_ground_truth(data, random_state=random_state)
        prediction_rng, draw_rng = spawn_generators(random_state)
        predictions = prediction_matrices(ground_truth.ratings, prediction_rng)
        found_metrics = [find_metric(name) for name in metrics]
        deltas = all_deltas(ground_truth.ratings, predictions, found_metrics)
        return cls(ground_truth, tuple(predictions), deltas, draw_rng)

    def draw(
        self,
        alpha: float,
        *,
        trials: int,
        estimate: EstimateFunction = estimate_with_true_propensities,
        track: Track,
        label: str,
    ) -> EstimateDraws:
        """Draw a log ``trials`` times with the next seed and estimate every risk from each log."""
        return draw_estimates(
            self.deltas,
            self.ground_truth.observation(alpha),
            trials=trials,
            random_state=int(self.draw_rng.integers(2**31)),
            estimate=estimate,
            track=track,
            label=label,
        )


def spawn_generators(random_state: int) -> tuple[np.random.Generator, np.random.Generator]:
    """For the predictions and for the draws.

    They are independent of each other and of what ``simulate`` draws with the same seed.
    """
    prediction_rng, draw_rng = np.random.default_rng([random_state, 1]).spawn(2)
    return prediction_rng, draw_rng


def prediction_matrices(truth: RatingMatrix, rng: np.random.Generator) -> dict[str, RatingMatrix]:
    """REC_ONES, REC_FOURS, ROTATE, SKEWED and COARSENED, for complete ratings from 1 to 5."""
    return {
        "REC_ONES": promote(truth, 1, rng),
        "REC_FOURS": promote(truth, 4, rng),
        "ROTATE": np.where(truth >= 2, truth - 1, 5).astype(np.float32),
        "SKEWED": skew(truth, rng),
        "COARSENED": np.where(truth <= 3, 3, 4).astype(np.float32),
    }


def skew(truth: RatingMatrix, rng: np.random.Generator) -> RatingMatrix:
    """Predictions drawn from N(Y, sd (6 - Y) / 2) and clipped to [0, 6].

    The noise of each level is the quantiles of the normal distribution in random order. The error
    of the prediction is then a function of the rating marginals and not random.
    """
    skewed = truth.copy()
    for level in np.unique(truth):
        cells = np.flatnonzero(truth == level)
        noise = special.ndtri((np.arange(cells.size) + 0.5) / cells.size)
        skewed.flat[cells] = np.clip(level + rng.permutation(noise) * (6 - level) / 2, 0, 6)
    return skewed


def promote(truth: RatingMatrix, rating: int, rng: np.random.Generator) -> RatingMatrix:
    """The ratings with random cells of ``rating`` changed to 5, as many as there are fives."""
    promoted = truth.copy()
    cells = rng.choice(np.flatnonzero(truth == rating), size=int((truth == 5).sum()), replace=False)
    promoted.flat[cells] = 5
    return promoted


def format_mean_and_std(value: Mapping[str, float], digits: int) -> str:
    """``mean ± std``, each with this number of decimals."""
    return f"{value['mean']:.{digits}f} ± {value['std']:.{digits}f}"
