"""Sweeps over users and items on a device, with the momentum that they have everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from unskew.data.factors import Factors
from unskew.engines.gpu.sides import Block, DeviceSide
from unskew.engines.gpu.torch_rows import Penalty, Rows
from unskew.errors import UsageError
from unskew.factorization.als import ItemSide, SweepingSolver, SweepState

SolveBlock: TypeAlias = Callable[[Block, Rows, float, Penalty], tuple[Rows, torch.Tensor]]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceFactors:
    """The fields of :class:`~unskew.data.factors.Factors` as tensors of the device."""

    user_factors: torch.Tensor
    item_factors: torch.Tensor
    user_offset: torch.Tensor
    item_offset: torch.Tensor
    global_offset: float


@dataclass(frozen=True, eq=False)
class DeviceSweeps(SweepingSolver):
    """Alternating least squares whose parameters are tensors. The objective is that before the last step of the constant."""

    by_user: DeviceSide
    by_item: DeviceSide
    penalty: Penalty
    penalizes_offsets: bool
    solve_block: SolveBlock
    like: torch.Tensor
    """Has the type and the device of all parameters."""

    def advance(self, state: SweepState, /) -> SweepState:
        """One sweep; the start, or a state from a file, is copied to the device first."""
        factors, previous = state.parameters, state.previous
        on_device = replace(
            state,
            parameters=DeviceFactors(*self._tensors(factors), factors.global_offset),  # type: ignore[arg-type]
            previous=ItemSide(*self._tensors(previous), previous.global_offset),
        )
        return SweepingSolver.advance(self, on_device)

    def _tensors(self, record: Any) -> list[Any]:
        """All fields but the last, ``global_offset``."""
        return [self._tensor(getattr(record, field.name)) for field in fields(record)[:-1]]

    def _tensor(self, values: Any) -> Any:
        if isinstance(values, np.ndarray):
            values = np.require(
                values, requirements="W"
            )  # torch warns of others, such as the one zero of a start's users
        return torch.as_tensor(values, dtype=self.like.dtype, device=self.like.device)

    def _sweep(self, now: Factors, *, is_exact: bool = True) -> tuple[Factors, float]:
        """Users, items, constant."""
        l2, constant = self.penalty.factors, now.global_offset
        users, _ = self._solve(self.by_user, Rows(now.item_factors, now.item_offset), constant)  # type: ignore[arg-type]
        items, minima = self._solve(self.by_item, users, constant)
        sums = minima, _squares(users.factors), _squares(users.offset), items.offset.double().sum()
        minimum, factors, offsets, total = torch.stack(
            sums
        ).tolist()  # the device is waited for once
        if not math.isfinite(minimum):
            raise UsageError(
                f"a row has no unique solution at l2 = {self.penalty.factors:g}. Raise l2."
            )
        own = l2 * factors
        if self.penalizes_offsets:
            own += l2 * (offsets + constant**2)
            constant += l2 * (total - constant) / (self.by_item.totals[0] + l2)
        swept = DeviceFactors(users.factors, items.factors, users.offset, items.offset, constant)  # type: ignore[arg-type]
        return swept, minimum + own  # type: ignore[return-value]

    def _solve(
        self, side: DeviceSide, opposite: Rows, constant: float
    ) -> tuple[Rows, torch.Tensor]:
        """The best rows of a side, block by block, and the sum of their minima: not a number where one has no solution."""
        solved, minimum = [], torch.zeros((), dtype=torch.float64, device=side.device)
        for block in side.blocks():
            rows, minima = self.solve_block(block, opposite, constant, self.penalty)
            solved.append(rows)
            minimum += minima.sum()
        if len(solved) == 1:
            return solved[0], minimum
        return Rows(
            torch.cat([rows.factors for rows in solved]),
            torch.cat([rows.offset for rows in solved]),
        ), minimum


def _squares(values: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(values, dtype=torch.float64).square()
