"""Figure 4: how far the estimators are off when propensities come from naive Bayes and a small random sample."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.checks import whole_number
from unskew.data.ratings import Ratings
from unskew.datasets.location import PathLike
from unskew.errors import PropensityWarning, UsageError
from unskew.metrics.names import find_metric
from unskew.paper.draws import (
    Drawn,
    Draws,
    all_deltas,
    draw_estimates,
    random_ratings,
    rmse_with_band,
    two_streams,
    with_known_propensities,
)
from unskew.paper.figure2 import METRICS
from unskew.paper.matrices import prediction_matrices
from unskew.paper.reproduction import Reproduction
from unskew.paper.table1 import ALPHA
from unskew.paper.world import find_world
from unskew.progress import Track, no_progress
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.types import Vector

SAMPLE_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
"""The paper does not say which it took."""
ESTIMATED = ("ips-nb", "snips-nb")
KNOWN = {"ips-known": "ips", "snips-known": "snips", "naive": "naive"}
"""What does not depend on the sample, by its name among the draws."""
ESTIMATORS = (*ESTIMATED, *KNOWN)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class WithNaiveBayes:
    """Estimates with the true propensities and, for every size of the sample, with those that naive Bayes makes of it."""

    truth: npt.NDArray[np.float32]
    sample_sizes: Sequence[int]

    def __call__(self, drawn: Drawn) -> Mapping[str, Vector]:
        """A trial has one sample, and its first ratings are the smaller ones."""
        user, item = np.divmod(drawn.cells, self.truth.shape[1])
        log = Ratings.from_codes(
            user, item, self.truth.ravel()[drawn.cells], shape=self.truth.shape
        )
        sample = random_ratings(self.truth, max(self.sample_sizes), drawn.rng)
        found = with_known_propensities(drawn)
        for size in self.sample_sizes:
            propensities = NaiveBayesPropensity().fit(log, mcar=sample[:size]).predict(log)
            found |= zip(
                (_key(name, size) for name in ESTIMATED), drawn.weighted(propensities), strict=True
            )
        return found


def figure4(
    *,
    data: PathLike = None,
    trials: int = 50,
    seed: int = 0,
    sample_sizes: Sequence[int] = SAMPLE_SIZES,
    track: Track = no_progress,
) -> Reproduction:
    """RMSE of IPS and SNIPS with naive-Bayes propensities for MSE and DCG@50, mean over the five predictions, at alpha = 0.25.

    Each trial draws a log of 5 % of the truth and a sample of random ratings, from which naive Bayes takes the marginals (Laplace
    smoothing 1). ``data`` is the folder of MovieLens 100K; see :func:`unskew.paper.world.find_world`.
    """
    if trials < 2:
        raise UsageError(f"figure4 has bands over draws, so at least 2 of them; got {trials}.")
    sizes = sorted({whole_number("sample_sizes", size, least=1) for size in sample_sizes})
    world = find_world(data, seed=seed)
    matrix_rng, draw_rng = two_streams(seed)
    deltas = all_deltas(
        world.truth,
        prediction_matrices(world.truth, matrix_rng),
        [find_metric(name) for name in METRICS],
    )
    seeds = int(draw_rng.integers(2**31))
    estimate = WithNaiveBayes(world.truth, sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)  # the summary counts what is capped
        draws = draw_estimates(
            deltas,
            world.observation(ALPHA),
            trials=trials,
            seed=seeds,
            estimate=estimate,
            track=track,
            label="Figure 4",
        )
    rows = _rows(draws, sizes, seeds)
    caption = (
        "Root mean squared error of each estimate over the draws, mean over the five predictions; nb: naive Bayes from a sample "
        "of so many random ratings. The JSON and the figure have 95 % bands."
    )
    summary = f"{_summary(rows, sizes)} {_capped(draws, sizes)} {world.origin}"
    return Reproduction("figure4", trials, seed, rows, _table(rows, sizes), summary, caption)


def _key(estimator: str, size: int) -> str:
    """The name of an estimator among the draws."""
    return KNOWN.get(estimator, f"{estimator} {size}")


def _rows(draws: Draws, sizes: Sequence[int], seed: int) -> list[Row]:
    """Every estimator at every size; what knows the propensities, or ignores them, is the same at all of them."""
    rows: list[Row] = []
    for place, metric in enumerate(METRICS):
        columns = slice(place, None, len(METRICS))
        for size in sizes:
            for name in ESTIMATORS:
                error = draws.estimates[_key(name, size)][:, columns] - draws.true[columns]
                rows.append(
                    {"metric": metric, "sample_size": size, "estimator": name}
                    | rmse_with_band(error, seed)
                )
    return rows


# For the eye


def _by_key(rows: Sequence[Row]) -> dict[tuple[str, int, str], float]:
    return {(row["metric"], row["sample_size"], row["estimator"]): row["ours"] for row in rows}


def _table(rows: Sequence[Row], sizes: Sequence[int]) -> dict[str, list[object]]:
    points = [(metric, size) for metric in METRICS for size in sizes]
    rmse = _by_key(rows)
    columns: dict[str, list[object]] = {
        "RMSE of": [metric for metric, _ in points],
        "sample": [f"{size:,}" for _, size in points],
    }
    for name in ESTIMATORS:
        columns[name] = [f"{rmse[metric, size, name]:.3g}" for metric, size in points]
    return columns


def _summary(rows: Sequence[Row], sizes: Sequence[int]) -> str:
    rmse = _by_key(rows)
    fewest, most = sizes[0], sizes[-1]
    points = [(metric, size) for metric in METRICS for size in sizes]
    not_worse = sum(
        all(rmse[*point, name] <= rmse[*point, "naive"] for name in ESTIMATED) for point in points
    )
    better = [
        f"{size:,}"
        for size in sizes
        if rmse["mse", size, "ips-nb"] <= rmse["mse", size, "ips-known"]
    ]
    return (
        f"For MSE, IPS with naive-Bayes propensities is off by {rmse['mse', fewest, 'ips-nb']:.3f} with {fewest:,} random "
        f"ratings and by {rmse['mse', most, 'ips-nb']:.3f} with {most:,}; with known propensities by "
        f"{rmse['mse', most, 'ips-known']:.3f}, SNIPS by {rmse['mse', most, 'snips-known']:.3f}, and the naive average by "
        f"{rmse['mse', most, 'naive']:.2f}. IPS-NB and SNIPS-NB are no worse than naive at {not_worse} of {len(points)} points. "
        f"IPS-NB is no worse than IPS with known propensities, which do not stratify, at {', '.join(better) or 'no size'} (MSE). "
        "The paper prints neither numbers nor sample sizes for this figure."
    )


def _capped(draws: Draws, sizes: Sequence[int]) -> str:
    """Weights add up to U I, so that the two agree, unless a propensity is capped at 1 or a rating is missing from the log."""
    ips, snips = (
        np.stack([draws.estimates[_key(name, size)] for size in sizes]) for name in ESTIMATED
    )
    differ = ~np.isclose(ips, snips, rtol=1e-9, atol=0).all(axis=-1)
    return (
        "IPS-NB and SNIPS-NB are one number, since the weights add up to all cells, unless a propensity is capped at 1 or the "
        f"log lacks a rating: {int(differ.sum())} of {differ.size} fits."
    )
