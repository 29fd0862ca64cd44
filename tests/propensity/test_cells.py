"""Counts of cells by profile, and samples of unobserved ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.data.ratings import Ratings
from unskew.errors import UniverseError
from unskew.propensity.covariate.cells import (
    count_cells,
    count_sample,
    draw_cells,
    draw_unobserved,
    labelled_rows,
)
from unskew.propensity.covariate.covariates import Covariates

LOG = Ratings.from_dense([[5, 0, 1], [4, 0, 0], [0, 3, 0], [2, 4, 0]])
USER = Covariates.of([[1], [1], [0], [0]], LOG.users, "user")
ITEM = Covariates.of([[1], [1], [0]], LOG.items, "item")


def test_counts_by_hand() -> None:
    cells = count_cells(LOG, USER, ITEM)  # profiles are sorted: 0 before 1

    assert list(zip(cells.user, cells.item, cells.observed, cells.unobserved, strict=True)) == [
        (0, 0, 0, 2), (0, 1, 3, 1), (1, 0, 1, 1), (1, 1, 2, 2),
    ]  # fmt: skip


def test_counts_among_some_users() -> None:
    cells = count_cells(LOG, USER, ITEM, among=np.array([True, False, False, True]))

    assert cells.observed.tolist() == [0, 2, 1, 1]
    assert cells.unobserved.tolist() == [1, 0, 0, 1]


def test_a_sample_of_everything_counts_the_same() -> None:
    exact = count_cells(LOG, USER, ITEM)
    sampled = count_sample(LOG, USER, ITEM, draw_unobserved(LOG, 100, np.random.default_rng(0)))

    assert sampled.share == 1
    assert sampled.observed.tolist() == exact.observed.tolist()
    assert sampled.unobserved.tolist() == exact.unobserved.tolist()


def test_labelled_rows_stand_for_all_cells() -> None:
    features, label, weight = labelled_rows(count_cells(LOG, USER, ITEM), USER, ITEM)

    assert weight.sum() == LOG.n_cells
    assert weight[label == 1].sum() == len(LOG)
    assert features[:3].tolist() == [[0, 1], [1, 0], [1, 1]]


@given(st.integers(0, 1000), st.integers(1, 40))
def test_a_sample_has_unobserved_cells_only_and_each_once(seed: int, n_wanted: int) -> None:
    rng = np.random.default_rng(seed)
    log = Ratings.from_dense(np.where(rng.random((6, 9)) < 0.3, 1, 0) + np.eye(6, 9))
    sample = draw_unobserved(log, n_wanted, rng)
    drawn = set(zip(sample.user.tolist(), sample.item.tolist(), strict=True))

    assert len(drawn) == sample.user.size
    assert not drawn & set(zip(log.user.tolist(), log.item.tolist(), strict=True))
    assert sample.share == pytest.approx(len(drawn) / (log.n_cells - len(log)))


def test_every_unobserved_cell_is_as_likely_and_the_number_is_as_asked() -> None:
    log = Ratings.from_dense(np.eye(10, 20))
    samples = [draw_unobserved(log, 50, np.random.default_rng(seed)) for seed in range(2000)]
    count = np.zeros((10, 20))
    for sample in samples:
        count[sample.user, sample.item] += 1

    assert np.mean([sample.user.size for sample in samples]) == pytest.approx(50, rel=0.01)
    assert count[np.eye(10, 20) == 0] / 2000 == pytest.approx(
        50 / 190, abs=0.05
    )  # five standard errors


def test_drawn_cells_cover_all() -> None:
    user, item = draw_cells(LOG, 2000, np.random.default_rng(0))

    assert {*zip(user.tolist(), item.tolist(), strict=True)} == {
        (u, i) for u in range(4) for i in range(3)
    }


def test_a_full_log_is_refused() -> None:
    with pytest.raises(
        UniverseError,
        match=r"every one of the 4 cells \(2 users x 2 items\) was observed, so that P = 1",
    ):
        draw_unobserved(Ratings.from_dense(np.ones((2, 2))), 3, np.random.default_rng(0))
