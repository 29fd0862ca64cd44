"""Runs the guides that work with real data: their Python and shell blocks, in order, as printed.

A block of ``text`` after a block of Python has what the block prints; a block of ``console`` has
commands after ``$`` and what they print. ``python tests/guide_pages.py DATA`` writes the outputs
into the guides again.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
BLOCK = re.compile(r"^```(python|text|console)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?(?!\w)")


@dataclass(frozen=True)
class Step:
    """What a block printed, what the page says, and where the page says it."""

    source: str
    printed: str
    expected: str | None
    span: tuple[int, int] | None


def run_page(page: str) -> Iterator[Step]:
    """Run the blocks of a page in this folder, one after another."""
    namespace: dict[str, Any] = {}
    blocks = list(BLOCK.finditer(page))
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        kind, source = block.groups()
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(source, "<guide>", "exec"), namespace)
            has_output = following is not None and following[1] == "text"
            span = following.span(2) if following is not None and has_output else None
            yield Step(source, output.getvalue(), page[slice(*span)] if span else None, span)
        elif kind == "console":
            yield Step(source, "".join(map(_run_command, _commands(source))), source, block.span(2))


def _commands(session: str) -> list[str]:
    """The commands of a session, each with the lines that continue it."""
    return re.findall(r"^\$ (?:.*\\\n)*.*$", session, flags=re.MULTILINE)


def _run_command(command: str) -> str:
    """The command and what it prints, as in a session."""
    from click.testing import CliRunner

    from unskew.cli import main

    program, *arguments = shlex.split(command.removeprefix("$ ").replace("\\\n", " "))
    assert program == "unskew"
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "100"})
    assert result.exit_code in (0, 4), result.output
    lines = [line.rstrip() for line in (result.stdout + result.stderr).splitlines()]
    return "\n".join([command, *lines]) + "\n"


def is_same_text(printed: str, expected: str) -> bool:
    """Whether two texts are equal, except for spaces and for small differences of numbers.

    Other processors and versions of libraries round differently.
    """
    words = [re.split(r"[\s─]+", NUMBER.sub("#", text).strip()) for text in (printed, expected)]
    numbers = [[_to_float(each) for each in NUMBER.findall(text)] for text in (printed, expected)]
    return words[0] == words[1] and all(
        math.isclose(one, other, rel_tol=0.02, abs_tol=0.0025)
        for one, other in zip(*numbers, strict=True)
    )


def _to_float(text: str) -> float:
    return float(text.replace(",", ""))


@contextlib.contextmanager
def folder_with_data(data: Path, folder: Path) -> Iterator[None]:
    """Work in a folder in which ``ml-100k`` and ``coat`` can be read."""
    for name in ("ml-100k", "coat"):
        if (data / name).exists():
            (folder / name).symlink_to(data / name, target_is_directory=True)
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # results print those that matter
        yield


def write_outputs(path: Path, data: Path) -> None:
    """Run a guide and write what its blocks print into it."""
    page = path.read_text()
    with tempfile.TemporaryDirectory() as folder, folder_with_data(data, Path(folder)):
        steps = [step for step in run_page(page) if step.span]
    for step in reversed(steps):
        page = page[: step.span[0]] + step.printed + page[step.span[1] :]  # type: ignore[index]
    path.write_text(page)


if __name__ == "__main__":
    root = Path(os.environ["UNSKEW_DATA"]) if len(sys.argv) < 2 else Path(sys.argv[1])
    for name in sys.argv[2:] or ("real-log", "random-test", "production"):
        write_outputs(GUIDES / f"{name}.md", root.resolve())
