"""Recommenders whose predictions are products of factors: similar items, and exports."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.frames import make_frame
from unskew.data.ids import Ids, as_ids
from unskew.data.ratings import Ratings
from unskew.models.recommender import OnUnknown, Recommender
from unskew.models.similarity import Neighbors, find_neighbors, require_directions
from unskew.settings import OneOf, WholeNumber, require_fitted
from unskew.types import (
    ArrayShapes,
    Floats,
    IntVector,
    Scorer,
    SeenItems,
    Vector,
)


class FactorRecommender(Recommender):
    """Predicts F_ui = v_u . w_i + a_u + b_i + c from the :class:`Factors` that a subclass fits.

    Attributes
    ----------
    factors_ : the fitted V, W, a, b and c.
    fallback_ : replaces c in predictions for an unknown user or item.
    rating_range_ : the smallest and the largest rating of the log; None without
        ``clip_predictions``.
    """

    factors_: Factors
    fallback_: float
    rating_range_: tuple[float, float] | None

    @property
    def limits(self) -> tuple[float, float] | None:
        """The range of the log's ratings, with ``clip_predictions``; None without."""
        return getattr(self, "rating_range_", None)

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        return self.factors_.predict(user, item, fallback=self.fallback_)

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """A scorer of ``items``, in this order, for users given by their index in ``users``.

        Unknown users and items have factors and offsets of zero. If items have no offsets to rank
        them by, an unknown user has the mean of all users' factors instead.
        """
        user, item = self._find_codes_or_none(users, items)
        fitted, factors = self.factors_, self.factors_.take(user, item)
        if fitted.user_factors.size and not fitted.item_offset.any():
            factors.user_factors[user < 0] = fitted.user_factors.mean(axis=0)
        return factors

    def similar_items(
        self, items: npt.ArrayLike, k: int = 10, *, on_unknown: OnUnknown = "raise"
    ) -> Neighbors:
        """The ``k`` items whose factors have the largest cosine with those of each item."""
        sides = self.factors_.item_factors, self.factors_.user_factors
        return self._find_similar(items, self.items_, "item", k, *sides, on_unknown)

    def similar_users(
        self, users: npt.ArrayLike, k: int = 10, *, on_unknown: OnUnknown = "raise"
    ) -> Neighbors:
        """The ``k`` users whose factors have the largest cosine with those of each user."""
        sides = self.factors_.user_factors, self.factors_.item_factors
        return self._find_similar(users, self.users_, "user", k, *sides, on_unknown)

    def _find_similar(
        self,
        ids: npt.ArrayLike,
        vocabulary: Ids,
        kind: str,
        k: int,
        rows: Floats,
        opposite: Floats,
        on_unknown: OnUnknown,
    ) -> Neighbors:
        require_fitted(self)
        WholeNumber(least=1)("k", k)
        codes = self._find_codes(ids, vocabulary, kind, on_unknown, stacklevel=4)
        require_directions(rows, opposite)
        is_known = codes >= 0
        best, cosines = find_neighbors(rows, codes[is_known], min(int(k), len(vocabulary) - 1))
        return Neighbors(as_ids(ids)[is_known], vocabulary[best], cosines)

    def export_factors(self, side: Literal["user", "item"]) -> npt.NDArray[np.float32]:
        """Rows in float32 whose inner products are the predictions before they are clipped.

        ``[v, a + c, 1]`` for users and ``[w, 1, b]`` for items, in the order of ``users_`` and
        ``items_``: what an index for the largest inner product needs.
        """
        require_fitted(self)
        OneOf(("user", "item"))("side", side)
        users, item_columns = self.factors_.as_product()
        rows = users if side == "user" else item_columns.T
        return np.ascontiguousarray(rows, dtype=np.float32)

    def factors_to_frame(self, side: Literal["user", "item"], backend: str | None = None) -> Any:
        """The factors of all users or items as a data frame: id, offset, factor_1, factor_2, ..."""
        require_fitted(self)
        OneOf(("user", "item"))("side", side)
        factors, offset = getattr(self.factors_, f"{side}_side")
        ids = self.users_ if side == "user" else self.items_
        columns = {f"factor_{number + 1}": column for number, column in enumerate(factors.T)}
        return make_frame({f"{side}_id": ids, "offset": offset, **columns}, backend)

    def _record_factors(
        self, log: Ratings, factors: Factors, fallback: float, seen: SeenItems | None = None
    ) -> None:
        """Keep what predictions need; ``seen`` saves sorting the log again."""
        self.factors_, self.fallback_ = factors, fallback
        self._record_log(log, seen)

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        factors, n_users, n_items = self.factors_, len(self.users_), len(self.items_)
        return {
            "user_factors": (factors.user_factors, (n_users, factors.n_factors)),
            "item_factors": (factors.item_factors, (n_items, factors.n_factors)),
            "global_offset": (factors.global_offset, ()),
        }
