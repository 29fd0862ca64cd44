"""Whether logged probabilities can be of the kind that they are said to be.

Step and marginal probabilities cannot be told apart row by row, but the means of their inverses
differ. Let slates show no item twice. Let an item that a request can show at one position be
possible at all of them; which items these are may depend on the request. Let f(a) weigh the items
that are shown both at position 1 and at position k. Given the context of a request,

    E[f(s_k) / p_k] = sum of f(a) over all a                           if p is marginal
    E[f(s_k) / p_k] = sum of f(a) over all a that are not shown above  if p is step

and E[f(s_1) / p_1] is the sum over all a in both cases. So each of these has mean 0 for one kind:

    marginal   f(s_k) / p_k - f(s_1) / p_1
    step       f(s_k) / p_k - f(s_1) / p_1 + sum over j < k of f(s_j)

No context has to be known. For f, take the share of requests that show the item above k over the
mean of 1 / p^2 of its rows at positions 1 and k, which makes the error small where the difference
of the kinds is large; 0 for items that were not shown at both. It is computed from half of the
users and used for the other half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from unskew.data.cells import find_duplicates
from unskew.data.impression_checks import find_gaps
from unskew.types import Vector

if TYPE_CHECKING:
    from unskew.data.impressions import Impressions, ProbabilityKind

MAX_ERRORS = 4.0
"""A mean further than this many standard errors from what it must be is not chance."""
ROUNDING = 1e-9
LAST_POSITION = 4
"""Positions below are not needed to tell the kinds apart."""


@dataclass(frozen=True, slots=True)
class KindCheck:
    """Two means of which the first must be 0, and the second if the kind is the other one."""

    stated: ProbabilityKind
    """The kind that the caller says."""
    mean: float
    std_error: float
    other_mean: float
    other_std_error: float

    @property
    def other(self) -> ProbabilityKind:
        """The kind that it is easily confused with."""
        return "marginal" if self.stated == "step" else "step"

    @property
    def is_contradicted(self) -> bool:
        """Whether the log fits the other kind, and not the stated one."""
        fits, fits_other = self._fits()
        return fits_other and not fits

    @property
    def is_open(self) -> bool:
        """Whether the log cannot tell: both kinds fit it, or none does."""
        fits, fits_other = self._fits()
        return fits == fits_other

    def _fits(self) -> tuple[bool, bool]:
        return (
            abs(self.mean) <= max(MAX_ERRORS * self.std_error, ROUNDING),
            abs(self.other_mean) <= max(MAX_ERRORS * self.other_std_error, ROUNDING),
        )

    def describe(self) -> str:
        """What contradicts the stated kind, with its numbers."""
        return (
            f"the probabilities are stated as {self.stated!r}, but this log fits {self.other!r} "
            f"probabilities: a mean of their inverses that is 0 for {self.stated!r} ones is "
            f"{self.mean:.3g} (standard error {self.std_error:.2g}), and that of {self.other!r} "
            f"ones is {self.other_mean:.3g} ({self.other_std_error:.2g}). This supposes that an "
            "item that a request can show at one position could be at any."
        )

    def describe_open(self) -> str:
        """That the kind is taken from the caller without a check."""
        return (
            f"this log cannot show whether its probabilities are {self.stated!r}, as stated, or "
            f"{self.other!r}: estimates are wrong if they are not what is stated"
        )


def find_kind_terms(shown: Impressions) -> Mapping[str, Vector] | None:
    """For each request the two terms of the module docstring, summed over k, the stated first.

    None if the kinds are the same, or if neither can be checked.
    """
    kind = shown.probability_is
    if shown.probability is None or kind in (None, "slate") or shown.n_slots == 1:
        return None
    if (shown.probability == 1).all() or _has_repeats(shown):
        return None
    rows = np.ascontiguousarray(shown.slots.T[:LAST_POSITION])
    is_used = (rows >= 0) & ~find_gaps(shown)
    item = np.where(is_used, shown.item[rows], 0)
    inverse = np.where(is_used, 1 / shown.probability[rows], 0.0)
    terms = {"marginal": np.zeros(shown.n_requests), "step": np.zeros(shown.n_requests)}
    for half in (shown.user_of_request % 2 == 0, shown.user_of_request % 2 == 1):
        shares, squares = (
            np.array(
                [
                    np.bincount(each[used], power[used], shown.n_items) / shown.n_requests
                    for each, power, used in zip(item, powers, is_used & ~half, strict=True)
                ]
            )
            for powers in (np.ones_like(inverse), inverse**2)
        )
        for slot in range(1, len(rows)):
            request = np.flatnonzero(half & is_used[slot])
            is_at_both = (shares[0] > 0) & (shares[slot] > 0)
            variance = np.where(is_at_both, squares[0] + squares[slot], np.inf)
            weight = (shares[:slot].sum(axis=0) / variance)[item[: slot + 1, request]]
            excess = weight[slot] * inverse[slot, request] - weight[0] * inverse[0, request]
            terms["marginal"][request] += excess
            terms["step"][request] += excess + weight[:slot].sum(axis=0)
    return terms if kind != "step" else dict(reversed(terms.items()))


def check_kind(shown: Impressions) -> KindCheck | None:
    """Whether the log fits the stated kind, with standard errors by user.

    None if there is nothing to compare: see :func:`find_kind_terms`.
    """
    terms = find_kind_terms(shown)
    if terms is None or shown.n_users < 2 or shown.probability_is is None:
        return None
    size = np.bincount(shown.user_of_request, minlength=shown.n_users)
    numbers = []
    for values in terms.values():
        mean = float(values.mean())
        by_user = np.bincount(shown.user_of_request, values, shown.n_users) - mean * size
        variance = shown.n_users / (shown.n_users - 1) * np.square(by_user).sum()
        numbers += [mean, float(np.sqrt(variance) / shown.n_requests)]
    return KindCheck(shown.probability_is, *numbers)


def _has_repeats(shown: Impressions) -> bool:
    if not shown.repeats:
        return False
    cells = shown.request.astype(np.int64) * shown.n_items + shown.item
    return bool(find_duplicates(cells)[0])
