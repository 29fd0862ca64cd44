"""The enumeration that other tests trust, against sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from enumeration import expectation, patterns, probability_that, variance


def test_every_pattern_comes_once_and_the_probabilities_add_up_to_one() -> None:
    found = list(patterns(np.array([[0.2, 0.5], [0.9, 1.0]])))

    assert len({seen.tobytes() for seen, _ in found}) == 16
    assert sum(probability for _, probability in found) == pytest.approx(1.0)
    assert all(seen.shape == (2, 2) for seen, _ in found)


def test_the_number_of_observed_cells_has_its_known_mean_and_variance() -> None:
    true = np.array([0.2, 0.5, 0.9])

    assert expectation(true, lambda seen: seen.sum()) == pytest.approx(0.2 + 0.5 + 0.9)
    assert variance(true, lambda seen: seen.sum()) == pytest.approx(0.16 + 0.25 + 0.09)
    assert probability_that(true, lambda seen: not seen.any()) == pytest.approx(0.8 * 0.5 * 0.1)
