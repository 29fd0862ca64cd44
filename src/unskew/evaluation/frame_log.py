"""A log in somebody else's data frame: which columns are read, which rows are wrong, and what takes the place of those."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias

from unskew.data.columns import find_column
from unskew.data.ids import format_id
from unskew.data.propensities import SMALLEST
from unskew.errors import (
    BadPredictionError,
    BadPropensityError,
    BadRatingError,
    ColumnError,
    DataError,
    DuplicateCellError,
    EmptyLogError,
    UnknownNameError,
    UnskewWarning,
    UsageError,
)
from unskew.estimators.transforms import WeightTransform
from unskew.evaluation.expressions import (
    GROUP,
    Column,
    Source,
    Table,
    Totals,
    as_column,
    choose,
    constant,
    named,
)
from unskew.evaluation.frame_sums import KEPT, UNCERTAINTY, WEIGHT, Ledger

OnBad: TypeAlias = Literal["raise", "drop"]
OBSERVED, INVERSE = "observed", "inverse"
"""Columns of the table: 1 for a row that holds a rating, good or bad; 1/P."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The caller's names of the columns that are read, by role."""

    rating: str
    models: tuple[str, ...]
    """Names of the models: of their prediction columns, whether these are read or not."""
    predictions: tuple[str, ...]
    positions: tuple[str, ...]
    propensity: str | None
    ids: Mapping[str, str]
    """Of users and items, where there are any."""
    group: str | None

    def sources(self) -> dict[str, str]:
        """The caller's name of each column, by ours."""
        found = {"rating": self.rating, **self.ids}
        found |= {prediction(place): name for place, name in enumerate(self.predictions)}
        found |= {position(place): name for place, name in enumerate(self.positions)}
        if self.propensity is not None:
            found["propensity"] = self.propensity
        return found if self.group is None else found | {GROUP: self.group}

    def numbers(self) -> dict[str, type[DataError]]:
        """Columns that must hold numbers, and what to raise where they do not."""
        found: dict[str, type[DataError]] = {"rating": BadRatingError}
        found |= {prediction(place): BadPredictionError for place in range(len(self.predictions))}
        found |= {position(place): BadPredictionError for place in range(len(self.positions))}
        return found if self.propensity is None else found | {"propensity": BadPropensityError}


def prediction(model: int) -> str:
    """Our name of a model's column of predictions."""
    return f"prediction_{model}"


def position(model: int) -> str:
    """Our name of a model's column of positions."""
    return f"position_{model}"


def find_names(
    role: str, given: str | Sequence[str] | None, columns: Sequence[str]
) -> tuple[str, ...]:
    """One name or several, each of them once; or the one column that plays the role."""
    if given is not None and not isinstance(given, str) and not isinstance(given, Sequence):
        raise UsageError(f"{role} must be the name of a column, or a list of names; got {given!r}.")
    names = [given] if given is None or isinstance(given, str) else list(given)
    if not names:
        raise UsageError(f"{role}=[] names no column.")
    if len(set(names)) < len(names):
        raise UsageError(f"{role}={names!r} names a column twice.")
    return tuple(find_column(role, name, columns) for name in names)


def find_ids(
    given: Mapping[str, str | None], needed: Sequence[str], columns: Sequence[str]
) -> dict[str, str]:
    """Columns of users and items: those that are needed or named, and the others where they are easily found."""
    found = {}
    for role, name in given.items():
        try:
            found[role] = find_column(role, name, columns)
        except ColumnError:
            if name is not None or role in needed:
                raise
    return found


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that a row can have wrong."""

    name: str
    where: Column
    column: str
    """Our name of the column whose value is bad."""
    error: type[DataError]
    what: str
    advice: str


def faults_of(
    table: Table, columns: Columns, *, ids: Sequence[str], is_complete: bool
) -> Iterator[Fault]:
    """All that can be wrong with a row; ``ids`` are those that the evaluation reads."""
    observed, rating = named(OBSERVED), named("rating")
    missing = "Leave such rows out with on_bad='drop'"
    for role in ids:
        what = f"{role} ids are missing"
        yield Fault(
            f"no_{role}",
            table.missing(role),
            role,
            BadRatingError,
            what,
            f"{missing}, or find out who they were.",
        )
    advice = f"{missing}: a cell without a rating is an unobserved cell."
    yield Fault(
        "no_rating",
        observed & ~rating.is_number,
        "rating",
        BadRatingError,
        "ratings are missing or not finite",
        advice,
    )
    if columns.propensity is not None:
        yield from _propensity_faults(observed, missing)
    for model in range(len(columns.predictions)):
        bad, name = ~named(prediction(model)).is_number, columns.models[model]
        what = f"predictions of {name!r} are missing or not finite"
        where = bad if is_complete else observed & bad
        yield Fault(
            f"no_{prediction(model)}",
            where,
            prediction(model),
            BadPredictionError,
            what,
            f"{missing}, or predict them.",
        )
    for model in range(len(columns.positions)):
        place, name = named(position(model)), columns.models[model]
        what = f"positions of {name!r} are not whole numbers from 1 on"
        advice = "Position 1 is the user's best item among all items."
        yield Fault(
            f"no_{position(model)}",
            observed & ~_is_place(place),
            position(model),
            BadPredictionError,
            what,
            advice,
        )


def _propensity_faults(observed: Column, missing: str) -> Iterator[Fault]:
    value = named("propensity")
    known = observed & value.is_number
    for name, where, what, advice in (
        (
            "no_propensity",
            observed & ~value.is_number,
            "are missing or not finite",
            f"{missing}, or predict those too.",
        ),
        (
            "large_propensity",
            known & (value > 1.0),
            "lie outside (0, 1], above 1",
            "Percentages? Divide by 100. Inverse weights? Pass 1/w.",
        ),
        (
            "small_propensity",
            known & (value < SMALLEST),
            f"lie outside (0, 1], at 0 or less, or are too small to invert (below {SMALLEST:g})",
            f"{missing}, and give the others the chance they really have.",
        ),
    ):
        yield Fault(name, where, "propensity", BadPropensityError, f"propensities {what}", advice)


def _is_place(value: Column) -> Column:
    whole = choose(value.is_number, value, 0.5)
    is_place: Column = (whole >= 1.0) & (whole < 2.0**31) & (whole % 1.0 == 0.0)
    return is_place


class FrameLog:
    """The rows that count, with good numbers in them; where a row does not count, harmless ones."""

    def __init__(
        self, source: Source, columns: Columns, *, ids: Sequence[str], is_complete: bool
    ) -> None:
        self.columns = columns
        self.is_complete = is_complete
        self.table = source.pick(columns.sources(), numbers=columns.numbers())
        self.table.store(
            {OBSERVED: ~self.table.missing("rating") if is_complete else constant(1.0) > 0.0}
        )
        self.faults = list(faults_of(self.table, columns, ids=ids, is_complete=is_complete))
        self.table.store({fault.name: fault.where for fault in self.faults})
        self.table.store({KEPT: choose(self._is_kept(), 1.0, 0.0)})
        self._as_given = self.table.copy()
        self.table.store(self._harmless())

    def _is_kept(self) -> Column:
        kept = named(OBSERVED)
        for fault in self.faults:
            kept = kept & ~named(fault.name)
        return kept

    def _harmless(self) -> dict[str, Column]:
        """Numbers that no formula stumbles over, in rows that do not count."""
        counts = named(KEPT) > 0.0
        safe = {"rating": choose(counts, named("rating"), 0.0)}
        for model in range(len(self.columns.predictions)):
            good = ~named(f"no_{prediction(model)}") if self.is_complete else counts
            safe[prediction(model)] = choose(good, named(prediction(model)), 0.0)
        safe |= {
            position(model): choose(counts, named(position(model)), 1.0)
            for model in range(len(self.columns.positions))
        }
        return (
            safe
            if self.columns.propensity is None
            else safe | {"propensity": choose(counts, named("propensity"), 1.0)}
        )

    def kept(self) -> Table:
        """The rows that count, alone."""
        return self.table.where(named(KEPT) > 0.0)

    def weigh(
        self, transform: WeightTransform | None, ledger: Ledger, *, is_weighted: bool
    ) -> None:
        """Store h and 1 - P, and have rows and weights counted."""
        ledger.count(OBSERVED_ROWS, named(OBSERVED))
        if self.columns.propensity is None:
            self.table.store({UNCERTAINTY: constant(1.0)})
            return
        self.table.store(
            {UNCERTAINTY: 1.0 - named("propensity"), INVERSE: 1.0 / named("propensity")}
        )
        if not is_weighted:
            return
        changed = named(INVERSE) if transform is None else transformed(transform)
        self.table.store({"transformed": changed})
        self.table.store({WEIGHT: named(KEPT) * named("transformed")})
        ledger.add(WEIGHT, named(WEIGHT))
        ledger.add(WEIGHT_SQUARES, named(WEIGHT) * named(WEIGHT))
        if transform is not None:
            ledger.count(TOUCHED, (named(KEPT) > 0.0) & (named("transformed") != named(INVERSE)))
            ledger.count(
                BAD_WEIGHTS, ~(named("transformed").is_number & (named("transformed") >= 0.0))
            )

    def check(self, totals: Totals, on_bad: OnBad) -> None:
        """Name what is wrong, or say how much was left out for it. Only then are the faults told apart, by one more query."""
        n_rows, n_kept = round(totals[OBSERVED_ROWS]), round(totals[KEPT])
        if n_kept == n_rows > 0:
            return
        counts = self._count_faults()
        if not any(counts.values()):
            raise EmptyLogError(
                "the frame has no ratings. Check the filter or the file it came from."
            )
        if on_bad == "raise":
            self._refuse(next(fault for fault in self.faults if counts[fault.name]), counts, n_rows)
        tally = ", ".join(
            f"{counts[fault.name]:,} {fault.what}" for fault in self.faults if counts[fault.name]
        )
        if n_kept == 0:
            raise EmptyLogError(
                f"of {n_rows:,} rows none is left: {tally}. Find out what went wrong before."
            )
        warnings.warn(
            f"{n_rows - n_kept:,} of {n_rows:,} rows are left out: {tally}. The estimates are of a log without them.",
            UnskewWarning,
            stacklevel=3,
        )

    def _count_faults(self) -> dict[str, int]:
        columns = {f"n_{fault.name}": choose(named(fault.name), 1.0, 0.0) for fault in self.faults}
        found = self._as_given.add_up(columns, {}, by_group=False)[None]
        return {fault.name: round(found[f"n_{fault.name}"]) for fault in self.faults}

    def _refuse(self, fault: Fault, counts: Mapping[str, int], n_rows: int) -> NoReturn:
        row = self._as_given.where(named(fault.name)).example() or {}
        example = f"{row.get(fault.column)}{self.name_cell(row)}"
        raise fault.error(
            f"{counts[fault.name]:,} of {n_rows:,} {fault.what}; one is {example}. {fault.advice}"
        )

    def name_cell(self, row: Mapping[str, Any]) -> str:
        """`` at user 'ann', item 7``: how errors point at a row, where it can be told from others."""
        named_ids = [f"{role} {format_id(row[role])}" for role in ("user", "item") if role in row]
        return f" at {', '.join(named_ids)}" if named_ids else ""

    def refuse_repeats(self) -> None:
        """Refuse a cell that is there twice."""
        rows = self.kept()
        n_repeats = rows.count_repeats(["user", "item"])
        if n_repeats:
            raise DuplicateCellError(
                f"{n_repeats:,} rows repeat a (user, item) that is already there; one is"
                f"{self.name_cell(rows.repeated(['user', 'item']) or {})}. Aggregate them first."
            )


OBSERVED_ROWS, WEIGHT_SQUARES, TOUCHED, BAD_WEIGHTS = (
    "n_observed",
    "weight_squares",
    "n_touched",
    "n_bad_weights",
)
"""Sums of the query."""


def transformed(transform: WeightTransform) -> Column:
    """The formula of a weight transform, of columns."""
    return as_column(transform(named(INVERSE).as_vector))


def require_on_bad(on_bad: object) -> None:
    """Bad rows are an error, or are left out."""
    if on_bad not in ("raise", "drop"):
        raise UnknownNameError("on_bad", on_bad, ("raise", "drop"))
