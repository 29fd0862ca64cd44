"""How many users and items there are, the unseen ones included: the U x I that IPS divides by."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from unskew.errors import UniverseError
from unskew.tables import count_noun

if TYPE_CHECKING:
    from unskew.data.ratings import Ratings


@dataclass(frozen=True, slots=True)
class Universe:
    """All cells that could have been observed: ``n_users`` x ``n_items``."""

    n_users: int
    n_items: int

    def __post_init__(self) -> None:
        for name, size in (("users", self.n_users), ("items", self.n_items)):
            if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
                raise UniverseError(
                    f"the universe needs a whole number of {name}, at least 1; got {size!r}."
                )
        object.__setattr__(self, "n_users", int(self.n_users))
        object.__setattr__(self, "n_items", int(self.n_items))

    @property
    def n_cells(self) -> int:
        """U * I."""
        return self.n_users * self.n_items

    def __str__(self) -> str:
        return f"{count_noun(self.n_users, 'user')} x {count_noun(self.n_items, 'item')}"


UniverseLike: TypeAlias = Universe | tuple[int, int] | Literal["log"] | None


def resolve_universe(log: Ratings, given: UniverseLike) -> Universe | None:
    """The universe the caller names, else the one the log was built with, else None: it is never guessed."""
    if given is None:
        return log.universe
    universe = _parse(log, given)
    if universe.n_users < log.n_users or universe.n_items < log.n_items:
        raise UniverseError(
            f"the universe has {universe}, but the log alone has {count_noun(log.n_users, 'user')} and "
            f"{count_noun(log.n_items, 'item')}. "
            "Count every user and every item that could have been in the log."
        )
    return universe


def _parse(log: Ratings, given: object) -> Universe:
    if isinstance(given, str) and given == "log":
        return Universe(log.n_users, log.n_items)
    return parse_universe(given)


def parse_universe(given: object) -> Universe:
    """The universe whose numbers the caller gives."""
    if isinstance(given, Universe):
        return given
    if isinstance(given, (tuple, list, np.ndarray)) and len(given) == 2:
        return Universe(given[0], given[1])
    raise UniverseError(
        f"universe must be (n_users, n_items) or 'log' (the log's own users and items); got {given!r}."
    )
