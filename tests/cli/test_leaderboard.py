from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import unskew
from unskew.cli import main
from unskew.model_selection.learners import TrialSetup

WORLD = unskew.simulate(n_users=40, n_items=30, density=0.25, alpha=0.6, random_state=3)
SIZE = ["--universe", "40x30"]
FEW = ["--learner", "Mean rating", "--learner", "Item mean", "--seeds", "1"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A log with a column of propensities, and random ratings."""
    log, rng = WORLD.log, np.random.default_rng(0)
    rows = zip(log.user, log.item, log.rating, WORLD.propensities.values, strict=True)
    lines = [f"{u},{i},{r:g},{p:.6f}" for u, i, r, p in rows]
    (tmp_path / "log.csv").write_text("user_id,item_id,rating,propensity\n" + "\n".join(lines))
    cells = rng.choice(WORLD.truth.size, 200, replace=False)
    lines = [f"{c // 30},{c % 30},{WORLD.truth.ravel()[c]:g}" for c in cells]
    (tmp_path / "random.csv").write_text("user_id,item_id,rating\n" + "\n".join(lines))
    return str(tmp_path / "log.csv"), str(tmp_path / "random.csv")


def test_ones_own_log_with_a_random_test(files: tuple[str, str], tmp_path: Path) -> None:
    log, test = files
    page = tmp_path / "page.html"
    command = ["leaderboard", log, "--test", test, "--propensity", "propensity", *SIZE, *FEW]
    shown = CliRunner().invoke(main, [*command, "-o", str(page)])
    result = CliRunner().invoke(main, [*command, "--json", "-q"])

    assert shown.exit_code == 0, shown.output
    assert "Leaderboard:" in shown.output
    assert "clean" in shown.output
    assert "Item mean" in page.read_text()
    record = json.loads(result.stdout)
    assert record["kind"] == "leaderboard"
    assert {row["protocol"] for row in record["rows"]} == {"clean", "defaults", "paper", "leaky"}
    assert "200 ratings in" in record["description"]


def test_without_propensities_the_sample_is_used(files: tuple[str, str]) -> None:
    log, test = files
    result = CliRunner().invoke(
        main, ["leaderboard", log, "--test", test, *SIZE, *FEW, "--json", "-q"]
    )

    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["protocols"]) == {"sample", "leaky"}


def test_a_simulated_world(tmp_path: Path) -> None:
    table = tmp_path / "board.csv"
    result = CliRunner().invoke(main, ["leaderboard", "simulation", *FEW, "-o", str(table)])

    assert result.exit_code == 0, result.output
    assert table.read_text().startswith("protocol,metric,learner,mean")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["coatt"], "'coatt' is none of coat, movielens"),
        (["simulation", "--test", __file__], "--test is for a log file"),
        (["simulation", "--protocol", "clear"], "unknown protocol 'clear'"),
        (["simulation", "--learner", "MFF"], "unknown learner 'MFF'"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["leaderboard", *arguments])

    assert result.exit_code == 2
    assert message in result.output


def test_without_a_terminal_there_is_a_line_after_each_seed(files: tuple[str, str]) -> None:
    log, test = files
    command = ["leaderboard", log, "--test", test, *SIZE, *FEW[:4], "--seeds", "2"]
    shown = CliRunner().invoke(main, command)
    silent = CliRunner().invoke(main, [*command, "-q"])

    lines = [line for line in shown.stderr.splitlines() if line.startswith("leaderboard: ")]
    assert lines[0] == "leaderboard: 2 seeds, 2 learners each"
    assert re.fullmatch(
        r"leaderboard: seed 1 of 2, 2 of 2 learners; \d+ s so far, about \d+ s left", lines[1]
    )
    assert re.fullmatch(r"leaderboard: seed 2 of 2, 2 of 2 learners; \d+ s so far", lines[2])
    assert "leaderboard:" not in silent.stderr


def test_an_interrupt_prints_and_writes_the_finished_seeds(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seeds = TrialSetup.run, []

    def interrupt(setup: TrialSetup, learners: Any) -> Any:
        seeds.append(setup.random_state)
        if len(seeds) > 1:
            raise KeyboardInterrupt
        return run(setup, learners)

    monkeypatch.setattr(TrialSetup, "run", interrupt)
    log, test = files
    page = tmp_path / "page.html"
    command = ["leaderboard", log, "--test", test, *SIZE, *FEW[:4], "--seeds", "3"]
    result = CliRunner().invoke(main, [*command, "-o", str(page)])

    assert result.exit_code == 1
    assert "Aborted!" in result.stderr
    assert "1 of 3 seeds" in result.stdout
    assert "After 1 of 3 seeds" in page.read_text()
