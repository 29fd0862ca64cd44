"""How many users and items there are, unobserved ones included: the U x I that IPS divides by."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from unskew.errors import UniverseError
from unskew.settings import WholeNumber
from unskew.tables import count_noun

if TYPE_CHECKING:
    from unskew.data.ratings import Ratings


@dataclass(frozen=True, slots=True)
class Universe:
    """All cells that could have been observed: ``n_users`` x ``n_items``."""

    n_users: int
    n_items: int
    n_candidates: int | None = None
    """The number of cells that are candidates, if not all are: only those are evaluated."""

    def __post_init__(self) -> None:
        for name, size in (("users", self.n_users), ("items", self.n_items)):
            if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
                raise UniverseError(
                    f"the universe needs a whole number of {name}, at least 1; got {size!r}.",
                    parameter="universe",
                    value=size,
                )
        WholeNumber(least=1, allow_none=True)("n_candidates", self.n_candidates)
        object.__setattr__(self, "n_users", int(self.n_users))
        object.__setattr__(self, "n_items", int(self.n_items))

    @property
    def n_cells(self) -> int:
        """``n_users * n_items``, the U I of Eq. (10), or the number of candidates."""
        return self.n_users * self.n_items if self.n_candidates is None else self.n_candidates

    def __str__(self) -> str:
        size = f"{count_noun(self.n_users, 'user')} x {count_noun(self.n_items, 'item')}"
        if self.n_candidates is None:
            return size
        return f"{size}, with {count_noun(self.n_candidates, 'candidate')}"


UniverseLike: TypeAlias = Universe | tuple[int, int] | Literal["log"] | None


def resolve_universe(log: Ratings, universe: UniverseLike) -> Universe | None:
    """The universe that the caller states, else that of the log, else None: it is never guessed.

    ``"log"`` means the users and items of the log's vocabularies.
    """
    from unskew.data.ratings import require_log

    require_log(log)
    if universe is None:
        return log.universe
    if isinstance(universe, str) and universe == "log":
        return Universe(log.n_users, log.n_items)
    resolved = parse_universe(universe)
    require_room(resolved, log.n_users, log.n_items)
    return resolved


def require_room(universe: Universe, n_users: int, n_items: int) -> None:
    """Raise an error if a log has more users or items than the universe."""
    if universe.n_users < n_users or universe.n_items < n_items:
        raise UniverseError(
            f"the universe has {universe}, but the log alone has "
            f"{count_noun(n_users, 'user')} and {count_noun(n_items, 'item')}.",
            parameter="universe",
            value=universe,
            remedy="Count every user and every item that could have been in the log.",
        )


def require_all_ids(
    log: Ratings, universe: Universe, reason: str, *, shell_remedy: str | None = None
) -> None:
    """Raise an error if the universe has users or items whose ids are not in the log.

    ``reason`` ends the sentence: why the ids of the whole universe are needed.
    """
    if (universe.n_users, universe.n_items) != (log.n_users, log.n_items):
        raise UniverseError(
            f"the universe has {universe}, but the log has the ids of only "
            f"{count_noun(log.n_users, 'user')} and {count_noun(log.n_items, 'item')}, {reason}.",
            parameter="universe",
            value=universe,
            remedy="Build the log with Ratings.from_frame(..., `users=[all user ids]`, "
            "`items=[all item ids]`).",
            shell_remedy=shell_remedy,
        )


def parse_universe(universe: object) -> Universe:
    """A :class:`Universe` from one, or from a pair of numbers."""
    if isinstance(universe, Universe):
        return universe
    if isinstance(universe, np.ndarray) and universe.shape == (2,):
        return Universe(universe[0], universe[1])
    if isinstance(universe, tuple | list) and len(universe) == 2:
        return Universe(*universe)
    raise UniverseError(
        "`universe` must be a pair (n_users, n_items), how many users and items there are in all, "
        f"or 'log' if the log lists them all; got {universe!r}.",
        parameter="universe",
        value=universe,
    )
