"""Recommenders by the name that a file gives them."""

from __future__ import annotations

from unskew.models.all_rank import AllRank
from unskew.models.balanced import IPSV2, StableDR
from unskew.models.baselines import GlobalMean, OffsetsOnly, Popularity
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.exposure import ExposureFactorization
from unskew.models.logistic import LogisticFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.models.ordinal import OrdinalFactorization
from unskew.models.recommender import Recommender
from unskew.models.relevance import RelevanceFactorization
from unskew.models.robust_variants import DRV2, EIB, TDR
from unskew.models.tri_training import TriTraining
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
    DoublyRobustFactorization,
    EIB,
    TDR,
    DRV2,
    IPSV2,
    StableDR,
    TriTraining,
    LogisticFactorization,
)
