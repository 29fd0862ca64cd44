"""A small log in every format, and what goes with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from unskew.data.ratings import Ratings
from unskew.io.files import write_table
from unskew.paper import EXPERIMENTS
from unskew.paper.reproduction import Reproduction

ReplaceExperiment: TypeAlias = Callable[[str, Callable[..., Reproduction]], None]
FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``log.*``, ``random.csv``, ``users.csv``, ``items.csv``, and predictions of two models."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    truth = np.clip(np.round(rng.normal(3, 1.2, (60, 80))), 1, 5)
    chance = np.where(truth >= 4, 0.6, 0.3)
    log = Ratings.from_dense(np.where(rng.random(truth.shape) < chance, truth, 0))
    columns = {
        "user_id": log.users[log.user].tolist(),
        "item_id": [f"film {item}" for item in log.items[log.item].tolist()],
        "rating": log.rating.astype(int).tolist(),
        "propensity": chance[log.user, log.item].tolist(),
        "old": (log.rating + rng.normal(0, 1, len(log))).round(3).tolist(),
        "new": (log.rating + rng.normal(0, 0.5, len(log))).round(3).tolist(),
        "half": ["a" if user % 2 else "b" for user in log.user.tolist()],
    }
    for form in FORMATS:
        write_table(columns, str(folder / f"log.{form}"))
    order = rng.permutation(len(log))
    for name in ("old", "new"):
        shuffled = {key: [columns[key][row] for row in order] for key in ("user_id", "item_id")}
        write_table(
            shuffled | {"prediction": [columns[name][row] for row in order]},
            str(folder / f"{name}.jsonl"),
        )
    write_table(
        {"rating": truth.ravel()[rng.integers(0, truth.size, 500)].tolist()},
        str(folder / "random.csv"),
    )
    users, items = np.unique(columns["user_id"]).tolist(), np.unique(columns["item_id"]).tolist()
    write_table(
        {"user_id": users, "age": rng.integers(18, 80, len(users)).tolist()},
        str(folder / "users.csv"),
    )
    write_table(
        {"item_id": items, "kind": rng.choice(["drama", "comedy"], len(items)).tolist()},
        str(folder / "items.csv"),
    )
    return folder


@pytest.fixture
def replace_experiment(monkeypatch: pytest.MonkeyPatch) -> ReplaceExperiment:
    """A function that puts another function in place of a declared experiment."""

    def replace_target(name: str, target: Callable[..., Reproduction]) -> None:
        declaration = replace(EXPERIMENTS.find(name), target=target)
        monkeypatch.setitem(EXPERIMENTS._declarations, name, declaration)

    return replace_target
