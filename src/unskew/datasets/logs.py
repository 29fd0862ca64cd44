"""Text files that begin each line with user, item and rating, to Ratings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.data.ratings import Ratings
from unskew.datasets.tables import File, Integers, Table
from unskew.errors import DatasetFormatError, DuplicateCellError
from unskew.types import BoolVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class LogFile:
    """The columns of a tab separated log; ``rest`` holds the fields after user, item and rating."""

    table: Table
    user: Integers
    item: Integers
    rating: Vector
    rest: Matrix

    @classmethod
    def read(cls, file: File, *, n_fields: int, best: int) -> LogFile:
        """The log in ``file``, with whole ratings from 1 to ``best``."""
        table = Table.read(file, delimiter="\t", n_fields=n_fields)
        values = table.numbers()
        rating = values[:, 2]
        table.require(
            np.isin(rating, np.arange(1, best + 1)), f"a rating from 1 to {best}", field=2
        )
        user, item = (table.integers(values[:, field], field=field) for field in (0, 1))
        return cls(table, user, item, rating, values[:, 3:])

    def ratings(self, *, users: Integers, items: Integers) -> Ratings:
        """The log over the given users and items, which are all there are."""
        self.table.require(np.isin(self.user, users), "a user that the data set lists", field=0)
        self.table.require(np.isin(self.item, items), "an item that the data set lists", field=1)
        try:
            return Ratings.from_arrays(self.user, self.item, self.rating, users=users, items=items)
        except DuplicateCellError as error:
            raise self._first_repeat() from error

    def _first_repeat(self) -> DatasetFormatError:
        cells = list(zip(self.user.tolist(), self.item.tolist(), strict=True))
        first = {cell: row for row, cell in reversed(list(enumerate(cells)))}
        again = next(row for row, cell in enumerate(cells) if first[cell] < row)
        return self.table.fault(
            again,
            1,
            f"an item that user {cells[again][0]} has not rated in line {first[cells[again]] + 1}",
        )


def also_in(log: Ratings, other: Ratings) -> BoolVector:
    """Which rows of ``log`` are cells of ``other``, a log over the same users and items."""
    return np.isin(_cell(log), _cell(other))


def _cell(log: Ratings) -> Integers:
    return log.user.astype(np.int64) * log.n_items + log.item
