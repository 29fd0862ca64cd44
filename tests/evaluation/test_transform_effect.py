"""Tests of the check whether a weight transform decides a result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unskew
from unskew.errors import PropensityWarning
from unskew.estimators import Clip
from unskew.report.comparison import write_headline

SHARES = np.array([0, 0.006, 0.012, 0.05, 0.16, 0.30])


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    """People rate what they like; the flatterer is right about good items only."""
    rng = np.random.default_rng(0)
    truth = np.clip(np.round(2.6 + 1.2 * rng.normal(size=(300, 100))), 1, 5)
    propensity = SHARES[truth.astype(int)]
    seen = rng.random(truth.shape) < propensity
    user, item = np.nonzero(seen)
    log = unskew.Ratings.from_codes(user, item, truth[seen], shape=truth.shape)
    models = {
        "flatterer": (3.9 + 0.4 * (truth - 3.9) + 0.3 * rng.normal(size=truth.shape))[seen],
        "honest": (truth + 0.85 * rng.normal(size=truth.shape))[seen],
    }
    return {
        "log": log.with_universe(truth.shape),
        "predictions": models,
        "propensities": propensity[seen],
        "metrics": ["mae"],
    }


def test_a_clip_that_turns_the_order_is_found(world: dict[str, Any]) -> None:
    with pytest.warns(PropensityWarning, match="the weight transform decides the difference of"):
        clipped = unskew.evaluate(**world, weight_transform=Clip(8))
    plain = unskew.evaluate(**world)
    effect, expected = clipped.transform_effect, plain.compare("flatterer", "honest")

    assert effect is not None
    assert (effect.first, effect.second) == ("flatterer", "honest")
    assert clipped.compare("flatterer", "honest").better == "flatterer"
    assert effect.better == expected.better == "honest"
    assert effect.value == pytest.approx(clipped.compare("flatterer", "honest").difference)
    assert (effect.estimate, effect.ci_low, effect.ci_high) == pytest.approx(
        (expected.difference, expected.ci_low, expected.ci_high)
    )
    assert "without the transform" in str(clipped)


def test_the_headline_withholds_a_verdict_that_the_transform_decides(world: dict[str, Any]) -> None:
    with pytest.warns(PropensityWarning, match="decides"):
        clipped = unskew.evaluate(**world, weight_transform=Clip(8))
    text = "".join(part for part, _ in write_headline(clipped.to_record(), "mae"))

    assert text.startswith("This evaluation cannot say which model is better: the weight transform")
    assert "Without it, honest is ahead of flatterer" in text


def test_one_model_is_checked_by_its_own_risk(world: dict[str, Any]) -> None:
    one = {"flatterer": world["predictions"]["flatterer"]}
    with pytest.warns(PropensityWarning, match="decides MAE by snips of 'flatterer'"):
        clipped = unskew.evaluate(**world | {"predictions": one}, weight_transform=Clip(8))
    text = "".join(part for part, _ in write_headline(clipped.to_record(), "mae"))

    assert clipped.transform_effect is not None
    assert clipped.transform_effect.second is None
    assert "Without it, flatterer has MAE" in text


@pytest.mark.parametrize("limit", [160.0, 1e6])
def test_a_transform_within_the_error_is_not_named(world: dict[str, Any], limit: float) -> None:
    result = unskew.evaluate(**world, weight_transform=Clip(limit))

    assert result.transform_effect is None


def test_estimates_without_weights_are_not_checked(world: dict[str, Any]) -> None:
    result = unskew.evaluate(**world, weight_transform=Clip(8), estimators=["naive"])

    assert result.transform_effect is None
