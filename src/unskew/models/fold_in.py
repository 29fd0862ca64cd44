"""New users or items for a fitted factorisation: their rows, with the other side fixed.

    min over (v, a)  sum over the new ratings of w (Y - v . w_i - a - b_i - c)^2  +  penalty

This is one row of the objective of the fit, so the solution is exact: it is what a refit of that
row with all other rows fixed would give.
"""

from __future__ import annotations

from copy import copy
from typing import TypeVar

import numpy as np

from unskew.data.cells import cell_numbers, sort_distinct, user_and_item
from unskew.data.factors import Factors
from unskew.data.ids import Ids, describe_id_types, find_codes, format_id
from unskew.data.ratings import Ratings
from unskew.errors import UnknownIdError
from unskew.factorization.objective import Objective, SortedCells, name_unsolved_rows
from unskew.factorization.penalty import Offsets, Penalty, Side
from unskew.models.factor_recommender import FactorRecommender
from unskew.threads import Workers
from unskew.types import Floats, IntVector, SeenItems, Vector

M = TypeVar("M", bound=FactorRecommender)


def solve_new_rows(
    log: Ratings,
    weight: Vector,
    factors: Factors,
    opposite_code: IntVector,
    *,
    side: Side,
    offsets: Offsets,
    penalty: Penalty,
    l2: float,
    workers: Workers,
) -> tuple[Floats, Floats]:
    """The factors and offsets of the users (or items) of ``log``, given the other side.

    ``opposite_code`` is the code of each rating's item (or user) in ``factors``.
    """
    opposite = factors.item_side if side == "user" else factors.user_side
    row, n_rows = (log.user, log.n_users) if side == "user" else (log.item, log.n_items)
    cells = SortedCells.of(
        row,
        opposite_code,
        log.rating,
        weight,
        shape=(n_rows, len(opposite[0])),
        dtype=factors.dtype,
        side=side,
    )
    objective = Objective(cells, cells, factors.n_factors, offsets, penalty, workers)
    with name_unsolved_rows(log, l2):
        rows = objective.as_opposite_rows(*opposite)
        solved, _ = objective.solve_rows(cells, rows, factors.global_offset)
    new_factors, new_offset = objective.split_solved_rows(solved)
    return new_factors.copy(), new_offset


def find_known(ids: Ids, vocabulary: Ids, side: Side) -> IntVector:
    """The code of each id; an error if one is not known."""
    codes = find_codes(ids, vocabulary)
    if (codes < 0).any():
        first = ids[int((codes < 0).argmax())]
        raise UnknownIdError(
            f"{int((codes < 0).sum())} of {codes.size} {side}s were not in the log of the fit; the "
            f"first is {format_id(first)}{describe_id_types(ids, vocabulary)}.",
            parameter="log",
            value=first,
            remedy=f"Drop their ratings, or add these {side}s first.",
        )
    return codes


def add_rows(
    model: M,
    log: Ratings,
    rows: tuple[Floats, Floats],
    opposite_code: IntVector,
    side: Side,
    *,
    keep_known: bool,
) -> M:
    """A copy of the model with these rows of the users (or items) of ``log``.

    ``opposite_code`` is the code of each item (or user) of ``log`` in the model.
    """
    ids, vocabulary = (log.users, model.users_) if side == "user" else (log.items, model.items_)
    old_rows = model.factors_.user_side if side == "user" else model.factors_.item_side
    if not keep_known:
        vocabulary, old_rows = vocabulary[:0], (old_rows[0][:0], old_rows[1][:0])
    all_ids, code = append_ids(ids, vocabulary, side)
    factors, offset = (
        _place_rows(old, added, code, all_ids.size)
        for old, added in zip(old_rows, rows, strict=True)
    )
    added_model = copy(model)
    old = model.factors_
    if side == "user":
        added_model.users_ = all_ids
        sides = factors, old.item_factors, offset, old.item_offset
        user, item = code[log.user], opposite_code[log.item]
    else:
        added_model.items_ = all_ids
        sides = old.user_factors, factors, old.user_offset, offset
        user, item = opposite_code[log.user], code[log.item]
    added_model.factors_ = Factors(*sides, old.global_offset)
    seen = model.seen_starts_, model.seen_items_
    if not keep_known:
        seen = np.zeros(1, seen[0].dtype), seen[1][:0]
    sizes = len(added_model.users_), len(added_model.items_)
    added_model.seen_starts_, added_model.seen_items_ = join_seen(seen, *sizes, user, item)
    return added_model


def append_ids(ids: Ids, vocabulary: Ids, side: Side) -> tuple[Ids, IntVector]:
    """The vocabulary followed by the new ids, and the code of each id in it.

    Text after numbers is an error: it would turn all ids of the model into text.
    """
    other_type = describe_id_types(ids, vocabulary)
    if other_type:
        raise UnknownIdError(
            f"the {side} {format_id(ids[0])} has another type than those of the fit{other_type}.",
            parameter="log",
            value=ids[0],
            remedy="Use ids of the same type.",
        )
    code = find_codes(ids, vocabulary)
    is_new = code < 0
    code = np.where(is_new, vocabulary.size + np.cumsum(is_new) - 1, code)
    return (np.concatenate([vocabulary, ids[is_new]]) if vocabulary.size else ids), code


def _place_rows(old: Floats, added: Floats, code: IntVector, n_rows: int) -> Floats:
    rows = np.zeros((n_rows, *old.shape[1:]), old.dtype)
    rows[: len(old)] = old
    rows[code] = added
    return rows


def join_seen(
    seen: SeenItems, n_users: int, n_items: int, user: IntVector, item: IntVector
) -> SeenItems:
    """The seen items of users after more ratings; the items of a user are sorted, each once."""
    starts, items = seen
    seen_user = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    seen_cells = cell_numbers(seen_user, items, n_items)
    cells = sort_distinct(np.concatenate([seen_cells, cell_numbers(user, item, n_items)]))
    all_users, all_items = user_and_item(cells, n_items)
    counts = np.bincount(all_users, minlength=n_users)
    new_starts = np.concatenate([[0], np.cumsum(counts)]).astype(starts.dtype)
    return new_starts, all_items.astype(items.dtype)
