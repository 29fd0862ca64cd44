"""Figure 2: the error of the estimators as selection grows stronger, with known propensities."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.datasets.location import PathLike
from unskew.paper import EXPERIMENTS
from unskew.paper.completion import ALPHAS
from unskew.paper.draws import ESTIMATORS, FivePredictions, draw_estimates
from unskew.paper.reproduction import Reproduction, Row
from unskew.progress import Track, no_progress

METRICS = ("mse", "dcg@50")


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
    five = FivePredictions.prepare(data, METRICS, random_state)
    rows: list[Row] = []
    for alpha in ALPHAS:
        seed = int(five.draw_rng.integers(2**31))
        draws = draw_estimates(
            five.deltas,
            five.ground_truth.observation(alpha),
            trials=trials,
            random_state=seed,
            track=track,
            label=f"alpha {alpha:g}",
        )
        rows += [
            {"metric": metric, "alpha": alpha, "estimator": name}
            | draws.rmse_with_band(name, slice(first, None, len(METRICS)), seed)
            for first, metric in enumerate(METRICS)
            for name in ESTIMATORS
        ]
    rows.sort(key=lambda row: METRICS.index(row["metric"]))
    caption = (
        "Root mean squared error of each estimate over the draws, mean over the five predictions. "
        "The JSON and the figure have 95 % bands."
    )
    summary = f"{_summarize(rows)} {five.ground_truth.origin}"
    return Reproduction("figure2", trials, random_state, rows, _make_table(rows), summary, caption)


def _make_table(rows: Sequence[Row]) -> dict[str, list[object]]:
    points = [(metric, alpha) for metric in METRICS for alpha in ALPHAS]
    rmse = {(row["metric"], row["alpha"], row["estimator"]): row["ours"] for row in rows}
    columns: dict[str, list[object]] = {
        "RMSE of": [metric for metric, _ in points],
        "alpha": [f"{alpha:g}" for _, alpha in points],
    }
    for name in ESTIMATORS:
        columns[name] = [f"{rmse[metric, alpha, name]:.3g}" for metric, alpha in points]
    return columns


def _summarize(rows: Sequence[Row]) -> str:
    rmse = {
        row["estimator"]: row["ours"]
        for row in rows
        if row["metric"] == "mse" and row["alpha"] == 0.25
    }
    return (
        "At alpha = 0.25, which mimics MovieLens, the naive estimate of MSE is off by "
        f"{rmse['naive']:.2f}, IPS by {rmse['ips']:.3f} and SNIPS by {rmse['snips']:.3f}. "
        "At alpha = 1 nothing is selected and SNIPS is the naive average. "
        "The paper prints no numbers for this figure."
    )
