from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from unskew.data.estimation import Correction, Strata
from unskew.data.logit_terms import CellTerms
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.score_estimation import Margins, Offsets, Score, find_inverse_bias
from unskew.loading import load
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.model import PropensityModel
from unskew.propensity.popularity import PopularityPropensity
from unskew.types import IntVector, Matrix, Vector

N_USERS, N_ITEMS = 30, 20
RNG = np.random.default_rng(3)
USER_FEATURES = RNG.normal(size=(N_USERS, 2))
ITEM_FEATURES = np.column_stack([RNG.normal(size=N_ITEMS), np.arange(N_ITEMS) % 2])
TOL = 1e-9
ALL = slice(None)

MODELS: dict[str, Callable[[], PropensityModel]] = {
    "score": lambda: logistic(0.0, item_offsets=False),
    "score with a penalty": lambda: logistic(3.0, item_offsets=False, interactions="all"),
    "item offsets": lambda: logistic(0.5),
    "offsets": lambda: logistic(1.0, user_offsets=True),
    "offsets and covariates": lambda: logistic(1.0, user_offsets=True, interactions="none"),
    "offsets alone": lambda: LogisticPropensity(user_offsets=True, ridge=0.3, tol=TOL),
    "margins": lambda: PopularityPropensity("both"),
}


def logistic(
    ridge: float, *, user_offsets: bool = False, item_offsets: bool = True, **settings: object
) -> LogisticPropensity:
    return LogisticPropensity(
        USER_FEATURES,
        ITEM_FEATURES,
        ridge=ridge,
        user_offsets=user_offsets,
        item_offsets=item_offsets,
        tol=TOL,
        **{"interactions": "user-item", **settings},  # type: ignore[arg-type]
    )


def draw_log(level: float = -0.8, spread: float = 0.7) -> Ratings:
    rng = np.random.default_rng(1)
    effects = rng.normal(0, spread, N_USERS)[:, None] + rng.normal(0, spread, N_ITEMS)
    logit = level + effects + 0.5 * USER_FEATURES[:, :1] + 0.4 * ITEM_FEATURES[:, 0]
    is_observed = rng.random((N_USERS, N_ITEMS)) < expit(logit)
    for shift in (0, 7):  # at least two cells of each user and item
        is_observed[np.arange(N_USERS), (np.arange(N_USERS) + shift) % N_ITEMS] = True
    ratings = np.where(is_observed, rng.integers(1, 6, is_observed.shape), 0)
    return Ratings.from_dense(ratings)


LOG, THIN_LOG = draw_log(), draw_log(level=-2.5, spread=0.1)
DELTA = np.random.default_rng(5).gamma(2.0, size=(2, len(LOG)))


def correct(propensities: Propensities, residual: Matrix) -> Correction:
    estimation, weight = propensities.estimation, propensities.inverse
    assert estimation is not None
    weight_derivative = (
        weight if estimation.fixed is None else np.where(estimation.fixed, 0.0, weight)
    )
    return estimation.correct(residual, weight, weight_derivative)


def residual_of(kind: str, delta: Matrix, weight: Vector) -> tuple[Matrix, float]:
    if kind == "ips":
        return delta, float(N_USERS * N_ITEMS)
    risk = (delta * weight).sum(axis=1, keepdims=True) / weight.sum()
    return delta - risk, float(weight.sum())


def dense_terms(model: LogisticPropensity) -> Matrix:
    """Users x items x (terms, user offsets, item offsets), written without CellTerms."""
    user, item = model.user_design_[model.user_profile_], model.item_design_[model.item_profile_]
    a, b = model.n_crossed_
    rows = []
    for u in range(N_USERS):
        for i in range(N_ITEMS):
            crossed = np.outer(user[u, :a], item[i, :b]).ravel()
            offsets = [
                np.eye(N_USERS)[u] if model.user_offsets else np.empty(0),
                np.eye(N_ITEMS)[i] if model.item_offsets else np.empty(0),
            ]
            rows.append(np.concatenate([[1.0], user[u], item[i], crossed, *offsets]))
    return np.array(rows).reshape(N_USERS, N_ITEMS, -1)


def dense_propensities(model: PropensityModel) -> Matrix:
    users, items = np.meshgrid(model.users_, model.items_, indexing="ij")
    return model.predict_pairs(users.ravel(), items.ravel()).reshape(users.shape)


# The influence of a cell is the derivative of the refitted estimate by the weight of the cell.


def fit_logistic(terms: Matrix, weight: Matrix) -> Matrix:
    """P of all cells by Newton's method, if cell (u, i) was observed ``weight`` times."""
    flat, target = terms.reshape(-1, terms.shape[2]), weight.ravel()
    coefficient = np.zeros(flat.shape[1])
    for _ in range(9):
        propensity = expit(flat @ coefficient)
        hessian = (flat * (propensity * (1 - propensity))[:, None]).T @ flat
        gradient = flat.T @ (target - propensity)
        coefficient += np.linalg.lstsq(hessian, gradient, rcond=1e-12)[0]
    return expit(flat @ coefficient).reshape(weight.shape)


def fit_margins(weight: Matrix) -> Matrix:
    """min(1, k n_u n_i), whose sum is the number of ratings."""
    product = np.outer(weight.sum(axis=1), weight.sum(axis=0))
    product = product / product.max()
    scale = brentq(lambda k: np.minimum(1, k * product).sum() - weight.sum(), 1e-9, 1e9, xtol=1e-14)
    return np.minimum(1.0, scale * product)


def estimate(kind: str, log: Ratings, delta: Vector, weight: Matrix, propensity: Matrix) -> float:
    weights = weight[log.user, log.item] / propensity[log.user, log.item]
    total = N_USERS * N_ITEMS if kind == "ips" else weights.sum()
    return float(weights @ delta) / float(total)


def derivatives(
    kind: str, log: Ratings, delta: Vector, fit: Callable[[Matrix], Matrix], cells: IntVector
) -> Vector:
    weight, step = np.zeros((N_USERS, N_ITEMS)), 1e-4
    weight[log.user, log.item] = 1.0
    values = []
    for cell in cells:
        sides = []
        for sign in (1, -1):
            changed = weight.copy()
            changed[log.user[cell], log.item[cell]] += sign * step
            sides.append(estimate(kind, log, delta, changed, fit(changed)))
        values.append((sides[0] - sides[1]) / (2 * step))
    return np.array(values)


@pytest.mark.parametrize("kind", ["ips", "snips"])
@pytest.mark.parametrize("name", ["score", "item offsets alone", "margins", "capped margins"])
def test_the_influence_of_a_cell_is_the_derivative_of_the_refitted_estimate(
    name: str, kind: str
) -> None:
    log = THIN_LOG if name == "margins" else LOG
    model: PropensityModel = {
        "score": logistic(0.0, item_offsets=False),
        "item offsets alone": LogisticPropensity(ridge=0.0, tol=TOL),
    }.get(name, PopularityPropensity("both"))
    fit = fit_margins
    propensities = model.fit(log, universe="log").predict(log)
    if isinstance(model, LogisticPropensity):
        terms = dense_terms(model)

        def fit(weight: Matrix) -> Matrix:
            return fit_logistic(terms, weight)

    delta = DELTA[:, : len(log)]
    residual, normalizer = residual_of(kind, delta, propensities.inverse)
    correction = correct(propensities, residual)
    influence = (residual * propensities.inverse - correction.score_of(ALL)) / normalizer
    cells = np.arange(0, len(log), 9, dtype=np.int32)
    numerical = derivatives(kind, log, delta[0], fit, cells)

    assert propensities.estimation is not None
    assert (propensities.estimation.fixed is not None) == (name == "capped margins")
    assert influence[0, cells] == pytest.approx(numerical, rel=1e-5, abs=1e-9)


def test_offsets_of_both_sides_have_nearly_the_influence_of_the_exact_information() -> None:
    """The log estimates the information matrix; the exact one gives the derivative exactly.

    Single cells differ by some percent of the largest influence, and the variance hardly.
    """
    rng = np.random.default_rng(8)
    is_observed = rng.random((N_USERS, N_ITEMS)) < 0.6
    log = Ratings.from_dense(is_observed * 3.0)
    model = LogisticPropensity(user_offsets=True, ridge=0.0, tol=TOL).fit(log, universe="log")
    propensities, delta = model.predict(log), rng.gamma(2.0, size=(1, len(log)))
    residual, normalizer = residual_of("snips", delta, propensities.inverse)
    correction = correct(propensities, residual)
    influence = (residual * propensities.inverse - correction.score_of(ALL))[0] / normalizer
    terms, cells = dense_terms(model), np.arange(0, len(log), 40, dtype=np.int32)
    numerical = derivatives("snips", log, delta[0], lambda w: fit_logistic(terms, w), cells)

    propensity = dense_propensities(model)
    information = np.einsum("ui,uij,uik->jk", propensity * (1 - propensity), terms, terms)
    observed, uncertainty = terms[log.user, log.item], 1 - propensities.values
    target = residual[0] * propensities.inverse
    gradient = (target * uncertainty) @ observed
    coefficient = observed @ np.linalg.pinv(information, rcond=1e-12) @ gradient
    exact = (target - coefficient) / normalizer
    assert exact[cells] == pytest.approx(numerical, rel=1e-4, abs=1e-8)
    assert np.abs(influence[cells] - numerical).max() < 0.1 * np.abs(numerical).max()
    assert np.corrcoef(influence[cells], numerical)[0, 1] > 0.99
    variances = [uncertainty @ np.square(each) for each in (influence, exact)]
    assert variances[0] == pytest.approx(variances[1], rel=0.02)


# Special cases and slow twins.


def test_a_score_with_group_indicators_is_a_stratum_for_each_group() -> None:
    group = np.arange(N_ITEMS) % 3
    model = LogisticPropensity(
        None, np.eye(3)[group][:, 1:], item_offsets=False, interactions="none", ridge=0, tol=1e-12
    )
    propensities = model.fit(LOG, universe="log").predict(LOG)
    of_cell = group[LOG.item].astype(np.int32)
    count = np.bincount(of_cell).astype(float)
    strata = Strata(
        model="groups",
        group=of_cell,
        n_observed=count,
        propensity=count / (N_USERS * np.bincount(group)),
        kind="item",
    )
    residual, weight = DELTA, propensities.inverse
    by_score, by_strata = correct(propensities, residual), strata.correct(residual, weight, weight)

    assert isinstance(propensities.estimation, Score)
    assert by_score.score_of(ALL) == pytest.approx(by_strata.score_of(ALL), rel=1e-6)
    assert by_score.bias == pytest.approx(np.zeros(2), abs=1e-4)
    rows = np.arange(0, len(LOG), 2, dtype=np.int32)
    parts = (
        correct(propensities.take(rows), residual[:, rows]),
        strata.take(rows).correct(residual[:, rows], weight[rows], weight[rows]),
    )
    assert parts[0].reduction == pytest.approx(parts[1].reduction, rel=1e-6)


@pytest.mark.parametrize("name", ["item offsets", "offsets", "offsets alone"])
def test_the_variance_of_the_residuals_is_a_schur_complement(name: str) -> None:
    """sum (1 - P) (h e - B's)^2 = sum (1 - P) (h e)^2 - b' A^-1 b, with A from the log."""
    propensities = MODELS[name]().fit(LOG, universe="log").predict(LOG)
    uncertainty, target = 1 - propensities.values, DELTA * propensities.inverse
    score = correct(propensities, DELTA).score_of(ALL)
    is_singleton = np.isclose(score, target).all(axis=0)
    score, target, uncertainty = (part[..., ~is_singleton] for part in (score, target, uncertainty))

    within = (target - score) * uncertainty @ (target - score).T
    complement = target * uncertainty @ target.T - target * uncertainty @ score.T

    assert within == pytest.approx(complement, rel=1e-8)


@pytest.mark.parametrize(
    "name", ["item offsets", "offsets", "offsets and covariates", "offsets alone"]
)
def test_offsets_are_dense_weighted_least_squares(name: str) -> None:
    model = MODELS[name]().fit(LOG, universe="log")
    propensities = model.predict(LOG)
    assert isinstance(model, LogisticPropensity)
    terms = dense_terms(model)[LOG.user, LOG.item]
    root = np.sqrt(1 - propensities.values)
    target = DELTA * propensities.inverse
    coefficients = np.linalg.lstsq(terms * root[:, None], (target * root).T, rcond=1e-12)[0]
    correction = correct(propensities, DELTA)
    excess = np.concatenate([model.term_excess_, model.user_excess_, model.item_excess_])

    assert isinstance(propensities.estimation, Offsets)
    assert propensities.estimation.leverage_power == 1.5
    assert correction.score_of(ALL) == pytest.approx((terms @ coefficients).T, rel=1e-6, abs=1e-6)
    assert correction.bias == pytest.approx(excess @ coefficients, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "n_free"),
    [("item offsets", 6), ("offsets", 4), ("offsets and covariates", 0), ("offsets alone", 0)],
)
def test_terms_that_offsets_can_replace_are_not_solved_for(name: str, n_free: int) -> None:
    """Left are products of two covariates, and users' covariates if only items have offsets."""
    estimation = MODELS[name]().fit(LOG, universe="log").predict(LOG).estimation
    assert isinstance(estimation, Offsets)
    coefficients = estimation._equations.solve(DELTA, 1 / (1 - estimation.uncertainty))
    index = estimation._equations.term_index

    assert len(estimation._equations.terms) == n_free
    assert not np.delete(coefficients.terms, index, axis=1).any()
    assert (coefficients.terms[:, index] != 0).all()


@pytest.mark.parametrize("name", ["item offsets", "offsets", "offsets and covariates"])
def test_users_and_items_without_ratings_get_offsets_that_cancel_their_scores(name: str) -> None:
    """The observed cells do not determine their B: sum w B's = 0 over the other side's weights."""
    is_kept = (LOG.user >= 3) & (LOG.item != 4)
    log = LOG.take(np.flatnonzero(is_kept)).with_universe((N_USERS, N_ITEMS))
    model = MODELS[name]().fit(log)
    estimation = model.predict(log).estimation
    assert isinstance(model, LogisticPropensity)
    assert isinstance(estimation, Offsets)
    found = estimation._equations.solve(DELTA[:, : len(log)], 1 / (1 - estimation.uncertainty))
    coefficients = np.hstack([found.terms, found.user, found.item])
    scores = np.einsum("uit,kt->kui", dense_terms(model), coefficients)
    by_item = np.bincount(log.item, estimation.uncertainty, N_ITEMS)
    by_user = np.bincount(log.user, estimation.uncertainty, N_USERS)

    assert by_item[4] == by_user[:3].sum() == 0
    assert np.abs(by_user @ scores[:, :, 4].T).max() < 1e-9 * np.abs(scores).sum()
    if model.user_offsets:
        assert np.abs(scores[:, :3] @ by_item).max() < 1e-9 * np.abs(scores).sum()


@pytest.mark.parametrize("kind", ["ips", "snips"])
def test_other_units_of_the_covariates_change_nothing(kind: str) -> None:
    """A regular linear transformation of the scores s, without a penalty."""
    mixed = USER_FEATURES @ [[2.0, 1.0], [-1.0, 3.0]]
    covariances = []
    for features in (USER_FEATURES, mixed):
        model = LogisticPropensity(
            features, ITEM_FEATURES, ridge=0.0, item_offsets=False, interactions="none", tol=1e-12
        )
        propensities = model.fit(LOG, universe="log").predict(LOG)
        residual, normalizer = residual_of(kind, DELTA, propensities.inverse)
        contributions = residual * propensities.inverse
        correct(propensities, residual).correct_rows(contributions, ALL)
        covariances.append(contributions @ contributions.T / normalizer**2)

    assert covariances[1] == pytest.approx(covariances[0], rel=1e-8)


@pytest.mark.parametrize("name", MODELS)
def test_expected_scores_are_sums_over_all_cells(name: str) -> None:
    model = MODELS[name]().fit(LOG, universe="log")
    propensity, propensities = dense_propensities(model), model.predict(LOG)
    correction = correct(propensities, DELTA)
    terms = (
        dense_terms(model)
        if isinstance(model, LogisticPropensity)
        else np.dstack(
            [
                np.broadcast_to(np.eye(N_USERS)[:, None], (N_USERS, N_ITEMS, N_USERS)),
                np.broadcast_to(np.eye(N_ITEMS)[None], (N_USERS, N_ITEMS, N_ITEMS)),
            ]
        )
    )
    observed = terms[LOG.user, LOG.item]
    coefficients = np.linalg.lstsq(observed, correction.score_of(ALL).T, rcond=1e-12)[0]
    dense = (propensity[..., None] * terms) @ coefficients

    assert correction.score_of(ALL) == pytest.approx(
        (observed @ coefficients).T, rel=1e-6, abs=1e-6
    )
    assert correction.expected_by("user") == pytest.approx(dense.sum(axis=1), rel=1e-5)
    assert correction.expected_by("item") == pytest.approx(dense.sum(axis=0), rel=1e-5)


def test_the_information_is_the_sum_over_all_cells() -> None:
    model = logistic(2.0, item_offsets=False, interactions="all").fit(LOG, universe="log")
    estimation = model.predict(LOG).estimation
    assert isinstance(estimation, Score)
    terms, propensity = dense_terms(model), dense_propensities(model)
    dense = np.einsum("ui,uij,uik->jk", propensity * (1 - propensity), terms, terms)

    assert estimation.grid.information == pytest.approx(dense)
    assert estimation.grid.n_parameters == np.linalg.matrix_rank(dense)


def test_the_bias_of_a_penalty_is_removed_to_first_order() -> None:
    """The corrected estimate hardly depends on a small penalty, the plain one does."""
    values = {}
    for ridge in (0.0, 0.5):
        propensities = logistic(ridge, item_offsets=False).fit(LOG, universe="log").predict(LOG)
        plain = (DELTA * propensities.inverse).sum(axis=1)
        values[ridge] = plain, plain - correct(propensities, DELTA).bias
    change_of_plain, change_of_corrected = (
        np.abs(one - other) for one, other in zip(values[0.5], values[0.0], strict=True)
    )

    assert (change_of_corrected < 0.1 * change_of_plain).all()


def one_step_estimate(
    terms: Matrix, log: Ratings, delta: Vector, weight: Matrix, ridge: float
) -> float:
    """IPS with penalised propensities, minus B' sum (O - P) s / C, written densely."""
    flat, target = terms.reshape(-1, terms.shape[2]), weight.ravel()
    penalty = np.full(flat.shape[1], ridge)
    penalty[0] = 0.0
    coefficient = np.zeros(flat.shape[1])
    for _ in range(12):
        propensity = expit(flat @ coefficient)
        hessian = (flat * (propensity * (1 - propensity))[:, None]).T @ flat + np.diag(penalty)
        gradient = flat.T @ (target - propensity) - penalty * coefficient
        coefficient += np.linalg.solve(hessian, gradient)
    propensity = expit(flat @ coefficient)
    information = (flat * (propensity * (1 - propensity))[:, None]).T @ flat
    row = log.user.astype(int) * N_ITEMS + log.item
    share = target[row] * delta / propensity[row]
    derivative = flat[row].T @ (share * (1 - propensity[row]))
    step = np.linalg.solve(information, derivative) @ (flat.T @ (target - propensity))
    return float(share.sum() - step) / (N_USERS * N_ITEMS)


def test_the_influence_of_the_one_step_estimate_is_its_derivative_up_to_the_penalty() -> None:
    """The influence leaves out that B moves too, which is of the order of the penalty."""
    gaps = []
    for ridge in (0.1, 0.01):
        model = logistic(ridge, item_offsets=False).fit(LOG, universe="log")
        propensities, terms = model.predict(LOG), dense_terms(model)
        correction, observed = correct(propensities, DELTA), np.zeros((N_USERS, N_ITEMS))
        observed[LOG.user, LOG.item] = 1.0
        scale, step = 1 / (N_USERS * N_ITEMS), 1e-4
        value = (DELTA[0] @ propensities.inverse - correction.bias[0]) * scale
        assert value == pytest.approx(
            one_step_estimate(terms, LOG, DELTA[0], observed, ridge), rel=1e-6
        )
        influence = (DELTA[0] * propensities.inverse - correction.score_of(ALL)[0]) * scale
        for cell in range(0, len(LOG), 29):
            sides = []
            for sign in (1, -1):
                weight = observed.copy()
                weight[LOG.user[cell], LOG.item[cell]] += sign * step
                sides.append(one_step_estimate(terms, LOG, DELTA[0], weight, ridge))
            gaps.append(influence[cell] - (sides[0] - sides[1]) / (2 * step))
    large, small = np.abs(gaps).reshape(2, -1).max(axis=1)

    assert large < 0.02 * np.abs(influence).max()
    assert small == pytest.approx(0.1 * large, rel=0.2)


@pytest.mark.parametrize("is_counted", [True, False])
def test_the_bias_of_inverse_counts_is_half_the_second_derivative(is_counted: bool) -> None:
    """E f(O) - f(P) is half the sum of P (1 - P) times the second derivative, to second order."""
    rng = np.random.default_rng(2)
    propensity = np.outer(rng.uniform(0.1, 0.9, 6), rng.uniform(0.1, 0.9, 5))
    delta, variance = rng.gamma(2.0, size=propensity.shape), propensity * (1 - propensity)

    def total(observed: Matrix) -> float:
        inverse = observed.sum() / np.outer(observed.sum(axis=1), observed.sum(axis=0))
        return float(((observed if is_counted else propensity) * inverse * delta).sum())

    expected, step = 0.0, 1e-3
    for cell in np.ndindex(*propensity.shape):
        changed = [propensity.copy() for _ in range(2)]
        changed[0][cell] += step
        changed[1][cell] -= step
        second = sum(map(total, changed)) - 2 * total(propensity)
        expected += variance[cell] * second / step**2 / 2
    user, item = (code.astype(np.int32).ravel() for code in np.indices(propensity.shape))
    bias = find_inverse_bias(
        (user, item),
        (propensity.sum(axis=1), propensity.sum(axis=0)),
        (variance.sum(axis=1), variance.sum(axis=0)),
        1 - propensity.ravel(),
        is_counted=is_counted,
    )

    assert bias @ delta.ravel() == pytest.approx(expected, rel=1e-4)


def test_collinear_terms_do_not_matter() -> None:
    levels = np.eye(4)[np.arange(N_ITEMS) % 4]
    fits = [
        LogisticPropensity(None, table, item_offsets=False, interactions="none", ridge=1, tol=TOL)
        for table in (levels, np.column_stack([levels, levels[:, 0]]))
    ]
    corrections = [correct(model.fit(LOG, universe="log").predict(LOG), DELTA) for model in fits]

    for correction in corrections:
        assert correction.factor_of(ALL) == pytest.approx((1 - 4 / len(LOG)) ** -0.5)
    assert np.isfinite(corrections[1].score_of(ALL)).all()


# How the estimation travels.


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_keeps_its_estimation(name: str, tmp_path: Path) -> None:
    model = MODELS[name]().fit(LOG, universe="log")
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, PropensityModel)
    first, second = (correct(each.predict(LOG), DELTA) for each in (model, loaded))

    assert np.array_equal(first.score_of(ALL), second.score_of(ALL))
    assert np.array_equal(first.expected_by("user"), second.expected_by("user"))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
def test_the_order_of_users_in_the_judged_log_does_not_matter(name: str) -> None:
    model = MODELS[name]().fit(LOG, universe="log")
    order = np.random.default_rng(2).permutation(N_USERS)
    code = np.argsort(order).astype(np.int32)
    shuffled = Ratings(
        code[LOG.user], LOG.item, LOG.rating, users=LOG.users[order], items=LOG.items
    )
    first, second = (correct(model.predict(log), DELTA) for log in (LOG, shuffled))

    assert second.score_of(ALL) == pytest.approx(first.score_of(ALL), rel=1e-7, abs=1e-7)
    assert second.expected_by("user") == pytest.approx(first.expected_by("user")[order], rel=1e-7)
    assert second.expected_by("item") == pytest.approx(first.expected_by("item"), rel=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_a_part_of_the_log_reduces_the_variance_and_another_log_adds_to_it(name: str) -> None:
    """With an offset for each user or item the reduction is left out: it would be too large."""
    model = MODELS[name]().fit(LOG, universe="log")
    rows = np.arange(0, len(LOG), 2, dtype=np.int32)
    part, other = (
        correct(propensities, DELTA[:, rows])
        for propensities in (model.predict(LOG).take(rows), model.predict(LOG.take(rows)))
    )
    target = DELTA[:, rows] / model.predict(LOG).values[rows]

    assert not np.any(part.score_of(ALL))
    assert not np.any(other.score_of(ALL))
    assert part.addition is None
    assert other.reduction is None
    assert (np.linalg.eigvalsh(other.addition) > 0).all()
    assert (np.diag(other.addition) < np.square(target).sum(axis=1)).all()
    if "score" in name:
        assert part.reduction == pytest.approx(other.addition)
    else:
        assert part.reduction is None


def test_the_reduction_of_a_part_is_that_of_the_exact_information() -> None:
    model = logistic(0.0, item_offsets=False).fit(LOG, universe="log")
    rows = np.arange(0, len(LOG), 2, dtype=np.int32)
    propensities = model.predict(LOG).take(rows)
    terms, propensity = dense_terms(model), dense_propensities(model)
    information = np.einsum("ui,uij,uik->jk", propensity * (1 - propensity), terms, terms)
    observed = terms[LOG.user, LOG.item][rows]
    gradient = (DELTA[:, rows] * propensities.inverse * (1 - propensities.values)) @ observed

    assert correct(propensities, DELTA[:, rows]).reduction == pytest.approx(
        gradient @ np.linalg.solve(information, gradient.T)
    )


def test_cells_alone_in_a_row_or_column_have_the_variance_of_the_others() -> None:
    ratings = draw_log(level=-1.0)
    dense = np.zeros((N_USERS + 1, N_ITEMS))
    dense[ratings.user, ratings.item] = ratings.rating
    dense[N_USERS, 3] = 4.0
    log = Ratings.from_dense(dense)
    propensities = PopularityPropensity("both").fit(log, universe="log").predict(log)
    delta = np.random.default_rng(0).gamma(2.0, size=(1, len(log)))
    correction = correct(propensities, delta)
    row = int(np.flatnonzero(log.user == N_USERS)[0])
    uncertainty = 1 - propensities.values
    used = np.arange(len(log)) != row
    residual = (delta - correction.score_of(ALL) * propensities.values)[0, used]
    free = (uncertainty[used] * correction.factor_of(ALL)[used] ** -2).sum()
    spread = (uncertainty[used] * residual**2).sum() / free

    assert isinstance(propensities.estimation, Margins)
    assert correction.score_of(ALL)[0, row] == delta[0, row] * propensities.inverse[row]
    assert correction.pooled == pytest.approx(
        np.array([[spread * uncertainty[row] * propensities.inverse[row] ** 2]])
    )


def test_terms_are_an_intercept_two_sides_and_products() -> None:
    terms = CellTerms.build(np.array([[2.0, 3.0]]), np.array([[5.0], [7.0]]), (1, 1))
    rows = np.zeros(2, np.int32), np.array([0, 1], np.int32)
    by_term = terms.multiply(np.eye(len(terms)), *rows)(ALL)

    assert by_term.T.tolist() == [[1, 2, 3, 5, 10], [1, 2, 3, 7, 14]]
    assert terms.add_up(np.array([[0.5, 0.5]]), *rows, np.array([2.0, 4.0])).tolist() == [
        [3, 6, 9, 19, 38]
    ]
