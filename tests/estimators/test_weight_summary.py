from __future__ import annotations

import numpy as np
import pytest

from unskew.estimators.weight_summary import WeightSummary


def test_equal_weights_bring_no_warning() -> None:
    summary = WeightSummary.of(np.full(1000, 20.0), n_cells=20_000)

    assert summary.effective_sample_size == pytest.approx(1000)
    assert summary.top_share == pytest.approx(0.01)
    assert list(summary.warning_texts()) == []


def test_one_giant_weight_is_named_with_its_numbers() -> None:
    weight = np.ones(1000)
    weight[3] = 1e6

    warning_texts = " ".join(WeightSummary.of(weight, n_cells=1_000_999).warning_texts())

    assert "effective sample size is 1 of 1,000 rows (0.1%)" in warning_texts
    assert "1% of rows with the largest weights hold 100% of all weight" in warning_texts
    assert "add up" not in warning_texts


@pytest.mark.parametrize(("n_cells", "share"), [(10_000, r"+100%"), (40_000, "-50%")])
def test_weights_that_do_not_add_up_to_the_universe(n_cells: int, share: str) -> None:
    (warning,) = WeightSummary.of(np.full(1000, 20.0), n_cells=n_cells).warning_texts()

    assert f"add up to 20,000, but there are {n_cells:,} cells ({share})" in warning


def test_shares_of_the_log_and_of_all_cells() -> None:
    summary = WeightSummary.of(np.array([1.0, 3.0]), n_cells=8)

    assert summary.sample_share == pytest.approx(16 / 10 / 2)
    assert summary.mass_ratio == pytest.approx(0.5)
    assert WeightSummary.of(np.ones(2)).mass_ratio is None
