"""``unskew watch``: a log that grows, a process that is killed, gates, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from unskew.cli import main
from unskew.io.files import write_table

HEADER = "user_id,item_id,rating,propensity,old,new"
MODELS = ("--prediction", "old", "--prediction", "new", "--metric", "mae")


@pytest.fixture(scope="module")
def lines() -> list[str]:
    """2,000 arrivals, of which about 30 % are rated; the second model is better."""
    rng = np.random.default_rng(0)
    rating = rng.integers(1, 6, 2_000)
    propensity = np.array([0.1, 0.15, 0.2, 0.4, 0.6])[rating - 1]
    old, new = (rating + rng.normal(0, sd, 2_000) for sd in (1.5, 0.5))
    shown = np.where(rng.random(2_000) < propensity, rating.astype(str), "")
    return [
        f"{row % 500},{row},{shown[row]},{propensity[row]},{old[row]:.3f},{new[row]:.3f}"
        for row in range(2_000)
    ]


def write(path: Path, lines: list[str], *, only_rated: bool = True) -> None:
    kept = [line for line in lines if not only_rated or line.split(",")[2]]
    path.write_text("\n".join([HEADER, *kept]) + "\n")


def run(folder: Path, *options: str, models: tuple[str, ...] = MODELS) -> Result:
    arguments = ["watch", str(folder / "log.csv"), "--state", str(folder / "state.json")]
    return CliRunner().invoke(main, [*arguments, *models, *options])


def read_json(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout, parse_constant=pytest.fail)


def test_a_growing_log_gives_the_numbers_of_the_whole_log(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "grows").mkdir()
    (tmp_path / "whole").mkdir()
    for size in (30, 400, 401, 2_000):
        write(tmp_path / "grows" / "log.csv", lines[:size])
        result = run(tmp_path / "grows", "--planned-size", "500", "--json")
    write(tmp_path / "whole" / "log.csv", lines)
    whole = run(tmp_path / "whole", "--planned-size", "500", "--json")

    assert read_json(result) == read_json(whole)
    assert read_json(result)["look"]["n_rows"] == sum(bool(line.split(",")[2]) for line in lines)
    again = run(tmp_path / "grows", "--json")  # nothing is new, the planned size is in the state
    assert read_json(again) == read_json(whole)


def test_a_killed_look_changes_nothing(
    tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "log.csv", lines[:1_000])
    run(tmp_path, "--planned-size", "500")
    before = (tmp_path / "state.json").read_bytes()
    write(tmp_path / "log.csv", lines)

    def kill(self: Path, target: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kill)
        assert run(tmp_path).exit_code != 0
    assert (tmp_path / "state.json").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.csv", "state.json"]

    resumed = read_json(run(tmp_path, "--json"))
    (tmp_path / "state.json").unlink()
    assert resumed == read_json(run(tmp_path, "--planned-size", "500", "--json"))


def test_tables_for_people(tmp_path: Path, lines: list[str]) -> None:
    write(tmp_path / "log.csv", lines[:300])
    early = run(tmp_path, "--planned-size", "500")
    assert early.exit_code == 0
    assert "too early: limits begin" in " ".join(early.stdout.split())
    write(tmp_path / "log.csv", lines)
    text = run(tmp_path).stdout

    assert "limits of 95% at all looks, planned size 500 rows" in text
    assert "first minus second" in text
    assert "mae of old minus new by snips" in text


def test_gates_fire_on_proof_alone(tmp_path: Path, lines: list[str]) -> None:
    write(tmp_path / "log.csv", lines[:100])
    gate = ("--fail-if", "compare.snips.mae.ci_low>0")
    early = run(tmp_path, "--planned-size", "500", *gate)
    assert early.exit_code == 0
    assert "too early for confidence limits, so 1 of 1 conditions of --fail-if" in early.stderr
    write(tmp_path / "log.csv", lines)

    tripped = run(tmp_path, *gate)
    assert tripped.exit_code == 4
    assert "gate tripped: compare.snips.mae.ci_low>0" in tripped.stderr
    assert (
        run(tmp_path, "--fail-if", "snips.mae.ci_low.new>2", "--fail-if", "ess<100").exit_code == 0
    )
    for text in ("snips.mae.ci_high>0.1", "snips.mae.estimate>0.1", "compare.snips.mae.p_value>1"):
        refused = run(tmp_path, "--fail-if", text)
        assert refused.exit_code == 2
        assert "can trip at one of many looks" in refused.stderr


def test_arrivals_without_a_rating_add_ips_and_exact_limits(
    tmp_path: Path, lines: list[str]
) -> None:
    write(tmp_path / "log.csv", lines, only_rated=False)
    refused = run(tmp_path, "--planned-size", "2000")
    assert refused.exit_code == 3
    assert "found nothing, expected a number" in refused.stderr
    options = ("--has-unobserved", "--max-weight", "10", "--max-delta", "9")
    result = read_json(run(tmp_path, "--planned-size", "2000", *options, "--json"))

    assert result["estimators"] == ["snips", "ips", "exact"]
    assert result["look"]["n_rows"] == 2_000
    assert result["n_observed"] == sum(bool(line.split(",")[2]) for line in lines)


def test_exact_limits_exist_from_the_first_row(tmp_path: Path, lines: list[str]) -> None:
    options = ("--has-unobserved", "--max-weight", "10", "--max-delta", "9")
    gates = ("--fail-if", "exact.mae.ci_high<90", "--fail-if", "snips.mae.ci_low>0")
    write(
        tmp_path / "log.csv",
        [line for line in lines if not line.split(",")[2]][:3],
        only_rated=False,
    )
    nothing = run(tmp_path, "--planned-size", "2000", *options, *gates)
    assert nothing.exit_code == 0
    assert "2 of 2 conditions" in nothing.stderr

    write(tmp_path / "log.csv", lines[:40], only_rated=False)
    (tmp_path / "state.json").unlink()
    page = str(tmp_path / "page.html")
    early = run(tmp_path, "--planned-size", "2000", *options, *gates, "-o", page)
    assert early.exit_code == 4
    assert "gate tripped: exact.mae.ci_high<90" in early.stderr
    assert "1 of 2 conditions of --fail-if were not tested" in early.stderr
    assert "too early" in early.stdout
    assert "Too early" in Path(page).read_text()


def test_the_page_and_its_json(tmp_path: Path, lines: list[str]) -> None:
    write(tmp_path / "log.csv", lines)
    page = tmp_path / "watch.html"
    options = ("--planned-size", "500", "--universe", "500x2000", "--unit", "user")
    assert run(tmp_path, *options, "-o", str(page)).exit_code == 0
    text = page.read_text()
    assert "new is better than old, if the propensities are right" in text
    assert "All rows of a user count as one unit" in text

    write(tmp_path / "log.csv", lines[:100])
    (tmp_path / "state.json").unlink()
    assert run(tmp_path, *options, "-o", str(page)).exit_code == 0
    assert "Too early: an effective sample size of" in page.read_text()


def test_bad_rows_are_refused_or_dropped(tmp_path: Path, lines: list[str]) -> None:
    bad = [*lines[:600], "7,7,4,0,1,1", *lines[600:]]
    write(tmp_path / "log.csv", bad)
    refused = run(tmp_path, "--planned-size", "500")
    assert refused.exit_code == 3
    assert "expected a propensity, above 0 and up to 1" in refused.stderr
    assert not (tmp_path / "state.json").exists()
    dropped = run(tmp_path, "--planned-size", "500", "--on-bad", "drop", "--json")
    assert "dropped 1 of" in dropped.stderr
    write(tmp_path / "log.csv", lines)
    (tmp_path / "state.json").unlink()
    clean = run(tmp_path, "--planned-size", "500", "--json")

    assert read_json(dropped)["look"] == read_json(clean)["look"]


def test_an_unfinished_last_line_waits(tmp_path: Path, lines: list[str]) -> None:
    write(tmp_path / "log.csv", lines[:500])
    with (tmp_path / "log.csv").open("a") as file:
        file.write("3,9,5")
    result = run(tmp_path, "--planned-size", "500")

    assert result.exit_code == 0
    assert "has no line end" in result.stderr


def test_a_plan_must_not_change(tmp_path: Path, lines: list[str]) -> None:
    write(tmp_path / "log.csv", lines)
    assert run(tmp_path).exit_code == 2  # no planned size
    run(tmp_path, "--planned-size", "500")

    changed = run(tmp_path, "--planned-size", "5000")
    assert changed.exit_code == 2
    assert "was started with --planned-size 500, not with --planned-size 5000" in changed.stderr
    other = run(tmp_path, models=("--prediction", "old", "--metric", "mae"))
    assert other.exit_code == 2
    assert "A plan that changes" in other.stderr
    column = run(tmp_path, "--rating", "rating")
    assert column.exit_code == 2
    assert "A plan that changes" in column.stderr
    log = run(tmp_path, "--universe", "log")
    assert "does not have all of its users and items yet" in log.stderr


def test_a_log_without_rows_and_a_log_that_was_replaced(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "log.csv").write_text(HEADER + "\n")
    empty = run(tmp_path, "--planned-size", "500")
    assert empty.exit_code == 3
    assert "has no row to count yet" in empty.stderr
    write(tmp_path / "log.csv", lines)
    run(tmp_path, "--planned-size", "500")
    write(tmp_path / "log.csv", lines[5:])

    replaced = run(tmp_path)
    assert replaced.exit_code == 3
    assert "is not the file that was counted before" in replaced.stderr


def test_a_parquet_log_is_read_as_a_whole(tmp_path: Path, lines: list[str]) -> None:
    pytest.importorskip("pyarrow")
    rows = [line.split(",") for line in lines if line.split(",")[2]]
    columns = dict(zip(HEADER.split(","), zip(*rows, strict=True), strict=True))
    numbers = {name: [float(value) for value in values] for name, values in columns.items()}
    path, state = tmp_path / "log.parquet", tmp_path / "state.json"
    arguments = ["watch", str(path), "--state", str(state), *MODELS, "--json"]
    for size in (200, len(rows)):
        write_table({name: values[:size] for name, values in numbers.items()}, str(path))
        result = CliRunner().invoke(main, [*arguments, "--planned-size", "500"])
    write(tmp_path / "log.csv", lines)
    state.unlink()

    assert (
        read_json(result)["look"]
        == read_json(run(tmp_path, "--planned-size", "500", "--json"))["look"]
    )
