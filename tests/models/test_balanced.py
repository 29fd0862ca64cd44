"""Balanced propensities, and the learners that fit with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import unskew
from enumeration import patterns
from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.errors import UnknownNameError, UsageError
from unskew.factorization.balancing import BalanceFeatures, balance_propensities
from unskew.io.model_files import read_model
from unskew.models.balanced import IPSV2, BalancedFactorization, StableDR
from unskew.models.cross_fitting import PART_TOLERANCE, LogParts
from unskew.models.imputation import fit_imputation, imputation_weight
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.threads import Workers

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

WORLD = unskew.simulate(n_users=70, n_items=50, density=0.2, alpha=0.5, random_state=5)
LOG, P = WORLD.log, WORLD.propensities


def dense(found: Factors) -> np.ndarray:
    product = found.user_factors @ found.item_factors.T
    return product + found.user_offset[:, None] + found.item_offset + found.global_offset


def some_parameters(seed: int) -> Factors:
    rng = np.random.default_rng(seed)
    sides = (LOG.n_users, LOG.n_items)
    factors, offsets = [rng.normal(size=(n, 2)) for n in sides], [rng.normal(size=n) for n in sides]
    return Factors(factors[0], factors[1], offsets[0], offsets[1], 0.7)


def can_be_balanced(phi: np.ndarray, seen: np.ndarray) -> bool:
    """Whether the mean over unseen cells lies strictly within what was seen."""
    low, high, mean = phi[seen].min(), phi[seen].max(), phi[~seen].mean()
    return bool(low + 0.05 * (high - low) < mean < high - 0.05 * (high - low))


@settings(max_examples=10)
@given(
    phi=arrays(np.float64, (2, 4), elements=st.floats(0, 5)),
    p=arrays(np.float64, (2, 4), elements=st.floats(0.05, 0.95)),
    slope=st.floats(-3, 3),
)
def test_ips_has_no_error_for_losses_linear_in_what_is_balanced(
    phi: np.ndarray, p: np.ndarray, slope: float
) -> None:
    """For any propensities and every pattern where balance is possible."""
    delta = 1.5 + slope * phi
    for seen, _ in patterns(p):
        if 2 <= seen.sum() < 8 and np.ptp(phi[seen]) > 1e-3 and can_be_balanced(phi, seen):
            found = balance_propensities(
                p[seen], BalanceFeatures(phi[seen][:, None], np.array([phi.sum()]), 8)
            )
            assert ((found > 0) & (found <= 1)).all()
            assert (1 / found).sum() == pytest.approx(8, rel=1e-6)
            assert (delta[seen] / found).sum() / 8 == pytest.approx(
                delta.mean(), rel=1e-6, abs=1e-6
            )
            assert (delta[seen] / found).sum() / (1 / found).sum() == pytest.approx(
                delta.mean(), rel=1e-6, abs=1e-6
            )


def test_balance_shifts_logits_by_a_linear_function_of_the_features() -> None:
    prediction = some_parameters(0)
    found = balance_propensities(P.values, BalanceFeatures.of_predictions(LOG, prediction))

    shift = np.log(1 / P.values - 1) - np.log(1 / found - 1)
    design = np.column_stack([np.ones(len(LOG)), dense(prediction)[LOG.user, LOG.item]])
    fitted = design @ np.linalg.lstsq(design, shift, rcond=None)[0]
    np.testing.assert_allclose(shift, fitted, atol=1e-8)
    assert np.ptp(shift) > 0.01


def test_balanced_propensities_are_left_alone() -> None:
    features = BalanceFeatures.of_predictions(LOG, some_parameters(0))
    once = balance_propensities(P.values, features)

    np.testing.assert_allclose(balance_propensities(once, features), once, rtol=1e-6)


def test_features_are_added_up_over_all_cells() -> None:
    prediction, imputed = some_parameters(0), some_parameters(1)
    error = np.square(dense(prediction) - dense(imputed))

    of_predictions, of_imputed_losses = (
        BalanceFeatures.of_predictions(LOG, prediction),
        BalanceFeatures.of_imputed_losses(LOG, prediction, imputed),
    )

    assert of_predictions.totals[0] == pytest.approx(dense(prediction).sum())
    assert of_imputed_losses.totals[0] == pytest.approx(error.sum())
    np.testing.assert_allclose(of_imputed_losses.on_log[:, 0], error[LOG.user, LOG.item])


def test_a_constant_feature_asks_for_nothing_more_than_the_number_of_cells() -> None:
    features = BalanceFeatures(
        np.full((len(LOG), 1), 3.0), np.array([3.0 * LOG.n_cells]), LOG.n_cells
    )

    assert (1 / balance_propensities(P.values, features)).sum() == pytest.approx(LOG.n_cells)


def test_what_lies_beyond_the_log_cannot_be_balanced() -> None:
    features = BalanceFeatures(np.array([[0.0], [1.0]]), np.array([600.0]), 100)
    with pytest.raises(UsageError, match="no propensities balance the log"):
        balance_propensities(np.array([0.1, 0.2]), features)
    with pytest.raises(UsageError, match="no propensities balance"):
        balance_propensities(
            np.array([1.0, 0.2]), BalanceFeatures(np.array([[0.0], [1.0]]), np.array([-600.0]), 100)
        )


def test_losses_of_an_imputation_like_the_model_are_not_balanced() -> None:
    """Rounding can put the average of so small losses beyond those of the log."""
    prediction = some_parameters(0)
    imputed = replace(prediction, user_offset=prediction.user_offset * (1 + 1e-4))
    features = BalanceFeatures.of_imputed_losses(LOG, prediction, imputed)

    constant = BalanceFeatures(np.empty((len(LOG), 0)), np.empty(0), LOG.n_cells)
    np.testing.assert_allclose(
        balance_propensities(P.values, replace(features, totals=features.totals + 1.0)),
        balance_propensities(P.values, constant),
    )


@pytest.mark.parametrize("kind", [IPSV2, StableDR])
def test_a_complete_log_is_balanced_by_ones(kind: type) -> None:
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(40), 30), np.tile(np.arange(30), 40)
    rating = 3 + rng.normal(0, 0.4, 40)[user] + rng.normal(0, 0.4, 30)[item]
    rating = np.clip(np.round(rating + rng.normal(0, 0.7, user.size)), 1, 5)
    log = Ratings.from_arrays(user, item, rating)
    model = kind().fit(log, np.ones(len(log)))

    np.testing.assert_array_equal(model.propensities_, np.ones(len(log)))


def features_of_held_out_fits(once: BalancedFactorization) -> BalanceFeatures:
    """phi of each rating by the fits that have left its quarter of the log out."""
    parts = LogParts.draw(LOG, 0)
    on_log, total = np.empty((len(LOG), 1)), 0.0
    for part in range(4):
        is_left = parts.number != part
        rest, share = LOG.take(is_left), is_left.mean()
        model = MatrixFactorization(3, 5.0, tol=PART_TOLERANCE)
        fitted = model.fit(rest, share * once.propensities_[is_left])
        features = BalanceFeatures.of_predictions(LOG, fitted.factors_)
        if once.balances == "imputed_losses":
            weight = imputation_weight("dr-jl", share * P.values[is_left], LOG.n_cells)
            imputer = MatrixFactorization(3, tol=PART_TOLERANCE)
            imputed = fit_imputation(
                imputer, rest, weight, Workers(1), dtype="float64", random_state=0
            )
            features = BalanceFeatures.of_imputed_losses(LOG, fitted.factors_, imputed)
        on_log[~is_left] = features.on_log[~is_left]
        total += float(features.totals[0]) * (~is_left).mean()
    return BalanceFeatures(on_log, np.array([total]), LOG.n_cells, features.smallest)


@pytest.mark.parametrize("kind", [IPSV2, StableDR])
def test_the_fit_is_a_weighted_factorisation_with_balanced_propensities(
    kind: type, tmp_path: Path
) -> None:
    model = kind(3, 5.0, n_rounds=2).fit(LOG, P)
    one_round = kind(3, 5.0, n_rounds=1).fit(LOG, P)

    assert (1 / model.propensities_).sum() == pytest.approx(LOG.n_cells, rel=1e-8)
    features = features_of_held_out_fits(one_round)
    np.testing.assert_allclose(
        model.propensities_, balance_propensities(P.values, features), rtol=1e-9
    )
    balance = (features.on_log[:, 0] - features.totals[0] / LOG.n_cells) / model.propensities_
    assert balance.sum() == pytest.approx(0, abs=1e-4)
    twin = MatrixFactorization(3, 5.0).fit(
        LOG, model.propensities_, initial_factors=one_round.factors_
    )
    assert np.array_equal(dense(model.factors_), dense(twin.factors_))
    model.save(tmp_path / "model")
    again = read_model(tmp_path / "model", {kind.model.__name__: kind.model})
    assert np.array_equal(dense(again.factors_), dense(model.factors_))  # type: ignore[attr-defined]


def test_fits_that_leave_a_part_out_do_not_see_its_ratings() -> None:
    """A rating that changes leaves what the fit without its part predicts for it unchanged."""
    parts = LogParts.draw(LOG, 0)
    changed = replace(LOG, rating=np.where(parts.number == 2, 6 - LOG.rating, LOG.rating))

    def balance(log: Ratings) -> np.ndarray:
        def of_fit(is_left: np.ndarray, part: Ratings) -> BalanceFeatures:
            model = MatrixFactorization(3, 5.0).fit(log.take(is_left), P.values[is_left])
            return BalanceFeatures.of_predictions(part, model.factors_)

        return parts.balance_features(log, of_fit).on_log[:, 0]

    before, after = balance(LOG), balance(changed)

    np.testing.assert_array_equal(before[parts.number == 2], after[parts.number == 2])
    assert (before[parts.number != 2] != after[parts.number != 2]).all()
    short = LogParts.draw(LOG.take(np.arange(len(LOG)) < 40), 0)
    assert short.n_parts == 1
    assert short.exclude(0).all()


def test_balance_starts_from_propensities() -> None:
    with pytest.raises(
        UsageError, match=r"BalancedFactorization needs propensities to balance"
    ) as caught:
        IPSV2(3).fit(LOG)
    assert caught.value.parameter == "propensities"
    with pytest.raises(UsageError, match="n_rounds must be a whole number"):
        IPSV2(3, n_rounds=0).fit(LOG, P)


def test_threads_are_not_seen_and_offset_free_models_fall_back_on_the_mean() -> None:
    fits = [StableDR(3, 5.0, offsets="none", n_threads=n).fit(LOG, P) for n in (1, 2)]

    assert np.array_equal(dense(fits[0].factors_), dense(fits[1].factors_))
    weight = 1 / fits[0].propensities_
    assert fits[0].predict([-1], [-1], on_unknown="fallback")[0] == pytest.approx(
        weight @ LOG.rating / weight.sum()
    )


def test_a_log_of_another_kind_of_cells_is_checked_as_always() -> None:
    log = Ratings.from_codes([0, 1, 1], [0, 0, 1], [1.0, 2.0, 3.0], shape=(2, 2))
    with pytest.raises(unskew.errors.UnskewError, match="propensities"):
        IPSV2(1).fit(log, [0.5, 0.5])


def test_a_weighting_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown value 'mrd' of weighting"):
        StableDR(weighting="mrd").fit(LOG, P)  # type: ignore[arg-type]
