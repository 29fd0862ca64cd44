"""The log-likelihood of a logistic model over all cells, its slope, and its maximum.

    log L = sum_O eta - sum_D log(1 + exp(eta)),   eta = c + x_u.a + z_i.b + x_u M z_i' + gamma_u + beta_i

The log enters through its sufficient statistics alone: how often each covariate, pair, user and item was observed. Users with the
same covariates (and, where users have offsets, the same number of observations) can be exchanged without changing log L, which
is concave, so that they share their eta at its maximum. Such users form one unit, items likewise, and the sum over all cells D is
a sum over pairs of units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_array

from unskew.threads import Workers
from unskew.types import IntVector, Matrix, Vector

BLOCK_CELLS = 1 << 17
"""Cells whose eta is held at once, for each thread: small enough for the cache."""
LARGEST = 500.0
"""The largest log-odds that are told apart, so that odds stay within the range of floats."""
MEMORY = 20
"""Steps that L-BFGS remembers."""


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Users, or items, that the model cannot tell apart, as one row each."""

    design: Matrix
    """Units x columns: the covariates, then the pairs among them."""
    n_crossed: int
    """How many of the first columns also take part in pairs of users with items."""
    count: Vector
    """Users in each unit."""
    member: IntVector
    """The unit of each user."""
    has_offset: bool
    group: IntVector
    """The part of a cross-validation that each unit is in."""

    @classmethod
    def of(
        cls,
        design: Matrix,
        profile: IntVector,
        *keys: IntVector,
        n_crossed: int,
        has_offset: bool,
        group: IntVector,
    ) -> Units:
        """Users with the same profile, the same group and the same ``keys``."""
        distinct, member = _distinct_tuples(profile, group, *keys)
        count = np.bincount(member, minlength=len(distinct)).astype(np.float64)
        return cls(design[distinct[:, 0]], n_crossed, count, member, has_offset, distinct[:, 1])

    @property
    def crossed(self) -> Matrix:
        """The columns that take part in pairs of users with items."""
        return self.design[:, : self.n_crossed]

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """A number for each term of eta: its coefficients, its slope, or how often it was observed."""

    intercept: float
    user: Vector
    item: Vector
    crossed: Matrix
    user_offset: Vector
    item_offset: Vector

    def flat(self) -> Vector:
        """All of them in a row."""
        parts = (self.user, self.item, self.crossed.ravel(), self.user_offset, self.item_offset)
        return np.concatenate(([self.intercept], *parts))


@dataclass(frozen=True, slots=True, eq=False)
class Masses:
    """Sums over cells: of log(1 + exp(eta)), and of sigma(eta) by user unit, by item unit, and times the items' covariates."""

    log_partition: float
    by_user: Vector
    by_item: Vector
    by_user_and_covariate: Matrix


class Cells(Protocol):
    """The cells whose eta is summed over."""

    def masses(
        self, row: Vector, column: Vector, left: Matrix, right: Matrix, workers: Workers
    ) -> Masses:
        """The sums at eta = row + column' + left right'."""
        ...

    def sizes(self) -> tuple[Vector, Vector]:
        """How many cells each user unit has, and each item unit."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Every cell, as pairs of units weighted by how many cells they are."""

    user: Units
    item: Units
    allowed: Matrix | None = None
    """1 where the cells of a group of users and a group of items count, 0 where they do not; all count without it."""

    def masses(
        self, row: Vector, column: Vector, left: Matrix, right: Matrix, workers: Workers
    ) -> Masses:
        """Block by block of user units."""
        of_items = self.item.count
        weighted = np.column_stack([of_items, right * of_items[:, None]])

        def work(rows: slice) -> tuple[float, Matrix, Vector]:
            chance, surprise = _softplus(row[rows, None] + column + left[rows] @ right.T)
            if self.allowed is not None:
                counts = self.allowed[self.user.group[rows]][:, self.item.group]
                chance, surprise = chance * counts, surprise * counts
            of_users = self.user.count[rows]
            return (
                float(of_users @ (surprise @ of_items)),
                (chance @ weighted) * of_users[:, None],
                of_users @ chance,
            )

        found = _add_up(
            workers.stream(work, list(_blocks(len(self.user), len(self.item)))), len(self.item)
        )
        return replace(found, by_item=of_items * found.by_item)

    def sizes(self) -> tuple[Vector, Vector]:
        """Users of the unit times the items that count with them."""
        users, items = (np.bincount(units.group, units.count) for units in (self.user, self.item))
        allowed = np.ones((users.size, items.size)) if self.allowed is None else self.allowed
        return self.user.count * (allowed @ items)[self.user.group], self.item.count * (
            users @ allowed
        )[self.item.group]

    @property
    def n_pairs(self) -> int:
        """Pairs of units."""
        return len(self.user) * len(self.item)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Listed cells, in the order of their user units."""

    user: Units
    item: Units
    start: npt.NDArray[np.int64]
    """Where the cells of each user unit begin, and the end."""
    column: IntVector
    """The item unit of every cell."""

    @classmethod
    def of(cls, user: Units, item: Units, users: IntVector, items: IntVector) -> Sample:
        """The cells of the given users and items, in any order."""
        rows, columns = user.member[users], item.member[items]
        order = None if (rows[1:] >= rows[:-1]).all() else np.argsort(rows, kind="stable")
        start = np.concatenate(
            ([0], np.cumsum(np.bincount(rows, minlength=len(user)), dtype=np.int64))
        )
        return cls(user, item, start, columns if order is None else columns[order])

    def masses(
        self, row: Vector, column: Vector, left: Matrix, right: Matrix, workers: Workers
    ) -> Masses:
        """Block by block of cells; a block ends where a user unit does."""
        with_ones, covariates = (
            np.column_stack([np.ones(len(self.item)), right]),
            np.ascontiguousarray(right.T),
        )

        def work(rows: slice) -> tuple[float, Matrix, Vector]:
            ends = self.start[rows.start : rows.stop + 1]
            items, times = self.column[ends[0] : ends[-1]], np.diff(ends)
            eta = np.repeat(row[rows], times)
            eta += np.take(column, items)
            for of_user, of_item in zip(left[rows].T, covariates, strict=True):
                eta += np.repeat(of_user, times) * np.take(of_item, items)
            chance, surprise = _softplus(eta)
            masses = csr_array((chance, items, ends - ends[0]), shape=(len(times), len(self.item)))
            return float(surprise.sum()), masses @ with_ones, masses.T @ np.ones(len(times))

        return _add_up(workers.stream(work, list(self._blocks())), len(self.item))

    def sizes(self) -> tuple[Vector, Vector]:
        """Listed cells."""
        return np.diff(self.start).astype(np.float64), np.bincount(
            self.column, minlength=len(self.item)
        ).astype(np.float64)

    def _blocks(self) -> Iterator[slice]:
        """Runs of user units that hold about as many cells as the item units or a block, whichever is more."""
        size = max(BLOCK_CELLS, len(self.item))
        cuts = np.searchsorted(self.start, np.arange(0, self.start[-1] + size, size))
        edges = np.unique(np.concatenate(([0], np.minimum(cuts, len(self.user)), [len(self.user)])))
        return (slice(int(first), int(last)) for first, last in pairwise(edges))


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """log L as a function of the coefficients in a row."""

    user: Units
    item: Units
    cells: Cells
    observed: Terms
    """How often each term was observed."""
    workers: Workers

    @classmethod
    def of(
        cls, cells: Grid | Sample, users: IntVector, items: IntVector, workers: Workers
    ) -> Problem:
        """The problem of observing exactly the given cells."""
        user, item = cells.user, cells.item
        rows, columns = user.member[users], item.member[items]
        by_user = np.bincount(rows, minlength=len(user)).astype(np.float64)
        by_item = np.bincount(columns, minlength=len(item)).astype(np.float64)
        crossed = np.zeros((len(user), item.n_crossed))
        if item.n_crossed and user.n_crossed:
            for place in range(item.n_crossed):
                crossed[:, place] = np.bincount(rows, item.design[columns, place], len(user))
        return cls(
            user, item, cells, _terms(user, item, Masses(0.0, by_user, by_item, crossed)), workers
        )

    def terms(self, flat: Vector) -> Terms:
        """Coefficients in a row by what they are."""
        user, item = self.user, self.item
        sizes = (
            1,
            user.design.shape[1],
            item.design.shape[1],
            user.n_crossed * item.n_crossed,
            self.observed.user_offset.size,
        )
        intercept, of_user, of_item, crossed, user_offset, item_offset = np.split(
            flat, np.cumsum(sizes)
        )
        pairs = crossed.reshape(user.n_crossed, item.n_crossed)
        return Terms(float(intercept[0]), of_user, of_item, pairs, user_offset, item_offset)

    def masses(self, flat: Vector) -> Masses:
        """The sums over all cells at the given coefficients."""
        at, user, item = self.terms(flat), self.user, self.item
        row = at.intercept + user.design @ at.user + (at.user_offset if user.has_offset else 0.0)
        column = item.design @ at.item + (at.item_offset if item.has_offset else 0.0)
        return self.cells.masses(row, column, user.crossed @ at.crossed, item.crossed, self.workers)

    def log_likelihood(self, flat: Vector) -> tuple[float, Vector]:
        """The log-likelihood and its slope: how often each term was observed, less how often the model expects it."""
        masses = self.masses(flat)
        observed = self.observed.flat()
        return float(observed @ flat) - masses.log_partition, observed - _terms(
            self.user, self.item, masses
        ).flat()

    def penalties(self) -> Vector:
        """How often the square of each coefficient is penalised: never for the intercept, once a user for an offset."""
        ones = [
            np.ones(size)
            for size in (
                self.user.design.shape[1],
                self.item.design.shape[1],
                self.observed.crossed.size,
            )
        ]
        offsets = [unit.count for unit in (self.user, self.item) if unit.has_offset]
        return np.concatenate(([0.0], *ones, *offsets))

    def curvatures(self) -> Vector:
        """About how sharply log L bends along each coefficient, which sets the length of steps: sum of P (1 - P) phi^2."""
        by_user, by_item = self.cells.sizes()
        n_cells = by_user.sum()
        share = self.observed.intercept / n_cells
        of_user, of_item = (
            unit.count @ np.square(unit.design) / unit.count.sum()
            for unit in (self.user, self.item)
        )
        crossed = np.outer(of_user[: self.user.n_crossed], of_item[: self.item.n_crossed]).ravel()
        covariates = (
            share * (1 - share) * n_cells * np.concatenate(([1.0], of_user, of_item, crossed))
        )
        seen = ((self.observed.user_offset, by_user), (self.observed.item_offset, by_item))
        offsets = [count * (1 - count / np.maximum(size, 1)) for count, size in seen if count.size]
        return np.concatenate((covariates, *offsets)) + 1e-12

    def start(self) -> Vector:
        """The intercept that observes as many cells as were observed, and nothing else."""
        flat = np.zeros(self.observed.flat().size)
        observed, n_cells = self.observed.intercept, float(self.cells.sizes()[0].sum())
        flat[0] = np.log(max(observed, 0.5) / max(n_cells - observed, 0.5))
        return flat


@dataclass(frozen=True, slots=True, eq=False)
class Maximum:
    """Where log L less the penalty is largest."""

    flat: Vector
    log_likelihood: float
    """Without the penalty."""
    n_iter: int
    converged: bool


def maximize(
    problem: Problem,
    l2: float,
    *,
    start: Vector,
    max_iter: int,
    tol: float,
    report: Callable[[str], None],
) -> Maximum:
    """Maximise log L - l2 / 2 ||coefficients||^2, the intercept apart, by L-BFGS in units of the coefficients' standard errors.

    It ends when no coefficient would move by more than ``tol`` standard errors, or where rounding hides such a step.
    """
    penalty = l2 * problem.penalties()
    scale = 1 / np.sqrt(problem.curvatures() + penalty)

    def objective(scaled: Vector) -> tuple[float, Vector]:
        flat = scaled * scale
        value, slope = problem.log_likelihood(flat)
        return -value + float(penalty @ np.square(flat)) / 2, (penalty * flat - slope) * scale

    n_iter = 0

    def count(scaled: Vector) -> None:  # noqa: ARG001
        nonlocal n_iter
        n_iter += 1
        report(f"l2 {l2:g}: step {n_iter}")

    options = {
        "maxiter": max_iter,
        "maxfun": 20 * max_iter,
        "maxcor": MEMORY,
        "gtol": tol,
        "ftol": 0.0,
    }
    found: Any = minimize(
        objective, start / scale, jac=True, method="L-BFGS-B", callback=count, options=options
    )  # type: ignore[call-overload]
    flat = np.asarray(found.x) * scale
    noise = 100 * np.sqrt(np.finfo(np.float64).eps * abs(float(found.fun)))
    converged = float(np.abs(found.jac).max()) <= max(tol, noise)
    value = -float(found.fun) + float(penalty @ np.square(flat)) / 2
    return Maximum(flat, value, n_iter, bool(converged))


def _add_up(parts: Iterable[tuple[float, Matrix, Vector]], n_items: int) -> Masses:
    """Blocks of user units to all of them, in their order, so that the number of threads is never seen."""
    log_partition, by_user, by_item = 0.0, [], np.zeros(n_items)
    for partition, of_users, of_items in parts:
        log_partition += partition
        by_user.append(of_users)
        by_item += of_items
    rows = np.concatenate(by_user)
    return Masses(log_partition, rows[:, 0], by_item, rows[:, 1:])


def _terms(user: Units, item: Units, masses: Masses) -> Terms:
    """Sums by unit to sums by term."""
    none = np.empty(0)
    return Terms(
        intercept=float(masses.by_user.sum()),
        user=user.design.T @ masses.by_user,
        item=item.design.T @ masses.by_item,
        crossed=user.crossed.T @ masses.by_user_and_covariate,
        user_offset=masses.by_user if user.has_offset else none,
        item_offset=masses.by_item if item.has_offset else none,
    )


def _softplus(
    eta: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """sigma(eta) and log(1 + exp(eta)), in the memory of ``eta``; beyond ``LARGEST`` both are as good as 1 and eta."""
    odds = np.exp(np.minimum(eta, LARGEST, out=eta), out=eta)
    surprise = np.log1p(odds)
    odds /= odds + 1
    return odds, surprise


def _blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    size = max(1, BLOCK_CELLS // n_columns)
    return (slice(first, min(first + size, n_rows)) for first in range(0, n_rows, size))


def _distinct_tuples(*columns: IntVector) -> tuple[npt.NDArray[np.int32], IntVector]:
    """The distinct rows of some columns of codes, sorted, and which of them each row is."""
    rows, member = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    return rows.astype(np.int32), member.ravel().astype(np.int32)
