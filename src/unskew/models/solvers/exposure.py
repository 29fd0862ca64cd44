"""Expectation and maximisation for clicks that need exposure first, over all cells in blocks.

    A ~ Bernoulli(mu_i),    y | A = 1 ~ N(v_u . w_i, 1 / precision),    y = 0 where A = 0,    mu_i ~ Beta(a, b)

A click was seen for certain; silence at a cell means exposure with odds mu_i N(0; v_u . w_i, 1 / precision) : (1 - mu_i). Given
these chances, users and items are weighted ridge regressions on all cells, and mu_i is a mean. No step raises the negative log
posterior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.models.parameters import Floats, Parameters
from unskew.models.problem import Side
from unskew.threads import Workers
from unskew.types import Matrix, Vector

BLOCK_CELLS = 1 << 18
"""Cells whose chances are in memory at once, for each thread; at least those of one row."""
BLOCK_PARTNERS = 1 << 12
"""Partners whose products of factors are."""


@dataclass(frozen=True, slots=True, eq=False)
class Exposed:
    """What is fitted."""

    parameters: Parameters
    exposure: Vector
    """mu_i."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What is fitted, and the objective at it."""

    found: Exposed
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class ExposureSteps:
    """A solver of the negative log posterior; constants of the priors are left out of it."""

    by_user: Side
    """Clicks, each rated 1."""
    by_item: Side
    precision: float
    """Of y around v . w."""
    l2: float
    """Precision of the factors' normal prior."""
    prior: tuple[float, float]
    """a and b."""
    workers: Workers

    @property
    def n_steps(self) -> int:
        """Each is one."""
        return 1

    def start(self, found: Exposed, /) -> State:
        """At ``found``."""
        return State(found, self._objective(found))

    def advance(self, state: State, /) -> State:
        """Chances of exposure; then users, items and mu given them."""
        now, odds = state.found.parameters, self._log_odds(state.found.exposure)
        old_users, old_items = now.user_factors, now.item_factors
        users, _ = self._solve(self.by_user, old_users, old_items, odds, old_items)
        items, seen = self._solve(self.by_item, old_items, old_users, odds.T, users)
        a, b = self.prior
        exposure = (a - 1 + seen) / (a + b - 2 + len(users))
        found = Exposed(Parameters(users, items, now.user_offset, now.item_offset, now.constant), exposure)
        return State(found, self._objective(found))

    def value(self, state: State, /) -> float:
        """The negative log posterior."""
        return state.value

    def has_stalled(self, state: State, /) -> bool:  # noqa: ARG002
        """It never does."""
        return False

    def parameters(self, state: State, /) -> Exposed:
        """As they stand."""
        return state.found

    @property
    def _log_scale(self) -> float:
        """The log of a normal density at its mean."""
        return 0.5 * float(np.log(self.precision / (2 * np.pi)))

    def _log_odds(self, exposure: Vector) -> Floats:
        """Of having been exposed in spite of silence where v . w = 0: a view of one row, as if for every cell."""
        with np.errstate(divide="ignore"):
            of_items = np.log(exposure) - np.log1p(-exposure) + self._log_scale
        return np.broadcast_to(of_items.astype(self.by_user.dtype), (self.by_user.n_rows, self.by_item.n_rows))

    def _solve(self, side: Side, own: Floats, partners: Floats, log_odds: Floats, design: Floats) -> tuple[Floats, Vector]:
        """Every row's best factors on the design, and the sum of its chances, which come from ``own`` and ``partners``."""
        from unskew.kernels.rows import lines_of_zeros, multiply_rows

        n_factors = design.shape[1]
        lines, right = (lines_of_zeros(n, n_factors, side.dtype) for n in (len(design), side.n_rows))
        lines[:, :n_factors] = design
        solutions, totals = np.empty((side.n_rows, n_factors), side.dtype), np.empty(side.n_rows)
        ridge = self.l2 / self.precision * np.eye(n_factors)

        def work(rows: tuple[int, int]) -> None:
            part = slice(*rows)
            chance = self._chances(side, rows, own, partners, log_odds[part])
            multiply_rows(rows, side.cells, lines, right)
            normal = _weighted_grams(chance, lines[:, :n_factors]) + ridge
            solutions[part] = np.linalg.solve(normal, right[part, :n_factors, None].astype(np.float64))[:, :, 0]
            totals[part] = chance.sum(axis=1, dtype=np.float64)

        self.workers.map(work, _blocks(side.n_rows, len(design)))
        return solutions, totals

    def _chances(self, side: Side, rows: tuple[int, int], own: Floats, partners: Floats, log_odds: Floats) -> Floats:
        """P(A = 1 | y) of every cell of some rows."""
        from scipy.special import expit

        score = _scores(side, rows, own, partners)
        chance: Floats = expit(log_odds - 0.5 * self.precision * np.square(score))
        chance[_clicks(side, rows)] = 1
        return chance

    def _objective(self, found: Exposed) -> float:
        """Minus the log posterior."""
        from scipy.special import xlog1py, xlogy

        at, exposure, (a, b) = found.parameters, found.exposure, self.prior

        def work(rows: tuple[int, int]) -> float:
            return self._log_likelihood(rows, at.user_factors, at.item_factors, exposure)

        log_likelihood = sum(self.workers.map(work, _blocks(self.by_user.n_rows, self.by_item.n_rows)))
        log_prior = float((xlogy(a - 1, exposure) + xlog1py(b - 1, -exposure)).sum())
        return 0.5 * self.l2 * at.penalty(with_offsets=False) - log_likelihood - log_prior

    def _log_likelihood(self, rows: tuple[int, int], users: Floats, items: Floats, exposure: Vector) -> float:
        """Of some users' clicks, and of their silence."""
        score, is_click = _scores(self.by_user, rows, users, items), _clicks(self.by_user, rows)
        with np.errstate(divide="ignore"):
            seen, unseen = np.log(exposure) + self._log_scale, np.log1p(-exposure)
        of_cells = np.logaddexp(seen - 0.5 * self.precision * np.square(score), unseen)
        of_cells[is_click] = seen[is_click[1]] - 0.5 * self.precision * np.square(1 - score[is_click])
        return float(of_cells.sum(dtype=np.float64))


def _blocks(n_rows: int, n_partners: int) -> list[tuple[int, int]]:
    """Ranges of rows, the same whatever the number of threads."""
    size = max(1, BLOCK_CELLS // n_partners)
    return [(first, min(first + size, n_rows)) for first in range(0, n_rows, size)]


def _scores(side: Side, rows: tuple[int, int], own: Floats, partners: Floats) -> Floats:
    """Products v . w of every cell of some rows, in the precision of the fit."""
    dtype = side.dtype
    scores: Floats = own[slice(*rows)].astype(dtype, copy=False) @ partners.astype(dtype, copy=False).T
    return scores


def _clicks(side: Side, rows: tuple[int, int]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.integer]]:
    """Where the clicks of some rows are in their block."""
    starts = side.starts[rows[0] : rows[1] + 1]
    return np.repeat(np.arange(rows[1] - rows[0]), np.diff(starts)), side.partner[starts[0] : starts[-1]]


def _weighted_grams(weight: Floats, design: Floats) -> Matrix:
    """The sum over partners of weight x x', for every row of ``weight``, from the upper triangles of x x'."""
    n_factors = design.shape[1]
    upper, lower = np.triu_indices(n_factors)
    packed = np.zeros((len(weight), upper.size))
    for first in range(0, len(design), BLOCK_PARTNERS):
        x = design[first : first + BLOCK_PARTNERS]
        packed += weight[:, first : first + BLOCK_PARTNERS] @ (x[:, upper] * x[:, lower])
    grams = np.empty((len(weight), n_factors, n_factors))
    grams[:, upper, lower] = grams[:, lower, upper] = packed
    return grams
