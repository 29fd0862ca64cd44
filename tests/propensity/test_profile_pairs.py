"""Counts of cells by pairs of profiles."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.data.cells import sample_unobserved_cells, user_and_item
from unskew.data.ratings import Ratings
from unskew.errors import UniverseError
from unskew.propensity.covariates import CovariateProfiles, ProfilePairs

LOG = Ratings.from_dense([[5, 0, 1], [4, 0, 0], [0, 3, 0], [2, 4, 0]])
PROFILES = ProfilePairs(
    CovariateProfiles.read([[1], [1], [0], [0]], LOG.users, "user"),
    CovariateProfiles.read([[1], [1], [0]], LOG.items, "item"),
)


def test_counts_by_hand() -> None:
    cells = PROFILES.count_cells(LOG)  # profiles are sorted: 0 before 1
    user, item = user_and_item(cells.pair, 2)

    assert list(zip(user, item, cells.observed, cells.unobserved, strict=True)) == [
        (0, 0, 0, 2), (0, 1, 3, 1), (1, 0, 1, 1), (1, 1, 2, 2),
    ]  # fmt: skip


def test_counts_among_some_users() -> None:
    cells = PROFILES.count_cells(LOG, users=np.array([True, False, False, True]))

    assert cells.observed.tolist() == [0, 2, 1, 1]
    assert cells.unobserved.tolist() == [1, 0, 0, 1]


def test_a_sample_of_everything_counts_the_same() -> None:
    exact = PROFILES.count_cells(LOG)
    unobserved = sample_unobserved_cells(LOG, 100, np.random.default_rng(0))
    sampled = PROFILES.count_sampled_cells(LOG, unobserved)

    assert sampled.sampled_share == 1
    assert sampled.observed.tolist() == exact.observed.tolist()
    assert sampled.unobserved.tolist() == exact.unobserved.tolist()


def test_labelled_rows_stand_for_all_cells() -> None:
    features, label, weight = PROFILES.labelled_rows(PROFILES.count_cells(LOG))

    assert weight.sum() == LOG.n_cells
    assert weight[label == 1].sum() == len(LOG)
    assert features[:3].tolist() == [[0, 1], [1, 0], [1, 1]]


def test_a_full_log_is_refused() -> None:
    log = Ratings.from_dense(np.ones((4, 3)))
    with pytest.raises(
        UniverseError, match=r"all 12 cells \(4 users x 3 items\) were observed, so P = 1"
    ):
        PROFILES.count_cells(log)


def test_every_unobserved_cell_is_equally_likely_to_be_sampled() -> None:
    log = Ratings.from_dense(np.eye(10, 20))
    samples = [sample_unobserved_cells(log, 50, np.random.default_rng(s)) for s in range(2000)]
    count = np.bincount(np.concatenate(samples), minlength=200).reshape(10, 20)

    assert np.mean([sample.size for sample in samples]) == pytest.approx(50, rel=0.01)
    assert count[np.eye(10, 20) == 0] / 2000 == pytest.approx(
        50 / 190, abs=0.05
    )  # five standard errors
