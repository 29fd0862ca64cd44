"""Propensities from any classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.propensity import classifier
from unskew.propensity.classifier import ClassifierPropensity
from unskew.propensity.logistic import LogisticPropensity


def world(n_users: int, n_items: int, *, intercept: float = -2.0, seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    x, z = (
        rng.integers(0, 2, (n_users, 2)).astype(float),
        rng.integers(0, 2, (n_items, 1)).astype(float),
    )
    propensity = expit(intercept + x @ [[0.5], [-0.5]] + z @ [1.0] + x[:, :1] * z[:, 0])
    return (
        x,
        z,
        propensity,
        Ratings.from_dense((rng.random(propensity.shape) < propensity).astype(float)),
    )


def all_pairs(model: ClassifierPropensity, log: Ratings) -> np.ndarray:
    user, item = np.divmod(np.arange(log.n_cells), log.n_items)
    return model.predict_pairs(user, item).reshape(log.n_users, log.n_items)


def test_a_tree_gives_every_profile_its_share() -> None:
    log = Ratings.from_dense([[5, 0, 1], [4, 0, 0], [0, 3, 0], [2, 4, 0]])
    model = ClassifierPropensity(DecisionTreeClassifier(), item_features=[[1], [1], [0]]).fit(log)

    assert all_pairs(model, log)[0] == pytest.approx([5 / 8, 5 / 8, 1 / 4])
    assert model.n_rows_ == 4
    assert model.predict(log).values == pytest.approx([5 / 8, 1 / 4, 5 / 8, 5 / 8, 5 / 8, 5 / 8])


def test_grouped_rows_give_the_fit_to_all_rows() -> None:
    x, z, _, log = world(40, 30)
    model = ClassifierPropensity(LogisticRegression(C=0.5, tol=1e-10), x, z).fit(log)
    u, i = np.divmod(np.arange(log.n_cells), log.n_items)
    observed = np.zeros((40, 30))
    observed[log.user, log.item] = 1
    twin = LogisticRegression(C=0.5, tol=1e-10).fit(np.hstack([x[u], z[i]]), observed.ravel())

    assert all_pairs(model, log).ravel() == pytest.approx(
        twin.predict_proba(np.hstack([x[u], z[i]]))[:, 1], abs=1e-6
    )


def test_it_is_our_logistic_model_where_it_can_be() -> None:
    x, z, _, log = world(40, 30)
    model = ClassifierPropensity(LogisticRegression(C=0.5, tol=1e-10), x, z).fit(log)
    ours = LogisticPropensity(
        x, z, interactions="none", item_offsets=False, ridge=2.0, tol=1e-8
    ).fit(log)

    assert model.predict(log).values == pytest.approx(ours.predict(log).values, abs=1e-6)


def test_a_classifier_without_weights_is_given_every_cell() -> None:
    x, z, _, log = world(20, 15)
    pipeline = make_pipeline(
        PolynomialFeatures(2), LogisticRegression(C=1e6, max_iter=1000)
    )  # takes no sample_weight
    model = ClassifierPropensity(pipeline, x, z).fit(log)
    weighted = ClassifierPropensity(DecisionTreeClassifier(), x, z).fit(log)

    assert all_pairs(model, log).sum() == pytest.approx(len(log), rel=1e-3)
    assert all_pairs(weighted, log).sum() == pytest.approx(len(log))
    assert (
        ClassifierPropensity(KNeighborsClassifier(50), x, z).fit(log).predict(log).values.min() > 0
    )


@pytest.mark.parametrize("negatives", [0.5, 2.0])
def test_a_sample_is_taken_off_the_odds_again(negatives: float) -> None:
    x, z, propensity, log = world(400, 300, intercept=-4.0)
    model = ClassifierPropensity(DecisionTreeClassifier(), x, z, negatives=negatives).fit(log)

    assert model.sampled_share_ < 0.2
    assert np.abs(all_pairs(model, log) / propensity - 1).mean() < 0.15
    assert all_pairs(model, log).sum() == pytest.approx(len(log), rel=0.05)


def test_known_propensities_are_found_and_the_error_shrinks_with_data() -> None:
    errors = []
    for n_users, n_items in ((40, 30), (160, 120), (640, 480)):
        x, z, propensity, log = world(n_users, n_items, seed=3)
        model = ClassifierPropensity(DecisionTreeClassifier(), x, z).fit(log)
        errors.append(np.mean(np.abs(all_pairs(model, log) / propensity - 1)))

    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_the_given_classifier_stays_unfitted_and_the_same_seed_gives_the_same_answer() -> None:
    x, z, _, log = world(40, 30)
    forest = RandomForestClassifier(5)
    models = [ClassifierPropensity(forest, x, z, negatives=1).fit(log) for _ in range(2)]

    assert not hasattr(forest, "classes_")
    assert (all_pairs(models[0], log) == all_pairs(models[1], log)).all()
    assert models[0].estimator_.random_state == 0


def test_it_cannot_be_saved(tmp_path: Path) -> None:
    x, z, _, log = world(10, 10)
    model = ClassifierPropensity(DecisionTreeClassifier(), x, z).fit(log)

    with pytest.raises(
        UsageError,
        match=r"has a DecisionTreeClassifier, which cannot be saved .* Save its predictions",
    ):
        model.save(tmp_path / "model.unskew")


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (
            {"estimator": DecisionTreeClassifier},
            r"an object with fit and predict_proba; got the class DecisionTreeClassifier\. Pass an",
        ),
        ({"estimator": object()}, r"classifier, an object with fit and predict_proba; got <obj"),
        ({"negatives": -1}, r"negatives must be a finite number, above 0, or None; got -1"),
        (
            {"user_features": None, "item_features": None},
            r"has no covariates, so all cells are alike",
        ),
    ],
)
def test_what_cannot_be_fitted_is_named(settings: dict[str, Any], match: str) -> None:
    x, z, _, log = world(10, 10)
    with pytest.raises(UsageError, match=match):
        ClassifierPropensity(
            **{
                "estimator": DecisionTreeClassifier(),
                "user_features": x,
                "item_features": z,
                **settings,
            }
        ).fit(log)


def test_too_many_rows_for_a_classifier_without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    x, z, _, log = world(10, 10)
    monkeypatch.setattr(classifier, "MAX_REPEATED_ROWS", 50)

    with pytest.raises(
        UsageError,
        match=r"KNeighborsClassifier.fit does not accept sample_weight, .* 100 cells.*negatives",
    ):
        ClassifierPropensity(KNeighborsClassifier(), x, z).fit(log)
