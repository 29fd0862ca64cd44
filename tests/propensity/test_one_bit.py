from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit

import unskew
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import (
    ConvergenceWarning,
    ModelFileError,
    UniverseError,
    UnknownNameError,
    UsageError,
)
from unskew.propensity import low_rank, one_bit
from unskew.propensity.low_rank import (
    CellSubset,
    LowRankLogits,
    ObservedMatrix,
    PenalizedLoss,
    sum_cells,
    sum_propensities,
)
from unskew.propensity.one_bit import OneBitPropensity
from unskew.settings import fitted_state
from unskew.threads import Workers

CLOSE = {"tol": 1e-15, "max_iter": 5000}


def log_of(seen: np.ndarray) -> Ratings:
    return Ratings.from_dense(np.asarray(seen, dtype=float))


def random_bits(n_users: int, n_items: int, *, seed: int = 0, density: float = 0.3) -> np.ndarray:
    """Bits with some structure: each user and item has a propensity of its own."""
    rng = np.random.default_rng(seed)
    return rng.random((n_users, n_items)) < expit(
        logit(density) + rng.normal(size=(n_users, 1)) + rng.normal(size=n_items)
    )


def all_pairs(model: OneBitPropensity, log: Ratings) -> np.ndarray:
    user, item = np.meshgrid(log.users, log.items, indexing="ij")
    return model.predict_pairs(user.ravel(), item.ravel()).reshape(user.shape)


def low_rank_logits(
    n_users: int, n_items: int, *, density: float = 0.2, seed: int = 0
) -> tuple[np.ndarray, Ratings]:
    """True propensities of the model's own kind, rank 3, and a log drawn from them."""
    rng = np.random.default_rng(seed)
    deviation = rng.normal(size=(n_users, 3)) @ rng.normal(size=(n_items, 3)).T * 1.5 / np.sqrt(3)
    true = expit(brentq(lambda c: expit(c + deviation).mean() - density, -20, 20) + deviation)
    return true, log_of(rng.random(true.shape) < true)


def norm_of_singular_values(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


def dense_loss(seen: np.ndarray, x: np.ndarray) -> float:
    return float((np.logaddexp(0, x) - seen * x).sum())


def problem_of(
    bits: ObservedMatrix,
    *,
    penalty: float = 0.7,
    n_factors: int = 2,
    part: CellSubset | None = None,
) -> PenalizedLoss:
    return PenalizedLoss(part or CellSubset(bits), penalty, n_factors, Workers(1))


def test_two_cells_by_hand() -> None:
    """One of two cells: A = (a, -a) and c = 0; minimise 2 log(1 + e^-a) + strength sqrt(2) a."""
    model = OneBitPropensity(1, 0.4, **CLOSE).fit(log_of([[1, 0]]))

    strength = 0.4 * 0.5 * (1 + np.sqrt(2))
    p = 1 - strength / np.sqrt(2)  # 2 sigma(-a) = strength sqrt(2)
    assert model.intercept_ == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(all_pairs(model, log_of([[1, 0]])), [[p, 1 - p]], rtol=1e-5)


def test_a_strong_penalty_leaves_the_density() -> None:
    log = log_of(random_bits(8, 6))
    model = OneBitPropensity(3, 50.0).fit(log)

    np.testing.assert_allclose(all_pairs(model, log), log.density, rtol=1e-3)
    assert model.intercept_ == pytest.approx(logit(log.density), abs=1e-3)


def test_lowered_values_by_hand() -> None:
    np.testing.assert_allclose(one_bit.reduce_to_sum(np.array([5.0, 3.0, 1.0]), 4.0), [3, 1, 0])
    np.testing.assert_allclose(one_bit.reduce_to_sum(np.array([5.0, 1.0, 1.0]), 2.0), [2, 0, 0])
    np.testing.assert_allclose(
        one_bit.reduce_to_sum(np.array([1.0, 1.0, 1.0]), 1.5), [0.5, 0.5, 0.5]
    )


def test_dykstra_finds_the_nearest_matrix_of_both_sets() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 4))

    found = one_bit.project(matrix, 3.0, 0.5)

    assert norm_of_singular_values(found) <= 3 + 1e-8
    assert np.abs(found).max() <= 0.5
    for seed in range(
        200
    ):  # <Z - X, Y - X> <= 0 for every Y of both sets, and only the projection X has that
        other = np.clip(np.random.default_rng(seed).normal(size=(5, 4)), -0.5, 0.5)
        other *= min(1, 3 / norm_of_singular_values(other))
        assert np.vdot(matrix - found, other - found) <= 1e-7


def test_the_convex_solver_agrees_with_a_general_one() -> None:
    """On one row the nuclear norm is the Euclidean one: scipy can do that."""
    seen = np.array([[1.0, 0, 0, 1, 0]])
    found = one_bit.solve_in_nuclear_ball(
        seen, radius=1.5, max_logit=None, max_iter=5000, tol=1e-15, report=lambda step, value: None
    )

    other = minimize(
        lambda x: dense_loss(seen, x[0] + x[1:]),
        np.zeros(6),
        constraints={"type": "ineq", "fun": lambda x: 1.5**2 - x[1:] @ x[1:]},
        tol=1e-12,
    )
    deviation = found.logits.user @ found.logits.item.T
    np.testing.assert_allclose(
        found.logits.intercept + deviation[0], other.x[0] + other.x[1:], atol=1e-4
    )
    assert found.history[-1] == pytest.approx(other.fun, rel=1e-8)


@pytest.mark.parametrize("max_logit", [None, 0.6])
def test_the_convex_solution_obeys_its_bounds_and_adds_up_to_the_log(
    max_logit: float | None,
) -> None:
    seen = random_bits(10, 8)
    model = OneBitPropensity(solver="convex", max_nuclear=0.8, max_logit=max_logit).fit(
        log_of(seen)
    )
    deviation = model.user_factors_ @ model.item_factors_.T

    assert norm_of_singular_values(deviation) <= 0.8 * np.sqrt(80) * (1 + 1e-6)
    assert max_logit is None or np.abs(deviation).max() <= max_logit * (1 + 1e-9)
    assert all_pairs(model, log_of(seen)).sum() == pytest.approx(seen.sum())
    assert (np.diff(model.history_) <= 1e-9).all()


def test_the_low_rank_solution_is_the_convex_one_with_its_own_nuclear_norm() -> None:
    seen = random_bits(20, 14, density=0.25)
    log = log_of(seen)

    factors = OneBitPropensity(14, 0.5, **CLOSE).fit(log)
    norm = norm_of_singular_values(factors.user_factors_ @ factors.item_factors_.T)
    convex = OneBitPropensity(solver="convex", max_nuclear=norm / np.sqrt(280), **CLOSE).fit(log)

    np.testing.assert_allclose(all_pairs(factors, log), all_pairs(convex, log), atol=1e-5)
    assert norm == pytest.approx(
        ((factors.user_factors_**2).sum() + (factors.item_factors_**2).sum()) / 2, rel=1e-6
    )
    assert factors.history_[-1] == pytest.approx(
        convex.history_[-1]
        + 0.5 * ObservedMatrix.of_log(log, Universe(20, 14)).noise_level() * norm
    )


def test_the_slope_at_the_optimum_has_the_strength_as_its_largest_singular_value() -> None:
    """The subgradient of penalty ||A||_*: no direction of any rank lowers the objective."""
    seen = random_bits(25, 18)
    log = log_of(seen)
    strength = 0.6 * ObservedMatrix.of_log(log, Universe(25, 18)).noise_level()

    slope = all_pairs(OneBitPropensity(18, 0.6, **CLOSE).fit(log), log) - seen

    assert np.linalg.norm(slope, 2) == pytest.approx(strength, rel=1e-4)


def test_blocks_add_up_to_the_dense_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_rank, "BLOCK_CELLS", 15)
    seen, rng = random_bits(11, 7), np.random.default_rng(1)
    logits = LowRankLogits(-0.4, rng.normal(size=(11, 3)), rng.normal(size=(7, 3)))
    x = -0.4 + logits.user @ logits.item.T

    with Workers(2) as workers:
        part = CellSubset(ObservedMatrix.of_log(log_of(seen), Universe(11, 7)))
        sums = sum_cells(part, logits, workers)
        totals = sum_propensities(part, logits, workers)

    assert sums.loss == pytest.approx(dense_loss(seen, x))
    assert sums.propensity == pytest.approx(expit(x).sum())
    assert totals == pytest.approx((expit(x).sum(), (expit(x) * expit(-x)).sum()))
    assert sums.by_intercept == pytest.approx((expit(x) - seen).sum())
    np.testing.assert_allclose(sums.by_user, (expit(x) - seen) @ logits.item)
    np.testing.assert_allclose(sums.by_item, (expit(x) - seen).T @ logits.user)


@pytest.mark.parametrize("universe", [Universe(6, 5), Universe(9, 5), Universe(8, 7)])
@pytest.mark.parametrize("is_split", [False, True])
def test_the_gradient_is_that_of_finite_differences(universe: Universe, is_split: bool) -> None:
    bits = ObservedMatrix.of_log(log_of(random_bits(6, 5)), universe)
    rng = np.random.default_rng(2)
    problem = problem_of(bits, part=CellSubset(bits).split(rng)[0] if is_split else None)
    point = problem.random_start(rng) + rng.normal(size=problem.random_start(rng).size)

    _, gradient = problem(point)

    steps = 1e-6 * np.eye(point.size)
    slopes = [(problem(point + step)[0] - problem(point - step)[0]) / 2e-6 for step in steps]
    np.testing.assert_allclose(gradient, slopes, atol=1e-6)


def test_large_logits_overflow_nowhere() -> None:
    bits = ObservedMatrix.of_log(log_of([[1, 0], [0, 1]]), Universe(2, 2))
    logits = LowRankLogits(0.0, np.array([[900.0], [-900.0]]), np.ones((2, 1)))

    assert sum_cells(CellSubset(bits), logits, Workers(1)).loss == pytest.approx(900 + 900)


def test_users_and_items_that_are_not_listed_count_like_listed_ones() -> None:
    seen = random_bits(12, 9)
    listed, short = log_of(np.pad(seen, ((0, 4), (0, 3)))), log_of(seen)

    whole, part = (
        OneBitPropensity(9, 0.5, **CLOSE).fit(log, universe=(16, 12)) for log in (listed, short)
    )
    convex = OneBitPropensity(
        solver="convex",
        max_nuclear=norm_of_singular_values(whole.user_factors_ @ whole.item_factors_.T)
        / np.sqrt(192),
        **CLOSE,
    ).fit(short, universe=(16, 12))

    np.testing.assert_allclose(all_pairs(part, short), all_pairs(whole, listed)[:12, :9], atol=1e-5)
    np.testing.assert_allclose(all_pairs(convex, short), all_pairs(part, short), atol=1e-5)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(st.integers(1, 9), st.integers(2, 9)),
    noise_multiple=st.floats(0.05, 3),
)
def test_propensities_add_up_to_the_log_and_the_objective_decreases(
    seed: int, sizes: tuple[int, int], noise_multiple: float
) -> None:
    seen = random_bits(*sizes, seed=seed)
    seen[0, 0], seen[-1, -1] = True, False
    log = log_of(seen)

    model = OneBitPropensity(3, noise_multiple, random_state=seed, n_threads=1).fit(log)

    propensities = all_pairs(model, log)
    assert ((propensities > 0) & (propensities < 1)).all()
    assert propensities.sum() == pytest.approx(len(log))
    assert (np.diff(model.history_) <= 0).all()
    assert len(model.history_) == model.n_iter_ + 1


def test_the_answer_depends_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_rank, "BLOCK_CELLS", 100)
    log = log_of(random_bits(40, 30))
    shuffled = log.take(np.random.default_rng(0).permutation(len(log)))

    one, two = (
        OneBitPropensity(4, n_threads=1).fit(log),
        OneBitPropensity(4, n_threads=3).fit(shuffled),
    )

    np.testing.assert_array_equal(one.user_factors_, two.user_factors_)
    assert not np.array_equal(
        one.user_factors_, OneBitPropensity(4, random_state=1).fit(log).user_factors_
    )


def test_steps_in_single_precision_end_at_the_same_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = log_of(random_bits(60, 40))
    exact = OneBitPropensity(4, **CLOSE).fit(log)
    monkeypatch.setattr(low_rank, "MANY_CELLS", 1)

    single = OneBitPropensity(4, **CLOSE).fit(log)
    again = OneBitPropensity(4, n_threads=3, **CLOSE).fit(log)

    assert single.history_[-1] == pytest.approx(exact.history_[-1], rel=1e-9)
    np.testing.assert_allclose(all_pairs(single, log), all_pairs(exact, log), rtol=1e-4)
    np.testing.assert_array_equal(single.user_factors_, again.user_factors_)


def test_a_split_gives_each_cell_to_one_part_and_each_user_the_same_share() -> None:
    bits = ObservedMatrix.of_log(log_of(random_bits(20, 30)), Universe(20, 30))
    kept, held_out = CellSubset(bits).split(np.random.default_rng(0))
    rows = slice(0, 20)

    np.testing.assert_array_equal(kept.weight(rows) + held_out.weight(rows), np.ones((20, 30)))
    assert (held_out.weight(rows).sum(axis=0) == 2).all()
    assert (held_out.weight(rows).sum(axis=1) == 3).all()
    for part in (kept, held_out):
        assert (part.weight(rows)[part.observed_cells(rows)] == 1).all()
        assert part.n_observed == part.observed_cells(rows)[0].size
    assert kept.n_observed + held_out.n_observed == bits.item.size


def test_the_held_out_likelihood_chooses_a_strength_near_the_best() -> None:
    true, log = low_rank_logits(150, 120)
    chosen = OneBitPropensity(8, "cv").fit(log)
    errors = {
        noise_multiple: np.abs(
            all_pairs(OneBitPropensity(8, noise_multiple).fit(log), log) - true
        ).sum()
        for noise_multiple in (1.4, 1.0, 0.7, 0.5, 0.35)
    }

    assert errors[chosen.noise_multiple_] <= 1.1 * min(errors.values())
    assert (
        chosen.noise_multiple_
        == chosen.tried_noise_multiples_[int(np.argmin(chosen.held_out_loss_))]
    )
    assert (
        chosen.tried_noise_multiples_[-1]
        < chosen.noise_multiple_
        < chosen.tried_noise_multiples_[0]
    )
    np.testing.assert_array_equal(
        chosen.user_factors_, OneBitPropensity(8, chosen.noise_multiple_).fit(log).user_factors_
    )


def test_known_propensities_are_recovered_the_better_the_more_data() -> None:
    errors = []
    for n_users, n_items in ((60, 50), (150, 120), (400, 320)):
        true, log = low_rank_logits(n_users, n_items)
        errors.append(
            np.abs(all_pairs(OneBitPropensity(8, tol=1e-6).fit(log), log) - true).sum() / true.sum()
        )

    uniform = np.abs(log.density - true).sum() / true.sum()
    assert errors[0] > 1.2 * errors[1] > 1.2**2 * errors[2]
    assert errors[2] < 0.45 * uniform


def test_pure_noise_is_left_alone() -> None:
    log = log_of(np.random.default_rng(0).random((120, 100)) < 0.1)

    np.testing.assert_allclose(
        all_pairs(OneBitPropensity(5, 1.1).fit(log), log), log.density, rtol=0.02
    )


@pytest.mark.parametrize(
    "model",
    [OneBitPropensity(3, "cv"), OneBitPropensity(solver="convex", max_nuclear=0.5, max_logit=2.0)],
)
def test_it_is_saved_and_loaded(model: OneBitPropensity, tmp_path: Path) -> None:
    log = log_of(random_bits(30, 20))
    model.fit(log).save(tmp_path / "model")
    again = unskew.load(tmp_path / "model")

    assert isinstance(again, unskew.propensity.OneBitPropensity)
    assert fitted_state(again).keys() == fitted_state(model).keys()
    assert (again.n_iter_, again.converged_, again.history_, again.noise_multiple_) == (
        *(model.n_iter_, model.converged_, model.history_, model.noise_multiple_),
    )
    np.testing.assert_array_equal(again.predict(log).values, model.predict(log).values)


def test_a_file_with_factors_of_another_size_is_refused(tmp_path: Path) -> None:
    model = OneBitPropensity(3).fit(log_of(random_bits(12, 9)))
    model.item_factors_ = model.item_factors_[:, 1:]
    model.save(tmp_path / "model")

    with pytest.raises(
        ModelFileError,
        match=r"item_factors has shape \(9, 2\), but the rest of the model needs \(9, 3\)",
    ):
        unskew.load(tmp_path / "model")


@pytest.mark.parametrize(
    "given",
    [{"noise_multiple": 0.5}, {"noise_multiple": "cv"}, {"solver": "convex", "max_nuclear": 0.5}],
)
def test_progress_is_shown_on_request(
    given: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    home = "unskew.propensity.one_bit.progress_line"
    monkeypatch.setattr(home, lambda wanted: nullcontext(lines.append if wanted else len))

    OneBitPropensity(**given).fit(log_of(random_bits(20, 15)))
    assert lines == []
    model = OneBitPropensity(**given, verbose=True).fit(log_of(random_bits(20, 15)))
    assert f"step {model.n_iter_}, " in lines[-1]
    assert f"{model.history_[-1]:.6g}" in lines[-1]


def test_a_fit_that_stops_too_early_causes_a_warning() -> None:
    log = log_of(random_bits(20, 15))

    for model in (
        OneBitPropensity(max_iter=2),
        OneBitPropensity(solver="convex", max_nuclear=1.0, max_iter=2),
    ):
        with pytest.warns(ConvergenceWarning, match="not converged after 2 iterations"):
            model.fit(log)
        assert (model.n_iter_, model.converged_) == (2, False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_factors": 0}, "n_factors must be a whole number, at least 1; got 0"),
        ({"max_iter": 0}, "max_iter must be a whole number, at least 1; got 0"),
        ({"random_state": -1}, "random_state must be a whole number, at least 0; got -1"),
        (
            {"noise_multiple": 0.0},
            "noise_multiple must be a finite number, above 0; got 0.0",
        ),
        ({"noise_multiple": "best"}, "noise_multiple must be a finite number, above 0; got 'best'"),
        ({"tol": np.nan}, "tol must be a finite number, at least 0; got nan"),
        (
            {"max_logit": 3.0},
            "max_logit is a setting of solver='convex'; this is solver='low_rank'. Leave one",
        ),
        (
            {"solver": "convex", "max_nuclear": 1.0, "noise_multiple": 0.1},
            "noise_multiple is a setting of solver='low_rank'; this is solver='convex'",
        ),
        (
            {"solver": "convex"},
            "solver='convex' needs max_nuclear, the limit of the nuclear norm of the logits. Pass",
        ),
        (
            {"solver": "convex", "max_nuclear": 1.0, "max_logit": 0.0},
            "max_logit must be a finite number, above 0, or None",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        OneBitPropensity(**given).fit(log_of(random_bits(6, 5)))


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(
        UnknownNameError,
        match=r"unknown value 'lowrank' of solver; valid values are: low_rank, convex",
    ):
        OneBitPropensity(solver="lowrank").fit(log_of(random_bits(6, 5)))


def test_a_matrix_too_large_to_hold_is_refused_by_the_convex_solver() -> None:
    with pytest.raises(
        UsageError,
        match=r"at most 4,194,304; there are 10,000,000. Use solver='low_rank'",
    ):
        OneBitPropensity(solver="convex", max_nuclear=1.0).fit(
            log_of(random_bits(6, 5)), universe=(10_000, 1_000)
        )


def test_a_log_of_every_cell_is_refused() -> None:
    with pytest.raises(
        UniverseError,
        match=r"all 12 cells \(3 users x 4 items\) were observed, so P = 1",
    ):
        OneBitPropensity().fit(log_of(np.ones((3, 4))))


def test_a_log_too_small_to_judge_by_is_refused() -> None:
    with pytest.raises(
        UsageError,
        match="one part has 0 observed cells of 1: the log has too few cells of one kind",
    ):
        OneBitPropensity(noise_multiple="cv").fit(
            log_of([[1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
        )


def test_a_log_without_a_universe_is_refused() -> None:
    with pytest.raises(UniverseError, match="a fit needs the number of users and items"):
        OneBitPropensity().fit(Ratings.from_arrays([1, 2], [1, 2], [5, 4]))


def test_a_factor_at_zero_comes_back_when_the_penalty_is_lowered() -> None:
    bits = ObservedMatrix.of_log(log_of(random_bits(20, 15)), Universe(20, 15))
    problem = replace(problem_of(bits), penalty=0.3 * bits.noise_level())
    zero = LowRankLogits(float(logit(bits.density)), np.zeros((20, 2)), np.zeros((15, 2)))

    assert not problem(problem.to_vector(zero))[1][1:].any()
    assert problem(problem.perturbed_start(zero, np.random.default_rng(0)))[1][1:].any()


def test_the_approximate_hessian_has_a_block_for_each_row() -> None:
    """Also for the row that represents all unlisted users."""
    log = log_of(random_bits(6, 5))
    bits = ObservedMatrix.of_log(log, Universe(log.n_users + 3, log.n_items))
    loss = problem_of(bits, penalty=0.7)
    rng = np.random.default_rng(0)
    point = loss.random_start(rng)
    factors = loss.to_logits(point)
    right = loss.to_logits(rng.normal(size=point.size))

    solved = loss.to_logits(loss.precondition(point)(loss.to_vector(right)))

    assert solved.intercept == pytest.approx(right.intercept)
    by_user = np.bincount(bits.user, minlength=7) / bits.user_count
    mean_square = factors.item[bits.item].T @ factors.item[bits.item] / bits.item.size
    for user in range(7):
        block = 0.7 * np.eye(2) + by_user[user] * mean_square
        expected = np.linalg.solve(block, right.user[user])
        np.testing.assert_allclose(solved.user[user], expected, rtol=1e-10)
    mean_square = factors.user[bits.user].T @ factors.user[bits.user] / bits.item.size
    for item, n_observed in enumerate(np.bincount(bits.item, minlength=5)):
        block = 0.7 * np.eye(2) + n_observed * mean_square
        expected = np.linalg.solve(block, right.item[item])
        np.testing.assert_allclose(solved.item[item], expected, rtol=1e-10)
