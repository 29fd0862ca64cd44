"""Metrics of whole lists in a data frame: the rows of each user are measured together, as arrays.

Such a metric is a function of all weights of a user (:mod:`unskew.metrics.top_k`). Rows that are
not relevant do not change it, so only relevant rows are sorted by user. The functions are those of
:func:`unskew.evaluate`; sums over users are fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.estimation import FrameStrata
from unskew.data.frames import hash_ids
from unskew.data.ids import as_ids, encode
from unskew.errors import BadPredictionError
from unskew.estimators.frame_variance import SecondMoments, StrataSums
from unskew.estimators.sums import Sums
from unskew.estimators.user_functions import (
    KEPT_SHARE,
    N_THINNINGS,
    THINNING_SEED,
    BiasSums,
    UserFunctions,
)
from unskew.evaluation.backends.narwhals.columns import as_column, choose, column
from unskew.evaluation.backends.narwhals.metric_input import FrameMetricInput
from unskew.evaluation.backends.narwhals.sums import KEPT, STRATUM, UNCERTAINTY, WEIGHT
from unskew.evaluation.backends.narwhals.table import FrameTable, Rows
from unskew.metrics.metric import SAME_POSITION, Delta, Metric, MetricInput
from unskew.ranking.positions import Positions
from unskew.types import BoolVector, IntVector, Matrix, Vector

HashVector: TypeAlias = npt.NDArray[np.uint64]
RELEVANT = "relevant"
"""The column that says whether a row is relevant for a metric of whole lists."""


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSums:
    """Sums over users of what a metric of whole lists says of each model. They can be added."""

    n_users: int
    """Users with a base."""
    total: Vector
    """Numerators of the models, then the base."""
    moment: Matrix
    """Products of these numbers."""
    bias: BiasSums | None = None
    gradient: Matrix | None = None
    """(Models + 1) x strata: sums of the derivatives of these numbers by the weight of a cell."""

    def __add__(self, other: FunctionSums) -> FunctionSums:
        return FunctionSums(
            self.n_users + other.n_users,
            self.total + other.total,
            self.moment + other.moment,
            None if self.bias is None or other.bias is None else self.bias + other.bias,
            None
            if self.gradient is None or other.gradient is None
            else self.gradient + other.gradient,
        )

    def repeat(self, times: int) -> FunctionSums:
        """The sums of so many users without a relevant row, of whom these are the sums of one."""
        bias = self.bias and replace(self.bias, thinned=self.bias.thinned * times)
        return replace(
            self,
            n_users=self.n_users * times,
            total=self.total * times,
            moment=self.moment * times,
            bias=bias,
        )

    def read(self, n_users_with_rows: int) -> Sums:
        """The sums that estimators read; an error if they are not finite."""
        if not np.isfinite(self.moment).all():
            raise BadPredictionError(
                SAME_POSITION,
                parameter="position",
                remedy="Number the items of each user 1, 2, 3, ... without repeats; "
                "`check_duplicates=True` finds rows that repeat a user and item.",
            )
        bias = None
        if self.bias is not None and self.n_users:
            bias = self.bias.estimate(self.total[:-1] / self.total[-1])
        return Sums(
            self.total,
            self.moment,
            n_clusters=self.n_users,
            n_left_out=max(n_users_with_rows - self.n_users, 0),
            ratio_bias=bias,
            n_biases=0 if bias is None else 1,
        )

    def read_strata(
        self, strata: FrameStrata, weight_derivative: Vector, value: Vector
    ) -> StrataSums:
        """The gradient of the risks by the propensity of each stratum."""
        zero = np.zeros((self.total.size,) * 2)
        gradient = np.zeros((value.size, weight_derivative.size))
        if self.gradient is not None:
            residual = self.gradient[:-1] - value[:, None] * self.gradient[-1]
            gradient = weight_derivative * residual / self.total[-1]
        return StrataSums(SecondMoments(zero), zero, zero, gradient, strata.sample)


@dataclass(frozen=True, slots=True, eq=False)
class ListTotals:
    """The sums of each metric, without and with weights. They can be added."""

    n_users: int
    """Users that were measured, with or without a relevant row."""
    sums: Mapping[tuple[str, bool], FunctionSums]

    def __add__(self, other: ListTotals) -> ListTotals:
        sums = {key: each + other.sums[key] for key, each in self.sums.items()}
        return ListTotals(self.n_users + other.n_users, sums)

    def repeat(self, times: int) -> ListTotals:
        """The sums of so many users without a relevant row."""
        sums = {key: each.repeat(times) for key, each in self.sums.items()}
        return ListTotals(self.n_users * times, sums)


@dataclass(frozen=True, slots=True, eq=False)
class WholeUserInput(MetricInput):
    """The relevant rows of some users. The query has checked the ratings of all rows."""

    def require_distinct_positions(self, gain: Vector) -> None:
        """Not checked here: equal positions are seen when the sums are read."""

    def require_binary(self) -> None:
        """Not checked here: the query counts ratings other than 0 and 1."""

    def require_relevant(self, threshold: float) -> None:
        """Not checked here: the query counts relevant ratings."""

    def require_gains(self) -> None:
        """Not checked here: the query counts negative and positive ratings."""


@dataclass(frozen=True, slots=True, eq=False)
class ListMeasure:
    """Measures metrics of whole lists on blocks of rows; it is sent to executors."""

    metrics: Mapping[str, Metric]
    weightings: frozenset[tuple[str, bool]]
    """Metrics by name, without and with weights."""
    n_models: int
    n_items: int
    levels: Vector | None
    """The strata, if the error of an outside sample is added; else None."""

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        is_weighted = any(weighted for _, weighted in self.weightings)
        return [
            "user",
            "rating",
            *(name for model in range(self.n_models) for name in tie_columns(model)),
            *([WEIGHT, UNCERTAINTY] if is_weighted else []),
            *([STRATUM] if self.levels is not None else []),
        ]

    def __call__(self, rows: Rows) -> ListTotals:
        """The totals of the users of these rows."""
        user, ids = encode(as_ids(rows["user"]))
        order = np.lexsort((rows[tie_columns(0)[0]], user))
        rows = {name: rows[name][order] for name in self.columns}
        return self._measure(rows, user[order], [hash_ids(each) for each in ids.tolist()])

    def measure_without_rows(self) -> ListTotals:
        """The totals of one user who has no relevant row."""
        empty = dict.fromkeys(self.columns, np.empty(0))
        return self._measure(empty, np.empty(0, np.int32), [0])

    def _measure(self, rows: Rows, user: IntVector, hashes: Sequence[int]) -> ListTotals:
        inputs = [
            self._make_input(rows, model, user, len(hashes)) for model in range(self.n_models)
        ]
        draws = draw_halves(user, np.array(hashes, np.uint64))
        sums = {}
        for name, metric in self.metrics.items():
            deltas = [metric(each) for each in inputs]
            for is_weighted in (False, True):
                if (name, is_weighted) in self.weightings:
                    sums[name, is_weighted] = self._add_up(
                        deltas, rows, user, draws, is_weighted=is_weighted
                    )
        return ListTotals(len(hashes), sums)

    def _make_input(self, rows: Rows, model: int, user: IntVector, n_users: int) -> MetricInput:
        above, equal = (rows[name].astype(np.int32) for name in tie_columns(model))
        return WholeUserInput(
            rating=rows["rating"],
            item=np.empty(0, np.int32),
            scale=np.empty(0),
            positions=Positions(above, equal),
            n_items=self.n_items,
            user=user,
            n_users=n_users,
        )

    def _add_up(
        self,
        deltas: Sequence[Delta],
        rows: Rows,
        user: IntVector,
        draws: Sequence[BoolVector],
        *,
        is_weighted: bool,
    ) -> FunctionSums:
        functions = UserFunctions(tuple(each.function for each in deltas if each.function))
        weight = rows[WEIGHT] if is_weighted else np.ones(user.size)
        p_unobserved = rows[UNCERTAINTY] if is_weighted and functions.has_bias else None
        by_user = functions.measure(weight, p_unobserved)
        bias = gradient = None
        if p_unobserved is not None:
            base = deltas[0].base
            is_relevant = (weight > 0) & (True if base is None else base > 0)
            users = user[is_relevant]
            bias = BiasSums.of(
                functions, weight, p_unobserved, users, is_relevant, draws, n_threads=1
            )
        if is_weighted and self.levels is not None:
            stratum = np.searchsorted(self.levels, rows[STRATUM])
            parts = functions.differentiate_parts(weight)
            gradient = np.zeros((len(parts), self.levels.size))
            for row, derivative in enumerate(parts):
                gradient[row] = np.bincount(stratum, derivative, self.levels.size)
        moment = np.einsum("ui,uj->ij", by_user, by_user)
        return FunctionSums(len(by_user), by_user.sum(axis=0), moment, bias, gradient)


def tie_columns(model: int) -> tuple[str, str]:
    """How many items a model ranks above the item of the row, and how many share its positions."""
    return f"above_{model}", f"equal_{model}"


def draw_halves(user: IntVector, hashes: HashVector) -> list[BoolVector]:
    """Which cells stay if about half of them are dropped, for each thinning.

    ``hashes`` are those of the users' ids. Draws depend on them and on the order of the user's
    cells, so they are the same in whichever block the user is.
    """
    starts = np.searchsorted(user, np.arange(hashes.size))
    rank = (np.arange(user.size) - starts[user]).astype(np.uint64)
    cell = (hashes[user] << np.uint64(32)) | rank
    limit = np.uint64(round(KEPT_SHARE * 2**32))
    return [
        mix_bits(cell, THINNING_SEED + thinning) >> np.uint64(32) < limit
        for thinning in range(N_THINNINGS)
    ]


def mix_bits(numbers: HashVector, seed: int) -> HashVector:
    """Numbers whose bits look random, and differ by seed (SplitMix64)."""
    mixed: HashVector = numbers + np.full_like(numbers, (seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def store_lists(
    table: FrameTable, inputs: Sequence[FrameMetricInput], metrics: Mapping[str, Metric]
) -> None:
    """Store which rows are relevant for a metric, and the tie counts of each model."""
    relevant = []
    for metric in metrics.values():
        base = metric(inputs[0]).base
        is_kept = column(KEPT) > 0.0
        relevant.append(is_kept if base is None else is_kept & (as_column(base) > 0.0))
    columns = {RELEVANT: choose(reduce(or_, relevant), 1.0, 0.0)}
    for model, each in enumerate(inputs):
        names = tie_columns(model)
        counts = each.require_tie_counts()
        columns |= {name: as_column(n) for name, n in zip(names, counts, strict=True)}
    table.store(columns)


def measure_lists(table: FrameTable, measure: ListMeasure, n_users: int) -> ListTotals:
    """The totals of all users, also of those without a relevant row."""
    relevant = table.filter(column(RELEVANT) > 0.0)
    totals = relevant.add_up_users(measure.columns, measure)
    without_rows = measure.measure_without_rows()
    if totals is None:
        return without_rows.repeat(n_users)
    return totals + without_rows.repeat(max(n_users - totals.n_users, 0))
