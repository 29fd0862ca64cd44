"""Predictions and recommendations of a fitted model as Spark data frames.

Only the items are sent to the executors; the factors of users stay in the data frame
``user_factors_frame`` of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DoubleType, IntegerType, StructField, StructType

from unskew.data.cells import CellNumbers, cell_numbers, sort_distinct
from unskew.data.factors import Factors
from unskew.data.frames import HASH_RANGE, require_new_name
from unskew.data.ids import Ids, as_ids, find_codes
from unskew.data.parts import SPLIT_IDS, RandomSplitUnit
from unskew.engines.spark.frame import find_names, quoted_column
from unskew.errors import ColumnError, UsageError
from unskew.models.recommendations import Recommendations
from unskew.ranking.candidates import Candidates, group_items
from unskew.ranking.positions import best_items, rank_cells
from unskew.settings import Number, OneOf, WholeNumber, draw_seeds
from unskew.types import RandomState, Vector

if TYPE_CHECKING:
    from unskew.engines.spark.engine import SparkEngine


def split_frame(
    engine: SparkEngine,
    frame: DataFrame,
    share: float,
    by: RandomSplitUnit,
    random_state: RandomState,
) -> tuple[DataFrame, DataFrame]:
    """Training and test rows by :func:`unskew.data.frames.hash_ids` of a cell or user."""
    Number(least=0, most=1)("share", share)
    OneOf(get_args(RandomSplitUnit))("by", by)
    (seed,) = draw_seeds(random_state)
    names = find_names(engine, frame, SPLIT_IDS[by])
    ids = [quoted_column(name).cast("string") for name in names.values()]
    text = F.concat_ws("|", *ids, F.lit(str(seed)))
    draw = F.conv(F.substring(F.md5(text), 1, 8), 16, 10).cast("long")
    limit = round(share * HASH_RANGE)
    return frame.where(draw >= limit), frame.where(draw < limit)


def predict_cells(
    factors: Factors, items: Ids, fallback: float, cells: pa.Table, item: str = "item"
) -> Vector:
    """The prediction of each row, from the factors and offset of its user; null if unknown."""
    code = find_codes(as_ids(cells[item].to_numpy()), items)
    is_known = ~cells["factors"].is_null().to_numpy()
    row = np.where(is_known, np.arange(len(code)), -1)
    predictions: Vector = _find_rows(cells, factors).predict(row, code, fallback=fallback)
    return predictions


def _find_rows(cells: pa.Table, factors: Factors) -> Factors:
    """The factors with a user for each row; zeros where the user is unknown."""
    is_known = ~cells["factors"].is_null().to_numpy()
    user_factors = np.zeros((len(is_known), factors.n_factors))
    known_rows = cells["factors"].combine_chunks().flatten().to_numpy()
    user_factors[is_known] = known_rows.reshape(int(is_known.sum()), factors.n_factors)
    user_offset = cells["offset"].fill_null(0.0).to_numpy()
    return replace(factors, user_factors=user_factors, user_offset=user_offset)


def predict_frame(engine: SparkEngine, model: Any, frame: DataFrame, name: str) -> DataFrame:
    """``frame`` with a column of predictions; unknown users and items get fallbacks."""
    users = _find_users(model)
    require_new_name(name, frame.columns)
    _require_other_names(frame.columns, users.columns[1:])
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


def _require_other_names(columns: list[str], of_users: list[str]) -> None:
    """Raise an error if the frame has a column with the name of one that it is joined with."""
    taken = [name for name in of_users if name in columns]
    if taken:
        raise ColumnError(
            f"the frame has a column {taken[0]!r}, and so have the users of the model.",
            parameter="frame",
            value=taken[0],
            remedy="Rename it, or drop it first.",
        )


def recommend_frame(
    engine: SparkEngine, model: Any, k: int, exclude: DataFrame | None
) -> DataFrame:
    """The ``k`` best items of every user of the fit: user, item, score and position."""
    WholeNumber(least=1)("k", k)
    users = _find_users(model)
    user, item = users.columns[0], "item_id"
    factors, items, _ = _find_items(model)
    limits, n_best = model.limits, min(int(k), len(items))
    item_type = _spark_type(items)
    if exclude is not None:
        item = find_names(engine, exclude, ("item",))["item"]
        item_type = exclude.schema[item].dataType
    users = _add_seen(engine, users, exclude)
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
                seen = _find_cells(batch["seen"], items)
                candidates = candidates.without(*group_items(seen, len(ids), len(items)))
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


def rank_frame(
    engine: SparkEngine, model: Any, frame: DataFrame, exclude: DataFrame | None, name: str
) -> DataFrame:
    """``frame`` with a column of positions: one shuffle by user, and one to join them."""
    users = _find_users(model)
    require_new_name(name, frame.columns)
    names = find_names(engine, frame, ("user", "item"))
    user, item = names["user"], names["item"]
    factors, items, _ = _find_items(model)
    cells = frame.groupBy(quoted_column(user).alias(user)).agg(
        F.collect_set(quoted_column(item)).alias("cells")
    )
    joined = cells.join(users.withColumnRenamed(users.columns[0], user), user, "left")
    joined = _add_seen(engine, joined, exclude)
    schema = StructType([frame.schema[user], frame.schema[item], StructField(name, IntegerType())])
    types = [to_arrow_type(field.dataType) for field in schema.fields]

    def rank(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = _find_rows(pa.Table.from_batches([batch]), factors)
            lists = batch["cells"]
            row = _repeat_rows(lists)
            ids = lists.flatten()
            code = find_codes(as_ids(ids.to_numpy(zero_copy_only=False)), items)
            seen = _find_cells(batch["seen"], items)
            size = len(batch), len(items)
            position = rank_cells(row.astype(np.int32), code, *size, rows, seen)
            arrays = [batch[user].take(pa.array(row)), ids, pa.array(position)]
            yield pa.record_batch(
                [array.cast(kind) for array, kind in zip(arrays, types, strict=True)],
                names=schema.names,
            )

    return frame.join(joined.mapInArrow(rank, schema), [user, item], "left")


def _add_seen(engine: SparkEngine, users: DataFrame, exclude: DataFrame | None) -> DataFrame:
    """Rows of users with a list of their items in ``exclude``; null if there are none."""
    if exclude is None:
        return users.withColumn("seen", F.lit(None))
    names, user = find_names(engine, exclude, ("user", "item")), users.columns[0]
    seen = exclude.groupBy(quoted_column(names["user"]).alias(user)).agg(
        F.collect_list(quoted_column(names["item"])).alias("seen")
    )
    return users.join(seen, user, "left")


def _repeat_rows(lists: pa.Array) -> Any:
    """The number of the row of each value of a column of lists."""
    lengths = pa.compute.list_value_length(lists).fill_null(0).to_numpy()
    return np.repeat(np.arange(len(lengths)), lengths)


def _find_cells(lists: pa.Array, items: Ids) -> CellNumbers:
    """The cells of the rows and of the items in their lists; unknown items are left out."""
    if pa.types.is_null(lists.type) or lists.null_count == len(lists):
        return np.empty(0, np.int64)
    codes = find_codes(as_ids(lists.flatten().to_numpy(zero_copy_only=False)), items)
    is_known = codes >= 0
    return sort_distinct(cell_numbers(_repeat_rows(lists)[is_known], codes[is_known], len(items)))


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
