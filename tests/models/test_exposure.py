"""ExpoMF: Bayes' rule cell by cell, a dense twin, and data of its own kind."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization.objective import SortedCells
from unskew.kernels.exposure import multiply_by_exposure
from unskew.models import exposure as steps
from unskew.models.exposure import ExposureFactorization, ExposureParameters, ExposureSolver
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.threads import Workers

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")


def some_clicks(seed: int = 0, shape: tuple[int, int] = (14, 11)) -> Ratings:
    rng = np.random.default_rng(seed)
    seen = rng.random(shape) < 0.3
    seen[0], seen[:, -1] = False, False
    user, item = np.nonzero(seen)
    return Ratings.from_codes(user, item, rng.integers(1, 6, user.size), shape=shape)


LOG = some_clicks()


@dataclass(frozen=True)
class Dense:
    """The same model with one density, one ridge regression and one Bayes rule at a time."""

    clicked: np.ndarray
    precision: float
    l2: float
    prior: tuple[float, float]

    def density(self, y: float, mean: float) -> float:
        return float(norm.pdf(y, mean, 1 / np.sqrt(self.precision)))

    def chance(self, users: np.ndarray, items: np.ndarray, exposure: np.ndarray) -> np.ndarray:
        chance = np.ones(self.clicked.shape)
        for u, i in np.argwhere(~self.clicked):
            seen = exposure[i] * self.density(0.0, users[u] @ items[i])
            chance[u, i] = seen / (seen + 1 - exposure[i])
        return chance

    def em_step(
        self, users: np.ndarray, items: np.ndarray, exposure: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """EM as published: the best users and items for the same probabilities."""
        chance, ridge = (
            self.chance(users, items, exposure),
            self.l2 / self.precision * np.eye(items.shape[1]),
        )
        new_users = [
            np.linalg.solve((items * p[:, None]).T @ items + ridge, items.T @ (p * y))
            for p, y in zip(chance, self.clicked, strict=True)
        ]
        x = np.array(new_users)
        new_items = [
            np.linalg.solve((x * p[:, None]).T @ x + ridge, x.T @ (p * y))
            for p, y in zip(chance.T, self.clicked.T, strict=True)
        ]
        a, b = self.prior
        return x, np.array(new_items), (a - 1 + chance.sum(axis=0)) / (a + b - 2 + len(x))

    def bounded_step(
        self, rows: np.ndarray, opposite: np.ndarray, chance: np.ndarray, largest: np.ndarray
    ) -> np.ndarray:
        """One side: v + H^-1 gradient with the bound H, one row at a time."""
        ridge = self.l2 / self.precision * np.eye(rows.shape[1])
        clicked = self.clicked if len(rows) == len(self.clicked) else self.clicked.T
        new = []
        for v, p, y, c in zip(rows, chance, clicked, largest, strict=True):
            hessian = (opposite * np.where(y, 1, c)[:, None]).T @ opposite + ridge
            gradient = opposite.T @ (p * (y - opposite @ v)) - ridge @ v
            new.append(v + np.linalg.solve(hessian, gradient))
        return np.array(new)

    def step(
        self, users: np.ndarray, items: np.ndarray, exposure: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        seen = exposure * self.density(0.0, 0.0)
        largest = np.broadcast_to(seen / (seen + 1 - exposure), self.clicked.shape)
        users = self.bounded_step(users, items, self.chance(users, items, exposure), largest)
        chance, (a, b) = self.chance(users, items, exposure), self.prior
        items = self.bounded_step(items, users, chance.T, largest.T)
        return users, items, (a - 1 + chance.sum(axis=0)) / (a + b - 2 + len(users))

    def objective(self, users: np.ndarray, items: np.ndarray, exposure: np.ndarray) -> float:
        total = 0.5 * self.l2 * float(np.square(users).sum() + np.square(items).sum())
        for u, i in np.ndindex(self.clicked.shape):
            seen = exposure[i] * self.density(float(self.clicked[u, i]), users[u] @ items[i])
            total -= np.log(seen if self.clicked[u, i] else seen + 1 - exposure[i])
        a, b = self.prior
        return total - float(((a - 1) * np.log(exposure) + (b - 1) * np.log(1 - exposure)).sum())


def dense(log: Ratings, model: ExposureFactorization) -> Dense:
    clicked = np.zeros((log.n_users, log.n_items), bool)
    clicked[log.user, log.item] = (
        model.relevance_threshold is None or log.rating >= model.relevance_threshold
    )
    return Dense(clicked, model.precision, model.prior_precision, model.prior)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"precision": 4.0, "prior_precision": 0.3, "exposure": 0.2, "prior": (2.0, 5.0)},
    {"relevance_threshold": 3, "prior_precision": 0.01, "exposure": 0.5},
]


@pytest.mark.parametrize("precision", [0.5, 1.0, 9.0])
def test_the_chance_of_exposure_is_bayes_rule_with_a_density_that_integrates_to_one(
    precision: float,
) -> None:
    """The density p(y | A = 1), recovered from exposure probabilities, integrates to one."""
    one = SortedCells.of(
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
        np.ones(1),
        np.ones(1),
        shape=(2, 2),
        dtype="float64",
    )
    mu = np.array([0.3, 0.3])
    with Workers(1) as workers:
        solver = ExposureSolver(one, one, precision, 0.1, (1.0, 1.0), workers)

        def density(score: float) -> float:
            scaled = np.full((1, 1), np.sqrt(0.5 * precision) * score)
            nobody = np.zeros(1, np.int64), np.zeros(1, np.int64), one.entries
            levels = np.zeros(1), solver._log_odds(mu)[1:], np.empty(0), np.empty(0)
            chances = np.zeros(1)
            multiply_by_exposure(scaled, levels, nobody, 0, 1.0, chances)
            chance = float(chances[0])
            return chance / (1 - chance) * 0.7 / 0.3

        assert quad(density, -10, 10)[0] == pytest.approx(1, abs=1e-8)
        assert density(0.4) == pytest.approx(norm.pdf(0, 0.4, 1 / np.sqrt(precision)))


def test_the_order_of_the_log_does_not_matter() -> None:
    """Clicks of a user in any order, with several blocks of items."""
    log = some_clicks(shape=(30, 600))
    order = np.random.default_rng(1).permutation(len(log))

    plain, shuffled = (
        ExposureFactorization(3, max_iter=4).fit(each) for each in (log, log.take(order))
    )

    assert plain.history_ == shuffled.history_


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("rows", "opposite_rows"), [(64, 256), (5, 4)])
def test_every_step_is_that_of_the_dense_twin(
    settings: dict[str, Any],
    rows: int,
    opposite_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steps, "MIN_ROWS", rows)
    monkeypatch.setattr(steps, "MAX_OPPOSITE", opposite_rows)
    model = ExposureFactorization(3, **settings, tol=0.0, max_iter=3).fit(LOG)
    twin, start = dense(LOG, model), model._make_start(LOG, None)
    at = start.factors.user_factors, start.factors.item_factors, start.exposure

    objectives = [twin.objective(*at)]
    for _ in range(3):
        at = twin.step(*at)
        objectives.append(twin.objective(*at))

    assert model.history_ == pytest.approx(objectives, rel=1e-10)
    np.testing.assert_allclose(model.factors_.user_factors, at[0], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(model.factors_.item_factors, at[1], rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(model.exposure_, at[2], rtol=1e-9)


@pytest.mark.parametrize(("n_users", "n_items"), [(6000, 8), (8, 6000)])
def test_memory_stays_bounded_where_the_opposite_side_is_short_and_factors_many(
    n_users: int, n_items: int
) -> None:
    """The normal matrices of 6,000 rows are 77 MB; those of a block, with all else, are a few."""
    log = some_clicks(shape=(n_users, n_items))
    model = ExposureFactorization(40, max_iter=1, n_threads=1)
    model.fit(some_clicks())
    tracemalloc.start()
    try:
        model.fit(log)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 40e6


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_steps_end_where_em_ends(settings: dict[str, Any]) -> None:
    model = ExposureFactorization(2, **settings | {"prior_precision": 0.3}, tol=0.0, max_iter=400)
    twin, start = dense(LOG, model), model._make_start(LOG, None)
    at = start.factors.user_factors, start.factors.item_factors, start.exposure
    for _ in range(400):
        at = twin.em_step(*at)

    model.fit(LOG)

    assert model.objective_ <= twin.objective(*at) * (1 + 1e-6)
    assert max(np.diff(model.history_)) <= 1e-9 * abs(model.objective_)


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    log = some_clicks(shape=(300, 290))
    one, two = (ExposureFactorization(4, max_iter=5, n_threads=n).fit(log) for n in (1, 2))

    assert one.history_ == two.history_
    np.testing.assert_array_equal(one.factors_.user_factors, two.factors_.user_factors)


@pytest.mark.parametrize("precision", [1.0, 900.0])
def test_the_likelihood_keeps_its_digits_at_far_scores_and_certain_exposure(
    precision: float,
) -> None:
    """With mu = 1 the density at a far score underflows, but its logarithm does not."""
    log = Ratings.from_dense(np.array([[1.0, 0.0], [0.0, 0.0]]))
    model = ExposureFactorization(1, precision=precision)
    with Workers(1) as workers:
        solver = model._make_solver(log, None, workers)
        at = Factors(
            np.array([[1.0], [50.0]]), np.array([[1.0], [-1.0]]), np.zeros(2), np.zeros(2), 0.0
        )
        value = solver.start(ExposureParameters(at, np.array([1.0, 1.0]))).value

    squares = 0.5 * precision * (1 + 2 * 50**2)
    assert value == pytest.approx(
        squares
        - 2 * np.log(precision / (2 * np.pi))
        + 0.5 * model.prior_precision * (2 + 1 + 50**2),
        rel=1e-12,
    )


def test_the_fit_is_a_stationary_point_of_the_posterior() -> None:
    settings = {"precision": 2.0, "prior_precision": 0.5, "exposure": 0.2, "prior": (2.0, 3.0)}
    model = ExposureFactorization(2, **settings, tol=1e-15, max_iter=20_000).fit(LOG)  # type: ignore[arg-type]
    twin, found, rng = dense(LOG, model), model.factors_, np.random.default_rng(0)

    for _ in range(6):
        to = [
            rng.normal(size=part.shape)
            for part in (found.user_factors, found.item_factors, model.exposure_)
        ]
        values = [
            twin.objective(
                found.user_factors + h * to[0],
                found.item_factors + h * to[1],
                model.exposure_ + 0.01 * h * to[2],
            )
            for h in (1e-4, -1e-4)
        ]
        assert (values[0] - values[1]) / 2e-4 == pytest.approx(0, abs=1e-4)


def test_propensities_are_refused_with_a_reason() -> None:
    with pytest.raises(UsageError, match="takes no propensities: it estimates exposure itself"):
        ExposureFactorization().fit(LOG, np.full(len(LOG), 0.5))


def test_exposure_at_its_limits_is_no_trouble() -> None:
    """mu is 1 for an item that everybody clicked, and goes to 0 for one that nobody did."""
    clicked = np.zeros((6, 3))
    clicked[:, 0], clicked[:3, 1] = 1, 1
    model = ExposureFactorization(1, tol=0.0, max_iter=1200).fit(Ratings.from_dense(clicked))

    assert model.exposure_[0] == 1
    assert model.exposure_[2] == 0
    assert np.isfinite(model.history_).all()
    found = ExposureParameters(model.factors_, np.array([1.0, 0.5, 0.0]))
    side = SortedCells.of(
        np.arange(6, dtype=np.int32),
        np.zeros(6, np.int32),
        np.ones(6),
        np.ones(6),
        shape=(6, 3),
        dtype="float64",
    )
    other = SortedCells.of(
        np.zeros(6, np.int32),
        np.arange(6, dtype=np.int32),
        np.ones(6),
        np.ones(6),
        shape=(3, 6),
        dtype="float64",
    )
    with Workers(1) as workers:
        assert np.isfinite(
            ExposureSolver(side, other, 1.0, 0.1, (1.0, 1.0), workers).start(found).value
        )


@pytest.mark.filterwarnings("ignore:all .* ratings are 1:unskew.errors.UnskewWarning")
def test_silence_of_those_who_did_not_see_is_not_held_against_an_item() -> None:
    """Data drawn from the model: relevant items without a click are ranked first."""
    rng = np.random.default_rng(0)
    likes = rng.random((4, 100)) < 0.35
    score = likes[rng.integers(0, 4, 400)].astype(float)
    mu = rng.beta(1, 2, 100)
    clicked = (rng.random(score.shape) < mu) & (score > 0)
    log = Ratings.from_dense(clicked.astype(float))

    def hits(fitted: Any) -> float:
        """Precision at 10 over the cells that were not clicked."""
        found = fitted.factors_
        scores = (
            found.user_factors @ found.item_factors.T
            + found.user_offset[:, None]
            + found.item_offset
        )
        best = np.argsort(-np.where(clicked, -np.inf, scores), axis=1, kind="stable")[:, :10]
        return float(np.take_along_axis(score, best, axis=1).mean())

    model = ExposureFactorization(5, 0.3, exposure=0.3).fit(log)

    given = np.maximum(mu, 0.01)[log.item]
    rivals = [MatrixFactorization(5, l2).fit(log, p) for l2 in (0.1, 1.0) for p in (None, given)]
    assert hits(model) > 0.95
    assert max(map(hits, rivals)) < 0.7
    assert np.corrcoef(model.exposure_, mu)[0, 1] > 0.5
