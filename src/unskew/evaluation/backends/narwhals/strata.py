"""Estimated propensities in the query: sums by stratum, and contributions centred in strata.

Strata by rating, or of all cells, are few: their sums are fetched, and a second query centres the
contributions of users or items with them. Strata by item or by user are many: the engine adds them
up, and computes their means as window functions if clusters need them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, TypeAlias

import numpy as np

from unskew.data.estimation import FrameStrata, Unit
from unskew.data.weights import WeightTransform, transform_weights
from unskew.errors import BadRatingError
from unskew.estimators.frame_variance import (
    LevelSums,
    SecondMoments,
    StrataSums,
    pool_variance,
)
from unskew.estimators.observed import find_weight_derivative
from unskew.estimators.sums import Sums
from unskew.evaluation.backends.narwhals.columns import FrameColumn, choose, column, constant
from unskew.evaluation.backends.narwhals.log import SQUARED_WEIGHT
from unskew.evaluation.backends.narwhals.sums import (
    FITTED_COUNT,
    KEPT,
    ONE,
    STRATUM,
    UNCERTAINTY,
    WEIGHT,
    WEIGHT_DERIVATIVE,
    SumTerms,
    TotalsReader,
    multiply,
)
from unskew.evaluation.backends.narwhals.table import GROUP, FrameTable, Totals
from unskew.types import Matrix, Vector

LevelTotals: TypeAlias = Mapping[float, Totals]
"""The totals of each stratum."""


class StrataTerms:
    """The terms that estimated propensities add to a query, and how to read them."""

    def __init__(
        self, strata: FrameStrata, units: Sequence[Unit], *, by_group: bool, is_fixed: bool
    ) -> None:
        self.strata = strata
        self.units = tuple(units)
        self.by_group = by_group
        self.is_fixed = is_fixed
        """Whether -dh / d log P may differ from h."""

    def find_addition(self, variance: Matrix, is_of_fit: bool) -> Matrix:
        """What the counts of another log, or of all of this log, add to the variance.

        ``is_of_fit`` says whether the frame is the log of the fit, so that some of its rows are a
        part of it. Then their errors cancel a part of those of the counts; with clusters this is
        left out, which makes intervals a little too wide.
        """
        if is_of_fit:
            return -variance if not self.units else np.zeros_like(variance)
        return variance

    def columns_to_centre(self, reader: TotalsReader) -> list[str]:
        """The columns that are not 0 after centring: 1 is its own mean in each stratum."""
        return [name for name in reader.columns if name != ONE or self.is_fixed]

    def request_centred(self, terms: SumTerms, reader: TotalsReader, unit: Unit) -> None:
        """Add up, over units, their sums of centred columns and the products of these."""
        names = self.columns_to_centre(reader)
        for name in names:
            terms.add(centred(name), column(centred(name)))
            terms.add_unit_term(unit, unit_total(unit, name), column(centred(name)))
        for first, second in combinations_with_replacement(names, 2):
            product = column(centred(first)) * column(centred(second))
            terms.add_unit_term(unit, unit_total(unit, first, second), product)

    def read_units(
        self, totals: Totals, reader: TotalsReader, n: Mapping[Unit, int]
    ) -> tuple[Sums, ...]:
        """The sums over units of their centred contributions."""
        return tuple(
            Sums(
                np.array([totals.get(unit_total(unit, name), 0.0) for name in reader.columns]),
                read_matrix(reader, totals, lambda *pair, unit=unit: unit_total(unit, *pair)),
                n[unit],
            )
            for unit in self.units
        )


def centred(name: str) -> str:
    """The column of h x minus the mean of -dh/dlog P x in the stratum."""
    return f"centred__{name}"


def unit_total(unit: Unit, *names: str) -> str:
    """The sum over units of centred contributions, or of their products."""
    return "__".join([f"{unit}_centred", *names])


def plain(first: str, second: str) -> str:
    """The sum of products of two columns, without weights."""
    return plain_total(first) if second == ONE else f"plain__{first}__{second}"


def plain_total(name: str) -> str:
    """The sum of a column, without weights."""
    return KEPT if name == ONE else f"{KEPT}__{name}"


def read_matrix(reader: TotalsReader, totals: Totals, term: Any) -> Matrix:
    """Columns x columns, from the totals with these names; a total that is not there is 0."""
    size = len(reader.columns)
    matrix = np.zeros((size, size))
    for i, j in combinations_with_replacement(range(size), 2):
        name = term(reader.columns[i], reader.columns[j])
        matrix[i, j] = matrix[j, i] = totals.get(name, 0.0)
    return matrix


def request_plain(terms: SumTerms, reader: TotalsReader, kept: FrameColumn | None) -> None:
    """Add up x and x x' without weights, times ``kept`` unless it is None."""
    values = {
        name: column(name) if kept is None else kept * column(name)
        for name in reader.columns
        if name != ONE
    }
    for name, value in values.items():
        terms.add(plain_total(name), value)
    for first, second in reader.pairs:
        if first != ONE:
            terms.add(plain(first, second), multiply(values[first], second))


def bessel_factor(n: FrameColumn) -> FrameColumn:
    """n / (n - 1), the correction for the estimated mean of a stratum; 1 if it has one cell."""
    has_several = n > 1.5
    return choose(has_several, n / choose(has_several, n - 1.0, 1.0), 1.0)


class ListedStrata(StrataTerms):
    """Strata by rating, or of all cells."""

    def __init__(
        self,
        strata: FrameStrata,
        units: Sequence[Unit],
        weight_transform: WeightTransform | None,
        *,
        by_group: bool,
    ) -> None:
        is_observed = strata.propensity > 0
        inverse = 1.0 / np.where(is_observed, strata.propensity, 1.0)
        self.weight = transform_weights(inverse, weight_transform)
        self.weight_derivative = find_weight_derivative(inverse, weight_transform)
        if strata.has_limit:
            self.weight_derivative = np.where(strata.propensity >= 1, 0.0, self.weight_derivative)
        is_fixed = not np.array_equal(self.weight, self.weight_derivative)
        super().__init__(strata, units, by_group=by_group, is_fixed=is_fixed)
        self.terms = SumTerms()

    def store(self, table: FrameTable) -> None:
        """Store the column to group by; rows that are not used form a stratum of their own."""
        key = column("rating") if self.strata.kind == "rating" else constant(0.0)
        unused = float(self.strata.levels[-1]) + 1.0
        table.store({STRATUM: choose(column(KEPT) > 0.0, key, unused)})

    def request(self, reader: TotalsReader, table: FrameTable) -> None:
        """Add the terms that the sums of each stratum need."""
        if not reader.spec.of_ratios:
            request_plain(self.terms, reader, None)
        elif self.strata.sample is not None:
            self._request_gradient(reader, table)

    def _request_gradient(self, reader: TotalsReader, table: FrameTable) -> None:
        """(delta - R_u base) / sum_u h base of each cell, where R_u is the ratio of its unit."""
        if gradient_term(reader, reader.columns[0]) in self.terms.rows:
            return
        keys = [*([GROUP] if self.by_group else []), str(reader.spec.unit)]
        *deltas, base = reader.columns
        total = table.sum_over(multiply(column(WEIGHT), base), keys)
        divisor = choose(total > 0.0, total, 1.0)
        for delta in deltas:
            ratio = table.sum_over(multiply(column(WEIGHT), delta), keys) / divisor
            residual = column(delta) - multiply(ratio, base)
            contribution = choose(total > 0.0, column(KEPT) * residual / divisor, 0.0)
            self.terms.add(gradient_term(reader, delta), contribution)

    def run(self, table: FrameTable) -> Mapping[Any, LevelTotals]:
        """The totals of each stratum, by group."""
        return table.add_up_by(self.terms.rows, STRATUM, by_group=self.by_group)

    def run_with(
        self, table: FrameTable, more: Mapping[str, FrameColumn], readers: Iterable[TotalsReader]
    ) -> Mapping[Any, LevelTotals]:
        """The same with more totals, of which those of weighted columns need no terms.

        All cells of a stratum have the same weight, so it is multiplied afterwards.
        """
        derived = self._find_derived(readers)
        others = {name: term for name, term in more.items() if name not in derived}
        terms = others | self.terms.rows
        fetched = table.add_up_by(terms, STRATUM, by_group=self.by_group)
        return {
            group: {level: self._derive(level, totals, derived) for level, totals in levels.items()}
            for group, levels in fetched.items()
        }

    def _find_derived(self, readers: Iterable[TotalsReader]) -> dict[str, tuple[str, Vector]]:
        """By name of a total: the total without weights, and its factor in each stratum."""
        square, uncertainty = self.weight * self.weight, 1.0 - self.strata.propensity
        derived = {WEIGHT: (KEPT, self.weight), SQUARED_WEIGHT: (KEPT, square)}
        for reader in readers:
            one, base = np.ones_like(square), reader.columns[-1]
            h, h2 = (self.weight, square) if reader.spec.is_weighted else (one, one)
            for name in reader.columns:
                derived[reader.row_term(name)] = plain_total(name), h
            for pair in reader.pairs:
                derived[reader.row_term(*pair)] = plain(*pair), h2 * uncertainty
            derived[reader.squared_base] = plain(base, base), h2
        return {name: rule for name, rule in derived.items() if name not in self.terms.rows}

    def _derive(
        self, level: float, totals: Totals, derived: Mapping[str, tuple[str, Vector]]
    ) -> Totals:
        if not totals[KEPT]:
            return {**totals, **dict.fromkeys([*self.terms.rows, *derived], 0.0)}
        index = self._find_index(level)
        factors = {name: (plain, float(factor[index])) for name, (plain, factor) in derived.items()}
        return {
            **totals,
            **{name: totals[plain] * factor for name, (plain, factor) in factors.items()},
        }

    def _find_index(self, level: float) -> int:
        index = int(np.searchsorted(self.strata.levels, level))
        if index == self.strata.levels.size or self.strata.levels[index] != level:
            raise BadRatingError(
                f"the rating {level:g} was not in the log that the propensities were fitted to.",
                parameter="rating",
                value=level,
                remedy="Fit them to a log that has this rating.",
            )
        return index

    def differs(self, levels: LevelTotals) -> bool:
        """Whether the rows are not all of the log of the fit."""
        return not np.array_equal(self._read(levels, KEPT), self.strata.count)

    def _read(self, levels: LevelTotals, name: str) -> Vector:
        """One total of all strata, in the order of ``strata.levels``."""
        values = np.zeros(self.strata.levels.size)
        for level, totals in levels.items():
            if totals[KEPT]:
                values[self._find_index(level)] = totals[name]
        return values

    def read_levels(self, levels: LevelTotals, reader: TotalsReader) -> LevelSums:
        """Sums over the rows of each stratum."""
        size = len(reader.columns)
        moment = np.empty((self.strata.levels.size, size, size))
        for i, j in combinations_with_replacement(range(size), 2):
            values = self._read(levels, plain(reader.columns[i], reader.columns[j]))
            moment[:, i, j] = moment[:, j, i] = values
        return LevelSums(
            count=self._read(levels, KEPT),
            total=np.stack([self._read(levels, plain_total(n)) for n in reader.columns], axis=1),
            moment=moment,
            weight=self.weight,
            weight_derivative=self.weight_derivative,
            uncertainty=1.0 - self.strata.propensity,
        )

    def store_centred(
        self, table: FrameTable, terms: SumTerms, levels: LevelTotals, reader: TotalsReader
    ) -> None:
        """Centre the columns with the means of the strata, and add them up by unit."""
        sums = self.read_levels(levels, reader)
        factor = np.sqrt(sums.bessel_factor)
        scale = self._look_up(factor * sums.weight)
        mean = sums.total * (factor * sums.weight_derivative / np.maximum(sums.count, 1))[:, None]
        table.store(
            {
                centred(name): column(KEPT)
                * (multiply(scale, name) - self._look_up(mean[:, reader.columns.index(name)]))
                for name in self.columns_to_centre(reader)
            }
        )
        for unit in self.units:
            self.request_centred(terms, reader, unit)

    def _look_up(self, values: Vector) -> FrameColumn:
        """The value of the stratum of each row."""
        if values.size == 1:
            return constant(float(values[0]))
        looked_up = constant(0.0)
        for level, value in zip(self.strata.levels.tolist(), values.tolist(), strict=True):
            looked_up = choose(column(STRATUM) == level, value, looked_up)
        return looked_up

    def read(
        self,
        levels: LevelTotals,
        totals: Totals,
        reader: TotalsReader,
        second_moments: SecondMoments,
        n: Mapping[Unit, int],
        *,
        is_of_fit: bool,
    ) -> StrataSums:
        """What the strata change for the estimate of one reader."""
        if reader.spec.of_ratios:
            return self._read_gradient(levels, totals, reader)
        sums = self.read_levels(levels, reader)
        zero = np.zeros_like(sums.moment[0])
        if self.differs(levels):
            variance = sums.count_variance(self.strata.count, self.strata.propensity)
            addition = self.find_addition(variance, is_of_fit)
            return StrataSums(second_moments, zero, addition, sums.gradient(), self.strata.sample)
        cells = sums.within(sums.uncertainty if not self.units else 1.0)
        moments = SecondMoments(cells, self.read_units(totals, reader, n))
        return StrataSums(moments, sums.pooled(), zero, sums.gradient(), self.strata.sample)

    def _read_gradient(
        self, levels: LevelTotals, totals: Totals, reader: TotalsReader
    ) -> StrataSums:
        zero = np.zeros((len(reader.columns),) * 2)
        gradient = np.zeros((len(reader.columns) - 1, self.strata.levels.size))
        if self.strata.sample is not None:
            rows = [self._read(levels, gradient_term(reader, name)) for name in reader.columns[:-1]]
            gradient = self.weight_derivative * np.stack(rows) / totals[reader.n_with_base]
        return StrataSums(SecondMoments(zero), zero, zero, gradient, self.strata.sample)


def gradient_term(reader: TotalsReader, delta: str) -> str:
    """The sum of the residuals of a mean of ratios."""
    return f"gradient__{reader.spec.unit}__{reader.columns[-1]}__{delta}"


class UnitStrata(StrataTerms):
    """Strata by item or by user, which the engine adds up."""

    @property
    def unit(self) -> Unit:
        """Whose cells form a stratum."""
        return "user" if self.strata.kind == "user" else "item"

    @property
    def n_different(self) -> str:
        """The number of strata with another number of rows than in the log of the fit."""
        return f"n_different_{self.unit}s"

    def request(self, terms: SumTerms, reader: TotalsReader, table: FrameTable) -> None:
        """Ask for the sums over strata of the variance due to the estimated propensities.

        In ``terms.add`` a column has a value for each row. In ``terms.add_unit_term`` it is the
        sum of these values over a stratum, so that ``KEPT``, which is 0 or 1 for each row, is
        there the number of rows of the stratum.
        """
        if reader.spec.of_ratios:
            return
        request_plain(terms, reader, column(KEPT))
        terms.add(WEIGHT_DERIVATIVE, column(WEIGHT_DERIVATIVE))
        terms.add(FITTED_COUNT, column(KEPT) * column(FITTED_COUNT))
        terms.add(UNCERTAINTY, column(KEPT) * column(UNCERTAINTY))
        n_rows = column(KEPT)
        at_least_one = choose(n_rows > 0.5, n_rows, 1.0)
        weight, weight_derivative, fitted, uncertainty = (
            column(name) / at_least_one
            for name in (WEIGHT, WEIGHT_DERIVATIVE, FITTED_COUNT, UNCERTAINTY)
        )
        is_different = (n_rows > 0.5) & ((fitted - n_rows >= 0.5) | (n_rows - fitted >= 0.5))
        terms.add_unit_term(self.unit, self.n_different, choose(is_different, 1.0, 0.0))
        terms.add_unit_term(self.unit, self._term("free"), choose(n_rows > 1.5, n_rows - 1.0, 0.0))
        is_singleton = (n_rows > 0.5) & (n_rows < 1.5)
        terms.add_unit_term(
            self.unit, self._term("singleton"), choose(is_singleton, weight * weight, 0.0)
        )
        inflation = bessel_factor(n_rows)
        if not self.units:
            inflation = inflation * uncertainty
        square_factor = 2.0 * weight * weight_derivative - weight_derivative * weight_derivative
        for first, second in reader.pairs:
            square = column(plain_total(first)) * column(plain_total(second)) / at_least_one
            moment = column(plain(first, second))
            terms.add_unit_term(self.unit, self._term("square", first, second), square)
            if len(self.units) != 1:
                within = inflation * (weight * weight * moment - square_factor * square)
                terms.add_unit_term(self.unit, self._term("within", first, second), within)
            count_term = weight_derivative * weight_derivative * square * at_least_one * uncertainty
            count_term = count_term / choose(fitted > 0.5, fitted, 1.0)
            terms.add_unit_term(self.unit, self._term("counts", first, second), count_term)
        for unit in self.units:
            if unit == self.unit:
                self._request_own(terms, reader, weight, weight_derivative)
            else:
                self._store_centred(table, reader)
                self.request_centred(terms, reader, unit)

    def _term(self, *names: str) -> str:
        return "__".join([f"strata_{self.unit}", *names])

    def _request_own(
        self,
        terms: SumTerms,
        reader: TotalsReader,
        weight: FrameColumn,
        weight_derivative: FrameColumn,
    ) -> None:
        """Clusters that are the strata: what their cells add, plus what is expected of them."""
        factor = (
            np.sqrt(bessel_factor(column(KEPT))) * (weight - weight_derivative) + weight_derivative
        )
        contributions = {name: factor * column(plain_total(name)) for name in reader.columns}
        for name, contribution in contributions.items():
            terms.add_unit_term(self.unit, unit_total(self.unit, name), contribution)
        for first, second in reader.pairs:
            product = contributions[first] * contributions[second]
            terms.add_unit_term(self.unit, unit_total(self.unit, first, second), product)

    def _store_centred(self, table: FrameTable, reader: TotalsReader) -> None:
        """Store h x + dh/dlog P times the mean of x in the stratum, times sqrt(n / (n - 1)).

        The column of the derivative of h is that by log 1/P, so it is subtracted.
        """
        keys = [*([GROUP] if self.by_group else []), self.unit]
        n = table.sum_over(column(KEPT), keys)
        scale = np.sqrt(bessel_factor(n))
        at_least_one = choose(n > 0.5, n, 1.0)
        columns = {}
        for name in self.columns_to_centre(reader):
            total = n if name == ONE else table.sum_over(column(KEPT) * column(name), keys)
            contribution = multiply(column(WEIGHT), name)
            contribution = contribution - column(WEIGHT_DERIVATIVE) * total / at_least_one
            columns[centred(name)] = scale * contribution
        table.store(columns)

    def differs(self, totals: Totals) -> bool:
        """Whether the rows are not all of the log of the fit."""
        has_other_counts = totals.get(self.n_different, 0.0) > 0
        return has_other_counts or round(totals[KEPT]) != self.strata.n_observed

    def read(
        self,
        totals: Totals,
        reader: TotalsReader,
        second_moments: SecondMoments,
        n: Mapping[Unit, int],
        *,
        is_of_fit: bool,
    ) -> StrataSums:
        """What the strata change for the estimate of one reader."""
        zero = np.zeros((len(reader.columns),) * 2)
        gradient = np.zeros((len(reader.columns), 0))
        if reader.spec.of_ratios:
            return StrataSums(SecondMoments(zero), zero, zero, gradient)

        def read(name: str) -> Matrix:
            return read_matrix(reader, totals, lambda *pair: self._term(name, *pair))

        if self.differs(totals):
            addition = self.find_addition(read("counts"), is_of_fit)
            return StrataSums(second_moments, zero, addition, gradient)
        moment = read_matrix(reader, totals, plain)
        pooled = pool_variance(
            moment - read("square"),
            moment,
            n_free=totals[self._term("free")],
            n_cells=totals[KEPT],
            squared_weight=totals[self._term("singleton")],
        )
        moments = SecondMoments(read("within"), self.read_units(totals, reader, n))
        return StrataSums(moments, pooled, zero, gradient)
