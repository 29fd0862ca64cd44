"""Cross-validation of a log on Spark: folds are drawn, fitted and scored there."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from unskew.data.ids import as_ids, encode
from unskew.data.universe import Universe
from unskew.data.weights import WeightTransform
from unskew.engines.spark.fitting import require_driver_memory
from unskew.engines.spark.frame import SparkLog
from unskew.engines.spark.serving import predict_cells
from unskew.errors import UsageError
from unskew.estimators.observed import Clusters, Scope, SumSpec
from unskew.estimators.point import Estimator, find_estimator
from unskew.estimators.sums import Sums
from unskew.estimators.transforms import Clip
from unskew.evaluation.backends.narwhals.metric_input import MetricProbe
from unskew.metrics.metric import Metric, MetricInput, compares_logged_cells, find_metric
from unskew.settings import WholeNumber
from unskew.threads import cancel_jobs_on_interrupt
from unskew.types import RandomState, Vector

if TYPE_CHECKING:
    from unskew.engines.spark.engine import SparkEngine

MapBatches: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
PARTIAL_SUMS = "n_cells long, sums binary"


@dataclass(frozen=True, slots=True, eq=False)
class SparkTraining:
    """Ratings on Spark that a model is fitted to."""

    engine: SparkEngine
    log: SparkLog
    n_ratings: int

    def fit(
        self,
        model: Any,
        /,
        *,
        weight_transform: WeightTransform | None = None,
        initial_factors: Any = None,
    ) -> Any:
        """Fit ``model`` and return it."""
        if "engine" not in inspect.signature(model.fit).parameters:
            raise UsageError(
                f"{type(model).__name__} cannot be fitted on Spark.",
                parameter="engine",
                remedy="Use MatrixFactorization, or leave `engine` out.",
            )
        transform = weight_transform or model.weight_transform
        log = _transform_weights(self.log, transform)
        model.set_params(weight_transform=None)  # the weights of the log are transformed already
        fitted = model.fit(log, initial_factors=initial_factors, engine=self.engine)
        return fitted.set_params(weight_transform=transform)


def _transform_weights(log: SparkLog, transform: WeightTransform | None) -> SparkLog:
    if transform is None or not log.is_weighted:
        return log
    if not isinstance(transform, Clip):
        raise UsageError(
            f"the weight transform {transform!r} is not available on Spark.",
            parameter="weight_transform",
            value=transform,
            remedy="Use Clip.",
        )
    return log.with_weights(F.least("weight", F.lit(float(transform.max_weight))))


@dataclass(frozen=True, slots=True, eq=False)
class SparkFold:
    """Ratings to fit a model to, and other ratings to score it on."""

    training: SparkTraining
    validation: SparkLog
    universe: Universe

    def score(self, fitted: Any, /, *, metric: str, estimator: str) -> float:
        """The risk over all cells, estimated from the validation ratings.

        Ratings are converted to 0 and 1 first if the model was fitted to such ratings.
        """
        chosen, criterion = find_estimator(estimator), find_metric(metric)
        validation = self.validation
        if fitted.relevance_threshold is not None:
            validation = validation.binarize(fitted.relevance_threshold)
        probe, spec = _probe(criterion, chosen)
        with cancel_jobs_on_interrupt(validation.frame.sparkSession):
            rows = _sum_cells(fitted, validation, criterion, probe, spec)
        if not rows:
            raise UsageError(
                "a fold has no ratings to score on.",
                parameter="n_folds",
                remedy="Use fewer folds, or another `random_state`.",
            )
        sums: Sums = reduce(add, (pickle.loads(row["sums"]) for row in rows))
        scope = Scope(sum(row["n_cells"] for row in rows), self.universe)
        return float(chosen.from_sums(spec, sums, scope).value[0])


def _sum_cells(
    fitted: Any, validation: SparkLog, metric: Metric, probe: ScaleProbe, spec: SumSpec
) -> list[Any]:
    """Rows of pickled sums over the validation ratings of some users, one for each task."""
    scale = None
    if "scale" in probe.reads:
        scale = validation.frame.select("rating").distinct().toArrow()["rating"].to_numpy()
    users = fitted.user_factors_frame
    cells = validation.frame.join(users, "user", "left")
    if spec.unit is not None:
        cells = cells.repartition(spec.unit)  # all cells of a unit in one partition
    try:
        return cells.mapInArrow(
            _make_sum_batches(fitted, metric, spec, scale), PARTIAL_SUMS
        ).collect()
    finally:
        users.unpersist()


class ScaleProbe(MetricProbe):
    """A probe that also records whether a metric reads the rating scale."""

    __slots__ = ()

    def distinct(self) -> Vector:
        self.reads.add("scale")
        return self.scale

    def require_binary(self) -> None:
        self.reads.add("scale")

    def require_relevant(self, threshold: float) -> None:
        self.reads.add("scale")


def _probe(metric: Metric, estimator: Estimator) -> tuple[ScaleProbe, SumSpec]:
    """What the metric reads, and the sums that its estimate is made of."""
    probe = ScaleProbe.new()
    delta = metric(probe)
    if delta.is_root:
        raise UsageError(
            f"the metric {metric.name!r} is not available on Spark.",
            parameter="metric",
            value=metric.name,
            remedy="Use 'mse', which prefers the same settings.",
        )
    spec = estimator.sums_needed(
        is_ratio=delta.base is not None, is_mean_of_users=delta.is_mean_of_users, cluster=None
    )
    return probe, spec


def check_criterion(metric: str, estimator: str) -> None:
    """Raise an error if folds cannot be scored by this metric and this estimator on Spark.

    A partition has the ratings and predictions of some cells, and no other cells of their user or
    item. Imputed ratings of all cells do not exist.
    """
    criterion, chosen = find_metric(metric), find_estimator(estimator)
    needs_other_cells = criterion.ranks or compares_logged_cells(criterion)
    if needs_other_cells or "item" in _probe(criterion, find_estimator("naive"))[0].reads:
        raise UsageError(
            f"the metric {metric!r} is not available on Spark: it compares cells with one another.",
            parameter="metric",
            value=metric,
            remedy="Use a rating metric such as 'mse', or leave `engine` out.",
        )
    if chosen.imputes:
        raise UsageError(
            f"the estimator {estimator!r} is not available on Spark: it needs imputed ratings.",
            parameter="estimator",
            value=estimator,
            remedy="Use 'snips', for example.",
        )
    _probe(criterion, chosen)


def _make_sum_batches(
    fitted: Any, metric: Metric, spec: SumSpec, scale: Vector | None
) -> MapBatches:
    """A function that turns the cells of a partition into their :class:`Sums`.

    The cells are joined with the factors of their users; an unknown user has none.
    """
    model = fitted.factors_, fitted.items_, fitted.fallback_

    def add_up(cells: pa.Table) -> Sums:
        rating = cells["rating"].to_numpy()
        no_items = np.zeros(rating.size, np.int32)  # check_criterion refuses metrics that read them
        delta = metric(
            MetricInput(
                rating,
                no_items,
                rating if scale is None else scale,
                prediction=predict_cells(*model, cells),
            )
        )
        weight = cells["weight"].to_numpy() if spec.is_weighted else np.ones(rating.size)
        if spec.unit is None:  # only the value is read, whose variance would need propensities
            return Sums.of(delta.value, weight=weight, base=delta.base, is_ratio=spec.is_ratio)
        codes, units = encode(as_ids(cells[spec.unit].to_numpy()))
        groups = Clusters(codes, len(units))
        return Sums.of_ratios(
            np.atleast_2d(delta.value), weight=weight, base=delta.base, groups=groups
        )

    def sum_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts = [pa.Table.from_batches([batch]) for batch in batches if batch.num_rows]
        if parts and spec.unit is not None:
            parts = [pa.concat_tables(parts)]
        if parts:
            n_cells = sum(part.num_rows for part in parts)
            sums = reduce(add, map(add_up, parts))
            yield pa.record_batch(
                {"n_cells": pa.array([n_cells], pa.int64()), "sums": [pickle.dumps(sums)]}
            )

    return sum_batches


def split(
    engine: SparkEngine,
    frame: Any,
    propensity: str | None,
    *,
    n_folds: int,
    random_state: RandomState,
) -> tuple[SparkTraining, list[SparkFold]]:
    """The whole log, and its folds.

    The hash of a cell's ids decides its fold, so a partition that is recomputed is the same.
    Weights are divided by the probability that a cell is drawn: (k - 1) / k for training and 1 / k
    for validation.
    """
    WholeNumber(least=2)("n_folds", n_folds)
    log = SparkLog.read(engine, frame, propensity)
    with cancel_jobs_on_interrupt(log.frame.sparkSession):
        counts = log.count()
        n_users = log.frame.select("user").distinct().count()
    if engine.collect_users:
        require_driver_memory(n_users, 0, counts.n_ratings)
    universe = Universe(*(engine.universe or (n_users, len(counts.items))))
    engine = replace(engine, universe=(universe.n_users, universe.n_items))
    whole = SparkTraining(engine, log, counts.n_ratings)
    weight = F.col("weight")
    uniform = F.lit(universe.n_cells / counts.n_ratings)
    if not isinstance(random_state, int):
        random_state = int(np.random.default_rng(random_state).integers(2**31))
    fold_of_cell = F.pmod(F.xxhash64("user", "item", F.lit(random_state)), F.lit(n_folds))
    folds = []
    for fold in range(n_folds):
        kept = replace(log, frame=log.frame.where(fold_of_cell != fold), user_name="user")
        held_out = replace(log, frame=log.frame.where(fold_of_cell == fold), user_name="user")
        training = SparkTraining(
            replace(engine, collect_users=False),
            kept.with_weights(weight * (n_folds / (n_folds - 1))) if log.is_weighted else kept,
            counts.n_ratings,
        )
        validation = held_out.with_weights((weight if log.is_weighted else uniform) * n_folds)
        folds.append(SparkFold(training, validation, universe))
    return whole, folds
