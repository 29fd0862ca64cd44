from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from unskew.data.estimation import Estimation
from unskew.data.propensities import Propensities
from unskew.data.universe import Universe
from unskew.estimators.observed import Clusters, Deltas, Imputed, ObservedCells
from unskew.estimators.odds import FixedSums, WeightBox, move_to_extreme
from unskew.estimators.point import Estimator, find_estimator
from unskew.estimators.variance import Linearization, linearize
from unskew.types import Vector

N, FACTOR = 40, 2.5
RNG = np.random.default_rng(5)
USER, ITEM = RNG.integers(0, 8, N).astype(np.int32), RNG.integers(0, 5, N).astype(np.int32)
WEIGHT = 1.2 + RNG.pareto(1.5, N)
DELTA = RNG.normal(1, 1, N)
BASE = RNG.integers(0, 2, N).astype(float)
IMPUTED = Imputed(RNG.normal(1, 0.3, (1, N)), RNG.normal(5, 1, (8, 1)), RNG.normal(7, 1, (6, 1)))
N_CELLS = 90
CONSTRAINTS = (None, "mass", "item", "user")
each_constraint = pytest.mark.parametrize("constraint", CONSTRAINTS)
each_case = pytest.mark.parametrize(
    ("name", "deltas"),
    [
        ("snips", Deltas(DELTA[None])),
        ("ips", Deltas(DELTA[None])),
        ("ips", Deltas(-DELTA[None])),
        ("dr", Deltas(DELTA[None], imputed=IMPUTED)),
        ("snips", Deltas((DELTA * BASE)[None], base=BASE)),
    ],
    ids=["snips", "ips", "ips of the negative", "dr", "ratio"],
)


def make_cells(weight: Vector, estimation: Estimation | None = None, **options: Any) -> Any:
    return ObservedCells(
        Clusters(USER, 8),
        Clusters(ITEM, 5),
        Propensities(1 / weight, estimation),
        universe=Universe(9, N_CELLS // 9),
        **options,
    )


def keep_sums(constraint: str | None) -> FixedSums | None:
    if constraint is None:
        return None
    if constraint == "mass":
        return FixedSums.of_all(N)
    return FixedSums.of_clusters(Clusters(USER, 8) if constraint == "user" else Clusters(ITEM, 5))


def value_at_extreme(
    estimator: Estimator, deltas: Deltas, box: WeightBox, count: Vector | None = None
) -> float:
    """The largest value if each cell was observed ``count`` times, from its definition."""
    count = np.ones(N) if count is None else count
    counted = WeightBox(box.low * count, box.assumed * count, box.high * count, box.sums)
    weight = estimator.largest_weights(deltas, make_cells(WEIGHT), counted).weight
    if estimator.name == "snips":
        return float(
            weight
            @ deltas.value[0]
            / (weight @ (count * 0 + 1 if deltas.base is None else deltas.base))
        )
    residual = deltas.value[0] - (0 if deltas.imputed is None else deltas.imputed.observed[0])
    imputed = 0 if deltas.imputed is None else deltas.imputed.by_user.sum()
    return float((weight @ residual + imputed) / N_CELLS)


def linearize_extreme(
    estimator: Estimator, deltas: Deltas, cells: ObservedCells, box: WeightBox
) -> tuple[float, Linearization, ObservedCells]:
    extreme = estimator.largest_weights(deltas, cells, box)
    moved, moved_cells = move_to_extreme(deltas, cells, box, extreme)
    estimate = estimator.estimate(
        moved, replace(moved_cells, propensities=Propensities(1 / extreme.weight))
    )
    spec = estimator.sums_needed(
        is_ratio=deltas.base is not None, is_mean_of_users=False, cluster=None
    )
    return (
        float(estimate.value[0]),
        linearize(spec, moved, moved_cells, estimate, moved_cells.weight),
        moved_cells,
    )


@each_constraint
@each_case
def test_contributions_are_the_derivatives_by_the_count_of_each_cell(
    name: str, deltas: Deltas, constraint: Any
) -> None:
    estimator, box = find_estimator(name), WeightBox.around(WEIGHT, FACTOR, keep_sums(constraint))
    value, linearization, cells = linearize_extreme(estimator, deltas, make_cells(WEIGHT), box)

    assert value == pytest.approx(value_at_extreme(estimator, deltas, box), rel=1e-12)
    step = 1e-6
    for cell in range(N):
        count = np.ones(N)
        count[cell] += step
        up = value_at_extreme(estimator, deltas, box, count)
        count[cell] -= 2 * step
        down = value_at_extreme(estimator, deltas, box, count)
        contribution = linearization.residual[0, cell] * cells.weight[cell]
        assert (up - down) / (2 * step) == pytest.approx(
            contribution / linearization.normalizer, abs=1e-6
        )


class Recorder(Estimation):
    """Estimated propensities that keep what the correction was asked for."""

    def correct(self, residual: Any, weight: Vector, weight_derivative: Vector) -> Any:
        self.asked.append(residual * weight_derivative)  # type: ignore[attr-defined]
        raise InterruptedError


@each_constraint
@each_case
def test_the_correction_gets_the_derivatives_by_the_propensity_of_each_cell(
    name: str, deltas: Deltas, constraint: Any
) -> None:
    estimator, sums = find_estimator(name), keep_sums(constraint)
    recorder = Recorder(model="recorder")
    object.__setattr__(recorder, "asked", asked := [])
    box = WeightBox.around(WEIGHT, FACTOR, sums)
    cells = make_cells(WEIGHT, recorder)
    _, linearization, moved = linearize_extreme(estimator, deltas, cells, box)
    assert moved.estimation is not None
    with pytest.raises(InterruptedError):
        moved.estimation.correct(linearization.residual, moved.weight, moved.weight_derivative)

    step = 1e-6
    for cell in range(N):
        values = []
        for sign in (1, -1):
            weight = WEIGHT.copy()
            weight[cell] *= 1 + sign * step
            values.append(
                value_at_extreme(estimator, deltas, WeightBox.around(weight, FACTOR, sums))
            )
        derivative = (values[0] - values[1]) / (2 * step)
        assert asked[0][0, cell] / linearization.normalizer == pytest.approx(derivative, abs=1e-6)
