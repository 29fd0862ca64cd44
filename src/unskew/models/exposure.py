"""ExpoMF: a cell without a click may never have been seen (Liang et al. 2016)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from unskew.data.clicks import find_clicks
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.exposure import ExposureParameters, ExposureSolver
from unskew.factorization.objective import sort_both_ways
from unskew.models import RECOMMENDERS
from unskew.models.all_cells import AllCellsRecommender
from unskew.settings import Number, WholeNumber, setting
from unskew.threads import Workers
from unskew.types import ArrayShapes, Vector


def _check_prior(name: str, value: object) -> None:
    if not (isinstance(value, tuple | list) and len(value) == 2):
        raise UsageError(
            f"`{name}` must be the two numbers a and b, each at least 1; got {value!r}.",
            parameter=name,
            value=value,
        )
    for number in value:
        Number(least=1)(name, number)


class _ExposureAttributes:
    """The attributes that a fit of :class:`ExposureFactorization` adds."""

    exposure_: Vector


@RECOMMENDERS.declare(
    "expomf",
    label="ExpoMF",
    summary="Clicks that require exposure, which the model estimates (Liang et al. 2016).",
    traits={"reads_propensities": False, "needs_propensities": False},
)
@dataclass(eq=False, repr=False)
class ExposureFactorization(AllCellsRecommender, _ExposureAttributes):
    """F_ui = v_u . w_i, fitted to clicks and to the cells that were probably seen but not clicked.

        A ~ Bernoulli(mu_i);   y ~ N(F, 1 / precision) if A = 1, and y = 0 if A = 0
        mu_i ~ Beta(a, b)

    EM alternates between the probability that each cell was exposed and, given it, factors and mu.
    Each step visits all U I cells in blocks, at a cost of O(U I d^2). The objective is the
    negative log posterior without the constants of the priors. ``predict`` gives F, which only
    ranks items (D. Liang, L. Charlin, J. McInerney & D. Blei, *Modeling user exposure in
    recommendation*, WWW 2016; here the normal density has its constant sqrt(precision / 2 pi)).

    The model takes no propensities: a clicked cell was exposed for certain, and the model itself
    estimates the exposure of the others.

    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    n_factors
        The number of columns of V and W.
    prior_precision
        The precision of the factors' prior, lambda_v = lambda_w in the paper.
    relevance_threshold
        Ratings of at least this are clicks, others are not. By default every cell of the log is.
    precision
        lambda_y in the paper: how closely clicks of exposed users follow v . w. Above 2 pi the
        density of y = 0 at v . w = 0 exceeds 1, so a missing click is evidence of exposure. Below,
        mu stays near an item's share of clicks.
    exposure
        mu_i of every item at the start, also with ``initial_factors``.
    prior
        a and b, each at least 1.
    max_iter, tol
        The fit stops after ``max_iter`` steps, or when a step lowers the objective by at most
        ``tol`` times its size. The paper stops earlier, when a ranking metric on held-out clicks
        gets worse: choose ``max_iter`` by cross-validation for that, with ``tol=0``.

    Attributes
    ----------
    exposure_ : mu_i, for each item the share of users who are exposed to it.
    """

    predicts_ratings: ClassVar[bool] = False

    prior_precision: float = setting(1e-5, Number(above=0))
    _: KW_ONLY
    relevance_threshold: float | None = setting(None)
    precision: float = setting(1.0, Number(above=0))
    exposure: float = setting(0.01, Number(above=0, below=1))
    prior: tuple[float, float] = setting((1.0, 1.0), _check_prior)
    max_iter: int = setting(100, WholeNumber(least=1))
    tol: float = setting(1e-5, Number(least=0))

    def _make_solver(
        self, log: Ratings, propensity: Vector | None, workers: Workers
    ) -> ExposureSolver:
        if propensity is not None:
            raise UsageError(
                "ExposureFactorization takes no propensities: it estimates exposure itself.",
                parameter="propensities",
                remedy="Leave `propensities` out, or use RelevanceFactorization, which divides "
                "clicks by them.",
            )
        clicks = log.take(find_clicks(log, self.relevance_threshold))
        ones, shape = np.ones(len(clicks)), (log.n_users, log.n_items)
        sides = sort_both_ways(clicks.user, clicks.item, ones, ones, shape=shape, dtype=self.dtype)
        return ExposureSolver(*sides, self.precision, self.prior_precision, self.prior, workers)

    def _make_start(self, log: Ratings, initial_factors: Factors | None) -> ExposureParameters:
        factors = super()._make_start(log, initial_factors)
        return ExposureParameters(factors, np.full(log.n_items, self.exposure))

    def _record_parameters(self, log: Ratings, parameters: ExposureParameters) -> None:
        super()._record_parameters(log, parameters.factors)
        self.exposure_ = parameters.exposure

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        return {
            **super()._arrays_with_expected_shapes(),
            "exposure": (self.exposure_, (len(self.items_),)),
        }
