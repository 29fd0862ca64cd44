"""Models of every kind, read from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.estimators import WEIGHT_TRANSFORMS
from unskew.io.model_files import read_model
from unskew.io.writing import as_path
from unskew.models import RECOMMENDERS
from unskew.propensity import PROPENSITY_MODELS


def load(path: str | Path) -> Any:
    """Read a recommender or a propensity model that its ``save`` wrote.

    A damaged or altered file, or one of a newer version, is an error.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from unskew.data.ratings import Ratings
    >>> from unskew.models.baselines import OffsetsOnly
    >>> path = Path(tempfile.mkdtemp()) / "model.unskew"
    >>> OffsetsOnly().fit(Ratings.from_dense([[5, 1], [4, 2]])).save(path)
    >>> load(path).predict([0], [1]).shape
    (1,)
    """
    registries = (RECOMMENDERS, PROPENSITY_MODELS, WEIGHT_TRANSFORMS)
    classes = [declaration.target for registry in registries for declaration in registry.values()]
    return read_model(as_path(path), {each.__name__: each for each in classes})
