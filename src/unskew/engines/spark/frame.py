"""A log on Spark: its columns, their checks, and its counts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, IntegralType, NumericType, StringType

from unskew.data.checks import BAD_VALUES, refuse_bad_values
from unskew.data.columns import find_column
from unskew.data.frames import free_name, open_lazily
from unskew.data.ids import Ids, as_ids, encode
from unskew.data.propensities import SMALLEST
from unskew.engines.spark.blocks import is_remote
from unskew.errors import (
    ColumnError,
    EmptyLogError,
    UsageError,
)

if TYPE_CHECKING:
    from unskew.engines.spark.engine import SparkEngine


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
        frame = _find_frame(engine, source)
        columns = find_names(engine, frame, ("user", "item", "rating"))
        if propensity is not None and not isinstance(propensity, str):
            frame, propensity = _add_propensities(frame, columns, propensity)
        if propensity is not None:
            columns["propensity"] = find_column("propensity", str(propensity), frame.columns)
        for role, name in columns.items():
            _require_type(role, name, frame.schema[name].dataType)
        weight = F.lit(1.0)
        if propensity is not None:
            probability = quoted_column(columns["propensity"]).cast("double")
            weight = F.when(probability.between(SMALLEST, 1.0), 1.0 / probability)
        selected = frame.select(
            quoted_column(columns["user"]).alias("user"),
            quoted_column(columns["item"]).alias("item"),
            quoted_column(columns["rating"]).cast("double").alias("rating"),
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
        for name in BAD_VALUES:
            n_bad = int(np.sum(table[f"bad_{name}"].to_numpy()))
            refuse_bad_values(name, n_bad, n_ratings)
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


def find_names(engine: SparkEngine, frame: DataFrame, roles: tuple[str, ...]) -> dict[str, str]:
    """The column of each role: the one that the engine names, or one with a common name."""
    return {role: find_column(role, getattr(engine, role), frame.columns) for role in roles}


def _add_propensities(
    frame: DataFrame, columns: Mapping[str, str], model: Any
) -> tuple[DataFrame, str]:
    """The frame with a column of the propensities of a fitted model, and the column's name."""
    if not hasattr(model, "add_to_frame"):
        raise UsageError(
            "with `engine='spark'`, `propensities` must be the name of a column, or a fitted "
            f"propensity model such as NaiveBayesPropensity; got {type(model).__name__}.",
            parameter="propensities",
            remedy="Add the propensities to the data frame as a column.",
        )
    view, internal_names = open_lazily(frame)
    name = free_name("propensity", internal_names)
    added = model.add_to_frame(view, internal_names, columns, name).to_native()
    original = [
        quoted_column(internal_name).alias(column)
        for column, internal_name in internal_names.items()
    ]
    return added.select(*original, quoted_column(name)), name


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
    session = SparkSession.builder.getOrCreate()
    if "PYSPARK_PYTHON" not in os.environ and not is_remote(session):
        context = session.sparkContext
        if str(context.master).startswith("local"):  # tasks run on this machine, so in this Python
            context.pythonExec = sys.executable
    return session


def quoted_column(name: str) -> Column:
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
