"""Recommenders by the name that a file gives them."""

from __future__ import annotations

from unskew.models.all_rank import AllRank
from unskew.models.baselines import GlobalMean, OffsetsOnly, Popularity
from unskew.models.estimator import Recommender
from unskew.models.exposure import ExposureFactorization
from unskew.models.factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.models.ordinal import OrdinalFactorization
from unskew.models.relevance import RelevanceFactorization
from unskew.models.weighted import WeightedFactorization

MODELS: tuple[type[Recommender], ...] = (
    MatrixFactorization,
    GlobalMean,
    OffsetsOnly,
    Popularity,
    MultinomialMixture,
    OrdinalFactorization,
    AllRank,
    WeightedFactorization,
    ExposureFactorization,
    RelevanceFactorization,
)
