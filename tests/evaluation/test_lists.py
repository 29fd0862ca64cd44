"""What models would show."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unskew
from unskew.errors import UsageError
from unskew.evaluation.lists import compute_gini, describe_lists

WORLD = unskew.simulate(30, 20, density=0.3, alpha=0.9, random_state=1)
LOG = WORLD.log
SCORES = np.random.default_rng(0).normal(size=WORLD.truth.shape)


def test_values_are_those_of_their_definitions() -> None:
    seen = np.zeros(SCORES.shape, bool)
    seen[LOG.user, LOG.item] = True
    lists = np.argsort(-np.where(seen, -np.inf, SCORES), axis=1)[:, :4]
    share = seen.sum(axis=0) / 30
    counts = np.bincount(lists.ravel(), minlength=20)
    pairs = np.abs(counts[:, None] - counts).sum()
    profile = np.array([share[row].mean() for row in seen])
    listed = share[lists].mean(axis=1)
    novelty = -np.log2(share)[lists].mean(axis=1)

    result = describe_lists(LOG, {"model": SCORES}, k=4, exclude=LOG)

    rows = {row.metric: row for row in result.rows}
    expected = {
        "coverage@4": (counts > 0).mean(),
        "gini@4": pairs / (2 * 20 * counts.sum()),
        "novelty@4": novelty.mean(),
        "popularity_lift@4": listed.mean() / profile.mean() - 1,
    }
    assert {name: row.value for name, row in rows.items()} == pytest.approx(expected)
    error = np.std(novelty, ddof=1) / np.sqrt(30)
    assert rows["novelty@4"].std_error == pytest.approx(error)
    residual = listed - listed.mean() / profile.mean() * profile
    error = np.std(residual, ddof=1) / np.sqrt(30) / profile.mean()
    assert rows["popularity_lift@4"].std_error == pytest.approx(error)
    assert np.isnan([rows["coverage@4"].ci_low, rows["gini@4"].std_error]).all()
    assert json.loads(result.to_json())["rows"][0]["std_error"] is None


def test_everyone_gets_the_most_popular_items() -> None:
    popular = np.tile(np.bincount(LOG.item, minlength=20), (30, 1)).astype(float)
    both = describe_lists(LOG, {"popular": popular, "any": SCORES}, k=3, candidates=range(10))

    rows = {(row.model, row.metric): row.value for row in both.rows}
    assert rows["popular", "coverage@3"] == 3 / 20
    assert rows["popular", "gini@3"] == pytest.approx(17 / 20)
    assert rows["popular", "popularity_lift@3"] > rows["any", "popularity_lift@3"]
    assert rows["popular", "novelty@3"] < rows["any", "novelty@3"]


def test_the_gini_coefficient_does_not_depend_on_the_order() -> None:
    assert compute_gini(np.array([3, 0, 1])) == compute_gini(np.array([0, 1, 3]))


def test_predictions_of_logged_cells_make_no_list() -> None:
    with pytest.raises(UsageError, match="a list needs the scores of all items"):
        describe_lists(LOG, np.zeros(len(LOG)))
