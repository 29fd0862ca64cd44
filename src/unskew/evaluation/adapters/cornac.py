"""Cornac: models that keep ids, and score one user at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_ids
from unskew.evaluation.adapters import ADAPTERS
from unskew.evaluation.adapters.external import (
    ExternalModel,
    FactorModel,
    RowModel,
    Wrapping,
    require_fitted_attributes,
)

FACTOR_MODULES = ("cornac.models.mf.", "cornac.models.bpr.")


@ADAPTERS.declare(
    "cornac",
    label="Cornac",
    summary="All models that score items. Predictions are clipped to the range of ratings.",
    traits={"module": "cornac", "takes": ()},
)
def adapt_cornac(model: Any, wrapping: Wrapping) -> ExternalModel:
    user_map, item_map = require_fitted_attributes(model, "uid_map", "iid_map")
    shared: dict[str, Any] = {
        "users": _list_ids(user_map, model.num_users),
        "items": _list_ids(item_map, model.num_items),
        "limits": (model.min_rating, model.max_rating),
        **wrapping.describe(model),
    }
    if type(model).__name__ in ("MF", "BPR") and type(model).__module__.startswith(FACTOR_MODULES):
        is_mf = type(model).__name__ == "MF"
        factors = Factors(
            model.u_factors,
            model.i_factors,
            model.u_biases if is_mf else np.zeros(model.num_users),
            model.i_biases,
            float(model.global_mean) if is_mf else 0.0,
        )
        return FactorModel(factors=factors, predicts_ratings=is_mf, **shared)
    return RowModel(
        score_row=lambda user, items: np.asarray(model.score(user))[items],
        predict_row=lambda user, items: [
            model.rate(user, item, clipping=False) for item in items.tolist()
        ],
        **shared,
    )


def _list_ids(codes: Mapping[Any, int], size: int) -> Ids:
    """The ids of the first ``size`` codes; later ones were not in the training set."""
    by_code = {code: each for each, code in codes.items()}
    return as_ids([by_code[code] for code in range(size)])
