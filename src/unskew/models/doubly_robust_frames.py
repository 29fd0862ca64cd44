"""What doubly robust learning asks of an engine that reads a data frame itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.data.factors import Factors
from unskew.errors import UsageError
from unskew.factorization.engine import DoublyRobustFrameRequest, Frame, FrameFitRequest
from unskew.factorization.solution import Report
from unskew.models.engine_choice import name_engine
from unskew.models.imputation import choose_imputer
from unskew.models.matrix_factorization import MatrixFactorization

if TYPE_CHECKING:
    from unskew.models.doubly_robust import DoublyRobustFactorization

IN_MEMORY = "Use `engine='local'` or `engine='gpu'` with the log in memory"


def make_frame_request(
    model: DoublyRobustFactorization,
    frame: Frame,
    propensities: Any,
    *,
    engine: str | object,
    initial_factors: Factors | None,
    checkpoint: tuple[str | Path | None, int],
    report: Report | None,
) -> DoublyRobustFrameRequest:
    """The fit of ``model`` to a data frame; an error if it needs the log in memory."""
    imputer = choose_imputer(model.imputer, model.n_factors)
    _require_one_round(model, engine)
    _require_numbers(model, imputer, engine)
    imputer._check_settings()

    def make_checkpoint(arrays: Any) -> Any:
        return model._make_checkpoint(*checkpoint, *arrays, shape=(0, 0), start=initial_factors)

    def make_part(arrays: Any) -> Any:
        saved = make_checkpoint(arrays)
        return None if saved is None else saved.part("imputation")

    prediction = FrameFitRequest(
        frame=frame,
        propensity=propensities if model._reads_propensities else None,
        n_factors=model.n_factors,
        offsets=model.offsets,
        penalty=model._fixed_penalty,
        normalize="none",
        relevance_threshold=model.relevance_threshold,
        dtype=model.dtype,
        solver="auto",
        initial_factors=initial_factors,
        random_state=model.random_state,
        max_iter=model.max_iter,
        tol=model.tol,
        make_checkpoint=make_checkpoint,
        report=report,
    )
    imputation = replace(
        prediction,
        n_factors=imputer.n_factors,
        offsets=imputer.offsets,
        penalty=imputer._fixed_penalty,
        solver=imputer.solver,
        initial_factors=None,
        max_iter=imputer.max_iter,
        tol=imputer.tol,
        make_checkpoint=make_part,
        report=None,
    )
    return DoublyRobustFrameRequest(
        prediction,
        imputation,
        model.weighting,
        model.penalizes == "correction",
        model._reads_propensities,
    )


def _require_one_round(model: DoublyRobustFactorization, engine: str | object) -> None:
    """Raise an error for settings that need several rounds, or the ratings of all cells."""
    needs_memory = {
        "imputation": model.imputation == "error",
        "targeted": model.targeted,
        "is_balanced": model.is_balanced,
        "loss": model.loss != "squared",
        "weight_transform": model.weight_transform is not None,
    }
    used = [name for name, is_used in needs_memory.items() if is_used]
    if used:
        value = getattr(model, used[0])
        remedy = IN_MEMORY
        if used[0] == "weight_transform":
            remedy = "Transform the column of propensities instead"
        raise UsageError(
            f"`engine={name_engine(engine)!r}` does not fit {type(model).__name__} with "
            f"`{used[0]}={value!r}`.",
            parameter=used[0],
            value=value,
            remedy=f"{remedy}, or leave `{used[0]}` out.",
        )


def _require_numbers(
    model: DoublyRobustFactorization, imputer: MatrixFactorization, engine: str | object
) -> None:
    """Raise an error if a penalty must be chosen from the log."""
    name = name_engine(engine)
    if imputer.loss != "squared" or imputer.solver == "lbfgs":
        raise UsageError(
            f"`engine={name!r}` fits an imputer of squared loss with the solver 'auto', 'als' or "
            "'reduced'.",
            parameter="imputer",
            remedy="Pass `imputer=MatrixFactorization(10, 5.0)`, for example.",
        )
    if model.l2 == "auto" or imputer.l2 == "auto":
        raise UsageError(
            f"`engine={name!r}` cannot choose `l2` of the model or of its `imputer`: it reads the "
            "log itself.",
            parameter="l2" if model.l2 == "auto" else "imputer",
            value="auto",
            remedy="Pass numbers, as in `DoublyRobustFactorization(10, 5.0, "
            "imputer=MatrixFactorization(10, 5.0))`; the `l2_` of local fits to a sample of the "
            "users are a start.",
        )
