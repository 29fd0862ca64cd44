"""Probabilities of exposure of a block, compared with NumPy cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from unskew.kernels.exposure import add_halves, multiply_by_exposure, multiply_halves
from unskew.kernels.rows import entry_type

SCALED_ONE = 0.7


def call(
    score: np.ndarray, levels: tuple[Any, ...], clicked: np.ndarray, *, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """The kernel by blocks of ``width`` columns: p (s - c) of each cell, a sum of each row."""
    row, column = np.nonzero(clicked)
    cells = np.zeros(row.size, entry_type(score.dtype, score.shape[1]))
    cells["opposite"] = column
    starts = np.searchsorted(row, np.arange(len(score) + 1)).astype(np.int64)
    next_click, sums, residual = starts[:-1].copy(), np.zeros(len(score)), []
    rows, columns, *both = levels
    for first in range(0, score.shape[1], width):
        part = slice(first, first + width)
        block = score[:, part].copy()
        of_block = rows, columns[part], *(level[part] for level in both)
        clicks = next_click, starts[1:], cells
        multiply_by_exposure(block, of_block, clicks, first, SCALED_ONE, sums)
        residual.append(block)
    assert (next_click == starts[1:]).all()
    return np.hstack(residual), sums


def draw(dtype: str = "float64") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    score = rng.normal(0, 2, (9, 37)).astype(dtype)
    return score, rng.normal(-1, 2, 37), rng.random(score.shape) < 0.2


@pytest.mark.parametrize("width", [1, 5, 36, 64])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_residual_and_the_likelihood_are_those_of_each_cell(width: int, dtype: str) -> None:
    score, log_odds, clicked = draw(dtype)
    log_unexposed = -np.logaddexp(0, log_odds)
    log_exposed = log_odds + log_unexposed

    found, sums = call(
        score, (np.zeros(9), log_odds, log_exposed, log_unexposed), clicked, width=width
    )

    s = score.astype(np.float64)
    p = np.where(clicked, 1, expit(log_odds - s**2))
    terms = np.where(
        clicked,
        log_exposed - (SCALED_ONE - s) ** 2,
        np.logaddexp(log_exposed - s**2, log_unexposed),
    )
    tolerance = 1e-13 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(found, p * (s - SCALED_ONE * clicked), rtol=tolerance, atol=1e-300)
    np.testing.assert_allclose(sums, terms.sum(axis=1), rtol=tolerance)


@pytest.mark.parametrize("width", [5, 64])
def test_without_log_probabilities_the_sums_are_those_of_the_probabilities(width: int) -> None:
    score, log_odds, clicked = draw()
    by_row, nothing = np.linspace(-3, 2, 9), np.empty(0)

    found, sums = call(score, (by_row, log_odds, nothing, nothing), clicked, width=width)

    p = np.where(clicked, 1, expit(by_row[:, None] + log_odds - score**2))
    np.testing.assert_allclose(found, p * (score - SCALED_ONE * clicked), rtol=1e-13)
    np.testing.assert_allclose(sums, p.sum(axis=1), rtol=1e-13)


def test_certain_and_impossible_exposure_have_probabilities_of_1_and_exactly_0() -> None:
    score, nobody = np.array([[0.5, 0.5, 40.0]]), np.zeros((1, 3), bool)
    with np.errstate(divide="ignore"):
        log_exposed, log_unexposed = np.log([1.0, 0.0, 0.5]), np.log([0.0, 1.0, 0.5])
    log_odds = log_exposed - log_unexposed

    found, sums = call(score, (np.zeros(1), log_odds, np.empty(0), np.empty(0)), nobody, width=3)
    _, likelihood = call(
        score, (np.zeros(1), log_odds, log_exposed, log_unexposed), nobody, width=3
    )

    np.testing.assert_array_equal(found, [[0.5, 0.0, 0.0]])
    np.testing.assert_array_equal(sums, [1.0])
    np.testing.assert_allclose(likelihood, [-0.25 + 0.0 + np.log(0.5)], rtol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 255, 256])
def test_halves_add_up_and_multiply_to_the_whole(n: int) -> None:
    numbers = 1 + np.random.default_rng(n).random(n + 2)
    added, multiplied = numbers.copy(), numbers.copy()

    add_halves(added, n)
    multiply_halves(multiplied, n)

    assert added[0] == pytest.approx(numbers[:n].sum(), rel=1e-14)
    assert multiplied[0] == pytest.approx(np.prod(numbers[:n]), rel=1e-13)
