"""Expectation and maximisation for clicks that need exposure first, over all cells in blocks.

    A ~ Bernoulli(mu_i),    y | A = 1 ~ N(v_u . w_i, 1 / precision),    y = 0 where A = 0,    mu_i ~ Beta(a, b)

A click was seen for certain; silence at a cell means exposure with odds mu_i N(0; v_u . w_i, 1 / precision) : (1 - mu_i). Given
these chances, users and items are weighted ridge regressions on all cells, and mu_i is a mean. No step raises the negative log
posterior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.factorization.objective import SortedCells
from unskew.factorization.parameters import Floats, Parameters
from unskew.threads import Workers
from unskew.types import Matrix, Vector

Range: TypeAlias = tuple[int, int]
Cells: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
LEAST_ROWS, MOST_ROWS = 64, 512
"""Rows whose chances are in memory at once, for each thread: enough to pay for the products of their partners' factors."""
TASKS = 16
"""Where there are fewer rows, as many blocks, so that no thread is idle."""
BLOCK_PARTNERS = 256
"""Partners of them: so few that the chances stay in the cache, and that as many numbers from 1 to 2 have a finite product."""
BLOCK_PRODUCTS = 1 << 20
"""Products of two factors in memory at once, of a block's rows and of its partners each: with many factors blocks are smaller."""


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

    by_user: SortedCells
    """Clicks, each rated 1."""
    by_item: SortedCells
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
        found = Exposed(
            Parameters(users, items, now.user_offset, now.item_offset, now.constant), exposure
        )
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
        return np.broadcast_to(
            of_items.astype(self.by_user.dtype), (self.by_user.n_rows, self.by_item.n_rows)
        )

    def _solve(
        self, side: SortedCells, own: Floats, partners: Floats, log_odds: Floats, design: Floats
    ) -> tuple[Floats, Vector]:
        """Every row's best factors on the design, and the sum of its chances, which come from ``own`` and ``partners``."""
        from unskew.kernels.rows import lines_of_zeros, multiply_rows

        n_factors = design.shape[1]
        lines, right = (
            lines_of_zeros(n, n_factors, side.dtype) for n in (len(design), side.n_rows)
        )
        lines[:, :n_factors] = design
        columns = np.ascontiguousarray(lines[:, :n_factors].T)
        solutions, totals = np.empty((side.n_rows, n_factors), side.dtype), np.empty(side.n_rows)
        ridge = self.l2 / self.precision * np.eye(n_factors)

        def work(rows: Range) -> None:
            part = slice(*rows)
            grams, totals[part] = self._weighted_grams(side, rows, own, partners, log_odds, columns)
            multiply_rows(rows, side.cells, lines, right)
            grams += ridge
            solutions[part] = np.linalg.solve(
                grams, right[part, :n_factors, None].astype(np.float64)
            )[:, :, 0]

        self.workers.map(work, _row_blocks(side.n_rows, n_factors))
        return solutions, totals

    def _weighted_grams(
        self,
        side: SortedCells,
        rows: Range,
        own: Floats,
        partners: Floats,
        log_odds: Floats,
        columns: Floats,
    ) -> tuple[Matrix, Vector]:
        """The sum over partners of chance x x', and of the chance, for each of some rows; ``columns`` hold an x each."""
        n_rows, n_factors = rows[1] - rows[0], len(columns)
        packed, total = np.zeros((n_rows, n_factors * (n_factors + 1) // 2)), np.zeros(n_rows)
        clicks = _Clicks.of(side, rows)
        for block in _blocks(len(partners), BLOCK_PARTNERS, n_factors):
            score = self._scores(own[slice(*rows)], partners[slice(*block)])
            chance = self._predict_codes(score, log_odds[slice(*rows), slice(*block)])
            chance[clicks.within(block)] = 1
            packed += chance @ _products(columns[:, slice(*block)]).T
            total += chance.sum(axis=1, dtype=np.float64)
        return _unpacked(packed, n_factors), total

    @property
    def _root(self) -> float:
        """Scores are multiples of 1 / root, so that minus their square is the exponent of the normal density."""
        return float(np.sqrt(0.5 * self.precision))

    def _scores(self, own: Floats, partners: Floats) -> Floats:
        """Products v . w times root, of some rows with some partners, in the precision of the fit."""
        dtype = self.by_user.dtype
        scores: Floats = (self._root * own).astype(dtype, copy=False) @ partners.astype(
            dtype, copy=False
        ).T
        return scores

    def _predict_codes(self, score: Floats, log_odds: Floats) -> Floats:
        """P(A = 1 | y = 0) of some cells, in the place of their scores."""
        np.square(score, out=score)
        score -= log_odds
        with np.errstate(over="ignore"):
            np.exp(score, out=score)
        score += 1
        return np.reciprocal(score, out=score)

    def _objective(self, found: Exposed) -> float:
        """Minus the log posterior."""
        from scipy.special import xlog1py, xlogy

        at, exposure, (a, b) = found.parameters, found.exposure, self.prior

        def work(rows: Range) -> float:
            clicks, blocks = (
                _Clicks.of(self.by_user, rows),
                _blocks(len(exposure), BLOCK_PARTNERS, at.item_factors.shape[1]),
            )
            return sum(
                self._log_likelihood(rows, block, at, exposure, clicks.within(block))
                for block in blocks
            )

        log_likelihood = sum(
            self.workers.map(work, _row_blocks(self.by_user.n_rows, at.user_factors.shape[1]))
        )
        log_prior = float((xlogy(a - 1, exposure) + xlog1py(b - 1, -exposure)).sum())
        return 0.5 * self.l2 * at.penalty(with_offsets=False) - log_likelihood - log_prior

    def _log_likelihood(
        self, rows: Range, block: Range, at: Parameters, exposure: Vector, is_click: Cells
    ) -> float:
        """Of some users' clicks, and of their silence, at some items: log(e^s + e^t) = max + log(1 + e^(min - max))."""
        score = self._scores(at.user_factors[slice(*rows)], at.item_factors[slice(*block)]).astype(
            np.float64, copy=False
        )
        with np.errstate(divide="ignore"):
            seen, unseen = (
                np.log(exposure[slice(*block)]) + self._log_scale,
                np.log1p(-exposure[slice(*block)]),
            )
        of_clicks = seen[is_click[1]] - np.square(self._root - score[is_click])
        np.subtract(seen, np.square(score, out=score), out=score)
        larger, smaller = np.maximum(score, unseen), np.minimum(score, unseen, out=score)
        factor = np.exp(np.subtract(smaller, larger, out=score), out=score)
        factor += 1
        larger[is_click], factor[is_click] = of_clicks, 1
        return float(larger.sum() + np.log(np.multiply.reduce(factor, axis=1)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Clicks:
    """Where the clicks of some rows are, by partner."""

    row: npt.NDArray[np.intp]
    """Counted from the first of the rows."""
    partner: npt.NDArray[np.intp]

    @classmethod
    def of(cls, side: SortedCells, rows: Range) -> _Clicks:
        starts = side.starts[rows[0] : rows[1] + 1]
        row, partner = (
            np.repeat(np.arange(rows[1] - rows[0]), np.diff(starts)),
            side.partner[starts[0] : starts[-1]],
        )
        order = np.argsort(partner, kind="stable")
        return cls(row[order], partner[order].astype(np.intp))

    def within(self, block: Range) -> Cells:
        """Those at some partners, counted from the first of them."""
        held = slice(*np.searchsorted(self.partner, block))
        return self.row[held], self.partner[held] - block[0]


def _row_blocks(n_rows: int, n_factors: int) -> list[Range]:
    return _blocks(n_rows, min(MOST_ROWS, max(LEAST_ROWS, -(-n_rows // TASKS))), n_factors)


def _blocks(n: int, most: int, n_factors: int) -> list[Range]:
    """Ranges of rows or of partners, the same whatever the number of threads."""
    size = max(1, min(most, BLOCK_PRODUCTS // (n_factors * (n_factors + 1) // 2)))
    return [(first, min(first + size, n)) for first in range(0, n, size)]


def _products(columns: Floats) -> Floats:
    """The upper triangle of x x' for every column x, row of the triangle by row."""
    n_factors, n = columns.shape
    products, first = np.empty((n_factors * (n_factors + 1) // 2, n), columns.dtype), 0
    for factor in range(n_factors):
        end = first + n_factors - factor
        np.multiply(columns[factor], columns[factor:], out=products[first:end])
        first = end
    return products


def _unpacked(packed: Matrix, n_factors: int) -> Matrix:
    """Symmetric matrices of which each line holds the upper triangle."""
    upper, lower = np.triu_indices(n_factors)
    whole = np.empty((len(packed), n_factors, n_factors))
    whole[:, upper, lower] = whole[:, lower, upper] = packed
    return whole
