"""What models would show: how many items, how evenly, and how popular ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from unskew.data.ratings import Ratings, require_log
from unskew.data.result import Result
from unskew.errors import UsageError
from unskew.estimators.estimate import Estimate
from unskew.estimators.observed import Clusters
from unskew.estimators.point import self_normalized
from unskew.estimators.sums import Sums
from unskew.evaluation.arguments import require_level
from unskew.evaluation.predictions import (
    PredictionsLike,
    ScoredCells,
    name_models,
    read_predictions,
)
from unskew.ranking.candidates import CandidatesLike, read_candidates
from unskew.ranking.positions import best_items
from unskew.settings import WholeNumber
from unskew.types import BoolVector, Vector


@dataclass(frozen=True, slots=True)
class ListMetric:
    """One number about the lists of one model."""

    model: str
    metric: str
    value: float
    std_error: float
    """NaN for coverage and Gini, which are no means over users."""
    ci_low: float
    ci_high: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListDescription(Result):
    """What models would show; see :func:`describe_lists`."""

    kind: ClassVar[str] = "lists"
    rows: tuple[ListMetric, ...]
    k: int
    level: float
    n_users: int
    backend: str | None = None

    def to_columns(self) -> dict[str, list[Any]]:
        """Model, metric, value, std_error, ci_low, ci_high."""
        rows = [asdict(row) for row in self.rows]
        return {name: [row[name] for row in rows] for name in rows[0]}

    def to_record(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self.rows]
        return {"k": self.k, "level": self.level, "n_users": self.n_users, "rows": rows}


def describe_lists(
    log: Ratings,
    predictions: Mapping[str, PredictionsLike] | PredictionsLike,
    *,
    k: int = 10,
    exclude: Ratings | None = None,
    candidates: CandidatesLike | None = None,
    level: float = 0.95,
) -> ListDescription:
    """Coverage, Gini, novelty and popularity lift of the lists that models would show.

    They need no ratings and no propensities: they say what would be shown, not whether it is good.

    - ``coverage@k``: share of all items that are on the list of at least one user.
    - ``gini@k``: Gini coefficient of how often items are on a list, items that never are included;
      0 if all are shown equally often, near 1 if few are shown to everyone.
    - ``novelty@k``: mean of -log2(share of users of the log who rated the item). An item that
      nobody rated counts as one that one user rated.
    - ``popularity_lift@k``: mean popularity of the items on the lists over that of the items that
      the same users rated in the log, minus 1.

    Parameters
    ----------
    log
        The log whose users get lists, and which says how popular items are: the training log.
    predictions
        By model name (or one model alone): a matrix, a model or a callable, as for
        :func:`unskew.evaluate`.
    k
        The length of the lists. Of items with equal scores, the first in ``log.items`` are shown.
    exclude, candidates
        Which items can be shown to each user, as for :func:`unskew.evaluate`. Pass
        ``exclude=log`` to show no item twice.
    level
        Confidence level of the intervals of novelty and lift, which take users as a sample and
        the popularity of items as given. and Gini depend on how many users there
        are, so they have no interval.

    Examples
    --------
    >>> log = Ratings.from_arrays(["ann", "bob", "cat"], ["x", "x", "y"], [5, 4, 1])
    >>> describe_lists(log, {"x to all": np.array([[2.0, 1], [2, 1], [2, 1]])}, k=1)
    model     metric             value  std_error  ci_low  ci_high
    x to all  coverage@1         0.500          -       -        -
    x to all  gini@1             0.500          -       -        -
    x to all  novelty@1          0.585      0.000   0.585    0.585
    x to all  popularity_lift@1  0.200      0.240  -0.833    1.233
    """
    require_log(log)
    require_level(level)
    WholeNumber(least=1)("k", k)
    models = name_models(predictions)
    chosen = read_candidates(log.users, log.items, candidates, exclude)
    n_best = min(int(k), log.n_items)
    profile = _Popularity.of(log)
    rows: list[ListMetric] = []
    for name, model in models.items():
        reader = read_predictions(name, model, log)
        if not isinstance(reader, ScoredCells):
            raise UsageError(
                f"model {name!r}: a list needs the scores of all items.",
                parameter="predictions",
                remedy="Pass a matrix, a model, or a callable that scores a block of users.",
            )
        items, scores = best_items(reader.scorer, n_best, log.n_users, log.n_items, chosen)
        rows += _measure_lists(name, items, ~np.isneginf(scores), profile, int(k), level)
    return ListDescription(tuple(rows), int(k), level, profile.n_users, log.backend)


@dataclass(frozen=True, slots=True, eq=False)
class _Popularity:
    """How popular items are, and how popular those are that each user rated."""

    share: Vector
    """By item: the share of the users with ratings who rated it."""
    of_user: Vector
    """By user: the mean share of the rated items; NaN for users without ratings."""
    n_users: int

    @classmethod
    def of(cls, log: Ratings) -> _Popularity:
        n_seen = np.bincount(log.user, minlength=log.n_users)
        n_users = int((n_seen > 0).sum())
        share = np.bincount(log.item, minlength=log.n_items) / n_users
        total = np.bincount(log.user, weights=share[log.item], minlength=log.n_users)
        mean = np.divide(total, n_seen, out=np.full(log.n_users, np.nan), where=n_seen > 0)
        return cls(share, mean, n_users)


def _measure_lists(
    name: str,
    items: npt.NDArray[np.intp],
    is_shown: BoolVector,
    popularity: _Popularity,
    k: int,
    level: float,
) -> Iterator[ListMetric]:
    shown = np.bincount(items[is_shown], minlength=popularity.share.size)
    coverage, gini = float((shown > 0).mean()), compute_gini(shown)
    for metric, value in ((f"coverage@{k}", coverage), (f"gini@{k}", gini)):
        yield ListMetric(name, metric, value, math.nan, math.nan, math.nan)
    least = np.maximum(popularity.share, 1.0 / popularity.n_users)
    n_shown = is_shown.sum(axis=1)
    novelty = (-np.log2(least)[items] * is_shown).sum(axis=1)
    popular = (popularity.share[items] * is_shown).sum(axis=1)
    has_list = (n_shown > 0) & np.isfinite(popularity.of_user)
    mean_popularity = popular[has_list] / n_shown[has_list]
    estimates = {
        f"novelty@{k}": _mean_over_users(novelty[has_list] / n_shown[has_list]),
        f"popularity_lift@{k}": _mean_over_users(
            mean_popularity - popularity.of_user[has_list], popularity.of_user[has_list]
        ),
    }
    for metric, estimate in estimates.items():
        interval = estimate.of(0, level=level)
        limits = interval.std_error, interval.low, interval.high
        yield ListMetric(name, metric, interval.value, *limits)


def _mean_over_users(value: Vector, base: Vector | None = None) -> Estimate:
    """The mean of one number for each user, or the ratio of two sums over users."""
    clusters = Clusters(np.arange(value.size, dtype=np.int32), value.size)
    return self_normalized(Sums.of(value, base=base, clusters=clusters, is_ratio=True))


def compute_gini(counts: npt.NDArray[np.integer]) -> float:
    """sum over items of (2 rank - I - 1) count / (I sum of counts), ranked by increasing count.

    >>> compute_gini(np.array([1, 1, 1, 1])), compute_gini(np.array([0, 0, 0, 4]))
    (0.0, 0.75)
    """
    ordered = np.sort(counts)
    ranks = 2.0 * np.arange(1, ordered.size + 1) - ordered.size - 1
    return float(ranks @ ordered / (ordered.size * ordered.sum()))
