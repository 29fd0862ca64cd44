"""Rankings by the code of the GPU engine, on the processors: those of the local engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew
from unskew.data.factors import Factors
from unskew.errors import BadPredictionError, UsageError
from unskew.ranking.candidates import Candidates
from unskew.ranking.positions import compute_positions

pytest.importorskip("torch", reason="ranking by torch needs the extra 'gpu'")
from unskew.engines.gpu.ranking import _best_columns as best_columns

ENGINE = unskew.engines.GpuEngine(device="cpu")


def hide(starts: Any, items: Any) -> Candidates:
    return Candidates(2, 5, hidden=(starts, items))


class Counting(unskew.engines.GpuEngine):
    """An engine that counts its calls."""

    n_calls = 0

    def positions(self, factors: Factors, user: Any, item: Any, candidates: Any = None, /) -> Any:
        Counting.n_calls += 1
        return super(Counting, self).positions(factors, user, item, candidates)


def factors_of(
    rng: np.random.Generator, n_users: int, n_items: int, dtype: str = "float64"
) -> Factors:
    """Factors with few distinct scores, so that there are ties."""
    users, items = (rng.integers(-2, 3, (n, 2)).astype(dtype) for n in (n_users, n_items))
    return Factors(users, items, item_offset=rng.integers(0, 3, n_items).astype(dtype))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_users=st.integers(1, 9),
    n_items=st.integers(1, 40),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_positions_are_those_of_the_processors(
    seed: int, n_users: int, n_items: int, dtype: str
) -> None:
    rng = np.random.default_rng(seed)
    scorer = factors_of(rng, n_users, n_items, dtype)
    user, item = (rng.integers(0, n, 30).astype(np.int32) for n in (n_users, n_items))

    positions = ENGINE.positions(scorer, user, item)

    expected = compute_positions(user, item, n_users, n_items, scorer)
    assert np.array_equal(positions.above, expected.above)
    assert np.array_equal(positions.equal, expected.equal)


@pytest.mark.parametrize("kind", ["listed", "hidden", "lists"])
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_positions_among_candidates_are_those_of_the_processors(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scorer = factors_of(rng, 6, 12)
    scorer.item_offset[rng.integers(12)] = -np.inf
    is_candidate = np.tile(rng.random(12) < 0.7, (6, 1))
    if kind != "listed":
        is_candidate = rng.random((6, 12)) < 0.7
    user, item = (codes.astype(np.int32) for codes in np.nonzero(is_candidate))
    parts = {}
    for name, mask in (("lists", is_candidate), ("hidden", ~is_candidate)):
        starts = np.append(0, np.cumsum(mask.sum(axis=1)))
        parts[name] = starts, np.nonzero(mask)[1].astype(np.int32)
    parts["listed"] = is_candidate[0]
    name = "is_listed" if kind == "listed" else kind
    candidates = Candidates(6, 12, **{name: parts[kind]})  # type: ignore[arg-type]

    positions = ENGINE.positions(scorer, user, item, candidates)

    expected = compute_positions(user, item, 6, 12, scorer, candidates=candidates)
    assert np.array_equal(positions.above, expected.above)
    assert np.array_equal(positions.equal, expected.equal)


def test_blocks_are_not_seen_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scorer, cells = (
        factors_of(rng, 50, 30),
        [rng.integers(0, n, 200).astype(np.int32) for n in (50, 30)],
    )
    whole = ENGINE.positions(scorer, *cells)

    monkeypatch.setattr("unskew.engines.gpu.ranking.SCORES_ON_HOST", 100)

    assert np.array_equal(ENGINE.positions(scorer, *cells).above, whole.above)


def test_a_nan_score_has_no_position() -> None:
    scorer = Factors(np.array([[1.0], [np.inf]]), np.array([[1.0], [0.0]]))

    with pytest.raises(BadPredictionError, match="user code 1 is NaN"):
        ENGINE.positions(scorer, np.array([0, 1], np.int32), np.array([0, 0], np.int32))


@pytest.mark.parametrize("exclude_seen", [True, False])
@pytest.mark.parametrize("k", [1, 3, 8, 100])
def test_recommendations_are_those_of_the_processors(
    k: int, exclude_seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = unskew.simulate(30, 8, density=0.3, alpha=0.9, random_state=0)
    log, propensities = world.log, world.propensities
    model = unskew.MatrixFactorization(2, 1.0).fit(log, propensities)
    users = [*log.users[:20], 10**6]
    monkeypatch.setattr("unskew.engines.gpu.ranking.SCORES_ON_HOST", 30)

    calls = []
    monkeypatch.setattr(
        "unskew.engines.gpu.ranking._best_columns",
        lambda *arguments: calls.append(1) or best_columns(*arguments),
    )
    here, there = (
        model.recommend(users, k, exclude_seen=exclude_seen, engine=engine, on_unknown="fallback")
        for engine in ("local", ENGINE)
    )

    assert len(calls) == 7

    assert np.array_equal(
        here.items[np.isfinite(here.scores)], there.items[np.isfinite(there.scores)]
    )
    np.testing.assert_allclose(there.scores, here.scores, rtol=1e-12)


def test_equal_scores_come_in_the_order_of_the_items() -> None:
    scorer = Factors(np.ones((2, 1)), np.array([[0.0], [1.0], [1.0], [0.0], [1.0]]))

    best, scores = ENGINE.best(scorer, 4, hide(np.array([0, 1, 1]), np.array([2], np.int32)))

    assert best.tolist() == [[1, 4, 0, 3], [1, 2, 4, 0]]
    assert scores.tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]


@pytest.mark.filterwarnings("ignore:model .* was trained on")
def test_an_evaluation_ranks_with_the_engine() -> None:
    world = unskew.simulate(60, 40, density=0.2, alpha=0.6, random_state=0)
    log, propensities = world.log, world.propensities
    model = unskew.MatrixFactorization(2, 1.0).fit(log, propensities)
    arguments: dict[str, Any] = {
        "propensities": propensities,
        "metrics": ["dcg@5", "recall@5"],
        "relevance_threshold": 4,
        "universe": "log",
    }

    here, there = (
        unskew.evaluate(log, model, engine=engine, **arguments)
        for engine in ("local", Counting("cpu"))
    )

    assert Counting.n_calls == 1
    assert here.to_columns() == there.to_columns()


def test_an_engine_that_does_not_rank_says_so() -> None:
    log = unskew.Ratings.from_dense([[5, 1], [4, 0]])
    model = unskew.MatrixFactorization(1).fit(log)

    with pytest.raises(UsageError, match="the engine object cannot rank items"):
        model.recommend(log.users, engine=object())  # type: ignore[arg-type]


def test_a_nan_score_cannot_be_ranked() -> None:
    scorer = Factors(np.array([[np.nan], [1.0]]), np.array([[1.0], [2.0], [3.0]]))

    with pytest.raises(BadPredictionError, match="user code 0 is NaN"):
        ENGINE.best(scorer, 2, Candidates(2, 3))


@pytest.mark.parametrize(
    ("device", "match"),
    [("cuda:99", "no CUDA device 'cuda:99'"), ("abacus", "torch has no device 'abacus'")],
)
def test_a_device_that_is_not_there_is_named(device: str, match: str) -> None:
    log = unskew.Ratings.from_dense([[5, 1], [4, 0]])

    with pytest.raises(UsageError, match=match):
        unskew.MatrixFactorization(1).fit(log, engine=unskew.engines.GpuEngine(device))
    with pytest.raises(
        UsageError, match="engine must be 'auto', 'local', 'gpu', 'spark', 'disk' or an engine"
    ):
        unskew.MatrixFactorization(1).fit(log, engine=5)  # type: ignore[arg-type]
