from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import (
    BadPropensityError,
    NotFittedError,
    PropensityWarning,
    UniverseError,
    UnknownNameError,
    UsageError,
)
from unskew.factorization.solution import minimize
from unskew.io.model_files import read_model
from unskew.latent.missingness import (
    BetaPrior,
    DependsOnRating,
    DependsOnRatingAndItem,
    MissingAtRandom,
    SelectionEffects,
)
from unskew.latent.mixture import CellsBySlot, EMSolver, draw_mixture
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.threads import Workers
from unskew.types import Matrix, Vector

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

MU = {1: 0.05, 2: 0.08, 3: 0.15, 4: 0.3, 5: 0.5}
SETTINGS = [
    ("mar", "fixed"),
    ("cpt-v", "fixed"),
    ("cpt-v", "prior"),
    ("cpt-v", "free"),
    ("logit-vd", "fixed"),
    ("logit-vd", "prior"),
    ("logit-vd", "free"),
]
ignoring_freedom = pytest.mark.filterwarnings("ignore:with value_effect='free'")


@dataclass(frozen=True)
class World:
    """A matrix drawn from the model itself."""

    truth: Matrix
    log: Ratings
    cluster: Any
    shares: Matrix
    """Clusters x items x levels."""


def draw_world(
    n_users: int, n_items: int, n_clusters: int, seed: int = 0, mu: dict[int, float] = MU
) -> World:
    rng = np.random.default_rng(seed)
    cluster = rng.integers(n_clusters, size=n_users)
    shares = rng.dirichlet(np.full(len(mu), 0.5), size=(n_clusters, n_items))
    below = np.cumsum(shares[cluster], axis=2)[:, :, :-1]
    truth = 1.0 + (rng.random((n_users, n_items, 1)) > below).sum(axis=2)
    seen = rng.random(truth.shape) < np.array(list(mu.values()))[truth.astype(int) - 1]
    return World(truth, Ratings.from_dense(np.where(seen, truth, 0)), cluster, shares)


WORLD = draw_world(80, 20, 3)
LOG = WORLD.log


def fitted(
    mechanism: Any, value_effect: Any = "fixed", log: Ratings = LOG, **settings: Any
) -> MultinomialMixture:
    defaults = {"n_clusters": 3, "n_restarts": 2, "max_iter": 60}
    model = MultinomialMixture(mechanism, value_effect=value_effect, **(defaults | settings))
    levels = np.unique(log.rating)
    p_observed = (
        {level: MU[level] for level in levels if level in MU} if mechanism != "mar" else None
    )
    return model.fit(log, value_propensities=p_observed)


def every_cell(model: Any, log: Ratings) -> Matrix:
    pairs = np.repeat(log.users, log.n_items), np.tile(log.items, log.n_users)
    return model.predict(*pairs).reshape(log.n_users, log.n_items)


def level_matrix(log: Ratings) -> Any:
    """The index of each cell's rating among the levels; -1 for an unobserved cell."""
    levels = np.full((log.n_users, log.n_items), -1)
    levels[log.user, log.item] = np.searchsorted(np.unique(log.rating), log.rating)
    return levels


def log_likelihood(model: MultinomialMixture, log: Ratings) -> float:
    """Every cell of every user, in every cluster."""
    total = 0.0
    for cells in level_matrix(log):
        likelihood = model.cluster_weights_.copy()
        for k in range(likelihood.size):
            for i, r in enumerate(cells):
                mu, b = model.value_propensities_[i], model.rating_probabilities_[k, i]
                if model.mechanism == "mar":
                    likelihood[k] *= b[r] if r >= 0 else 1
                else:
                    likelihood[k] *= mu[r] * b[r] if r >= 0 else ((1 - mu) * b).sum()
        total += np.log(likelihood.sum())
    return total


def log_prior(model: MultinomialMixture, log: Ratings) -> float:
    """Up to constants."""
    total = model.smoothing * float(
        np.log(model.rating_probabilities_).sum() + np.log(model.cluster_weights_).sum()
    )
    if model.mechanism == "mar":
        return total
    odds = np.log(model.value_propensities_ / (1 - model.value_propensities_))
    p_observed = np.array([MU[level] for level in model.levels_])
    value = np.log(p_observed / (1 - p_observed))
    if model.mechanism == "logit-vd":
        if model.value_effect != "fixed":
            return np.nan  # s and t cannot be separated given their sum
        total -= float(((odds - value).mean(axis=1) ** 2).sum()) / 20
    strength = {"fixed": 0.0, "prior": model.prior_strength * log.n_cells, "free": 2.0}[
        model.value_effect
    ]
    share = p_observed if model.value_effect == "prior" else 0.5
    mu = model.value_propensities_[0]
    if model.mechanism == "cpt-v":
        total += strength * float((share * np.log(mu) + (1 - share) * np.log(1 - mu)).sum())
    return total


@ignoring_freedom
@pytest.mark.parametrize(
    ("mechanism", "value_effect"),
    [pair for pair in SETTINGS if pair[0] != "logit-vd" or pair[1] == "fixed"],
)
def test_the_objective_is_the_dense_posterior(mechanism: str, value_effect: str) -> None:
    for max_iter in (1, 20):
        model = fitted(mechanism, value_effect, max_iter=max_iter)

        assert model.objective_ == pytest.approx(
            -log_likelihood(model, LOG) - log_prior(model, LOG), rel=1e-10
        )


PRIOR = BetaPrior(np.arange(1.0, 6.0), np.full(5, 3.0))


@pytest.mark.parametrize(
    ("name", "mechanism"),
    [
        ("mar", MissingAtRandom()),
        ("cpt-v", DependsOnRating(PRIOR)),
        ("logit-vd", DependsOnRatingAndItem(None)),
        ("logit-vd", DependsOnRatingAndItem(PRIOR)),
    ],
)
def test_the_sparse_likelihood_is_the_dense_one_at_any_parameters(
    name: Any, mechanism: Any
) -> None:
    rng = np.random.default_rng(0)
    cells = CellsBySlot.of(LOG, np.searchsorted(list(MU), LOG.rating).astype(np.uint8), 5)
    effects = SelectionEffects(
        rng.normal(size=5), rng.normal(size=LOG.n_items) * (name == "logit-vd")
    )
    mixture = draw_mixture(cells, effects, n_clusters=3, smoothing=0.7, seed=(1, 2))
    model = MultinomialMixture(name, smoothing=0.7)
    model.cluster_weights_, model.value_propensities_ = mixture.cluster_weights, effects.p_observed
    model.rating_probabilities_ = mixture.rating_probabilities.reshape(LOG.n_items, 5, 3).transpose(
        2, 0, 1
    )

    with Workers(1) as workers:
        solver = EMSolver(cells, mechanism, 0.7, 0.0, workers)
        found = -solver.value(solver.start((mixture,)))

    prior = 0.7 * float(
        np.log(mixture.rating_probabilities).sum() + np.log(mixture.cluster_weights).sum()
    ) + mechanism.log_prior(effects)
    assert found == pytest.approx(log_likelihood(model, LOG) + prior, rel=1e-12)


@pytest.mark.parametrize("mechanism", ["cpt-v", "logit-vd"])
def test_the_likelihood_is_the_sum_over_all_clusters_and_all_unobserved_ratings(
    mechanism: str,
) -> None:
    """2^3 assignments of three users to two clusters, times all values of the unobserved cells."""
    log = Ratings.from_dense([[1, 2], [0, 2], [0, 0]])
    model = fitted(mechanism, log=log, n_clusters=2, max_iter=2)
    theta, b, mu, seen = (
        model.cluster_weights_,
        model.rating_probabilities_,
        model.value_propensities_,
        level_matrix(log),
    )

    total = 0.0
    for z in product(range(2), repeat=3):
        for filled in product(range(2), repeat=6):
            y = np.array(filled).reshape(3, 2)
            if (y == seen)[seen >= 0].all():
                probabilities = [
                    b[z[u], i, y[u, i]]
                    * (mu[i, y[u, i]] if seen[u, i] >= 0 else 1 - mu[i, y[u, i]])
                    for u, i in np.ndindex(3, 2)
                ]
                total += float(np.prod(theta[list(z)]) * np.prod(probabilities))

    assert np.log(total) == pytest.approx(log_likelihood(model, log))
    assert model.objective_ == pytest.approx(-np.log(total) - log_prior(model, log))


@ignoring_freedom
@pytest.mark.parametrize(("mechanism", "value_effect"), SETTINGS)
def test_no_sweep_makes_the_posterior_worse(mechanism: str, value_effect: str) -> None:
    model = fitted(mechanism, value_effect, tol=0.0, max_iter=150)

    slack = 1e-13 * abs(model.objective_)
    assert all(later <= earlier + slack for earlier, later in pairwise(model.history_))
    assert model.history_[-1] < model.history_[0] - 100
    assert len(model.history_) == model.n_iter_ + 1


def textbook_step(model: MultinomialMixture, log: Ratings) -> tuple[Vector, Matrix, Vector]:
    """theta, B and mu after one sweep that imputes unobserved ratings, on dense arrays."""
    theta, b, mu, seen = (
        model.cluster_weights_,
        model.rating_probabilities_,
        model.value_propensities_,
        level_matrix(log),
    )
    joint = (1 - mu) * b
    m = joint.sum(axis=2)
    q = np.empty((log.n_users, theta.size))
    for u, cells in enumerate(seen):
        observed = [mu[i, r] * b[:, i, r] if r >= 0 else m[:, i] for i, r in enumerate(cells)]
        q[u] = theta * np.prod(observed, axis=0)
        q[u] /= q[u].sum()
    counts = np.zeros_like(b)
    for u, i in np.argwhere(seen >= 0):
        counts[:, i, seen[u, i]] += q[u]
    missing = q.sum(axis=0)[:, None] - counts.sum(axis=2)
    complete = counts + (missing / m)[:, :, None] * joint
    new_theta, new_b = q.sum(axis=0) + model.smoothing, complete + model.smoothing
    strength = model.prior_strength * log.n_cells
    p_observed = np.array([MU[level] for level in model.levels_])
    new_mu = (strength * p_observed + counts.sum(axis=(0, 1))) / (
        strength + complete.sum(axis=(0, 1))
    )
    return new_theta / new_theta.sum(), new_b / new_b.sum(axis=2, keepdims=True), new_mu


@pytest.mark.parametrize("value_effect", ["fixed", "prior"])
def test_the_textbooks_step_does_not_move_the_solution(value_effect: str) -> None:
    model = fitted("cpt-v", value_effect, tol=1e-15, max_iter=5000)

    theta, b, mu = textbook_step(model, LOG)

    assert model.converged_
    np.testing.assert_allclose(theta, model.cluster_weights_, atol=1e-5)
    np.testing.assert_allclose(b, model.rating_probabilities_, atol=1e-5)
    np.testing.assert_allclose(
        mu if value_effect == "prior" else list(MU.values()),
        model.value_propensities_[0],
        atol=1e-5,
    )


def test_with_one_cluster_and_random_selection_probabilities_are_smoothed_counts() -> None:
    """One cluster leaves nothing to infer."""
    model = fitted("mar", n_clusters=1, smoothing=0.5)

    seen = level_matrix(LOG)
    counts = (
        np.array([[(seen[:, i] == r).sum() for r in range(5)] for i in range(LOG.n_items)]) + 0.5
    )
    np.testing.assert_allclose(
        model.rating_probabilities_[0], counts / counts.sum(axis=1, keepdims=True)
    )
    assert model.n_iter_ <= 5


def test_the_best_start_is_kept() -> None:
    """Each start alone ends at another point; together they end at the best of these points."""
    cells = CellsBySlot.of(LOG, np.searchsorted(list(MU), LOG.rating).astype(np.uint8), 5)
    p_observed = np.array(list(MU.values()))
    model = fitted("cpt-v", n_restarts=4, max_iter=8, tol=0.0, random_state=1)
    with Workers(1) as workers:
        solver = EMSolver(cells, DependsOnRating(None), model.smoothing, 0.0, workers)
        alone = [
            minimize(solver, (start,), max_iter=8, tol=None)
            for start in model._draw_starts(cells, p_observed)
        ]

    ends = [each.history[-1] for each in alone]
    best = int(np.argmin(ends))
    assert len(set(ends)) == 4
    assert best != 0
    assert model.objective_ == ends[best]
    assert np.array_equal(model.cluster_weights_, alone[best].parameters[0].cluster_weights)


def test_the_seed_decides_the_start() -> None:
    first, again, other = (fitted("mar", max_iter=3, random_state=seed) for seed in (1, 1, 2))

    assert first.history_ == again.history_ != other.history_


def test_a_generator_gives_other_starts_at_each_fit() -> None:
    rng = np.random.default_rng(1)
    first, second = (fitted("mar", max_iter=3, random_state=rng) for _ in range(2))
    again = fitted("mar", max_iter=3, random_state=np.random.default_rng(1))

    assert first.history_ == again.history_ != second.history_
    assert fitted("mar", max_iter=3, random_state=None).history_ != first.history_


def test_predictions_are_of_unobserved_cells() -> None:
    model = fitted("logit-vd")

    for u, i in ((0, 0), (7, 3)):
        probability = (
            model.responsibilities_[u]
            @ model.rating_probabilities_[:, i]
            * (1 - model.value_propensities_[i])
        )
        np.testing.assert_allclose(
            model.predict_distribution([u], [i])[0], probability / probability.sum()
        )
        assert model.predict([u], [i])[0] == pytest.approx(
            probability @ model.levels_ / probability.sum()
        )


def test_the_median_is_one_of_the_levels() -> None:
    model = fitted("cpt-v", statistic="median")

    found, shares = model.predict([1, 2], [3, 4]), model.predict_distribution([1, 2], [3, 4])
    assert found.tolist() == [model.levels_[np.searchsorted(np.cumsum(row), 0.5)] for row in shares]


@pytest.mark.parametrize("mechanism", ["mar", "logit-vd"])
def test_unknown_users_have_the_prior_and_unknown_items_the_mean_item(mechanism: str) -> None:
    model = fitted(mechanism)
    joint = model.rating_probabilities_ * (1 - model.value_propensities_)

    new_user, new_item, both = model.predict_distribution(
        [-7, 4, -7], [4, -7, -7], on_unknown="fallback"
    )

    for found, probability in (
        (new_user, model.cluster_weights_ @ joint[:, 4]),
        (new_item, model.responsibilities_[4] @ joint.mean(axis=1)),
        (both, model.cluster_weights_ @ joint.mean(axis=1)),
    ):
        np.testing.assert_allclose(found, probability / probability.sum())
    assert np.isnan(model.predict([-7, 4], [4, 4], on_unknown="nan")).tolist() == [True, False]


def test_scores_are_the_predicted_means_unknown_ids_included() -> None:
    model = fitted("logit-vd", statistic="median")
    users, items = np.array([3, -7, 5]), np.array([2, -7, 0, 9])

    scores = model.scorer(users, items)(np.array([0, 1, 2], np.int32))

    pairs = np.repeat(users, 4), np.tile(items, 3)
    means = model.predict_distribution(*pairs, on_unknown="fallback") @ model.levels_
    np.testing.assert_allclose(scores, means.reshape(3, 4))
    assert np.isfinite(model.recommend([3, -7], k=4, on_unknown="fallback").scores).all()


def test_a_user_without_ratings_is_assigned_by_the_unobserved_cells() -> None:
    """P(cluster | nothing observed) ~ theta_k prod_i m_ki, the product over items."""
    log = Ratings.from_dense(
        np.vstack([np.where(level_matrix(LOG) >= 0, WORLD.truth, 0), np.zeros((2, LOG.n_items))])
    )
    model = fitted("cpt-v", log=log)

    posterior = model.cluster_weights_ * (
        model.rating_probabilities_ * (1 - model.value_propensities_)
    ).sum(axis=2).prod(axis=1)
    np.testing.assert_allclose(model.responsibilities_[-1], posterior / posterior.sum())
    assert np.isfinite(model.predict([81], [0])).all()


@ignoring_freedom
@pytest.mark.parametrize(("mechanism", "value_effect"), SETTINGS)
@pytest.mark.parametrize(
    "matrix",
    [
        pytest.param([[1, 5, 0, 3]], id="one user"),
        pytest.param([[1], [5], [0]], id="one item"),
        pytest.param([[4]], id="one cell"),
        pytest.param([[4, 0, 4], [0, 4, 0]], id="one rating"),
        pytest.param([[1, 5], [3, 4]], id="nothing missing"),
    ],
)
def test_small_logs_give_finite_ratings_in_range(
    mechanism: str, value_effect: str, matrix: Any
) -> None:
    log = Ratings.from_dense(matrix)
    model = fitted(mechanism, value_effect, log=log)

    found = every_cell(model, log)

    assert ((found >= log.rating.min() - 1e-9) & (found <= log.rating.max() + 1e-9)).all()
    assert np.isfinite(model.objective_)
    if np.unique(log.rating).size == 1:
        np.testing.assert_allclose(found, 4)


@pytest.mark.parametrize("mechanism", ["mar", "cpt-v", "logit-vd"])
def test_threads_are_not_seen_in_the_result(mechanism: str) -> None:
    value_effect = "fixed" if mechanism == "mar" else "prior"
    fits = [fitted(mechanism, value_effect, max_iter=7, n_threads=n) for n in (1, 2, 3)]

    for other in fits[1:]:
        assert other.history_ == fits[0].history_
        assert np.array_equal(other.rating_probabilities_, fits[0].rating_probabilities_)
        assert np.array_equal(other.responsibilities_, fits[0].responsibilities_)


@pytest.mark.parametrize("mechanism", ["mar", "logit-vd"])
def test_a_checkpoint_of_the_same_run_goes_on_to_the_same_bits(
    tmp_path: Path, mechanism: Any
) -> None:
    p_observed = None if mechanism == "mar" else MU
    settings: dict[str, Any] = {"n_clusters": 3, "n_restarts": 3, "tol": 0.0}
    first = MultinomialMixture(mechanism, **settings, max_iter=13)
    first.fit(LOG, value_propensities=p_observed, checkpoint=tmp_path / "run", checkpoint_every=5)

    whole = MultinomialMixture(mechanism, **settings, max_iter=30)
    resumed = clone(whole).fit(
        LOG, value_propensities=p_observed, checkpoint=tmp_path / "run", checkpoint_every=5
    )
    straight = whole.fit(LOG, value_propensities=p_observed)

    assert resumed.history_ == straight.history_
    assert np.array_equal(resumed.rating_probabilities_, straight.rating_probabilities_)
    assert np.array_equal(resumed.responsibilities_, straight.responsibilities_)
    assert np.array_equal(resumed.value_propensities_, straight.value_propensities_)


SCRIPT = """
import sys, unskew
from unskew.models.mixture import MultinomialMixture
log = unskew.simulate(n_users=120, n_items=90, density=0.15, alpha=0.5, random_state=5).log
MultinomialMixture("mar", 4, tol=0.0, max_iter=100000).fit(
    log, checkpoint=sys.argv[1], checkpoint_every=3
)
"""


def test_a_killed_run_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    path = tmp_path / "run"
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)])
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    log = unskew.simulate(n_users=120, n_items=90, density=0.15, alpha=0.5, random_state=5).log
    with np.load(path) as stored:
        n_done = len(stored["history"]) - 1
    model = MultinomialMixture("mar", 4, tol=0.0, max_iter=n_done + 5)

    resumed = clone(model).fit(log, checkpoint=path, checkpoint_every=3)
    straight = model.fit(log)

    assert resumed.history_ == straight.history_
    assert np.array_equal(resumed.rating_probabilities_, straight.rating_probabilities_)


def test_a_checkpoint_of_other_value_propensities_is_refused(tmp_path: Path) -> None:
    model = MultinomialMixture("cpt-v", 2, max_iter=3)
    model.fit(LOG, value_propensities=MU, checkpoint=tmp_path / "run", checkpoint_every=1)

    with pytest.raises(UsageError, match="belongs to another log, other weights or other settings"):
        model.fit(LOG, value_propensities=MU | {5: 0.6}, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("mechanism", ["mar", "logit-vd"])
def test_a_model_comes_back_from_its_file(tmp_path: Path, mechanism: str) -> None:
    model = fitted(mechanism, statistic="median")
    model.save(tmp_path / "model.unskew")

    again: Any = read_model(tmp_path / "model.unskew", {"MultinomialMixture": MultinomialMixture})

    before, after = (
        each.predict([1, 2, -7], [3, -7, 4], on_unknown="fallback") for each in (model, again)
    )
    assert np.array_equal(before, after)
    assert (again.history_, again.get_params()) == (model.history_, model.get_params())
    again.responsibilities_ = again.responsibilities_[:, 1:]
    assert (
        again._find_inconsistency()
        == "responsibilities has shape (80, 2), but the rest of the model needs (80, 3)."
    )


def test_scikit_learn_can_clone_it() -> None:
    copy = clone(fitted("cpt-v", smoothing=2.0))

    assert (
        repr(copy) == "MultinomialMixture(n_clusters=3, max_iter=60, smoothing=2.0, n_restarts=2)"
    )
    assert not hasattr(copy, "levels_")


def test_propensities_of_cells_say_how_likely_each_rating_is() -> None:
    bayes = NaiveBayesPropensity().fit(LOG, mcar=WORLD.truth[:10].ravel())
    model = MultinomialMixture("cpt-v", 2, n_restarts=1, max_iter=5)

    by_cell = clone(model).fit(LOG, bayes)
    by_value = clone(model).fit(LOG, value_propensities=bayes)

    np.testing.assert_allclose(by_cell.value_propensities_[0], bayes.propensity_by_level_)
    np.testing.assert_allclose(
        by_cell.rating_probabilities_, by_value.rating_probabilities_, rtol=1e-9
    )


def test_propensities_change_nothing_where_selection_is_taken_to_be_random() -> None:
    p = np.array([MU[rating] for rating in LOG.rating])
    model = MultinomialMixture("mar", 2, max_iter=5)

    assert clone(model).fit(LOG, p).history_ == clone(model).fit(LOG).history_
    with pytest.raises(UsageError, match="value_propensities are not used with mechanism='mar'"):
        model.fit(LOG, value_propensities=MU)


def test_cross_validation_scales_the_propensities_to_its_folds() -> None:
    p = np.array([MU[rating] for rating in LOG.rating])
    model = MultinomialMixture("cpt-v", n_restarts=1, max_iter=20)

    found = unskew.cross_validate(
        model, LOG, propensities=p, grid={"n_clusters": [1, 3]}, n_folds=3
    )

    assert set(found.best_params) == {"n_clusters"}
    np.testing.assert_allclose(found.best_model.value_propensities_[0], list(MU.values()))


@ignoring_freedom
def test_a_prior_lies_between_fixed_and_free() -> None:
    wrong = MU | {5: 0.3}
    fits = {
        strength: MultinomialMixture(
            "cpt-v", 3, value_effect="prior", prior_strength=strength, n_restarts=1
        )
        .fit(LOG, value_propensities=wrong)
        .value_propensities_[0]
        for strength in (1e-12, 1.0, 1e6)
    }
    free = MultinomialMixture("cpt-v", 3, value_effect="free", n_restarts=1).fit(
        LOG, value_propensities=wrong
    )

    np.testing.assert_allclose(fits[1e6], list(wrong.values()), rtol=1e-4)
    np.testing.assert_allclose(fits[1e-12], free.value_propensities_[0], rtol=0.1)
    assert 0.3 < fits[1.0][4] < fits[1e-12][4]


def test_a_free_effect_gives_a_warning() -> None:
    with pytest.warns(
        PropensityWarning, match="with value_effect='free' the log alone .* not identified"
    ):
        MultinomialMixture(value_effect="free", max_iter=2).fit(LOG)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"mechanism": "cpt"}, "unknown value 'cpt' of mechanism.*Did you mean 'cpt-v'"),
        ({"value_effect": "none"}, "unknown value 'none' of value_effect"),
        ({"statistic": "mode"}, "unknown value 'mode' of statistic"),
        ({"n_clusters": 0}, "n_clusters must be a whole number, at least 1"),
        ({"n_restarts": 1.5}, "n_restarts must be a whole number"),
        ({"max_iter": 0}, "max_iter must be a whole number, at least 1"),
        ({"random_state": -1}, "random_state must be a whole number"),
        ({"smoothing": 0}, "smoothing must be a finite number, above 0 and at most 1e\\+12; got 0"),
        ({"prior_strength": np.inf}, "prior_strength must be a finite number, above 0"),
        ({"tol": -1e-3}, "tol must be a finite number, at least 0"),
        (
            {},
            "value_effect='fixed' needs to know how likely each rating .*mechanism='mar'",
        ),
        ({"value_effect": "prior", "mechanism": "logit-vd"}, "value_effect='prior' needs to know"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        MultinomialMixture(**settings).fit(LOG)


def test_value_propensities_and_the_log_are_checked() -> None:
    with pytest.raises(BadPropensityError, match="has no entry for rating 5, which the log has"):
        MultinomialMixture().fit(LOG, value_propensities={1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1})
    with pytest.raises(UniverseError, match="uses the unobserved cells of the whole universe"):
        MultinomialMixture().fit(
            Ratings.from_arrays([1, 2], [3, 4], [5, 5], universe=(10, 10)),
            value_propensities={5: 0.1},
        )


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        MultinomialMixture().scorer(np.array([1]), np.array([1]))
    with pytest.raises(UnknownNameError, match="unknown parameter 'clusters'"):
        MultinomialMixture().set_params(clusters=3)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["cpt-v", "logit-vd"])
def test_what_generated_the_log_is_recovered_up_to_the_names_of_clusters(mechanism: str) -> None:
    world = draw_world(4000, 60, 3, seed=1)

    model = fitted(mechanism, log=world.log, n_restarts=5, max_iter=500, tol=1e-9)

    distance = np.abs(model.rating_probabilities_[:, None] - world.shares[None]).mean(axis=(2, 3))
    mine, theirs = linear_sum_assignment(distance)
    assert distance[mine, theirs].max() < 0.03
    named = np.empty(3, int)
    named[mine] = theirs
    assert (named[model.responsibilities_.argmax(axis=1)] == world.cluster).mean() > 0.95
    np.testing.assert_allclose(
        model.cluster_weights_[mine], np.bincount(world.cluster)[theirs] / 4000, atol=0.03
    )


@pytest.mark.slow
def test_on_data_from_the_model_it_beats_factorisations_naive_and_weighted() -> None:
    world = draw_world(1500, 80, 3, seed=2)
    log, p = world.log, np.array([MU[rating] for rating in world.log.rating])

    def risk(model: Any) -> float:
        return float(((every_cell(model, log) - world.truth) ** 2).mean())

    grid = {"n_factors": [2, 5], "l2": [0.2, 1.0, 5.0, 25.0]}
    naive = unskew.cross_validate(
        MatrixFactorization(), log, grid=grid, estimator="naive"
    ).best_model
    weighted = unskew.cross_validate(
        MatrixFactorization(), log, propensities=p, grid=grid
    ).best_model
    random, by_value = fitted("mar", log=log, n_restarts=5), fitted("cpt-v", log=log, n_restarts=5)

    assert risk(by_value) < 0.98 * risk(weighted) < risk(naive)
    assert risk(by_value) < 0.9 * risk(random)
