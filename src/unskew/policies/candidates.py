"""The items that a policy can choose from in each request, and their scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.cells import cell_numbers, find_cells, row_starts
from unskew.data.checks import float_array
from unskew.data.columns import find_column, has_column
from unskew.data.frames import id_column, is_frame, number_columns, open_frame
from unskew.data.ids import Ids, as_ids, find_codes, format_id
from unskew.data.impressions import Impressions, SlotRows
from unskew.data.ratings import Ratings, require_log
from unskew.errors import (
    BadImpressionError,
    BadPredictionError,
    ColumnError,
    UnknownNameError,
    UnskewError,
    UsageError,
)
from unskew.evaluation.adapters.wrap import adapt_model
from unskew.evaluation.predictions import Model
from unskew.tables import count_noun
from unskew.types import BoolVector, IntVector, RowStarts, Vector

PairScorer: TypeAlias = Callable[[Ids, Ids], npt.ArrayLike]
"""Gets user ids and item ids of as many pairs, and returns a score for each pair."""
ScoresLike: TypeAlias = str | Model | PairScorer | object
"""A column of the candidates, a fitted model of any known library, or a callable."""


@dataclass(frozen=True, slots=True, eq=False)
class RequestCandidates:
    """The candidates of each request; requests with the same candidates form a group."""

    group: IntVector
    """The group of each request: its user, or the request itself."""
    starts: RowStarts
    """Group g has the candidates ``starts[g]:starts[g + 1]``."""
    user: IntVector
    """The user code of each candidate."""
    item: IntVector
    """Codes in ``items``."""
    items: Ids
    users: Ids
    shown: SlotRows
    """Slots x requests: the candidate that the log shows; -1 if it is not a candidate, or if the
    request has no such slot."""
    columns: Mapping[str, Vector] = field(default_factory=dict)
    """Further columns of the caller's frame, such as scores."""
    note: str = ""
    """What is taken for granted about the candidates."""

    @property
    def count(self) -> npt.NDArray[np.int64]:
        """The number of candidates of each request."""
        return np.diff(self.starts)[self.group]

    def score(self, scores: ScoresLike, policy: str) -> Vector:
        """A score for each candidate; ``policy`` is named in errors."""
        if isinstance(scores, str):
            if scores not in self.columns:
                raise UnknownNameError(
                    "column of the candidates",
                    scores,
                    self.columns,
                    parameter="candidates",
                    remedy="Pass `candidates=...`, a frame of users (or requests), items and "
                    "columns of scores.",
                )
            values = self.columns[scores]
        else:
            values = self._predict(scores, policy)
        is_bad = np.isnan(values) | (values == np.inf)
        if is_bad.any():
            row = int(is_bad.argmax())
            raise BadPredictionError(
                f"policy {policy!r}: {int(is_bad.sum())} of {is_bad.size} scores are NaN or "
                f"+infinity; the first is that of user {format_id(self.users[self.user[row]])}, "
                f"item {format_id(self.items[self.item[row]])}.",
                parameter="targets",
                remedy="Score every candidate; a score of -infinity leaves a candidate out.",
            )
        return values

    def _predict(self, scores: object, policy: str) -> Vector:
        """The scores of a model or callable, which is asked once for each (user, item)."""
        model = adapt_model(scores)
        predict = model.predict if isinstance(model, Model) else model
        if not callable(predict) or isinstance(scores, type):
            raise BadPredictionError(
                f"policy {policy!r}: a {type(scores).__name__} cannot score candidates.",
                parameter="targets",
                value=type(scores).__name__,
                remedy="Pass a fitted model with predict(users, items), a callable that gets user "
                "ids and item ids, or the name of a column of `candidates`. An array of "
                "probabilities of the shown items is TargetProbability(array).",
            )
        cells = cell_numbers(self.user, self.item, len(self.items))
        distinct, inverse = np.unique(cells, return_inverse=True)
        user, item = np.divmod(distinct, len(self.items))
        try:
            scored = predict(self.users[user], self.items[item])
        except UnskewError:
            raise
        except Exception as error:
            raise BadPredictionError(
                f"policy {policy!r}: scoring {count_noun(distinct.size, 'pair')} of user and item "
                f"failed ({type(error).__name__}: {error}).",
                parameter="targets",
                value=type(scores).__name__,
                remedy="It gets an array of user ids and an array of item ids of one length, and "
                "must return a score for each pair. `candidates` limits which items it gets.",
            ) from error
        values = float_array(scored, f"scores of policy {policy!r}", BadPredictionError)
        if values.shape != distinct.shape:
            raise BadPredictionError(
                f"policy {policy!r}: got scores of shape {values.shape} for {distinct.size} pairs "
                "of users and items.",
                parameter="targets",
                remedy="Return one number for each pair.",
            )
        return values[inverse]

    def at_shown(self, values: npt.NDArray[Any], fill: float) -> npt.NDArray[Any]:
        """Slots x requests: the value of the shown candidate, ``fill`` if it is none."""
        return np.where(self.shown >= 0, values[self.shown], fill)


def read_request_candidates(
    shown: Impressions, candidates: object, exclude: Ratings | None
) -> RequestCandidates:
    """The candidates of each request.

    ``candidates`` are None for all items of the log, a list of item ids, or a frame of items and
    requests or users. Items that the user has in ``exclude`` are left out.
    """
    if candidates is not None and is_frame(candidates):
        return _read_frame(shown, candidates, exclude)
    note = ""
    items, listed = shown.items, np.arange(shown.n_items, dtype=np.int32)
    if candidates is None:
        note = f"every request could show any of the {shown.n_items:,} items of the log"
    else:
        items, listed = _extend(shown.items, as_ids(candidates))  # type: ignore[arg-type]
    user = np.repeat(np.arange(shown.n_users, dtype=np.int32), listed.size)
    item = np.tile(listed, shown.n_users)
    return _build(shown, shown.user_of_request, user, user, item, items, exclude, {}, note)


def _read_frame(
    shown: Impressions, candidates: object, exclude: Ratings | None
) -> RequestCandidates:
    table = open_frame(candidates)
    role, name = _find_group_column(shown, table.columns)
    is_by_user = role == "user"
    item_name = find_column(
        "item", _name_if_present(shown.columns.get("item"), table.columns), table.columns
    )
    logged = shown.users if is_by_user else shown.requests
    code = find_codes(id_column(table, name), logged)
    items, item = _extend(shown.items, id_column(table, item_name))
    others = [each for each in table.columns if each not in (name, item_name)]
    columns = number_columns(table, others, only_numbers=True)
    is_logged = code >= 0
    counts = np.bincount(code[is_logged], minlength=logged.size)
    if not counts.all():
        first = f"{role} {format_id(logged[int((counts == 0).argmax())])}"
        raise BadImpressionError(
            f"{int((counts == 0).sum()):,} of {count_noun(logged.size, role)} have no candidates; "
            f"the first is {first}.",
            parameter="candidates",
            where=first,
            remedy=f"List the candidates of every {role}, shown ones included.",
        )
    code, item = code[is_logged], item[is_logged]
    columns = {each: column[is_logged] for each, column in columns.items()}
    if is_by_user:
        return _build(shown, shown.user_of_request, code, code, item, items, exclude, columns, "")
    group = np.arange(shown.n_requests, dtype=np.int32)
    user = shown.user_of_request[code]
    return _build(shown, group, code, user, item, items, exclude, columns, "")


def _find_group_column(shown: Impressions, columns: list[str]) -> tuple[str, str]:
    """What has candidates of its own, requests or users, and the name of its column."""
    for role in ("request", "user"):
        name = _name_if_present(shown.columns.get(role), columns)
        if name is not None or has_column(role, columns):
            return role, find_column(role, name, columns)
    raise ColumnError(
        "no column of the candidates looks like the request or the user; the columns are "
        f"{', '.join(map(repr, columns))}.",
        parameter="candidates",
        value=columns,
        remedy="Name the columns of the frame as in the log: its requests or users, and its items.",
    )


def _name_if_present(name: str | None, columns: list[str]) -> str | None:
    return name if name in columns else None


def _extend(items: Ids, ids: Ids) -> tuple[Ids, IntVector]:
    """A vocabulary that begins with ``items`` and has all of ``ids``, and the codes of ``ids``."""
    codes = find_codes(ids, items)
    is_new = codes < 0
    if is_new.any():
        new = as_ids(list(dict.fromkeys(ids[is_new].tolist())))
        items = np.concatenate([items, new])
        codes = find_codes(ids, items)
    return items, codes


def _build(
    shown: Impressions,
    group: IntVector,
    row_group: IntVector,
    user: IntVector,
    item: IntVector,
    items: Ids,
    exclude: Ratings | None,
    columns: Mapping[str, Vector],
    note: str,
) -> RequestCandidates:
    """Sort candidates by group and item, without excluded ones, and look up the shown items."""
    n_groups = shown.n_users if group is shown.user_of_request else shown.n_requests
    cells = cell_numbers(row_group, item, len(items))
    is_kept = ~_find_excluded(shown, user, item, items, exclude)
    order = np.flatnonzero(is_kept)
    order = order[np.argsort(cells[order], kind="stable")]
    cells = cells[order]
    is_repeated = cells[1:] == cells[:-1]
    if is_repeated.any():
        n_cells, row = np.unique(cells[1:][is_repeated]).size, int(order[1:][is_repeated].min())
        raise BadImpressionError(
            f"requests list {count_noun(n_cells, 'candidate')} more than once; the first to repeat "
            f"one is row {row} of the candidates, item {format_id(items[item[row]])}.",
            parameter="candidates",
            where=f"row {row} of the candidates",
            remedy="List each candidate once.",
        )
    starts = row_starts(row_group[order], n_groups)
    _require_enough(shown, np.diff(starts)[group])
    shown_cells = cell_numbers(group[shown.request], shown.item, len(items))
    candidate_rows = find_cells(shown_cells, cells)
    slots = np.ascontiguousarray(shown.slots.T)
    rows = np.where(slots >= 0, candidate_rows[slots], -1)
    kept = {name: column[order] for name, column in columns.items()}
    return RequestCandidates(
        group=group,
        starts=starts,
        user=user[order],
        item=item[order],
        items=items,
        users=shown.users,
        shown=rows,
        columns=kept,
        note=note,
    )


def _find_excluded(
    shown: Impressions, user: IntVector, item: IntVector, items: Ids, exclude: Ratings | None
) -> BoolVector:
    """Whether the user of each candidate has the item in ``exclude``."""
    if exclude is None:
        return np.zeros(user.size, dtype=bool)
    require_log(exclude)
    user_code, item_code = find_codes(shown.users, exclude.users), find_codes(items, exclude.items)
    is_known = (user_code[user] >= 0) & (item_code[item] >= 0)
    cells = cell_numbers(user_code[user], item_code[item], exclude.n_items)
    seen = np.sort(cell_numbers(exclude.user, exclude.item, exclude.n_items))
    return is_known & (find_cells(cells, seen) >= 0)


def _require_enough(shown: Impressions, count: npt.NDArray[np.int64]) -> None:
    is_short = count < shown.slate_size
    if is_short.any() and not shown.repeats:
        request = int(is_short.argmax())
        raise UsageError(
            f"{int(is_short.sum())} of {shown.n_requests} requests have fewer candidates than "
            f"slots; the first is {format_id(shown.requests[request])}, with {count[request]} for "
            f"{shown.slate_size[request]}.",
            parameter="candidates",
            where=f"request {format_id(shown.requests[request])}",
            remedy="List more candidates, or exclude fewer items.",
        )
