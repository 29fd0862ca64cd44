"""Recommenders whose predictions are products of factors."""

from __future__ import annotations

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_ids, find_codes
from unskew.data.ratings import Ratings
from unskew.factorization.parameters import Parameters, rows_or_zero
from unskew.models.recommender import Recommender, Seen, Shapes
from unskew.settings import require_fitted
from unskew.types import IntVector, Scorer, Vector


class FactorRecommender(Recommender):
    """Predicts F_ui = v_u . w_i + a_u + b_i + c from :class:`Parameters` that a subclass fits."""

    parameters_: Parameters
    fallback_: float
    """Predicted where neither user nor item is known."""

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        found = self.parameters_
        known = (user >= 0) & (item >= 0)
        product = np.einsum(
            "kd,kd->k",
            rows_or_zero(found.user_factors, user),
            rows_or_zero(found.item_factors, item),
        )
        offsets = rows_or_zero(found.user_offset, user) + rows_or_zero(found.item_offset, item)
        values: Vector = offsets + np.where(known, product + found.constant, self.fallback_)
        return values

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """A scorer whose codes index ``users`` and whose columns are ``items``; unknown ones have neither factors nor offset.

        Where items have no offsets to be ranked by, an unknown user has the factors of the mean user.
        """
        require_fitted(self)
        user, item = find_codes(as_ids(users), self.users_), find_codes(as_ids(items), self.items_)
        found = self.parameters_
        factors = rows_or_zero(found.user_factors, user)
        if found.user_factors.size and not found.item_offset.any():
            factors[user < 0] = found.user_factors.mean(axis=0)
        return Factors(
            factors,
            rows_or_zero(found.item_factors, item),
            rows_or_zero(found.user_offset, user),
            rows_or_zero(found.item_offset, item),
            found.constant,
        )

    def _remember(
        self, log: Ratings, parameters: Parameters, fallback: float, seen: Seen | None = None
    ) -> None:
        """Keep what prediction needs of a fit; ``seen`` spares sorting the log again."""
        self.parameters_, self.fallback_ = parameters, fallback
        self._remember_log(log, seen)

    def _shapes(self) -> Shapes:
        found, n_users, n_items = self.parameters_, len(self.users_), len(self.items_)
        n_factors = found.user_factors.shape[-1:]
        return {
            "user_factors": (found.user_factors, (n_users, *n_factors)),
            "item_factors": (found.item_factors, (n_items, *n_factors)),
            "user_offset": (found.user_offset, (n_users,)),
            "item_offset": (found.item_offset, (n_items,)),
            "constant": (found.constant, ()),
        }
