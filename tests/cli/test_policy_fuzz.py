"""Damaged files of impressions: a result without NaN, or one of our errors, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from click.testing import CliRunner

from unskew.cli import main
from unskew.io.files import write_table

FEW, MANY = 50, 1000
ODD_VALUES: list[Any] = [
    *(None, "", "nan", "inf", "-1", "0", "1", "2", "1.5", "1e400", "1e-320", "x", "é", "007"),
    *("9" * 25, "2000000", "[1]", " ", "1,2", "true"),
]
KINDS = ("step", "marginal", "slate", "product")


def make_columns(rng: np.random.Generator) -> dict[str, list[Any]]:
    """Eight requests with three slots, and a few odd values, repeated or missing rows."""
    n = 24
    columns: dict[str, list[Any]] = {
        "request_id": np.repeat(np.arange(8), 3).tolist(),
        "user_id": np.repeat(np.arange(8) // 2, 3).tolist(),
        "item_id": np.concatenate([rng.permutation(5)[:3] for _ in range(8)]).tolist(),
        "position": [1, 2, 3] * 8,
        "reward": rng.integers(0, 2, n).tolist(),
        "p": rng.uniform(0.1, 1, n).round(3).tolist(),
        "p_new": rng.uniform(0, 1, n).round(3).tolist(),
    }
    for _ in range(rng.integers(0, 4)):
        name = list(columns)[rng.integers(len(columns))]
        columns[name][rng.integers(n)] = ODD_VALUES[rng.integers(len(ODD_VALUES))]
    rows = list(range(n))
    for _ in range(rng.integers(0, 3)):
        repeated = [*rows, rows[rng.integers(len(rows))]]
        rows = repeated if rng.random() < 0.5 else rows[1:]
    if rng.random() < 0.3:
        rows = rng.permutation(rows).tolist()
    if rng.random() < 0.1:
        del columns[list(columns)[rng.integers(len(columns))]]
    return {name: [column[row] for row in rows] for name, column in columns.items()}


def refuse_nan(text: str) -> NoReturn:
    raise AssertionError(f"{text} in a result")


def run_seed(seed: int, folder: Path) -> set[int]:
    """Validate and evaluate one file; returns the exit codes."""
    rng = np.random.default_rng(seed)
    columns = {
        name: [None if value is None else str(value) for value in column]
        for name, column in make_columns(rng).items()
    }
    path = folder / f"log.{rng.choice(['csv', 'tsv', 'jsonl'])}"
    write_table(columns, str(path))
    content = path.read_bytes()
    if rng.random() < 0.1:
        path.write_bytes(content[: rng.integers(len(content))])
    shared = ["--probability", "p", "--probability-is", str(rng.choice(KINDS))]
    commands = [
        ["validate", "--impressions", str(path), *shared, "--json"],
        ["policy", "evaluate", str(path), *shared, "--target", "p_new", "--json"],
    ]
    codes = set()
    for command in commands:
        result = CliRunner().invoke(main, command)
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            seed,
            command,
            result.exception,
        )
        assert result.exit_code in (0, 2, 3), (seed, result.output)
        if result.exit_code:
            assert "rror: " in result.stderr, (seed, result.stderr)
        if result.stdout:
            json.loads(result.stdout, parse_constant=refuse_nan)
        codes.add(result.exit_code)
    return codes


def test_damaged_files_have_typed_errors(tmp_path: Path) -> None:
    codes = set().union(*(run_seed(seed, tmp_path) for seed in range(FEW)))

    assert codes >= {0, 3}


@pytest.mark.slow
def test_a_thousand_damaged_files_have_typed_errors(tmp_path: Path) -> None:
    for seed in range(FEW, MANY):
        run_seed(seed, tmp_path)
