"""Expectation-maximisation for a mixture of users' clusters over all cells, logged or not, at the cost of the logged ones.

With B_kir the chance of rating r of item i in cluster k, mu_ir that of a cell so rated to be logged, and
m_ki = sum_r (1 - mu_ir) B_kir that of an unlogged cell,

    log q_uk = log theta_k + sum_i log m_ki + sum over u's ratings of [log mu + log B - log m] - normaliser.

Given q, theta and B are solved exactly, with the ratings of unlogged cells summed out rather than imputed: the same optima as
the textbook's step in far fewer sweeps. Then mu is improved. All starts go side by side, a sweep each, and the best one counts:
so a checkpoint holds them all. No sweep makes any of them worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings
from unskew.latent.mechanisms import Effects, Mechanism
from unskew.latent.value_effects import Codes
from unskew.threads import Workers
from unskew.types import IntVector, Matrix, Vector

FLAT_SWEEPS = 3
PIECES_A_THREAD = 4
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The log by user and by slot: an item and a rating level, ``item * n_levels + level``."""

    user_starts: Offsets
    slots: Offsets
    """Of the cells of each user."""
    slot_starts: Offsets
    users: IntVector
    """Of the cells of each slot."""
    n_levels: int

    @classmethod
    def of(cls, log: Ratings, level: Codes, n_levels: int) -> Cells:
        """Both orders keep that of the log among equals."""
        slot = log.item.astype(np.int64) * n_levels + level
        return cls(
            _starts(log.user, log.n_users),
            slot[np.argsort(log.user, kind="stable")],
            _starts(slot, log.n_items * n_levels),
            log.user[np.argsort(slot, kind="stable")],
            n_levels,
        )

    @property
    def n_users(self) -> int:
        """Those without a rating included."""
        return self.user_starts.size - 1

    @property
    def n_items(self) -> int:
        """Those without a rating included."""
        return (self.slot_starts.size - 1) // self.n_levels


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """One mixture."""

    sizes: Vector
    """theta, the share of users in each cluster."""
    levels: Matrix
    """B: a row a slot, a column a cluster; the levels of an item add up to 1."""
    effects: Effects


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """All starts, one a row of each array."""

    sizes: Matrix
    levels: npt.NDArray[np.float64]
    value_effects: Matrix
    item_effects: Matrix
    shares: npt.NDArray[np.float64]
    """q: users x clusters."""
    recent: Matrix
    """The objective after the last few sweeps, the latest last."""

    def clusters(self, start: int) -> Clusters:
        """The mixture of one start."""
        return Clusters(
            self.sizes[start],
            self.levels[start],
            Effects(self.value_effects[start], self.item_effects[start]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """A solver whose objective is the negative log posterior, up to a constant."""

    cells: Cells
    mechanism: Mechanism
    smoothing: float
    """Pseudo-counts: a Dirichlet prior of 1 + smoothing, for theta and for each B_ki."""
    tol: float
    workers: Workers

    @property
    def n_steps(self) -> int:
        """Each is one."""
        return 1

    def start(self, starts: tuple[Clusters, ...], /) -> State:
        """Nothing is known of the sweeps before."""
        return self._measured(starts, np.full((len(starts), FLAT_SWEEPS + 1), np.inf))

    def advance(self, state: State, /) -> State:
        """One sweep of every start."""
        better = tuple(
            self._maximized(state.clusters(start), shares)
            for start, shares in enumerate(state.shares)
        )
        return self._measured(better, state.recent)

    def value(self, state: State, /) -> float:
        """Of the best start."""
        return float(state.recent[:, -1].min())

    def has_stalled(self, state: State, /) -> bool:
        """Whether the last few sweeps of every start lowered its objective by no more than ``tol`` of it a sweep."""
        gain = state.recent[:, 0] - state.recent[:, -1]
        return bool((gain <= self.tol * FLAT_SWEEPS * np.abs(state.recent[:, -1])).all())

    def parameters(self, state: State, /) -> tuple[Clusters, ...]:
        """All mixtures, the best first."""
        return tuple(
            state.clusters(start)
            for start in np.argsort(state.recent[:, -1], kind="stable").tolist()
        )

    def shares(self, clusters: Clusters) -> Matrix:
        """Of each user in the clusters of one mixture, q."""
        return self._expected(clusters)[0]

    def _measured(self, starts: tuple[Clusters, ...], recent: Matrix) -> State:
        shares, values = zip(*(self._expected(clusters) for clusters in starts), strict=True)
        return State(
            np.stack([each.sizes for each in starts]),
            np.stack([each.levels for each in starts]),
            np.stack([each.effects.value for each in starts]),
            np.stack([each.effects.item for each in starts]),
            np.stack(shares),
            np.column_stack([recent[:, 1:], values]),
        )

    def _expected(self, now: Clusters) -> tuple[Matrix, float]:
        """q, and the objective."""
        from unskew.kernels.mixture import share_clusters

        cells = self.cells
        log_logged, log_unlogged = self.mechanism.log_chances(now.effects)
        log_levels = np.log(now.levels)
        log_left = np.log(self._left(now.levels, np.exp(log_unlogged)))
        table = log_levels + log_logged.reshape(-1, 1) - np.repeat(log_left, cells.n_levels, axis=0)
        begin = np.log(now.sizes) + log_left.sum(axis=0)
        shares, evidence = np.empty((cells.n_users, now.sizes.size)), np.empty(cells.n_users)
        self.workers.map(
            lambda users: share_clusters(
                cells.user_starts, cells.slots, begin, table, *users, shares, evidence
            ),
            self._pieces(cells.user_starts),
        )
        prior = self.smoothing * float(
            log_levels.sum() + np.log(now.sizes).sum()
        ) + self.mechanism.log_prior(now.effects)
        return shares, -(float(evidence.sum()) + prior)

    def _maximized(self, now: Clusters, shares: Matrix) -> Clusters:
        """Theta and B at their best given q; then mu, given those."""
        from unskew.kernels.mixture import count_clusters, solve_levels

        cells, counts, levels = self.cells, np.empty_like(now.levels), np.empty_like(now.levels)
        self.workers.map(
            lambda slots: count_clusters(cells.slot_starts, cells.users, shares, *slots, counts),
            self._pieces(cells.slot_starts),
        )
        weights = shares.sum(axis=0)
        unlogged = np.exp(self.mechanism.log_chances(now.effects)[1])
        self.workers.map(
            lambda items: solve_levels(counts, weights, unlogged, self.smoothing, *items, levels),
            self._pieces(np.arange(cells.n_items + 1)),
        )
        sizes = (weights + self.smoothing) / (weights + self.smoothing).sum()
        return Clusters(
            sizes, levels, self._selected(now.effects, counts, levels, weights, unlogged)
        )

    def _selected(
        self, effects: Effects, counts: Matrix, levels: Matrix, weights: Vector, unlogged: Matrix
    ) -> Effects:
        """Better effects, given the expected level of unlogged cells: M_ki (1 - mu_ir) B_kir / m_ki of each."""
        by_item = (self.cells.n_items, self.cells.n_levels, weights.size)
        missing = np.maximum(weights - counts.reshape(by_item).sum(axis=1), 0.0) / self._left(
            levels, unlogged
        )
        expected = unlogged * np.einsum("ik,irk->ir", missing, levels.reshape(by_item))
        return self.mechanism.improved(
            effects, counts.sum(axis=1).reshape(unlogged.shape), expected
        )

    def _left(self, levels: Matrix, unlogged: Matrix) -> Matrix:
        """m: items x clusters."""
        left: Matrix = np.einsum("ir,irk->ik", unlogged, levels.reshape(*unlogged.shape, -1))
        return left

    def _pieces(self, starts: Offsets) -> list[tuple[int, int]]:
        """Ranges of rows with about equal numbers of cells, a few for each thread."""
        n_pieces = PIECES_A_THREAD * self.workers.n_threads if self.workers.n_threads > 1 else 1
        cuts = np.searchsorted(starts, np.linspace(0, starts[-1], n_pieces + 1)[1:-1])
        return list(pairwise(np.unique(np.concatenate([[0], cuts, [starts.size - 1]])).tolist()))


def _starts(code: npt.NDArray[np.integer], n: int) -> Offsets:
    starts = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(code, minlength=n), out=starts[1:])
    return starts


def draw(
    cells: Cells, effects: Effects, *, n_clusters: int, smoothing: float, seeds: tuple[int, int]
) -> Clusters:
    """Clusters drawn from their prior, the effects as given."""
    rng = np.random.default_rng(seeds)
    sizes = rng.gamma(1 + smoothing, size=n_clusters)
    levels = rng.gamma(1 + smoothing, size=(cells.n_items, cells.n_levels, n_clusters))
    shares = levels / levels.sum(axis=1, keepdims=True)
    return Clusters(sizes / sizes.sum(), shares.reshape(-1, n_clusters), effects)
