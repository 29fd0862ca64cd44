"""A Spark data frame at the door: which column is which, what is wrong with it, and which items it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, IntegralType, NumericType, StringType

from unskew.data.columns import find_column
from unskew.data.ids import Ids, as_ids, encode
from unskew.data.propensities import SMALLEST
from unskew.errors import BadPropensityError, BadRatingError, ColumnError, DataError, EmptyLogError

BAD: Mapping[str, tuple[type[DataError], str]] = {
    "no_user": (BadRatingError, "rows have no user. Drop them first."),
    "no_item": (BadRatingError, "rows have no item. Drop them first."),
    "bad_rating": (
        BadRatingError,
        "ratings are missing or not finite. Drop those rows: a cell without a rating is an unobserved cell.",
    ),
    "bad_propensity": (
        BadPropensityError,
        "propensities are missing or lie outside (0, 1]. Raise small ones, or drop cells that can never be observed.",
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """The log as Spark has it: ``user``, ``item``, ``rating`` and ``propensity`` (1 for the naive model)."""

    frame: DataFrame
    user_name: str
    """What the caller calls the column of users."""

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        names: Mapping[str, str | None],
        *,
        propensity: str | None,
        threshold: float | None,
    ) -> Log:
        """Columns by name or by their spelling; ids must be text or integers, the others numbers."""
        found = {role: find_column(role, name, frame.columns) for role, name in names.items()}
        if propensity is not None:
            found["propensity"] = find_column("propensity", propensity, frame.columns)
        for role, name in found.items():
            _require_type(role, name, frame.schema[name].dataType)
        rating = _column(found["rating"]).cast("double")
        if threshold is not None:
            rating = F.when(F.isnan(rating), rating).when(
                rating.isNotNull(), (rating >= threshold).cast("double")
            )
        weight = F.lit(1.0) if propensity is None else _column(found["propensity"]).cast("double")
        columns = {
            "user": _column(found["user"]),
            "item": _column(found["item"]),
            "rating": rating,
            "propensity": weight,
        }
        return cls(
            frame.select([column.alias(role) for role, column in columns.items()]), found["user"]
        )

    def count(self) -> Counted:
        """One pass: items, ratings, a digest of each item's cells, and an error that counts bad rows where there are any."""
        no_user, no_item = F.col("user").isNull(), F.col("item").isNull()
        is_finite = F.coalesce(F.abs("rating") < F.lit(float("inf")), F.lit(False))
        is_chance = F.coalesce(F.col("propensity").between(SMALLEST, 1.0), F.lit(False))
        bad = {
            "no_user": no_user,
            "no_item": no_item,
            "bad_rating": ~is_finite,
            "bad_propensity": ~is_chance,
        }
        totals = self.frame.groupBy("item").agg(
            F.count(F.lit(1)).alias("n"),
            F.bit_xor(F.xxhash64("user", "item", "rating", "propensity")).alias("digest"),
            *(F.sum(found.cast("long")).alias(name) for name, found in bad.items()),
        )
        table = totals.toArrow()
        counts = {name: int(np.sum(table[name].to_numpy())) for name in ("n", *bad)}
        if counts["n"] == 0:
            raise EmptyLogError(
                "the log has no ratings. Check the filter or the file it came from."
            )
        for name, (kind, what) in BAD.items():
            if counts[name]:
                raise kind(f"{counts[name]:,} of {counts['n']:,} {what}")
        codes, items = encode(as_ids(table["item"].to_numpy()))
        digest = np.empty(len(items), np.int64)
        digest[codes] = table["digest"].to_numpy()
        return Counted(items, counts["n"], digest)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """What one look at the log tells."""

    items: Ids
    """In their order."""
    n_ratings: int
    digest: npt.NDArray[np.int64]
    """Of each item's cells, in whatever order they come."""


def _column(name: str) -> Column:
    """By its very name: Spark reads a dot as a field of a struct."""
    return F.col(f"`{name.replace('`', '``')}`")


def _require_type(role: str, name: str, found: DataType) -> None:
    allowed: Any = (IntegralType, StringType) if role in ("user", "item") else NumericType
    if not isinstance(found, allowed):
        wanted = "text or integers" if role in ("user", "item") else "numbers"
        raise ColumnError(
            f"the column {name!r} holds {found.simpleString()}; the {role} must be {wanted}. Cast it first."
        )
