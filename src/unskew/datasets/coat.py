"""Coat Shopping: self-selected and uniformly random ratings of the same 300 coats by the same 290 people."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.propensities import Propensities, as_propensities
from unskew.data.ratings import Ratings
from unskew.datasets.digest import sha256_of
from unskew.datasets.location import Archive, Files, PathLike, Source, find_or_download
from unskew.datasets.logs import also_in
from unskew.datasets.tables import File, Table, read_lines
from unskew.errors import DatasetFormatError
from unskew.types import BoolVector, Matrix

COAT = Source(
    name="Coat Shopping",
    layouts=(
        (
            "train.ascii",
            "test.ascii",
            "propensities.ascii",
            "user_item_features/user_features.ascii",
            "user_item_features/user_features_map.txt",
            "user_item_features/item_features.ascii",
            "user_item_features/item_features_map.txt",
        ),
    ),
    folders=("coat",),
    how_to_get=(
        "Get coat.zip at https://www.cs.cornell.edu/~schnabts/mnar/ , unpack it, and pass the folder as path=... "
        "or set $UNSKEW_DATA to it."
    ),
    archive=Archive(
        url="https://www.cs.cornell.edu/~schnabts/mnar/coat.zip",
        digest="f8bad2b760e34b6c5c98db4b59e5541ccb3dd309782986882314c526eb5f57e0",
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class Coat:
    """The Coat Shopping data; users and items are numbered from 0, in the order of the files' lines and columns."""

    train: Ratings
    """What people chose to rate: 24 coats each."""
    test: Ratings
    """What people were asked to rate: 16 coats each, drawn uniformly at random."""
    propensities: Propensities
    """The authors' propensities of the cells of ``train``, in its order: a logistic fit, not the truth."""
    propensity_matrix: Matrix = field(repr=False)
    """The same for all users x items."""
    user_features: Matrix = field(repr=False)
    """0/1 covariates, one row a user: gender, age, location, interest in fashion."""
    item_features: Matrix = field(repr=False)
    """0/1 covariates, one row an item: gender, type, colour, on the front page or not."""
    user_feature_names: tuple[str, ...] = field(repr=False)
    item_feature_names: tuple[str, ...] = field(repr=False)
    overlap: BoolVector = field(repr=False)
    """The rows of ``test`` whose cells are in ``train`` too: 366 as published. Leave them out for a clean test."""

    @property
    def digest(self) -> str:
        """SHA-256 of the parsed content."""
        return sha256_of(
            self.train,
            self.test,
            self.propensity_matrix,
            self.user_features,
            self.item_features,
            self.user_feature_names,
            self.item_feature_names,
        )


def load_coat(path: PathLike = None) -> Coat:
    """The Coat Shopping data of Schnabel et al. 2016: 6,960 chosen and 4,640 random ratings, 1 to 5, of 290 users x 300 items.

    The files are looked for in ``path``, else in ``$UNSKEW_DATA`` (the folder itself or its sub-folder ``coat``), else
    downloaded once from the authors' page with ``pooch`` and checked. Terms: CC BY-NC 4.0, as third parties state.

    Source: T. Schnabel, A. Swaminathan, A. Singh, N. Chandak, T. Joachims. *Recommendations as Treatments: Debiasing
    Learning and Evaluation.* ICML 2016. https://www.cs.cornell.edu/~schnabts/mnar/
    """
    return find_or_download(COAT, path, _read)


def _read(files: Files) -> Coat:
    train_file, test_file, propensity_file, *feature_files = files
    train_matrix = _rating_matrix(Table.read(train_file))
    n_users, n_items = train_matrix.shape
    train = Ratings.from_dense(train_matrix)
    test = Ratings.from_dense(
        _rating_matrix(Table.read(test_file, n_lines=n_users, n_fields=n_items))
    )
    propensity_matrix = _probabilities(
        Table.read(propensity_file, n_lines=n_users, n_fields=n_items)
    )
    user_features, user_feature_names = _features(*feature_files[:2], n_lines=n_users)
    item_features, item_feature_names = _features(*feature_files[2:], n_lines=n_items)
    return Coat(
        train=train,
        test=test,
        propensities=as_propensities(train, propensity_matrix),
        propensity_matrix=propensity_matrix,
        user_features=user_features,
        item_features=item_features,
        user_feature_names=user_feature_names,
        item_feature_names=item_feature_names,
        overlap=also_in(test, train),
    )


def _rating_matrix(table: Table) -> Matrix:
    values = table.numbers()
    table.require(np.isin(values, np.arange(6)), "a rating from 1 to 5, or 0 for none")
    return values


def _probabilities(table: Table) -> Matrix:
    values = table.numbers()
    table.require((values > 0) & (values <= 1), "a propensity in (0, 1]")
    return values


def _features(
    values_file: File, names_file: File, *, n_lines: int
) -> tuple[Matrix, tuple[str, ...]]:
    values = Table.read(values_file, n_lines=n_lines).numbers()
    names = tuple(line.strip() for line in read_lines(names_file))
    if len(names) != values.shape[1]:
        raise DatasetFormatError(
            f"{names_file}: found {len(names)} names, expected {values.shape[1]}, one for each column of {values_file}."
        )
    return values, names
