"""Surprise: models that keep raw ids, predict ratings, and have a default for unknown ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ids import as_ids
from unskew.evaluation.adapters import ADAPTERS
from unskew.evaluation.adapters.external import (
    ExternalModel,
    FactorModel,
    PairModel,
    RowModel,
    Wrapping,
    require_fitted_attributes,
)
from unskew.types import IntVector, Matrix, Vector

UNKNOWN = object()
"""A raw id that no training set has."""
NEIGHBOR_MODELS = ("KNNBasic", "KNNWithMeans", "KNNWithZScore", "KNNBaseline")


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
    if _is_own(model) and type(model).__name__ in NEIGHBOR_MODELS and model.k > 0:
        return PairModel(predict_pairs=_read_neighbors(model, training), **shared)

    def score_row(user: int, codes: IntVector) -> list[float]:
        raw_user = users[user] if user >= 0 else UNKNOWN
        return [
            model.predict(raw_user, items[code] if code >= 0 else UNKNOWN, clip=False).est
            for code in codes.tolist()
        ]

    return RowModel(score_row=score_row, **shared)


def _is_own(model: Any) -> bool:
    """Whether the class is one of Surprise's own; a subclass may predict in another way."""
    return type(model).__module__.startswith("surprise.")


def _read_factors(model: Any, training: Any) -> Factors | None:
    """The factors and offsets of the algorithms that have them; None for others."""
    if not _is_own(model):
        return None
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


def _read_neighbors(model: Any, training: Any) -> Callable[[IntVector, IntVector], Vector]:
    """Predictions of many pairs by the nearest neighbours, from the matrix of similarities.

    With x the user and y the item, or the reverse for similar items:

        center(x, y) + scale(x) sum over neighbours of s (r - center) / scale / sum of s

    ``KNNBasic`` has no center, and its default prediction where there are too few neighbours; the
    others predict the center there.
    """
    from unskew.kernels.neighbors import add_up_neighbors

    lists = [model.yr[code] for code in range(model.n_y)]
    size = np.array([len(each) for each in lists])
    neighbor = np.array([x for each in lists for x, _ in each], dtype=np.int32)
    rating = np.array([rating for each in lists for _, rating in each], dtype=np.float64)
    starts = np.append(0, np.cumsum(size))
    is_basic = type(model).__name__ == "KNNBasic"
    default = model.default_prediction()
    center_of_x, center_of_y = _find_centers(model, training)
    scale = getattr(model, "sigmas", np.ones(model.n_x))
    value = (rating - center_of_x[neighbor] - np.repeat(center_of_y, size)) / scale[neighbor]
    similarity = np.ascontiguousarray(model.sim, dtype=np.float64)

    def predict_pairs(user: IntVector, item: IntVector) -> Vector:
        """One prediction for each pair of codes of Surprise; -1 is an unknown user or item."""
        x, y = model.switch(user, item)
        is_known = (x >= 0) & (y >= 0)
        center = np.where(x >= 0, center_of_x[x], 0.0) + np.where(y >= 0, center_of_y[y], 0.0)
        if type(model).__name__ == "KNNBaseline":
            center[~is_known] += np.where(x < 0, training.global_mean, 0.0)[~is_known]
        else:
            center[~is_known] = default
        x, y = x[is_known], y[is_known]
        sums = add_up_neighbors(similarity, x, y, starts, neighbor, value, model.k)
        is_enough = (sums[:, 2] >= model.min_k) & (sums[:, 0] > 0)
        shift = np.divide(sums[:, 1], sums[:, 0], out=np.zeros(x.size), where=is_enough)
        center[is_known] += scale[x] * shift
        if is_basic:
            center[np.flatnonzero(is_known)[~is_enough]] = default
        return center

    return predict_pairs


def _find_centers(model: Any, training: Any) -> tuple[Vector, Vector]:
    """What the ratings of x and of y are centered at: the parts of x and of y, to be added."""
    if type(model).__name__ == "KNNBaseline":
        return training.global_mean + np.asarray(model.bx), np.asarray(model.by)
    return np.asarray(getattr(model, "means", np.zeros(model.n_x))), np.zeros(model.n_y)
