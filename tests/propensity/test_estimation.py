"""How the propensities of each model say that they were estimated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import unskew
from unskew.data.estimation import Estimation, Replicates, Strata, TakenAsKnown
from unskew.data.ratings import Ratings
from unskew.data.score_estimation import Margins, Offsets, Score
from unskew.errors import UsageError
from unskew.evaluation.evaluate import evaluate
from unskew.propensity.boosted import BoostedPropensity
from unskew.propensity.calibrated import CalibratedPropensity
from unskew.propensity.classifier import ClassifierPropensity
from unskew.propensity.cross_fitted import CrossFittedPropensity
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.model import PropensityModel
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.one_bit import OneBitPropensity
from unskew.propensity.poisson import PoissonPropensity
from unskew.propensity.popularity import PopularityPropensity, UniformPropensity
from unskew.propensity.wrapper import ClippedPropensity, ScaledPropensity
from unskew.types import IntVector

N_USERS, N_ITEMS = 40, 25
RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(N_USERS, 2)), RNG.normal(size=(N_ITEMS, 1))
PROBABILITY = 1 / (1 + np.exp(1.2 - 0.6 * X[:, :1] - 0.5 * Z.T))
LOG = Ratings.from_dense(
    np.where(RNG.random(PROBABILITY.shape) < PROBABILITY, RNG.integers(1, 6, PROBABILITY.shape), 0)
)
TREES = RandomForestClassifier(5, min_samples_leaf=20, random_state=0)


def fit(model: PropensityModel, **settings: Any) -> PropensityModel:
    return model.fit(LOG, universe="log", **settings)


def describe(model: PropensityModel, **settings: Any) -> Estimation | None:
    return fit(model, **settings).predict(LOG).estimation


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (UniformPropensity(), Strata),
        (PopularityPropensity(), Strata),
        (PopularityPropensity("user"), Strata),
        (PopularityPropensity("both"), Margins),
        (PopularityPropensity(power=0.5), Replicates),
        (PopularityPropensity("both", smoothing=1), Replicates),
        (LogisticPropensity(X, Z, item_offsets=False, ridge=0), Score),
        (LogisticPropensity(X, Z, ridge=1), Offsets),
        (LogisticPropensity(X, Z, user_offsets=True, ridge=1), Offsets),
        (LogisticPropensity(X, Z, ridge=1, negatives=2), Replicates),
        (OneBitPropensity(max_iter=5), Replicates),
        (PoissonPropensity(max_iter=5), Replicates),
        (BoostedPropensity(X, Z, max_trees=10), Replicates),
        (ClassifierPropensity(TREES, X, Z), Replicates),
        (ScaledPropensity(PopularityPropensity(power=0.5)), Replicates),
        (CalibratedPropensity(LogisticPropensity(X, Z, ridge=1)), Replicates),
        (CrossFittedPropensity(PopularityPropensity()), Replicates),
        (ClippedPropensity(PopularityPropensity(), min_propensity=0.2), Strata),
        (ClippedPropensity(LogisticPropensity(X, Z, ridge=1), min_propensity=0.2), Offsets),
        (ClippedPropensity(PopularityPropensity(power=0.5), min_propensity=0.2), Replicates),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else repr(value)[:60],
)
def test_each_model_says_how_it_was_estimated(
    model: PropensityModel, kind: type[Estimation]
) -> None:
    estimation = describe(model)

    assert type(estimation) is kind
    assert estimation.model == type(model).__name__
    assert not estimation.sees_ratings


@pytest.mark.parametrize(
    ("model", "settings", "reason"),
    [
        (
            CrossFittedPropensity(NaiveBayesPropensity()),
            {"mcar": dict.fromkeys(range(1, 6), 0.2)},
            "the random ratings that NaiveBayesPropensity was fitted with are not kept",
        ),
        (
            ScaledPropensity(fit(PopularityPropensity(power=0.5))),
            {},
            "the PopularityPropensity inside was fitted beforehand",
        ),
        (
            ScaledPropensity(
                ClippedPropensity(fit(PopularityPropensity(power=0.5)), min_propensity=0.1)
            ),
            {},
            "the PopularityPropensity inside was fitted beforehand",
        ),
        (
            ClassifierPropensity(
                FrozenEstimator(LogisticRegression().fit([[0] * 3, [1] * 3], [0, 1])), X, Z
            ),
            {},
            "its classifier is frozen",
        ),
    ],
    ids=["sample", "fitted", "fitted within", "frozen"],
)
@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_a_model_that_cannot_be_fitted_again_says_why(
    model: PropensityModel, settings: dict[str, Any], reason: str
) -> None:
    fitted = fit(model, **settings)
    propensities = fitted.predict(LOG)
    prediction = np.full((N_USERS, N_ITEMS), 3.0)
    results = [
        evaluate(LOG, prediction, propensities=each, universe="log", metrics=["mse"])
        for each in (propensities, propensities.values)
    ]

    assert isinstance(propensities.estimation, TakenAsKnown)
    assert reason in propensities.estimation.reason
    assert isinstance(propensities.take(np.arange(5)).estimation, TakenAsKnown)
    said = results[0].describe_propensities()
    assert (
        f"intervals leave out the error of this, because {propensities.estimation.reason}" in said
    )
    assert "intervals include" not in said
    for key, estimate in results[0].estimates.items():
        known = results[1].estimates[key]
        assert estimate.covariance.tolist() == known.covariance.tolist()
        assert estimate.of(0, level=0.95) == known.of(0, level=0.95)


def test_clipped_cells_do_not_move_with_the_parameters() -> None:
    inner = fit(PopularityPropensity())
    clipped = fit(ClippedPropensity(inner, min_propensity=0.3))
    propensities = clipped.predict(LOG)
    is_clipped = inner.predict(LOG).values < 0.3

    assert propensities.estimation is not None
    assert propensities.estimation.fixed is not None
    assert 0 < is_clipped.sum() < len(LOG)
    assert (propensities.estimation.fixed == is_clipped).all()


def test_refits_of_a_clipped_model_are_clipped() -> None:
    model = ClippedPropensity(PopularityPropensity(power=0.5), min_propensity=0.3)
    estimation = describe(model)
    rows = np.arange(0, len(LOG), 2, dtype=np.int32)
    half = PopularityPropensity(power=0.5).fit(LOG.take(rows), universe="log")

    assert isinstance(estimation, Replicates)
    assert (
        estimation.refit(rows).tolist()
        == np.maximum(half.predict(LOG.take(rows)).values, 0.3).tolist()
    )


def test_halves_of_users_and_of_items_are_not_confused() -> None:
    estimation = describe(PopularityPropensity(power=0.5))
    assert isinstance(estimation, Replicates)
    for cluster in (LOG.user, LOG.item):
        for first, second in estimation.fit_halves(cluster, len(LOG)):
            assert not set(cluster[first[0]]) & set(cluster[second[0]])
            assert first[0].size + second[0].size == len(LOG)


@pytest.mark.parametrize("by", ["item", "user", "both"])
@pytest.mark.parametrize("cluster", [None, "user", "item"])
def test_refits_to_halves_have_about_the_standard_error_of_the_analytic_form(
    by: Any, cluster: Any
) -> None:
    """A power near 1 has no analytic form, but the same propensities. The 20 pairs of halves of
    six logs have a relative error of about 8 %, and leave out the factor 1 - P.
    """
    rng, ratios = np.random.default_rng(4), []
    prediction = np.full((N_USERS, N_ITEMS), 3.0)
    for _ in range(6):
        ratings = rng.integers(1, 6, PROBABILITY.shape)
        log = Ratings.from_dense(np.where(rng.random(PROBABILITY.shape) < 0.2, ratings, 0))
        analytic, refitted = (
            evaluate(
                log,
                prediction,
                propensities=PopularityPropensity(by, power=power).fit(log, universe="log"),
                universe="log",
                metrics=["mse"],
                estimators=["snips"],
                cluster=cluster,
            )
            .estimates["mse", "snips"]
            .of(0, level=0.95)
            .std_error
            for power in (1.0, 1.0 + 1e-9)
        )
        ratios.append(refitted / analytic)

    assert 0.75 < np.sqrt(np.mean(np.square(ratios))) < 1.45


@pytest.mark.filterwarnings("ignore::unskew.errors.UnskewWarning")
def test_refitted_models_have_intervals_only_where_the_sum_of_weights_cancels() -> None:
    """In-sample fits are biased, and halves do not show it: IPS of Poisson propensities in their
    own class covered 50 %.
    """
    result = evaluate(
        LOG,
        {"a": np.full((N_USERS, N_ITEMS), 3.0), "b": np.full((N_USERS, N_ITEMS), 3.5)},
        propensities=fit(PopularityPropensity(power=0.5)),
        universe="log",
        metrics=["mse"],
        estimators=["ips", "snips"],
    )
    risks = {risk.estimator: risk for risk in result if risk.model == "a"}

    assert np.isnan(risks["ips"].ci_low)
    assert np.isnan(result.compare("a", "b", estimator="ips").ci_low)
    assert risks["snips"].ci_low < risks["snips"].estimate < risks["snips"].ci_high
    assert "IPS has no interval: the sum of the weights of PopularityPropensity is biased" in str(
        result
    )


def test_a_model_that_cannot_be_fitted_to_a_half_is_refused_by_name() -> None:
    def refit(rows: IntVector) -> Any:
        raise ValueError("too few rows")

    estimation = Replicates(model="Picky", refit=refit)

    with pytest.raises(
        UsageError,
        match=r"Picky could not be fitted to a random half .*too few rows.*propensities_known=True",
    ):
        estimation.fit_halves(None, 10)


def test_a_penalty_moves_the_value_and_the_result_says_by_how_much() -> None:
    """The bias of the penalty is subtracted from the value, and kept beside it."""
    model = fit(LogisticPropensity(X, Z, item_offsets=False, ridge=20.0))
    prediction = np.full((N_USERS, N_ITEMS), 3.0)
    counted, plain = (
        evaluate(
            LOG,
            prediction,
            propensities=model,
            universe="log",
            metrics=["mse"],
            estimators=["ips"],
            propensities_known=is_known,
        ).estimates["mse", "ips"]
        for is_known in (False, True)
    )

    assert plain.bias is None
    assert counted.bias is not None
    assert abs(counted.bias[0]) > 1e-3
    assert counted.value + counted.bias == pytest.approx(plain.value)


def test_progress_of_refits_is_not_shown_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    estimation = describe(PopularityPropensity(power=0.5))
    assert isinstance(estimation, Replicates)
    estimation.fit_halves(None, len(LOG))

    assert capsys.readouterr().err == ""


def test_the_public_load_of_a_model_describes_its_estimation(tmp_path: Any) -> None:
    model = fit(ClippedPropensity(LogisticPropensity(X, Z, ridge=1.0), min_propensity=0.1))
    model.save(tmp_path / "model")
    again = unskew.load(tmp_path / "model").predict(LOG).estimation

    assert isinstance(again, Offsets)
    assert again.relation == "same"
    assert again.fixed is not None


@pytest.mark.parametrize(
    "model", [UniformPropensity(), LogisticPropensity(X, Z, item_offsets=False, ridge=0)]
)
def test_a_result_says_whether_propensities_were_fitted_to_another_log(
    model: PropensityModel,
) -> None:
    fitted = fit(model)
    other = Ratings.from_dense(np.where(RNG.random((N_USERS, N_ITEMS)) < 0.2, 3, 0))
    prediction = np.zeros((N_USERS, N_ITEMS))

    def describe_source(log: Ratings) -> str:
        result = evaluate(log, prediction, propensities=fitted, universe="log")
        return result.describe_propensities()

    assert f"estimated by {type(model).__name__} from the log;" in describe_source(LOG)
    assert f"estimated by {type(model).__name__} from another log;" in describe_source(other)


def test_a_variance_of_zero_may_be_rounded_to_a_negative_number() -> None:
    fitted = fit(LogisticPropensity(X, Z, item_offsets=False, ridge=0))
    prediction = np.zeros((N_USERS, N_ITEMS))

    for seed in range(20):
        seen = np.random.default_rng(seed).random((N_USERS, N_ITEMS)) < 0.2
        log = Ratings.from_dense(np.where(seen, 3, 0))
        result = evaluate(log, prediction, propensities=fitted, universe="log")

        assert "penalty" not in result.describe_propensities()
