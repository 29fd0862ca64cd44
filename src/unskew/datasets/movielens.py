"""MovieLens 100K: five-star ratings of films, with features of users and films."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets import DATASETS
from unskew.datasets.location import Archive, DatasetSource, Files, PathLike, find_or_download
from unskew.datasets.reading import Integers, TextVector, read_dataset_table, sha256_of
from unskew.types import Matrix

MOVIELENS_100K = DatasetSource(
    name="movielens-100k",
    title="MovieLens 100K",
    layouts=(("u.data", "u.user", "u.item"),),
    folders=("ml-100k",),
    how_to_get=(
        "Get ml-100k.zip at https://grouplens.org/datasets/movielens/100k/ , unpack it, and pass "
        "the folder as `path=...`, or set $UNSKEW_DATA to it."
    ),
    archive=Archive(
        url="https://files.grouplens.org/datasets/movielens/ml-100k.zip",
        digest="ede77dbdb2c2d84d1ee97b6e01401d8449a54a5a0c14a49f2a2c0fcbc712ddb9",
        checksum="md5:0e33842e24a9c977be4e0107933c0723",
    ),
)

GENRES = (
    *("unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime"),
    *("Documentary", "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery"),
    *("Romance", "Sci-Fi", "Thriller", "War", "Western"),
)


@dataclass(frozen=True, slots=True, eq=False)
class MovieLens100K:
    """The MovieLens 100K data; users and items keep their ids, which count from 1."""

    ratings: Ratings
    """All ratings, 1 to 5, in the order of the file, with their times."""
    timestamp: Integers = field(repr=False)
    """The time of each rating in seconds since 1970 UTC, in the order of ``ratings``."""
    titles: TextVector = field(repr=False)
    """One title for each of ``ratings.items``, with the year of release."""
    genres: Matrix = field(repr=False)
    """0/1, one row for each of ``ratings.items``, one column for each of ``genre_names``."""
    genre_names: tuple[str, ...] = field(repr=False)
    age: Integers = field(repr=False)
    """In years. This and the next three have one value for each of ``ratings.users``."""
    gender: TextVector = field(repr=False)
    """M or F."""
    occupation: TextVector = field(repr=False)
    zip_code: TextVector = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 of the parsed content."""
        people = (self.age, self.gender, self.occupation, self.zip_code)
        return sha256_of(self.ratings, self.timestamp, self.titles, self.genres, *people)


@DATASETS.declare(
    MOVIELENS_100K.name,
    label=MOVIELENS_100K.title,
    summary="100,000 ratings of films with features; for research, not to be redistributed.",
    traits={"source": MOVIELENS_100K, "record": MovieLens100K},
)
def load_movielens_100k(path: PathLike = None) -> MovieLens100K:
    """MovieLens 100K: 100,000 ratings, 1 to 5, by 943 users on 1,682 films, 1997 to 1998.

    The files are searched in ``path``, else in ``$UNSKEW_DATA`` (the folder itself or its
    sub-folder ``ml-100k``), else downloaded once from GroupLens with ``pooch`` and checked.
    Terms: research use with acknowledgement; no redistribution and no commercial use without
    permission.

    Source: F. M. Harper, J. A. Konstan. *The MovieLens Datasets: History and Context.* ACM
    Transactions on Interactive Intelligent Systems 5(4), 2015.
    https://grouplens.org/datasets/movielens/100k/
    """
    return find_or_download(MOVIELENS_100K, path, _read)


def _read(files: Files) -> MovieLens100K:
    log_file, user_file, item_file = files
    log = read_dataset_table(log_file, ("user", "item", "rating", "timestamp"), delimiter="\t")
    users = read_dataset_table(
        user_file, ("user", "age", "gender", "occupation", "zip code"), delimiter="|"
    )
    items = read_dataset_table(
        item_file,
        ("item", "title", "release date", "video release date", "address", *GENRES),
        delimiter="|",
    )
    genres = items.matrix(GENRES)
    items.require(np.isin(genres, (0, 1)), "0 or 1", *GENRES)
    return MovieLens100K(
        ratings=replace(
            log.ratings(users=users.integers("user"), items=items.integers("item"), max_rating=5),
            timestamp=log.integers("timestamp"),
        ),
        timestamp=log.integers("timestamp"),
        titles=items.text("title"),
        genres=genres,
        genre_names=GENRES,
        age=users.integers("age"),
        gender=users.text("gender"),
        occupation=users.text("occupation"),
        zip_code=users.text("zip code"),
    )
