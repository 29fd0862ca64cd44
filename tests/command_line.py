"""Commands of the command line, run in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from unskew.cli import main


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    """The result of a command; only an exit is no bug."""
    result = CliRunner().invoke(main, arguments, input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def fine(*arguments: str, stdin: bytes | None = None) -> Result:
    """The result of a command that must succeed."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return result


def as_json(*arguments: str, stdin: bytes | None = None) -> Any:
    """What a command prints with ``--json``."""
    return json.loads(fine(*arguments, "--json", stdin=stdin).stdout)
