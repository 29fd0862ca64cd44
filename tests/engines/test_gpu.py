"""Fits by torch: the code of the GPU engine on the processors, and on CUDA if there is a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from factor_models import predict_matrix
from unskew.data.ratings import Ratings
from unskew.errors import MissingExtraError, UnknownNameError, UsageError
from unskew.models.matrix_factorization import MatrixFactorization

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'unskew[gpu]'")

from unskew.engines import GpuEngine  # noqa: E402
from unskew.engines.gpu import cells, torch_rows  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WORLD = unskew.simulate(60, 45, density=0.15, alpha=0.4, random_state=2)
each_device = pytest.mark.parametrize("device", DEVICES)
each_offsets = pytest.mark.parametrize("offsets", ["none", "free", "regularized"])


@each_device
@each_offsets
@pytest.mark.parametrize("memory", [None, 20_000])
def test_every_engine_reaches_the_same_optimum_from_the_same_start(
    device: str, offsets: Any, memory: int | None
) -> None:
    """20,000 bytes hold only a part of the log, so it is copied in blocks."""
    here = MatrixFactorization(4, 1.0, offsets=offsets, tol=1e-10, max_iter=3000).fit(
        WORLD.log, WORLD.propensities
    )
    there = MatrixFactorization(4, 1.0, offsets=offsets, tol=1e-10, max_iter=3000)
    there.fit(WORLD.log, WORLD.propensities, engine=GpuEngine(device, memory))

    assert there.objective_ == pytest.approx(here.objective_, rel=1e-9)
    np.testing.assert_allclose(predict_matrix(there), predict_matrix(here), atol=1e-6)
    assert there.converged_
    assert (
        there.recommend(WORLD.log.users, k=3).items.tolist()
        == here.recommend(WORLD.log.users, k=3).items.tolist()
    )


@each_device
def test_float32_agrees_with_float64(device: str) -> None:
    exact, rough = (
        MatrixFactorization(4, 5.0, dtype=dtype, tol=1e-7).fit(
            WORLD.log, WORLD.propensities, engine=GpuEngine(device)
        )
        for dtype in ("float64", "float32")
    )

    assert rough.objective_ == pytest.approx(exact.objective_, rel=1e-5)
    np.testing.assert_allclose(predict_matrix(rough), predict_matrix(exact), atol=1e-3)


@each_device
@each_offsets
def test_long_rows_are_added_up_in_pieces(
    device: str, offsets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = MatrixFactorization(3, 1.0, offsets=offsets).fit(
        WORLD.log, WORLD.propensities, engine=GpuEngine(device)
    )
    monkeypatch.setattr(cells, "CELLS_PER_PIECE", 4)
    monkeypatch.setattr(torch_rows, "CELLS_PER_PIECE", 4)
    pieces = MatrixFactorization(3, 1.0, offsets=offsets).fit(
        WORLD.log, WORLD.propensities, engine=GpuEngine(device)
    )

    assert pieces.objective_ == pytest.approx(whole.objective_, rel=1e-10)


def test_pieces_cover_every_cell_once() -> None:
    starts = torch.tensor(
        [0, 0, 3, 3 + 2 * cells.CELLS_PER_PIECE + 5, 4 + 2 * cells.CELLS_PER_PIECE + 5]
    )
    pieces = cells.RowPieces.of(starts)
    covered = sorted(
        cell
        for first, end in zip(pieces.first, pieces.end, strict=True)
        for cell in range(int(first), int(end))
    )

    assert covered == list(range(int(starts[-1])))
    assert pieces.n_slots == 3
    assert pieces.long_row.tolist() == [2]
    assert sorted(pieces.slot.tolist()) == [-1, -1, -1, 0, 1, 2]
    assert (pieces.end - pieces.first).diff().max() <= 0


@each_device
def test_users_and_items_without_ratings_get_zeros(device: str) -> None:
    log = Ratings.from_codes([0, 0, 2], [0, 1, 1], [5.0, 3.0, 1.0], shape=(4, 3))
    here, there = (
        MatrixFactorization(2, 1.0).fit(log, engine=engine)
        for engine in ("local", GpuEngine(device))
    )

    assert predict_matrix(there) == pytest.approx(predict_matrix(here), abs=1e-6)
    assert (there.factors_.user_factors[[1, 3]] == 0).all()


@each_device
def test_a_checkpoint_goes_on_to_the_same_bits(device: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_factors": 3, "l2": 1.0, "tol": 0.0}
    whole = MatrixFactorization(**settings, max_iter=12).fit(
        WORLD.log, WORLD.propensities, engine=GpuEngine(device)
    )
    parts = {"checkpoint": tmp_path / "state", "checkpoint_every": 5, "engine": GpuEngine(device)}
    MatrixFactorization(**settings, max_iter=7).fit(WORLD.log, WORLD.propensities, **parts)
    again = MatrixFactorization(**settings, max_iter=12).fit(WORLD.log, WORLD.propensities, **parts)

    assert again.history_ == whole.history_
    assert (predict_matrix(again) == predict_matrix(whole)).all()


# What cannot be done


def test_no_device_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        UsageError,
        match=r"engine='gpu' found no CUDA device\. Leave engine out to use the processors",
    ):
        MatrixFactorization(2).fit(WORLD.log, engine="gpu")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.registry.find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"engine='gpu' needs torch, .*pip install 'unskew\[gpu\]'"
    ):
        MatrixFactorization(2).fit(WORLD.log, engine="gpu")


def test_too_little_memory_is_said_in_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.engines.gpu.fitting.HOST_MEMORY", 1000)
    with pytest.raises(
        UsageError,
        match=r"the factors need 0\.0 GB on cpu, which has 0\.0 GB free\. Use fewer factors",
    ):
        MatrixFactorization(2).fit(WORLD.log, engine=GpuEngine("cpu"))


def test_absolute_loss_and_unknown_engines_are_refused() -> None:
    with pytest.raises(UsageError, match="fits squared loss"):
        MatrixFactorization(2, loss="absolute").fit(WORLD.log, engine=GpuEngine("cpu"))
    with pytest.raises(
        UnknownNameError, match="unknown engine 'tpu'; valid names are: auto, local, disk, gpu"
    ):
        MatrixFactorization(2).fit(WORLD.log, engine="tpu")


@each_device
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("codes", "shape", "name"),
    [(([0, 0], [0, 1]), (1, 2), "item 0"), (([0, 1], [0, 0]), (2, 1), "user 0")],
)
def test_a_row_without_a_unique_solution_is_named(
    device: str, dtype: Any, codes: Any, shape: Any, name: str
) -> None:
    """Whatever the start is: rounding often makes one rating look like enough for two factors."""
    log = Ratings.from_codes(*codes, [5.0, 3.0], shape=shape)
    for seed in range(5):
        model = MatrixFactorization(2, 0.0, offsets="none", dtype=dtype, random_state=seed)
        with pytest.raises(
            UsageError,
            match=rf"factors of {name} \(1 rating, 2 factors, l2=0\) has no unique solution\. "
            "Use a larger l2",
        ):
            model.fit(log, engine=GpuEngine(device))


@each_device
def test_as_many_ratings_as_factors_are_enough_without_a_penalty(device: str) -> None:
    """The user and the item without ratings get zeros."""
    rng = np.random.default_rng(0)
    user, item = np.divmod(np.arange(9), 3)
    log = Ratings.from_codes(user, item, rng.normal(size=9), shape=(4, 4))
    model = MatrixFactorization(3, 0.0, offsets="none", max_iter=1).fit(
        log, engine=GpuEngine(device)
    )

    np.testing.assert_allclose(predict_matrix(model)[user, item], log.rating, atol=1e-8)
    assert (model.factors_.user_factors[3] == 0).all()
