"""How propensities were estimated, and what that adds to the uncertainty of a risk.

A risk with weights ``h``, residuals ``e`` and normaliser ``C`` has, to first order, the error

    (1/C) sum over all cells of (O - P) (h e - B's)  +  G xi

``s`` is the score of a cell in the fit of the propensities. ``B's`` is there because propensities
that were fitted to the same log follow its random variation and cancel a part of it. ``G xi`` is
the error of an outside sample, such as the random ratings of naive Bayes. Each kind of estimation
computes ``B's`` and ``G`` in its own way, as a :class:`Correction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from scipy import special

from unskew.errors import UsageError
from unskew.kernels.blocks import sum_by_code, take_columns
from unskew.progress import progress_bar
from unskew.tables import count_noun
from unskew.types import BoolVector, IndexVector, IntVector, Matrix, Vector

Unit: TypeAlias = Literal["user", "item"]
LogRelation: TypeAlias = Literal["same", "part", "other"]
"""The log is the log of the fit, a random part of it, or has other ratings."""
StratumKind: TypeAlias = Literal["rating", "item", "user", "all"]
"""What the cells of one stratum have in common."""

NO_SCORE: Matrix = np.zeros((1, 1))
"""The score of cells if the propensities were fitted to another log."""
MAX_LEVERAGE = 0.9
"""A cell with a higher leverage is treated as if it had this one."""


@dataclass(frozen=True, slots=True, eq=False)
class RandomSample:
    """Ratings of random cells, from which the share of each rating level was estimated."""

    share: Vector
    """The estimated share of each level."""
    count: Vector
    """Ratings of each level in the sample."""
    by_user: Matrix | None = None
    """Users of the sample x levels: counts, if the sample says who rated; else None."""
    n_cells: int | None = None
    """Cells from which the sample was drawn, for the finite population correction."""

    @property
    def size(self) -> int:
        return int(self.count.sum())

    @property
    def n_units(self) -> int:
        """Independent draws: users of the sample if they are known, else its ratings."""
        return self.size if self.by_user is None else len(self.by_user)

    def describe(self) -> str:
        """The size of the sample in words."""
        ratings = count_noun(self.size, "random rating")
        return ratings if self.by_user is None else f"{ratings} of {self.n_units:,} users"

    def covariance(self, gradient: Matrix) -> Matrix:
        """Covariance of K risks through the sample, given G by log share: K x levels."""
        per_rating = np.divide(
            gradient, self.share, out=np.zeros_like(gradient), where=self.share > 0
        )
        total = gradient.sum(axis=1)
        if self.by_user is None:
            spread = (gradient @ per_rating.T - np.outer(total, total)) / self.size
            return spread * (1.0 if self.n_cells is None else 1.0 - self.size / self.n_cells)
        by_user = self.by_user @ per_rating.T - np.outer(self.by_user.sum(axis=1), total)
        n_users = len(by_user)
        return n_users / (n_users - 1) * by_user.T @ by_user / self.size**2

    def find_design_effect(self, gradient: Vector) -> float:
        """The variance of one risk, divided by its variance if ratings were drawn one by one."""
        if self.by_user is None:
            return 1.0
        of_users = float(self.covariance(gradient[None])[0, 0])
        one_by_one = replace(self, by_user=None, n_cells=None)
        of_ratings = float(one_by_one.covariance(gradient[None])[0, 0])
        return of_users / of_ratings if of_ratings > 0 else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """What the estimation of propensities changes in the errors of K risks, times C."""

    score_of: Callable[[slice], Matrix]
    """K x some of the observed cells: ``B's`` of each cell, which is subtracted from ``h e``."""
    factor_of: Callable[[slice], Vector] = lambda _: np.ones(1)
    """Of some of the observed cells: what residuals are multiplied by to make up for cells that
    pull their own propensity (:func:`undo_leverage`)."""
    expected_by: Callable[[Unit], Matrix | None] = lambda _: None
    """Users or items x K: the sum of ``P B's`` over all their cells. None: the same for all. It is
    a function because only clusters need it, and it can take a pass over all cells."""
    pooled: Matrix | None = None
    """K x K: variance of cells that are alone in their stratum and have no residual."""
    addition: Matrix | None = None
    """K x K: added to the covariance if the propensities were fitted to another log."""
    reduction: Matrix | None = None
    """K x K: subtracted from the covariance if the log is a random part of the log of the fit."""
    bias: Vector | None = None
    """The bias of each risk that the estimation of the propensities causes, as far as known."""
    outside: Matrix | None = None
    """G: K x levels of the outside sample, the derivative by their log shares."""
    sample: RandomSample | None = None

    def correct_rows(self, weighted: Matrix, rows: slice) -> None:
        """Replace ``h e`` of some of the cells by ``h e - B's``, with their leverage undone."""
        weighted -= self.score_of(rows)
        weighted *= self.factor_of(rows)

    def without_cells(self) -> Correction:
        """The same without the arrays of single cells, which take much memory."""
        return replace(self, score_of=lambda _: NO_SCORE, factor_of=lambda _: np.ones(1))

    def adjust(self, covariance: Matrix) -> Matrix:
        """The covariance of K risks with the parts that no residual shows, for C = 1."""
        for part in (self.pooled, self.addition):
            covariance = covariance if part is None else covariance + part
        return covariance if self.reduction is None else covariance - self.reduction

    def select(self, rows: Sequence[int]) -> Correction:
        """The correction of some of the risks, without what single cells and clusters have."""
        n_risks = max(rows, default=-1) + 1
        for part in (self.pooled, self.addition, self.reduction, self.bias, self.outside):
            n_risks = n_risks if part is None else len(part)
        return self.combine(np.eye(n_risks)[list(rows)])

    def combine(self, contrast: Matrix) -> Correction:
        """The correction of linear combinations of the risks; scores of cells are not combined."""

        def combine_rows(rows: Any) -> Any:
            return None if rows is None else contrast @ rows

        def combine_both(square: Matrix | None) -> Matrix | None:
            return None if square is None else contrast @ square @ contrast.T

        return replace(
            self,
            pooled=combine_both(self.pooled),
            reduction=combine_both(self.reduction),
            addition=combine_both(self.addition),
            bias=combine_rows(self.bias),
            outside=combine_rows(self.outside),
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Estimation:
    """How the propensities of a log were estimated. A subclass computes the correction."""

    model: str
    """The name of the propensity model."""
    source: str = "the log"
    """What it was estimated from, in words, where "the log" is that of the fit."""
    relation: LogRelation = "same"
    """How the log is related to the log of the fit."""
    n_parameters: int = 0
    sees_ratings: bool = False
    """Whether the propensities depend on ratings, or only on who rated what."""
    adjusts_for: str = "users and items"
    """What the propensities depend on besides ratings, in words; empty if on nothing."""
    learned: frozenset[Unit] = frozenset()
    """Units that have parameters of their own: users, items or both."""
    fixed: BoolVector | None = None
    """Cells whose propensity is clipped or capped and does not move with the parameters."""
    bias_source: ClassVar[str] = "penalty"
    """What the bias of a correction comes from, in words."""
    bias_remedy: ClassVar[str] = "Fit the propensities with a smaller `ridge`."

    @property
    def origin(self) -> str:
        """What the propensities were estimated from, in the words of a result of this log."""
        if self.relation == "other":
            return self.source.replace("the log", "another log", 1)
        return self.source

    def take(self, rows: IndexVector) -> Estimation:
        """The estimation of some cells of the log, which are then a part of the log of the fit."""
        raise NotImplementedError

    def correct(self, residual: Matrix, weight: Vector, weight_derivative: Vector) -> Correction:
        """The correction of K risks, given e (K x observed cells), h and d of each cell.

        ``d = -dh / d log P`` is h itself without a transform.
        """
        raise NotImplementedError

    def as_known(self, reason: str) -> TakenAsKnown:
        """The same model, with its error left out for a ``reason``."""
        return TakenAsKnown(
            model=self.model,
            source=self.source,
            relation=self.relation,
            sees_ratings=self.sees_ratings,
            adjusts_for=self.adjusts_for,
            reason=reason,
        )

    def with_fixed(self, fixed: BoolVector) -> Self:
        """The same estimation, with more cells whose propensity is clipped or capped."""
        return replace(self, fixed=fixed if self.fixed is None else self.fixed | fixed)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Strata(Estimation):
    """P = n_g / N_g of the stratum g of each cell: all its cells have the same propensity."""

    group: IntVector
    """The stratum of each observed cell."""
    n_observed: Vector
    """n_g of each stratum, in the log of the fit."""
    propensity: Vector
    """P of each stratum, in the log of the fit."""
    kind: StratumKind
    sample: RandomSample | None = None
    """Where the sizes N_g come from, if they are estimated from an outside sample."""

    @property
    def sample_p_value(self) -> float:
        """Whether the sample has the ratings of the log, by a test; NaN without a sample."""
        return (
            math.nan if self.sample is None else compare_counts(self.n_observed, self.sample.count)
        )

    def take(self, rows: IndexVector) -> Strata:
        fixed = None if self.fixed is None else self.fixed[rows]
        is_smaller = self.relation == "same" and rows.size < self.group.size
        relation = "part" if is_smaller else self.relation
        return replace(self, group=self.group[rows], fixed=fixed, relation=relation)

    def correct(self, residual: Matrix, weight: Vector, weight_derivative: Vector) -> Correction:
        n_strata = self.n_observed.size
        by_group = sum_by_code(residual, self.group, n_strata, weight_derivative)
        coefficient = by_group / np.maximum(self.n_observed, 1.0)
        outside = None if self.sample is None else by_group
        if self.relation != "same":
            variance = self.n_observed * (1.0 - self.propensity)
            change = (coefficient * variance) @ coefficient.T
            is_part = self.relation == "part"
            return Correction(
                lambda _: NO_SCORE,
                reduction=change if is_part else None,
                addition=None if is_part else change,
                outside=outside,
                sample=self.sample,
            )
        count = np.bincount(self.group, minlength=n_strata)
        factor = undo_leverage(np.where(count > 1, 1.0 / np.maximum(count, 1), 0.0))
        expected = (coefficient * count).T
        pooled = None
        if (count == 1).any():
            pooled = self._pool_variance(residual, weight, count[self.group] == 1)
        return Correction(
            lambda rows: take_columns(coefficient, self.group[rows]),
            lambda rows: factor.take(self.group[rows]),
            expected_by=lambda unit: expected if self.kind == unit else None,
            pooled=pooled,
            outside=outside,
            sample=self.sample,
        )

    def _pool_variance(self, residual: Matrix, weight: Vector, is_singleton: BoolVector) -> Matrix:
        """The variance of the cells that are alone, from the spread within larger strata."""
        count = np.bincount(self.group, minlength=self.n_observed.size)
        sums = sum_by_code(residual, self.group, count.size)
        mean = sums / np.maximum(count, 1)
        centred = residual - mean[:, self.group]
        n_free = int(np.maximum(count - 1, 0).sum())
        if n_free == 0:
            centred, n_free = residual, residual.shape[1]
        spread: Matrix = centred @ centred.T / n_free
        return float(np.square(weight[is_singleton]).sum()) * spread


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TakenAsKnown(Estimation):
    """Estimated propensities whose error cannot be computed, so that intervals leave it out."""

    reason: str
    """Why it cannot be computed: a sentence for the reader of a result."""
    has_interval: bool = True
    """False if the error includes a bias, so that an interval without it would be wrong."""

    def take(self, rows: IndexVector) -> TakenAsKnown:
        return replace(self, fixed=None if self.fixed is None else self.fixed[rows])


Refit: TypeAlias = Callable[[IndexVector], Vector]
"""Fits the propensity model again to some rows of the log, and predicts their propensities."""


Half: TypeAlias = tuple[IndexVector, Vector]
"""Rows of the log, and the propensities of a model that was fitted to them alone."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Replicates(Estimation):
    """A model without an analytic form: it is fitted again to random halves of the log."""

    refit: Refit
    n_pairs: int = 20
    seed: int = 0
    fitted: dict[int | None, list[tuple[Half, Half]]] = field(default_factory=dict)
    """By a hash of the clusters that were split: the halves that were already fitted."""

    def take(self, rows: IndexVector) -> Replicates:
        return replace(self, refit=lambda part: self.refit(rows[part]), fitted={})

    def fit_halves(self, cluster: IntVector | None, n_cells: int) -> list[tuple[Half, Half]]:
        """Complementary halves of the cells, or of the clusters, each with its propensities."""
        key = None if cluster is None else hash(cluster.tobytes())
        if key not in self.fitted:
            rng = np.random.default_rng(self.seed)
            masks = [_draw_half(rng, cluster, n_cells) for _ in range(self.n_pairs)]
            label = (
                f"fitting {self.model} to two halves of the log in each step "
                "(propensities_known=True skips this)"
            )
            self.fitted[key] = [
                (self._fit(mask), self._fit(~mask))
                for mask in progress_bar(masks, label=label, total=self.n_pairs)
            ]
        return self.fitted[key]

    def _fit(self, mask: BoolVector) -> Half:
        rows = np.flatnonzero(mask)
        try:
            return rows, self.refit(rows)
        except Exception as error:
            raise UsageError(
                f"{self.model} could not be fitted to a random half of the log, and its intervals "
                f"need such fits: {error}",
                parameter="propensities",
                remedy="Pass `propensities_known=True` to leave the error of the propensities out "
                "of the intervals.",
            ) from error


def _draw_half(rng: np.random.Generator, cluster: IntVector | None, n_cells: int) -> BoolVector:
    if cluster is None:
        return rng.permutation(n_cells) < n_cells // 2
    present = np.unique(cluster)
    return np.isin(cluster, rng.permutation(present)[: present.size // 2])


def undo_leverage(leverage: Vector, power: float = 1.0) -> Vector:
    """What residuals are multiplied by, given how much each cell contributes to its own fit.

    Squared residuals are divided by (1 - leverage) to a power: 1 is HC2, and 1.5 is halfway to HC3.
    """
    rest: Vector = 1.0 - np.minimum(leverage, MAX_LEVERAGE)
    factor: Vector = 1.0 / np.sqrt(rest)
    return factor * np.sqrt(factor) if power == 1.5 else factor


def compare_counts(observed: Vector, sample: Vector) -> float:
    """The p-value of Pearson's test that the log and a sample have the same shares of ratings."""
    counts = np.stack([observed, sample])[:, observed + sample > 0]
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    statistic = float((np.square(counts - expected) / expected).sum())
    return float(special.chdtrc(max(counts.shape[1] - 1, 1), statistic))


def describe_assumption(estimation: Estimation | None, *, fits_log: bool = True) -> str:
    """What must be true for the propensities to be right, and cannot be checked with the log.

    ``fits_log`` is whether the weights add up to the number of cells, of all and of each item.
    """
    if estimation is None and not fits_log:
        return "these propensities are taken as known, but the weighted log contradicts them"
    if estimation is None:
        return "these propensities are taken as known, and nothing here can confirm them"
    if not estimation.sees_ratings:
        scope = f"for {estimation.adjusts_for} only" if estimation.adjusts_for else "for nothing"
        return (
            f"these propensities never saw a rating: they adjust {scope}, and cannot tell whether "
            "people rate what they like"
        )
    if not fits_log:
        return (
            "these propensities assume that the random ratings were drawn at random from all "
            "cells, and that selection depends on the rating alone; the weighted log contradicts "
            "this"
        )
    return (
        "these propensities are right if the random ratings were drawn at random from all cells, "
        f"and if selection depends on the rating alone{_describe_relation(estimation)}"
    )


def describe_condition(estimation: Estimation | None) -> str:
    """On what a verdict with these propensities depends: the beginning of its sentence."""
    if estimation is None:
        return "if the supplied propensities are right"
    if isinstance(estimation, Strata) and estimation.sample is not None:
        return (
            f"if the {estimation.sample.size:,} ratings were really drawn at random and selection "
            f"depends on the rating alone{_describe_relation(estimation)}"
        )
    return "if the propensities are right"


def _describe_relation(estimation: Estimation) -> str:
    """What must be true besides if the propensities were fitted to another log."""
    return ", as it did in the log of the fit" if estimation.relation == "other" else ""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FrameStrata:
    """P = n_g / N_g of the stratum g of each row, by a model that was fitted to a log.

    Strata by rating (or of all cells) are listed here. Strata by item or by user can be many; the
    frame has a column of their n_g.
    """

    estimation: Estimation
    """The model in words."""
    kind: StratumKind
    n_observed: int
    """Ratings in the log of the fit."""
    has_limit: bool = False
    """Whether propensities of 1 were limited to 1, and do not move with the counts."""
    levels: Vector = field(default_factory=lambda: np.zeros(1))
    """The rating of each stratum; 0 for the stratum of all cells."""
    propensity: Vector = field(default_factory=lambda: np.empty(0))
    """P of each stratum."""
    count: Vector = field(default_factory=lambda: np.empty(0))
    """n_g of each stratum."""
    sample: RandomSample | None = None
    """Where the sizes N_g come from, if they are estimated from an outside sample."""

    @property
    def is_listed(self) -> bool:
        """Whether the strata are listed here, not in a column of the frame."""
        return self.kind in ("rating", "all")
