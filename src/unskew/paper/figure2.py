"""Figure 2: how far the estimators are off as selection grows stronger, propensities known."""

from __future__ import annotations

from typing import Any

from unskew.datasets.location import PathLike
from unskew.metrics.names import find_metric
from unskew.paper.draws import ESTIMATORS, all_deltas, draw_estimates, rmse_with_band, two_streams
from unskew.paper.matrices import prediction_matrices
from unskew.paper.reproduction import Reproduction
from unskew.paper.world import ALPHAS, find_world
from unskew.progress import Track, no_progress

METRICS = ("mse", "dcg@50")


def figure2(
    *, data: PathLike = None, trials: int = 50, seed: int = 0, track: Track = no_progress
) -> Reproduction:
    """RMSE of naive, IPS and SNIPS for MSE and DCG@50, mean over the five predictions, at every alpha.

    ``data`` is the folder of MovieLens 100K; see :func:`unskew.paper.world.find_world`.
    """
    world = find_world(data, seed=seed)
    matrix_rng, draw_rng = two_streams(seed)
    deltas = all_deltas(
        world.truth,
        prediction_matrices(world.truth, matrix_rng),
        [find_metric(name) for name in METRICS],
    )
    rows: list[dict[str, Any]] = []
    for alpha in ALPHAS:
        seeds = int(draw_rng.integers(2**31))
        draws = draw_estimates(
            deltas,
            world.observation(alpha),
            trials=trials,
            seed=seeds,
            track=track,
            label=f"alpha {alpha:g}",
        )
        for place, metric in enumerate(METRICS):
            columns = slice(place, None, len(METRICS))
            for name in ESTIMATORS:
                error = draws.estimates[name][:, columns] - draws.true[columns]
                rows.append(
                    {"metric": metric, "alpha": alpha, "estimator": name}
                    | rmse_with_band(error, seeds)
                )
    rows.sort(key=lambda row: METRICS.index(row["metric"]))
    caption = (
        "Root mean squared error of each estimate over the draws, mean over the five predictions. "
        "The JSON and the figure have 95 % bands."
    )
    return Reproduction(
        "figure2", trials, seed, rows, _table(rows), f"{_summary(rows)} {world.origin}", caption
    )


def _table(rows: list[dict[str, Any]]) -> dict[str, list[object]]:
    points = [(metric, alpha) for metric in METRICS for alpha in ALPHAS]
    by_key = {(row["metric"], row["alpha"], row["estimator"]): row for row in rows}
    columns: dict[str, list[object]] = {
        "RMSE of": [metric for metric, _ in points],
        "alpha": [f"{alpha:g}" for _, alpha in points],
    }
    for name in ESTIMATORS:
        columns[name] = [f"{by_key[metric, alpha, name]['ours']:.3g}" for metric, alpha in points]
    return columns


def _summary(rows: list[dict[str, Any]]) -> str:
    at = {
        row["estimator"]: row["ours"]
        for row in rows
        if row["metric"] == "mse" and row["alpha"] == 0.25
    }
    return (
        f"At alpha = 0.25, which mimics MovieLens, the naive estimate of MSE is off by {at['naive']:.2f}, IPS by {at['ips']:.3f} "
        f"and SNIPS by {at['snips']:.3f}. At alpha = 1 nothing is selected and SNIPS is the naive average. "
        "The paper prints no numbers for this figure."
    )
