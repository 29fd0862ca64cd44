"""An adapter from another package: its models predict a constant."""

from typing import Any

import numpy as np

from unskew.evaluation import ADAPTERS
from unskew.evaluation.adapters.external import ExternalModel, PairModel, Wrapping


class Constant:
    """A model that knows users and items by their codes."""

    def __init__(self, value: float) -> None:
        self.value = value


@ADAPTERS.declare(
    "toy",
    label="Toy",
    summary="Models that predict a constant.",
    traits={"module": "toy_adapter", "takes": ("users", "items")},
)
def adapt_toy(model: Any, wrapping: Wrapping) -> ExternalModel:
    users, items = wrapping.require_ids(model)
    return PairModel(
        users=users,
        items=items,
        predict_pairs=lambda user, item: np.full(user.size, model.value),
        **wrapping.describe(model),
    )
