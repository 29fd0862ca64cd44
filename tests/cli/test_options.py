"""How messages of the library name options, and how options reach requests."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from command_line import run
from unskew.cli import COMMANDS, main, options
from unskew.cli.options import DeclaredName
from unskew.cli.program import RUNNING_COMMAND, format_option, render_message
from unskew.errors import UsageError
from unskew.workflows import requests


def show(command: str, name: str, value: str | None) -> str:
    """The reference to an argument while a command runs."""
    running: click.Command = COMMANDS[command].target
    with click.Context(running) as context:
        context.meta[RUNNING_COMMAND] = running
        return format_option(name, value)


@pytest.mark.parametrize(
    ("command", "name", "value", "shown"),
    [
        ("evaluate", "universe", "(n_users, n_items)", "--universe UxI"),
        ("evaluate", "universe", "(943, 1682)", "--universe 943x1682"),
        ("evaluate", "universe", "'log'", "--universe log"),
        ("evaluate", "universe", None, "--universe"),
        ("evaluate", "user", "", "--user"),
        ("evaluate", "cluster", "None", "no --cluster"),
        ("evaluate", "estimators", "['naive']", "--estimator naive"),
        ("evaluate", "metrics", "['mse', 'mae']", "--metric mse --metric mae"),
        ("evaluate", "relevance_threshold", "4", "--relevance-threshold 4"),
        ("evaluate", "weight_transform", "unskew.estimators.Clip(50)", "--max-weight W"),
        ("evaluate", "propensities", "...", "--propensity COL|FILE|NAME"),
        ("evaluate", "propensity", "...", "--propensity COL|FILE|NAME"),
        ("evaluate", "mcar", "...", "--mcar FILE"),
        ("evaluate", "columns", "[...]", "--names COL,COL,..."),
        ("evaluate", "log", "...", "LOG"),
        ("evaluate", "engine", "'gpu'", "--engine gpu"),
        ("validate", "engine", "'spark'", "engine='spark'"),
        ("train", "n_factors", "20", "--factors 20"),
        ("train", "random_state", None, "--seed"),
        ("train", "tol", "1e-6", "tol=1e-6"),
    ],
)
def test_a_reference_to_an_argument_is_shown_as_its_option(
    command: str, name: str, value: str | None, shown: str
) -> None:
    assert show(command, name, value) == shown


def test_outside_of_a_command_arguments_are_keywords() -> None:
    assert format_option("universe", "'log'") == "universe='log'"


def test_a_message_is_one_line_with_the_remedy_for_the_shell() -> None:
    error = UsageError("too\n  few.", remedy="Call fit.", shell_remedy="Pass `mcar=...`.")

    assert render_message(error) == "too few. Pass mcar=...."
    assert str(error) == "too\n  few. Call fit."


REQUESTS = {
    "evaluate": requests.EvaluationRequest,
    "train": requests.TrainingRequest,
    "propensity fit": requests.PropensityRequest,
    "propensity diagnose": requests.DiagnosisRequest,
}


@pytest.mark.parametrize("path", REQUESTS)
def test_every_field_of_a_request_is_an_option(path: str) -> None:
    command: Any = COMMANDS[path.split()[0]].target
    command = command.commands[path.split()[1]] if " " in path else command
    destinations = {parameter.name for parameter in command.params} | {"settings"}

    assert {field.name for field in fields(REQUESTS[path])} <= destinations


def test_another_package_adds_a_command_with_one_declaration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(COMMANDS, "_declarations", dict(COMMANDS._declarations))

    @COMMANDS.declare("greet", label="Greet", summary="Print a greeting.")
    @click.command("greet")
    @click.option("--level", type=float)
    def greet(level: float | None) -> None:
        if level is not None:
            raise UsageError("`level` is too high.")
        click.echo("hello")

    assert CliRunner().invoke(main, ["greet"]).stdout == "hello\n"
    refused = CliRunner().invoke(main, ["greet", "--level", "3"])
    assert (refused.exit_code, refused.stderr) == (2, "error: --level is too high.\n")
    assert re.search(r"\n  greet +Print a greeting\.", CliRunner().invoke(main, ["--help"]).stdout)


def test_help_lists_declared_names_with_their_summaries() -> None:
    shown = " ".join(CliRunner().invoke(main, ["evaluate", "--help"]).stdout.split())

    assert "mse Mean squared error." in shown
    assert "dcg[@k] Discounted cumulative gain" in shown
    assert "snips SNIPS counts each rating 1/P times" in shown


def test_names_are_completed() -> None:
    kind = DeclaredName("Names", lambda: {"mse": "1", "cg@k": "2", "dcg[@k]": "3"})
    context, parameter = click.Context(main), click.Option(["--name"])

    def complete(text: str) -> list[str]:
        return [item.value for item in kind.shell_complete(context, parameter, text)]

    assert complete("") == ["mse", "cg@10", "dcg", "dcg@10"]
    assert complete("dcg@") == ["dcg@10"]


@pytest.mark.parametrize("command", ["evaluate log.csv", "report x.json", "policy evaluate l.csv"])
def test_a_page_is_asked_for_by_o_alone(command: str) -> None:
    result = run(*command.split(), "--html", "x.html")

    assert result.exit_code == 2
    assert "there is no option --html: `-o FILE.html` writes a page." in result.stderr


def test_a_command_without_a_page_does_not_offer_one() -> None:
    assert "No such option" in run("split", "log.csv", "--html", "x.html").stderr


def test_a_file_whose_path_has_an_equals_sign_is_found(tmp_path: Path) -> None:
    file = tmp_path / "a=b.csv"
    file.write_text("x")

    def parse(text: str) -> dict[str, str]:
        return options.parse_named_files(cast(Any, None), cast(Any, None), (text,))

    assert parse(str(file)) == {"a=b": str(file)}
    assert parse(f"name={file}") == {"name": str(file)}
    with pytest.raises(click.BadParameter, match=r"no file 'q\.csv' \('p=q\.csv' was read as NAME"):
        parse("p=q.csv")
