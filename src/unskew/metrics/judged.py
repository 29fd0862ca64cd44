"""What goes into a metric and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from unskew.errors import BadPredictionError, UniverseError
from unskew.metrics.positions import Positions
from unskew.types import IntVector, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Some cells, and what one model says of them. A metric reads what it needs."""

    rating: Vector
    item: IntVector
    scale: Vector
    """Ratings whose distinct values are the levels there are: those of the log, also where ``rating`` is imputed."""
    prediction: Vector | None = None
    positions: Positions | None = None
    n_items: int | None = None
    """How many items there are to rank; None where nobody said."""

    def rated(self) -> Vector:
        """The predictions, which a rating metric cannot do without."""
        if self.prediction is None:
            raise BadPredictionError("a rating metric needs predicted ratings, and only positions were given.")
        return self.prediction

    def ranked(self) -> tuple[Positions, int]:
        """Positions and the number of items, which a ranking metric cannot do without."""
        if self.n_items is None:
            raise UniverseError(
                "a ranking metric needs the number of all items. Pass universe=(n_users, n_items), "
                "or universe='log' if the log's own users and items are all there are."
            )
        if self.positions is None:
            raise BadPredictionError("a ranking metric needs positions among all items, and only predicted ratings were given.")
        return self.positions, self.n_items


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """One number a cell. The risk is its mean over all cells, or over the cells that ``base`` picks."""

    value: Vector
    base: Vector | None = None
    is_mean_of_users: bool = False


class Metric(Protocol):
    """A delta for each cell."""

    @property
    def name(self) -> str:
        """How users call it, such as ``dcg@50``."""
        ...

    @property
    def higher_is_better(self) -> bool:
        """A gain rather than a loss."""
        ...

    @property
    def ranks(self) -> bool:
        """Whether it reads positions rather than predictions."""
        ...

    @property
    def top(self) -> int | None:
        """The last position that matters; None where all do."""
        ...

    def __call__(self, judged: Judged, /) -> Delta:
        """The deltas."""
        ...
