"""Propensity models by the name that a file gives them."""

from __future__ import annotations

from unskew.propensity.model import PropensityEstimator
from unskew.propensity.popularity import UniformPropensity

PROPENSITIES: tuple[type[PropensityEstimator], ...] = (UniformPropensity,)
