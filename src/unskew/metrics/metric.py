"""What goes into a metric and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unskew.errors import BadPredictionError, UniverseError, UsageError
from unskew.types import IntVector, Vector


class CellPositions(Protocol):
    """Where cells stand among all items of their user, 1 being the best place."""

    def mean(self, worth: Callable[[Vector], Vector], *, last: int) -> Vector:
        """The mean of ``worth(place)`` over the places that a cell's tie fills; places beyond ``last`` are worth nothing."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MetricInput:
    """Some cells, and what one model says of them. A metric reads what it needs.

    A formula that asks for no more than NumPy's functions of one cell at a time, and for what is below, is a formula for columns
    of data frames too: :func:`unskew.evaluate_frame` puts expressions where the arrays are.
    """

    rating: Vector
    item: IntVector
    scale: Vector
    """Ratings whose distinct values are the levels there are: those of the log, also where ``rating`` is imputed."""
    prediction: Vector | None = None
    positions: CellPositions | None = None
    n_items: int | None = None
    """How many items there are to rank; None where nobody said."""

    def require_predictions(self) -> Vector:
        """The predictions, which a rating metric cannot do without."""
        if self.prediction is None:
            raise BadPredictionError(
                "a rating metric needs predicted ratings, and only positions were given."
            )
        return self.prediction

    def require_positions(self) -> tuple[CellPositions, int]:
        """Positions and the number of items, which a ranking metric cannot do without."""
        if self.n_items is None:
            raise UniverseError(
                "a ranking metric needs the number of all items. Pass universe=(n_users, n_items), "
                "or universe='log' if the log's own users and items are all there are."
            )
        if self.positions is None:
            raise BadPredictionError(
                "a ranking metric needs positions among all items, and only predicted ratings were given."
            )
        return self.positions, self.n_items

    def distinct(self) -> Vector:
        """The distinct ratings of the scale, rising."""
        return np.unique(self.scale)

    def sum_by_item(self, value: Vector) -> Vector:
        """The sum of ``value`` over all cells of each cell's item."""
        by_item: Vector = np.bincount(self.item, weights=value).astype(np.float64)
        return by_item[self.item]

    def require_binary(self) -> None:
        """Refuse ratings other than 0 and 1; imputed ones may be probabilities of 1."""
        other = ~np.isin(self.scale, (0.0, 1.0))
        if other.any():
            raise unclear_relevance(self.scale[other.argmax()])
        outside = (self.rating < 0) | (self.rating > 1)
        if outside.any():
            raise BadPredictionError(
                f"the log's ratings are 0 and 1, but an imputed one is {self.rating[outside.argmax()]:g}. "
                "Impute the probability of a 1, in [0, 1]."
            )

    def require_relevant(self, least: float) -> None:
        """Refuse a log without a rating of at least ``least``."""
        if not (self.scale >= least).any():
            raise nothing_relevant(self.scale.max(), least)


def unclear_relevance(rating: float) -> UsageError:
    """That nobody said which ratings are relevant."""
    return UsageError(
        f"this metric asks which items are relevant, and ratings such as {rating:g} do not say. "
        "Pass relevant=4, for example, to count ratings of 4 and more."
    )


def nothing_relevant(largest: float, least: float) -> UsageError:
    """That a metric divides by the number of relevant cells, and there is none."""
    return UsageError(
        f"no rating is relevant: the largest is {largest:g}, and relevant={least:g} asks for more. Lower it."
    )


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

    def __call__(self, judged: MetricInput, /) -> Delta:
        """The deltas."""
        ...
