from __future__ import annotations

from typing import Any

import pytest

from unskew.experiments.reproduction import Reproduction
from unskew.experiments.toy import toy
from unskew.report.figures import draw

SPREAD = {"mean": 1.0, "std": 0.1}
ROWS: dict[str, list[dict[str, Any]]] = {
    "table1": [
        {"prediction": "ROTATE", "metric": metric, "true": 1.0, "naive": SPREAD, "ips": SPREAD, "snips": SPREAD}
        for metric in ("mae", "dcg@50")
    ],
    "figure2": [
        {"metric": metric, "alpha": alpha, "estimator": name, "ours": 1.0, "ci_low": 0.5, "ci_high": 2.0}
        for metric in ("mse", "dcg@50")
        for alpha in (1.0, 0.5)
        for name in ("naive", "ips", "snips")
    ],
    "figure3": [
        {"panel": "left", "alpha": alpha, "model": model, "ours": 1.0, "ci_low": 0.5, "ci_high": 2.0, **variant}
        for alpha in (1.0, 0.5)
        for model, variant in (("MF-IPS", {}), ("MF-Naive", {}), ("MF-IPS", {"variant": "cross-validated", "ours": 9.0}))
    ],
    "table2": [
        {"model": "MF-IPS", "metric": "mse", "ours": 1.1, "paper": 1.0},
        {"model": "MF-IPS", "metric": "mae", "ours": 0.9, "paper": 0.8},
        {"model": "constant", "metric": "mse", "variant": "train mean", "ours": 1.5, "paper": None},
    ],
}


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("table1", "True values and their estimates (mean and standard deviation over draws)"),
        ("figure2", "Error of the estimates as selection grows stronger (bands: 95 % over trials)"),
        ("figure3", "Error of factorisation as selection grows stronger (bands: 95 % over trials)"),
        ("table2", "Error on the uniformly random test of Coat, ours and the paper's"),
    ],
)
def test_a_figure_has_a_title_that_says_what_is_shown(name: str, title: str) -> None:
    assert draw(Reproduction(name, 2, 0, ROWS[name], {}, "")).get_suptitle() == title


def test_figure3_draws_the_two_curves_of_the_paper_and_no_more() -> None:
    (axes,) = draw(Reproduction("figure3", 2, 0, ROWS["figure3"], {}, "")).axes
    curves = [line for line in axes.get_lines() if len(line.get_xdata()) == 2]

    assert [line.get_label() for line in curves] == ["MF-Naive", "MF-IPS"]
    assert all(list(line.get_ydata()) == [1.0, 1.0] for line in curves)
    assert axes.get_xticks().tolist() == [0.5, 1.0]


def test_colour_bars_of_ratings_show_the_whole_scale() -> None:
    figure = draw(toy(trials=2))
    panels, bars = figure.axes[:6], figure.axes[6:]
    ticks = {panel.get_title().split(":")[0]: bar.get_yticks().tolist() for panel, bar in zip(panels, bars, strict=True)}

    assert ticks["Y"] == ticks["Y1"] == ticks["Y2"] == [1, 2, 3, 4, 5]
    assert ticks["P"] == pytest.approx([0.05, 0.25, 0.5])
    assert ticks["O"] == ticks["Y3"] == [0, 1]
