"""The solvers of a fit on Spark: users are solved in the executors that hold their ratings.

A sweep of alternating least squares is one job. The items are sent to the executors. Each block
solves its users and adds up the normal equations of the items, (d + 2)(d + 3) / 2 numbers for each
item with offsets. The task that adds up a range of items also solves it, so the driver receives
d + 1 numbers for each item. An evaluation for L-BFGS is a job of the same form whose blocks send
one gradient, about d + 2 numbers for each item.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
import pyarrow as pa

from unskew.data.factors import Factors
from unskew.data.ids import format_id
from unskew.engines.spark.blocks import (
    BLOCK_COLUMNS,
    Shared,
    UserBlock,
    UserBlocks,
    pack_block,
    share,
    unpack_blocks,
)
from unskew.engines.spark.sums import BlockSum
from unskew.errors import UsageError
from unskew.factorization.als import (
    AlternatingLeastSquares,
    ItemSide,
    SweepingSolver,
    best_constant,
)
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import (
    MAX_CELLS,
    UNSOLVED_REMEDY,
    VECTOR_BYTES,
    NoUniqueSolutionError,
    Objective,
    describe_unsolved,
)
from unskew.factorization.reduced import ReducedObjective
from unskew.factorization.solution import minimize
from unskew.optimization import LbfgsState
from unskew.types import Floats, RandomState

SAMPLE_CELLS = 1 << 22
"""About the most ratings that the first items are fitted to, in one task."""
SAMPLE_TOL = 1e-6
"""The tolerance of that fit, unless the sample is the whole log."""


def packed_width(objective: Objective) -> int:
    """Numbers of the normal equations of an item: a triangle with one row more than unknowns."""
    n = objective.n_unknowns + 1
    return n * (n + 1) // 2


@dataclass(frozen=True, slots=True, eq=False)
class UserSolver:
    """Solves the users of blocks, given the items: what is sent to the executors."""

    objective: Objective
    """Its settings; the cells are those of the blocks."""
    items: ItemSide

    def add_normal_equations(self, block: UserBlock) -> BlockSum:
        """The penalty of the users, and the normal equations of the items given these users.

        The penalty is NaN if a user has no unique solution: Spark repeats a task that raises an
        error.
        """
        from unskew.kernels.rows import add_normal_equations

        items, objective = self.items, replace(self.objective, by_user=block.cells)
        n_items = len(items.factors)
        packed = np.zeros((n_items, packed_width(objective)))
        try:
            solved = self._solve_rows(block)
        except NoUniqueSolutionError:
            return float("nan"), packed
        penalty = objective.side_penalty(block.cells, *objective.split_solved_rows(solved))
        add_normal_equations(
            block.sort_by_item(n_items).cells,
            solved.dtype.type(items.global_offset),
            objective.to_opposite_rows(solved),
            objective.n_unknowns,
            VECTOR_BYTES // solved.itemsize,
            MAX_CELLS,
            packed,
        )
        return penalty, packed

    def evaluate(self, block: UserBlock) -> BlockSum:
        """The sum of the user minima, and the gradient of the loss by the opposite rows.

        The sum is NaN if a user has no unique solution.
        """
        items, objective = self.items, replace(self.objective, by_user=block.cells)
        reduced = ReducedObjective(objective, block.cells, scale=np.empty(0))
        try:
            return reduced.solve_inner(items.factors, items.offset, items.global_offset)
        except NoUniqueSolutionError:
            return float("nan"), objective.padded_zeros(len(items.factors)).astype(np.float64)

    def solve(self, block: UserBlock) -> tuple[Floats, Floats]:
        """The factors and offsets of the block's users."""
        return self.objective.split_solved_rows(self._solve_rows(block))

    def _solve_rows(self, block: UserBlock) -> Floats:
        items, objective = self.items, replace(self.objective, by_user=block.cells)
        opposite = objective.as_opposite_rows(items.factors, items.offset)
        solved, _ = objective.solve_rows(block.cells, opposite, items.global_offset)
        return solved

    def describe_unsolved(self, block: UserBlock) -> list[str]:
        """A user without a unique solution, for an error message; nothing if all have one."""
        try:
            self.solve(block)
        except NoUniqueSolutionError as error:
            user = format_id(block.users[error.row])
            return [f"user {user} ({error.n_cells:,} ratings, {error.n_factors} factors)"]
        return []


@dataclass(frozen=True, slots=True, eq=False)
class ItemSolver:
    """Solves items, given their normal equations: what the tasks that add them up do."""

    objective: Objective

    def __call__(self, packed: Floats) -> BlockSum:
        """The sum of the item minima, and the unknowns of each item.

        The sum is NaN, and so are the unknowns, if an item has no unique solution.
        """
        from unskew.kernels.rows import solve_normal_equations

        objective = self.objective
        ridges = objective.penalty.of_row("item", objective.n_unknowns, objective.n_factors)
        rows, minima = np.empty((len(packed), objective.n_unknowns)), np.empty(len(packed))
        solve_normal_equations(packed, ridges, rows, minima)
        rows[np.isnan(minima)] = np.nan
        return float(minima.sum()), rows


@dataclass(frozen=True, eq=False)
class ItemFactors(Factors):
    """The factors of the items, with an empty side of users."""

    _: KW_ONLY
    start: ItemSide
    """The items that the users are solved with: those that the last sweep began with."""

    @classmethod
    def of(cls, items: ItemSide, start: ItemSide | None = None) -> ItemFactors:
        """Factors of these items; users are solved with ``start``, by default with the same."""
        sides = np.empty((0, items.factors.shape[1])), items.factors, np.empty(0), items.offset
        return cls(*sides, items.global_offset, start=start or items)

    def with_users(self, factors: Floats, offset: Floats) -> Factors:
        """The factors of both sides."""
        return Factors(factors, self.item_factors, offset, self.item_offset, self.global_offset)


@dataclass(frozen=True, slots=True, eq=False)
class SparkSweeps(SweepingSolver):
    """Alternating least squares with users in Spark's executors; its parameters have no users."""

    objective: Objective
    blocks: UserBlocks
    total_weight: float

    def _sweep(self, start: Factors, *, is_exact: bool) -> tuple[Factors, float]:
        """Users, items, constant: one job. The objective is that before the step of the constant.

        Every sweep is exact.
        """
        objective, c = self.objective, start.global_offset
        dtype = objective.by_user.dtype
        items = ItemSide(start.item_factors.astype(dtype), start.item_offset.astype(dtype), c)
        with share(self.blocks.session, UserSolver(objective, items)) as solver:
            minimum, rows = self.blocks.add_up(
                lambda block: solver.value.add_normal_equations(block),
                width=packed_width(objective),
                dtype=dtype.name,
                finish=ItemSolver(objective),
            )
            if np.isnan(minimum):
                raise_unsolved(self.blocks, solver, objective, rows)
        value = minimum + objective.penalty.global_offset * c**2
        factors, offset = rows[:, : objective.n_factors], np.zeros_like(rows[:, 0])
        if objective.has_offsets:
            offset = rows[:, objective.n_factors].copy()
            c = best_constant(c, float(offset.sum()), self.total_weight, objective.penalty)
        return ItemFactors.of(ItemSide(factors, offset, c), ItemSide.of(start)), value


@dataclass(frozen=True, slots=True, eq=False)
class SparkReducedObjective(ReducedObjective):
    """The reduced objective with users in Spark's executors; its parameters have no users."""

    blocks: UserBlocks

    def start(self, factors: Factors, /) -> LbfgsState:
        """No sweeps come first: they would need more than a gradient of each item."""
        return self.start_without_sweeps(factors)

    def parameters(self, state: LbfgsState, /) -> Factors:
        """The items that the state stands for, without users."""
        return ItemFactors.of(ItemSide(*self._unpack(state.point)))

    def solve_inner(self, factors: Floats, offset: Floats, c: float) -> tuple[float, Floats]:
        """The sums over all blocks of what :class:`UserSolver` returns: one job."""
        objective = self.objective
        width = objective.padded_zeros(1).shape[1]
        items = UserSolver(objective, ItemSide(factors, offset, c))
        with share(self.blocks.session, items) as solver:
            minimum, gradient = self.blocks.add_up(
                lambda block: solver.value.evaluate(block), width=width, dtype="float64"
            )
            if np.isnan(minimum):
                raise_unsolved(self.blocks, solver, objective)
        return minimum, gradient


def raise_unsolved(
    blocks: UserBlocks,
    solver: Shared[UserSolver],
    objective: Objective,
    rows: Floats | None = None,
) -> None:
    """Raise an error that names a user, or else an item, without a unique solution."""

    def describe(_: int, block: UserBlock) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"row": pa.array(solver.value.describe_unsolved(block), pa.string())})

    unsolved = blocks.map(describe, "row string").take(1)
    name = unsolved[0][0] if unsolved else "a user"
    if not unsolved and rows is not None:
        code = int(np.isnan(rows).any(axis=1).argmax())
        name = f"the item with code {code} ({objective.n_factors} factors)"
    raise UsageError(
        describe_unsolved(name),
        parameter="l2",
        where=name,
        remedy=UNSOLVED_REMEDY,
    )


@dataclass(frozen=True, slots=True, eq=False)
class SampleFit:
    """Fits the items to a sample of the users, to start the sweeps near the optimum.

    From small random factors, many sweeps only separate the factors from one another. They do not
    need all users. The penalty of the items is multiplied by the share of the users, so that it
    weighs as in the whole log.
    """

    objective: Objective
    n_users: int
    """Of the whole log."""
    n_items: int
    mean: float
    random_state: RandomState
    max_iter: int
    tol: float

    def fit(self, sample: UserBlock) -> ItemSide:
        """The items of a fit by alternating least squares."""
        share = len(sample.users) / self.n_users
        by_item = sample.sort_by_item(self.n_items)
        by_item = replace(by_item, penalty_scale=by_item.penalty_scale * by_item.dtype.type(share))
        penalty = self.objective.penalty
        objective = replace(
            self.objective,
            by_user=sample.cells,
            by_item=by_item,
            penalty=replace(penalty, global_offset=share * penalty.global_offset),
        )
        start = small_random(
            (len(sample.users), self.n_items),
            self.mean,
            n_factors=objective.n_factors,
            has_offsets=objective.has_offsets,
            random_state=self.random_state,
            dtype=by_item.dtype,
            with_users=False,
        )
        tol = self.tol if share == 1 else max(self.tol, SAMPLE_TOL)
        solver = AlternatingLeastSquares(objective)
        try:
            solution = minimize(solver, start, max_iter=self.max_iter, tol=tol)
        except NoUniqueSolutionError:  # the sweeps over all users will tell whose it is
            return ItemSide.of(start)
        return ItemSide.of(solution.parameters)


def fit_sample(blocks: UserBlocks, sample: SampleFit, n_ratings: int) -> ItemSide:
    """The items of :class:`SampleFit` on every n-th user of each block: one job."""
    step = -(-n_ratings // SAMPLE_CELLS)

    def take(number: int, block: UserBlock) -> Iterator[pa.RecordBatch]:
        yield pack_block(number, block.take_users(slice(None, None, step)))

    def fit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        items = sample.fit(UserBlock.join(unpack_blocks(batches)))
        arrays = items.factors.astype(np.float64), items.offset.astype(np.float64)
        data = [np.ascontiguousarray(array).tobytes() for array in arrays]
        columns = {"factors": [data[0]], "offset": [data[1]], "c": [float(items.global_offset)]}
        yield pa.record_batch(columns)

    taken = blocks.map(take, BLOCK_COLUMNS).repartition(1)
    fitted = taken.mapInArrow(fit, "factors binary, offset binary, c double")
    row = fitted.toArrow().to_pylist()[0]
    factors = np.frombuffer(row["factors"]).reshape(blocks.n_items, sample.objective.n_factors)
    return ItemSide(factors, np.frombuffer(row["offset"]), row["c"])
