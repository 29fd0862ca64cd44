"""Recommenders without factors: what a factorisation has to beat."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.factorization.parameters import Parameters
from unskew.models.factored import FactorRecommender
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.types import Vector


class GlobalMean(FactorRecommender):
    """F_ui = sum(Y / P) / sum(1 / P): the SNIPS estimate of the mean rating, Eq. (11), for every cell.

    No other constant has a smaller weighted squared error. ``recommend`` gives unseen items in the order of the vocabulary.
    """

    def fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Without propensities the plain mean of the log."""
        require_log(log)
        mean = float(np.average(log.rating, weights=_weights(log, propensities)))
        self._remember(log, _constant_and_items(log, mean, np.zeros(log.n_items)), mean)
        return self


class Popularity(FactorRecommender):
    """F_ui = sum over the log's ratings of item i of 1 / P: how often an item was rated, each rating counted by its weight.

    ``predict`` gives this count, which ranks items and is no rating: judge it by ranking metrics. A user or item that is not in
    the log changes nothing and counts 0. With the true propensities of *all* cells every item counts U in expectation:
    weights then remove the very selection that makes an item popular.
    """

    predicts_ratings: ClassVar[bool] = False

    def fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Without propensities each rating counts 1."""
        require_log(log)
        counts = np.bincount(
            log.item, weights=_weights(log, propensities), minlength=log.n_items
        ).astype(np.float64)
        self._remember(log, _constant_and_items(log, 0.0, counts), 0.0)
        return self


class OffsetsOnly(MatrixFactorization):
    """F_ui = a_u + b_i + c: :class:`MatrixFactorization` without factors, its offsets penalised.

        min  sum over the log of  (Y - F)^2 / P  +  l2_eff (||a||^2 + ||b||^2 + c^2),    l2_eff = l2 * U I / (U + I)

    Parameters
    ----------
    l2
        Strength of the penalty.
    n_threads
        One for each processor by default; the result never depends on it.
    """

    def __init__(self, l2: float = 1.0, *, n_threads: int | None = None) -> None:
        super().__init__(n_factors=0, l2=l2, offsets="regularized", tol=1e-12, n_threads=n_threads)


def _weights(log: Ratings, propensities: PropensitiesLike | None) -> Vector:
    return np.ones(len(log)) if propensities is None else as_propensities(log, propensities).inverse


def _constant_and_items(log: Ratings, constant: float, item_offset: Vector) -> Parameters:
    return Parameters(
        np.zeros((log.n_users, 0)),
        np.zeros((log.n_items, 0)),
        np.zeros(log.n_users),
        item_offset,
        constant,
    )
