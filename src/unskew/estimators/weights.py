"""Weights for models of any other library."""

from __future__ import annotations

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.estimators.cells import Sample
from unskew.estimators.sums import Clusters
from unskew.estimators.transforms import WeightTransform
from unskew.types import Vector


def inverse_weights(
    log: Ratings, propensities: PropensitiesLike, *, transform: WeightTransform | None = None
) -> Vector:
    """1 / P of each rating, in the order of the log: how many cells of all U I it stands for.

    As ``sample_weight`` it makes the training loss of any model the IPS estimate of its loss over all cells, Eq. (12). Nothing is
    clipped or normalised, unless a ``transform`` such as ``unskew.Clip(100)`` says so.

    >>> log = Ratings.from_arrays(["ann", "bob"], ["up", "up"], [5, 3])
    >>> inverse_weights(log, [0.5, 0.01]).tolist()
    [2.0, 100.0]
    """
    users, items = Clusters(log.user, log.n_users), Clusters(log.item, log.n_items)
    return Sample(users, items, as_propensities(log, propensities), transform).weight
