from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew.datasets.coat import load_coat
from unskew.errors import DatasetNotFoundError
from unskew.model_selection.search import cross_validate
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.paper.reproduction import Reproduction
from unskew.paper.table2 import PAPER, PAPER_GRID, reproduce_table2
from unskew.paper.table2_systems import METRICS, SYSTEMS, prepare_coat
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.naive_bayes import NaiveBayesPropensity

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

GRID: Mapping[str, tuple[Any, ...]] = {
    "l2": (1, 25),
    "n_factors": (2,),
    "offsets": ("free", "regularized"),
}
FACTORIZATIONS = {
    name: [system for system in SYSTEMS[name] if system.name.startswith("MF-")] for name in SYSTEMS
}
PRINTED = {
    key[1:]: value for key, value in PAPER.items() if key[0] == "coat" and key[1].startswith("MF-")
}
Rows = Mapping[tuple[str, str, str | None], Mapping[str, Any]]
each_metric = pytest.mark.parametrize("metric", METRICS)


def by_key(result: Reproduction) -> Rows:
    return {(row["model"], row["metric"], row.get("variant")): row for row in result.rows}


@pytest.fixture(scope="module")
def result(coat_folder: Path) -> Reproduction:
    return reproduce_table2(data=coat_folder, grid=GRID, random_state=3, systems=FACTORIZATIONS)


@pytest.fixture(scope="module")
def rows(result: Reproduction) -> Rows:
    return by_key(result)


@pytest.fixture(scope="module")
def repeated(coat_folder: Path) -> Reproduction:
    return reproduce_table2(
        data=coat_folder, grid=GRID, random_state=3, trials=2, systems=FACTORIZATIONS
    )


# What the rows are


def test_printed_cells_come_first_and_hold_nothing_else(result: Reproduction) -> None:
    for row, ((model, metric), paper) in zip(result.rows, PRINTED.items(), strict=False):
        assert list(row) == ["data", "model", "metric", "ours", "paper"]
        assert (row["data"], row["model"], row["metric"], row["paper"]) == (
            "coat",
            model,
            metric,
            paper,
        )
    assert len(PRINTED) == 4


def test_every_further_row_names_its_variant_and_has_no_value_of_the_paper(
    result: Reproduction, rows: Rows
) -> None:
    further = result.rows[4:]

    assert all(
        row["variant"] and row["paper"] is None and isinstance(row["ours"], float)
        for row in further
    )
    assert len(rows) == len(result.rows)
    scores = (
        3 * 2 * 4 * 2 + 4 * 2 + 2 * 2
    )  # three systems for both metrics, on four tests; logistic on four, naive Bayes on two
    constants, choices, differences = 3 * 2 * 2, 3 * 2 + 2, 2 * 2 * 4 + 4 + 2
    assert len(further) == scores + constants + choices + differences


# Propensities estimated here


@pytest.mark.parametrize(
    ("kind", "cells"), [("logistic", "full test"), ("naive-Bayes", "95 % of the test")]
)
def test_estimated_propensities_train_a_model_as_the_published_ones_do(
    rows: Rows, coat_folder: Path, kind: str, cells: str
) -> None:
    coat = load_coat(coat_folder)
    chosen = prepare_coat(coat).is_sampled(3)
    estimated = {
        "logistic": LogisticPropensity(
            coat.user_features, coat.item_features, item_offsets=True, random_state=3
        ).fit(coat.train),
        "naive-Bayes": NaiveBayesPropensity(smoothing=1.0).fit(
            coat.train, mcar=coat.test.rating[chosen]
        ),
    }[kind]
    search = cross_validate(
        MatrixFactorization(tol=1e-5, random_state=3),
        coat.train,
        propensities=estimated,
        grid=GRID,
        random_state=3,
    )
    kept = np.ones_like(chosen) if kind == "logistic" else ~chosen
    error = search.best_model.predict(coat.test.user, coat.test.item) - coat.test.rating
    variant = f"{kind} propensities, trained for mse"
    clean = {"full test": "clean test", "95 % of the test": "95 % of the test, clean"}[cells]

    assert rows["MF-IPS", "mse", f"{variant}, {cells}"]["ours"] == pytest.approx(
        np.mean(error[kept] ** 2)
    )
    assert rows["MF-IPS", "mae", f"{variant}, {cells}"]["ours"] == pytest.approx(
        np.mean(np.abs(error[kept]))
    )
    assert rows["MF-IPS", "mse", f"{variant}, {clean}"]["ours"] == pytest.approx(
        np.mean(error[kept & ~coat.overlap] ** 2)
    )
    choice = rows["MF-IPS", "mse", f"{variant}, cross-validated"]
    assert (choice["ours"], choice["chosen"]) == (
        pytest.approx(search.best_score),
        [search.best_params],
    )


def test_the_sample_is_a_twentieth_of_the_test_and_another_for_another_seed(
    coat_folder: Path,
) -> None:
    data = prepare_coat(load_coat(coat_folder))

    assert data.is_sampled(3).sum() == round(0.05 * len(data.test))
    assert (data.is_sampled(3) == data.is_sampled(3)).all()
    assert (data.is_sampled(3) != data.is_sampled(4)).any()


@pytest.mark.parametrize("model", ["MF-IPS", "MF-Naive"])
def test_comparisons_with_naive_bayes_leave_its_sample_out(
    rows: Rows, coat_folder: Path, model: str
) -> None:
    coat = load_coat(coat_folder)
    propensities = coat.propensities if model == "MF-IPS" else None
    search = cross_validate(
        MatrixFactorization(tol=1e-5, random_state=3),
        coat.train,
        propensities=propensities,
        grid=GRID,
        random_state=3,
    )
    squared = (search.best_model.predict(coat.test.user, coat.test.item) - coat.test.rating) ** 2
    kept = ~prepare_coat(coat).is_sampled(3)

    assert rows[model, "mse", "trained for mse, 95 % of the test"]["ours"] == pytest.approx(
        squared[kept].mean()
    )
    clean = rows[model, "mse", "trained for mse, 95 % of the test, clean"]["ours"]
    assert clean == pytest.approx(squared[kept & ~coat.overlap].mean())


def test_naive_bayes_is_never_judged_on_its_own_sample(result: Reproduction) -> None:
    variants = [
        row["variant"] for row in result.rows if row.get("variant", "").startswith("naive-Bayes")
    ]

    assert variants
    assert not any("full test" in variant or "clean test" in variant for variant in variants)


@pytest.mark.parametrize(
    ("other", "kind", "cells"),
    [
        ("MF-Naive", "", "full test"),
        ("MF-IPS", "logistic propensities", "full test"),
        ("MF-IPS", "naive-Bayes propensities", "95 % of the test"),
        ("MF-Naive", "no offsets", "95 % of the test, clean"),
    ],
)
def test_differences_from_mf_ips_are_those_of_the_scores(
    rows: Rows, other: str, kind: str, cells: str
) -> None:
    title, variant = (
        ", ".join(filter(None, (other, kind))),
        ", ".join(filter(None, (kind, "trained for mse", cells))),
    )
    row = rows[f"MF-IPS minus {title}", "mse", f"trained for mse, {cells}, paired by user"]
    second = rows[other, "mse", variant]["ours"]

    assert row["ours"] == pytest.approx(
        rows["MF-IPS", "mse", f"trained for mse, {cells}"]["ours"] - second
    )
    assert row["ci_low"] <= row["ours"] <= row["ci_high"]


# The rest of the rows


@each_metric
@pytest.mark.parametrize("model", ["MF-IPS", "MF-Naive"])
def test_a_printed_cell_is_that_of_the_model_trained_for_its_metric(
    rows: Rows, model: str, metric: str
) -> None:
    assert (
        rows[model, metric, None]["ours"]
        == rows[model, metric, f"trained for {metric}, full test"]["ours"]
    )


@pytest.mark.parametrize(
    ("metric", "loss", "power"), [("mse", "squared", 2), ("mae", "absolute", 1)]
)
def test_scores_are_those_of_the_chosen_model_on_either_test(
    rows: Rows, coat_folder: Path, metric: str, loss: Any, power: int
) -> None:
    coat = load_coat(coat_folder)
    model = MatrixFactorization(loss=loss, clip_predictions=False, tol=1e-5, random_state=3)
    search = cross_validate(
        model, coat.train, propensities=coat.propensities, grid=GRID, metric=metric, random_state=3
    )
    test = coat.test
    error = np.abs(search.best_model.predict(test.user, test.item) - test.rating) ** power

    assert rows["MF-IPS", metric, f"trained for {metric}, full test"]["ours"] == pytest.approx(
        error.mean()
    )
    assert rows["MF-IPS", metric, f"trained for {metric}, clean test"]["ours"] == pytest.approx(
        error[~coat.overlap].mean()
    )
    choice = rows["MF-IPS", metric, f"trained for {metric}, cross-validated"]
    assert (choice["ours"], choice["chosen"]) == (
        pytest.approx(search.best_score),
        [search.best_params],
    )
    assert choice["n_fits"] == 4 * 4 + 1
    assert choice["seconds"] > 0


def test_the_model_without_offsets_searches_the_rest_of_the_grid(rows: Rows) -> None:
    choice = rows["MF-Naive", "mse", "no offsets, trained for mse, cross-validated"]

    assert choice["chosen"][0]["offsets"] == "none"
    assert choice["n_fits"] == 4 * 2 + 1


def test_no_constant_is_better_than_the_best(rows: Rows, coat_folder: Path) -> None:
    rating = load_coat(coat_folder).test.rating

    assert rows["constant", "mse", "best constant for mse, full test"]["ours"] == pytest.approx(
        rating.var()
    )
    for metric in METRICS:
        for cells in ("full test", "clean test"):
            best = rows["constant", metric, f"best constant for {metric}, {cells}"]["ours"]
            others = ("train mean", "best constant for mse", "best constant for mae")
            assert all(
                best <= rows["constant", metric, f"{other}, {cells}"]["ours"] for other in others
            )


@each_metric
def test_the_paired_difference_is_that_of_the_scores(rows: Rows, metric: str) -> None:
    row = rows["MF-IPS minus MF-Naive", metric, f"trained for {metric}, full test, paired by user"]

    assert row["ours"] == pytest.approx(
        rows["MF-IPS", metric, None]["ours"] - rows["MF-Naive", metric, None]["ours"]
    )
    assert row["ci_low"] < row["ours"] < row["ci_high"]
    assert 0 <= row["p_value"] <= 1


# Several seeds


def test_several_trials_are_averaged_over_their_seeds(
    rows: Rows, repeated: Reproduction, coat_folder: Path
) -> None:
    trials = [
        rows,
        by_key(
            reproduce_table2(data=coat_folder, grid=GRID, random_state=4, systems=FACTORIZATIONS)
        ),
    ]
    averaged = by_key(repeated)

    for metric in METRICS:
        alone = [trial["MF-IPS", metric, None]["ours"] for trial in trials]
        assert averaged["MF-IPS", metric, None]["ours"] == pytest.approx(np.mean(alone))
        assert averaged["MF-IPS", metric, f"trained for {metric}, full test"][
            "std"
        ] == pytest.approx(np.std(alone, ddof=1))
        assert (
            len(averaged["MF-IPS", metric, f"trained for {metric}, cross-validated"]["chosen"]) == 2
        )


def test_seeds_are_compared_by_a_paired_t_test(repeated: Reproduction) -> None:
    row = by_key(repeated)[
        "MF-IPS minus MF-Naive", "mse", "trained for mse, full test, paired by seed"
    ]

    assert row["t"] == pytest.approx(row["ours"] / (row["std"] / 2**0.5))
    assert row["p_value"] == pytest.approx(
        1 - 2 / np.pi * np.arctan(abs(row["t"]))
    )  # Student's t with 1 degree
    assert re.search(r"A paired t-test over 2 seeds has p [=<] \d", repeated.summary)


# The table and the summary


def test_the_table_has_systems_and_constants_beside_the_paper(result: Reproduction) -> None:
    models, constants = (
        ["MF-IPS", "MF-Naive", "MF-Naive, no offsets"],
        ["train mean", "best constant"],
    )
    assert result.table["model"] == [
        *models,
        "MF-IPS, logistic",
        "MF-IPS, NB*",
        *constants,
        *models,
        *constants,
    ]
    assert result.table["paper"] == ["1.093", "1.202", *[""] * 5, "0.860", "0.920", *[""] * 3]
    assert result.table["chosen"][2].endswith("none")
    assert "Of all systems except MF-IPS," in result.summary
    assert "In the first trial, the difference, paired by user, is " in result.summary
    assert "Training all models, with the search of their settings, took" in result.summary
    assert json.loads(result.to_json())["name"] == "table2"


def test_intervals_by_resampling_users_lie_around_the_error(rows: Rows) -> None:
    row = rows["MF-IPS", "mse", "trained for mse, full test"]

    assert row["ci_low"] < row["ours"] < row["ci_high"]
    assert row["ci_high"] - row["ci_low"] == pytest.approx(2 * 1.96 * row["std_error"], rel=0.15)


def test_missing_data_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotFoundError, match="Coat Shopping was not found"):
        reproduce_table2(data=tmp_path)


# The paper


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
@pytest.mark.parametrize("model", ["MF-IPS", "MF-Naive"])
def test_the_printed_mse_is_found_again_on_the_whole_grid(model: str) -> None:
    coat = load_coat(os.environ["UNSKEW_DATA"])
    propensities = coat.propensities if model == "MF-IPS" else None
    search = cross_validate(
        MatrixFactorization(tol=1e-5), coat.train, propensities=propensities, grid=PAPER_GRID
    )
    error = search.best_model.predict(coat.test.user, coat.test.item) - coat.test.rating

    assert np.mean(error**2) == pytest.approx(PAPER["coat", model, "mse"], abs=0.01)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("UNSKEW_DATA"), reason="$UNSKEW_DATA is not set")
def test_logistic_propensities_do_as_well_as_the_published_ones() -> None:
    coat = load_coat(os.environ["UNSKEW_DATA"])
    estimated = LogisticPropensity(coat.user_features, coat.item_features, item_offsets=True).fit(
        coat.train
    )
    searched = {
        "published": cross_validate(
            MatrixFactorization(tol=1e-5),
            coat.train,
            propensities=coat.propensities,
            grid=PAPER_GRID,
        ),
        "estimated": cross_validate(
            MatrixFactorization(tol=1e-5), coat.train, propensities=estimated, grid=PAPER_GRID
        ),
    }
    mse = {
        name: np.mean(
            (search.best_model.predict(coat.test.user, coat.test.item) - coat.test.rating) ** 2
        )
        for name, search in searched.items()
    }

    assert mse["estimated"] == pytest.approx(mse["published"], abs=0.03)


# Yahoo! R3, made up


def write_made_up_yahoo(
    folder: Path, *, n_users: int, n_items: int, n_train: int, n_testers: int
) -> None:
    """Files of the same format: users rate what they like, and some rate ten random songs."""
    rng = np.random.default_rng(0)
    truth = np.clip(
        np.round(rng.normal(2, 1.3, (n_users, n_items)) + rng.normal(0, 0.7, n_items)), 1, 5
    ).astype(int)
    weight = 0.4 ** (5.0 - truth)
    chosen = np.argsort(rng.random(truth.size) ** (1 / weight.ravel()))[-n_train:]
    user, item = np.divmod(chosen, n_items)
    shown = (
        np.repeat(np.arange(n_testers), 10),
        np.concatenate([rng.choice(n_items, 10, replace=False) for _ in range(n_testers)]),
    )
    folder.mkdir(parents=True)
    for name, cells in (("train", (user, item)), ("test", shown)):
        lines = [f"{u + 1}\t{i + 1}\t{truth[u, i]}" for u, i in zip(*cells, strict=True)]
        (folder / f"ydata-ymusic-rating-study-v1_0-{name}.txt").write_text("\n".join(lines) + "\n")


def run_on_both(folder: Path, coat_folder: Path, systems: Any) -> Reproduction:
    for name in ("train.ascii", "test.ascii", "propensities.ascii", "user_item_features"):
        source = next(coat_folder.rglob(name))
        (folder / "coat").mkdir(exist_ok=True)
        (folder / "coat" / name).symlink_to(source)
    return reproduce_table2(
        data=folder,
        grid={"l2": (25,), "n_factors": (2,), "offsets": ("regularized",)},
        systems=systems,
    )


def test_yahoo_is_judged_on_what_naive_bayes_has_not_seen(
    tmp_path: Path, coat_folder: Path
) -> None:
    write_made_up_yahoo(tmp_path / "yahoo-r3", n_users=60, n_items=40, n_train=500, n_testers=40)
    result = run_on_both(
        tmp_path, coat_folder, {"coat": FACTORIZATIONS["coat"][:2], "yahoo": SYSTEMS["yahoo"][:2]}
    )
    printed = [
        (row["data"], row["model"], row["metric"], row["paper"])
        for row in result.rows
        if "variant" not in row
    ]

    assert ("yahoo", "MF-IPS", "mse", 0.989) in printed
    assert ("coat", "MF-Naive", "mae", 0.920) in printed
    assert not any(
        "full test" in row["variant"]
        for row in result.rows
        if row["data"] == "yahoo" and "variant" in row
    )
    assert set(result.table["data"]) == {"coat", "yahoo"}
    assert "On Yahoo, trained for MSE, MF-IPS has" in result.summary


@pytest.mark.slow
def test_yahoo_of_the_published_size_runs_from_end_to_end(
    tmp_path: Path, coat_folder: Path
) -> None:
    write_made_up_yahoo(
        tmp_path / "yahoo-r3", n_users=15_400, n_items=1_000, n_train=311_704, n_testers=5_400
    )
    result = run_on_both(
        tmp_path, coat_folder, {"coat": FACTORIZATIONS["coat"][:2], "yahoo": SYSTEMS["yahoo"]}
    )
    ours = {
        (row["model"], row["metric"]): row["ours"]
        for row in result.rows
        if row["data"] == "yahoo" and "variant" not in row
    }

    assert set(ours) == {(model, metric) for data, model, metric in PAPER if data == "yahoo"}
    assert ours["MF-IPS", "mse"] < ours["MF-Naive", "mse"]
