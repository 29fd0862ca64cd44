"""The cells of an evaluation: which are tested, their propensities, weights and clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unskew.data.estimation import Estimation, Strata, TakenAsKnown, Unit
from unskew.data.leaks import Leaks, are_disjoint_parts, find_leaks
from unskew.data.propensities import Propensities, PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.data.weights import WeightTransform
from unskew.errors import PropensityWarning, UsageError, warn_caller
from unskew.estimators.estimate import Estimate
from unskew.estimators.observed import Cluster, Clusters, ObservedCells, Resampling
from unskew.estimators.point import Estimator
from unskew.estimators.weight_checks import (
    MIN_EXCESS,
    Dispersion,
    WeightSummary,
    find_missing_dependence,
    find_shared_variance,
)
from unskew.evaluation.rating_distributions import Folds
from unskew.evaluation.weight_changes import EvaluationInputs
from unskew.metrics.metric import CandidateCounts, Metric
from unskew.ranking.candidates import Candidates, CandidatesLike, keep_candidates, read_candidates
from unskew.settings import Flag
from unskew.tables import count_noun, join_words
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
            for leak in self.leaks.warnings(is_shared_dropped=True):
                warn_caller(leak)
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
            n_shared = 0 if self.leaks is None else self.leaks.n_shared
            reason = "not among the candidates"
            if n_shared:
                subject = "all" if n_shared == n_out else f"{n_shared:,}"
                reason += f" ({subject} in `exclude`)"
            yield f"{count_noun(n_out, 'logged cell')} left the test: {reason}"
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


NAMES: Mapping[Cluster, str] = {
    None: "none",
    "user": "users",
    "item": "items",
    "both": "users and items",
}
MASS_TOLERANCE = 0.01
"""Weights that miss the number of cells by more than this share do not add up to it by design."""
TAKEN_AS_KNOWN = "the caller takes them as known"
"""Why intervals leave out the error of the propensities, if ``propensities_known`` says so."""


def read_propensities(
    log: Ratings,
    propensities: PropensitiesLike | None,
    *,
    are_known: bool,
    bootstrap: int | None,
) -> tuple[Propensities | None, Estimation | None]:
    """The propensities of the log, and how they were estimated."""
    Flag()("propensities_known", are_known)
    if propensities is None:
        return None, None
    values = as_propensities(log, propensities)
    estimation = values.estimation
    if are_known:
        return values.as_known(), estimation and estimation.as_known(TAKEN_AS_KNOWN)
    if bootstrap is None or estimation is None or isinstance(estimation, TakenAsKnown):
        return values, estimation
    raise UsageError(
        f"a bootstrap that does not fit {estimation.model} again leaves out the error of the "
        "propensities.",
        parameter="bootstrap",
        value=bootstrap,
        remedy="Leave `bootstrap` out: the standard intervals include this error. Or pass "
        "`propensities_known=True`.",
    )


def observe_cells(
    tested: TestedCells,
    propensities: Propensities | None,
    weight_transform: WeightTransform | None,
    resampling: Resampling | None,
) -> ObservedCells:
    """The tested cells with their propensities, from those of the whole log."""
    log, sizes = tested.log, tested.universe or tested.log
    return ObservedCells(
        Clusters(log.user, sizes.n_users, resampling),
        Clusters(log.item, sizes.n_items, resampling),
        tested.take_propensities(propensities),
        weight_transform,
        universe=tested.universe,
    )


def summarize_weights(
    cells: ObservedCells, estimators: Sequence[Estimator]
) -> WeightSummary | None:
    """The summary of the weights, with a warning if they are too uneven to trust."""
    if not _uses_weights(estimators) or not cells.weight.any():
        return None
    n_cells = None
    if cells.universe is not None and cells.weight_transform is None:
        n_cells = cells.universe.n_cells
    is_balanced = isinstance(cells.estimation, Strata) and (
        n_cells is None or abs(float(cells.weight.sum()) / n_cells - 1) < MASS_TOLERANCE
    )
    summary = WeightSummary.of(cells.weight, n_cells=n_cells, is_balanced=is_balanced)
    if cells.estimation is not None and cells.estimation.fixed is not None:
        summary = replace(summary, n_clipped=int(cells.estimation.fixed.sum()))
    if not summary.fits_universe:
        summary = replace(summary, shared_variance=find_shared_variance(cells))
    for warning in summary.warnings():
        warn_caller(warning)
    return summary


def _uses_weights(estimators: Sequence[Estimator]) -> bool:
    return any(estimator.is_weighted for estimator in estimators)


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """The clusters of a result and the reason for them."""

    cluster: Cluster
    reason: str
    """What follows "because", or "as requested"."""
    is_expected: bool = True
    """Whether a reader takes these clusters for granted."""
    missing: Dispersion | None = None
    """A dependence that the clusters leave out, although the log shows it."""
    dispersion: Dispersion | None = None
    """A dependence that the log shows, whether the clusters leave it out or not."""
    is_checked: bool = False
    """Whether such a dependence was looked for."""

    @property
    def sentence(self) -> str:
        """The clusters and the reason, and what is known about their intervals."""
        wide = " For a fixed set of items their intervals are too wide."
        text = f"Clusters: {NAMES[self.cluster]}, {self.reason}."
        return text + wide if self.cluster == "both" else text


def choose_clusters(
    cluster: Cluster | Literal["auto"],
    cells: ObservedCells,
    estimators: Sequence[Estimator],
    can_add_items: bool,
) -> tuple[ObservedCells, ClusterChoice]:
    """The cells with the clusters to use, and the reason for these clusters.

    ``"auto"`` is users if some user has several cells, else single cells. Items are added if their
    totals vary significantly and materially more than the propensities explain. Without
    ``can_add_items`` they are reported as missing, as for clusters of users or of items that were
    requested. Independent cells that were requested are not checked, nor are cells if no estimator
    uses the propensities. A bootstrap draws users if cells are independent.
    """
    choice = _choose(cluster, cells, checks=_uses_weights(estimators), adds_items=can_add_items)
    draws_users = choice.cluster is None and cells.users.resampling is not None
    return replace(cells, cluster="user" if draws_users else choice.cluster), choice


def _choose(
    cluster: Cluster | Literal["auto"], cells: ObservedCells, *, checks: bool, adds_items: bool
) -> ClusterChoice:
    by_user = cluster == "auto" and _has_several(cells, "user")
    chosen: Cluster = ("user" if by_user else None) if cluster == "auto" else cluster
    is_checked = checks and cells.propensities is not None and cluster not in (None, "both")
    is_checked = is_checked and _has_several(cells, "item")
    missing = None
    if is_checked and chosen != "both":
        missing = find_missing_dependence(cells, chosen)
    if cluster != "auto":
        return ClusterChoice(
            cluster, "as requested", missing=missing, dispersion=missing, is_checked=is_checked
        )
    users = "users have several cells" if by_user else "each user has one cell"
    if missing is not None and adds_items:
        added: Cluster = "both" if by_user else "item"
        reason = f"because {users} and {missing.describe()}"
        return ClusterChoice(added, reason, is_expected=False, dispersion=missing, is_checked=True)
    if missing is None and is_checked and by_user:
        users += " and item totals vary hardly more than the propensities explain"
    return ClusterChoice(
        chosen,
        f"because {users}",
        missing=missing,
        dispersion=missing,
        is_checked=is_checked,
    )


def describe_intervals(cluster: Cluster, bootstrap: int | None = None) -> str:
    """How the intervals were computed, in words."""
    if bootstrap is not None:
        return f"bootstrap of {cluster or 'user'}s ({bootstrap} resamples)"
    if cluster == "both":
        return "clustered by user and by item"
    return "cells independent" if cluster is None else f"clustered by {cluster}"


def _has_several(cells: ObservedCells, unit: Unit) -> bool:
    """Whether some user (or item) has several cells."""
    return int(cells.count_cells(unit).max(initial=0)) > 1


def warn_about_clusters(
    choice: ClusterChoice,
    inputs: EvaluationInputs,
    estimates: Mapping[tuple[str, str], Estimate],
    can_change: bool,
) -> PropensityWarning | None:
    """The warning about a dependence that the clusters leave out; None if there is none.

    It says how much larger the standard errors of the first metric would be, and is left out if
    all of them would be about the same. ``can_change`` is whether the kind of interval allows
    other clusters.
    """
    if choice.missing is None:
        return None
    text = f"{choice.missing.describe()}, which clusters of {NAMES[choice.cluster]} leave out."
    if not can_change:
        return PropensityWarning(
            f"{text} The limits of 'ips' are too narrow.",
            parameter="cluster",
            remedy="Use 'snips', or analytic limits with `cluster='both'`.",
        )
    metric, deltas = next(iter(inputs.deltas.items()))
    both = replace(inputs.cells, cluster="both")
    ratios = {
        name: _largest_ratio(estimator.estimate(deltas, both), estimates[metric, name])
        for name, estimator in inputs.estimators.items()
        if estimator.is_weighted
    }
    if max(ratios.values()) ** 2 < 1 + MIN_EXCESS:
        return None
    effect = ", ".join(f"{ratio:.2g} by {name}" for name, ratio in ratios.items())
    return PropensityWarning(
        text,
        parameter="cluster",
        value=choice.cluster,
        remedy=f"Use `cluster='both'`, which multiplies standard errors of {metric} by up to: "
        f"{effect}.",
    )


def _largest_ratio(wider: Estimate, estimate: Estimate) -> float:
    """The largest ratio of standard errors over all models; 1 if none has a standard error."""
    after, before = np.diag(wider.covariance), np.diag(estimate.covariance)
    is_positive = before > 0
    squared = after[is_positive] / before[is_positive]
    return float(np.sqrt(squared.max(initial=0.0))) if squared.size else 1.0


def explain_plug_ins(names: Sequence[str], n_cells: int, n_users: int) -> str:
    """Why metrics that estimate a user's number of relevant items are biased.

    ``n_cells`` are the observed relevant cells of ``n_users`` users who have some.
    """
    return (
        f"{join_words(names)} by weights {'is' if len(names) == 1 else 'are'} biased while users "
        f"have few observed relevant items; here {n_cells / max(n_users, 1):.1f} per user who has "
        "some"
    )
