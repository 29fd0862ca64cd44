"""Files of impressions with a wrong value, a wrong row or damaged bytes."""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.calls import SlowCallError, Tally, _find_place, limit_time
from fuzz.files import damage
from unskew import simulate_impressions
from unskew.data.impression_checks import validate
from unskew.errors import UnskewError
from unskew.io.files import write_table
from unskew.io.impression_files import ImpressionColumns, iterate_impressions
from unskew.io.sources import FileSource

FORMATS = ("csv", "tsv", "jsonl", "parquet")
WRONG_VALUES: dict[str, tuple[Any, ...]] = {
    "request_id": (None,),
    "user_id": (None, "somebody else"),
    "item_id": (None,),
    "position": (None, 0, -1, 1.5, 1e300, "first", "1_0"),
    "reward": (None, np.inf, -np.inf, "yes", "1e999"),
    "p": (None, 0, -0.5, 1.5, np.inf, "half", 1e-320),
}
"""Values that a column never has. None is a missing value."""
PLACE = re.compile(r"\b(row|line) \d+")


@cache
def make_columns() -> dict[str, list[Any]]:
    """A good log with probabilities of steps."""
    log = simulate_impressions(6, 4, 3, logging="plackett-luce", random_state=8).log
    assert log.probability is not None
    return {
        "request_id": [f"r{code}" for code in log.request.tolist()],
        "user_id": [f"u{code}" for code in log.user.tolist()],
        "item_id": [f"i{code}" for code in log.item.tolist()],
        "position": log.position.tolist(),
        "reward": log.reward.tolist(),
        "p": log.probability.tolist(),
    }


def spoil_value(columns: dict[str, list[Any]], rng: np.random.Generator) -> None:
    """Replace one value by one that its column never has."""
    column = list(WRONG_VALUES)[rng.integers(len(WRONG_VALUES))]
    values = WRONG_VALUES[column]
    columns[column] = list(columns[column])
    columns[column][rng.integers(len(columns[column]))] = values[rng.integers(len(values))]


def spoil_row(columns: dict[str, list[Any]], rng: np.random.Generator) -> None:
    """Make a row contradict another one of its request: same position, or same item."""
    requests = columns["request_id"]
    row = int(rng.integers(len(requests)))
    others = [each for each, name in enumerate(requests) if name == requests[row] and each != row]
    other = int(rng.choice(others))
    for column in (("position",), ("item_id",), ("position", "item_id"))[rng.integers(3)]:
        columns[column] = list(columns[column])
        columns[column][row] = columns[column][other]


def read_impressions(path: Path) -> None:
    """Read a file as the commands do, and look for what is doubtful."""
    columns = ImpressionColumns(probability="p")
    source = FileSource.from_name(str(path))
    for part in iterate_impressions(source, columns, probability_is="step", rows_at_once=20):
        validate(part)


def try_impressions(seed: int, n_files: int, folder: Path, *, damages_bytes: bool) -> Tally:
    """Read random files of impressions that are wrong in one place, or have damaged bytes."""
    rng, tally = np.random.default_rng(seed), Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(n_files):
            form = FORMATS[rng.integers(len(FORMATS))]
            path = folder / f"shown-{number}.{form}"
            columns = dict(make_columns())
            if not damages_bytes:
                (spoil_row if rng.random() < 0.3 else spoil_value)(columns, rng)
                if form == "parquet":
                    columns = {name: _make_typed(values) for name, values in columns.items()}
            write_table(columns, str(path))
            if damages_bytes:
                path.write_bytes(damage(path.read_bytes(), rng))
            _try_file(path, tally)
            path.unlink(missing_ok=True)
    return tally


def _make_typed(values: list[Any]) -> list[Any]:
    """A typed file has one type a column: text, if one value is text."""
    if any(isinstance(value, str) for value in values):
        return [None if value is None else str(value) for value in values]
    return [None if value is None else float(value) for value in values]


def _try_file(path: Path, tally: Tally) -> None:
    tally.tried += 1
    try:
        with limit_time():
            read_impressions(path)
    except UnskewError as error:
        tally.typed += 1
        names_place = PLACE.search(f"{error} {error.where or ''}")
        tally.named += bool(names_place and error.parameter and path.name in str(error))
    except SlowCallError:
        tally.slow[path.suffix] += 1
    except Exception as error:
        tally.raw[f"{_find_place(error)}: {type(error).__name__}: {error}"] += 1
    else:
        tally.finished += 1
