from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unskew.data.universe import Universe
from unskew.datasets.yahoo_r3 import load_yahoo_r3
from unskew.errors import DatasetFormatError, DatasetNotFoundError

Write = Callable[..., Path]

PREFIX = "ydata-ymusic-rating-study-v1_0-"
LOGS = {
    "train.txt": "1\t14\t5\n1\t35\t1\n2\t14\t3\n3\t46\t2\n",
    "test.txt": "1\t49\t1\n1\t35\t2\n2\t46\t4\n",
}
SURVEY = {"survey-answers.txt": "5\t5\t4\t3\t5\t5\t2\n5\t4\t4\t4\t5\t5\t1\n"}


def published(files: dict[str, str]) -> dict[str, str]:
    return {PREFIX + name: text for name, text in files.items()}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_files_are_read_over_shared_vocabularies(write: Write, newline: str) -> None:
    songs = load_yahoo_r3(write(published(LOGS | SURVEY), newline=newline))

    assert songs.train.universe == songs.test.universe == Universe(3, 4)
    assert songs.train.users.tolist() == songs.test.users.tolist() == [1, 2, 3]
    assert songs.train.items.tolist() == songs.test.items.tolist() == [14, 35, 46, 49]
    assert songs.train.rating.tolist() == [5, 1, 3, 2]
    assert songs.test.items[songs.test.item].tolist() == [49, 35, 46]
    assert songs.overlap.tolist() == [False, True, False]
    assert songs.survey_answers is not None
    assert songs.survey_answers.tolist() == [[5, 5, 4, 3, 5, 5, 2], [5, 4, 4, 4, 5, 5, 1]]


def test_the_survey_may_be_missing(write: Write) -> None:
    assert load_yahoo_r3(write(published(LOGS))).survey_answers is None


def test_short_names_are_read_too(write: Write) -> None:
    assert len(load_yahoo_r3(write(LOGS | SURVEY)).train) == 4


def test_the_environment_variable_may_name_the_folder(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSKEW_DATA", str(write(published(LOGS), folder="all/yahoo-r3").parent))

    assert len(load_yahoo_r3().test) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("train.txt", "1 14 5\n", r"train\.txt, line 1: found 1 field in '1 14 5', expected 3"),
        (
            "train.txt",
            "1\t14\t5\n1\t35\t6\n",
            r"train\.txt, line 2, column 'rating': found '6', expected a rating from 1 to 5",
        ),
        (
            "test.txt",
            "1\t14\t5\n1\t14\t5\n",
            r"test\.txt, line 2, column 'item': .* has not rated in line 1",
        ),
        (
            "survey-answers.txt",
            "5\t5\t4\n",
            r"survey-answers\.txt, line 1: found 3 fields .* expected 7",
        ),
        (
            "survey-answers.txt",
            "5\t5\t4\t3\t0\t5\t2\n",
            r"line 1, column 'question 5': found '0', expected the number of an answer, from 1",
        ),
    ],
)
def test_a_malformed_file_is_located(write: Write, name: str, text: str, message: str) -> None:
    with pytest.raises(DatasetFormatError, match=message):
        load_yahoo_r3(write(published(LOGS | SURVEY | {name: text})))


def test_not_found_asks_for_a_licensed_copy(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetNotFoundError,
        match=r"never downloaded: you need a licensed copy of your own \(Yahoo! Webscope R3",
    ):
        load_yahoo_r3(tmp_path)


def test_what_is_lacking_is_named_as_published(write: Write) -> None:
    folder = write({PREFIX + "train.txt": LOGS["train.txt"]})

    with pytest.raises(DatasetNotFoundError, match=rf"given: lacks {PREFIX}test\.txt\n"):
        load_yahoo_r3(folder)
