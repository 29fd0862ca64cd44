from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import unskew
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.data.weights import training_weights, weighted_mean
from unskew.errors import (
    NotFittedError,
    UnknownIdError,
    UnknownNameError,
    UnskewWarning,
    UsageError,
)
from unskew.factorization import als
from unskew.factorization import objective as problem
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.objective import scaled_ridge
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.threads import Workers

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

WORLD = unskew.simulate(n_users=120, n_items=90, density=0.15, alpha=0.5, random_state=5)
LOG, P = WORLD.log, WORLD.propensities


def objective(model: MatrixFactorization, log: Ratings, weight: np.ndarray) -> float:
    """Eq. (14), term by term."""
    found = model.factors_
    error = log.rating - found.predict(log.user, log.item)
    loss = np.abs(error) if model.loss == "absolute" else error**2
    l2 = scaled_ridge(
        model.l2, log, n_factors=model.n_factors, penalizes_offsets=model.offsets == "regularized"
    )
    return float(
        (weight * loss).sum() + l2 * found.squared_norm(with_offsets=model.offsets == "regularized")
    )


@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_all_solvers_reach_the_same_optimum(offsets: Any) -> None:
    fits = [
        MatrixFactorization(3, 20.0, offsets=offsets, solver=solver, tol=1e-12, max_iter=4000).fit(
            LOG, P
        )
        for solver in ("reduced", "als", "lbfgs")
    ]

    values = [fit.objective_ for fit in fits]
    assert values == pytest.approx([min(values)] * 3, rel=1e-6)
    predictions = [fit.predict(LOG.users[LOG.user], LOG.items[LOG.item]) for fit in fits]
    np.testing.assert_allclose(predictions[0], predictions[1], atol=1e-3)
    np.testing.assert_allclose(predictions[0], predictions[2], atol=1e-3)


@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_momentum_never_raises_the_objective_and_beats_plain_alternation(offsets: Any) -> None:
    model = MatrixFactorization(5, 0.5, offsets=offsets, solver="als", tol=0, max_iter=60)
    with Workers(1) as workers:
        solver = AlternatingLeastSquares(
            model._make_objective(LOG, P.inverse, model._fixed_penalty(LOG), workers)
        )
        plain, value = model._make_start(LOG, weighted_mean(LOG.rating, P.inverse)), np.inf
        for _ in range(60):
            plain, value = solver._sweep(plain, is_exact=True)

    history = model.fit(LOG, P).history_

    assert all(later <= earlier for earlier, later in pairwise(history))
    assert history[-1] < value


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_rough_sweeps_report_the_objective_and_reach_the_same_optimum(
    offsets: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tolerance = 1e-8 if dtype == "float64" else 1e-5
    settings: dict[str, Any] = {
        "offsets": offsets,
        "solver": "als",
        "dtype": dtype,
        "tol": tolerance / 100,
    }
    rough = MatrixFactorization(50, 20.0, **settings).fit(LOG, P)
    begun = MatrixFactorization(50, 20.0, **settings, max_iter=3).fit(LOG, P)
    monkeypatch.setattr(als, "MANY_UNKNOWNS", 10**9)
    exact = MatrixFactorization(50, 20.0, **settings).fit(LOG, P)

    true = objective(begun, LOG, 1 / P.values)
    before_the_constant = 1e-3 if offsets == "regularized" else 0
    assert begun.history_[3] == rough.history_[3] != exact.history_[3]
    assert (
        true * (1 - tolerance) <= begun.objective_ <= true * (1 + tolerance + before_the_constant)
    )
    assert all(later <= earlier for earlier, later in pairwise(rough.history_[:8]))
    assert rough.objective_ == pytest.approx(exact.objective_, rel=10 * tolerance)


@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_rough_sweeps_of_short_and_long_rows_report_the_objective(
    offsets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some rows take steps, some are solved, some in pieces; rows are rotated piece by piece."""
    monkeypatch.setattr(als, "MAX_BYTES_FOR_STEPS", 10 * 56 * 8)
    monkeypatch.setattr(als, "MAX_CELLS", 16)
    monkeypatch.setattr(als, "ROWS_PER_PIECE", 16)
    monkeypatch.setattr(problem, "MAX_CELLS", 16)
    start = MatrixFactorization(50, 20.0, offsets=offsets, max_iter=2).fit(LOG, P).factors_
    before = [
        part.copy()
        for part in (start.user_factors, start.user_offset, start.item_factors, start.item_offset)
    ]
    lengths = np.bincount(LOG.user)

    fits = [
        MatrixFactorization(50, 20.0, offsets=offsets, max_iter=1, n_threads=n).fit(
            LOG, P, initial_factors=start
        )
        for n in (1, 2, 3)
    ]

    true = objective(fits[0], LOG, P.inverse)
    assert lengths.min() < 10 < np.median(lengths) < 16 < lengths.max()
    assert fits[0].objective_ == pytest.approx(true, rel=1e-3 if offsets == "regularized" else 1e-8)
    for part, now in zip(
        before,
        (start.user_factors, start.user_offset, start.item_factors, start.item_offset),
        strict=True,
    ):
        assert np.array_equal(part, now)
    for other in fits[1:]:
        assert np.array_equal(other.factors_.user_factors, fits[0].factors_.user_factors)
        assert np.array_equal(other.factors_.item_factors, fits[0].factors_.item_factors)


def test_rough_sweeps_refuse_ratings_that_overflow() -> None:
    with pytest.raises(UsageError, match="too large for float32"):
        MatrixFactorization(50, dtype="float32").fit(replace(LOG, rating=1e30 * LOG.rating), P)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("offsets", ["none", "free", "regularized"])
def test_long_rows_change_nothing_but_rounding(
    offsets: Any, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = MatrixFactorization(3, 20.0, offsets=offsets, tol=1e-12).fit(LOG, P)
    monkeypatch.setattr(problem, "MAX_CELLS", 7)

    model = MatrixFactorization(3, 20.0, offsets=offsets, tol=1e-12, n_threads=n_threads).fit(
        LOG, P
    )

    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)
    pairs = LOG.users[LOG.user], LOG.items[LOG.item]
    np.testing.assert_allclose(model.predict(*pairs), expected.predict(*pairs), atol=1e-4)


def test_a_long_row_without_a_solution_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "MAX_CELLS", 1)

    with pytest.raises(
        UsageError,
        match=r"user 0 \(10 ratings, 30 factors, l2=0\) has no unique solution\. Use a larger l2",
    ):
        MatrixFactorization(30, 0.0, offsets="none", solver="als", max_iter=2).fit(
            LOG.take(np.arange(20))
        )


def test_a_positive_penalty_that_is_too_small_is_to_be_raised() -> None:
    """With l2 > 0 already, ``Use l2 > 0`` would be no help."""
    with pytest.raises(
        UsageError, match=r"l2=1e-300\) has no unique solution\. Use a larger l2 or fewer factors\."
    ):
        MatrixFactorization(30, 1e-300, offsets="none", solver="als", max_iter=2).fit(
            LOG.take(np.arange(20))
        )


@pytest.mark.parametrize(("solver", "n_starts"), [("reduced", 6), ("als", 6), ("lbfgs", 1)])
def test_a_known_exact_solution_is_recovered(solver: Any, n_starts: int) -> None:
    """Ratings are exactly of rank 2 plus offsets: with a tiny penalty unseen cells have no error.

    The start of the paper is a single one. A few of the small random starts may end in another
    minimum.
    """
    rng = np.random.default_rng(1)
    truth = (
        rng.normal(size=(60, 2)) @ rng.normal(size=(2, 50))
        + rng.normal(size=(60, 1))
        + rng.normal(size=50)
        + 3
    )
    seen = rng.random(truth.shape) < 0.6
    log = Ratings.from_dense(np.where(seen, truth, np.nan), missing=np.nan)

    settings: dict[str, Any] = {
        "offsets": "free",
        "clip_predictions": False,
        "solver": solver,
        "tol": 1e-14,
        "max_iter": 5000,
    }
    fits = [
        MatrixFactorization(2, 1e-7, **settings, random_state=seed).fit(log)
        for seed in range(n_starts)
    ]

    users, items = np.nonzero(~seen)
    recovered = [
        np.allclose(model.predict(users, items), truth[~seen], atol=1e-2) for model in fits
    ]
    assert recovered.count(False) <= n_starts // 6
    assert recovered[int(np.argmin([model.objective_ for model in fits]))]


@pytest.mark.parametrize(
    ("loss", "offsets"), list(product(["squared", "absolute"], ["none", "free", "regularized"]))
)
def test_the_objective_equals_its_formula(loss: Any, offsets: Any) -> None:
    model = MatrixFactorization(4, 5.0, offsets=offsets, loss=loss).fit(LOG, P)

    assert model.objective_ == pytest.approx(objective(model, LOG, P.inverse), rel=1e-8)
    assert len(model.history_) == model.n_iter_ + 1


def test_absolute_loss_has_the_smaller_absolute_error() -> None:
    squared, absolute = (
        MatrixFactorization(4, 5.0, loss=loss).fit(LOG, P) for loss in ("squared", "absolute")
    )
    squared.loss = "absolute"

    assert absolute.objective_ < objective(squared, LOG, P.inverse)


def test_sweeps_on_absolute_loss_end_no_higher_than_rounds_of_the_reduced_objective() -> None:
    sweeps, rounds = (
        MatrixFactorization(4, 5.0, loss="absolute", solver=solver, tol=1e-7).fit(LOG, P)
        for solver in ("als", "reduced")
    )

    assert sweeps.converged_
    assert sweeps.objective_ < rounds.objective_ * (1 + 1e-4)


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize(
    ("solver", "n_factors"), [("reduced", 3), ("als", 3), ("als", 50), ("lbfgs", 3)]
)
def test_the_result_does_not_depend_on_the_number_of_threads(
    solver: Any, n_factors: int, loss: Any
) -> None:
    big = unskew.simulate(n_users=400, n_items=300, density=0.5, alpha=0.9, random_state=2)
    fits = [
        MatrixFactorization(n_factors, 1.0, loss=loss, solver=solver, max_iter=5, n_threads=n).fit(
            big.log, big.propensities
        )
        for n in (1, 2, 3)
    ]

    for other in fits[1:]:
        assert other.history_ == fits[0].history_
        assert np.array_equal(other.factors_.user_factors, fits[0].factors_.user_factors)


def test_constant_propensities_give_the_naive_model() -> None:
    uniform = np.full(len(LOG), len(LOG) / LOG.n_cells)

    one, other = MatrixFactorization(3, 5.0).fit(LOG, uniform), MatrixFactorization(3, 5.0).fit(LOG)

    np.testing.assert_allclose(
        one.factors_.user_factors, other.factors_.user_factors, rtol=1e-6, atol=1e-9
    )


def test_self_normalised_weights_rescale_the_penalty() -> None:
    """MF-SNIPS(l2) = MF-IPS(l2 * sum of weights / U I)."""
    snips = MatrixFactorization(3, 5.0, normalize="self", tol=1e-10).fit(LOG, P)
    ips = MatrixFactorization(3, 5.0 * P.inverse.sum() / LOG.n_cells, tol=1e-10).fit(LOG, P)

    np.testing.assert_allclose(
        snips.predict([0, 1], [2, 3]), ips.predict([0, 1], [2, 3]), atol=1e-4
    )


@pytest.mark.parametrize(
    ("rule", "code", "share"), [("user", LOG.user, LOG.n_items), ("item", LOG.item, LOG.n_users)]
)
def test_normalised_weights_add_up(rule: Any, code: np.ndarray, share: int) -> None:
    totals = np.bincount(code, weights=training_weights(LOG, P, normalize=rule))

    np.testing.assert_allclose(totals[np.unique(code)], share)


def test_l2_has_the_scale_of_the_authors_code() -> None:
    coat_sized = unskew.simulate(n_users=290, n_items=300, random_state=0).log

    assert scaled_ridge(25.0, coat_sized, n_factors=40, penalizes_offsets=True) == pytest.approx(
        89.9, abs=0.05
    )
    assert scaled_ridge(5.0, coat_sized, n_factors=5, penalizes_offsets=True) == pytest.approx(
        122.9, abs=0.05
    )


def test_float32_agrees_with_float64() -> None:
    one, other = (
        MatrixFactorization(3, 20.0, dtype=dtype).fit(LOG, P) for dtype in ("float32", "float64")
    )

    np.testing.assert_allclose(
        one.predict([0, 1, 2], [3, 4, 5]), other.predict([0, 1, 2], [3, 4, 5]), atol=1e-2
    )


def test_initial_factors_at_the_optimum_converge_at_once() -> None:
    cold = MatrixFactorization(4, 5.0, tol=1e-9).fit(LOG, P)

    warm = MatrixFactorization(4, 5.0, tol=1e-9).fit(LOG, P, initial_factors=cold.factors_)

    assert warm.n_iter_ < 5
    assert warm.objective_ == pytest.approx(cold.objective_, rel=1e-6)


def test_unknown_users_and_items() -> None:
    model = MatrixFactorization(3, 5.0).fit(LOG, P)
    found = model.factors_

    assert model.predict([-7], [4], on_unknown="fallback")[0] == pytest.approx(
        found.item_offset[4] + found.global_offset
    )
    assert model.predict([4], [-7], on_unknown="fallback")[0] == pytest.approx(
        found.user_offset[4] + found.global_offset
    )
    with pytest.warns(UnskewWarning, match="1 of 1 users were not in the log of the fit"):
        assert model.predict([-7], [0])[0] == pytest.approx(
            found.item_offset[0] + found.global_offset
        )
    assert model.predict([-7], [-7], on_unknown="fallback")[0] == found.global_offset
    assert np.isnan(model.predict([-7, 4], [4, 4], on_unknown="nan")).tolist() == [True, False]
    with pytest.raises(
        UnknownIdError,
        match="1 of 2 users were not in the log of the fit; the first is -7 at row 1",
    ):
        model.predict([4, -7], [4, 4], on_unknown="raise")


def test_without_offsets_unknown_users_get_the_mean() -> None:
    model = MatrixFactorization(3, 5.0, offsets="none").fit(LOG, P)

    assert model.predict([-7], [4], on_unknown="fallback")[0] == pytest.approx(
        np.average(LOG.rating, weights=P.inverse)
    )


def test_recommendations_are_the_best_unseen_items() -> None:
    model = MatrixFactorization(3, 5.0).fit(LOG, P)
    all_scores = np.array([model.predict(np.full(LOG.n_items, u), LOG.items) for u in range(5)])
    for user in range(5):
        all_scores[user, LOG.item[LOG.user == user]] = -np.inf

    found = model.recommend(np.arange(5), k=7)

    np.testing.assert_allclose(found.scores, -np.sort(-all_scores, axis=1)[:, :7])
    assert found.to_frame("pandas").position.tolist() == list(range(1, 8)) * 5
    assert np.isnan(model.recommend([-7], k=3, on_unknown="nan").scores).all()


@pytest.mark.filterwarnings("ignore:model .* was trained on")
def test_evaluate_accepts_the_model_and_its_scorer() -> None:
    model = MatrixFactorization(3, 5.0).fit(LOG, P)
    matrix = np.array(
        [model.predict(np.full(LOG.n_items, u), LOG.items) for u in range(LOG.n_users)]
    )

    result = unskew.evaluate(
        LOG,
        {"model": model, "matrix": matrix},
        propensities=P,
        metrics=["mse", "dcg@5"],
        estimators=["snips"],
    )

    for metric in ("mse", "dcg@5"):
        one, other = (
            result.risk(name, metric=metric, estimator="snips").estimate
            for name in ("model", "matrix")
        )
        assert one == pytest.approx(other)


def test_scikit_learn_can_clone_it() -> None:
    model = MatrixFactorization(7, 2.0, offsets="free").fit(LOG)

    copy = clone(model)

    assert repr(copy) == "MatrixFactorization(n_factors=7, l2=2.0, offsets='free')"
    assert not hasattr(copy, "factors_")
    assert copy.set_params(l2=3.0).l2 == 3.0
    with pytest.raises(UnknownNameError, match="unknown parameter 'rank'"):
        copy.set_params(rank=3)


@pytest.mark.parametrize("n_factors", [4, 50])
def test_a_fit_continues_from_its_checkpoint_to_the_same_bits(
    n_factors: int, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"n_factors": n_factors, "l2": 2.0, "tol": 0.0}
    MatrixFactorization(**settings, max_iter=13).fit(
        LOG, P, checkpoint=tmp_path / "run", checkpoint_every=5
    )

    resumed = MatrixFactorization(**settings, max_iter=30).fit(
        LOG, P, checkpoint=tmp_path / "run", checkpoint_every=5
    )
    straight = MatrixFactorization(**settings, max_iter=30).fit(LOG, P)

    assert resumed.history_ == straight.history_
    assert np.array_equal(resumed.factors_.item_factors, straight.factors_.item_factors)


def test_a_checkpoint_without_a_newer_field_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run"
    MatrixFactorization(4, 2.0, tol=0, max_iter=5).fit(LOG, P, checkpoint=path, checkpoint_every=5)
    with np.load(path) as stored:
        arrays = {name: array for name, array in stored.items() if name != "state.is_settled"}
    with path.open("wb") as file:
        np.savez(file, **arrays)

    resumed = MatrixFactorization(4, 2.0, tol=0, max_iter=9).fit(LOG, P, checkpoint=path)

    assert resumed.history_ == MatrixFactorization(4, 2.0, tol=0, max_iter=9).fit(LOG, P).history_


SCRIPT = """
import sys, unskew
world = unskew.simulate(n_users=120, n_items=90, density=0.15, alpha=0.5, random_state=5)
model = unskew.MatrixFactorization(6, 0.5, solver=sys.argv[2], tol=0.0, max_iter=int(sys.argv[3]))
model.fit(world.log, world.propensities, checkpoint=sys.argv[1], checkpoint_every=3)
"""


@pytest.mark.parametrize("solver", ["reduced", "als"])
def test_a_killed_fit_continues_to_the_same_bits(tmp_path: Path, solver: str) -> None:
    path = tmp_path / "run"
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path), solver, "100000"])
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    settings: dict[str, Any] = {"n_factors": 6, "l2": 0.5, "solver": solver, "tol": 0.0}
    with np.load(path) as stored:
        n_done = len(stored["history"]) - 1

    resumed = MatrixFactorization(**settings, max_iter=n_done + 5).fit(
        LOG, P, checkpoint=path, checkpoint_every=3
    )
    straight = MatrixFactorization(**settings, max_iter=n_done + 5).fit(LOG, P)

    assert resumed.history_ == straight.history_
    assert np.array_equal(resumed.factors_.user_factors, straight.factors_.user_factors)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    MatrixFactorization(4, 2.0, max_iter=3).fit(LOG, P, checkpoint=path, checkpoint_every=1)
    with pytest.raises(UsageError, match="belongs to another log, other weights or other settings"):
        MatrixFactorization(4, 3.0).fit(LOG, P, checkpoint=path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UsageError, match="cannot be read"):
        MatrixFactorization(4, 2.0).fit(LOG, P, checkpoint=path)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_factors": -1}, "n_factors must be a whole number"),
        (
            {"n_factors": 0, "offsets": "none"},
            "n_factors=0 with offsets='none' leaves nothing to fit",
        ),
        ({"l2": -1.0}, "l2 must be a finite number"),
        ({"max_iter": 0}, "max_iter must be a whole number, at least 1"),
        ({"tol": float("nan")}, "tol must be a finite number"),
        ({"random_state": -1}, "random_state must be a whole number"),
        ({"offsets": "some"}, "unknown value 'some' of offsets"),
        ({"loss": "absolute", "solver": "cg"}, "unknown solver for absolute loss 'cg'"),
        ({"loss": "cubic"}, "unknown value 'cubic' of loss"),
        ({"normalize": "all"}, "unknown value 'all' of normalize"),
        ({"dtype": "float16"}, "unknown value 'float16' of dtype"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        MatrixFactorization(**settings).fit(LOG, P)


def test_an_unfitted_model_cannot_predict() -> None:
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        MatrixFactorization().predict([1], [1])


def test_a_random_state_can_be_a_seed_a_generator_or_none() -> None:
    def fit(random_state: Any) -> np.ndarray:
        model = MatrixFactorization(3, 5.0, random_state=random_state, max_iter=2)
        return model.fit(LOG, P).factors_.item_factors

    seeded, generated, other = fit(7), fit(np.random.default_rng(7)), fit(None)

    assert np.array_equal(seeded, generated)
    assert not np.array_equal(seeded, other)
    assert np.isfinite(other).all()


def test_initial_factors_that_are_not_finite_are_refused() -> None:
    start = MatrixFactorization(2).fit(LOG, P).factors_
    broken = replace(start, item_offset=np.full(LOG.n_items, np.nan))

    with pytest.raises(UsageError, match="initial_factors has numbers that are not finite"):
        MatrixFactorization(2).fit(LOG, P, initial_factors=broken)


def test_the_ridge_does_not_overflow_with_integers_of_numpy() -> None:
    universe = Universe(31_600, 31_600)
    ridges = [
        scaled_ridge(l2, universe, n_factors=2, penalizes_offsets=False) for l2 in (5, np.int32(5))
    ]

    assert ridges[0] == ridges[1] == 5 * 31_600**2 / 63_200 / 2


def test_a_log_of_equal_ratings_is_told() -> None:
    clicks = Ratings.from_arrays([0, 0, 1, 2], [0, 1, 1, 0], [1.0, 1.0, 1.0, 1.0])

    with pytest.warns(UnskewWarning, match=r"all 4 ratings are 1, .*WeightedFactorization"):
        MatrixFactorization(1, 5.0).fit(clicks)
