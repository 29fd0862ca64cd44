from __future__ import annotations

import numpy as np
import pytest

from unskew import Ratings, simulate
from unskew.diagnostics.cells import CellPropensities, UnobservedCells

LOG = simulate(30, 40, density=0.2, alpha=0.6, random_state=1).log
OBSERVED = np.zeros((30, 40), dtype=bool)
OBSERVED[LOG.user, LOG.item] = True


def test_all_unobserved_cells_each_once() -> None:
    cells = UnobservedCells.of(LOG, max_cells=1200, random_state=0)
    seen = np.zeros_like(OBSERVED)
    seen[cells.user, cells.item] = True

    assert not cells.is_sample
    assert (cells.multiplicity, cells.user.size) == (1.0, 1200 - len(LOG))
    np.testing.assert_array_equal(seen, ~OBSERVED)


def test_a_sample_has_unobserved_cells_only_and_multiplicity_all_of_them() -> None:
    cells = UnobservedCells.of(LOG, max_cells=1199, random_state=0)

    assert cells.is_sample
    assert not OBSERVED[cells.user, cells.item].any()
    assert cells.multiplicity * cells.user.size == pytest.approx(1200 - len(LOG))
    assert cells.user.size == pytest.approx(1199 * (1 - len(LOG) / 1200), rel=0.1)


def test_the_seed_decides() -> None:
    one, same, other = (
        UnobservedCells.of(LOG, max_cells=100, random_state=seed) for seed in (0, 0, 1)
    )

    assert one.user.tolist() == same.user.tolist()
    assert one.user.tolist() != other.user.tolist()


def test_the_standard_error_of_a_sampled_mean_is_that_of_repeated_samples() -> None:
    number = np.random.default_rng(0).pareto(3, (30, 40))
    truth = number.mean()
    means, errors = [], []
    for seed in range(400):
        cells = UnobservedCells.of(LOG, max_cells=300, random_state=seed)
        unobserved = number[cells.user, cells.item]
        propensities = CellPropensities(
            number[LOG.user, LOG.item], unobserved, cells.multiplicity, cells.is_sample
        )
        mean, error = propensities.mean(propensities.observed, unobserved)
        assert error is not None
        means.append(mean)
        errors.append(error)

    assert np.mean(means) == pytest.approx(truth, abs=4 * np.std(means) / 20)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.15)


def test_a_mean_over_every_cell_has_no_error() -> None:
    propensities = CellPropensities(np.array([0.5]), np.array([0.1, 0.3]), 1.0, is_sample=False)

    assert propensities.mean(propensities.observed, propensities.unobserved) == (
        pytest.approx(0.3),
        None,
    )


def test_a_complete_log_has_no_unobserved_cell() -> None:
    cells = UnobservedCells.of(Ratings.from_dense([[5, 1], [2, 3]]), max_cells=10, random_state=0)

    assert cells.user.size == 0
    assert not cells.is_sample
