"""A log on Spark: its columns, their checks, and its counts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, IntegralType, NumericType, StringType

from unskew.data.columns import find_column
from unskew.data.ids import Ids, as_ids, encode
from unskew.data.propensities import SMALLEST
from unskew.errors import (
    BadPropensityError,
    BadRatingError,
    ColumnError,
    DataError,
    EmptyLogError,
    UsageError,
)

if TYPE_CHECKING:
    from unskew.engines.spark.engine import SparkEngine

BAD_VALUES: Mapping[str, tuple[type[DataError], str, str]] = {
    "user": (BadRatingError, "rows have no user", "Drop them."),
    "item": (BadRatingError, "rows have no item", "Drop them."),
    "rating": (
        BadRatingError,
        "ratings are missing or not finite",
        "Drop those rows: a cell without a rating is an unobserved cell.",
    ),
    "weight": (
        BadPropensityError,
        "propensities are missing or lie outside (0, 1]",
        "Raise small ones, or drop cells that can never be observed.",
    ),
}
"""The error, the problem and the remedy if values of a column are bad."""


@dataclass(frozen=True, slots=True, eq=False)
class SparkLog:
    """A Spark data frame with the columns ``user``, ``item``, ``rating`` and ``weight``.

    The weight is 1 / P. It is null where P is not a propensity, and 1 without propensities.
    """

    frame: DataFrame
    is_weighted: bool
    """Whether there are propensities."""
    user_name: str
    """The name of the column of users in the caller's data frame."""

    @classmethod
    def read(cls, engine: SparkEngine, source: object, propensity: object) -> SparkLog:
        """The columns of a Spark data frame, or of Parquet files, that the engine names.

        A :class:`SparkLog` is returned as it is.
        """
        if isinstance(source, SparkLog):
            return source
        if not (propensity is None or isinstance(propensity, str)):
            raise UsageError(
                "`propensities` must be the name of a column with `engine='spark'`; "
                f"got {type(propensity).__name__}.",
                parameter="propensities",
                remedy="Add the propensities to the data frame as a column.",
            )
        frame = _find_frame(engine, source)
        names = {"user": engine.user, "item": engine.item, "rating": engine.rating}
        if propensity is not None:
            names["propensity"] = propensity
        columns = {role: find_column(role, name, frame.columns) for role, name in names.items()}
        for role, name in columns.items():
            _require_type(role, name, frame.schema[name].dataType)
        weight = F.lit(1.0)
        if propensity is not None:
            probability = _column(columns["propensity"]).cast("double")
            weight = F.when(probability.between(SMALLEST, 1.0), 1.0 / probability)
        selected = frame.select(
            _column(columns["user"]).alias("user"),
            _column(columns["item"]).alias("item"),
            _column(columns["rating"]).cast("double").alias("rating"),
            weight.alias("weight"),
        )
        return cls(selected, propensity is not None, columns["user"])

    def binarize(self, threshold: float) -> SparkLog:
        """The log with ratings 1[rating >= threshold]; NaN and null stay."""
        rating = F.col("rating")
        is_click = F.when(F.isnan(rating), rating).when(
            rating.isNotNull(), (rating >= threshold).cast("double")
        )
        return replace(self, frame=self.frame.withColumn("rating", is_click))

    def with_weights(self, weight: Column) -> SparkLog:
        """The log with other weights."""
        return replace(self, frame=self.frame.withColumn("weight", weight))

    def count(self) -> LogCounts:
        """Count ratings and items in one pass; an error counts the bad values of a column."""
        is_finite = F.coalesce(F.abs("rating") < F.lit(float("inf")), F.lit(False))
        is_bad = {
            "user": F.col("user").isNull(),
            "item": F.col("item").isNull(),
            "rating": ~is_finite,
            "weight": F.col("weight").isNull(),
        }
        totals = self.frame.groupBy("item").agg(
            F.count(F.lit(1)).alias("n"),
            F.bit_xor(F.xxhash64("user", "item", "rating", "weight")).alias("digest"),
            F.min("rating").alias("lowest"),
            F.max("rating").alias("highest"),
            *(F.sum(bad.cast("long")).alias(f"bad_{name}") for name, bad in is_bad.items()),
        )
        table = totals.toArrow()
        n_ratings = int(np.sum(table["n"].to_numpy()))
        if n_ratings == 0:
            raise EmptyLogError(
                "the log has no ratings.", remedy="Check the filter or the file it came from."
            )
        for name, (error, problem, remedy) in BAD_VALUES.items():
            n_bad = int(np.sum(table[f"bad_{name}"].to_numpy()))
            if n_bad:
                parameter = "propensities" if name == "weight" else name
                text = f"{n_bad:,} of {n_ratings:,} {problem}."
                raise error(text, parameter=parameter, remedy=remedy)
        codes, items = encode(as_ids(table["item"].to_numpy()))
        digest = np.empty(len(items), np.int64)
        digest[codes] = table["digest"].to_numpy()
        lowest, highest = table["lowest"].to_numpy().min(), table["highest"].to_numpy().max()
        return LogCounts(items, n_ratings, digest, (float(lowest), float(highest)))


@dataclass(frozen=True, slots=True, eq=False)
class LogCounts:
    """The items of a log in order, and the number of its ratings."""

    items: Ids
    n_ratings: int
    digest: npt.NDArray[np.int64]
    """A hash of the cells of each item that does not depend on their order."""
    rating_range: tuple[float, float]
    """The smallest and the largest rating."""


def _find_frame(engine: SparkEngine, source: object) -> DataFrame:
    if isinstance(source, (str, Path)):
        return _find_session(engine).read.parquet(str(source))
    if isinstance(source, DataFrame):
        return source
    raise UsageError(
        "`engine='spark'` fits a Spark data frame or a path of Parquet files; got "
        f"{type(source).__module__}.{type(source).__name__}.",
        parameter="log",
        remedy="Make a data frame with session.createDataFrame(...), or leave `engine` out and "
        "pass Ratings.",
    )


def _find_session(engine: SparkEngine) -> SparkSession:
    if engine.session is not None:
        return engine.session
    has_java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    if SparkSession.getActiveSession() is None and not has_java:
        raise UsageError(
            "`engine='spark'` needs Java, which is not installed.",
            parameter="engine",
            remedy="Install a JDK (17 or later), or set JAVA_HOME.",
        )
    return SparkSession.builder.getOrCreate()


def _column(name: str) -> Column:
    """A column by its exact name: unquoted, Spark takes a dot for a field of a struct."""
    return F.col(f"`{name.replace('`', '``')}`")


def _require_type(role: str, name: str, data_type: DataType) -> None:
    is_id = role in ("user", "item")
    allowed: Any = (IntegralType, StringType) if is_id else NumericType
    if not isinstance(data_type, allowed):
        raise ColumnError(
            f"the column {name!r} has type {data_type.simpleString()}; the {role} must be "
            f"{'text or integers' if is_id else 'numbers'}.",
            parameter=role,
            value=name,
            remedy="Cast it to one of these types.",
        )
