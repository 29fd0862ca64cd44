"""Ratings as clicks: 1 from a threshold on, else 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.ratings import Ratings
from unskew.errors import UsageError


def binarize(log: Ratings, threshold: float | None) -> Ratings:
    """The log with ratings 1[rating >= threshold]; unchanged if ``threshold`` is None.

    An error if all ratings would become equal.
    """
    if threshold is None:
        return log
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


def require_threshold(threshold: float) -> None:
    """Raise an error unless ``threshold`` is a finite number."""
    if not is_finite_number(threshold):
        raise UsageError(
            "`relevance_threshold` must be the lowest rating that counts as a click, or None; "
            f"got {threshold!r}.",
            parameter="relevance_threshold",
            value=threshold,
        )
