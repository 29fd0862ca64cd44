"""Asymmetric tri-training: two models label cells for a third."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np

from unskew.data.cells import CellNumbers, user_and_item
from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import drop_unweighted, training_weights, weighted_mean
from unskew.errors import UsageError
from unskew.factorization.checkpoints import (
    Checkpoint,
    load_state,
    make_checkpoint,
    save_state,
)
from unskew.factorization.objective import name_unsolved_rows
from unskew.factorization.penalty import Penalty
from unskew.models import RECOMMENDERS
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import FactorRecommender
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.progress import progress_line
from unskew.settings import Instance, Number, WholeNumber, check_random_state, draw_seeds, setting
from unskew.threads import Workers, single_blas_thread, stop_if_interrupted
from unskew.types import RandomState, Vector

STARTS = "start-1", "start-2"
"""The parts of a checkpoint with the fits of A1 and A2 before the first round."""
NOISE_OF_LABELS = 0.01
"""The share of an automatic penalty that A0 gets: the predictions of A1 have no noise."""
TOL_OF_STARTS = 1e-5
"""The first fits of A1 and A2 stop no later, because the rounds improve them."""
LEAST_GAIN = 1e-4
"""The share of the objective that a step must gain; otherwise A1 and A2 have converged."""


@RECOMMENDERS.declare(
    "tri-training",
    label="Tri-training",
    summary="Two factorisations label the cells that a third one learns from (Saito 2020).",
)
@dataclass(eq=False, repr=False)
class TriTraining(FactorRecommender):
    """A model fitted to the cells on which two others agree.

    A1 and A2 are weighted factorisations from different starts, A0 is the result. A1 and A2 are
    first fitted to the log. Then, in every round, cells are drawn from all cells, and those with
    abs(A1 - A2) <= ``epsilon`` are labelled by A1. A1 and A2 each improve

        the weighted loss on the log  +  the loss on the labelled cells  +  penalty,

    each loss with half of the weight. In the last round A0, which starts at A1, minimises

        sum over labelled cells of (A1 - A0)^2  +  penalty.

    The rounds end early when they change A1 and A2 no more.

    If A1 and A2 agree everywhere, A0 becomes a plain factorisation of A1 over all cells. Its error
    is at most that of A1 plus its distance from A1, and large weights of the log do not enter it
    again. With the default model its error is usually larger than that of the model, and 1 or 2
    percent larger than that of :data:`OffsetsOnly`: A0 repeats the errors of A1, and cells on which
    A1 and A2 disagree teach it nothing (Y. Saito, *Asymmetric tri-training for debiasing
    missing-not-at-random explicit feedback*, SIGIR 2020).

    Parameters
    ----------
    model
        The three factorisations, not fitted; by default :class:`MatrixFactorization`.
    epsilon
        The largest difference of two predictions that counts as agreement.
    n_rounds
        The largest number of rounds. A round in which steps after the first one lower the
        objectives of A1 and A2 by less than 1e-4 of their size is the last.
    candidates
        The number of cells drawn in each round, as a multiple of the log's length.
    n_steps
        The largest number of steps of each model in a round. A model stops at the step that lowers
        its objective by less than 1e-4 of its size.
    n_threads, random_state, verbose
        As in :class:`MatrixFactorization`. With a seed, A1 and A2 start at the two numbers
        after it, and cells are drawn with it.

    Attributes
    ----------
    factors_ : A0.
    agreed_ : the share of drawn cells that were labelled, in each round that was made.
    """

    model: MatrixFactorization | None = setting(None)
    _: KW_ONLY
    epsilon: float = setting(0.2, Number(above=0))
    n_rounds: int = setting(5, WholeNumber(least=1))
    candidates: float = setting(5.0, Number(above=0))
    n_steps: int = setting(5, WholeNumber(least=1))
    n_threads: int | None = setting(None, WholeNumber(least=1, allow_none=True))
    random_state: RandomState = setting(0, check_random_state)
    verbose: bool = setting(False)
    agreed_: tuple[float, ...] = field(init=False)

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        engine: str | object = "auto",
    ) -> Self:
        """Fit to a log, weighted by inverse propensities if they are passed.

        ``checkpoint`` and ``checkpoint_every`` are those of :class:`DoublyRobustFactorization`.
        The first fits of A1 and A2 are written every so many steps, and every round.
        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        self._check_settings()
        Instance(MatrixFactorization, allow_none=True)("model", self.model)
        model = copy(self.model or MatrixFactorization())
        seeds = draw_seeds(self.random_state, 3)[1:]
        rng = np.random.default_rng(self.random_state)
        weight = training_weights(
            log,
            propensities,
            normalize=model.normalize,
            weight_transform=model.weight_transform,
        )
        saved = self._make_checkpoint(checkpoint, checkpoint_every, log, weight)
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as show,
        ):
            state, agreed = _load_round(saved, log)
            for _ in agreed:
                self._draw_cells(log, rng)
            penalty = model._choose_penalty(*drop_unweighted(log, weight), workers=workers)
            if state is None:
                tol = max(model.tol, TOL_OF_STARTS)
                starts = [copy(model).set_params(random_state=seed, tol=tol) for seed in seeds]
                state = _fit_starts(starts, log, weight, workers, penalty, saved)
            improve = partial(_improve, model, workers=workers, n_steps=self.n_steps)
            label_penalty = penalty.scaled(NOISE_OF_LABELS) if model.l2 == "auto" else penalty
            while not state.is_final:
                first, second = state.models.first, state.models.second
                labelled, share = self._label_cells(log, first, second, rng)
                agreed = (*agreed, share)
                show(f"round {len(agreed)}, {share:.0%} agreed")
                equal = np.full(len(labelled), log.n_cells / len(labelled))
                is_final, final = len(agreed) >= self.n_rounds, first
                if not is_final:
                    both, half = _join(log, labelled), np.concatenate([weight, equal]) / 2
                    (first, second), gain = improve(both, half, penalty, [first, second])
                    is_final = gain < LEAST_GAIN
                if is_final:
                    (final,), _ = improve(labelled, equal, label_penalty, [state.models.first])
                state = _TrainingState(_ThreeModels(final, first, second), is_final)
                if saved is not None:
                    save_state(saved, state, agreed)
        self.agreed_ = agreed
        has_offsets, final = model.offsets != "none", state.models.final
        fallback = final.global_offset if has_offsets else weighted_mean(log.rating, weight)
        self._record_factors(log, final, fallback)
        self.rating_range_ = model._find_range(log)
        return self

    def _make_checkpoint(
        self, path: str | Path | None, every: int, log: Ratings, weight: Vector
    ) -> Checkpoint | None:
        settings = self.get_params(deep=False)
        settings = {k: v for k, v in settings.items() if k not in ("n_threads", "verbose")}
        columns = log.user, log.item, log.rating, weight
        return make_checkpoint(path, every, settings, *columns, shape=(log.n_users, log.n_items))

    def _draw_cells(self, log: Ratings, rng: np.random.Generator) -> CellNumbers:
        """The cells of one round, by number, in ascending order; each is drawn independently.

        They are the cells in which points of a Poisson process fall, which is faster than a draw
        without replacement.
        """
        share = self.candidates * len(log) / log.n_cells
        if share >= 1:
            return np.arange(log.n_cells)
        rate = -np.log1p(-share)
        n_points = rate * log.n_cells
        n_points += 6 * np.sqrt(n_points) + 10  # more than fall in the cells, all but surely
        points = np.cumsum(rng.standard_exponential(int(n_points))) / rate
        cells = points[points < log.n_cells].astype(np.int64)
        if not cells.size:
            return rng.integers(log.n_cells, size=1)
        distinct: CellNumbers = cells[np.diff(cells, prepend=-1) > 0]
        return distinct

    def _label_cells(
        self, log: Ratings, first: Factors, second: Factors, rng: np.random.Generator
    ) -> tuple[Ratings, float]:
        """Random cells on which two models agree, labelled by the first, and their share."""
        cells = self._draw_cells(log, rng)
        user, item = user_and_item(cells, log.n_items)
        label = first.predict(user, item)
        agrees = np.abs(label - second.predict(user, item)) <= self.epsilon
        if not agrees.any():
            raise UsageError(
                f"the two models agree within `epsilon={self.epsilon:g}` on none of {cells.size} "
                "cells.",
                parameter="epsilon",
                value=self.epsilon,
                remedy="Raise `epsilon`.",
            )
        labelled = replace(log, user=user[agrees], item=item[agrees], rating=label[agrees])
        return labelled, float(agrees.mean())


@dataclass(frozen=True, slots=True, eq=False)
class _ThreeModels:
    """The three factorisations A0, A1 and A2 of a round."""

    final: Factors
    """A1 before the last round."""
    first: Factors
    second: Factors


@dataclass(frozen=True, slots=True, eq=False)
class _TrainingState:
    """What a checkpoint keeps of a round, beside the shares of all rounds."""

    models: _ThreeModels
    is_final: bool


def _load_round(
    saved: Checkpoint | None, log: Ratings
) -> tuple[_TrainingState | None, tuple[float, ...]]:
    """The state after the last round that was written, and the shares of labelled cells so far."""
    if saved is None or not saved.path.exists():
        return None, ()
    zeros = Factors(np.zeros((log.n_users, 0)), np.zeros((log.n_items, 0)))
    start = _TrainingState(_ThreeModels(zeros, zeros, zeros), is_final=False)
    last, agreed = load_state(saved, start, of_any_precision="models")
    _drop_starts(saved)
    return last, agreed


def _fit_starts(
    starts: Sequence[MatrixFactorization],
    log: Ratings,
    weight: Vector,
    workers: Workers,
    penalty: Penalty,
    saved: Checkpoint | None,
) -> _TrainingState:
    """A1 and A2 before the first round, fitted to the log."""
    parts = [None, None] if saved is None else [saved.part(name) for name in STARTS]
    first, second = (
        start._solve(log, weight, workers, penalty=penalty, checkpoint=part).parameters
        for start, part in zip(starts, parts, strict=True)
    )
    state = _TrainingState(_ThreeModels(first, first, second), is_final=False)
    if saved is not None:
        save_state(saved, state, ())
        _drop_starts(saved)
    return state


def _improve(
    model: MatrixFactorization,
    log: Ratings,
    weight: Vector,
    penalty: Penalty,
    starts: Sequence[Factors],
    *,
    workers: Workers,
    n_steps: int,
) -> tuple[list[Factors], float]:
    """A few steps from each start, on cells that are sorted once.

    Also returns the largest share of the objective that the steps after the first one gained. The
    objective before the first step is not known, so it is infinite after a single step.
    """
    log, weight = drop_unweighted(log, weight)
    with name_unsolved_rows(log, penalty.factors / model._ridge_unit(log)):
        solver = model._make_solver(model._make_objective(log, weight, penalty, workers))
        improved, gains = [], []
        for start in starts:
            state, values = solver.start(start), []
            for _ in range(max(1, n_steps // solver.steps_per_advance)):
                stop_if_interrupted()
                state = solver.advance(state)
                values.append(float(solver.value(state)))
                if len(values) > 1 and values[-2] - values[-1] < LEAST_GAIN * abs(values[-1]):
                    break
            improved.append(solver.parameters(state))
            gain = (values[0] - values[-1]) / max(abs(values[-1]), 1e-300)
            gains.append(gain if len(values) > 1 else np.inf)
    return improved, max(gains)


def _drop_starts(saved: Checkpoint) -> None:
    for name in STARTS:
        saved.part(name).drop()


def _join(log: Ratings, labelled: Ratings) -> Ratings:
    """The cells of both logs; a cell that is in both counts twice."""
    return replace(
        log,
        user=np.concatenate([log.user, labelled.user]),
        item=np.concatenate([log.item, labelled.item]),
        rating=np.concatenate([log.rating, labelled.rating]),
    )
