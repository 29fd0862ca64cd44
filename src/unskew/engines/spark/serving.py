"""Predictions and recommendations of a fitted model as Spark data frames.

Only the items are sent to the executors; the factors of users stay in the data frame
``user_factors_frame`` of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DoubleType, IntegerType, StructField, StructType

from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_ids, find_codes
from unskew.engines.spark.frame import find_names, quoted_column
from unskew.errors import UsageError
from unskew.models.recommendations import Recommendations
from unskew.ranking.candidates import Candidates
from unskew.ranking.positions import best_items
from unskew.settings import Number, WholeNumber
from unskew.types import Vector

if TYPE_CHECKING:
    from unskew.engines.spark.engine import SparkEngine

HASH_RANGE = 1 << 32
"""A cell is drawn by its hash modulo this number."""


def split_frame(
    engine: SparkEngine, frame: DataFrame, share: float, random_state: int
) -> tuple[DataFrame, DataFrame]:
    """Training and test rows; the hash of a cell's ids decides, so it never changes."""
    Number(least=0, most=1)("share", share)
    names = find_names(engine, frame, ("user", "item"))
    ids = [quoted_column(name) for name in names.values()]
    draw = F.pmod(F.xxhash64(*ids, F.lit(random_state)), F.lit(HASH_RANGE)) / F.lit(HASH_RANGE)
    return frame.where(draw >= share), frame.where(draw < share)


def predict_cells(
    factors: Factors, items: Ids, fallback: float, cells: pa.Table, item: str = "item"
) -> Vector:
    """The prediction of each row, from the factors and offset of its user; null if unknown."""
    code = find_codes(as_ids(cells[item].to_numpy()), items)
    is_known = ~cells["factors"].is_null().to_numpy()
    user_factors = np.zeros((len(code), factors.n_factors))
    known_rows = cells["factors"].combine_chunks().flatten().to_numpy()
    user_factors[is_known] = known_rows.reshape(int(is_known.sum()), factors.n_factors)
    user_offset = cells["offset"].fill_null(0.0).to_numpy()
    by_cell = replace(factors, user_factors=user_factors, user_offset=user_offset)
    row = np.where(is_known, np.arange(len(code)), -1)
    predictions: Vector = by_cell.predict(row, code, fallback=fallback)
    return predictions


def predict_frame(engine: SparkEngine, model: Any, frame: DataFrame, name: str) -> DataFrame:
    """``frame`` with a column of predictions; unknown users and items get fallbacks."""
    users = _find_users(model)
    names = find_names(engine, frame, ("user", "item"))
    factors, items, fallback, limits = *_find_items(model), model.limits
    schema = StructType([*frame.schema.fields, StructField(name, DoubleType())])
    columns = frame.columns

    def predict(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            cells = pa.Table.from_batches([batch])
            values = predict_cells(factors, items, fallback, cells, names["item"])
            if limits is not None:
                values = np.clip(values, *limits)
            result = cells.select(columns).append_column(name, pa.array(values, pa.float64()))
            yield from result.to_batches()

    same_name = users.withColumnRenamed(users.columns[0], names["user"])
    return frame.join(same_name, names["user"], "left").mapInArrow(predict, schema)


def recommend_frame(
    engine: SparkEngine, model: Any, k: int, exclude: DataFrame | None
) -> DataFrame:
    """The ``k`` best items of every user of the fit: user, item, score and position."""
    WholeNumber(least=1)("k", k)
    users = _find_users(model)
    user, item = users.columns[0], "item_id"
    factors, items, _ = _find_items(model)
    limits, n_best = model.limits, min(int(k), len(items))
    if exclude is not None:
        names = find_names(engine, exclude, ("user", "item"))
        item = names["item"]
        seen = exclude.groupBy(quoted_column(names["user"]).alias(user)).agg(
            F.collect_list(quoted_column(item)).alias("seen")
        )
        item_type = exclude.schema[item].dataType
        users = users.join(seen, user, "left")
    else:
        users, item_type = users.withColumn("seen", F.lit(None)), _spark_type(items)
    schema = StructType(
        [
            users.schema[user],
            StructField(item, item_type),
            StructField("score", DoubleType()),
            StructField("position", IntegerType()),
        ]
    )
    types = [to_arrow_type(field.dataType) for field in schema.fields]

    def recommend(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = as_ids(batch[user].to_numpy(zero_copy_only=False))
            rows = batch["factors"].flatten().to_numpy().reshape(len(ids), factors.n_factors)
            offset = batch["offset"].to_numpy()
            scorer = replace(factors, user_factors=rows, user_offset=offset)
            candidates = Candidates(len(ids), len(items))
            if batch["seen"].null_count < len(ids):
                candidates = candidates.without(*_find_seen(batch["seen"], items))
            best, scores = best_items(scorer, n_best, len(ids), len(items), candidates)
            scores = np.where(np.isneginf(scores), np.nan, scores)
            if limits is not None:
                scores = np.clip(scores, *limits)
            columns = Recommendations(ids, items[best], scores).to_columns().values()
            arrays = [
                pa.array(values.tolist(), kind) for values, kind in zip(columns, types, strict=True)
            ]
            yield pa.record_batch(arrays, names=schema.names)

    return users.mapInArrow(recommend, schema)


def _find_seen(lists: pa.Array, items: Ids) -> tuple[Any, Any]:
    """Where the seen items of each user start, and their codes; unknown items are left out."""
    values = lists.flatten()
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    codes = find_codes(as_ids(values.to_numpy(zero_copy_only=False)), items)
    row = np.repeat(np.arange(len(lengths)), lengths)
    cells = np.unique(np.stack([row, codes])[:, codes >= 0], axis=1)
    starts = np.concatenate([[0], np.cumsum(np.bincount(cells[0], minlength=len(lengths)))])
    return starts, cells[1].astype(np.int32)


def _find_users(model: Any) -> DataFrame:
    users: DataFrame | None = getattr(model, "user_factors_frame", None)
    if users is None:
        raise UsageError(
            f"{type(model).__name__} has no factors of users on Spark.",
            parameter="model",
            remedy="Fit it with `engine='spark'` in this Spark session.",
        )
    return users


def _find_items(model: Any) -> tuple[Factors, Ids, float]:
    """The items' side of the model, which is sent with the tasks."""
    factors = model.factors_
    no_users = np.empty((0, factors.n_factors)), np.empty(0)
    alone = replace(factors, user_factors=no_users[0], user_offset=no_users[1])
    return alone, model.items_, model.fallback_


def _spark_type(items: Ids) -> Any:
    from pyspark.sql.types import LongType, StringType

    return LongType() if items.dtype.kind in "iu" else StringType()
