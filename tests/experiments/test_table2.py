from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew.data.datasets.coat import load_coat
from unskew.errors import DatasetNotFoundError
from unskew.experiments.reproduction import Reproduction
from unskew.experiments.table2 import METRICS, PAPER, PAPER_GRID, table2
from unskew.models.factorization import MatrixFactorization
from unskew.selection.search import cross_validate

GRID: Mapping[str, tuple[Any, ...]] = {"l2": (1, 25), "n_factors": (2,), "offsets": ("free", "regularized")}
Rows = Mapping[tuple[str, str, str | None], Mapping[str, Any]]
each_metric = pytest.mark.parametrize("metric", METRICS)


def by_key(result: Reproduction) -> Rows:
    return {(row["model"], row["metric"], row.get("variant")): row for row in result.rows}


@pytest.fixture(scope="module")
def result(coat_folder: Path) -> Reproduction:
    return table2(data=coat_folder, grid=GRID, seed=3)


@pytest.fixture(scope="module")
def rows(result: Reproduction) -> Rows:
    return by_key(result)


@pytest.fixture(scope="module")
def repeated(coat_folder: Path) -> Reproduction:
    return table2(data=coat_folder, grid=GRID, seed=3, trials=2)


# What the rows are


def test_printed_cells_come_first_and_hold_nothing_else(result: Reproduction) -> None:
    for row, ((model, metric), paper) in zip(result.rows, PAPER.items(), strict=False):
        assert list(row) == ["data", "model", "metric", "ours", "paper"]
        assert (row["data"], row["model"], row["metric"], row["paper"]) == ("coat", model, metric, paper)
    assert len(PAPER) == 4


def test_every_further_row_names_its_variant_and_has_no_value_of_the_paper(result: Reproduction, rows: Rows) -> None:
    further = result.rows[4:]

    assert all(row["variant"] and row["paper"] is None and isinstance(row["ours"], float) for row in further)
    assert len(rows) == len(result.rows)
    assert len(further) == 2 * 3 * 2 * 2 + 3 * 2 * 2 + 2 * 3 + 2 * 2


@each_metric
@pytest.mark.parametrize("model", ["MF-IPS", "MF-Naive"])
def test_a_printed_cell_is_that_of_the_model_trained_for_its_metric(rows: Rows, model: str, metric: str) -> None:
    assert rows[model, metric, None]["ours"] == rows[model, metric, f"trained for {metric}, full test"]["ours"]


@pytest.mark.parametrize(("metric", "loss", "power"), [("mse", "squared", 2), ("mae", "absolute", 1)])
def test_scores_are_those_of_the_chosen_model_on_either_test(
    rows: Rows, coat_folder: Path, metric: str, loss: Any, power: int
) -> None:
    coat = load_coat(coat_folder)
    model = MatrixFactorization(loss=loss, tol=1e-5, random_state=3)
    found = cross_validate(model, coat.train, coat.propensities, grid=GRID, metric=metric, random_state=3)
    test = coat.test
    error = np.abs(found.best_model.predict(test.user, test.item) - test.rating) ** power

    assert rows["MF-IPS", metric, f"trained for {metric}, full test"]["ours"] == pytest.approx(error.mean())
    assert rows["MF-IPS", metric, f"trained for {metric}, clean test"]["ours"] == pytest.approx(error[~coat.overlap].mean())
    choice = rows["MF-IPS", metric, f"trained for {metric}, cross-validated"]
    assert (choice["ours"], choice["chosen"]) == (pytest.approx(found.best_score), [found.best_params])
    assert choice["n_fits"] == 4 * 4 + 1
    assert choice["seconds"] > 0


def test_the_model_without_offsets_searches_the_rest_of_the_grid(rows: Rows) -> None:
    choice = rows["MF-Naive", "mse", "no offsets, trained for mse, cross-validated"]

    assert choice["chosen"][0]["offsets"] == "none"
    assert choice["n_fits"] == 4 * 2 + 1


def test_no_constant_is_better_than_the_best(rows: Rows, coat_folder: Path) -> None:
    rating = load_coat(coat_folder).test.rating

    assert rows["constant", "mse", "best constant for mse, full test"]["ours"] == pytest.approx(rating.var())
    for metric in METRICS:
        for cells in ("full test", "clean test"):
            best = rows["constant", metric, f"best constant for {metric}, {cells}"]["ours"]
            others = ("train mean", "best constant for mse", "best constant for mae")
            assert all(best <= rows["constant", metric, f"{other}, {cells}"]["ours"] for other in others)


@each_metric
def test_the_paired_difference_is_that_of_the_scores(rows: Rows, metric: str) -> None:
    found = rows["MF-IPS minus MF-Naive", metric, f"trained for {metric}, full test, paired by user"]

    assert found["ours"] == pytest.approx(rows["MF-IPS", metric, None]["ours"] - rows["MF-Naive", metric, None]["ours"])
    assert found["ci_low"] < found["ours"] < found["ci_high"]
    assert 0 <= found["p_value"] <= 1


# Several seeds


def test_several_trials_are_averaged_over_their_seeds(rows: Rows, repeated: Reproduction, coat_folder: Path) -> None:
    trials = [rows, by_key(table2(data=coat_folder, grid=GRID, seed=4))]
    found = by_key(repeated)

    for metric in METRICS:
        alone = [trial["MF-IPS", metric, None]["ours"] for trial in trials]
        assert found["MF-IPS", metric, None]["ours"] == pytest.approx(np.mean(alone))
        assert found["MF-IPS", metric, f"trained for {metric}, full test"]["std"] == pytest.approx(np.std(alone, ddof=1))
        assert len(found["MF-IPS", metric, f"trained for {metric}, cross-validated"]["chosen"]) == 2


def test_seeds_are_compared_by_a_paired_t_test(repeated: Reproduction) -> None:
    found = by_key(repeated)["MF-IPS minus MF-Naive", "mse", "trained for mse, full test, paired by seed"]

    assert found["t"] == pytest.approx(found["ours"] / (found["std"] / 2**0.5))
    assert found["p_value"] == pytest.approx(1 - 2 / np.pi * np.arctan(abs(found["t"])))  # Student's t with 1 degree
    assert "A paired t-test over 2 seeds has p = " in repeated.summary


# For the eye


def test_the_table_has_models_and_floors_beside_the_paper(result: Reproduction) -> None:
    assert result.table["model"] == [*("MF-IPS", "MF-Naive", "MF-Naive, no offsets") * 2, *("train mean", "best constant") * 2]
    assert result.table["paper"] == ["1.093", "1.202", "", "0.860", "0.920", "", "", "", "", ""]
    assert result.table["offsets"][2] == "none"
    assert "The 6 searches took" in result.summary
    assert json.loads(result.to_json())["name"] == "table2"


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="Coat Shopping was not found"):
        table2(data=tmp_path)


# The paper


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
@pytest.mark.parametrize("model", ["MF-IPS", "MF-Naive"])
def test_the_printed_mse_is_found_again_on_the_whole_grid(model: str) -> None:
    coat = load_coat(os.environ["UNSKEW_DATA"])
    propensities = coat.propensities if model == "MF-IPS" else None
    found = cross_validate(MatrixFactorization(tol=1e-5), coat.train, propensities, grid=PAPER_GRID)
    error = found.best_model.predict(coat.test.user, coat.test.item) - coat.test.rating

    assert np.mean(error**2) == pytest.approx(PAPER[model, "mse"], abs=0.01)
