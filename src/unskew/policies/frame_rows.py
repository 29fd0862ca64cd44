"""The rows of a log of impressions in the caller's data frame or SQL table, pivoted by request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw

from unskew.data.frames import BACKENDS, LazyFrame, open_lazily
from unskew.data.ids import format_id
from unskew.data.impression_checks import REMEDIES
from unskew.data.impressions import ProbabilityKind, find_impression_columns
from unskew.errors import (
    BadImpressionError,
    BadPropensityError,
    ColumnError,
    DataError,
    EmptyLogError,
    UsageError,
)
from unskew.evaluation.backends.narwhals.table import translated_errors
from unskew.policies.frame_columns import FrameColumns, name_column
from unskew.policies.plan import NEEDS_ALL_SLOTS, Regression, require_pair
from unskew.policies.targets import Policy, TargetRanking
from unskew.policies.terms import total
from unskew.settings import OneOf
from unskew.tables import count_noun

MAX_SLOTS = 52
"""Queries with more slots have too many columns."""
SMALLEST_PRODUCT = 1e-300


@dataclass(frozen=True, slots=True)
class RowTotals:
    """What the first query finds in the rows of a log."""

    n_rows: int
    n_slots: int
    has_binary_rewards: bool
    rewards: tuple[float, float]
    """The smallest and the largest."""
    may_be_complete: bool
    """Whether all requests can have all slots, by the sum of positions; without gaps, they do."""
    smallest: Mapping[str, float]
    """The smallest probability of each target policy; 0 for a ranking."""

    def can_be_zero(self, target: str) -> bool:
        """Whether a product of the weights of a request can be 0, or too small for a float64."""
        return self.smallest[target] ** self.n_slots < SMALLEST_PRODUCT


@dataclass(frozen=True, slots=True)
class ImpressionRows:
    """The rows of a log of impressions in the caller's frame, under our own names."""

    rows: LazyFrame
    targets: Mapping[str, Policy]
    regressions: Mapping[str, tuple[str, str]]
    values: tuple[str, ...]
    """The numbers of a row that are pivoted by position."""
    backend: str | None

    @classmethod
    def open(
        cls,
        frame: object,
        names: Mapping[str, str | None],
        probability: str | None,
        probability_is: ProbabilityKind | None,
        targets: Mapping[str, Policy],
        regression: Regression | None,
    ) -> ImpressionRows:
        """Select the columns; nothing is read yet."""
        opened, view = open_lazily(frame)
        roles = find_impression_columns(names, list(view), has_clicks=False)
        if "request" not in roles:
            raise ColumnError(
                "the frame has no column of requests.",
                parameter="request",
                remedy="Name it with `request=...`.",
            )
        columns = {role: name for role, name in roles.items() if role != "item"}
        if probability is not None:
            columns["probability"] = _require_column(probability, view, "probability")
        elif probability_is is not None:
            raise UsageError(
                "`probability_is` is given, but `probability` is not.",
                parameter="probability_is",
                value=probability_is,
                remedy="Name the column with `probability=...`.",
            )
        if probability_is is not None:
            OneOf(("step", "marginal", "slate", "product"))("probability_is", probability_is)
        for name, policy in targets.items():
            columns[f"target_{name}"] = _require_column(name_column(policy, name), view, "targets")
        regressions = _find_regressions(regression, targets)
        for name, (prediction, mean) in regressions.items():
            columns[f"prediction_{name}"] = _require_column(prediction, view, "regression")
            columns[f"mean_{name}"] = _require_column(mean, view, "regression")
        with translated_errors(opened):
            rows = _select(opened, view, columns)
            if "position" not in columns:
                rows = rows.with_columns(nw.lit(1).alias("position"))
        ids = {"request", "user", "position"}
        values = tuple(name for name in columns if name not in ids)
        implementation = opened.implementation.value
        backend = implementation if implementation in BACKENDS else None
        return cls(rows, targets, regressions, values, backend)

    def check(self) -> RowTotals:
        """The size of the log; an error if a value in it is invalid."""
        flags = {f"bad_{name}": is_bad for name, is_bad in self._list_problems()}
        flags["other_reward"] = (nw.col("reward") != 0) & (nw.col("reward") != 1)
        flags["positions"] = nw.col("position")
        target_columns = [f"target_{name}" for name in self.targets]
        with translated_errors(self.rows):
            counted = self.rows.select(
                "position",
                "reward",
                *target_columns,
                *(flag.cast(nw.Float64).alias(name) for name, flag in flags.items()),
            ).select(
                nw.col("position").max().alias("n_slots"),
                nw.col("reward").min().alias("least_reward"),
                nw.col("reward").max().alias("largest_reward"),
                *(nw.col(name).min() for name in target_columns),
                nw.len().cast(nw.Float64).alias("n_rows"),
                *(nw.col(name).sum() for name in flags),
            )
            totals = {name: values[0] for name, values in fetch(counted).items()}
        n_rows = int(totals["n_rows"])
        if n_rows == 0:
            raise EmptyLogError("the frame has no impressions.", remedy="Check its filter or file.")
        for name in flags:
            if name.startswith("bad_") and totals[name]:
                column = name.removeprefix("bad_")
                example = self._find_example(column, flags[name])
                raise _row_error(column, f"{int(totals[name]):,} of {n_rows:,} rows", example)
        n_slots = int(totals["n_slots"])
        if n_slots > MAX_SLOTS:
            raise BadImpressionError(
                f"positions reach {n_slots:,}, but a query can have {MAX_SLOTS} slots.",
                parameter="position",
                value=n_slots,
                remedy="Drop the lowest positions of all requests, or use evaluate_policies().",
            )
        may_be_complete = 2 * totals["positions"] == n_rows * (n_slots + 1)
        return RowTotals(
            n_rows,
            n_slots,
            not totals["other_reward"],
            (float(totals["least_reward"]), float(totals["largest_reward"])),
            bool(may_be_complete),
            {
                name: 0.0 if self.is_ranking(f"target_{name}") else totals[f"target_{name}"]
                for name in self.targets
            },
        )

    def _list_problems(self) -> Iterator[tuple[str, nw.Expr]]:
        """By column: the condition under which its value in a row is invalid."""
        for name in ("request", "user"):
            yield name, nw.col(name).is_null()
        position = nw.col("position")
        is_bad = position.is_null() | (position < 1)
        if self.rows.collect_schema()["position"].is_float():
            is_bad = is_bad | (position != position.round())
        yield "position", is_bad
        for name in self.values:
            value = nw.col(name)
            is_unusable = value.is_null() | ~value.is_finite()
            if name == "probability":
                yield name, is_unusable | (value <= 0) | (value > 1)
            elif self.is_ranking(name):
                yield name, ~_is_missing(name) & ((value < 1) | (value != value.round()))
            elif name.startswith("target_"):
                yield name, is_unusable | (value < 0) | (value > 1)
            else:
                yield name, is_unusable

    def _find_example(self, column: str, is_bad: nw.Expr) -> str:
        """``request 7 has nan``: one of the rows whose value in a column is invalid."""
        with translated_errors(self.rows):
            row = fetch(self.rows.filter(is_bad).head(1).select("request", value=column))
        request, value = format_id(row["request"][0]), row["value"][0]
        return f"request {request} has {'nothing' if value is None else value}"

    def find_request(self, problem: str) -> str:
        """One of the requests with a problem that :data:`FLAGS` has, as errors name it."""
        keys = ["request", "position"] if problem == "has_shared_slot" else ["request"]
        conditions = {
            "has_two_users": nw.col("first") != nw.col("last"),
            "has_shared_slot": nw.col("n_rows") > 1,
            "has_gap": nw.col("n_rows") != nw.col("n_slots"),
        }
        with translated_errors(self.rows):
            groups = (
                self.rows.with_columns(nw.col("user").alias("last"), slot=nw.col("position"))
                .group_by(keys)
                .agg(
                    first=nw.col("user").min(),
                    last=nw.col("last").max(),
                    n_rows=nw.len(),
                    n_slots=nw.col("slot").max(),
                )
            )
            row = fetch(groups.filter(conditions[problem]).head(1).select(keys))
        names = {key: format_id(row[key][0]) for key in keys}
        return ", ".join(f"{key} {name}" for key, name in names.items())

    def is_ranking(self, column: str) -> bool:
        """Whether a column has the positions of a target ranking."""
        policy = self.targets.get(column.removeprefix("target_"))
        return column.startswith("target_") and isinstance(policy, TargetRanking)

    def fill_missing_targets(self) -> LazyFrame:
        """The rows, with position 0 for items that a target ranking does not show."""
        return self.rows.with_columns(
            nw.when(_is_missing(name)).then(nw.lit(0.0)).otherwise(nw.col(name)).alias(name)
            for name in self.values
            if self.is_ranking(name)
        )


def fetch(frame: LazyFrame) -> dict[str, Any]:
    """The columns of a small table as arrays, by name."""
    is_polars = frame.implementation.is_polars()
    rows = frame.collect(backend="polars", engine="streaming") if is_polars else frame.collect()
    return {name: rows.get_column(name).to_numpy() for name in rows.columns}


def _is_missing(name: str) -> nw.Expr:
    """Whether a number is null or NaN."""
    return nw.col(name).is_null() | nw.col(name).is_nan().fill_null(value=True)


def _select(frame: LazyFrame, view: Mapping[str, str], columns: Mapping[str, str]) -> LazyFrame:
    """The columns under our names, numbers as float64, but whole positions as they are."""
    schema = frame.collect_schema()
    selected = []
    for name, source in columns.items():
        expression = nw.col(view[source])
        if name not in ("request", "user"):
            dtype = schema[view[source]]
            if not (dtype.is_numeric() or dtype == nw.Boolean):
                raise ColumnError(
                    f"column {source!r} has the type {dtype}, not numbers.",
                    parameter=source,
                    remedy="Convert the column to numbers first.",
                )
            if not (name == "position" and dtype.is_integer()):
                expression = expression.cast(nw.Float64)
        elif schema[view[source]] in (nw.Categorical, nw.Enum):
            expression = expression.cast(nw.String)
        selected.append(expression.alias(name))
    return frame.select(selected)


def _require_column(name: str, view: Mapping[str, str], parameter: str) -> str:
    if not isinstance(name, str) or name not in view:
        raise ColumnError(
            f"the frame has no column {name!r}; it has {', '.join(view)}.", parameter=parameter
        )
    return name


def _find_regressions(
    regression: Regression | None, targets: Mapping[str, Policy]
) -> dict[str, tuple[str, str]]:
    if regression is None:
        return {}
    if isinstance(regression, Mapping):
        return {name: require_pair(pair) for name, pair in regression.items()}
    return dict.fromkeys(targets, require_pair(regression, n_targets=len(targets)))


def _row_error(name: str, of_rows: str, example: str) -> DataError:
    """What is wrong with some rows; ``example`` is one of them."""
    if name == "probability" or name.startswith("target_"):
        what = "`probability`" if name == "probability" else f"policy {name[7:]!r}"
        return BadPropensityError(
            f"{what}: {of_rows} have a value that is missing or impossible; {example}.",
            parameter="probability" if name == "probability" else "targets",
            remedy="Probabilities lie in (0, 1], those of a target in [0, 1]; target positions are "
            f"whole numbers from 1 on, or missing. {REMEDIES['probability']}",
        )
    wrong = "not a whole number from 1 on" if name == "position" else "missing or not finite"
    return BadImpressionError(
        f"{of_rows} have a {name.partition('_')[0]} that is {wrong}; {example}.",
        parameter=name,
        remedy=REMEDIES.get(name, "Predict every shown item."),
    )


CLUSTER = "cluster"
FLAGS = ("n_requests", "has_two_users", "has_shared_slot", "has_gap")
"""Columns of each request whose sums say whether the log is sound."""
Table: TypeAlias = Mapping[str, Any]
"""Fetched columns by name."""


def pivot_requests(
    log: ImpressionRows,
    totals: RowTotals,
    columns: Mapping[str, FrameColumns],
    needed: set[str],
    key: str,
) -> LazyFrame:
    """One row for each request, with the columns that :class:`FrameColumns` reads.

    A slot has one row at most, so its value is the largest one, and null without a row. If all
    weights of a policy are above 0 and all rewards 0 or 1, the sign of its weights says whether
    there was a reward, and rewards need no columns of their own.
    """
    sign_column = _find_positive_weight(totals, columns)
    weights = {
        f"weight_{name}": each.find_weight()
        for name, each in columns.items()
        if each.logging.kind is not None
    }
    if sign_column is not None:
        weights[sign_column] = weights[sign_column] * (1.0 - nw.col("reward") * 2.0)
    first = sign_column or "reward"
    others = [name for name in weights if name != sign_column]
    values = [first, *others, *_list_other_values(log, columns, needed)]
    rows = log.fill_missing_targets().with_columns(
        weight.alias(name) for name, weight in weights.items()
    )
    requests = _group_by_request(rows, values, totals.n_slots)
    is_complete = next(iter(columns.values())).is_complete
    raw = [nw.col(f"{first}_{slot}") for slot in range(1, totals.n_slots + 1)]
    flags = _flag_incomplete(raw) if is_complete else _flag_impossible(raw)
    filled = _read_slots(values, sign_column, totals.n_slots)
    if not is_complete:
        filled = {
            name: value.fill_null(1.0 if name.startswith("weight_") else 0.0)
            for name, value in filled.items()
        }
        filled |= {f"shown_{slot}": _is_present(value) for slot, value in enumerate(raw, 1)}
    requests = requests.select(
        nw.col(key).alias(CLUSTER),
        nw.lit(1.0).alias("n_requests"),
        *(flag.cast(nw.Float64).alias(name) for name, flag in flags.items()),
        *(value.alias(name) for name, value in filled.items()),
    )
    if not NEEDS_ALL_SLOTS & needed:
        return requests
    products = [each.list_running_products() for each in columns.values()]
    return requests.with_columns(
        product.alias(name) for each in products for name, product in each.items()
    )


def _find_positive_weight(totals: RowTotals, columns: Mapping[str, FrameColumns]) -> str | None:
    """The name of a weight above 0 in all rows, if rewards are 0 or 1."""
    if not totals.has_binary_rewards:
        return None
    return next(
        (
            f"weight_{name}"
            for name, each in columns.items()
            if each.logging.kind is not None and totals.smallest[name] > 0
        ),
        None,
    )


def _list_other_values(
    log: ImpressionRows, columns: Mapping[str, FrameColumns], needed: set[str]
) -> Iterator[str]:
    """Columns of the log, besides rewards and weights, that estimators read by slot."""
    for name in log.values:
        is_regression = name.startswith(("prediction_", "mean_"))
        is_read = is_regression and "regression" in needed
        if log.is_ranking(name):
            is_read = columns[name.removeprefix("target_")].logging.kind is None
        if is_read:
            yield name


def _group_by_request(rows: LazyFrame, values: Sequence[str], n_slots: int) -> LazyFrame:
    """Users, number of rows, and the value of each slot, null without a row."""
    at_slot = {
        f"{name}_{slot}": nw.when(nw.col("position") == slot).then(nw.col(name))
        for name in values
        for slot in range(1, n_slots + 1)
    }
    return (
        rows.select(
            "request",
            "user",
            "position",
            *(value.alias(name) for name, value in at_slot.items()),
        )
        .group_by("request")
        .agg(
            nw.col("user").min().alias("user"),
            nw.col("user").max().alias("last_user"),
            nw.col("position").max().alias("last_position"),
            nw.len().alias("n_shown"),
            *(nw.col(name).max() for name in at_slot),
        )
    )


def _read_slots(values: Sequence[str], sign_column: str | None, n_slots: int) -> dict[str, nw.Expr]:
    """The value of each slot by name; rewards and weights from weights with a sign."""
    slots = range(1, n_slots + 1)
    columns = {f"{name}_{slot}": nw.col(f"{name}_{slot}") for name in values for slot in slots}
    if sign_column is not None:
        for slot in slots:
            weight = columns[f"{sign_column}_{slot}"]
            columns[f"{sign_column}_{slot}"] = weight.abs()
            columns[f"reward_{slot}"] = (weight < 0).cast(nw.Float64)
    return columns


def _is_present(value: nw.Expr) -> nw.Expr:
    return (~value.is_null()).cast(nw.Float64)


def _flag_impossible(values: Sequence[nw.Expr]) -> dict[str, nw.Expr]:
    """Whether a request has two users, two items at one position, or a gap between positions."""
    n_shown = nw.col("n_shown").cast(nw.Float64)
    return {
        "has_two_users": nw.col("user") != nw.col("last_user"),
        "has_shared_slot": total([_is_present(value) for value in values]) != n_shown,
        "has_gap": n_shown != nw.col("last_position").cast(nw.Float64),
    }


def _flag_incomplete(values: Sequence[nw.Expr]) -> dict[str, nw.Expr]:
    """The same if every request is taken to have all slots: whether it has other slots."""
    return {
        "has_two_users": nw.col("user") != nw.col("last_user"),
        "has_shared_slot": total(values).is_null(),
        "has_gap": nw.col("n_shown") != len(values),
    }


def require_whole_requests(
    table: Table, needs: Mapping[str, Sequence[str]], log: ImpressionRows
) -> None:
    """Raise an error if a request is impossible, or lacks slots that an estimator needs."""
    problems = {
        "has_two_users": ("two users in", "user", "A request belongs to one user."),
        "has_shared_slot": (
            "two items at one position in",
            "position",
            "A position shows one item: make the ids of requests unique, and drop rows that occur "
            "twice.",
        ),
    }
    for flag, (problem, parameter, remedy) in problems.items():
        count = int(table[flag].sum())
        if count:
            raise BadImpressionError(
                f"there are {problem} {count_noun(count, 'request')}; one is "
                f"{log.find_request(flag)}.",
                parameter=parameter,
                remedy=remedy,
            )
    demanding = [name for name, kinds in needs.items() if NEEDS_ALL_SLOTS & set(kinds)]
    n_gaps = int(table["has_gap"].sum())
    if demanding and n_gaps:
        raise BadImpressionError(
            f"{demanding[0]!r} needs every slot above a shown item, but positions are missing in "
            f"{count_noun(n_gaps, 'request')}; one is {log.find_request('has_gap')}.",
            parameter="position",
            remedy="Keep all shown items of a request, also those without a click, or use "
            "'iips' or 'pbm'.",
        )
