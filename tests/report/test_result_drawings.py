from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from unskew import (
    MatrixFactorization,
    cross_validate,
    diagnose,
    evaluate,
    evaluate_frame,
    sensitivity,
    simulate,
)
from unskew.diagnostics import Diagnosis
from unskew.errors import UnknownNameError, UsageError
from unskew.evaluation import Evaluation, Monitor, Sensitivity

pytestmark = pytest.mark.filterwarnings(
    "ignore::unskew.errors.PropensityWarning"
)  # made-up features balance nothing
WORLD = simulate(40, 50, density=0.2, alpha=0.6, random_state=1)
LOG, P = WORLD.log, WORLD.propensities
TRUE = WORLD.observation.propensities(slice(None))
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(50, 30))


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    models = {"a": WORLD.truth + 1.0, "b": WORLD.truth + RNG.normal(size=(40, 50))}
    return evaluate(LOG, models, propensities=P, metrics=["mse", "mae"])


@pytest.fixture(scope="module")
def moved(evaluation: Evaluation) -> Sensitivity:
    return sensitivity(evaluation)


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    return diagnose(LOG, {"true": TRUE, "values": P}, item_features=FEATURES[:, :5])


TITLES = [
    "Share of weight of the heaviest ratings",
    "Calibration of the propensities",
    "Balance of covariates before and after weighting",
]


def titles(figure: Figure) -> list[str]:
    return [axes.get_title().replace("\n", " ") for axes in figure.axes]


def rendered(figure: Figure) -> Figure:
    figure.savefig(io.BytesIO(), format="png")
    return figure


def test_a_diagnosis_has_a_panel_for_what_was_measured(found: Diagnosis) -> None:
    assert titles(rendered(found.plot())) == TITLES
    assert titles(rendered(diagnose(LOG, P).plot())) == TITLES[:1]
    assert (
        titles(found.plot(panels=["balance"])) == titles(found.plot(panels="balance")) == TITLES[2:]
    )


def test_legends_name_the_models(found: Diagnosis) -> None:
    weights, calibration, balance = found.plot().axes
    names = [
        [text.get_text() for text in axes.get_legend().get_texts()]
        for axes in (weights, calibration, balance)
    ]

    assert names[0] == [
        "equal weights",
        f"true (ESS {found['true'].weights.summary.sample_share:.0%})",
        names[0][2],
    ]
    assert names[1][0] == "as predicted"
    assert names[1][1].startswith("true (slope ")
    assert names[2] == ["in the log", "weighted by true", "weighted by values"]


def test_only_the_worst_covariates_are_drawn() -> None:
    found = diagnose(LOG, TRUE, item_features=FEATURES)
    (axes,) = rendered(found.plot(panels=["balance"])).axes
    before = np.abs(found["model"].balance.before)  # type: ignore[union-attr]

    assert axes.get_xlabel().endswith("The 20 largest differences of 30 covariates.")
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"item:{k}" for k in np.argsort(-before)[:20]
    ]


def test_a_sensitivity_has_a_curve_and_a_fan(moved: Sensitivity, evaluation: Evaluation) -> None:
    figure = rendered(moved.plot(metric="mae", estimator="snips"))

    assert titles(figure) == [
        "MAE by SNIPS under clipping",
        "MAE by SNIPS if the propensities are wrong",
    ]
    assert {axes.get_ylabel() for axes in figure.axes} == {"MAE by SNIPS"}
    assert titles(sensitivity(evaluation, max_weight=[]).plot()) == [
        "MSE by SNIPS if the propensities are wrong"
    ]
    drawn = [line.get_ydata() for line in figure.axes[1].get_lines()][:2]
    shifts = [
        s
        for s in moved.shifts
        if (s.model, s.metric, s.estimator, s.change) == ("a", "mae", "snips", "odds_error")
    ]
    np.testing.assert_allclose(drawn, [[s.low for s in shifts], [s.high for s in shifts]])


def test_an_evaluation_has_a_panel_a_metric(evaluation: Evaluation) -> None:
    figure = rendered(evaluation.plot())

    assert [axes.get_xlabel() for axes in figure.axes] == [
        f"{name} (lower is better), 95% intervals" for name in ("MSE", "MAE")
    ]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "Naive",
        "IPS",
        "SNIPS",
    ]


def test_panels_side_by_side_name_the_models_once(evaluation: Evaluation) -> None:
    own = Figure()
    side_by_side, one_below_other = own.subplots(1, 2), Figure().subplots(2, 1)
    evaluation.plot(side_by_side)
    evaluation.plot(one_below_other)

    for axes, shown in (
        (evaluation.plot().axes, [True, False]),
        (side_by_side, [True, False]),
        (one_below_other, [True, True]),
    ):
        assert [panel.yaxis.get_tick_params()["labelleft"] for panel in axes] == shown


def test_a_sensitivity_shows_snips_unless_another_estimator_is_named(moved: Sensitivity) -> None:
    assert {axes.get_ylabel() for axes in moved.plot().axes} == {"MSE by SNIPS"}
    assert {axes.get_ylabel() for axes in moved.plot(estimator="ips").axes} == {"MSE by IPS"}


@pytest.mark.parametrize("kind", ["evaluation", "moved", "found"])
def test_a_result_draws_into_the_callers_axes(kind: str, request: pytest.FixtureRequest) -> None:
    result: Any = request.getfixturevalue(kind)
    own = Figure()
    axes = own.subplots(1, 3 if kind == "found" else 2)

    assert result.plot(axes) is None
    assert all(panel.has_data() for panel in axes)
    with pytest.raises(
        UsageError,
        match=r"this figure has \d panels, but ax has 1 axes. Pass \d matplotlib axes as ax.",
    ):
        result.plot(axes[0])
    with pytest.raises(UsageError, match=r"ax must be matplotlib axes; got int\. Pass \d"):
        result.plot([3] * len(axes))


def test_what_was_not_measured_cannot_be_drawn(moved: Sensitivity) -> None:
    with pytest.raises(
        UnknownNameError,
        match="unknown panel 'weight'; valid names are: weights, calibration, balance",
    ):
        diagnose(LOG, P).plot(panels=["weight"])
    with pytest.raises(
        UsageError,
        match="the panel 'calibration' cannot be drawn: it was not measured for any model",
    ):
        diagnose(LOG, P).plot(panels=["calibration"])
    with pytest.raises(UnknownNameError, match="unknown estimator of this sensitivity 'naive'"):
        moved.plot(estimator="naive")


def test_a_comparison_is_drawn_with_its_sides(evaluation: Evaluation) -> None:
    compared = evaluation.compare("a", "b", metric="mae", estimator="snips")
    pairs = evaluation.compare_all(metric="mae", estimator="snips")

    assert rendered(compared.plot()).axes[0].get_xlabel() == (
        "← a better | b better →\ndifference of MAE"
    )
    assert titles(rendered(pairs.plot())) == ["Differences"]


def test_robustness_shows_the_difference_under_both_kinds_of_change(moved: Sensitivity) -> None:
    figure = moved.compare("a", "b", metric="mae", estimator="snips").plot()

    assert titles(rendered(figure)) == [
        "MAE by SNIPS under clipping",
        "MAE by SNIPS if the propensities are wrong",
    ]


def test_a_search_is_drawn_by_its_settings_and_its_page_alone_has_the_heat_map() -> None:
    grid = {"n_factors": [1, 2], "l2": [1.0, 5.0]}
    search = cross_validate(MatrixFactorization(), LOG, grid=grid, n_folds=2)

    assert titles(rendered(search.plot())) == ["MSE by n_factors", "MSE by l2"]


def test_a_growing_log_is_drawn() -> None:
    monitor = Monitor(["a"], planned_size=500, metrics=["mae"])
    predictions = WORLD.truth[LOG.user, LOG.item] + 1.0
    monitor.update(LOG.rating, {"a": predictions}, P.values)

    assert titles(rendered(monitor.watch().plot())) == ["MAE, SNIPS"]


def test_groups_are_drawn() -> None:
    frame = LOG.to_frame("pandas").assign(new=3.0, p=P.values, half=np.arange(len(LOG)) % 2)
    options = {"metrics": ["mae"], "estimators": ["snips"]}
    groups = evaluate_frame(frame, prediction="new", propensity="p", by="half", **options)

    assert len(rendered(groups.plot()).axes) == 1


def test_a_sensitivity_starts_with_the_odds_error_that_reverses_the_best_two(
    evaluation: Evaluation, moved: Sensitivity
) -> None:
    first = re.search(r"<strong>(.*?)</strong>", moved._repr_html_())[1]  # type: ignore[index]
    compared = moved.compare("b", "a", metric="mse", estimator="snips")
    better, worse = ("b", "a") if compared.better == "b" else ("a", "b")

    assert first.startswith(f"{better} stays ahead of {worse} unless the odds of being logged")
    assert f"by a factor of {compared.flips_at:.3g} or more" in first
    assert not sensitivity(evaluation, odds_error=[]).to_record()["leaders"]


def test_the_best_two_of_a_gain_are_those_with_the_highest_estimates() -> None:
    models = {
        name: WORLD.truth + RNG.normal(0, noise, WORLD.truth.shape)
        for name, noise in (("c", 0.9), ("d", 0.1), ("e", 0.5))
    }
    result = evaluate(LOG, models, propensities=P, metrics=["accuracy"], estimators=["snips"])
    risks = {
        name: result.risk(name, metric="accuracy", estimator="snips").estimate for name in models
    }
    ordered = sorted(models, key=risks.__getitem__, reverse=True)
    leaders = sensitivity(result, odds_error=[1.5]).to_record()["leaders"]

    assert [leaders["first"], leaders["second"]] == ordered[:2]
