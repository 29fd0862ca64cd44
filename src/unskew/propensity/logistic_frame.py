"""Logistic propensities of a log in a data frame, from its ratings by group of users and item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unskew.data.columns import find_column
from unskew.data.frames import LazyFrame, count_groups, join_columns, open_lazily, require_present
from unskew.data.ids import Ids, as_ids, find_codes, format_id
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UniverseError, UnknownIdError, UsageError
from unskew.propensity.model import PropensityModel, empty_frame_error, require_unobserved
from unskew.settings import Instance, WholeNumber, is_finite_number
from unskew.tables import count_noun
from unskew.types import Vector

if TYPE_CHECKING:
    from unskew.propensity.logistic import LogisticPropensity

MAX_PAIRS = 20_000_000
"""The most pairs of a group and an item that are counted."""


@dataclass(frozen=True, slots=True, eq=False)
class GroupCounts:
    """How many ratings the users of each group gave to each item."""

    log: Ratings
    """Its users are the groups, and its ratings are the counts."""
    sizes: Vector
    """The number of users of each group."""
    universe: Universe
    group: str
    """The column of the groups; empty if all users are one group."""

    @classmethod
    def read(
        cls,
        frame: object,
        universe: Universe,
        items: npt.ArrayLike,
        group: str | None,
        group_sizes: Mapping[Any, int] | None,
        item: str | None,
    ) -> GroupCounts:
        """Count the rows of a frame; all users are one group if no group is named."""
        opened, names = open_lazily(frame)
        columns = {"item": names[find_column("item", item, list(names))]}
        if group is not None:
            columns["group"] = names[find_column("group", group, list(names))]
        groups, sizes = _read_sizes(group, group_sizes, universe)
        listed = as_ids(items, "items")
        _require_sizes(len(listed), len(groups), universe)
        for column in columns.values():
            require_present(opened, column)
        rows = count_groups(opened, columns)
        if not rows["number"]:
            raise empty_frame_error()
        item_ids = as_ids(rows["item"], "items")
        _require_listed(item_ids, listed, "item", "items")
        group_ids = groups[np.zeros(len(item_ids), int)]
        if group is not None:
            group_ids = as_ids(rows["group"], "groups")
            _require_listed(group_ids, groups, "group", "group_sizes")
        number = np.array(rows["number"], np.float64)
        log = Ratings.from_arrays(group_ids, item_ids, number, users=groups, items=listed)
        _require_possible(log, sizes)
        require_unobserved(int(number.sum()), universe)
        return cls(log, sizes, universe, group or "")


def require_group_settings(model: LogisticPropensity) -> None:
    """Raise an error for settings that need more than the counts of groups and items."""
    needs = {
        "user_offsets": (model.user_offsets, "the ratings of every user", "`user_offsets=False`"),
        "negatives": (model.negatives is not None, "a sample of cells", "`negatives=None`"),
        "ridge": (
            not is_finite_number(model.ridge) or model.ridge == 0,
            "parts of the log, or a check of every cell",
            "one number above 0",
        ),
    }
    for name, (is_needed, what, remedy) in needs.items():
        if is_needed:
            raise UsageError(
                f"`{name}={getattr(model, name)!r}` needs {what}, which a fit to a data frame does "
                "not read.",
                parameter=name,
                value=getattr(model, name),
                remedy=f"Pass {remedy}, or build a log with Ratings.from_frame and call fit().",
            )


def add_group_propensities(
    model: PropensityModel,
    group_column: str,
    frame: LazyFrame,
    names: Mapping[str, str],
    columns: Mapping[str, str | None],
    name: str,
) -> LazyFrame:
    """``frame`` with the propensity of the group and the item of each row; null if unknown."""
    n_groups, n_items = len(model.users_), len(model.items_)
    group = np.repeat(np.arange(n_groups, dtype=np.int32), n_items)
    item = np.tile(np.arange(n_items, dtype=np.int32), n_groups)
    table = {"item": model.items_[item], name: model._predict_in_blocks(group, item, None)}
    keys = {names[find_column("item", columns.get("item"), list(names))]: "item"}
    if group_column:
        table["group"] = model.users_[group]
        keys[names[find_column("group", group_column, list(names))]] = "group"
    return join_columns(frame, keys, table, name)


def _read_sizes(
    group: str | None, group_sizes: Mapping[Any, int] | None, universe: Universe
) -> tuple[Ids, Vector]:
    if group is None:
        return as_ids(["all"]), np.array([float(universe.n_users)])
    if not group_sizes:
        raise UsageError(
            f"the number of users of each {group!r} is unknown.",
            parameter="group_sizes",
            remedy="Pass `group_sizes={group: number of users}` with all users, also those "
            "without ratings.",
        )
    Instance(Mapping, remedy="Pass the number of users by group.")("group_sizes", group_sizes)
    for size in group_sizes.values():
        WholeNumber(least=1)("group_sizes", size)
    sizes = np.array(list(group_sizes.values()), np.float64)
    if sizes.sum() != universe.n_users:
        raise UniverseError(
            f"the groups have {sizes.sum():,.0f} users together, and the universe has "
            f"{universe.n_users:,}.",
            parameter="group_sizes",
            remedy="Count every user in one group.",
        )
    return as_ids(list(group_sizes), "groups"), sizes


def _require_sizes(n_items: int, n_groups: int, universe: Universe) -> None:
    if n_items != universe.n_items:
        raise UniverseError(
            f"`items` lists {n_items:,} items, and the universe has {universe.n_items:,}.",
            parameter="items",
            remedy="List all items of the universe.",
        )
    if n_items * n_groups > MAX_PAIRS:
        raise UsageError(
            f"{n_groups:,} groups and {n_items:,} items are {n_items * n_groups:,} pairs; at most "
            f"{MAX_PAIRS:,} are counted.",
            parameter="group_sizes",
            remedy="Use fewer groups.",
        )


def _require_listed(ids: Ids, listed: Ids, kind: str, parameter: str) -> None:
    codes = find_codes(ids, listed)
    if (codes < 0).any():
        unknown = np.unique(ids[codes < 0])
        raise UnknownIdError(
            f"`{parameter}` leaves out {count_noun(len(unknown), kind)} of the frame; the first is "
            f"{format_id(unknown[0])}.",
            parameter=parameter,
            remedy=f"List every {kind} in `{parameter}`.",
        )


def _require_possible(log: Ratings, sizes: Vector) -> None:
    is_impossible = log.rating > sizes[log.user]
    if is_impossible.any():
        row = int(is_impossible.argmax())
        raise UniverseError(
            f"{log.name_cell(row)} has {log.rating[row]:,.0f} ratings by "
            f"{sizes[log.user[row]]:,.0f} users.",
            parameter="group_sizes",
            remedy="Remove rows that repeat a (user, item) of another row, or correct the number "
            "of users.",
        )
