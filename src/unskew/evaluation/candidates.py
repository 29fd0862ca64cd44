"""The cells that an evaluation tests if not every item is ranked for every user."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unskew.data.leaks import Leaks, are_disjoint_parts, find_leaks
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.evaluation.rating_distributions import Folds
from unskew.metrics.metric import CandidateCounts, Metric
from unskew.ranking.candidates import Candidates, CandidatesLike, keep_candidates, read_candidates
from unskew.tables import count_noun
from unskew.types import BoolVector

TIME_SPLIT = (
    "the log is the later part of a split by time, not a random part: that the propensities of the "
    "whole log times its share are those of this part is an assumption"
)


@dataclass(frozen=True, slots=True, eq=False)
class TestedCells:
    """The logged cells that are candidates."""

    log: Ratings
    rows: BoolVector | None = None
    """Which rows of the caller's log they are; None if all."""
    candidates: Candidates | None = None
    """None if all items are ranked for every user."""
    is_list: bool = False
    """Whether the caller listed the candidates, rather than only excluding items."""
    excluded_share: float | None = None
    """If the test and ``exclude`` are parts of one log: the share of the excluded part."""
    is_other_users: bool = False
    """Whether ``exclude`` has the other users of a split by user, so that it changes nothing."""
    leaks: Leaks | None = None
    """What the test and ``exclude`` have in common, or in the wrong order; None without it."""
    universe: Universe | None = None
    """Of the candidates; None if unknown."""
    counts: CandidateCounts | None = None
    """The number of candidates of each user; None if all items are, or the universe is unknown."""

    @classmethod
    def find(
        cls,
        log: Ratings,
        universe: Universe | None,
        candidates: CandidatesLike | None,
        exclude: Ratings | None,
    ) -> TestedCells:
        """The cells of the log that can be tested; an error if there are none."""
        if candidates is None and exclude is None:
            return cls(log, universe=universe)
        is_split = isinstance(exclude, Ratings) and are_disjoint_parts(log, exclude)
        is_other_users = is_split and log.part is not None and log.part.by == "user"
        chosen = read_candidates(
            log.users, log.items, candidates, None if is_other_users else exclude
        )
        leaks = None if exclude is None else find_leaks(exclude, log)
        if leaks is not None and leaks.n_shared and exclude is not None:
            _require_one_split(log, exclude, leaks)
        if chosen is None:
            return cls(log, is_other_users=is_other_users, leaks=leaks, universe=universe)
        share = exclude.share if exclude is not None and is_split else None
        rows = keep_candidates(log, chosen)
        tested = cls(
            log if rows.all() else log.take(rows),
            None if rows.all() else rows,
            chosen,
            candidates is not None,
            None if is_other_users else share,
            is_other_users,
            leaks,
        )
        if universe is None:
            return tested
        counts = tested.count(universe)
        n_candidates = int(counts.by_user.sum(dtype=np.int64))
        universe = replace(universe, n_candidates=n_candidates)
        return replace(tested, universe=universe, counts=counts)

    def take(self, folds: Folds | int | None) -> Folds | int | None:
        """What the caller gave for each row of the log, of the tested cells."""
        if self.rows is None or folds is None or np.ndim(folds) == 0:
            return folds
        taken: Folds = np.asarray(folds)[self.rows]
        return taken

    def take_propensities(self, propensities: Propensities | None) -> Propensities | None:
        """The propensities of the tested cells, as candidates.

        If the test and ``exclude`` are parts of one log with shares s and r, a cell that is not in
        ``exclude`` is in the test with probability s P / (1 - r P).
        """
        if propensities is None:
            return None
        if self.rows is not None:
            propensities = propensities.take(self.rows)
        if self.excluded_share is None:
            return propensities
        odds = self.excluded_share / self.log.share
        return replace(propensities, values=1.0 / (propensities.inverse - odds))

    def count(self, universe: Universe) -> CandidateCounts:
        """The number of candidates of all users of the universe."""
        assert self.candidates is not None
        unlisted_items = 0 if self.is_list else universe.n_items - self.log.n_items
        count = self.candidates.count + np.int32(unlisted_items)
        of_other_users = universe.n_items
        if self.is_list:
            is_listed = self.candidates.is_listed
            of_other_users = 0 if is_listed is None else int(is_listed.sum())
        others = np.full(universe.n_users - count.size, of_other_users, np.int32)
        return CandidateCounts(np.append(count, others), count[self.log.user])

    def describe(self, metrics: Sequence[Metric]) -> Iterator[str]:
        """What was left out, in words. Leaks are warnings."""
        if self.leaks is not None:
            for leak in self.leaks.warnings():
                warnings.warn(leak, stacklevel=3)
            yield from self.leaks.notes()
        if self.is_other_users:
            yield "`exclude` has other users than the test, so all items are ranked"
        if self.log.part is not None and self.log.part.by == "time":
            yield TIME_SPLIT
        if self.candidates is None:
            return
        longest = max((metric.top for metric in metrics if metric.ranks and metric.top), default=0)
        if self.counts is not None and longest > (most := int(self.counts.by_user.max())):
            count = count_noun(most, "candidate")
            yield f"no user has more than {count}: the first {longest} places hold all of them"
        n_out = 0 if self.rows is None else int((~self.rows).sum())
        if n_out:
            yield f"{count_noun(n_out, 'logged cell')} left the test: not among the candidates"
        if self.excluded_share is not None:
            yield "propensities are those of cells outside `exclude`: s P / (1 - r P)"


def _require_one_split(log: Ratings, exclude: Ratings, leaks: Leaks) -> None:
    """Raise if the two are parts of one log, but of different splits."""
    if log.part is None or exclude.part is None or log.part.n_whole != exclude.part.n_whole:
        return
    if np.intersect1d(log.part.rows, exclude.part.rows).size:
        raise UsageError(
            "the test and `exclude` were split from one log, but overlap: "
            f"{leaks.n_shared:,} of {count_noun(leaks.n_test, 'test rating')} are in both; the "
            f"first is {leaks.first_shared}.",
            parameter="exclude",
            where=leaks.first_shared,
            remedy="Pass the two parts of a single call of unskew.split.",
        )
