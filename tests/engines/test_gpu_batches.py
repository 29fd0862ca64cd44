"""Many fits at once by torch: each ends as it would alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unskew
from unskew.errors import UsageError
from unskew.models import (
    BalancedFactorization,
    DoublyRobustFactorization,
    LogisticFactorization,
    WeightedFactorization,
)
from unskew.models.engine_choice import fit_many
from unskew.models.matrix_factorization import MatrixFactorization

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'unskew[gpu]'")

from unskew.engines import DiskEngine, GpuEngine  # noqa: E402
from unskew.engines.gpu import batches  # noqa: E402

pytestmark = pytest.mark.filterwarnings(
    "ignore::unskew.errors.ConvergenceWarning", "ignore::unskew.errors.PropensityWarning"
)

DEVICES: list[Any] = ["cpu", ("cpu", "cpu"), *(["cuda"] if torch.cuda.is_available() else [])]
WORLD = unskew.simulate(60, 45, density=0.15, alpha=0.4, random_state=2)
LOG, P = WORLD.log, WORLD.propensities
HALF = np.arange(len(LOG)) % 2 == 0
each_device = pytest.mark.parametrize("device", DEVICES, ids=str)


def fit_at_once(models: list[Any], engine: Any) -> None:
    """The first and every second model to the whole log, the others to a half of it."""
    half = LOG.take(HALF), unskew.Propensities(P.values[HALF])
    data = [(LOG, P) if number % 2 == 0 else half for number in range(len(models))]
    fit_many(models, [log for log, _ in data], [p for _, p in data], engine)


def make_models(dtype: Any = "float64") -> list[Any]:
    """Fits of several shapes: some alone in their group, one that runs alone."""
    options: dict[str, Any] = {"dtype": dtype, "tol": 1e-8, "max_iter": 300}
    return [
        *(MatrixFactorization(3, l2, **options) for l2 in (0.5, 2.0, 10.0, 50.0)),
        *(MatrixFactorization(3, l2, offsets="free", **options) for l2 in (5.0, 20.0)),
        *(MatrixFactorization(2, l2, offsets="none", **options) for l2 in (5.0, 20.0)),
        MatrixFactorization(2, "auto", **options),
        MatrixFactorization(0, 2.0, **options),
        MatrixFactorization(3, 2.0, **options | {"max_iter": 4, "tol": 0.0}),
        LogisticFactorization(2, 2.0, relevance_threshold=4, offsets="none", **options),
    ]


@each_device
def test_fits_at_once_take_the_steps_of_fits_alone(device: Any) -> None:
    together, alone = make_models(), make_models()
    engine = GpuEngine(device)
    fit_at_once(together, engine)
    for number, (model, expected) in enumerate(zip(together, alone, strict=True)):
        log, p = (LOG, P) if number % 2 == 0 else (LOG.take(HALF), P.values[HALF])
        expected.fit(log, p, engine=engine)

        assert model.stop_reason_ == expected.stop_reason_
        assert model.n_iter_ == expected.n_iter_
        np.testing.assert_allclose(model.history_, expected.history_, rtol=1e-9)
        factors, others = model.factors_, expected.factors_
        np.testing.assert_allclose(factors.item_factors, others.item_factors, atol=1e-5)
        np.testing.assert_allclose(factors.user_offset, others.user_offset, atol=1e-6)
        assert model.fallback_ == pytest.approx(expected.fallback_, abs=1e-6)
        assert model.l2_ == pytest.approx(expected.l2_)
        for seen, other in zip(
            (model.seen_starts_, model.seen_items_),
            (expected.seen_starts_, expected.seen_items_),
            strict=True,
        ):
            np.testing.assert_array_equal(seen, other)


@each_device
def test_float32_agrees_with_float64(device: Any) -> None:
    rough, exact = make_models("float32"), make_models()
    fit_at_once(rough, GpuEngine(device))
    fit_at_once(exact, GpuEngine(device))

    for model, expected in zip(rough, exact, strict=True):
        assert model.objective_ == pytest.approx(expected.objective_, rel=1e-3)


def test_batches_that_do_not_fit_the_memory_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, fit_batch = [], batches._fit_batch

    def count(requests: Any, device: Any) -> Any:
        sizes.append(len(requests))
        return fit_batch(requests, device)

    monkeypatch.setattr(batches, "_fit_batch", count)
    models = [MatrixFactorization(2, l2) for l2 in (1.0, 5.0, 25.0)]
    fit_many(models, [LOG] * 3, [P] * 3, GpuEngine("cpu", 2 * 80 * len(LOG)))

    assert sizes == [2, 1]
    expected = MatrixFactorization(2, 25.0).fit(LOG, P)
    assert models[2].objective_ == pytest.approx(expected.objective_, rel=1e-9)


@each_device
@pytest.mark.parametrize("halving", [False, True])
def test_a_grid_is_scored_as_by_the_local_engine(device: Any, halving: bool) -> None:
    grid = {"n_factors": [2, 3], "l2": [1.0, 5.0, 25.0]}
    here, there = (
        unskew.cross_validate(
            MatrixFactorization(tol=1e-9, max_iter=3000),
            LOG,
            propensities=P,
            grid=grid,
            halving=halving,
            engine=engine,
        )
        for engine in ("local", GpuEngine(device))
    )

    assert there.best_params == here.best_params
    for mine, other in zip(there.table, here.table, strict=True):
        assert [mine[name] for name in grid] == [other[name] for name in grid]
        assert mine["score"] == pytest.approx(other["score"], rel=1e-4)
    assert there.best_model.objective_ == pytest.approx(here.best_model.objective_, rel=1e-8)


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (WeightedFactorization(2, tol=1e-8), {"ridge": [1.0, 10.0]}),
        (DoublyRobustFactorization(2, tol=1e-8), {"l2": [1.0, 10.0]}),
        (LogisticFactorization(2, relevance_threshold=4), {"l2": [1.0, 10.0]}),
    ],
    ids=["wmf", "dr", "logistic"],
)
def test_grids_of_other_models_are_fitted_by_the_engine(model: Any, grid: Any) -> None:
    metric = "ndcg@5" if isinstance(model, WeightedFactorization) else "mse"
    options: dict[str, Any] = {"propensities": P, "grid": grid, "metric": metric, "n_folds": 2}
    if metric == "ndcg@5":
        options["relevance_threshold"] = 4
    here, there = (
        unskew.cross_validate(model, LOG, extend_grid=False, engine=engine, **options)
        for engine in ("local", GpuEngine("cpu"))
    )

    assert there.best_params == here.best_params
    assert there.best_score == pytest.approx(here.best_score, rel=1e-3)


def test_what_no_engine_cross_validates_is_named() -> None:
    options: dict[str, Any] = {"propensities": P, "n_folds": 2}
    with pytest.raises(
        UsageError,
        match=r"BalancedFactorization cannot be fitted by engine='GpuEngine'\. Use engine='local'",
    ):
        unskew.cross_validate(
            BalancedFactorization(2), LOG, grid={"l2": [1.0]}, engine=GpuEngine("cpu"), **options
        )
    with pytest.raises(UsageError, match="DiskEngine cannot split a log into folds"):
        unskew.cross_validate(
            MatrixFactorization(2), LOG, grid={"l2": [1.0]}, engine=DiskEngine(), **options
        )
    with pytest.raises(UsageError, match="not absolute loss"):
        unskew.cross_validate(
            MatrixFactorization(2, loss="absolute"),
            LOG,
            grid={"l2": [1.0]},
            engine=GpuEngine("cpu"),
            **options,
        )


def test_a_fit_without_a_solution_is_named() -> None:
    """Squares of these ratings are beyond float32."""
    log = unskew.Ratings.from_codes([0, 0, 1], [0, 1, 1], [1e30, 2e30, 3e30], shape=(2, 2))
    models = [MatrixFactorization(1, l2, dtype="float32") for l2 in (1.0, 2.0)]
    with pytest.raises(UsageError, match=r"factors of user 0 .* l2=1\) has no unique solution"):
        fit_many(models, [log] * 2, [None] * 2, GpuEngine("cpu"))
