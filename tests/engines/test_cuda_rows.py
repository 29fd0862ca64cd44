"""The kernels that only a GPU can run, compared with torch's operations in float64."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'unskew[gpu]'")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device: the fused kernels run on one only", allow_module_level=True)

from unskew.engines.gpu import cells, cuda_rows, fused_rows, torch_rows  # noqa: E402
from unskew.engines.gpu.torch_rows import DeviceRows, RowPenalty  # noqa: E402

N_USERS, N_ITEMS, N = 305, 200, 20_000
"""Some users have thousands of cells, in several pieces, and five users have none."""


@pytest.mark.parametrize("offset", [None, 0.0, 3.0])
@pytest.mark.parametrize(
    "n_factors", [0, 1, 3, 8, 9, 16, 17, 20, 31, 32, 33, 47, 48, 63, 64, 65, 100]
)
def test_rows_are_solved_to_the_precision_of_float32(n_factors: int, offset: float | None) -> None:
    rng = np.random.default_rng(n_factors)

    def on_device(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device="cuda")

    row = on_device((N_USERS - 5) * rng.random(N) ** 3, torch.int32)
    columns = (
        on_device(rng.integers(0, N_ITEMS, N), torch.int32),
        *(
            on_device(values, torch.float32)
            for values in (rng.normal(3, 1, N), rng.uniform(0.05, 1, N))
        ),
    )
    block = next(cells.DeviceCells.sort_on_device(row, *columns, N_USERS).blocks())
    opposite = DeviceRows(
        on_device(rng.normal(0, 0.5, (N_ITEMS, n_factors)), torch.float32),
        on_device(rng.normal(0, 0.5, N_ITEMS) * (offset is not None), torch.float32),
    )
    exact = block.with_targets(block.rating.double(), block.root_weight.double())
    expected, minima = torch_rows.solve_block(
        exact,
        DeviceRows(opposite.factors.double(), opposite.offset.double()),
        2.5,
        RowPenalty(7, offset),
    )

    for kernel in (
        (cuda_rows, fused_rows) if 0 < n_factors <= cuda_rows.MAX_FACTORS else (fused_rows,)
    ):
        solved, row_minima = kernel.solve_block(block, opposite, 2.5, RowPenalty(7.0, offset))
        torch.testing.assert_close(solved.factors.double(), expected.factors, rtol=0, atol=2e-5)
        torch.testing.assert_close(solved.offset.double(), expected.offset, rtol=0, atol=2e-5)
        torch.testing.assert_close(row_minima, minima, rtol=0, atol=1e-5 * float(minima.max()))
