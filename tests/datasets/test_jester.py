from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unskew.data.universe import Universe
from unskew.datasets.jester import load_jester
from unskew.errors import DatasetFormatError, DatasetNotFoundError

Write = Callable[..., Path]


def line(*, rated: dict[int, float], others: float) -> str:
    """A user's line: the count, then jokes 1 to 100."""
    ratings = [rated.get(joke, others) for joke in range(1, 101)]
    return (
        ",".join(
            [str(sum(rating != 99 for rating in ratings)), *(f"{rating:g}" for rating in ratings)]
        )
        + "\n"
    )


SPARSE = line(rated={1: -7.82, 100: 10}, others=99)
COMPLETE = line(rated={5: 8.79}, others=0)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_file_is_read_and_complete_users_are_marked(write: Write, newline: str) -> None:
    jokes = load_jester(write({"jester-data-1.csv": SPARSE + COMPLETE}, newline=newline))

    assert jokes.ratings.universe == Universe(2, 100)
    assert jokes.ratings.users.tolist() == [1, 2]
    assert jokes.ratings.items[jokes.ratings.item][:3].tolist() == [1, 100, 1]
    assert jokes.ratings.rating[:3].tolist() == [-7.82, 10, 0]
    assert len(jokes.ratings) == 102
    assert jokes.complete_users.tolist() == [False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            COMPLETE + "1,99\n",
            r"jester-data-1\.csv, line 2: found 2 fields in '1,99', expected 101",
        ),
        (
            COMPLETE + SPARSE.replace("-7.82", "-10.5"),
            r"line 2, column 'joke 1': found '-10\.5', expected a rating from -10 to 10, or 99",
        ),
        (
            SPARSE.replace("-7.82", ""),
            r"jester-data-1\.csv, line 1, column 'joke 1': found nothing, expected a number",
        ),
    ],
)
def test_a_malformed_file_is_located(write: Write, text: str, message: str) -> None:
    with pytest.raises(DatasetFormatError, match=message):
        load_jester(write({"jester-data-1.csv": text}))


def test_not_found_says_to_save_the_spreadsheet(write: Write) -> None:
    folder = write({"jester-data-1.xls": "not text"})

    with pytest.raises(
        DatasetNotFoundError,
        match=r"lacks jester-data-1\.csv\n[\s\S]*save its spreadsheet as jester-data-1\.csv",
    ):
        load_jester(folder)
