"""Weighted factorisation whose propensities are balanced again after every round."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import weighted_mean
from unskew.factorization.balancing import BalanceFeatures, balance_propensities
from unskew.factorization.checkpoints import Checkpoint, load_state, save_state
from unskew.factorization.initialization import check_initial_factors
from unskew.factorization.penalty import Penalty
from unskew.factorization.solution import Solution, StopReason
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.correction import zero_factors
from unskew.models.cross_fitting import PART_TOLERANCE, LogParts, loosen
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import RatingFactorization
from unskew.models.imputation import (
    WEIGHTINGS,
    Weighting,
    choose_imputer,
    find_imputation_weight,
    fit_imputation,
)
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import Preset
from unskew.progress import progress_line
from unskew.settings import Instance, OneOf, WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import BoolVector, Vector

_TRAITS = {"needs_propensities": True}


@RECOMMENDERS.declare(
    "balanced",
    label="Balanced MF",
    summary="Matrix factorisation with propensities that balance the log (Li et al. 2023).",
    traits=_TRAITS,
)
@dataclass(eq=False, repr=False)
class BalancedFactorization(RatingFactorization):
    """F_ui = v_u . w_i + a_u + b_i + c, weighted by inverse balanced propensities 1 / P'.

        min  sum over the log of (Y - F)^2 / P'  +  ridge (||V||^2 + ...)
        logit P' = logit P - m0 - m1 phi,     sum over the log of phi / P' = sum over all cells

    phi follows from the F of the previous round, of each rating from a fit without its quarter of
    the log (its half, if the log is long): an F that has seen the rating would balance its own
    over-fitting. The sum of 1 / P' is U I, so IPS equals SNIPS.

    * With ``balances="predictions"`` phi = F (IPS-V2). IPS with P' has no error for losses that
      are linear in F, whatever P was (H. Li, Y. Xiao, C. Zheng, P. Wu & P. Cui, *Propensity
      matters: towards measuring and enhancing balancing for recommendation*, ICML 2023).
    * With ``balances="imputed_losses"`` phi = (G - F)^2 (StableDR), where G is an imputation of
      the ratings. If the imputed losses are right, the estimate of the risk has no error, whatever
      P was. If P is right, it is consistent. It never leaves the range of the losses (H. Li,
      C. Zheng & P. Wu, *StableDR: stabilized doubly robust learning for recommendation on data
      missing not at random*, ICLR 2023).

    In both papers the difference of the sums is a penalty; here it is zero.
    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    balances
        What P' balances: ``"predictions"`` or ``"imputed_losses"``.
    imputer, weighting
        The imputation G, as in :class:`DoublyRobustFactorization`. Balanced predictions need none.
    n_rounds
        How often the propensities are balanced.

    Attributes
    ----------
    propensities_ : the P' of the last round, one for each rating.
    imputed_ : G, with ``balances="imputed_losses"``.
    history_ : the objective of the last round. Its first entry is inf: users are solved first.
    """

    _NOT_IN_FINGERPRINT: ClassVar = frozenset({"n_threads", "verbose"})
    """``max_iter`` and ``tol`` change the steps: a round continues where the last one stopped."""

    _: KW_ONLY
    balances: Literal["predictions", "imputed_losses"] = setting(
        "predictions", OneOf(("predictions", "imputed_losses"))
    )
    imputer: MatrixFactorization | None = setting(
        None, Instance(MatrixFactorization, allow_none=True)
    )
    weighting: Weighting = setting("dr-jl", OneOf(tuple(WEIGHTINGS)))
    n_rounds: int = setting(1, WholeNumber(least=1))
    propensities_: Vector = field(init=False)
    imputed_: Factors = field(init=False)

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        initial_factors: Factors | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        engine: str | object = "auto",
    ) -> Self:
        """Fit to a log and the propensities of its cells, from which the balanced ones start.

        ``initial_factors`` starts at the ``factors_`` of another fit on the same users and items.
        ``checkpoint`` and ``checkpoint_every`` are those of :class:`DoublyRobustFactorization`.
        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        check_initial_factors(initial_factors, (log.n_users, log.n_items, self.n_factors))
        self._check_settings()
        original = self._read_propensities(log, propensities, purpose="balance")
        saved = self._make_checkpoint(
            checkpoint,
            checkpoint_every,
            *(log.user, log.item, log.rating, original),
            shape=(log.n_users, log.n_items),
            start=initial_factors,
        )
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as show,
        ):
            last, history = self._load_round(saved, log)
            while last is None or last.number < self.n_rounds:
                if last is not None:
                    show(f"round {last.number + 1}, objective {history[-1]:.6g}")
                last, history = self._run_round(
                    log, original, last, workers, initial_factors, saved
                )
                if saved is not None:
                    save_state(saved, last, history)
                    saved.part(f"round-{last.number}").drop()
        if self.balances == "imputed_losses":
            self.imputed_ = last.imputed
        self.propensities_ = last.propensity
        self._record_penalty(log, last.penalty)
        solution = Solution(last.factors, history, last.stop_reason)
        self._record_fit(log, solution, weighted_mean(log.rating, 1 / last.propensity))
        return self

    def _load_round(
        self, saved: Checkpoint | None, log: Ratings
    ) -> tuple[_BalancedRound | None, tuple[float, ...]]:
        """The last round that was written and its objectives; None if there is none."""
        if saved is None or not saved.path.exists():
            return None, ()
        sides = np.zeros((log.n_users, self.n_factors)), np.zeros((log.n_items, self.n_factors))
        factors, cells = Factors(*sides).astype(self.dtype), np.zeros(len(log))
        start = _BalancedRound(0, cells, zero_factors(log), factors, Penalty(0.0), "max_iter")
        last, history = load_state(saved, start, of_any_precision="imputed")
        saved.part(f"round-{last.number}").drop()
        return last, history

    def _run_round(
        self,
        log: Ratings,
        original: Vector,
        last: _BalancedRound | None,
        workers: Workers,
        initial_factors: Factors | None,
        saved: Checkpoint | None,
    ) -> tuple[_BalancedRound, tuple[float, ...]]:
        """Balance the propensities, and fit with them; without a last round, only fit.

        Returns the round, and the objective after each step of the fit.
        """
        model, propensity = MatrixFactorization._with_settings_of(self), original
        if last is None:
            number, start, imputed = 0, initial_factors, zero_factors(log)
            if self.balances == "imputed_losses":
                imputed = self._impute(log, original, workers)
            penalty = model._choose_penalty(log, 1 / original, workers=workers)
        else:
            number, start, imputed = last.number + 1, last.factors, last.imputed
            penalty = last.penalty
            propensity = balance_propensities(
                original, self._features(log, original, last, workers)
            )
        solution = model._solve(
            log,
            1 / propensity,
            workers,
            initial_factors=start,
            penalty=penalty,
            checkpoint=None if saved is None else saved.part(f"round-{number}"),
        )
        finished = _BalancedRound(
            *(number, propensity, imputed, solution.parameters, penalty, solution.stop_reason)
        )
        return finished, solution.history

    def _impute(
        self, log: Ratings, propensity: Vector, workers: Workers, least_tol: float = 0.0
    ) -> Factors:
        return fit_imputation(
            choose_imputer(self.imputer, self.n_factors),
            log,
            find_imputation_weight(
                self.imputer, self.weighting, log, propensity, random_state=self.random_state
            ),
            workers,
            dtype=self.dtype,
            random_state=self.random_state,
            least_tol=least_tol,
        )

    def _features(
        self, log: Ratings, original: Vector, last: _BalancedRound, workers: Workers
    ) -> BalanceFeatures:
        """phi of F and G with the settings of the last round, fitted without the rating's part."""
        model = loosen(MatrixFactorization._with_settings_of(self))

        def of_fit(is_left: BoolVector, part: Ratings) -> BalanceFeatures:
            rest, share = log.take(is_left), float(is_left.mean())
            weight = 1 / (share * last.propensity[is_left])
            prediction = model._solve(rest, weight, workers, penalty=last.penalty).parameters
            if self.balances == "predictions":
                return BalanceFeatures.of_predictions(part, prediction)
            imputed = self._impute(rest, share * original[is_left], workers, PART_TOLERANCE)
            return BalanceFeatures.of_imputed_losses(part, prediction, imputed)

        return LogParts.draw(log, self.random_state).balance_features(log, of_fit)


@dataclass(frozen=True, slots=True, eq=False)
class _BalancedRound:
    """One fit, and what it was fitted with."""

    number: int
    """0 is the fit with the original propensities."""
    propensity: Vector
    imputed: Factors
    """G; without factors if predictions are balanced."""
    factors: Factors
    penalty: Penalty
    stop_reason: StopReason


IPSV2 = PRESETS.add(
    "ips-v2",
    Preset(
        "IPSV2",
        BalancedFactorization,
        fixed={"balances": "predictions", "imputer": None, "weighting": "dr-jl"},
    ),
    label="IPS-V2",
    summary="Weighted factorisation with propensities that balance its predictions.",
    traits=_TRAITS,
)
StableDR = PRESETS.add(
    "stable-dr",
    Preset("StableDR", BalancedFactorization, fixed={"balances": "imputed_losses"}),
    label="StableDR",
    summary="Weighted factorisation with propensities that balance imputed losses.",
    traits=_TRAITS,
)
