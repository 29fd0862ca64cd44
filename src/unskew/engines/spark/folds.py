"""A log on Spark in folds, for cross-validation: every fold is fitted and judged where the log lies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from unskew.data.checks import whole_number
from unskew.data.ids import as_ids, find_codes
from unskew.engines.spark.engine import SparkEngine
from unskew.engines.spark.fitting import MOST_COLLECTED, frame_of, require_column
from unskew.engines.spark.frame import Log
from unskew.errors import UnknownNameError, UsageError
from unskew.factorization.parameters import rows_or_zero
from unskew.types import Vector

SUMS = ("n", "weight", "loss", "weighted_loss")
LOSSES: Mapping[str, Callable[[Vector], Vector]] = {"mse": np.square, "mae": np.abs}
ESTIMATORS: Mapping[str, Callable[[Vector, int], float]] = {
    "ips": lambda sums, n_cells: sums[3] / n_cells,
    "snips": lambda sums, _: sums[3] / sums[1],
    "naive": lambda sums, _: sums[2] / sums[0],
}
"""Of :data:`SUMS`."""


@dataclass(frozen=True, slots=True, eq=False)
class SparkPart:
    """Ratings to fit to, with columns ``user``, ``item``, ``rating`` and ``propensity``."""

    engine: SparkEngine
    frame: DataFrame
    is_weighted: bool
    n_ratings: int
    user_name: str = "user"
    """What the caller calls the column of users."""

    def fit(self, model: Any, *, clip: float | None = None, warm_start: Any = None) -> Any:
        """``model`` fitted to them, no weight above ``clip``."""
        if "engine" not in inspect.signature(model.fit).parameters:
            raise UsageError(
                f"{type(model).__name__} is not fitted on Spark; MatrixFactorization is. Leave engine=... out."
            )
        frame = self.frame
        if clip is not None and self.is_weighted:
            frame = frame.withColumn("propensity", F.greatest("propensity", F.lit(1 / clip)))
        fitted = model.fit(
            frame,
            "propensity" if self.is_weighted else None,
            warm_start=warm_start,
            engine=self.engine,
        )
        fitted.user_factors_frame = fitted.user_factors_frame.withColumnRenamed(
            "user", self.user_name
        )
        return fitted


@dataclass(frozen=True, slots=True, eq=False)
class SparkFold:
    """One split: what is fitted to, and what is judged on."""

    training: SparkPart
    validation: DataFrame
    n_cells: int

    def fit(self, model: Any, *, clip: float | None = None, warm_start: Any = None) -> Any:
        """``model`` fitted to the training part."""
        return self.training.fit(model, clip=clip, warm_start=warm_start)

    def score(self, fitted: Any, *, metric: str, estimator: str) -> float:
        """The risk over all cells that the other part promises."""
        users, add = fitted.user_factors_frame, _adder(fitted, LOSSES[metric])
        cells = self.validation.join(users, "user", "left")
        try:
            rows = cells.mapInArrow(add, ", ".join(f"{name} double" for name in SUMS)).collect()
        finally:
            users.unpersist()
        sums = np.array(rows, dtype=np.float64).reshape(-1, len(SUMS)).sum(axis=0)
        if not sums[0]:
            raise UsageError(
                "a fold has no ratings to judge on. Take fewer folds, or another random_state."
            )
        return float(ESTIMATORS[estimator](sums, self.n_cells))


def _adder(
    fitted: Any, loss: Callable[[Vector], Vector]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Sums over cells that have been joined with their users' factors; who is unknown has none."""
    found, items, fallback, threshold = (
        fitted.parameters_,
        fitted.items_,
        fitted.fallback_,
        fitted.threshold,
    )

    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sums = np.zeros(len(SUMS))
        for batch in batches:
            item = find_codes(as_ids(batch["item"].to_numpy(zero_copy_only=False)), items)
            is_known = ~batch["factors"].is_null().to_numpy(zero_copy_only=False)
            factors = np.zeros((len(item), found.item_factors.shape[1]))
            factors[is_known] = (
                batch["factors"].flatten().to_numpy().reshape(int(is_known.sum()), factors.shape[1])
            )
            offset = batch["offset"].fill_null(0.0).to_numpy() + rows_or_zero(
                found.item_offset, item
            )
            product = np.einsum("kd,kd->k", factors, rows_or_zero(found.item_factors, item))
            prediction = offset + np.where(
                is_known & (item >= 0), product + found.constant, fallback
            )
            rating = batch["rating"].to_numpy()
            target = rating if threshold is None else (rating >= threshold).astype(np.float64)
            losses, weight = loss(target - prediction), 1 / batch["propensity"].to_numpy()
            sums += len(item), weight.sum(), losses.sum(), weight @ losses
        yield pa.record_batch({name: [value] for name, value in zip(SUMS, sums, strict=True)})

    return add


def check_judge(metric: str, estimator: str) -> None:
    """Refuse a metric or an estimator that is not known here."""
    for kind, name, known in (
        ("metric on Spark", metric, LOSSES),
        ("estimator on Spark", estimator, ESTIMATORS),
    ):
        if name not in known:
            raise UnknownNameError(kind, name, known)


def split(
    engine: SparkEngine, frame: Any, propensity: str | None, *, n_folds: int, random_state: int
) -> tuple[SparkPart, list[SparkFold]]:
    """All of the log, and its folds: cells are drawn by the hash of their ids, so that a part read again is the same."""
    require_column(propensity)
    k = whole_number("n_folds", n_folds, least=2)
    log = Log.of(frame_of(engine, frame), engine.names, propensity=propensity, threshold=None)
    counted = log.count()
    n_users = log.frame.select("user").distinct().count()
    if engine.collect_users and n_users + counted.n_ratings > MOST_COLLECTED:
        raise UsageError(
            f"{n_users:,} users and {counted.n_ratings:,} ratings are too many for the driver. "
            "Pass engine=SparkEngine(collect_users=False)."
        )
    universe = engine.universe or (n_users, len(counted.items))
    within = replace(engine, user="user", item="item", rating="rating", universe=universe)
    n_cells, is_weighted = universe[0] * universe[1], propensity is not None
    chance = F.col("propensity") if is_weighted else F.lit(counted.n_ratings / n_cells)
    drawn = F.pmod(F.xxhash64("user", "item", F.lit(int(random_state))), F.lit(k))
    folds = []
    for fold in range(k):
        kept = log.frame.where(drawn != fold).withColumn(
            "propensity", F.col("propensity") * ((k - 1) / k)
        )
        held = log.frame.where(drawn == fold).withColumn("propensity", chance / k)
        part = SparkPart(replace(within, collect_users=False), kept, is_weighted, counted.n_ratings)
        folds.append(SparkFold(part, held, n_cells))
    return SparkPart(within, log.frame, is_weighted, counted.n_ratings, log.user_name), folds
