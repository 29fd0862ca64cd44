"""Recommenders. They take propensities or weights, never propensity models.

Every recommender is declared in ``RECOMMENDERS``, next to its code. A preset in ``PRESETS`` is a
recommender with some settings fixed, such as ``OffsetsOnly``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.errors import UnknownNameError
from unskew.registry import Declaration, Registry, exported_names

if TYPE_CHECKING:
    from unskew.models.recommender import Preset, Recommender

RECOMMENDERS: Registry[type[Recommender]] = Registry("recommender", "unskew.models")
"""Traits: ``reads_propensities`` (False if a fit ignores or refuses them; True if left out) and
``needs_propensities`` (True if a fit is impossible without them; False if left out)."""
PRESETS: Registry[Preset] = Registry("preset", "unskew.models")
"""Presets have the same traits as recommenders."""

__getattr__, __dir__ = exported_names(
    (RECOMMENDERS, PRESETS),
    {
        "DistributionRecommender": "distribution",
        "FactorRecommender": "factor_recommender",
        "Preset": "recommender",
        "Neighbors": "recommendations",
        "Recommendations": "recommendations",
        "Recommender": "recommender",
    },
)


def find_recommender(name: str) -> Declaration[Any]:
    """The declaration of the recommender or preset with this name."""
    for registry in (RECOMMENDERS, PRESETS):
        if name in registry:
            declaration: Declaration[Any] = registry[name]
            return declaration
    raise UnknownNameError("recommender", name, [*RECOMMENDERS, *PRESETS], parameter="learner")
