from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from unskew import __version__
from unskew.cli import COMMANDS, main
from unskew.errors import BadRatingError, MissingExtraError, UnknownNameError
from unskew.paper.figure3 import reproduce_figure3
from unskew.paper.reproduction import Reproduction
from unskew.paper.table1 import reproduce_table1
from unskew.paper.table2 import reproduce_table2
from unskew.paper.table2_systems import SYSTEMS
from unskew.paper.toy import reproduce_toy

ReplaceExperiment = Callable[[str, Callable[..., Reproduction]], None]
ESTIMATORS = ("naive", "ips", "snips")
IN_A_PROCESS = [sys.executable, "-c", "from unskew.cli import main; main()"]


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs with or without data runs without."""
    monkeypatch.delenv("UNSKEW_DATA", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def command_paths() -> list[list[str]]:
    """Every command there is, those inside others too, and the group itself."""
    inner = [
        [name, each]
        for name, declaration in COMMANDS.items()
        if isinstance(declaration.target, click.Group)
        for each in declaration.target.commands
    ]
    return [[], *sorted([*([name] for name in COMMANDS), *inner])]


# unskew


def test_version() -> None:
    assert run("--version").stdout.split() == ["unskew,", "version", __version__]


@pytest.mark.parametrize("path", command_paths(), ids=" ".join)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_every_command_helps_with_an_example(path: list[str], option: str) -> None:
    result = run(*path, option)

    assert result.exit_code == 0
    assert "Example:\n" in result.stdout
    assert f"unskew {' '.join(path)}".strip() in result.stdout.split("Example:")[1]


@pytest.mark.parametrize("path", command_paths()[1:], ids=" ".join)
def test_the_examples_parse(
    path: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = [
        line.strip()
        for line in run(*path, "--help").stdout.splitlines()
        if line.strip().startswith("unskew ")
    ]

    assert shown
    for line in shown:
        assert len(line) <= 78, line
        _, *arguments = shlex.split(line)
        for name in re.findall(r"[\w.]+\.(?:csv|json|unskew|parquet|data)\b", line):
            Path(name).touch()
        command: click.Command = main
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), arguments.pop(0))  # type: ignore[assignment]
        command.parse_args(click.Context(command), arguments)


def test_help_comes_quickly_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from unskew.cli import main; main(['--help'], standalone_mode=False); "
        "print({'numpy', 'numba', 'scipy', 'sklearn', 'rich', 'pyarrow'} & set(sys.modules))"
    )

    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1]
        == "set()"
    )


def test_completion_knows_commands_options_and_metrics() -> None:
    def complete(words: str, place: int) -> str:
        environment = {
            "_UNSKEW_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(place),
        }
        return CliRunner().invoke(main, [], env=environment, prog_name="unskew").output

    assert "plain,evaluate" in complete("unskew ev", 1)
    assert "plain,--universe" in complete("unskew evaluate --uni", 2)
    assert "plain,snips" in complete("unskew evaluate --estimator sn", 3)


@pytest.mark.parametrize(
    "arguments",
    [
        ("reproduce", "table9"),
        ("reproduce", "toy", "--trials", "1"),
        ("reproduce", "all", "--trials", "1"),
        ("reproduce", "table2", "--trials", "0"),
        ("reproduce", "toy", "--trials", "many"),
        ("reproduce",),
        ("demo", "--sed", "1"),
        ("demo", "--seed", "-1"),
        ("reproduce", "toy", "--seed", "-1"),
        ("dmeo",),
    ],
    ids=" ".join,
)
def test_a_usage_error_exits_with_2_and_says_so_on_standard_error(
    arguments: tuple[str, ...],
) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert "rror: " in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadRatingError("3 of 9 ratings are NaN. Drop them."), 3),
        (UnknownNameError("metric", "mape", ["mse", "mae"]), 2),
        (MissingExtraError("matplotlib", extra="report", purpose="drawing"), 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_our_errors_are_one_line_and_an_exit_code(
    replace_experiment: ReplaceExperiment, error: Exception, code: int
) -> None:
    def fail(**_: object) -> Reproduction:
        raise error

    replace_experiment("toy", fail)
    result = run("reproduce", "toy")

    assert result.exit_code == code
    assert result.stderr == f"error: {error}\n"
    assert result.stdout == ""
    verbose = run("-v", "reproduce", "toy")
    assert verbose.exit_code == code
    assert "Traceback" in verbose.stderr
    assert verbose.stderr.endswith(f"error: {error}\n")


def test_a_bug_is_not_dressed_up(replace_experiment: ReplaceExperiment) -> None:
    def fail(**_: object) -> Reproduction:
        raise RuntimeError

    replace_experiment("toy", fail)

    assert isinstance(run("reproduce", "toy").exception, RuntimeError)


# unskew demo


def test_the_demo_starts_within_five_seconds_and_ends_within_a_minute() -> None:
    started = time.monotonic()
    with subprocess.Popen(
        [*IN_A_PROCESS, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        first_seen = time.monotonic() - started
        rest, errors = process.communicate(timeout=60)

    assert process.returncode == 0
    assert first_line.startswith("Simulating 943 users and 1,682 films")
    assert first_seen < 5
    assert errors == ""
    assert all(
        name in rest
        for name in ("truth", "naive", "ips", "snips", "optimist", "realist", "mae", "mse")
    )
    assert re.search(r"^naive +-0\.\d+ ± 0\.\d+ +optimist$", rest, re.MULTILINE)
    assert re.search(r"^snips +\+0\.\d+ ± 0\.\d+ +realist$", rest, re.MULTILINE)
    assert "± is half of a 95 % interval." in rest
    paragraph = " ".join(rest.split("\n\n")[-1].split())
    assert paragraph.startswith("The optimist overrates what people dislike.")
    assert "In truth the realist is better by" in paragraph
    assert_readable(rest)


def assert_readable(text: str) -> None:
    """Tables fit 80 columns, prose into a pipe 100, and no line ends in blanks."""
    for line in text.splitlines():
        assert line == line.rstrip()
        assert len(line) <= (80 if re.search("±|─|  ", line) else 100)


def test_the_demo_has_a_seed() -> None:
    one, again, other = (run("demo", "--seed", seed).stdout for seed in ("1", "1", "2"))

    assert one == again != other


# unskew reproduce


def rows_of(result: Result, name: str, trials: int, seed: int = 0) -> list[dict[str, Any]]:
    """Standard output is one JSON object and nothing else."""
    assert result.exit_code == 0, result.stderr
    parsed = json.loads(result.stdout)
    assert parsed.keys() >= {"name", "trials", "seed", "rows"}
    assert (parsed["name"], parsed["trials"], parsed["seed"]) == (name, trials, seed)
    rows: list[dict[str, Any]] = parsed["rows"]
    return rows


def test_toy_as_json() -> None:
    rows = rows_of(run("reproduce", "toy", "--json", "--trials", "5", "--seed", "3"), "toy", 5, 3)

    assert [(row["prediction"], row["metric"]) for row in rows] == [
        ("Y1", "mae"),
        ("Y2", "mae"),
        ("Y3", "cg@10"),
    ]
    for row in rows:
        assert isinstance(row["true"], float)
        assert all(row[name].keys() == {"mean", "std"} for name in ESTIMATORS)
        assert row["paper"] is None
    assert rows == json.loads(reproduce_toy(trials=5, random_state=3).to_json())["rows"]


def test_table1_as_json_is_the_same_in_another_process() -> None:
    command = [*IN_A_PROCESS, "reproduce", "table1", "--json", "--trials", "2"]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    rows = json.loads(finished.stdout)["rows"]

    assert rows == json.loads(reproduce_table1(trials=2).to_json())["rows"]
    assert len(rows) == 10
    for row in rows:
        assert row.keys() == {"prediction", "metric", "true", *ESTIMATORS, "paper"}
        assert row["paper"].keys() == {"true", *ESTIMATORS}
        for values in (row, row["paper"]):
            assert all(values[name].keys() == {"mean", "std"} for name in ESTIMATORS)
    assert {row["prediction"] for row in rows} == {
        "REC_ONES",
        "REC_FOURS",
        "ROTATE",
        "SKEWED",
        "COARSENED",
    }
    assert {row["metric"] for row in rows} == {"mae", "dcg@50"}


def test_figure2_as_json_and_as_files(tmp_path: Path) -> None:
    result = run(
        "reproduce", "figure2", "--json", "--trials", "2", "-o", str(tmp_path / "new" / "folder")
    )
    rows = rows_of(result, "figure2", 2)

    assert len(rows) == 2 * 6 * 3
    for row in rows:
        assert row.keys() == {"metric", "alpha", "estimator", "ours", "ci_low", "ci_high", "paper"}
    written = {path.name: path for path in (tmp_path / "new" / "folder").iterdir()}
    assert written.keys() == {"figure2.json", "figure2.png", "figure2.svg"}
    assert json.loads(written["figure2.json"].read_text())["rows"] == rows
    assert written["figure2.png"].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in written["figure2.svg"].read_text()
    assert result.stderr.count("wrote ") == 3


def test_toy_as_files(tmp_path: Path) -> None:
    result = run("reproduce", "toy", "--trials", "2", "-o", str(tmp_path))

    assert result.exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"toy.json", "toy.png", "toy.svg"}
    assert "wrote" not in result.stdout


def test_numbers_are_written_even_where_figures_cannot_be_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("reproduce", "toy", "--trials", "2", "-o", str(tmp_path))

    assert result.exit_code == 1
    assert "pip install 'unskew[report]'" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["toy.json"]


def test_a_table_for_people() -> None:
    result = run("reproduce", "toy", "--trials", "5")

    assert result.exit_code == 0
    assert "The movie lovers of Figure 1" in result.stdout
    assert "toy, 5 draws, seed 0" in result.stdout
    assert "Mean ± standard deviation over draws." in result.stdout
    assert "the naive average over the log says the opposite" in " ".join(result.stdout.split())
    assert_readable(result.stdout)
    assert result.stderr == ""


@pytest.mark.parametrize("name", ["table1", "figure2"])
def test_other_tables_are_readable_too(name: str) -> None:
    result = run("reproduce", name, "--trials", "2")

    assert result.exit_code == 0
    assert f"{name}, 2 draws, seed 0" in result.stdout
    assert_readable(result.stdout)


def test_the_module_runs_and_an_ascii_output_is_no_reason_to_fail() -> None:
    command = [sys.executable, "-m", "unskew", "reproduce", "toy", "--trials", "2"]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    finished = subprocess.run(
        command, capture_output=True, env=environment, timeout=120, check=True
    )
    text = finished.stdout.decode("ascii")

    assert "Mean ? standard deviation over draws." in text
    assert "\n-----" in text


@pytest.fixture
def stubs(replace_experiment: ReplaceExperiment) -> None:
    """Experiments that only say how many trials they were asked for."""
    for name in ("table1", "figure2", "figure3", "figure4", "table2"):
        replace_experiment(
            name,
            lambda name=name, trials=0, **_: Reproduction(
                name, trials, 0, [{"asked": trials}], {"n": [trials]}, ""
            ),
        )


@pytest.mark.usefixtures("stubs")
def test_all_experiments_share_one_object(coat_folder: Path) -> None:
    result = run("reproduce", "all", "--json", "--trials", "2", "--data", str(coat_folder))

    assert [row["experiment"] for row in rows_of(result, "all", 2)] == ["toy"] * 3 + [
        "table1",
        "figure2",
        "figure3",
        "figure4",
        "table2",
    ]
    assert result.stderr == (
        "table1, figure2, figure3, figure4 run without data: "
        f"{coat_folder} has no MovieLens 100K.\n"
    )


@pytest.mark.usefixtures("stubs")
def test_all_leaves_out_what_it_has_no_data_for_and_says_so(tmp_path: Path) -> None:
    result = run("reproduce", "all", "--json", "--trials", "2", "--data", str(tmp_path))

    assert [row["experiment"] for row in rows_of(result, "all", 2)] == ["toy"] * 3 + [
        "table1",
        "figure2",
        "figure3",
        "figure4",
    ]
    assert result.stderr.startswith("table2 is left out: Coat Shopping was not found.")


@pytest.mark.usefixtures("stubs")
@pytest.mark.parametrize(
    ("name", "trials"), [("table1", 50), ("figure2", 50), ("figure3", 30), ("table2", 1)]
)
def test_each_experiment_has_its_own_number_of_trials(name: str, trials: int) -> None:
    assert rows_of(run("reproduce", name, "--json"), name, trials) == [{"asked": trials}]


@pytest.mark.parametrize("name", ["table1", "figure2", "figure3"])
def test_data_reach_the_experiments_that_can_do_without(
    name: str, replace_experiment: ReplaceExperiment, tmp_path: Path
) -> None:
    asked: list[str | None] = []

    def stub(*, data: str | None, trials: int, **_: object) -> Reproduction:
        asked.append(data)
        return Reproduction(name, trials, 0, [], {"n": [trials]}, "")

    replace_experiment(name, stub)
    run("reproduce", name, "--data", str(tmp_path))
    run("reproduce", name)

    assert asked == [str(tmp_path), None]


@pytest.mark.usefixtures("stubs")
def test_all_gives_every_experiment_the_folder_that_has_its_data(movielens_folder: Path) -> None:
    result = run("reproduce", "all", "--json", "--trials", "2", "--data", str(movielens_folder))

    assert rows_of(result, "all", 2)
    assert result.stderr.startswith("table2 is left out: Coat Shopping was not found.")
    assert "run without data" not in result.stderr


def test_table1_without_the_data_it_is_given_says_what_the_reader_says(tmp_path: Path) -> None:
    result = run("reproduce", "table1", "--data", str(tmp_path))

    assert result.exit_code == 3
    assert "MovieLens 100K was not found." in result.stderr
    assert "https://grouplens.org/datasets/movielens/100k/" in result.stderr


def test_figure3_in_all_its_forms(
    monkeypatch: pytest.MonkeyPatch,
    replace_experiment: ReplaceExperiment,
    movielens_folder: Path,
    tmp_path: Path,
) -> None:
    replace_experiment("figure3", partial(reproduce_figure3, l2=(2, 5)))
    monkeypatch.setattr("unskew.paper.figure3.N_FACTORS", 2)
    shown = run(
        "reproduce",
        "figure3",
        "--trials",
        "2",
        "--data",
        str(movielens_folder),
        "-o",
        str(tmp_path),
    )

    assert shown.exit_code == 0, shown.stderr
    assert "figure3, 2 trials, seed 0" in shown.stdout
    assert "Truth: MovieLens 100K, completed by" in " ".join(shown.stdout.split())
    assert_readable(shown.stdout)
    assert {path.name for path in tmp_path.iterdir()} == {
        "figure3.json",
        "figure3.png",
        "figure3.svg",
    }
    curves = [
        row
        for row in json.loads((tmp_path / "figure3.json").read_text())["rows"]
        if "variant" not in row
    ]
    assert len(curves) == 12
    assert curves[0].keys() == {
        "panel",
        "alpha",
        "model",
        "metric",
        "ours",
        "ci_low",
        "ci_high",
        "paper",
    }


def test_table2_in_all_its_forms(
    monkeypatch: pytest.MonkeyPatch,
    replace_experiment: ReplaceExperiment,
    coat_folder: Path,
    tmp_path: Path,
) -> None:
    few = {"coat": SYSTEMS["coat"][:2], "yahoo": SYSTEMS["yahoo"][:2]}
    small = partial(
        reproduce_table2,
        grid={"l2": (25,), "n_factors": (2,), "offsets": ("regularized",)},
        systems=few,
    )
    replace_experiment("table2", small)
    monkeypatch.setenv("UNSKEW_DATA", str(coat_folder))
    shown = run("reproduce", "table2", "-o", str(tmp_path))
    rows = rows_of(run("reproduce", "table2", "--json"), "table2", 1)

    assert shown.exit_code == 0, shown.stderr
    assert "table2, 1 trial, seed 0" in shown.stdout
    assert_readable(shown.stdout)
    assert {path.name for path in tmp_path.iterdir()} == {"table2.json", "table2.png", "table2.svg"}
    assert [
        (row["model"], row["metric"], row["paper"]) for row in rows if "variant" not in row
    ] == [
        ("MF-IPS", "mse", 1.093),
        ("MF-IPS", "mae", 0.86),
        ("MF-Naive", "mse", 1.202),
        ("MF-Naive", "mae", 0.92),
    ]


def test_table2_without_data_says_what_the_reader_says(tmp_path: Path) -> None:
    result = run("reproduce", "table2", "--data", str(tmp_path / "nowhere"))

    assert result.exit_code == 3
    assert "nowhere: no such folder" in result.stderr
    assert "https://www.cs.cornell.edu/~schnabts/mnar/" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(("quiet", "shows"), [((), True), (("-q",), False)])
def test_progress_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...], shows: bool
) -> None:
    """A terminal is forced on rich, which shows nothing elsewhere."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_INTERACTIVE", "1")
    result = run("reproduce", "toy", "--json", "--trials", "3", *quiet)

    assert len(rows_of(result, "toy", 3)) == 3
    assert ("3/3" in result.stderr) == shows
