"""Asymmetric tri-training: two models label cells for a third."""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np

from unskew.data.cells import user_and_item
from unskew.data.factors import Factors
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import drop_unweighted, training_weights, weighted_mean
from unskew.errors import UsageError
from unskew.models import RECOMMENDERS
from unskew.models.factor_recommender import FactorRecommender
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.progress import progress_line
from unskew.settings import Instance, Number, WholeNumber, check_random_state, draw_seeds, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import RandomState

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
    again. With the default model it is usually worse than that model: A0 repeats the errors of A1,
    and cells on which A1 and A2 disagree teach it nothing (Y. Saito, *Asymmetric
    tri-training for debiasing missing-not-at-random explicit
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

    def fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Fit to a log, weighted by inverse propensities if they are passed."""
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
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as show,
        ):
            penalty = model._choose_penalty(*drop_unweighted(log, weight), workers=workers)
            starts = (copy(model).set_params(random_state=seed) for seed in seeds)
            final, first, second = (
                start._solve(log, weight, workers, penalty=penalty).parameters for start in starts
            )
            stepping, agreed = copy(model).set_params(max_iter=self.n_steps), []
            improve = partial(stepping._solve, workers=workers, penalty=penalty)
            of_labels = penalty.scaled(NOISE_OF_LABELS) if model.l2 == "auto" else penalty
            for number in range(self.n_rounds):
                labelled, share = self._label_cells(log, first, second, rng)
                show(f"round {number + 1}, {share:.0%} agreed")
                equal = np.full(len(labelled), log.n_cells / len(labelled))
                final = improve(
                    labelled, equal, initial_factors=final, penalty=of_labels
                ).parameters
                both, half = _join(log, labelled), np.concatenate([weight, equal]) / 2
                first = improve(both, half, initial_factors=first).parameters
                second = improve(both, half, initial_factors=second).parameters
                agreed.append(share)
        self.agreed_ = tuple(agreed)
        has_offsets = model.offsets != "none"
        fallback = final.global_offset if has_offsets else weighted_mean(log.rating, weight)
        self._record_factors(log, final, fallback)
        self.rating_range_ = model._find_range(log)
        return self

    def _label_cells(
        self, log: Ratings, first: Factors, second: Factors, rng: np.random.Generator
    ) -> tuple[Ratings, float]:
        """Random cells on which two models agree, labelled by the first, and their share."""
        n_drawn = max(1, round(min(self.candidates * len(log), log.n_cells)))
        cells = (
            rng.choice(log.n_cells, n_drawn, replace=False)
            if n_drawn < log.n_cells
            else np.arange(log.n_cells)
        )
        user, item = user_and_item(cells, log.n_items)
        label = first.predict(user, item)
        agrees = np.abs(label - second.predict(user, item)) <= self.epsilon
        if not agrees.any():
            raise UsageError(
                f"the two models agree within `epsilon={self.epsilon:g}` on none of {n_drawn} "
                "cells.",
                parameter="epsilon",
                value=self.epsilon,
                remedy="Raise `epsilon`.",
            )
        labelled = replace(log, user=user[agrees], item=item[agrees], rating=label[agrees])
        return labelled, float(agrees.mean())


def _join(log: Ratings, labelled: Ratings) -> Ratings:
    """The cells of both logs; a cell that is in both counts twice."""
    return replace(
        log,
        user=np.concatenate([log.user, labelled.user]),
        item=np.concatenate([log.item, labelled.item]),
        rating=np.concatenate([log.rating, labelled.rating]),
    )
