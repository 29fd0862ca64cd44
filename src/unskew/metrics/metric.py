"""What a metric reads and returns, and how metrics are found by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, TypeAlias

import numpy as np

from unskew.errors import BadPredictionError, UniverseError, UnknownNameError, UsageError
from unskew.metrics import METRICS
from unskew.registry import Declaration
from unskew.settings import Instance, is_finite_number
from unskew.types import IntVector, UserFunction, Vector

LARGEST_TOP = 2**31 - 1
MAX_LEVELS = 101
"""The most levels of a scale of whole numbers, such as 0 to 100."""
SAME_POSITION = (
    "a metric of the first relevant item is not finite, because two rows of a user have the same "
    "position."
)
Bounds: TypeAlias = tuple[float, float]
"""The least and the largest possible value of a metric; either may be infinite."""


class CellPositions(Protocol):
    """The positions of cells among the candidates of their user; 1 is the top."""

    def mean(self, value_at_position: Callable[[Vector], Vector], *, last: int) -> Vector:
        """The mean of ``value_at_position`` over the positions that tied items share.

        Positions after ``last`` have the value 0.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class CandidateCounts:
    """The number of items that are ranked for each user."""

    by_user: IntVector
    """Of all users of the universe; those with 0 do not count as users."""
    of_cell: IntVector
    """Of the user of each cell."""


@dataclass(frozen=True, slots=True, eq=False)
class MetricInput:
    """Observed cells and the predictions of one model for them. A metric reads what it needs.

    A metric that uses only the methods below and elementwise NumPy functions works on columns of
    data frames: :func:`unskew.evaluate_frame` passes expressions instead of arrays.
    """

    rating: Vector
    item: IntVector
    scale: Vector
    """The ratings of the log; their distinct values are the levels of the rating scale.
    They differ from ``rating`` if that is imputed."""
    prediction: Vector | None = None
    positions: CellPositions | None = None
    n_items: int | None = None
    """The number of all items; None if unknown."""
    user: IntVector | None = None
    n_users: int | None = None
    """The number of all users; None if unknown."""
    candidates: CandidateCounts | None = None
    """None if all items are ranked for every user."""

    def require_predictions(self) -> Vector:
        """The predictions; an error if there are none."""
        if self.prediction is None:
            raise BadPredictionError(
                "a rating metric needs predicted ratings, but only positions were passed.",
                parameter="predictions",
                remedy="Pass predictions too, or use ranking metrics such as dcg@10 only.",
            )
        return self.prediction

    def require_positions(self) -> tuple[CellPositions, int]:
        """The positions and the number of items; an error if one of them is unknown."""
        if self.n_items is None:
            raise UniverseError(
                "a ranking metric needs the number of all items.",
                parameter="universe",
                remedy="Pass `universe=(n_users, n_items)`, or `universe='log'` if the users and "
                "items of the log are all there are.",
            )
        if self.positions is None:
            raise BadPredictionError(
                "a ranking metric needs positions among all items, but only predicted ratings "
                "were passed.",
                parameter="position",
                remedy="Pass `position=...`: a column with the position of each row's item among "
                "all items of its user, 1 for the best.",
            )
        return self.positions, self.n_items

    @property
    def mean_candidates(self) -> float:
        """Candidates per user: a delta of this times x adds x to the mean over users."""
        if self.candidates is None:
            return float(self.require_positions()[1])
        return float(self.candidates.by_user[self.candidates.by_user > 0].mean())

    @property
    def n_candidates(self) -> IntVector | int:
        """The number of candidates of each cell's user."""
        return self.require_positions()[1] if self.candidates is None else self.candidates.of_cell

    def count_candidates(self) -> IntVector:
        """The number of candidates of all users of the universe."""
        if self.candidates is not None:
            return self.candidates.by_user
        n_items = self.require_positions()[1]
        if self.n_users is None:
            raise LoggedListError
        return np.full(self.n_users, n_items, np.int32)

    def sum_over_list(self, value_at_position: Callable[[Vector], Vector], last: int) -> float:
        """The sum of the values of positions 1 to ``last``, of users who have that many candidates.

        It is the mean over users, some of whom may have fewer.
        """
        sums = np.cumsum(value_at_position(np.arange(1.0, last + 1.0)))
        if self.candidates is None:
            return float(sums[-1])
        counts = self.candidates.by_user[self.candidates.by_user > 0]
        return float(sums[np.minimum(counts, last) - 1].mean())

    def require_users(self) -> IntVector:
        """The user of each cell; an error if users are unknown."""
        if self.user is None:
            raise LoggedListError
        return self.user

    def require_tie_counts(self) -> tuple[IntVector, IntVector]:
        """How many candidates are above each cell, and how many share its positions with it."""
        positions, _ = self.require_positions()
        counts: tuple[IntVector, IntVector] | None = getattr(positions, "tie_counts", None)
        if counts is None:
            raise LoggedListError
        return counts

    def distinct(self) -> Vector:
        """The distinct ratings of the scale in ascending order."""
        return np.unique(self.scale)

    def sum_by_item(self, value: Vector) -> Vector:
        """The sum of ``value`` over all cells of each cell's item."""
        by_item: Vector = np.bincount(self.item, weights=value).astype(np.float64)
        return by_item[self.item]

    def require_distinct_positions(self, gain: Vector) -> None:
        """Raise an error if relevant cells of a user have the same position and are no tie."""
        is_chosen = gain > 0
        above, equal = (counts[is_chosen] for counts in self.require_tie_counts())
        user = self.require_users()[is_chosen]
        order = np.lexsort((above, user))
        same = np.diff(user[order], prepend=-1) | np.diff(above[order], prepend=-1)
        group = np.cumsum(same != 0) - 1
        if (np.bincount(group) > equal[order][same != 0]).any():
            raise BadPredictionError(
                SAME_POSITION,
                parameter="position",
                remedy="Number the items of each user 1, 2, 3, ... without repeats.",
            )

    def require_binary(self) -> None:
        """Raise an error if ratings are not 0 and 1. Imputed ones may be probabilities of 1."""
        is_other = ~np.isin(self.scale, (0.0, 1.0))
        if is_other.any():
            raise unclear_relevance_error(self.scale[is_other.argmax()])
        is_outside = (self.rating < 0) | (self.rating > 1)
        if is_outside.any():
            raise BadPredictionError(
                "the log's ratings are 0 and 1, but an imputed one is "
                f"{self.rating[is_outside.argmax()]:g}.",
                parameter="imputation",
                remedy="Impute the probability of a 1, in [0, 1].",
            )

    def require_relevant(self, threshold: float) -> None:
        """Raise an error if the log has no rating of at least ``threshold``."""
        if not (self.scale >= threshold).any():
            raise nothing_relevant_error(self.scale.max(), threshold)

    def require_gains(self) -> None:
        """Raise an error if a rating is negative, or if none is positive."""
        if (self.rating < 0).any():
            raise negative_gain_error(self.rating.min())
        if not self.rating.any():
            raise no_gain_error()


class LoggedListError(UsageError):
    """A metric compares the logged items of a user, which needs the log in memory."""

    def __init__(self, metric: str = "this metric") -> None:
        super().__init__(
            f"{metric} reads all logged items of a user together, which needs the log in memory.",
            parameter="metrics",
            remedy="Build a log with Ratings.from_frame, of a sample of the users if it is large, "
            "and call evaluate(log, frame, position=...).",
            shell_remedy="Use `reader='memory'`.",
        )


def unclear_relevance_error(rating: float) -> UsageError:
    """Ratings are not 0 and 1, and the caller passed no threshold."""
    return UsageError(
        "this metric counts relevant items, but the log has ratings other than 0 and 1, such as "
        f"{rating:g}.",
        parameter="relevance_threshold",
        remedy="Pass `relevance_threshold=4`, for example, if ratings from 4 on are relevant.",
    )


def nothing_relevant_error(largest: float, threshold: float) -> UsageError:
    """A metric divides by the number of relevant cells, which is zero."""
    return UsageError(
        f"no rating is relevant: the largest is {largest:g}, below the threshold {threshold:g}.",
        parameter="relevance_threshold",
        value=threshold,
        remedy="Lower `relevance_threshold`.",
    )


def negative_gain_error(rating: float) -> UsageError:
    """Ratings are gains, but one is negative."""
    return UsageError(
        f"ratings are gains here, but one is {rating:g}, which is negative.",
        parameter="relevance_threshold",
        remedy="Pass `relevance_threshold`, from which on a rating is relevant.",
    )


def no_gain_error() -> UsageError:
    """Ratings are gains, but all are 0."""
    return UsageError("all ratings are 0, so no item is relevant.", parameter="relevance_threshold")


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """One number for each cell. The risk is their mean over all cells.

    With a ``base``, the risk is the ratio of the sums of ``value`` and ``base``, or the mean over
    users of each user's ratio.
    """

    value: Vector
    base: Vector | None = None
    is_mean_of_users: bool = False
    slots: Vector | None = None
    """Of a metric of recommended items: how much each cell's place in the list counts, with mean 1
    over all cells. SNIPS and the naive average divide by the weighted sum of the slots that were
    observed, so that they stay within the range of the metric."""
    function: UserFunction | None = None
    """Of a metric that is no sum over cells. ``value`` is then not read; ``base`` shows which cells
    the metric reads."""
    is_root: bool = False
    """Whether the risk is the square root of the mean."""


class Metric(Protocol):
    """Gives each cell a delta. Declare a class with ``METRICS.declare`` to find it by name."""

    @property
    def name(self) -> str:
        """What users type, such as ``dcg@50``."""
        ...

    @property
    def higher_is_better(self) -> bool:
        """Whether it is a gain, not a loss."""
        ...

    @property
    def ranks(self) -> bool:
        """Whether it reads positions among all items instead of predictions."""
        ...

    @property
    def top(self) -> int | None:
        """The last position that matters; None if all do."""
        ...

    def __call__(self, cells: MetricInput, /) -> Delta:
        """The delta of each cell. A class may also declare its range as ``bounds``."""
        ...


def compares_logged_cells(metric: Metric) -> bool:
    """Whether deltas depend on which other cells were logged, so that weights cannot correct them.

    Such a metric is meaningful only if the cells were drawn uniformly at random.
    """
    return bool(getattr(metric, "compares_logged_cells", False))


def rating_degree(metric: Metric) -> int | None:
    """The degree of the delta as a polynomial of the rating; None if it may be any function.

    The mean of a delta over the ratings that a cell may have then needs only their mean (degree
    1), or their mean and variance (degree 2).
    """
    return getattr(metric, "rating_degree", None)


def metric_bounds(metric: Metric) -> Bounds | None:
    """The range of the metric; None if it declares no ``bounds``."""
    bounds: Bounds | None = getattr(metric, "bounds", None)
    return bounds


def is_plug_in(metric: Metric) -> bool:
    """Whether it replaces a user's number of relevant items by an estimate, which biases it."""
    return bool(getattr(metric, "is_plug_in", False))


def max_relative_error(metric: Metric) -> float | None:
    """The share of its value up to which the standard error of the metric can be trusted."""
    return getattr(metric, "max_relative_error", None)


def find_metric(metric: str | Metric, *, relevance_threshold: float | None = None) -> Metric:
    """The metric with this name, such as ``mse`` or ``dcg@50``; a metric object is returned as is.

    Metrics that need it count ratings of at least ``relevance_threshold`` as relevant.
    """
    if not (relevance_threshold is None or is_finite_number(relevance_threshold)):
        raise UsageError(
            "`relevance_threshold` must be the least rating that counts as relevant, such as 4; "
            f"got {relevance_threshold!r}.",
            parameter="relevance_threshold",
            value=relevance_threshold,
        )
    if not isinstance(metric, str):
        if isinstance(metric, type) or not (callable(metric) and hasattr(metric, "name")):
            raise UnknownNameError("metric", metric, metric_names(), parameter="metrics")
        return metric
    declaration, top = parse_metric_name(metric)
    settings: dict[str, Any] = {"top": top, "relevance_threshold": relevance_threshold}
    accepted = settings.keys() & signature(declaration.target).parameters.keys()
    return declaration.target(**{name: settings[name] for name in accepted})


def parse_metric_name(name: str) -> tuple[Declaration[type[Metric]], int | None]:
    """The declaration of ``dcg`` and 50 from ``dcg@50``; None in place of 50 from ``dcg``."""
    stem, has_top, top = name.partition("@")
    if stem not in METRICS or not re.fullmatch(r"[1-9]\d*" if has_top else "", top):
        raise UnknownNameError("metric", name, metric_names(), parameter="metrics")
    declaration = METRICS.find(stem)
    rule = declaration.traits.get("top", "never")
    if rule == ("never" if has_top else "always"):
        raise UnknownNameError("metric", name, metric_names(), parameter="metrics")
    if len(top) > 10 or (has_top and int(top) > LARGEST_TOP):
        raise UsageError(
            f"the metric {name[:40]!r} has too large a number of positions.",
            parameter="metrics",
            remedy=f"The largest possible one is {LARGEST_TOP:,}.",
        )
    return declaration, int(top) if has_top else None


def find_list_length(name: str) -> int | None:
    """The k of a declared metric of lists of k items among all items; None of other metrics.

    DCG@k is left out: it is defined for any k.

    >>> find_list_length("precision@5"), find_list_length("dcg@5"), find_list_length("my metric")
    (5, None, None)
    """
    stem, has_top, top = name.partition("@")
    if not has_top or stem not in METRICS or METRICS[stem].traits.get("top") != "always":
        return None
    return None if getattr(METRICS[stem].target, "compares_logged_cells", False) else int(top)


def metric_names() -> tuple[str, ...]:
    """All names that :func:`find_metric` accepts; ``@k`` stands for any number."""
    names = []
    for name, declaration in METRICS.items():
        rule = declaration.traits.get("top", "never")
        names += [name] * (rule != "always") + [f"{name}@k"] * (rule != "never")
    return tuple(names)


def metric_label(name: str) -> str:
    """The label of a metric for tables and axes; the name itself if it is not declared.

    >>> metric_label("dcg@50"), metric_label("my metric")
    ('DCG@50', 'my metric')
    """
    Instance(str)("name", name)
    stem, separator, top = name.partition("@")
    return f"{METRICS[stem].label}{separator}{top}" if stem in METRICS else name
