"""Results in an experiment tracker: numbers as metrics, the page and the JSON as files."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

from unskew.errors import UsageError

FOLDER = "unskew"
"""The folder (MLflow) or the type (Weights & Biases) of the artifacts of a result."""


def log_numbers(
    run: Any, columns: Mapping[str, Any], write_files: Callable[[Path], list[Path]]
) -> None:
    """Log a table to a run of MLflow or Weights & Biases, and files as artifacts.

    ``write_files`` writes the files into a folder and returns their paths.
    """
    log_metrics, log_file = _find_tracker(run)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder))
        log_metrics(name_numbers(columns))
        for path in paths:
            log_file(path)


def name_numbers(columns: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a table, each named by the texts of its row and by its column.

    >>> name_numbers({"model": ["svd"], "metric": ["ndcg@10"], "estimate": [0.5]})
    {'svd/ndcg_at_10/estimate': 0.5}
    """
    named = {}
    for row in zip(*columns.values(), strict=True):
        cells = dict(zip(columns, row, strict=True))
        words = [_clean_name(str(value)) for value in cells.values() if isinstance(value, str)]
        for column, value in cells.items():
            if isinstance(value, Real) and math.isfinite(value):
                named["/".join([*words, _clean_name(column)])] = float(value)
    return named


def _clean_name(name: str) -> str:
    """The name with only those characters that all trackers accept."""
    return re.sub(r"[^\w. -]", "_", name.replace("@", "_at_"))


def _find_tracker(
    run: Any,
) -> tuple[Callable[[dict[str, float]], object], Callable[[Path], object]]:
    """The functions of the run that log metrics and a file."""
    library = (getattr(run, "__name__", None) or type(run).__module__).partition(".")[0]
    if library == "wandb" and hasattr(run, "log"):
        return run.log, lambda path: run.log_artifact(str(path), name=path.name, type=FOLDER)
    if library == "mlflow":
        return _open_mlflow(run)
    raise UsageError(
        f"`run` must be a run of MLflow or of Weights & Biases; got {type(run).__name__}.",
        parameter="run",
        remedy="Pass mlflow.active_run(), the module mlflow itself, or what wandb.init() returns.",
    )


def _open_mlflow(
    run: Any,
) -> tuple[Callable[[dict[str, float]], object], Callable[[Path], object]]:
    from mlflow import MlflowClient, active_run

    current = active_run() if hasattr(run, "active_run") else run
    if current is None:
        raise UsageError(
            "MLflow has no active run.",
            parameter="run",
            remedy="Call it inside `with mlflow.start_run():`.",
        )
    client, run_id = MlflowClient(), current.info.run_id

    def log_metrics(numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            client.log_metric(run_id, name, value)

    return log_metrics, lambda path: client.log_artifact(run_id, str(path), FOLDER)
