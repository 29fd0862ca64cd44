"""Splits of a log into training and test parts that know their share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.parts import Part, SplitUnit
from unskew.data.ratings import Ratings, require_log
from unskew.errors import UnknownNameError, UnskewWarning, UsageError
from unskew.settings import WholeNumber, check_random_state, is_finite_number
from unskew.types import BoolVector, RandomState

UNITS: tuple[SplitUnit, ...] = ("random", "user", "time")


def split(
    log: Ratings,
    *,
    share: float = 0.2,
    by: SplitUnit = "random",
    random_state: RandomState = 0,
) -> tuple[Ratings, Ratings]:
    """Split a log into a training part and a test part.

    Both parts keep the ids and the universe of the log, and know their share. Propensities follow
    by themselves: wherever a part is passed as the log, propensities of the whole log (an array, a
    matrix, a fitted model) are reduced to its rows and multiplied by its share.

    Parameters
    ----------
    log
        The whole log.
    share
        The share of the test part, between 0 and 1.
    by
        ``"random"`` draws single ratings. ``"user"`` draws users, with all their ratings.
        ``"time"`` takes the latest ratings; the log needs timestamps. Ratings with the same time
        stay together, so the share can differ from the one asked for. A time split is not random:
        that the propensities of the test part are ``share * P`` is then an assumption, which
        ``ips`` needs and ``snips`` does not if the share is the same for all cells.
    random_state
        Seed or generator of the draw.

    Returns
    -------
    train, test

    Examples
    --------
    >>> import unskew
    >>> simulation = unskew.simulate(random_state=0)
    >>> train, test = unskew.split(simulation.log, share=0.2)
    >>> test.share
    0.2
    >>> result = unskew.evaluate(
    ...     test, simulation.truth + 0.5, propensities=simulation.propensities, metrics=["mae"]
    ... )
    >>> round(result.risk("model", metric="mae", estimator="ips").estimate, 1)  # the truth is 0.5
    0.5
    """
    require_log(log)
    if not isinstance(by, str) or by not in UNITS:
        raise UnknownNameError("split", by, UNITS, parameter="by")
    if not (is_finite_number(share) and 0 < share < 1):
        raise UsageError(
            f"`share` must lie strictly between 0 and 1; got {share!r}.",
            parameter="share",
            value=share,
        )
    check_random_state("random_state", random_state)
    rng = np.random.default_rng(random_state)
    if by == "time":
        is_test = _later_ratings(log, share)
        share = float(is_test.mean())
    elif by == "user":
        users = np.unique(log.user)
        is_drawn = np.zeros(log.n_users, dtype=bool)
        is_drawn[users[_draw(users.size, share, rng)]] = True
        is_test = is_drawn[log.user]
    else:
        is_test = np.zeros(len(log), dtype=bool)
        is_test[_draw(len(log), share, rng)] = True
    if is_test.all() or not is_test.any():
        kind = "user" if by == "user" else "rating"
        raise UsageError(
            f"with a share of {share:g}, one part of the split would have no {kind}s.",
            parameter="share",
            value=share,
            remedy="Use a longer log, or a share nearer to one half.",
        )
    return _take_part(log, ~is_test, 1.0 - share, by), _take_part(log, is_test, share, by)


def rolling_splits(
    log: Ratings, *, n_splits: int = 3, share: float = 0.1
) -> Iterator[tuple[Ratings, Ratings]]:
    """Backtests: test parts that follow each other in time, each with all ratings before it.

    The last test part has the latest ratings. Each has about ``share`` of all ratings.
    """
    require_log(log)
    WholeNumber(least=1)("n_splits", n_splits)
    if not (is_finite_number(share) and 0 < share * n_splits < 1):
        raise UsageError(
            f"{n_splits} test parts with a share of {share!r} leave no rating for training.",
            parameter="share",
            value=share,
            remedy="Use a smaller share, or fewer splits.",
        )
    times = _require_timestamps(log)
    ends = [_cut(times, share * (n_splits - index)) for index in range(n_splits)]
    for index, start in enumerate(ends):
        is_train = times < start
        is_test = ~is_train if index + 1 == n_splits else ~is_train & (times < ends[index + 1])
        if not is_test.any():
            raise UsageError(
                "so many ratings have the same time that one test part would be empty.",
                parameter="n_splits",
                value=n_splits,
                remedy="Use fewer splits or a larger share.",
            )
        yield (
            _take_part(log, is_train, float(is_train.mean()), "time"),
            _take_part(log, is_test, float(is_test.mean()), "time"),
        )


def _draw(size: int, share: float, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """``share * size`` of the numbers below ``size``, rounded up or down at random.

    So each number is drawn with probability ``share``.
    """
    return rng.permutation(size)[: int(share * size + rng.random())]


def _require_timestamps(log: Ratings) -> npt.NDArray[Any]:
    if log.timestamp is None:
        raise UsageError(
            "a split by time needs the time of each rating, which this log does not have.",
            parameter="by",
            value="time",
            remedy="Name the column with Ratings.from_frame(..., `timestamp=...`).",
        )
    return log.timestamp


def _cut(times: npt.NDArray[Any], share: float) -> Any:
    """The first time of the latest ``share`` of the ratings."""
    ordered = np.sort(times)
    return ordered[min(round((1 - share) * times.size), times.size - 1)]


def _later_ratings(log: Ratings, share: float) -> BoolVector:
    times = _require_timestamps(log)
    is_later: BoolVector = times >= _cut(times, share)
    if is_later.all():
        raise UsageError(
            f"the training part would be empty: the latest {share:g} of the ratings begin at the "
            "earliest time of the log.",
            parameter="share",
            value=share,
            remedy="Use a smaller share, times of a finer resolution, or `by='random'`.",
        )
    if abs(is_later.mean() - share) > share / 2:
        warnings.warn(
            UnskewWarning(
                f"ratings with the same time stay together, so the test part has "
                f"{is_later.mean():.3g} of the ratings instead of {share:g}.",
                remedy="Use times of a finer resolution, or `by='random'`.",
            ),
            stacklevel=3,
        )
    return is_later


def _take_part(log: Ratings, is_in: BoolVector, share: float, by: SplitUnit) -> Ratings:
    """A part of the log; of a part of a part, the share multiplies."""
    rows = np.flatnonzero(is_in)
    part = Part(rows, len(log), share, by)
    if log.part is not None:
        part = Part(log.part.rows[rows], log.part.n_whole, share * log.share, by)
    return log.take(rows)._replace_valid(part=part)
