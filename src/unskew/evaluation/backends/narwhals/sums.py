"""The terms of a query that add up to :class:`unskew.estimators.sums.Sums`, and the way back.

Row terms are added up over rows. If users or items are the independent units, unit terms are
formulas of the sums over the rows of one unit, and are added up over units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from unskew.data.estimation import Unit
from unskew.estimators.frame_variance import SecondMoments
from unskew.estimators.observed import Scope, SumSpec
from unskew.estimators.sums import SINGLE_CELL, Sums
from unskew.estimators.user_functions import MIN_CELLS_PER_USER
from unskew.evaluation.backends.narwhals.columns import FrameColumn, choose, column
from unskew.evaluation.backends.narwhals.table import Totals
from unskew.types import Matrix

ONE = "one"
"""Stands for the base of a metric that is a mean over all cells."""
KEPT, WEIGHT, UNCERTAINTY = "kept", "weight", "uncertainty"
"""Columns of the table: 1 for a row that is used, else 0; the weight h; 1 - P."""
STRATUM, WEIGHT_DERIVATIVE, FITTED_COUNT = "stratum", "weight_derivative", "fitted_count"
"""Columns of the table if propensities were estimated: the stratum, if strata are listed;
-dh / d log P; the number of cells of the stratum in the log of the fit."""


class SumTerms:
    """The terms to add up. A term that several estimates need is added up once."""

    def __init__(self) -> None:
        self.rows: dict[str, FrameColumn] = {KEPT: column(KEPT)}
        self.units: dict[str, dict[str, FrameColumn]] = {}

    @property
    def names(self) -> list[str]:
        """The names of all terms."""
        return [*self.rows, *(name for terms in self.units.values() for name in terms)]

    def add(self, name: str, term: FrameColumn) -> None:
        """Add up a column over all rows."""
        self.rows.setdefault(name, term)

    def count(self, name: str, condition: FrameColumn) -> None:
        """Count the rows that meet a condition."""
        self.add(name, choose(condition, 1.0, 0.0))

    def add_unit(self, unit: Unit) -> None:
        """Count the users or items that have rows."""
        self.units.setdefault(unit, {n_units(unit): choose(column(KEPT) > 0.0, 1.0, 0.0)})

    def add_unit_term(self, unit: Unit, name: str, term: FrameColumn) -> None:
        """Add up, over users or items, a formula of the sums over the rows of each."""
        self.add_unit(unit)
        self.units[unit].setdefault(name, term)

    def request_two_way(self, reader: TotalsReader) -> None:
        """Add the terms of clusters by user and by item."""
        for unit_reader in reader.by_unit().values():
            self._add_terms(unit_reader)
        weight = column(reader.weight)
        for first, second in reader.pairs:
            product = multiply(multiply(weight * weight, first), second)
            self.add(reader.cell_term(first, second), product)

    def request(
        self, spec: SumSpec, deltas: Sequence[str], base: str | None, slots: Sequence[str] = ()
    ) -> TotalsReader:
        """Add the terms of the sums, given columns of deltas, one for each model, and of the base.

        A base of None is 1 for each cell. ``slots`` are the bases of self-normalised estimators,
        one for each model. Returns the reader that finds the sums in the result of the query.
        """
        bases = tuple(slots) if spec.is_ratio else ()
        reader = TotalsReader(spec, (*deltas, *(bases or [base or ONE])), bases)
        self._add_terms(reader)
        return reader

    def _add_terms(self, reader: TotalsReader) -> None:
        """Add all terms that the reader reads."""
        spec, weight = reader.spec, column(reader.weight)
        for name in (ONE, *reader.columns):
            self.add(reader.row_term(name), multiply(weight, name))
        for name in reader.slots:
            weighted = weight * column(name)
            self.count(reader.slot_term("n", name), weighted > 0.0)
            self.add(reader.slot_term("squared", name), weighted * weighted)
            uncertain = weighted * weighted * column(UNCERTAINTY)
            self.add(reader.slot_term("uncertain", name), uncertain)
        if reader.has_bias:
            self._request_bias(reader, weight)
        if spec.unit is None:
            squared = weight * weight * column(UNCERTAINTY)
            for first, second in reader.pairs:
                self.add(reader.row_term(first, second), multiply(multiply(squared, first), second))
            base_name = reader.columns[-1]
            squared_base = multiply(multiply(weight * weight, base_name), base_name)
            self.add(reader.squared_base, squared_base)
            return
        terms = {name: reader.unit_value(name) for name in reader.columns}
        self.add_unit_term(spec.unit, reader.n_with_base, choose(reader.has_base, 1.0, 0.0))
        for name, term in terms.items():
            self.add_unit_term(spec.unit, reader.unit_term(name), term)
        for first, second in reader.pairs:
            product = terms[first] * terms[second]
            self.add_unit_term(spec.unit, reader.unit_term(first, second), product)

    def _request_bias(self, reader: TotalsReader, weight: FrameColumn) -> None:
        """The bias of each unit's own ratio: see :meth:`Sums.of_ratios`."""
        *deltas, base = reader.columns
        assert reader.spec.unit is not None
        of_base = multiply(weight, base)
        uncertain = of_base * weight * column(UNCERTAINTY)
        self.add(reader.row_term("squared", base), of_base * of_base)
        if base != ONE:
            self.count(reader.row_term("number", base), of_base > 0.0)
        for name in reader.columns:
            self.add(reader.row_term("bias", base, name), multiply(uncertain, name))
        total, squared = (column(reader.row_term(*names)) for names in ((base,), ("squared", base)))
        pairs = total * total - squared
        is_used = pairs > SINGLE_CELL * total * total
        self.add_unit_term(
            reader.spec.unit, reader.unit_term("n_biases"), choose(is_used, 1.0, 0.0)
        )
        safe_pairs, safe_total = (choose(is_used, value, 1.0) for value in (pairs, total))
        spread = column(reader.row_term("bias", base, base))
        for name in deltas:
            product = column(reader.row_term("bias", base, name))
            excess = product - column(reader.row_term(name)) / safe_total * spread
            bias = choose(is_used, excess / safe_pairs, 0.0) * -1.0
            self.add_unit_term(reader.spec.unit, reader.unit_term("bias", name), bias)


@dataclass(frozen=True, slots=True)
class TotalsReader:
    """Reads :class:`Sums` from the totals of a query. It also names the terms of the query."""

    spec: SumSpec
    columns: tuple[str, ...]
    """The deltas of the models, then the base, or the base of each model."""
    slots: tuple[str, ...] = ()
    """The base of each model, if they have different ones."""

    @property
    def has_bias(self) -> bool:
        """Whether the bias of the ratios of units is estimated."""
        return self.spec.of_ratios and self.spec.is_weighted

    def slot_term(self, kind: str, name: str) -> str:
        """The name of a total over the observed slots of a model."""
        return f"{kind}_{self.row_term(name)}"

    @property
    def weight(self) -> str:
        """The column of the weight h: 1 for used rows if the spec has no weights."""
        return WEIGHT if self.spec.is_weighted else KEPT

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every two columns, and each column with itself."""
        return list(combinations_with_replacement(self.columns, 2))

    def row_term(self, *columns: str) -> str:
        """The name of the sum of h x, or of h^2 (1 - P) x x'."""
        return self.weight if columns == (ONE,) else "__".join([self.weight, *columns])

    def cell_term(self, first: str, second: str) -> str:
        """The name of the sum of h^2 x x'."""
        return f"cells__{self.row_term(first, second)}"

    @property
    def squared_base(self) -> str:
        """The name of the sum of (h base)^2."""
        return f"{self.weight}_squared__{self.columns[-1]}"

    def by_unit(self) -> dict[Unit, TotalsReader]:
        """Readers of the same columns added up by user, and by item."""
        units: tuple[Unit, ...] = ("user", "item")
        return {
            unit: replace(self, spec=replace(self.spec, unit=unit, is_ratio=False))
            for unit in units
        }

    def unit_term(self, *columns: str) -> str:
        """The same for sums over units, which differ by the units that they include."""
        included = "ratio" if self.spec.of_ratios else "all"
        if self.leaves_out:
            included = "with_base"
        prefix = f"{self.spec.unit}_{included}_{self.columns[-1]}"
        return "__".join([prefix, self.row_term(*columns)])

    @property
    def leaves_out(self) -> bool:
        """Whether a unit without base may have other sums, which are then left out.

        If the base is 1 in each cell, such a unit has no weight at all, and its sums are 0.
        """
        return self.spec.is_ratio and not self.spec.of_ratios and self.columns[-1] != ONE

    @property
    def n_with_base(self) -> str:
        """The name of the number of units with a base above 0."""
        return self.unit_term("number")

    @property
    def has_base(self) -> FrameColumn:
        """Whether the base of a unit is above 0; with slots, whether it has weight at all."""
        base = ONE if self.slots else self.columns[-1]
        has_base: FrameColumn = column(self.row_term(base)) > 0.0
        return has_base

    def unit_value(self, name: str) -> FrameColumn:
        """What one unit adds: its sum or its ratio; 0 if it needs a base and has none."""
        total = column(self.row_term(name))
        if self.spec.of_ratios:
            base = choose(self.has_base, column(self.row_term(self.columns[-1])), 1.0)
            return choose(self.has_base, total / base, 0.0)
        return choose(self.has_base, total, 0.0) if self.leaves_out else total

    def read(self, totals: Totals, scope: Scope) -> Sums:
        """The sums, from the totals of the query."""
        unit = self.spec.unit
        if unit is None:
            return self._read(self.row_term, totals)
        n_with_base = round(totals[self.n_with_base])
        if self.spec.of_ratios:
            n_left_out = round(totals[n_units(unit)]) - n_with_base
            return self._read(self.unit_term, totals, n_with_base, n_left_out)
        n_clusters = n_with_base if self.spec.is_ratio else count_units(unit, scope)
        return self._read(self.unit_term, totals, n_clusters)

    def degrees(self, totals: Totals) -> float:
        """Effective number of cells that the base counts, less 1."""
        squared = totals[self.squared_base]
        base = totals[self.row_term(self.columns[-1])]
        return max(base * base / squared - 1.0, 1.0) if squared > 0 else 1.0

    def read_two_way(self, totals: Totals, n: Mapping[Unit, int]) -> SecondMoments:
        """Second moments by user, by item and by cell, given the numbers of users and items."""
        units = []
        for unit, reader in self.by_unit().items():
            units.append(reader._read(reader.unit_term, totals, n[unit]))
        cells = self._read_matrix(self.cell_term, totals)
        return SecondMoments(cells, tuple(units))

    def _read(
        self,
        term: Callable[..., str],
        totals: Totals,
        n_clusters: int | None = None,
        n_left_out: int = 0,
    ) -> Sums:
        total = np.array([totals[term(name)] for name in self.columns])
        sums = Sums(total, self._read_matrix(term, totals), n_clusters, n_left_out)
        if self.slots:
            kinds = ("n", "squared", "uncertain")
            rows = [[totals[self.slot_term(kind, name)] for kind in kinds] for name in self.slots]
            return replace(sums, slot_totals=np.array(rows))
        if self.has_bias:
            bias = [totals[self.unit_term("bias", name)] for name in self.columns[:-1]]
            n_biases = round(totals[self.unit_term("n_biases")])
            base = self.columns[-1]
            if base != ONE and n_clusters is not None:
                n_counted = totals[self.row_term("number", base)]
                if n_counted < MIN_CELLS_PER_USER * n_clusters:
                    bias = [math.nan] * len(bias)
            pooled = None
            if self.columns[-1] == ONE:
                pooled = np.array([totals[self.row_term(name)] for name in self.columns])
            return replace(sums, ratio_bias=np.array(bias), n_biases=n_biases, pooled=pooled)
        return sums

    def _read_matrix(self, term: Callable[..., str], totals: Totals) -> Matrix:
        size = len(self.columns)
        matrix = np.empty((size, size))
        for i, j in combinations_with_replacement(range(size), 2):
            matrix[i, j] = matrix[j, i] = totals[term(self.columns[i], self.columns[j])]
        return matrix


def n_units(unit: Unit) -> str:
    """The name of the number of units with a row."""
    return f"n_{unit}s"


def multiply(weight: FrameColumn, name: str) -> FrameColumn:
    """The weight times a column of x, which may be 1."""
    return weight if name == ONE else weight * column(name)


def count_units(unit: Unit, scope: Scope) -> int:
    """The number of all units, also of those without a row."""
    if scope.universe is None:
        return 0
    return scope.universe.n_users if unit == "user" else scope.universe.n_items
