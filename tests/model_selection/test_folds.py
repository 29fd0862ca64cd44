from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unskew
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.model_selection.folds import Fold, split

WORLD = unskew.simulate(n_users=40, n_items=30, density=0.2, alpha=0.6, random_state=3)


def cells(log: Ratings) -> list[tuple[int, int, float]]:
    return list(zip(log.user.tolist(), log.item.tolist(), log.rating.tolist(), strict=True))


def row_log(n: int) -> Ratings:
    return Ratings.from_codes(np.arange(n), np.zeros(n), np.arange(n) % 5 + 1, shape=(n, 2))


@given(n=st.integers(2, 40), n_folds=st.integers(2, 12), seed=st.integers(0, 9))
def test_folds_partition_the_log(n: int, n_folds: int, seed: int) -> None:
    log = row_log(n)
    n_folds = min(n, n_folds)

    folds = list(split(log, None, n_folds=n_folds, random_state=seed))

    assert sorted(cell for fold in folds for cell in cells(fold.validation)) == sorted(cells(log))
    for fold in folds:
        assert sorted(cells(fold.training.log) + cells(fold.validation)) == sorted(cells(log))


@pytest.mark.parametrize(
    ("n", "n_folds", "sizes"),
    [(10, 4, [2, 2, 2, 4]), (8, 4, [2, 2, 2, 2]), (7, 2, [3, 4]), (3, 3, [1, 1, 1])],
)
def test_sizes_are_equal_but_for_the_last(n: int, n_folds: int, sizes: list[int]) -> None:
    assert [
        len(fold.validation) for fold in split(row_log(n), None, n_folds=n_folds, random_state=0)
    ] == sizes


def test_propensities_follow_their_cells_and_are_scaled() -> None:
    log, p = WORLD.log, WORLD.propensities
    own = dict(
        zip(zip(log.user.tolist(), log.item.tolist(), strict=True), p.values.tolist(), strict=True)
    )

    for fold in split(log, p, n_folds=5, random_state=1):
        for part, scaled, share in (
            (fold.training.log, fold.training.propensities, 4 / 5),
            (fold.validation, fold.validation_propensities, 1 / 5),
        ):
            assert scaled is not None
            expected = [share * own[user, item] for user, item, _ in cells(part)]
            np.testing.assert_allclose(scaled.values, expected, rtol=1e-14)


def test_without_propensities_all_cells_of_the_validation_part_count_alike() -> None:
    log = WORLD.log

    for fold in split(log, None, n_folds=4, random_state=1):
        assert fold.training.propensities is None
        np.testing.assert_allclose(fold.validation_propensities.values, len(log) / log.n_cells / 4)


def test_vocabularies_and_universe_stay() -> None:
    for fold in split(WORLD.log, None, n_folds=4, random_state=1):
        for part in (fold.training.log, fold.validation):
            assert part.n_cells == WORLD.log.n_cells
            assert part.universe == WORLD.log.universe


def test_the_seed_decides() -> None:
    def first(seed: int) -> list[tuple[int, int, float]]:
        return cells(next(split(WORLD.log, None, n_folds=4, random_state=seed)).validation)

    assert first(0) == first(0)
    assert first(0) != first(1)


def ips_of_squares(fold: Fold, n_cells: int) -> float:
    """Eq. (10) of the model that predicts 0, on the validation part."""
    return float((fold.validation.rating**2 * fold.validation_propensities.inverse).sum() / n_cells)


@pytest.mark.parametrize("n_folds", [2, 3, 4, 7])
def test_the_mean_over_folds_is_ips_on_the_whole_log(n_folds: int) -> None:
    """A fixed model: each cell is validated once with weight k / P, in a mean of k folds."""
    log, p = WORLD.log, WORLD.propensities
    whole = float((log.rating**2 * p.inverse).sum() / log.n_cells)

    scores = [
        ips_of_squares(fold, log.n_cells) for fold in split(log, p, n_folds=n_folds, random_state=2)
    ]

    assert np.mean(scores) == pytest.approx(whole, rel=1e-12)


def test_one_fold_is_unbiased_over_all_assignments(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 ratings in 2 folds: 24 orders, so the expectation is a finite sum."""
    log, p = row_log(4), Propensities(np.array([0.1, 0.5, 0.9, 1.0]))
    orders = iter(permutations(range(4)))

    class InTurn:
        def permutation(self, _: int) -> np.ndarray:
            return np.array(next(orders))

    monkeypatch.setattr(np.random, "default_rng", lambda _: InTurn())
    firsts = [next(split(log, p, n_folds=2, random_state=0)) for _ in range(24)]

    whole = float((log.rating**2 * p.inverse).sum() / log.n_cells)
    assert np.mean([ips_of_squares(fold, log.n_cells) for fold in firsts]) == pytest.approx(
        whole, rel=1e-12
    )
    weights = [
        fold.training.propensities.inverse.sum()
        for fold in firsts
        if fold.training.propensities is not None
    ]
    assert np.mean(weights) == pytest.approx(p.inverse.sum(), rel=1e-12)


def test_numbers_of_folds_out_of_range() -> None:
    for n_folds in (1, 0, -3, 2.5):
        with pytest.raises(UsageError, match="n_folds must be a whole number, at least 2; got"):
            next(split(row_log(5), None, n_folds=n_folds, random_state=0))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="n_folds must be at most the number of ratings, 5; got 6"):
        next(split(row_log(5), None, n_folds=6, random_state=0))


def test_a_model_of_clicks_is_judged_on_clicks() -> None:
    fold = next(split(WORLD.log, WORLD.propensities, n_folds=2, random_state=0))
    model = fold.training.fit(unskew.MatrixFactorization(1, 25.0, relevance_threshold=3))

    score = fold.score(model, metric="mse", estimator="ips")

    part = fold.validation
    error = (part.rating >= 3) - model.predict(part.users[part.user], part.items[part.item])
    assert score == pytest.approx(
        (error**2 * fold.validation_propensities.inverse).sum() / part.n_cells
    )
