"""A log in Parquet files, sorted by DuckDB outside of memory and read in batches.

DuckDB sorts what does not fit into ``memory`` in files of ``folder``. Only the distinct ids of
users and items are held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.data.checks import BAD_VALUES, refuse_bad_values
from unskew.data.columns import find_column
from unskew.data.ids import Ids, as_ids, encode, find_codes
from unskew.data.propensities import SMALLEST
from unskew.data.universe import Universe
from unskew.errors import (
    BadFileError,
    EmptyLogError,
    UsageError,
)
from unskew.registry import require_package
from unskew.types import IntVector, Vector

Side: TypeAlias = Literal["user", "item"]
BATCH_ROWS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class CellBatch:
    """Some consecutive cells of a sorted log, as codes."""

    user: IntVector
    item: IntVector
    rating: Vector
    weight: Vector


@dataclass(frozen=True, slots=True, eq=False)
class ParquetLog:
    """The columns ``user``, ``item``, ``rating`` and ``weight`` = 1 / P of Parquet files."""

    connection: Any
    users: Ids
    items: Ids
    n_ratings: int
    total_weight: float
    rating_range: tuple[float, float]

    @classmethod
    def open(
        cls,
        path: str,
        *,
        folder: Path,
        memory: int,
        names: Mapping[str, str | None],
        propensity: str | None,
        relevance_threshold: float | None = None,
    ) -> ParquetLog:
        """Find the columns, check all values and collect the ids, in three passes.

        ``names`` has the columns of user, item and rating; None looks for common names.
        """
        require_package("duckdb", extra="duckdb", purpose="engine='disk'")
        import duckdb

        connection = duckdb.connect(
            config={"memory_limit": f"{memory}B", "temp_directory": str(folder / "sort")}
        )
        connection.execute("SET preserve_insertion_order = false")
        try:
            relation = connection.read_parquet(path)
        except duckdb.Error as error:
            reason = " ".join(str(error).split())[:200]
            raise BadFileError(
                f"{path} cannot be read as Parquet: {reason}.",
                remedy="Pass the path of a Parquet file, or of several as 'folder/*.parquet'.",
            ) from error
        roles = dict(names) | ({} if propensity is None else {"propensity": propensity})
        columns = {role: find_column(role, name, relation.columns) for role, name in roles.items()}
        relation.project(_select_columns(columns, relevance_threshold)).create_view("cells")
        return cls._summarize(connection)

    @classmethod
    def _summarize(cls, connection: Any) -> ParquetLog:
        bad = ", ".join(f"count_if({name} IS NULL)" for name in BAD_VALUES)
        totals = "sum(weight), min(rating), max(rating)"
        row = connection.sql(f"SELECT count(*), {totals}, {bad} FROM cells").fetchall()[0]
        n_ratings, total_weight, low, high, *n_bad = row
        if not n_ratings:
            raise EmptyLogError(
                "the log has no ratings.", remedy="Check the filter or the file it came from."
            )
        for name, count in zip(BAD_VALUES, n_bad, strict=True):
            refuse_bad_values(name, count, n_ratings)
        users, items = (_read_ids(connection, name) for name in ("user", "item"))
        size = int(n_ratings), float(total_weight)
        return cls(connection, users, items, *size, (float(low), float(high)))

    def scale_weights(self, how: str, universe: Universe) -> None:
        """Multiply weights so that they add up to U I, to I for each user or to U for each item."""
        if how == "self":
            factor = universe.n_cells / self.total_weight
            select, join = f"weight * {factor!r}", ""
        else:
            goal = universe.n_items if how == "user" else universe.n_users
            select = f"weight * {goal} / total"
            sums = f'SELECT "{how}", sum(weight) AS total FROM cells GROUP BY 1'
            join = f'JOIN ({sums}) USING ("{how}")'
        self.connection.execute(
            f'CREATE VIEW scaled AS SELECT "user", item, rating, {select} AS weight '
            f"FROM cells {join}"
        )

    def read_sorted(self, side: Side, *, is_scaled: bool) -> Iterator[CellBatch]:
        """The cells in batches, sorted by ``side`` and then by the other side."""
        table, keys = "scaled" if is_scaled else "cells", '"user", item'
        order = keys if side == "user" else 'item, "user"'
        rows = self.connection.sql(
            f'SELECT "user", item, rating, weight FROM {table} ORDER BY {order}'
        )
        is_recent = hasattr(rows, "to_arrow_reader")  # the other name is deprecated since
        reader = rows.to_arrow_reader if is_recent else rows.fetch_arrow_reader
        for batch in reader(BATCH_ROWS):
            user, item = (as_ids(_to_numpy(batch[name])) for name in ("user", "item"))
            yield CellBatch(
                find_codes(user, self.users),
                find_codes(item, self.items),
                batch["rating"].to_numpy(zero_copy_only=False),
                batch["weight"].to_numpy(zero_copy_only=False),
            )

    def close(self) -> None:
        """Close the connection, and so delete DuckDB's files."""
        self.connection.close()


def _select_columns(columns: Mapping[str, str], relevance_threshold: float | None) -> str:
    """SQL of the four columns, where values that cannot be used are null."""
    quoted = {role: '"' + name.replace('"', '""') + '"' for role, name in columns.items()}
    rating = f"{quoted['rating']}::DOUBLE"
    value = rating
    if relevance_threshold is not None:
        value = f"({rating} >= {relevance_threshold})::DOUBLE"
    weight = "1.0::DOUBLE"
    if "propensity" in quoted:
        p = f"{quoted['propensity']}::DOUBLE"
        weight = f"CASE WHEN {p} BETWEEN {SMALLEST!r} AND 1 THEN 1 / {p} END"
    return (
        f'{quoted["user"]} AS "user", {quoted["item"]} AS item, '
        f"CASE WHEN isfinite({rating}) THEN {value} END AS rating, {weight} AS weight"
    )


def _read_ids(connection: Any, name: str) -> Ids:
    rows = connection.sql(f'SELECT DISTINCT "{name}" FROM cells ORDER BY 1').to_arrow_table()
    ids = as_ids(_to_numpy(rows.column(0)))
    if ids.dtype.kind == "f":
        raise UsageError(
            f"the {name} must be text or integers; the file has decimal numbers.",
            parameter=name,
            remedy="Cast the column first.",
        )
    return encode(ids)[1]


def _to_numpy(column: Any) -> Any:
    """The values of an Arrow array, or of a chunked one."""
    chunks = getattr(column, "chunks", [column])
    if not chunks:
        return np.empty(0)
    return np.concatenate([np.asarray(chunk.to_numpy(zero_copy_only=False)) for chunk in chunks])
