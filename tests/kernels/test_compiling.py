"""A person who waits for the compiler gets one message; nobody else does."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import caching

from unskew.kernels.compiling import compiled

CODE = """
import numpy as np
from unskew.kernels.rows import packed_index
packed_index(1, 2, 3), packed_index(1.0, 2, 3)
"""


def on_a_terminal(cache: Path) -> str:
    leader, follower = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", CODE],
        stderr=follower,
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        check=True,
    )
    os.close(follower)
    return read_all(leader)


def read_all(leader: int) -> str:
    text = b""
    try:
        while chunk := os.read(leader, 4096):
            text += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(leader)
    return text.decode()


def test_the_first_call_says_that_it_compiles_and_the_next_process_starts_warm(
    tmp_path: Path,
) -> None:
    assert on_a_terminal(tmp_path).count("compiling for this processor, once") == 1
    assert on_a_terminal(tmp_path) == ""


def test_nothing_is_said_to_a_file(tmp_path: Path) -> None:
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    assert (
        subprocess.run(
            [sys.executable, "-c", CODE], env=env, check=True, capture_output=True
        ).stderr
        == b""
    )


def test_without_a_folder_for_the_cache_kernels_are_still_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])

    def add(first: float, second: float) -> float:
        return first + second

    assert compiled(add)(1.5, 2.0) == 3.5
