"""What a person sees: commands in a real terminal of 80 columns, made by the operating system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pty = pytest.importorskip("pty")


def seen(*arguments: str, folder: Path, color: bool = False) -> str:
    """All that a terminal was sent, escapes included."""
    leader, follower = pty.openpty()
    environment = {
        name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")
    }
    environment |= {"COLUMNS": "80", "LINES": "40", "TERM": "xterm"} | (
        {} if color else {"NO_COLOR": "1"}
    )
    command = [sys.executable, "-m", "unskew", *arguments]
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, cwd=folder
    ) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # how Linux says that the other side has closed
                break
            if not part:
                break
            shown += part
    os.close(leader)
    assert process.returncode == 0, shown.decode()
    return shown.decode()


def lines_of(shown: str) -> list[str]:
    """What stays on the screen: without escapes, and of what was overwritten the last."""
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    return [line.split("\r")[-1].rstrip() for line in bare.replace("\r\n", "\n").split("\n")]


def test_a_terminal_of_80_columns_shows_every_column(tmp_path: Path) -> None:
    lines = lines_of(seen("reproduce", "toy", "-q", "--trials", "2", folder=tmp_path))

    assert max(map(len, lines)) <= 80
    assert any(
        line.startswith("Y1          mae     0.333") and line.count("±") == 3 for line in lines
    )
    assert not any("…" in line for line in lines)


def test_a_table_fits_the_terminal(files: Path) -> None:
    shown = seen(
        "evaluate",
        "log.csv",
        "--prediction",
        "old",
        "--prediction",
        "new",
        "--universe",
        "log",
        folder=files,
    )
    lines = lines_of(shown)

    assert "model  metric  estimator  estimate  std_error  ci_low  ci_high  degrees" in lines
    assert any(
        re.fullmatch(r"new    mae     snips +0\.\d{3} +0\.\d{3} +0\.\d{3} +\d\.\d{3} +[\d.]+", line)
        for line in lines
    )
    assert max(map(len, lines)) <= 80
    assert "evaluating on log.csv" in shown


def test_progress_is_shown_while_it_lasts_and_gone_afterwards(files: Path, tmp_path: Path) -> None:
    grid = ("--cross-validate", "--grid", "l2=0.2,1,5", "--grid", "factors=2", "--folds", "2")
    shown = seen(
        "train",
        "log.csv",
        "--propensity",
        "propensity",
        *grid,
        "-o",
        str(tmp_path / "m.unskew"),
        folder=files,
    )
    quiet = seen(
        "train",
        "log.csv",
        "--propensity",
        "propensity",
        *grid,
        "-q",
        "-o",
        str(tmp_path / "m.unskew"),
        folder=files,
    )

    assert "cross-validation" in shown
    assert re.search(r"[12]/2", shown)
    assert "Settings, the best first" in lines_of(shown)
    assert "cross-validation" not in quiet
    assert "reading log.csv" not in quiet
    assert "wrote" not in quiet


def test_a_fit_tells_its_steps(files: Path, tmp_path: Path) -> None:
    shown = seen(
        "train", "log.csv", "--factors", "2", "-o", str(tmp_path / "m.unskew"), folder=files
    )

    assert re.search(r"step \d+, objective", shown)
    assert "converged after" in shown


def test_color_is_there_and_can_be_done_without(files: Path) -> None:
    arguments = ("validate", "log.csv")

    assert "\x1b[1m" in seen(*arguments, folder=files, color=True)
    assert re.search(r"\x1b\[3[0-9]m", seen(*arguments, folder=files)) is None
