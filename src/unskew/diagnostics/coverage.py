"""Which users, items and covariate profiles the log never contains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import PropensityWarning
from unskew.propensity.covariates import CovariateProfiles
from unskew.tables import count_noun

Counts = npt.NDArray[np.int64]
MAX_SHARE_UNSEEN = 0.25
EXPECTED = 10.0
"""Expected observations, at the log's density, from which on an unobserved profile is a hole."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which part of the universe has observations. This does not depend on propensities."""

    n_users: int
    n_items: int
    users_unseen: int
    """Users without an observation."""
    items_unseen: int
    profiles: int | None = None
    """Pairs of a user's and an item's covariates that occur; None without covariates."""
    profiles_unseen: int | None = None
    """Profiles that were never observed."""
    share_unseen: float | None = None
    """The share of all cells whose profile was never observed."""
    holes: int = 0
    """Never observed profiles for which at least 10 observations are expected."""

    @classmethod
    def of(
        cls, log: Ratings, universe: Universe | None, covariates: Sequence[CovariateProfiles]
    ) -> Coverage:
        """Count users, items and profiles without an observation."""
        n_users, n_items = log.n_users, log.n_items
        if universe is not None:
            n_users, n_items = universe.n_users, universe.n_items
        unseen = n_users - np.unique(log.user).size, n_items - np.unique(log.item).size
        if not covariates:
            return cls(n_users, n_items, *unseen)
        by_kind = {part.kind: part for part in covariates}
        user_profile, n_of_users = _count_profiles(by_kind.get("user"), log.n_users)
        item_profile, n_of_items = _count_profiles(by_kind.get("item"), log.n_items)
        pairs = user_profile[log.user] * n_of_items.size + item_profile[log.item]
        user_part, item_part = np.divmod(np.unique(pairs), n_of_items.size)
        n_cells = n_of_users[user_part] * n_of_items[item_part]  # of each observed profile
        n_profiles = n_of_users.size * n_of_items.size
        least = EXPECTED * log.n_cells / len(log)
        n_large = _count_products(n_of_users, n_of_items, least)
        return cls(
            n_users,
            n_items,
            *unseen,
            profiles=n_profiles,
            profiles_unseen=n_profiles - n_cells.size,
            share_unseen=1.0 - int(n_cells.sum()) / log.n_cells,
            holes=n_large - int((n_cells >= least).sum()),
        )

    def __str__(self) -> str:
        parts = [count_noun(self.users_unseen, "user"), count_noun(self.items_unseen, "item")]
        if self.profiles is not None:
            parts.append(f"{self.profiles_unseen:,} of {self.profiles:,} covariate profiles")
        return ", ".join(parts)

    def warnings(self) -> Iterator[PropensityWarning]:
        """One warning for each part of the universe that the log misses."""
        for kind, unseen, count in (
            ("users", self.users_unseen, self.n_users),
            ("items", self.items_unseen, self.n_items),
        ):
            if unseen > MAX_SHARE_UNSEEN * count:
                yield PropensityWarning(
                    f"{unseen:,} of {count:,} {kind} have no observation ({unseen / count:.0%}). "
                    f"Estimates for all {kind} rely on the observed ones.",
                    remedy="Collect some of their ratings, or leave them out of the universe and "
                    "out of the conclusion.",
                )
        if self.holes:
            yield PropensityWarning(
                f"{self.holes:,} of {self.profiles:,} covariate profiles were never observed, "
                f"although at least {EXPECTED:.0f} observations of each are expected at the "
                "log's density. Their propensity may be 0, which no weighting corrects.",
                remedy="Collect ratings of such cells, or leave them out of the universe and out "
                "of the conclusion.",
            )


def _count_profiles(covariates: CovariateProfiles | None, size: int) -> tuple[Counts, Counts]:
    """The profile of each user (item), and the number of users (items) of each profile.

    Without covariates all have the same profile.
    """
    if covariates is None:
        profile = np.zeros(size, dtype=np.int64)
    else:
        profile = covariates.profile.astype(np.int64)
    return profile, np.bincount(profile)


def _count_products(first: Counts, second: Counts, least: float) -> int:
    """How many products of one of ``first`` and one of ``second`` are at least ``least``."""
    values, repeats = np.unique(first, return_counts=True)
    return sum(
        int(repeat * (value * second >= least).sum())
        for value, repeat in zip(values.tolist(), repeats.tolist(), strict=True)
    )
