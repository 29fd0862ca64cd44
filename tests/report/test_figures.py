from __future__ import annotations

import json
from typing import Any

import pytest

from unskew.paper.reproduction import Reproduction
from unskew.paper.toy import reproduce_toy
from unskew.report import build_page, draw


def draw_figure(result: Reproduction) -> Any:
    return draw("reproduction", result, None)


def curves(axes: Any) -> dict[str, list[float]]:
    """The values of each curve, by the label of the legend that has its color and marker."""

    def look(line: Any) -> tuple[str, str]:
        return line.get_color(), line.get_marker()

    values = {
        look(line): list(line.get_ydata()) for line in axes.get_lines() if line.get_xdata().size
    }
    handles, labels = axes.get_legend_handles_labels()
    return {label: values[look(handle)] for handle, label in zip(handles, labels, strict=True)}


SPREAD = {"mean": 1.0, "std": 0.1}
ROWS: dict[str, list[dict[str, Any]]] = {
    "table1": [
        {
            "prediction": "ROTATE",
            "metric": metric,
            "true": 1.0,
            "naive": SPREAD,
            "ips": SPREAD,
            "snips": SPREAD,
        }
        for metric in ("mae", "dcg@50")
    ],
    "figure2": [
        {
            "metric": metric,
            "alpha": alpha,
            "estimator": name,
            "ours": 1.0,
            "ci_low": 0.5,
            "ci_high": 2.0,
        }
        for metric in ("mse", "dcg@50")
        for alpha in (1.0, 0.5)
        for name in ("naive", "ips", "snips")
    ],
    "figure3": [
        {
            "panel": "left",
            "alpha": alpha,
            "model": model,
            "ours": 1.0,
            "ci_low": 0.5,
            "ci_high": 2.0,
            **variant,
        }
        for alpha in (1.0, 0.5)
        for model, variant in (
            ("MF-IPS", {}),
            ("MF-Naive", {}),
            ("MF-IPS", {"variant": "cross-validated", "ours": 9.0}),
        )
    ],
    "figure4": [
        {
            "metric": metric,
            "sample_size": size,
            "estimator": name,
            "ours": value,
            "ci_low": value / 2,
            "ci_high": value * 2,
        }
        for metric in ("mse", "dcg@50")
        for size in (100, 30_000)
        for value, name in enumerate(
            ("naive", "ips-nb", "snips-nb", "ips-known", "snips-known"), start=1
        )
    ],
    "table2": [
        {"data": "coat", "model": "MF-IPS", "metric": "mse", "ours": 1.1, "paper": 1.0},
        {"data": "coat", "model": "MF-IPS", "metric": "mae", "ours": 0.9, "paper": 0.8},
        {"model": "constant", "metric": "mse", "variant": "train mean", "ours": 1.5, "paper": None},
    ],
}


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (
            "table1",
            "The true value of each prediction and its estimates: mean and standard deviation "
            "over draws.",
        ),
        (
            "figure2",
            "Error of the estimates as selection grows stronger. Shaded: 95% bands over trials.",
        ),
        ("figure3", "Error of matrix factorization over all cells. Shaded: 95% bands over trials."),
        (
            "figure4",
            "Error of the estimates as the random sample grows. Shaded: 95% bands over trials.",
        ),
        (
            "table2",
            "Error on the uniformly random test: ours with its 95% interval, and the paper's.",
        ),
    ],
)
def test_a_figure_has_a_title_that_says_what_is_shown(name: str, title: str) -> None:
    figure = draw_figure(Reproduction(name, 2, 0, ROWS[name], {}, ""))

    assert figure.get_suptitle().replace("\n", " ") == title


@pytest.mark.parametrize(
    ("name", "n_charts"),
    [("table1", 2), ("figure2", 2), ("figure3", 1), ("figure4", 2), ("table2", 2)],
)
def test_a_page_has_the_charts_of_its_experiment(name: str, n_charts: int) -> None:
    summary = "What is seen at alpha = 0.25. The rest."
    page = build_page(
        json.loads(Reproduction(name, 2, 0, ROWS[name], {"n": ["1"]}, summary).to_json())
    )

    assert page.title == "What is seen at alpha = 0.25."
    assert page.lead == "The rest."
    assert [len(section.charts) for section in page.sections] == [n_charts, 0]


def test_figure3_draws_the_two_curves_of_the_paper_and_no_more() -> None:
    (axes,) = draw_figure(Reproduction("figure3", 2, 0, ROWS["figure3"], {}, "")).axes

    assert curves(axes) == {"MF-IPS": [1.0, 1.0], "MF-Naive": [1.0, 1.0]}
    assert axes.get_xticks().tolist() == [0.5, 1.0]


RIGHT = [
    {
        "panel": "right",
        "alpha": 0.25,
        "sample_size": size,
        "model": model,
        "ours": 1.0,
        "ci_low": 0.5,
        "ci_high": 2.0,
    }
    for size in (100, 1000)
    for model in ("MF-IPS-NB", "MF-IPS", "MF-Naive")
]


def test_the_right_panel_of_figure3_is_over_the_sample() -> None:
    figure = draw_figure(Reproduction("figure3", 2, 0, RIGHT, {}, ""))
    (axes,) = figure.axes

    assert list(curves(axes)) == ["MF-IPS-NB", "MF-IPS", "MF-Naive"]
    assert all(list(line.get_xdata()) in ([100, 1000], []) for line in axes.get_lines())
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_both_panels_of_figure3_stand_side_by_side() -> None:
    figure = draw_figure(Reproduction("figure3", 2, 0, [*ROWS["figure3"], *RIGHT], {}, ""))

    assert [axes.get_xlabel() for axes in figure.axes] == [
        "alpha (1: missing at random)",
        "random ratings for naive Bayes",
    ]
    assert [list(curves(axes)) for axes in figure.axes] == [
        ["MF-IPS", "MF-Naive"],
        ["MF-IPS-NB", "MF-IPS", "MF-Naive"],
    ]


def test_figure4_draws_every_estimator_over_the_sample_in_both_metrics() -> None:
    figure = draw_figure(Reproduction("figure4", 2, 0, ROWS["figure4"], {}, ""))

    assert [axes.get_ylabel() for axes in figure.axes] == [
        "RMSE of the MSE estimate",
        "RMSE of the DCG@50 estimate",
    ]
    for axes in figure.axes:
        assert curves(axes) == {
            name: [value, value]
            for value, name in enumerate(
                ("Naive", "IPS-NB", "SNIPS-NB", "IPS-KNOWN", "SNIPS-KNOWN"), start=1
            )
        }
        assert [label.get_text() for label in axes.get_xticklabels()] == ["100", "30k"]
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_colour_bars_of_ratings_show_the_whole_scale() -> None:
    figure = draw_figure(reproduce_toy(trials=2))
    panels, bars = figure.axes[:6], figure.axes[6:]
    ticks = {
        panel.get_title().split(":")[0]: bar.get_yticks().tolist()
        for panel, bar in zip(panels, bars, strict=True)
    }

    assert ticks["Y"] == ticks["Y1"] == ticks["Y2"] == [1, 2, 3, 4, 5]
    assert ticks["P"] == pytest.approx([0.05, 0.25, 0.5])
    assert ticks["O"] == ticks["Y3"] == [0, 1]
