"""Expectations as finite sums over all observation patterns of a small matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import numpy.typing as npt

Cells = npt.NDArray[np.float64]
Pattern = npt.NDArray[np.bool_]


def patterns(true: Cells) -> Iterator[tuple[Pattern, float]]:
    """Each O in {0, 1}^cells, shaped as ``true``, with P(O) for O_ui ~ Bernoulli(true_ui)."""
    for bits in product([False, True], repeat=true.size):
        seen = np.array(bits).reshape(true.shape)
        yield seen, float(np.prod(np.where(seen, true, 1 - true)))


def expectation(true: Cells, estimate: Callable[[Pattern], float]) -> float:
    """E_O[estimate(O)]."""
    return sum(probability * estimate(seen) for seen, probability in patterns(true))


def variance(true: Cells, estimate: Callable[[Pattern], float]) -> float:
    """Var_O[estimate(O)]."""
    mean = expectation(true, estimate)
    return expectation(true, lambda seen: (estimate(seen) - mean) ** 2)


def probability_that(true: Cells, event: Callable[[Pattern], bool]) -> float:
    """P_O(event(O))."""
    return expectation(true, lambda seen: float(event(seen)))
