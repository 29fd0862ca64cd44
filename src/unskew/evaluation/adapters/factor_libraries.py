"""Libraries whose models are factors: implicit, LightFM, cmfrec, ALS of Spark, and Cornac."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_ids
from unskew.errors import BadPredictionError
from unskew.evaluation.adapters import ADAPTERS
from unskew.evaluation.adapters.external import (
    ExternalModel,
    FactorModel,
    Kind,
    PairModel,
    RowModel,
    Wrapping,
    require_fitted_attributes,
)
from unskew.tables import count_noun
from unskew.types import Floats

IDS = ("users", "items")


@ADAPTERS.declare(
    "implicit",
    label="implicit",
    summary="Factor models: ALS, BPR, LMF, on a CPU or a GPU. Needs the ids of the codes.",
    traits={"module": "implicit", "takes": IDS},
)
def adapt_implicit(model: Any, wrapping: Wrapping) -> ExternalModel:
    if not hasattr(model, "item_factors"):
        raise BadPredictionError(
            f"{wrapping.name(model)} has no factors: it scores items from a matrix of interactions "
            "that it does not keep.",
            parameter="predictions",
            value=type(model).__name__,
            remedy="Pass a callable that gets user ids and item ids and returns the scores, from "
            "interactions @ model.similarity.",
        )
    user_factors, item_factors = require_fitted_attributes(model, "user_factors", "item_factors")
    users, items = wrapping.require_ids(model)
    return FactorModel(
        users=users,
        items=items,
        factors=Factors(_to_numpy(user_factors), _to_numpy(item_factors)),
        predicts_ratings=False,
        **wrapping.describe(model),
    )


@ADAPTERS.declare(
    "lightfm",
    label="LightFM",
    summary="All losses. Needs the ids of the codes, and features if it was fitted with them.",
    traits={"module": "lightfm", "takes": (*IDS, "user_features", "item_features")},
)
def adapt_lightfm(model: Any, wrapping: Wrapping) -> ExternalModel:
    require_fitted_attributes(model, "user_embeddings", "item_embeddings")
    users, items = wrapping.require_ids(model)
    user_offset, user_factors = model.get_user_representations(wrapping.user_features)
    item_offset, item_factors = model.get_item_representations(wrapping.item_features)
    return FactorModel(
        users=users,
        items=items,
        factors=Factors(user_factors, item_factors, user_offset, item_offset),
        predicts_ratings=False,
        **wrapping.describe(model),
    )


@ADAPTERS.declare(
    "cmfrec",
    label="cmfrec",
    summary="All models. Needs the ids of the codes if it was fitted to arrays.",
    traits={"module": "cmfrec", "takes": IDS},
)
def adapt_cmfrec(model: Any, wrapping: Wrapping) -> ExternalModel:
    require_fitted_attributes(model, "user_mapping_", "item_mapping_")
    has_ids = len(model.user_mapping_) > 0 and len(model.item_mapping_) > 0
    if has_ids:
        users, items = as_ids(model.user_mapping_), as_ids(model.item_mapping_)
    else:
        users, items = wrapping.require_ids(model)
    if type(model).__name__ in ("CMF", "CMF_implicit"):
        return FactorModel(
            users=users,
            items=items,
            factors=Factors(
                model.A_[:, model.k_user :],
                model.B_[:, model.k_item :],
                model.user_bias_ if model.user_bias else np.zeros(len(users)),
                model.item_bias_ if model.item_bias else np.zeros(len(items)),
                float(model.glob_mean_),
            ),
            predicts_ratings=type(model).__name__ == "CMF",
            **wrapping.describe(
                model, has_default=model.center or model.user_bias or model.item_bias
            ),
        )
    return PairModel(
        users=users,
        items=items,
        predict_pairs=lambda user, item: model.predict(
            *((users[user], items[item]) if has_ids else (user, item))
        ),
        **wrapping.describe(model),
    )


@ADAPTERS.declare(
    "spark",
    label="Spark ALS",
    summary="pyspark.ml.recommendation.ALSModel. Give ids if its own are indices of others.",
    traits={"module": "pyspark.ml", "takes": IDS},
)
def adapt_spark(model: Any, wrapping: Wrapping) -> ExternalModel:
    if not hasattr(model, "userFactors"):
        raise BadPredictionError(
            f"a {type(model).__name__} of Spark cannot be read as predictions.",
            parameter="predictions",
            value=type(model).__name__,
            remedy="Pass a fitted ALSModel; of a pipeline, its stage.",
        )
    users, user_factors = _collect_factors(model.userFactors, wrapping.users, "user")
    items, item_factors = _collect_factors(model.itemFactors, wrapping.items, "item")
    return FactorModel(
        users=users,
        items=items,
        factors=Factors(user_factors, item_factors),
        **wrapping.describe(model),
    )


def _to_numpy(factors: Any) -> Floats:
    """Factors as an array, also those that lie on a GPU."""
    array: Floats = factors.to_numpy() if hasattr(factors, "to_numpy") else np.asarray(factors)
    return array


def _collect_factors(frame: Any, ids: Ids | None, kind: Kind) -> tuple[Ids, Floats]:
    """The ids and factors of one side; Spark's id k stands for ``ids[k]``, if that is passed."""
    table = frame.select("id", "features").toArrow()
    codes = table["id"].to_numpy()
    factors = table["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    if ids is not None:
        if codes.size and codes.max() >= len(ids):
            raise BadPredictionError(
                f"the model has the {kind} index {codes.max()}, but `{kind}s=...` lists only "
                f"{count_noun(len(ids), 'id')}.",
                parameter=f"{kind}s",
                value=len(ids),
                remedy="Pass one id for each index, in their order.",
            )
        codes = ids[codes]
    return codes, factors.reshape(len(codes), -1)


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
