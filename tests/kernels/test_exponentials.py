"""Exponentials of many numbers against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.kernels.ordinal import LARGEST, exponentiate


def exponentials_of(x: np.ndarray) -> np.ndarray:
    values = x.copy()
    exponentiate(values, x.size, np.empty(x.size))
    return values


def test_exponentials_have_full_precision() -> None:
    rng = np.random.default_rng(0)
    edges = np.array([0.0, -0.0, 1e-300, -1e-20, LARGEST, -LARGEST, 0.5 * np.log(2)])
    x = np.concatenate([edges, rng.uniform(-LARGEST, LARGEST, 5000), rng.normal(size=5000)])

    np.testing.assert_allclose(exponentials_of(x), np.exp(x), rtol=1e-15)


def test_numbers_out_of_range_have_the_last_exponential_and_nan_stays() -> None:
    x = np.array([-np.inf, -1000.0, 1000.0, np.inf, np.nan])

    ends = np.exp([-LARGEST, -LARGEST, LARGEST, LARGEST, np.nan])
    np.testing.assert_allclose(exponentials_of(x), ends, rtol=1e-15)


@pytest.mark.parametrize("n", [0, 3])
def test_only_the_first_numbers_are_replaced(n: int) -> None:
    x = np.arange(5.0)
    exponentiate(x, n, np.empty(5))

    np.testing.assert_allclose(x[:n], np.exp(np.arange(n)), rtol=1e-15)
    np.testing.assert_array_equal(x[n:], np.arange(5.0)[n:])
