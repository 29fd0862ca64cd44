"""Table 1: naive, IPS and SNIPS estimates of five predictions' MAE and DCG@50 next to the truth."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.datasets.location import PathLike
from unskew.paper import EXPERIMENTS
from unskew.paper.completion import MOVIELENS_ALPHA
from unskew.paper.draws import ESTIMATORS, FivePredictions, format_mean_and_std
from unskew.paper.reproduction import Reproduction, Row
from unskew.progress import Track, no_progress

METRICS = ("mae", "dcg@50")
PAPER: dict[tuple[str, str], Row] = {
    (prediction, metric): {"true": true}
    | {
        name: {"mean": mean, "std": std}
        for name, (mean, std) in zip(("ips", "snips", "naive"), estimates, strict=True)
    }
    for prediction, metric, true, *estimates in (
        ("REC_ONES", "mae", 0.102, (0.102, 0.007), (0.102, 0.007), (0.011, 0.001)),
        ("REC_FOURS", "mae", 0.026, (0.026, 0.000), (0.026, 0.000), (0.173, 0.001)),
        ("ROTATE", "mae", 2.579, (2.581, 0.031), (2.579, 0.012), (1.168, 0.003)),
        ("SKEWED", "mae", 1.306, (1.304, 0.012), (1.304, 0.009), (0.912, 0.002)),
        ("COARSENED", "mae", 1.320, (1.314, 0.015), (1.318, 0.005), (0.387, 0.002)),
        ("REC_ONES", "dcg@50", 30.76, (30.64, 0.75), (30.66, 0.74), (153.07, 2.13)),
        ("REC_FOURS", "dcg@50", 52.00, (51.98, 0.41), (52.08, 0.58), (313.48, 2.36)),
        ("ROTATE", "dcg@50", 12.90, (13.00, 0.85), (12.99, 0.83), (1.38, 0.09)),
        ("SKEWED", "dcg@50", 24.59, (24.55, 0.92), (24.58, 0.93), (54.87, 1.03)),
        ("COARSENED", "dcg@50", 46.45, (46.45, 0.53), (46.44, 0.70), (293.27, 1.99)),
    )
}
"""Table 1 as the paper prints it."""


@EXPERIMENTS.declare(
    "table1",
    label="Table 1",
    summary="Naive, IPS and SNIPS estimates for five predictions, next to the truth.",
    traits={"order": 2, "trials": 50, "data": "movielens-100k", "needs_data": False},
)
def reproduce_table1(
    *, data: PathLike = None, trials: int = 50, random_state: int = 0, track: Track = no_progress
) -> Reproduction:
    """Draw 5 % of all ratings ``trials`` times at alpha = 0.25 and estimate from each draw.

    ``data`` is the folder of MovieLens 100K; see
    :func:`unskew.paper.completion.find_ground_truth`.
    """
    five = FivePredictions.prepare(data, METRICS, random_state)
    draws = five.draw(MOVIELENS_ALPHA, trials=trials, track=track, label="Table 1")
    risks = [(prediction, metric) for prediction in five.names for metric in METRICS]
    unordered = [
        {
            "prediction": prediction,
            "metric": metric,
            **draws.summarize(risk),
            "paper": PAPER[prediction, metric],
        }
        for risk, (prediction, metric) in enumerate(risks)
    ]
    rows = sorted(unordered, key=lambda row: METRICS.index(row["metric"]))
    caption = "Mean ± standard deviation over draws, ours and as the paper prints it."
    summary = f"{_summarize(rows)} {five.ground_truth.origin}"
    return Reproduction("table1", trials, random_state, rows, _make_table(rows), summary, caption)


def _make_table(rows: Sequence[Row]) -> dict[str, list[object]]:
    """Two table rows for each risk: ours, and below it the paper's."""
    columns: dict[str, list[object]] = {
        name: [] for name in ("prediction", "metric", "", "true", *ESTIMATORS)
    }
    for row in rows:
        digits = 3 if row["metric"] == "mae" else 2
        columns["prediction"] += [row["prediction"], ""]
        columns["metric"] += [row["metric"], ""]
        columns[""] += ["ours", "paper"]
        for values in (row, row["paper"]):
            columns["true"].append(f"{values['true']:.{digits}f}")
            for name in ESTIMATORS:
                columns[name].append(format_mean_and_std(values[name], digits))
    return columns


def _summarize(rows: Sequence[Row]) -> str:
    by_risk = {(row["prediction"], row["metric"]): row for row in rows}
    ones, fours = by_risk["REC_ONES", "mae"], by_risk["REC_FOURS", "mae"]
    return (
        f"REC_FOURS is truly the better one (MAE {fours['true']:.3f} against {ones['true']:.3f}), "
        f"yet the naive average prefers REC_ONES ({ones['naive']['mean']:.3f} against "
        f"{fours['naive']['mean']:.3f}). IPS and SNIPS agree with the truth. The DCG half depends "
        "on how fives spread over users, so it need not equal the paper's."
    )
