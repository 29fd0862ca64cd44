"""Models of the probability that a cell is observed, and wrappers around such models.

Each model is declared in :data:`PROPENSITY_MODELS` next to its code. The traits of a declaration
are ``sees_ratings``, ``needs_mcar``, ``takes_features``, ``needs_features``, ``learns_users``,
``is_wrapper`` and ``has_code`` (it cannot be saved). Each is True or left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unskew.registry import Registry, exported_names

if TYPE_CHECKING:
    from unskew.propensity.model import PropensityModel

PROPENSITY_MODELS: Registry[type[PropensityModel]] = Registry("propensity model", __name__)

__getattr__, __dir__ = exported_names(PROPENSITY_MODELS, {"PropensityModel": "model"})
