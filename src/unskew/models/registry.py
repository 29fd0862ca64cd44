"""Models by the name that a file gives them."""

from __future__ import annotations

from pathlib import Path

from unskew.models.baselines import GlobalMean, OffsetsOnly, Popularity
from unskew.models.estimator import Recommender
from unskew.models.factorization import MatrixFactorization
from unskew.models.saving import load_model

MODELS: tuple[type[Recommender], ...] = (MatrixFactorization, GlobalMean, OffsetsOnly, Popularity)
KINDS = {kind.__name__: kind for kind in MODELS}


def load(path: str | Path) -> Recommender:
    """Read a model that its ``save`` wrote; a damaged, altered, oversized or newer file is refused in words."""
    return load_model(path, KINDS)
