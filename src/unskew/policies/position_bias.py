"""Position bias: the examination of each position, estimated from a log of impressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from unskew.data.cells import group_rows
from unskew.data.checks import require_rows
from unskew.data.impressions import Impressions
from unskew.data.result import Result
from unskew.errors import BadImpressionError, NotIdentifiedError, UsageError
from unskew.estimators.intervals import t_quantile
from unskew.policies.examination import (
    COARSER_CELL,
    ClickTable,
    estimate_all_pairs,
    estimate_conditional,
    estimate_swaps,
    remove_clusters,
    require_identified,
    sum_influence,
)
from unskew.progress import no_progress, progress_bar
from unskew.settings import (
    Configurable,
    Instance,
    Number,
    OneOf,
    WholeNumber,
    check_random_state,
    require_fitted,
    require_list,
    setting,
)
from unskew.tables import count_noun, join_words
from unskew.types import IntVector, Matrix, RandomState, Vector

Method: TypeAlias = Literal["conditional", "all_pairs", "swaps"]
ROLES = ("user", "item")
METHODS = {
    "conditional": "clicks on the same {cell} at different positions",
    "all_pairs": "click rates of the same {cell} at all pairs of positions",
    "swaps": "random swaps of the first item with a lower one",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ExaminationCurve(Result):
    """The examination of each position relative to the first, with intervals."""

    kind: ClassVar[str] = "position_bias"

    positions: IntVector
    examination: Vector
    """th: 1 for the first position."""
    log_covariance: Matrix
    """Covariance of log th; the first row and column are 0."""
    degrees: Vector
    """Degrees of freedom of the standard errors: few if few clusters decide them."""
    click_rate: Vector
    """Clicks per impression of each position, which mixes examination and relevance."""
    level: float
    method: Method
    cell: tuple[str, ...]
    cluster: str
    n_impressions: int
    n_clicks: float
    n_informative: float
    """Clicks on what was shown at several positions; only these inform the curve."""
    log_digest: str = ""
    """The digest of the log that the curve was estimated from."""
    backend: str | None = None

    @property
    def std_error(self) -> Vector:
        """Standard error of each examination, by the delta method."""
        errors: Vector = self.examination * np.sqrt(np.diag(self.log_covariance))
        return errors

    def to_columns(self) -> dict[str, Any]:
        """One row for each position."""
        quantiles = np.array([t_quantile(self.level, degrees) for degrees in self.degrees])
        width = quantiles * np.sqrt(np.diag(self.log_covariance))
        return {
            "position": self.positions.tolist(),
            "examination": self.examination.tolist(),
            "std_error": self.std_error.tolist(),
            "ci_low": (self.examination * np.exp(-width)).tolist(),
            "ci_high": (self.examination * np.exp(width)).tolist(),
            "degrees": self.degrees.tolist(),
            "click_rate": self.click_rate.tolist(),
        }

    def to_record(self) -> Mapping[str, Any]:
        columns = self.to_columns()
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {
            "rows": rows,
            "level": self.level,
            "method": self.method,
            "method_label": METHODS[self.method].format(cell=" and ".join(self.cell)),
            "cluster": self.cluster,
            "n_impressions": self.n_impressions,
            "n_clicks": self.n_clicks,
            "n_informative": self.n_informative,
            "notes": self.notes(),
        }

    def notes(self) -> list[str]:
        """What the curve was computed from, and what it rests on."""
        cluster = "" if self.method == "swaps" else f", clustered by {self.cluster}"
        return [
            f"{count_noun(self.n_impressions, 'impression')} and "
            f"{count_noun(self.n_clicks, 'click')}, of which {self.n_informative:,.0f} on what was "
            f"shown at several positions; {self.level:.0%} intervals{cluster}",
            "right if users click what they examine and find relevant, independently of the items "
            f"around it, and if where an item is shown {self._describe_placement()}",
            *self._explain_missing_errors(),
        ]

    def _explain_missing_errors(self) -> Iterator[str]:
        (without,) = np.nonzero(np.isnan(np.diag(self.log_covariance)))
        if without.size:
            listed = join_words([str(position) for position in self.positions[without]])
            are = f"position {listed} is" if without.size == 1 else f"positions {listed} are"
            yield (
                f"no interval where the error is unknown: {are} connected with the others by a "
                f"single {self.cluster}; if users are independent, cluster by user"
            )

    def _describe_placement(self) -> str:
        left_out = [role for role in ROLES if role not in self.cell]
        if self.method == "swaps" or not left_out:
            return "does not depend on its latest clicks"
        return f"depends neither on the {left_out[0]} nor on its latest clicks"

    def plot(self, ax: Any = None) -> Any:
        """Draw the curve with its band; returns a new figure, or None if ``ax`` is given."""
        return self._draw(ax)

    def _footer(self) -> list[str]:
        return self.notes()


@dataclass(eq=False, repr=False)
class PositionBias(Configurable):
    """Estimate how much less lower positions are examined, from a log of impressions.

        P(click) = th_k g_c,   th_1 = 1

    A cell c is what has one relevance, such as a user and an item. The curve th is identified if
    cells were shown at several positions, for instance by several rankers. One ranking that never
    changes identifies nothing, and is refused.

    Parameters
    ----------
    cell
        What has one relevance: ``("user", "item")``, or ``("item",)`` if the ranking is the same
        for all users. It must be as fine as what the ranking depends on.
    method
        ``"conditional"`` compares each cell with itself at its other positions, given its number
        of clicks; its errors have a closed form. ``"all_pairs"`` maximises the likelihood of all
        pairs of positions (Agarwal et al. 2019); its errors are from a bootstrap of clusters.
        ``"swaps"`` reads an experiment that swaps the first item with a lower one at random.
    swap
        For ``"swaps"``: the column of the log that has the lower position of the swap, and is
        missing in rows outside the experiment.
    cluster
        What is independent: ``"cell"``, or ``"user"`` or ``"item"`` if that is part of the cell,
        whose cells may then depend on each other. With few items as cells, ``"user"`` is better,
        which the conditional method allows for any cell.
    level
        Confidence level of the intervals.
    n_bootstrap
        Resamples of clusters, for ``"all_pairs"``.
    random_state
        Seed or generator of the bootstrap.
    verbose
        Whether to show the progress of the bootstrap.

    Attributes
    ----------
    curve_ : the :class:`ExaminationCurve`. ``examination``, ``std_error`` and ``covariance`` (of
        log th) are short for its fields.

    Examples
    --------
    >>> from unskew.simulation import simulate_impressions
    >>> world = simulate_impressions(2000, logging="rankers", examination=[1, 0.5, 0.3])
    >>> bias = PositionBias().fit(world.log)
    >>> bias.examination.round(1).tolist()
    [1.0, 0.5, 0.3]
    """

    cell: tuple[str, ...] = ("user", "item")
    method: Method = setting("conditional", OneOf(tuple(METHODS)))
    swap: str | None = None
    cluster: str = "cell"
    level: float = setting(0.95, Number(above=0, below=1))
    n_bootstrap: int = setting(100, WholeNumber(least=2))
    random_state: RandomState = setting(0, check_random_state)
    verbose: bool = False

    curve_: ExaminationCurve = field(init=False)

    def fit(self, shown: Impressions) -> Self:
        """Estimate the curve from clicks: rewards that are not negative."""
        self._check_settings()
        Instance(str, allow_none=True)("swap", self.swap)
        if self.swap is not None and self.method != "swaps":
            raise UsageError(
                f"`swap` names a column of an experiment, which {self.method!r} does not read.",
                parameter="swap",
                value=self.swap,
                remedy="Pass `method='swaps'`, or leave `swap` out.",
            )
        _require_clicks(shown)
        if self.method == "swaps":
            self.curve_ = self._fit_swaps(shown)
            return self
        cell = self._read_cell()
        by_user = self._read_cluster() == "user" and "user" not in cell
        table = ClickTable.count(shown, cell, "cell" if by_user else self.cluster)
        if shown.n_slots == 1 or not table.n_cells:
            raise NotIdentifiedError(
                "the log has one position only."
                if shown.n_slots == 1
                else f"no {' and '.join(cell)} was shown at two positions.",
                parameter="shown",
                remedy="Use a log in which items change their position."
                + (COARSER_CELL if "user" in cell else ""),
            )
        clicked = table.take(table.clicks_of_cell > 0)
        require_identified(clicked, has_user="user" in cell)
        log_curve, influence = estimate_conditional(clicked)
        n_clusters = np.unique(clicked.cluster).size
        if by_user:
            n_clusters = shown.n_users
            influence = sum_influence(shown, cell, log_curve, shown.user, n_clusters)
        else:
            influence = remove_clusters(clicked, log_curve, influence)
        n_others = max(n_clusters - 1, 1)
        covariance: Matrix = n_clusters / n_others * influence.T @ influence
        most = n_others if self.method == "conditional" else min(n_others, self.n_bootstrap - 1)
        if self.method == "all_pairs":
            log_curve = estimate_all_pairs(table, log_curve)
            covariance = self._bootstrap(table, log_curve)
        self.curve_ = self._make_curve(
            shown,
            table.positions,
            log_curve,
            covariance,
            _find_degrees(influence, most),
            n_informative=float(table.clicks_of_cell.sum()),
        )
        return self

    @property
    def positions(self) -> IntVector:
        """The positions of the curve, from the top down."""
        return self._fitted_curve.positions

    @property
    def examination(self) -> Vector:
        """th of each position, 1 for the first."""
        return self._fitted_curve.examination

    @property
    def std_error(self) -> Vector:
        """Standard error of each examination."""
        return self._fitted_curve.std_error

    @property
    def covariance(self) -> Matrix:
        """Covariance matrix of log th; the first row and column are 0."""
        return self._fitted_curve.log_covariance

    @property
    def _fitted_curve(self) -> ExaminationCurve:
        require_fitted(self)
        return self.curve_

    def _read_cell(self) -> tuple[str, ...]:
        require_list("cell", self.cell, of="roles", allow_none=False)
        cell = (self.cell,) if isinstance(self.cell, str) else tuple(self.cell)
        if not cell or any(not isinstance(role, str) or role not in ROLES for role in cell):
            raise UsageError(
                f"`cell` must name user, item or both; got {self.cell!r}.",
                parameter="cell",
                value=self.cell,
            )
        return cell

    def _read_cluster(self) -> str:
        valid = ("cell", *self._read_cell())
        if self.method == "conditional" and "user" not in valid:
            valid = (*valid, "user")
        if not isinstance(self.cluster, str) or self.cluster not in valid:
            raise UsageError(
                f"`cluster` must be one of {', '.join(valid)}; got {self.cluster!r}.",
                parameter="cluster",
                value=self.cluster,
                remedy="A cluster consists of whole cells, so it must be part of `cell`, or, for "
                "`method='conditional'`, of users.",
            )
        return self.cluster

    def _fit_swaps(self, shown: Impressions) -> ExaminationCurve:
        if self.swap is None:
            raise UsageError(
                "`method='swaps'` needs `swap`, the column that says which position of a request "
                "was swapped with position 1.",
                parameter="swap",
                remedy="Pass its name; NaN in it stands for a request without a swap.",
                shell_remedy="Pass its name; it is empty for a request without a swap.",
            )
        swap = shown.column(self.swap, "swap")
        positions, log_curve, variance = estimate_swaps(shown, swap)
        is_swapped = np.isfinite(swap) & ((shown.position == 1) | (shown.position == swap))
        return self._make_curve(
            shown,
            positions,
            log_curve,
            np.diag(variance),
            np.full(variance.size, np.inf),
            n_informative=float(shown.reward[is_swapped].sum()),
        )

    def _bootstrap(self, table: ClickTable, start: Vector) -> Matrix:
        """Covariance of the log examination of positions over resamples of clusters."""
        rng = np.random.default_rng(self.random_state)
        clusters, code = np.unique(table.cluster, return_inverse=True)
        starts, order = group_rows(code, clusters.size)
        track = progress_bar if self.verbose else no_progress
        curves = []
        for _ in track(range(self.n_bootstrap), label="resamples", total=self.n_bootstrap):
            drawn = rng.integers(clusters.size, size=clusters.size)
            cells = np.concatenate([order[starts[g] : starts[g + 1]] for g in drawn])
            curves.append(estimate_all_pairs(table.take(cells), start))
        return np.cov(np.array(curves), rowvar=False)

    def _make_curve(
        self,
        shown: Impressions,
        positions: IntVector,
        log_curve: Vector,
        covariance: Matrix,
        degrees: Vector,
        *,
        n_informative: float,
    ) -> ExaminationCurve:
        column = np.searchsorted(positions, shown.position).clip(max=positions.size - 1)
        rows = positions[column] == shown.position
        n_shown = np.bincount(column[rows], minlength=positions.size)
        clicks = np.bincount(column[rows], weights=shown.reward[rows], minlength=positions.size)
        return ExaminationCurve(
            positions,
            np.exp(log_curve),
            covariance,
            degrees,
            clicks / np.maximum(n_shown, 1),
            self.level,
            self.method,
            self._read_cell(),
            self.cluster,
            len(shown),
            float(shown.reward.sum()),
            n_informative,
            shown.digest,
            shown.backend,
        )


def _find_degrees(influence: Matrix, most: float) -> Vector:
    """Degrees of freedom of the sum of squares of each column; infinite if it is 0."""
    squares = np.square(influence)
    fourth = np.square(squares).sum(axis=0)
    degrees = np.full(fourth.size, np.inf)
    is_used = fourth > 0
    total = 2 * np.square(squares.sum(axis=0)[is_used])
    degrees[is_used] = np.clip(total / fourth[is_used], 1.0, most)
    return degrees


def _require_clicks(shown: Impressions) -> None:
    Instance(Impressions, remedy="Build one with Impressions.from_frame(frame).")("shown", shown)
    require_rows(
        shown.reward >= 0,
        shown.reward,
        "rewards are negative, but position bias is estimated from clicks",
        shown.name_row,
        parameter="shown",
        error_type=BadImpressionError,
        remedy="Pass clicks, 0 or 1, as the reward.",
    )
    if len(shown) > 1 and shown.reward.min() > 0:
        raise NotIdentifiedError(
            f"all {len(shown):,} rows have a reward above 0: the log has what was clicked, but not "
            "what was shown and not clicked.",
            parameter="reward",
            remedy="Pass every item that was shown, with the reward 0 if it was not clicked; "
            "`Impressions.from_frame(shown, clicks=clicks)` joins two such tables.",
            shell_remedy="Write every item that was shown into the log, with the reward 0 if it "
            "was not clicked.",
        )
