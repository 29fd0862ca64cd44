"""Warnings of many fits: recorded while they run, and shown once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from unskew.errors import ConvergenceWarning, PropensityWarning, UnskewWarning


@contextmanager
def recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Record the warnings of the block instead of showing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def count_unconverged(caught: Sequence[warnings.WarningMessage]) -> int:
    """How many of the warnings are about fits that did not converge."""
    return sum(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def repeat_warnings(
    caught: Sequence[warnings.WarningMessage], *, n_unconverged: int, n_fits: int, fits: str
) -> None:
    """Show recorded warnings once for each line of code, and one summary of the convergence.

    Warnings about propensities are not shown: those of a part of the log say nothing new.
    """
    others = {
        (warning.category, warning.filename, warning.lineno): warning
        for warning in reversed(caught)
        if not issubclass(warning.category, (ConvergenceWarning, PropensityWarning))
    }
    for (category, filename, line), warning in others.items():
        if issubclass(category, UnskewWarning):
            warnings.warn(warning.message, stacklevel=3)
        else:  # of another package: the caller's filters see its origin
            warnings.warn_explicit(warning.message, category, filename, line)
    if n_unconverged:
        warnings.warn(
            ConvergenceWarning(
                f"{n_unconverged} of {n_fits} {fits} did not converge.",
                parameter="max_iter",
                remedy="Use a larger `max_iter` or a larger `tol`.",
            ),
            stacklevel=3,
        )
