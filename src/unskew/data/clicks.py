"""Which ratings are clicks: those of at least a threshold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.settings import is_finite_number
from unskew.types import BoolVector


def binarize(log: Ratings, threshold: float) -> Ratings:
    """The log with ratings 1[rating >= threshold]; an error if all would become equal."""
    require_threshold(threshold)
    is_click = log.rating >= threshold
    if is_click.all() or not is_click.any():
        count = "every rating" if is_click.all() else "no rating"
        raise UsageError(
            f"{count} reaches the threshold {threshold:g}; "
            f"ratings are {log.rating.min():g} to {log.rating.max():g}.",
            parameter="relevance_threshold",
            value=threshold,
            remedy="Choose a threshold that some ratings reach and others do not.",
        )
    return apply_threshold(log, threshold)


def apply_threshold(log: Ratings, threshold: float) -> Ratings:
    """The log with ratings 1[rating >= threshold], even if all become equal."""
    return replace(log, rating=(log.rating >= threshold).astype(np.float64))


def find_clicks(log: Ratings, relevance_threshold: float | None) -> BoolVector:
    """Which cells of the log are clicks: those rated at least the threshold, or all without one."""
    if relevance_threshold is None:
        if not log.rating.all():
            row = int((log.rating == 0).argmax())
            raise UsageError(
                f"the rating at {log.name_cell(row)} is 0, which is not a click.",
                parameter="relevance_threshold",
                where=log.name_cell(row),
                remedy="Pass `relevance_threshold=1`, or drop those rows.",
            )
        return np.ones(len(log), np.bool_)
    require_threshold(relevance_threshold)
    is_click: BoolVector = log.rating >= relevance_threshold
    if not is_click.any():
        raise UsageError(
            f"no rating reaches `relevance_threshold={relevance_threshold:g}`; the highest is "
            f"{log.rating.max():g}.",
            parameter="relevance_threshold",
            value=relevance_threshold,
            remedy="Lower it.",
        )
    return is_click


def require_threshold(threshold: float) -> None:
    """Raise an error unless ``threshold`` is a finite number."""
    if not is_finite_number(threshold):
        raise UsageError(
            "`relevance_threshold` must be the lowest rating that counts as a click, or None; "
            f"got {threshold!r}.",
            parameter="relevance_threshold",
            value=threshold,
        )
