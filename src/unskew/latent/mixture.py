"""Expectation-maximization (EM) for a mixture of user clusters over all cells.

B_kir is the probability of rating r of item i in cluster k, mu_ir the probability that a cell with
this rating is observed, and m_ki = sum_r (1 - mu_ir) B_kir the probability that a cell is
unobserved. The expectation step computes the responsibilities q_uk = P(cluster k | ratings of u):

    log q_uk = log theta_k + sum_i log m_ki + sum over u's ratings of [log mu + log B - log m]
               - normalizer.

The sum over all cells is shared by all users, so a sweep costs no more than the observed cells.

The maximization step solves for theta and B exactly, with the ratings of unobserved cells
marginalized instead of imputed. It has the same optima as the textbook's step and needs far fewer
sweeps. Then it updates mu. No sweep lowers the posterior.

All random starts advance together, one sweep each, so that a checkpoint holds all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.cells import group_rows, split_groups
from unskew.data.ratings import Ratings
from unskew.factorization.solution import Solver, StopReason
from unskew.latent.missingness import LevelCodes, MissingAtRandom, SelectionEffects
from unskew.threads import Workers
from unskew.types import IntVector, Matrix, RowStarts, Vector

WINDOW = 3
"""Sweeps over which convergence is checked."""
PIECES_PER_THREAD = 4


@dataclass(frozen=True, slots=True, eq=False)
class CellsBySlot:
    """The log grouped by user and by slot.

    A slot is a pair of an item and a rating level, ``item * n_levels + level``.
    """

    user_starts: RowStarts
    slots: npt.NDArray[np.int64]
    """The slots of the cells of each user."""
    slot_starts: RowStarts
    users: IntVector
    """The users of the cells of each slot."""
    n_levels: int

    @classmethod
    def of(cls, log: Ratings, level: LevelCodes, n_levels: int) -> CellsBySlot:
        """Cells of the same user or slot keep the order of the log."""
        slot = log.item.astype(np.int64) * n_levels + level
        user_starts, user_order = group_rows(log.user, log.n_users)
        slot_starts, slot_order = group_rows(slot, log.n_items * n_levels)
        return cls(user_starts, slot[user_order], slot_starts, log.user[slot_order], n_levels)

    @property
    def n_users(self) -> int:
        """All users, also those without a rating."""
        return self.user_starts.size - 1

    @property
    def n_items(self) -> int:
        """All items, also those without a rating."""
        return (self.slot_starts.size - 1) // self.n_levels


@dataclass(frozen=True, slots=True, eq=False)
class MixtureParameters:
    """The parameters of one mixture."""

    cluster_weights: Vector
    """theta: the probability of each cluster."""
    rating_probabilities: Matrix
    """B: slots x clusters. The levels of an item add up to 1."""
    effects: SelectionEffects


@dataclass(frozen=True, slots=True, eq=False)
class EMState:
    """All starts, along the first axis of each array."""

    cluster_weights: Matrix
    rating_probabilities: npt.NDArray[np.float64]
    value_effects: Matrix
    item_effects: Matrix
    responsibilities: npt.NDArray[np.float64]
    """q: starts x users x clusters."""
    recent: Matrix
    """The objective after the last few sweeps, the latest last."""

    def mixture(self, start: int) -> MixtureParameters:
        """The parameters of one start."""
        return MixtureParameters(
            self.cluster_weights[start],
            self.rating_probabilities[start],
            SelectionEffects(self.value_effects[start], self.item_effects[start]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class EMSolver(Solver[EMState, tuple[MixtureParameters, ...]]):
    """EM from several starts. The objective is the negative log posterior, up to a constant."""

    cells: CellsBySlot
    mechanism: MissingAtRandom
    smoothing: float
    """Pseudo-counts: a Dirichlet prior of 1 + smoothing, for theta and for each B_ki."""
    tol: float
    workers: Workers

    def start(self, mixtures: tuple[MixtureParameters, ...], /) -> EMState:
        return self._expectation_step(mixtures, np.full((len(mixtures), WINDOW + 1), np.inf))

    def advance(self, state: EMState, /) -> EMState:
        """One sweep of every start."""
        mixtures = tuple(
            self._maximization_step(state.mixture(start), responsibilities)
            for start, responsibilities in enumerate(state.responsibilities)
        )
        return self._expectation_step(mixtures, state.recent)

    def value(self, state: EMState, /) -> float:
        """The objective of the best start."""
        return float(state.recent[:, -1].min())

    def stop_reason(self, state: EMState, /) -> StopReason | None:
        """Converged if every start has converged.

        A start has converged if its last sweeps lowered its objective by at most ``tol`` times
        its size per sweep.
        """
        decrease = state.recent[:, 0] - state.recent[:, -1]
        has_converged = (decrease <= self.tol * WINDOW * np.abs(state.recent[:, -1])).all()
        return "converged" if has_converged else None

    def parameters(self, state: EMState, /) -> tuple[MixtureParameters, ...]:
        """All mixtures, the best first."""
        order = np.argsort(state.recent[:, -1], kind="stable").tolist()
        return tuple(state.mixture(start) for start in order)

    def responsibilities(self, mixture: MixtureParameters) -> Matrix:
        """q of one mixture, users x clusters."""
        return self._evaluate(mixture)[0]

    def _expectation_step(self, mixtures: tuple[MixtureParameters, ...], recent: Matrix) -> EMState:
        responsibilities, values = zip(
            *(self._evaluate(mixture) for mixture in mixtures), strict=True
        )
        return EMState(
            np.stack([mixture.cluster_weights for mixture in mixtures]),
            np.stack([mixture.rating_probabilities for mixture in mixtures]),
            np.stack([mixture.effects.value for mixture in mixtures]),
            np.stack([mixture.effects.item for mixture in mixtures]),
            np.stack(responsibilities),
            np.column_stack([recent[:, 1:], values]),
        )

    def _evaluate(self, mixture: MixtureParameters) -> tuple[Matrix, float]:
        """The responsibilities and the objective."""
        from unskew.kernels.mixture import fill_responsibilities

        cells, n_clusters = self.cells, mixture.cluster_weights.size
        log_observed, log_unobserved = self.mechanism.log_probabilities(mixture.effects)
        log_ratings = np.log(mixture.rating_probabilities)
        log_m = np.log(self._p_unobserved(mixture.rating_probabilities, np.exp(log_unobserved)))
        log_terms = (
            log_ratings + log_observed.reshape(-1, 1) - np.repeat(log_m, cells.n_levels, axis=0)
        )
        log_prior = np.log(mixture.cluster_weights) + log_m.sum(axis=0)
        responsibilities = np.empty((cells.n_users, n_clusters))
        log_evidence = np.empty(cells.n_users)
        self.workers.map(
            lambda users: fill_responsibilities(
                cells.user_starts,
                cells.slots,
                log_prior,
                log_terms,
                *users,
                responsibilities,
                log_evidence,
            ),
            self._split(cells.user_starts),
        )
        dirichlet = float(log_ratings.sum() + np.log(mixture.cluster_weights).sum())
        prior = self.smoothing * dirichlet + self.mechanism.log_prior(mixture.effects)
        return responsibilities, -(float(log_evidence.sum()) + prior)

    def _maximization_step(
        self, mixture: MixtureParameters, responsibilities: Matrix
    ) -> MixtureParameters:
        """The best theta and B given q; then an update of the selection effects given those."""
        from unskew.kernels.mixture import count_ratings, maximize_rating_probabilities

        cells = self.cells
        counts = np.empty_like(mixture.rating_probabilities)
        probabilities = np.empty_like(mixture.rating_probabilities)
        self.workers.map(
            lambda slots: count_ratings(
                cells.slot_starts, cells.users, responsibilities, *slots, counts
            ),
            self._split(cells.slot_starts),
        )
        sizes = responsibilities.sum(axis=0)
        p_unobserved = np.exp(self.mechanism.log_probabilities(mixture.effects)[1])
        self.workers.map(
            lambda items: maximize_rating_probabilities(
                counts, sizes, p_unobserved, self.smoothing, *items, probabilities
            ),
            self._split(np.arange(cells.n_items + 1)),
        )
        weights = (sizes + self.smoothing) / (sizes + self.smoothing).sum()
        effects = self._update_effects(mixture.effects, counts, probabilities, sizes, p_unobserved)
        return MixtureParameters(weights, probabilities, effects)

    def _update_effects(
        self,
        effects: SelectionEffects,
        counts: Matrix,
        probabilities: Matrix,
        sizes: Vector,
        p_unobserved: Matrix,
    ) -> SelectionEffects:
        """The mechanism's update, given the expected number of unobserved cells of each level.

        That number is the sum over clusters of M_ki (1 - mu_ir) B_kir / m_ki, where M_ki is the
        number of unobserved cells of item i in cluster k.
        """
        by_item = (self.cells.n_items, self.cells.n_levels, sizes.size)
        n_unobserved = np.maximum(sizes - counts.reshape(by_item).sum(axis=1), 0.0)
        ratio = n_unobserved / self._p_unobserved(probabilities, p_unobserved)
        expected = p_unobserved * np.einsum("ik,irk->ir", ratio, probabilities.reshape(by_item))
        observed = counts.sum(axis=1).reshape(p_unobserved.shape)
        return self.mechanism.update(effects, observed, expected)

    def _p_unobserved(self, probabilities: Matrix, p_unobserved: Matrix) -> Matrix:
        """m_ki = sum_r (1 - mu_ir) B_kir, items x clusters."""
        by_item = probabilities.reshape(*p_unobserved.shape, -1)
        m: Matrix = np.einsum("ir,irk->ik", p_unobserved, by_item)
        return m

    def _split(self, starts: RowStarts) -> list[tuple[int, int]]:
        """Ranges of rows with about equal numbers of cells, a few for each thread."""
        n_threads = self.workers.n_threads
        return split_groups(starts, PIECES_PER_THREAD * n_threads if n_threads > 1 else 1)


def draw_mixture(
    cells: CellsBySlot,
    effects: SelectionEffects,
    *,
    n_clusters: int,
    smoothing: float,
    seed: tuple[int, int],
) -> MixtureParameters:
    """A mixture drawn from its Dirichlet priors, with the given selection effects."""
    rng = np.random.default_rng(seed)
    sizes = rng.gamma(1 + smoothing, size=n_clusters)
    levels = rng.gamma(1 + smoothing, size=(cells.n_items, cells.n_levels, n_clusters))
    probabilities = levels / levels.sum(axis=1, keepdims=True)
    return MixtureParameters(sizes / sizes.sum(), probabilities.reshape(-1, n_clusters), effects)
