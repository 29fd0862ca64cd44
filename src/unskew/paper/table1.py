"""Table 1: naive, IPS and SNIPS estimates of five predictions' MAE and DCG@50 beside the truth."""

from __future__ import annotations

from typing import Any

from unskew.datasets.location import PathLike
from unskew.metrics.names import find_metric
from unskew.paper.draws import ESTIMATORS, all_deltas, draw_estimates, plus_minus, two_streams
from unskew.paper.matrices import prediction_matrices
from unskew.paper.reproduction import Reproduction
from unskew.paper.world import find_world
from unskew.progress import Track, no_progress

METRICS = ("mae", "dcg@50")
ALPHA = 0.25
PAPER: dict[tuple[str, str], dict[str, Any]] = {
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
"""Table 1 as printed."""


def table1(
    *, data: PathLike = None, trials: int = 50, seed: int = 0, track: Track = no_progress
) -> Reproduction:
    """Draw 5 % of a truth ``trials`` times at alpha = 0.25 and estimate all ten cells from each draw.

    ``data`` is the folder of MovieLens 100K; see :func:`unskew.paper.world.find_world`.
    """
    world = find_world(data, seed=seed)
    matrix_rng, draw_rng = two_streams(seed)
    predictions = prediction_matrices(world.truth, matrix_rng)
    deltas = all_deltas(world.truth, predictions, [find_metric(name) for name in METRICS])
    draws = draw_estimates(
        deltas,
        world.observation(ALPHA),
        trials=trials,
        seed=int(draw_rng.integers(2**31)),
        track=track,
        label="Table 1",
    )
    cells = [(prediction, metric) for prediction in predictions for metric in METRICS]
    rows = [
        {
            "prediction": prediction,
            "metric": metric,
            **draws.row(place),
            "paper": PAPER[prediction, metric],
        }
        for place, (prediction, metric) in enumerate(cells)
    ]
    ordered = [row for metric in METRICS for row in rows if row["metric"] == metric]
    caption = "Mean ± standard deviation over draws, ours and as the paper prints it."
    summary = f"{_summary(ordered)} {world.origin}"
    return Reproduction("table1", trials, seed, ordered, _table(ordered), summary, caption)


def _table(rows: list[dict[str, Any]]) -> dict[str, list[object]]:
    """Two lines a row: ours, and the paper's under it."""
    lines = [
        (row, who, row if who == "ours" else row["paper"])
        for row in rows
        for who in ("ours", "paper")
    ]
    columns: dict[str, list[object]] = {
        "prediction": [row["prediction"] if who == "ours" else "" for row, who, _ in lines],
        "metric": [row["metric"] if who == "ours" else "" for row, who, _ in lines],
        "": [who for _, who, _ in lines],
        "true": [f"{values['true']:.{_digits(row)}f}" for row, _, values in lines],
    }
    for name in ESTIMATORS:
        columns[name] = [plus_minus(values[name], _digits(row)) for row, _, values in lines]
    return columns


def _digits(row: dict[str, Any]) -> int:
    return 3 if row["metric"] == "mae" else 2


def _summary(rows: list[dict[str, Any]]) -> str:
    by_cell = {(row["prediction"], row["metric"]): row for row in rows}
    ones, fours = by_cell["REC_ONES", "mae"], by_cell["REC_FOURS", "mae"]
    return (
        f"REC_FOURS is truly the better one (MAE {fours['true']:.3f} against {ones['true']:.3f}), yet the naive average "
        f"prefers REC_ONES ({ones['naive']['mean']:.3f} against {fours['naive']['mean']:.3f}). "
        "IPS and SNIPS agree with the truth. The DCG half depends on how fives spread over users, "
        "so that it need not equal the paper's."
    )
