"""Ratings as clicks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.ratings import Ratings
from unskew.errors import UsageError


def binarize(log: Ratings, threshold: float | None) -> Ratings:
    """The log with 1 for ratings of at least ``threshold`` and 0 for others; as it is where there is no threshold."""
    if threshold is None:
        return log
    require_threshold(threshold)
    clicked = log.rating >= threshold
    if clicked.all() or not clicked.any():
        side = "every rating reaches" if clicked.all() else "no rating reaches"
        raise UsageError(
            f"{side} threshold={threshold:g}; they are {log.rating.min():g} to {log.rating.max():g}, "
            "and there must be clicks and others to tell apart."
        )
    return apply_threshold(log, threshold)


def apply_threshold(log: Ratings, threshold: float) -> Ratings:
    """1 for ratings of at least ``threshold``, 0 for others, whether or not there are both."""
    return replace(log, rating=(log.rating >= threshold).astype(np.float64))


def require_threshold(threshold: float) -> None:
    """Refuse what is no rating."""
    if not is_finite_number(threshold):
        raise UsageError(
            f"threshold must be the least rating that counts as a click, or None; got {threshold!r}."
        )
