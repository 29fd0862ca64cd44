"""ExpoMF: silence may mean that an item was never seen (Liang et al. 2016)."""

from __future__ import annotations

import numpy as np

from unskew.data.checks import is_finite_number
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.all_cells import (
    AllCellsRecommender,
    Dtype,
    clicked_cells,
    require_positive,
)
from unskew.factorization.exposure import Exposed, ExposureSteps
from unskew.factorization.objective import SortedCells
from unskew.factorization.parameters import Parameters
from unskew.models.recommender import Shapes
from unskew.threads import Workers
from unskew.types import Vector


class ExposureFactorization(AllCellsRecommender):
    """F_ui = v_u . w_i, fitted to clicks and to the silence of those who probably saw the item.

        A ~ Bernoulli(mu_i);    y ~ N(F, 1 / precision) where A = 1, and y = 0 where A = 0;    mu_i ~ Beta(a, b)

    An EM algorithm alternates between the chance that each cell was exposed and, given it, factors and mu. Each step visits all
    U I cells, O(U I d^2), in blocks of users and of items. The objective is the negative log posterior without the priors'
    constants. ``predict`` gives F, which ranks items and is no rating (D. Liang, L. Charlin, J. McInerney & D. Blei, *Modeling
    user exposure in recommendation*, WWW 2016; the normal density has its proper constant, sqrt(precision / 2 pi)).

    It takes no ``propensities``: those of logged cells say nothing here, as a click was seen for certain, and exposure of the
    others is what the model finds out itself.

    Parameters
    ----------
    n_factors
        Rank of V and W.
    l2
        Precision of the factors' prior, lambda_v = lambda_w of the paper; must be positive.
    threshold
        A rating of at least this is a click, and any other counts as none. Without one every cell of the log is a click.
    precision
        lambda_y of the paper: how closely clicks of exposed users follow v . w. Above 2 pi the density of y = 0 at v . w = 0 is
        above 1, so that the silence of those who do not care speaks for exposure; below, mu stays near an item's share of clicks.
    exposure
        mu_i of every item at the start, of a warm one too.
    prior
        a and b, each at least 1.
    max_iter, tol
        Stop after so many steps, or when one lowers the objective by no more than this share of it. The paper stops earlier, when
        a ranking metric on held-out clicks gets worse: choose ``max_iter`` by cross-validation for that, with ``tol=0``.
    dtype
        ``"float64"``, or ``"float32"`` for half the memory and more speed.
    n_threads
        One for each processor by default; the result never depends on it.
    random_state
        Seed of the start.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    exposure_ : mu_i, for each item the share of users who are exposed to it.
    objective_, history_, n_iter_, converged_ : the objective reached, at the start and after each step, the number of steps, and
        whether it was flat.
    """

    predicts_ratings = False
    exposure_: Vector

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1e-5,
        *,
        threshold: float | None = None,
        precision: float = 1.0,
        exposure: float = 0.01,
        prior: tuple[float, float] = (1.0, 1.0),
        max_iter: int = 100,
        tol: float = 1e-5,
        dtype: Dtype = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.l2 = l2
        self.threshold = threshold
        self.precision = precision
        self.exposure = exposure
        self.prior = prior
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _solver(self, log: Ratings, propensity: Vector | None, workers: Workers) -> ExposureSteps:
        if propensity is not None:
            raise UsageError(
                "ExposureFactorization takes no propensities: a click was seen for certain, and the exposure of other cells is "
                "part of what it fits. Leave them out, or use RelevanceFactorization, which divides clicks by them."
            )
        clicks = log.take(clicked_cells(log, self.threshold))
        ones = np.ones(len(clicks))
        by_user = SortedCells.of(
            clicks.user, clicks.item, ones, ones, shape=(log.n_users, log.n_items), dtype=self.dtype
        )
        by_item = SortedCells.of(
            clicks.item, clicks.user, ones, ones, shape=(log.n_items, log.n_users), dtype=self.dtype
        )
        return ExposureSteps(by_user, by_item, self.precision, self.l2, self.prior, workers)

    def _begin(self, log: Ratings, warm_start: Parameters | None) -> Exposed:
        return Exposed(super()._begin(log, warm_start), np.full(log.n_items, self.exposure))

    def _keep(self, log: Ratings, found: Exposed) -> None:
        super()._keep(log, found.parameters)
        self.exposure_ = found.exposure

    def _shapes(self) -> Shapes:
        return {**super()._shapes(), "exposure": (self.exposure_, (len(self.items_),))}

    def _check(self) -> None:
        super()._check()
        require_positive("l2", self.l2)
        require_positive("precision", self.precision)
        if not (is_finite_number(self.exposure) and 0 < self.exposure < 1):
            raise UsageError(f"exposure must lie between 0 and 1; got {self.exposure!r}.")
        if not (
            np.shape(self.prior) == (2,)
            and all(is_finite_number(each) and each >= 1 for each in self.prior)
        ):
            raise UsageError(
                f"prior must be the two numbers a and b, each at least 1; got {self.prior!r}."
            )
