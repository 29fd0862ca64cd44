"""Which users, items and kinds of cells the log never shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.propensity.covariate.covariates import Covariates
from unskew.tables import count_noun

Codes = npt.NDArray[np.int64]
MAX_SHARE_UNSEEN = 0.25
EXPECTED = 10.0
"""A profile that would have had so many observations at the log's density, and has none, is a hole."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the log reaches, whatever the propensities."""

    n_users: int
    n_items: int
    users_unseen: int
    """Users without an observation."""
    items_unseen: int
    profiles: int | None = None
    """Pairs of a user's and an item's covariates that occur; None without covariates."""
    profiles_unseen: int | None = None
    """Of these, never observed."""
    share_unseen: float | None = None
    """The share of all cells in profiles never observed."""
    holes: int = 0
    """Profiles never observed that at the log's density should have had 10 observations or more."""

    @classmethod
    def of(
        cls, log: Ratings, universe: Universe | None, covariates: Sequence[Covariates]
    ) -> Coverage:
        """Count what is missing."""
        size = universe or Universe(log.n_users, log.n_items)
        unseen = size.n_users - np.unique(log.user).size, size.n_items - np.unique(log.item).size
        if not covariates:
            return cls(size.n_users, size.n_items, *unseen)
        by_kind = {each.kind: each for each in covariates}
        user, n_of_users = _profiles(by_kind.get("user"), log.n_users)
        item, n_of_items = _profiles(by_kind.get("item"), log.n_items)
        pair = np.unique(user[log.user] * n_of_items.size + item[log.item])
        cells = n_of_users[pair // n_of_items.size] * n_of_items[pair % n_of_items.size]
        enough = EXPECTED * log.n_cells / len(log)
        return cls(
            size.n_users,
            size.n_items,
            *unseen,
            profiles=n_of_users.size * n_of_items.size,
            profiles_unseen=n_of_users.size * n_of_items.size - pair.size,
            share_unseen=1.0 - int(cells.sum()) / log.n_cells,
            holes=_pairs_of_at_least(n_of_users, n_of_items, enough) - int((cells >= enough).sum()),
        )

    def __str__(self) -> str:
        profiles = (
            ""
            if self.profiles is None
            else f", {self.profiles_unseen:,} of {self.profiles:,} covariate profiles"
        )
        return f"{count_noun(self.users_unseen, 'user')}, {count_noun(self.items_unseen, 'item')}{profiles}"

    def warning_texts(self) -> Iterator[str]:
        """What is wrong, with the number and what to do."""
        for kind, unseen, there in (
            ("users", self.users_unseen, self.n_users),
            ("items", self.items_unseen, self.n_items),
        ):
            if unseen > MAX_SHARE_UNSEEN * there:
                yield (
                    f"{unseen:,} of {there:,} {kind} have no observation ({unseen / there:.0%}): what is said of all {kind} "
                    "rests on the others."
                )
        if self.holes:
            yield (
                f"{self.holes:,} of {self.profiles:,} covariate profiles were never observed, although at the log's density each "
                f"should have been {EXPECTED:.0f} times or more: such cells may have no chance, which no weighting mends."
            )


def _profiles(covariates: Covariates | None, size: int) -> tuple[Codes, Codes]:
    """The profile of each user or item, and how many have each; one for all where there are no covariates."""
    profile = (
        np.zeros(size, dtype=np.int64)
        if covariates is None
        else covariates.profile.astype(np.int64)
    )
    return profile, np.bincount(profile)


def _pairs_of_at_least(first: Codes, second: Codes, least: float) -> int:
    """How many pairs have a product of ``least`` or more, without forming them all."""
    counts, times = np.unique(first, return_counts=True)
    return sum(
        int(number * (count * second >= least).sum())
        for count, number in zip(counts.tolist(), times.tolist(), strict=True)
    )
