"""A fit to a data frame in the memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from unskew.data.clicks import binarize
from unskew.data.factors import Factors
from unskew.data.universe import Universe
from unskew.data.weights import training_weights, weighted_mean
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.engine import FrameFitRequest, FrameFitResult
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import Objective, sort_both_ways
from unskew.factorization.reduced import ReducedObjective
from unskew.factorization.solution import Solver, minimize
from unskew.threads import Workers, single_blas_thread

if TYPE_CHECKING:
    from unskew.engines.local.engine import LocalEngine

SOLVERS: Mapping[str, Callable[[Objective], Solver[Any, Factors]]] = {
    "auto": AlternatingLeastSquares,
    "als": AlternatingLeastSquares,
    "reduced": ReducedObjective.of,
}


def fit_in_memory(engine: LocalEngine, request: FrameFitRequest) -> FrameFitResult:
    """Read the log, sort it both ways, and alternate between users and items."""
    log, propensities = engine.read_log(request.frame, request.propensity)
    universe = Universe(*(engine.universe or (log.n_users, log.n_items)))
    threshold = request.relevance_threshold
    target = log if threshold is None else binarize(log, threshold)
    weight = training_weights(target, propensities, normalize=request.normalize)
    mean = weighted_mean(target.rating, weight)
    columns = target.user, target.item, target.rating, weight
    with Workers(engine.n_threads) as workers, single_blas_thread():
        cells = sort_both_ways(
            *columns, shape=(log.n_users, log.n_items), dtype=request.dtype, workers=workers
        )
        objective = Objective(
            *cells, request.n_factors, request.offsets, request.penalty(universe), workers
        )
        start = request.initial_factors or small_random(
            (log.n_users, log.n_items),
            mean,
            n_factors=request.n_factors,
            has_offsets=request.offsets != "none",
            random_state=request.random_state,
            dtype=request.dtype,
            with_users=request.solver == "reduced",
        )
        solution = minimize(
            SOLVERS[request.solver](objective),
            start,
            max_iter=request.max_iter,
            tol=request.tol,
            checkpoint=request.make_checkpoint(columns),
            report=request.report,
        )
    by_user = cells[0]
    seen = by_user.starts, by_user.opposite.astype("int32")
    limits = float(target.rating.min()), float(target.rating.max())
    size = universe, len(log), limits
    return FrameFitResult(solution, mean, log.users, log.items, seen, None, *size)
