"""Complete rating matrices: MovieLens 100K completed by factorization, or a simulation.

The completion follows Section 6.2 of the paper: an unweighted matrix factorization predicts every
cell, and the predictions are quantized to the marginals of randomly sampled ratings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.datasets.location import PathLike, find_files
from unskew.datasets.movielens import MOVIELENS_100K, load_movielens_100k
from unskew.errors import DatasetNotFoundError, UsageError
from unskew.metrics.metric import MetricInput, find_metric
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import Recommender
from unskew.simulation.observation import ByRating, Observation
from unskew.simulation.simulator import MARLIN_ZEMEL, quantize, simulate
from unskew.types import Scores

ALPHAS = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125)
"""Strength of the selection in Figures 2 and 3; 1 is none."""
MOVIELENS_ALPHA = 0.25
"""Selection as in MovieLens, for Table 1 and for what is over sample sizes."""
DENSITY = 0.05
N_FACTORS = (2, 5, 10, 20)
L2_PER_FACTOR = (0.05, 0.1, 0.2, 0.4)
"""Penalties as l2 / n_factors, which is the same ridge for any number of factors."""
SEARCH_TOL, TOL = 1e-5, 1e-6
HELD_OUT = 10
"""One in this number of ratings is held out to choose the settings."""
SCALE = np.arange(1.0, 6.0)


@dataclass(frozen=True, slots=True, eq=False)
class GroundTruth:
    """A complete rating matrix, and where it comes from."""

    ratings: npt.NDArray[np.float32]
    origin: str
    """A sentence for summaries."""

    def observation(self, alpha: float) -> Observation:
        """P = k for ratings 4 and 5, and k alpha^(4 - Y) below, observing 5 % of the cells."""
        return Observation.of(self.ratings, ByRating(alpha), density=DENSITY)


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """A completed rating matrix, and how well its model predicted held-out ratings."""

    ratings: npt.NDArray[np.float32]
    """Ratings 1 to 5, users x items."""
    n_factors: int
    l2: float
    accuracy: float
    """Accuracy on the held-out ratings, before the final fit to all ratings."""


def find_ground_truth(data: PathLike = None, *, random_state: int = 0) -> GroundTruth:
    """Completed MovieLens 100K from ``data`` or ``$UNSKEW_DATA``, else a simulation of its size.

    Nothing is downloaded. It is an error if ``data`` is given and lacks the files, but not if
    ``$UNSKEW_DATA`` does.
    """
    try:
        log_file, *_ = find_files(MOVIELENS_100K, data)
    except DatasetNotFoundError:
        if data is not None:
            raise
        ratings = simulate(random_state=random_state).truth
        return GroundTruth(ratings, "Truth: simulated, as large as MovieLens 100K.")
    return _complete_movielens(Path(str(log_file.parent)), random_state)


@lru_cache(maxsize=1)
def _complete_movielens(folder: Path, random_state: int) -> GroundTruth:
    """Complete MovieLens 100K; the result is kept for further experiments of the same process."""
    completion = complete(load_movielens_100k(folder).ratings, random_state=random_state)
    completion.ratings.flags.writeable = False
    origin = (
        f"Truth: MovieLens 100K, completed by {completion.n_factors} factors with "
        f"l2 = {completion.l2:g} (accuracy {completion.accuracy:.3f} on held-out ratings), "
        "then given the marginals of random ratings."
    )
    return GroundTruth(completion.ratings, origin)


def complete(
    log: Ratings,
    *,
    n_factors: Sequence[int] = N_FACTORS,
    l2_per_factor: Sequence[float] = L2_PER_FACTOR,
    marginals: tuple[float, ...] = MARLIN_ZEMEL,
    random_state: int = 0,
) -> Completion:
    """Predict every cell by F = v_u . w_i + a_u + b_i + c and quantize the predictions.

    The number of factors and the penalty are those with the best accuracy on a random tenth of
    the log after a fit to the other nine tenths. The final fit, unweighted, is to the whole log.
    """
    train, held_out = _split(log, random_state)
    results = [
        result
        for n in n_factors
        for result in _search_l2(train, held_out, n, sorted(l2_per_factor), random_state)
    ]
    best_accuracy, best_n_factors, best_l2 = max(results, key=lambda result: result[0])
    model = _make_model(best_n_factors, best_l2, random_state, TOL).fit(log)
    ratings = quantize(rank_cells(predict_all_cells(model)), marginals)
    return Completion(ratings, best_n_factors, best_l2, best_accuracy)


def _split(log: Ratings, random_state: int) -> tuple[Ratings, Ratings]:
    """Nine tenths and one tenth of the log, at random."""
    if len(log) < HELD_OUT:
        raise UsageError(
            f"completing a log needs at least {HELD_OUT} ratings, because a tenth is held out; "
            f"got {len(log)}.",
            parameter="log",
            value=len(log),
            remedy="Pass a log with more ratings.",
        )
    is_held_out = np.zeros(len(log), dtype=np.bool_)
    order = np.random.default_rng([random_state, 2]).permutation(len(log))
    is_held_out[order[: len(log) // HELD_OUT]] = True
    return log.take(~is_held_out), log.take(is_held_out)


def _search_l2(
    train: Ratings,
    held_out: Ratings,
    n_factors: int,
    l2_per_factor: Sequence[float],
    random_state: int,
) -> Iterator[tuple[float, int, float]]:
    """Accuracy, number of factors and penalty; each fit starts from the one before."""
    factors = None
    for l2 in (ratio * n_factors for ratio in l2_per_factor):
        model = _make_model(n_factors, l2, random_state, SEARCH_TOL)
        model.fit(train, initial_factors=factors)
        yield accuracy(model, held_out), n_factors, l2
        factors = model.factors_


def _make_model(n_factors: int, l2: float, random_state: int, tol: float) -> MatrixFactorization:
    return MatrixFactorization(
        n_factors, l2, offsets="free", clip_predictions=False, tol=tol, random_state=random_state
    )


def accuracy(model: Recommender, log: Ratings) -> float:
    """Eq. (4): the share of ratings that the model predicts, rounded to the scale 1 to 5."""
    prediction = model.predict(log.users[log.user], log.items[log.item])
    cells = MetricInput(log.rating, log.item, SCALE, prediction=prediction)
    return float(find_metric("accuracy")(cells).value.mean())


def predict_all_cells(model: Recommender) -> Scores:
    """Predictions of all cells, users x items, in the order of the model's ids."""
    scorer = model.scorer(model.users_, model.items_)
    return scorer(np.arange(len(model.users_), dtype=np.int32))


def rank_cells(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """The rank of each cell: 0 for the smallest, 1 for the next, ...

    Equal cells are ranked in the order of the matrix, so that quantizing the ranks gives each
    level exactly its share. Ranks are exact in float32 up to 2^24 cells, ten times MovieLens 100K.
    """
    ranks = np.empty(values.size, dtype=np.float32)
    ranks[np.argsort(values, axis=None, kind="stable")] = np.arange(values.size, dtype=np.float32)
    return ranks.reshape(values.shape)
