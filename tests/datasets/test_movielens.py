from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unskew.data.universe import Universe
from unskew.datasets.movielens import GENRES, MOVIELENS_100K, MovieLens100K, load_movielens_100k
from unskew.errors import DatasetFormatError, DatasetNotFoundError

Write = Callable[..., Path]


def film(number: int, title: str, *genres: str) -> str:
    flags = "|".join(str(int(name in genres)) for name in GENRES)
    return f"{number}|{title}|01-Jan-1995||http://films/{number}|{flags}\n"


FILES = {
    "u.data": "2\t10\t5\t881250949\n1\t10\t3\t891717742\n2\t12\t1\t878887116\n",
    "u.user": "1|24|M|technician|85711\n2|53|F|other|V3N4P\n3|23|M|writer|32067\n",
    "u.item": film(10, "Élan (1995)", "Drama", "War")
    + film(11, "unknown", "unknown")
    + film(12, "Up, up (1990)", "Comedy"),
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_files_are_read(write: Write, newline: str) -> None:
    films = load_movielens_100k(write(FILES, newline=newline))
    log = films.ratings

    assert log.universe == Universe(3, 3)
    assert log.users[log.user].tolist() == [2, 1, 2]
    assert log.items[log.item].tolist() == [10, 10, 12]
    assert log.rating.tolist() == [5, 3, 1]
    assert films.timestamp.tolist() == [881250949, 891717742, 878887116]
    assert films.titles.tolist() == ["Élan (1995)", "unknown", "Up, up (1990)"]
    assert films.genres.shape == (3, 19)
    assert [films.genre_names[column] for column in np.flatnonzero(films.genres[0])] == [
        "Drama",
        "War",
    ]
    assert films.age.tolist() == [24, 53, 23]
    assert films.gender.tolist() == ["M", "F", "M"]
    assert films.occupation.tolist() == ["technician", "other", "writer"]
    assert films.zip_code.tolist() == ["85711", "V3N4P", "32067"]


def test_ids_may_start_at_zero(write: Write) -> None:
    files = FILES | {"u.data": "0\t10\t5\t1\n", "u.user": "0|24|M|technician|85711\n"}

    assert load_movielens_100k(write(files)).ratings.users.tolist() == [0]


@pytest.mark.parametrize("folder", ["all/ml-100k", "all"])
def test_the_environment_variable_names_the_folder_or_its_parent(
    write: Write, monkeypatch: pytest.MonkeyPatch, folder: str, tmp_path: Path
) -> None:
    write(FILES, folder=folder)
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path / "all"))

    assert len(load_movielens_100k().ratings) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("u.data", "1\t10\t3\n", r"u\.data, line 1: found 3 fields in '1,10,3', expected 4"),
        (
            "u.data",
            "1\t10\t3\t9\n1\t12\t0\t9\n",
            r"u\.data, line 2, column 'rating': found '0', expected a rating from 1 to 5",
        ),
        (
            "u.data",
            "1\t10\t3\t9\n1\t12.5\t1\t9\n",
            r"u\.data, line 2, column 'item': found '12\.5', expected a whole number",
        ),
        (
            "u.data",
            "1\t10\t3\tnever\n",
            r"u\.data, line 1, column 'timestamp': found 'never', expected a whole number",
        ),
        (
            "u.data",
            "9\t10\t3\t1\n",
            r"u\.data, line 1, column 'user': found '9', expected a user that the data set lists",
        ),
        (
            "u.data",
            "1\t99\t3\t1\n",
            r"u\.data, line 1, column 'item': found '99', expected an item that the data set lists",
        ),
        (
            "u.data",
            "1\t10\t3\t9\n2\t10\t1\t9\n1\t10\t4\t9\n",
            r"line 3, column 'item': found '10', expected an item that user 1 has not rated "
            r"in line 1",
        ),
        ("u.user", "1|24|M|technician\n", r"u\.user, line 1: found 4 fields .* expected 5"),
        (
            "u.user",
            "1|old|M|technician|85711\n2|53|F|other|94043\n",
            r"u\.user, line 1, column 'age': found 'old', expected a whole",
        ),
        (
            "u.item",
            film(10, "Up").replace("|0\n", "|2\n"),
            r"u\.item, line 1, column 'Western': found '2', expected 0 or 1",
        ),
    ],
)
def test_a_malformed_file_is_located(write: Write, name: str, text: str, message: str) -> None:
    log = {"u.data": "1\t10\t3\t9\n"}
    with pytest.raises(DatasetFormatError, match=message):
        load_movielens_100k(write(FILES | log | {name: text}))


def test_not_found_says_where_it_looked_and_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetNotFoundError,
        match=r"ml-100k: no such folder\n.*https://grouplens.org/datasets/movielens/100k/",
    ):
        load_movielens_100k(tmp_path)


@pytest.fixture(scope="module")
def films(real: Callable[[Callable[[str], MovieLens100K]], MovieLens100K]) -> MovieLens100K:
    return real(load_movielens_100k)


def test_the_real_log_has_the_published_counts(films: MovieLens100K) -> None:
    assert films.ratings.universe == Universe(943, 1682)
    assert np.bincount(films.ratings.rating.astype(int)).tolist() == [
        0,
        6110,
        11370,
        27145,
        34174,
        21201,
    ]
    assert films.ratings.rating.mean() == pytest.approx(3.530, abs=5e-4)
    assert np.bincount(films.ratings.user).min() == 20
    assert films.timestamp.shape == films.ratings.rating.shape


def test_the_real_users_and_films_are_described(films: MovieLens100K) -> None:
    assert films.titles[0] == "Toy Story (1995)"
    assert [films.genre_names[column] for column in np.flatnonzero(films.genres[0])] == [
        "Animation",
        "Children's",
        "Comedy",
    ]
    assert films.genres.shape == (1682, 19)
    assert films.genres.any(axis=1).all()
    assert set(films.gender.tolist()) == {"M", "F"}
    assert len(set(films.occupation.tolist())) == 21
    assert all(
        column.shape == (943,)
        for column in (films.age, films.gender, films.occupation, films.zip_code)
    )


def test_the_real_content_has_the_pinned_digest(films: MovieLens100K) -> None:
    assert MOVIELENS_100K.archive is not None
    assert films.digest == MOVIELENS_100K.archive.digest
