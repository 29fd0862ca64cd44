"""Another package adds one of each kind with one file, and nothing else has to change.

``tests/extension`` has one file for each kind. The tests install them as a package would be:
through entry points, found on the path of a new Python process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTENSION = Path(__file__).parent / "extension"
MODULES = ("metric", "estimator", "propensity", "recommender", "dataset", "command", "adapter")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a process in which the extension is installed."""
    site = tmp_path_factory.mktemp("site")
    for file in EXTENSION.glob("toy_*.py"):
        (site / file.name).write_text(file.read_text())
    metadata = site / "unskew_toy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: unskew-toy\nVersion: 1.0\n")
    plugins = "\n".join(f"{kind} = toy_{kind}" for kind in MODULES)
    (metadata / "entry_points.txt").write_text(
        f"[unskew.plugins]\n{plugins}\n\n[unskew.engines]\ntoy = toy_engine:ToyEngine\n"
    )
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}


def run(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("evaluate", "--help"), ("within_half", "Share within half a star.")),
        (("evaluate", "--help"), ("half_naive", "The plain mean, once more.")),
        (("propensity", "fit", "--help"), ("constant", "One number for every cell.")),
        (("train", "--help"), ("item-mean", "The mean rating of each item.")),
        (("data", "list"), ("toy-pair", "Toy pair")),
        (("--help",), ("greet", "Print a greeting.")),
        (("greet",), ("hello from outside",)),
    ],
    ids=lambda value: " ".join(value),
)
def test_the_command_line_shows_it(
    environment: dict[str, str], arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    text = " ".join(run(environment, "-m", "unskew", *arguments).split())

    for part in expected:
        assert part in text


def test_a_report_shows_its_label(environment: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run(
        environment,
        "-c",
        f"""
import unskew
world = unskew.simulate(n_users=30, n_items=20, random_state=0)
result = unskew.evaluate(
    world.log, {{"three": [3.0] * len(world.log)}}, propensities=world.propensities,
    metrics=["within_half"], estimators=["half_naive", "snips"],
)
result.to_html({str(page)!r})
""",
    )

    text = page.read_text()
    assert "Within half a star" in text
    assert "Half naive" in text


@pytest.mark.parametrize("registry", ["metrics.METRICS", "estimators.ESTIMATORS"])
def test_the_documentation_table_has_a_row(environment: dict[str, str], registry: str) -> None:
    package, name = registry.split(".")
    code = f"from unskew.{package} import {name}; print({name}.to_markdown())"

    table = run(environment, "-c", code)

    assert "| Within half a star |" in table or "| Half naive |" in table


def test_its_models_are_exported_trained_saved_and_loaded(
    environment: dict[str, str], tmp_path: Path
) -> None:
    answer = run(
        environment,
        "-c",
        f"""
import numpy as np
import unskew
log = unskew.simulate(n_users=30, n_items=20, random_state=0).log
for model, fit in (
    (unskew.models.ItemMean(), lambda m: m.fit(log)),
    (unskew.propensity.ConstantPropensity(0.5), lambda m: m.fit(log, universe="log")),
):
    path = {str(tmp_path)!r} + "/" + type(model).__name__
    fit(model).save(path)
    again = unskew.load(path)
    assert type(again) is type(model) and repr(again) == repr(model)
print(unskew.datasets.load_toy_pair().ratings)
fitted = unskew.MatrixFactorization(2).fit(log, engine="toy")
print(np.ptp(fitted.predict(log.users[log.user], log.items[log.item])))
""",
    )

    assert answer.splitlines() == [
        "Ratings(2 ratings by 2 users on 2 items, 1 to 5, mean 3; density 0.5)",
        "0.0",
    ]


def test_its_adapter_reads_the_models_of_its_library(environment: dict[str, str]) -> None:
    code = """
import numpy as np
import toy_adapter
import unskew
log = unskew.Ratings.from_dense([[5, 1], [3, 0]])
for model in (
    toy_adapter.Constant(3.0),
    unskew.evaluation.wrap_model(toy_adapter.Constant(3.0), users=[0, 1], items=[0, 1]),
):
    try:
        risk = unskew.evaluate(log, model, metrics=["mae"], estimators=["naive"])
        print(round(risk.risk("model", metric="mae", estimator="naive").estimate, 3))
    except unskew.errors.BadPredictionError as error:
        print(error.problem)
"""
    lines = run(environment, "-c", code).splitlines()

    assert lines == [
        "Constant of Toy knows users and items only by codes 0, 1, 2, ..., not by ids.",
        "1.333",
    ]


def test_its_name_appears_where_names_are_listed(environment: dict[str, str]) -> None:
    code = """
import unskew
from unskew.errors import UnskewError
log = unskew.simulate(n_users=30, n_items=20, random_state=0).log
for call in (
    lambda: unskew.MatrixFactorization().fit(log, engine="none"),
    lambda: unskew.evaluate(log, [3.0] * len(log), metrics=["none"], estimators=["naive"]),
):
    try:
        call()
    except UnskewError as error:
        print(error)
"""
    text = run(environment, "-c", code)

    assert "toy" in text
    assert "within_half" in text


def test_the_conformance_suite_covers_its_recommender(environment: dict[str, str]) -> None:
    suite = str(Path(__file__).parent / "models" / "test_conformance.py")

    text = run(
        environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", suite, "-k", "item-mean"
    )

    assert " passed" in text
    assert int(text.split(" passed")[0].split()[-1]) >= 8
