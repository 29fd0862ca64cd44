from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from unskew.cli import main
from unskew.paper.figure3 import reproduce_figure3
from unskew.paper.reproduction import Reproduction
from unskew.paper.rmse_figures import reproduce_figure4

ReplaceExperiment = Callable[[str, Callable[..., Reproduction]], None]


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs with or without data runs without."""
    monkeypatch.delenv("UNSKEW_DATA", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["reproduce", *arguments])


def rows_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return rows


def assert_readable(text: str) -> None:
    """Tables fit 80 columns, prose into a pipe 100, and no line ends in blanks."""
    for line in text.splitlines():
        assert line == line.rstrip()
        assert len(line) <= (80 if re.search("±|─|  ", line) else 100), line


def test_figure4_in_all_its_forms(
    replace_experiment: ReplaceExperiment, movielens_folder: Path, tmp_path: Path
) -> None:
    replace_experiment("figure4", partial(reproduce_figure4, sample_sizes=(100, 1000)))
    shown = run("figure4", "--trials", "2", "--data", str(movielens_folder), "-o", str(tmp_path))
    rows = rows_of(run("figure4", "--trials", "2", "--data", str(movielens_folder), "--json"))

    assert shown.exit_code == 0, shown.stderr
    assert "figure4, 2 draws, seed 0" in shown.stdout
    assert "Truth: MovieLens 100K, completed by" in " ".join(shown.stdout.split())
    assert_readable(shown.stdout)
    assert {path.name for path in tmp_path.iterdir()} == {
        "figure4.json",
        "figure4.png",
        "figure4.svg",
    }
    assert json.loads((tmp_path / "figure4.json").read_text())["rows"] == rows
    assert len(rows) == 2 * 2 * 5
    assert rows[0].keys() == {
        "metric",
        "sample_size",
        "estimator",
        "ours",
        "ci_low",
        "ci_high",
        "paper",
    }


@pytest.mark.parametrize(("panel", "n_curves"), [("right", 3 * 2), ("both", 2 * 6 + 3 * 2)])
def test_the_other_panels_of_figure3(
    monkeypatch: pytest.MonkeyPatch,
    replace_experiment: ReplaceExperiment,
    movielens_folder: Path,
    tmp_path: Path,
    panel: str,
    n_curves: int,
) -> None:
    replace_experiment(
        "figure3", partial(reproduce_figure3, l2=(2, 5), sample_sizes=(100, 100_000))
    )
    monkeypatch.setattr("unskew.paper.figure3.N_FACTORS", 2)
    shown = run(
        "figure3",
        "--panel",
        panel,
        "--trials",
        "2",
        "--data",
        str(movielens_folder),
        "-o",
        str(tmp_path),
    )

    assert shown.exit_code == 0, shown.stderr
    assert "figure3, 2 trials, seed 0" in shown.stdout
    assert_readable(shown.stdout)
    assert {path.name for path in tmp_path.iterdir()} == {
        "figure3.json",
        "figure3.png",
        "figure3.svg",
    }
    rows = json.loads((tmp_path / "figure3.json").read_text())["rows"]
    assert len([row for row in rows if "variant" not in row]) == n_curves


def test_an_unknown_panel_is_named() -> None:
    result = run("figure3", "--panel", "middle")

    assert result.exit_code == 2
    assert "'middle' is not one of 'left', 'right', 'both'" in result.stderr


def test_figure4_has_50_trials_and_takes_the_folder(
    replace_experiment: ReplaceExperiment, tmp_path: Path
) -> None:
    asked: list[tuple[int, str | None]] = []

    def stub(*, data: str | None, trials: int, **_: object) -> Reproduction:
        asked.append((trials, data))
        return Reproduction("figure4", trials, 0, [], {"n": [trials]}, "")

    replace_experiment("figure4", stub)
    run("figure4", "--data", str(tmp_path))
    run("figure4")

    assert asked == [(50, str(tmp_path)), (50, None)]


def test_all_has_everything_in_the_order_of_the_paper(
    replace_experiment: ReplaceExperiment, coat_folder: Path
) -> None:
    names = ("toy", "table1", "figure2", "figure3", "figure4", "table2")
    for name in names:
        replace_experiment(
            name,
            lambda name=name, trials=0, **_: Reproduction(
                name, trials, 0, [{"asked": trials}], {"n": [trials]}, ""
            ),
        )
    result = run("all", "--json", "--data", str(coat_folder))

    assert [(row["experiment"], row["asked"]) for row in rows_of(result)] == list(
        zip(names, (50, 50, 50, 30, 50, 1), strict=True)
    )
    assert "table1, figure2, figure3, figure4 run without data" in result.stderr


def test_one_draw_of_figure4_is_refused() -> None:
    result = run("figure4", "--trials", "1")

    assert result.exit_code == 2
    assert "a standard deviation over draws needs at least 2 of them" in result.stderr
