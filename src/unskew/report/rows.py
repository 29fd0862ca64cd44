"""Rows of the JSON of a result: selected, grouped, and as columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from unskew.metrics import metric_label
from unskew.report.charts import Interval
from unskew.report.text import estimator_label

Record: TypeAlias = Mapping[str, Any]
"""The JSON object of a result, or one of its rows."""
Rows: TypeAlias = Sequence[Record]


def select(rows: Iterable[Record], values: Record) -> list[Record]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def group_rows(rows: Iterable[Record], *names: str) -> dict[tuple[Any, ...], list[Record]]:
    """Rows with equal values of the named fields, in the order of their first rows."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def interval_of(row: Record, name: str) -> Interval:
    """The named value of a row with its limits."""
    return row[name], row["ci_low"], row["ci_high"]


def label_columns(rows: Rows, headings: Mapping[str, str]) -> dict[str, list[Any]]:
    """The named fields of the rows under their headings, with labels of metrics, estimators.

    Fields that the rows of an older file lack are left out.
    """
    labels = {"metric": metric_label, "estimator": estimator_label}
    return {
        heading: [labels[name](row[name]) if name in labels else row[name] for row in rows]
        for name, heading in headings.items()
        if all(name in row for row in rows)
    }
