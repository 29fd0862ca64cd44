"""Propensity models by the name that a file gives them."""

from __future__ import annotations

from unskew.propensity.covariate.boosted import BoostedPropensity
from unskew.propensity.covariate.logistic import LogisticPropensity
from unskew.propensity.low_rank.one_bit import OneBitPropensity
from unskew.propensity.low_rank.poisson import PoissonPropensity
from unskew.propensity.model import PropensityModel
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.popularity import PopularityPropensity, UniformPropensity
from unskew.propensity.wrappers.calibration import CalibratedPropensity
from unskew.propensity.wrappers.clipping import ClippedPropensity
from unskew.propensity.wrappers.cross_fitting import CrossFittedPropensity
from unskew.propensity.wrappers.scaling import ScaledPropensity

PROPENSITIES: tuple[type[PropensityModel], ...] = (
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
