"""Models ranked on a test file from the shell: `--model`, `--exclude`, `--items`, `--position`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from command_line import fine, run
from unskew.io.files import read_table, write_table

SIZE = (60, 80)
UNIVERSE = ("--universe", f"{SIZE[0]}x{SIZE[1]}")
METRICS = ("--metric", "recall@5,ndcg@5", "--relevance-threshold", "4")


@pytest.fixture(autouse=True)
def in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``log.csv``, its parts ``train.csv`` and ``test.csv``, and a model of the training part."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = np.clip(np.round(rng.normal(3, 1.2, SIZE)), 1, 5)
    chance = np.where(truth >= 4, 0.6, 0.3)
    user, item = np.nonzero(rng.random(SIZE) < chance)
    write_table(
        {
            "user_id": user,
            "item_id": [f"film {number}" for number in item],
            "rating": truth[user, item],
            "propensity": chance[user, item],
            "noise": rng.random(user.size),
            "position": rng.integers(1, 4, user.size),
            "day": np.arange(user.size)[::-1],
        },
        "log.csv",
    )
    fine("split", "log.csv", "--share", "0.3", "-q", "-o", "train.csv", "test.csv")
    fine("train", "train.csv", "--factors", "1", "--max-iter", "5", "-o", "m.unskew")


def estimates(*arguments: str) -> dict[tuple[str, str], float]:
    rows = json.loads(fine("evaluate", "test.csv", *arguments, *METRICS, "--json").stdout)["rows"]
    return {(row["metric"], row["estimator"]): row["estimate"] for row in rows}


def read_parts() -> tuple[unskew.Ratings, unskew.Ratings, Any]:
    """The parts of the library's own split of the log, and the propensities of the log."""
    table = read_table("log.csv")
    log = unskew.Ratings.from_arrays(
        table.columns["user_id"].ids(),
        table.columns["item_id"].ids(),
        table.columns["rating"].numbers(),
        universe=SIZE,
    )
    train, test = unskew.split(log, share=0.3)
    return train, test, table.columns["propensity"].numbers()


def expected(**options: Any) -> dict[tuple[str, str], float]:
    _, test, propensities = read_parts()
    result = unskew.evaluate(
        test,
        {"m": unskew.load("m.unskew")},
        propensities=propensities,
        metrics=["recall@5", "ndcg@5"],
        relevance_threshold=4,
        **options,
    )
    return {(risk.metric, risk.estimator): risk.estimate for risk in result}


def test_a_saved_model_ranks_all_items_on_a_test_file() -> None:
    found = estimates("--model", "m.unskew", "--held-out", "0.3", *UNIVERSE)

    assert found == pytest.approx(expected())
    assert found == estimates("--predictions", "m.unskew", "--held-out", "0.3", *UNIVERSE)


def test_the_training_log_is_excluded_as_in_the_library() -> None:
    train = read_parts()[0]
    options = ("--model", "m.unskew", "--held-out", "0.3", "--exclude", "train.csv", *UNIVERSE)
    found = estimates(*options)

    assert found == pytest.approx(expected(exclude=train))
    assert found != pytest.approx(expected())
    assert "also in the training log" not in fine("evaluate", "test.csv", *options).stderr


def test_only_listed_items_are_ranked() -> None:
    items = [f"film {number}" for number in range(40)]
    write_table({"item_id": items}, "items.csv")
    found = estimates("--model", "m.unskew", "--held-out", "0.3", "--items", "items.csv", *UNIVERSE)

    assert found == pytest.approx(expected(candidates=items))


def test_items_of_each_user_are_ranked() -> None:
    import polars as pl

    user, item = (axis.ravel() for axis in np.indices(SIZE))
    cells = {"user_id": user, "item_id": [f"film {number}" for number in item]}
    frame = pl.DataFrame(cells).filter((pl.Series(user) + pl.Series(item)) % 2 == 0)
    frame.write_csv("pairs.csv")
    found = estimates("--model", "m.unskew", "--held-out", "0.3", "--items", "pairs.csv", *UNIVERSE)

    assert found == pytest.approx(expected(candidates=frame))


def test_leaks_are_told_and_leave_the_test() -> None:
    table = read_table("test.csv")
    lines = Path("test.csv").read_text().splitlines()
    Path("leaky.csv").write_text(Path("train.csv").read_text() + "\n".join(lines[1:6]) + "\n")
    result = fine(
        *("evaluate", "test.csv", "--model", "m.unskew", "--exclude", "leaky.csv", *UNIVERSE),
        *(*METRICS, "--estimator", "snips", "--timestamp", "day"),
    )

    assert "also in the training log" not in result.stderr
    assert f"{len(table) - 5:,} observed cells" in result.stdout
    assert "older than the latest training rating" in result.stderr
    note = "5 logged cells left the test: not among the candidates (all in `exclude`)"
    assert note in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "test.csv"), "test.csv is not a saved model"),
        (("--model", "m.unskew", "--predictions", "m.unskew"), "two models have the name 'm'"),
        (("--model", "m.unskew", "--exclude", "log.csv"), "none of the"),
        (("--model", "m.unskew", "--exclude", "train.csv", "--by", "position"), "Leave --exclude"),
        (
            ("--model", "m.unskew", "--exclude", "train.csv", "--reader", "duckdb"),
            "--reader memory",
        ),
    ],
)
def test_what_cannot_be_ranked_is_refused(arguments: tuple[str, ...], message: str) -> None:
    result = run("evaluate", "test.csv", *arguments, *METRICS, *UNIVERSE)

    assert result.exit_code in (2, 3)
    assert message in result.stderr


# positions


def test_a_column_called_position_is_no_rank_of_noise() -> None:
    table = read_table("log.csv")
    write_table(
        {name: table.columns[name].ids() for name in ("user_id", "item_id", "position")}
        | {"prediction": table.columns["noise"].numbers()},
        "noise.csv",
    )
    options = ("--universe", "log", "--metric", "dcg@5", "--estimator", "snips")
    column = ("evaluate", "log.csv", "--prediction", "noise", *options)
    file = ("evaluate", "log.csv", "--predictions", "noise.csv", *options)

    for arguments in ((*column, "--reader", "memory"), (*column, "--reader", "duckdb"), file):
        result = run(*arguments)
        assert result.exit_code in (2, 3)
        assert "ranking metrics need the position" in result.stderr
        assert "--position COL" in result.stderr
        assert "dcg@5" in fine(*arguments, "--position", "position").stdout


def test_each_model_has_a_column_of_positions() -> None:
    result = run(
        *("evaluate", "log.csv", "--prediction", "noise", "--prediction", "day"),
        *("--position", "position", *METRICS, "--universe", "log"),
    )

    assert result.exit_code == 2
    assert "there are 2 columns of predictions, but 1 column of positions" in result.stderr


def test_validate_does_not_take_where_an_item_was_shown_for_a_rank() -> None:
    Path("shown.csv").write_text("user,item,stars,position\n1,2,3,0\n1,3,4,1\n")

    assert "other columns position" in " ".join(fine("validate", "shown.csv").stdout.split())


def test_what_is_missing_is_never_printed_as_none() -> None:
    """Groups without a value, limits that do not exist, plans without a universe."""
    Path("few.csv").write_text(
        "user,item,stars,propensity,a,b,group\n1,1,5,0.5,4,3,\n1,2,3,0.5,2,3,x\n2,1,1,0.5,1,3,x\n"
    )
    evaluate = (
        "evaluate",
        "few.csv",
        "--prediction",
        "a",
        "--prediction",
        "b",
        "--compare",
        "a",
        "b",
    )
    watch = ("watch", "few.csv", "--state", "s.json", "--prediction", "a", "--planned-size", "50")
    commands: list[tuple[str, ...]] = [
        (*evaluate, "--universe", "2x2"),
        (*evaluate, "--by", "group", "--estimator", "naive"),
        (*evaluate, "--estimator", "naive", "-o", "-"),
        ("validate", "few.csv", "--train", "few.csv"),
        ("propensity", "diagnose", "few.csv", "propensity", "--universe", "log"),
        watch,
        (*watch, "--universe", "2x2"),
        ("doctor",),
        ("data", "list"),
    ]
    for command in commands:
        result = run(*command)
        assert "None" not in result.stdout + result.stderr, command
