from __future__ import annotations

import json
import warnings
from copy import copy
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import unskew
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.errors import (
    ConvergenceWarning,
    UnknownNameError,
    UnskewWarning,
    UsageError,
)
from unskew.estimators.transforms import Clip, Shrink
from unskew.model_selection.folds import split
from unskew.model_selection.search import CrossValidation, cross_validate
from unskew.models.baselines import GlobalMean, OffsetsOnly, Popularity
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.weighted import WeightedFactorization

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

WORLD = unskew.simulate(n_users=60, n_items=50, density=0.2, alpha=0.6, random_state=3)
LOG, P = WORLD.log, WORLD.propensities


unconverged_is_fine = pytest.mark.filterwarnings(
    "ignore:.*did not converge:unskew.errors.ConvergenceWarning",
    "ignore:.*stopped after:unskew.errors.ConvergenceWarning",
)


class Constant(GlobalMean):
    """Predicts its setting, whatever it is fitted to."""

    def __init__(self, value: float = 3.0) -> None:
        self.value = value

    def fit(self, log: Ratings, propensities: Any = None) -> Constant:
        super().fit(log)
        self.factors_ = copy(self.factors_)
        object.__setattr__(self.factors_, "global_offset", self.value)
        return self


def planted(rng: np.random.Generator) -> tuple[Ratings, Propensities, np.ndarray]:
    """Offsets plus noise, seen with propensities that depend on the item."""
    truth = 3 + rng.normal(size=(80, 1)) + rng.normal(size=60) + rng.normal(size=(80, 60))
    p = np.broadcast_to(np.linspace(0.1, 0.5, 60), truth.shape)
    seen = rng.random(truth.shape) < p
    return (
        Ratings.from_dense(np.where(seen, truth, np.nan), missing=np.nan),
        Propensities(p[seen]),
        truth,
    )


@pytest.mark.parametrize("n_folds", [2, 4, 5])
def test_a_fixed_model_scores_ips_on_the_whole_log(n_folds: int) -> None:
    result = cross_validate(
        Constant(),
        LOG,
        propensities=P,
        grid={"value": [1.0, 2.0, 4.0]},
        n_folds=n_folds,
        refit=False,
    )

    for row in result.table:
        whole = float(((LOG.rating - row["value"]) ** 2 * P.inverse).sum() / LOG.n_cells)
        assert row["score"] == pytest.approx(whole, rel=1e-10)
    assert result.best_model is None
    assert result.best_params == {"value": result.table[0]["value"]}
    assert result.best_score == min(row["score"] for row in result.table)


def test_without_propensities_a_fixed_model_scores_the_mean_over_the_log() -> None:
    log = LOG.take(np.arange(len(LOG) // 4 * 4))  # folds of one size: a mean of means is the mean

    for estimator in ("ips", "snips"):
        result = cross_validate(
            Constant(), log, grid={"value": [1.0, 4.0]}, estimator=estimator, refit=False
        )

        for row in result.table:
            assert row["score"] == pytest.approx(
                float(((log.rating - row["value"]) ** 2).mean()), rel=1e-10
            )


def test_the_spread_over_folds() -> None:
    row = cross_validate(Constant(), LOG, propensities=P, grid={"value": [2.0]}, n_folds=3).table[0]
    folds = split(LOG, P, n_folds=3, random_state=0)

    scores = [
        ((fold.validation.rating - 2.0) ** 2 * fold.validation_propensities.inverse).sum()
        / LOG.n_cells
        for fold in folds
    ]
    assert row["std"] == pytest.approx(np.std(scores, ddof=1))


@unconverged_is_fine
def test_a_planted_best_penalty_is_found() -> None:
    """Ratings are offsets of sd 1 plus noise of sd 1: other penalties predict worse."""
    log, p, truth = planted(np.random.default_rng(0))
    grid = [1e-4, 0.1, 30.0, 1000.0]
    predictions = [
        [
            OffsetsOnly(l2).fit(log, p).predict(np.full(60, user), np.arange(60))
            for user in range(80)
        ]
        for l2 in grid
    ]
    best = grid[int(np.argmin([((truth - prediction) ** 2).mean() for prediction in predictions]))]
    assert best == 0.1

    assert cross_validate(OffsetsOnly(), log, propensities=p, grid={"l2": grid}).best_params == {
        "l2": best
    }
    assert cross_validate(
        OffsetsOnly(), log, propensities=p, grid={"l2": grid[::-1]}, estimator="snips"
    ).best_params == {"l2": best}


@unconverged_is_fine
def test_the_best_model_is_a_fit_by_hand() -> None:
    result = cross_validate(
        MatrixFactorization(max_iter=50),
        LOG,
        propensities=P,
        grid={"n_factors": [1, 3], "l2": [1.0, 30.0]},
    )

    by_hand = MatrixFactorization(max_iter=50, **result.best_params).fit(LOG, P)

    assert result.best_model.get_params() == by_hand.get_params()
    assert np.array_equal(result.best_model.factors_.user_factors, by_hand.factors_.user_factors)
    assert [row["score"] for row in result.table] == sorted(row["score"] for row in result.table)
    assert len(result.table) == 4


def test_the_model_that_was_passed_stays_as_it_was() -> None:
    model = OffsetsOnly(7.0)

    cross_validate(model, LOG, propensities=P, grid={"l2": [1.0]})

    assert model.get_params() == OffsetsOnly(7.0).get_params()
    assert not hasattr(model, "factors_")


def test_a_weight_transform_applies_to_training_only() -> None:
    result = cross_validate(
        GlobalMean(), LOG, propensities=P, grid={"weight_transform": [Clip(1.0), Clip(5.0), None]}
    )

    for row in result.table:
        limit = np.inf if row["weight_transform"] is None else row["weight_transform"].max_weight
        folds = list(split(LOG, P, n_folds=4, random_state=0))
        scores = []
        for fold in folds:
            assert fold.training.propensities is not None
            weight = np.minimum(fold.training.propensities.inverse, limit)
            error = fold.validation.rating - np.average(fold.training.log.rating, weights=weight)
            scores.append((error**2 * fold.validation_propensities.inverse).sum() / LOG.n_cells)
        assert row["score"] == pytest.approx(np.mean(scores))
    chosen = result.best_params["weight_transform"]
    best = np.inf if chosen is None else chosen.max_weight
    mean = np.average(LOG.rating, weights=np.minimum(P.inverse, best))
    assert result.best_model.factors_.global_offset == pytest.approx(mean)


def test_a_metric_to_be_maximised_sorts_the_other_way() -> None:
    result = cross_validate(
        Constant(),
        LOG,
        propensities=P,
        grid={"value": [1.0, 2.0, 3.0, 4.0, 5.0]},
        metric="accuracy",
    )
    scores = [row["score"] for row in result.table]
    shares = [float(P.inverse[LOG.rating == value].sum() / LOG.n_cells) for value in range(1, 6)]

    assert scores == sorted(scores, reverse=True)
    assert result.best_score == pytest.approx(max(shares))
    assert result.best_params == {"value": float(np.argmax(shares) + 1)}


def test_models_are_judged_by_ranking_metrics_too() -> None:
    result = cross_validate(
        Popularity(),
        LOG,
        propensities=P,
        grid={"weight_transform": [Clip(2.0), None]},
        metric="dcg@5",
        estimator="snips",
    )

    assert np.isfinite([row["score"] for row in result.table]).all()


def test_the_naive_model_is_chosen_naively() -> None:
    uniform = np.full(len(LOG), len(LOG) / LOG.n_cells)

    naive = cross_validate(OffsetsOnly(), LOG, grid={"l2": [0.1, 1.0, 10.0]})
    same = cross_validate(OffsetsOnly(), LOG, propensities=uniform, grid={"l2": [0.1, 1.0, 10.0]})

    assert naive.best_params == same.best_params
    assert np.allclose(
        naive.best_model.predict([0, 1], [2, 3]),
        OffsetsOnly(**naive.best_params).fit(LOG).predict([0, 1], [2, 3]),
    )


def without_time(result: CrossValidation) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name != "seconds"} for row in result.table
    ]


@unconverged_is_fine
def test_threads_are_not_seen_in_the_result() -> None:
    grid = {"l2": [0.5, 5.0, 50.0], "offsets": ["free", "regularized"]}

    results = [
        cross_validate(
            MatrixFactorization(2, max_iter=30), LOG, propensities=P, grid=grid, n_threads=n
        )
        for n in (1, 2, 5)
    ]

    for other in results[1:]:
        assert without_time(other) == without_time(results[0])
        assert np.array_equal(
            other.best_model.factors_.item_factors,
            results[0].best_model.factors_.item_factors,
        )


@unconverged_is_fine
def test_blas_has_its_threads_back_afterwards() -> None:
    before = [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ]

    cross_validate(
        MatrixFactorization(2, max_iter=5),
        LOG,
        propensities=P,
        grid={"l2": [0.5, 5.0], "n_factors": [1, 2, 3]},
        n_threads=4,
    )

    assert [
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    ] == before


def test_a_path_over_l2_gives_what_cold_fits_give() -> None:
    model = MatrixFactorization(2, tol=1e-10, max_iter=2000)
    together = cross_validate(model, LOG, propensities=P, grid={"l2": [20.0, 60.0]}, refit=False)
    alone = [
        cross_validate(model, LOG, propensities=P, grid={"l2": [l2]}, refit=False).best_score
        for l2 in (20.0, 60.0)
    ]

    scores = {row["l2"]: row["score"] for row in together.table}
    assert [scores[20.0], scores[60.0]] == pytest.approx(alone, rel=1e-3)


def test_reports() -> None:
    result = cross_validate(
        OffsetsOnly(),
        LOG,
        propensities=P,
        grid={"l2": [1.0, 10.0], "weight_transform": [None, Clip(20.0)]},
    )

    names = ["l2", "weight_transform", "score", "std", "n_iter", "seconds"]
    assert list(result.to_columns()) == names
    for backend in ("pandas", "polars"):
        frame = result.to_frame(backend)
        assert list(frame.columns) == names
        assert list(frame["score"]) == [row["score"] for row in result.table]
    record = json.loads(result.to_json())
    assert record["best_params"] == result.best_params
    assert [row["score"] for row in record["rows"]] == [row["score"] for row in result.table]
    assert {row["weight_transform"] for row in record["rows"]} == {None, "Clip(max_weight=20.0)"}
    assert (record["metric"], record["estimator"], record["best_score"]) == (
        "mse",
        "ips",
        result.best_score,
    )
    assert "best by ips of mse: {'l2'" in repr(result)
    assert "<table" in result._repr_html_()


def test_a_search_without_propensities_says_that_its_score_is_unweighted() -> None:
    result = cross_validate(OffsetsOnly(), LOG, grid={"l2": [1.0, 10.0]})

    assert "best by unweighted mse: {'l2'" in repr(result)
    assert json.loads(result.to_json())["is_weighted"] is False


@unconverged_is_fine
def test_a_grid_of_numpy_numbers() -> None:
    result = cross_validate(
        MatrixFactorization(max_iter=5), LOG, propensities=P, grid={"n_factors": np.arange(1, 4)}
    )

    assert sorted(row["n_factors"] for row in json.loads(result.to_json())["rows"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"grid": {"rank": [1]}},
            "MatrixFactorization has no setting 'rank'; it has n_factors, l2, ",
        ),
        ({"grid": {}}, "grid must name at least one setting"),
        ({"grid": {"l2": []}}, "grid has no values for the setting 'l2'. List at least one"),
        (
            {"grid": {"weight_transform": [0.5]}},
            "weight_transform in the grid must be a weight transform or None; got 0.5",
        ),
        ({"n_folds": 1}, "n_folds must be a whole number, at least 2; got 1"),
        ({"n_folds": len(LOG) + 1}, "n_folds must be at most the number of ratings"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        cross_validate(OffsetsOnly(), LOG, propensities=P, **({"grid": {"l2": [1.0]}} | changes))


def test_an_unknown_metric_is_refused_before_anything_is_fitted() -> None:
    class Untouched(GlobalMean):
        def fit(self, *_: Any, **__: Any) -> Any:
            pytest.fail("fitted")

    with pytest.raises(UnknownNameError, match="unknown metric 'rmsle'"):
        cross_validate(
            Untouched(), LOG, propensities=P, grid={"weight_transform": [None]}, metric="rmsle"
        )


@unconverged_is_fine
def test_one_warning_says_that_scores_are_not_ratings() -> None:
    search = {"grid": {"ridge": [1.0, 2.0]}, "n_folds": 2, "refit": False}
    with pytest.warns(
        UnskewWarning,
        match="the scores of 'WeightedFactorization' only rank items, but mse would compare them",
    ) as caught:
        cross_validate(WeightedFactorization(2, max_iter=3), LOG, propensities=P, **search)  # type: ignore[arg-type]
    assert [warning.category for warning in caught].count(UnskewWarning) == 1

    result = cross_validate(
        WeightedFactorization(2, max_iter=3), LOG, propensities=P, metric="dcg@5", **search
    )  # type: ignore[arg-type]
    assert result.best_score == max(row["score"] for row in result.table)


def test_what_is_relevant_reaches_the_metric() -> None:
    search = {"grid": {"l2": [1.0]}, "n_folds": 2, "metric": "precision@5"}
    with pytest.raises(
        UsageError, match="counts relevant items, but the log has ratings other than 0 and 1"
    ):
        cross_validate(OffsetsOnly(), LOG, propensities=P, **search)  # type: ignore[arg-type]

    strict, lax = (
        cross_validate(
            OffsetsOnly(), LOG, propensities=P, relevance_threshold=least, **search
        ).best_score
        for least in (5, 1)
    )  # type: ignore[arg-type]
    assert strict < lax


def test_fits_that_do_not_converge_are_counted_in_one_warning() -> None:
    model = MatrixFactorization(2, max_iter=2, tol=0.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_validate(model, LOG, propensities=P, grid={"l2": [1.0, 5.0]}, n_folds=3, refit=False)

    (warning,) = caught
    assert warning.category is ConvergenceWarning
    assert warning.filename == __file__
    assert "6 of 6 fits of the cross-validation did not converge" in str(warning.message)


@pytest.mark.parametrize("random_state", [None, np.random.default_rng(1)])
def test_a_random_state_may_be_none_or_a_generator(random_state: Any) -> None:
    result = cross_validate(
        GlobalMean(),
        LOG,
        propensities=P,
        grid={"weight_transform": [None]},
        random_state=random_state,
    )

    assert np.isfinite(result.best_score)
    assert json.loads(result.to_json())["n_folds"] == 4


def test_weights_below_one_need_a_model_with_that_setting() -> None:
    grid = {"weight_transform": [Shrink(0.5)]}
    with pytest.raises(UsageError, match="Popularity takes propensities, not weights"):
        cross_validate(
            Popularity(), LOG, propensities=P, grid=grid, metric="dcg@5", estimator="snips"
        )

    assert cross_validate(MatrixFactorization(1), LOG, propensities=P, grid=grid).best_score > 0


def test_transforms_need_propensities() -> None:
    with pytest.raises(UsageError, match="transforms inverse propensities, but there are none"):
        cross_validate(GlobalMean(), LOG, grid={"weight_transform": [Clip(5.0)]})


# Repetitions, rules, halving, edges


def test_repetitions_are_the_searches_of_the_seeds_averaged() -> None:
    options: Any = {"propensities": P, "grid": {"l2": [1.0, 30.0]}, "refit": False}
    model = MatrixFactorization(2, max_iter=20)
    single = [cross_validate(model, LOG, random_state=seed, **options) for seed in (4, 5, 6)]
    together = cross_validate(model, LOG, random_state=4, n_repeats=3, **options)

    for row in together.table:
        parts = [
            each["score"] for result in single for each in result.table if each["l2"] == row["l2"]
        ]
        assert row["score"] == pytest.approx(np.mean(parts))
    assert together.setup["n_repeats"] == 3


def test_the_one_standard_error_rule_refits_the_simpler_model() -> None:
    options: Any = {"propensities": P, "grid": {"l2": [1.0, 3.0, 9.0]}, "extend_grid": False}
    best = cross_validate(OffsetsOnly(), LOG, **options)
    simple = cross_validate(OffsetsOnly(), LOG, rule="one_standard_error", **options)

    assert simple.best_params["l2"] >= best.best_params["l2"]
    assert simple.best_model.l2 == simple.best_params["l2"]
    assert simple.table == best.table or len(simple.table) == len(best.table)
    assert "simplest near the best" in repr(simple)
    scores = {row["l2"]: row["score"] for row in simple.table}
    assert simple.best_score == scores[simple.best_params["l2"]]


def test_halving_scores_the_best_half_on_each_further_fold() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    full = cross_validate(
        Constant(), LOG, propensities=P, grid={"value": values}, n_folds=4, refit=False
    )
    halved = cross_validate(
        Constant(),
        LOG,
        propensities=P,
        grid={"value": values},
        n_folds=4,
        refit=False,
        halving=True,
    )

    assert halved.best_params == full.best_params
    assert halved.best_score == pytest.approx(full.best_score)
    n_scored = [row["std"] for row in halved.table]
    assert sum(np.isnan(std) for std in n_scored) == 4  # the worse half has only one fold
    assert np.isnan(n_scored[-4:]).all()


@pytest.mark.parametrize("estimator", ["snips", "dr", "sndr"])
def test_a_constant_model_scores_as_evaluate_does(estimator: str) -> None:
    result = cross_validate(
        Constant(),
        LOG,
        propensities=P,
        grid={"value": [2.0]},
        n_folds=2,
        estimator=estimator,
        refit=False,
    )
    parts = []
    for fold in split(LOG, P, n_folds=2, random_state=0):
        imputer = MatrixFactorization().fit(fold.training.log, fold.training.propensities)
        evaluation = unskew.evaluate(
            fold.validation,
            {"m": np.full(len(fold.validation), 2.0)}
            if estimator == "snips"
            else {"m": np.full((LOG.n_users, LOG.n_items), 2.0)},
            propensities=fold.validation_propensities,
            metrics=["mse"],
            estimators=[estimator],
            imputation=None if estimator == "snips" else imputer,
            universe=(LOG.n_users, LOG.n_items),
        )
        parts.append(evaluation.risk("m", metric="mse", estimator=estimator).estimate)

    assert result.best_score == pytest.approx(np.mean(parts))


@unconverged_is_fine
def test_a_search_goes_on_beyond_the_edge_of_its_grid() -> None:
    log, p, _ = planted(np.random.default_rng(0))
    wide = cross_validate(
        OffsetsOnly(), log, propensities=p, grid={"l2": [1e-3, 1e-2, 0.1, 1.0, 10.0]}
    )
    narrow = cross_validate(OffsetsOnly(), log, propensities=p, grid={"l2": [1e-3, 3e-3, 1e-2]})

    assert wide.best_params == {"l2": 0.1}
    assert wide.edges == ()
    assert narrow.best_params["l2"] == pytest.approx(0.1, rel=0.2)
    (sentence,) = narrow.edges
    assert sentence.startswith("the grid of l2 was extended to 0.0333333, 0.111111")
    assert "is inside now" in sentence
    assert sentence in repr(narrow)


@unconverged_is_fine
def test_a_search_that_stays_at_an_edge_says_so() -> None:
    log, p, _ = planted(np.random.default_rng(0))
    options: Any = {"propensities": p, "grid": {"l2": [1e-7, 1e-6, 1e-5]}}
    fixed = cross_validate(OffsetsOnly(), log, extend_grid=False, **options)
    tried = cross_validate(OffsetsOnly(), log, **options)

    assert len(fixed.table) == 3
    assert fixed.edges == (
        "the grid of l2 may be too narrow; its best value, 1e-05, is at the edge: try values "
        "beyond it",
    )
    assert len(tried.table) == 3 + 4
    assert "its best value, 0.1, is still at the edge" in tried.edges[0]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_repeats": 0}, "n_repeats must be a whole number"),
        ({"rule": "worst"}, "rule"),
        ({"halving": "yes"}, "halving"),
        ({"extend_grid": 1}, "extend_grid"),
    ],
)
def test_refused_rules(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        cross_validate(Constant(), LOG, grid={"value": [1.0]}, **settings)
