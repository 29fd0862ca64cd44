"""Jester, first part: real-valued ratings of 100 jokes, and thousands of people who rated them all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets.location import Files, PathLike, Source, find
from unskew.datasets.tables import Table
from unskew.types import BoolVector

N_JOKES = 100
MISSING = 99

JESTER = Source(
    name="Jester",
    layouts=(("jester-data-1.csv",),),
    folders=("jester",),
    how_to_get=(
        "Get jester-data-1.zip at https://eigentaste.berkeley.edu/dataset/ , save its spreadsheet as jester-data-1.csv "
        "(commas, no header), and pass the folder as path=... or set $UNSKEW_DATA to it."
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class Jester:
    """The Jester data; jokes have their published numbers 1 to 100, users the number of their line, from 1."""

    ratings: Ratings
    """All ratings, -10 to 10, user by user."""
    complete_users: BoolVector = field(repr=False)
    """Which of ``ratings.users`` rated every joke; their rows are a matrix without a hole."""


def load_jester(path: PathLike = None) -> Jester:
    """The Jester data set 1, part 1: 24,983 users x 100 jokes, ratings -10 to 10; 7,200 users rated all the jokes.

    The file is looked for in ``path``, else in ``$UNSKEW_DATA`` (the folder itself or its sub-folder ``jester``). Terms:
    free for research that cites the paper.

    Source: K. Goldberg, T. Roeder, D. Gupta, C. Perkins. *Eigentaste: A Constant Time Collaborative Filtering Algorithm.*
    Information Retrieval 4(2), 2001. https://eigentaste.berkeley.edu/dataset/
    """
    return _read(find(JESTER, path))


def _read(files: Files) -> Jester:
    table = Table.read(files[0], delimiter=",", n_fields=1 + N_JOKES)
    matrix = table.numbers()[:, 1:]
    missing = matrix == MISSING
    table.require(
        missing | (np.abs(matrix) <= 10), f"a rating from -10 to 10, or {MISSING} for none", field=1
    )
    users, jokes = np.arange(1, len(table) + 1), np.arange(1, N_JOKES + 1)
    return Jester(
        Ratings.from_dense(matrix, missing=MISSING, users=users, items=jokes), ~missing.any(axis=1)
    )
