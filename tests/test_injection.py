"""Names and ids of strangers stay text: in notebooks, pages and terminals, for every result."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from fuzz.targets import find_public
from unskew.data.result import Result
from unskew.errors import UnknownNameError
from unskew.evaluation import Monitor
from unskew.model_selection import Learner
from unskew.models import GlobalMean

BAD = "<script>alert(1)</script>\x1b[31m\u202e"
OTHER = "\x1b]0;x\x07<img src=x onerror=alert(1)>"
CONTROLS = {"\x1b", "\x07", "\u202e"}
"""Characters that steer a terminal, or reverse the text after them."""


def make_log() -> unskew.Ratings:
    rng = np.random.default_rng(0)
    rows, columns = np.nonzero(rng.random((12, 8)) < 0.6)
    users = np.array([f"{BAD}{row}" for row in range(12)])
    items = np.array([f"{OTHER}{column}" for column in range(8)])
    rating = rng.integers(1, 6, rows.size)
    return unskew.Ratings.from_arrays(users[rows], items[columns], rating, universe="log")


def make_evaluation() -> Any:
    log = make_log()
    models = {BAD: GlobalMean().fit(log), OTHER: np.full(len(log), 2.0)}
    return unskew.evaluate(log, models, propensities=np.full(len(log), 0.5), metrics=["mae"])


def make_grouped() -> Any:
    frame = make_log().to_frame("pandas").assign(prediction=3.0, propensity=0.5, group=BAD)
    return unskew.evaluate_frame(frame, universe=(12, 8), by="group", metrics="mae")


def make_watch() -> Any:
    monitor = Monitor([BAD, OTHER], planned_size=100)
    rating = np.arange(1.0, 6.0)
    monitor.update(rating, {BAD: rating, OTHER: rating + 1}, np.full(5, 0.5))
    return monitor.watch()


def make_policy_evaluation() -> Any:
    shown = unskew.simulate_impressions(20, 4, 2, logging="plackett-luce", random_state=0).log
    uniform = unskew.policies.UniformSlate()
    return unskew.evaluate_policies(shown, {BAD: uniform, OTHER: uniform})


def make_factorization() -> Any:
    return unskew.MatrixFactorization(2, 0.01, random_state=0).fit(make_log())


RESULTS: dict[str, Callable[[], Any]] = {
    "Evaluation": make_evaluation,
    "Comparison": lambda: make_evaluation().compare(BAD, OTHER),
    "GroupedEvaluation": make_grouped,
    "ListDescription": lambda: unskew.evaluation.describe_lists(
        make_log(), {BAD: GlobalMean().fit(make_log())}
    ),
    "Sensitivity": lambda: unskew.sensitivity(make_evaluation(), benchmark={BAD: 1.5}),
    "Robustness": lambda: unskew.sensitivity(make_evaluation()).compare(
        BAD, OTHER, metric="mae", estimator="snips"
    ),
    "Watch": make_watch,
    "Diagnosis": lambda: unskew.diagnose(make_log(), {BAD: np.full(len(make_log()), 0.5)}),
    "LearnerComparison": lambda: unskew.compare_learners(
        make_log(), {BAD: GlobalMean(), OTHER: GlobalMean()}, test={BAD: make_log()}, n_repeats=2
    ),
    "Leaderboard": lambda: unskew.model_selection.rank_learners(
        unskew.model_selection.RandomTestData(make_log(), make_log()),
        learners={BAD: Learner(GlobalMean()), OTHER: Learner(GlobalMean())},
        protocols=["leaky"],
        n_repeats=1,
    ),
    "Recommendations": lambda: GlobalMean().fit(make_log()).recommend(k=2),
    "Neighbors": lambda: make_factorization().similar_items(make_log().items[:2], k=2),
    "PolicyEvaluation": make_policy_evaluation,
    "PolicySensitivity": lambda: make_policy_evaluation().sensitivity(),
}
WITHOUT_NAMES = {"SamplePlan", "CrossValidation", "ExaminationCurve"}
"""Results that hold no name or id of a caller."""


@pytest.fixture(scope="module", params=RESULTS)
def result(request: pytest.FixtureRequest) -> Any:
    with warnings.catch_warnings(action="ignore"):
        return RESULTS[request.param]()


def test_notebooks_get_no_script(result: Any) -> None:
    html = result._repr_html_()

    assert "<script>" not in html
    assert "<img" not in html
    assert not CONTROLS & set(html)


def test_terminals_get_no_escapes(result: Any) -> None:
    shown = repr(result)

    assert not CONTROLS & set(shown)


def test_pages_get_no_script(result: Any, tmp_path: Path) -> None:
    try:
        text = result.to_html(tmp_path / "page.html").read_text()
    except UnknownNameError:
        pytest.skip("this result has no page")

    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert not CONTROLS & set(text)


def test_every_result_is_tried() -> None:
    names = {
        name.rpartition(".")[2]
        for name, thing in find_public()
        if isinstance(thing, type) and issubclass(thing, Result)
    }

    assert names == set(RESULTS) | WITHOUT_NAMES
