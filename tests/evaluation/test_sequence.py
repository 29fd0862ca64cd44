"""evaluate(..., sequence=True): the same estimates, with limits that hold at every look."""

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
from unskew.errors import UsageError
from unskew.estimators.sequences import SequenceClock
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.result import Evaluation
from unskew.evaluation.sensitivity import sensitivity
from unskew.propensity import NaiveBayesPropensity, UniformPropensity
from unskew.types import Matrix

rng = np.random.default_rng(0)
TRUTH = np.clip(np.round(rng.normal(3, 1.2, (300, 40))), 1, 5)
CHANCE = np.where(TRUTH >= 4, 0.5, 0.1)
PREDICTIONS = {
    "a": TRUTH + rng.normal(0, 1, TRUTH.shape),
    "b": TRUTH + rng.normal(0, 0.9, TRUTH.shape),
}


def draw(seed: int = 1) -> Ratings:
    observed = np.random.default_rng(seed).random(TRUTH.shape) < CHANCE
    return Ratings.from_dense(np.where(observed, TRUTH, 0))


LOG = draw()


def run(log: Ratings = LOG, propensities: Any = CHANCE, **options: Any) -> Evaluation:
    settings = {"metrics": ["mae"], "sequence": True, "planned_size": 300} | options
    return evaluate(log, PREDICTIONS, propensities=propensities, **settings)


def test_users_are_the_units_by_default() -> None:
    plain, sequence = run(sequence=False, planned_size=None), run()

    clock = SequenceClock(300, 300, 1e9)
    for before, after in zip(plain, sequence, strict=True):
        assert after.estimate == pytest.approx(before.estimate, rel=1e-12)
        assert after.std_error == pytest.approx(before.std_error, rel=0.01)
        estimate = sequence.estimates[after.metric, after.estimator]
        skewness = estimate.of(["a", "b"].index(after.model), level=0.95).skewness
        limits = clock.limits(
            after.estimate,
            after.std_error,
            level=0.95,
            degrees=after.degrees,
            skewness=skewness,
        )
        assert (after.ci_low, after.ci_high) == pytest.approx(limits)
        assert after.ci_high - after.estimate >= clock.multiplier(0.95) * after.std_error
    comparison = sequence.compare("a", "b", metric="mae", estimator="snips")
    assert (comparison.p_value < 0.05) == (comparison.ci_low > 0)
    assert "valid at every look, planned size 300 users" in repr(sequence)


def test_cells_are_the_units_without_clusters() -> None:
    sequence = run(cluster=None, planned_size=2_000)

    weight = 1 / CHANCE[LOG.user, LOG.item]
    delta = np.abs(LOG.rating - PREDICTIONS["a"][LOG.user, LOG.item])
    snips, ips = (sequence.risk("a", metric="mae", estimator=name) for name in ("snips", "ips"))
    influence = weight * (delta - snips.estimate) / weight.sum()
    assert snips.std_error == pytest.approx(math.sqrt((influence**2).sum()))
    y = np.zeros(TRUTH.size)
    y[: len(LOG)] = weight * delta
    assert ips.estimate == pytest.approx(y.mean())
    assert ips.std_error == pytest.approx(y.std() / math.sqrt(y.size))


def test_before_an_effective_sample_size_of_100_there_are_no_limits(tmp_path: Path) -> None:
    few = Ratings.from_dense(
        np.where(np.random.default_rng(3).random((90, 40)) < CHANCE[:90], TRUTH[:90], 0)
    )
    early = evaluate(
        few,
        {name: matrix[:90] for name, matrix in PREDICTIONS.items()},
        propensities=CHANCE[:90],
        metrics=["mae"],
        sequence=True,
        planned_size=300,
    )

    assert all(math.isinf(risk.ci_high) and math.isinf(risk.ci_low) for risk in early)
    assert early.compare("a", "b", metric="mae", estimator="snips").better is None
    assert "too early" in repr(early)
    record = json.loads(early.to_json(), parse_constant=pytest.fail)
    assert record["rows"][0]["ci_low"] is None
    with pytest.raises(UsageError, match="too early"):
        early.to_html(tmp_path / "page.html")
    assert early._repr_html_().startswith("<table>")


def add_up(columns: Matrix, group: Any) -> Matrix:
    return np.stack([np.bincount(group, weights=row, minlength=5) for row in columns])


def test_the_error_of_an_earlier_fit_is_added_once() -> None:
    model = NaiveBayesPropensity().fit(draw(2), mcar=TRUTH.ravel()[:400])
    propensities = model.predict(LOG)
    known = run(propensities=propensities.as_known()).estimates["mae", "snips"]
    estimate = run(propensities=propensities).estimates["mae", "snips"]

    weight, level = propensities.inverse, LOG.rating.astype(int) - 1
    delta = np.stack([np.abs(LOG.rating - PREDICTIONS[k][LOG.user, LOG.item]) for k in "ab"])
    gradient = add_up((delta - known.value[:, None]) * weight, level) / weight.sum()
    variance = (1 - model.propensity_by_level_) / model.observed_by_level_
    counts = (gradient * variance) @ gradient.T
    share = model.marginal_
    sample = (gradient / share) @ gradient.T - np.outer(gradient.sum(1), gradient.sum(1))
    sample *= (1 - 400 / TRUTH.size) / 400
    np.testing.assert_allclose(estimate.covariance, known.covariance + counts + sample)
    assert "NaiveBayesPropensity taken as fitted to an earlier log" in repr(
        run(propensities=propensities)
    )


@pytest.mark.parametrize(
    ("propensities", "match"),
    [
        (UniformPropensity().fit(LOG), "UniformPropensity was fitted to this log"),
        (NaiveBayesPropensity().fit(LOG, mcar=[1, 2, 3, 4, 5]), "was fitted to this log, so its"),
        (
            Propensities(
                CHANCE[LOG.user, LOG.item],
                Replicates(model="MyModel", refit=lambda rows: np.full(rows.size, 0.5)),
            ),
            "MyModel has no formula",
        ),
    ],
    ids=["uniform", "naive_bayes", "refitted"],
)
def test_propensities_of_the_same_log_are_refused(propensities: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        run(propensities=propensities)


def test_a_sequence_refuses_what_it_cannot_do() -> None:
    for options, match in (
        ({"planned_size": None}, "needs the size that the log is planned to have"),
        ({"planned_size": 0}, "planned_size must be a whole number"),
        ({"sequence": False}, "planned_size is for limits that hold at every look"),
        ({"estimators": ["user_normalized"]}, "'user_normalized' has no confidence sequence"),
        ({"cluster": "both"}, "users or single cells; got cluster='both'"),
        ({"bootstrap": 10}, "a bootstrap has no limits"),
        ({"metrics": ["recall@5"], "relevance_threshold": 4}, "is not a sum over cells"),
    ):
        with pytest.raises(UsageError, match=match):
            run(**options)
    with pytest.raises(UsageError, match="did not keep the cells"):
        sensitivity(run())


def test_known_propensities_may_be_a_record() -> None:
    record = Propensities(CHANCE[LOG.user, LOG.item])

    assert run(propensities=record).to_json() == run().to_json()
