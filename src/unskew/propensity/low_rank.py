"""1-bit matrix completion by factors: logit P = c + Q S', computed block by block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from unskew.data.cells import RowStarts, row_starts
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.memory import require_memory
from unskew.optimization import Precondition, RowHessians, start_at, take_step
from unskew.propensity.model import require_unobserved
from unskew.threads import Workers
from unskew.types import BoolVector, IntVector, Matrix, Vector

BLOCK_PAIRS = 1 << 15
BLOCK_CELLS = 1 << 17
START_SCALE = 0.1
"""Standard deviation of the random factors at the start."""
LBFGS_MEMORY = 20
"""Steps that L-BFGS uses to approximate the Hessian."""
LARGEST_LOGIT = {"float64": 500.0, "float32": 60.0}
"""By precision: larger logits would overflow."""
MANY_CELLS = 1 << 22
"""Cells from which on most steps use single precision."""
SINGLE_TOL = 1e-7
"""The smallest relative gain of a step that single precision can tell."""
N_PARTS = 10
"""A split holds out one of this many parts of the cells."""


@dataclass(frozen=True, slots=True, eq=False)
class ObservedMatrix:
    """O as a sparse 0/1 matrix, sorted by user and item, so the order of the log has no effect.

    Users that the log does not list have no observations and are all alike. One more row
    represents all of them, and one more column represents all items that are not listed.
    """

    user: IntVector
    item: IntVector
    starts: RowStarts
    user_count: Vector
    """How many users each row represents: 1, except for the row of unlisted users."""
    item_count: Vector

    @classmethod
    def of_log(cls, log: Ratings, universe: Universe) -> ObservedMatrix:
        require_unobserved(len(log), universe)
        order = np.lexsort((log.item, log.user))
        user_count = _count_rows(log.n_users, universe.n_users)
        item_count = _count_rows(log.n_items, universe.n_items)
        starts = row_starts(log.user, user_count.size)
        return cls(log.user[order], log.item[order], starts, user_count, item_count)

    @property
    def n_cells(self) -> float:
        return float(self.user_count.sum() * self.item_count.sum())

    @property
    def density(self) -> float:
        """The share of all cells that was observed, n / (U I)."""
        return self.item.size / self.n_cells

    def row_blocks(self, n_cells: int) -> list[slice]:
        """Rows in blocks of about ``n_cells`` cells; they depend on the sizes alone."""
        step = max(1, n_cells // self.item_count.size)
        return [slice(first, first + step) for first in range(0, self.user_count.size, step)]

    def noise_level(self) -> float:
        """sqrt(p (1 - p)) (sqrt(U) + sqrt(I)) with the density p.

        About the largest singular value of O - p if every cell has the same propensity.
        """
        sides = np.sqrt(self.user_count.sum()) + np.sqrt(self.item_count.sum())
        return float(np.sqrt(self.density * (1 - self.density)) * sides)


def pair_products(left: Matrix, right: Matrix, user: IntVector, item: IntVector) -> Vector:
    """left_u . right_i of each pair, in blocks that limit the memory."""
    products = np.empty(user.size)
    for first in range(0, user.size, BLOCK_PAIRS):
        block = slice(first, first + BLOCK_PAIRS)
        products[block] = np.einsum("pk,pk->p", left[user[block]], right[item[block]])
    return products


def find_intercept(
    sum_propensities: Callable[[float], tuple[float, float]],
    total: float,
    *,
    start: float,
    low: float = -np.inf,
    high: float = np.inf,
    rtol: float = 1e-11,
) -> float:
    """The c in [low, high] at which an increasing sum of propensities is ``total``.

    ``sum_propensities(c)`` returns the sum and its derivative. Newton's method; a step that would
    leave the bracket is replaced by bisection.
    """
    intercept = start
    for _ in range(100):
        value, derivative = sum_propensities(intercept)
        if abs(value - total) <= rtol * total:
            break
        low, high = (intercept, high) if value < total else (low, intercept)
        step = intercept + (total - value) / derivative if derivative > 0 else np.inf
        intercept = step if low <= step <= high else (low + high) / 2
    return intercept


def shift_to_total(
    logits: Matrix, total: float, *, start: float = 0.0, rtol: float = 1e-11
) -> float:
    """The c at which the sum of sigma(c + logits) is ``total``."""

    def sum_propensities(shift: float) -> tuple[float, float]:
        propensity = expit(shift + logits)
        return float(propensity.sum()), float(np.vdot(propensity, 1 - propensity))

    center = float(logit(total / logits.size))
    low, high = center - float(logits.max()), center - float(logits.min())
    return find_intercept(sum_propensities, total, start=start, low=low, high=high, rtol=rtol)


@dataclass(frozen=True, slots=True, eq=False)
class LowRankLogits:
    """logit P_ui = c + q_u . s_i."""

    intercept: float
    user: Matrix
    item: Matrix

    def block(self, rows: slice) -> Matrix:
        logits: Matrix = self.user[rows] @ self.item.T
        logits += self.user.dtype.type(self.intercept)
        return logits

    def astype(self, dtype: npt.DTypeLike) -> LowRankLogits:
        return replace(self, user=self.user.astype(dtype), item=self.item.astype(dtype))


@dataclass(frozen=True, slots=True, eq=False)
class CellSubset:
    """All cells, or the training or held-out cells of a random split.

    Each user and item has a random label from 0 to N_PARTS - 1, and a cell is held out if its two
    labels are equal. So every row and column loses the same share, and no list of cells is kept.
    """

    observed: ObservedMatrix
    user_label: IntVector | None = None
    item_label: IntVector | None = None
    is_held_out: bool = False

    def split(self, rng: np.random.Generator) -> tuple[CellSubset, CellSubset]:
        """The cells to train on and the cells to evaluate on."""
        user, item = (
            rng.permutation(np.arange(count.size, dtype=np.int32) % N_PARTS)
            for count in (self.observed.user_count, self.observed.item_count)
        )
        user = (-user) % N_PARTS
        training = CellSubset(self.observed, user, item)
        return training, replace(training, is_held_out=True)

    @property
    def counts_all_once(self) -> bool:
        """Whether the weight of every cell is 1."""
        counts = self.observed.user_count, self.observed.item_count
        return self.user_label is None and all((count == 1).all() for count in counts)

    def weight(self, rows: slice) -> Matrix:
        """How many cells each cell of these rows represents; 0 outside the subset."""
        weight = np.outer(self.observed.user_count[rows], self.observed.item_count)
        if self.user_label is not None and self.item_label is not None:
            weight *= (self.user_label[rows, None] == self.item_label) == self.is_held_out
        return weight

    def observed_cells(self, rows: slice) -> tuple[IntVector, IntVector]:
        """Observed cells of these rows: row numbers from 0 on, and items."""
        last = min(rows.stop, self.observed.user_count.size)
        block = slice(self.observed.starts[rows.start], self.observed.starts[last])
        user, item = self.observed.user[block], self.observed.item[block]
        is_included = self._includes(user, item)
        return user[is_included] - np.int32(rows.start), item[is_included]

    @property
    def n_cells(self) -> float:
        blocks = self.observed.row_blocks(BLOCK_CELLS)
        return sum(float(self.weight(rows).sum()) for rows in blocks)

    @property
    def n_observed(self) -> int:
        return int(self._includes(self.observed.user, self.observed.item).sum())

    def _includes(self, user: IntVector, item: IntVector) -> BoolVector:
        if self.user_label is None or self.item_label is None:
            return np.ones(user.size, dtype=np.bool_)
        is_included: BoolVector = (
            self.user_label[user] == self.item_label[item]
        ) == self.is_held_out
        return is_included


def require_observed_and_unobserved(*subsets: CellSubset) -> None:
    """Raise an error if a part of a split has only observed or only unobserved cells."""
    for subset in subsets:
        if not 0 < subset.n_observed < subset.n_cells:
            raise UsageError(
                f"`noise_multiple='cv'` splits the cells, and one part has {subset.n_observed} "
                f"observed cells of {subset.n_cells:.0f}: the log has too few cells of one kind.",
                parameter="noise_multiple",
                remedy="Pass a number, such as `noise_multiple=0.7`.",
            )


class LogitSums(NamedTuple):
    """Sums over cells, and the gradient of the loss."""

    loss: float
    propensity: float
    """sum w P."""
    by_intercept: float
    by_user: Matrix
    by_item: Matrix


def sum_block(cells: CellSubset, logits: LowRankLogits, rows: slice) -> LogitSums:
    """The sums of a block of rows: loss = sum w [log(1 + e^x) - O x] with x = c + q_u . s_i.

    w are the weights of the cells and O is 1 for observed ones. The gradient by x is w P - O, with
    P = sigma(x). Arrays have the precision of ``logits``, sums float64.
    """
    x = logits.block(rows)
    observed = cells.observed_cells(rows)
    observed_sum = float(x[observed].sum(dtype=np.float64))
    weight = None if cells.counts_all_once else cells.weight(rows).astype(x.dtype)
    excess, largest = 0.0, LARGEST_LOGIT[x.dtype.name]
    if x.max() > largest:  # log(1 + e^x) = x beyond; e^x would overflow
        too_large = np.maximum(x - largest, 0)
        excess = float((too_large if weight is None else weight * too_large).sum(dtype=np.float64))
        np.minimum(x, largest, out=x)
    odds = np.exp(x, out=x)
    larger = odds + 1
    gradient = np.divide(odds, larger, out=odds)
    softplus = np.log(larger, out=larger)
    if weight is not None:
        softplus *= weight
        gradient *= weight
    loss = float(softplus.sum(dtype=np.float64)) + excess - observed_sum
    total = float(gradient.sum(dtype=np.float64))
    gradient[observed] -= 1
    return LogitSums(
        loss,
        total,
        total - observed[0].size,
        gradient @ logits.item,
        gradient.T @ logits.user[rows],
    )


def sum_cells(cells: CellSubset, logits: LowRankLogits, workers: Workers) -> LogitSums:
    """The sums of all rows. Only a few blocks of rows are in memory at once."""
    blocks = cells.observed.row_blocks(BLOCK_CELLS)
    parts = workers.stream(lambda rows: sum_block(cells, logits, rows), blocks)
    totals, by_user, by_item = np.zeros(3), np.empty(logits.user.shape), np.zeros(logits.item.shape)
    for rows, part in zip(blocks, parts, strict=True):
        totals += part[:3]
        by_user[rows] = part.by_user
        by_item += part.by_item
    return LogitSums._make((*totals.tolist(), by_user, by_item))


def sum_propensities(
    cells: CellSubset, logits: LowRankLogits, workers: Workers
) -> tuple[float, float]:
    """sum w P, and its derivative by the intercept, sum w P (1 - P)."""

    def sum_rows(rows: slice) -> Vector:
        propensity, weight = expit(logits.block(rows)), cells.weight(rows)
        total = np.vdot(weight, propensity)
        return np.array([total, total - np.vdot(weight * propensity, propensity)])

    blocks = cells.observed.row_blocks(BLOCK_CELLS)
    total, derivative = np.add.reduce(list(workers.stream(sum_rows, blocks))).tolist()
    return total, derivative


@dataclass(frozen=True, slots=True, eq=False)
class PenalizedLoss:
    """loss + penalty / 2 (sum_u ||q_u||^2 + sum_i ||s_i||^2), a function of one vector.

    The vector has the intercept times the square root of its curvature at the start, then every
    row of Q and S times the square root of the number of users or items that it represents. Then
    the penalty is the squared norm of the vector without the intercept.
    """

    cells: CellSubset
    penalty: float
    n_factors: int
    workers: Workers
    dtype: str = "float64"
    """The precision of the sums over cells."""

    def __call__(self, vector: Vector) -> tuple[float, Vector]:
        """The value and its gradient."""
        sums = sum_cells(self.cells, self.to_logits(vector).astype(self.dtype), self.workers)
        by_user, by_item = sums.by_user / self._user_scale, sums.by_item / self._item_scale
        by_intercept = sums.by_intercept / self._intercept_scale
        gradient = np.concatenate([[by_intercept], by_user.ravel(), by_item.ravel()])
        gradient[1:] += self.penalty * vector[1:]
        return sums.loss + self.penalty / 2 * float(vector[1:] @ vector[1:]), gradient

    def precondition(self, vector: Vector) -> Precondition:
        """Solve with an approximate Hessian that has one block for each row of Q and of S.

        The block of a row of Q is about the penalty + sum_i P (1 - P) s_i s_i': its number of
        observed cells times the mean of s s' over all observed cells. Those of S are the same.
        """
        observed, logits = self.cells.observed, self.to_logits(vector)
        n_users, n_items = observed.user_count.size, observed.item_count.size
        by_user = np.bincount(observed.user, minlength=n_users).astype(np.float64)
        by_item = np.bincount(observed.item, minlength=n_items).astype(np.float64)
        users = self._row_hessians(by_user / observed.user_count, logits.item, by_item)
        items = self._row_hessians(by_item / observed.item_count, logits.user, by_user)

        def solve(right: Vector) -> Vector:
            user, item = np.split(right[1:].reshape(-1, self.n_factors), [n_users])
            solved = users.solve(user).ravel(), items.solve(item).ravel()
            return np.concatenate([right[:1], *solved])

        return solve

    def _row_hessians(
        self, n_observed: Vector, opposite: Matrix, opposite_weight: Vector
    ) -> RowHessians:
        """The blocks of rows with ``n_observed`` cells each."""
        gram = (opposite * opposite_weight[:, None]).T @ opposite / opposite_weight.sum()
        return RowHessians.of(np.full(self.n_factors, self.penalty), n_observed, gram)

    def random_start(self, rng: np.random.Generator) -> Vector:
        """The density for every cell, and small random factors.

        With factors 0, the gradient by the factors would be 0.
        """
        observed = self.cells.observed
        n_rows = observed.user_count.size + observed.item_count.size
        require_memory(
            24.0 * n_rows * self.n_factors,
            f"a fit of {n_rows:,} users and items with {self.n_factors:,} factors",
            parameter="n_factors",
            remedy="Use fewer factors.",
        )
        factors = START_SCALE * rng.standard_normal(n_rows * self.n_factors)
        return np.concatenate([[logit(observed.density) * self._intercept_scale], factors])

    def perturbed_start(self, logits: LowRankLogits, rng: np.random.Generator) -> Vector:
        """A fit as the start of another; noise moves factors that are 0."""
        vector = self.to_vector(logits)
        vector[1:] += START_SCALE * rng.standard_normal(vector.size - 1)
        return vector

    def to_logits(self, vector: Vector) -> LowRankLogits:
        n_users = self.cells.observed.user_count.size
        user, item = np.split(vector[1:].reshape(-1, self.n_factors), [n_users])
        intercept = float(vector[0]) / self._intercept_scale
        return LowRankLogits(intercept, user / self._user_scale, item / self._item_scale)

    def to_vector(self, logits: LowRankLogits) -> Vector:
        user, item = logits.user * self._user_scale, logits.item * self._item_scale
        intercept = logits.intercept * self._intercept_scale
        return np.concatenate([[intercept], user.ravel(), item.ravel()])

    @property
    def _intercept_scale(self) -> float:
        observed = self.cells.observed
        return float(np.sqrt(observed.n_cells * observed.density * (1 - observed.density)))

    @property
    def _user_scale(self) -> Matrix:
        return np.sqrt(self.cells.observed.user_count)[:, None]

    @property
    def _item_scale(self) -> Matrix:
        return np.sqrt(self.cells.observed.item_count)[:, None]


@dataclass(frozen=True, slots=True, eq=False)
class LowRankFit:
    """The result of a solver."""

    logits: LowRankLogits
    history: tuple[float, ...]
    """The objective at the start and after each step."""
    has_converged: bool


def minimize_loss(
    loss: PenalizedLoss,
    start: Vector,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[int, float], None],
) -> LowRankFit:
    """L-BFGS from ``start``, then the intercept at which sum P = n exactly.

    Many cells are added up in single precision, until a step gains less than it can tell.
    """
    has_many_cells = loss.cells.observed.n_cells >= MANY_CELLS
    stages = [(replace(loss, dtype="float32"), max(tol, SINGLE_TOL))] if has_many_cells else []
    if not stages or tol < SINGLE_TOL:
        stages.append((loss, tol))
    history: list[float] = []
    point, has_converged = start, False
    for function, least_gain in stages:
        state = start_at(function, point)
        history = history or [state.value]
        has_converged = False
        while not has_converged and len(history) <= max_iter:
            before = state.value
            state = take_step(
                function,
                state,
                memory=LBFGS_MEMORY,
                first_length=1.0,
                precondition=loss.precondition(state.point),
            )
            history.append(state.value)
            report(len(history) - 1, state.value)
            has_converged = before - state.value <= least_gain * max(1.0, abs(before))
        point = state.point
    logits = _match_total(loss, loss.to_logits(point))
    return LowRankFit(logits, tuple(history), has_converged)


def _match_total(loss: PenalizedLoss, logits: LowRankLogits) -> LowRankLogits:
    """Change the intercept so that propensities add up to the number of observed cells."""

    def at_intercept(intercept: float) -> tuple[float, float]:
        return sum_propensities(loss.cells, replace(logits, intercept=intercept), loss.workers)

    intercept = find_intercept(at_intercept, loss.cells.n_observed, start=logits.intercept)
    return replace(logits, intercept=intercept)


def _count_rows(n_listed: int, n_all: int) -> Vector:
    """1 for each listed user or item, and the number of the others, if there are any."""
    ones = np.ones(n_listed)
    return np.append(ones, n_all - n_listed) if n_all > n_listed else ones
