"""Results in real stores of MLflow and Weights & Biases, on the local disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew import Ratings, evaluate
from unskew.data.result import name_numbers
from unskew.errors import UsageError
from unskew.evaluation import Evaluation

pytestmark = pytest.mark.filterwarnings("ignore")  # of the trackers about themselves


@pytest.fixture(scope="module")
def result() -> Evaluation:
    log = Ratings.from_dense([[5, 1, 3], [4, 5, 0], [1, 2, 0]])
    models = {"svd++": np.full(7, 4.0), "mean": np.full(7, 3.0)}
    return evaluate(log, models, propensities=np.full(7, 0.7), metrics=["mae"])


def test_mlflow_gets_numbers_page_and_json(
    result: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra tracking has mlflow-skinny")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        result.log_to(run)

    client, run_id = mlflow.MlflowClient(), run.info.run_id
    numbers = client.get_run(run_id).data.metrics
    risk = result.risk("svd++", metric="mae", estimator="snips")
    assert numbers["svd__/mae/snips/estimate"] == risk.estimate
    assert numbers["svd__/mae/snips/ci_high"] == risk.ci_high
    folder = Path(client.download_artifacts(run_id, "unskew", str(tmp_path)))
    assert "<!doctype html>" in (folder / "evaluation.html").read_text().lower()
    assert json.loads((folder / "evaluation.json").read_text())["kind"] == "evaluation"


def test_the_module_mlflow_needs_an_active_run(result: Evaluation) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra tracking has mlflow-skinny")

    with pytest.raises(UsageError, match=r"MLflow has no active run. Log the result inside"):
        result.log_to(mlflow)


def test_weights_and_biases_gets_numbers_and_artifacts(
    result: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb", reason="the extra tracking has wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path))
    run = wandb.init(mode="offline", dir=str(tmp_path))
    names: list[str] = []
    log_artifact = run.log_artifact

    def keep_name(path: str, name: str, type: str) -> Any:  # noqa: A002
        names.append(name)
        return log_artifact(path, name=name, type=type)

    monkeypatch.setattr(run, "log_artifact", keep_name)
    result.log_to(run)
    summary = dict(run.summary)
    run.finish()

    risk = result.risk("mean", metric="mae", estimator="ips")
    assert summary["mean/mae/ips/estimate"] == risk.estimate
    assert names == ["evaluation.html", "evaluation.json"]
    assert list(tmp_path.rglob("*.wandb"))


def test_names_are_those_that_every_tracker_accepts_and_infinity_is_left_out() -> None:
    columns = {"model": ["a/b:c"], "metric": ["ndcg@10"], "low": [1.0], "high": [np.inf]}

    assert name_numbers(columns) == {"a_b_c/ndcg_at_10/low": 1.0}


def test_other_objects_are_refused(result: Evaluation) -> None:
    with pytest.raises(UsageError, match="run must be a run of MLflow or of Weights & Biases; got"):
        result.log_to(object())
