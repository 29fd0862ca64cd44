"""Recommenders whose predictions are products of factors, and what factorisations share."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.frames import make_frame
from unskew.data.ids import Ids, as_ids
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UnskewWarning, UsageError, warn_caller
from unskew.factorization.engine import FrameFitResult
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import scaled_ridge
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.solution import FitOptions, Solution
from unskew.models.recommendations import Neighbors, find_neighbors, require_directions
from unskew.models.recommender import OnUnknown, Recommender
from unskew.settings import Number, OneOf, WholeNumber, require_fitted, setting
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
            "user_offset": (factors.user_offset, (n_users,)),
            "item_offset": (factors.item_offset, (n_items,)),
            "global_offset": (factors.global_offset, ()),
        }


@dataclass(eq=False, repr=False)
class RatingFactorization(FitOptions, FactorRecommender):
    """A model F_ui = v_u . w_i + a_u + b_i + c that is fitted to ratings."""

    n_factors: int = setting(10, WholeNumber(least=0))
    l2: float | Literal["auto"] = setting("auto", Number(least=0, allow_auto=True))
    _: KW_ONLY
    offsets: Offsets = setting("regularized", OneOf(("none", "free", "regularized")))
    clip_predictions: bool = setting(True)
    l2_: float = field(init=False)
    penalty_: Penalty = field(init=False)

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.n_factors == 0 and self.offsets == "none":
            raise UsageError(
                "`n_factors=0` with `offsets='none'` leaves nothing to fit.",
                parameter="n_factors",
                value=0,
                remedy="Use at least one factor, or offsets.",
            )

    def _ridge_unit(self, log: Ratings | Universe) -> float:
        """The ridge that ``l2=1`` stands for."""
        penalizes_offsets = self.offsets == "regularized"
        return scaled_ridge(1.0, log, n_factors=self.n_factors, penalizes_offsets=penalizes_offsets)

    def _fixed_penalty(self, log: Ratings | Universe) -> Penalty:
        """The penalty of a number ``l2``: the same ridge for factors and penalised offsets."""
        return Penalty.equal(float(self.l2) * self._ridge_unit(log), self.offsets)

    def _read_propensities(
        self, log: Ratings, propensities: PropensitiesLike | None, *, purpose: str
    ) -> Vector:
        """P of each rating; an error if there are none."""
        if propensities is None:
            raise UsageError(
                f"{type(self).__name__} needs propensities to {purpose}.",
                parameter="propensities",
                remedy="Pass them to fit.",
                shell_remedy="Pass `propensity`.",
            )
        return as_propensities(log, propensities).values

    def _record_penalty(self, log: Ratings | Universe, penalty: Penalty) -> None:
        self.penalty_ = penalty
        self.l2_ = penalty.factors / self._ridge_unit(log)

    def _record_fit(
        self,
        log: Ratings,
        solution: Solution[Factors],
        mean: float,
        *,
        fitted: Ratings | None = None,
        seen: SeenItems | None = None,
    ) -> None:
        """Keep F and how its fit went; warn if it did not converge. Call it from ``fit``.

        ``mean`` is the prediction for unknown users and items if F has no offsets. ``fitted`` are
        the ratings that F was fitted to, if these are not ``log``.
        """
        factors = solution.parameters
        fitted = log if fitted is None else fitted
        self._record_factors(log, factors, self._fallback(factors, mean), seen)
        self.rating_range_ = self._find_range(fitted)
        self._record_solution(solution)
        if len(fitted) > 1 and fitted.rating.min() == fitted.rating.max():
            warn_caller(
                UnskewWarning(
                    f"all {len(fitted):,} ratings are {fitted.rating[0]:g}, so "
                    f"{type(self).__name__} has nothing to learn: every prediction is the same.",
                    parameter="log",
                    remedy="For a log of clicks use WeightedFactorization, which takes all other "
                    "cells for zeros of less weight.",
                )
            )

    def _record_frame_fit(self, result: FrameFitResult) -> None:
        """Keep the fit of a data frame by an engine, and how it went; warn as above."""
        factors = result.solution.parameters
        self.factors_, self.fallback_ = factors, self._fallback(factors, result.mean)
        self.users_, self.items_ = result.users, result.items
        self.seen_starts_, self.seen_items_ = result.seen
        self.user_factors_frame = result.user_factors
        self.rating_range_ = result.rating_range if self.clip_predictions else None
        self._record_penalty(result.universe, self._fixed_penalty(result.universe))
        self._record_solution(result.solution)

    def _find_range(self, log: Ratings) -> tuple[float, float] | None:
        """The range of the ratings, if predictions stay within it."""
        if not self.clip_predictions:
            return None
        return float(log.rating.min()), float(log.rating.max())

    def _fallback(self, factors: Factors, mean: float) -> float:
        """The prediction for unknown users and items, but for their offsets."""
        return mean if self.offsets == "none" else factors.global_offset

    def _random_start(self, log: Ratings, mean: float, *, with_users: bool = False) -> Factors:
        """Small random factors; a solver that solves the users first needs none of them."""
        return small_random(
            (log.n_users, log.n_items),
            mean,
            n_factors=self.n_factors,
            has_offsets=self.offsets != "none",
            random_state=self.random_state,
            dtype=self.dtype,
            with_users=with_users,
        )
