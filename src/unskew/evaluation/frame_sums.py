"""The sums of ``estimators.sums`` as terms of one query, and back.

A row's terms are added up over rows. Where users or items are the units, a unit's terms are formulas of the sums over its rows,
and are added up over units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from unskew.estimators.sums import Sums, require_clusters, require_groups
from unskew.estimators.wanted import Scope, SumSpec, Unit
from unskew.evaluation.expressions import Column, Totals, choose, named

ONE = "one"
"""The base of a metric that is a mean over all cells."""
KEPT, WEIGHT, UNCERTAINTY = "kept", "weight", "uncertainty"
"""Columns of the table: 1 for a cell that counts, else 0; h; 1 - P."""


class Ledger:
    """What to add up. Terms that several estimates share are added up once."""

    def __init__(self) -> None:
        self.rows: dict[str, Column] = {KEPT: named(KEPT)}
        self.units: dict[str, dict[str, Column]] = {}

    def add(self, name: str, column: Column) -> None:
        """Add up a column over all rows."""
        self.rows.setdefault(name, column)

    def count(self, name: str, condition: Column) -> None:
        """Count the rows that meet a condition."""
        self.add(name, choose(condition, 1.0, 0.0))

    def add_unit(self, unit: Unit, name: str, column: Column) -> None:
        """Add up, over users or items, a formula of the sums over the rows of each."""
        terms = self.units.setdefault(unit, {present(unit): choose(named(KEPT) > 0.0, 1.0, 0.0)})
        terms.setdefault(name, column)

    def want(self, wanted: SumSpec, deltas: Sequence[str], base: str | None) -> Reader:
        """Have the sums added up from columns of deltas, one a model, and of the base."""
        reader = Reader(wanted, (*deltas, base or ONE))
        for name in reader.columns:
            self.add(reader.row(name), _times(named(reader.weight), name))
        if wanted.unit is None:
            for pair in reader.pairs:
                squared = named(reader.weight) * named(reader.weight) * named(UNCERTAINTY)
                self.add(reader.row(*pair), _times(_times(squared, pair[0]), pair[1]))
        else:
            self._want_units(wanted.unit, reader)
        return reader

    def _want_units(self, unit: Unit, reader: Reader) -> None:
        terms = {name: reader.of_unit(name) for name in reader.columns}
        self.add_unit(unit, reader.filled, choose(reader.is_filled, 1.0, 0.0))
        for name, term in terms.items():
            self.add_unit(unit, reader.unit(name), term)
        for first, second in reader.pairs:
            self.add_unit(unit, reader.unit(first, second), terms[first] * terms[second])


@dataclass(frozen=True, slots=True)
class Reader:
    """Names of the sums that are wanted, and what they come to."""

    wanted: SumSpec
    columns: tuple[str, ...]
    """Deltas of the models, and the base at the end."""

    @property
    def weight(self) -> str:
        """The column of h."""
        return WEIGHT if self.wanted.is_weighted else KEPT

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Every two columns, each with itself too."""
        return list(combinations_with_replacement(self.columns, 2))

    def row(self, *columns: str) -> str:
        """Sum of h x, or of h^2 (1 - P) x x'."""
        return self.weight if columns == (ONE,) else "__".join([self.weight, *columns])

    def unit(self, *columns: str) -> str:
        """The same for units, by the way in which they count."""
        way = "ratio" if self.wanted.of_ratios else "filled" if self.wanted.is_ratio else "all"
        return "__".join([f"{self.wanted.unit}_{way}_{self.columns[-1]}", self.row(*columns)])

    @property
    def filled(self) -> str:
        """The number of units with any base."""
        return self.unit("number")

    @property
    def is_filled(self) -> Column:
        """Whether a unit has any base."""
        filled: Column = named(self.row(self.columns[-1])) > 0.0
        return filled

    def of_unit(self, name: str) -> Column:
        """What one unit adds: its sum, or its ratio; nothing where it counts only with a base and has none."""
        total = named(self.row(name))
        if self.wanted.of_ratios:
            return choose(
                self.is_filled,
                total / choose(self.is_filled, named(self.row(self.columns[-1])), 1.0),
                0.0,
            )
        return choose(self.is_filled, total, 0.0) if self.wanted.is_ratio else total

    def read(self, totals: Totals, scope: Scope) -> Sums:
        """The sums, from what the query found."""
        if self.wanted.unit is None:
            return self._sums(self.row, totals, None)
        n_filled = round(totals[self.filled])
        if not self.wanted.of_ratios:
            return self._sums(
                self.unit,
                totals,
                n_filled if self.wanted.is_ratio else _size(self.wanted.unit, scope),
            )
        require_groups(n_filled)
        return self._sums(
            self.unit,
            totals,
            n_filled,
            n_left_out=round(totals[present(self.wanted.unit)]) - n_filled,
        )

    def _sums(
        self, name: Callable[..., str], totals: Totals, n_clusters: int | None, n_left_out: int = 0
    ) -> Sums:
        if n_clusters is not None:
            require_clusters(n_clusters)
        place = {column: at for at, column in enumerate(self.columns)}
        moment = np.empty((len(place), len(place)))
        for first, second in self.pairs:
            moment[[place[first], place[second]], [place[second], place[first]]] = totals[
                name(first, second)
            ]
        return Sums(
            np.array([totals[name(column)] for column in self.columns]),
            moment,
            n_clusters,
            n_left_out,
        )


def present(unit: Unit) -> str:
    """The number of units with a cell."""
    return f"{unit}_present"


def _times(weight: Column, name: str) -> Column:
    return weight if name == ONE else weight * named(name)


def _size(unit: Unit, scope: Scope) -> int:
    """All units there are, those without a cell included."""
    if scope.universe is None:
        return 0
    return scope.universe.n_users if unit == "user" else scope.universe.n_items
