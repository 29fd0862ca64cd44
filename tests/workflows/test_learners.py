"""Learners by name."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import unskew
from unskew.cli import train
from unskew.errors import UnknownNameError, UnskewWarning, UsageError
from unskew.workflows.learners import LEARNERS, learner_named

WORLD = unskew.simulate(30, 20, density=0.2, alpha=0.5, random_state=1)


def test_the_command_line_offers_every_learner() -> None:
    assert tuple(LEARNERS) == train.LEARNERS


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_is_fitted_with_propensities_or_says_why_not(name: str) -> None:
    model = learner_named(name).model({"max_iter": None, "random_state": 3, "verbose": False})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnskewWarning)
        model.fit(WORLD.log, None if name == "expomf" else WORLD.propensities)

    assert np.isfinite(model.predict(WORLD.log.users[:3], WORLD.log.items[:3])).all()


def test_settings_reach_the_model_and_strange_ones_are_refused() -> None:
    assert learner_named("mrdr").model({"n_factors": 7, "l2": None}).n_factors == 7
    with pytest.raises(UsageError, match="GlobalMean has no setting 'l2'; it has none"):
        learner_named("mean").model({"l2": 1.0})
    with pytest.raises(UnknownNameError, match="unknown learner 'svd'"):
        learner_named("svd")
