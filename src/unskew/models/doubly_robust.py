"""Doubly robust learning: a model of the ratings, corrected by the log."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from unskew.data.binarize import binarize
from unskew.data.factors import Factors
from unskew.data.propensities import (
    Propensities,
    PropensitiesLike,
    PropensityPredictor,
    as_propensities,
)
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import WeightTransform, inverse_weights
from unskew.errors import BadPropensityError, PropensityWarning, UsageError
from unskew.factorization.balancing import BalanceFeatures, balance_propensities
from unskew.factorization.checkpoints import Checkpoint, load_state, save_state
from unskew.factorization.initialization import check_initial_factors
from unskew.factorization.majorize import DoublyRobustAbsoluteLoss, MajorizeMinimize
from unskew.factorization.objective import Offsets
from unskew.factorization.pseudo_outcome import (
    PseudoOutcome,
    PseudoOutcomeSolver,
    sum_of_products,
)
from unskew.factorization.solution import FitOptions, Solution, Solver, StopReason, minimize
from unskew.factorization.weights import scaled_ridge, weighted_mean
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import FactorRecommender, Preset
from unskew.progress import progress_line
from unskew.settings import Number, OneOf, WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import RandomState, Vector

Report: TypeAlias = Callable[[int, float], None]
Weighting: TypeAlias = Literal["eib", "dr-jl", "mrdr", "dr-bias", "dr-mse"]
BIAS_SHARE = 0.5
"""The share of squared bias in DR-MSE; the rest is variance."""
CLIP_QUANTILE = 0.99
"""Larger weights of an imputation are lowered to this quantile, so that no few ratings decide."""
MAX_RANGES = 10
"""Pseudo-outcomes of more than this many rating ranges cause a warning."""
BLOCK_ROWS = 256


def _variance(propensity: Vector) -> Vector:
    """(1 - P) / P^2."""
    return (1 - propensity) / propensity**2


def _squared_bias(propensity: Vector) -> Vector:
    """(1 - P)^2 / P^3."""
    return (1 - propensity) ** 2 / propensity**3


WEIGHTINGS: Mapping[str, Callable[[Vector], Vector]] = {
    "eib": np.ones_like,
    "dr-jl": lambda propensity: 1 / propensity,
    "mrdr": _variance,
    "dr-bias": _squared_bias,
    "dr-mse": lambda propensity: (
        BIAS_SHARE * _squared_bias(propensity) + (1 - BIAS_SHARE) * _variance(propensity)
    ),
}
"""a(P), the weight of a rating when the imputation G is fitted.

A doubly robust estimate has the bias (1 - P / P-hat) (Y - G) in a cell, and its variance is
(1 - P) / P times the square of Y - G. The weights make one or the other small. Estimating them
from the log adds a factor of 1 / P. Equal weights: Steck 2010; DR-JL: Wang et al. 2019;
MRDR: Guo et al. 2021; DR-BIAS and DR-MSE: Dai et al. 2022.
"""


class _DoublyRobustAttributes:
    """The attributes that a fit of :class:`DoublyRobustFactorization` adds."""

    imputed_: Factors
    risk_: float


@RECOMMENDERS.declare(
    "doubly-robust",
    label="DR",
    summary="Doubly robust learning: an imputation of all cells, corrected by the log.",
    traits={"reads_propensities": True, "needs_propensities": True},
)
@dataclass(eq=False, repr=False)
class DoublyRobustFactorization(FitOptions, FactorRecommender, _DoublyRobustAttributes):
    """F_ui = v_u . w_i + a_u + b_i + c that minimises the doubly robust estimate of its risk.

        min  sum over all cells of  loss(G, F)
             +  sum over the log of  h (loss(Y, F) - loss(G, F))  +  ridge (||V||^2 + ...)

    G is an imputation of the ratings: a factorisation fitted to the log with weights a(P). h is
    1 / P. The sum is U I times the ``dr`` estimate that :func:`unskew.evaluate` gives with G as
    its imputation. It is unbiased if the propensities are right, whatever G is, and it is right if
    G is, whatever the propensities are. For squared loss it equals, up to a constant,

        sum over all cells of  (F - T)^2,     T = G + h (Y - G) on the log,  T = G elsewhere,

    a plain factorisation of a matrix that has low rank except on the log. A sweep costs
    O(n d + (U + I) d^2), less than weighted factorisation. Imputation and prediction alternate:
    X. Wang, R. Zhang, Y. Sun & J. Qi, *Doubly robust joint learning for recommendation on data
    missing not at random*, ICML 2019.

    Absolute loss has no such form. There the sum over all cells runs over all of them if there are
    at most a million, else over a random sample of a million (or of as many as the log has).

    The other settings are those of :class:`MatrixFactorization`; ``max_iter`` and ``tol`` apply to
    the prediction of each round.

    Parameters
    ----------
    n_factors
        The number of columns of V and W.
    l2
        Strength of the penalty, on the scale of :class:`MatrixFactorization`.
    offsets
        ``"regularized"`` penalises a, b and c like the factors, ``"free"`` does not penalise them,
        ``"none"`` leaves them out.
    imputation
        ``"label"`` fits G to the ratings. ``"error"`` fits it to the errors of F, with the
        objective a(P) ((Y - F)^2 - (G - F)^2)^2, as published.
    imputer
        The factorisation G, not fitted; by default 5 factors with l2 = 1 and no offsets. Its
        dtype, threads and seed are those of this model.
    weighting
        a(P): ``"dr-jl"`` 1/P; ``"mrdr"`` (1-P)/P^2 for the smallest variance (Guo et al. 2021);
        ``"dr-bias"`` (1-P)^2/P^3 for the smallest squared bias, and ``"dr-mse"`` half of each (Dai
        et al. 2022). ``"eib"`` has a = h = 1 and reads no propensities: error imputation
        (Steck 2010), which is right only if G is.
    targeted
        Shift imputed losses by e (h - 1), with the e for which doubly robust estimation and error
        imputation agree (TDR, Li et al. 2023). Needs the propensities of all cells, as a
        users x items matrix.
    is_balanced
        Adjust propensities so that the sum of F / P over the log equals the sum of F over all
        cells, with the F of the previous round (as DR-V2, Li et al. 2023).
    weight_transform
        Replaces the weights h = 1 / P: ``unskew.estimators.Clip(30)``, ...
    relevance_threshold
        Fit 1 to ratings of at least this (clicks) and 0 to others. By default ratings are fitted.
    loss
        ``"squared"`` for MSE, ``"absolute"`` for MAE.
    n_rounds
        Rounds of imputation and prediction. With ``imputation="label"`` and without
        ``is_balanced`` one round is enough, and no more are made.

    Attributes
    ----------
    factors_, imputed_ : F and G.
    risk_ : the doubly robust estimate of the mean loss over all cells, on the log of the fit. It
        is too low for new ratings.
    objective_, history_, n_iter_, converged_, stop_reason_ : of the last prediction. The objective
        is U I ``risk_`` plus the penalty. With squared loss users are solved first, so the start
        has no objective: ``history_[0]`` is inf.
    """

    NOT_IN_FINGERPRINT: ClassVar = frozenset({"n_threads", "verbose"})
    """``max_iter`` and ``tol`` change the steps: a round continues where the last one stopped."""

    n_factors: int = setting(20, WholeNumber(least=0))
    l2: float = setting(1.0, Number(least=0))
    _: KW_ONLY
    offsets: Offsets = setting("regularized", OneOf(("none", "free", "regularized")))
    imputation: Literal["label", "error"] = setting("label", OneOf(("label", "error")))
    imputer: MatrixFactorization | None = setting(None)
    weighting: Weighting = setting("mrdr", OneOf(tuple(WEIGHTINGS)))
    targeted: bool = setting(False)
    is_balanced: bool = setting(False)
    weight_transform: WeightTransform | None = setting(None)
    relevance_threshold: float | None = setting(None)
    loss: Literal["squared", "absolute"] = setting("squared", OneOf(("squared", "absolute")))
    n_rounds: int = setting(3, WholeNumber(least=1))

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        initial_factors: Factors | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
    ) -> Self:
        """Fit to a log and the propensities of its cells.

        Parameters
        ----------
        log
            The ratings.
        propensities
            One for each rating, or a users x items matrix. Needed unless ``weighting="eib"``.
        initial_factors
            Start the predictions at the ``factors_`` of another fit on the same users and items.
        checkpoint, checkpoint_every
            Write each finished round to this file, and the state of a prediction to a file beside
            it every so many steps. A fit with the same settings that finds its own files continues
            from them, to the same result bit for bit.
        """
        require_log(log)
        check_initial_factors(initial_factors, (log.n_users, log.n_items, self.n_factors))
        self._check_settings()
        target = binarize(log, self.relevance_threshold)
        training = _TrainingData(
            target, self._propensity(target, propensities), propensities, initial_factors
        )
        saved = self._make_round_checkpoint(training, checkpoint, checkpoint_every)
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as show,
        ):

            def report(step: int, value: float) -> None:
                show(f"step {step}, objective {value:.6g}")

            last = None if saved is None else _load_round(saved)
            while last is None or last.number < self._n_rounds_needed:
                last = self._run_round(training, last, workers, report, saved)
                if saved is not None:
                    _save_round(last, saved)
        factors, objective = last.solution.parameters, last.solution.history[-1]
        penalty = self._ridge(target) * factors.squared_norm(
            with_offsets=self.offsets == "regularized"
        )
        self.imputed_ = last.imputed
        self.risk_ = (objective - penalty) / target.n_cells
        fallback = factors.global_offset
        if self.offsets == "none":
            fallback = last.mean_outcome(target)
        self._record_factors(log, factors, fallback)
        self._record_solution(last.solution)
        return self

    @property
    def _n_rounds_needed(self) -> int:
        return self.n_rounds if self.imputation == "error" or self.is_balanced else 1

    @property
    def _reads_propensities(self) -> bool:
        return self.weighting != "eib"

    def _check_settings(self) -> None:
        super()._check_settings()
        self._as_factorization()._check_settings()
        adjustments = {
            "targeted": self.targeted,
            "is_balanced": self.is_balanced,
            "weight_transform": self.weight_transform is not None,
        }
        used = [name for name, is_used in adjustments.items() if is_used]
        if used and not self._reads_propensities:
            raise UsageError(
                f"`{used[0]}` changes what is made of propensities, but `weighting='eib'` reads "
                "none.",
                parameter=used[0],
                remedy=f"Leave out `{used[0]}`, or choose another `weighting`.",
            )
        if self.targeted and self.is_balanced:
            raise UsageError(
                "`targeted` and `is_balanced` adjust the same propensities in two ways.",
                parameter="targeted",
                remedy="Choose one of them.",
            )

    def _as_factorization(self) -> MatrixFactorization:
        """A weighted factorisation with the same settings, for its checks and its start."""
        return MatrixFactorization(
            self.n_factors,
            self.l2,
            offsets=self.offsets,
            max_iter=self.max_iter,
            tol=self.tol,
            dtype=self.dtype,
            random_state=self.random_state,
        )

    def _ridge(self, log: Ratings) -> float:
        return scaled_ridge(
            self.l2,
            log,
            n_factors=self.n_factors,
            penalizes_offsets=self.offsets == "regularized",
        )

    def _propensity(self, log: Ratings, propensities: PropensitiesLike | None) -> Vector:
        if not self._reads_propensities:
            return np.ones(len(log))
        if propensities is None:
            raise UsageError(
                f"{type(self).__name__} needs propensities.",
                parameter="propensity",
                remedy="Pass them to fit. If ratings were observed at random, use "
                "unskew.propensity.UniformPropensity; weighting='eib' needs none.",
                shell_remedy="Pass `propensity`; `propensity='uniform'` if ratings were observed "
                "at random, or `learner='eib'`, which needs none.",
            )
        return as_propensities(log, propensities).values

    def _make_round_checkpoint(
        self, training: _TrainingData, path: str | Path | None, every: int
    ) -> Checkpoint | None:
        """The weights identify the fit too: ``targeted`` computes them from all cells."""
        if path is None:
            return None
        log, weight = training.log, self._weight(training, training.propensity)
        return self._make_checkpoint(
            path,
            every,
            *(log.user, log.item, log.rating, training.propensity, weight),
            shape=(log.n_users, log.n_items),
            start=training.initial_factors,
        )

    def _run_round(
        self,
        training: _TrainingData,
        last: _Round | None,
        workers: Workers,
        report: Report,
        saved: Checkpoint | None = None,
    ) -> _Round:
        """One round: balance propensities, fit the imputation, then the prediction."""
        number = 1 if last is None else last.number + 1
        log, propensity = training.log, training.propensity
        if last is not None and self.is_balanced:
            features = BalanceFeatures.of_predictions(log, last.solution.parameters)
            propensity = balance_propensities(propensity, features)
        imputed = fit_imputation(
            self.imputer,
            log,
            imputation_weight(
                self.weighting, propensity, log.n_cells, self._error_factor(log, last)
            ),
            workers,
            dtype=self.dtype,
            random_state=self.random_state,
            initial_factors=None if last is None else last.imputed,
        )
        imputed_on_log = imputed.predict(log.user, log.item)
        weight = self._weight(training, propensity)
        start = training.initial_factors if last is None else last.solution.parameters
        if start is None:
            mean = weighted_mean(log.rating, 1 / propensity)
            start = self._as_factorization()._make_start(log, mean)
        solution = self._predict_round(
            log,
            weight,
            imputed,
            imputed_on_log,
            start,
            workers,
            report,
            None if saved is None else saved.part(f"round-{number}"),
        )
        return _Round(number, imputed, imputed_on_log, weight, solution)

    def _error_factor(self, log: Ratings, last: _Round | None) -> Vector | float:
        if last is None or self.imputation == "label":
            return 1.0
        prediction = last.solution.parameters.predict(log.user, log.item)
        return error_factor(log.rating, last.imputed_on_log, prediction)

    def _weight(self, training: _TrainingData, propensity: Vector) -> Vector:
        """The weights h of the correction."""
        if not self._reads_propensities:
            return np.ones(len(training.log))
        weight = inverse_weights(
            training.log, Propensities(propensity), weight_transform=self.weight_transform
        )
        if not self.targeted:
            return weight
        return targeted_weight(weight, training.propensities, training.log, self.weight_transform)

    def _make_solver(
        self,
        log: Ratings,
        weight: Vector,
        imputed: Factors,
        imputed_on_log: Vector,
        workers: Workers,
    ) -> tuple[Solver[Any, Factors], float]:
        """The solver of one prediction, and a constant that its objective lacks."""
        ridge = self._ridge(log)
        if self.loss == "absolute":
            loss = DoublyRobustAbsoluteLoss.of(
                log, weight, imputed_on_log, imputed, random_state=self.random_state
            )
            solver = MajorizeMinimize(
                loss, self.n_factors, self.offsets, ridge, self.dtype, workers
            )
            return solver, 0.0
        _warn_if_far(log, imputed_on_log + weight * (log.rating - imputed_on_log))
        outcome, constant = make_pseudo_outcome(
            log, weight, imputed_on_log, imputed, dtype=self.dtype
        )
        return (
            PseudoOutcomeSolver(outcome, self.n_factors, self.offsets, ridge, workers),
            constant,
        )

    def _predict_round(
        self,
        log: Ratings,
        weight: Vector,
        imputed: Factors,
        imputed_on_log: Vector,
        start: Factors,
        workers: Workers,
        report: Report,
        checkpoint: Checkpoint | None,
    ) -> Solution[Factors]:
        """Fit F, given the imputation and the weights."""
        solver, constant = self._make_solver(log, weight, imputed, imputed_on_log, workers)
        solution = minimize(
            solver,
            start,
            max_iter=self.max_iter,
            tol=self.tol,
            checkpoint=checkpoint,
            report=report,
        )
        history = tuple(value + constant for value in solution.history)
        return Solution(solution.parameters, history, solution.stop_reason)


@dataclass(frozen=True, slots=True, eq=False)
class _TrainingData:
    """The arguments of a fit, checked."""

    log: Ratings
    propensity: Vector
    propensities: Any
    """As the caller passed them; ``targeted`` reads those of all cells."""
    initial_factors: Factors | None


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    """One imputation and the prediction made with it."""

    number: int
    """Counted from 1."""
    imputed: Factors
    imputed_on_log: Vector
    weight: Vector
    solution: Solution[Factors]

    def mean_outcome(self, log: Ratings) -> float:
        """The mean of T over all cells: the doubly robust estimate of the mean rating."""
        ones = np.ones((log.n_users, 1)), np.ones((log.n_items, 1))
        correction = float(self.weight @ (log.rating - self.imputed_on_log))
        return (sum_of_products(*self.imputed.as_float64_rows(), *ones) + correction) / log.n_cells


@dataclass(frozen=True, slots=True, eq=False)
class _SavedRound:
    """A round as a checkpoint stores it: arrays and numbers."""

    number: int
    imputed: Factors
    imputed_on_log: Vector
    weight: Vector
    parameters: Factors
    stop_reason: StopReason


def _save_round(finished: _Round, saved: Checkpoint) -> None:
    """Write a finished round, and remove the state of its prediction."""
    solution = finished.solution
    record = _SavedRound(
        finished.number,
        finished.imputed,
        finished.imputed_on_log,
        finished.weight,
        solution.parameters,
        solution.stop_reason,
    )
    save_state(saved, record, solution.history)
    saved.part(f"round-{finished.number}").drop()


def _load_round(saved: Checkpoint) -> _Round | None:
    """The last round that was written; None if there is none."""
    if not saved.path.exists():
        return None
    record, history = load_state(saved, _SavedRound)
    saved.part(f"round-{record.number}").drop()
    return _Round(
        record.number,
        record.imputed,
        record.imputed_on_log,
        record.weight,
        Solution(record.parameters, history, record.stop_reason),
    )


def fit_imputation(
    imputer: MatrixFactorization | None,
    log: Ratings,
    weight: Vector,
    workers: Workers,
    *,
    dtype: str,
    random_state: RandomState,
    initial_factors: Factors | None = None,
) -> Factors:
    """G: a weighted factorisation of the ratings; by default 5 factors, l2 = 1, no offsets."""
    model = MatrixFactorization(5, 1.0, offsets="none") if imputer is None else copy(imputer)
    model.set_params(dtype=dtype, random_state=random_state)
    return model._solve(log, weight, workers, initial_factors=initial_factors).parameters


def imputation_weight(
    weighting: Weighting, propensity: Vector, n_cells: int, factor: Vector | float = 1.0
) -> Vector:
    """a(P) times ``factor``, clipped at a high quantile and scaled to add up to U I.

    If all weights are 0 (every P is 1), all ratings count equally.
    """
    weight = WEIGHTINGS[weighting](propensity) * factor
    weight = np.minimum(weight, np.quantile(weight, CLIP_QUANTILE))
    total = float(weight.sum())
    return weight * (n_cells / total) if total > 0 else np.full(weight.size, n_cells / weight.size)


def error_factor(rating: Vector, imputed: Vector, prediction: Vector) -> Vector:
    """(Y + G - 2 F)^2: times the squared error of G, it is that of the imputed loss (G - F)^2.

    (Y - F)^2 - (G - F)^2 = (Y - G) (Y + G - 2 F).
    """
    return np.square(rating + imputed - 2 * prediction)


def make_pseudo_outcome(
    log: Ratings,
    weight: Vector,
    imputed_on_log: Vector,
    imputed: Factors,
    *,
    dtype: str = "float64",
) -> tuple[PseudoOutcome, float]:
    """T, and a constant: sum over all cells of (F - T)^2 plus it is U I times the DR risk.

    The constant is the sum over the log of h (1 - h) (Y - G)^2.
    """
    residual = log.rating - imputed_on_log
    outcome = PseudoOutcome.of(log, weight * residual, imputed=imputed, dtype=dtype)
    return outcome, float((weight * (1 - weight)) @ np.square(residual))


def _warn_if_far(log: Ratings, outcome: Vector) -> None:
    rating_range, largest = float(np.ptp(log.rating)), float(np.abs(outcome).max())
    if largest > MAX_RANGES * rating_range > 0:
        warnings.warn(
            PropensityWarning(
                f"pseudo-outcomes reach {largest:.3g}, more than {MAX_RANGES} times the range of "
                f"the ratings ({rating_range:g}): some large weights meet a poor imputation.",
                parameter="weight_transform",
                remedy="Limit the weights with `weight_transform=Clip(...)`, or choose another "
                "`imputer`.",
            ),
            stacklevel=6,  # the line that called fit
        )


def targeted_weight(
    weight: Vector, propensities: Any, log: Ratings, weight_transform: WeightTransform | None
) -> Vector:
    """1 + c (h - 1): the weights after the targeting step of TDR (H. Li et al., ICLR 2023).

    Imputed losses l become l + e (h - 1), with the e for which
    sum over the log of (h - 1) (delta - l - e (h - 1)) = 0. Then doubly robust estimation and
    error imputation agree. e is linear in the losses, and so is the estimate, with D all cells and
    O the log:

        sum_D l + sum_O (1 + c (h - 1)) (delta - l)
        c = (sum_D (h - 1) - sum_O (h - 1)) / sum_O (h - 1)^2

    If the propensities are right, c is near 1. If the sum over D were estimated from the log, c
    would be exactly 1 and targeting would change nothing. So it needs the propensities of all
    cells.
    """
    excess = weight - 1
    scale = float(excess @ excess)
    if not scale:
        return weight
    total = _sum_excess_weight(propensities, log, weight_transform)
    return 1 + (total - float(excess.sum())) / scale * excess


def _sum_excess_weight(
    propensities: Any, log: Ratings, weight_transform: WeightTransform | None
) -> float:
    """The sum of h - 1 over all cells."""
    shape = log.n_users, log.n_items
    is_model = isinstance(propensities, Propensities | PropensityPredictor)
    if is_model or np.shape(propensities) != shape:
        raise BadPropensityError(
            "`targeted=True` needs the propensities of all cells.",
            parameter="propensities",
            remedy=f"Pass a matrix of shape {shape}.",
        )
    matrix, total = np.asarray(propensities), 0.0
    for first in range(0, log.n_users, BLOCK_ROWS):
        weight = Propensities(matrix[first : first + BLOCK_ROWS].ravel()).inverse
        if weight_transform is not None:
            weight = weight_transform(weight)
        total += float((weight - 1).sum())
    return total


for _name, _weighting, _summary in (
    ("dr-jl", "dr-jl", "Doubly robust joint learning (Wang et al. 2019)."),
    ("mrdr", "mrdr", "More robust doubly robust learning: least variance (Guo et al. 2021)."),
    ("dr-bias", "dr-bias", "Doubly robust learning with the least bias (Dai et al. 2022)."),
    ("dr-mse", "dr-mse", "Doubly robust learning between bias and variance (Dai et al. 2022)."),
):
    PRESETS.add(
        _name,
        Preset(
            _name.upper().replace("-", "_"),
            DoublyRobustFactorization,
            fixed={"weighting": _weighting},
        ),
        label=_name.upper(),
        summary=_summary,
        traits={"reads_propensities": True, "needs_propensities": True},
    )

EIB = PRESETS.add(
    "eib",
    Preset(
        "EIB",
        DoublyRobustFactorization,
        fixed={"weighting": "eib", "targeted": False, "is_balanced": False},
    ),
    label="EIB",
    summary="Error imputation: imputed losses in unobserved cells (Steck 2010).",
    traits={"reads_propensities": False, "needs_propensities": False},
)
TDR = PRESETS.add(
    "tdr",
    Preset("TDR", DoublyRobustFactorization, fixed={"targeted": True}),
    label="TDR",
    summary="Targeted doubly robust learning; needs propensities of all cells (Li et al. 2023).",
    traits={
        "reads_propensities": True,
        "needs_propensities": True,
        "needs_all_propensities": True,
    },
)
DRV2 = PRESETS.add(
    "dr-v2",
    Preset(
        "DRV2",
        DoublyRobustFactorization,
        fixed={"is_balanced": True},
        defaults={"weighting": "dr-jl"},
    ),
    label="DR-V2",
    summary="Doubly robust learning with propensities balanced on predictions (Li et al. 2023).",
    traits={"reads_propensities": True, "needs_propensities": True},
)
