"""How a learner may be tested: which propensities, which choice of settings, which test cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.data.cells import cell_numbers, is_among, observed_cells
from unskew.data.checks import float_array
from unskew.data.ids import Ids, find_codes, object_array
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.errors import BadPropensityError, UsageError
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.settings import Flag, Instance, describe, require_list
from unskew.tables import count_noun
from unskew.types import BoolVector, Matrix

SAMPLE_SHARE = 0.05
"""The share of the random test whose ratings naive Bayes is given."""
MAX_GROWTH = 10
"""A universe with more than this many times the cells of the listed ids is not filled up: with few
ratings and very many empty rows, learners that read every cell would not finish."""
SettingsChoice: TypeAlias = Literal["cross-validation", "defaults", "test"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """One way to test learners on a random test (docs/decisions/025-leaderboard.md)."""

    name: str
    summary: str
    choice: SettingsChoice = "cross-validation"
    """How settings are chosen: on the log, not at all, or by the error on the test itself."""
    uses_sample: bool = False
    """Whether propensities are those of naive Bayes with a part of the test."""
    is_clean: bool = True
    """Whether cells of the log, and the part of the test that was used, leave the test."""


PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "clean",
            "propensities of the data, settings by cross-validation on the log, tested on random "
            "cells that are not in the log",
        ),
        Protocol(
            "defaults",
            "as clean, with the default settings of every learner",
            choice="defaults",
        ),
        Protocol(
            "paper",
            "as clean, but test cells that are also in the log stay in the test",
            is_clean=False,
        ),
        Protocol(
            "sample",
            "as clean, but naive-Bayes propensities with 5% of the test, which leave the test",
            uses_sample=True,
        ),
        Protocol(
            "leaky",
            "naive-Bayes propensities with 5% of the test, settings by the error on the test; "
            "these 5% and cells of the log stay in the test. Not to be used for a choice",
            choice="test",
            uses_sample=True,
            is_clean=False,
        ),
    )
}
DEFAULT_PROTOCOLS = ("clean", "defaults", "paper", "leaky")


def check_propensity_matrix(values: object) -> Matrix:
    """Propensities of all cells: an error unless all are above 0 and at most 1."""
    matrix = float_array(values, "propensity_matrix", BadPropensityError)
    if matrix.ndim != 2:
        raise BadPropensityError(
            "`propensity_matrix` must have a row for each user and a column for each item; got "
            f"shape {matrix.shape}.",
            parameter="propensity_matrix",
        )
    is_bad = ~((matrix > 0) & (matrix <= 1))
    if is_bad.any():
        user, item = np.argwhere(is_bad)[0]
        raise BadPropensityError(
            f"{count_noun(int(is_bad.sum()), 'value')} of `propensity_matrix` must be above 0 and "
            f"at most 1; the first is {matrix[user, item]:g}, at user row {user} and item column "
            f"{item}.",
            parameter="propensity_matrix",
            value=matrix[user, item],
        )
    return matrix


@dataclass(frozen=True, slots=True, eq=False)
class RandomTestData:
    """A log, and ratings of cells that were drawn uniformly at random.

    If the log states a universe with more users or items than it lists, it gets the ids that only
    the test has, and rows without an id for the others, so that learners that read unobserved
    cells have the whole universe. Users without ratings are exchangeable, and so are items.
    """

    log: Ratings
    test: Ratings
    propensities: PropensitiesLike | None = None
    """Of the log; without them only protocols with a sample are possible."""
    propensity_matrix: Matrix | None = None
    """Of all cells, for learners that need them."""

    def __post_init__(self) -> None:
        require_log(self.log)
        require_log(self.test)
        if self.propensities is not None:
            as_propensities(self.log, self.propensities)
        if self.propensity_matrix is not None:
            matrix = check_propensity_matrix(self.propensity_matrix)
            as_propensities(self.log, matrix)
            object.__setattr__(self, "propensity_matrix", matrix)
            return  # its rows and columns are the users and items that the log lists
        log = list_whole_universe(self.log, self.test)
        if log is not self.log and self.propensities is not None:
            values = as_propensities(self.log, self.propensities)
            object.__setattr__(self, "propensities", values)
        object.__setattr__(self, "log", log)

    def is_logged(self) -> BoolVector:
        """Which test cells are also in the log."""
        log, test = self.log, self.test
        user = find_codes(test.users, log.users)[test.user]
        item = find_codes(test.items, log.items)[test.item]
        is_known = (user >= 0) & (item >= 0)
        cells = cell_numbers(np.maximum(user, 0), np.maximum(item, 0), log.n_items)
        logged: BoolVector = is_known & is_among(cells, observed_cells(log))
        return logged

    def is_sampled(self, random_state: int) -> BoolVector:
        """Which test ratings naive Bayes is given."""
        is_chosen = np.zeros(len(self.test), dtype=np.bool_)
        size = max(1, round(SAMPLE_SHARE * len(self.test)))
        rng = np.random.default_rng((random_state, 2))
        is_chosen[rng.choice(is_chosen.size, size, replace=False)] = True
        return is_chosen

    def is_tested(self, protocol: Protocol, random_state: int) -> BoolVector:
        """Which test cells count under this protocol."""
        if not protocol.is_clean:
            return np.ones(len(self.test), dtype=np.bool_)
        is_free = ~self.is_logged()
        if protocol.uses_sample:
            is_free &= ~self.is_sampled(random_state)
        if not is_free.any():
            raise UsageError(
                f"no cell is left to be tested under {protocol.name!r}: all {len(self.test):,} "
                "cells of the test are also in the log.",
                parameter="test",
                remedy="Use a test of other cells: ratings of cells drawn at random.",
            )
        return is_free

    def find_propensities(self, random_state: int, *, uses_sample: bool) -> PropensitiesLike | None:
        """Those of the data, or naive Bayes with the marginals of the sample, Eq. (18)."""
        if not uses_sample:
            return self.propensities
        sample = self.test.rating[self.is_sampled(random_state)]
        return NaiveBayesPropensity(smoothing=1.0).fit(self.log, mcar=sample)


def list_whole_universe(log: Ratings, test: Ratings) -> Ratings:
    """The log with a row for each user and item of its universe.

    The ids are those of the log, then those that only the test has, then labels. The log itself is
    returned if it lists all, if the test has more ids than there is room for, or if the universe
    has more than ``MAX_GROWTH`` times as many cells.
    """
    universe = log.universe
    if universe is None or (universe.n_users, universe.n_items) == (log.n_users, log.n_items):
        return log
    users, items = _unite(log.users, test.users), _unite(log.items, test.items)
    has_room = len(users) <= universe.n_users and len(items) <= universe.n_items
    growth = universe.n_users * universe.n_items / (len(users) * len(items))
    if not has_room or growth > MAX_GROWTH:
        return log
    return replace(
        log,
        users=_fill_up(users, universe.n_users, "user"),
        items=_fill_up(items, universe.n_items, "item"),
    )


def _unite(ids: Ids, others: Ids) -> Ids:
    new = others[find_codes(others, ids) < 0]
    return object_array([*ids.tolist(), *new.tolist()]) if new.size else ids


def _fill_up(ids: Ids, size: int, kind: str) -> Ids:
    """The ids, and labels for those that nobody listed."""
    labels = [f"{kind} without an id, {number}" for number in range(len(ids) + 1, size + 1)]
    return object_array([*ids.tolist(), *labels]) if labels else ids


@dataclass(frozen=True, slots=True, eq=False)
class LeaderboardData:
    """Data for a leaderboard: one log with its random test, or a world that is drawn anew."""

    name: str
    draw: Callable[[int], RandomTestData]
    """The log and the test for a seed."""
    is_redrawn: bool = False
    """Whether every seed has its own log; then draws are the sample of intervals, else users."""
    description: str = ""
    published: Sequence[Mapping[str, Any]] = ()
    """Numbers of the literature: learner, metric, value, and source with its protocol."""

    def __post_init__(self) -> None:
        Instance(str)("name", self.name)
        Instance(str)("description", self.description)
        Flag()("is_redrawn", self.is_redrawn)
        if not callable(self.draw) or isinstance(self.draw, type):
            raise UsageError(
                f"`draw` must be a function of a seed; got {describe(self.draw)}.",
                parameter="draw",
                value=self.draw,
            )
        require_list("published", self.published, of="rows", allow_none=False)
        for row in self.published:
            Instance(Mapping, remedy="Pass a list of dicts.")("published", row)

    @classmethod
    def of(cls, data: RandomTestData, name: str = "data") -> LeaderboardData:
        """The same log and test for every seed."""
        Instance(RandomTestData, remedy="Pass RandomTestData(log, test).")("data", data)
        return cls(name, lambda _seed: data)
