"""Propensities that were fitted to the log by score equations, sum of (O - P) s = 0.

``b = sum over observed cells of d e g`` is minus the derivative of a risk, times C, by the
parameters; ``g = d log P / d parameters``, and ``A`` is the sum over all cells of P g s'. Then
``B = A^-1 b``, and the error of the risk has ``h e - B's`` instead of ``h e``. ``A`` is without a
penalty: the bias of a penalty, ``B' sum of (O - P) s / C`` to first order, is subtracted from the
risk, which is then to first order independent of how the parameters were found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, Self

import numpy as np

from unskew.data.estimation import (
    NO_SCORE,
    Correction,
    Estimation,
    Unit,
    undo_leverage,
)
from unskew.data.logit_terms import LogitGrid
from unskew.data.offset_equations import OffsetCoefficients, OffsetEquations
from unskew.kernels.blocks import add_columns, add_pairs, cut_rows, sum_by_code, sum_products
from unskew.threads import single_blas_thread
from unskew.types import IndexVector, IntVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """``B's`` of K risks, and what follows from it."""

    score_of: Callable[[slice], Matrix]
    """Of some of the observed cells: K x cells."""
    find_information: Callable[[], Matrix]
    """K x K: B'AB, which only other logs than that of the fit need."""
    bias: Vector
    expect: Callable[[Unit], Matrix]
    """Users of the model x K: the sum of ``P B's`` over all items; or items of the model x K."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreEstimation(Estimation):
    """A model that was fitted by score equations. A subclass solves for ``B``."""

    user: IntVector
    """The user of each observed cell, as a code of the model."""
    item: IntVector
    users: IntVector
    """The code of the model for each user of the log."""
    items: IntVector
    uncertainty: Vector
    """1 - P of each observed cell."""
    n_fitted: int
    """Cells in the log of the fit."""

    def take(self, rows: IndexVector) -> Self:
        is_part = self.relation == "same" and rows.size < self.user.size
        return replace(
            self,
            user=self.user[rows],
            item=self.item[rows],
            uncertainty=self.uncertainty[rows],
            fixed=None if self.fixed is None else self.fixed[rows],
            relation="part" if is_part else self.relation,
        )

    def correct(self, residual: Matrix, weight: Vector, weight_derivative: Vector) -> Correction:
        with single_blas_thread():
            projection = self._project(residual, weight_derivative)
            if self.relation != "same":
                return self._correct_other_log(projection)
            return self._correct_same_log(projection, residual, weight)

    def _project(self, residual: Matrix, weight_derivative: Vector) -> Projection:
        """Solve A B = b, given e (K x observed cells) and d."""
        raise NotImplementedError

    @cached_property
    def leverage(self) -> Vector:
        """The share of each cell in its own ``B's``."""
        raise NotImplementedError

    leverage_power: ClassVar[float] = 1.0
    """See :func:`unskew.data.estimation.undo_leverage`."""

    @cached_property
    def _factor(self) -> Vector:
        return undo_leverage(self.leverage, self.leverage_power)

    @property
    def _has_few_parameters(self) -> bool:
        return False

    @cached_property
    def _singletons(self) -> IntVector:
        """Cells that determine a parameter alone, so that they have no residual."""
        return np.empty(0, dtype=np.int32)

    def _correct_same_log(
        self, projection: Projection, residual: Matrix, weight: Vector
    ) -> Correction:
        score_of, pooled, alone = projection.score_of, None, self._singletons
        if alone.size:
            score = score_of(slice(None))
            score[:, alone] = residual[:, alone] * weight[alone]
            pooled = self._pool_variance(residual, weight, score)
            score_of = partial(_take_rows, score)

        def expect(unit: Unit) -> Matrix:
            with single_blas_thread():
                expected = projection.expect(unit)
            return expected[self.users if unit == "user" else self.items]

        return Correction(
            score_of,
            self._factor.__getitem__,
            expected_by=expect,
            pooled=pooled,
            bias=projection.bias,
        )

    def _correct_other_log(self, projection: Projection) -> Correction:
        """B'AB is subtracted for a part of the log of the fit, and added for another log.

        With many parameters its estimate is too large, because B follows the noise of the cells.
        Then it is not subtracted, which makes intervals a little too wide.
        """
        is_part, reduces = self.relation == "part", self._has_few_parameters
        is_used = reduces or not is_part
        information = projection.find_information() if is_used else None
        return Correction(
            lambda _: NO_SCORE,
            reduction=information if is_part else None,
            addition=None if is_part else information,
            bias=projection.bias,
        )

    def _pool_variance(self, residual: Matrix, weight: Vector, score: Matrix) -> Matrix:
        """The variance of the cells that are alone, from the residuals of the others."""
        alone, is_used = self._singletons, weight > 0
        is_used[alone] = False
        uncertainty = np.where(is_used, self.uncertainty, 0.0)
        free = float(uncertainty @ (1.0 - np.minimum(self.leverage, 1.0)))
        inverse = np.divide(1.0, weight, out=np.zeros_like(weight), where=is_used)
        if free <= 0:
            uncertainty, inverse = self.uncertainty, np.zeros_like(weight)
            free = max(float(uncertainty.sum()), np.finfo(np.float64).tiny)
        spread = np.zeros((len(residual), len(residual)))
        for rows in cut_rows(weight.size):
            centred = residual[:, rows] - score[:, rows] * inverse[rows]
            spread += sum_products(centred * uncertainty[rows], centred)
        squared = float(np.square(weight[alone]) @ self.uncertainty[alone])
        return squared / free * spread


@dataclass(frozen=True, eq=False, kw_only=True)
class Score(ScoreEstimation):
    """Logistic regression without offsets: logit P is a sum of few terms times coefficients."""

    grid: LogitGrid
    excess: Vector
    """Sum over all cells of (O - P) s in the log of the fit: the penalty times coefficients."""

    def _project(self, residual: Matrix, weight_derivative: Vector) -> Projection:
        grid = self.grid
        factor = weight_derivative * self.uncertainty
        gradient = grid.terms.add_up(residual, *self._rows, factor)
        coefficient = gradient @ grid.inverse_information

        def expect(unit: Unit) -> Matrix:
            by_unit = grid.expect_terms(unit, coefficient)
            return by_unit[grid.user_unit if unit == "user" else grid.item_unit]

        return Projection(
            grid.terms.multiply(coefficient, *self._rows),
            lambda: gradient @ coefficient.T,
            coefficient @ self.excess,
            expect,
        )

    @cached_property
    def _rows(self) -> tuple[IntVector, IntVector]:
        """The rows of each cell's user and item in the terms."""
        user_row, item_row = self.grid.find_rows()
        return user_row[self.user], item_row[self.item]

    @property
    def _has_few_parameters(self) -> bool:
        return True

    @cached_property
    def leverage(self) -> Vector:
        return np.full(self.user.size, min(self.grid.n_parameters / max(self.user.size, 1), 1.0))


@dataclass(frozen=True, eq=False, kw_only=True)
class Offsets(ScoreEstimation):
    """Logistic regression with a number for each user, or for each item, or both.

    There are too many parameters for their information matrix. ``B's`` is the weighted least
    squares fit of ``d e`` on the terms, over the observed cells and with weights 1 - P: the same
    equations with A estimated from the log.
    """

    grid: LogitGrid
    has_user: bool
    """Whether users have offsets."""
    has_item: bool
    excess: OffsetCoefficients
    """One row: the sum over all cells of (O - P) s in the log of the fit."""

    def _project(self, residual: Matrix, weight_derivative: Vector) -> Projection:
        share = self.user.size / self.n_fitted
        coefficients = self._equations.solve(residual, weight_derivative)
        score_of = self._multiply(coefficients)

        def find_information() -> Matrix:
            gradient = residual * (weight_derivative * self.uncertainty)
            information: Matrix = share * gradient @ score_of(slice(None)).T
            return information

        return Projection(
            score_of,
            find_information,
            share * coefficients.dot(self.excess),
            lambda unit: self._expect(unit, coefficients),
        )

    @cached_property
    def _equations(self) -> OffsetEquations:
        grid = self.grid
        return OffsetEquations.build(
            grid.terms,
            (self.user, self.item),
            grid.find_rows(),
            self.uncertainty,
            has_user=self.has_user,
            has_item=self.has_item,
        )

    def _multiply(self, coefficients: OffsetCoefficients) -> Callable[[slice], Matrix]:
        """``B's`` of some of the observed cells."""
        terms, rows = self.grid.terms, self.grid.find_rows()
        if not terms.has_products:
            by_user, by_item = (
                part[:, row] + (offsets if offsets.size else 0.0)
                for part, row, offsets in zip(
                    terms.split(coefficients.terms),
                    rows,
                    (coefficients.user, coefficients.item),
                    strict=True,
                )
            )
            return lambda rows: add_pairs(by_user, self.user[rows], by_item, self.item[rows])
        multiply_terms = terms.multiply(coefficients.terms, *self._equations.rows)

        def multiply(rows: slice) -> Matrix:
            product = multiply_terms(rows)
            if self.has_user:
                add_columns(product, coefficients.user, self.user[rows])
            if self.has_item:
                add_columns(product, coefficients.item, self.item[rows])
            return product

        return multiply

    def _expect(self, unit: Unit, coefficients: OffsetCoefficients) -> Matrix:
        """Sums of ``P B's`` over all items of each user, or over all users of each item."""
        grid = self.grid
        offsets, has_offsets, code = coefficients.user, self.has_user, grid.user_unit
        opposite, opposite_code, count = coefficients.item, grid.item_unit, grid.item_count
        if unit == "item":
            offsets, has_offsets, code = coefficients.item, self.has_item, grid.item_unit
            opposite, opposite_code, count = coefficients.user, grid.user_unit, grid.user_count
        columns = [count[:, None]]
        if opposite.size:
            columns.append(sum_by_code(opposite, opposite_code, count.size).T)
        expected = grid.expect(unit, np.hstack(columns))
        by_unit = grid.expect_terms(unit, coefficients.terms)
        if opposite.size:
            by_unit += expected[:, 1:]
        by_member: Matrix = by_unit[code]
        return by_member + offsets.T * expected[code, :1] if has_offsets else by_member

    @cached_property
    def leverage(self) -> Vector:
        weight = self.uncertainty
        leverage = np.full(weight.size, len(self.grid.terms) / weight.size)
        total = float(weight.sum())
        sides = [code for code, is_used in self._sides() if is_used]
        for code in sides:
            leverage += weight * (1.0 / np.maximum(np.bincount(code, weight), 1e-300))[code]
        if len(sides) == 2:
            leverage -= weight / total
        leverage[self._singletons] = 0.0
        return leverage

    leverage_power: ClassVar[float] = 1.5
    """Between HC2 and HC3: with this many parameters one is too narrow, the other too wide."""

    @cached_property
    def _singletons(self) -> IntVector:
        is_singleton = np.zeros(self.user.size, dtype=bool)
        for code, is_used in self._sides():
            if is_used:
                is_singleton |= (np.bincount(code) == 1)[code]
        return np.flatnonzero(is_singleton).astype(np.int32)

    def _sides(self) -> tuple[tuple[IntVector, bool], tuple[IntVector, bool]]:
        return (self.user, self.has_user), (self.item, self.has_item)


@dataclass(frozen=True, eq=False, kw_only=True)
class Margins(ScoreEstimation):
    """P = min(1, k n_u n_i), with k such that all propensities add up to the number of ratings.

    The derivative of log P by the counts is known in closed form. Without capped cells k = 1 / n,
    and ``B's = b_u / n_u + b_i / n_i - b / n`` for the sums b_u, b_i and b of ``d e`` over the
    cells of the user, of the item, and over all. The bias of 1/P is subtracted to second order.
    """

    bias_source: ClassVar[str] = "use of small counts"
    bias_remedy: ClassVar[str] = "Use 'snips', in which most of this bias cancels."
    user_total: Vector
    """n_u of each user of the model, in the log of the fit."""
    item_total: Vector
    scale: float
    """k."""

    @cached_property
    def _products(self) -> tuple[ProductRows, ProductRows]:
        return (
            ProductRows.sort(self.scale * self.user_total, self.item_total),
            ProductRows.sort(self.scale * self.item_total, self.user_total),
        )

    @cached_property
    def _bias(self) -> Vector:
        """The relative bias of 1/P of each observed cell."""
        totals = self.user_total, self.item_total
        variances = [
            rows.sum_free(np.ones((1, opposite.size)))[0]
            - rows.factor * rows.sum_free(opposite[None])[0]
            for rows, opposite in zip(self._products, reversed(totals), strict=True)
        ]
        return find_inverse_bias(
            (self.user, self.item),
            totals,
            (variances[0], variances[1]),
            self.uncertainty,
            is_counted=self.relation != "other",
        )

    def _project(self, residual: Matrix, weight_derivative: Vector) -> Projection:
        n_users, n_items = self.user_total.size, self.item_total.size
        of_users, of_items = self._products
        free_by_user = of_users.sum_free(np.ones((1, n_items)))[0]
        free_by_item = of_items.sum_free(np.ones((1, n_users)))[0]
        by_user = sum_by_code(residual, self.user, n_users, weight_derivative)
        by_item = sum_by_code(residual, self.item, n_items, weight_derivative)
        total = by_user.sum(axis=1, keepdims=True) / max(float(free_by_user.sum()), 1e-300)
        by_user -= total * free_by_user
        by_item -= total * free_by_item
        user, item = _divide(by_user, self.user_total), _divide(by_item, self.item_total)
        by_code = user + total

        def find_score(rows: slice) -> Matrix:
            return add_pairs(by_code, self.user[rows], item, self.item[rows])

        def expect(unit: Unit) -> Matrix:
            offsets, opposite, rows = by_code, item, of_users
            if unit == "item":
                offsets, opposite, rows = item + total, user, of_items
            ones = np.ones((1, opposite.shape[1]))
            expected: Matrix = offsets * rows.sum_all(ones) + rows.sum_all(opposite)
            return expected.T

        return Projection(
            find_score,
            lambda: (residual * weight_derivative) @ find_score(slice(None)).T,
            residual @ (weight_derivative * self._bias),
            expect,
        )

    @cached_property
    def leverage(self) -> Vector:
        of_user, of_item = (_divide(np.ones(1), n) for n in (self.user_total, self.item_total))
        leverage = of_user[self.user] + of_item[self.item] - 1.0 / self.user.size
        leverage[self._singletons] = 0.0
        return leverage

    @cached_property
    def _singletons(self) -> IntVector:
        is_singleton = (self.user_total < 2)[self.user] | (self.item_total < 2)[self.item]
        return np.flatnonzero(is_singleton).astype(np.int32)


def find_inverse_bias(
    codes: tuple[IntVector, IntVector],
    totals: tuple[Vector, Vector],
    variances: tuple[Vector, Vector],
    uncertainty: Vector,
    *,
    is_counted: bool,
) -> Vector:
    """The relative bias of O / P with 1/P = n / (n_u n_i) of some cells, to second order.

    ``totals`` are n_u and n_i; their ``variances`` v are sums of P (1 - P). An inverse count is too
    large by v_u / n_u^2. If the cell itself is counted (``is_counted``), all three counts are
    higher by 1 - P than on average over logs. The two nearly cancel if P is the same in all cells;
    if it varies, cells with a small P get too small a weight.
    """
    n = float(totals[0].sum())
    bias = uncertainty * ((1 + is_counted) / n)
    for code, total, variance in zip(codes, totals, variances, strict=True):
        inverse = np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)
        bias += (variance * inverse * (inverse - 1.0 / n))[code]
        if is_counted:
            bias -= uncertainty * inverse[code]
    return bias


@dataclass(frozen=True, slots=True, eq=False)
class ProductRows:
    """min(1, a_u b_i), row by row, with the columns in ascending order of b."""

    factor: Vector
    """a of each row."""
    column: Vector
    """b in ascending order."""
    order: IntVector
    n_free: IntVector
    """How many of the columns have a_u b_i < 1, for each row."""

    @classmethod
    def sort(cls, factor: Vector, column: Vector) -> ProductRows:
        order = np.argsort(column, kind="stable").astype(np.int32)
        with np.errstate(divide="ignore"):
            n_free = np.searchsorted(column[order], 1.0 / factor, side="left")
        return cls(factor, column[order], order, n_free.astype(np.int32))

    def sum_free(self, values: Matrix) -> Matrix:
        """Sums of a_u b_i times values over the columns with a_u b_i < 1: K x rows."""
        below = _cumulate(values[:, self.order] * self.column)
        sums: Matrix = self.factor * below[:, self.n_free]
        return sums

    def sum_all(self, values: Matrix) -> Matrix:
        """Sums of min(1, a_u b_i) times values over all columns: K x rows."""
        below = _cumulate(values[:, self.order])
        return self.sum_free(values) + below[:, -1:] - below[:, self.n_free]


def _take_rows(columns: Matrix, rows: slice) -> Matrix:
    return columns[:, rows]


def _cumulate(values: Matrix) -> Matrix:
    """Sums of the first 0, 1, 2, ... columns."""
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def _divide(values: Matrix, count: Vector) -> Matrix:
    shape = np.broadcast_shapes(values.shape, count.shape)
    return np.divide(values, count, out=np.zeros(shape), where=count > 0)
