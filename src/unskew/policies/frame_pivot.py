"""One row for each request of a log, with the values of its slots as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw

from unskew.data.frames import LazyFrame
from unskew.errors import BadImpressionError
from unskew.policies.frame_columns import FrameColumns
from unskew.policies.frame_rows import ImpressionRows, RowTotals
from unskew.policies.plan import NEEDS_ALL_SLOTS
from unskew.policies.terms import total
from unskew.tables import count_noun

CLUSTER = "cluster"
FLAGS = ("n_requests", "has_two_users", "has_shared_slot", "has_gap")
"""Columns of each request whose sums say whether the log is sound."""
Table: TypeAlias = Mapping[str, Any]
"""Fetched columns by name."""


def pivot_requests(
    log: ImpressionRows,
    totals: RowTotals,
    columns: Mapping[str, FrameColumns],
    needed: set[str],
    key: str,
) -> LazyFrame:
    """One row for each request, with the columns that :class:`FrameColumns` reads.

    A slot has one row at most, so its value is the largest one, and null without a row. If all
    weights of a policy are above 0 and all rewards 0 or 1, the sign of its weights says whether
    there was a reward, and rewards need no columns of their own.
    """
    sign_column = _find_positive_weight(totals, columns)
    weights = {
        f"weight_{name}": each.find_weight()
        for name, each in columns.items()
        if each.logging.kind is not None
    }
    if sign_column is not None:
        weights[sign_column] = weights[sign_column] * (1.0 - nw.col("reward") * 2.0)
    first = sign_column or "reward"
    others = [name for name in weights if name != sign_column]
    values = [first, *others, *_list_other_values(log, columns, needed)]
    rows = log.fill_missing_targets().with_columns(
        weight.alias(name) for name, weight in weights.items()
    )
    requests = _group_by_request(rows, values, totals.n_slots)
    is_complete = next(iter(columns.values())).is_complete
    raw = [nw.col(f"{first}_{slot}") for slot in range(1, totals.n_slots + 1)]
    flags = _flag_incomplete(raw) if is_complete else _flag_impossible(raw)
    filled = _read_slots(values, sign_column, totals.n_slots)
    if not is_complete:
        filled = {
            name: value.fill_null(1.0 if name.startswith("weight_") else 0.0)
            for name, value in filled.items()
        }
        filled |= {f"shown_{slot}": _is_present(value) for slot, value in enumerate(raw, 1)}
    requests = requests.select(
        nw.col(key).alias(CLUSTER),
        nw.lit(1.0).alias("n_requests"),
        *(flag.cast(nw.Float64).alias(name) for name, flag in flags.items()),
        *(value.alias(name) for name, value in filled.items()),
    )
    if not NEEDS_ALL_SLOTS & needed:
        return requests
    products = [each.list_running_products() for each in columns.values()]
    return requests.with_columns(
        product.alias(name) for each in products for name, product in each.items()
    )


def _find_positive_weight(totals: RowTotals, columns: Mapping[str, FrameColumns]) -> str | None:
    """The name of a weight above 0 in all rows, if rewards are 0 or 1."""
    if not totals.has_binary_rewards:
        return None
    return next(
        (
            f"weight_{name}"
            for name, each in columns.items()
            if each.logging.kind is not None and totals.smallest[name] > 0
        ),
        None,
    )


def _list_other_values(
    log: ImpressionRows, columns: Mapping[str, FrameColumns], needed: set[str]
) -> Iterator[str]:
    """Columns of the log, besides rewards and weights, that estimators read by slot."""
    for name in log.values:
        is_regression = name.startswith(("prediction_", "mean_"))
        is_read = is_regression and "regression" in needed
        if log.is_ranking(name):
            is_read = columns[name.removeprefix("target_")].logging.kind is None
        if is_read:
            yield name


def _group_by_request(rows: LazyFrame, values: Sequence[str], n_slots: int) -> LazyFrame:
    """Users, number of rows, and the value of each slot, null without a row."""
    at_slot = {
        f"{name}_{slot}": nw.when(nw.col("position") == slot).then(nw.col(name))
        for name in values
        for slot in range(1, n_slots + 1)
    }
    return (
        rows.select(
            "request",
            "user",
            "position",
            *(value.alias(name) for name, value in at_slot.items()),
        )
        .group_by("request")
        .agg(
            nw.col("user").min().alias("user"),
            nw.col("user").max().alias("last_user"),
            nw.col("position").max().alias("last_position"),
            nw.len().alias("n_shown"),
            *(nw.col(name).max() for name in at_slot),
        )
    )


def _read_slots(values: Sequence[str], sign_column: str | None, n_slots: int) -> dict[str, nw.Expr]:
    """The value of each slot by name; rewards and weights from weights with a sign."""
    slots = range(1, n_slots + 1)
    columns = {f"{name}_{slot}": nw.col(f"{name}_{slot}") for name in values for slot in slots}
    if sign_column is not None:
        for slot in slots:
            weight = columns[f"{sign_column}_{slot}"]
            columns[f"{sign_column}_{slot}"] = weight.abs()
            columns[f"reward_{slot}"] = (weight < 0).cast(nw.Float64)
    return columns


def _is_present(value: nw.Expr) -> nw.Expr:
    return (~value.is_null()).cast(nw.Float64)


def _flag_impossible(values: Sequence[nw.Expr]) -> dict[str, nw.Expr]:
    """Whether a request has two users, two items at one position, or a gap between positions."""
    n_shown = nw.col("n_shown").cast(nw.Float64)
    return {
        "has_two_users": nw.col("user") != nw.col("last_user"),
        "has_shared_slot": total([_is_present(value) for value in values]) != n_shown,
        "has_gap": n_shown != nw.col("last_position").cast(nw.Float64),
    }


def _flag_incomplete(values: Sequence[nw.Expr]) -> dict[str, nw.Expr]:
    """The same if every request is taken to have all slots: whether it has other slots."""
    return {
        "has_two_users": nw.col("user") != nw.col("last_user"),
        "has_shared_slot": total(values).is_null(),
        "has_gap": nw.col("n_shown") != len(values),
    }


def require_whole_requests(table: Table, needs: Mapping[str, Sequence[str]]) -> None:
    """Raise an error if a request is impossible, or lacks slots that an estimator needs."""
    problems = {
        "has_two_users": ("two users in", "user", "A request belongs to one user."),
        "has_shared_slot": (
            "two items at one position in",
            "position",
            "A position shows one item; are these several requests with one id?",
        ),
    }
    for flag, (problem, parameter, remedy) in problems.items():
        count = int(table[flag].sum())
        if count:
            raise BadImpressionError(
                f"there are {problem} {count_noun(count, 'request')}.",
                parameter=parameter,
                remedy=remedy,
            )
    demanding = [name for name, kinds in needs.items() if NEEDS_ALL_SLOTS & set(kinds)]
    n_gaps = int(table["has_gap"].sum())
    if demanding and n_gaps:
        raise BadImpressionError(
            f"{demanding[0]!r} needs every slot above a shown item, but positions are missing in "
            f"{count_noun(n_gaps, 'request')}.",
            parameter="position",
            remedy="Keep all shown items of a request, or use 'iips' or 'pbm'.",
        )
