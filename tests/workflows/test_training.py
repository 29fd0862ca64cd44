"""Recommenders by name, with any of their settings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import unskew
from unskew.cli.options import list_learners
from unskew.errors import UnskewWarning, UsageError
from unskew.models import find_recommender
from unskew.workflows.inputs import build_model

WORLD = unskew.simulate(30, 20, density=0.2, alpha=0.5, random_state=1)


def test_learners_that_need_more_than_the_log_and_its_propensities_are_not_offered() -> None:
    assert {"tdr", "random-sample"}.isdisjoint(list_learners())
    assert {"mf", "mrdr", "logistic", "tri-training", "offsets"} <= list_learners().keys()


@pytest.mark.parametrize("name", list_learners())
def test_every_learner_is_fitted_with_propensities_or_says_why_not(name: str) -> None:
    traits = find_recommender(name).traits
    settings = {"relevance_threshold": 4} if traits.get("needs_clicks") else {}
    model = build_model(find_recommender(name).target, settings, random_state=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnskewWarning)
        model.fit(WORLD.log, WORLD.propensities if traits.get("reads_propensities", True) else None)

    assert np.isfinite(model.predict(WORLD.log.users[:3], WORLD.log.items[:3])).all()


def test_settings_reach_the_model_and_strange_ones_are_refused() -> None:
    assert build_model(find_recommender("mrdr").target, {"n_factors": 7}).n_factors == 7
    with pytest.raises(UsageError, match="GlobalMean does not have the setting l2; it has no set"):
        build_model(find_recommender("mean").target, {"l2": 1.0})
