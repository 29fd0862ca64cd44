"""Recommenders by the name that a file gives them."""

from __future__ import annotations

from unskew.models.baselines import GlobalMean, OffsetsOnly, Popularity
from unskew.models.estimator import Recommender
from unskew.models.factorization import MatrixFactorization

MODELS: tuple[type[Recommender], ...] = (MatrixFactorization, GlobalMean, OffsetsOnly, Popularity)
