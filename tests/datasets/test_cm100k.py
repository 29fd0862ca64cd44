from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unskew.data.universe import Universe
from unskew.datasets.cm100k import load_cm100k
from unskew.errors import DatasetFormatError, DatasetNotFoundError

Write = Callable[..., Path]

TEXT = "0\t74476228\t3\t0\n0\t68559485\t1\t1\n7\t74476228\t4\t1\n"


@pytest.mark.parametrize("name", ["ratings.txt", "data.txt"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_file_is_read_and_known_tracks_are_the_training_log(
    write: Write, newline: str, name: str
) -> None:
    music = load_cm100k(write({name: TEXT}, newline=newline))

    assert music.ratings.universe == Universe(2, 2)
    assert music.ratings.users.tolist() == [0, 7]
    assert music.ratings.rating.tolist() == [3, 1, 4]
    assert music.is_known.tolist() == [False, True, True]
    assert music.train.rating.tolist() == [1, 4]
    assert music.train.universe == music.ratings.universe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\t1\t3\n", r"ratings\.txt, line 1: found 3 fields .* expected 4"),
        (
            "0\t1\t5\t0\n",
            r"ratings\.txt, line 1, column 'rating': found '5', expected a rating from 1 to 4",
        ),
        (
            "0\t1\t4\t0\n0\t2\t4\t2\n",
            r"ratings\.txt, line 2, column 'known': found '2', expected 1 \(known before\) or 0",
        ),
    ],
)
def test_a_malformed_file_is_located(write: Write, text: str, message: str) -> None:
    with pytest.raises(DatasetFormatError, match=message):
        load_cm100k(write({"ratings.txt": text}))


def test_not_found_names_the_authors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSKEW_DATA", raising=False)

    with pytest.raises(
        DatasetNotFoundError,
        match=r"CM100K was not found\. No path was given and \$UNSKEW_DATA .* Castells",
    ):
        load_cm100k()
