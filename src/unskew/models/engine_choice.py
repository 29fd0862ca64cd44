"""Which engines fit which learner, and fits of many models at once by an engine.

Every other combination is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.engine import AllCellsEngine, BatchEngine, Engine
from unskew.factorization.objective import name_unsolved_rows
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.registry import engine_for, find_engine

LOG_IN_MEMORY = "Use `engine='gpu'` or `engine='local'` with the log in memory"


def find_frame_engine(engine: str | object, log: object) -> Any:
    """The engine that ``engine`` names, if it may read a data frame itself.

    None for ``"local"``, and for ``"auto"`` unless the log is a data frame of Spark.
    """
    if isinstance(engine, str) and engine == "auto":
        engine = "spark" if engine_for(log) == "spark" else "local"
    return find_engine(engine)


def find_all_cells_engine(model: object, engine: str | object) -> AllCellsEngine | None:
    """The engine that fits a model to all cells; None is this process."""
    other = find_other_engine(engine)
    if other is None or isinstance(other, AllCellsEngine):
        return other
    raise _unfit_engine_error(model, engine, LOG_IN_MEMORY)


def find_log_engine(model: object, engine: str | object) -> Engine | None:
    """The engine that fits a model to a log in memory; None is this process."""
    other = find_other_engine(engine)
    if other is None or isinstance(other, Engine):
        return other
    raise _unfit_engine_error(model, engine, LOG_IN_MEMORY)


def refuse_other_engines(model: object, engine: str | object) -> None:
    """Raise an error that names the model unless ``engine`` is the local one."""
    if find_other_engine(engine) is not None:
        raise _unfit_engine_error(model, engine, "Use `engine='local'`")


def require_squared_loss(engine: str | object, loss: str) -> None:
    """An error if an engine other than the local one shall fit another loss."""
    if loss != "squared":
        raise UsageError(
            f"`engine={name_engine(engine)!r}` fits squared loss, not {loss} loss.",
            parameter="loss",
            value=loss,
            remedy="Leave `engine` out, or use `loss='squared'`.",
        )


def find_other_engine(engine: str | object) -> Any:
    """The engine object; None for ``"local"`` and for ``"auto"`` with a log in memory."""
    if isinstance(engine, str) and engine == "auto":
        return None
    return find_engine(engine)


def name_engine(engine: str | object) -> str:
    """The name of an engine that was passed by name or as an object."""
    return engine if isinstance(engine, str) else type(engine).__name__


def _unfit_engine_error(model: object, engine: str | object, remedy: str) -> UsageError:
    name = name_engine(engine)
    return UsageError(
        f"{type(model).__name__} cannot be fitted by `engine={name!r}`.",
        parameter="engine",
        value=name,
        remedy=f"{remedy}, or MatrixFactorization, which every engine fits.",
    )


def fit_many(
    models: Sequence[MatrixFactorization],
    logs: Sequence[Ratings],
    propensities: Sequence[PropensitiesLike | None],
    engine: BatchEngine,
) -> None:
    """Fit each model to its log, as ``model.fit(log, propensities, engine=engine)`` does."""
    requests = []
    for model, log, weights in zip(models, logs, propensities, strict=True):
        requests.append(model._prepare_fit(log, weights, engine=engine))
    results = engine.run_many(requests)
    for model, log, request in zip(models, logs, requests, strict=True):
        with name_unsolved_rows(log, model.l2_):
            result = next(results)
        model._finish_fit(log, request.log, result)
