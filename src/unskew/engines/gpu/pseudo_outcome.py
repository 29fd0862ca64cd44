"""Least squares over all cells of a pseudo-outcome, on a device.

The mathematics is that of :mod:`unskew.factorization.pseudo_outcome`: one Cholesky factorisation
for each side, and one product of the sparse matrix S with the opposite rows, which reads the log.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unskew.data.factors import Factors
from unskew.engines.gpu.cells import find_devices, to_device
from unskew.engines.gpu.sweeps import DeviceFactors, DeviceSweepingSolver, factors_to_host
from unskew.factorization.als import SweepState, best_constant
from unskew.factorization.engine import PseudoOutcomeRequest
from unskew.factorization.penalty import Offsets, Penalty, Side
from unskew.factorization.pseudo_outcome import no_unique_rows_error
from unskew.factorization.solution import Solution, minimize
from unskew.types import IntVector

CELLS_PER_SUM = 1 << 24
"""Cells whose imputed ratings are computed at a time."""
MAX_INT32 = (1 << 31) - 1


def fit_pseudo_outcome_on_device(
    device_name: str | Sequence[str] | None, request: PseudoOutcomeRequest
) -> Solution[Factors]:
    """Fit by the same sweeps as the local engine, from the same start to the same optimum."""
    device = find_devices(device_name)[0]
    like = torch.empty(0, dtype=getattr(torch, request.dtype), device=device)
    solver = DevicePseudoOutcomeSolver(
        like,
        DevicePseudoOutcome.of(request, like),
        request.n_factors,
        request.offsets,
        request.penalty,
    )
    solution = minimize(
        solver,
        request.start,
        max_iter=request.max_iter,
        tol=request.tol,
        checkpoint=request.checkpoint,
        report=request.report,
    )
    factors = factors_to_host(solution.parameters)
    return Solution(factors, solution.history, solution.stop_reason)


@dataclass(frozen=True, slots=True, eq=False)
class DevicePseudoOutcome:
    """T = G + S as tensors; the fields are those of the local ``PseudoOutcome``."""

    by_user: torch.Tensor
    """S as a sparse users x items matrix."""
    by_item: torch.Tensor
    """S as a sparse items x users matrix."""
    user_rows: torch.Tensor
    item_rows: torch.Tensor
    user_totals: torch.Tensor
    sum_of_squares: float

    @classmethod
    def of(cls, request: PseudoOutcomeRequest, like: torch.Tensor) -> DevicePseudoOutcome:
        log, device = request.log, like.device
        user, item = _codes_to_device(log.user, device), _codes_to_device(log.item, device)
        correction = to_device(request.correction, device)
        user_rows = torch.zeros(log.n_users, 0, dtype=torch.float64, device=device)
        item_rows = torch.zeros(log.n_items, 0, dtype=torch.float64, device=device)
        if request.imputed is not None:
            user_rows, item_rows = (
                to_device(rows, device) for rows in request.imputed.as_float64_rows()
            )
        by_user = _sort_by_row(user, item, correction, (log.n_users, log.n_items), like.dtype)
        by_item = _sort_by_row(item, user, correction, (log.n_items, log.n_users), like.dtype)
        ones = torch.ones(log.n_items, 1, dtype=torch.float64, device=device)
        exact = _make_sparse_matrix(
            by_user.crow_indices(), by_user.col_indices(), by_user.values().double(), by_user.shape
        )
        added = _sum_added_squares(user, item, correction, user_rows, item_rows)
        return cls(
            by_user,
            by_item,
            user_rows,
            item_rows,
            (exact @ ones)[:, 0],
            _sum_of_products(user_rows, item_rows, user_rows, item_rows) + added,
        )


@dataclass(frozen=True, eq=False)
class DevicePseudoOutcomeSolver(DeviceSweepingSolver):
    """Alternating least squares for a pseudo-outcome. The objective is exact."""

    outcome: DevicePseudoOutcome
    n_factors: int
    offsets: Offsets
    penalty: Penalty

    def start(self, factors: Factors, /) -> SweepState:
        if self.offsets == "none":
            factors = factors.without_offsets()
        return DeviceSweepingSolver.start(self, factors)

    def _sweep(self, start: Any, *, is_exact: bool) -> tuple[Any, float]:
        """Solve all users, then all items, then the constant."""
        outcome, n_factors, c = self.outcome, self.n_factors, start.global_offset
        users, _ = self._solve_side(
            "user",
            outcome.by_user,
            self._design(start.item_factors),
            start.item_offset.double() + c,
            outcome.user_rows,
            outcome.item_rows,
        )
        items, products = self._solve_side(
            "item",
            outcome.by_item,
            self._design(users[:, :n_factors]),
            self._offset(users).double() + c,
            outcome.item_rows,
            outcome.user_rows,
        )
        if self.offsets != "none":
            n_cells = outcome.by_user.shape[0] * outcome.by_user.shape[1]
            sum_of_offsets = float(self._offset(items).double().sum())
            c = best_constant(c, sum_of_offsets, n_cells, self.penalty)
        factors = DeviceFactors(
            users[:, :n_factors],
            items[:, :n_factors],
            self._offset(users),
            self._offset(items),
            c,
        )
        return factors, self._objective(factors, products)

    def _design(self, factors: torch.Tensor) -> torch.Tensor:
        """``[w, 1]``, or ``[w]`` without offsets."""
        if self.offsets == "none":
            return factors
        return torch.cat([factors, factors.new_ones(len(factors), 1)], dim=1)

    def _offset(self, solutions: torch.Tensor) -> torch.Tensor:
        if self.offsets == "none":
            return solutions.new_zeros(len(solutions))
        return solutions[:, self.n_factors]

    def _solve_side(
        self,
        side: Side,
        correction: torch.Tensor,
        design: torch.Tensor,
        opposite_offset: torch.Tensor,
        imputed_rows: torch.Tensor,
        opposite_imputed_rows: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The best rows of one side, and S times the design, which the log adds on the right."""
        exact = design.double()
        n_unknowns = exact.shape[1]
        ridges = torch.diag(exact.new_tensor(self.penalty.of_row(side, n_unknowns, self.n_factors)))
        cholesky, failed = torch.linalg.cholesky_ex(exact.T @ exact + ridges)
        if int(failed):
            raise no_unique_rows_error(side, self.penalty.factors)
        products = correction @ design
        right = products + imputed_rows @ (opposite_imputed_rows.T @ exact)
        right -= opposite_offset @ exact
        return torch.cholesky_solve(right.T, cholesky).T.to(design.dtype), products

    def _objective(self, factors: DeviceFactors, products: torch.Tensor) -> float:
        """Sum F^2 - 2 sum F T + sum T^2 + penalty; ``products`` are S times the users' design."""
        outcome, n_factors = self.outcome, self.n_factors
        users, items = factors.as_float64_rows()
        log_part = (items[:, :n_factors] * products[:, :n_factors]).sum()
        if self.offsets != "none":
            log_part += items[:, -1] @ products[:, n_factors].double()
            log_part += users[:, -2] @ outcome.user_totals
        cross = _sum_of_products(users, items, outcome.user_rows, outcome.item_rows)
        loss = _sum_of_products(users, items, users, items) - 2 * (cross + float(log_part))
        return loss + outcome.sum_of_squares + factors.penalty_value(self.penalty)


def _codes_to_device(codes: IntVector, device: torch.device) -> torch.Tensor:
    return to_device(codes, device).long()


def _sort_by_row(
    row: torch.Tensor,
    column: torch.Tensor,
    value: torch.Tensor,
    shape: tuple[int, int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """The cells as a sparse matrix; those of a row are sorted by column."""
    order = torch.argsort(row * shape[1] + column)
    starts = torch.zeros(shape[0] + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=shape[0]), 0, out=starts[1:])
    index = torch.int32 if max(row.numel(), *shape) <= MAX_INT32 else torch.int64
    columns = starts.to(index), column[order].to(index), value[order].to(dtype)
    return _make_sparse_matrix(*columns, shape)


def _make_sparse_matrix(
    starts: torch.Tensor, column: torch.Tensor, value: torch.Tensor, shape: Sequence[int]
) -> torch.Tensor:
    """Some versions of torch warn of unchecked cells, even if ``check_invariants`` is given."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(starts, column, value, list(shape), check_invariants=False)


def _sum_of_products(
    users: torch.Tensor, items: torch.Tensor, other_users: torch.Tensor, other_items: torch.Tensor
) -> float:
    """The sum over all cells of F_ui G_ui, both products of rows, from their Gram matrices."""
    return float(((users.T @ other_users) * (items.T @ other_items)).sum())


def _sum_added_squares(
    user: torch.Tensor,
    item: torch.Tensor,
    correction: torch.Tensor,
    user_rows: torch.Tensor,
    item_rows: torch.Tensor,
) -> float:
    """The sum over the log of (G + S)^2 - G^2."""
    total = 0.0
    for u, i, s in zip(
        *(column.split(CELLS_PER_SUM) for column in (user, item, correction)), strict=True
    ):
        imputed = (user_rows[u] * item_rows[i]).sum(1)
        total += float(s @ (s + 2 * imputed))
    return total
