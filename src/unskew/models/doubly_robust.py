"""Doubly robust learning: a model of the ratings, corrected by the log where it has them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from unskew.data.binarize import binarize
from unskew.data.checks import whole_number
from unskew.data.propensities import Propensities, PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.estimators.transforms import WeightTransform
from unskew.estimators.weights import inverse_weights
from unskew.factorization.absolute_differences import AbsoluteDifferences
from unskew.factorization.balancing import Features, balanced
from unskew.factorization.majorize import Touching
from unskew.factorization.objective import Offsets
from unskew.factorization.parameters import Parameters, require_parameters
from unskew.factorization.pseudo_outcome import PseudoOutcome, lines_of, sum_of_products
from unskew.factorization.shared_gram import SharedGram
from unskew.factorization.solution import (
    Checkpoint,
    Iterative,
    Solution,
    load_state,
    run,
    save_state,
)
from unskew.factorization.weights import effective_l2, weighted_mean
from unskew.models.factored import FactorRecommender
from unskew.models.imputation import (
    Weighting,
    chosen_imputer,
    error_doubt,
    imputation_weight,
    require_weighting,
    values_on,
)
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.targeting import targeted_weight
from unskew.progress import progress_line
from unskew.threads import Workers, single_blas_thread
from unskew.types import Vector

Report: TypeAlias = Callable[[int, float], None]
TOO_FAR = 10
"""A pseudo-outcome so many times the range of the ratings says that a large weight met a poor imputation."""


class DoublyRobustFactorization(FactorRecommender, Iterative):
    """F_ui = v_u . w_i + a_u + b_i + c with the least doubly robust estimate of its risk over all cells.

        min  sum over all cells of  loss(G, F)  +  sum over the log of  h (loss(Y, F) - loss(G, F))  +  l2_eff (||V||^2 + ...)

    G is an imputation of the ratings, itself a factorisation fitted to the log with weights a(P); h is 1 / P. The sum is U I
    times the ``dr`` estimate that :func:`unskew.evaluate` gives with G as its imputation: right on average if the propensities
    are, whatever G is, and right if G is, whatever the propensities are. For squared loss it is, but for a constant,

        sum over all cells of  (F - T)^2,      T = G + h (Y - G) on the log,  T = G elsewhere,

    a plain factorisation of a matrix that is of low rank but for the log, at O(n d + (U + I) d^2) a sweep: less than weighted
    factorisation, and no users x items array. Imputation and prediction alternate: X. Wang, R. Zhang, Y. Sun & J. Qi, *Doubly
    robust joint learning for recommendation on data missing not at random*, ICML 2019.

    Absolute loss has no such form. There the sum over all cells is taken over all of them where they are at most a million, else
    over a random sample of that many (or of as many as the log has, if more), drawn once from ``random_state``.

    Parameters
    ----------
    n_factors
        Rank of V and W.
    l2
        Strength of the penalty, on the scale of :class:`MatrixFactorization`.
    offsets
        ``"regularized"`` penalises a, b and c like the factors; ``"free"`` leaves them alone; ``"none"`` has none.
    imputation
        ``"label"`` fits G to the ratings. ``"error"`` fits it to the errors of F, a(P) ((Y - F)^2 - (G - F)^2)^2, as published.
    imputer
        The factorisation that G is, not fitted; by default of 5 factors, l2 = 1, without offsets. Its number type, threads and
        seed are those of the model.
    weighting
        a(P): ``"dr-jl"`` 1/P; ``"mrdr"`` (1-P)/P^2, for the least variance (Guo et al. 2021); ``"dr-bias"`` (1-P)^2/P^3, for the
        least squared bias, and ``"dr-mse"`` half of each (Dai et al. 2022). ``"eib"`` has a = h = 1 and reads no propensities:
        error imputation (Steck 2010), which is right only if G is.
    targeted
        Shift imputed losses by e (h - 1), with the e for which doubly robust and error imputation agree (TDR, Li et al. 2023).
        Needs the propensities of all cells, as a users x items matrix.
    is_balanced
        Adjust propensities so that sum F / P over the log is the sum of F over all cells, for the predictions F of the round
        before (as DR-V2, Li et al. 2023).
    weight_transform
        h in place of 1 / P: ``unskew.Clip(30)``, ``unskew.Dynamic()``, ...
    threshold
        Fit 1 to ratings of at least this (clicks) and 0 to others; by default ratings are fitted as they are.
    loss
        ``"squared"`` for MSE, ``"absolute"`` for MAE.
    n_rounds
        Rounds of imputation and prediction. With ``"label"`` and propensities as given nothing changes after the first, and no
        more are made.
    max_iter, tol
        The prediction of a round stops after so many steps, or when one lowers the objective by no more than this share of it.
    dtype, n_threads, random_state, verbose
        As in :class:`MatrixFactorization`.

    Attributes
    ----------
    parameters_, imputed_ : F and G.
    risk_ : the doubly robust estimate of the mean loss over all cells, on the log that F was fitted to: too low for new ratings.
    objective_, history_, n_iter_, converged_ : of the last prediction; the objective is U I ``risk_`` and the penalty. With
        squared loss users are solved first, so that the start has none: ``history_[0]`` is inf.
    """

    imputed_: Parameters
    risk_: float
    NOT_IN_FINGERPRINT: ClassVar = frozenset({"n_threads", "verbose"})
    """A round goes on from where the one before stopped, so that ``max_iter`` and ``tol`` change its steps."""

    def __init__(
        self,
        n_factors: int = 20,
        l2: float = 1.0,
        *,
        offsets: Offsets = "regularized",
        imputation: Literal["label", "error"] = "label",
        imputer: MatrixFactorization | None = None,
        weighting: Weighting = "mrdr",
        targeted: bool = False,
        is_balanced: bool = False,
        weight_transform: WeightTransform | None = None,
        threshold: float | None = None,
        loss: Literal["squared", "absolute"] = "squared",
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
        self.imputation = imputation
        self.imputer = imputer
        self.weighting = weighting
        self.targeted = targeted
        self.is_balanced = is_balanced
        self.weight_transform = weight_transform
        self.threshold = threshold
        self.loss = loss
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
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
    ) -> Self:
        """Fit to a log and the propensities of its cells, without which there is nothing to be doubly robust by.

        ``warm_start`` begins the predictions at the parameters of another fit on the same users and items. With ``checkpoint``
        each finished round is written there, and every so many steps of a prediction the state of it to a file beside it, which
        goes when the round ends. A run of the same settings that finds its own files goes on from them, to the same result bit
        for bit.
        """
        require_log(log)
        require_parameters(warm_start, (log.n_users, log.n_items, self.n_factors))
        self._check()
        wanted = binarize(log, self.threshold)
        task = _Task(wanted, self._propensity(wanted, propensities), propensities, warm_start)
        saved = self._saved(task, checkpoint, checkpoint_every)
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as line,
        ):

            def report(step: int, value: float) -> None:
                line(f"step {step}, objective {value:.6g}")

            last = None if saved is None else _restored(saved)
            while last is None or last.number < self._rounds_needed:
                last = self._round(task, last, workers, report, saved)
                _keep(last, saved)
        self._tell(last.outcome)
        found = last.outcome.parameters
        l2 = self._effective_l2(wanted)
        self.imputed_ = last.imputed
        self.risk_ = (
            self.objective_ - l2 * found.penalty(with_offsets=self.offsets == "regularized")
        ) / wanted.n_cells
        self._remember(
            log, found, last.mean_outcome(wanted) if self.offsets == "none" else found.constant
        )
        return self

    @property
    def _rounds_needed(self) -> int:
        return self.n_rounds if self.imputation == "error" or self.is_balanced else 1

    @property
    def _reads_propensities(self) -> bool:
        return self.weighting != "eib"

    def _check(self) -> None:
        self._prediction()._check()
        whole_number("n_rounds", self.n_rounds, least=1)
        require_weighting(self.weighting)
        if self.imputation not in ("label", "error"):
            raise UnknownNameError("imputation", self.imputation, ("label", "error"))
        if self.loss not in LOSSES:
            raise UnknownNameError("loss", self.loss, LOSSES)
        changed = {
            "targeted": self.targeted,
            "is_balanced": self.is_balanced,
            "weight_transform": self.weight_transform is not None,
        }
        asked = [name for name, is_set in changed.items() if is_set]
        if asked and not self._reads_propensities:
            raise UsageError(
                f"{asked[0]} changes what is made of propensities, and weighting='eib' reads none. Leave one out."
            )
        if self.targeted and self.is_balanced:
            raise UsageError(
                "targeted and is_balanced adjust the same propensities in two ways: choose one."
            )

    def _prediction(self) -> MatrixFactorization:
        """The same settings as a weighted factorisation, which knows how to check them and where to start."""
        return MatrixFactorization(
            self.n_factors, self.l2, offsets=self.offsets, max_iter=self.max_iter, tol=self.tol, dtype=self.dtype,
            random_state=self.random_state,
        )  # fmt: skip

    def _effective_l2(self, log: Ratings) -> float:
        return effective_l2(
            self.l2, log, n_factors=self.n_factors, penalizes_offsets=self.offsets == "regularized"
        )

    def _propensity(self, log: Ratings, propensities: PropensitiesLike | None) -> Vector:
        if not self._reads_propensities:
            return np.ones(len(log))
        if propensities is None:
            raise UsageError(
                f"{type(self).__name__} needs propensities: pass fit(log, propensities). Where ratings were seen at random, "
                "unskew.UniformPropensity() says so; weighting='eib' does without."
            )
        return as_propensities(log, propensities).values

    def _saved(self, task: _Task, path: str | Path | None, every: int) -> Checkpoint | None:
        """Named by the weights, too, as ``targeted`` makes them of cells that are not in the log."""
        if path is None:
            return None
        log = task.log
        named = log.user, log.item, log.rating, task.propensity, self._weight(task, task.propensity)
        return self._checkpoint(
            path, every, *named, sizes=(log.n_users, log.n_items), begin=task.warm_start
        )

    def _round(
        self,
        task: _Task,
        last: _Round | None,
        workers: Workers,
        report: Report,
        saved: Checkpoint | None = None,
    ) -> _Round:
        """Propensities, imputation, prediction."""
        number = 1 if last is None else last.number + 1
        log, propensity = task.log, task.propensity
        if last is not None and self.is_balanced:
            propensity = balanced(propensity, Features.of_predictions(log, last.outcome.parameters))
        doubt = self._doubt(log, last)
        weight = imputation_weight(self.weighting, propensity, log.n_cells, doubt)
        imputer = chosen_imputer(self.imputer, dtype=self.dtype, random_state=self.random_state)
        imputed = imputer.solve(
            log, weight, workers, warm_start=None if last is None else last.imputed
        ).parameters
        guess, weight = values_on(imputed, log), self._weight(task, propensity)
        begin = task.warm_start if last is None else last.outcome.parameters
        begin = begin or self._prediction()._begin(log, weighted_mean(log.rating, propensity))
        steps = None if saved is None else saved.part(f"round-{number}")
        given = _Given(self, log, weight, imputed, guess, begin, workers, steps)
        return _Round(number, imputed, guess, weight, LOSSES[self.loss](given, report))

    def _doubt(self, log: Ratings, last: _Round | None) -> Vector | float:
        if last is None or self.imputation == "label":
            return 1.0
        return error_doubt(log.rating, last.guess, values_on(last.outcome.parameters, log))

    def _weight(self, task: _Task, propensity: Vector) -> Vector:
        """The weights h of the correction."""
        if not self._reads_propensities:
            return np.ones(len(task.log))
        weight = inverse_weights(
            task.log, Propensities(propensity), transform=self.weight_transform
        )
        return (
            targeted_weight(weight, task.propensities, task.log, self.weight_transform)
            if self.targeted
            else weight
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What a fit was given."""

    log: Ratings
    propensity: Vector
    propensities: Any
    warm_start: Parameters | None


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    """One imputation and the prediction made with it."""

    number: int
    """From 1."""
    imputed: Parameters
    guess: Vector
    """The imputation on the log."""
    weight: Vector
    outcome: Solution[Parameters]

    def mean_outcome(self, log: Ratings) -> float:
        """The mean of T over all cells: the doubly robust estimate of the mean rating."""
        ones = np.ones((log.n_users, 1)), np.ones((log.n_items, 1))
        total = sum_of_products(*lines_of(self.imputed), *ones) + float(
            self.weight @ (log.rating - self.guess)
        )
        return total / log.n_cells


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """A round as a checkpoint has it: arrays and numbers."""

    number: int
    imputed: Parameters
    guess: Vector
    weight: Vector
    parameters: Parameters
    has_converged: bool


def _keep(last: _Round, saved: Checkpoint | None) -> None:
    """Write a finished round, after which the steps of its prediction are not needed."""
    if saved is None:
        return
    kept = _Kept(
        last.number,
        last.imputed,
        last.guess,
        last.weight,
        last.outcome.parameters,
        last.outcome.has_converged,
    )
    save_state(saved, kept, last.outcome.history)
    saved.part(f"round-{last.number}").drop()


def _restored(saved: Checkpoint) -> _Round | None:
    """The last round that was written, if any."""
    if not saved.path.exists():
        return None
    kept, history = load_state(saved, _Kept)
    saved.part(f"round-{kept.number}").drop()
    return _Round(
        kept.number,
        kept.imputed,
        kept.guess,
        kept.weight,
        Solution(kept.parameters, history, kept.has_converged),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Given:
    """What a prediction is fitted to."""

    settings: DoublyRobustFactorization
    log: Ratings
    weight: Vector
    imputed: Parameters
    guess: Vector
    begin: Parameters
    workers: Workers
    steps: Checkpoint | None
    """Where the state of the prediction is kept."""


def pseudo_outcome(
    log: Ratings, weight: Vector, guess: Vector, imputed: Parameters, *, dtype: str = "float64"
) -> tuple[PseudoOutcome, float]:
    """T, and what is to be added to sum_D (F - T)^2 to make it U I times the doubly robust risk: sum_O h (1 - h) (Y - G)^2."""
    residual = log.rating - guess
    target = PseudoOutcome.of(log, weight * residual, imputed=imputed, dtype=dtype)
    return target, float((weight * (1 - weight)) @ np.square(residual))


def _squared(given: _Given, report: Report) -> Solution[Parameters]:
    model, log = given.settings, given.log
    _warn_of_far(log, given.guess + given.weight * (log.rating - given.guess))
    target, fixed = pseudo_outcome(log, given.weight, given.guess, given.imputed, dtype=model.dtype)
    solver = SharedGram(
        target, model.n_factors, model.offsets, model._effective_l2(log), given.workers
    )
    outcome = run(
        solver,
        lambda: given.begin,
        max_iter=model.max_iter,
        tol=model.tol,
        checkpoint=given.steps,
        report=report,
    )
    return Solution(
        outcome.parameters, tuple(value + fixed for value in outcome.history), outcome.has_converged
    )


def _absolute(given: _Given, report: Report) -> Solution[Parameters]:
    model, log = given.settings, given.log
    loss = AbsoluteDifferences.of(
        log, given.weight, given.guess, given.imputed, random_state=model.random_state
    )
    solver = Touching(
        loss, model.n_factors, model.offsets, model._effective_l2(log), model.dtype, given.workers
    )
    return run(
        solver,
        lambda: given.begin,
        max_iter=model.max_iter,
        tol=model.tol,
        checkpoint=given.steps,
        report=report,
    )


LOSSES: Mapping[str, Callable[[_Given, Report], Solution[Parameters]]] = {
    "squared": _squared,
    "absolute": _absolute,
}


def _warn_of_far(log: Ratings, outcome: Vector) -> None:
    spread, furthest = float(np.ptp(log.rating)), float(np.abs(outcome).max())
    if furthest > TOO_FAR * spread > 0:
        warnings.warn(
            f"pseudo-outcomes reach {furthest:.3g}, more than {TOO_FAR} times the ratings' range of {spread:g}: large weights "
            "meet poor imputations. Limit them with weight_transform=unskew.Clip(...), or choose another imputer.",
            PropensityWarning,
            stacklevel=5,  # the line that called fit
        )
