"""Multiple robust estimation: right if one of several propensity models or imputations is.

    Rhat = (1 / U I) { sum over all cells of H . eta  +  sum over the log of h (delta - H . eta) }

    H = (1, 1/P^1, ..., 1/P^J, m^1, ..., m^K)      imputed deltas m, inverse propensities, and 1
    eta: least squares of delta on H over the log
    h = a_1 / P^1 + ... + a_J / P^J,   a: least squares of O on P^1, ..., P^J, with sum 1

eta and a of a user come from two other folds of users: a from the previous fold, eta from the rest.
So both are independent of each other and of which cells of the user were observed. If P^j is right,
a has the mean of the j-th unit vector, because it is linear in O; so h has the mean 1 / P, and the
bias is 0 whatever eta is. If m^k is right, eta is the k-th unit vector in the mean, and the errors
delta - H . eta have mean 0 whatever h is.

H. Li, Q. Dai, Y. Li, Y. Lyu, Z. Dong, X.-H. Zhou & P. Wu, *Multiple robust learning for
recommendation*, AAAI 2023, fit eta to the whole log. The second sum is then 0 with h = 1 / P^j for
every j, and the bias vanishes only as the log grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.estimators import ESTIMATORS
from unskew.estimators.estimate import Estimate
from unskew.estimators.observed import Deltas, Imputed, ObservedCells
from unskew.estimators.point import Estimator, refuse_ratio, universe_error
from unskew.estimators.variance import Linearization, measure_contributions
from unskew.types import IndexVector, IntVector, Matrix, Vector

N_FOLDS = 5
MIN_USERS = 3
"""One fold each for the estimate, for eta and for a."""
SMALLEST_DIRECTION = 1e-10
"""Directions of H with a smaller share of its largest singular value are not fitted."""


@dataclass(frozen=True, slots=True, eq=False)
class PropensitySums:
    """Several propensities of the observed cells, and sums over all cells of a user or an item."""

    observed: Matrix
    """Models x observed cells: P."""
    inverse_by_user: Matrix
    """Users x models: sums of 1 / P over all items."""
    inverse_by_item: Matrix
    products_by_user: npt.NDArray[np.float64]
    """Users x models x models: sums of P^j P^k / Pbar over all items; Pbar is the mean of all P."""
    cells_by_user: Vector
    """The number of cells of each user."""
    cells_by_item: Vector

    def take(self, rows: IndexVector) -> PropensitySums:
        """The same with some of the observed cells."""
        return replace(self, observed=self.observed[:, rows])


@dataclass(frozen=True, slots=True, eq=False)
class ModelSums:
    """What multiple robust estimation reads of its propensity models and imputations."""

    propensities: PropensitySums
    imputed: tuple[Imputed, ...]

    def take(self, rows: IndexVector) -> ModelSums:
        """The same with some of the observed cells."""
        imputed = tuple(replace(each, observed=each.observed[:, rows]) for each in self.imputed)
        return ModelSums(self.propensities.take(rows), imputed)

    def combine(self, contrast: Vector) -> ModelSums:
        """Imputed deltas of a contrast of models."""
        return replace(self, imputed=tuple(each.combine(contrast) for each in self.imputed))

    def design(self, model: int) -> tuple[Matrix, Matrix, Matrix]:
        """H of the observed cells (columns), and its sums over all cells by user and by item."""
        sums = self.propensities
        ones = np.ones((1, sums.observed.shape[1]))
        imputed = [each.observed[model] for each in self.imputed]
        return (
            np.vstack([ones, 1.0 / sums.observed, *imputed]),
            np.column_stack(
                [sums.cells_by_user, sums.inverse_by_user]
                + [each.by_user[:, model] for each in self.imputed]
            ),
            np.column_stack(
                [sums.cells_by_item, sums.inverse_by_item]
                + [each.by_item[:, model] for each in self.imputed]
            ),
        )


@ESTIMATORS.declare(
    "mr",
    label="Multiple robust",
    summary="Multiple robust combines several propensity models and several imputations.",
    traits={"order": 10, "color": "c2", "marker": "pentagon", "headline_rank": 7},
)
class MultipleRobust(Estimator):
    """The mean of fitted deltas H . eta plus the weighted mean of their errors.

    Unbiased for independent cells if one of the propensity models or one of the imputations is
    right, and the others can be told apart from it. The interval takes the propensity models as
    known. It leaves out the error of an imputation that was fitted to the log, which matters if
    every propensity model is wrong.
    """

    name = "mr"
    is_weighted = False
    imputes = True
    needs_universe = True
    has_own_models = True

    def estimate(self, deltas: Deltas, cells: ObservedCells) -> Estimate:
        models, universe = self._require_models(deltas, cells)
        rows = range(len(deltas.value))
        fits = [fit_models(models, row, deltas.value[row], cells) for row in rows]
        n_cells = universe.n_cells
        linearization = Linearization(
            np.stack([fit.error for fit in fits]),
            float(n_cells),
            imputed=Imputed(
                np.stack([deltas.value[row] - fits[row].error for row in rows]),
                np.stack([fit.by_user for fit in fits], axis=1),
                np.stack([fit.by_item for fit in fits], axis=1),
            ),
            n_cells=n_cells,
        )
        value = np.array([fit.total for fit in fits]) / n_cells
        # Propensities would shrink the variance of a cell by 1 - P, and none is sure to be right.
        plain = replace(cells, propensities=None)
        estimate = Estimate(value, np.zeros((value.size, value.size)))
        contributions = np.stack([fit.contribution for fit in fits])
        covariance, moments = measure_contributions(
            contributions, linearization, None, plain, estimate
        )
        sizes = [cells.clusters_of(unit).n for unit in cells.units]
        estimate = Estimate(
            value,
            covariance,
            n_clusters=min(sizes, default=None),
            moments=moments,
            bounds=deltas.bounds,
            no_interval=next(
                (each.no_interval for each in models.imputed if each.no_interval), None
            ),
        )
        return estimate.take_root() if deltas.is_root else estimate

    def _require_models(self, deltas: Deltas, cells: ObservedCells) -> tuple[ModelSums, Universe]:
        """The models and the universe, if this estimator can be computed from them."""
        refuse_ratio(self.name, is_ratio=deltas.base is not None or deltas.is_mean_of_users)
        models = deltas.models
        if models is None:
            raise UsageError(
                "'mr' needs several propensity models and imputations.",
                parameter="model_set",
                remedy="Pass `model_set=ModelSet(propensities=[...], imputations=[...])`.",
                shell_remedy="The command line has no such models: use `estimators=['snips']`, or "
                "call unskew.evaluate(..., model_set=...) in Python.",
            )
        if cells.universe is None:
            raise universe_error(self.name)
        if cells.users.resampling is not None:
            raise UsageError(
                "'mr' has no bootstrap interval.",
                parameter="bootstrap",
                remedy="Leave `bootstrap` out: the interval without it also includes the error of "
                "combining the models.",
            )
        if cells.users.n < MIN_USERS:
            raise UsageError(
                f"'mr' needs at least {MIN_USERS} users; got {cells.users.n}.",
                parameter="estimators",
                remedy="Use 'dr'.",
            )
        return models, cells.universe


@dataclass(frozen=True, slots=True, eq=False)
class ModelFit:
    """The fitted deltas of one model."""

    total: float
    """U I times the estimate."""
    error: Vector
    """Delta minus H . eta of each observed cell."""
    contribution: Vector
    """What the error of each cell contributes to the total, to first order."""
    by_user: Vector
    """Sums of H . eta over all cells of each user."""
    by_item: Vector


def fit_models(models: ModelSums, row: int, delta: Vector, cells: ObservedCells) -> ModelFit:
    """Fit eta and a to other folds of users than those they are applied to.

    An error of eta moves the total by  (sum over all cells of H - sum over the log of h H), so the
    error of a cell contributes with the weight  h + (that difference) (sum H H')^-1 H.
    """
    design, by_user, by_item = models.design(row)
    user, n_users = cells.users.code, cells.users.n
    n_folds = min(N_FOLDS, n_users)
    fold = assign_folds(n_users, n_folds)
    fold_of_cell = fold[user]
    eta = np.stack(
        [
            fit_deltas(
                design, delta, (fold_of_cell != each) & (fold_of_cell != (each - 1) % n_folds)
            )
            for each in range(n_folds)
        ]
    )
    weight = mix_weights(models.propensities, user, fold, n_folds)
    error = delta - np.einsum("nk,kn->n", eta[fold_of_cell], design)
    fitted_by_user = np.einsum("uk,uk->u", eta[fold[: len(by_user)]], by_user)
    fitted_by_item = by_item @ eta.mean(axis=0)
    total = float(fitted_by_user.sum())
    fitted_by_item += (total - fitted_by_item.sum()) / fitted_by_item.size
    gap = by_user.sum(axis=0) - design @ weight
    scale = _column_scale(design)
    scaled = design / scale[:, None]
    inverse = np.linalg.pinv(scaled @ scaled.T, rcond=SMALLEST_DIRECTION, hermitian=True)
    effective = weight + (inverse @ (gap / scale)) @ scaled
    return ModelFit(
        total + float(weight @ error), error, effective * error, fitted_by_user, fitted_by_item
    )


def assign_folds(n_users: int, n_folds: int) -> IntVector:
    """The fold of each user: random, and the same for every estimate."""
    return (np.random.default_rng(0).permutation(n_users) % n_folds).astype(np.int32)


def fit_deltas(design: Matrix, delta: Vector, is_used: npt.NDArray[np.bool_]) -> Vector:
    """eta: least squares over the cells that are used; the smallest one if there are several."""
    rows = design[:, is_used]
    if not rows.size:
        return np.zeros(len(design))
    scale = _column_scale(rows)
    eta = np.linalg.lstsq(rows.T / scale, delta[is_used], rcond=SMALLEST_DIRECTION)[0]
    return np.asarray(eta / scale, dtype=np.float64)


def mix_weights(
    propensities: PropensitySums, user: IntVector, fold: IntVector, n_folds: int
) -> Vector:
    """h of each observed cell: 1 / P times the a of the fold before that of its user."""
    observed = propensities.observed
    n_models, n_users = len(observed), len(propensities.products_by_user)
    share = observed / observed.mean(axis=0)
    seen = np.stack([np.bincount(user, row, minlength=n_users) for row in share], axis=1)
    mixtures = np.empty((n_folds, n_models))
    for each in range(n_folds):
        is_used = fold[:n_users] == (each - 1) % n_folds
        products = propensities.products_by_user[is_used].sum(axis=0)
        mixtures[each] = mix_propensities(products, seen[is_used].sum(axis=0))
    weight: Vector = np.einsum("nj,jn->n", mixtures[fold[user]], 1.0 / observed)
    return weight


def mix_propensities(products: Matrix, seen: Vector) -> Vector:
    """a with sum 1 that minimises  sum over all cells of (O - sum_j a_j P^j)^2 / Pbar.

    ``products`` are sums of P^j P^k / Pbar over all cells, ``seen`` of P^j / Pbar over the log.
    """
    n_models = len(products)
    contrast = np.hstack([-np.ones((n_models - 1, 1)), np.eye(n_models - 1)])
    normal = contrast @ products @ contrast.T
    right = contrast @ (seen - products[:, 0])
    rest: Vector = np.linalg.pinv(normal, rcond=SMALLEST_DIRECTION, hermitian=True) @ right
    return np.concatenate([[1.0 - rest.sum()], rest])


def _column_scale(design: Matrix) -> Vector:
    """The root mean square of each row of H, 1 where it is 0."""
    scale: Vector = np.sqrt(np.mean(np.square(design), axis=1, dtype=np.float64))
    return np.where(scale > 0, scale, 1.0)
