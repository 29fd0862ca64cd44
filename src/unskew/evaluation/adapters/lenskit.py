"""LensKit: pipelines (from 2025 on) and algorithms (0.14), which get ids, one user at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.ids import Ids, as_ids, encode, format_id
from unskew.errors import BadPredictionError, UnknownIdError
from unskew.evaluation.adapters import ADAPTERS
from unskew.evaluation.adapters.external import ExternalModel, RowModel, Wrapping
from unskew.tables import count_noun
from unskew.types import IntVector, Scorer, Vector

PREDICTOR, SCORER = "rating-predictor", "scorer"
"""Names of nodes in the standard pipelines."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LensKitModel(ExternalModel):
    """A model that does not list the ids that it knows; its scores of unknown ones are NaN."""

    score_items: Callable[[Any, Ids], npt.ArrayLike]
    """The scores of items, by their ids, for the user with this id."""

    def predict(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Vector:
        return self._know_all(users, items).predict(users, items)

    def scorer(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Scorer:
        return self._know_all(users, items).scorer(users, items)

    def _know_all(self, users: npt.ArrayLike, items: npt.ArrayLike) -> RowModel:
        """The model with all these ids in its vocabulary."""
        user_ids, item_ids = (encode(as_ids(ids))[1] for ids in (users, items))

        def score_row(user: int, codes: IntVector) -> Vector:
            return self._score(user_ids[user : user + 1].tolist()[0], item_ids[codes])

        return RowModel(name=self.name, users=user_ids, items=item_ids, score_row=score_row)

    def _score(self, user: object, items: Ids) -> Vector:
        scores = np.array(self.score_items(user, items), dtype=np.float64)
        is_missing = np.isnan(scores)
        if not is_missing.any():
            return scores
        if self.fallback is None:
            first = format_id(items[int(is_missing.argmax())])
            raise UnknownIdError(
                f"{self.name} has no score for {count_noun(int(is_missing.sum()), 'item')} of user "
                f"{format_id(user)}; the first is {first}.",
                parameter="predictions",
                where=f"user {format_id(user)}, item {first}",
                remedy="Use a pipeline with a fallback, or say what to predict: "
                "unskew.evaluation.wrap_model(pipeline, fallback=...). A fallback of -math.inf "
                "ranks them last.",
            )
        return np.where(is_missing, self.fallback, scores)


@ADAPTERS.declare(
    "lenskit",
    label="LensKit",
    summary="Trained pipelines (by their rating predictor, else their scorer); predictors of 0.14.",
    traits={"module": "lenskit", "takes": ()},
)
def adapt_lenskit(model: Any, wrapping: Wrapping) -> ExternalModel:
    if hasattr(model, "predict_for_user"):
        return LensKitModel(
            score_items=lambda user, items: model.predict_for_user(user, items).loc[items],
            **wrapping.describe(model),
        )
    names = {node.name for node in model.nodes()} if hasattr(model, "nodes") else set()
    if not names & {PREDICTOR, SCORER}:
        raise BadPredictionError(
            f"a {type(model).__name__} of LensKit cannot be read as predictions.",
            parameter="predictions",
            value=type(model).__name__,
            remedy="Pass a trained pipeline with a scorer, such as "
            "lenskit.pipeline.predict_pipeline(scorer).",
        )
    node = PREDICTOR if PREDICTOR in names else SCORER

    def score_items(user: Any, items: Ids) -> Any:
        from lenskit.data import ItemList

        return model.run(node, query=user, items=ItemList(item_ids=items)).scores()

    return LensKitModel(
        score_items=score_items, predicts_ratings=node == PREDICTOR, **wrapping.describe(model)
    )
