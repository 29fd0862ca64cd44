"""Doubly robust learning of logs that stay on Spark: an imputation, and a prediction of all cells.

Blocks of users stay in the executors, as in any other fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.data.factors import Factors
from unskew.data.universe import Universe
from unskew.engines.spark.fitting import ShuffledLog, collect_users, make_result, shuffle_log
from unskew.engines.spark.frame import SparkLog
from unskew.engines.spark.imputation import (
    CorrectedBlocks,
    CorrectionTotals,
    ImputedUsers,
    fit_imputation,
)
from unskew.engines.spark.pseudo_outcome import (
    PredictedItems,
    PredictedUsers,
    SparkPredictionSweeps,
)
from unskew.engines.spark.solving import ItemFactors
from unskew.errors import UsageError
from unskew.factorization.als import ItemSide
from unskew.factorization.engine import DoublyRobustFrameRequest, DoublyRobustFrameResult
from unskew.factorization.initialization import small_random
from unskew.factorization.solution import Solution, minimize
from unskew.models.correction import warn_if_far
from unskew.threads import cancel_jobs_on_interrupt

if TYPE_CHECKING:
    from unskew.engines.spark.engine import SparkEngine


def fit_doubly_robust_on_spark(
    engine: SparkEngine, request: DoublyRobustFrameRequest
) -> DoublyRobustFrameResult:
    """Fit the imputation, correct it by the log, and fit the prediction to all cells.

    All cells are those of the users and the items of the log.
    """
    log = SparkLog.read(engine, request.prediction.frame, request.prediction.propensity)
    if request.needs_propensities and not log.is_weighted:
        raise UsageError(
            "doubly robust learning needs propensities.",
            parameter="propensities",
            remedy="Pass the name of their column, or a model by rating or by counts.",
        )
    with (
        cancel_jobs_on_interrupt(log.frame.sparkSession),
        shuffle_log(engine, request.prediction, log) as shuffled,
    ):
        universe = Universe(shuffled.totals.n_users, shuffled.blocks.n_items)
        totals = replace(shuffled.totals, universe=universe)
        return _fit_both(engine, request, replace(shuffled, totals=totals))


def _fit_both(
    engine: SparkEngine, request: DoublyRobustFrameRequest, shuffled: ShuffledLog
) -> DoublyRobustFrameResult:
    weigh, imputer = fit_imputation(request, shuffled)
    settings, imputed = request.prediction, imputer.items
    corrected = CorrectedBlocks.of(shuffled.blocks, imputer, weigh)
    try:
        totals = corrected.add_totals(imputed)
        shuffled = replace(shuffled, blocks=corrected.blocks)
        solver, start = _prepare_prediction(request, shuffled, imputed, totals)
        solution = minimize(
            solver,
            start,
            max_iter=settings.max_iter,
            tol=settings.tol,
            checkpoint=settings.make_checkpoint(shuffled.identity),
            report=settings.report,
        )
        return _collect_result(engine, request, shuffled, solver, solution, imputed, totals)
    finally:
        corrected.blocks.drop()


def _prepare_prediction(
    request: DoublyRobustFrameRequest,
    shuffled: ShuffledLog,
    imputed: ItemFactors,
    totals: CorrectionTotals,
) -> tuple[SparkPredictionSweeps, PredictedItems]:
    """The solver of the prediction, and the items that it starts at."""
    settings, (total_error, total_weight, _, squares, cross) = request.prediction, totals.sums
    imputed_rows, mean = None, total_error / total_weight
    sum_of_squares = squares
    if not request.penalizes_correction:
        imputed_rows, mean = imputed.as_float64_rows()[1], shuffled.totals.mean
        sum_of_squares += cross + totals.imputed_square
    _warn_if_far(request, shuffled, totals)
    solver = SparkPredictionSweeps(
        shuffled.blocks,
        shuffled.totals.n_users,
        settings.n_factors,
        settings.offsets,
        settings.penalty(shuffled.totals.universe),
        settings.dtype,
        imputed_rows,
        float(sum_of_squares),
    )
    start = _make_start(request, imputed, mean)
    if settings.offsets == "none":
        start = start.without_offsets()
    start = start.astype("float64")  # the precision of the states of a checkpoint
    items = PredictedItems(
        *start.arrays, start.global_offset, start=ItemSide.of(start), user_penalty=0.0
    )
    return solver, items


def _make_start(request: DoublyRobustFrameRequest, imputed: ItemFactors, mean: float) -> Factors:
    """Small random items, or those of ``initial_factors`` without the part of G."""
    settings = request.prediction
    initial, d = settings.initial_factors, settings.n_factors
    if initial is None:
        return small_random(
            (0, imputed.n_items),
            mean,
            n_factors=d,
            has_offsets=settings.offsets != "none",
            random_state=settings.random_state,
            dtype=settings.dtype,
            with_users=False,
        )
    factors, offset, c = initial.item_factors, initial.item_offset, initial.global_offset
    if request.penalizes_correction:
        factors, offset = factors[:, :d], offset - imputed.item_offset
        c -= imputed.global_offset
    return Factors(np.empty((0, d)), factors, np.empty(0), offset, c)


def _warn_if_far(
    request: DoublyRobustFrameRequest, shuffled: ShuffledLog, totals: CorrectionTotals
) -> None:
    far, far_correction, highest, minus_lowest = totals.limits
    if request.penalizes_correction:
        warn_if_far(float(highest + minus_lowest), float(far_correction), stacklevel=7)
    else:
        low, high = shuffled.counts.rating_range
        warn_if_far(high - low, float(far), stacklevel=7)


def _collect_result(
    engine: SparkEngine,
    request: DoublyRobustFrameRequest,
    shuffled: ShuffledLog,
    solver: SparkPredictionSweeps,
    solution: Solution[Any],
    imputed: ItemFactors,
    totals: CorrectionTotals,
) -> DoublyRobustFrameResult:
    """F with the users of the last sweep, G, and the doubly robust risk."""
    items: PredictedItems = solution.parameters
    n_cells = shuffled.totals.universe.n_cells
    total_error, _, constant, _, _ = totals.sums
    history = tuple(value + float(constant) for value in solution.history)
    risk = (history[-1] - items.user_penalty - solver.penalty.value(items)) / n_cells
    users = PredictedUsers(solver.make_users(items.start), request.penalizes_correction)
    whole: Factors = items.plus(imputed) if request.penalizes_correction else items
    factors = ItemFactors(*whole.arrays, whole.global_offset, start=items.start)
    outcomes = Solution(factors, history, solution.stop_reason)
    mean = (totals.imputed + float(total_error)) / n_cells
    prediction = make_result(engine, shuffled, outcomes, users, mean)
    both_sides = imputed.with_users(imputed.user_factors, imputed.user_offset)
    if engine.collect_users:
        _, both_sides, _ = collect_users(shuffled.log, shuffled.blocks, ImputedUsers(), imputed)
    return DoublyRobustFrameResult(prediction, both_sides, risk)
