"""Metrics of the whole ranking of a user, as functions of the weights of relevant cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from unskew.data.cells import RowNumbers
from unskew.metrics.metric import MetricInput
from unskew.types import IndexVector, IntVector, Matrix, Vector


@dataclass(frozen=True, eq=False)
class RankingFunction:
    """One of the functions of :mod:`unskew.kernels.user_metrics`, for all users."""

    kind: int
    user: IntVector
    above: IntVector
    equal: IntVector
    gain: Vector
    """0 for cells that are not relevant."""
    worth: Vector
    """What a gain at the cell's position counts."""
    sums: Vector
    """What gains of 1 at the first 0, 1, 2, ... positions count together."""
    n_candidates: IntVector
    """Of all users of the universe."""
    top: int
    empty_value: float | None = None
    """The value of users without an observed relevant item; None leaves them out."""

    @classmethod
    def of(
        cls,
        kind: int,
        cells: MetricInput,
        gain: Vector,
        *,
        top: int | None,
        worth: Any = np.ones_like,
        empty_value: float | None = None,
    ) -> RankingFunction:
        """The function of one model; ``worth`` gives what a gain at a position counts."""
        user, tie_counts = cells.require_users(), cells.require_tie_counts()
        positions, n_items = cells.require_positions()
        last = n_items if top is None else min(top, n_items)
        values = worth(np.arange(1.0, last + 1.0))
        return cls(
            kind,
            user,
            *tie_counts,
            gain,
            positions.mean(worth, last=last),
            np.append(0.0, np.cumsum(values)),
            cells.count_candidates(),
            last,
            empty_value,
        )

    def take(self, rows: IndexVector, /) -> RankingFunction:
        return replace(
            self,
            user=self.user[rows],
            above=self.above[rows],
            equal=self.equal[rows],
            gain=self.gain[rows],
            worth=self.worth[rows],
        )

    @property
    def has_bias(self) -> bool:
        from unskew.kernels.user_metrics import LINEAR_IN_EACH

        return self.kind not in LINEAR_IN_EACH

    def measure(self, weight: Vector, p_unobserved: Vector | None = None, /) -> Matrix:
        from unskew.kernels.user_metrics import measure_users

        cells, users, arguments = self._sorted
        results = np.zeros((self.n_candidates.size, 2))
        if self.empty_value is not None:
            results[self.n_candidates > 0] = self.empty_value, 1.0
        p_unobserved_of_cells = np.empty(0) if p_unobserved is None else p_unobserved[cells]
        measured = measure_users(self.kind, weight[cells], p_unobserved_of_cells, *arguments)
        if self.empty_value is None:
            results[users] = measured
        else:
            is_empty = np.bincount(self.user[cells], weight[cells], len(results))[users] <= 0
            results[users[~is_empty]] = measured[~is_empty]
        return results

    def differentiate(self, weight: Vector, /) -> Matrix:
        from unskew.kernels.user_metrics import differentiate_users

        cells, _, arguments = self._sorted
        results = np.zeros((weight.size, 2))
        results[cells] = differentiate_users(self.kind, weight[cells], *arguments)
        return results

    @cached_property
    def _sorted(self) -> tuple[RowNumbers, IntVector, tuple[Any, ...]]:
        """Relevant cells by user and position, their users, and what kernels read."""
        chosen = np.flatnonzero(self.gain > 0)
        order = np.lexsort((self.above[chosen], self.user[chosen]))
        cells = chosen[order]
        users, starts = np.unique(self.user[cells], return_index=True)
        gain = self.gain[cells]
        arguments = (
            np.append(starts, cells.size),
            self.above[cells],
            self.equal[cells],
            gain,
            self.worth[cells],
            np.lexsort((-gain, self.user[cells])),
            self.n_candidates[users],
            self.sums,
            self.top,
        )
        return cells, users, arguments
