"""A checkpoint belongs to one run: its log, its users and items, its settings and its start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.models.all_rank import AllRank
from unskew.models.factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.models.ordinal import OrdinalFactorization

RNG = np.random.default_rng(0)
USER, ITEM = np.divmod(RNG.choice(600, 200, replace=False), 20)
RATING = RNG.integers(1, 6, 200).astype(float)
each_model = pytest.mark.parametrize(
    "model",
    [
        MatrixFactorization(2, max_iter=4, tol=0.0),
        AllRank(2, max_iter=4, tol=0.0),
        OrdinalFactorization(2, mechanism="mnar", max_iter=4, tol=0.0),
        MultinomialMixture("cpt-v", 2, max_iter=4),
    ],
    ids=lambda model: type(model).__name__,
)


def log_of(n_users: int, n_items: int) -> Ratings:
    return Ratings.from_arrays(USER, ITEM, RATING, users=range(n_users), items=range(n_items))


@each_model
def test_that_of_other_users_and_items_is_refused(model: Any, tmp_path: Path) -> None:
    saved = {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
    model.fit(log_of(37, 25), np.full(200, 0.2), **saved)

    with pytest.raises(UsageError, match="belongs to another log"):
        model.fit(log_of(30, 20), np.full(200, 0.2), **saved)


@each_model
def test_it_is_written_after_whole_steps(model: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="checkpoint_every must be a whole number, at least 1"):
        model.fit(log_of(30, 20), np.full(200, 0.2), checkpoint=tmp_path / "state", checkpoint_every=0)


@pytest.mark.parametrize("kind", [MatrixFactorization, AllRank])
def test_another_start_is_another_run(kind: Any, tmp_path: Path) -> None:
    log = log_of(30, 20)
    start = kind(2, random_state=5).fit(log).parameters_
    kind(2, max_iter=4, tol=0.0).fit(log, checkpoint=tmp_path / "state", checkpoint_every=2)

    with pytest.raises(UsageError, match="belongs to another log"):
        kind(2, max_iter=6, tol=0.0).fit(log, checkpoint=tmp_path / "state", warm_start=start)


def test_a_model_is_no_checkpoint(tmp_path: Path) -> None:
    MatrixFactorization(2).fit(log_of(30, 20)).save(tmp_path / "model.unskew")

    with pytest.raises(UsageError, match="is no checkpoint, but another kind of file"):
        MatrixFactorization(2).fit(log_of(30, 20), checkpoint=tmp_path / "model.unskew")
