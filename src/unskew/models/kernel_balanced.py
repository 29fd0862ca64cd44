"""Learning with propensities that balance kernel functions of users and items."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import weighted_mean
from unskew.errors import PropensityWarning
from unskew.factorization.balancing import (
    BalanceFeatures,
    KernelFunctions,
    balance_propensities,
    choose_functions,
    find_balance_ridge,
)
from unskew.factorization.penalty import Penalty
from unskew.factorization.solution import Report, Solution
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.correction import fit_correction
from unskew.models.cross_fitting import PART_TOLERANCE, LogParts, loosen
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import RatingFactorization
from unskew.models.imputation import choose_imputer, find_imputation_weight, fit_imputation
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import Preset
from unskew.settings import Instance, WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import BoolVector, Vector

N_CANDIDATES = 50
"""Cells of the log around which kernels are tried."""
MAX_CELLS = 20_000
"""Cells of the log on which kernels are chosen."""

_TRAITS = {"needs_propensities": True}


@RECOMMENDERS.declare(
    "kernel-balanced",
    label="Kernel balanced MF",
    summary="Matrix factorisation with propensities that balance kernels (Li et al. 2024).",
    traits=_TRAITS,
)
@dataclass(eq=False, repr=False)
class KernelBalancedFactorization(RatingFactorization):
    """A weighted or doubly robust factorisation with propensities P' that balance kernels.

        logit P' = logit P - m_0 - sum_s m_s K_s,
        sum over the log of K_s / P'  =  sum over all cells of K_s,   up to a small ridge of m

    K_s is a Gaussian kernel of the distance from a cell s, in the factors and offsets of F. Of 50
    random cells of the log those are taken whose kernels explain most of the squared errors of F
    (AKB-IPS), or of the errors of the imputed losses (AKB-DR): an imbalance there would bias the
    loss most. P' and F are fitted in turn. The kernels of a rating come from a fit without its part
    of the log, as in :class:`BalancedFactorization`. The ridge follows from the log: an imbalance
    that chance explains is not corrected. Balance can correct only what depends on users and
    items. Whether people rate what they like is still up to P.

    H. Li, C. Zheng, Y. Xiao, P. Wu, Z. Geng, X. Chen & P. Cui, *Debiased collaborative filtering
    with kernel-based causal balancing*, ICLR 2024, balance up to a slack instead of a ridge.

    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    imputes
        Whether F corrects an imputation by doubly robust learning (AKB-DR), or is fitted to the
        weighted ratings alone (AKB-IPS).
    imputer
        The imputation, as in :class:`DoublyRobustFactorization`.
    n_kernels
        How many kernels are balanced.
    n_rounds
        How often the propensities are balanced.

    Attributes
    ----------
    propensities_ : the P' of the last round, one for each rating.
    ridge_ : the ridge of m; infinite if the kernels are out of balance by chance alone. Then P'
        is P.
    imputed_ : the imputation, with ``imputes``.
    history_ : the objective of the last round. Its first entry is inf: users are solved first.
    """

    _: KW_ONLY
    imputes: bool = setting(False)
    imputer: MatrixFactorization | None = setting(
        None, Instance(MatrixFactorization, allow_none=True)
    )
    n_kernels: int = setting(10, WholeNumber(least=1))
    n_rounds: int = setting(1, WholeNumber(least=1))
    propensities_: Vector = field(init=False)
    ridge_: float = field(init=False)
    imputed_: Factors = field(init=False)

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        engine: str | object = "auto",
    ) -> Self:
        """Fit to a log and the propensities of its cells, from which the balanced ones start.

        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        self._check_settings()
        original = self._read_propensities(log, propensities, purpose="balance")
        with Workers(self.n_threads) as workers, single_blas_thread(), self._show_steps() as report:
            propensity = original
            solution, penalty = self._predict(log, propensity, None, workers, report)
            for _ in range(self.n_rounds):
                features = self._find_features(log, original, propensity, penalty, workers)
                self.ridge_ = find_balance_ridge(original, features)
                if np.isinf(self.ridge_):
                    break
                propensity = balance_propensities(original, features, ridge=self.ridge_)
                last = solution.parameters, penalty
                solution, penalty = self._predict(log, propensity, last, workers, report)
        self.propensities_ = propensity
        self._record_penalty(log, penalty)
        self._record_fit(log, solution, weighted_mean(log.rating, 1 / propensity))
        return self

    def _predict(
        self,
        log: Ratings,
        propensity: Vector,
        last: tuple[Factors | None, Penalty] | None,
        workers: Workers,
        report: Report | None,
    ) -> tuple[Solution[Factors], Penalty]:
        """F with these propensities; imputation and weighted factorisation go on from the last."""
        if self.imputes:
            start = None if last is None else self.imputed_
            self.imputed_ = self._impute(log, propensity, workers, start=start)
            fit = fit_correction(self, log, 1 / propensity, self.imputed_, workers, report)
            return fit.solution, fit.penalty
        model = MatrixFactorization._with_settings_of(self)
        if last is None:
            last = None, model._choose_penalty(log, 1 / propensity, workers=workers)
        start, penalty = last
        solution = model._solve(
            log, 1 / propensity, workers, initial_factors=start, penalty=penalty
        )
        return solution, penalty

    def _impute(
        self,
        log: Ratings,
        propensity: Vector,
        workers: Workers,
        *,
        least_tol: float = 0.0,
        start: Factors | None = None,
    ) -> Factors:
        return fit_imputation(
            choose_imputer(self.imputer, self.n_factors),
            log,
            find_imputation_weight(
                self.imputer, "dr-jl", log, propensity, random_state=self.random_state
            ),
            workers,
            dtype=self.dtype,
            random_state=self.random_state,
            least_tol=least_tol,
            initial_factors=start,
        )

    def _find_features(
        self,
        log: Ratings,
        original: Vector,
        propensity: Vector,
        penalty: Penalty,
        workers: Workers,
    ) -> BalanceFeatures:
        """The chosen kernels, of each rating those of a fit without its part of the log."""
        rng = np.random.default_rng(self.random_state)
        parts = LogParts.draw(log, self.random_state)
        centers = rng.choice(len(log), min(N_CANDIDATES, len(log)), replace=False)
        fits = [
            self._fit_part(log, propensity, parts.exclude(part), penalty, workers)
            for part in range(parts.n_parts)
        ]
        kernels = [
            KernelFunctions.around(fit.prediction, log.user[centers], log.item[centers])
            for fit in fits
        ]
        rows = np.arange(len(log))
        if rows.size > MAX_CELLS:
            rows = np.sort(rng.choice(len(log), MAX_CELLS, replace=False))
        sample = replace(parts, number=parts.number[rows])
        pieces = list(zip(fits, kernels, sample.split(log.take(rows)), strict=True))
        error = sample.join([fit.errors(piece) for fit, _, piece in pieces])
        columns = sample.join([each.evaluate(piece.user, piece.item) for _, each, piece in pieces])
        chosen = choose_functions(columns, error, 1 / original[rows], self.n_kernels)
        kernels_of_parts = iter(each.take(chosen) for each in kernels)
        return parts.balance_features(
            log, lambda _, part: BalanceFeatures.of_kernels(part, next(kernels_of_parts))
        )

    def _fit_part(
        self,
        log: Ratings,
        propensity: Vector,
        is_left: BoolVector,
        penalty: Penalty,
        workers: Workers,
    ) -> _PartFit:
        rest, share = log.take(is_left), float(is_left.mean())
        if not self.imputes:
            model = loosen(MatrixFactorization._with_settings_of(self))
            weight = 1 / (share * propensity[is_left])
            return _PartFit(model._solve(rest, weight, workers, penalty=penalty).parameters)
        imputed = self._impute(rest, share * propensity[is_left], workers, least_tol=PART_TOLERANCE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PropensityWarning)  # given for the whole log
            fit = fit_correction(
                loosen(self), rest, 1 / (share * propensity[is_left]), imputed, workers, None
            )
        return _PartFit(fit.factors, imputed)


@dataclass(frozen=True, slots=True, eq=False)
class _PartFit:
    """A fit that leaves a part of the log out."""

    prediction: Factors
    imputed: Factors | None = None

    def errors(self, log: Ratings) -> Vector:
        """The squared errors of F, or the errors of the imputed losses."""
        predicted = self.prediction.predict(log.user, log.item)
        error = np.square(log.rating - predicted)
        if self.imputed is not None:
            error = error - np.square(self.imputed.predict(log.user, log.item) - predicted)
        return error


AKBIPS = PRESETS.add(
    "akb-ips",
    Preset("AKBIPS", KernelBalancedFactorization, fixed={"imputes": False}),
    label="AKB-IPS",
    summary="Weighted factorisation with propensities that balance kernels.",
    traits=_TRAITS,
)
AKBDR = PRESETS.add(
    "akb-dr",
    Preset("AKBDR", KernelBalancedFactorization, fixed={"imputes": True}),
    label="AKB-DR",
    summary="Doubly robust learning with propensities that balance kernels.",
    traits=_TRAITS,
)
