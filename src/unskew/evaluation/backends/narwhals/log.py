"""A log in a data frame: the columns to read, the rows that cannot be used, and the weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias

from unskew.data.columns import DEFAULTS, find_column
from unskew.data.ids import format_id
from unskew.data.propensities import SMALLEST
from unskew.data.weights import WeightTransform
from unskew.errors import (
    BadPredictionError,
    BadPropensityError,
    BadRatingError,
    ColumnError,
    DataError,
    DuplicateCellError,
    EmptyLogError,
    UnskewWarning,
    UsageError,
)
from unskew.estimators.observed import STEP
from unskew.evaluation.backends.narwhals.columns import (
    FrameColumn,
    as_column,
    choose,
    column,
    constant,
)
from unskew.evaluation.backends.narwhals.sums import (
    FITTED_COUNT,
    KEPT,
    UNCERTAINTY,
    WEIGHT,
    WEIGHT_DERIVATIVE,
    SumTerms,
)
from unskew.evaluation.backends.narwhals.table import GROUP, FrameSource, FrameTable, Totals
from unskew.tables import count_noun

OnBad: TypeAlias = Literal["raise", "drop"]
OBSERVED, INVERSE, TRANSFORMED = "observed", "inverse", "transformed"
"""Columns of the table: whether a row has a rating, usable or not; 1/P; the transformed 1/P."""
N_OBSERVED, SQUARED_WEIGHT, N_TRANSFORMED, N_BAD_WEIGHTS = (
    "n_observed",
    "squared_weight",
    "n_transformed",
    "n_bad_weights",
)
"""Totals of the query."""
DROP = "Drop such rows with `on_bad='drop'`"


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The caller's names of the columns to read, by role."""

    rating: str
    models: tuple[str, ...]
    """Names of the models: those of their prediction columns, even if these are not read."""
    predictions: tuple[str, ...]
    positions: tuple[str, ...]
    propensity: str | None
    ids: Mapping[str, str]
    """The columns of ``user`` and ``item`` that exist."""
    group: str | None
    fitted_ratings: tuple[float, ...] | None = None
    """The ratings that have a propensity, if propensities were counted by rating."""
    fitted_count: str | None = None
    """The column of n_g in the log of the fit, if propensities were counted by item or user."""

    @classmethod
    def find(
        cls,
        columns: Sequence[str],
        names: Mapping[str, str | None],
        prediction: str | Sequence[str] | None,
        position: str | Sequence[str] | None,
        *,
        reads_predictions: bool,
        reads_positions: bool,
        reads_propensity: bool,
        ids: Sequence[str],
    ) -> ColumnRoles:
        """The columns that the caller names, or that have a common name of their role.

        ``names`` are those of user, item, rating, propensity and group; ``ids`` are the ids that
        are needed.
        """
        if reads_predictions:
            models = _find_columns("prediction", prediction, columns)
        elif prediction is None or isinstance(prediction, str):
            models = (prediction or DEFAULTS["prediction"],)
        else:
            models = tuple(prediction)
        if reads_positions and position is None:
            raise UsageError(
                "ranking metrics need the position that a model gives the item of each row, among "
                "all items of its user, and no column of positions is named.",
                parameter="position",
                remedy="Pass `position=...`. A column that says where the item was shown is "
                "something else.",
            )
        positions = _find_columns("position", position, columns) if reads_positions else ()
        if positions and len(positions) != len(models):
            raise UsageError(
                f"there are {count_noun(len(models), 'model')}, {', '.join(map(repr, models))}, "
                f"but {count_noun(len(positions), 'column')} of positions, "
                f"{', '.join(map(repr, positions))}.",
                parameter="position",
                value=position,
                remedy="Pass `position=[...]`: for each model, in the same order, the column of "
                "the rank that it gives the item among all items of the user.",
            )
        group = names["by"]
        if group is not None and group not in columns:
            raise ColumnError(
                f"there is no column {group!r} for `by`; the columns are "
                f"{', '.join(map(repr, columns))}.",
                parameter="by",
                value=group,
            )
        propensity = None
        if reads_propensity or names["propensity"] is not None:
            propensity = find_column("propensity", names["propensity"], columns)
        return cls(
            rating=find_column("rating", names["rating"], columns),
            models=models,
            predictions=models if reads_predictions else (),
            positions=positions,
            propensity=propensity,
            ids=_find_ids({role: names[role] for role in ("user", "item")}, ids, columns),
            group=group,
        )

    def sources(self) -> dict[str, str]:
        """The caller's name of each column, by our name."""
        names = {"rating": self.rating, **self.ids}
        names |= {prediction_column(model): name for model, name in enumerate(self.predictions)}
        names |= {position_column(model): name for model, name in enumerate(self.positions)}
        if self.propensity is not None:
            names["propensity"] = self.propensity
        if self.fitted_count is not None:
            names[FITTED_COUNT] = self.fitted_count
        return names if self.group is None else names | {GROUP: self.group}

    def numeric_errors(self) -> dict[str, type[DataError]]:
        """Our names of columns that must have numbers, and the error to raise otherwise."""
        errors: dict[str, type[DataError]] = {"rating": BadRatingError}
        for model in range(len(self.predictions)):
            errors[prediction_column(model)] = BadPredictionError
        for model in range(len(self.positions)):
            errors[position_column(model)] = BadPredictionError
        return errors if self.propensity is None else errors | {"propensity": BadPropensityError}


def prediction_column(model: int) -> str:
    """Our name of a model's column of predictions."""
    return f"prediction_{model}"


def position_column(model: int) -> str:
    """Our name of a model's column of positions."""
    return f"position_{model}"


def _find_columns(
    role: str, names: str | Sequence[str] | None, columns: Sequence[str]
) -> tuple[str, ...]:
    if names is None or isinstance(names, str):
        return (find_column(role, names, columns),)
    is_list = isinstance(names, Sequence) and not isinstance(names, bytes)
    if not is_list or not names or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"`{role}` must be the name of a column, or a list of names; got {names!r}.",
            parameter=role,
            value=names,
        )
    if len(set(names)) < len(names):
        raise UsageError(
            f"`{role}={list(names)!r}` names a column twice.", parameter=role, value=names
        )
    return tuple(find_column(role, name, columns) for name in names)


def _find_ids(
    names: Mapping[str, str | None], needed: Sequence[str], columns: Sequence[str]
) -> dict[str, str]:
    """Columns of users and items: those that are needed or named, and others if they exist."""
    ids = {}
    for role, name in names.items():
        try:
            ids[role] = find_column(role, name, columns)
        except ColumnError:
            if name is not None or role in needed:
                raise
    return ids


@dataclass(frozen=True, slots=True, eq=False)
class RowRequirement:
    """What a row must have to be used."""

    name: str
    condition: FrameColumn
    """True in rows that meet the requirement."""
    column: str
    """Our name of the column with the value."""
    error: type[DataError]
    violation: str
    """What is wrong with rows that do not meet it."""
    remedy: str
    is_implied: bool = False
    """Whether another requirement implies this one, which is then only for the message."""


def list_requirements(
    table: FrameTable, roles: ColumnRoles, *, ids: Sequence[str], is_complete: bool
) -> Iterator[RowRequirement]:
    """All requirements; ``ids`` are the ids that the evaluation reads."""

    def if_observed(condition: FrameColumn) -> FrameColumn:
        """A complete frame has rows of unobserved cells, which need neither rating nor weight."""
        return ~column(OBSERVED) | condition if is_complete else condition

    for role in ids:
        yield RowRequirement(
            f"has_{role}",
            ~table.is_missing(role),
            role,
            BadRatingError,
            f"{role} ids are missing",
            f"{DROP}, or fill in the ids.",
        )
    yield RowRequirement(
        "has_rating",
        if_observed(column("rating").is_finite),
        "rating",
        BadRatingError,
        "ratings are missing or not finite",
        f"{DROP}: a cell without a rating is an unobserved cell.",
        is_implied=roles.fitted_ratings is not None,
    )
    if roles.fitted_ratings is not None:
        yield RowRequirement(
            "has_propensity",
            if_observed(column("rating").is_in(roles.fitted_ratings)),
            "rating",
            BadRatingError,
            "ratings were not in the log that the propensities were fitted to",
            f"{DROP}, or fit the model to a log that has them.",
        )
    elif roles.propensity is not None:
        for name, condition, violation, remedy in _propensity_requirements():
            yield RowRequirement(
                name,
                if_observed(condition),
                "propensity",
                BadPropensityError,
                f"propensities {violation}",
                remedy,
            )
    for model in range(len(roles.predictions)):
        yield RowRequirement(
            has_value(prediction_column(model)),
            column(prediction_column(model)).is_finite,
            prediction_column(model),
            BadPredictionError,
            f"predictions of {roles.models[model]!r} are missing or not finite",
            f"{DROP}, or predict them.",
        )
    for model in range(len(roles.positions)):
        yield RowRequirement(
            has_value(position_column(model)),
            if_observed(_is_position(column(position_column(model)))),
            position_column(model),
            BadPredictionError,
            f"positions of {roles.models[model]!r} are not whole numbers from 1 on",
            f"{DROP}, or number each user's items 1, 2, 3, ... among all items; 1 is the best.",
        )


def has_value(name: str) -> str:
    """The column that says whether a row has a usable value in another column."""
    return f"has_{name}"


def _propensity_requirements() -> Iterator[tuple[str, FrameColumn, str, str]]:
    propensity = column("propensity")
    is_missing = ~propensity.is_finite
    yield (
        "has_propensity",
        propensity.is_finite,
        "are missing or not finite",
        f"{DROP}, or predict them.",
    )
    yield (
        "has_probability",
        is_missing | (propensity <= 1.0),
        "are above 1",
        "Divide percentages by 100; pass 1/w for inverse weights w.",
    )
    yield (
        "has_positive_propensity",
        is_missing | (propensity >= SMALLEST),
        f"are 0, negative or too small to invert (below {SMALLEST:g})",
        f"{DROP}, and use propensities that are the probabilities of being observed.",
    )


def _is_position(value: FrameColumn) -> FrameColumn:
    number = choose(value.is_finite, value, 0.5)
    is_position: FrameColumn = (number >= 1.0) & (number < 2.0**31) & (number % 1.0 == 0.0)
    return is_position


class FrameLog:
    """A table of ratings whose unusable rows have weight 0 and harmless numbers.

    Unusable values are replaced before any formula reads them, because engines differ in how they
    treat NaN, division by zero and logarithms of zero.
    """

    def __init__(
        self, source: FrameSource, roles: ColumnRoles, *, ids: Sequence[str], is_complete: bool
    ) -> None:
        self.roles = roles
        self.is_complete = is_complete
        self.table = source.select(roles.sources(), numeric_errors=roles.numeric_errors())
        has_rating = ~self.table.is_missing("rating") if is_complete else constant(1.0) > 0.0
        self.table.store({OBSERVED: has_rating})
        self.requirements = list(
            list_requirements(self.table, roles, ids=ids, is_complete=is_complete)
        )
        self.table.store({each.name: each.condition for each in self.requirements})
        is_kept = column(OBSERVED)
        for requirement in self.requirements:
            if not requirement.is_implied:
                is_kept = is_kept & column(requirement.name)
        self.table.store({KEPT: choose(is_kept, 1.0, 0.0)})
        self._all_rows = self.table.copy()
        self.table.store(self._harmless_numbers())

    @property
    def has_groups(self) -> bool:
        return self.roles.group is not None

    def _harmless_numbers(self) -> dict[str, FrameColumn]:
        """The columns of numbers, with harmless ones in rows that are not used."""
        is_kept = column(KEPT) > 0.0
        columns = {"rating": choose(is_kept, column("rating"), 0.0)}
        for model in range(len(self.roles.predictions)):
            name = prediction_column(model)
            is_usable = column(has_value(name)) if self.is_complete else is_kept
            columns[name] = choose(is_usable, column(name), 0.0)
        for model in range(len(self.roles.positions)):
            name = position_column(model)
            columns[name] = choose(is_kept, column(name), 1.0)
        if self.roles.propensity is not None:
            columns["propensity"] = choose(is_kept, column("propensity"), 1.0)
        return columns

    def kept_rows(self) -> FrameTable:
        """The rows that are used."""
        return self.table.filter(column(KEPT) > 0.0)

    def store_weights(
        self, weight_transform: WeightTransform | None, terms: SumTerms, *, is_weighted: bool
    ) -> None:
        """Store h and 1 - P, and add up what the summary of the weights needs."""
        terms.count(N_OBSERVED, column(OBSERVED))
        if self.roles.propensity is None:
            self.table.store({UNCERTAINTY: constant(1.0)})
            return
        propensity = column("propensity")
        self.table.store({UNCERTAINTY: 1.0 - propensity, INVERSE: 1.0 / propensity})
        if not is_weighted:
            return
        weight = _transform(column(INVERSE), weight_transform)
        self.table.store({TRANSFORMED: weight})
        self.table.store({WEIGHT: column(KEPT) * column(TRANSFORMED)})
        terms.add(WEIGHT, column(WEIGHT))
        terms.add(SQUARED_WEIGHT, column(WEIGHT) * column(WEIGHT))
        if weight_transform is not None:
            transformed, is_kept = column(TRANSFORMED), column(KEPT) > 0.0
            terms.count(N_TRANSFORMED, is_kept & (transformed != column(INVERSE)))
            terms.count(N_BAD_WEIGHTS, ~(transformed.is_finite & (transformed >= 0.0)))

    def store_weight_derivative(
        self, weight_transform: WeightTransform | None, *, has_limit: bool
    ) -> None:
        """Store -dh / d log P: the weight itself without a transform, 0 where P is limited."""
        weight_derivative = column(WEIGHT)
        if weight_transform is not None:
            up, down = (
                _transform(column(INVERSE) * factor, weight_transform)
                for factor in (1 + STEP, 1 - STEP)
            )
            weight_derivative = column(KEPT) * (up - down) / (2 * STEP)
        if has_limit:
            weight_derivative = choose(column("propensity") >= 1.0, 0.0, weight_derivative)
        self.table.store({WEIGHT_DERIVATIVE: weight_derivative})

    def check_rows(self, totals: Totals, on_bad: OnBad) -> None:
        """Raise an error about unusable rows, or warn that they were dropped.

        One more query counts the rows of each problem, but only if there are any.
        """
        n_rows, n_kept = round(totals[N_OBSERVED]), round(totals[KEPT])
        if n_kept == n_rows > 0:
            return
        counts = self._count_violations()
        if not counts:
            raise EmptyLogError(
                "the frame has no ratings.", remedy="Check the filter or the file it comes from."
            )
        if on_bad == "raise":
            self._raise_error(*next(iter(counts.items())), n_rows)
        summary = ", ".join(f"{n_bad:,} {each.violation}" for each, n_bad in counts.items())
        if n_kept == 0:
            raise EmptyLogError(
                f"none of {n_rows:,} rows can be used: {summary}.",
                remedy="Check the columns of the frame.",
            )
        warnings.warn(
            UnskewWarning(
                f"{n_rows - n_kept:,} of {n_rows:,} rows are dropped: {summary}. The estimates "
                "are for the log without them."
            ),
            stacklevel=3,
        )

    def _count_violations(self) -> dict[RowRequirement, int]:
        """The number of rows that do not meet each requirement, without those that all meet."""
        terms = {each.name: choose(column(each.name), 0.0, 1.0) for each in self.requirements}
        totals = self._all_rows.add_up(
            {f"n_without_{name}": term for name, term in terms.items()}, {}, by_group=False
        )[None]
        counts = {each: round(totals[f"n_without_{each.name}"]) for each in self.requirements}
        return {each: n_bad for each, n_bad in counts.items() if n_bad}

    def _raise_error(self, requirement: RowRequirement, n_bad: int, n_rows: int) -> NoReturn:
        row = self._all_rows.filter(~column(requirement.name)).first_row() or {}
        value, where = row.get(requirement.column), describe_cell(row)
        example = f"{value} at {where}" if where else f"{value}"
        raise requirement.error(
            f"{n_bad:,} of {n_rows:,} {requirement.violation}; one is {example}.",
            parameter=self.roles.sources()[requirement.column],
            value=value,
            where=where or None,
            remedy=requirement.remedy,
        )

    def require_distinct_cells(self) -> None:
        """Raise an error if two rows have the same user and item."""
        rows = self.kept_rows()
        n_duplicates = rows.count_duplicates(["user", "item"])
        if n_duplicates:
            where = describe_cell(rows.find_duplicate(["user", "item"]) or {})
            raise DuplicateCellError(
                f"{n_duplicates:,} rows repeat the (user, item) of another row; one is {where}.",
                where=where,
                remedy="Aggregate them first.",
            )


def _transform(inverse: FrameColumn, weight_transform: WeightTransform | None) -> FrameColumn:
    if weight_transform is None:
        return inverse
    return as_column(weight_transform(inverse.as_vector))


def describe_cell(row: Mapping[str, Any]) -> str:
    """``user 'ann', item 7``, as far as the row has ids."""
    ids = [f"{role} {format_id(row[role])}" for role in ("user", "item") if role in row]
    return ", ".join(ids)
