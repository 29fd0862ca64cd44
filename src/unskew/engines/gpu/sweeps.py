"""Solvers whose parameters are tensors of a device: what all sweeps on a device share."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from unskew.data.factors import Factors
from unskew.engines.gpu.cells import to_device, to_host
from unskew.engines.gpu.torch_rows import DeviceRows
from unskew.factorization.als import ItemSide, SweepingSolver, SweepState
from unskew.factorization.penalty import Penalty


@dataclass(frozen=True, slots=True, eq=False)
class DeviceFactors:
    """The fields of :class:`~unskew.data.factors.Factors` as tensors of the device."""

    user_factors: torch.Tensor
    item_factors: torch.Tensor
    user_offset: torch.Tensor
    item_offset: torch.Tensor
    global_offset: float

    @property
    def sides(self) -> tuple[DeviceRows, DeviceRows]:
        """The rows of the users and of the items."""
        users = DeviceRows(self.user_factors, self.user_offset)
        return users, DeviceRows(self.item_factors, self.item_offset)

    def as_float64_rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """``[v, a, 1]`` of the users and ``[w, 1, b + c]`` of the items; their product is F."""
        user_offset, item_offset = self.user_offset.double(), self.item_offset.double()
        users = [self.user_factors.double(), user_offset[:, None], torch.ones_like(user_offset)]
        items = [self.item_factors.double(), torch.ones_like(item_offset), item_offset[:, None]]
        users[2], items[1] = users[2][:, None], items[1][:, None]
        items[2] = items[2] + self.global_offset
        return torch.cat(users, dim=1), torch.cat(items, dim=1)

    def penalty_value(self, penalty: Penalty) -> float:
        """The penalty of these factors and offsets."""
        norms = [
            squared_norm(self.user_factors) + squared_norm(self.item_factors),
            squared_norm(self.user_offset),
            squared_norm(self.item_offset),
        ]
        factors, user_offset, item_offset = torch.stack(norms).tolist()
        value = penalty.factors * factors + penalty.user_offset * user_offset
        value += penalty.item_offset * item_offset
        return float(value + penalty.global_offset * self.global_offset**2)


@dataclass(frozen=True, eq=False)
class DeviceSweepingSolver(SweepingSolver):
    """A sweeping solver whose parameters are :class:`DeviceFactors`."""

    like: torch.Tensor
    """A tensor with the dtype and the device of all parameters."""

    def advance(self, state: SweepState, /) -> SweepState:
        """One sweep. The start, or a state from a file, is first copied to the device."""
        parameters: Any = self.to_device(state.parameters)
        previous = ItemSide(*map(self._to_tensor, _values(state.previous)))
        on_device = replace(state, parameters=parameters, previous=previous)
        return SweepingSolver.advance(self, on_device)

    def to_device(self, factors: Any) -> DeviceFactors:
        """Factors of the host or of the device as tensors of the device."""
        return DeviceFactors(*map(self._to_tensor, _values(factors)))

    def _to_tensor(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            value = to_device(value, self.like.device).to(self.like.dtype)
        return value


def squared_norm(values: torch.Tensor) -> torch.Tensor:
    """The sum of the squares, in float64."""
    return torch.linalg.vector_norm(values, dtype=torch.float64).square()


def factors_to_host(factors: Any) -> Factors:
    """Factors of the device, or those of a fit without a step, as arrays."""
    return Factors(
        *(
            to_host(value) if isinstance(value, torch.Tensor) else value
            for value in _values(factors)
        )
    )


def _values(record: Any) -> list[Any]:
    return [getattr(record, field.name) for field in fields(record)]
