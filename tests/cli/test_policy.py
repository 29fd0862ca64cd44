"""unskew policy evaluate, and unskew validate for impressions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import unskew
from unskew.cli.program import main
from unskew.data.impressions import Impressions
from unskew.errors import BadImpressionError
from unskew.io.files import write_table
from unskew.io.impression_files import ImpressionColumns, iterate_impressions
from unskew.io.sources import FileSource
from unskew.policies import TargetRanking
from unskew.simulation import ImpressionSimulation

PROBABILITY = ("--probability", "p", "--probability-is", "step")
Columns = dict[str, list[Any]]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture(scope="module")
def world() -> ImpressionSimulation:
    return unskew.simulate_impressions(600, random_state=1)


@pytest.fixture(scope="module")
def columns(world: ImpressionSimulation) -> Columns:
    log = world.log
    order = np.argsort(np.argsort(-world.target.table, axis=1), axis=1) + 1
    users = log.users[log.user]
    position = order[users % 2, log.item]
    assert log.probability is not None
    return {
        "request_id": [f"r{code:05d}" for code in log.request.tolist()],
        "user_id": users.tolist(),
        "item_id": log.item.tolist(),
        "position": log.position.tolist(),
        "clicked": log.reward.astype(int).tolist(),
        "p": log.probability.tolist(),
        "new_position": [place if place <= 3 else None for place in position.tolist()],
        "p_new": (position == log.position).astype(float).tolist(),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, columns: Columns) -> Path:
    path = tmp_path_factory.mktemp("impressions")
    for form in ("csv", "parquet", "jsonl"):
        write_table(columns, str(path / f"shown.{form}"))
    return path


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_a_file_gives_the_result_of_python(
    folder: Path, world: ImpressionSimulation, form: str
) -> None:
    result = run(
        *("policy", "evaluate", str(folder / f"shown.{form}"), *PROBABILITY, "--json"),
        *("--target", "new=p_new", "--ranking", "sorted=new_position"),
    )
    expected = unskew.evaluate_policies(world.log, {"new": world.target})

    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    rows = {(row["policy"], row["estimator"]): row for row in record["rows"]}
    for estimator in ("ips", "snips", "rips", "snrips"):
        value = expected.value("new", estimator=estimator)
        for policy in ("new", "sorted"):
            row = rows[policy, estimator]
            assert row["estimate"] == pytest.approx(value.estimate)
            assert row["std_error"] == pytest.approx(value.std_error)


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl"])
def test_duckdb_gives_the_numbers_of_the_reader_in_parts(folder: Path, form: str) -> None:
    records = []
    for reader in ("memory", "duckdb"):
        result = run(
            *("policy", "evaluate", str(folder / f"shown.{form}"), *PROBABILITY, "--json"),
            *("--target", "new=p_new", "--ranking", "sorted=new_position", "--reader", reader),
        )
        assert result.exit_code == 0, result.output
        records.append(json.loads(result.stdout)["rows"])

    in_parts, by_query = records
    assert len(in_parts) == len(by_query) == 9
    for row, other in zip(in_parts, by_query, strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            assert other[name] == (pytest.approx(value) if isinstance(value, float) else value)


def test_duckdb_refuses_what_needs_memory(folder: Path) -> None:
    result = run(
        *("policy", "evaluate", str(folder / "shown.csv"), *PROBABILITY, "--target", "p_new"),
        *("--max-weight", "5", "--reader", "duckdb"),
    )

    assert result.exit_code == 2
    assert "--max-weight needs the log in memory" in " ".join(result.stderr.split())


def test_tables_are_printed_and_pages_written(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"

    result = run(
        *("policy", "evaluate", str(folder / "shown.csv"), *PROBABILITY),
        *("--target", "p_new", "--estimator", "snips,snrips", "-o", str(page)),
    )

    assert result.exit_code == 0, result.output
    assert "Each policy minus logged" in result.stdout
    assert "whatever users do" in " ".join(result.stdout.split())
    assert "p_new earns more than the logging policy" in page.read_text()


def test_a_uniform_log_and_a_saved_model(
    folder: Path, world: ImpressionSimulation, tmp_path: Path
) -> None:
    log = world.log
    ratings = unskew.Ratings.from_arrays(
        log.users[log.user], log.item, log.reward, duplicates="mean"
    )
    model = unskew.MatrixFactorization(n_factors=1, l2=5.0).fit(ratings)
    model.save(tmp_path / "m.unskew")
    seen = {
        "user_id": log.users.tolist(),
        "item_id": [0] * log.n_users,
        "rating": [1] * log.n_users,
    }
    write_table(seen, str(tmp_path / "train.csv"))

    result = run(
        *("policy", "evaluate", str(folder / "shown.parquet"), "--logging", "uniform"),
        *("--model", f"mf={tmp_path / 'm.unskew'}", "--estimator", "iips,pbm,pi", "--json"),
        *("--examination", "1,0.5,0.33", "--exclude", str(tmp_path / "train.csv")),
    )

    assert result.exit_code == 0, result.output
    expected = unskew.evaluate_policies(
        log, {"mf": TargetRanking(scores=model)}, estimators=["iips"],
        logging=unskew.policies.UniformSlate(),
    )  # fmt: skip
    rows = json.loads(result.stdout)["rows"]
    assert [row["estimator"] for row in rows] == ["mean", "iips", "pbm", "pi"]
    assert rows[1]["estimate"] != pytest.approx(expected.value("mf").estimate)


def test_candidates_can_be_listed_by_user(
    folder: Path, world: ImpressionSimulation, tmp_path: Path
) -> None:
    users, items = world.log.users, world.log.items
    by_user = {
        "user_id": np.repeat(users, items.size),
        "item_id": np.tile(items, users.size),
    }
    write_table({name: ids.tolist() for name, ids in by_user.items()}, str(tmp_path / "c.csv"))
    arguments = (
        *("policy", "evaluate", str(folder / "shown.csv"), "--logging", "uniform", "--json"),
        *("--ranking", "new_position", "--estimator", "iips,pi"),
    )

    listed = run(*arguments, "--candidates", str(tmp_path / "c.csv"))

    assert listed.exit_code == 0, listed.output
    assert json.loads(listed.stdout)["rows"] == json.loads(run(*arguments).stdout)["rows"]


def test_two_policies_are_compared(folder: Path, tmp_path: Path) -> None:
    arguments = (
        *("policy", "evaluate", str(folder / "shown.csv"), *PROBABILITY),
        *("--target", "new=p_new", "--target", "same=p", "--estimator", "snips,snrips"),
        *("--compare", "new", "same"),
    )
    page = tmp_path / "page.html"
    printed = run(*arguments, "-o", str(page))
    record = json.loads(run(*arguments, "--json").stdout)
    gated = run(*arguments, "--fail-if", "compare.snips.difference.new>0.1")

    assert printed.exit_code == 0, printed.output
    assert "new minus same" in printed.stdout
    assert "new minus same" in page.read_text()
    rows = record["comparisons"]
    assert [(row["first"], row["second"]) for row in rows] == [("new", "same")] * 2
    with_logged = [row for row in record["differences"] if row["first"] == "new"]
    assert rows[0]["difference"] == pytest.approx(with_logged[0]["difference"])
    assert gated.exit_code == 4
    unknown = run(*arguments[:-1], "old")
    assert unknown.exit_code == 2
    assert "old" in unknown.stderr


def test_arms_of_an_ab_test_need_no_probabilities(tmp_path: Path) -> None:
    world = unskew.simulate_impressions(800, logging="rankers", n_rankers=2, random_state=3)
    log = world.log
    places = [
        np.argsort(np.argsort(-scores, axis=1), axis=1)[log.users[log.user] % 2, log.item] + 1
        for scores in world.logging_scores
    ]
    write_table(
        {
            "request_id": log.request.tolist(),
            "user_id": log.users[log.user].tolist(),
            "item_id": log.item.tolist(),
            "position": log.position.tolist(),
            "clicked": log.reward.tolist(),
            "a": places[0].tolist(),
            "b": places[1].tolist(),
        },
        str(tmp_path / "ab.csv"),
    )
    arguments = ("policy", "evaluate", str(tmp_path / "ab.csv"), "--ranking", "a", "--json")
    arms = ("--arm", "0.5=a", "--arm", "0.5=b")

    result = run(*arguments, *arms)
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["warnings"] == []
    (row,) = [row for row in record["rows"] if (row["policy"], row["estimator"]) == ("a", "snips")]
    truth = world.value(world.logging_scores[0])
    assert abs(row["estimate"] - truth) < 4 * row["std_error"]
    for wrong, message in (
        (("--arm", "half=a"), "must be a number, as in 0.5=COL"),
        (("--arm", "0.5=a", "--arm", "b"), "1 of 2 rankings have a share"),
        ((*arms, "--logging", "uniform"), "both say how the log was made"),
        ((*arms, "--reader", "duckdb"), "--arm needs the log in memory"),
    ):
        failed = run(*arguments, *wrong)
        assert failed.exit_code == 2
        assert message in " ".join(failed.stderr.split())


def test_a_file_without_a_column_is_named_once(tmp_path: Path) -> None:
    path = str(tmp_path / "odd.csv")
    write_table({"user": [1], "sku": [2]}, path)

    result = run("validate", "--impressions", path)

    assert result.exit_code == 3
    assert " ".join(result.stderr.split()).count("odd.csv") == 1


def test_a_file_of_clicks_alone_says_what_to_do(columns: Columns, tmp_path: Path) -> None:
    clicked = [row for row, reward in enumerate(columns["clicked"]) if reward]
    table = {name: [values[row] for row in clicked] for name, values in columns.items()}
    write_table(table, str(tmp_path / "clicks.csv"))

    result = run("policy", "position-bias", str(tmp_path / "clicks.csv"))

    assert result.exit_code == 3
    assert "Write every item that was shown into the log" in result.stderr


def test_gates_compare_with_the_log(folder: Path) -> None:
    arguments = ("policy", "evaluate", str(folder / "shown.csv"), *PROBABILITY, "--target", "p_new")

    passed = run(*arguments, "--fail-if", "compare.snrips.ci_low<0")
    failed = run(*arguments, "--fail-if", "snips.estimate.p_new>0.1")

    assert passed.exit_code == 0, passed.output
    assert failed.exit_code == 4
    assert "gate tripped" in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--target", "p_new"), 2, "--probability-is must say what --probability is"),
        ((*PROBABILITY[2:], "--target", "p_new"), 0, ""),
        ((*PROBABILITY[2:],), 2, "there is no policy to evaluate. Pass --target"),
        ((*PROBABILITY[2:], "--target", "nope"), 3, "there is no column 'nope'"),
        ((*PROBABILITY[2:], "--target", "a=p", "--ranking", "a=p"), 2, "two policies are called"),
        ((*PROBABILITY[2:], "--target", "p_new", "--regression", "p"), 2, "names two columns"),
    ],
)
def test_mistakes_have_messages(
    folder: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run("policy", "evaluate", str(folder / "shown.csv"), *PROBABILITY[:2], *arguments)

    assert result.exit_code == code, result.output
    assert message in result.stderr


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("request_id", None, "column 'request_id': found nothing, expected an id"),
        ("position", 0, "column 'position': found '0', expected a position"),
        ("position", 1.5, "column 'position': found '1.5', expected a position"),
        ("clicked", "five", "column 'clicked': found 'five', expected a number"),
        ("p", 0, "column 'p': found '0', expected a probability"),
        ("p", 2, "column 'p': found '2', expected a probability"),
    ],
)
def test_bad_values_are_named_with_their_line(
    columns: Columns, tmp_path: Path, column: str, value: object, message: str
) -> None:
    changed = dict(columns) | {column: [*columns[column][:5], value, *columns[column][6:]]}
    write_table(changed, str(tmp_path / "bad.csv"))
    arguments = (str(tmp_path / "bad.csv"), *PROBABILITY)

    evaluated = run("policy", "evaluate", *arguments, "--target", "p_new")
    validated = run("validate", "--impressions", *arguments)

    for result in (evaluated, validated):
        assert result.exit_code == 3, result.output
        assert f"line 7, {message}" in result.stderr


def test_validate_reports_what_is_doubtful(columns: Columns, folder: Path, tmp_path: Path) -> None:
    good = run("validate", "--impressions", str(folder / "shown.csv"), *PROBABILITY)
    assert good.exit_code == 0, good.output
    assert "can be used as a log of impressions" in good.stdout
    assert "other columns       new_position, p_new" in good.stdout

    as_ratings = run("validate", str(folder / "shown.csv"))
    assert "use `unskew validate --impressions`" in " ".join(as_ratings.stderr.split())

    constant = dict(columns) | {"p": [1.0] * len(columns["p"])}
    write_table(constant, str(tmp_path / "constant.csv"))
    doubtful = run(
        "validate", "--impressions", str(tmp_path / "constant.csv"), *PROBABILITY, "--json"
    )
    record = json.loads(doubtful.stdout)
    assert record["is_usable"]
    assert [each["check"] for each in record["findings"]] == ["constant probability"]


def test_a_large_file_is_read_in_parts_of_whole_requests(folder: Path) -> None:
    for form in ("csv", "parquet"):
        source = FileSource.from_name(str(folder / f"shown.{form}"))
        read = list(
            iterate_impressions(
                source, ImpressionColumns(probability="p"), probability_is="step", rows_at_once=1000
            )
        )
        (whole,) = iterate_impressions(
            source, ImpressionColumns(probability="p"), probability_is="step"
        )
        assert len(read) > 5
        assert all((part.slate_size == 3).all() for part in read)
        assert sum(part.n_requests for part in read) == whole.n_requests
        np.testing.assert_array_equal(np.concatenate([part.reward for part in read]), whole.reward)


def test_errors_in_a_later_part_say_where_the_part_begins(columns: Columns, tmp_path: Path) -> None:
    changed = dict(columns) | {"item_id": [*columns["item_id"][:-1], columns["item_id"][-2]]}
    write_table(changed, str(tmp_path / "bad.parquet"))
    source = FileSource.from_name(str(tmp_path / "bad.parquet"))

    with pytest.raises(BadImpressionError, match=r"row 0 is row [\d,]+ of the file.*again in the"):
        list(iterate_impressions(source, ImpressionColumns(), rows_at_once=1000))


def test_the_python_type_reads_the_same_file(folder: Path) -> None:
    import polars as pl

    frame = pl.read_parquet(folder / "shown.parquet")
    shown = Impressions.from_frame(frame, probability="p", probability_is="step")

    assert shown.n_slots == 3
    assert set(shown.other) == {"new_position", "p_new"}


def test_the_examination_curve_is_that_of_python(tmp_path: Path) -> None:
    world = unskew.simulate_impressions(300, logging="rankers", random_state=3)
    write_table(
        {
            "request_id": world.log.request.tolist(),
            "user_id": world.log.user.tolist(),
            "item_id": world.log.item.tolist(),
            "position": world.log.position.tolist(),
            "clicked": world.log.reward.tolist(),
        },
        str(tmp_path / "shown.csv"),
    )
    page = str(tmp_path / "curve.html")
    printed = run("policy", "position-bias", str(tmp_path / "shown.csv"), "-o", page)
    record = json.loads(
        run("policy", "position-bias", str(tmp_path / "shown.csv"), "--json").stdout
    )

    assert printed.exit_code == 0, printed.stderr
    assert "Examination of each position" in printed.stdout
    assert "is examined" in Path(page).read_text()
    curve = unskew.PositionBias().fit(world.log).examination
    assert [row["examination"] for row in record["rows"]] == pytest.approx(curve.tolist())
    wrong = run("policy", "position-bias", str(tmp_path / "shown.csv"), "--cell", "query")
    assert wrong.exit_code == 2
    assert "--cell must name user, item or both" in wrong.stderr


@pytest.mark.parametrize(
    ("option", "column"), [("--target", "p_nw"), ("--ranking", "place"), ("--arm", "a")]
)
def test_a_column_that_is_not_there_is_named_with_its_option(
    folder: Path, option: str, column: str
) -> None:
    result = run(
        "policy", "evaluate", str(folder / "shown.csv"), *PROBABILITY, "--target", "p_new",
        option, column,
    )  # fmt: skip

    assert result.exit_code == 3
    assert f"there is no column '{column}' for {option}; the columns are" in result.stderr


def test_a_log_of_one_user_names_the_option_that_helps(folder: Path) -> None:
    text = (folder / "shown.csv").read_text().splitlines()
    path = folder / "short.csv"
    path.write_text("\n".join(text[:4]) + "\n")
    result = run("policy", "evaluate", str(path), *PROBABILITY, "--target", "p_new")

    assert result.exit_code == 2
    assert "the log has 1. Use a longer log." in result.stderr
    assert "pass --cluster request" in result.stderr


def test_a_file_of_numbers_without_a_header_is_told_so(folder: Path) -> None:
    path = folder / "bare.csv"
    path.write_text("0,1,0,1\n0,1,1,2\n")
    result = run("validate", str(path), "--impressions")

    assert result.exit_code == 3
    assert "If the file has no header line, pass --names" in result.stderr


def test_validate_says_that_a_contradicted_log_gives_no_intervals(folder: Path) -> None:
    path = str(folder / "shown.csv")
    right = run("validate", path, "--impressions", *PROBABILITY)
    wrong = run(
        *("validate", path, "--impressions", "--probability", "p", "--probability-is", "marginal")
    )

    assert "can be used as a log of impressions." in right.stdout
    assert "probabilities of another kind" in wrong.stdout
    assert "can be read, but values of policies from it would have no intervals." in " ".join(
        wrong.stdout.split()
    )


def test_an_examination_curve_can_be_estimated_from_the_log(tmp_path: Path) -> None:
    log = unskew.simulate_impressions(400, logging="rankers", n_rankers=3, random_state=2).log
    columns = {
        "request_id": log.request.tolist(),
        "user_id": log.user.tolist(),
        "item_id": log.item.tolist(),
        "position": log.position.tolist(),
        "click": log.reward.tolist(),
        "reversed": (4 - log.position).tolist(),
    }
    path = str(tmp_path / "rankers.csv")
    write_table(columns, path)
    arguments = ("policy", "evaluate", path, "--ranking", "reversed", "--estimate-examination")
    record = json.loads(run(*arguments, "--json").stdout)

    shown = unskew.Impressions.from_frame(pd.DataFrame(columns))
    expected = unskew.evaluate_policies(
        shown,
        {"reversed": TargetRanking("reversed")},
        examination=unskew.PositionBias().fit(shown),
    )
    assert record["estimators"] == ["pbm"]
    assert record["rows"][1]["std_error"] == pytest.approx(expected.value("reversed").std_error)
    assert "include the error of the examination curve" in " ".join(record["notes"])
    both = run(*arguments, "--examination", "1,0.5,0.3")
    assert both.exit_code == 2
    assert "gives the curve that --estimate-examination estimates. Pass one" in both.stderr
    duckdb = run(*arguments, "--reader", "duckdb")
    assert "--estimate-examination needs the log" in duckdb.stderr
    by_item = json.loads(run(*arguments, "--cell", "item", "--json").stdout)
    coarse = unskew.evaluate_policies(
        shown,
        {"reversed": TargetRanking("reversed")},
        examination=unskew.PositionBias(cell=("item",)).fit(shown),
    )
    assert by_item["rows"][1]["estimate"] == pytest.approx(coarse.value("reversed").estimate)
    unused = run(*arguments[:-1], "--examination", "1,0.5,0.3", "--cell", "item")
    assert unused.exit_code == 2
    assert "Pass --estimate-examination, or" in unused.stderr


@pytest.mark.parametrize("reader", ["memory", "duckdb"])
def test_clicks_may_be_true_and_false(tmp_path: Path, columns: Columns, reader: str) -> None:
    """So pandas writes a column of booleans."""
    numbers = {}
    for name, values in {
        "as numbers": columns["clicked"],
        "as words": ["True" if clicked else "false" for clicked in columns["clicked"]],
    }.items():
        path = tmp_path / "shown.csv"
        write_table(columns | {"clicked": values}, str(path))
        result = run(
            *("policy", "evaluate", str(path), *PROBABILITY, "--target", "new=p_new"),
            *("--reader", reader, "--json"),
        )
        assert result.exit_code == 0, result.output
        numbers[name] = json.loads(result.stdout)["rows"]

    # DuckDB adds in an order of its own, so the last digits of sums can differ
    for words, others in zip(numbers["as words"], numbers["as numbers"], strict=True):
        for key, value in others.items():
            is_number = isinstance(value, float)
            assert words[key] == (pytest.approx(value, rel=1e-9) if is_number else value)


def test_other_words_are_no_clicks(tmp_path: Path, columns: Columns) -> None:
    words = ["yes", *("True" for _ in columns["clicked"][1:])]
    path = tmp_path / "shown.csv"
    write_table(columns | {"clicked": words}, str(path))

    result = run("validate", str(path), "--impressions")

    assert "line 2, column 'clicked': found 'yes', expected a number" in result.output
    assert "An item without a click has the reward 0: fill" in result.output


def test_validation_lists_all_columns_that_are_missing(tmp_path: Path, columns: Columns) -> None:
    path = tmp_path / "shown.csv"
    write_table(
        {f"my_{name}": values for name, values in columns.items()} | {"pos": columns["position"]},
        str(path),
    )

    result = run("validate", str(path), "--impressions", "--user", "my_user_id")

    assert "cannot be used as a log of impressions: 3 problems" in " ".join(result.output.split())
    for role in ("request", "item", "reward"):
        assert f"no column looks like the {role}" in result.output
