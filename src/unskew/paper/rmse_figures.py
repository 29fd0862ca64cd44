"""Figures 2 and 4: the error of the estimators, with known and with estimated propensities."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.cells import user_and_item
from unskew.data.ratings import Ratings
from unskew.datasets.location import PathLike
from unskew.errors import PropensityWarning
from unskew.paper import EXPERIMENTS
from unskew.paper.completion import ALPHAS, MOVIELENS_ALPHA
from unskew.paper.draws import (
    ESTIMATORS,
    DrawnLog,
    EstimateDraws,
    FivePredictions,
    check_sample_sizes,
    estimate_with_true_propensities,
    sample_ratings,
)
from unskew.paper.reproduction import Reproduction, Row, check_trials
from unskew.progress import Track, no_progress
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.types import Vector

RMSE_METRICS = ("mse", "dcg@50")
RMSE_CAPTION = (
    "Root mean squared error of each estimate over the draws, mean over the five predictions{}. "
    "The JSON and the figure have 95 % bands."
)
SAMPLE_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
"""Our choice; the paper does not print the sizes it used."""
ESTIMATED = ("ips-nb", "snips-nb")
INDEPENDENT_OF_SAMPLE = {"ips-known": "ips", "snips-known": "snips", "naive": "naive"}
"""Estimators that do not use the sample: name in the figure, name in the draws."""
FIGURE4_ESTIMATORS = (*ESTIMATED, *INDEPENDENT_OF_SAMPLE)


def make_rmse_rows(draws: EstimateDraws, point: Row, estimators: Mapping[str, str]) -> list[Row]:
    """The error of each estimator at a point of the horizontal axis, by ``RMSE_METRICS``.

    ``estimators`` are names in the figure with names in ``draws``.
    """
    n_metrics = len(RMSE_METRICS)
    return [
        {"metric": metric, **point, "estimator": name}
        | draws.rmse_with_band(name_in_draws, slice(first, None, n_metrics))
        for first, metric in enumerate(RMSE_METRICS)
        for name, name_in_draws in estimators.items()
    ]


def make_rmse_table(
    rows: Sequence[Row], field: str, heading: str, x_format: str
) -> dict[str, list[object]]:
    """One row for each metric and point of the axis ``field``, one column for each estimator."""
    points = list(dict.fromkeys((row["metric"], row[field]) for row in rows))
    columns: dict[str, list[object]] = {
        "RMSE of": [metric for metric, _ in points],
        heading: [f"{x:{x_format}}" for _, x in points],
    }
    for row in rows:
        columns.setdefault(row["estimator"], []).append(f"{row['ours']:.3g}")
    return columns


# Figure 2


@EXPERIMENTS.declare(
    "figure2",
    label="Figure 2",
    summary="Error of the estimators as selection grows stronger.",
    traits={"order": 3, "trials": 50, "data": "movielens-100k", "needs_data": False},
)
def reproduce_figure2(
    *, data: PathLike = None, trials: int = 50, random_state: int = 0, track: Track = no_progress
) -> Reproduction:
    """RMSE of naive, IPS and SNIPS for MSE and DCG@50 at every alpha.

    The RMSE is over ``trials`` draws of the log, averaged over the five predictions. ``data`` is
    the folder of MovieLens 100K; see :func:`unskew.paper.completion.find_ground_truth`.
    """
    five = FivePredictions.prepare(data, RMSE_METRICS, random_state)
    estimators = {name: name for name in ESTIMATORS}
    rows: list[Row] = []
    for alpha in ALPHAS:
        draws = five.draw(alpha, trials=trials, track=track, label=f"alpha {alpha:g}")
        rows += make_rmse_rows(draws, {"alpha": alpha}, estimators)
    rows.sort(key=lambda row: RMSE_METRICS.index(row["metric"]))
    table, caption = make_rmse_table(rows, "alpha", "alpha", "g"), RMSE_CAPTION.format("")
    summary = f"{_summarize_alphas(rows)} {five.ground_truth.origin}"
    return Reproduction("figure2", trials, random_state, rows, table, summary, caption)


def _summarize_alphas(rows: Sequence[Row]) -> str:
    rmse = {
        row["estimator"]: row["ours"]
        for row in rows
        if row["metric"] == "mse" and row["alpha"] == MOVIELENS_ALPHA
    }
    return (
        "At alpha = 0.25, which mimics MovieLens, the naive estimate of MSE is off by "
        f"{rmse['naive']:.2f}, IPS by {rmse['ips']:.3f} and SNIPS by {rmse['snips']:.3f}. "
        "At alpha = 1 nothing is selected and SNIPS is the naive average. "
        "The paper prints no numbers for this figure."
    )


# Figure 4


@dataclass(frozen=True, slots=True, eq=False)
class NaiveBayesEstimates:
    """Estimates with the true propensities, and with naive Bayes from samples of every size."""

    truth: npt.NDArray[np.float32]
    sample_sizes: Sequence[int]

    def __call__(self, drawn: DrawnLog) -> Mapping[str, Vector]:
        """The estimates from one drawn log, by name.

        Smaller random samples are the first ratings of the largest one.
        """
        user, item = user_and_item(drawn.cells, self.truth.shape[1])
        rating = self.truth.ravel()[drawn.cells]
        log = Ratings.from_codes(user, item, rating, shape=self.truth.shape)
        sample = sample_ratings(self.truth, max(self.sample_sizes), drawn.rng)
        estimates = estimate_with_true_propensities(drawn)
        for size in self.sample_sizes:
            model = NaiveBayesPropensity(smoothing=1.0).fit(log, mcar=sample[:size])
            propensities = model.predict(log).values
            names = (_name_in_draws(name, size) for name in ESTIMATED)
            estimates |= zip(names, drawn.estimate_weighted(propensities), strict=True)
        return estimates


@EXPERIMENTS.declare(
    "figure4",
    label="Figure 4",
    summary="Error of the estimators with propensities from naive Bayes.",
    traits={"order": 5, "trials": 50, "data": "movielens-100k", "needs_data": False},
)
def reproduce_figure4(
    *,
    data: PathLike = None,
    trials: int = 50,
    random_state: int = 0,
    sample_sizes: Sequence[int] = SAMPLE_SIZES,
    track: Track = no_progress,
) -> Reproduction:
    """RMSE of IPS and SNIPS with naive-Bayes propensities for MSE and DCG@50 at alpha = 0.25.

    Each trial draws a log of 5 % of all ratings and a sample of random ratings, from which naive
    Bayes estimates the marginals (Laplace smoothing 1). The RMSE is averaged over the five
    predictions. ``data`` is the folder of MovieLens 100K; see
    :func:`unskew.paper.completion.find_ground_truth`.
    """
    check_trials(trials, "figure4", "bands over draws")
    sizes = check_sample_sizes(sample_sizes)
    five = FivePredictions.prepare(data, RMSE_METRICS, random_state)
    with warnings.catch_warnings():
        # The summary counts how often propensities are capped at 1.
        warnings.simplefilter("ignore", PropensityWarning)
        draws = five.draw(
            MOVIELENS_ALPHA,
            trials=trials,
            estimate=NaiveBayesEstimates(five.ground_truth.ratings, sizes),
            track=track,
            label="Figure 4",
        )
    rows: list[Row] = []
    for size in sizes:
        estimators = {name: _name_in_draws(name, size) for name in FIGURE4_ESTIMATORS}
        rows += make_rmse_rows(draws, {"sample_size": size}, estimators)
    rows.sort(key=lambda row: RMSE_METRICS.index(row["metric"]))
    caption = RMSE_CAPTION.format("; nb: naive Bayes from a sample of that many random ratings")
    rmse = {(row["metric"], row["sample_size"], row["estimator"]): row["ours"] for row in rows}
    sentences = (_summarize_sizes(rmse, sizes), _count_differences(draws, sizes))
    summary = " ".join([*sentences, five.ground_truth.origin])
    table = make_rmse_table(rows, "sample_size", "sample", ",")
    return Reproduction("figure4", trials, random_state, rows, table, summary, caption)


def _name_in_draws(estimator: str, size: int) -> str:
    return INDEPENDENT_OF_SAMPLE.get(estimator, f"{estimator} {size}")


def _summarize_sizes(rmse: Mapping[tuple[str, int, str], float], sizes: Sequence[int]) -> str:
    fewest, most = sizes[0], sizes[-1]
    points = [(metric, size) for metric in RMSE_METRICS for size in sizes]
    not_worse = sum(
        all(rmse[*point, name] <= rmse[*point, "naive"] for name in ESTIMATED) for point in points
    )
    sizes_not_worse = [
        f"{size:,}"
        for size in sizes
        if rmse["mse", size, "ips-nb"] <= rmse["mse", size, "ips-known"]
    ]
    return (
        "For MSE, IPS with naive-Bayes propensities is off by "
        f"{rmse['mse', fewest, 'ips-nb']:.3f} with {fewest:,} random ratings and by "
        f"{rmse['mse', most, 'ips-nb']:.3f} with {most:,}; with known propensities by "
        f"{rmse['mse', most, 'ips-known']:.3f}, SNIPS by {rmse['mse', most, 'snips-known']:.3f}, "
        f"and the naive average by {rmse['mse', most, 'naive']:.2f}. "
        f"IPS-NB and SNIPS-NB are no worse than naive at {not_worse} of {len(points)} points. "
        "IPS-NB is no worse than IPS with known propensities at "
        f"{', '.join(sizes_not_worse) or 'no size'} (MSE). "
        "The paper prints neither numbers nor sample sizes for this figure."
    )


def _count_differences(draws: EstimateDraws, sizes: Sequence[int]) -> str:
    """How often IPS-NB and SNIPS-NB differ.

    The weights add up to U I, so both are equal, unless a propensity is capped at 1 or a rating
    level is missing from the log.
    """
    ips, snips = (
        np.stack([draws.estimates[_name_in_draws(name, size)] for size in sizes])
        for name in ESTIMATED
    )
    differ = ~np.isclose(ips, snips, rtol=1e-9, atol=0).all(axis=-1)
    return (
        "IPS-NB and SNIPS-NB are one number, since the weights add up to all cells, unless a "
        f"propensity is capped at 1 or the log lacks a rating: {int(differ.sum())} of "
        f"{differ.size} fits."
    )
