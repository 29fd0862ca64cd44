from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from unskew.data.ratings import Ratings
from unskew.datasets.coat import load_coat
from unskew.errors import (
    BadPropensityError,
    ModelFileError,
    PropensityWarning,
    UniverseError,
    UnknownNameError,
    UsageError,
)
from unskew.io.model_files import read_model
from unskew.latent.ordinal import (
    OrdinalLikelihood,
    OrdinalParameters,
    item_cuts,
    split_users,
)
from unskew.models import distribution
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.ordinal import OrdinalFactorization
from unskew.threads import Workers

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")


def sigma(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@dataclass(frozen=True)
class World:
    """Drawn from the model itself."""

    drawn: OrdinalParameters
    truth: np.ndarray
    """The rating of every cell, 1 to 5."""
    propensity: np.ndarray
    """P(O = 1 | Y) of every cell."""
    log: Ratings


def score_of(parameters: OrdinalParameters) -> np.ndarray:
    return (
        parameters.user_factors @ parameters.item_factors.T
        + parameters.user_offset[:, None]
        + parameters.item_offset
    )


def shares(parameters: OrdinalParameters) -> np.ndarray:
    """P_r of every cell, users x items x levels, by the definition."""
    score = score_of(parameters)
    scale = np.exp(parameters.user_noise[:, None] + parameters.item_noise)
    cuts = np.cumsum(
        np.hstack(
            [
                np.full((len(parameters.item_gaps), 1), parameters.cuts[0]),
                np.exp(parameters.cuts[1:] + parameters.item_gaps),
            ]
        ),
        axis=1,
    )
    up_to = sigma((cuts[None] - score[:, :, None]) / scale[:, :, None])
    return np.diff(up_to, axis=2, prepend=0.0, append=1.0)


def p_observed(parameters: OrdinalParameters) -> np.ndarray:
    """P(O = 1 | r) of every cell, users x items x levels, by the definition."""
    shared = (
        parameters.constant
        + parameters.user_activity[:, None]
        + parameters.item_popularity
        + parameters.user_exposure @ parameters.item_exposure.T
    )
    return sigma(
        shared[:, :, None]
        + parameters.value_effect
        + parameters.user_effect[:, None]
        + parameters.item_effect
    )


def draw_world(
    n_users: int,
    n_items: int,
    *,
    n_factors: int = 2,
    value: float = 0.8,
    constant: float = -2.5,
    seed: int = 0,
) -> World:
    rng = np.random.default_rng(seed)
    zeros = OrdinalParameters.zeros(n_users, n_items, 5, n_factors=n_factors, n_exposure_factors=0)
    parameters = replace(
        zeros,
        user_factors=rng.normal(0, 1.0, (n_users, n_factors)),
        item_factors=rng.normal(0, 1.0, (n_items, n_factors)),
        user_offset=rng.normal(0, 0.7, n_users),
        item_offset=rng.normal(0, 0.7, n_items),
        cuts=np.array([-1.0, 0.0, 0.2, 0.0]),
        item_gaps=rng.normal(0, 0.2, (n_items, 3)),
        constant=constant,
        item_popularity=rng.normal(0, 0.5, n_items),
        value_effect=value * np.arange(-2.0, 3.0),
    )
    level = (np.cumsum(shares(parameters), axis=2) < rng.random((n_users, n_items, 1))).sum(axis=2)
    propensity = np.take_along_axis(p_observed(parameters), level[:, :, None], axis=2)[:, :, 0]
    seen = rng.random(level.shape) < propensity
    return World(
        parameters, level + 1.0, propensity, Ratings.from_dense(np.where(seen, level + 1, 0))
    )


SMALL = draw_world(30, 25, seed=1)
LOG = SMALL.log
VALUES = np.array([0.03, 0.05, 0.1, 0.2, 0.35])
QUICK: dict[str, Any] = {
    "n_factors": 2,
    "prior_precision": 2.0,
    "noise_precision": 10.0,
    "n_exposure_factors": 2,
    "max_iter": 15,
    "n_threads": 1,
}
KINDS: list[dict[str, Any]] = [
    {"mechanism": "mar"},
    {"mechanism": "mnar"},
    {"mechanism": "mnar", "value_effect": "prior", "n_exposure_factors": 0},
]


def fit(log: Ratings = LOG, **settings: Any) -> OrdinalFactorization:
    values = VALUES if settings.get("mechanism") == "mnar" else None
    return OrdinalFactorization(**(QUICK | settings)).fit(log, value_propensities=values)


def objective(model: OrdinalFactorization, log: Ratings) -> float:
    """Minus the penalised log likelihood, cell by cell."""
    parameters, p_levels = model.parameters_, shares(model.parameters_)
    has_selection = model.mechanism == "mnar"
    level = np.searchsorted(model.levels_, log.rating)
    total = np.log(p_levels[log.user, log.item, level]).sum()
    if has_selection:
        propensity = p_observed(parameters)
        unobserved = np.ones(p_levels.shape[:2], bool)
        unobserved[log.user, log.item] = False
        total += np.log(propensity[log.user, log.item, level]).sum()
        total += np.log((p_levels * (1 - propensity)).sum(axis=2)[unobserved]).sum()
    penalty = model.prior_precision * (
        np.square(parameters.user_factors).sum() + np.square(parameters.item_factors).sum()
    )
    penalty += model.offset_precision * (
        np.square(parameters.user_offset).sum() + np.square(parameters.item_offset).sum()
    )
    noise = np.concatenate([parameters.user_noise, parameters.item_noise])
    penalty += model.noise_precision * (2 * noise + np.exp(-2 * noise) - 1).sum() / 2
    penalty += model.gap_precision * np.square(parameters.item_gaps).sum()
    for name in ("user_activity", "item_popularity", "user_exposure", "item_exposure"):
        penalty += model.exposure_precision * np.square(getattr(parameters, name)).sum()
    away = parameters.value_effect - np.log(VALUES / (1 - VALUES)) if has_selection else np.zeros(1)
    worth = model.value_precision * len(log)
    penalty += worth * (
        np.square(away).sum() + np.square(parameters.user_effect).sum() / log.n_users
    )
    penalty += worth * np.square(parameters.item_effect).sum() / log.n_items
    return float(penalty / 2 - total)


def likelihood(model: OrdinalFactorization, log: Ratings, workers: Workers) -> OrdinalLikelihood:
    levels, codes = np.unique(log.rating, return_inverse=True)
    return OrdinalLikelihood.of(
        log,
        codes.astype(np.int32),
        center=model._prior_center(log, levels.size, VALUES),
        precision=model._precisions(log),
        n_unobserved=model._count_unobserved(log),
        random_state=0,
        workers=workers,
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_objective_is_what_it_says(kind: dict[str, Any]) -> None:
    model = fit(**kind)

    assert model.objective_ == pytest.approx(objective(model, LOG), rel=1e-10)
    assert len(model.history_) == model.n_iter_ + 1


@pytest.mark.parametrize("effect", ["fixed", "prior", "free"])
def test_gradients_are_those_of_finite_differences(effect: Any) -> None:
    model = OrdinalFactorization(2, mechanism="mnar", value_effect=effect, n_exposure_factors=1)
    log = draw_world(6, 5, constant=-0.5, seed=2).log
    rng = np.random.default_rng(0)
    with Workers(1) as workers:
        solver = likelihood(model, log, workers)
        point = solver.start(solver.center).point + 0.3 * rng.normal(
            size=solver.start(solver.center).point.size
        )
        _, gradient = solver.evaluate(point)

        for index in range(point.size):
            step = 1e-6 * (np.arange(point.size) == index)
            around = solver.evaluate(point + step)[0] - solver.evaluate(point - step)[0]
            assert around / 2e-6 == pytest.approx(gradient[index], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_objective_never_rises(kind: dict[str, Any]) -> None:
    history = fit(**kind, max_iter=40).history_

    assert len(history) > 10
    assert all(later <= earlier for earlier, later in pairwise(history))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_blocks_of_the_hessian_lead_to_the_optimum_of_plain_steps_in_fewer_steps(
    kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kind | {"n_factors": 2, "tol": 1e-11, "max_iter": 3000}
    with_blocks = fit(**settings)
    monkeypatch.setattr(OrdinalLikelihood, "precondition", lambda *_: lambda vector: vector)
    monkeypatch.setattr(OrdinalLikelihood, "first_length", None)
    plain = fit(**settings)

    assert with_blocks.converged_
    assert with_blocks.objective_ <= plain.objective_ * (1 + 1e-7)
    assert with_blocks.n_iter_ < 0.7 * plain.n_iter_


def test_without_factors_or_differences_the_cut_points_are_those_of_the_log() -> None:
    """With strong priors only the cut points are free.

    Their optimum is the log odds of the log's cumulative shares.
    """
    strong = dict.fromkeys(
        ("prior_precision", "offset_precision", "gap_precision", "noise_precision"), 1e7
    )
    model = OrdinalFactorization(0, **strong, tol=1e-14).fit(LOG)

    shares_of_log = np.bincount(np.searchsorted(model.levels_, LOG.rating)) / len(LOG)
    np.testing.assert_allclose(
        model.predict_distribution([0, -1], [3, -1], on_unknown="fallback"),
        [shares_of_log] * 2,
        atol=1e-4,
    )


def test_an_equal_propensity_for_every_rating_is_missing_at_random() -> None:
    """The two likelihoods then separate, whatever else the log odds are made of."""
    tight: dict[str, Any] = {"n_factors": 2, "prior_precision": 2.0, "tol": 1e-13, "max_iter": 2000}
    at_random = OrdinalFactorization(**tight).fit(LOG)
    selected = OrdinalFactorization(**tight, mechanism="mnar").fit(
        LOG, value_propensities=np.full(5, 0.1)
    )

    pairs = np.repeat(np.arange(30), 25), np.tile(np.arange(25), 30)
    np.testing.assert_allclose(selected.predict(*pairs), at_random.predict(*pairs), atol=2e-3)


def test_the_expected_number_of_observed_cells_is_that_of_the_log() -> None:
    """The derivative by the constant is 0: the sum of P(O = 1) over all cells is the log's size.

    Unobserved cells have the posterior of their rating.
    """
    model = fit(mechanism="mnar", tol=1e-14, max_iter=2000)
    propensity, level = p_observed(model.parameters_), shares(model.parameters_)
    posterior = level * (1 - propensity)
    posterior /= posterior.sum(axis=2, keepdims=True)
    codes = np.searchsorted(model.levels_, LOG.rating)
    posterior[LOG.user, LOG.item] = np.eye(5)[codes]

    assert (posterior * propensity).sum() == pytest.approx(len(LOG), abs=0.1)


def test_a_prior_that_is_strong_enough_is_a_fixed_value_effect() -> None:
    fixed = fit(mechanism="mnar", max_iter=300, tol=1e-12)
    prior = fit(
        mechanism="mnar", max_iter=300, tol=1e-12, value_effect="prior", value_precision=1e5
    )

    np.testing.assert_allclose(
        prior.parameters_.value_effect, fixed.parameters_.value_effect, atol=1e-3
    )
    np.testing.assert_allclose(
        prior.predict([0, 1, 2], [3, 4, 5]), fixed.predict([0, 1, 2], [3, 4, 5]), atol=1e-2
    )


def test_a_weaker_prior_allows_larger_deviations() -> None:
    def moved(value_precision: float) -> float:
        model = fit(
            mechanism="mnar", value_effect="prior", value_precision=value_precision, max_iter=100
        )
        return float(np.abs(model.parameters_.value_effect - np.log(VALUES / (1 - VALUES))).max())

    assert 0 < moved(10.0) < moved(0.1)


def test_a_free_value_effect_warns() -> None:
    model = OrdinalFactorization(**QUICK, mechanism="mnar", value_effect="free")

    with pytest.warns(
        PropensityWarning,
        match="the log alone has to show which ratings are not observed. It cannot",
    ):
        model.fit(LOG)

    assert np.ptp(model.parameters_.value_effect) > 0


@pytest.mark.parametrize("effect", ["fixed", "prior"])
def test_a_value_effect_that_is_not_free_needs_value_propensities(effect: Any) -> None:
    with pytest.raises(
        UsageError,
        match=f"value_effect='{effect}' needs to know how likely each rating is to be observed",
    ):
        OrdinalFactorization(mechanism="mnar", value_effect=effect).fit(LOG)


def test_value_propensities_come_in_many_forms() -> None:
    levels = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    cells = VALUES[np.searchsorted(levels, LOG.rating)]
    model = OrdinalFactorization(**QUICK, mechanism="mnar")

    histories = [
        clone(model).fit(LOG, value_propensities=VALUES).history_,
        clone(model).fit(LOG, value_propensities=dict(zip(levels, VALUES, strict=True))).history_,
    ]

    assert histories[0] == histories[1]
    assert clone(model).fit(LOG, cells).history_ == pytest.approx(histories[0], rel=1e-12)
    with pytest.raises(UsageError, match="Pass only one of the two"):
        model.fit(LOG, cells, value_propensities=VALUES)
    with pytest.raises(BadPropensityError, match="lie outside"):
        model.fit(LOG, value_propensities=[0.0, 0.1, 0.1, 0.1, 1.0])


def test_missing_at_random_has_no_use_for_propensities() -> None:
    model = OrdinalFactorization(**QUICK)

    assert clone(model).fit(LOG, np.full(len(LOG), 0.2)).history_ == clone(model).fit(LOG).history_
    with pytest.raises(UsageError, match="value_propensities are not used with mechanism='mar'"):
        model.fit(LOG, value_propensities=VALUES)


def test_a_log_of_a_larger_universe_is_refused() -> None:
    log = Ratings.from_arrays([0, 1, 1], [0, 0, 1], [1, 2, 3], universe=(10, 10))

    with pytest.raises(UniverseError, match=r"only 2 users and 2 items, .* Build the log with"):
        OrdinalFactorization(mechanism="mnar").fit(log, value_propensities=[0.1, 0.2, 0.3])


def test_a_sample_that_is_no_smaller_changes_nothing() -> None:
    n_unobserved = LOG.n_cells - len(LOG)

    assert (
        fit(mechanism="mnar", n_unobserved=n_unobserved).history_ == fit(mechanism="mnar").history_
    )


def test_a_sample_of_unobserved_cells_comes_close() -> None:
    """Ten cells for each rating add a tenth to the variance of the estimated selection."""
    drawn_world = draw_world(150, 120, constant=-4.5, seed=4)
    n_unobserved = 10 * len(drawn_world.log)
    whole, part = (
        fit(drawn_world.log, mechanism="mnar", max_iter=100, n_unobserved=n)
        for n in (None, n_unobserved)
    )

    users, items = (codes.ravel() for codes in np.indices(drawn_world.truth.shape))
    assert len(drawn_world.log) + n_unobserved < drawn_world.log.n_cells / 2
    assert np.abs(whole.predict(users, items) - part.predict(users, items)).mean() < 0.05


def test_users_are_shared_out_by_their_cells() -> None:
    assert split_users(np.array([10, 10])) == ((0, 2),)
    assert split_users(np.full(10, 10_000)) == ((0, 3), (3, 5), (5, 8), (8, 10))
    assert split_users(np.full(10, 10_000), 4) == ((0, 4), (4, 8), (8, 10))


def test_long_logs_stop_early_by_default_but_not_before_step_20() -> None:
    log = draw_world(300, 250, constant=-0.2, seed=5).log
    settings: dict[str, Any] = {"n_factors": 5, "prior_precision": 1.0, "n_threads": 1}

    short, long = (
        OrdinalFactorization(**settings).fit(each) for each in (log.take(np.arange(29_000)), log)
    )
    to_the_end = OrdinalFactorization(**settings, tol=1e-5).fit(log)

    assert len(log) >= 30_000
    assert (
        short.history_
        == OrdinalFactorization(**settings, tol=1e-5).fit(log.take(np.arange(29_000))).history_
    )
    assert 20 <= long.n_iter_ < to_the_end.n_iter_
    assert long.history_ == to_the_end.history_[: long.n_iter_ + 1]
    change = (long.history_[-4] - long.history_[-1]) / 3 / long.objective_
    assert long.converged_
    assert long.n_iter_ == 20 or change <= 3e-4


def test_cut_points_rise_by_gaps_of_their_own() -> None:
    found = item_cuts(
        np.array([-1.0, 0.0, np.log(2.0)]), np.array([[0.0, 0.0], [np.log(3.0), 0.0]])
    )

    np.testing.assert_allclose(found, [[-1, 0, 2], [-1, 2, 4]])


def best_factorization_error(drawn_world: World, propensities: np.ndarray | None) -> float:
    """The smallest true risk over all penalties; no method could choose better."""
    users, items = (codes.ravel() for codes in np.indices(drawn_world.truth.shape))
    errors = []
    for l2 in (0.3, 1.0, 3.0, 10.0, 30.0):
        model = MatrixFactorization(2, l2).fit(drawn_world.log, propensities)
        errors.append(
            float(np.mean((model.predict(users, items) - drawn_world.truth.ravel()) ** 2))
        )
    return min(errors)


def true_error(model: OrdinalFactorization, drawn_world: World) -> float:
    users, items = (codes.ravel() for codes in np.indices(drawn_world.truth.shape))
    return float(np.mean((model.predict(users, items) - drawn_world.truth.ravel()) ** 2))


def true_values(drawn_world: World) -> np.ndarray:
    """P(O = 1 | Y = r) over all cells, as a large random sample would show."""
    return np.array(
        [drawn_world.propensity[drawn_world.truth == level].mean() for level in (1, 2, 3, 4, 5)]
    )


def test_on_data_from_the_model_it_beats_factorisations_even_with_true_propensities() -> None:
    drawn_world = draw_world(150, 120, constant=-1.8, seed=7)
    propensities = drawn_world.propensity[drawn_world.log.user, drawn_world.log.item]

    model = OrdinalFactorization(2, 1.0, mechanism="mnar", n_exposure_factors=0)
    model.fit(drawn_world.log, value_propensities=true_values(drawn_world))
    at_random = OrdinalFactorization(2, 1.0).fit(drawn_world.log)

    errors = [
        true_error(model, drawn_world),
        best_factorization_error(drawn_world, propensities),
        best_factorization_error(drawn_world, None),
    ]
    assert errors[0] < 0.97 * errors[1] < errors[1] < errors[2]
    assert errors[0] < 0.8 * true_error(at_random, drawn_world)


def test_with_enough_ratings_parameters_are_recovered() -> None:
    """Only scores are identified, and only as differences from the cut points."""
    drawn_world = draw_world(600, 450, constant=-1.0, seed=11)
    drawn = drawn_world.drawn

    model = OrdinalFactorization(
        2, 1.0, mechanism="mnar", n_exposure_factors=0, n_unobserved=10**9, tol=1e-5
    )
    model.fit(drawn_world.log, value_propensities=sigma(drawn.constant + drawn.value_effect))

    found = model.parameters_
    for one, other in zip(
        split_effects(score_of(found)), split_effects(score_of(drawn)), strict=True
    ):
        assert np.corrcoef(one, other)[0, 1] > 0.93
        assert one.std() == pytest.approx(other.std(), rel=0.05)
    assert np.corrcoef(found.item_popularity, drawn.item_popularity)[0, 1] > 0.95
    first_found, first_drawn = (
        parameters.cuts[0] - score_of(parameters).mean() for parameters in (found, drawn)
    )
    assert first_found == pytest.approx(first_drawn, abs=0.1)
    np.testing.assert_allclose(found.cuts[1:], drawn.cuts[1:], atol=0.1)
    assert found.constant == pytest.approx(drawn.item_popularity.mean(), abs=0.05)


def split_effects(score: np.ndarray) -> list[np.ndarray]:
    """The user effect, the item effect and the interaction."""
    by_user, by_item = score.mean(axis=1), score.mean(axis=0)
    together = score - by_user[:, None] - by_item + score.mean()
    return [by_user - score.mean(), by_item - score.mean(), together.ravel()]


@pytest.mark.skipif("UNSKEW_DATA" not in os.environ, reason="needs Coat in $UNSKEW_DATA")
def test_coat_comes_out_as_published() -> None:
    """The paper has HL MAR 1.220 and HL MNAR 1.214, with settings chosen on the test.

    Here settings are the defaults, and 5 % of the test are left out.
    """
    coat = load_coat(os.environ["UNSKEW_DATA"])
    order = np.random.default_rng(0).permutation(len(coat.test))
    sample, rest = coat.test.take(np.sort(order[:232])), coat.test.take(np.sort(order[232:]))
    marginal = np.bincount(sample.rating.astype(int), minlength=6)[1:] + 1
    values = np.bincount(coat.train.rating.astype(int))[1:] / (
        coat.train.n_cells * marginal / marginal.sum()
    )

    at_random = OrdinalFactorization().fit(coat.train)
    selected = OrdinalFactorization(mechanism="mnar").fit(coat.train, value_propensities=values)

    def error(model: OrdinalFactorization, test: Ratings) -> float:
        return float(
            np.mean(
                (model.predict(test.users[test.user], test.items[test.item]) - test.rating) ** 2
            )
        )

    assert error(at_random, coat.test) == pytest.approx(1.220, abs=0.05)
    assert error(selected, rest) < 1.214


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_threads_are_not_seen_in_the_result(kind: dict[str, Any]) -> None:
    log = draw_world(400, 300, seed=3).log
    fits = [fit(log, **kind, n_threads=n, max_iter=4) for n in (1, 2, 3)]

    for other in fits[1:]:
        assert other.history_ == fits[0].history_
        for field in fields(OrdinalParameters):
            one, two = (getattr(each.parameters_, field.name) for each in (fits[0], other))
            assert np.array_equal(one, two), field.name


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_checkpoint_of_the_same_run_goes_on_to_the_same_bits(
    kind: dict[str, Any], tmp_path: Path
) -> None:
    values = VALUES if kind["mechanism"] == "mnar" else None
    settings = {**QUICK, **kind, "tol": 0.0}
    OrdinalFactorization(**settings | {"max_iter": 7}).fit(
        LOG, value_propensities=values, checkpoint=tmp_path / "run", checkpoint_every=5
    )

    resumed = OrdinalFactorization(**settings).fit(
        LOG, value_propensities=values, checkpoint=tmp_path / "run"
    )
    straight = OrdinalFactorization(**settings).fit(LOG, value_propensities=values)

    assert resumed.history_ == straight.history_
    assert np.array_equal(resumed.parameters_.item_factors, straight.parameters_.item_factors)
    with pytest.raises(UsageError, match="belongs to another log"):
        OrdinalFactorization(**settings | {"prior_precision": 3.0}).fit(
            LOG, value_propensities=values, checkpoint=tmp_path / "run"
        )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_model_is_restored_from_its_file(kind: dict[str, Any], tmp_path: Path) -> None:
    model = fit(**kind)
    model.save(tmp_path / "model")

    restored = read_model(tmp_path / "model", {"OrdinalFactorization": OrdinalFactorization})

    assert isinstance(restored, OrdinalFactorization)
    assert restored.get_params() == model.get_params()
    pairs = [0, 1, -1], [2, -1, -1]
    before, after = (
        each.predict_distribution(*pairs, on_unknown="fallback") for each in (model, restored)
    )
    assert np.array_equal(before, after)


def test_a_file_whose_parts_do_not_fit_is_refused(tmp_path: Path) -> None:
    model = fit()
    model.parameters_ = replace(model.parameters_, item_gaps=model.parameters_.item_gaps[:-1])
    model.save(tmp_path / "model")

    with pytest.raises(ModelFileError, match=r"item_gaps has shape \(24, 3\)"):
        read_model(tmp_path / "model", {"OrdinalFactorization": OrdinalFactorization})


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_predictions_are_those_of_unobserved_cells(kind: dict[str, Any]) -> None:
    model = fit(**kind)
    expected = shares(model.parameters_)
    if kind["mechanism"] == "mnar":
        expected = expected * (1 - p_observed(model.parameters_))
        expected = expected / expected.sum(axis=2, keepdims=True)
    users, items = (codes.ravel() for codes in np.indices(expected.shape[:2]))
    flat = expected.reshape(-1, 5)

    np.testing.assert_allclose(model.predict_distribution(users, items), flat, atol=1e-12)
    np.testing.assert_allclose(model.predict(users, items), flat @ model.levels_, atol=1e-12)
    model.statistic = "median"
    assert np.array_equal(
        model.predict(users, items), 1.0 + (np.cumsum(flat, axis=1) < 0.5).sum(axis=1)
    )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_unknown_ids_have_parameters_of_zero(kind: dict[str, Any]) -> None:
    model = fit(**kind)
    names = [field.name for field in fields(OrdinalParameters)]
    nobody = {
        name: np.zeros_like(getattr(model.parameters_, name))
        for name in names
        if name.startswith("user_")
    }
    nothing = {
        name: np.zeros_like(getattr(model.parameters_, name))
        for name in names
        if name.startswith("item_")
    }
    fitted = model.parameters_
    unknown = [
        model.predict_distribution(*pair, on_unknown="fallback")
        for pair in (([-7], [4]), ([4], [-7]), ([-7], [-7]))
    ]

    for found, changes in zip(unknown, (nobody, nothing, nobody | nothing), strict=True):
        model.parameters_ = replace(fitted, **changes)
        np.testing.assert_allclose(found, model.predict_distribution([4], [4]), atol=1e-12)
    assert np.isnan(model.predict([-7, 4], [4, 4], on_unknown="nan")).tolist() == [True, False]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    "matrix",
    [
        pytest.param([[1, 2, 3, 4, 5, 0]], id="one user"),
        pytest.param([[1], [2], [3], [4], [5], [0]], id="one item"),
        pytest.param([[1, 2, 0], [3, 0, 4], [5, 0, 0], [0, 0, 0]], id="a user without ratings"),
        pytest.param([[1, 2, 0], [3, 5, 0], [4, 5, 0]], id="an item without ratings"),
        pytest.param([[1, 2], [3, 4], [5, 1]], id="nothing unobserved"),
    ],
)
def test_logs_of_any_shape_are_fitted(matrix: list[list[int]], kind: dict[str, Any]) -> None:
    log = Ratings.from_dense(matrix)

    model = fit(log, **kind, max_iter=50)

    users, items = (codes.ravel() for codes in np.indices((log.n_users, log.n_items)))
    predicted = model.predict(users, items)
    assert np.isfinite(predicted).all()
    assert ((predicted > 1) & (predicted < 5)).all()
    assert all(
        np.isfinite(getattr(model.parameters_, field.name)).all()
        for field in fields(OrdinalParameters)
    )


@pytest.mark.parametrize(("n_levels", "kind"), list(product([1, 2], KINDS)))
def test_few_rating_levels_are_fitted(n_levels: int, kind: dict[str, Any]) -> None:
    log = Ratings.from_dense([[1, n_levels, 0], [0, n_levels, 1], [n_levels, 0, 0]])
    values = [0.3, 0.6][:n_levels] if kind["mechanism"] == "mnar" else None

    model = OrdinalFactorization(**QUICK | kind).fit(log, value_propensities=values)

    found = model.predict([0, 1, 9], [2, 0, 9], on_unknown="fallback")
    assert ((found >= 1) & (found <= n_levels)).all()
    assert n_levels > 1 or (found == 1).all()


def test_recommendations_rank_by_the_mean() -> None:
    model = fit(statistic="median")

    found = model.recommend([3], k=5, exclude_seen=False)

    means = model.predict_distribution(np.full(25, 3), np.arange(25)) @ model.levels_
    np.testing.assert_allclose(found.scores[0], np.sort(means)[::-1][:5])


def test_scikit_learn_can_clone_it() -> None:
    model = fit(mechanism="mnar", prior_precision=3.0)

    copy = clone(model)

    changed = (
        "n_factors=2, prior_precision=3.0, max_iter=15, n_threads=1, mechanism='mnar', "
        "n_exposure_factors=2, noise_precision=10.0"
    )
    assert repr(copy) == f"OrdinalFactorization({changed})"
    assert not hasattr(copy, "parameters_")


def test_verbose_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    @contextmanager
    def line(enabled: bool) -> Iterator[Callable[[str], None]]:
        yield shown.append if enabled else lambda text: None

    monkeypatch.setattr("unskew.factorization.solution.progress_line", line)
    model = fit(verbose=True, max_iter=2)

    assert shown == [f"step {step}, objective {model.history_[step]:.6g}" for step in (1, 2)]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"mechanism": "mcar"}, "unknown value 'mcar' of mechanism"),
        ({"value_effect": "fixd"}, "unknown value 'fixd' of value_effect.*Did you mean 'fixed'"),
        ({"statistic": "mode"}, "unknown value 'mode' of statistic"),
    ],
)
def test_unknown_names_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(UnknownNameError, match=match):
        OrdinalFactorization(**settings).fit(LOG)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_factors": -1}, "n_factors must be a whole number, at least 0"),
        ({"n_exposure_factors": 1.5}, "n_exposure_factors must be a whole number"),
        ({"max_iter": 0}, "max_iter must be a whole number, at least 1"),
        ({"n_unobserved": 0}, "n_unobserved must be a whole number, at least 1"),
        ({"prior_precision": 0.0}, "prior_precision must be a finite number, above 0; got 0.0"),
        ({"noise_precision": float("nan")}, "noise_precision must be a finite number, above 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        OrdinalFactorization(**settings).fit(LOG)


@pytest.mark.parametrize("mechanism", ["mar", "mnar"])
def test_predictions_do_not_depend_on_blocks_or_threads(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few pairs and many, with unknown ids: rows are computed for distinct codes, or for all."""
    model = fit(mechanism=mechanism)
    rng = np.random.default_rng(0)
    ids = [
        np.append(names, "nobody" if names.dtype.kind in "US" else -7)
        for names in (LOG.users, LOG.items)
    ]
    users, items = (rng.choice(names, 3000) for names in ids)
    predict = partial(model.predict, on_unknown="fallback")
    recommend = partial(model.recommend, k=5, on_unknown="fallback")
    one_by_one = np.concatenate([predict(users[[k]], items[[k]]) for k in range(40)])
    whole, scores = predict(users, items), recommend(ids[0]).scores
    shares = model.predict_distribution(users, items, on_unknown="fallback")
    monkeypatch.setattr(distribution, "BLOCK_PAIRS", 64)

    for n_threads in (1, 3):
        model.set_params(n_threads=n_threads)
        again = model.predict_distribution(users, items, on_unknown="fallback")
        assert np.array_equal(predict(users, items), whole)
        assert np.array_equal(again, shares)
        np.testing.assert_allclose(recommend(ids[0]).scores, scores, rtol=1e-14)
    np.testing.assert_allclose(one_by_one, whole[:40], rtol=1e-14)


def test_rows_are_computed_once_for_all_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, made, take = fit(), [], OrdinalParameters.take

    def count_calls(self: OrdinalParameters, user: np.ndarray, item: np.ndarray) -> Any:
        made.append(item.size)
        return take(self, user, item)

    monkeypatch.setattr(OrdinalParameters, "take", count_calls)
    monkeypatch.setattr(distribution, "BLOCK_PAIRS", 16)
    model.recommend(LOG.users)
    model.predict(LOG.users[LOG.user], LOG.items[LOG.item])

    assert len(made) == 2
    assert max(made) <= LOG.n_items + 1
