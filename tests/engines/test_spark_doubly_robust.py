"""Doubly robust learning of logs that stay on Spark reaches the optimum of the local engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unskew
from unskew.engines import LocalEngine, SparkEngine
from unskew.errors import UsageError
from unskew.models.doubly_robust import DoublyRobustFactorization
from unskew.models.matrix_factorization import MatrixFactorization

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'unskew[spark]'")

from unskew.engines.spark import imputation
from unskew.engines.spark.frame import SparkLog
from unskew.engines.spark.pseudo_outcome import SparkPredictionSweeps

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore::ResourceWarning",
    "ignore::unskew.errors.ConvergenceWarning",
    "ignore::unskew.errors.PropensityWarning",
)

WORLD = unskew.simulate(40, 30, density=0.2, alpha=0.4, random_state=3)
COLUMNS: dict[str, Any] = {
    "user_id": np.array([f"u{code:03}" for code in WORLD.log.user]),
    "item_id": WORLD.log.item * 7 - 11,
    "rating": WORLD.log.rating,
    "propensity": np.asarray(WORLD.propensities),
}
USERS, ITEMS = COLUMNS["user_id"], COLUMNS["item_id"]
TABLE = pa.table(COLUMNS)
BLOCKS = SparkEngine(n_blocks=2)


def make_learner(**settings: Any) -> DoublyRobustFactorization:
    imputer = MatrixFactorization(2, 5.0, tol=0.0, max_iter=5)
    options: dict[str, Any] = {"imputer": imputer, "tol": 0.0, "max_iter": 5}
    return DoublyRobustFactorization(2, 4.0, **options | settings)


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return spark.createDataFrame(TABLE).cache()


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "float32"},
        {"penalizes": "prediction", "weighting": "mrdr", "offsets": "free"},
        {"offsets": "none", "weighting": "eib", "relevance_threshold": 4},
    ],
    ids=repr,
)
def test_the_steps_are_those_of_the_local_engine(frame: Any, settings: dict[str, Any]) -> None:
    here = make_learner(**settings).fit(TABLE, "propensity", engine=LocalEngine())
    there = make_learner(**settings).fit(frame, "propensity", engine=BLOCKS)
    rel = 1e-4 if settings.get("dtype") == "float32" else 1e-8

    assert there.history_[1:] == pytest.approx(here.history_[1:], rel=rel)
    assert there.risk_ == pytest.approx(here.risk_, rel=rel)
    assert there.fallback_ == pytest.approx(here.fallback_, rel=rel)
    assert there.penalty_ == here.penalty_
    pairs = np.repeat(here.users_, 30), np.tile(here.items_, 40)
    np.testing.assert_allclose(there.predict(*pairs), here.predict(*pairs), rtol=100 * rel)
    for name in ("user_factors", "item_factors", "user_offset", "item_offset"):
        ours, theirs = (getattr(model.imputed_, name) for model in (there, here))
        np.testing.assert_allclose(ours, theirs, rtol=100 * rel, atol=1e-6)


def test_users_stay_on_spark_and_are_served_there(frame: Any) -> None:
    engine = SparkEngine(n_blocks=2, collect_users=False)
    model = make_learner().fit(frame, "propensity", engine=engine)
    whole = make_learner().fit(frame, "propensity", engine="auto")
    scored = engine.predict_frame(model, frame).toArrow().to_pandas()

    assert len(model.users_) == 0
    assert model.imputed_.n_users == 0
    assert model.imputed_.n_items == 30
    expected = whole.predict(scored["user_id"], scored["item_id"])
    np.testing.assert_allclose(scored["prediction"], expected, rtol=1e-9)


def test_a_restarted_driver_goes_on_to_the_same_bits(
    frame: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = make_learner().fit(frame, "propensity", engine=BLOCKS)
    saved: dict[str, Any] = {"checkpoint": tmp_path / "fit.state", "checkpoint_every": 2}
    sweep, starts = SparkPredictionSweeps._sweep, []

    def stop_at_the_fourth(solver: Any, start: Any, *, is_exact: bool) -> Any:
        starts.append(start)
        if len(starts) == 4:
            raise KeyboardInterrupt
        return sweep(solver, start, is_exact=is_exact)

    monkeypatch.setattr(SparkPredictionSweeps, "_sweep", stop_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        make_learner().fit(frame, "propensity", engine=BLOCKS, **saved)
    again = make_learner().fit(frame, "propensity", engine=BLOCKS, **saved)

    assert len(starts) == 4 + 3
    assert {path.name for path in tmp_path.iterdir()} == {"fit.state", "fit.state.imputation"}
    assert again.history_ == whole.history_
    np.testing.assert_array_equal(again.factors_.user_factors, whole.factors_.user_factors)


def test_the_result_is_the_same_to_the_bit_for_any_order_of_rows(frame: Any, spark: Any) -> None:
    order = np.random.default_rng(0).permutation(len(USERS))
    other = spark.createDataFrame(TABLE.take(pa.array(order))).repartition(3)
    one, two = (
        make_learner(max_iter=2).fit(log, "propensity", engine=BLOCKS) for log in (frame, other)
    )

    assert one.history_ == two.history_
    np.testing.assert_array_equal(one.factors_.user_factors, two.factors_.user_factors)
    np.testing.assert_array_equal(one.factors_.item_factors, two.factors_.item_factors)


def test_weights_have_exact_ranks(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imputation, "N_BINS", 4)
    rng = np.random.default_rng(1)
    weight = np.concatenate([rng.exponential(size=50), [1.0] * 10, [np.nextafter(1.0, 2.0)] * 3])
    log = SparkLog(spark.createDataFrame(pa.table({"weight": weight})), True, "user")

    for rank in (0, 11, 30, 62):
        assert imputation.find_ranked(log, rank) == np.sort(weight)[rank]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"imputation": "error"}, r"with imputation='error'\. Use engine='local' or engine='gpu'"),
        ({"is_balanced": True}, "does not fit DoublyRobustFactorization with is_balanced=True"),
        ({"targeted": True}, "with targeted=True.* or leave targeted out"),
        ({"loss": "absolute"}, "with loss='absolute'"),
        ({"weight_transform": unskew.estimators.Clip(9)}, "Transform the column of propensities"),
        ({"l2": "auto"}, "cannot choose l2 of the model or of its imputer"),
        ({"imputer": None}, r"imputer=MatrixFactorization\(10, 5\.0\)\)"),
        ({"imputer": MatrixFactorization(2, 1.0, loss="absolute")}, "an imputer of squared loss"),
    ],
)
def test_what_needs_the_log_in_memory_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_learner().set_params(**settings).fit("nowhere", "propensity", engine="spark")


def test_propensities_are_needed(frame: Any) -> None:
    with pytest.raises(UsageError, match=r"needs propensities\. Pass the name of their column"):
        make_learner().fit(frame, engine="spark")
