"""Coat Shopping: self-selected and random ratings of the same 300 coats by the same 290 people."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.data.propensities import Propensities, as_propensities
from unskew.data.ratings import Ratings
from unskew.datasets import DATASETS
from unskew.datasets.location import Archive, DatasetSource, Files, PathLike, find_or_download
from unskew.datasets.reading import DatasetTable, find_overlap, read_dataset_table, sha256_of
from unskew.errors import DatasetFormatError
from unskew.io.sources import FilePath
from unskew.types import BoolVector, Matrix

COAT = DatasetSource(
    name="coat",
    title="Coat Shopping",
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
        "Get coat.zip at https://www.cs.cornell.edu/~schnabts/mnar/ , unpack it, and pass the "
        "folder as `path=...`, or set $UNSKEW_DATA to it."
    ),
    archive=Archive(
        url="https://www.cs.cornell.edu/~schnabts/mnar/coat.zip",
        digest="f8bad2b760e34b6c5c98db4b59e5541ccb3dd309782986882314c526eb5f57e0",
    ),
)


@dataclass(frozen=True, slots=True, eq=False)
class Coat:
    """The Coat Shopping data; users and items are numbered from 0, in the order of the files."""

    train: Ratings
    """Coats that people chose to rate: 24 each."""
    test: Ratings
    """Coats that people were asked to rate: 16 each, drawn uniformly at random."""
    propensities: Propensities
    """The authors' propensities of the cells of ``train``: a logistic fit, not the truth."""
    propensity_matrix: Matrix = field(repr=False)
    """The same for all users x items."""
    user_features: Matrix = field(repr=False)
    """0/1 features, one row a user: gender, age, location, interest in fashion."""
    item_features: Matrix = field(repr=False)
    """0/1 features, one row an item: gender, type, colour, on the front page or not."""
    user_feature_names: tuple[str, ...] = field(repr=False)
    item_feature_names: tuple[str, ...] = field(repr=False)
    overlap: BoolVector = field(repr=False)
    """The rows of ``test`` whose cells are also in ``train``: 366 as published.

    Drop them for a clean test.
    """

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


@DATASETS.declare(
    COAT.name,
    label=COAT.title,
    summary="6,960 chosen and 4,640 random ratings of coats, with features; CC BY-NC 4.0.",
    traits={"source": COAT, "record": Coat},
)
def load_coat(path: PathLike = None) -> Coat:
    """Coat Shopping (Schnabel et al. 2016): 6,960 chosen and 4,640 random ratings, 1 to 5.

    There are 290 users and 300 items. The files are searched in ``path``, else in
    ``$UNSKEW_DATA`` (the folder itself or its sub-folder ``coat``), else downloaded once from
    the authors' page with ``pooch`` and checked. Terms: CC BY-NC 4.0, as third parties state.

    Source: T. Schnabel, A. Swaminathan, A. Singh, N. Chandak, T. Joachims. *Recommendations as
    Treatments: Debiasing Learning and Evaluation.* ICML 2016.
    https://www.cs.cornell.edu/~schnabts/mnar/
    """
    return find_or_download(COAT, path, _read)


def _read(files: Files) -> Coat:
    train_file, test_file, propensity_file, *feature_files = files
    train_matrix = _read_ratings(read_dataset_table(train_file))
    n_users, n_items = train_matrix.shape
    columns = tuple(str(number + 1) for number in range(n_items))
    train = Ratings.from_dense(train_matrix)
    test = Ratings.from_dense(_read_ratings(read_dataset_table(test_file, columns, n_rows=n_users)))
    propensity_matrix = _read_propensities(
        read_dataset_table(propensity_file, columns, n_rows=n_users)
    )
    user_features, user_feature_names = _read_features(*feature_files[:2], n_rows=n_users)
    item_features, item_feature_names = _read_features(*feature_files[2:], n_rows=n_items)
    return Coat(
        train=train,
        test=test,
        propensities=as_propensities(train, propensity_matrix),
        propensity_matrix=propensity_matrix,
        user_features=user_features,
        item_features=item_features,
        user_feature_names=user_feature_names,
        item_feature_names=item_feature_names,
        overlap=find_overlap(test, train),
    )


def _read_ratings(table: DatasetTable) -> Matrix:
    values = table.matrix()
    is_valid = np.isin(values, np.arange(6))
    table.require(is_valid, "a rating from 1 to 5, or 0 for none", *table.table.names)
    return values


def _read_propensities(table: DatasetTable) -> Matrix:
    values = table.matrix()
    table.require((values > 0) & (values <= 1), "a propensity in (0, 1]", *table.table.names)
    return values


def _read_features(
    values_file: FilePath, names_file: FilePath, *, n_rows: int
) -> tuple[Matrix, tuple[str, ...]]:
    values = read_dataset_table(values_file, n_rows=n_rows).matrix()
    names = tuple(read_dataset_table(names_file, ("name",), delimiter="\n").text("name").tolist())
    if len(names) != values.shape[1]:
        raise DatasetFormatError(
            f"{names_file}: found {len(names)} names, expected {values.shape[1]}, "
            f"one for each column of {values_file}.",
            value=len(names),
        )
    return values, names
