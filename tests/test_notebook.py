"""What a notebook shows, in a real kernel: figures once, progress as text, results as tables."""

from __future__ import annotations

import base64
import re
import sys
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="the dev extra has nbclient")
nbformat = pytest.importorskip("nbformat", reason="the dev extra has nbclient")
pytest.importorskip("ipykernel", reason="the dev extra has ipykernel")

SETUP = """
import numpy as np, unskew
world = unskew.simulate(60, 80, density=0.1, random_state=0)
log = world.log
models = {"<b>a</b>": world.truth + 1.0, "b": world.truth * 0.9}
result = unskew.evaluate(log, models, propensities=world.propensities)
model = unskew.MatrixFactorization(2, 5.0).fit(log)
shown = unskew.simulate_impressions(300, n_items=4, n_slots=2, random_state=1)
policies = unskew.evaluate_policies(shown.log, {"new": shown.target}, estimators=["snrips"])
uniform = unskew.propensity.UniformPropensity().fit(log)
import warnings
warnings.simplefilter("ignore")
monitor = unskew.evaluation.Monitor(["b"], planned_size=500, metrics=["mae"])
monitor.update(log.rating, {"b": models["b"][log.user, log.item]}, world.propensities.values)
"""
CELLS = {
    "setup": SETUP,
    "figure as the last line": "result.plot()",
    "figure before another line": "figure = result.plot()\n1 + 1",
    "saved figure": "import matplotlib.pyplot as plt\nresult.plot()\nplt.savefig('saved.png')",
    "figure in given axes": "_, axes = plt.subplots(1, 2)\nresult.plot(axes)",
    "progress of a fit": "unskew.MatrixFactorization(2, 5.0, verbose=True).fit(log)\n1 + 1",
    "progress of a search": "unskew.cross_validate(unskew.MatrixFactorization(1), log, "
    "grid={'l2': [1.0, 5.0]}, n_folds=2, verbose=True)\n1 + 1",
    "log": "log",
    "part": "unskew.split(log)[1]",
    "impressions": "shown.log",
    "propensities": "world.propensities",
    "fitted model": "model",
    "model before its fit": "unskew.MatrixFactorization(2)",
    "recommendations": "model.recommend([0, 1], k=3)",
    "evaluation": "result",
    "figure of a sensitivity": "unskew.sensitivity(result, odds_error=[1.5]).plot()",
    "figure of a diagnosis": "unskew.diagnose(log, {'uniform': uniform}).plot()",
    "figure of policies": "policies.plot()",
    "figure of a comparison": "result.compare('<b>a</b>', 'b', metric='mae').plot()",
    "figure of all pairs": "result.compare_all(metric='mae').plot()",
    "figure of robustness": "unskew.sensitivity(result).compare('<b>a</b>', 'b', metric='mae', "
    "estimator='snips').plot()",
    "figure of a search": "unskew.cross_validate(unskew.MatrixFactorization(), log, "
    "grid={'n_factors': [1, 2], 'l2': [0.5, 1.0, 5.0]}, n_folds=2).plot()",
    "figure of a growing log": "monitor.watch().plot()",
    "figure of position bias": "unskew.PositionBias(cluster='user').fit(shown.log).curve_.plot()",
    "comparison": "result.compare('<b>a</b>', 'b', metric='mae', estimator='snips')",
    "all pairs": "result.compare_all(metric='mae')",
    "sensitivity": "unskew.sensitivity(result, odds_error=[1.5])",
    "diagnosis": "unskew.diagnose(log, {'uniform': uniform})",
    "search": "unskew.cross_validate(unskew.MatrixFactorization(1), log, "
    "grid={'l2': [1.0, 5.0]}, n_folds=2)",
    "policies": "policies",
    "position bias": "unskew.PositionBias(cluster='user').fit(shown.log).curve_",
    "growing log": "monitor.watch()",
    "plan": "unskew.plan_random_sample(log, width=0.5)",
    "leaks": "unskew.model_selection.find_leaks(*unskew.split(log))",
    "neighbors": "unskew.MatrixFactorization(2, 0.1).fit(log).similar_items([3], k=2)",
    "lists": "unskew.evaluation.describe_lists(log, models, k=3)",
}
PICTURES = Path(__file__).parents[1] / "build" / "screenshots"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The outputs of each cell."""
    folder = tmp_path_factory.mktemp("notebook")
    start = f"import os, sys\nsys.path[:0] = {sys.path!r}\nos.chdir({str(folder)!r})"
    sources = [start, *CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, sources)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [cell.outputs for cell in notebook.cells[1:]]
    assert (folder / "saved.png").read_bytes() == read_picture(shown[3])
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, cell in zip(CELLS, shown, strict=True):
        if name.startswith("figure"):
            file = PICTURES / f"notebook-{name.replace(' ', '-')}.png"
            file.write_bytes(read_picture(cell))
    return dict(zip(CELLS, shown, strict=True))


def read_picture(cell: list[Any]) -> bytes:
    (picture,) = [
        output.data["image/png"] for output in cell if "image/png" in output.get("data", {})
    ]
    return base64.b64decode(picture)


@pytest.mark.parametrize("name", [name for name in CELLS if "figure" in name])
def test_a_figure_is_shown_once(outputs: dict[str, list[Any]], name: str) -> None:
    assert len(read_picture(outputs[name])) > 10_000


@pytest.mark.parametrize("name", [name for name in CELLS if "progress" in name])
def test_progress_is_text_that_disappears(outputs: dict[str, list[Any]], name: str) -> None:
    text = "".join(output.text for output in outputs[name] if output.output_type == "stream")

    assert re.match(r"\r(step 1, objective|cross-validation: 0 of 2)", text)
    assert text.endswith(" \r")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log", "<td>5.000</td>"),
        ("part", "a share of 0.2"),
        ("impressions", "slots; mean reward"),
        ("propensities", "known</p><table>"),
        ("fitted model", "60 users, 80 items, converged after"),
        ("model before its fit", "not fitted"),
        ("recommendations", "items (scores), best first</th>"),
        ("evaluation", "<strong>If the supplied propensities are right, b beats &lt;b&gt;a"),
        ("comparison", "on mae by snips"),
        ("all pairs", "best on mae by snips"),
        ("sensitivity", "<strong>b stays ahead of &lt;b&gt;a&lt;/b&gt;, however wrong"),
        ("diagnosis", "2 checks found problems.</strong>"),
        ("search", "l2 = 5 is best: MSE"),
        ("policies", "<strong>new earns more than the logging policy"),
        ("position bias", "examination"),
        ("growing log", "at all looks"),
        ("plan", "random ratings"),
        ("leaks", "<strong>1 user of the test"),
        ("neighbors", "<table>"),
        ("lists", "coverage"),
    ],
)
def test_a_result_is_shown_as_html(outputs: dict[str, list[Any]], name: str, content: str) -> None:
    (output,) = outputs[name]

    assert content in output.data["text/html"]
