from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from unskew import MatrixFactorization, NaiveBayesPropensity, cross_validate, simulate
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.paper import figure3 as module
from unskew.paper.completion import ALPHAS, GroundTruth, find_ground_truth
from unskew.paper.draws import sample_ratings
from unskew.paper.figure3 import (
    SAMPLE_SIZES,
    FactorizationScore,
    TrialFits,
    mse_of_all_cells,
    reproduce_figure3,
    t_interval,
)
from unskew.paper.reproduction import Reproduction

L2 = (0.5, 5)
SIZES = (20, 2000)
Rows = Mapping[tuple[float, str, str | None], Mapping[str, Any]]


def model_of_the_figure(seed: int) -> MatrixFactorization:
    return MatrixFactorization(
        3,
        offsets="free",
        clip_predictions=False,
        tol=3e-5,
        max_iter=100,
        dtype="float32",
        random_state=seed,
    )


@pytest.fixture(scope="module")
def ground_truth() -> GroundTruth:
    return GroundTruth(
        simulate(60, 100, density=0.05, noise=0.1, n_factors=2, random_state=0).truth,
        "Truth: small.",
    )


@pytest.fixture(scope="module", autouse=True)
def use_the_small_world(ground_truth: GroundTruth) -> Iterator[None]:
    """Fewer factors and cells, for speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "find_ground_truth", lambda data, *, random_state: ground_truth)
        patch.setattr(module, "N_FACTORS", 3)
        yield


@pytest.fixture(scope="module")
def result() -> Reproduction:
    return reproduce_figure3(trials=3, random_state=1, l2=L2)


@pytest.fixture(scope="module")
def rows(result: Reproduction) -> Rows:
    return by_key(result)


@pytest.fixture(scope="module")
def right() -> Reproduction:
    return reproduce_figure3(panel="right", trials=3, random_state=1, l2=L2, sample_sizes=SIZES)


def by_key(result: Reproduction, axis: str = "alpha") -> Rows:
    return {(row[axis], row["model"], row.get("variant")): row for row in result.rows}


# Its shape


def test_curves_have_these_keys_and_no_others(result: Reproduction) -> None:
    curves = [row for row in json.loads(result.to_json())["rows"] if "variant" not in row]

    assert [(row["alpha"], row["model"]) for row in curves] == [
        (a, m) for a in ALPHAS for m in ("MF-IPS", "MF-Naive")
    ]
    for row in curves:
        assert list(row) == [
            "panel",
            "alpha",
            "model",
            "metric",
            "ours",
            "ci_low",
            "ci_high",
            "paper",
        ]
        assert (row["panel"], row["metric"], row["paper"]) == ("left", "mse", None)
        assert row["ci_low"] < row["ours"] < row["ci_high"]


def test_further_rows_are_the_paired_difference_and_the_choices(
    result: Reproduction, rows: Rows
) -> None:
    assert len(rows) == len(result.rows) == len(ALPHAS) * 5
    for alpha in ALPHAS:
        paired = rows[alpha, "MF-IPS minus MF-Naive", "paired by trial"]
        difference = rows[alpha, "MF-IPS", None]["ours"] - rows[alpha, "MF-Naive", None]["ours"]
        assert paired["ours"] == pytest.approx(difference)
        for model in ("MF-IPS", "MF-Naive"):
            chosen = rows[alpha, model, "cross-validated"]["l2"]
            assert len(chosen) == 3
            assert set(chosen) <= set(L2)


def test_the_table_and_the_words(result: Reproduction, rows: Rows) -> None:
    assert list(result.table) == ["alpha", "MF-Naive", "MF-IPS", "difference", "l2"]
    assert result.table["alpha"] == ["1", "0.5", "0.25", "0.125", "0.0625", "0.03125"]
    assert str(result.table["MF-IPS"][2]).startswith(f"{rows[0.25, 'MF-IPS', None]['ours']:.3f} ± ")
    assert result.caption.startswith("Mean squared error over all 6,000 cells")
    assert result.summary.endswith("Truth: small.")
    assert f"MF-IPS has {rows[0.25, 'MF-IPS', None]['ours']:.3f}" in result.summary
    assert "36 of 36 searches chose an end of the grid" in result.summary
    assert (result.trials, result.random_state, result.unit) == (3, 1, "trial")


# Its numbers


def test_a_trial_is_a_search_and_a_fit_to_all_of_its_log(
    ground_truth: GroundTruth, rows: Rows
) -> None:
    """All trials at alpha = 0.25, done by hand."""
    mse = {"MF-IPS": [], "MF-Naive": []}
    for trial in range(3):
        rng = np.random.default_rng((1, 3, 2, trial))
        log, propensities = ground_truth.observation(0.25).draw(rng)
        seed = int(rng.integers(2**31))
        model = model_of_the_figure(seed)
        for name, propensity_model in (("MF-IPS", propensities), ("MF-Naive", None)):
            fitted = cross_validate(
                model,
                log,
                propensities=propensity_model,
                grid={"l2": L2},
                n_folds=4,
                random_state=seed,
            ).best_model
            all_users, all_items = (
                np.repeat(log.users, log.n_items),
                np.tile(log.items, log.n_users),
            )
            mse[name].append(
                np.mean((fitted.predict(all_users, all_items) - ground_truth.ratings.ravel()) ** 2)
            )

    for name, values in mse.items():
        assert rows[0.25, name, None]["ours"] == pytest.approx(np.mean(values), rel=1e-5)


def test_trials_are_seeded_and_more_of_them_keep_the_first(rows: Rows) -> None:
    two, again = (reproduce_figure3(trials=2, random_state=1, l2=L2) for _ in range(2))

    assert two.rows == again.rows
    for alpha in ALPHAS:
        assert (
            by_key(two)[alpha, "MF-IPS", "cross-validated"]["l2"]
            == rows[alpha, "MF-IPS", "cross-validated"]["l2"][:2]
        )


def test_without_selection_both_models_are_alike(rows: Rows) -> None:
    """Weights are 1 / 0.05 in one and U I / n in the other, and n, the number of cells, varies."""
    assert rows[1.0, "MF-IPS", None]["ours"] == pytest.approx(
        rows[1.0, "MF-Naive", None]["ours"], rel=0.05
    )


def test_selection_hurts_the_naive_model_more(rows: Rows) -> None:
    naive = [rows[alpha, "MF-Naive", None]["ours"] for alpha in ALPHAS]

    assert naive[-1] > naive[0]
    assert rows[0.125, "MF-IPS", None]["ours"] < rows[0.125, "MF-Naive", None]["ours"]


def test_heavy_weights_make_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are ignored outside of the threads: filters within threads would race."""

    def noisy(*_: object) -> TrialFits:
        warnings.warn("a few large weights decide", PropensityWarning, stacklevel=1)
        return TrialFits(
            dict.fromkeys(("MF-IPS", "MF-Naive"), FactorizationScore(1, 0.5, 0.5)),
            dict.fromkeys(SAMPLE_SIZES, FactorizationScore(1, 0.5, 0.5)),
        )

    monkeypatch.setattr(module, "_run_trial", noisy)

    assert reproduce_figure3(trials=2).table["MF-IPS"] == ["0.500 ± 0.000"] * 6
    assert reproduce_figure3(trials=2, panel="both").table["MF-IPS-NB"] == [""] * 6 + ["0.500"] * 4


# The right panel


def test_curves_on_the_right_name_their_sample(right: Reproduction) -> None:
    curves = [row for row in json.loads(right.to_json())["rows"] if "variant" not in row]

    assert [(row["sample_size"], row["model"]) for row in curves] == [
        (size, model) for size in SIZES for model in ("MF-IPS-NB", "MF-IPS", "MF-Naive")
    ]
    for row in curves:
        assert list(row) == [
            "panel",
            "alpha",
            "sample_size",
            "model",
            "metric",
            "ours",
            "ci_low",
            "ci_high",
            "paper",
        ]
        assert (row["panel"], row["alpha"], row["paper"]) == ("right", 0.25, None)


def test_on_the_right_the_estimated_propensities_are_compared_with_none(
    right: Reproduction,
) -> None:
    rows = by_key(right, "sample_size")

    assert len(rows) == len(right.rows) == len(SIZES) * 7
    for size in SIZES:
        paired = rows[size, "MF-IPS-NB minus MF-Naive", "paired by trial"]["ours"]
        assert paired == pytest.approx(
            rows[size, "MF-IPS-NB", None]["ours"] - rows[size, "MF-Naive", None]["ours"]
        )
        assert len(rows[size, "MF-IPS-NB", "cross-validated"]["l2"]) == 3
    assert list(right.table) == [
        "alpha",
        "sample",
        "MF-Naive",
        "MF-IPS",
        "MF-IPS-NB",
        "difference",
        "l2",
    ]
    assert right.table["sample"] == ["20", "2,000"]
    assert right.table["MF-IPS-NB"] == [
        f"{rows[size, 'MF-IPS-NB', None]['ours']:.3f}" for size in SIZES
    ]
    assert "with propensities from 20 random ratings" in right.summary
    assert "At alpha = 1" not in right.summary
    assert (
        "12 of 12 searches chose an end of the grid" in right.summary
    )  # three trials of four models


def test_what_does_not_depend_on_the_sample_is_that_of_the_left_panel(
    right: Reproduction, rows: Rows
) -> None:
    for model in ("MF-IPS", "MF-Naive"):
        values = {by_key(right, "sample_size")[size, model, None]["ours"] for size in SIZES}
        assert values == {rows[0.25, model, None]["ours"]}


def test_a_trial_on_the_right_by_hand(ground_truth: GroundTruth, right: Reproduction) -> None:
    mse: dict[int, list[float]] = {size: [] for size in SIZES}
    for trial in range(3):
        rng = np.random.default_rng((1, 3, 2, trial))
        log, _ = ground_truth.observation(0.25).draw(rng)
        seed = int(rng.integers(2**31))
        sample = sample_ratings(ground_truth.ratings, max(SIZES), rng)
        for size in SIZES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PropensityWarning)
                propensity_model = NaiveBayesPropensity(smoothing=1.0).fit(log, mcar=sample[:size])
                model = model_of_the_figure(seed)
                fitted = cross_validate(
                    model,
                    log,
                    propensities=propensity_model,
                    grid={"l2": L2},
                    n_folds=4,
                    random_state=seed,
                ).best_model
            mse[size].append(mse_of_all_cells(fitted, ground_truth.ratings))

    for size in SIZES:
        assert by_key(right, "sample_size")[size, "MF-IPS-NB", None]["ours"] == pytest.approx(
            np.mean(mse[size]), rel=1e-5
        )


def test_both_panels_are_the_two_of_them(
    monkeypatch: pytest.MonkeyPatch, result: Reproduction, right: Reproduction
) -> None:
    fitted = []
    fit = module._fit
    monkeypatch.setattr(module, "_fit", lambda *args: fitted.append(1) or fit(*args))
    both = reproduce_figure3(panel="both", trials=3, random_state=1, l2=L2, sample_sizes=SIZES)

    assert both.rows == [*result.rows, *right.rows]
    assert len(fitted) == 3 * (6 * 2 + len(SIZES))  # what both panels show is fitted once
    assert both.table["alpha"] == [*result.table["alpha"], "0.25", "0.25"]
    assert both.table["sample"] == [""] * 6 + ["20", "2,000"]
    assert both.table["difference"] == [*result.table["difference"], *right.table["difference"]]
    assert "At alpha = 1 all weights are equal" in both.summary
    assert "(MF-IPS minus MF-Naive; MF-IPS-NB minus MF-Naive)" in both.caption


# Its parts


def test_the_error_of_all_cells_by_hand(ground_truth: GroundTruth) -> None:
    log, _ = ground_truth.observation(1.0).draw(np.random.default_rng(0))
    model = MatrixFactorization(0, 1.0).fit(log)
    fitted = model.factors_
    expected = np.mean(
        (
            fitted.user_offset[:, None]
            + fitted.item_offset
            + fitted.global_offset
            - ground_truth.ratings
        )
        ** 2
    )

    assert mse_of_all_cells(model, ground_truth.ratings) == pytest.approx(expected)


def test_the_interval_is_that_of_scipy() -> None:
    values = np.array([1.0, 2.0, 4.0, 4.5])
    interval = t_interval(values)

    assert interval["ours"] == values.mean()
    assert (interval["ci_low"], interval["ci_high"]) == pytest.approx(
        stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    )


# What it refuses


def test_one_trial_has_no_interval() -> None:
    with pytest.raises(
        UsageError, match=r"intervals over trials, which need at least 2 trials; got 1\."
    ):
        reproduce_figure3(trials=1)


def test_an_unknown_panel_is_named() -> None:
    with pytest.raises(
        UnknownNameError,
        match=r"unknown value 'middle' of panel; valid values are: left, right, both",
    ):
        reproduce_figure3(panel="middle")


def test_a_sample_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"sample_sizes must be a whole number, at least 1; got 0"):
        reproduce_figure3(panel="right", sample_sizes=(0, 100))


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
def test_on_movielens_weights_help_wherever_there_is_selection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "find_ground_truth", find_ground_truth)
    monkeypatch.setattr(module, "N_FACTORS", 20)
    rows = by_key(reproduce_figure3(data=os.environ["UNSKEW_DATA"], trials=2))

    for alpha in ALPHAS[1:]:
        assert rows[alpha, "MF-IPS", None]["ours"] < rows[alpha, "MF-Naive", None]["ours"]


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
def test_on_movielens_few_random_ratings_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_ground_truth", find_ground_truth)
    monkeypatch.setattr(module, "N_FACTORS", 20)
    rows = by_key(
        reproduce_figure3(data=os.environ["UNSKEW_DATA"], panel="right", trials=2), "sample_size"
    )

    for size in SAMPLE_SIZES:
        assert rows[size, "MF-IPS-NB", None]["ours"] < rows[size, "MF-Naive", None]["ours"]
    assert rows[100_000, "MF-IPS-NB", None]["ours"] == pytest.approx(
        rows[100_000, "MF-IPS", None]["ours"], rel=0.02
    )
