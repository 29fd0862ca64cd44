"""The session in docs/command-line.md, run again line by line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from unskew.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()


def test_the_session_is_what_the_commands_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (log,) = re.findall(r"```csv\n(.*?)```", PAGE, re.DOTALL)
    Path("log.csv").write_text(log)
    commands = re.findall(r"^\$ unskew (.*)\n((?:(?!\$ |```).*\n)*)", PAGE, re.MULTILINE)

    assert len(commands) >= 8
    for command, shown in commands:
        result = CliRunner().invoke(main, shlex.split(command))
        assert (result.stdout.rstrip("\n") + "\n" + result.stderr).strip("\n") == shown.strip(
            "\n"
        ), command
