"""Which engine trains on the log of a file, and fits by engines that read the file themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unskew.errors import UsageError
from unskew.factorization.engine import AllCellsEngine, FrameEngine
from unskew.io.duckdb_files import choose_reader
from unskew.models import (
    DoublyRobustFactorization,
    LogisticFactorization,
    RelevanceFactorization,
    WeightedFactorization,
    find_recommender,
)
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import Recommender
from unskew.registry import LOCAL_ENGINES, engine_names, find_engine
from unskew.workflows import inputs
from unskew.workflows.requests import TrainingRequest

LARGE_LOGS = "disk"
"""The engine for a log that would take more than half of the memory."""
LEARNERS_IN_MEMORY = (
    DoublyRobustFactorization,
    LogisticFactorization,
    RelevanceFactorization,
    WeightedFactorization,
)
"""Learners that an engine fits to a log in memory only."""


def choose_engine(request: TrainingRequest) -> str:
    """The engine of a request; ``auto`` is ``disk`` for a large Parquet file, else ``local``.

    Raises an error if the learner cannot be fitted by it.
    """
    if request.engine != "auto":
        name = request.engine
        if name not in LOCAL_ENGINES and not _can_fit(name, request.learner):
            raise UsageError(
                f"the learner {request.learner!r} cannot be fitted by `engine={name!r}`.",
                parameter="engine",
                value=name,
                remedy="Use `engine='local'`, or the learner 'mf', which every engine fits.",
            )
        return name
    source = inputs.open_log(request)
    fits_memory = source.format != "parquet" or choose_reader("auto", source) == "memory"
    is_single_fit = (
        reads_frames(request.learner) and not request.grid and LARGE_LOGS in engine_names()
    )
    return "local" if fits_memory or not is_single_fit else LARGE_LOGS


def takes_engine(learner: str) -> bool:
    """Whether engines other than the local one fit this learner."""
    return reads_frames(learner) or issubclass(_find_class(learner), LEARNERS_IN_MEMORY)


def reads_frames(learner: str) -> bool:
    """Whether engines that read the log themselves fit this learner."""
    model = _find_class(learner)
    return issubclass(model, MatrixFactorization) and not issubclass(model, LEARNERS_IN_MEMORY)


def _can_fit(engine: str, learner: str) -> bool:
    """Whether the engine fits the learner; an unknown name or a missing package is an error."""
    if reads_frames(learner):
        return True
    target = find_engine(engine)
    return takes_engine(learner) and isinstance(target, AllCellsEngine)


def _find_class(learner: str) -> Any:
    target: Any = find_recommender(learner).target
    return target if isinstance(target, type) else target.model  # a class, or a preset of one


def reads_files(engine: str) -> bool:
    """Whether the engine reads the file of a log itself."""
    return isinstance(find_engine(engine), FrameEngine)


def fit_from_file(request: TrainingRequest, engine: str, *, verbose: bool = False) -> Recommender:
    """Fit by an engine that reads the file of the log."""
    if request.grid:
        raise UsageError(
            f"`engine={engine!r}` fits one model to a file, without a search of settings.",
            parameter="grid",
            remedy="Search with the local engine on a sample of the users, or in Python with "
            "cross_validate(..., engine='spark').",
        )
    source = inputs.open_log(request)
    if source.format != "parquet" or not source.is_plain_file:
        raise UsageError(
            f"`engine={engine!r}` reads Parquet files, not {source.label} ({source.format}).",
            parameter="engine",
            value=engine,
            remedy="Write the log to a .parquet file, or use `engine='local'`.",
        )
    if inputs.is_model(request.propensities) or request.mcar is not None:
        raise UsageError(
            f"`engine={engine!r}` reads propensities from a column of the log.",
            parameter="propensities",
            value=request.propensities,
            remedy="Add them to the file first, with 'unskew propensity apply'.",
        )
    model = inputs.build_model(
        find_recommender(request.learner).target,
        request.settings,
        random_state=request.random_state,
        verbose=verbose,
    )
    options: dict[str, Any] = {}
    if request.checkpoint is not None:
        options["checkpoint"] = request.checkpoint
    names = {"user": request.user, "item": request.item, "rating": request.rating}
    chosen = replace(find_engine(engine), **names, **_find_universe(request))
    fitted: Recommender = model.fit(request.log, request.propensities, engine=chosen, **options)
    return fitted


def _find_universe(request: TrainingRequest) -> dict[str, tuple[int, int]]:
    universe = request.universe
    if universe is None or universe == "log":
        return {}
    if isinstance(universe, tuple) and len(universe) == 2:
        return {"universe": (int(universe[0]), int(universe[1]))}
    raise UsageError(
        "an engine that reads the file itself needs the universe as two numbers.",
        parameter="universe",
        value=universe,
        remedy="Pass the numbers of users and items.",
    )
