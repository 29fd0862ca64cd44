"""Asymmetric tri-training: two models label cells for a third."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.errors import UsageError
from unskew.factorization.parameters import Parameters
from unskew.factorization.weights import training_propensities, weighted_mean
from unskew.models.factored import FactorRecommender
from unskew.models.imputation import values_at
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.progress import progress_line
from unskew.threads import Workers, single_blas_thread


class TriTraining(FactorRecommender):
    """A model fitted to cells on which two others, fitted to the log, agree.

    A1 and A2 are weighted factorisations from different starts, A0 is the result; all are first fitted to the log. Then, for some
    rounds, cells are drawn from all there are, those with abs(A1 - A2) <= ``epsilon`` are labelled by A1, and

        A0 minimises            sum over labelled cells of (A1 - A0)^2  +  penalty,
        A1 and A2 each improve  the same for themselves and the weighted loss on the log, half of the weight to each.

    If the two agree everywhere, A0 becomes a plain factorisation of A1 over all cells; its error there is at most that of A1 plus
    how far it is from A1 (the bound behind the method), and large weights of the log do not enter it again (Y. Saito,
    *Asymmetric tri-training for debiasing missing-not-at-random explicit feedback*, SIGIR 2020).

    Parameters
    ----------
    model
        What the three are, not fitted; by default :class:`MatrixFactorization` as it comes.
    epsilon
        How far apart two predictions may be to count as agreed.
    n_rounds
        How often cells are drawn and labelled.
    candidates
        Cells that are drawn each time, as a multiple of the log.
    n_steps
        Steps of each model in a round.
    n_threads, random_state, verbose
        As in :class:`MatrixFactorization`; the three start at ``random_state`` and the two numbers after it.

    Attributes
    ----------
    parameters_ : A0.
    agreed_ : the share of drawn cells that were labelled, round by round.
    """

    agreed_: tuple[float, ...]

    def __init__(
        self,
        model: MatrixFactorization | None = None,
        *,
        epsilon: float = 0.2,
        n_rounds: int = 5,
        candidates: float = 5.0,
        n_steps: int = 5,
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.epsilon = epsilon
        self.n_rounds = n_rounds
        self.candidates = candidates
        self.n_steps = n_steps
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, log: Ratings, propensities: PropensitiesLike | None = None) -> Self:
        """Fit to a log, weighted by inverse propensities where they are given."""
        require_log(log)
        self._check()
        model, rng = self.model or MatrixFactorization(), np.random.default_rng(self.random_state)
        propensity = training_propensities(
            log, propensities, model.normalize, model.weight_transform
        )
        weight = 1 / propensity
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as line,
        ):
            starts = (
                copy(model).set_params(random_state=self.random_state + place) for place in range(3)
            )
            final, first, second = (each.solve(log, weight, workers).parameters for each in starts)
            stepping, agreed = copy(model).set_params(max_iter=self.n_steps), []
            for number in range(self.n_rounds):
                labelled, share = self._label(log, first, second, rng)
                line(f"round {number + 1}, {share:.0%} agreed")
                alike = np.full(len(labelled), log.n_cells / len(labelled))
                final = stepping.solve(labelled, alike, workers, warm_start=final).parameters
                both, half = _joined(log, labelled), np.concatenate([weight, alike]) / 2
                first = stepping.solve(both, half, workers, warm_start=first).parameters
                second = stepping.solve(both, half, workers, warm_start=second).parameters
                agreed.append(share)
        self.agreed_ = tuple(agreed)
        self._remember(
            log,
            final,
            weighted_mean(log.rating, propensity) if model.offsets == "none" else final.constant,
        )
        return self

    def _check(self) -> None:
        for name in ("n_rounds", "n_steps"):
            whole_number(name, getattr(self, name), least=1)
        for name in ("epsilon", "candidates"):
            value = getattr(self, name)
            if not (is_finite_number(value) and value > 0):
                raise UsageError(f"{name} must be a finite number above 0; got {value!r}.")

    def _label(
        self, log: Ratings, first: Parameters, second: Parameters, rng: np.random.Generator
    ) -> tuple[Ratings, float]:
        """Random cells on which the two agree, labelled by the first, and what share of those drawn they are."""
        n_drawn = min(log.n_cells, max(1, round(self.candidates * len(log))))
        cells = (
            rng.choice(log.n_cells, n_drawn, replace=False)
            if n_drawn < log.n_cells
            else np.arange(log.n_cells)
        )
        user, item = (cells // log.n_items).astype(np.int32), (cells % log.n_items).astype(np.int32)
        label = values_at(first, user, item)
        kept = np.abs(label - values_at(second, user, item)) <= self.epsilon
        if not kept.any():
            raise UsageError(
                f"the two models agree within epsilon={self.epsilon:g} on none of {n_drawn} cells. Raise it."
            )
        return replace(log, user=user[kept], item=item[kept], rating=label[kept]), float(
            kept.mean()
        )


def _joined(log: Ratings, labelled: Ratings) -> Ratings:
    """The cells of both; one that is in both counts twice."""
    user, item = (
        np.concatenate([log.user, labelled.user]),
        np.concatenate([log.item, labelled.item]),
    )
    return replace(log, user=user, item=item, rating=np.concatenate([log.rating, labelled.rating]))
