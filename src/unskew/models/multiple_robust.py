"""Multiple robust learning: several imputations and several propensities, of which one is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Real
from typing import Any, Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import WeightTransform, transform_weights, weighted_mean
from unskew.errors import UsageError
from unskew.factorization.pseudo_outcome import sum_of_products
from unskew.models import RECOMMENDERS
from unskew.models.correction import fit_correction
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import RatingFactorization
from unskew.models.imputation import (
    HeldOutImputation,
    HeldOutParts,
    combine_factors,
    find_imputation_weight,
    minimize_on_simplex,
)
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.settings import Instance, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import Matrix, Vector


@RECOMMENDERS.declare(
    "mr",
    label="MR",
    summary="Several imputations and propensities, of which one must be right (Li et al. 2023).",
    traits={"needs_propensities": True},
)
@dataclass(eq=False, repr=False)
class MultipleRobustFactorization(RatingFactorization):
    """F that minimises a doubly robust loss with combined imputations and combined weights.

        min  sum over all cells of (G - F)^2
             +  sum over the log of h ((Y - F)^2 - (G - F)^2)  +  penalty of F - G
        G = sum_k eta_k G^k,     h = sum_j b_j / P^j

    Each imputer is fitted with the weights of each propensity model, which gives the G^k. eta
    minimises the weighted squared error of held-out ratings, and b the imbalance: the differences
    between sums over the log of h, h G^1, h G^2, ... and the sums of 1, G^1, ... over all cells, in
    units of their noise, plus sum b_j^2. Shares are at least 0 and add up to 1. As the log grows,
    eta finds a right imputation and b right propensities, unless others fit as well. If one of
    either kind is right, the loss estimates that over all cells.

    H. Li, Q. Dai, Y. Li, Y. Lyu, Z. Dong, X.-H. Zhou & P. Wu, *Multiple robust learning for
    recommendation*, AAAI 2023, regress losses on 1 / P^j and on imputed losses in place of an
    explicit correction by h. The F of their next step is then a combination of the imputations,
    which propensities change only through eta.

    The other settings are those of :class:`MatrixFactorization`. The estimator ``mr`` of
    :func:`unskew.evaluate` judges models in the same spirit.

    Parameters
    ----------
    imputers
        Factorisations that are not fitted; by default ``MatrixFactorization(n_factors)`` and one
        without factors, each with the penalty that the log asks for.

    Attributes
    ----------
    factors_, imputed_ : F and G.
    imputation_shares_ : eta, imputers outermost, in each as many as there are propensities.
    propensity_shares_ : b.
    risk_ : the doubly robust estimate of the mean squared error, on the log of the fit.
    history_ : the objective of the last step. Its first entry is inf: users are solved first.
    """

    _: KW_ONLY
    imputers: tuple[MatrixFactorization, ...] | None = setting(None)
    weight_transform: WeightTransform | None = setting(None)
    imputed_: Factors = field(init=False)
    imputation_shares_: Vector = field(init=False)
    propensity_shares_: Vector = field(init=False)
    risk_: float = field(init=False)

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike
        | Sequence[PropensitiesLike]
        | Mapping[str, PropensitiesLike]
        | None = None,
        *,
        engine: str | object = "auto",
    ) -> Self:
        """Fit to a log and the propensities of its cells.

        ``propensities`` is one model, a list or a dict of several. Each is given as values in the
        order of the log, as a users x items matrix or as a fitted model.
        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        self._check_settings()
        several = [as_propensities(log, each).values for each in list_propensities(propensities)]
        imputers = self._list_imputers()
        weights = [transform_weights(1 / each, self.weight_transform) for each in several]
        parts = HeldOutParts.draw(log, self.random_state)
        with Workers(self.n_threads) as workers, single_blas_thread(), self._show_steps() as report:
            imputations = [
                HeldOutImputation.fit(
                    imputer,
                    log,
                    find_imputation_weight(
                        None if self.imputers is None else imputer,
                        "dr-jl",
                        log,
                        propensity,
                        random_state=self.random_state,
                    ),
                    parts,
                    workers,
                    dtype=self.dtype,
                    random_state=self.random_state,
                )
                for imputer in imputers
                for propensity in several
            ]
            factors = [each.factors for each in imputations]
            self.propensity_shares_ = share_weights(log, weights, factors)
            weight = np.einsum("j,jn->n", self.propensity_shares_, np.stack(weights))
            self.imputation_shares_ = share_imputations(log, weight, imputations, parts)
            self.imputed_ = combine_factors(factors, self.imputation_shares_.tolist())
            fit = fit_correction(self, log, weight, self.imputed_, workers, report)
        self.risk_ = fit.risk
        self._record_penalty(log, fit.penalty)
        self._record_fit(log, fit.solution, weighted_mean(log.rating, weight))
        return self

    def _list_imputers(self) -> tuple[MatrixFactorization, ...]:
        if self.imputers is None:
            return MatrixFactorization(self.n_factors), MatrixFactorization(n_factors=0)
        if not isinstance(self.imputers, Sequence) or not self.imputers:
            raise UsageError(
                f"`imputers` must be a tuple of factorisations; got {self.imputers!r}.",
                parameter="imputers",
                value=self.imputers,
                remedy="Pass one or more, such as (unskew.MatrixFactorization(5),).",
            )
        for imputer in self.imputers:
            Instance(MatrixFactorization)("imputers", imputer)
        return tuple(self.imputers)


def list_propensities(propensities: Any) -> list[Any]:
    """One or several propensities as a list; an error if there are none."""
    if isinstance(propensities, Mapping):
        propensities = list(propensities.values())
    is_list = isinstance(propensities, list | tuple)
    if propensities is None or (is_list and not propensities):
        raise UsageError(
            "MultipleRobustFactorization needs propensities.",
            parameter="propensities",
            remedy="Pass one or several to fit.",
            shell_remedy="Pass `propensity`.",
        )
    if is_list and not isinstance(propensities[0], Real):
        return list(propensities)
    return [propensities]


def share_weights(log: Ratings, weights: Sequence[Vector], imputed: Sequence[Factors]) -> Vector:
    """b: the shares of the weights with the least imbalance of 1 and of the imputations."""
    columns, ones = [np.ones(len(log))], (np.ones((log.n_users, 1)), np.ones((log.n_items, 1)))
    for factors in imputed:
        mean = sum_of_products(*factors.as_float64_rows(), *ones) / log.n_cells
        columns.append(factors.predict(log.user, log.item) - mean)
    features: Matrix = np.stack(columns)
    totals = np.zeros(len(features))
    totals[0] = log.n_cells
    imbalance = np.stack([features @ weight - totals for weight in weights], axis=1)
    noise = np.mean([(features * (w * (w - 1))) @ features.T for w in weights], axis=0)
    inverse = np.linalg.pinv(noise, rcond=1e-8, hermitian=True)
    return minimize_on_simplex(imbalance.T @ inverse @ imbalance + np.eye(len(weights)))


def share_imputations(
    log: Ratings, weight: Vector, imputations: Sequence[HeldOutImputation], parts: HeldOutParts
) -> Vector:
    """eta: the shares with the least weighted squared error of held-out ratings.

    Without held-out ratings all imputations have equal shares.
    """
    if not parts.n_used:
        return np.full(len(imputations), 1 / len(imputations))
    is_held_out = parts.is_held_out
    largest = np.quantile(weight, 0.99)
    root = np.sqrt(np.minimum(weight[is_held_out], largest))
    errors = np.stack([root * (log.rating[is_held_out] - each.held_out) for each in imputations])
    return minimize_on_simplex(errors @ errors.T)
