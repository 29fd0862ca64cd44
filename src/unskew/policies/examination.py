"""How much less a lower position is examined: estimates of the examination curve from clicks.

Model: P(click) = th_k g_c at position k of cell c, which is what shares a relevance, such as a user
and an item. Only ratios of examination can be known; the first position has th = 1. With N_ck
impressions, C_ck clicks, C_c = sum_k C_ck and b = log th, the conditional estimate is given C_c:

    p_ck = N_ck th_k / sum_l N_cl th_l
    score_k = sum_c (C_ck - C_c p_ck)
    H = sum_c C_c (diag p_c - p_c p_c')
    Var(b) = H^-1 [m / (m - 1) sum_g S_g S_g'] H^-1,   S_g = the score of the cells of cluster g

H is the Hessian by b of the negative conditional log likelihood, and m the number of clusters. The
estimate is nearest to the clusters that decide it, which makes their S_g too small. Where H_g, the
part of H that comes from cluster g, is not small, (I - H_g H^-1)^-1 S_g takes its place, as if b
were estimated without the cluster (a one-step jackknife).
The relevance of a cell cancels, so that any number of cells leaves the estimate unbiased. It needs
only that, given the cell, the position does not depend on whether the user is about to click.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse
from scipy.sparse import csgraph
from scipy.special import xlogy

from unskew.data.impressions import Impressions
from unskew.errors import ConvergenceWarning, NotIdentifiedError, warn_caller
from unskew.tables import count_noun
from unskew.types import BoolVector, IntVector, Matrix, Vector

MAX_STEPS = 2000
"""Steps of an optimiser; about ten suffice."""
SMALL_LEVERAGE = 0.05
"""Clusters that decide less than this hardly change their own scores."""
SMALLEST_REST = 1e-8
"""Where a cluster leaves less than this share of H, positions are not identified without it."""
STOPPED_AT_MAX_STEPS = 1
"""SciPy's status of a solution that had not converged when the steps ended."""


@dataclass(frozen=True, eq=False)
class ClickTable:
    """Impressions and clicks by cell and position. Cells without a choice of position are left out.

    The two matrices, cells x positions, have the same pattern of entries.
    """

    positions: IntVector
    """The positions of the columns, from the top down."""
    shown: sparse.csr_array
    clicks: sparse.csr_array
    cluster: IntVector
    """The cluster of each cell, a code below ``n_clusters``."""
    n_clusters: int

    @classmethod
    def count(cls, shown: Impressions, cell: tuple[str, ...], cluster: str) -> ClickTable:
        """Count by cell and position the impressions and clicks of cells shown at two or more."""
        codes = _number_cells(shown, cell)
        n_slots = shown.n_slots
        entry, example, entry_of_row = np.unique(
            codes * n_slots + (shown.position - 1), return_index=True, return_inverse=True
        )
        row = np.append(0, np.cumsum(np.diff(entry // n_slots) > 0))
        positions, column = np.unique(entry % n_slots + 1, return_inverse=True)
        shape = (int(row[-1]) + 1, positions.size)
        counts = np.bincount(entry_of_row).astype(float)
        clicks = np.bincount(entry_of_row, weights=shown.reward)
        group = np.arange(shape[0])
        if cluster != "cell":
            group[row] = getattr(shown, cluster)[example]
        table = cls(
            positions.astype(np.int32),
            sparse.csr_array((counts, (row, column)), shape=shape),
            sparse.csr_array((clicks, (row, column)), shape=shape),
            group.astype(np.int32),
            int(group.max()) + 1,
        )
        return table.take(np.diff(table.shown.indptr) > 1)

    def take(self, cells: npt.NDArray[np.integer] | BoolVector) -> ClickTable:
        """The table of some cells, by index or mask."""
        return ClickTable(
            self.positions,
            self.shown[cells],
            self.clicks[cells],
            self.cluster[cells],
            self.n_clusters,
        )

    @property
    def n_cells(self) -> int:
        return int(self.shown.shape[0])

    @cached_property
    def row(self) -> IntVector:
        """The cell of each entry."""
        return np.repeat(np.arange(self.n_cells, dtype=np.int32), np.diff(self.shown.indptr))

    @cached_property
    def clicks_of_cell(self) -> Vector:
        """C_c, the clicks of each cell at all positions."""
        return np.asarray(self.clicks.sum(axis=1), dtype=np.float64)

    def sum_by_position(self, values: Vector) -> Vector:
        """Sums over cells of a number for each entry."""
        sums = np.bincount(self.shown.indices, values, self.positions.size)
        return np.asarray(sums, dtype=np.float64)

    def share_positions(self, log_examination: Vector) -> tuple[Vector, Vector]:
        """For each entry p_ck, and for each cell log sum_l N_cl th_l."""
        expected = self.shown.data * np.exp(log_examination[self.shown.indices])
        total = np.bincount(self.row, weights=expected, minlength=self.n_cells)
        return expected / total[self.row], np.log(total)


def _number_cells(shown: Impressions, cell: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """A number for each row that is the same exactly for rows of the same cell."""
    codes = np.zeros(len(shown), dtype=np.int64)
    for role in cell:
        codes = codes * len(getattr(shown, f"{role}s")) + getattr(shown, role)
    return codes


def require_identified(table: ClickTable, *, has_user: bool) -> None:
    """Raise an error unless clicks connect all positions with one another in both directions.

    A cell is an item in its context, such as a user; the table counts its clicks at each position.
    Position k leads to l if a cell that was clicked at k was also shown at l. If no path leads from
    some positions to the others, their examination would be estimated as infinitely larger.
    """
    has_click, is_shown = table.clicks > 0, table.shown > 0
    leads_to = (has_click.astype(float).T @ is_shown.astype(float)) > 0
    for kind in ("weak", "strong"):
        n_groups, group = csgraph.connected_components(leads_to, connection=kind)
        if n_groups > 1:
            groups = [table.positions[group == each].tolist() for each in range(n_groups)]
            raise _group_error(sorted(groups), is_weak=kind == "weak", has_user=has_user)


COARSER_CELL = (
    " If rankings do not depend on the user, `cell=('item',)` also compares positions between "
    "users."
)


def _group_error(groups: list[list[int]], *, is_weak: bool, has_user: bool) -> NotIdentifiedError:
    named = " | ".join(", ".join(map(str, group)) for group in groups)
    if is_weak:
        return NotIdentifiedError(
            f"the positions fall into {len(groups)} groups that no clicked cell connects: {named}. "
            "The ratio of examination between two groups is not identified.",
            parameter="shown",
            value=groups,
            remedy="Use a log that shows items at several positions, such as that of several "
            f"rankers or of a swap experiment.{COARSER_CELL if has_user else ''}",
        )
    return NotIdentifiedError(
        f"cells that were shown in several of these groups of positions were clicked in one alone: "
        f"{named}. Their ratio of examination would be infinite.",
        parameter="shown",
        value=groups,
        remedy="Collect more clicks, or drop the lowest positions.",
    )


def estimate_conditional(table: ClickTable) -> tuple[Vector, Matrix]:
    """b = log th given the clicks of each cell, and its influence by cluster.

    Row g of the influence is H^-1 S_g: how much the cells of cluster g move b.
    """
    clicks_of_entry = table.clicks_of_cell[table.row]

    def negative_log_likelihood(free: Vector) -> tuple[float, Vector]:
        log_examination = np.append(0.0, free)
        share, log_total = table.share_positions(log_examination)
        click_examination = log_examination[table.clicks.indices]
        value = table.clicks.data @ click_examination - table.clicks_of_cell @ log_total
        return -value, -table.sum_by_position(table.clicks.data - clicks_of_entry * share)[1:]

    def hessian(free: Vector) -> Matrix:
        return _find_hessian(table, np.append(0.0, free))

    start = np.zeros(table.positions.size - 1)
    solution = optimize.minimize(
        negative_log_likelihood,
        start,
        jac=True,
        hess=hessian,
        method="trust-exact",
        options={"maxiter": MAX_STEPS, "gtol": 1e-8 * max(table.clicks_of_cell.sum(), 1.0)},
    )
    _warn_if_not_converged(solution)
    log_examination = np.append(0.0, solution.x)
    share, _ = table.share_positions(log_examination)
    residual = table.clicks.data - clicks_of_entry * share
    by_cell = sparse.csr_array(
        (residual, table.shown.indices, table.shown.indptr), shape=table.shown.shape
    )
    cells = np.arange(table.n_cells)
    group = sparse.csr_array(
        (np.ones(cells.size), (table.cluster, cells)), shape=(table.n_clusters, cells.size)
    )
    scores = (group @ by_cell).toarray()[:, 1:]
    influence = np.linalg.solve(_find_hessian(table, log_examination), scores.T).T
    return log_examination, np.pad(influence, ((0, 0), (1, 0)))


def remove_clusters(table: ClickTable, log_examination: Vector, influence: Matrix) -> Matrix:
    """The influence H^-1 (I - H_g H^-1)^-1 S_g, where H_g is not small.

    It is NaN for positions that are not identified without the cluster. ``influence`` is that of
    :func:`estimate_conditional`, with clusters of whole cells.

    How much a cluster decides is the trace of H_g H^-1; over all clusters, these add up to the
    number of positions but the first. It is at most the clicks of the cluster times the largest
    eigenvalue of H^-1, so it is computed for few of them.
    """
    inverse = np.linalg.inv(_find_hessian(table, log_examination))
    clicks = np.bincount(table.cluster, table.clicks_of_cell, table.n_clusters)
    may_decide = clicks * np.linalg.eigvalsh(inverse).max() > SMALL_LEVERAGE
    (cells,) = np.nonzero(may_decide[table.cluster])
    part = table.take(cells)
    share, _ = part.share_positions(log_examination)
    shares = np.zeros(part.shown.shape)
    shares[part.row, part.shown.indices] = share
    shares = shares[:, 1:]
    trace = shares @ np.diag(inverse) - np.einsum("ck,kl,cl->c", shares, inverse, shares)
    leverage = np.bincount(part.cluster, part.clicks_of_cell * trace, table.n_clusters)
    adjusted = influence.copy()
    for cluster in np.flatnonzero(leverage > SMALL_LEVERAGE):
        cluster_hessian = _find_hessian(part.take(part.cluster == cluster), log_examination)
        left, rest, right = np.linalg.svd(np.eye(len(inverse)) - inverse @ cluster_hessian)
        is_lost = rest < SMALLEST_REST
        scale = np.divide(1, rest, out=np.zeros_like(rest), where=~is_lost)
        moved = right.T @ (scale * (left.T @ influence[cluster, 1:]))
        moved[(np.abs(right[is_lost]) > SMALLEST_REST).any(axis=0)] = np.nan
        adjusted[cluster, 1:] = moved
    return adjusted


def _find_hessian(table: ClickTable, log_examination: Vector) -> Matrix:
    """H of the module docstring, without the first position, whose b is fixed at 0."""
    share, _ = table.share_positions(log_examination)
    weight = table.clicks_of_cell[table.row] * share
    shares = sparse.csr_array((share, table.shown.indices, table.shown.indptr), table.shown.shape)
    weights = sparse.csr_array((weight, table.shown.indices, table.shown.indptr), shares.shape)
    hessian: Matrix = np.diag(table.sum_by_position(weight)) - (shares.T @ weights).toarray()
    return hessian[1:, 1:]


def sum_influence(
    shown: Impressions,
    cell: tuple[str, ...],
    log_examination: Vector,
    cluster: IntVector,
    n_clusters: int,
) -> Matrix:
    """Clusters x positions: how much the rows of each cluster move the conditional estimate b.

    With g_c = C_c / sum_k N_ck th_k, a row of cell c with reward r at position l adds
    H^-1 (r - g_c th_l) (1{k = l} - p_ck). Over a cell, these sum to its score. ``cluster`` is the
    code of each row; a cluster may have rows of any cells.
    """
    _, cell_of_row = np.unique(_number_cells(shown, cell), return_inverse=True)
    _, column = np.unique(shown.position, return_inverse=True)
    n_cells, n_positions = int(cell_of_row.max()) + 1, log_examination.size
    examined = np.exp(log_examination)[column]
    shape = (n_cells, n_positions)
    expected = sparse.csr_array((examined, (cell_of_row, column)), shape=shape)
    total = np.bincount(cell_of_row, weights=examined)
    clicks = np.bincount(cell_of_row, weights=shown.reward)
    shares = sparse.csr_array(expected.multiply(1 / total[:, None]))
    weights = sparse.csr_array(shares.multiply(clicks[:, None]))
    hessian = np.diag(weights.sum(axis=0)) - (shares.T @ weights).toarray()
    residual = shown.reward - (clicks / total)[cell_of_row] * examined
    at_position = sparse.csr_array((residual, (cluster, column)), shape=(n_clusters, n_positions))
    cell_residuals = sparse.csr_array(
        (residual, (cluster, cell_of_row)), shape=(n_clusters, n_cells)
    )
    scores = (at_position - cell_residuals @ shares).toarray()[:, 1:]
    influence = np.linalg.solve(hessian[1:, 1:], scores.T).T
    return np.pad(influence, ((0, 0), (1, 0)))


def estimate_all_pairs(table: ClickTable, start: Vector) -> Vector:
    """b by the likelihood of all pairs of positions (Agarwal et al. 2019).

    For the cells shown at both k and l, the sum of their click rates at k has the mean
    n_kl th_k r_kl, where n_kl is their number and r_kl = r_lk their mean relevance. ``start`` is a
    first guess of b.
    """
    is_shown = (table.shown > 0).astype(float)
    rate = table.clicks.copy()
    rate.data = table.clicks.data / table.shown.data
    clicked = (rate.T @ is_shown).toarray()
    n_cells = (is_shown.T @ is_shown).toarray()
    first, second = np.triu_indices(table.positions.size, k=1)
    pairs = n_cells[first, second] > 0
    first, second = first[pairs], second[pairs]
    size = n_cells[first, second]
    rate_sums = np.stack([clicked[first, second], clicked[second, first]])

    def measure_loss(parameters: Vector) -> tuple[float, Vector]:
        """The negative log-likelihood of all pairs, and its gradient."""
        log_curve = np.append(0.0, parameters[: start.size - 1])
        log_relevance = parameters[start.size - 1 :]
        log_probability = np.stack([log_curve[first], log_curve[second]]) + log_relevance
        probability = np.clip(np.exp(log_probability), 0.0, 1 - 1e-9)
        value = rate_sums * log_probability + xlogy(size - rate_sums, 1 - probability)
        gradient_of_log = rate_sums - (size - rate_sums) * probability / (1 - probability)
        gradient = np.zeros(start.size)
        np.add.at(gradient, first, gradient_of_log[0])
        np.add.at(gradient, second, gradient_of_log[1])
        return -value.sum(), -np.append(gradient[1:], gradient_of_log.sum(axis=0))

    guess = np.log(
        np.maximum(rate_sums.sum(axis=0), 0.5) / (size * np.exp(start)[[first, second]].sum(axis=0))
    )
    solution = optimize.minimize(
        measure_loss,
        np.append(start[1:], np.minimum(guess, -1e-3)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * (start.size - 1) + [(None, -1e-6)] * guess.size,
        options={"maxiter": MAX_STEPS, "ftol": 1e-14, "gtol": 1e-8 * max(rate_sums.sum(), 1.0)},
    )
    _warn_if_not_converged(solution)
    return np.append(0.0, solution.x[: start.size - 1])


def _warn_if_not_converged(solution: optimize.OptimizeResult) -> None:
    """Warn if SciPy stopped at the largest number of steps; other stops are at its precision."""
    if solution.status == STOPPED_AT_MAX_STEPS:
        warn_caller(
            ConvergenceWarning(
                "the examination curve had not converged after "
                f"{count_noun(solution.nit, 'step')}.",
                remedy="Use a log with more clicks at each position, or with fewer positions.",
            )
        )


def estimate_swaps(shown: Impressions, swap: Vector) -> tuple[IntVector, Vector, Vector]:
    """Positions, b and its variance from swaps of the first item with a lower one.

    ``swap`` names the lower position of the experiment of each row, and is NaN outside. By
    randomisation both places show the same items: th_k = CTR_k / CTR_1, with
    Var(b_k) = (1 - CTR_1) / C_1 + (1 - CTR_k) / C_k.
    """
    positions = np.unique(swap[np.isfinite(swap)]).astype(np.int32)
    rows = {
        int(position): [
            (swap == position) & (shown.position == each) for each in (1, int(position))
        ]
        for position in positions
    }
    clicks = np.array([[shown.reward[mask].sum() for mask in both] for both in rows.values()])
    size = np.array([[mask.sum() for mask in both] for both in rows.values()])
    has_none = (clicks <= 0).any(axis=1)
    if has_none.any() or not positions.size:
        where = f"position {positions[has_none.argmax()]}" if positions.size else "the log"
        raise NotIdentifiedError(
            f"the swaps with {where} have no click at one of the two places.",
            parameter="swap",
            remedy="Collect more clicks, or leave that position out.",
        )
    rate = clicks / size
    variance = ((1 - rate) / clicks).sum(axis=1)
    return (
        np.append(1, positions).astype(np.int32),
        np.append(0.0, np.log(rate[:, 1] / rate[:, 0])),
        np.append(0.0, variance),
    )
