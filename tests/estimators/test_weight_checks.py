from __future__ import annotations

import numpy as np
import pytest

from unskew.estimators.weight_checks import WeightSummary


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


@pytest.mark.parametrize(("n_cells", "share"), [(10_000, "+100.0%"), (40_000, "-50.0%")])
def test_weights_that_do_not_add_up_to_the_universe(n_cells: int, share: str) -> None:
    (warning,) = WeightSummary.of(np.full(1000, 20.0), n_cells=n_cells).warning_texts()

    assert f"add up to 20,000, but there are {n_cells:,} cells ({share}, " in warning


def test_shares_of_the_log_and_of_all_cells() -> None:
    summary = WeightSummary.of(np.array([1.0, 3.0]), n_cells=8)

    assert summary.sample_share == pytest.approx(16 / 10 / 2)
    assert summary.mass_ratio == pytest.approx(0.5)
    assert WeightSummary.of(np.ones(2)).mass_ratio is None


def draw_mass(assumed_factor: float, seed: int) -> WeightSummary:
    """Weights of a log of 20,000 cells whose propensities are assumed to be a factor off."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.02, 0.5, 20_000)
    seen = rng.random(p.size) < p
    return WeightSummary.of(1 / (assumed_factor * p[seen]), n_cells=p.size)


def test_z_of_the_mass_by_hand() -> None:
    weight = np.array([2.0, 4.0, 10.0])

    summary = WeightSummary.of(weight, n_cells=10)

    assert summary.mass_z == pytest.approx((16 - 10) / np.sqrt((weight**2 - weight).sum()))
    assert WeightSummary.of(weight).mass_z is None
    assert WeightSummary.of(weight, n_cells=10, is_balanced=True).mass_z is None


def test_right_propensities_pass_and_a_tenth_less_is_found() -> None:
    """300 logs: z is standard normal if P is right, and 0.9 of the right P is always found."""
    right = np.array([draw_mass(1.0, seed).mass_z for seed in range(300)])
    assert abs(right.mean()) < 0.25
    assert 0.85 < right.std() < 1.15
    assert sum("add up" in " ".join(draw_mass(1.0, s).warning_texts()) for s in range(100)) <= 2

    found = [any("add up" in text for text in draw_mass(0.9, s).warning_texts()) for s in range(50)]
    assert all(found)


def test_certain_cells_must_add_up_exactly() -> None:
    assert WeightSummary.of(np.ones(10), n_cells=10).mass_z == 0.0
    assert WeightSummary.of(np.ones(10), n_cells=12).mass_z == -np.inf


def test_an_error_too_small_to_matter_brings_no_warning() -> None:
    """A million cells show a mass that is 0.5 % off at more than three standard errors."""
    summary = WeightSummary.of(np.full(1_000_000, 2.01), n_cells=2_000_000)

    assert summary.mass_z is not None
    assert summary.mass_z > 3
    assert summary.warning_texts() == []


def test_a_large_effective_sample_is_enough_however_long_the_log() -> None:
    """Two per cent of a long log, but 2,000 equally weighted cells' worth."""
    weight = np.r_[np.full(100_000, 1.0), np.full(1_000, 1_500.0)]

    assert WeightSummary.of(weight).sample_share < 0.05
    assert not any(
        "effective sample size" in text for text in WeightSummary.of(weight).warning_texts()
    )
