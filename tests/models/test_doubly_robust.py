"""Doubly robust learning: its objective against the estimators, over all observation patterns."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import unskew
from enumeration import expectation, patterns
from unskew import models
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError, PropensityWarning, UnknownNameError, UsageError
from unskew.estimators.transforms import Clip, Dynamic, Switch
from unskew.factorization.automatic import find_offset_ridges, fit_offsets
from unskew.factorization.balancing import targeted_weight
from unskew.factorization.majorize import DoublyRobustAbsoluteLoss
from unskew.factorization.objective import scaled_ridge
from unskew.factorization.pseudo_outcome import make_pseudo_outcome
from unskew.io.model_files import read_model
from unskew.models.doubly_robust import (
    DRV2,
    EIB,
    TDR,
    DoublyRobustFactorization,
)
from unskew.models.imputation import (
    WEIGHTINGS,
    error_factor,
    find_imputation_weight,
    imputation_weight,
)
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.theory import estimator_bias

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

WORLD = unskew.simulate(n_users=70, n_items=50, density=0.2, alpha=0.5, random_state=5)
LOG, P = WORLD.log, WORLD.propensities
SETTINGS: dict[str, Any] = {"weight_transform": Clip(15)}
SHAPE = (2, 3)
small = arrays(np.float64, SHAPE, elements=st.floats(-3, 3))
chances = arrays(np.float64, SHAPE, elements=st.floats(0.05, 0.95))


def dense(found: Factors) -> np.ndarray:
    product = found.user_factors @ found.item_factors.T
    return product + found.user_offset[:, None] + found.item_offset + found.global_offset


def as_parameters(matrix: np.ndarray) -> Factors:
    """The matrix itself, as factors: its rows times unit vectors."""
    return Factors(
        matrix, np.eye(matrix.shape[1]), np.zeros(len(matrix)), np.zeros(matrix.shape[1]), 0.0
    )


def log_of(truth: np.ndarray, seen: np.ndarray) -> Ratings:
    user, item = np.nonzero(seen)
    return Ratings.from_codes(user, item, truth[seen], shape=truth.shape)


def squared_risk(
    prediction: np.ndarray,
    truth: np.ndarray,
    guess: np.ndarray,
    weight: np.ndarray,
    seen: np.ndarray,
) -> float:
    """What training minimises, over U I: built from the pseudo-outcome that training factorises."""
    if not seen.any():
        return float(np.square(prediction - guess).mean())
    log = log_of(truth, seen)
    target, fixed = make_pseudo_outcome(log, weight[seen], guess[seen], as_parameters(guess))
    outcome = target.user_rows @ target.item_rows.T
    for user, (first, end) in enumerate(pairwise(target.by_user.starts)):
        outcome[user, target.by_user.opposite[first:end]] += target.by_user.rating[first:end]
    return float((np.square(prediction - outcome).sum() + fixed) / truth.size)


def absolute_risk(
    prediction: np.ndarray,
    truth: np.ndarray,
    guess: np.ndarray,
    weight: np.ndarray,
    seen: np.ndarray,
) -> float:
    if not seen.any():
        return float(np.abs(prediction - guess).mean())
    log = log_of(truth, seen)
    loss = DoublyRobustAbsoluteLoss.of(
        log, weight[seen], guess[seen], as_parameters(guess), random_state=0
    )
    return loss.loss(prediction[loss.user, loss.item]) / truth.size


RISKS = {"mse": (squared_risk, np.square), "mae": (absolute_risk, np.abs)}


few = settings(max_examples=10)
"""Each example already goes through all patterns."""


@pytest.mark.parametrize("metric", RISKS)
@few
@given(truth=small, prediction=small, guess=small, true=chances, assumed=chances)
def test_the_training_objective_is_unbiased_if_the_propensities_or_the_imputation_are_right(
    metric: str,
    truth: np.ndarray,
    prediction: np.ndarray,
    guess: np.ndarray,
    true: np.ndarray,
    assumed: np.ndarray,
) -> None:
    risk, loss = RISKS[metric]
    wanted = float(loss(prediction - truth).mean())

    right_propensities = expectation(
        true, lambda seen: risk(prediction, truth, guess, 1 / true, seen)
    )
    assert right_propensities == pytest.approx(wanted, abs=1e-9)
    for seen, _ in patterns(true):
        assert risk(prediction, truth, truth, 1 / assumed, seen) == pytest.approx(wanted, abs=1e-9)
    both_wrong = expectation(true, lambda seen: risk(prediction, truth, guess, 1 / assumed, seen))
    error = loss(prediction - truth) - loss(prediction - guess)
    bias = estimator_bias(error.ravel(), true=true.ravel(), weight=1 / assumed.ravel())
    assert wanted - both_wrong == pytest.approx(bias, abs=1e-9)


def dr_by_hand(log: Ratings, prediction: Any, guess: Any, weight: Any, metric: str) -> float:
    """The objective of learning: imputed losses are losses at the imputed rating."""
    loss = {"mse": np.square, "mae": np.abs}[metric]
    imputed, observed = loss(guess - prediction), (log.user, log.item)
    error = loss(log.rating - prediction[observed]) - imputed[observed]
    return float((imputed.sum() + weight @ error) / log.n_cells)


@pytest.mark.parametrize("metric", RISKS)
def test_the_training_objective_is_the_doubly_robust_risk_on_every_pattern(metric: str) -> None:
    rng = np.random.default_rng(1)
    truth, prediction, guess = rng.normal(size=(3, *SHAPE))
    true = rng.uniform(0.1, 0.9, SHAPE)
    for seen, _ in patterns(true):
        if seen.sum() > 1:
            value = dr_by_hand(log_of(truth, seen), prediction, guess, 1 / true[seen], metric)
            assert RISKS[metric][0](prediction, truth, guess, 1 / true, seen) == pytest.approx(
                value, abs=1e-9
            )


MODES = ("none", "free", "regularized")
IMPUTER = MatrixFactorization(5, 1.0, offsets="none")


@pytest.mark.parametrize(
    ("offsets", "loss", "penalizes"),
    list(product(MODES, ("squared", "absolute"), ("correction", "prediction"))),
)
def test_the_fitted_objective_is_the_dr_estimate_and_the_penalty(
    offsets: Any, loss: Any, penalizes: Any
) -> None:
    transform = Clip(8) if offsets == "free" else None
    model = DoublyRobustFactorization(
        3,
        5.0,
        offsets=offsets,
        loss=loss,
        penalizes=penalizes,
        imputer=IMPUTER,
        weight_transform=transform,
        tol=1e-4,
    ).fit(LOG, P)
    metric = {"squared": "mse", "absolute": "mae"}[loss]

    weight = P.inverse if transform is None else transform(P.inverse)
    dr = dr_by_hand(LOG, dense(model.factors_), dense(model.imputed_), weight, metric)
    l2 = scaled_ridge(5.0, LOG, n_factors=3, penalizes_offsets=offsets == "regularized")
    penalized = model.factors_
    if penalizes == "correction":
        imputed = model.imputed_
        assert penalized.n_factors == 3 + imputed.n_factors
        penalized = Factors(
            penalized.user_factors[:, :3],
            penalized.item_factors[:, :3],
            penalized.user_offset - imputed.user_offset,
            penalized.item_offset - imputed.item_offset,
            penalized.global_offset - imputed.global_offset,
        )
    penalty = l2 * penalized.squared_norm(with_offsets=offsets == "regularized")
    assert model.risk_ == pytest.approx(dr, rel=1e-8)
    assert model.objective_ == pytest.approx(LOG.n_cells * dr + penalty, rel=1e-8)


def test_error_imputation_is_the_estimators_eib_and_reads_no_propensities() -> None:
    model = EIB(3, 5.0).fit(LOG)

    ones = np.ones(len(LOG))
    eib = dr_by_hand(LOG, dense(model.factors_), dense(model.imputed_), ones, "mse")
    assert model.risk_ == pytest.approx(eib, rel=1e-9)
    twin = DoublyRobustFactorization(3, 5.0, weighting="eib").fit(LOG, P)
    assert np.array_equal(dense(twin.factors_), dense(model.factors_))


def test_the_prediction_is_the_soft_thresholded_svd_of_the_pseudo_outcome() -> None:
    """Without offsets, no factorisation of three factors has a smaller DR risk plus penalty."""
    model = DoublyRobustFactorization(
        *(3, 5.0),
        offsets="none",
        imputer=IMPUTER,
        penalizes="prediction",
        tol=1e-13,
        max_iter=3000,
        **SETTINGS,
    ).fit(LOG, P)
    target, weight = dense(model.imputed_), Clip(15)(P.inverse)
    target[LOG.user, LOG.item] += weight * (LOG.rating - target[LOG.user, LOG.item])

    values = np.linalg.svd(target, compute_uv=False)
    kept = np.maximum(values[:3] - scaled_ridge(5.0, LOG, n_factors=3, penalizes_offsets=False), 0)
    fixed = (weight * (1 - weight)) @ np.square(
        LOG.rating - model.imputed_.predict(LOG.user, LOG.item)
    )
    assert kept[0] > 0
    assert model.objective_ - fixed == pytest.approx(
        np.square(values).sum() - np.square(kept).sum(), rel=1e-9
    )


def test_the_imputation_is_a_weighted_factorisation_of_the_log() -> None:
    imputer = MatrixFactorization(2, 3.0, offsets="regularized")
    model = DoublyRobustFactorization(3, 5.0, imputer=imputer, weighting="dr-jl", **SETTINGS).fit(
        LOG, P
    )

    weight = np.minimum(P.inverse, np.quantile(P.inverse, 0.99))
    weight *= LOG.n_cells / weight.sum()
    twin = MatrixFactorization(2, 3.0).fit(LOG, np.minimum(1 / weight, 1))
    assert (weight >= 1).all()
    np.testing.assert_allclose(dense(model.imputed_), dense(twin.factors_), atol=1e-9)
    assert imputer.get_params() == MatrixFactorization(2, 3.0, offsets="regularized").get_params()


# Weights of the imputation


@few
@given(truth=small, guess=small, true=chances)
def test_weightings_estimate_variance_and_squared_bias_without_error(
    truth: np.ndarray, guess: np.ndarray, true: np.ndarray
) -> None:
    """E of sum_O a(P) (Y - G)^2, by enumeration, is what each method claims to minimise."""
    square, odds = np.square(truth - guess), (1 - true) / true
    wanted = {
        "eib": true * square,
        "dr-jl": square,
        "mrdr": odds * square,
        "dr-bias": odds**2 * square,
        "dr-mse": (odds + odds**2) / 2 * square,
    }
    for name, cells in wanted.items():
        mean = expectation(
            true, lambda seen, name=name: float(WEIGHTINGS[name](true[seen]) @ square[seen])
        )
        assert mean == pytest.approx(cells.sum(), rel=1e-9, abs=1e-9)


def test_weights_of_the_imputation_add_up_and_large_ones_are_lowered() -> None:
    for name in WEIGHTINGS:
        weight = imputation_weight(name, P.values, LOG.n_cells)  # type: ignore[arg-type]
        assert weight.sum() == pytest.approx(LOG.n_cells)
    raw = WEIGHTINGS["dr-bias"](P.values)
    lowered = imputation_weight("dr-bias", P.values, LOG.n_cells)
    assert lowered.max() / lowered.min() == pytest.approx(np.quantile(raw, 0.99) / raw.min())
    np.testing.assert_allclose(imputation_weight("mrdr", np.ones(4), 20), 5.0)


@pytest.mark.parametrize(
    "kind",
    [
        DoublyRobustFactorization,
        models.MRDR,
        models.StableDR,
        models.AKBDR,
        models.CalibratedDoublyRobust,
    ],
    ids=str,
)
def test_the_default_imputer_has_as_many_factors_as_the_model(kind: Any) -> None:
    assert kind(3, 5.0).fit(LOG, P).imputed_.n_factors in (3, 4)  # 4 if users have lines of G
    assert kind(0, 5.0).fit(LOG, P).imputed_.n_factors in (0, 1)


def test_the_default_imputer_takes_the_weights_that_predict_held_out_ratings() -> None:
    """Squared weights of a noisy log lose to 1 / P; an imputer that is passed keeps them."""
    rng = np.random.default_rng(3)
    user, item = np.divmod(rng.choice(200 * 50, 2000, replace=False), 50)
    rating = rng.normal(0, 0.3, 200)[user] + rng.normal(0, 1.0, user.size)
    log = Ratings.from_codes(user.astype(np.int32), item.astype(np.int32), rating, shape=(200, 50))
    propensity = np.exp(rng.uniform(np.log(0.01), 0, user.size))

    def weight(imputer: MatrixFactorization | None, name: Any) -> np.ndarray:
        return find_imputation_weight(imputer, name, log, propensity, random_state=0)

    inverse = [
        imputation_weight("dr-jl", propensity, log.n_cells, is_clipped=clips)
        for clips in (True, False)
    ]
    chosen = weight(None, "dr-jl")
    assert any(np.array_equal(chosen, each) for each in inverse)
    np.testing.assert_array_equal(weight(None, "dr-bias"), chosen)
    of_own = imputation_weight("dr-bias", propensity, log.n_cells)
    np.testing.assert_array_equal(weight(MatrixFactorization(), "dr-bias"), of_own)
    np.testing.assert_allclose(weight(None, "eib"), log.n_cells / len(log))


def test_the_weights_that_are_chosen_have_the_least_error_of_held_out_ratings() -> None:
    """By fits of offsets to three quarters, judged on the fourth with weights 1 / P."""
    errors = {}
    number = np.random.default_rng(0).permutation(len(LOG)) % 4
    for name, clips in (("mrdr", True), ("dr-jl", True), ("dr-jl", False)):
        weight = imputation_weight(name, P.values, LOG.n_cells, is_clipped=clips)  # type: ignore[arg-type]
        errors[name, clips] = 0.0
        for part in range(4):
            rest, held = LOG.take(number != part), LOG.take(number == part)
            inner = weight[number != part] / (number != part).mean()
            predicted = fit_offsets(rest, inner, *find_offset_ridges(rest, inner), predicts=held)
            square = np.square(held.rating - predicted)
            errors[name, clips] += float(P.inverse[number == part] @ square)
    name, clips = min(errors, key=errors.__getitem__)

    chosen = find_imputation_weight(None, "mrdr", LOG, P.values, random_state=0)

    wanted = imputation_weight(name, P.values, LOG.n_cells, is_clipped=clips)  # type: ignore[arg-type]
    np.testing.assert_array_equal(chosen, wanted)


NOISY = (models.MRDR, models.DR_BIAS, models.DRV2, models.IPSV2, models.StableDR, models.AKBIPS)


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
@pytest.mark.parametrize("preset", NOISY, ids=lambda each: each.name)
def test_defaults_are_not_worse_than_offsets_on_a_noisy_log(preset: Any) -> None:
    """Naive Bayes in a world of hardly any signal, where popular items are seen more often."""
    rng = np.random.default_rng(5)
    users, items = 1000, 300
    score = 2.2 + 0.25 * rng.normal(size=(users, 1)) + 0.9 * rng.normal(size=(users, items))
    truth = np.clip(np.rint(score), 1, 5)
    effect = 0.9 * (truth - truth.mean()) + rng.normal(size=(1, items))
    propensity = np.minimum(0.03 * np.exp(effect) / np.exp(effect).mean(), 0.95)
    user, item = np.nonzero(rng.random(truth.shape) < propensity)
    ids = {"users": np.arange(users), "items": np.arange(items)}
    log = Ratings.from_arrays(user, item, truth[user, item], **ids)
    bayes = unskew.NaiveBayesPropensity().fit(log, mcar=rng.choice(truth.ravel(), 3000))
    cells = np.divmod(np.arange(truth.size), items)

    def error(model: Any) -> float:
        predicted = model.fit(log, bayes).predict(*cells)
        return float(np.square(truth.ravel() - predicted).mean())

    assert error(preset()) < error(models.OffsetsOnly()) + 0.01 * truth.var()


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_a_few_heavy_ratings_do_not_make_the_default_worse_than_offsets() -> None:
    """About 5,000 ratings count as much as 100 of equal weight; 300 random ratings are known."""
    excess = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        users, items = 600, 250
        score = 2.5 + 0.45 * rng.normal(size=(users, 1)) + 0.4 * rng.normal(size=(1, items))
        truth = np.clip(np.rint(score + 0.8 * rng.normal(size=(users, items))), 1, 5)
        relative = np.exp(2.2 * truth + 0.5 * rng.normal(size=(1, items)))
        propensity = np.minimum(relative * 5_000 / relative.sum(), 0.95)
        user, item = np.nonzero(rng.random(truth.shape) < propensity)
        ids = {"users": np.arange(users), "items": np.arange(items)}
        log = Ratings.from_arrays(user, item, truth[user, item], **ids)
        bayes = unskew.NaiveBayesPropensity().fit(log, mcar=rng.choice(truth.ravel(), 300))
        cells = np.divmod(np.arange(truth.size), items)
        errors = [
            float(np.square(truth.ravel() - model.fit(log, bayes).predict(*cells)).mean())
            for model in (DoublyRobustFactorization(), models.OffsetsOnly())
        ]
        excess.append((errors[0] - errors[1]) / truth.var())

    assert np.mean(excess) < 0.01


@given(
    y=arrays(np.float64, 5, elements=st.floats(-5, 5)),
    g=arrays(np.float64, 5, elements=st.floats(-5, 5)),
)
def test_a_factor_turns_errors_of_the_label_into_errors_of_the_loss(
    y: np.ndarray, g: np.ndarray
) -> None:
    f = np.array([0.0, 1.0, -2.0, 3.0, 0.5])

    wanted = np.square((y - f) ** 2 - (g - f) ** 2)

    np.testing.assert_allclose(error_factor(y, g, f) * np.square(y - g), wanted, atol=1e-9)


def test_label_imputation_needs_one_round_and_error_imputation_moves_on() -> None:
    settings = {
        "imputer": IMPUTER,
        "weighting": "mrdr",
        "penalizes": "prediction",
        **SETTINGS,
    }
    label = [DoublyRobustFactorization(3, 5.0, n_rounds=n, **settings).fit(LOG, P) for n in (1, 4)]
    error = [
        DoublyRobustFactorization(3, 5.0, imputation="error", n_rounds=n, **settings).fit(LOG, P)
        for n in (1, 2)
    ]

    assert np.array_equal(dense(label[0].factors_), dense(label[1].factors_))
    assert np.array_equal(dense(label[0].factors_), dense(error[0].factors_))
    weight = imputation_weight(
        "mrdr",
        P.values,
        LOG.n_cells,
        error_factor(
            LOG.rating,
            error[0].imputed_.predict(LOG.user, LOG.item),
            error[0].factors_.predict(LOG.user, LOG.item),
        ),
    )
    change = dense(error[1].imputed_) - dense(error[0].imputed_)
    residual = LOG.rating - error[1].imputed_.predict(LOG.user, LOG.item)
    found, l2 = error[1].imputed_, scaled_ridge(1.0, LOG, n_factors=5, penalizes_offsets=False)
    slope = np.zeros_like(found.user_factors)
    np.add.at(slope, LOG.user, (weight * residual)[:, None] * found.item_factors[LOG.item])
    assert np.abs(change).max() > 0.01
    assert np.abs(slope - l2 * found.user_factors).max() < 0.02 * np.abs(slope).max()


# Targeting


@few
@given(truth=small, prediction=small, guess=small, p=chances)
def test_targeting_makes_doubly_robust_and_error_imputation_agree(
    truth: np.ndarray, prediction: np.ndarray, guess: np.ndarray, p: np.ndarray
) -> None:
    """The slow way: fit e, shift the imputed losses, estimate twice. The fast way: weights."""
    delta, imputed, beyond = np.square(prediction - truth), np.square(prediction - guess), 1 / p - 1
    for seen, _ in patterns(p):
        if not seen.any():
            continue
        shift = ((delta - imputed) * beyond)[seen].sum() / np.square(beyond[seen]).sum()
        shifted = imputed + shift * beyond
        assert ((delta - shifted) * beyond)[seen].sum() == pytest.approx(0, abs=1e-6)
        dr = shifted.sum() + ((delta - shifted) / p)[seen].sum()
        eib = shifted.sum() + (delta - shifted)[seen].sum()
        weight = np.zeros(SHAPE)
        weight[seen] = targeted_weight(1 / p[seen], p, log_of(truth, seen), None)
        fast = squared_risk(prediction, truth, guess, weight, seen) * truth.size
        assert dr == pytest.approx(eib, rel=1e-6, abs=1e-6)
        assert fast == pytest.approx(dr, rel=1e-6, abs=1e-6)
        assert squared_risk(prediction, truth, truth, weight, seen) == pytest.approx(
            delta.mean(), abs=1e-9
        )


def test_targeted_learning_minimises_the_targeted_estimate() -> None:
    matrix = np.random.default_rng(0).uniform(0.05, 0.5, (LOG.n_users, LOG.n_items))
    model = TDR(3, 5.0, **SETTINGS).fit(LOG, matrix)

    weight, everywhere = Clip(15)(1 / matrix[LOG.user, LOG.item]), Clip(15)(1 / matrix)
    guess, found = dense(model.imputed_), dense(model.factors_)
    delta, imputed = np.square(LOG.rating - found[LOG.user, LOG.item]), np.square(guess - found)
    shift = ((delta - imputed[LOG.user, LOG.item]) @ (weight - 1)) / np.square(weight - 1).sum()
    shifted = imputed + shift * (everywhere - 1)
    slow = shifted.sum() + weight @ (delta - shifted[LOG.user, LOG.item])
    assert model.risk_ * LOG.n_cells == pytest.approx(slow, rel=1e-8)
    assert model.targeted


def test_targeting_asks_for_the_propensities_of_all_cells() -> None:
    with pytest.raises(
        BadPropensityError,
        match=r"needs the propensities of all cells\. Pass a matrix of shape \(70, 50\)",
    ):
        TDR(3).fit(LOG, P)


def test_sure_cells_need_no_targeting() -> None:
    log = log_of(np.ones(SHAPE), np.ones(SHAPE, bool))
    np.testing.assert_array_equal(
        targeted_weight(np.ones(6), np.ones(SHAPE), log, None), np.ones(6)
    )


# Settings


def test_balanced_learning_balances_the_predictions_of_the_first_round() -> None:
    once, twice, thrice = (DRV2(3, 5.0, n_rounds=n, **SETTINGS).fit(LOG, P) for n in (1, 2, 3))

    assert np.array_equal(dense(twice.factors_), dense(thrice.factors_))

    assert np.array_equal(
        dense(once.factors_),
        dense(
            DoublyRobustFactorization(3, 5.0, weighting="dr-jl", **SETTINGS).fit(LOG, P).factors_
        ),
    )
    assert np.abs(dense(once.factors_) - dense(twice.factors_)).max() > 1e-4


def test_clicks_are_a_log_of_zeros_and_ones() -> None:
    clicks = Ratings.from_codes(
        LOG.user, LOG.item, (LOG.rating >= 4).astype(float), shape=(LOG.n_users, LOG.n_items)
    )
    model = DoublyRobustFactorization(3, 5.0, relevance_threshold=4).fit(LOG, P)
    twin = DoublyRobustFactorization(3, 5.0).fit(clicks, P)

    assert np.array_equal(dense(model.factors_), dense(twin.factors_))
    with pytest.raises(UsageError, match="no rating reaches the threshold 6; ratings are 1 to 5"):
        DoublyRobustFactorization(3, relevance_threshold=6).fit(LOG, P)
    with pytest.raises(UsageError, match="every rating reaches the threshold 1"):
        MatrixFactorization(3, relevance_threshold=1).fit(LOG, P)
    with pytest.raises(UsageError, match="relevance_threshold must be the lowest rating"):
        MatrixFactorization(3, relevance_threshold=float("nan")).fit(LOG, P)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"weighting": "mdr"}, "unknown value 'mdr' of weighting.*Did you mean 'mrdr'"),
        ({"imputation": "loss"}, "unknown value 'loss' of imputation"),
        ({"loss": "hinge"}, "unknown value 'hinge' of loss"),
        ({"offsets": "some"}, "unknown value 'some' of offsets"),
        ({"dtype": "float16"}, "unknown value .* of dtype"),
        ({"n_rounds": 0}, "n_rounds must be a whole number, at least 1"),
        ({"l2": -1.0}, "l2 must be a finite number"),
        (
            {"weighting": "eib", "targeted": True},
            "targeted has no effect with weighting='eib', which uses no propensities",
        ),
        ({"targeted": True, "is_balanced": True}, r"in two ways\. Choose one"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises((UsageError, UnknownNameError), match=match):
        DoublyRobustFactorization(3, **{"l2": 1.0} | settings).fit(LOG, P)


def test_without_propensities_it_says_what_is_missing() -> None:
    with pytest.raises(UsageError, match=r"needs propensities\. Pass them to fit") as caught:
        DoublyRobustFactorization(3).fit(LOG)
    assert caught.value.parameter == "propensities"


def test_large_weights_that_meet_a_poor_imputation_are_told() -> None:
    imputer = MatrixFactorization(1, 1e4, offsets="none")
    match = r"reach .* more than 10 times the range of the values that they replace \(4\): .*Clip"
    with pytest.warns(PropensityWarning, match=match):
        DoublyRobustFactorization(3, 5.0, imputer=imputer).fit(LOG, np.minimum(P.values, 0.05))


def test_threads_are_not_seen_and_float32_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.factorization.objective.CELLS_PER_TASK", 50)
    for loss in ("squared", "absolute"):
        fits = [
            DoublyRobustFactorization(3, 5.0, loss=loss, n_threads=n, max_iter=20, **SETTINGS).fit(
                LOG, P
            )  # type: ignore[arg-type]
            for n in (1, 2, 3)
        ]
        assert all(np.array_equal(dense(each.factors_), dense(fits[0].factors_)) for each in fits)
    single = DoublyRobustFactorization(3, 5.0, dtype="float32", **SETTINGS).fit(LOG, P)
    double = DoublyRobustFactorization(3, 5.0, **SETTINGS).fit(LOG, P)
    assert single.risk_ == pytest.approx(double.risk_, rel=1e-3)


@pytest.mark.parametrize(
    "model", [EIB(3), DRV2(3), DoublyRobustFactorization(3, imputer=MatrixFactorization(2, 3.0))]
)
def test_a_saved_model_comes_back(model: DoublyRobustFactorization, tmp_path: Path) -> None:
    model.set_params(l2=20.0).fit(LOG, np.maximum(P.values, 0.1))
    model.save(tmp_path / "model")

    kinds = {kind.__name__: kind for kind in (type(model), MatrixFactorization)}
    again = read_model(tmp_path / "model", kinds)

    assert isinstance(again, type(model))
    assert repr(again) == repr(model)
    assert again.risk_ == model.risk_
    assert np.array_equal(dense(again.imputed_), dense(model.imputed_))
    assert np.array_equal(
        again.predict(LOG.users, LOG.items[:1].repeat(70)),
        model.predict(LOG.users, LOG.items[:1].repeat(70)),
    )


def test_unknown_pairs_without_offsets_fall_back_on_the_doubly_robust_mean() -> None:
    model = DoublyRobustFactorization(3, 5.0, offsets="none", **SETTINGS).fit(LOG, P)
    guess = dense(model.imputed_)

    mean = (
        guess.sum() + Clip(15)(P.inverse) @ (LOG.rating - guess[LOG.user, LOG.item])
    ) / LOG.n_cells

    assert model.predict([-1], [-1], on_unknown="fallback")[0] == pytest.approx(mean)


def test_a_warm_start_goes_on() -> None:
    model = DoublyRobustFactorization(3, 5.0, tol=1e-9, **SETTINGS).fit(LOG, P)
    again = DoublyRobustFactorization(3, 5.0, tol=1e-9, **SETTINGS).fit(
        LOG, P, initial_factors=model.factors_
    )

    assert again.n_iter_ < model.n_iter_
    assert again.objective_ == pytest.approx(model.objective_, rel=1e-6)


def test_cross_validation_chooses_an_imputer_and_a_transform() -> None:
    grid = {
        "l2": [5.0, 20.0],
        "imputer": [MatrixFactorization(2, 1.0, offsets="none")],
        "weight_transform": [Clip(5), Clip(20)],
    }
    found = unskew.cross_validate(
        DoublyRobustFactorization(3), LOG, propensities=P, grid=grid, n_threads=1
    )

    assert found.best_params["weight_transform"] in grid["weight_transform"]
    assert "Clip(max_weight=5)" in repr(found)


def test_no_matrix_of_users_by_items_is_ever_built() -> None:
    shape, rng = (3000, 3000), np.random.default_rng(0)
    log = Ratings.from_codes(
        rng.permutation(3000), rng.permutation(3000), rng.normal(size=3000), shape=shape
    )
    tracemalloc.start()
    imputer = MatrixFactorization(3, 1.0)
    DoublyRobustFactorization(3, 1.0, imputer=imputer, max_iter=3, n_threads=1).fit(
        log, np.full(3000, 0.5)
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 * shape[0] * shape[1] / 10


# Absolute loss


def test_squares_lie_above_the_absolute_loss_and_touch_it() -> None:
    rng = np.random.default_rng(0)
    guess = rng.normal(3, 1, (LOG.n_users, LOG.n_items))
    loss = DoublyRobustAbsoluteLoss.of(
        LOG, P.inverse, guess[LOG.user, LOG.item], as_parameters(guess), random_state=0
    )
    now = rng.normal(3, 1, loss.user.size)
    now[: len(LOG)] = now[len(LOG) :].reshape(guess.shape)[LOG.user, LOG.item]
    target, weight = loss.quadratic_bound(now, 30)

    def squares(at: np.ndarray) -> float:
        return float(weight @ np.square(at - target))

    for scale in (1e-3, 0.1, 1.0, 10.0):
        other = now + rng.normal(0, scale, guess.shape)[loss.user, loss.item]
        assert squares(other) - squares(now) >= loss.loss(other) - loss.loss(now) - 1e-6
    step = 1e-7 * rng.normal(0, 1, guess.shape)[loss.user, loss.item]
    assert squares(now + step) - squares(now) == pytest.approx(
        loss.loss(now + step) - loss.loss(now), rel=1e-3
    )


def test_absolute_loss_beats_squared_on_its_own_ground() -> None:
    def objective(model: DoublyRobustFactorization) -> float:
        loss = DoublyRobustAbsoluteLoss.of(
            LOG, weight, guess.predict(LOG.user, LOG.item), guess, random_state=0
        )
        l2 = scaled_ridge(5.0, LOG, n_factors=3, penalizes_offsets=True)
        values = dense(model.factors_)[loss.user, loss.item]
        return loss.loss(values) + l2 * model.factors_.squared_norm(with_offsets=True)

    absolute, squared = (
        DoublyRobustFactorization(
            3,
            5.0,
            loss=loss,  # type: ignore[arg-type]
            penalizes="prediction",
            **SETTINGS,
        ).fit(LOG, P)
        for loss in ("absolute", "squared")
    )
    guess, weight = absolute.imputed_, Clip(15)(P.inverse)
    assert absolute.objective_ == pytest.approx(objective(absolute), rel=1e-9)
    assert absolute.objective_ < objective(squared)


def test_many_cells_are_stood_for_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.factorization.majorize.MAX_CELLS", 1000)
    guess = np.full((LOG.n_users, LOG.n_items), 3.0)

    losses = [
        DoublyRobustAbsoluteLoss.of(
            LOG, P.inverse, np.full(len(LOG), 3.0), as_parameters(guess), random_state=seed
        )
        for seed in (0, 0, 1)
    ]

    assert losses[0].user.size == len(LOG) + 1000
    assert losses[0].weight[len(LOG) :].sum() == pytest.approx(LOG.n_cells)
    assert np.array_equal(losses[0].item, losses[1].item)
    assert not np.array_equal(losses[0].item, losses[2].item)


# Transforms in plain weighted factorisation


def test_a_clip_in_training_is_a_floor_under_propensities() -> None:
    clipped = MatrixFactorization(3, 5.0, weight_transform=Clip(10)).fit(LOG, P)

    floored = MatrixFactorization(3, 5.0).fit(LOG, np.maximum(P.values, 0.1))

    np.testing.assert_allclose(dense(clipped.factors_), dense(floored.factors_), atol=1e-8)


@pytest.mark.parametrize("normalize", ["none", "self", "user", "item"])
@pytest.mark.parametrize("offsets", MODES)
def test_ratings_that_a_switch_drops_are_as_if_never_seen(normalize: Any, offsets: Any) -> None:
    kept = P.inverse <= 10
    rest = LOG.take(kept)

    switched = MatrixFactorization(
        3, 5.0, offsets=offsets, normalize=normalize, weight_transform=Switch(10)
    ).fit(LOG, P)

    twin = MatrixFactorization(3, 5.0, offsets=offsets, normalize=normalize).fit(
        rest, P.values[kept]
    )
    np.testing.assert_allclose(dense(switched.factors_), dense(twin.factors_), atol=1e-8)
    assert switched.count_seen(LOG) == len(LOG)


def test_transforms_ask_for_propensities_and_leave_something() -> None:
    with pytest.raises(
        UsageError, match="transforms inverse propensities, but no propensities were passed"
    ):
        MatrixFactorization(3, weight_transform=Dynamic()).fit(LOG)
    with pytest.raises(UsageError, match="sets every weight to 0"):
        MatrixFactorization(3, weight_transform=Switch(1)).fit(LOG, P)
