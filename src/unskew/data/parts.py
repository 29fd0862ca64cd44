"""Parts of a log: which of its rows they have, and with which probability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

SplitUnit: TypeAlias = Literal["random", "user", "time"]
"""What a split divides: single ratings at random, whole users at random, or time."""
RandomSplitUnit: TypeAlias = Literal["random", "user"]
"""What a split draws by a hash of ids."""
SPLIT_IDS: Mapping[RandomSplitUnit, tuple[str, ...]] = {
    "random": ("user", "item"),
    "user": ("user",),
}
"""The ids that are hashed."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The place of a part in the whole log that it was split from.

    A cell is in the part if it was observed and then drawn. So its propensity in the part is
    ``share * P``, with P its propensity in the whole log.
    """

    rows: npt.NDArray[np.intp]
    """The rows of the whole log that the part has."""
    n_whole: int
    """Ratings in the whole log."""
    share: float
    """The probability that a rating of the whole log was drawn for the part."""
    by: SplitUnit

    def take(self, rows: npt.NDArray[np.intp]) -> Part:
        """The place of some rows of the part; they have the same share."""
        return replace(self, rows=self.rows[rows])

    def describe(self) -> str:
        """The kind of part in words.

        >>> Part(np.arange(2), 10, 0.2, "time").describe()
        'a part with a share of 0.2, split by time'
        """
        kind = "at random" if self.by == "random" else f"by {self.by}"
        return f"a part with a share of {self.share:.3g}, split {kind}"
