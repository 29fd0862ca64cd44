from __future__ import annotations

import numpy as np
import pytest

from unskew.kernels.blocks import (
    BLOCK,
    add_columns,
    cut_rows,
    sum_by_code,
    sum_products,
    take_columns,
)
from unskew.types import IntVector

N = 3 * BLOCK + 5
RNG = np.random.default_rng(0)
COLUMNS = RNG.normal(size=(3, N))
CODE = RNG.integers(0, 7, N).astype(np.int32)


def test_blocks_cover_all_cells_once() -> None:
    assert np.array_equal(np.concatenate([np.arange(N)[rows] for rows in cut_rows(N)]), range(N))
    assert list(cut_rows(0)) == [slice(0, BLOCK)]


@pytest.mark.parametrize("n", [7, 2 * BLOCK])
@pytest.mark.parametrize("code", [CODE, np.sort(CODE), np.repeat(CODE, 40)[:N]])
def test_sums_by_code(n: int, code: IntVector) -> None:
    factor = RNG.uniform(size=N)
    sums = sum_by_code(COLUMNS, code, n, factor)

    assert sums.shape == (3, n)
    for total, column in zip(sums, COLUMNS, strict=True):
        assert total == pytest.approx(np.bincount(code, column * factor, n), abs=1e-10)
    plain = sum_by_code(COLUMNS, code, n, factor**0)
    assert sum_by_code(COLUMNS, code, n) == pytest.approx(plain, abs=1e-10)
    assert sum_by_code(COLUMNS, code, 0).shape == (3, 0)
    assert not sum_by_code(COLUMNS[:, :0], code[:0], n).any()


def test_columns_are_taken_by_index() -> None:
    table = RNG.normal(size=(3, 7))

    columns = COLUMNS.copy()
    add_columns(columns, table, CODE)

    assert np.array_equal(take_columns(table, CODE), table[:, CODE])
    assert np.array_equal(columns, COLUMNS + table[:, CODE])


def test_products_of_columns() -> None:
    block = COLUMNS[:, :BLOCK]

    assert sum_products(2 * block, block) == pytest.approx(2 * block @ block.T)
