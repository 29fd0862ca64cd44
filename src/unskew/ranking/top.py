"""The best items of users among their candidates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError
from unskew.ranking.candidates import Candidates
from unskew.types import Scorer, Scores, SeenItems, Vector

BLOCK_CELLS = 1 << 20


def best_items(
    scorer: Scorer,
    n_best: int,
    n_users: int,
    n_items: int,
    candidates: Candidates | None,
) -> tuple[npt.NDArray[np.intp], Vector]:
    """The ``n_best`` items of each user and their scores, best first: two users x n_best arrays.

    Items that are not candidates of the user get the score -inf, and so come last. Equal scores
    are in the order of the items. Users are scored in blocks.
    """
    items, scores = np.empty((n_users, n_best), np.intp), np.empty((n_users, n_best))
    size = max(1, BLOCK_CELLS // n_items)
    for first in range(0, n_users, size):
        users = np.arange(first, min(first + size, n_users), dtype=np.int32)
        block = np.array(scorer(users), dtype=np.float64)
        if np.isnan(block).any():
            user, item = np.argwhere(np.isnan(block))[0]
            raise BadPredictionError(
                f"the score of user {first + user} for item {item} is NaN, so it cannot be ranked.",
                remedy="Fit the model again with a stronger penalty.",
            )
        if candidates is not None:
            candidates.hide_others(users, block)
        items[users] = best_columns(block, n_best)
        scores[users] = np.take_along_axis(block, items[users], axis=1)
    return items, scores


def best_columns(scores: Scores, n_best: int) -> npt.NDArray[np.intp]:
    """The columns of the ``n_best`` largest scores of each row, best first.

    Equal scores are in the order of the columns.
    """
    if n_best == scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    smallest = np.partition(scores, -n_best, axis=1)[:, -n_best, None]
    is_above, is_tied = scores > smallest, scores == smallest
    n_tied = n_best - is_above.sum(axis=1, keepdims=True)
    is_best = is_above | (is_tied & (np.cumsum(is_tied, axis=1) <= n_tied))
    columns = np.nonzero(is_best)[1].reshape(-1, n_best)
    best_scores = np.take_along_axis(scores, columns, axis=1)
    order = np.argsort(-best_scores, axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def items_by_user(log: Ratings) -> SeenItems:
    """The items of each user in the log: where those of a user start, and the item codes."""
    starts = np.zeros(log.n_users + 1, np.int64)
    np.cumsum(np.bincount(log.user, minlength=log.n_users), out=starts[1:])
    return starts, log.item[np.argsort(log.user, kind="stable")]
