"""Figure 2: the error of the estimators as selection grows stronger, with known propensities."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.datasets.location import PathLike
from unskew.paper import EXPERIMENTS
from unskew.paper.completion import ALPHAS, MOVIELENS_ALPHA
from unskew.paper.draws import (
    ESTIMATORS,
    RMSE_CAPTION,
    RMSE_METRICS,
    FivePredictions,
    make_rmse_table,
)
from unskew.paper.reproduction import Reproduction, Row
from unskew.progress import Track, no_progress


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
        rows += draws.rmse_rows({"alpha": alpha}, estimators)
    rows.sort(key=lambda row: RMSE_METRICS.index(row["metric"]))
    table, caption = make_rmse_table(rows, "alpha", "alpha", "g"), RMSE_CAPTION.format("")
    summary = f"{_summarize(rows)} {five.ground_truth.origin}"
    return Reproduction("figure2", trials, random_state, rows, table, summary, caption)


def _summarize(rows: Sequence[Row]) -> str:
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
