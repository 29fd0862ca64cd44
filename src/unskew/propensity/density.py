"""Scores to probabilities: the scale at which they add up to the number of ratings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unskew.errors import BadPropensityError


@dataclass(frozen=True, slots=True)
class Capped:
    """What a scale k does to scores: how many it lifts to 1 or more, and the sum of those that stay below."""

    n_capped: float
    rest: float


def scale_to_total(total: float, capped_at: Callable[[float], Capped]) -> tuple[float, float]:
    """The k with ``sum min(1, k s) = total``, and how many scores it caps; ``capped_at(k)`` looks at the scores.

    Newton's steps from k = 0. The sum is concave and piecewise linear in k, so they come from below and end at the root itself.
    """
    scale, now = 0.0, capped_at(0.0)
    while now.rest > 0:
        scale = (total - now.n_capped) / now.rest
        then = capped_at(scale)
        if then.n_capped <= now.n_capped:
            return scale, now.n_capped
        now = then
    if now.n_capped < total * (1 - 1e-9):
        raise BadPropensityError(
            f"propensities cannot add up to {total:,.0f} ratings: only {now.n_capped:,.0f} cells have a chance above 0. "
            "Smooth the model, so that other cells get one."
        )
    return scale, now.n_capped
