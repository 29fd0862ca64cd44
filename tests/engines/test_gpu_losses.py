"""Log loss, weighted clicks and several devices by torch: the optimum of the local engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from unskew.errors import UsageError
from unskew.models import AllRank, LogisticFactorization, WeightedFactorization
from unskew.models.matrix_factorization import MatrixFactorization

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'unskew[gpu]'")

from unskew.engines import DiskEngine, GpuEngine, SparkEngine  # noqa: E402
from unskew.engines.gpu import solving  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

WORLD = unskew.simulate(60, 45, density=0.15, alpha=0.4, random_state=2)
LOG, P = WORLD.log, WORLD.propensities
ENGINES: list[Any] = [GpuEngine("cpu"), GpuEngine("cpu", 20_000), GpuEngine(("cpu", "cpu"))]
"""20,000 bytes hold only a part of the log, so it is copied in blocks."""
ENGINES.append(GpuEngine(("cpu", "cpu", "cpu"), 7_000))
if torch.cuda.is_available():
    names = tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
    ENGINES += [GpuEngine("cuda"), GpuEngine("cuda", 20_000), GpuEngine((*names, names[0]))]
each_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: f"{e.device}-{e.memory}")
each_offsets = pytest.mark.parametrize("offsets", ["none", "free", "regularized"])


def predict_all(model: Any) -> np.ndarray:
    return model.predict(np.repeat(LOG.users, LOG.n_items), np.tile(LOG.items, LOG.n_users))


@each_engine
@each_offsets
def test_log_loss_reaches_the_same_optimum(
    engine: Any, offsets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solving, "NUMBERS_AT_A_TIME", 200)  # cells of a block in many parts
    here, there = (
        LogisticFactorization(
            3, 1.0, offsets=offsets, relevance_threshold=4, tol=1e-9, max_iter=400
        ).fit(LOG, P, engine=each)
        for each in ("local", engine)
    )

    np.testing.assert_allclose(there.history_, here.history_, rtol=1e-9)
    np.testing.assert_allclose(predict_all(there), predict_all(here), atol=1e-6)
    assert there.fallback_ == pytest.approx(here.fallback_)


@each_engine
@pytest.mark.parametrize("confidence", ["linear", "log"])
def test_weighted_clicks_reach_the_same_optimum(engine: Any, confidence: Any) -> None:
    here, there = (
        WeightedFactorization(4, 1.0, confidence=confidence, tol=1e-11, max_iter=3000).fit(
            LOG, P, engine=each
        )
        for each in ("local", engine)
    )

    assert there.objective_ == pytest.approx(here.objective_, rel=1e-9)
    np.testing.assert_allclose(predict_all(there), predict_all(here), atol=1e-5)


@each_engine
@each_offsets
def test_squared_loss_on_several_devices_reaches_the_same_optimum(
    engine: Any, offsets: Any
) -> None:
    here, there = (
        MatrixFactorization(4, 1.0, offsets=offsets, tol=1e-10, max_iter=3000).fit(
            LOG, P, engine=each
        )
        for each in ("local", engine)
    )

    assert there.objective_ == pytest.approx(here.objective_, rel=1e-9)
    np.testing.assert_array_equal(there.seen_items_, here.seen_items_)


def test_rows_are_divided_among_devices_without_a_gap() -> None:
    from unskew.engines.gpu.cells import sort_both_ways

    like = torch.empty(0, dtype=torch.float64)
    for cells in sort_both_ways(LOG, P.inverse, like=like, memory=1 << 30):
        parts = cells.split([torch.device("cpu")] * 4).parts

        assert [part.first_row for part in parts[1:]] == [
            part.first_row + part.n_rows for part in parts[:-1]
        ]
        assert sum(part.n_rows for part in parts) == cells.n_rows
        assert torch.equal(torch.cat([part.opposite for part in parts]), cells.opposite)
        sizes = [part.opposite.numel() for part in parts]
        assert max(sizes) - min(sizes) <= 2 * int(cells.starts.diff().max())


def test_float32_agrees_with_float64() -> None:
    for device in {each.device for each in ENGINES}:
        for make, settings in (
            (LogisticFactorization, {"relevance_threshold": 4, "l2": 1.0}),
            (WeightedFactorization, {"ridge": 5.0}),
        ):
            exact, rough = (
                make(3, dtype=dtype, **settings).fit(LOG, P, engine=GpuEngine(device))
                for dtype in ("float64", "float32")
            )

            assert rough.objective_ == pytest.approx(exact.objective_, rel=1e-3)


@pytest.mark.parametrize(
    "model", [LogisticFactorization(2, 1.0, relevance_threshold=4), WeightedFactorization(2)]
)
def test_a_checkpoint_goes_on_to_the_same_bits(model: Any, tmp_path: Path) -> None:
    model.set_params(tol=0.0, max_iter=20)
    whole = model.fit(LOG, P, engine=GpuEngine("cpu")).factors_
    options = {"checkpoint": tmp_path / "state", "checkpoint_every": 2, "engine": GpuEngine("cpu")}
    model.set_params(max_iter=10)
    model.fit(LOG, P, **options)
    model.set_params(max_iter=20)
    again = model.fit(LOG, P, **options).factors_

    np.testing.assert_array_equal(again.item_factors, whole.item_factors)


def test_weighted_clicks_without_a_unique_solution_are_refused() -> None:
    log = unskew.Ratings.from_codes([0, 1], [0, 0], [1.0, 1.0], shape=(2, 1))
    with pytest.raises(UsageError, match=r"no unique solution\. Use a larger l2"):
        WeightedFactorization(2, 0.0).fit(log, engine=GpuEngine("cpu"))


@pytest.mark.parametrize("engine", [DiskEngine(), SparkEngine()])
@pytest.mark.parametrize("model", [LogisticFactorization(2), WeightedFactorization(2)])
def test_engines_that_read_frames_do_not_fit_them(model: Any, engine: Any) -> None:
    with pytest.raises(
        UsageError,
        match=rf"{type(model).__name__} cannot be fitted by engine='{type(engine).__name__}'\. "
        r"Use engine='gpu' or engine='local' with the log in memory",
    ):
        model.fit(LOG, P, engine=engine)


def test_a_penalty_that_differs_by_row_is_refused() -> None:
    with pytest.raises(UsageError, match="AllRank cannot be fitted by engine='GpuEngine'"):
        AllRank(2).fit(LOG, engine=GpuEngine("cpu"))


def test_an_empty_list_of_devices_is_refused() -> None:
    with pytest.raises(UsageError, match="device is an empty list"):
        MatrixFactorization(2).fit(LOG, engine=GpuEngine(()))
