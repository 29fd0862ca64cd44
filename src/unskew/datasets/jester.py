"""Jester, part 1: real-valued ratings of 100 jokes; thousands of people rated all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets import DATASETS
from unskew.datasets.location import DatasetSource, Files, PathLike, find_files
from unskew.datasets.reading import read_dataset_table
from unskew.types import BoolVector

N_JOKES = 100
MISSING = 99
JOKES = tuple(f"joke {number}" for number in range(1, N_JOKES + 1))

JESTER = DatasetSource(
    name="jester",
    title="Jester",
    layouts=(("jester-data-1.csv",),),
    folders=("jester",),
    how_to_get=(
        "Get jester-data-1.zip at https://eigentaste.berkeley.edu/dataset/ , save its spreadsheet "
        "as jester-data-1.csv (commas, no header), and pass the folder as `path=...`, or set "
        "$UNSKEW_DATA to it."
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class Jester:
    """The Jester data; jokes have their published numbers, users the number of their line."""

    ratings: Ratings
    """All ratings, -10 to 10, user by user."""
    complete_users: BoolVector = field(repr=False)
    """Which of ``ratings.users`` rated every joke."""


@DATASETS.declare(
    JESTER.name,
    label=JESTER.title,
    summary="Ratings of 100 jokes by 24,983 users, of whom 7,200 rated all; for research.",
    traits={"source": JESTER, "record": Jester},
)
def load_jester(path: PathLike = None) -> Jester:
    """Jester data set 1, part 1: 24,983 users x 100 jokes, ratings -10 to 10.

    7,200 users rated all jokes. The file is searched in ``path``, else in ``$UNSKEW_DATA`` (the
    folder itself or its sub-folder ``jester``). Terms: free for research that cites the paper.

    Source: K. Goldberg, T. Roeder, D. Gupta, C. Perkins. *Eigentaste: A Constant Time
    Collaborative Filtering Algorithm.* Information Retrieval 4(2), 2001.
    https://eigentaste.berkeley.edu/dataset/
    """
    return _read(find_files(JESTER, path))


def _read(files: Files) -> Jester:
    table = read_dataset_table(files[0], ("number of ratings", *JOKES), delimiter=",")
    matrix = table.matrix()[:, 1:]
    is_missing = matrix == MISSING
    is_valid = is_missing | (np.abs(matrix) <= 10)
    table.require(is_valid, f"a rating from -10 to 10, or {MISSING} for none", *JOKES)
    users, jokes = np.arange(1, len(table) + 1), np.arange(1, N_JOKES + 1)
    ratings = Ratings.from_dense(matrix, missing=MISSING, users=users, items=jokes)
    return Jester(ratings, ~is_missing.any(axis=1))
