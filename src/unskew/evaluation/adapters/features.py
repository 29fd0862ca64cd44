"""scikit-learn: regressors and classifiers that predict from features of users and items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.columns import find_column
from unskew.data.frames import id_column, is_frame, make_frame, open_frame
from unskew.data.ids import Ids, check_id_list
from unskew.errors import BadPredictionError
from unskew.evaluation.adapters import ADAPTERS
from unskew.evaluation.adapters.external import ExternalModel, Kind, PairModel, Wrapping
from unskew.tables import count_noun
from unskew.types import IntVector


@ADAPTERS.declare(
    "sklearn",
    label="scikit-learn",
    summary="Regressors and classifiers. Needs features of users and items.",
    traits={
        "module": "sklearn",
        "takes": ("users", "items", "user_features", "item_features"),
    },
)
def adapt_sklearn(model: Any, wrapping: Wrapping) -> ExternalModel:
    if wrapping.user_features is None and wrapping.item_features is None:
        raise BadPredictionError(
            f"{wrapping.name(model)} predicts from features, not from ids.",
            parameter="predictions",
            remedy="Pass unskew.evaluation.wrap_model(model, user_features=..., "
            "item_features=...), each a frame of features with a column of ids.",
        )
    user = FeatureTable.read(wrapping.user_features, wrapping.users, "user")
    item = FeatureTable.read(wrapping.item_features, wrapping.items, "item")
    predict, join = _choose_method(model, wrapping), _choose_columns(model, wrapping, user, item)
    return PairModel(
        users=user.ids,
        items=item.ids,
        predict_pairs=lambda user_codes, item_codes: predict(join(user_codes, item_codes)),
        **wrapping.describe(model),
    )


@dataclass(frozen=True, slots=True, eq=False)
class FeatureTable:
    """The features of users or of items, by name, in the order of their ids."""

    ids: Ids
    columns: Mapping[str, npt.NDArray[Any]]
    id_name: str | None = None
    """The column that has the ids; None if the table is an array."""
    backend: str | None = None
    """The library of the frame; None if the table is an array."""

    @classmethod
    def read(cls, table: Any, ids: Ids | None, kind: Kind) -> FeatureTable:
        """A frame with a column of ids, or an array in the order of ``ids``."""
        if is_frame(table):
            frame = open_frame(table)
            name = find_column(kind, None, frame.columns)
            columns = {each: frame.get_column(each).to_numpy() for each in frame.columns}
            own_ids = check_id_list(id_column(frame, name), kind=kind)
            return cls(own_ids, columns, name, frame.implementation.value)
        parameter = f"{kind}_features"
        if ids is None:
            raise BadPredictionError(
                f"the ids of the {kind}s are missing.",
                parameter=f"{kind}s",
                remedy=f"Pass `{kind}s=...` with one id for each row of `{parameter}`, or make it "
                f"a frame with a column {kind}_id.",
            )
        try:
            features = np.zeros((len(ids), 0)) if table is None else np.asarray(table)
        except ValueError as error:  # lists of different lengths
            raise BadPredictionError(
                f"`{parameter}` must be a table: {error}.", parameter=parameter
            ) from error
        if features.ndim != 2 or len(features) != len(ids):
            raise BadPredictionError(
                f"`{parameter}` has shape {features.shape} for {count_noun(len(ids), 'id')}.",
                parameter=parameter,
                remedy=f"Pass a table with one row for each of `{kind}s`.",
            )
        return cls(ids, {f"{kind}:{number}": column for number, column in enumerate(features.T)})

    @property
    def features(self) -> list[npt.NDArray[Any]]:
        """All columns but that of the ids."""
        return [column for name, column in self.columns.items() if name != self.id_name]


Join: TypeAlias = Callable[[IntVector, IntVector], Any]
"""From the codes of pairs to the table of their features."""


def _choose_columns(model: Any, wrapping: Wrapping, user: FeatureTable, item: FeatureTable) -> Join:
    """The columns that the model was fitted to, if it has names; else all of both tables."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return lambda user_codes, item_codes: np.column_stack(
            [
                *(column[user_codes] for column in user.features),
                *(column[item_codes] for column in item.features),
            ]
        )
    sides = {name: side for side in (user, item) for name in side.columns}
    missing = [name for name in names if name not in sides]
    repeated = [name for name in names if name in user.columns and name in item.columns]
    if missing or repeated:
        where = "neither `user_features` nor" if missing else "both `user_features` and"
        raise BadPredictionError(
            f"{wrapping.name(model)} was fitted to the column {(missing or repeated)[0]!r}, which "
            f"is in {where} `item_features`.",
            parameter="user_features",
            value=(missing or repeated)[0],
            remedy="Pass each column that the model was fitted to in exactly one of the two.",
        )

    def join(user_codes: IntVector, item_codes: IntVector) -> Any:
        return make_frame(
            {
                name: sides[name].columns[name][user_codes if sides[name] is user else item_codes]
                for name in names
            },
            user.backend or item.backend,
        )

    return join


def _choose_method(model: Any, wrapping: Wrapping) -> Callable[[Any], npt.ArrayLike]:
    """``predict``, or of a classifier the mean of its classes by their probabilities."""
    if not hasattr(model, "predict_proba"):
        if not callable(getattr(model, "predict", None)):
            raise BadPredictionError(
                f"a {type(model).__name__} has no method predict.",
                parameter="model",
                value=type(model).__name__,
                remedy="Pass a fitted model.",
            )
        predict: Callable[[Any], npt.ArrayLike] = model.predict
        return predict
    classes = np.asarray(model.classes_)
    if classes.dtype.kind not in "biuf":
        raise BadPredictionError(
            f"the classes of {wrapping.name(model)} are not numbers; the first is "
            f"{classes.tolist()[0]!r}.",
            parameter="predictions",
            remedy="Fit it to ratings, or to 0 and 1.",
        )
    return lambda features: model.predict_proba(features) @ classes.astype(np.float64)
