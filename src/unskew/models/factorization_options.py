"""Settings that all factorisations of ratings share, and the penalty that ``l2`` stands for."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import scaled_ridge
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.solution import FitOptions
from unskew.settings import Number, OneOf, WholeNumber, setting


@dataclass(eq=False, repr=False)
class FactorizationOptions(FitOptions):
    """Settings of every model F_ui = v_u . w_i + a_u + b_i + c that is fitted to ratings."""

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

    def _record_range(self, target: Ratings) -> None:
        """Keep the range of the ratings that were fitted, if predictions stay within it."""
        lowest, highest = float(target.rating.min()), float(target.rating.max())
        self.rating_range_ = (lowest, highest) if self.clip_predictions else None

    def _record_penalty(self, log: Ratings | Universe, penalty: Penalty) -> None:
        self.penalty_ = penalty
        self.l2_ = penalty.factors / self._ridge_unit(log)

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
