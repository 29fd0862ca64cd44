"""Many fits at once: logs of equal shape are the diagonal blocks of one log.

The users and items of fit f are numbered after those of the fits before it, so one pass of the
kernels solves the rows of all fits. With ridges p and p_a of a fit, a row minimises

    sum of w (t - x.z - a)^2 + p |z|^2 + p_a a^2

Divided by p_a, and with x sqrt(p_a / p) in place of x, its ridges are 1, as those of all fits.
Every fit has its own constant, momentum and end, as if it were alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from unskew.data.factors import Factors
from unskew.data.weights import weighted_mean
from unskew.engines.gpu.cells import (
    BYTES_TO_SORT,
    DeviceBlock,
    DeviceCells,
    find_devices,
    to_device,
    to_host,
)
from unskew.engines.gpu.fitting import fit_on_devices, memory_for_log
from unskew.engines.gpu.solving import SolveBlock, choose_row_solver
from unskew.engines.gpu.torch_rows import DeviceRows, RowPenalty
from unskew.factorization.engine import FitRequest, FitResult
from unskew.factorization.penalty import Side
from unskew.factorization.solution import Solution, StopReason, is_flat
from unskew.types import BoolVector, Vector


def fit_many(
    device: str | Sequence[str] | None, memory: int | None, requests: Sequence[FitRequest]
) -> Iterator[FitResult]:
    """Fit in batches, which are divided among the devices; what fits no batch is fitted alone.

    A fit that has no finite solution in its batch is repeated alone, for its error.
    """
    devices = find_devices(device)
    queues: list[list[list[int]]] = [[] for _ in devices]
    for similar in _group(requests):
        for number, queue in enumerate(queues):
            share = similar[number :: len(devices)]
            if share:
                queue += _cut(share, requests, devices[number], memory)
    results: dict[int, FitResult | None] = {}

    def work(device_number: int) -> None:
        for batch in queues[device_number]:
            fits = _fit_batch([requests[number] for number in batch], devices[device_number])
            results.update(zip(batch, fits, strict=True))

    with ThreadPoolExecutor(len(devices)) as pool:
        list(pool.map(work, range(len(devices))))
    for number, request in enumerate(requests):
        result = results.pop(number, None)
        yield fit_on_devices(device, memory, request) if result is None else result


def _group(requests: Sequence[FitRequest]) -> list[list[int]]:
    """The numbers of requests that can run at once; those that must run alone are left out."""
    groups: defaultdict[Any, list[int]] = defaultdict(list)
    for number, request in enumerate(requests):
        is_plain = request.loss == "squared" and not request.unobserved_weight
        is_silent = request.checkpoint is None and request.report is None
        if is_plain and is_silent and request.n_factors and request.penalty.factors > 0:
            has_ridge = request.penalty.user_offset > 0, request.penalty.item_offset > 0
            settings = request.n_factors, request.offsets, request.dtype, has_ridge
            groups[request.log.n_users, request.log.n_items, *settings].append(number)
    return list(groups.values())


def _cut(
    numbers: Sequence[int], requests: Sequence[FitRequest], device: torch.device, memory: int | None
) -> list[list[int]]:
    """Batches whose logs fit into the memory of the device together."""
    if memory is None:
        memory = memory_for_log(device, requests[numbers[0]])
    batches: list[list[int]] = [[]]
    n_bytes = 0
    for number in numbers:
        needed = len(requests[number].log) * BYTES_TO_SORT
        if batches[-1] and n_bytes + needed > memory:
            batches.append([])
            n_bytes = 0
        batches[-1].append(number)
        n_bytes += needed
    return batches


@dataclass(frozen=True, eq=False)
class _BatchSide:
    """The rows of one side of all fits."""

    block: DeviceBlock
    n_fits: int
    unit: torch.Tensor
    """What the loss and the penalty of the rows of each fit are divided by."""
    scale: torch.Tensor
    """The multiple of the opposite factors of each fit whose ridge is 1."""
    penalty: RowPenalty
    solve_block: SolveBlock

    def solve(
        self, opposite: torch.Tensor, offset: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Factors and offsets of all rows, and the sum of the minima of each fit.

        ``offset`` is that of the opposite rows, with the constant of the fit.
        """
        scale = self.scale.to(opposite.dtype)[:, None, None]
        scaled = DeviceRows((scale * opposite).flatten(0, 1), offset.flatten())
        rows, minima = self.solve_block(self.block, scaled, 0.0, self.penalty)
        factors = rows.factors.view(self.n_fits, -1, rows.n_factors)
        sums = minima.view(self.n_fits, -1).sum(1) * self.unit
        return scale * factors, rows.offset.view(self.n_fits, -1), sums


@dataclass(frozen=True, eq=False)
class _Items:
    """The items of all fits, from which a sweep starts."""

    factors: torch.Tensor
    offset: torch.Tensor
    constant: torch.Tensor

    def toward(self, other: _Items, share: torch.Tensor) -> _Items:
        """Each fit, moved by its share of the way to ``other`` and beyond."""
        near = share.to(self.offset.dtype)
        return _Items(
            self.factors + near[:, None, None] * (other.factors - self.factors),
            self.offset + near[:, None] * (other.offset - self.offset),
            self.constant + share * (other.constant - self.constant),
        )

    def where(self, is_new: torch.Tensor, old: _Items) -> _Items:
        return _Items(
            torch.where(is_new[:, None, None], self.factors, old.factors),
            torch.where(is_new[:, None], self.offset, old.offset),
            torch.where(is_new, self.constant, old.constant),
        )


@dataclass(frozen=True, eq=False)
class _Batch:
    """Fits of equal shape on one device."""

    by_user: _BatchSide
    by_item: _BatchSide
    ridges: torch.Tensor
    """p, p_a, p_b and p_c of each fit, by columns."""
    total_weight: torch.Tensor
    has_offsets: bool

    def sweep(self, start: _Items) -> tuple[tuple[torch.Tensor, torch.Tensor], _Items, Vector]:
        """Users and items after one sweep, and the objective of each fit."""
        factor_ridge, user_ridge, item_ridge, constant_ridge = self.ridges.T
        c = start.constant
        shift = c.to(start.offset.dtype)[:, None]
        users, user_offset, _ = self.by_user.solve(start.factors, start.offset + shift)
        items, item_offset, minima = self.by_item.solve(users, user_offset + shift)
        norm = torch.linalg.vector_norm(users, dim=(1, 2), dtype=torch.float64).square()
        offset_norm = torch.linalg.vector_norm(user_offset, dim=1, dtype=torch.float64).square()
        value = minima + factor_ridge * norm + user_ridge * offset_norm + constant_ridge * c**2
        if self.has_offsets:
            gradient = item_ridge * item_offset.double().sum(1) - constant_ridge * c
            c = c + gradient / (self.total_weight + constant_ridge)
        return (users, user_offset), _Items(items, item_offset, c), to_host(value)


def _fit_batch(requests: Sequence[FitRequest], device: torch.device) -> list[FitResult | None]:
    """All fits of a batch; None for a fit whose objective is not finite."""
    first, n_fits = requests[0], len(requests)
    batch, by_user = _load(requests, device)
    means = [weighted_mean(request.log.rating, request.weight) for request in requests]
    starts = [request.make_start(mean) for request, mean in zip(requests, means, strict=True)]
    dtype = getattr(torch, first.dtype)

    def stack(arrays: Sequence[npt.NDArray[Any]]) -> torch.Tensor:
        return to_device(np.stack(arrays), device).to(dtype)

    constants = to_device(np.array([start.global_offset for start in starts]), device).double()
    current = _Items(
        stack([start.item_factors for start in starts]),
        stack([start.item_offset for start in starts]),
        constants,
    )
    previous, users = current, None
    progress = _Progress(requests)
    while progress.is_active.any():
        share = to_device(progress.momentum_shares(), device)
        new_users, items, value = batch.sweep(previous.toward(current, 1 + share))
        is_new = to_device(progress.accept(value), device)
        users = new_users if users is None else _choose(is_new, new_users, users)
        previous, current = current.where(is_new, previous), items.where(is_new, current)
    assert users is not None
    parts = (*users, current.factors, current.offset, current.constant)
    user_factors, user_offset, item_factors, item_offset, constant = map(to_host, parts)
    factors = [
        Factors(
            user_factors[fit], item_factors[fit], user_offset[fit], item_offset[fit], constant[fit]
        )
        for fit in range(n_fits)
    ]
    seen = _split_seen(by_user, n_fits, first.log.n_items)
    return [
        None
        if progress.has_failed[fit]
        else FitResult(progress.solution(fit, factors[fit]), means[fit], seen[fit])
        for fit in range(n_fits)
    ]


class _Progress:
    """How far each fit of a batch has come.

    A sweep that would raise the objective is not accepted; the next one starts at the last items,
    without momentum, and is accepted.
    """

    def __init__(self, requests: Sequence[FitRequest]) -> None:
        n_fits = len(requests)
        self.max_iter = np.array([request.max_iter for request in requests])
        self.tol = [request.tol for request in requests]
        self.histories: list[list[float]] = [[np.inf] for _ in range(n_fits)]
        self.is_active = np.ones(n_fits, bool)
        self.has_failed = np.zeros(n_fits, bool)
        self.is_restart = np.zeros(n_fits, bool)
        self.momentum = np.ones(n_fits)
        self.reasons: list[StopReason] = ["max_iter"] * n_fits

    @property
    def _next_momentum(self) -> Vector:
        momentum: Vector = (1 + np.sqrt(1 + 4 * self.momentum**2)) / 2
        return momentum

    def momentum_shares(self) -> Vector:
        """How far beyond its last items each fit starts, as a share of its last change."""
        shares: Vector = np.where(self.is_restart, 0.0, (self.momentum - 1) / self._next_momentum)
        return shares

    def accept(self, value: Vector) -> BoolVector:
        """Which fits go on to the result of the sweep."""
        self.has_failed |= self.is_active & ~np.isfinite(value)
        self.is_active &= ~self.has_failed
        last = np.array([history[-1] for history in self.histories])
        is_new = self.is_active & (self.is_restart | (value <= last))
        self.momentum[is_new] = np.where(self.is_restart, 1.0, self._next_momentum)[is_new]
        self.is_restart = self.is_active & ~is_new
        for fit in np.flatnonzero(is_new):
            history = self.histories[fit]
            history.append(float(value[fit]))
            if is_flat(tuple(history), self.tol[fit], 1):
                self.reasons[fit], self.is_active[fit] = "converged", False
            elif len(history) > self.max_iter[fit]:
                self.is_active[fit] = False
        return is_new

    def solution(self, fit: int, factors: Factors) -> Solution[Factors]:
        return Solution(factors, tuple(self.histories[fit]), self.reasons[fit])


def _choose(
    is_new: torch.Tensor,
    new: tuple[torch.Tensor, torch.Tensor],
    old: tuple[torch.Tensor, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    factors = torch.where(is_new[:, None, None], new[0], old[0])
    return factors, torch.where(is_new[:, None], new[1], old[1])


def _load(requests: Sequence[FitRequest], device: torch.device) -> tuple[_Batch, DeviceCells]:
    """The logs of all fits, sorted by user and by item on the device."""
    first, n_fits = requests[0], len(requests)
    dtype, has_offsets = getattr(torch, first.dtype), first.offsets != "none"
    like = torch.empty(0, dtype=dtype, device=device)
    logs = {id(request.log): request.log for request in requests}
    copies = {
        key: [to_device(column, device) for column in (log.user, log.item, log.rating)]
        for key, log in logs.items()
    }
    columns = [copies[id(request.log)] for request in requests]
    user = torch.cat([part[0] + fit * first.log.n_users for fit, part in enumerate(columns)])
    item = torch.cat([part[1] + fit * first.log.n_items for fit, part in enumerate(columns)])
    rating = torch.cat([part[2].to(dtype) for part in columns])
    weight = torch.cat([to_device(request.weight, device) for request in requests])
    lengths = torch.tensor([len(request.log) for request in requests], device=device)
    penalties = [request.penalty for request in requests]
    ridges = [[p.factors, p.user_offset, p.item_offset, p.global_offset] for p in penalties]
    ridge = torch.tensor(ridges, dtype=torch.float64, device=device)
    totals = [float(request.weight.sum()) for request in requests]
    total = torch.tensor(totals, dtype=torch.float64, device=device)

    def sort(side: Side, number: int) -> tuple[_BatchSide, DeviceCells]:
        codes = (user, item) if side == "user" else (item, user)
        n_rows = first.log.n_users if side == "user" else first.log.n_items
        has_ridge = ridges[0][number] > 0
        unit = ridge[:, number] if has_ridge else torch.ones_like(total)
        divided = (weight / torch.repeat_interleave(unit, lengths)).to(dtype)
        cells = DeviceCells.sort_on_device(*codes, rating, divided, n_fits * n_rows, side=side)
        penalty = RowPenalty(1.0, float(has_ridge) if has_offsets else None)
        scale = (unit / ridge[:, 0]).sqrt()
        solve = choose_row_solver(like, first.n_factors)
        block = next(cells.blocks())
        return _BatchSide(block, n_fits, unit, scale, penalty, solve), cells

    by_user, user_cells = sort("user", 1)
    by_item, _ = sort("item", 2)
    return _Batch(by_user, by_item, ridge, total, has_offsets), user_cells


def _split_seen(by_user: DeviceCells, n_fits: int, n_items: int) -> list[tuple[Any, Any]]:
    """The items of each user, by fit."""
    starts, items = by_user.starts.numpy(), to_host(by_user.opposite)
    n_users = (starts.size - 1) // n_fits
    seen = []
    for fit in range(n_fits):
        part = starts[fit * n_users : (fit + 1) * n_users + 1]
        seen.append((part - part[0], items[part[0] : part[-1]] - fit * n_items))
    return seen
