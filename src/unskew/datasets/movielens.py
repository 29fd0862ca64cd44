"""MovieLens 100K: five-star ratings of films, with what is known of users and films."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets.digest import sha256_of
from unskew.datasets.location import Archive, Files, PathLike, Source, find_or_download
from unskew.datasets.logs import LogFile
from unskew.datasets.tables import Integers, Table, Words
from unskew.types import Matrix

MOVIELENS_100K = Source(
    name="MovieLens 100K",
    layouts=(("u.data", "u.user", "u.item"),),
    folders=("ml-100k",),
    how_to_get=(
        "Get ml-100k.zip at https://grouplens.org/datasets/movielens/100k/ , unpack it, and pass the folder as path=... "
        "or set $UNSKEW_DATA to it."
    ),
    archive=Archive(
        url="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
        digest="ede77dbdb2c2d84d1ee97b6e01401d8449a54a5a0c14a49f2a2c0fcbc712ddb9",
        checksum="md5:0e33842e24a9c977be4e0107933c0723",
    ),
)

GENRES = (
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
)
FIRST_GENRE_FIELD = 5


@dataclass(frozen=True, slots=True, eq=False)
class MovieLens100K:
    """The MovieLens 100K data; users and items keep their ids, which count from 1."""

    ratings: Ratings
    """All ratings, 1 to 5, in the order of the file; users and items without a rating would count as well."""
    timestamp: Integers = field(repr=False)
    """When each rating was given, in seconds since 1970 UTC, in the order of ``ratings``."""
    titles: Words = field(repr=False)
    """One title for each of ``ratings.items``, with the year of release."""
    genres: Matrix = field(repr=False)
    """0/1, one row for each of ``ratings.items`` and one column for each of ``genre_names``."""
    genre_names: tuple[str, ...] = field(repr=False)
    age: Integers = field(repr=False)
    """In years; this and the next three have one value for each of ``ratings.users``."""
    gender: Words = field(repr=False)
    """M or F."""
    occupation: Words = field(repr=False)
    zip_code: Words = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the parsed content."""
        people = (self.age, self.gender, self.occupation, self.zip_code)
        return sha256_of(self.ratings, self.timestamp, self.titles, self.genres, *people)


def load_movielens_100k(path: PathLike = None) -> MovieLens100K:
    """The MovieLens 100K data of GroupLens: 100,000 ratings, 1 to 5, by 943 users on 1,682 films, 1997 to 1998.

    The files are looked for in ``path``, else in ``$UNSKEW_DATA`` (the folder itself or its sub-folder ``ml-100k``), else
    downloaded once from GroupLens with ``pooch`` and checked. Terms: research use with acknowledgement; no redistribution
    and no commercial use without permission.

    Source: F. M. Harper, J. A. Konstan. *The MovieLens Datasets: History and Context.* ACM Transactions on Interactive
    Intelligent Systems 5(4), 2015. https://grouplens.org/datasets/movielens/100k/
    """
    return find_or_download(MOVIELENS_100K, path, _read)


def _read(files: Files) -> MovieLens100K:
    log_file, user_file, item_file = files
    users = Table.read(user_file, delimiter="|", n_fields=5)
    items = Table.read(item_file, delimiter="|", n_fields=FIRST_GENRE_FIELD + len(GENRES))
    log = LogFile.read(log_file, n_fields=4, best=5)
    return MovieLens100K(
        ratings=log.ratings(users=users.integer_words(0), items=items.integer_words(0)),
        timestamp=log.table.integers(log.rest[:, 0], field=3),
        titles=items.words(1),
        genres=_genres(items),
        genre_names=GENRES,
        age=users.integer_words(1),
        gender=users.words(2),
        occupation=users.words(3),
        zip_code=users.words(4),
    )


def _genres(items: Table) -> Matrix:
    flags = np.array([line.split("|")[FIRST_GENRE_FIELD:] for line in items.lines])
    items.require(np.isin(flags, ["0", "1"]), "0 or 1", field=FIRST_GENRE_FIELD)
    return np.asarray(flags == "1", dtype=np.float64)
