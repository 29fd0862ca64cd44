"""Propensity models by the name that a file gives them."""

from __future__ import annotations

from unskew.propensity.boosted import BoostedPropensity
from unskew.propensity.calibration import CalibratedPropensity
from unskew.propensity.clipping import ClippedPropensity
from unskew.propensity.cross_fitting import CrossFittedPropensity
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.model import PropensityEstimator
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.one_bit import OneBitPropensity
from unskew.propensity.poisson import PoissonPropensity
from unskew.propensity.popularity import PopularityPropensity, UniformPropensity
from unskew.propensity.scaling import ScaledPropensity

PROPENSITIES: tuple[type[PropensityEstimator], ...] = (
    UniformPropensity,
    PopularityPropensity,
    NaiveBayesPropensity,
    LogisticPropensity,
    BoostedPropensity,
    OneBitPropensity,
    PoissonPropensity,
    ClippedPropensity,
    ScaledPropensity,
    CalibratedPropensity,
    CrossFittedPropensity,
)
