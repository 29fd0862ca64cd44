"""The worlds of the leaderboard: what is drawn, and that the test is clean and uniform."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.datasets.reading import find_overlap
from unskew.paper import WORLDS
from unskew.paper.worlds import PART_OF_MOVIELENS, TEST_SHARE, draw_data, open_simulation

TRUTH = np.random.default_rng(0).integers(1, 6, (60, 50)).astype(np.float32)


def test_the_test_leaves_the_log_and_the_propensities_know_it() -> None:
    """Over many draws, a cell is in the log with the propensity that comes with it."""
    counts, expected = np.zeros(TRUTH.shape), np.zeros(TRUTH.shape)
    n_draws = 400
    for seed in range(n_draws):
        data = draw_data(TRUTH, 0.5, 0.2, np.random.default_rng(seed))
        assert not find_overlap(data.test, data.log).any()
        assert len(data.test) == round(TEST_SHARE * TRUTH.size)
        counts[data.log.user, data.log.item] += 1
        assert data.propensity_matrix is not None
        expected = data.propensity_matrix
        assert np.allclose(data.propensities.values, expected[data.log.user, data.log.item])  # type: ignore[union-attr]

    error = np.sqrt((expected * (1 - expected)).sum() / n_draws) / TRUTH.size
    assert counts.mean() / n_draws == pytest.approx(expected.mean(), abs=4 * error)


def test_seeds_draw_other_worlds_and_one_seed_the_same() -> None:
    world = open_simulation()
    first, again, other = world.draw(0), world.draw(0), world.draw(1)

    assert world.is_redrawn
    assert np.array_equal(first.log.item, again.log.item)
    assert len(first.log) != len(other.log) or not np.array_equal(first.log.item, other.log.item)


def test_movielens_without_its_files_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSKEW_DATA", raising=False)
    world = WORLDS["movielens"].target()

    assert world.draw(0).log.n_users == PART_OF_MOVIELENS[0]
    assert "Truth: simulated" in world.description
