"""Every learner on every engine works, or is refused by name with what to do."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unskew
from unskew.cli.options import list_learners
from unskew.errors import MissingExtraError, UnknownNameError, UnskewWarning, UsageError
from unskew.evaluation import predictions
from unskew.models import recommender
from unskew.registry import engine_for, engine_names
from unskew.workflows import evaluation, training
from unskew.workflows.evaluation import evaluate_log
from unskew.workflows.requests import EvaluationRequest, TrainingRequest
from unskew.workflows.training import (
    choose_engine,
    explain_large_log,
    fit_from_file,
    fit_model,
    read_training_data,
    reads_files,
    reads_frames,
    recommend_items,
    takes_engine,
)

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'unskew[duckdb]'")

WORLD = unskew.simulate(30, 20, density=0.2, alpha=0.5, random_state=1)
FRAME = pd.DataFrame(
    {
        "user_id": WORLD.log.user,
        "item_id": WORLD.log.item,
        "rating": WORLD.log.rating,
        "propensity": np.asarray(WORLD.propensities),
    }
)
LEARNERS_OF_ENGINES = {"mf", "offsets"}
LEARNERS_IN_MEMORY = set(
    "doubly-robust dr-bias dr-jl dr-mse dr-v2 eib logistic mrdr relmf wmf".split()
)
"""With ``engine="gpu"`` only."""
MISSING = {"gpu": "torch", "spark": "pyspark"}
"""The package of an engine; the fits themselves are tested in tests/engines."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("log") / "log.parquet"
    FRAME.to_parquet(file)
    return str(file)


def fit(request: TrainingRequest) -> Any:
    """Fit as the command ``train`` does."""
    engine = choose_engine(request)
    return fit_from_file(request, engine) if reads_files(engine) else _fit_here(request)


def _fit_here(request: TrainingRequest) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnskewWarning)
        return fit_model(read_training_data(request))


@pytest.mark.parametrize("engine", [name for name in engine_names() if name != "auto"])
@pytest.mark.parametrize("learner", list_learners())
def test_every_learner_works_on_an_engine_or_is_refused_by_name(
    path: str, learner: str, engine: str
) -> None:
    settings: dict[str, Any] = {}
    if learner in LEARNERS_OF_ENGINES:
        settings = {"l2": 5.0, "max_iter": 3}
    elif learner == "logistic":
        settings = {"relevance_threshold": 4.0}
    request = TrainingRequest(
        log=path, learner=learner, engine=engine, settings=settings, propensities="propensity"
    )
    if engine == "local":  # tests/workflows/test_training.py fits every learner
        assert choose_engine(request) == "local"
    elif learner in LEARNERS_IN_MEMORY and engine == "gpu":
        if find_spec("torch") is None:
            with pytest.raises(MissingExtraError, match=r"engine='gpu' needs .* pip install"):
                fit(request)
        else:
            assert choose_engine(request) == "gpu"
    elif learner not in LEARNERS_OF_ENGINES:
        expected = f"learner '{learner}' cannot be fitted by engine='{engine}'. Use engine='local'"
        with pytest.raises(UsageError, match=expected):
            fit(request)
    elif find_spec(MISSING.get(engine, "numpy")) is None:
        with pytest.raises(MissingExtraError, match=f"engine='{engine}' needs .* pip install"):
            fit(request)
    elif engine == "disk":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnskewWarning)
            assert len(fit(request).users_) == 30
    else:
        assert choose_engine(request) == engine
        assert takes_engine(learner)


def test_an_unknown_engine_is_named(path: str) -> None:
    with pytest.raises(UnknownNameError, match="engine"):
        choose_engine(TrainingRequest(log=path, engine="cluster", learner="mrdr"))


def test_auto_takes_the_disk_for_a_large_parquet_file(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_engine(TrainingRequest(log=path)) == "local"
    monkeypatch.setattr(training, "choose_reader", lambda reader, source: "duckdb")

    assert choose_engine(TrainingRequest(log=path)) == "disk"
    assert choose_engine(TrainingRequest(log=path, learner="mrdr")) == "local"
    assert choose_engine(TrainingRequest(log=path, grid={"l2": [1.0]})) == "local"


def test_auto_says_what_it_does_with_a_large_log(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "log.csv"
    FRAME.to_csv(table, index=False)
    requests = {
        r"--engine disk$": TrainingRequest(log=path),
        r"read into it: --engine disk fits 'mf' and 'offsets'": TrainingRequest(
            log=path, grid={"l2": [1.0]}
        ),
        r"log\.csv is large .* write it to a \.parquet file": TrainingRequest(log=str(table)),
    }
    for request in requests.values():
        assert explain_large_log(request, choose_engine(request)) is None
    monkeypatch.setattr(training, "choose_reader", lambda reader, source: "duckdb")
    for text, request in requests.items():
        assert re.search(text, str(explain_large_log(request, choose_engine(request))))
    local = TrainingRequest(log=str(table), engine="local")
    assert explain_large_log(local, choose_engine(local)) is None


def test_auto_in_python_goes_by_the_kind_of_log() -> None:
    assert engine_for(WORLD.log) == engine_for(FRAME) == "local"
    assert engine_for("log.parquet") == engine_for(Path("log.parquet")) == "disk"


def test_a_search_of_settings_runs_on_the_engine(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[object] = []
    monkeypatch.setattr(training, "cross_validate", lambda *_, engine, **__: engines.append(engine))
    for engine in ("gpu", "auto"):
        request = TrainingRequest(log=path, engine=engine, grid={"l2": [1.0, 5.0]})
        training.search_settings(read_training_data(request))

    assert engines == ["gpu", "local"]


@pytest.mark.filterwarnings("ignore:model 'mf' was trained on")
def test_saved_models_rank_on_the_engine(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = TrainingRequest(log=path, settings={"l2": 5.0, "max_iter": 3})
    model = str(tmp_path / "model.unskew")
    _fit_here(request).save(model)
    judged = EvaluationRequest(
        log=path, model={"mf": model}, metrics=("dcg@5",), estimators=("naive",), universe="log"
    )
    for engine in ("disk", "spark"):
        with pytest.raises(UsageError, match=r"Engine cannot rank items\. Pass engine='gpu'"):
            recommend_items(model, engine=engine)
        with pytest.raises(UsageError, match=r"Engine cannot rank items\. Pass engine='gpu'"):
            evaluate_log(replace(judged, engine=engine))
    engines: list[object] = []
    for module in (recommender, evaluation, predictions):
        monkeypatch.setattr(module, "find_ranker", engines.append)
    recommend_items(model, engine="gpu")
    evaluate_log(replace(judged, engine="gpu"))

    assert engines == ["gpu"] * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"l2": [1.0]}}, "fits one model to a file, without a search"),
        ({"log": "log.csv"}, r"engine='disk' reads Parquet files, not .*log.csv"),
        ({"propensities": "popularity"}, "reads propensities from a column of the log"),
        ({"settings": {}}, "engine='disk' cannot choose l2"),
        ({"settings": {"l2": 1.0, "loss": "absolute"}}, "engine='disk' fits squared loss"),
    ],
)
def test_what_an_engine_that_reads_files_cannot_do_is_said(
    path: str, changes: dict[str, Any], message: str
) -> None:
    usual: dict[str, Any] = {"log": path, "settings": {"l2": 1.0}, "engine": "disk"}
    with pytest.raises(UsageError, match=message):
        fit_from_file(TrainingRequest(**usual | changes), "disk")


def test_the_table_of_the_docs_is_what_the_code_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
    section = page.split("## Which engine fits which learner")[1].split("\n## ")[0]
    cells = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| `")]
    documented = {
        learner: set(re.findall(r"`(\w+)`", engines_of))
        for engines_of, learners in cells
        for learner in re.findall(r"`([\w-]+)`", learners)
    }

    def find_engines_of(learner: str) -> set[str]:
        engines_of = {"local", "gpu"} if takes_engine(learner) else {"local"}
        return {*engines_of, "spark", "disk"} if reads_frames(learner) else engines_of

    assert documented == {learner: find_engines_of(learner) for learner in list_learners()}
