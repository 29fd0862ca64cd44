"""Which clusters the intervals use, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unskew.data.estimation import Unit
from unskew.errors import PropensityWarning
from unskew.estimators.dispersion import MIN_EXCESS, Dispersion, find_missing_dependence
from unskew.estimators.estimate import Estimate
from unskew.estimators.point import Estimator
from unskew.estimators.sums import Cluster, Deltas, ObservedCells

NAMES: Mapping[Cluster, str] = {
    None: "none",
    "user": "users",
    "item": "items",
    "both": "users and items",
}


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

    @property
    def sentence(self) -> str:
        """The clusters and the reason, in one sentence."""
        return f"Clusters: {NAMES[self.cluster]}, {self.reason}."


def choose_clusters(
    cluster: Cluster | Literal["auto"], cells: ObservedCells, *, checks: bool, adds_items: bool
) -> ClusterChoice:
    """The clusters to use.

    ``"auto"`` is users if some user has several cells, else single cells. Items are added if their
    totals vary significantly and materially more than the propensities explain. Without
    ``adds_items`` they are reported as missing, as for clusters of users or of items that were
    requested. Independent cells that were requested are not checked. ``checks`` is whether some
    estimator uses the propensities.
    """
    by_user = _has_several(cells, "user")
    chosen: Cluster = ("user" if by_user else None) if cluster == "auto" else cluster
    is_checked = checks and cells.propensities is not None and cluster not in (None, "both")
    missing = None
    if is_checked and chosen != "both" and _has_several(cells, "item"):
        missing = find_missing_dependence(cells, chosen)
    if cluster != "auto":
        return ClusterChoice(cluster, "as requested", missing=missing, dispersion=missing)
    users = "users have several cells" if by_user else "each user has one cell"
    if missing is not None and adds_items:
        added: Cluster = "both" if by_user else "item"
        reason = f"because {users} and {missing.describe()}"
        return ClusterChoice(added, reason, is_expected=False, dispersion=missing)
    if missing is None and is_checked and by_user:
        users += " and item totals vary hardly more than the propensities explain"
    return ClusterChoice(chosen, f"because {users}", missing=missing, dispersion=missing)


def _has_several(cells: ObservedCells, unit: Unit) -> bool:
    """Whether some user (or item) has several cells."""
    return int(cells.count_cells(unit).max(initial=0)) > 1


def warn_about_clusters(
    choice: ClusterChoice,
    metric: str,
    deltas: Deltas,
    cells: ObservedCells,
    estimators: Mapping[str, Estimator],
    estimates: Mapping[tuple[str, str], Estimate],
    *,
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
    ratios = {}
    for name, estimator in estimators.items():
        if estimator.is_weighted:
            wider = estimator.estimate(deltas, replace(cells, cluster="both"))
            ratios[name] = _largest_ratio(wider, estimates[metric, name])
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
