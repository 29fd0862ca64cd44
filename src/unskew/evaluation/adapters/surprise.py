"""Surprise: models that keep raw ids, predict ratings, and have a default for unknown ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ids import as_ids
from unskew.evaluation.adapters import ADAPTERS
from unskew.evaluation.adapters.external import (
    ExternalModel,
    FactorModel,
    RowModel,
    Wrapping,
    require_fitted_attributes,
)
from unskew.types import IntVector, Matrix

UNKNOWN = object()
"""A raw id that no training set has."""


@ADAPTERS.declare(
    "surprise",
    label="Surprise",
    summary="All algorithms. Predictions are clipped to the rating scale; ranks are not.",
    traits={"module": "surprise", "takes": ()},
)
def adapt_surprise(model: Any, wrapping: Wrapping) -> ExternalModel:
    (training,) = require_fitted_attributes(model, "trainset")
    users = [training.to_raw_uid(code) for code in range(training.n_users)]
    items = [training.to_raw_iid(code) for code in range(training.n_items)]
    shared: dict[str, Any] = {
        "users": as_ids(users),
        "items": as_ids(items),
        "limits": training.rating_scale,
        **wrapping.describe(model, has_default=True),
    }
    factors = _read_factors(model, training)
    if factors is not None:
        if not getattr(model, "biased", True) and wrapping.fallback is None:
            shared["fallback"] = model.default_prediction()
        return FactorModel(factors=factors, **shared)

    def score_row(user: int, codes: IntVector) -> list[float]:
        raw_user = users[user] if user >= 0 else UNKNOWN
        return [
            model.predict(raw_user, items[code] if code >= 0 else UNKNOWN, clip=False).est
            for code in codes.tolist()
        ]

    return RowModel(score_row=score_row, **shared)


def _read_factors(model: Any, training: Any) -> Factors | None:
    """The factors and offsets of the algorithms that have them; None for others."""
    if not type(model).__module__.startswith("surprise."):
        return None  # a subclass may predict in another way
    kind, mean = type(model).__name__, training.global_mean
    if kind == "BaselineOnly":
        nothing = np.zeros((training.n_users, 0)), np.zeros((training.n_items, 0))
        return Factors(*nothing, model.bu, model.bi, mean)
    if kind == "SVDpp":
        user_factors = model.pu + _implicit_factors(model, training)
        return Factors(user_factors, model.qi, model.bu, model.bi, mean)
    if kind in ("SVD", "NMF") and model.biased:
        return Factors(model.pu, model.qi, model.bu, model.bi, mean)
    return Factors(model.pu, model.qi) if kind in ("SVD", "NMF") else None


def _implicit_factors(model: Any, training: Any) -> Matrix:
    """Of each user: the sum of y over the rated items, divided by the root of their number."""
    factors: Matrix = np.zeros(model.pu.shape)
    for user, ratings in training.ur.items():
        items = [item for item, _ in ratings]
        factors[user] = model.yj[items].sum(axis=0) / np.sqrt(len(items))
    return factors
