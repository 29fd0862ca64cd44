"""What risks are computed from: the observed cells, the deltas on them, and which sums are needed.

Every cell has ``x = (delta of model 1, ..., delta of model k, base)`` and a weight. The base is 1
if the risk is a mean over all cells; a ratio metric such as recall has base 1 on relevant cells and
0 on others. A metric of recommended items can have a base for each model: the slots of its list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt

from unskew.data.estimation import Estimation, Unit
from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.data.weights import WeightTransform, transform_weights
from unskew.estimators.user_functions import UserFunctions
from unskew.kernels.blocks import sum_by_code
from unskew.memory import require_memory
from unskew.settings import WholeNumber
from unskew.types import IndexVector, IntVector, Matrix, Vector

if TYPE_CHECKING:
    from unskew.estimators.multiple_robust import ModelSums

T = TypeVar("T")
Cluster: TypeAlias = Unit | Literal["both"] | None
"""What is independent: users, items, or (None) single cells; "both" allows any dependence between
cells of the same user and between cells of the same item."""
STEP = 1e-6
"""Relative step of the numerical derivative of a weight transform."""
MAX_NUMBERS = 1 << 25
"""Numbers of corrected columns that are kept at once, for several metrics: 256 MiB."""


@dataclass(frozen=True, slots=True)
class SumSpec:
    """Which sums an estimate is made of."""

    is_weighted: bool
    """The weight h is 1/P, or its transform; otherwise 1."""
    unit: Unit | None = None
    is_ratio: bool = False
    """The total will be divided by its base; units whose base is 0 do not belong to the sample."""
    of_ratios: bool = False
    """Sums over units of each unit's own ratio, and the number of units with a base above 0."""
    adds_imputed: bool = False
    """Sums of delta - imputed delta, plus the imputed deltas of all cells. With ``is_ratio`` the
    two are kept apart: x = (imputed deltas, delta - imputed deltas, 1)."""

    @property
    def divides_by_base(self) -> bool:
        """Whether an estimate can do without the number of all cells."""
        return self.is_ratio or self.of_ratios


@dataclass(frozen=True, slots=True)
class Scope:
    """How many cells were observed, and out of which universe (None if unknown)."""

    n_observed: int
    universe: Universe | None = None


@dataclass(frozen=True, slots=True)
class Resampling:
    """A bootstrap: the number of resamples of clusters, and the seed of the random draws."""

    n_resamples: int
    seed: int = 0

    def __post_init__(self) -> None:
        WholeNumber(least=2)("bootstrap", self.n_resamples)


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """The cluster of each observed cell: codes below ``n``, which counts empty clusters too."""

    code: IntVector
    n: int
    resampling: Resampling | None = None

    def take(self, rows: IndexVector) -> Clusters:
        """The clusters of some of the cells."""
        return replace(self, code=self.code[rows])

    def add_up(self, columns: Matrix) -> Matrix:
        """Sums of each row of ``columns`` by cluster: (k, cells) to (clusters, k).

        Clusters after the last one that has a cell are left out.
        """
        return np.ascontiguousarray(sum_by_code(columns, self.code, self._n_rows).T)

    def add_up_weighted(
        self, deltas: Matrix, base: Vector | Matrix | None, weight: Vector
    ) -> Matrix:
        """Sums of h delta of each model and of h base by cluster: (clusters, k + bases)."""
        of_deltas = sum_by_code(deltas, self.code, self._n_rows, weight)
        if base is None:
            of_base = sum_by_code(weight[None], self.code, self._n_rows)
        else:
            of_base = sum_by_code(np.atleast_2d(base), self.code, self._n_rows, weight)
        return np.vstack([of_deltas, of_base]).T

    @property
    def _n_rows(self) -> int:
        """The number of clusters up to the last one that has a cell."""
        return int(self.code.max(initial=-1)) + 1

    def resample(self, by_cluster: Matrix) -> Matrix | None:
        """Totals over clusters drawn with replacement: one row for each resample.

        All ``n`` clusters can be drawn, also those without a row in ``by_cluster``. None without a
        bootstrap, or with fewer than two clusters.
        """
        if self.resampling is None or self.n < 2:
            return None
        n_resamples = self.resampling.n_resamples
        require_memory(
            16.0 * self.n + 8.0 * n_resamples * by_cluster.shape[1],
            f"a bootstrap of {n_resamples:,} resamples of {self.n:,} clusters",
            parameter="bootstrap",
            remedy="Use fewer resamples, or intervals without `bootstrap`.",
        )
        rng = np.random.default_rng(self.resampling.seed)
        draws = (rng.integers(0, self.n, self.n) for _ in range(self.resampling.n_resamples))
        counts = (np.bincount(draw, minlength=self.n)[: len(by_cluster)] for draw in draws)
        return np.stack([np.einsum("c,ck->k", count, by_cluster) for count in counts])


@dataclass(frozen=True, eq=False)
class ObservedCells:
    """The users, items, propensities and weights of the observed cells, in the order of the log."""

    users: Clusters
    items: Clusters
    propensities: Propensities | None = None
    weight_transform: WeightTransform | None = None
    cluster: Cluster = None
    universe: Universe | None = None

    @property
    def scope(self) -> Scope:
        return Scope(self.users.code.size, self.universe)

    @cached_property
    def inverse(self) -> Vector:
        """1/P, or 1 for every cell without propensities."""
        if self.propensities is None:
            return np.ones(self.users.code.size)
        return self.propensities.inverse

    @cached_property
    def weight(self) -> Vector:
        """1/P after the weight transform."""
        if self.weight_transform is None:
            return self.inverse
        return transform_weights(self.inverse, self.weight_transform)

    @property
    def estimation(self) -> Estimation | None:
        """How the propensities were estimated; None if they are known."""
        return None if self.propensities is None else self.propensities.estimation

    @cached_property
    def weight_derivative(self) -> Vector:
        """-dh / d log P: h itself without a weight transform, 0 where P or h is clipped."""
        weight_derivative = find_weight_derivative(self.inverse, self.weight_transform)
        fixed = None if self.estimation is None else self.estimation.fixed
        return weight_derivative if fixed is None else np.where(fixed, 0.0, weight_derivative)

    def take(self, rows: IndexVector, propensities: Propensities) -> ObservedCells:
        """Some of the cells, with their own propensities; the universe stays."""
        return replace(
            self,
            users=self.users.take(rows),
            items=self.items.take(rows),
            propensities=propensities,
        )

    @cached_property
    def _computed(self) -> dict[tuple[object, ...], tuple[object, Any]]:
        return {}

    def compute_once(
        self,
        name: str,
        deltas: Deltas,
        spec: SumSpec,
        compute: Callable[[], T],
        *,
        is_large: bool = False,
    ) -> T:
        """What ``compute`` returns, computed once for all estimators with these deltas and weights.

        The deltas are kept, so that no other object can get their identity. Of large results only
        the latest with this name is kept.
        """
        base = deltas.base_of(spec)
        key = (name, id(deltas), id(base), spec.is_weighted, spec.unit)
        if key not in self._computed:
            if is_large:
                for other in [other for other in self._computed if other[0] == name]:
                    del self._computed[other]
            self._computed[key] = deltas, compute()
        result: T = self._computed[key][1]
        return result

    @cached_property
    def _evaluated(self) -> list[Deltas]:
        return []

    def evaluate_together(self, deltas: Iterable[Deltas]) -> None:
        """Say which deltas will be evaluated with these cells, so that they can share passes."""
        self._evaluated[:] = deltas

    def find_group(self, deltas: Deltas) -> list[Deltas]:
        """The deltas whose corrections are computed with those of ``deltas``, which are among them.

        They are means over all cells, have the same base, and are not too large to be kept at once.
        """
        group = [each for each in self._evaluated if each.is_mean_of_cells]
        n_numbers = (1 + sum(len(each.value) for each in group)) * self.users.code.size
        is_member = any(each is deltas for each in group)
        return group if is_member and n_numbers <= MAX_NUMBERS else [deltas]

    def sum_by_cluster(self, deltas: Deltas, spec: SumSpec) -> Matrix:
        """Sums of h delta of each model and of h base by cluster: (clusters, k + bases)."""
        clusters = self.clusters_of(spec.unit)
        assert clusters is not None
        return self.compute_once(
            "sums",
            deltas,
            spec,
            lambda: clusters.add_up_weighted(
                deltas.value, deltas.base_of(spec), self.weight_of(spec)
            ),
        )

    def weight_of(self, spec: SumSpec) -> Vector:
        """The weight h of each cell: 1 if the estimator uses no weights."""
        return self.weight if spec.is_weighted else self._ones

    @cached_property
    def _ones(self) -> Vector:
        return np.ones(self.users.code.size)

    @property
    def n_transformed(self) -> int:
        """The number of weights that the weight transform changed."""
        if self.weight_transform is None:
            return 0
        return int((self.weight != self.inverse).sum())

    @overload
    def clusters_of(self, unit: Unit) -> Clusters: ...
    @overload
    def clusters_of(self, unit: Unit | None) -> Clusters | None: ...
    def clusters_of(self, unit: Unit | None) -> Clusters | None:
        """The users or the items of the cells; None for independent cells."""
        if unit is None:
            return None
        return self.items if unit == "item" else self.users

    @cached_property
    def n_by_user(self) -> npt.NDArray[np.intp]:
        """The number of cells of each user."""
        return np.bincount(self.users.code)

    @cached_property
    def n_by_item(self) -> npt.NDArray[np.intp]:
        """The number of cells of each item."""
        return np.bincount(self.items.code)

    def count_cells(self, unit: Unit) -> npt.NDArray[np.intp]:
        """The number of cells of each user or item."""
        return self.n_by_item if unit == "item" else self.n_by_user

    @property
    def units(self) -> tuple[Unit, ...]:
        """Whose cells may depend on one another: users, items, both, or nobody's."""
        if self.cluster is None:
            return ()
        return ("user", "item") if self.cluster == "both" else (self.cluster,)


def find_weight_derivative(inverse: Vector, weight_transform: WeightTransform | None) -> Vector:
    """-dh / d log P, given 1/P: h itself without a weight transform."""
    if weight_transform is None:
        return inverse
    up, down = (
        transform_weights(inverse * factor, weight_transform) for factor in (1 + STEP, 1 - STEP)
    )
    return (up - down) / (2 * STEP)


@dataclass(frozen=True, slots=True, eq=False)
class Imputed:
    """Imputed deltas of the observed cells, and their sums over all cells of a user or an item."""

    observed: Matrix
    """Models x observed cells."""
    by_user: Matrix
    """Users x models: sums over all items."""
    by_item: Matrix
    """Items x models: sums over all users."""
    no_interval: str | None = None
    """Why estimates with these deltas have no interval; None if they have one."""

    def by_cluster(self, unit: Unit | None) -> Matrix:
        """Sums by item or by user; their total is the same."""
        return self.by_item if unit == "item" else self.by_user

    def combine(self, contrast: Vector) -> Imputed:
        """One row: the sum over models of ``contrast`` times their imputed deltas."""
        return replace(
            self,
            observed=_combine_rows(contrast, self.observed),
            by_user=_combine_rows(contrast, self.by_user.T).T,
            by_item=_combine_rows(contrast, self.by_item.T).T,
        )

    def project(self, unit: Unit, present: IntVector) -> Imputed:
        """As if all users (or items) had the mean imputed deltas of those that are present."""
        sums = self.by_cluster(unit)
        projected = np.zeros_like(sums)
        projected[present] = sums[present] * (len(sums) / present.size)
        if unit == "item":
            return replace(self, by_item=projected)
        return replace(self, by_user=projected)


@dataclass(frozen=True, slots=True, eq=False)
class Deltas:
    """The deltas of one metric on the observed cells: one row for each model."""

    value: Matrix
    base: Vector | None = None
    """The denominator of a ratio metric by cell; None for a mean over all cells."""
    is_mean_of_users: bool = False
    """Whether the risk is a mean over users of each user's own ratio."""
    imputed: Imputed | None = None
    slots: Matrix | None = None
    """Models x observed cells: the base of self-normalised estimators, in place of 1, for a metric
    of recommended items."""
    bounds: tuple[float, float] | None = None
    """The range of the metric; None if unknown."""
    functions: UserFunctions | None = None
    """Of a metric that is no sum over cells: numbers of each user, in place of ``value``."""
    is_root: bool = False
    """Whether the risk is the square root of the mean delta."""
    max_relative_error: float | None = None
    """Of functions without bias that can be very noisy: there is no interval if the standard error
    exceeds this share of the value."""
    models: ModelSums | None = None
    """The propensity models and imputations of multiple robust estimation; None without them."""

    @property
    def is_sum(self) -> bool:
        """Whether the risk is a sum over cells, or a ratio of such sums."""
        return self.functions is None and not self.is_root

    @property
    def is_mean_of_cells(self) -> bool:
        """Whether every estimator of the risk has a base of 1 in all cells."""
        has_base = self.base is not None or self.slots is not None
        return not (has_base or self.is_mean_of_users or self.functions is not None)

    def base_of(self, spec: SumSpec) -> Vector | Matrix | None:
        """What ``spec`` divides by: one row, one row for each model, or None for 1 in all cells."""
        is_plain_ratio = spec.is_ratio and not spec.adds_imputed
        return self.slots if is_plain_ratio and self.slots is not None else self.base

    def take(self, rows: IndexVector) -> Deltas:
        """The deltas of some of the cells; imputed deltas of all cells stay."""
        imputed = self.imputed and replace(self.imputed, observed=self.imputed.observed[:, rows])
        base = None if self.base is None else self.base[rows]
        slots = None if self.slots is None else self.slots[:, rows]
        functions = None if self.functions is None else self.functions.take(rows)
        return replace(
            self,
            value=self.value[:, rows],
            base=base,
            imputed=imputed,
            slots=slots,
            functions=functions,
            models=self.models and self.models.take(rows),
        )

    def combine(self, contrast: Vector) -> Deltas:
        """One row: the sum over models of ``contrast`` times their deltas.

        Slots are kept if they are the same for all models of the contrast.
        """
        imputed = self.imputed and self.imputed.combine(contrast)
        (used,) = np.nonzero(contrast)
        is_single = used.size == 1
        slots = None
        if self.slots is not None and (self.slots[used] == self.slots[used[:1]]).all():
            slots = self.slots[used[:1]]
        return replace(
            self,
            value=_combine_rows(contrast, self.value),
            imputed=imputed,
            models=self.models and self.models.combine(contrast),
            slots=slots,
            functions=None if self.functions is None else self.functions.combine(contrast),
            bounds=self.bounds if is_single and contrast[used[0]] == 1.0 else None,
        )


def _combine_rows(contrast: Vector, rows: Matrix) -> Matrix:
    """``contrast @ rows`` as one row; ``einsum``, because BLAS adds in varying order."""
    row: Vector = np.einsum("k,kn->n", contrast, rows)
    return row[None]
