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
from unskew.factorization.penalty import Penalty
from unskew.models import RECOMMENDERS
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import FactorRecommender
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.progress import progress_line
from unskew.settings import Instance, Number, WholeNumber, check_random_state, draw_seeds, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import RandomState, Vector

STARTS = "start-0", "start-1", "start-2"
"""The parts of a checkpoint with the three fits before the first round."""
NOISE_OF_LABELS = 0.01
"""The share of an automatic penalty that A0 gets: the predictions of A1 have no noise."""


@RECOMMENDERS.declare(
    "tri-training",
    label="Tri-training",
    summary="Two factorisations label the cells that a third one learns from (Saito 2020).",
)
@dataclass(eq=False, repr=False)
class TriTraining(FactorRecommender):
    """A model fitted to the cells on which two others agree.

    A1 and A2 are weighted factorisations from different starts, A0 is the result. All are first
    fitted to the log. Then, in every round, cells are drawn from all cells, those with
    abs(A1 - A2) <= ``epsilon`` are labelled by A1, and

        A0 minimises            sum over labelled cells of (A1 - A0)^2  +  penalty,
        A1 and A2 each improve  the same for themselves plus the weighted loss on the log,
                                each with half of the weight.

    If A1 and A2 agree everywhere, A0 becomes a plain factorisation of A1 over all cells. Its error
    is at most that of A1 plus its distance from A1, and large weights of the log do not enter it
    again. With the default model it is usually worse than that model, and by 1 or 2 percent than
    :data:`OffsetsOnly`: A0 repeats the errors of A1, and cells on which A1 and A2 disagree teach it
    nothing (Y. Saito, *Asymmetric tri-training for debiasing missing-not-at-random explicit
    feedback*, SIGIR 2020).

    Parameters
    ----------
    model
        The three factorisations, not fitted; by default :class:`MatrixFactorization`.
    epsilon
        The largest difference of two predictions that counts as agreement.
    n_rounds
        The number of rounds.
    candidates
        The number of cells drawn in each round, as a multiple of the log's length.
    n_steps
        The number of steps of each model in a round.
    n_threads, random_state, verbose
        As in :class:`MatrixFactorization`. With a seed, the three models start at it and at the
        two numbers after it.

    Attributes
    ----------
    factors_ : A0.
    agreed_ : the share of drawn cells that were labelled, in each round.
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
        The first fits of the three models are written every so many steps, and every round.
        ``engine`` is ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        self._check_settings()
        Instance(MatrixFactorization, allow_none=True)("model", self.model)
        model = copy(self.model or MatrixFactorization())
        seeds = draw_seeds(self.random_state, 3)
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
            last, agreed = _load_round(saved, log)
            for _ in agreed:
                self._draw_cells(log, rng)
            penalty = model._choose_penalty(*drop_unweighted(log, weight), workers=workers)
            if last is None:
                starts = [copy(model).set_params(random_state=seed) for seed in seeds]
                last = _fit_starts(starts, log, weight, workers, penalty, saved)
            stepping = copy(model).set_params(max_iter=self.n_steps)
            improve = partial(stepping._solve, workers=workers, penalty=penalty)
            label_penalty = penalty.scaled(NOISE_OF_LABELS) if model.l2 == "auto" else penalty
            for number in range(len(agreed), self.n_rounds):
                first, second = last.first, last.second
                labelled, share = self._label_cells(log, first, second, rng)
                show(f"round {number + 1}, {share:.0%} agreed")
                equal = np.full(len(labelled), log.n_cells / len(labelled))
                both, half = _join(log, labelled), np.concatenate([weight, equal]) / 2
                last = _ThreeModels(
                    improve(
                        labelled, equal, initial_factors=last.final, penalty=label_penalty
                    ).parameters,
                    improve(both, half, initial_factors=first).parameters,
                    improve(both, half, initial_factors=second).parameters,
                )
                agreed = (*agreed, share)
                if saved is not None:
                    save_state(saved, _TrainingState(last), agreed)
        self.agreed_ = agreed
        has_offsets, final = model.offsets != "none", last.final
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
        """The cells of one round, by number, in ascending order."""
        n_drawn = max(1, round(min(self.candidates * len(log), log.n_cells)))
        if n_drawn < log.n_cells:
            return np.sort(rng.choice(log.n_cells, n_drawn, replace=False))
        return np.arange(log.n_cells)

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
    first: Factors
    second: Factors


@dataclass(frozen=True, slots=True, eq=False)
class _TrainingState:
    """What a checkpoint keeps of a round, beside the shares of all rounds."""

    models: _ThreeModels


def _load_round(
    saved: Checkpoint | None, log: Ratings
) -> tuple[_ThreeModels | None, tuple[float, ...]]:
    """The models of the last round that was written, and the shares of labelled cells so far."""
    if saved is None or not saved.path.exists():
        return None, ()
    zeros = Factors(np.zeros((log.n_users, 0)), np.zeros((log.n_items, 0)))
    start = _TrainingState(_ThreeModels(zeros, zeros, zeros))
    last, agreed = load_state(saved, start, of_any_precision="models")
    _drop_starts(saved)
    return last.models, agreed


def _fit_starts(
    starts: Sequence[MatrixFactorization],
    log: Ratings,
    weight: Vector,
    workers: Workers,
    penalty: Penalty,
    saved: Checkpoint | None,
) -> _ThreeModels:
    """The three models before the first round, fitted to the log."""
    parts = [None] * 3 if saved is None else [saved.part(name) for name in STARTS]
    models = _ThreeModels(
        *(
            start._solve(log, weight, workers, penalty=penalty, checkpoint=part).parameters
            for start, part in zip(starts, parts, strict=True)
        )
    )
    if saved is not None:
        save_state(saved, _TrainingState(models), ())
        _drop_starts(saved)
    return models


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
