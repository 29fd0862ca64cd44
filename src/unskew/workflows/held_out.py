"""A log split into two files, and a test log beside other files.

These are the training log, the items that are ranked, and saved models.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unskew.data.frames import make_frame
from unskew.data.ids import Ids, find_codes
from unskew.data.leaks import find_leaks
from unskew.data.parts import Part, SplitUnit
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import UsageError
from unskew.io.files import read_table
from unskew.io.log_files import ColumnNames, FileLog, match_id_types, read_ids, unite_ids
from unskew.io.table import FileTable
from unskew.model_selection.splits import split
from unskew.models.recommender import Recommender
from unskew.workflows import inputs
from unskew.workflows.requests import EvaluationRequest, SplitRequest


@dataclass(frozen=True, slots=True, eq=False)
class LogPart:
    """A part of the table of a log, with all of its columns."""

    part: Part
    columns: dict[str, Any]

    def describe(self) -> str:
        """``2,000 of 10,000 ratings, a share of 0.2``."""
        size = f"{self.part.rows.size:,} of {self.part.n_whole:,} ratings"
        return f"{size}, a share of {self.part.share:.6g}"


def split_log(request: SplitRequest) -> tuple[LogPart, LogPart]:
    """The training part and the test part of the log, as :func:`unskew.split` draws them."""
    table = inputs.read_log_table(request)
    timestamp = request.timestamp
    if timestamp is None and request.by == "time":
        timestamp = table.find_column("timestamp")
    log = inputs.read_log(request, table, columns=ColumnNames(timestamp=timestamp))
    columns = {name: log.values(name) for name in table.names}
    train, test = (
        LogPart(each.part, {name: values[each.part.rows] for name, values in columns.items()})
        for each in split(
            log.ratings, share=request.share, by=request.by, random_state=request.random_state
        )
        if each.part is not None
    )
    return train, test


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutTest:
    """A test log with all ids of the other files, and what of it is ranked."""

    log: FileLog
    excluded: Ratings | None = None
    candidates: Any = None
    """The items that are ranked: ids, or a frame of users and items; None means all."""

    @classmethod
    def read(
        cls, request: EvaluationRequest, log: FileLog, models: Iterable[Recommender]
    ) -> HeldOutTest:
        """Read the files of the request."""
        if request.exclude is None and request.candidates is None:
            is_larger = isinstance(request.universe, tuple) and (
                request.universe[1] > log.ratings.n_items
            )
            models = list(models)
            can_extend = is_larger and models and request.by is None
            return cls(extend_ids(log, request.universe, None, None, models) if can_extend else log)
        if request.by is not None:
            raise UsageError(
                "groups of a log cannot be ranked without some of the items.",
                parameter="by",
                value=request.by,
                remedy="Leave `exclude` and `candidates` out, or evaluate one group at a time.",
            )
        excluded = read_excluded(request)
        listed = None if request.candidates is None else read_table(request.candidates)
        log = extend_ids(log, request.universe, excluded, listed, models)
        candidates = read_candidates(listed, log.ratings)
        if excluded is None:
            return cls(log, None, candidates)
        excluded = inputs.match_ids(excluded, log.ratings)
        if request.held_out is not None:
            test, excluded = as_parts(log.ratings, excluded, request.held_out)
            log = replace(log, ratings=test)
        return cls(log, excluded, candidates)


def read_excluded(request: EvaluationRequest) -> Ratings | None:
    """The log whose cells are not ranked; None if the request names none."""
    if request.exclude is None:
        return None
    training_request = replace(request, log=request.exclude, universe=None, duplicates="last")
    table = inputs.read_log_table(request, request.exclude)
    columns = ColumnNames(timestamp=request.timestamp)
    return inputs.read_log(training_request, table, columns=columns).ratings


def extend_ids(
    log: FileLog,
    universe: UniverseLike,
    excluded: Ratings | None,
    listed: FileTable | None,
    models: Iterable[Recommender],
) -> FileLog:
    """The log with all users and items that the other files have; they have no rating in it."""
    others = [] if excluded is None else [(excluded.users, excluded.items)]
    others += [(model.users_, model.items_) for model in models]
    users = unite_ids(log.ratings.users, *(users for users, _ in others))
    item_lists = [items for _, items in others]
    if listed is not None:
        item_lists.append(read_ids(listed, "item"))
    items = unite_ids(log.ratings.items, *item_lists)
    ratings = replace(
        log.ratings,
        user=_recode(log.ratings.users, users)[log.ratings.user],
        item=_recode(log.ratings.items, items)[log.ratings.item],
        users=users,
        items=items,
        universe=None,
    )
    return replace(log, ratings=ratings.with_universe(universe))


def _recode(ids: Ids, vocabulary: Ids) -> Any:
    return find_codes(match_id_types(ids, vocabulary), vocabulary)


def as_parts(log: Ratings, excluded: Ratings, share: float) -> tuple[Ratings, Ratings]:
    """The test and the training log as parts of one log, of which the test has this share.

    That of the training log is in proportion to its size. If the two share a cell, only the test
    is a part, because they are not parts of one split.
    """
    n_test, n_train = len(log), len(excluded)
    n_whole = n_test + n_train
    if find_leaks(excluded, log).n_shared:
        return replace(log, part=Part(np.arange(n_test), n_test, share, "random")), excluded
    is_rest = abs(n_test - share * n_whole) <= 1
    rest = 1.0 - share if is_rest else min(share * n_train / n_test, 1.0 - share)
    user_codes = find_codes(excluded.users, log.users)[np.unique(excluded.user)]
    by: SplitUnit = "random" if np.isin(user_codes, log.user).any() else "user"
    excluded = _share_users(excluded, log.users)
    return (
        replace(log, part=Part(np.arange(n_test), n_whole, share, by)),
        replace(excluded, part=Part(np.arange(n_test, n_whole), n_whole, rest, by)),
    )


def _share_users(log: Ratings, users: Ids) -> Ratings:
    """The log with these users, which have all of its own."""
    return replace(log, user=find_codes(log.users, users)[log.user], users=users)


def read_candidates(listed: FileTable | None, log: Ratings) -> Any:
    """The items that are ranked: ids, or a frame of users and items; None means all."""
    if listed is None:
        return None
    items = match_id_types(read_ids(listed, "item"), log.items)
    if not listed.has_column_for("user"):
        return items
    users = match_id_types(read_ids(listed, "user"), log.users)
    return make_frame({"user_id": users.tolist(), "item_id": items.tolist()})
