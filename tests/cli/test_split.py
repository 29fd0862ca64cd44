"""Parts of a log from the shell: `unskew split`, `--held-out`, and leaks between the parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from command_line import as_json, fine, run
from unskew.io.files import read_table, write_table
from unskew.io.table import FileTable
from unskew.propensity.cross_fitted import CrossFittedPropensity
from unskew.propensity.popularity import PopularityPropensity
from unskew.propensity.wrapper import ScaledPropensity

SIZE = (60, 80)
SHARE = "0.3"


@pytest.fixture(autouse=True)
def in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``log.csv``: a simulated log with its propensities, times and words."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    truth = np.clip(np.round(rng.normal(3, 1.2, SIZE)), 1, 5)
    chance = np.where(truth >= 4, 0.6, 0.3)
    user, item = np.nonzero(rng.random(SIZE) < chance)
    seconds = rng.integers(0, 10**6, user.size)
    write_table(
        {
            "user_id": user,
            "item_id": [f"film {number}" for number in item],
            "rating": truth[user, item],
            "propensity": chance[user, item],
            "model": truth[user, item] * 0.8,
            "seconds": seconds,
            "day": np.datetime_as_string(seconds.astype("datetime64[s]")).tolist(),
            "word": rng.choice(["a", "b,c", "ü"], user.size).tolist(),
        },
        "log.csv",
    )


def list_rows(table: FileTable) -> list[tuple[Any, ...]]:
    columns = [table.columns[name] for name in table.names]
    return [tuple(str(column.value(row)) for column in columns) for row in range(len(table))]


def read_log(path: str) -> tuple[unskew.Ratings, FileTable]:
    table = read_table(path)
    log = unskew.Ratings.from_arrays(
        table.columns["user_id"].ids(),
        table.columns["item_id"].ids(),
        table.columns["rating"].numbers(),
        timestamp=table.columns["seconds"].numbers(),
        universe=SIZE,
    )
    return log, table


@pytest.mark.parametrize("by", ["random", "user", "time"])
@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet", "arrow"])
def test_a_split_is_that_of_the_library_with_all_columns(by: str, form: str) -> None:
    paths = (f"out/train.{form}", f"test.{form}")
    result = fine(
        *("split", "log.csv", "--share", SHARE, "--by", by, "--timestamp", "seconds"),
        *("--seed", "3", "-o", *paths),
    )
    log, whole = read_log("log.csv")
    parts = unskew.split(log, share=0.3, by=by, random_state=3)  # type: ignore[arg-type]

    for path, part, line in zip(paths, parts, result.stderr.splitlines(), strict=True):
        table = read_table(path)
        assert table.names == whole.names
        assert part.part is not None
        for name in ("user_id", "item_id", "rating", "word", "day"):
            expected = whole.columns[name].ids()[part.part.rows].tolist()
            assert [str(value) for value in table.columns[name].ids().tolist()] == [
                str(value) for value in expected
            ] or table.columns[name].numbers().tolist() == [float(value) for value in expected]
        expected_line = f"{len(part):,} of {len(log):,} ratings, a share of {part.share:.6g}"
        assert line == f"wrote {path}: {expected_line}"


def test_text_is_written_as_it_was_read() -> None:
    fine("split", "log.csv", "-o", "train.csv", "test.csv")
    rows = list_rows(read_table("train.csv")) + list_rows(read_table("test.csv"))

    assert sorted(rows) == sorted(list_rows(read_table("log.csv")))


def test_dates_split_as_the_seconds_that_they_are() -> None:
    fine("split", "log.csv", "--by", "time", "--timestamp", "seconds", "-o", "a.csv", "b.csv")
    fine("split", "log.csv", "--by", "time", "--timestamp", "day", "-o", "c.csv", "d.csv")

    assert Path("b.csv").read_bytes() == Path("d.csv").read_bytes()


@pytest.mark.parametrize(
    ("days", "message"),
    [
        (["2024-01-01", "soon", "2024-01-02"], "line 3, column 'day': found 'soon', expected a"),
        (["2024-01-01", "", "2024-01-02"], "line 3, column 'day': found nothing, expected a time"),
        (["7", "2024-01-01", "8"], "found '2024-01-01', expected a time: a number or a date"),
        (["2024-01-01", "2024-01-01T00:00:00Z", "2024-01-02"], "found '2024-01-01T00:00:00Z'"),
    ],
)
def test_bad_times_are_named(days: list[str], message: str) -> None:
    write_table({"user": [1, 2, 3], "item": [1, 2, 3], "stars": [1, 2, 3], "day": days}, "t.csv")
    result = run("split", "t.csv", "--by", "time", "--timestamp", "day", "-o", "a.csv", "b.csv")

    assert result.exit_code == 3
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "a.csv", "./a.csv"), "-o names a.csv twice"),
        (("-o", "a.csv", "log.csv"), "-o log.csv would overwrite the input file log.csv"),
        (("-o", "a.csv", "b.txt"), "'b.txt' must end in one of"),
        (("--share", "1.5", "-o", "a.csv", "b.csv"), "--share must lie strictly between 0 and 1"),
        (("--by", "time", "-o", "a.csv", "b.csv"), "no column looks like the timestamp"),
    ],
)
def test_a_wrong_split_writes_nothing(arguments: tuple[str, ...], message: str) -> None:
    result = run("split", "log.csv", *arguments)

    assert result.exit_code in (2, 3)
    assert message in result.stderr
    assert not Path("a.csv").exists()


# --held-out


def split_log() -> tuple[unskew.Ratings, unskew.Ratings]:
    fine("split", "log.csv", "--share", SHARE, "-o", "train.csv", "test.csv")
    train, test = unskew.split(read_log("log.csv")[0], share=0.3)
    return train, test


UNIVERSE = ("--universe", f"{SIZE[0]}x{SIZE[1]}")
EVALUATE = ("evaluate", "test.csv", "--prediction", "model", "--metric", "mae", *UNIVERSE)


def list_estimates(rows: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    return [(row["estimator"], row["estimate"], row["std_error"]) for row in rows]


def expected_rows(test: unskew.Ratings, propensities: Any) -> list[tuple[str, float, float]]:
    assert test.part is not None
    prediction = read_log("log.csv")[1].columns["model"].numbers()[test.part.rows]
    evaluation = unskew.evaluate(
        test, {"model": prediction}, propensities=propensities, metrics=["mae"]
    )
    return list_estimates(json.loads(evaluation.to_json())["rows"])


def test_a_held_out_part_is_evaluated_as_in_the_library() -> None:
    _, test = split_log()
    found = as_json(*EVALUATE, "--held-out", SHARE)
    values = read_log("log.csv")[1].columns["propensity"].numbers()

    assert list_estimates(found["rows"]) == expected_rows(test, values)
    ips = {row["estimator"]: row for row in found["rows"]}["ips"]
    assert ips["ci_low"] < 0.6 < ips["ci_high"]  # a fifth of the mean rating, 3
    without = {row["estimator"]: row for row in as_json(*EVALUATE)["rows"]}["ips"]
    assert without["estimate"] == pytest.approx(0.3 * ips["estimate"])
    assert "a share of 0.3 of a larger log" in " ".join(
        fine(*EVALUATE, "--held-out", SHARE).stdout.split()
    )


def test_a_saved_model_of_the_whole_log_or_of_the_training_part_follows() -> None:
    train, test = split_log()
    fit = ("propensity", "fit", "--model", "popularity", *UNIVERSE)
    fine(*fit, "log.csv", "-o", "whole.unskew")
    fine(*fit, "train.csv", "--share", "0.7", "-o", "train.unskew")
    log = read_log("log.csv")[0]

    for path, part in (("whole.unskew", log), ("train.unskew", train)):
        found = as_json(*EVALUATE, "--held-out", SHARE, "--propensity", path)["rows"]
        model = PopularityPropensity().fit(part)
        for one, other in zip(list_estimates(found), expected_rows(test, model), strict=True):
            assert one[:2] == (other[0], pytest.approx(other[1]))


def test_a_model_that_is_fitted_to_the_part_is_one_of_the_part() -> None:
    _, test = split_log()
    found = as_json(*EVALUATE, "--held-out", SHARE, "--propensity", "popularity")["rows"]

    expected = expected_rows(test, PopularityPropensity().fit(test))
    for one, other in zip(list_estimates(found), expected, strict=True):
        assert one == (other[0], pytest.approx(other[1]), pytest.approx(other[2]))


def test_groups_of_a_held_out_part_have_its_share() -> None:
    split_log()
    by = ("--by", "word", "--estimator", "ips")
    whole = as_json(*EVALUATE, *by)["groups"]
    parts = as_json(*EVALUATE, *by, "--held-out", SHARE)["groups"]

    for one, other in zip(whole, parts, strict=True):
        estimate = other["rows"][0]["estimate"]
        assert one["rows"][0]["estimate"] == pytest.approx(0.3 * estimate)


def test_duckdb_reads_held_out_parts_too() -> None:
    split_log()
    by_duckdb, in_memory = (
        as_json(*EVALUATE, "--held-out", SHARE, "--reader", reader)
        for reader in ("duckdb", "memory")
    )

    for one, other in zip(by_duckdb["rows"], in_memory["rows"], strict=True):
        assert one["estimator"] == other["estimator"]
        assert one["estimate"] == pytest.approx(other["estimate"], rel=1e-12)
        assert one["std_error"] == pytest.approx(other["std_error"], rel=1e-9)
    shown = fine(*EVALUATE, "--held-out", SHARE, "--reader", "duckdb").stdout
    assert "a share of 0.3 of a larger log" in " ".join(shown.split())


def test_duckdb_refuses_propensities_above_1_before_it_scales_them() -> None:
    split_log()
    Path("test.csv").write_text(Path("test.csv").read_text().replace(",0.6,", ",1.6,", 1))

    result = run(*EVALUATE, "--held-out", SHARE, "--reader", "duckdb")

    assert result.exit_code == 3
    assert "1.6" in result.stderr


@pytest.mark.parametrize("share", ["0", "1.2", "-1"])
def test_a_share_lies_between_0_and_1(share: str) -> None:
    split_log()
    assert run(*EVALUATE, "--held-out", share).exit_code == 2


# propensity fit


def test_cross_fitting_and_scaling_wrap_the_model() -> None:
    log = read_log("log.csv")[0]
    fine(
        *("propensity", "fit", "log.csv", "--model", "popularity", "--cross-fit", "4", "--scale"),
        *("--universe", "log", "--seed", "5", "-o", "p.unskew"),
    )
    found = unskew.load("p.unskew")
    listed = log.with_universe((log.n_users, log.n_items))
    model = ScaledPropensity(
        CrossFittedPropensity(PopularityPropensity(), n_folds=4, random_state=5),
        random_state=5,
    ).fit(listed)

    np.testing.assert_allclose(found.predict(listed).values, model.predict(listed).values)


# validate --train


def test_leaks_are_named() -> None:
    fine("split", "log.csv", "--by", "time", "--timestamp", "seconds", "-o", "a.csv", "b.csv")
    times = ("--timestamp", "seconds")
    clean = fine("validate", "b.csv", "--train", "a.csv", *times)
    assert clean.stderr == ""
    assert "ratings in the training log, 0 older than its latest rating" in clean.stdout

    early = fine("validate", "a.csv", "--train", "b.csv", *times)
    assert "older than the latest training rating" in early.stderr
    assert "unskew.split(" not in early.stderr

    shared = run("validate", "b.csv", "--train", "log.csv")
    n_test = len(read_table("b.csv"))
    assert (
        f"warning: {n_test:,} of {n_test:,} test ratings are also in the training" in shared.stderr
    )
    assert as_json("validate", "b.csv", "--train", "log.csv")["leaks"]["n_shared"] == n_test


# Items that the propensity model never saw


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("popularity", "--set", "smoothing=1"), "1 of 80 items were not in the log that"),
        (("uniform",), ""),
    ],
)
def test_new_items_of_the_test_have_propensities(settings: tuple[str, ...], message: str) -> None:
    split_log()
    lines = Path("train.csv").read_text().splitlines(keepends=True)
    Path("train.csv").write_text("".join(line for line in lines if "film 7," not in line))
    universe = ("--universe", f"{SIZE[0]}x{SIZE[1]}")
    fit = ("--share", "0.7", *universe, "-o", "p.unskew", "--model", *settings)
    fine("propensity", "fit", "train.csv", *fit)

    result = fine(*EVALUATE, "--held-out", SHARE, "--propensity", "p.unskew")

    assert ("they count as items without ratings" in result.stderr) == bool(message)
    assert message in " ".join(result.stderr.split())


def test_new_items_without_a_propensity_are_refused() -> None:
    split_log()
    lines = Path("train.csv").read_text().splitlines(keepends=True)
    Path("train.csv").write_text("".join(line for line in lines if "film 7," not in line))
    universe = ("--universe", f"{SIZE[0]}x{SIZE[1]}")
    fine("propensity", "fit", "train.csv", "--model", "popularity", *universe, "-o", "p.unskew")

    result = run(*EVALUATE, "--held-out", SHARE, "--propensity", "p.unskew")

    assert result.exit_code == 3
    assert "the first is 'film 7'" in result.stderr
    assert "--set smoothing=1" in result.stderr


@pytest.mark.parametrize("prefix", ["", "2024-01-0"], ids=["numbers", "dates"])
def test_a_missing_first_time_does_not_decide_what_times_are(prefix: str) -> None:
    rows = ["0,0,3,", *(f"{day},{day},3,{prefix}{day}" for day in range(1, 5))]
    Path("t.csv").write_text("\n".join(["user_id,item_id,rating,time", *rows]))
    command = ("split", "t.csv", "--by", "time", "--share", "0.25", "-o", "a.csv", "b.csv")

    assert "line 2, column 'time'" in run(*command).stderr
    result = run(*command, "--on-bad", "drop")
    assert "dropped 1 of 5 rows" in result.stderr
    assert "wrote b.csv: 1 of 4 ratings" in result.stderr
