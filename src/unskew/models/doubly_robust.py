"""Doubly robust learning: a model of the ratings, corrected by the log."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from unskew.data.clicks import binarize
from unskew.data.factors import Factors
from unskew.data.propensities import Propensities, PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import WeightTransform, inverse_weights, weighted_mean
from unskew.errors import UsageError
from unskew.factorization.balancing import BalanceFeatures, balance_propensities, targeted_weight
from unskew.factorization.checkpoints import Checkpoint, load_state, save_state
from unskew.factorization.engine import (
    AllCellsEngine,
    DoublyRobustFrameEngine,
    Engine,
    Frame,
    FrameReader,
    PseudoOutcomeRequest,
)
from unskew.factorization.initialization import check_initial_factors
from unskew.factorization.majorize import DoublyRobustAbsoluteLoss, MajorizeMinimize
from unskew.factorization.penalty import Penalty
from unskew.factorization.pseudo_outcome import (
    PseudoOutcomeSolver,
    make_pseudo_outcome,
    outcome_constant,
    sum_of_products,
)
from unskew.factorization.solution import Report, Solution, Solver, StopReason, minimize
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.correction import choose_correction_penalty, warn_if_far, zero_factors
from unskew.models.cross_fitting import PART_TOLERANCE, LogParts, loosen
from unskew.models.doubly_robust_frames import make_frame_request
from unskew.models.engine_choice import (
    find_all_cells_engine,
    find_frame_engine,
    require_squared_loss,
)
from unskew.models.factor_recommender import RatingFactorization
from unskew.models.imputation import (
    WEIGHTINGS,
    Weighting,
    choose_imputer,
    error_factor,
    find_imputation_weight,
    fit_imputation,
)
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommender import Preset
from unskew.settings import OneOf, WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import BoolVector, Vector


@RECOMMENDERS.declare(
    "doubly-robust",
    label="DR",
    summary="Doubly robust learning: an imputation of all cells, corrected by the log.",
    traits={"needs_propensities": True},
)
@dataclass(eq=False, repr=False)
class DoublyRobustFactorization(RatingFactorization):
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
    imputation
        ``"label"`` fits G to the ratings. ``"error"`` fits it to the errors of F, with the
        objective a(P) ((Y - F)^2 - (G - F)^2)^2, as published.
    imputer
        The factorisation G, not fitted; by default ``MatrixFactorization(n_factors)``, whose
        offsets draw it to the weighted mean. Its dtype, threads and seed are those of this model.
    penalizes
        ``"correction"`` penalises F - G, which is then a factorisation of its own: F has the
        factors of both. What the log does not contradict stays as imputed, so with a good
        imputation F is at least as good as G. ``"prediction"`` penalises F, as published; then F
        shrinks twice, once in G.
    weighting
        a(P): ``"dr-jl"`` 1/P; ``"mrdr"`` (1-P)/P^2 for the smallest variance (Guo et al. 2021);
        ``"dr-bias"`` (1-P)^2/P^3 for the smallest squared bias, and ``"dr-mse"`` half of each (Dai
        et al. 2022). All but ``"dr-jl"`` give a few ratings most of the weight. So the default
        imputer takes 1/P, clipped or as it is, if offsets with it predict held-out ratings better;
        an imputer that you pass takes a(P). ``"eib"`` has a = h = 1 and reads no propensities:
        error imputation (Steck 2010), which is right only if G is. It corrects no selection, so
        where people rate what they like it is worse than :data:`OffsetsOnly` with propensities.
    targeted
        Shift imputed losses by e (h - 1), with the e for which doubly robust estimation and error
        imputation agree (TDR, Li et al. 2023). Needs the propensities of all cells, as a
        users x items matrix.
    is_balanced
        Adjust propensities so that the sum of F / P over the log equals the sum of F over all
        cells (as DR-V2, Li et al. 2023). F is that of the first round, of each rating from a fit
        without its quarter of the log, as in :class:`BalancedFactorization`.
    n_rounds
        Rounds of imputation and prediction. With ``imputation="label"`` one round is enough, with
        ``is_balanced`` two, and no more are made.

    Attributes
    ----------
    factors_, imputed_ : F and G.
    risk_ : the doubly robust estimate of the mean loss over all cells, on the log of the fit. It
        is too low for new ratings.
    objective_, history_, n_iter_, converged_, stop_reason_ : of the last prediction. The objective
        is U I ``risk_`` plus the penalty. With squared loss users are solved first, so the start
        has no objective: ``history_[0]`` is inf.
    """

    _NOT_IN_FINGERPRINT: ClassVar = frozenset({"n_threads", "verbose"})
    """``max_iter`` and ``tol`` change the steps: a round continues where the last one stopped."""

    _: KW_ONLY
    imputation: Literal["label", "error"] = setting("label", OneOf(("label", "error")))
    imputer: MatrixFactorization | None = setting(None)
    penalizes: Literal["correction", "prediction"] = setting(
        "correction", OneOf(("correction", "prediction"))
    )
    weighting: Weighting = setting("dr-jl", OneOf(tuple(WEIGHTINGS)))
    targeted: bool = setting(False)
    is_balanced: bool = setting(False)
    weight_transform: WeightTransform | None = setting(None)
    relevance_threshold: float | None = setting(None)
    loss: Literal["squared", "absolute"] = setting("squared", OneOf(("squared", "absolute")))
    n_rounds: int = setting(3, WholeNumber(least=1))
    imputed_: Factors = field(init=False)
    risk_: float = field(init=False)

    def fit(
        self,
        log: Ratings | Frame,
        propensities: PropensitiesLike | None = None,
        *,
        initial_factors: Factors | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        engine: str | Engine | DoublyRobustFrameEngine = "auto",
    ) -> Self:
        """Fit to a log and the propensities of its cells.

        Parameters
        ----------
        log
            The ratings. With ``engine="spark"`` a Spark data frame, or the path of Parquet files.
        propensities
            One for each rating, or a users x items matrix. Needed unless ``weighting="eib"``. On
            Spark the name of a column.
        initial_factors
            Start the predictions at the ``factors_`` of another fit on the same users and items.
        checkpoint, checkpoint_every
            Write each finished round to this file, and the state of a prediction to a file next to
            it every so many steps. A fit with the same settings that finds its own files continues
            from them, to the same result bit for bit.
        engine
            ``"local"``, ``"gpu"`` (squared loss; needs the extra 'gpu'), ``"spark"`` (squared loss
            in one round, with numbers for ``l2`` and that of the imputer; needs the extra
            'spark'), or an engine with settings such as :class:`unskew.engines.GpuEngine`.
            ``"auto"`` is ``"spark"`` for a Spark data frame, and ``"local"`` otherwise.
        """
        frame_engine = find_frame_engine(engine, log)
        if isinstance(frame_engine, DoublyRobustFrameEngine):
            self._check_settings()
            saved_to = checkpoint, checkpoint_every
            return self._fit_frame(frame_engine, log, propensities, initial_factors, saved_to)
        if isinstance(frame_engine, FrameReader):
            log, propensities = frame_engine.read_log(log, propensities)
            engine = "local"
        other_engine = find_all_cells_engine(self, engine)
        require_log(log)
        self._check_settings()
        if other_engine is not None:
            require_squared_loss(engine, self.loss)
        check_initial_factors(initial_factors, (log.n_users, log.n_items, self._n_columns))
        threshold = self.relevance_threshold
        target = log if threshold is None else binarize(log, threshold)
        training = _TrainingData(
            target,
            self._propensity(target, propensities),
            propensities,
            initial_factors,
            other_engine,
        )
        saved = self._make_round_checkpoint(training, checkpoint, checkpoint_every)
        with Workers(self.n_threads) as workers, single_blas_thread(), self._show_steps() as report:
            last, history = self._load_round(saved, target)
            while last is None or last.number < self._n_rounds_needed:
                last, history = self._run_round(training, last, workers, report, saved)
                if saved is not None:
                    save_state(saved, last, history)
                    saved.part(f"round-{last.number}").drop()
        self.imputed_ = last.imputed
        self._record_penalty(target, last.penalty)
        self.risk_ = (history[-1] - last.penalty.value(last.solved)) / target.n_cells
        solution = Solution(last.factors, history, last.stop_reason)
        self._record_fit(log, solution, last.mean_outcome(target), fitted=target)
        return self

    def _fit_frame(
        self,
        engine: DoublyRobustFrameEngine,
        frame: Frame,
        propensities: Any,
        initial_factors: Factors | None,
        checkpoint: tuple[str | Path | None, int],
    ) -> Self:
        with self._show_steps() as report:
            result = engine.fit_doubly_robust(
                make_frame_request(
                    self,
                    frame,
                    propensities,
                    engine=getattr(engine, "name", engine),
                    initial_factors=initial_factors,
                    checkpoint=checkpoint,
                    report=report,
                )
            )
        self.imputed_, self.risk_ = result.imputed, result.risk
        self._record_frame_fit(result.prediction)
        return self

    def _load_round(
        self, saved: Checkpoint | None, log: Ratings
    ) -> tuple[_Round | None, tuple[float, ...]]:
        """The last round that was written and its objectives; None if there is none."""
        if saved is None or not saved.path.exists():
            return None, ()
        imputed, solved, factors = (
            Factors(np.zeros((log.n_users, n)), np.zeros((log.n_items, n)))
            for n in (0, self.n_factors, self._n_columns)
        )
        cells, penalty = np.zeros(len(log)), Penalty(0.0)
        both = solved.astype(self.dtype), factors.astype(self.dtype)
        start = _Round(0, imputed, cells, cells, *both, penalty, "max_iter")
        last, history = load_state(saved, start, of_any_precision="imputed")
        saved.part(f"round-{last.number}").drop()
        return last, history

    @property
    def _n_rounds_needed(self) -> int:
        if self.imputation == "error":
            return self.n_rounds
        return min(self.n_rounds, 2) if self.is_balanced else 1

    @property
    def _n_columns(self) -> int:
        """The number of factors of F."""
        imputer = choose_imputer(self.imputer, self.n_factors)
        return self.n_factors + imputer.n_factors * (self.penalizes == "correction")

    @property
    def _reads_propensities(self) -> bool:
        return self.weighting != "eib"

    def _check_settings(self) -> None:
        super()._check_settings()
        adjustments = {
            "targeted": self.targeted,
            "is_balanced": self.is_balanced,
            "weight_transform": self.weight_transform is not None,
        }
        used = [name for name, is_used in adjustments.items() if is_used]
        if used and not self._reads_propensities:
            raise UsageError(
                f"`{used[0]}` has no effect with `weighting='eib'`, which uses no propensities.",
                parameter=used[0],
                remedy=f"Leave out `{used[0]}`, or choose another `weighting`.",
            )
        if self.targeted and self.is_balanced:
            raise UsageError(
                "`targeted` and `is_balanced` adjust the same propensities in two ways.",
                parameter="targeted",
                remedy="Choose one of them.",
            )

    def _propensity(self, log: Ratings, propensities: PropensitiesLike | None) -> Vector:
        if not self._reads_propensities:
            return np.ones(len(log))
        if propensities is None:
            raise UsageError(
                f"{type(self).__name__} needs propensities.",
                parameter="propensities",
                remedy="Pass them to fit. If ratings were observed at random, use "
                "unskew.propensity.UniformPropensity; weighting='eib' needs none.",
                shell_remedy="Pass `propensity`; `propensity='uniform'` if ratings were observed "
                "at random, or `learner='eib'`, which needs none.",
            )
        return as_propensities(log, propensities).values

    def _make_round_checkpoint(
        self, training: _TrainingData, path: str | Path | None, every: int
    ) -> Checkpoint | None:
        """The weights also identify the fit: ``targeted`` computes them from all cells."""
        WholeNumber(least=1)("checkpoint_every", every)
        if path is None:
            return None
        log, weight = training.log, self._weight(training, training.propensity)
        return self._make_checkpoint(
            path,
            every,
            log.user,
            log.item,
            log.rating,
            training.propensity,
            weight,
            shape=(log.n_users, log.n_items),
            start=training.initial_factors,
        )

    def _run_round(
        self,
        training: _TrainingData,
        last: _Round | None,
        workers: Workers,
        report: Report | None,
        saved: Checkpoint | None,
    ) -> tuple[_Round, tuple[float, ...]]:
        """One round: balance propensities, fit the imputation, then the prediction.

        Returns the round, and the objective after each step of the prediction.
        """
        number = 1 if last is None else last.number + 1
        log, propensity = training.log, training.propensity
        if last is not None and self.is_balanced:
            features = self._balance_features(training, workers)
            propensity = balance_propensities(propensity, features)
        imputed = self._impute(training, last, propensity, workers)
        imputed_on_log = imputed.predict(log.user, log.item)
        weight = self._weight(training, propensity)
        errors = replace(log, rating=log.rating - imputed_on_log)
        target, base, base_on_log = log, imputed, imputed_on_log
        if self.penalizes == "correction":
            target, base, base_on_log = errors, zero_factors(log), np.zeros(len(log))
        start = training.initial_factors if last is None else last.solved
        if start is None:
            start = self._random_start(target, weighted_mean(target.rating, 1 / propensity))
        elif last is None and self.penalizes == "correction":
            start = _subtract_imputed(start, imputed, self.n_factors)
        penalty = choose_correction_penalty(self, errors, 1 / propensity, loss=self.loss)
        solution, constant = self._fit_prediction(
            _PredictionTask(target, base, base_on_log, weight, penalty, start),
            training,
            workers,
            None if saved is None else saved.part(f"round-{number}"),
            report,
        )
        history = tuple(value + constant for value in solution.history)
        solved = solution.parameters
        factors = solved.plus(imputed) if self.penalizes == "correction" else solved
        finished = _Round(
            number=number,
            imputed=imputed,
            imputed_on_log=imputed_on_log,
            weight=weight,
            solved=solved,
            factors=factors,
            penalty=penalty,
            stop_reason=solution.stop_reason,
        )
        return finished, history

    def _balance_features(self, training: _TrainingData, workers: Workers) -> BalanceFeatures:
        """F of the first round, fitted without the part of the rating."""
        model = loosen(self)

        def of_fit(is_left: BoolVector, part: Ratings) -> BalanceFeatures:
            rest = replace(
                training,
                log=training.log.take(is_left),
                propensity=float(is_left.mean()) * training.propensity[is_left],
                initial_factors=None,
                is_part=True,
            )
            fitted, _ = model._run_round(rest, None, workers, None, None)
            return BalanceFeatures.of_predictions(part, fitted.factors)

        parts = LogParts.draw(training.log, self.random_state)
        return parts.balance_features(training.log, of_fit)

    def _impute(
        self, training: _TrainingData, last: _Round | None, propensity: Vector, workers: Workers
    ) -> Factors:
        """The imputation G, which starts at that of the last round."""
        log = training.log
        error = self._error_factor(log, last)
        return fit_imputation(
            choose_imputer(self.imputer, self.n_factors),
            log,
            find_imputation_weight(
                self.imputer,
                self.weighting,
                log,
                propensity,
                error,
                random_state=self.random_state,
            ),
            workers,
            dtype=self.dtype,
            random_state=self.random_state,
            least_tol=PART_TOLERANCE if training.is_part else 0.0,
            initial_factors=None if last is None else last.imputed,
            engine=training.engine,
        )

    def _fit_prediction(
        self,
        task: _PredictionTask,
        training: _TrainingData,
        workers: Workers,
        checkpoint: Checkpoint | None,
        report: Report | None,
    ) -> tuple[Solution[Factors], float]:
        """Fit one prediction. Its objective lacks a constant, which is returned too."""
        engine = training.engine
        if self.loss == "squared" and self.l2 != "auto" and not training.is_part:
            largest = float(np.abs(task.base_on_log + task.correction).max())
            warn_if_far(float(np.ptp(task.target.rating)), largest, stacklevel=5)
        if engine is None:
            solver, constant = self._make_solver(task, workers)
            solution = minimize(
                solver,
                task.start,
                max_iter=self.max_iter,
                tol=self.tol,
                checkpoint=checkpoint,
                report=report,
            )
            return solution, constant
        request = PseudoOutcomeRequest(
            log=task.target,
            correction=task.correction,
            imputed=None if self.penalizes == "correction" else task.base,
            n_factors=self.n_factors,
            offsets=self.offsets,
            penalty=task.penalty,
            dtype=self.dtype,
            start=task.start,
            max_iter=self.max_iter,
            tol=self.tol,
            checkpoint=checkpoint,
            report=report,
        )
        return engine.run_pseudo_outcome(request), outcome_constant(task.weight, task.error)

    def _error_factor(self, log: Ratings, last: _Round | None) -> Vector | float:
        if last is None or self.imputation == "label":
            return 1.0
        prediction = last.factors.predict(log.user, log.item)
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
        self, task: _PredictionTask, workers: Workers
    ) -> tuple[Solver[Any, Factors], float]:
        """The solver of one prediction, and a constant that its objective lacks."""
        cells = task.target, task.weight, task.base_on_log, task.base
        if self.loss == "absolute":
            loss = DoublyRobustAbsoluteLoss.of(*cells, random_state=self.random_state)
            solver = MajorizeMinimize(
                loss, self.n_factors, self.offsets, task.penalty, self.dtype, workers
            )
            return solver, 0.0
        outcome, constant = make_pseudo_outcome(*cells, dtype=self.dtype)
        return (
            PseudoOutcomeSolver(outcome, self.n_factors, self.offsets, task.penalty, workers),
            constant,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _TrainingData:
    """The arguments of a fit, checked."""

    log: Ratings
    propensity: Vector
    propensities: Any
    """As the caller passed them; ``targeted`` reads those of all cells."""
    initial_factors: Factors | None
    engine: AllCellsEngine | None
    """None fits in this process."""
    is_part: bool = False
    """Whether this is a part of the log, of which no warnings are given."""


@dataclass(frozen=True, slots=True, eq=False)
class _PredictionTask:
    """What one prediction is fitted to: G in all cells, and G + h (Y - G) in those of the log.

    If the correction alone is penalised, it is fitted in place of F: to 0, and to h (Y - G).
    """

    target: Ratings
    """Y, or Y - G."""
    base: Factors
    """G, or 0."""
    base_on_log: Vector
    weight: Vector
    """h."""
    penalty: Penalty
    start: Factors

    @property
    def error(self) -> Vector:
        """Y - G in the cells of the log."""
        return self.target.rating - self.base_on_log

    @property
    def correction(self) -> Vector:
        """h (Y - G) in the cells of the log."""
        return self.weight * self.error


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    """One imputation and the prediction made with it."""

    number: int
    """Counted from 1."""
    imputed: Factors
    imputed_on_log: Vector
    weight: Vector
    solved: Factors
    """What the solver found: F, or F - G."""
    factors: Factors
    """F."""
    penalty: Penalty
    stop_reason: StopReason

    def mean_outcome(self, log: Ratings) -> float:
        """The mean of T over all cells: the doubly robust estimate of the mean rating."""
        ones = np.ones((log.n_users, 1)), np.ones((log.n_items, 1))
        correction = float(self.weight @ (log.rating - self.imputed_on_log))
        return (sum_of_products(*self.imputed.as_float64_rows(), *ones) + correction) / log.n_cells


def _subtract_imputed(start: Factors, imputed: Factors, n_factors: int) -> Factors:
    """The part of a start F that belongs to F - G: its first columns, and offsets minus G's."""
    return Factors(
        start.user_factors[:, :n_factors],
        start.item_factors[:, :n_factors],
        start.user_offset - imputed.user_offset,
        start.item_offset - imputed.item_offset,
        start.global_offset - imputed.global_offset,
    )


_TRAITS = {"needs_propensities": True}
for _weighting, _summary in (
    ("dr-jl", "Doubly robust joint learning (Wang et al. 2019)."),
    ("mrdr", "More robust doubly robust learning: least variance (Guo et al. 2021)."),
    ("dr-bias", "Doubly robust learning with the least bias (Dai et al. 2022)."),
    ("dr-mse", "Doubly robust learning between bias and variance (Dai et al. 2022)."),
):
    _label = _weighting.upper()
    _python_name = _label.replace("-", "_")
    PRESETS.add(
        _weighting,
        Preset(_python_name, DoublyRobustFactorization, fixed={"weighting": _weighting}),
        label=_label,
        summary=_summary,
        traits=_TRAITS,
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
    traits={"reads_propensities": False},
)
TDR = PRESETS.add(
    "tdr",
    Preset("TDR", DoublyRobustFactorization, fixed={"targeted": True}),
    label="TDR",
    summary="Targeted doubly robust learning; needs propensities of all cells (Li et al. 2023).",
    traits=_TRAITS | {"needs_all_propensities": True},
)
DRV2 = PRESETS.add(
    "dr-v2",
    Preset("DRV2", DoublyRobustFactorization, fixed={"is_balanced": True}),
    label="DR-V2",
    summary="Doubly robust learning with propensities balanced on predictions (Li et al. 2023).",
    traits=_TRAITS,
)
