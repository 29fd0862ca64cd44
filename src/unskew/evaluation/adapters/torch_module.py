"""PyTorch: a module whose forward(user_codes, item_codes) scores pairs."""

from __future__ import annotations

from typing import Any

from unskew.evaluation.adapters import ADAPTERS
from unskew.evaluation.adapters.external import ExternalModel, PairModel, Wrapping
from unskew.types import IntVector, Vector


@ADAPTERS.declare(
    "torch",
    label="PyTorch",
    summary="Modules with forward(user_codes, item_codes). Needs the ids of the codes.",
    traits={"module": "torch.nn.modules", "takes": ("users", "items")},
)
def adapt_torch(model: Any, wrapping: Wrapping) -> ExternalModel:
    users, items = wrapping.require_ids(model)

    def predict_pairs(user: IntVector, item: IntVector) -> Vector:
        """One number for each pair, in evaluation mode, on the device of the parameters."""
        import torch

        device = next((each.device for each in model.parameters()), torch.device("cpu"))
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                codes = (torch.as_tensor(each, device=device).long() for each in (user, item))
                scores: Vector = model(*codes).double().cpu().numpy()
        finally:
            model.train(was_training)
        return scores

    return PairModel(
        users=users, items=items, predict_pairs=predict_pairs, **wrapping.describe(model)
    )
