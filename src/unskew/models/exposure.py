"""ExpoMF: a cell without a click may never have been seen (Liang et al. 2016)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
from scipy.special import expit

from unskew.data.clicks import find_clicks
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.objective import (
    MAX_CELLS,
    VECTOR_BYTES,
    SortedCells,
    sort_both_ways,
)
from unskew.factorization.solution import Solver
from unskew.models import RECOMMENDERS
from unskew.models.all_cells import AllCellsRecommender
from unskew.settings import Number, WholeNumber, setting
from unskew.threads import Workers
from unskew.types import ArrayShapes, Floats, Matrix, Vector

Range: TypeAlias = tuple[int, int]
MIN_ROWS, MAX_ROWS = 64, 512
"""Rows whose probabilities a thread holds at once: enough to pay for the factor products."""
N_TASKS = 16
"""Short sides are cut into this many blocks, so that no thread is idle."""
MAX_OPPOSITE = 256
"""Opposite rows per block: their probabilities stay in the cache, and the product of as many
numbers between 1 and 2 is finite."""


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
    Each step visits all U I cells in blocks, at a cost of O(U I d). The objective is the
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
        clicks = clicks.take(np.lexsort((clicks.item, clicks.user)))
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
    """The parameters, the objective at them, and the users of the next step."""

    parameters: ExposureParameters
    value: float
    next_users: Floats


class _Levels(NamedTuple):
    """Logarithms at v . w = 0, from which the kernel computes probabilities of exposure."""

    row_log_odds: Vector
    """Those of exposure are the sum of this and the next."""
    opposite_log_odds: Vector
    log_exposed: Vector
    """For each opposite row the log probability of exposure and of y = 0; empty unless the
    likelihood is wanted."""
    log_unexposed: Vector

    def part(self, rows: Range, opposite: Range) -> _Levels:
        columns = slice(*opposite)
        return _Levels(self.row_log_odds[slice(*rows)], *(level[columns] for level in self[1:]))


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """What the rows of one side are solved with, at given parameters of both sides."""

    cells: SortedCells
    """The clicks, weighted by how much more exposure than ``largest`` they have."""
    rows: Floats
    opposite_rows: Floats
    """Padded, as the kernels read them."""
    shared_gram: Matrix
    gram_scale: Vector
    """For each row what ``shared_gram`` is multiplied by."""
    levels: _Levels


@dataclass(frozen=True, slots=True, eq=False)
class ExposureSolver(Solver[ExposureState, ExposureParameters]):
    """Minimise the negative log posterior, without the constants of the priors.

    The best factors of user u, given exposure probabilities p, are a ridge regression with the
    normal matrix sum_i p_ui w_i w_i' + ridge. That would cost d^2 for each cell. Instead, users are
    solved with an upper bound of that matrix,

        H_u = sum_i c_i w_i w_i' + sum over clicks of (1 - c_i) w_i w_i' + ridge,

    where c_i is the largest p_ui without a click, that at v . w = 0. The first sum is the same for
    all users. The step v + H^-1 gradient lowers the objective like every step of
    majorise-minimise, costs 2 d for each cell, and is nearly that of EM, because p_ui is close to
    c_i. Items are solved likewise, after the new users, and then mu.
    """

    by_user: SortedCells
    """The clicks, each with rating 1; those of a row are sorted by opposite row."""
    by_item: SortedCells
    precision: float
    """The precision of y around v . w."""
    prior_precision: float
    """The precision of the factors' normal prior."""
    prior: tuple[float, float]
    """a and b of the Beta prior."""
    workers: Workers

    def start(self, parameters: ExposureParameters, /) -> ExposureState:
        """The state at these parameters: the likelihood comes with the step of the users."""
        from scipy.special import xlog1py, xlogy

        factors, exposure, (a, b) = parameters.factors, parameters.exposure, self.prior
        users, log_likelihood = self._solve_users(factors, exposure)
        log_prior = float((xlogy(a - 1, exposure) + xlog1py(b - 1, -exposure)).sum())
        penalty = 0.5 * self.prior_precision * factors.squared_norm(with_offsets=False)
        return ExposureState(parameters, penalty - log_likelihood - log_prior, users)

    def advance(self, state: ExposureState, /) -> ExposureState:
        """The next users, then items and mu with probabilities that follow from these users."""
        factors, exposure = state.parameters.factors, state.parameters.exposure
        factors = replace(factors, user_factors=state.next_users)
        items, exposed = self._solve_items(factors, exposure)
        a, b = self.prior
        mu = (a - 1 + exposed) / (a + b - 2 + self.by_user.n_rows)
        return self.start(ExposureParameters(replace(factors, item_factors=items), mu))

    @property
    def _log_density_at_mean(self) -> float:
        return 0.5 * float(np.log(self.precision / (2 * np.pi)))

    def _log_odds(self, exposure: Vector) -> Vector:
        """Log odds of exposure for cells without a click and with v . w = 0, by item."""
        with np.errstate(divide="ignore"):
            return np.log(exposure) - np.log1p(-exposure) + self._log_density_at_mean

    def _solve_users(self, factors: Factors, exposure: Vector) -> tuple[Floats, float]:
        """The next factors of the users, and the log likelihood at the current ones."""
        log_odds = self._log_odds(exposure)
        largest, items = expit(log_odds), factors.item_factors
        with np.errstate(divide="ignore"):
            log_exposed = np.log(exposure) + self._log_density_at_mean
            log_unexposed = np.log1p(-exposure)
        n_users = self.by_user.n_rows
        side = _Side(
            self.by_user.with_root_weights(np.sqrt(1 - largest[self.by_user.opposite])),
            factors.user_factors,
            self._padded(items),
            (items * largest[:, None]).T @ items,
            np.ones(n_users),
            _Levels(np.zeros(n_users), log_odds, log_exposed, log_unexposed),
        )
        users, sums = self._solve_side(side)
        return users, float(sums.sum())

    def _solve_items(self, factors: Factors, exposure: Vector) -> tuple[Floats, Vector]:
        """The next factors of the items, and the sums of the probabilities of exposure."""
        log_odds = self._log_odds(exposure)
        largest, users = expit(log_odds), factors.user_factors
        nothing: Vector = np.empty(0)
        root = np.repeat(np.sqrt(1 - largest), np.diff(self.by_item.starts))
        side = _Side(
            self.by_item.with_root_weights(root),
            factors.item_factors,
            self._padded(users),
            users.T @ users,
            largest,
            _Levels(log_odds, np.zeros(self.by_user.n_rows), nothing, nothing),
        )
        return self._solve_side(side)

    def _padded(self, factors: Floats) -> Floats:
        from unskew.kernels.rows import padded_zeros

        padded = padded_zeros(len(factors), factors.shape[1] + 1, self.by_user.dtype)
        padded[:, : factors.shape[1]] = factors
        return padded

    def _solve_side(self, side: _Side) -> tuple[Floats, Vector]:
        """The next factors of every row, and a sum for each row: see ``_add_cells``."""
        solutions = np.empty(side.rows.shape, side.cells.dtype)
        sums = np.empty(len(side.rows))

        def solve_block(block: Range) -> None:
            part = slice(*block)
            gradient, sums[part] = self._add_cells(side, block)
            solutions[part] = side.rows[part] + self._solve_rows(side, block, gradient)

        self.workers.map(solve_block, _row_blocks(len(side.rows)))
        return solutions, sums

    def _solve_rows(self, side: _Side, block: Range, gradient: Matrix) -> Matrix:
        """H^-1 (gradient - ridge v) for each row of a block."""
        from unskew.kernels.rows import add_normal_equations, solve_normal_equations

        n_factors, ridge = side.rows.shape[1], self.prior_precision / self.precision
        row, column = np.triu_indices(n_factors + 1)
        packed = np.zeros((block[1] - block[0], row.size))
        starts, entries = side.cells.cells
        add_normal_equations(
            (starts[block[0] : block[1] + 1], entries),
            side.opposite_rows.dtype.type(0),
            side.opposite_rows,
            n_factors,
            VECTOR_BYTES // side.opposite_rows.itemsize,
            MAX_CELLS,
            packed,
        )
        gram = np.pad(side.shared_gram, (0, 1)).astype(np.float64)[row, column]
        packed += side.gram_scale[slice(*block), None] * gram
        packed[:, (column == n_factors) & (row < n_factors)] = (
            gradient - ridge * side.rows[slice(*block)]
        )
        solution, minima = np.empty((len(packed), n_factors)), np.empty(len(packed))
        solve_normal_equations(packed, np.full(n_factors, ridge), solution, minima)
        return solution

    @property
    def _score_scale(self) -> float:
        """Scores are multiplied by this: then minus their square is the normal exponent."""
        return float(np.sqrt(0.5 * self.precision))

    def _add_cells(self, side: _Side, block: Range) -> tuple[Matrix, Vector]:
        """Sum p (y - v . w) w for each row of a block, and its log likelihood or else sum p."""
        from unskew.kernels.exposure import multiply_by_exposure

        rows, n_factors = side.rows[slice(*block)], side.rows.shape[1]
        scale, (starts, entries) = self._score_scale, side.cells.cells
        scaled = (scale * rows).astype(side.opposite_rows.dtype, copy=False)
        gradient, sums = np.zeros(rows.shape), np.zeros(len(rows))
        next_click, ends = starts[slice(*block)].copy(), starts[block[0] + 1 : block[1] + 1]
        for opposite in _blocks(len(side.opposite_rows), MAX_OPPOSITE):
            design = side.opposite_rows[slice(*opposite), :n_factors]
            residual = scaled @ design.T
            levels = side.levels.part(block, opposite)
            clicks = next_click, ends, entries
            multiply_by_exposure(residual, levels, clicks, opposite[0], scale, sums)
            gradient -= residual @ design
        return gradient / scale, sums


def _row_blocks(n_rows: int) -> list[Range]:
    return _blocks(n_rows, min(MAX_ROWS, max(MIN_ROWS, -(-n_rows // N_TASKS))))


def _blocks(n: int, size: int) -> list[Range]:
    """Consecutive ranges that do not depend on the number of threads."""
    return [(first, min(first + size, n)) for first in range(0, n, size)]
