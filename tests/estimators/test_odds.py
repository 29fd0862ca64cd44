from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from unskew.estimators.observed import Clusters
from unskew.estimators.odds import FixedSums, WeightBox, largest_ratio, largest_sum
from unskew.types import Vector


def corners(box: WeightBox) -> list[Vector]:
    """Every corner of the box: an extremum of a ratio of linear functions is at one."""
    return [
        np.where(bits, box.high, box.low) for bits in product([False, True], repeat=box.low.size)
    ]


@st.composite
def boxes(draw: st.DrawFn, most: int = 10) -> tuple[Vector, Vector, WeightBox]:
    """Deltas of both signs with ties, bases of which one is positive, and bounds of the weights."""
    n = draw(st.integers(1, most))
    delta = np.array(
        draw(st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0]), min_size=n, max_size=n))
    )
    weight = np.array(draw(st.lists(st.floats(1, 50), min_size=n, max_size=n)))
    base = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=n, max_size=n)))
    base[draw(st.integers(0, n - 1))] = 1.0
    return delta, base, WeightBox.around(weight, draw(st.floats(1, 5)))


def by_sorting(delta: Vector, box: WeightBox) -> float:
    """The slow version: the largest deltas get the largest weights, so there are n + 1 cases."""
    order = np.argsort(-delta)
    delta, low, high = delta[order], box.low[order], box.high[order]
    cuts = (np.concatenate([high[:k], low[k:]]) for k in range(delta.size + 1))
    return max(float(cut @ delta / cut.sum()) for cut in cuts)


def test_the_range_of_a_weight_is_that_of_its_odds() -> None:
    p, factor = np.array([0.01, 0.5, 0.9, 1.0]), 1.7
    box = WeightBox.around(1 / p, factor)

    odds = p[:3] / (1 - p[:3])
    for end, changed in ((box.low, odds * factor), (box.high, odds / factor)):
        np.testing.assert_allclose(end[:3], 1 / (changed / (1 + changed)))
    assert (box.low[3], box.high[3]) == (1.0, 1.0)  # what is certain has no odds to be wrong about


def test_by_hand() -> None:
    delta = np.array([1.0, 0.0])
    box = WeightBox(np.array([1.0, 1.0]), np.array([2.0, 1.5]), np.array([3.0, 2.0]))

    assert largest_sum(delta, box).weight.tolist() == [3.0, 1.0]
    assert largest_ratio(delta, box).weight.tolist() == [3.0, 1.0]
    assert largest_ratio(-delta, box).weight.tolist() == [1.0, 2.0]


@given(box=boxes())
def test_no_corner_gives_a_larger_sum(box: tuple[Vector, Vector, WeightBox]) -> None:
    delta, _, bounds = box

    assert largest_sum(delta, bounds).weight @ delta == pytest.approx(
        max(corner @ delta for corner in corners(bounds))
    )


@given(box=boxes())
def test_no_corner_gives_a_larger_ratio(box: tuple[Vector, Vector, WeightBox]) -> None:
    delta, _, bounds = box
    best = largest_ratio(delta, bounds).weight

    assert best @ delta / best.sum() == pytest.approx(
        max(corner @ delta / corner.sum() for corner in corners(bounds))
    )
    assert best @ delta / best.sum() == pytest.approx(by_sorting(delta, bounds))


@given(box=boxes())
def test_no_corner_gives_a_larger_ratio_to_a_base(
    box: tuple[Vector, Vector, WeightBox],
) -> None:
    delta, base, bounds = box
    delta = delta * base  # what is not in the base is not counted either
    best = largest_ratio(delta, bounds, base=base).weight

    assert best @ delta / (best @ base) == pytest.approx(
        max(corner @ delta / (corner @ base) for corner in corners(bounds))
    )


@given(box=boxes(8), n_groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_no_corner_gives_a_larger_mean_of_ratios(
    box: tuple[Vector, Vector, WeightBox], n_groups: int, seed: int
) -> None:
    delta, _, bounds = box
    groups = Clusters(
        np.random.default_rng(seed).integers(0, n_groups, delta.size).astype(np.int32), n_groups + 1
    )

    def mean_of_ratios(weight: Vector) -> float:
        sums = groups.add_up(np.stack([weight * delta, weight]))
        return float(np.mean([above / below for above, below in sums if below > 0]))

    found = mean_of_ratios(largest_ratio(delta, bounds, groups=groups).weight)

    assert found == pytest.approx(max(mean_of_ratios(corner) for corner in corners(bounds)))


def test_a_long_log_takes_few_steps_and_agrees_with_sorting() -> None:
    rng = np.random.default_rng(0)
    delta, weight = rng.normal(size=2000) ** 3, 1 + rng.pareto(1.2, 2000)
    bounds = WeightBox.around(weight, 2.5)
    best = largest_ratio(delta, bounds).weight

    assert best @ delta / best.sum() == pytest.approx(by_sorting(delta, bounds), rel=1e-12)


# Sums of weights that are kept


def keep_sums(box: WeightBox, code: Vector | None = None) -> WeightBox:
    sums = FixedSums.of_all(box.low.size)
    if code is not None:
        sums = FixedSums.of_clusters(Clusters(code.astype(np.int32), int(code.max()) + 2))
    return WeightBox(box.low, box.assumed, box.high, sums)


def solve_program(residual: Vector, box: WeightBox) -> float:
    """The largest sum w e by a linear program."""
    assert box.sums is not None
    groups = np.arange(box.sums.size.size)[:, None] == box.sums.code
    solution = linprog(
        -residual,
        A_eq=groups.astype(float),
        b_eq=groups @ box.assumed,
        bounds=np.column_stack([box.low, box.high]),
    )
    return -float(solution.fun)


@given(box=boxes(), seed=st.integers(0, 99), by_group=st.booleans())
def test_with_kept_sums_the_knapsack_equals_a_linear_program(
    box: tuple[Vector, Vector, WeightBox], seed: int, by_group: bool
) -> None:
    delta, _, bounds = box
    code = np.random.default_rng(seed).integers(0, 3, delta.size) if by_group else None
    kept = keep_sums(bounds, code)
    assert kept.sums is not None
    best = largest_ratio(delta, kept).weight

    assert (best >= kept.low - 1e-9).all()
    assert (best <= kept.high + 1e-9).all()
    np.testing.assert_allclose(kept.sums.add_up(best), kept.sums.add_up(kept.assumed))
    assert best @ delta == pytest.approx(solve_program(delta, kept), abs=1e-9)


@given(box=boxes())
def test_a_ratio_to_a_base_solves_its_linear_program(
    box: tuple[Vector, Vector, WeightBox],
) -> None:
    """R is the largest ratio if the largest sum of w (delta - R base) is zero."""
    delta, base, bounds = box
    kept = keep_sums(bounds)
    best = largest_ratio(delta * base, kept, base=base).weight
    ratio = best @ (delta * base) / (best @ base)

    assert solve_program(delta * base - ratio * base, kept) == pytest.approx(0, abs=1e-8)


@given(box=boxes(), n_cells=st.integers(1, 400))
def test_a_sum_may_lie_between_the_assumed_weights_and_the_number_of_cells(
    box: tuple[Vector, Vector, WeightBox], n_cells: int
) -> None:
    delta, _, bounds = box
    kept = keep_sums(bounds)
    best = largest_sum(delta, kept, n_cells=n_cells).weight
    ends = sorted([bounds.assumed.sum(), n_cells])
    solution = linprog(
        -delta,
        A_ub=np.stack([np.ones(delta.size), -np.ones(delta.size)]),
        b_ub=[ends[1], -ends[0]],
        bounds=np.column_stack([bounds.low, bounds.high]),
    )

    assert best @ delta == pytest.approx(-solution.fun, abs=1e-9)


def test_the_raised_cells_hold_a_known_share_of_the_weight() -> None:
    """The threshold is the Gamma / (1 + Gamma) quantile of delta, weighted by w - 1."""
    rng = np.random.default_rng(0)
    delta, weight = rng.normal(size=500), 1 + rng.pareto(2, 500)
    kept = keep_sums(WeightBox.around(weight, 3.0))
    extreme = largest_sum(delta, kept)
    order = np.argsort(delta)
    share = np.cumsum((weight - 1)[order]) / (weight - 1).sum()
    quantile = delta[order][np.searchsorted(share, 3 / 4)]

    assert np.unique(extreme.multiplier).tolist() == [quantile]
    assert np.isclose(extreme.weight, kept.high).sum() + np.isclose(
        extreme.weight, kept.low
    ).sum() == pytest.approx(499)


@pytest.mark.parametrize("seed", range(20))
def test_the_optimism_is_what_multipliers_of_the_other_cells_would_add(seed: int) -> None:
    """By the dual program, theta w + max over w' of w' (e - theta) of each cell is an upper bound.

    It holds for any theta that was found from other cells.
    """
    rng = np.random.default_rng(seed)
    residual, weight = rng.normal(size=30), 1.01 + rng.pareto(1.2, 30)
    kept = keep_sums(WeightBox.around(weight, 2.0), rng.integers(0, 4, 30).astype(float))
    assert kept.sums is not None
    extreme = largest_sum(residual, kept)

    def bound(cell: int, multiplier: float) -> float:
        excess = residual[cell] - multiplier
        return float(
            multiplier * weight[cell] + max(excess * kept.low[cell], excess * kept.high[cell])
        )

    expected = 0.0
    multiplier = np.broadcast_to(extreme.multiplier, 30)
    for cell in range(30):
        others = (kept.sums.code == kept.sums.code[cell]) & (np.arange(30) != cell)
        if others.any():
            box = keep_sums(WeightBox.around(weight[others], 2.0))
            left_out = np.broadcast_to(largest_sum(residual[others], box).multiplier, 1)[0]
            expected += bound(cell, left_out) - bound(cell, multiplier[cell])

    assert extreme.optimism == pytest.approx(expected)
    assert extreme.weight @ residual == pytest.approx(
        sum(bound(cell, multiplier[cell]) for cell in range(30))
    )


def test_orders_are_remembered_and_checked() -> None:
    rng = np.random.default_rng(1)
    sums = FixedSums.of_clusters(Clusters(rng.integers(0, 5, 50).astype(np.int32), 5))
    first, second, third = rng.normal(size=(3, 50))

    for residual in (first, second, 2 * first, third, second):
        order = sums.sort(residual)
        assert (np.diff(sums.code[order]) >= 0).all()
        for group in range(5):
            assert (np.diff(residual[order][sums.code[order] == group]) <= 0).all()
    assert sums.sort(third) is sums.sort(third + 1)
