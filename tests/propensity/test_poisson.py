from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import digamma, gammaln
from scipy.stats import gamma

import unskew
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import ModelFileError, UniverseError, UnknownNameError, UsageError
from unskew.kernels.poisson import log_gamma_and_digamma
from unskew.propensity.low_rank import ObservedMatrix
from unskew.propensity.poisson import (
    GammaFactors,
    Likelihood,
    PoissonPropensity,
    Posterior,
    Prior,
    prior_rate,
    random_factors,
)
from unskew.threads import Workers

LIKELIHOODS: list[Likelihood] = ["bernoulli", "poisson"]


def log_of(seen: np.ndarray) -> Ratings:
    return Ratings.from_dense(np.asarray(seen, dtype=float))


def random_log(n_users: int, n_items: int, *, seed: int = 0, density: float = 0.3) -> Ratings:
    return log_of(np.random.default_rng(seed).random((n_users, n_items)) < density)


def all_pairs(model: PoissonPropensity, log: Ratings) -> np.ndarray:
    user, item = np.meshgrid(log.users, log.items, indexing="ij")
    return model.predict_pairs(user.ravel(), item.ravel()).reshape(user.shape)


def gamma_poisson(
    n_users: int, n_items: int, *, density: float = 0.2, seed: int = 0
) -> tuple[np.ndarray, Ratings]:
    """True propensities 1 - exp(-s.t) of the model's own kind, and a log drawn from them."""
    rng = np.random.default_rng(seed)
    level = rng.gamma(0.3, 1, (n_users, 5)) @ rng.gamma(0.3, 1, (n_items, 5)).T
    scale = np.exp(brentq(lambda power: -np.expm1(-np.exp(power) * level).mean() - density, -9, 9))
    true = -np.expm1(-scale * level)
    return true, log_of(rng.random(true.shape) < true)


def dense_bound(
    seen: np.ndarray,
    users: GammaFactors,
    items: GammaFactors,
    likelihood: str,
    shape: float,
    rate: float,
) -> float:
    """The bound cell by cell and entry by entry, divergences by quadrature."""
    total = 0.0
    for u, i in np.ndindex(seen.shape):
        total -= float((users.shape[u] / users.rate[0]) @ (items.shape[i] / items.rate[0]))
        if seen[u, i]:
            logs = (
                digamma(users.shape[u])
                - np.log(users.rate[0])
                + digamma(items.shape[i])
                - np.log(items.rate[0])
            )
            level = np.exp(logs).sum()
            total += np.log(np.expm1(level)) if likelihood == "bernoulli" else np.log(level)
    prior = gamma(shape, scale=1 / rate)
    for side in (users, items):
        for (_, k), each in np.ndenumerate(side.shape):
            q = gamma(each, scale=1 / side.rate[0, k])
            total -= quad(
                lambda z, q=q: (
                    np.exp(z) * q.pdf(np.exp(z)) * (q.logpdf(np.exp(z)) - prior.logpdf(np.exp(z)))
                ),
                -40,
                6,
            )[0]
    return total


def posterior_of(
    bits: ObservedMatrix, likelihood: Likelihood, shape: float = 0.5, rate: float = 0.25
) -> Posterior:
    return Posterior(bits, Prior(shape, rate), likelihood, Workers(1))


def test_log_gamma_and_digamma_are_those_of_scipy() -> None:
    x = np.geomspace(0.01, 1e5, 500)
    found = np.array([log_gamma_and_digamma(each) for each in x])

    np.testing.assert_allclose(found[:, 0], gammaln(x), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(found[:, 1], digamma(x), rtol=1e-13, atol=1e-13)


def test_one_factor_sweep_by_hand() -> None:
    """O is [[1, 1], [1, 0]] and every mean starts at 1, so each count is 1 (poisson)."""
    bits = ObservedMatrix.of_log(log_of([[1, 1], [1, 0]]), Universe(2, 2))
    ones = GammaFactors(np.ones((2, 1)), np.ones((1, 1)))

    posterior = posterior_of(bits, "poisson")
    expected, _ = posterior.evaluate(ones, ones)
    users, items = posterior.sweep(ones, ones, expected)

    np.testing.assert_allclose(users.shape[:, 0], [2.5, 1.5])
    np.testing.assert_allclose(users.rate, [[2.25]])
    np.testing.assert_allclose(items.shape[:, 0], [2.5, 1.5])
    np.testing.assert_allclose(items.rate, [[0.25 + 4 / 2.25]])


def test_a_count_of_at_least_one_has_the_mean_of_a_truncated_poisson() -> None:
    bits = ObservedMatrix.of_log(log_of([[1, 0]]), Universe(1, 2))
    users, items = (
        GammaFactors(np.array([[2.0]]), np.array([[0.5]])),
        GammaFactors(np.array([[3.0], [1.0]]), np.array([[2.0]])),
    )
    level = np.exp(digamma(2) - np.log(0.5) + digamma(3) - np.log(2))

    expected, bound = posterior_of(bits, "bernoulli").evaluate(users, items)
    _, of_one_count = posterior_of(bits, "poisson").evaluate(users, items)

    counts = np.arange(1, 60)
    mass = np.exp(counts * np.log(level) - np.cumsum(np.log(counts)))
    mean = (counts * mass).sum() / mass.sum()
    assert expected.by_user[0, 0] == pytest.approx(mean)
    np.testing.assert_allclose(expected.by_item[:, 0], [mean, 0])
    assert bound - of_one_count == pytest.approx(np.log(mass.sum()) - np.log(level))


def test_a_cell_that_is_observed_for_certain_has_a_finite_bound() -> None:
    """L = 10^4, where e^L is not finite."""
    bits = ObservedMatrix.of_log(log_of([[1, 0]]), Universe(1, 2))
    sharp = GammaFactors(np.full((1, 1), 1e6), np.full((1, 1), 1e4))
    items = GammaFactors(np.full((2, 1), 1e6), np.full((1, 1), 1e4))

    counts, bound = posterior_of(bits, "bernoulli").evaluate(sharp, items)
    _, of_one_count = posterior_of(bits, "poisson").evaluate(sharp, items)

    level = np.exp(2 * digamma(1e6)) / 1e8
    assert counts.by_user[0, 0] == pytest.approx(level)
    assert bound - of_one_count == pytest.approx(level - np.log(level))


def test_propensities_are_those_of_the_mean_factors() -> None:
    log = random_log(12, 9)
    model = PoissonPropensity(3).fit(log)

    np.testing.assert_allclose(
        all_pairs(model, log), 1 - np.exp(-model.user_factors_ @ model.item_factors_.T)
    )
    np.testing.assert_allclose(model.predict(log).values, all_pairs(model, log)[log.user, log.item])


def test_the_default_rate_gives_the_prior_the_density_of_the_log() -> None:
    rate = prior_rate(7, 0.3, 0.12)

    assert 1 - np.exp(-7 * (0.3 / rate) ** 2) == pytest.approx(0.12)
    assert PoissonPropensity(7).fit(random_log(5, 4)).rate_ == pytest.approx(
        prior_rate(7, 0.3, random_log(5, 4).density)
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_the_sparse_bound_is_the_dense_one(likelihood: Likelihood) -> None:
    log = random_log(4, 3)
    bits = ObservedMatrix.of_log(log, Universe(4, 3))
    users, items = random_factors(bits, 2, np.random.default_rng(1))
    seen = np.zeros((4, 3), dtype=bool)
    seen[log.user, log.item] = True

    _, bound = posterior_of(bits, likelihood, 0.4, 1.3).evaluate(users, items)

    assert bound == pytest.approx(dense_bound(seen, users, items, likelihood, 0.4, 1.3), rel=1e-7)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(st.integers(1, 9), st.integers(2, 9)),
    n_factors=st.integers(1, 6),
    shape=st.floats(0.02, 3),
    rate=st.none() | st.floats(0.05, 20),
    likelihood=st.sampled_from(LIKELIHOODS),
    unlisted=st.integers(0, 5),
)
@pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")
def test_the_bound_rises_every_sweep_and_propensities_are_probabilities(
    seed: int,
    sizes: tuple[int, int],
    n_factors: int,
    shape: float,
    rate: float | None,
    likelihood: str,
    unlisted: int,
) -> None:
    seen = np.random.default_rng(seed).random(sizes) < 0.4
    seen[0, 0], seen[-1, -1] = True, False
    log = log_of(seen)
    universe = (log.n_users + unlisted, log.n_items)

    model = PoissonPropensity(
        n_factors, shape, rate, likelihood=likelihood, max_iter=60, random_state=seed
    ).fit(log, universe=universe)

    assert (np.diff(model.history_) >= -1e-9 * np.abs(model.history_[1:])).all()
    assert len(model.history_) == model.n_iter_ + 1
    propensities = all_pairs(model, log)
    assert ((propensities > 0) & (propensities <= 1)).all()


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")
def test_no_posterior_nearby_has_a_higher_bound(likelihood: Likelihood) -> None:
    """At the fixed point of the updates, the gradient of the bound is 0."""
    log = random_log(6, 5)
    bits = ObservedMatrix.of_log(log, Universe(6, 5))
    users, items = random_factors(bits, 2, np.random.default_rng(0))
    posterior = posterior_of(bits, likelihood, 0.3, 0.5)
    for _ in range(1000):
        users, items = posterior.sweep(users, items, posterior.evaluate(users, items)[0])

    def bound(users: GammaFactors, items: GammaFactors) -> float:
        return posterior.evaluate(users, items)[1]

    rng, step = np.random.default_rng(1), 1e-4
    for _ in range(10):
        turns = [
            np.exp(step * rng.standard_normal(part.shape))
            for part in (users.shape, users.rate, items.shape, items.rate)
        ]
        up = bound(
            GammaFactors(users.shape * turns[0], users.rate * turns[1]),
            GammaFactors(items.shape * turns[2], items.rate * turns[3]),
        )
        down = bound(
            GammaFactors(users.shape / turns[0], users.rate / turns[1]),
            GammaFactors(items.shape / turns[2], items.rate / turns[3]),
        )
        assert abs(up - down) / (2 * step) < 1e-4


def test_users_and_items_that_are_not_listed_count_like_listed_ones() -> None:
    seen = np.random.default_rng(3).random((8, 6)) < 0.4
    listed = log_of(np.pad(seen, ((0, 3), (0, 2))))
    short = log_of(seen)
    known = {"max_iter": 3000, "tol": 0.0}

    whole, part = (
        PoissonPropensity(1, **known).fit(listed),
        PoissonPropensity(1, **known).fit(short, universe=(11, 8)),
    )

    np.testing.assert_allclose(all_pairs(part, short), all_pairs(whole, listed)[:8, :6], rtol=1e-6)
    assert part.history_[-1] == pytest.approx(whole.history_[-1])


def test_a_silent_user_has_the_prior_and_the_rate_of_all_items() -> None:
    seen = np.random.default_rng(3).random((8, 6)) < 0.5
    seen[2] = False
    model = PoissonPropensity(2, 0.4, 1.5, tol=0.0, max_iter=500).fit(log_of(seen))

    np.testing.assert_allclose(
        model.user_factors_[2], 0.4 / (1.5 + model.item_factors_.sum(axis=0)), rtol=1e-4
    )
    assert (model.predict_pairs([2] * 6, range(6)) > 0).all()


def test_the_order_of_the_log_does_not_matter_and_the_seed_decides() -> None:
    log = random_log(30, 20)
    shuffled = log.take(np.random.default_rng(0).permutation(len(log)))

    first, second = PoissonPropensity(4).fit(log), PoissonPropensity(4).fit(shuffled)

    np.testing.assert_array_equal(first.user_factors_, second.user_factors_)
    assert not np.allclose(
        first.user_factors_, PoissonPropensity(4, random_state=1).fit(log).user_factors_
    )


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_momentum_reaches_at_least_the_bound_of_plain_sweeps(likelihood: Likelihood) -> None:
    _, log = gamma_poisson(120, 90)
    model = PoissonPropensity(5, likelihood=likelihood, max_iter=1000).fit(log)
    bits = ObservedMatrix.of_log(log, Universe(log.n_users, log.n_items))
    posterior = posterior_of(bits, likelihood, 0.3, model.rate_)
    factors, history = random_factors(bits, 5, np.random.default_rng(0)), [-np.inf]
    while True:
        counts, bound = posterior.evaluate(*factors)
        if bound - history[-1] <= 1e-5 * abs(bound):
            break
        factors, history = posterior.sweep(*factors, counts), [*history, bound]

    assert model.converged_
    assert model.history_[-1] > bound - 1e-4 * abs(bound)
    n_sweeps = int(np.argmax(np.array(model.history_) > bound - 1e-4 * abs(bound)))
    assert n_sweeps < 0.7 * len(history)


def test_the_number_of_threads_does_not_matter() -> None:
    log = random_log(700, 400)

    one, two = (PoissonPropensity(4, n_threads=n).fit(log) for n in (1, 2))

    assert one.history_ == two.history_
    np.testing.assert_array_equal(one.item_factors_, two.item_factors_)


def test_known_propensities_are_recovered_the_better_the_more_data() -> None:
    errors = []
    for n_users, n_items in ((60, 50), (200, 160), (500, 400)):
        true, log = gamma_poisson(n_users, n_items)
        model = PoissonPropensity(5, tol=1e-4).fit(log)
        errors.append(np.abs(all_pairs(model, log) - true).sum() / true.sum())

    uniform = np.abs(log.density - true).sum() / true.sum()
    assert errors[0] > 1.3 * errors[1] > 1.3**2 * errors[2]
    assert errors[2] < 0.3 * uniform


@pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")
def test_a_bit_that_is_taken_for_a_count_gives_too_small_propensities() -> None:
    _, log = gamma_poisson(200, 160)
    totals = [
        all_pairs(PoissonPropensity(5, likelihood=each).fit(log), log).sum() / len(log)
        for each in LIKELIHOODS
    ]

    assert totals[0] == pytest.approx(1, abs=0.02)
    assert totals[1] < 0.9


@pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")
def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    log = random_log(12, 9)
    model = PoissonPropensity(3, max_iter=7, tol=0.0).fit(log)
    model.save(tmp_path / "model")
    again = unskew.load(tmp_path / "model")

    assert isinstance(again, unskew.propensity.PoissonPropensity)
    assert (again.n_iter_, again.converged_, again.history_) == (7, False, model.history_)
    np.testing.assert_array_equal(again.predict(log).values, model.predict(log).values)


def test_a_file_with_factors_of_another_size_is_refused(tmp_path: Path) -> None:
    model = PoissonPropensity(3).fit(random_log(12, 9))
    model.user_factors_ = model.user_factors_[1:]
    model.save(tmp_path / "model")

    with pytest.raises(
        ModelFileError,
        match=r"user_factors has shape \(11, 3\), but the rest of the model needs \(12, 3\)",
    ):
        unskew.load(tmp_path / "model")


@pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")
def test_progress_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    home = "unskew.propensity.poisson.progress_line"
    monkeypatch.setattr(home, lambda wanted: nullcontext(lines.append if wanted else len))

    PoissonPropensity(2, max_iter=3).fit(random_log(6, 5))
    assert lines == []
    model = PoissonPropensity(2, verbose=True, max_iter=3, tol=0.0).fit(random_log(6, 5))
    assert lines == [
        f"sweep {step}, bound {value:.6g}" for step, value in enumerate(model.history_)
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_factors": 0}, "n_factors must be a whole number, at least 1; got 0"),
        ({"max_iter": 0}, "max_iter must be a whole number, at least 1; got 0"),
        ({"random_state": -1}, "random_state must be a whole number, at least 0; got -1"),
        ({"shape": 0.0}, r"shape must be a finite number, at least 0.01; got 0.0"),
        ({"shape": np.nan}, "shape must be a finite number"),
        (
            {"rate": 0.0},
            "rate must be a finite number, above 0, or None; got 0.0",
        ),
        ({"tol": -1.0}, "tol must be a finite number, at least 0; got -1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PoissonPropensity(**settings).fit(random_log(6, 5))


def test_an_unknown_likelihood_is_refused() -> None:
    with pytest.raises(
        UnknownNameError,
        match=r"unknown value 'poison' of likelihood; valid values are: bernoulli, poisson",
    ):
        PoissonPropensity(likelihood="poison").fit(random_log(6, 5))


def test_a_log_of_every_cell_is_refused() -> None:
    with pytest.raises(
        UniverseError,
        match=r"all 12 cells \(3 users x 4 items\) were observed, so P = 1",
    ):
        PoissonPropensity().fit(log_of(np.ones((3, 4))))


def test_a_log_without_a_universe_is_refused() -> None:
    with pytest.raises(UniverseError, match="a fit needs the number of users and items"):
        PoissonPropensity().fit(Ratings.from_arrays([1, 2], [1, 2], [5, 4]))
