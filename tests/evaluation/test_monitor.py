"""A monitor: the numbers of evaluate, whatever the batches, before and after it is saved."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew.data.estimation import Replicates
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.errors import (
    BadFileError,
    BadPredictionError,
    BadPropensityError,
    BadRatingError,
    UnskewError,
    UsageError,
)
from unskew.estimators.sequences import SequenceClock
from unskew.evaluation import Monitor
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.monitor_state import MAX_LOOKS, MonitorPlan
from unskew.metrics.metric import Delta, MetricInput
from unskew.types import Vector

N = 2_000
rng = np.random.default_rng(0)
USER = rng.integers(0, 400, N)
RATING = rng.integers(1, 6, N).astype(float)
PROPENSITY = np.array([0.1, 0.15, 0.2, 0.4, 0.6])[RATING.astype(int) - 1]
MODELS = {"old": RATING + rng.normal(0, 1, N), "new": RATING + rng.normal(0, 0.7, N)}
IS_OBSERVED = rng.random(N) < PROPENSITY


def feed(monitor: Monitor, rows: slice, rating: Vector = RATING) -> None:
    monitor.update(
        rating[rows],
        {name: values[rows] for name, values in MODELS.items()},
        PROPENSITY[rows],
        users=USER[rows],
    )


def start(**options: Any) -> Monitor:
    return Monitor(["old", "new"], **{"planned_size": 1_000, "metrics": ["mae"]} | options)


FULL = {"has_unobserved": True, "max_weight": 10.0, "max_delta": 8.0}
WITH_UNOBSERVED = np.where(IS_OBSERVED, RATING, np.nan)


@pytest.mark.parametrize("unit", ["row", "user"])
def test_the_numbers_are_those_of_evaluate(unit: Any) -> None:
    """One item for each row, so that each row is a cell of its own."""
    planned = 1_000 if unit == "row" else 300
    monitor = start(unit=unit, planned_size=planned)
    feed(monitor, slice(0, N))
    log = Ratings.from_arrays(USER, np.arange(N), RATING)
    expected = evaluate(
        log,
        MODELS,
        propensities=PROPENSITY,
        metrics=["mae"],
        estimators=["snips"],
        cluster=None if unit == "row" else "user",
        sequence=True,
        planned_size=planned,
    )

    watch = monitor.watch()
    for row, risk in zip(watch.look["rows"], expected, strict=True):
        assert (row["model"], row["estimator"]) == (risk.model, risk.estimator)
        numbers = risk.estimate, risk.ci_low, risk.ci_high
        assert (row["estimate"], row["ci_low"], row["ci_high"]) == pytest.approx(numbers)
    comparison = expected.compare("old", "new", metric="mae", estimator="snips")
    (difference,) = watch.look["differences"]
    assert difference["ci_low"] == pytest.approx(comparison.ci_low)
    assert difference["p_value"] == pytest.approx(comparison.p_value, rel=1e-6)


def test_ips_counts_arrivals_that_were_not_rated() -> None:
    monitor = start(**FULL)
    feed(monitor, slice(0, N), WITH_UNOBSERVED)
    look = monitor.watch().look

    y = np.where(IS_OBSERVED, np.abs(RATING - MODELS["old"]) / PROPENSITY, 0.0)
    row = next(r for r in look["rows"] if (r["estimator"], r["model"]) == ("ips", "old"))
    z = y - y.mean()
    shape = {
        "degrees": 2 * (z**2).sum() ** 2 / (z**4).sum(),
        "skewness": (z**3).sum() / (z**2).sum() ** 1.5,
    }
    std_error = y.std() / math.sqrt(N)
    limits = SequenceClock(N, 1_000, 1e9).limits(y.mean(), std_error, level=0.95, **shape)
    reach = limits[1] - y.mean()
    assert row["estimate"] == pytest.approx(y.mean())
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(limits)
    exact = next(r for r in look["rows"] if (r["estimator"], r["model"]) == ("exact", "old"))
    assert exact["ci_low"] < y.mean() < exact["ci_high"]
    assert exact["ci_high"] - exact["ci_low"] > 2 * reach


def test_ips_of_users_divides_by_all_their_cells() -> None:
    monitor = start(unit="user", has_unobserved=True, universe=(400, 50), planned_size=300)
    feed(monitor, slice(0, N), WITH_UNOBSERVED)
    watch = monitor.watch()

    y = np.where(IS_OBSERVED, np.abs(RATING - MODELS["old"]) / PROPENSITY, 0.0)
    n_users = np.unique(USER).size
    row = next(r for r in watch.look["rows"] if r["estimator"] == "ips")
    assert watch.look["n_units"] == n_users
    assert row["estimate"] == pytest.approx(y.sum() / (n_users * 50))
    assert watch.mass_share == pytest.approx((IS_OBSERVED / PROPENSITY).sum() / 20_000)
    assert watch.warnings == []


@pytest.mark.parametrize("options", [{}, {"unit": "user"}, FULL], ids=["row", "user", "exact"])
def test_batches_and_restarts_change_no_bit(options: dict[str, Any], tmp_path: Path) -> None:
    rating = WITH_UNOBSERVED if options is FULL else RATING
    whole = start(**options)
    feed(whole, slice(0, N), rating)
    parts, path = start(**options), tmp_path / "state.json"
    for first, last in ((0, 7), (7, 7), (7, 1_203), (1_203, 1_999), (1_999, N)):
        feed(parts, slice(first, last), rating)
        parts.save(path)
        parts = Monitor.load(path)

    assert parts.watch().to_json() == whole.watch().to_json()
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["kind"] == "monitor"


def test_the_path_has_a_look_after_every_so_many_rows_and_stays_short() -> None:
    monitor = start(look_every=300)
    feed(monitor, slice(0, N))
    assert [look["n_rows"] for look in monitor.watch().path] == [300, 600, 900, 1200, 1500, 1800]

    long = start(look_every=2)
    for _ in range(2):
        feed(long, slice(0, N))
    sizes = [look["n_rows"] for look in long.watch().path]
    assert len(sizes) <= MAX_LOOKS
    assert np.unique(np.diff(sizes)).tolist() == [16]
    assert sizes[0] == 16


def test_before_the_first_look_it_is_too_early() -> None:
    monitor = start()
    feed(monitor, slice(0, 50))
    watch = monitor.watch()

    assert watch.is_early
    assert watch.to_columns()["ci_low"] == [None, None]
    assert watch.look["differences"][0]["p_value"] is None
    assert repr(watch).count("too early") == 5
    feed(monitor, slice(50, N))
    assert not monitor.watch().is_early


def test_inverse_propensities_beyond_the_universe_are_a_warning() -> None:
    monitor = start(universe=(10, 20))
    feed(monitor, slice(0, N))

    assert "of all cells" in monitor.watch().warnings[0]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"planned_size": 0}, "planned_size must be a whole number, at least 1"),
        ({"level": 1.0}, "level must lie strictly between"),
        ({"unit": "item"}, "unknown value 'item' of unit"),
        ({"max_weight": 5}, "need both the largest weight and the largest delta"),
        ({"max_weight": 5, "max_delta": 4}, "need the arrivals that were not rated"),
        (FULL | {"unit": "user"}, "are for single rows"),
        (FULL | {"metrics": ["mae", "mse"]}, "are for one metric"),
        ({"metrics": ["dcg@5"]}, "'dcg@5' depends on other rows of the log"),
        ({"metrics": ["accuracy"]}, "'accuracy' depends on other rows of the log"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        start(**options)


class CentredError:
    """It reads the other rows of its batch, so batches would change the result."""

    name = "centred_error"
    higher_is_better = False
    ranks = False

    def __call__(self, cells: MetricInput) -> Delta:
        centred = cells.rating - cells.rating.mean()
        return Delta(np.abs(cells.require_predictions() - centred))


def test_a_metric_that_reads_other_rows_is_refused() -> None:
    metrics: Any = (CentredError(),)
    plan = MonitorPlan(models=("a",), planned_size=9, metrics=metrics)

    with pytest.raises(UsageError, match="'centred_error' depends on other rows of the log"):
        plan.find_metrics()


def test_models_need_different_names() -> None:
    with pytest.raises(UsageError, match="different names"):
        Monitor(["a", "a"], planned_size=10)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"rating": [1.0, np.nan]}, BadRatingError, "1 of 2 ratings are missing .* row 1"),
        (
            {"predictions": {"old": [1, 2]}},
            BadPredictionError,
            "this batch has no predictions of the model 'new'; it has those of 'old'",
        ),
        (
            {"predictions": {"old": [1, 2], "new": [1, np.inf]}},
            BadPredictionError,
            "model 'new': 1 of 2 predictions",
        ),
        (
            {"predictions": {"old": [1, 2], "new": [1]}},
            BadPredictionError,
            r"'new' has the shape \(1,\) for 2 rows",
        ),
        ({"propensities": [0.5, 0.0]}, BadPropensityError, "1 of 2 propensities lie outside"),
        (
            {
                "propensities": Propensities(
                    np.full(2, 0.5), Replicates(model="MyModel", refit=lambda rows: rows * 1.0)
                )
            },
            UsageError,
            "were estimated by MyModel",
        ),
        ({"users": None}, UsageError, "the users of the rows are missing"),
        ({"users": [1]}, UsageError, "there are ids of 1 user for 2 rows"),
    ],
)
def test_a_bad_batch_is_refused_and_changes_nothing(
    change: dict[str, Any], error: type[UnskewError], match: str
) -> None:
    monitor = start(unit="user")
    feed(monitor, slice(0, 10))
    before = monitor.watch().to_json()
    batch: dict[str, Any] = {
        "rating": [1.0, 2.0],
        "predictions": {"old": [1, 2], "new": [1, 2]},
        "propensities": [0.5, 0.5],
        "users": [1, 2],
    }

    with pytest.raises(error, match=match):
        monitor.update(**batch | change)
    assert monitor.watch().to_json() == before


@pytest.mark.parametrize(
    ("propensity", "prediction", "match"),
    [(0.05, 1.0, "row 0 has 20, above the stated max_weight=10"), (0.5, 30.0, "max_delta=8")],
)
def test_a_broken_promise_is_an_error(propensity: float, prediction: float, match: str) -> None:
    predictions = {"old": [1.0], "new": [prediction]}
    with pytest.raises(BadPropensityError, match=match):
        start(**FULL).update([1.0], predictions, [propensity])


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"kind": "monitor", "format": 1}', "cut"])
def test_a_damaged_state_is_refused(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    monitor = start()
    feed(monitor, slice(0, 10))
    monitor.save(path)
    text = path.read_text()
    record = json.loads(text)
    record["state"]["moments"] = []
    path.write_text(json.dumps(record) if damage == "cut" else damage)

    with pytest.raises(BadFileError, match="is not the state of a monitor"):
        Monitor.load(path)


def set_place(record: Any, place: tuple[Any, ...], value: object) -> None:
    *outer, last = place
    for key in outer:
        record = record[key]
    record[last] = value


EDITS: list[tuple[tuple[Any, ...], object]] = [
    (("plan", "has_unobserved"), None),
    (("plan", "has_unobserved"), []),
    (("plan", "universe"), -5),
    (("plan", "universe"), "xy"),
    (("plan", "universe"), []),
    (("plan", "universe"), [0, 3]),
    (("plan", "rating"), 3),
    (("plan", "propensity"), []),
    (("state", "n_rows"), 10**400),
    (("state", "n_rows"), -1),
    (("state", "n_rows"), 2),
    (("state", "n_rows"), 2.5),
    (("state", "n_rows"), 10**30),
    (("state", "moments", 0, 0), 10**30),
    (("state", "moments", 0, 0), -1),
    (("state", "n_observed"), None),
    (("state", "step"), -5),
    (("state", "step"), 0),
    (("state", "step"), 1e308),
    (("state", "mass"), float("nan")),
    (("state", "moments", 0, 1, 2), -1e308),
    (("state", "moments", 0, 2, 0, 0), float("inf")),
    (("state", "moments", 0, 2, 2, 2), 1e-320),
    (("state", "path"), "x"),
    (("state", "path"), [1]),
    (("state", "path"), [{}]),
    (("state", "path", 0), None),
    (("state", "path", 0, "n_rows"), 10**6),
    (("state", "path", 0, "effective_size"), None),
    (("state", "path", 0, "more"), 1),
    (("state", "path", 0, "rows", 0), "x"),
    (("state", "path", 0, "rows", 0, "model"), "<script>"),
    (("state", "path", 0, "rows", 0, "metric"), []),
    (("state", "path", 0, "rows", 0, "estimate"), float("nan")),
    (("state", "path", 0, "rows", 0, "ci_low"), "1"),
    (("state", "path", 0, "rows", 0, "ci_high"), 1.0),
    (("state", "path", 0, "differences", 0, "p_value"), []),
]


@pytest.mark.parametrize(("place", "value"), EDITS, ids=str)
def test_an_impossible_state_is_refused(
    place: tuple[Any, ...], value: object, tmp_path: Path
) -> None:
    """A negative step once made the next update endless."""
    path = tmp_path / "state.json"
    monitor = start(look_every=5)
    feed(monitor, slice(0, 10))
    monitor.save(path)
    record = json.loads(path.read_text())
    set_place(record, place, value)
    path.write_text(json.dumps(record))

    with pytest.raises(BadFileError, match="is not the state of a monitor"):
        Monitor.load(path)


def test_sums_that_are_too_large_are_refused() -> None:
    monitor = start()

    with pytest.raises(BadPredictionError, match="sums of the deltas are too large after row 0"):
        monitor.update([1.0], {"old": [1e200], "new": [1.0]}, [0.5])
    assert monitor.n_rows == 0


def test_a_state_with_more_units_than_rows_is_refused(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_weight": 5.0, "max_delta": 16.0, "has_unobserved": True}
    monitor = Monitor(["old"], planned_size=100, metrics=["mse"], **limits)
    monitor.save(tmp_path / "state.json")
    record = json.loads((tmp_path / "state.json").read_text())
    record["state"]["exact"][0][0] = 10**30
    (tmp_path / "state.json").write_text(json.dumps(record))

    with pytest.raises(BadFileError, match="its numbers are impossible"):
        Monitor.load(tmp_path / "state.json")
