"""ExpoMF: a cell without a click may never have been seen (Liang et al. 2016)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.clicks import find_clicks
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.objective import SortedCells, sort_both_ways
from unskew.factorization.solution import Solver
from unskew.models import RECOMMENDERS
from unskew.models.all_cells import AllCellsRecommender
from unskew.settings import Number, WholeNumber, setting
from unskew.threads import Workers
from unskew.types import ArrayShapes, Floats, Matrix, Vector

Range: TypeAlias = tuple[int, int]
CellIndex: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
MIN_ROWS, MAX_ROWS = 64, 512
"""Rows whose probabilities a thread holds at once: enough to pay for the factor products."""
N_TASKS = 16
"""Short sides are cut into this many blocks, so that no thread is idle."""
MAX_OPPOSITE = 256
"""Opposite rows per block: their probabilities stay in the cache, and the product of as many
numbers between 1 and 2 is finite."""
MAX_PRODUCTS = 1 << 20
"""Products of two factors in memory at once; with many factors blocks are smaller."""


def _check_prior(name: str, value: object) -> None:
    if not (isinstance(value, tuple | list) and len(value) == 2):
        raise UsageError(
            f"`{name}` must be the two numbers a and b, each at least 1; got {value!r}.",
            parameter=name,
            value=value,
        )
    for number in value:
        Number(least=1)(name, number)


@RECOMMENDERS.declare(
    "expomf",
    label="ExpoMF",
    summary="Clicks that require exposure, which the model estimates (Liang et al. 2016).",
    traits={"reads_propensities": False},
)
@dataclass(eq=False, repr=False)
class ExposureFactorization(AllCellsRecommender):
    """F_ui = v_u . w_i, fitted to clicks and to the cells that were probably seen but not clicked.

        A ~ Bernoulli(mu_i);   y ~ N(F, 1 / precision) if A = 1, and y = 0 if A = 0
        mu_i ~ Beta(a, b)

    EM alternates between the probability that each cell was exposed and, given it, factors and mu.
    Each step visits all U I cells in blocks, at a cost of O(U I d^2). The objective is the
    negative log posterior without the constants of the priors. ``predict`` gives F, which only
    ranks items (D. Liang, L. Charlin, J. McInerney & D. Blei, *Modeling user exposure in
    recommendation*, WWW 2016; here the normal density has its constant sqrt(precision / 2 pi)).

    The model takes no propensities: a clicked cell was exposed for certain, and the model itself
    estimates the exposure of the others.

    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    n_factors
        The number of columns of V and W.
    prior_precision
        The precision of the factors' prior, lambda_v = lambda_w in the paper.
    relevance_threshold
        Ratings of at least this are clicks, others are not. By default every cell of the log is.
    precision
        lambda_y in the paper: how closely clicks of exposed users follow v . w. Above 2 pi the
        density of y = 0 at v . w = 0 exceeds 1, so a missing click is evidence of exposure. Below,
        mu stays near an item's share of clicks.
    exposure
        mu_i of every item at the start, also with ``initial_factors``.
    prior
        a and b, each at least 1.
    max_iter, tol
        The fit stops after ``max_iter`` steps, or when a step lowers the objective by at most
        ``tol`` times its size. The paper stops earlier, when a ranking metric on held-out clicks
        gets worse: choose ``max_iter`` by cross-validation for that, with ``tol=0``.

    Attributes
    ----------
    exposure_ : mu_i, for each item the share of users who are exposed to it.
    """

    predicts_ratings: ClassVar[bool] = False

    prior_precision: float = setting(1e-5, Number(above=0))
    _: KW_ONLY
    relevance_threshold: float | None = setting(None)
    precision: float = setting(1.0, Number(above=0))
    exposure: float = setting(0.01, Number(above=0, below=1))
    prior: tuple[float, float] = setting((1.0, 1.0), _check_prior)
    max_iter: int = setting(100, WholeNumber(least=1))
    tol: float = setting(1e-5, Number(least=0))
    exposure_: Vector = field(init=False)

    def _make_solver(
        self, log: Ratings, propensity: Vector | None, workers: Workers
    ) -> ExposureSolver:
        if propensity is not None:
            raise UsageError(
                "ExposureFactorization takes no propensities: it estimates exposure itself.",
                parameter="propensities",
                remedy="Leave `propensities` out, or use RelevanceFactorization, which divides "
                "clicks by them.",
            )
        clicks = log.take(find_clicks(log, self.relevance_threshold))
        ones, shape = np.ones(len(clicks)), (log.n_users, log.n_items)
        sides = sort_both_ways(clicks.user, clicks.item, ones, ones, shape=shape, dtype=self.dtype)
        return ExposureSolver(*sides, self.precision, self.prior_precision, self.prior, workers)

    def _make_start(self, log: Ratings, initial_factors: Factors | None) -> ExposureParameters:
        factors = super()._make_start(log, initial_factors)
        return ExposureParameters(factors, np.full(log.n_items, self.exposure))

    def _record_parameters(self, log: Ratings, parameters: ExposureParameters) -> None:
        super()._record_parameters(log, parameters.factors)
        self.exposure_ = parameters.exposure

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        return {
            **super()._arrays_with_expected_shapes(),
            "exposure": (self.exposure_, (len(self.items_),)),
        }


@dataclass(frozen=True, slots=True, eq=False)
class ExposureParameters:
    """The fitted factors and exposure probabilities."""

    factors: Factors
    exposure: Vector
    """mu_i."""


@dataclass(frozen=True, slots=True, eq=False)
class ExposureState:
    """The parameters and the objective at them."""

    parameters: ExposureParameters
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class ExposureSolver(Solver[ExposureState, ExposureParameters]):
    """Minimise the negative log posterior, without the constants of the priors."""

    by_user: SortedCells
    """The clicks, each with rating 1."""
    by_item: SortedCells
    precision: float
    """The precision of y around v . w."""
    prior_precision: float
    """The precision of the factors' normal prior."""
    prior: tuple[float, float]
    """a and b of the Beta prior."""
    workers: Workers

    def start(self, parameters: ExposureParameters, /) -> ExposureState:
        return ExposureState(parameters, self._objective(parameters))

    def advance(self, state: ExposureState, /) -> ExposureState:
        """Exposure probabilities; then users, items and mu given them."""
        factors = state.parameters.factors
        log_odds = self._log_odds(state.parameters.exposure)
        old_users, old_items = factors.user_factors, factors.item_factors
        users, _ = self._solve_side(self.by_user, old_users, old_items, log_odds, old_items)
        items, exposed = self._solve_side(self.by_item, old_items, old_users, log_odds.T, users)
        a, b = self.prior
        parameters = ExposureParameters(
            Factors(users, items, factors.user_offset, factors.item_offset, factors.global_offset),
            (a - 1 + exposed) / (a + b - 2 + len(users)),
        )
        return ExposureState(parameters, self._objective(parameters))

    @property
    def _log_density_at_mean(self) -> float:
        return 0.5 * float(np.log(self.precision / (2 * np.pi)))

    def _log_odds(self, exposure: Vector) -> Floats:
        """Log odds of exposure for cells without a click and with v . w = 0 (users x items)."""
        with np.errstate(divide="ignore"):
            by_item = np.log(exposure) - np.log1p(-exposure) + self._log_density_at_mean
        shape = self.by_user.n_rows, self.by_item.n_rows
        return np.broadcast_to(by_item.astype(self.by_user.dtype), shape)

    def _solve_side(
        self,
        cells: SortedCells,
        rows: Floats,
        opposite_rows: Floats,
        log_odds: Floats,
        design: Floats,
    ) -> tuple[Floats, Vector]:
        """The best factors of every row on ``design``, and the sums of its probabilities.

        The probabilities follow from ``rows`` and ``opposite_rows``.
        """
        from unskew.kernels.rows import multiply_rows, padded_zeros

        n_factors = design.shape[1]
        padded = padded_zeros(len(design), n_factors, cells.dtype)
        right = padded_zeros(cells.n_rows, n_factors, cells.dtype)
        padded[:, :n_factors] = design
        columns = np.ascontiguousarray(padded[:, :n_factors].T)
        solutions = np.empty((cells.n_rows, n_factors), cells.dtype)
        totals = np.empty(cells.n_rows)
        ridge = self.prior_precision / self.precision * np.eye(n_factors)

        def solve_block(block: Range) -> None:
            part = slice(*block)
            grams, totals[part] = self._weighted_grams(
                cells, block, rows, opposite_rows, log_odds, columns
            )
            multiply_rows(block, cells.cells, padded, right)
            grams += ridge
            right_side = right[part, :n_factors, None].astype(np.float64)
            solutions[part] = np.linalg.solve(grams, right_side)[:, :, 0]

        self.workers.map(solve_block, _row_blocks(cells.n_rows, n_factors))
        return solutions, totals

    def _weighted_grams(
        self,
        cells: SortedCells,
        block: Range,
        rows: Floats,
        opposite_rows: Floats,
        log_odds: Floats,
        columns: Floats,
    ) -> tuple[Matrix, Vector]:
        """For each row of a block the sums of p x x' and of p over the opposite side.

        p is the exposure probability, and x a column of ``columns``.
        """
        n_rows, n_factors = block[1] - block[0], len(columns)
        triangles = np.zeros((n_rows, n_factors * (n_factors + 1) // 2))
        total = np.zeros(n_rows)
        clicks = _BlockClicks.of(cells, block)
        for opposite in _blocks(len(opposite_rows), MAX_OPPOSITE, n_factors):
            score = self._scores(rows[slice(*block)], opposite_rows[slice(*opposite)])
            probability = _exposure_probability(score, log_odds[slice(*block), slice(*opposite)])
            probability[clicks.within(opposite)] = 1
            triangles += probability @ _upper_products(columns[:, slice(*opposite)]).T
            total += probability.sum(axis=1, dtype=np.float64)
        return _unpack_triangles(triangles, n_factors), total

    @property
    def _score_scale(self) -> float:
        """Scores are multiplied by this: then minus their square is the normal exponent."""
        return float(np.sqrt(0.5 * self.precision))

    def _scores(self, rows: Floats, opposite_rows: Floats) -> Floats:
        """v . w times the score scale, in the precision of the fit."""
        dtype = self.by_user.dtype
        scaled = (self._score_scale * rows).astype(dtype, copy=False)
        scores: Floats = scaled @ opposite_rows.astype(dtype, copy=False).T
        return scores

    def _objective(self, parameters: ExposureParameters) -> float:
        from scipy.special import xlog1py, xlogy

        factors, exposure, (a, b) = parameters.factors, parameters.exposure, self.prior
        opposite_blocks = _blocks(len(exposure), MAX_OPPOSITE, factors.n_factors)

        def add_block(block: Range) -> float:
            clicks = _BlockClicks.of(self.by_user, block)
            return sum(
                self._log_likelihood(block, opposite, parameters, clicks.within(opposite))
                for opposite in opposite_blocks
            )

        blocks = _row_blocks(self.by_user.n_rows, factors.n_factors)
        log_likelihood = sum(self.workers.map(add_block, blocks))
        log_prior = float((xlogy(a - 1, exposure) + xlog1py(b - 1, -exposure)).sum())
        penalty = 0.5 * self.prior_precision * factors.squared_norm(with_offsets=False)
        return penalty - log_likelihood - log_prior

    def _log_likelihood(
        self, block: Range, items: Range, parameters: ExposureParameters, is_click: CellIndex
    ) -> float:
        """The log likelihood of some users' cells at some items, clicked or not.

        log(e^s + e^t) is computed as max + log(1 + e^(min - max)).
        """
        factors, exposure = parameters.factors, parameters.exposure[slice(*items)]
        score = self._scores(
            factors.user_factors[slice(*block)], factors.item_factors[slice(*items)]
        ).astype(np.float64, copy=False)
        with np.errstate(divide="ignore"):
            log_exposed = np.log(exposure) + self._log_density_at_mean
            log_unexposed = np.log1p(-exposure)
        clicked = log_exposed[is_click[1]] - np.square(self._score_scale - score[is_click])
        np.subtract(log_exposed, np.square(score, out=score), out=score)
        larger = np.maximum(score, log_unexposed)
        smaller = np.minimum(score, log_unexposed, out=score)
        factor = np.exp(np.subtract(smaller, larger, out=score), out=score)
        factor += 1
        larger[is_click], factor[is_click] = clicked, 1
        return float(larger.sum() + np.log(np.multiply.reduce(factor, axis=1)).sum())


def _exposure_probability(score: Floats, log_odds: Floats) -> Floats:
    """P(A = 1 | y = 0), computed in the memory of ``score``."""
    np.square(score, out=score)
    score -= log_odds
    with np.errstate(over="ignore"):
        np.exp(score, out=score)
    score += 1
    return np.reciprocal(score, out=score)


@dataclass(frozen=True, slots=True, eq=False)
class _BlockClicks:
    """The clicks of a block of rows, sorted by opposite code."""

    row: npt.NDArray[np.intp]
    """Counted from the first row of the block."""
    opposite: npt.NDArray[np.intp]

    @classmethod
    def of(cls, cells: SortedCells, block: Range) -> _BlockClicks:
        starts = cells.starts[block[0] : block[1] + 1]
        row = np.repeat(np.arange(block[1] - block[0]), np.diff(starts))
        opposite = cells.opposite[starts[0] : starts[-1]]
        order = np.argsort(opposite, kind="stable")
        return cls(row[order], opposite[order].astype(np.intp))

    def within(self, opposite: Range) -> CellIndex:
        """The clicks within a range of opposite codes, which are counted from its start."""
        part = slice(*np.searchsorted(self.opposite, opposite))
        return self.row[part], self.opposite[part] - opposite[0]


def _row_blocks(n_rows: int, n_factors: int) -> list[Range]:
    return _blocks(n_rows, min(MAX_ROWS, max(MIN_ROWS, -(-n_rows // N_TASKS))), n_factors)


def _blocks(n: int, max_size: int, n_factors: int) -> list[Range]:
    """Consecutive ranges that do not depend on the number of threads."""
    size = max(1, min(max_size, MAX_PRODUCTS // (n_factors * (n_factors + 1) // 2)))
    return [(first, min(first + size, n)) for first in range(0, n, size)]


def _upper_products(columns: Floats) -> Floats:
    """The upper triangle of x x' for every column x, row by row of the triangle."""
    n_factors, n = columns.shape
    products, first = np.empty((n_factors * (n_factors + 1) // 2, n), columns.dtype), 0
    for factor in range(n_factors):
        end = first + n_factors - factor
        np.multiply(columns[factor], columns[factor:], out=products[first:end])
        first = end
    return products


def _unpack_triangles(triangles: Matrix, n_factors: int) -> Matrix:
    """Symmetric matrices from their upper triangles, one per row."""
    upper, lower = np.triu_indices(n_factors)
    matrices = np.empty((len(triangles), n_factors, n_factors))
    matrices[:, upper, lower] = matrices[:, lower, upper] = triangles
    return matrices
