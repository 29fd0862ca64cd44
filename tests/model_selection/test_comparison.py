from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError, UnknownNameError, UnskewWarning, UsageError
from unskew.estimators.intervals import adjust_p_values
from unskew.estimators.transforms import Clip
from unskew.evaluation.random_test import evaluate_random_test
from unskew.model_selection.comparison import (
    BEST_CONSTANT,
    LOG_MEAN,
    NO_OFFSETS,
    LearnerComparison,
    _make_baseline,
    compare_learners,
)
from unskew.model_selection.learners import Learner
from unskew.models.baselines import GlobalMean, OffsetsOnly
from unskew.models.doubly_robust import TDR, DoublyRobustFactorization
from unskew.models.matrix_factorization import MatrixFactorization

WORLD = unskew.simulate(n_users=60, n_items=40, density=0.2, alpha=0.6, random_state=3)
LOG, P = WORLD.log, WORLD.propensities
DRAWN = np.random.default_rng(0).choice(LOG.n_cells, 500, replace=False)
TEST = Ratings.from_codes(DRAWN // 40, DRAWN % 40, WORLD.truth.ravel()[DRAWN], shape=(60, 40))
MF = MatrixFactorization(2, 5.0, n_threads=1)


def predictions(model: Any, test: Ratings = TEST) -> np.ndarray:
    return model.predict(test.users[test.user], test.items[test.item])


@pytest.fixture(scope="module")
def comparison() -> Any:
    learners = {"ips": MF, "naive": Learner(MF, is_naive=True), "chosen": (MF, {"l2": [5.0, 50.0]})}
    tests = {"all": TEST, "half": TEST.take(np.arange(250))}
    return compare_learners(LOG, learners, test=tests, propensities=P, n_repeats=3, n_threads=1)


def test_constants_and_the_offset_free_naive_model_are_always_there(comparison: Any) -> None:
    names = {row["learner"] for row in comparison.rows}

    assert names == {"ips", "naive", "chosen", NO_OFFSETS, LOG_MEAN, BEST_CONSTANT}
    assert comparison.row(LOG_MEAN, metric="mse", test="all")["mean"] == pytest.approx(
        np.square(TEST.rating - LOG.rating.mean()).mean()
    )
    assert comparison.row(BEST_CONSTANT, metric="mse", test="all")["mean"] == pytest.approx(
        TEST.rating.var()
    )
    best = np.abs(TEST.rating - np.median(TEST.rating)).mean()
    assert comparison.row(BEST_CONSTANT, metric="mae", test="all")["mean"] == pytest.approx(best)


def test_the_baseline_may_choose_every_penalty_of_its_rivals() -> None:
    rivals = [Learner(MF, {"l2": (7.0, 10.0)}), Learner(MF, {"l2": ["auto"]}), Learner(MF)]

    assert _make_baseline(rivals).grid == {"l2": (0.3, 1.0, 3.0, 7.0, 10.0, 30.0, 100.0)}


def test_one_seed_says_what_evaluate_says() -> None:
    comparison = compare_learners(
        LOG,
        {"ips": MF, "naive": Learner(MF, is_naive=True)},
        test=TEST,
        propensities=P,
        n_repeats=1,
        n_threads=1,
    )
    models = {
        "ips": MatrixFactorization(2, 5.0).fit(LOG, P),
        "naive": MatrixFactorization(2, 5.0).fit(LOG),
    }
    values = {name: predictions(model) for name, model in models.items()}
    expected = unskew.evaluate(TEST, values, metrics=["mse"], estimators=["naive"], cluster="user")

    row, risk = (
        comparison.row("naive", metric="mse"),
        expected.risk("naive", metric="mse", estimator="naive"),
    )
    compared = expected.compare("naive", "ips", metric="mse", estimator="naive")
    assert (row["mean"], row["ci_low"], row["ci_high"]) == pytest.approx(
        (risk.estimate, risk.ci_low, risk.ci_high)
    )
    assert (row["difference"], row["difference_low"], row["p_value"]) == pytest.approx(
        (compared.difference, compared.ci_low, compared.p_value)
    )
    assert row["std_over_repeats"] is None
    assert comparison.row("ips", metric="mse")["difference"] is None


def test_seeds_are_averaged_before_users_are_the_sample(comparison: Any) -> None:
    models = [MatrixFactorization(2, 5.0, random_state=seed).fit(LOG, P) for seed in range(3)]
    losses = np.stack([np.square(TEST.rating - predictions(model)) for model in models])

    row = comparison.row("ips", metric="mse", test="all")

    assert row["mean"] == pytest.approx(losses.mean())
    assert row["std_over_repeats"] == pytest.approx(losses.mean(axis=1).std(ddof=1))
    reach = stats.t.ppf(0.975, 2) * row["std_over_repeats"] / 3**0.5
    assert (row["repeat_low"], row["repeat_high"]) == pytest.approx(
        (losses.mean() - reach, losses.mean() + reach)
    )
    centred = losses.mean(axis=0) - losses.mean()
    by_user = np.bincount(TEST.user, centred) / len(TEST)
    n_users = np.unique(TEST.user).size
    assert row["std_error"] == pytest.approx(
        np.sqrt(n_users / (n_users - 1) * np.square(by_user).sum())
    )


def test_settings_are_chosen_on_the_log_alone_and_anew_for_each_seed(comparison: Any) -> None:
    rows = [
        unskew.cross_validate(
            MatrixFactorization(2, random_state=s),
            LOG,
            propensities=P,
            grid={"l2": [5.0, 50.0]},
            random_state=s,
        )
        for s in range(3)
    ]
    row = comparison.row("chosen", metric="mse", test="half")

    assert row["cv_score"] == pytest.approx(np.mean([each.best_score for each in rows]))
    assert row["chosen"].startswith(f"l2={rows[0].best_params['l2']}")
    assert comparison.models["chosen"].l2 == rows[0].best_params["l2"]
    assert comparison.row("ips", metric="mse", test="half")["chosen"] == ""
    assert row["seconds"] > 0


def test_a_weight_transform_of_the_grid_applies_to_the_final_fit() -> None:
    comparison = compare_learners(
        LOG,
        {"clipped": (MF, {"weight_transform": [Clip(3.0)]})},
        test=TEST,
        propensities=P,
        n_repeats=1,
        n_threads=1,
    )

    expected = MatrixFactorization(2, 5.0).fit(LOG, np.maximum(P.values, 1 / 3))
    assert comparison.row("clipped", metric="mse")["mean"] == pytest.approx(
        np.square(TEST.rating - predictions(expected)).mean()
    )


def test_a_learner_may_have_propensities_of_its_own_and_a_stand_in_for_the_search() -> None:
    matrix = np.random.default_rng(1).uniform(0.1, 0.5, (60, 40))
    stand_in = DoublyRobustFactorization(2)
    learner = Learner(TDR(2), {"l2": [5.0, 20.0]}, propensities=matrix, tuned_as=stand_in)

    comparison = compare_learners(
        LOG, {"tdr": learner}, test=TEST, propensities=P, n_repeats=1, n_threads=1
    )

    chosen = unskew.cross_validate(
        stand_in, LOG, propensities=P, grid={"l2": [5.0, 20.0]}, n_threads=1, refit=False
    ).best_params
    expected = TDR(2, chosen["l2"]).fit(LOG, matrix)
    assert comparison.row("tdr", metric="mse")["mean"] == pytest.approx(
        np.square(TEST.rating - predictions(expected)).mean()
    )


@pytest.mark.filterwarnings("ignore:model .* was trained on")
def test_rankings_of_the_test_items() -> None:
    metrics = ("logged_ndcg@3", "logged_auc", "logged_user_auc")
    comparison = compare_learners(
        LOG,
        {"ips": MF},
        test=TEST,
        propensities=P,
        n_repeats=1,
        metrics=metrics,
        relevance_threshold=4,
        n_threads=1,
    )
    model = MatrixFactorization(2, 5.0).fit(LOG, P)
    expected = evaluate_random_test(TEST, model, metrics=metrics, relevance_threshold=4)

    values = [comparison.row("ips", metric=metric)["mean"] for metric in metrics]
    assert values == pytest.approx([risk.estimate for risk in expected])
    assert comparison.row(LOG_MEAN, metric="logged_auc")["mean"] == pytest.approx(0.5)


def test_models_without_seeds_and_propensities() -> None:
    comparison = compare_learners(
        LOG,
        {"mean": GlobalMean(), "offsets": (OffsetsOnly(), {"l2": [1.0, 10.0]})},
        test=TEST,
        n_repeats=2,
    )

    assert comparison.row("mean", metric="mse")["std_over_repeats"] == 0
    assert comparison.row("mean", metric="mse")["mean"] == pytest.approx(
        comparison.row(LOG_MEAN, metric="mse")["mean"]
    )


def test_holm_by_hand() -> None:
    assert adjust_p_values([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjust_p_values([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert adjust_p_values([]) == []


class Refusing(GlobalMean):
    """A learner that cannot be fitted to this log."""

    def fit(self, log: Ratings, propensities: Any = None) -> Any:
        raise BadPropensityError("no propensities agree with the whole matrix.")


def test_a_learner_that_fails_is_named_and_does_not_stop_the_others() -> None:
    learners = {"mean": GlobalMean(), "refusing": Refusing(), "offsets": OffsetsOnly()}
    settings: dict[str, Any] = {"test": TEST, "propensities": P, "n_repeats": 2}
    with pytest.warns(UnskewWarning, match="'refusing' is left out: no propensities agree"):
        found = compare_learners(LOG, learners, **settings)
    without = compare_learners(
        LOG, {name: learners[name] for name in ("mean", "offsets")}, **settings
    )

    reason = "no propensities agree with the whole matrix."
    assert found.failures == [{"learner": "refusing", "reason": reason}]
    assert f"refusing has no number: {reason}" in repr(found)
    assert json.loads(found.to_json())["failures"] == found.failures
    assert [row["learner"] for row in found.rows] == [row["learner"] for row in without.rows]
    assert found.row("offsets", metric="mse")["p_holm"] == pytest.approx(
        without.row("offsets", metric="mse")["p_holm"]
    )
    assert "refusing" not in found.models


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"learners": {"refusing": Refusing(), "mean": GlobalMean()}}, BadPropensityError),
        (
            {"learners": {"mean": GlobalMean(), "refusing": Refusing()}, "reference": "refusing"},
            BadPropensityError,
        ),
        (
            {"learners": {"mean": GlobalMean(), "typo": (MF, {"penalty": [1.0, 2.0]})}},
            UsageError,
        ),
        (
            {
                "learners": {"naive": Learner(MF, is_naive=True), "ips": MF},
                "propensities": [0.5],
            },
            BadPropensityError,
        ),
    ],
)
def test_failures_of_the_reference_unknown_settings_and_bad_propensities_are_errors(
    settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        compare_learners(LOG, **{"test": TEST, "propensities": P, "n_repeats": 1} | settings)


def test_how_it_shows_itself(comparison: Any) -> None:
    text = repr(comparison)
    made = json.loads(comparison.to_json())

    assert "3 repetitions" in text
    assert "difference to 'ips' paired by user" in text
    assert "<table>" in comparison._repr_html_()
    assert made["reference"] == "ips"
    observed = set(zip(LOG.user.tolist(), LOG.item.tolist(), strict=True))
    assert made["n_seen"]["all"] == len(
        observed & set(zip(TEST.user.tolist(), TEST.item.tolist(), strict=True))
    )
    assert f"{made['n_seen']['all']:,} cells of 'all' are also in the training log" in text
    assert len(made["rows"]) == len(comparison.rows) == 2 * 2 * 6
    assert comparison.to_frame("pandas").shape[0] == 24
    assert comparison.to_columns()["learner"][0] == "ips"


@pytest.mark.parametrize(
    ("settings", "error", "match"),
    [
        ({"metrics": ["mape"]}, UnknownNameError, "unknown metric 'mape'"),
        ({"metrics": ["dcg@5"]}, UsageError, "'dcg@5' needs positions among all items"),
        (
            {"metrics": ["logged_auc"]},
            UsageError,
            "counts relevant items, but the log has ratings other",
        ),
        ({"reference": "other"}, UnknownNameError, "unknown value 'other' of reference"),
        ({"n_repeats": 0}, UsageError, "n_repeats must be a whole number"),
        ({"metrics": []}, UsageError, "metrics"),
        ({"test": {}}, UsageError, "test contains no test sets. Pass a Ratings object"),
        ({"level": 95}, UsageError, "level"),
        (
            {"learners": {BEST_CONSTANT: MF}},
            UsageError,
            "'best constant' is the name of a row that every",
        ),
    ],
)
def test_refusals(settings: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        compare_learners(
            LOG, **{"test": TEST, "learners": {"ips": MF}, "propensities": P} | settings
        )


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (
            {"learner": "isp"},
            r"unknown learner of this comparison 'isp'; valid names are: .*ips.*mean 'ips'\?",
        ),
        ({"metric": "rmse"}, "unknown metric of this comparison 'rmse'; valid names are: mse, mae"),
        ({"test": "test"}, "unknown test of this comparison 'test'; valid names are: all, half"),
        ({"learner": "isp", "test": "test"}, "unknown learner"),
    ],
)
def test_each_unknown_name_of_a_row_is_named_alone(
    comparison: LearnerComparison, wrong: dict[str, str], match: str
) -> None:
    with pytest.raises(UnknownNameError, match=match) as caught:
        comparison.row(**{"learner": "ips", "metric": "mse", "test": "all"} | wrong)

    assert caught.value.parameter == next(iter(wrong))
    assert caught.value.value == next(iter(wrong.values()))


def test_names_that_have_no_row_together(comparison: LearnerComparison) -> None:
    rows = [
        row
        for row in comparison.rows
        if (row["learner"], row["metric"], row["test"]) != ("ips", "mse", "half")
    ]

    with pytest.raises(
        UsageError, match=r"learner 'ips' has no row for metric 'mse' and test 'half'\."
    ):
        replace(comparison, rows=rows).row("ips", metric="mse", test="half")


def test_the_same_random_state_gives_the_same_numbers(comparison: Any) -> None:
    learners = {"ips": MF, "naive": Learner(MF, is_naive=True), "chosen": (MF, {"l2": [5.0, 50.0]})}
    again = compare_learners(LOG, learners, test=TEST, propensities=P, n_repeats=3, n_threads=2)

    for name in learners:
        assert (
            again.row(name, metric="mse")["mean"]
            == comparison.row(name, metric="mse", test="all")["mean"]
        )
