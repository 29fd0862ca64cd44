"""Weighted factorisation whose propensities are balanced anew after every round."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, Self

from unskew.data.checks import whole_number
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.errors import UsageError
from unskew.factorization.balancing import Features, balanced
from unskew.factorization.objective import Offsets
from unskew.factorization.parameters import Parameters, require_parameters
from unskew.factorization.solution import Iterative
from unskew.factorization.weights import weighted_mean
from unskew.models.factored import FactorRecommender
from unskew.models.imputation import Weighting, chosen_imputer, imputation_weight, require_weighting
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.progress import progress_line
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector


class BalancedFactorization(FactorRecommender, Iterative):
    """F by weights 1 / P', then P' by F, for some rounds; a subclass says what P' balances.

    After the fit ``propensities_`` hold the P' that F was fitted with, and ``history_`` the objective of the last round, which is
    inf first: users are solved before anything is known of it.
    """

    propensities_: Vector

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1.0,
        *,
        offsets: Offsets = "regularized",
        n_rounds: int = 3,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Literal["float64", "float32"] = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.l2 = l2
        self.offsets = offsets
        self.n_rounds = n_rounds
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        warm_start: Parameters | None = None,
    ) -> Self:
        """Fit to a log and the propensities of its cells, which are where the balanced ones start.

        ``warm_start`` begins at the parameters of another fit on the same users and items.
        """
        require_log(log)
        require_parameters(warm_start, (log.n_users, log.n_items, self.n_factors))
        self._check()
        if propensities is None:
            raise UsageError(
                f"{type(self).__name__} needs propensities to balance: pass fit(log, propensities)."
            )
        given = as_propensities(log, propensities).values
        model = MatrixFactorization(
            self.n_factors, self.l2, offsets=self.offsets, max_iter=self.max_iter, tol=self.tol, dtype=self.dtype,
            random_state=self.random_state,
        )  # fmt: skip
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as line,
        ):
            self._prepare(log, given, workers)
            propensity, outcome = given, model.solve(log, 1 / given, workers, warm_start=warm_start)
            for number in range(self.n_rounds):
                line(f"round {number + 1}, objective {outcome.history[-1]:.6g}")
                propensity = balanced(given, self._features(log, outcome.parameters))
                outcome = model.solve(log, 1 / propensity, workers, warm_start=outcome.parameters)
        self._tell(outcome)
        found, self.propensities_ = outcome.parameters, propensity
        self._remember(
            log,
            found,
            weighted_mean(log.rating, propensity) if self.offsets == "none" else found.constant,
        )
        return self

    def _check(self) -> None:
        whole_number("n_rounds", self.n_rounds, least=1)

    def _prepare(self, log: Ratings, propensity: Vector, workers: Workers) -> None:
        """What a subclass needs before the first round."""

    @abstractmethod
    def _features(self, log: Ratings, prediction: Parameters) -> Features:
        """What P' balances, given F."""


class IPSV2(BalancedFactorization):
    """IPS-V2: weighted factorisation with propensities that balance its own predictions.

        min  sum_O (Y - F)^2 / P'  +  l2_eff (||V||^2 + ...),      sum_O F / P' = sum over all cells of F

    with logit P' = logit P - m0 - m1 F, F being that of the round before. IPS with P' has no error for losses linear in F,
    whatever P was (H. Li, Y. Xiao, C. Zheng, P. Wu & P. Cui, *Propensity matters: towards measuring and enhancing balancing for
    recommendation*, ICML 2023; there the difference is a penalty of the propensity model, here it is 0). Settings are those of
    :class:`MatrixFactorization`; ``n_rounds`` counts how often the propensities are balanced.
    """

    def _features(self, log: Ratings, prediction: Parameters) -> Features:
        return Features.of_predictions(log, prediction)


class StableDR(BalancedFactorization):
    """StableDR: self-normalised, with propensities that balance the imputed losses l = (G - F)^2.

        min  U I sum_O (Y - F)^2 / P'  /  sum_O 1 / P'  +  l2_eff (||V||^2 + ...),      sum_O (l - mean of all l) / P' = 0

    with logit P' = logit P - m0 - m1 l at the F of the round before; sum_O 1 / P' = U I, too, so that SNIPS and IPS are one. If
    the imputed losses are right the estimate of the risk has no error, whatever P was; if P is right it is consistent; and it
    never leaves the range of the losses (H. Li, C. Zheng & P. Wu, *StableDR: stabilized doubly robust learning for
    recommendation on data missing not at random*, ICLR 2023; there the condition is a penalty, here it holds exactly).

    ``imputer`` and ``weighting`` say what G is, as in :class:`DoublyRobustFactorization`; the other settings are those of
    :class:`MatrixFactorization`, and ``n_rounds`` counts how often the propensities are balanced.
    """

    imputed_: Parameters

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1.0,
        *,
        offsets: Offsets = "regularized",
        imputer: MatrixFactorization | None = None,
        weighting: Weighting = "dr-jl",
        n_rounds: int = 3,
        max_iter: int = 500,
        tol: float = 1e-6,
        dtype: Literal["float64", "float32"] = "float64",
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            n_factors,
            l2,
            offsets=offsets,
            n_rounds=n_rounds,
            max_iter=max_iter,
            tol=tol,
            dtype=dtype,
            n_threads=n_threads,
            random_state=random_state,
            verbose=verbose,
        )
        self.imputer = imputer
        self.weighting = weighting

    def _check(self) -> None:
        super()._check()
        require_weighting(self.weighting)

    def _prepare(self, log: Ratings, propensity: Vector, workers: Workers) -> None:
        imputer = chosen_imputer(self.imputer, dtype=self.dtype, random_state=self.random_state)
        self.imputed_ = imputer.solve(
            log, imputation_weight(self.weighting, propensity, log.n_cells), workers
        ).parameters

    def _features(self, log: Ratings, prediction: Parameters) -> Features:
        return Features.of_errors(log, prediction, self.imputed_)
