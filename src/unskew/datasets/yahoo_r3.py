"""Yahoo! R3: ratings of songs that people chose, and of songs drawn for them at random."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets import DATASETS
from unskew.datasets.location import DatasetSource, Files, PathLike, find_files
from unskew.datasets.reading import Integers, find_overlap, read_dataset_table
from unskew.io.sources import FilePath
from unskew.types import BoolVector

QUESTIONS = tuple(f"question {number}" for number in range(1, 8))
PUBLISHED_PREFIX = "ydata-ymusic-rating-study-v1_0-"

YAHOO_R3 = DatasetSource(
    name="yahoo-r3",
    title="Yahoo! R3",
    layouts=tuple(
        tuple(f"{prefix}{name}" for name in names)
        for prefix in (PUBLISHED_PREFIX, "")
        for names in (("train.txt", "test.txt", "survey-answers.txt"), ("train.txt", "test.txt"))
    ),
    folders=("yahoo-r3", "yahoo_r3", "ydata-ymusic-rating-study-v1_0"),
    how_to_get=(
        "It is under its owner's signed agreement and is never downloaded: you need a licensed "
        "copy of your own (Yahoo! Webscope R3, ydata-ymusic-rating-study-v1_0). Pass its folder "
        "as `path=...`, or set $UNSKEW_DATA to it."
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class YahooR3:
    """The Yahoo! R3 data; both logs have the users and songs of both files, by their ids."""

    train: Ratings
    """Songs that people chose to rate."""
    test: Ratings
    """Songs that people were asked to rate: 10 each, drawn uniformly at random."""
    overlap: BoolVector = field(repr=False)
    """The rows of ``test`` whose cells are also in ``train``."""
    survey_answers: Integers | None = field(repr=False)
    """Answers to seven questions about rating habits, counted from 1; None without the file.

    Row n - 1 has the answers of user n.
    """


@DATASETS.declare(
    YAHOO_R3.name,
    label=YAHOO_R3.title,
    summary="311,704 chosen and 54,000 random ratings of songs; under a signed agreement.",
    traits={"source": YAHOO_R3, "record": YahooR3},
)
def load_yahoo_r3(path: PathLike = None) -> YahooR3:
    """Yahoo! Webscope R3: 311,704 chosen and 54,000 random ratings, 15,400 users x 1,000 songs.

    Ratings are 1 to 5. The files are searched in ``path``, else in ``$UNSKEW_DATA`` (the folder
    itself or its sub-folder ``yahoo-r3``); they are never downloaded. Terms: non-commercial
    research by those who signed Yahoo!'s agreement; no redistribution.

    Source: B. M. Marlin, R. S. Zemel. *Collaborative Prediction and Ranking with Non-Random
    Missing Data.* RecSys 2009; Yahoo! Webscope R3, ydata-ymusic-rating-study-v1_0.
    """
    return _read(find_files(YAHOO_R3, path))


def _read(files: Files) -> YahooR3:
    tables = [
        read_dataset_table(file, ("user", "item", "rating"), delimiter="\t") for file in files[:2]
    ]
    users, items = (
        np.unique(np.concatenate([table.integers(role) for table in tables]))
        for role in ("user", "item")
    )
    train, test = (table.ratings(users=users, items=items, max_rating=5) for table in tables)
    answers = _read_answers(files[2]) if len(files) > 2 else None
    return YahooR3(train, test, find_overlap(test, train), survey_answers=answers)


def _read_answers(file: FilePath) -> Integers:
    table = read_dataset_table(file, QUESTIONS)
    values = table.matrix()
    is_valid = (values >= 1) & (values == np.rint(values))
    table.require(is_valid, "the number of an answer, from 1", *QUESTIONS)
    return values.astype(np.int64)
