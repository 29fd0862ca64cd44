"""1-bit matrix completion by factors: logit P = c + Q S', never held as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import OptimizeResult, minimize
from scipy.special import logit

from unskew.errors import UsageError
from unskew.propensity.low_rank.bits import Bits
from unskew.propensity.low_rank.nuclear import balance
from unskew.threads import Workers
from unskew.types import BoolVector, IntVector, Matrix, Vector

BLOCK_CELLS = 1 << 17
START_SCALE = 0.1
MEMORY = 20
"""Steps that L-BFGS remembers."""
N_PARTS = 10
"""A split holds out one of so many parts of the cells."""


@dataclass(frozen=True, slots=True, eq=False)
class Logits:
    """logit P_ui = c + q_u . s_i."""

    intercept: float
    user: Matrix
    item: Matrix

    def block(self, rows: slice) -> Matrix:
        """Those of some rows."""
        logits: Matrix = self.user[rows] @ self.item.T
        logits += self.intercept
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """All cells of D, or those that one part of a split of them keeps or holds out.

    Users and items have labels 0 to N_PARTS - 1, drawn at random; a cell is held out where its two labels add up to a multiple
    of N_PARTS. So each row and column loses an equal share, and no array of cells is kept.
    """

    bits: Bits
    user_label: IntVector | None = None
    item_label: IntVector | None = None
    is_held_out: bool = False

    def split(self, rng: np.random.Generator) -> tuple[Part, Part]:
        """The cells to fit and those to judge by."""
        user, item = (
            _labels(count.size, rng) for count in (self.bits.user_count, self.bits.item_count)
        )
        return Part(self.bits, (-user) % N_PARTS, item), Part(
            self.bits, (-user) % N_PARTS, item, is_held_out=True
        )

    def weight(self, rows: slice) -> Matrix:
        """How many cells each cell of these rows stands for; 0 for one that is not among them."""
        weight = np.outer(self.bits.user_count[rows], self.bits.item_count)
        if self.user_label is not None and self.item_label is not None:
            weight *= (self.user_label[rows, None] == self.item_label) == self.is_held_out
        return weight

    def seen(self, rows: slice) -> tuple[IntVector, IntVector]:
        """Observed cells of these rows: their rows, counted from the first, and items."""
        last = min(rows.stop, self.bits.user_count.size)
        piece = slice(self.bits.starts[rows.start], self.bits.starts[last])
        kept = self._has(self.bits.user[piece], self.bits.item[piece])
        return self.bits.user[piece][kept] - np.int32(rows.start), self.bits.item[piece][kept]

    @property
    def n_cells(self) -> float:
        """How many they are."""
        return sum(float(self.weight(rows).sum()) for rows in self.bits.row_blocks(BLOCK_CELLS))

    @property
    def n_seen(self) -> int:
        """Observed cells among them."""
        return int(self._has(self.bits.user, self.bits.item).sum())

    def _has(self, user: IntVector, item: IntVector) -> BoolVector:
        if self.user_label is None or self.item_label is None:
            return np.ones(user.size, dtype=np.bool_)
        same: BoolVector = (self.user_label[user] == self.item_label[item]) == self.is_held_out
        return same


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Over some cells: the loss, sum w P, sum w P (1 - P), and the gradient of the loss by the intercept and the factors."""

    loss: float
    chance: float
    spread: float
    by_intercept: float
    by_user: Matrix
    by_item: Matrix


def block_sums(cells: Part, logits: Logits, rows: slice) -> Sums:
    """Loss and slopes of a block of rows: loss = sum w [log(1 + e^x) - O x], x = c + q_u . s_i; its gradient by x is w P - O."""
    x = logits.block(rows)
    weight, seen = cells.weight(rows), cells.seen(rows)
    small = np.exp(-np.abs(x))
    loss = float(np.vdot(weight, np.maximum(x, 0) + np.log(1 + small))) - float(x[seen].sum())
    chance = np.where(x >= 0, 1.0, small) / (1 + small)
    slope = weight * chance
    total, spread = float(slope.sum()), float(np.vdot(slope, 1 - chance))
    slope[seen] -= 1
    return Sums(
        loss, total, spread, float(slope.sum()), slope @ logits.item, slope.T @ logits.user[rows]
    )


def all_sums(cells: Part, logits: Logits, workers: Workers) -> Sums:
    """The same over all rows, block by block: never more than a few blocks at once."""
    blocks = cells.bits.row_blocks(BLOCK_CELLS)
    parts = workers.stream(lambda rows: block_sums(cells, logits, rows), blocks)
    total, by_user = next(parts), np.empty_like(logits.user)
    by_user[blocks[0]] = total.by_user
    for rows, part in zip(blocks[1:], parts, strict=True):
        by_user[rows] = part.by_user
        total = Sums(
            total.loss + part.loss,
            total.chance + part.chance,
            total.spread + part.spread,
            total.by_intercept + part.by_intercept,
            by_user,
            total.by_item + part.by_item,
        )
    return replace(total, by_user=by_user)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Where a solver ended, the objective at the start and after each step, and whether it had become flat."""

    logits: Logits
    history: tuple[float, ...]
    has_converged: bool


@dataclass(frozen=True, slots=True, eq=False)
class Penalized:
    """loss + l2/2 (sum_u ||q_u||^2 + sum_i ||s_i||^2), a function of one vector.

    The vector holds the intercept times the root of its curvature at the start, then every line of Q and of S times the root of
    the number of users or items that it stands for: the penalty is then its plain square.
    """

    cells: Part
    l2: float
    n_factors: int
    workers: Workers

    def __call__(self, unknowns: Vector) -> tuple[float, Vector]:
        """The value and its gradient."""
        sums = all_sums(self.cells, self.logits(unknowns), self.workers)
        by_user, by_item = sums.by_user / self._user_scale, sums.by_item / self._item_scale
        gradient = np.concatenate(
            [[sums.by_intercept / self._intercept_scale], by_user.ravel(), by_item.ravel()]
        )
        gradient[1:] += self.l2 * unknowns[1:]
        return sums.loss + self.l2 / 2 * float(unknowns[1:] @ unknowns[1:]), gradient

    def start(self, rng: np.random.Generator) -> Vector:
        """The density for every cell, and small random factors: at zero the gradient by them would be zero."""
        n_lines = self.cells.bits.user_count.size + self.cells.bits.item_count.size
        factors = START_SCALE * rng.standard_normal(n_lines * self.n_factors)
        return np.concatenate([[logit(self.cells.bits.density) * self._intercept_scale], factors])

    def restart(self, logits: Logits, rng: np.random.Generator) -> Vector:
        """A fit as the start of another, with a little noise: a factor at zero would never come back."""
        unknowns = self.unknowns(logits)
        unknowns[1:] += START_SCALE * rng.standard_normal(unknowns.size - 1)
        return unknowns

    def logits(self, unknowns: Vector) -> Logits:
        """The model that a vector stands for."""
        user, item = np.split(
            unknowns[1:].reshape(-1, self.n_factors), [self.cells.bits.user_count.size]
        )
        return Logits(
            float(unknowns[0]) / self._intercept_scale,
            user / self._user_scale,
            item / self._item_scale,
        )

    def unknowns(self, logits: Logits) -> Vector:
        """The vector that stands for a model."""
        user, item = logits.user * self._user_scale, logits.item * self._item_scale
        return np.concatenate(
            [[logits.intercept * self._intercept_scale], user.ravel(), item.ravel()]
        )

    @property
    def _intercept_scale(self) -> float:
        bits = self.cells.bits
        return float(np.sqrt(bits.n_cells * bits.density * (1 - bits.density)))

    @property
    def _user_scale(self) -> Matrix:
        return np.sqrt(self.cells.bits.user_count)[:, None]

    @property
    def _item_scale(self) -> Matrix:
        return np.sqrt(self.cells.bits.item_count)[:, None]


def descend(
    problem: Penalized,
    start: Vector,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[int, float], None],
) -> Outcome:
    """L-BFGS from ``start``, then the intercept at which sum P = n exactly."""
    history: list[float] = []

    def remember(intermediate_result: OptimizeResult) -> None:
        history.append(float(intermediate_result.fun))
        report(len(history), history[-1])

    found = minimize(
        problem,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=remember,
        options={
            "maxiter": max_iter,
            "maxfun": 20 * max_iter,
            "ftol": tol,
            "gtol": 0.0,
            "maxcor": 20,
        },
    )
    logits = balanced(problem, problem.logits(found.x))
    return Outcome(logits, (problem(start)[0], *history), bool(found.success))


def balanced(problem: Penalized, logits: Logits) -> Logits:
    """The same with the intercept at which the propensities of the cells add up to the observed ones among them."""

    def chances(intercept: float) -> tuple[float, float]:
        sums = all_sums(problem.cells, replace(logits, intercept=intercept), problem.workers)
        return sums.chance, sums.spread

    intercept = balance(chances, problem.cells.n_seen, logits.intercept, -np.inf, np.inf)
    return replace(logits, intercept=intercept)


def noise(bits: Bits) -> float:
    """sqrt(p (1 - p)) (sqrt(U) + sqrt(I)): about the largest singular value of O - p where every cell is alike."""
    sides = np.sqrt(bits.user_count.sum()) + np.sqrt(bits.item_count.sum())
    return float(np.sqrt(bits.density * (1 - bits.density)) * sides)


def _labels(size: int, rng: np.random.Generator) -> IntVector:
    """Labels in equal numbers, in random order."""
    return rng.permutation(np.arange(size, dtype=np.int32) % N_PARTS)


def require_both(*parts: Part) -> None:
    """A part needs observed and unobserved cells, or its intercept has no place to go."""
    for part in parts:
        if not 0 < part.n_seen < part.n_cells:
            raise UsageError(
                f"l2='cv' splits the cells, and one part has {part.n_seen} observed of {part.n_cells:.0f}: the log is too small "
                "or too full to judge by. Give l2 a number, such as 0.7."
            )
