from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq

import unskew
from known_propensity import KnownPropensity, draw, every_cell
from unskew.data import cells
from unskew.data.ratings import Ratings
from unskew.errors import BadPropensityError, UniverseError, UsageError
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.popularity import PopularityPropensity
from unskew.propensity.wrapper import ClippedPropensity, ScaledPropensity
from unskew.types import Matrix

LOG = Ratings.from_dense([[5, 1], [3, 0]])
propensities = arrays(np.float64, (4, 3), elements=st.floats(0.001, 1))
masks = arrays(np.bool_, (4, 3)).filter(lambda seen: seen.any())


def test_by_hand() -> None:
    """k (0.4 + 0.1 + 0.2 + 0.3) = 3 raises 0.4 above 1, then 0.3: 1 + 1 + k (0.1 + 0.2) = 3."""
    model = ScaledPropensity(KnownPropensity(np.array([[0.4, 0.1], [0.2, 0.3]]))).fit(LOG)

    np.testing.assert_allclose(every_cell(model), [[1, 1 / 3], [2 / 3, 1]])
    assert model.scale_ == pytest.approx(10 / 3)


@given(propensity=propensities, seen=masks)
def test_it_is_the_root_of_the_dense_sum(propensity: Matrix, seen: np.ndarray) -> None:
    log = Ratings.from_dense(seen.astype(float))

    values = every_cell(ScaledPropensity(KnownPropensity(propensity)).fit(log))

    root = brentq(
        lambda k: np.minimum(1, k * propensity).sum() - len(log),
        0,
        2 / propensity.min(),  # beyond which every cell is at its limit of 1
        xtol=1e-13,
    )
    np.testing.assert_allclose(values, np.minimum(1, root * propensity), rtol=1e-6)
    assert values.sum() == pytest.approx(len(log))


@given(propensity=propensities, seen=masks, factor=st.floats(0.01, 1))
def test_the_scale_of_the_inner_model_does_not_matter(
    propensity: Matrix, seen: np.ndarray, factor: float
) -> None:
    log = Ratings.from_dense(seen.astype(float))

    one, other = (
        every_cell(ScaledPropensity(KnownPropensity(c * propensity)).fit(log)) for c in (1, factor)
    )

    np.testing.assert_allclose(one, other, rtol=1e-6)


def test_popularity_is_scaled_already() -> None:
    log = draw(np.random.default_rng(1).uniform(0.1, 0.9, (20, 15)))

    for by in ("item", "user", "both"):
        inner = PopularityPropensity(by, power=2, smoothing=1).fit(log)  # type: ignore[arg-type]
        np.testing.assert_allclose(every_cell(ScaledPropensity(inner).fit(log)), every_cell(inner))


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    log, inner = draw(np.full((30, 7), 0.5)), PopularityPropensity("both", smoothing=1)
    whole = ScaledPropensity(ClippedPropensity(inner, min_propensity=0.45)).fit(log).scale_

    monkeypatch.setattr(cells, "BLOCK_CELLS", 20)

    assert ScaledPropensity(ClippedPropensity(inner, min_propensity=0.45)).fit(
        log
    ).scale_ == pytest.approx(whole)


def test_beyond_max_cells_a_sample_is_near() -> None:
    """P is uniform in (0, 0.2): the relative error is 1/sqrt(3) / sqrt(10,000), or 0.6 %."""
    true = np.random.default_rng(0).uniform(0, 0.2, (400, 300))
    log, inner = draw(true), KnownPropensity(0.3 * true)

    exact = ScaledPropensity(inner).fit(log).scale_
    drawn = [
        ScaledPropensity(inner, max_cells=10_000, random_state=seed).fit(log).scale_ / exact - 1
        for seed in range(20)
    ]

    assert len(set(drawn)) == 20
    assert np.std(drawn) == pytest.approx(0.0058, rel=0.5)
    assert ScaledPropensity(inner, max_cells=10_000).fit(log).scale_ / exact - 1 == drawn[0]


def test_propensities_known_up_to_a_factor_are_recovered_better_from_larger_logs() -> None:
    def error(n: int) -> float:
        true = np.random.default_rng(n).uniform(0.02, 0.2, (n, n))
        return float(
            np.abs(
                every_cell(ScaledPropensity(KnownPropensity(5 * true)).fit(draw(true))) / true - 1
            ).max()
        )

    errors = [np.mean([error(n + each) for each in range(10)]) for n in (30, 300)]

    assert errors[1] < 0.3 * errors[0]
    assert errors[1] < 0.01


def test_a_model_comes_back_from_its_file(tmp_path: Path) -> None:
    model = ScaledPropensity(ClippedPropensity(PopularityPropensity(), min_propensity=0.7)).fit(LOG)
    model.save(tmp_path / "model.unskew")

    again = unskew.load(tmp_path / "model.unskew")

    assert (every_cell(again) == every_cell(model)).all()
    assert (again.scale_, again.n_capped_) == (model.scale_, model.n_capped_)


def test_what_it_cannot_add_up_is_refused() -> None:
    with pytest.raises(
        UsageError,
        match=r"propensities of all cells, but NaiveBayesPropensity needs the rating.*snips",
    ):
        ScaledPropensity(NaiveBayesPropensity()).fit(LOG, mcar=[1, 3, 5])
    with pytest.raises(
        UsageError,
        match="needs the propensities of all cells, but ClippedPropensity needs the rating",
    ):
        ScaledPropensity(ClippedPropensity(NaiveBayesPropensity(), min_propensity=0.1)).fit(
            LOG, mcar=[1, 3, 5]
        )
    with pytest.raises(
        UniverseError,
        match="the universe has 9 users x 9 items, but the log has the ids of only 2 users and 2 "
        "items, and this model needs the ids of the whole universe",
    ):
        ScaledPropensity(PopularityPropensity()).fit(LOG, universe=(9, 9))
    with pytest.raises(
        BadPropensityError,
        match="cannot add up to 3 ratings: only 2 cells have a propensity above 0",
    ):
        ScaledPropensity(KnownPropensity(np.array([[0.1, 0.1], [0, 0]]))).fit(LOG)
    with pytest.raises(UsageError, match="ScaledPropensity wraps a propensity model"):
        ScaledPropensity(np.ones((2, 2))).fit(LOG)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_cells must be a whole number, at least 1; got 0"):
        ScaledPropensity(PopularityPropensity(), max_cells=0).fit(LOG)
