"""Cross-validation of a log on Spark: folds are drawn, fitted and scored there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from unskew.data.ids import as_ids, find_codes
from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.data.weights import WeightTransform
from unskew.engines.spark.engine import SparkEngine
from unskew.engines.spark.fitting import MOST_COLLECTED, frame_of, require_column
from unskew.engines.spark.frame import Log
from unskew.errors import UnknownNameError, UsageError
from unskew.estimators.point import find_estimator
from unskew.estimators.sums import Scope, Sums, SumSpec
from unskew.estimators.transforms import Clip
from unskew.metrics.metric import Metric, MetricInput, find_metric
from unskew.settings import WholeNumber
from unskew.types import Vector

METRICS = ("mse", "mae")
"""Metrics whose delta depends on the rating and the prediction of one cell only."""
ESTIMATORS = ("ips", "snips", "naive")
"""Estimators whose sums are over independent cells."""
PARTIAL_SUMS = "n_cells long, total array<double>, moment array<double>"
AddBatches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, eq=False)
class SparkTraining:
    """Ratings to fit to, with columns ``user``, ``item``, ``rating`` and ``propensity``."""

    engine: SparkEngine
    frame: DataFrame
    is_weighted: bool
    n_ratings: int
    user_name: str = "user"
    """The name of the column of users in the caller's frame."""

    def fit(
        self,
        model: Any,
        /,
        *,
        weight_transform: WeightTransform | None = None,
        initial_factors: Any = None,
    ) -> Any:
        """Fit ``model`` and return it.

        The weight transform is applied to the column of propensities, since a model on Spark has
        no other weights.
        """
        if "engine" not in inspect.signature(model.fit).parameters:
            raise UsageError(
                f"{type(model).__name__} cannot be fitted on Spark.",
                parameter="engine",
                remedy="Use MatrixFactorization, or drop `engine`.",
            )
        transform = weight_transform or model.weight_transform
        fitted = model.set_params(weight_transform=None).fit(
            self._clip_weights(transform),
            "propensity" if self.is_weighted else None,
            initial_factors=initial_factors,
            engine=self.engine,
        )
        fitted.set_params(weight_transform=transform)
        users = fitted.user_factors_frame
        fitted.user_factors_frame = users.withColumnRenamed("user", self.user_name)
        return fitted

    def _clip_weights(self, transform: WeightTransform | None) -> DataFrame:
        if transform is None or not self.is_weighted:
            return self.frame
        if not isinstance(transform, Clip):
            raise UsageError(
                f"the weight transform {transform!r} is not available on Spark.",
                parameter="weight_transform",
                value=transform,
                remedy="Use Clip.",
            )
        least = F.lit(1 / transform.max_weight)
        return self.frame.withColumn("propensity", F.greatest("propensity", least))


@dataclass(frozen=True, slots=True, eq=False)
class SparkFold:
    """Ratings to fit to, and other ratings to score on."""

    training: SparkTraining
    validation: DataFrame
    universe: Universe

    def score(self, fitted: Any, /, *, metric: str, estimator: str) -> float:
        """The risk over all cells, estimated from the validation ratings."""
        chosen = find_estimator(estimator)
        spec = chosen.sums_needed(is_ratio=False, is_mean_of_users=False, cluster=None)
        users = fitted.user_factors_frame
        cells = self.validation.join(users, "user", "left")
        try:
            rows = cells.mapInArrow(
                _sum_batches(fitted, find_metric(metric), spec), PARTIAL_SUMS
            ).collect()
        finally:
            users.unpersist()
        n_observed = sum(row["n_cells"] for row in rows)
        if n_observed == 0:
            raise UsageError(
                "a fold has no ratings to score on.",
                parameter="n_folds",
                remedy="Use fewer folds, or another `random_state`.",
            )
        sums = reduce(add, (_read_sums(row) for row in rows if row["n_cells"]))
        return float(chosen.from_sums(spec, sums, Scope(n_observed, self.universe)).value[0])


def _sum_batches(fitted: Any, metric: Metric, spec: SumSpec) -> AddBatches:
    """A function that turns the cells of a partition into their sums.

    The cells are joined with the factors of their users; an unknown user has none.
    """
    factors, items, fallback = fitted.factors_, fitted.items_, fitted.fallback_
    threshold = fitted.relevance_threshold

    def predict(batch: pa.RecordBatch) -> Vector:
        item = find_codes(as_ids(batch["item"].to_numpy(zero_copy_only=False)), items)
        is_known = ~batch["factors"].is_null().to_numpy(zero_copy_only=False)
        user_factors = np.zeros((len(item), factors.n_factors))
        known_rows = batch["factors"].flatten().to_numpy()
        user_factors[is_known] = known_rows.reshape(int(is_known.sum()), factors.n_factors)
        of_cells = replace(
            factors,
            user_factors=user_factors,
            user_offset=batch["offset"].fill_null(0.0).to_numpy(),
        )
        row = np.where(is_known, np.arange(len(item)), -1)
        predictions: Vector = of_cells.predict(row, item, fallback=fallback)
        return predictions

    def add_up(batch: pa.RecordBatch) -> Sums:
        rating = batch["rating"].to_numpy()
        if threshold is not None:
            rating = (rating >= threshold).astype(np.float64)
        item = np.zeros(rating.size, np.int32)  # METRICS do not read it
        delta = metric(MetricInput(rating, item, rating, prediction=predict(batch))).value
        propensities = Propensities(batch["propensity"].to_numpy())
        weight = propensities.inverse if spec.is_weighted else np.ones(rating.size)
        return Sums.of(delta, propensities, weight=weight)

    def sum_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        n_cells, sums = 0, Sums(np.zeros(2), np.zeros((2, 2)))
        for batch in batches:
            n_cells += batch.num_rows
            sums += add_up(batch)
        yield pa.record_batch(
            {
                "n_cells": pa.array([n_cells], pa.int64()),
                "total": [sums.total.tolist()],
                "moment": [sums.moment.ravel().tolist()],
            }
        )

    return sum_partition


def _read_sums(row: Any) -> Sums:
    return Sums(np.array(row["total"]), np.array(row["moment"]).reshape(2, 2))


def check_criterion(metric: str, estimator: str) -> None:
    """Raise an error if folds cannot be scored by this metric and this estimator on Spark."""
    if metric not in METRICS:
        raise UnknownNameError("metric on Spark", metric, METRICS)
    if estimator not in ESTIMATORS:
        raise UnknownNameError("estimator on Spark", estimator, ESTIMATORS)


def split(
    engine: SparkEngine,
    frame: Any,
    propensity: str | None,
    *,
    n_folds: int,
    random_state: int | np.random.Generator | None,
) -> tuple[SparkTraining, list[SparkFold]]:
    """The whole log, and its folds.

    The hash of a cell's ids decides its fold, so a partition that is computed again is the same.
    """
    require_column(propensity)
    WholeNumber(least=2)("n_folds", n_folds)
    log = Log.of(frame_of(engine, frame), engine.names, propensity=propensity, threshold=None)
    counts = log.count()
    n_users = log.frame.select("user").distinct().count()
    if engine.collect_users and n_users + counts.n_ratings > MOST_COLLECTED:
        raise UsageError(
            f"{n_users:,} users and {counts.n_ratings:,} ratings are too many for the driver.",
            parameter="engine",
            remedy="Pass `engine=SparkEngine(collect_users=False)`.",
        )
    universe = Universe(*(engine.universe or (n_users, len(counts.items))))
    renamed = replace(
        engine,
        user="user",
        item="item",
        rating="rating",
        universe=(universe.n_users, universe.n_items),
    )
    is_weighted = propensity is not None
    observed = F.col("propensity") if is_weighted else F.lit(counts.n_ratings / universe.n_cells)
    if not isinstance(random_state, int):
        random_state = int(np.random.default_rng(random_state).integers(2**31))
    fold_of_cell = F.pmod(F.xxhash64("user", "item", F.lit(random_state)), F.lit(n_folds))
    folds = []
    for fold in range(n_folds):
        kept = log.frame.where(fold_of_cell != fold).withColumn(
            "propensity", F.col("propensity") * ((n_folds - 1) / n_folds)
        )
        held_out = log.frame.where(fold_of_cell == fold).withColumn(
            "propensity", observed / n_folds
        )
        on_executors = replace(renamed, collect_users=False)
        training = SparkTraining(on_executors, kept, is_weighted, counts.n_ratings)
        folds.append(SparkFold(training, held_out, universe))
    whole = SparkTraining(renamed, log.frame, is_weighted, counts.n_ratings, log.user_name)
    return whole, folds
