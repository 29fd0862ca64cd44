"""What every propensity model can do once it is fitted: tell the propensity of a logged cell or of any pair, and be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from unskew.data.ids import Ids, as_ids, describe_id_types, find_codes, format_id
from unskew.data.propensities import SMALLEST
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, UniverseLike, resolve_universe
from unskew.errors import BadPropensityError, UniverseError, UnknownIdError, UsageError
from unskew.io.model_files import write_model
from unskew.settings import Configurable, require_fitted
from unskew.tables import count_noun
from unskew.types import IntVector, Vector

BLOCK_PAIRS = 1 << 20


class PropensityModel(Configurable):
    """A model of P(O_ui = 1).

    A subclass fits itself, calls :meth:`_remember`, and answers :meth:`_chances`; :attr:`sees_ratings` says whether it needs
    the rating of a cell, which only a logged cell has.
    """

    users_: Ids
    items_: Ids
    n_cells_: int
    """U * I of the universe that the log was drawn from."""
    n_observed_: int
    """Ratings in the log: what the propensities of all cells should add up to."""

    sees_ratings = False

    @property
    def learns_users(self) -> bool:
        """Whether it has parameters of each user, and so knows nothing of one whose ratings it has not seen."""
        return False

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn from a log. Without a ``universe``, (n_users, n_items) or ``"log"``, it is the one that the log has."""
        raise NotImplementedError

    def predict(self, log: Ratings) -> Vector:
        """P(O_ui = 1) of every cell of ``log``, in its order: values in (0, 1]."""
        require_fitted(self)
        user = self._codes(log.users, self.users_, "user")[log.user]
        item = self._codes(log.items, self.items_, "item")[log.item]
        values = self._in_blocks(user, item, log.rating)
        _require_positive(values, log)
        return values

    def predict_pairs(self, users: npt.ArrayLike, items: npt.ArrayLike) -> Vector:
        """P(O_ui = 1) of any pairs of ids, observed or not. Values may be 0 where the model is sure that nobody looks."""
        require_fitted(self)
        if self.sees_ratings:
            raise UsageError(
                f"{type(self).__name__} needs the rating of a cell, which an unobserved one does not have; use predict(log)."
            )
        user, item = (
            self._codes(users, self.users_, "user"),
            self._codes(items, self.items_, "item"),
        )
        if user.shape != item.shape:
            raise UsageError(f"give as many users as items; got {user.size} and {item.size}.")
        return self._in_blocks(user, item, None)

    def save(self, path: str | Path) -> None:
        """Write the fitted model: a zip of arrays and a JSON manifest, never code. It replaces an old file in one step."""
        write_model(self, Path(path))

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        """P(O_ui = 1) of cells given by codes of ``users_`` and ``items_``; ``rating`` only where the model sees ratings."""
        raise NotImplementedError

    def _remember(self, log: Ratings, universe: Universe) -> None:
        """Keep what prediction needs of the log."""
        self.users_, self.items_ = log.users, log.items
        self.n_cells_, self.n_observed_ = universe.n_cells, len(log)

    def _in_blocks(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        pieces = [slice(first, first + BLOCK_PAIRS) for first in range(0, user.size, BLOCK_PAIRS)]
        blocks = [
            self._predict_codes(user[piece], item[piece], None if rating is None else rating[piece])
            for piece in pieces
        ]
        return np.concatenate(blocks) if blocks else np.empty(0)

    def _codes(self, ids: npt.ArrayLike, vocabulary: Ids, kind: str) -> IntVector:
        if ids is vocabulary:
            return np.arange(len(vocabulary), dtype=np.int32)
        asked = as_ids(ids)
        codes = find_codes(asked, vocabulary)
        if (codes < 0).any():
            row = int((codes < 0).argmax())
            raise UnknownIdError(
                f"{int((codes < 0).sum())} of {codes.size} {kind}s were not in the log that {type(self).__name__} was fitted to; "
                f"the first is {format_id(asked[row])}{describe_id_types(asked, vocabulary)}. "
                f"List all of them with Ratings.from_frame(..., {kind}s=...) and fit again."
            )
        return codes


def known_universe(log: Ratings, given: UniverseLike) -> Universe:
    """The universe, which every propensity needs: P is a share of all cells, not of the log."""
    universe = resolve_universe(log, given)
    if universe is None:
        raise UniverseError(
            "propensities are shares of all cells, so fit needs the universe: universe=(n_users, n_items), or universe='log' "
            "if the log's own users and items are all there are."
        )
    return universe


def listed_universe(log: Ratings, given: UniverseLike) -> Universe:
    """The universe of a model that looks at every user and item: the log must list them all, silent ones included."""
    universe = known_universe(log, given)
    if (universe.n_users, universe.n_items) != (log.n_users, log.n_items):
        raise UniverseError(
            f"the universe has {universe}, but the log lists {count_noun(log.n_users, 'user')} and {count_noun(log.n_items, 'item')}, "
            "and this model looks at each of them. List them all with Ratings.from_frame(..., users=..., items=...)."
        )
    return universe


def _require_positive(values: Vector, log: Ratings) -> None:
    bad = ~((values >= SMALLEST) & (values <= 1))
    if bad.any():
        row = int(bad.argmax())
        raise BadPropensityError(
            f"{int(bad.sum())} of {bad.size} predicted propensities lie outside (0, 1]; "
            f"the first is {values[row]} at {log.name_cell(row)}. The model gives that cell no chance, yet it was observed."
        )
