from __future__ import annotations

import numpy as np
import pytest

from unskew.diagnostics.weights import Weights

WEIGHT = 1 + np.random.default_rng(0).pareto(1.5, 1000)


def test_quantiles_and_shares_by_their_definitions() -> None:
    found = Weights.of(WEIGHT, n_cells=3000)

    assert found.quantiles == pytest.approx(tuple(np.quantile(WEIGHT, [0, 0.5, 0.9, 0.99, 1])))
    assert found.largest_share == pytest.approx(WEIGHT.max() / WEIGHT.sum())
    assert found.health.mass_ratio == pytest.approx(WEIGHT.sum() / 3000)
    assert found.health.sample_share == pytest.approx(WEIGHT.sum() ** 2 / (WEIGHT**2).sum() / 1000)


def test_the_curve_says_what_the_heaviest_rows_hold() -> None:
    found = Weights.of(WEIGHT, n_cells=None)
    heaviest_first = np.sort(WEIGHT)[::-1]

    assert (found.rows[0], found.held[0]) == (
        pytest.approx(1 / 1000),
        pytest.approx(found.largest_share),
    )
    assert (found.rows[-1], found.held[-1]) == (1.0, pytest.approx(1.0))
    for share, held in zip(found.rows, found.held, strict=True):
        assert held == pytest.approx(heaviest_first[: round(share * 1000)].sum() / WEIGHT.sum())


def test_without_a_universe_there_is_no_mass_to_compare() -> None:
    assert Weights.of(WEIGHT, n_cells=None).health.mass_ratio is None


def test_complaints_are_those_of_the_weights_health() -> None:
    weight = np.ones(1000)
    weight[0] = 1e6
    found = Weights.of(weight, n_cells=None)

    assert list(found.warning_texts()) == list(found.health.warning_texts()) != []
