"""What factorisations of ratings share: settings, the penalty of ``l2``, and what a fit keeps."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import scaled_ridge
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.solution import FitOptions, Solution
from unskew.models.factor_recommender import FactorRecommender
from unskew.settings import Number, OneOf, WholeNumber, setting
from unskew.types import SeenItems, Vector


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
        self._record_factors(log, factors, self._fallback(factors, mean), seen)
        self.rating_range_ = self._find_range(log if fitted is None else fitted)
        self._record_solution(solution)

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
