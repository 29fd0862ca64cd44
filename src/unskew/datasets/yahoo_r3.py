"""Yahoo! R3: ratings of songs that people chose, and of songs drawn for them at random."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets.location import Files, PathLike, Source, find
from unskew.datasets.logs import LogFile, also_in
from unskew.datasets.tables import File, Integers, Table
from unskew.types import BoolVector

N_QUESTIONS = 7
PUBLISHED_PREFIX = "ydata-ymusic-rating-study-v1_0-"

YAHOO_R3 = Source(
    name="Yahoo! R3",
    layouts=tuple(
        tuple(f"{prefix}{name}" for name in names)
        for prefix in (PUBLISHED_PREFIX, "")
        for names in (("train.txt", "test.txt", "survey-answers.txt"), ("train.txt", "test.txt"))
    ),
    folders=("yahoo-r3", "yahoo_r3", "ydata-ymusic-rating-study-v1_0"),
    how_to_get=(
        "It is under its owner's signed agreement and is never downloaded: you need a licensed copy of your own "
        "(Yahoo! Webscope R3, ydata-ymusic-rating-study-v1_0). Pass its folder as path=... or set $UNSKEW_DATA to it."
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class YahooR3:
    """The Yahoo! R3 data; both logs share one vocabulary: every user and every song of the two files, by their ids."""

    train: Ratings
    """What people chose to rate."""
    test: Ratings
    """What people were asked to rate: 10 songs each, drawn uniformly at random."""
    overlap: BoolVector = field(repr=False)
    """The rows of ``test`` whose cells are in ``train`` too."""
    survey_answers: Integers | None = field(repr=False)
    """Answers to seven questions on one's own rating habits, counted from 1; line n is of user n. None without the file."""


def load_yahoo_r3(path: PathLike = None) -> YahooR3:
    """Yahoo! Music ratings 1 to 5 (Webscope R3): 311,704 chosen and 54,000 random ones of 15,400 users x 1,000 songs.

    The files are looked for in ``path``, else in ``$UNSKEW_DATA`` (the folder itself or its sub-folder ``yahoo-r3``); they
    are never downloaded. Terms: non-commercial research by those who signed Yahoo!'s agreement; no redistribution.

    Source: B. M. Marlin, R. S. Zemel. *Collaborative Prediction and Ranking with Non-Random Missing Data.* RecSys 2009;
    Yahoo! Webscope R3, ydata-ymusic-rating-study-v1_0.
    """
    return _read(find(YAHOO_R3, path))


def _read(files: Files) -> YahooR3:
    train_file, test_file, *survey_files = files
    logs = [LogFile.read(file, n_fields=3, best=5) for file in (train_file, test_file)]
    users = np.unique(np.concatenate([log.user for log in logs]))
    items = np.unique(np.concatenate([log.item for log in logs]))
    train, test = (log.ratings(users=users, items=items) for log in logs)
    answers = [_answers(file) for file in survey_files]
    return YahooR3(
        train, test, also_in(test, train), survey_answers=answers[0] if answers else None
    )


def _answers(file: File) -> Integers:
    table = Table.read(file, n_fields=N_QUESTIONS)
    values = table.numbers()
    table.require((values >= 1) & (values == np.rint(values)), "the number of an answer, from 1")
    return values.astype(np.int64)
