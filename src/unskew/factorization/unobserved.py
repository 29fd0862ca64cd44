"""Squared loss over all cells, where all unobserved cells share one target and one weight."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.objective import Objective, SortedCells, sort_both_ways
from unskew.factorization.solution import Dtype
from unskew.threads import Workers
from unskew.types import Vector

MIN_EXTRA_SHARE = 1e-6
"""The smallest share of an observed cell's weight that must exceed the unobserved weight. Less
would cost the objective its precision."""


@dataclass(frozen=True, slots=True, eq=False)
class AllCellsLoss:
    """The sum of weight (Y - F)^2 on the log, and of unobserved_weight (fill - F)^2 elsewhere."""

    log: Ratings
    """Its ratings are the targets."""
    weight: Vector
    """The weight of each observed cell; it must exceed ``unobserved_weight``."""
    unobserved_weight: float
    fill: float
    """The target of all unobserved cells."""

    def make_objective(
        self, n_factors: int, ridge: float, *, scales_penalty: bool, dtype: Dtype, workers: Workers
    ) -> Objective:
        """The same loss as extra weight on the log, plus a sum over all cells that rows share.

            c (t - f)^2 = (c - m) (t c / (c - m) - f)^2 + m f^2 - t^2 c m / (c - m)

        with c = weight and m = unobserved_weight. With ``scales_penalty`` the penalty of a row is
        multiplied by the total weight of its cells.
        """
        log, target, extra = self.log, self.log.rating - self.fill, self._extra_weight()
        rating = self.fill + target * self.weight / extra
        shape = log.n_users, log.n_items
        by_user, by_item = sort_both_ways(
            log.user, log.item, rating, extra, shape=shape, dtype=dtype
        )
        if scales_penalty:
            by_user = self._scale_penalty(by_user, log.n_items)
            by_item = self._scale_penalty(by_item, log.n_users)
        constant = -self.unobserved_weight * float((np.square(target) * self.weight / extra).sum())
        return Objective(
            by_user, by_item, n_factors, "none", ridge, workers, self.unobserved_weight, constant
        )

    def _extra_weight(self) -> Vector:
        """The weight of observed cells minus that of unobserved cells."""
        extra = self.weight - self.unobserved_weight
        is_too_small = extra < MIN_EXTRA_SHARE * self.weight
        if is_too_small.any():
            row = int(is_too_small.argmax())
            cell = self.log.name_cell(row)
            raise UsageError(
                "the weight of every observed cell must exceed that of unobserved cells "
                f"({self.unobserved_weight:g}); {int(is_too_small.sum())} of {len(self.log)} do "
                f"not. The first is {cell} with weight {self.weight[row]:g}.",
                value=float(self.weight[row]),
                where=cell,
                remedy="Lower the weight of unobserved cells, or raise that of the log.",
            )
        return extra

    def _scale_penalty(self, cells: SortedCells, n_opposite: int) -> SortedCells:
        total = cells.row_weights + self.unobserved_weight * n_opposite
        return replace(cells, penalty_scale=total.astype(cells.penalty_scale.dtype))
