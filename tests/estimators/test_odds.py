from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.estimators.odds import largest_ratio, largest_sum, weight_range
from unskew.estimators.sums import Clusters
from unskew.types import Vector


def corners(low: Vector, high: Vector) -> list[Vector]:
    """Every corner of the box: an extremum of a ratio of linear functions is at one."""
    return [np.where(bits, high, low) for bits in product([False, True], repeat=low.size)]


@st.composite
def boxes(draw: st.DrawFn, most: int = 10) -> tuple[Vector, Vector, Vector, Vector]:
    """Deltas of both signs with ties, bases of which one is positive, and bounds of the weights."""
    n = draw(st.integers(1, most))
    delta = np.array(
        draw(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=n, max_size=n))
    )
    weight = np.array(draw(st.lists(st.floats(1, 50), min_size=n, max_size=n)))
    base = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=n, max_size=n)))
    base[draw(st.integers(0, n - 1))] = 1.0
    low, high = weight_range(weight, draw(st.floats(1, 5)))
    return delta, base, low, high


def by_sorting(delta: Vector, low: Vector, high: Vector) -> float:
    """The slow version: the largest deltas get the largest weights, so there are n + 1 cases."""
    order = np.argsort(-delta)
    delta, low, high = delta[order], low[order], high[order]
    cuts = (np.concatenate([high[:k], low[k:]]) for k in range(delta.size + 1))
    return max(float(cut @ delta / cut.sum()) for cut in cuts)


def test_the_range_of_a_weight_is_that_of_its_odds() -> None:
    p, factor = np.array([0.01, 0.5, 0.9, 1.0]), 1.7
    low, high = weight_range(1 / p, factor)

    odds = p[:3] / (1 - p[:3])
    for end, changed in ((low, odds * factor), (high, odds / factor)):
        np.testing.assert_allclose(end[:3], 1 / (changed / (1 + changed)))
    assert (low[3], high[3]) == (1.0, 1.0)  # what is certain has no odds to be wrong about


def test_by_hand() -> None:
    delta, low, high = np.array([1.0, 0.0]), np.array([1.0, 1.0]), np.array([3.0, 2.0])

    assert largest_sum(delta, low, high).tolist() == [3.0, 1.0]
    assert largest_ratio(delta, low, high).tolist() == [3.0, 1.0]
    assert largest_ratio(-delta, low, high).tolist() == [1.0, 2.0]


@given(box=boxes())
def test_no_corner_gives_a_larger_sum(box: tuple[Vector, Vector, Vector, Vector]) -> None:
    delta, _, low, high = box

    assert largest_sum(delta, low, high) @ delta == pytest.approx(
        max(corner @ delta for corner in corners(low, high))
    )


@given(box=boxes())
def test_no_corner_gives_a_larger_ratio(box: tuple[Vector, Vector, Vector, Vector]) -> None:
    delta, _, low, high = box
    best = largest_ratio(delta, low, high)

    assert best @ delta / best.sum() == pytest.approx(
        max(corner @ delta / corner.sum() for corner in corners(low, high))
    )
    assert best @ delta / best.sum() == pytest.approx(by_sorting(delta, low, high))


@given(box=boxes())
def test_no_corner_gives_a_larger_ratio_to_a_base(
    box: tuple[Vector, Vector, Vector, Vector],
) -> None:
    delta, base, low, high = box
    delta = delta * base  # what is not in the base is not counted either
    best = largest_ratio(delta, low, high, base=base)

    assert best @ delta / (best @ base) == pytest.approx(
        max(corner @ delta / (corner @ base) for corner in corners(low, high))
    )


@given(box=boxes(8), n_groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_no_corner_gives_a_larger_mean_of_ratios(
    box: tuple[Vector, Vector, Vector, Vector], n_groups: int, seed: int
) -> None:
    delta, _, low, high = box
    groups = Clusters(
        np.random.default_rng(seed).integers(0, n_groups, delta.size).astype(np.int32), n_groups + 1
    )

    def mean_of_ratios(weight: Vector) -> float:
        sums = groups.add_up(np.stack([weight * delta, weight]))
        return float(np.mean([above / below for above, below in sums if below > 0]))

    found = mean_of_ratios(largest_ratio(delta, low, high, groups=groups))

    assert found == pytest.approx(max(mean_of_ratios(corner) for corner in corners(low, high)))


def test_a_long_log_takes_few_steps_and_agrees_with_sorting() -> None:
    rng = np.random.default_rng(0)
    delta, weight = rng.normal(size=2000) ** 3, 1 + rng.pareto(1.2, 2000)
    low, high = weight_range(weight, 2.5)
    best = largest_ratio(delta, low, high)

    assert best @ delta / best.sum() == pytest.approx(by_sorting(delta, low, high), rel=1e-12)
