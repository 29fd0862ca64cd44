"""Doubly robust learning and weighted clicks by torch reach the optimum of the local engine."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from unskew.errors import UsageError
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.relevance import RelevanceFactorization

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'unskew[gpu]'")

from unskew.engines import DiskEngine, GpuEngine  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::unskew.errors.ConvergenceWarning", "ignore::unskew.errors.PropensityWarning"
)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
WORLD = unskew.simulate(60, 45, density=0.15, alpha=0.4, random_state=2)
LOG, P = WORLD.log, WORLD.propensities
each_device = pytest.mark.parametrize("device", DEVICES)
each_offsets = pytest.mark.parametrize("offsets", ["none", "free", "regularized"])


def predict_all(model: Any) -> np.ndarray:
    return model.predict(np.repeat(LOG.users, LOG.n_items), np.tile(LOG.items, LOG.n_users))


@each_device
@each_offsets
@pytest.mark.parametrize("penalizes", ["correction", "prediction"])
def test_doubly_robust_learning_reaches_the_same_optimum(
    device: str, offsets: Any, penalizes: Any
) -> None:
    settings: dict[str, Any] = {"offsets": offsets, "penalizes": penalizes, "tol": 1e-12}
    settings["imputer"] = MatrixFactorization(2, 1.0, tol=1e-12, max_iter=3000)
    here, there = (
        DoublyRobustFactorization(3, 1.0, max_iter=3000, **settings).fit(LOG, P, engine=engine)
        for engine in ("local", GpuEngine(device))
    )

    assert there.objective_ == pytest.approx(here.objective_, rel=1e-8)
    assert there.risk_ == pytest.approx(here.risk_, rel=1e-6)
    np.testing.assert_allclose(predict_all(there), predict_all(here), atol=1e-4)


@each_device
@pytest.mark.parametrize("settings", [{"imputation": "error"}, {"is_balanced": True}])
def test_rounds_and_automatic_penalties_are_those_of_the_local_engine(
    device: str, settings: dict[str, Any]
) -> None:
    here, there = (
        DoublyRobustFactorization(
            2, n_rounds=2, tol=1e-10, max_iter=500, random_state=3, **settings
        ).fit(LOG, P, engine=engine)
        for engine in ("local", GpuEngine(device))
    )

    assert there.l2_ == pytest.approx(here.l2_, rel=1e-6)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-5)


@each_device
def test_float32_agrees_with_float64(device: str) -> None:
    """Strong penalties leave one optimum, so that rounding cannot lead to another one."""
    imputer = MatrixFactorization(2, 5.0, tol=1e-9, max_iter=3000)
    exact, rough = (
        DoublyRobustFactorization(
            3, 5.0, imputer=imputer, tol=1e-9, max_iter=3000, dtype=dtype
        ).fit(LOG, P, engine=GpuEngine(device))
        for dtype in ("float64", "float32")
    )

    assert rough.objective_ == pytest.approx(exact.objective_, rel=1e-5)


def test_warnings_of_torch_about_sparse_matrices_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torch warns once in a process, and not in all versions; here it warns each time."""
    make, n_made = torch.sparse_csr_tensor, []

    def make_with_warnings(*arguments: Any, **options: Any) -> Any:
        warnings.warn("Sparse CSR tensor support is in beta state.", stacklevel=2)
        warnings.warn("Sparse invariant checks are implicitly disabled.", stacklevel=2)
        n_made.append(1)
        return make(*arguments, **options)

    monkeypatch.setattr(torch, "sparse_csr_tensor", make_with_warnings)
    DoublyRobustFactorization(2, 1.0, max_iter=1).fit(LOG, P, engine=GpuEngine("cpu"))

    assert len(n_made) == 3


@each_device
def test_a_fit_continues_from_its_checkpoint(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DoublyRobustFactorization(2, 1.0, max_iter=12, tol=0.0)
    whole = model.fit(LOG, P, engine=GpuEngine(device)).factors_
    from unskew.engines.gpu.pseudo_outcome import DevicePseudoOutcomeSolver

    sweep, n_sweeps = DevicePseudoOutcomeSolver._sweep, []

    def stop_at_the_ninth(self: Any, start: Any, *, is_exact: bool) -> Any:
        n_sweeps.append(1)
        if len(n_sweeps) == 9:
            raise KeyboardInterrupt
        return sweep(self, start, is_exact=is_exact)

    options: dict[str, Any] = {"checkpoint": tmp_path / "fit.state", "checkpoint_every": 2}
    monkeypatch.setattr(DevicePseudoOutcomeSolver, "_sweep", stop_at_the_ninth)
    with pytest.raises(KeyboardInterrupt):
        model.fit(LOG, P, engine=GpuEngine(device), **options)
    again = model.fit(LOG, P, engine=GpuEngine(device), **options).factors_

    np.testing.assert_array_equal(again.item_factors, whole.item_factors)
    np.testing.assert_array_equal(again.user_factors, whole.user_factors)


@each_device
@each_offsets
def test_weighted_clicks_reach_the_same_optimum(device: str, offsets: Any) -> None:
    here, there = (
        RelevanceFactorization(3, 0.5, offsets=offsets, tol=1e-12, max_iter=3000).fit(
            LOG, engine=engine
        )
        for engine in ("local", GpuEngine(device))
    )

    assert there.objective_ == pytest.approx(here.objective_, rel=1e-9)
    np.testing.assert_allclose(predict_all(there), predict_all(here), atol=1e-5)


def test_what_an_engine_does_not_fit_is_named() -> None:
    absolute = DoublyRobustFactorization(2, 1.0, loss="absolute")
    with pytest.raises(UsageError, match=r"fits squared loss, not absolute loss\. Leave engine"):
        absolute.fit(LOG, P, engine=GpuEngine("cpu"))
    with pytest.raises(
        UsageError,
        match=r"DoublyRobustFactorization cannot be fitted by engine='DiskEngine'\. Use engine=",
    ):
        DoublyRobustFactorization(2, 1.0).fit(LOG, P, engine=DiskEngine())
