"""What tests of factor models share."""

from __future__ import annotations

import numpy as np

from unskew.models.factor_recommender import FactorRecommender


def predict_matrix(model: FactorRecommender) -> np.ndarray:
    """F_ui = v_u . w_i + a_u + b_i + c of all cells, written out."""
    fitted = model.factors_
    return (
        fitted.user_factors @ fitted.item_factors.T
        + fitted.user_offset[:, None]
        + fitted.item_offset
        + fitted.global_offset
    )
