"""Models of every kind, read back from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.estimators.transforms import Clip, Dynamic, Shrink, SubGaussian, Switch
from unskew.io.model_files import read_model
from unskew.models.registry import MODELS
from unskew.propensity.registry import PROPENSITIES

TRANSFORMS = (Clip, Switch, Shrink, SubGaussian, Dynamic)
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (*MODELS, *PROPENSITIES, *TRANSFORMS)
}


def load(path: str | Path) -> Any:
    """Read a recommender or a propensity model that its ``save`` wrote; a damaged, altered or newer file is refused."""
    return read_model(path, KINDS)
