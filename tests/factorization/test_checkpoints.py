"""A checkpoint belongs to one fit: its log, users and items, settings and start."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.factorization import solution
from unskew.factorization.checkpoints import save_state
from unskew.models import balanced, doubly_robust, tri_training
from unskew.models.all_rank import AllRank
from unskew.models.balanced import IPSV2, StableDR
from unskew.models.doubly_robust import DRV2, EIB, TDR, DoublyRobustFactorization
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.models.ordinal import OrdinalFactorization
from unskew.models.tri_training import TriTraining

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

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
        DoublyRobustFactorization(2, max_iter=4, tol=0.0),
        StableDR(2, max_iter=4, tol=0.0),
        TriTraining(MatrixFactorization(2, 5.0, max_iter=4), n_rounds=1, epsilon=2.0),
    ],
    ids=lambda model: type(model).__name__,
)


def log_of(n_users: int, n_items: int) -> Ratings:
    return Ratings.from_arrays(USER, ITEM, RATING, users=range(n_users), items=range(n_items))


@each_model
def test_a_checkpoint_of_other_users_and_items_is_refused(model: Any, tmp_path: Path) -> None:
    saved = {"checkpoint": tmp_path / "state", "checkpoint_every": 2}
    model.fit(log_of(37, 25), np.full(200, 0.2), **saved)

    with pytest.raises(UsageError, match="belongs to another log"):
        model.fit(log_of(30, 20), np.full(200, 0.2), **saved)


@each_model
def test_the_number_of_steps_between_writes_is_checked(model: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="checkpoint_every must be a whole number, at least 1"):
        model.fit(
            log_of(30, 20), np.full(200, 0.2), checkpoint=tmp_path / "state", checkpoint_every=0
        )


@pytest.mark.parametrize("kind", [MatrixFactorization, AllRank])
def test_a_checkpoint_of_another_start_is_refused(kind: Any, tmp_path: Path) -> None:
    log = log_of(30, 20)
    start = kind(2, random_state=5).fit(log).factors_
    kind(2, max_iter=4, tol=0.0).fit(log, checkpoint=tmp_path / "state", checkpoint_every=2)

    with pytest.raises(UsageError, match="belongs to another log"):
        kind(2, max_iter=6, tol=0.0).fit(log, checkpoint=tmp_path / "state", initial_factors=start)


def test_a_model_file_is_not_a_checkpoint(tmp_path: Path) -> None:
    MatrixFactorization(2).fit(log_of(30, 20)).save(tmp_path / "model.unskew")

    with pytest.raises(UsageError, match="is not a checkpoint"):
        MatrixFactorization(2).fit(log_of(30, 20), checkpoint=tmp_path / "model.unskew")


class KilledError(Exception):
    """Stands for the signal that kills a process."""


PROPENSITIES = np.full((30, 20), 1 / 3)
ROBUST: list[Any] = [
    DoublyRobustFactorization(2, max_iter=7, tol=0.0),
    DoublyRobustFactorization(2, imputation="error", max_iter=7, tol=0.0, dtype="float32"),
    DoublyRobustFactorization(
        2, imputation="error", loss="absolute", n_rounds=2, max_iter=15, tol=0.0
    ),
    EIB(2, max_iter=7, tol=0.0),
    TDR(2, max_iter=7, tol=0.0),
    DRV2(2, offsets="none", max_iter=7, tol=0.0),
]


def kill_after(n_saves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise ``KilledError`` once ``n_saves`` states have been written."""
    left = [n_saves]

    def save(*args: Any) -> None:
        save_state(*args)
        left[0] -= 1
        if left[0] == 0:
            raise KilledError

    monkeypatch.setattr(solution, "save_state", save)
    for module in (balanced, doubly_robust, tri_training):
        monkeypatch.setattr(module, "save_state", save)


@pytest.mark.parametrize("n_saves", [1, 2, 4, 5, 8])
@pytest.mark.parametrize(
    "model", ROBUST, ids=lambda model: f"{type(model).__name__}-{model.imputation}-{model.loss}"
)
def test_killed_rounds_continue_to_the_same_bits(
    model: Any, n_saves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, path = log_of(30, 20), tmp_path / "state"
    straight = copy(model).fit(log, PROPENSITIES)
    with monkeypatch.context() as patch, suppress(KilledError):
        kill_after(n_saves, patch)
        copy(model).fit(log, PROPENSITIES, checkpoint=path, checkpoint_every=2)

    resumed = copy(model).fit(log, PROPENSITIES, checkpoint=path, checkpoint_every=2)

    assert (resumed.history_, resumed.risk_, resumed.fallback_) == (
        straight.history_,
        straight.risk_,
        straight.fallback_,
    )
    assert resumed.converged_ == straight.converged_
    for name in ("user_factors", "item_factors", "user_offset", "item_offset"):
        assert np.array_equal(getattr(resumed.factors_, name), getattr(straight.factors_, name))
        assert np.array_equal(getattr(resumed.imputed_, name), getattr(straight.imputed_, name))
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("n_saves", [1, 3, 4, 6, 7])
@pytest.mark.parametrize(
    "model",
    [
        IPSV2(2, l2=5.0, n_rounds=2, max_iter=5, tol=0.0, dtype="float32"),
        StableDR(2, n_rounds=2, max_iter=5, tol=0.0, imputer=MatrixFactorization(1, 5.0)),
    ],
    ids=["IPS-V2", "StableDR"],
)
def test_killed_rounds_of_balancing_continue_to_the_same_bits(
    model: Any, n_saves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two states are written within each fit, and one after it."""
    log, path = log_of(30, 20), tmp_path / "state"
    straight = copy(model).fit(log, PROPENSITIES)
    with monkeypatch.context() as patch, suppress(KilledError):
        kill_after(n_saves, patch)
        copy(model).fit(log, PROPENSITIES, checkpoint=path, checkpoint_every=2)
    assert any(tmp_path.iterdir())

    resumed = copy(model).fit(log, PROPENSITIES, checkpoint=path, checkpoint_every=2)

    assert resumed.history_ == straight.history_
    assert resumed.penalty_ == straight.penalty_
    assert np.array_equal(resumed.propensities_, straight.propensities_)
    for name in ("user_factors", "item_factors", "user_offset", "item_offset"):
        assert np.array_equal(getattr(resumed.factors_, name), getattr(straight.factors_, name))
    if model.balances == "imputed_losses":
        assert np.array_equal(resumed.imputed_.item_factors, straight.imputed_.item_factors)
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("n_saves", [1, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_killed_tri_training_continues_to_the_same_bits(
    n_saves: int, dtype: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two states are written within each of two fits, one after them, and one in each round."""
    part = MatrixFactorization(2, 5.0, max_iter=5, tol=0.0, dtype=dtype)
    model = TriTraining(part, n_rounds=3, epsilon=2.0, candidates=1.0)
    log, path = log_of(30, 20), tmp_path / "state"
    straight = copy(model).fit(log, PROPENSITIES)
    with monkeypatch.context() as patch, suppress(KilledError):
        kill_after(n_saves, patch)
        copy(model).fit(log, PROPENSITIES, checkpoint=path, checkpoint_every=2)

    resumed = copy(model).fit(log, PROPENSITIES, checkpoint=path, checkpoint_every=2)

    assert resumed.agreed_ == straight.agreed_
    for name in ("user_factors", "item_factors", "user_offset", "item_offset"):
        assert np.array_equal(getattr(resumed.factors_, name), getattr(straight.factors_, name))
    assert [each.name for each in tmp_path.iterdir()] == ["state"]
    with pytest.raises(UsageError, match="belongs to another log"):
        copy(model).set_params(epsilon=1.0).fit(log, PROPENSITIES, checkpoint=path)


def test_finished_rounds_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, model = log_of(30, 20), DRV2(2, max_iter=3, tol=0.0)
    first = copy(model).fit(log, PROPENSITIES, checkpoint=tmp_path / "state")
    monkeypatch.setattr(DoublyRobustFactorization, "_run_round", None)

    assert (
        copy(model).fit(log, PROPENSITIES, checkpoint=tmp_path / "state").history_ == first.history_
    )


@pytest.mark.parametrize("kind", [DRV2, StableDR], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("changed", [{"max_iter": 9}, {"tol": 0.1}, {"n_rounds": 2}, {"l2": 2.0}])
def test_a_checkpoint_of_other_settings_is_refused(
    kind: Any, changed: dict[str, Any], tmp_path: Path
) -> None:
    """`max_iter` and `tol` change where the next round starts."""
    log, model = log_of(30, 20), kind(2, max_iter=3, tol=0.0)
    copy(model).fit(log, PROPENSITIES, checkpoint=tmp_path / "state")

    with pytest.raises(UsageError, match="belongs to another log"):
        copy(model).set_params(**changed).fit(log, PROPENSITIES, checkpoint=tmp_path / "state")


def test_a_checkpoint_of_other_targeted_weights_is_refused(tmp_path: Path) -> None:
    """They depend on the propensities of all cells, not only on those of the log."""
    log, model = log_of(30, 20), TDR(2, max_iter=3, tol=0.0)
    copy(model).fit(log, PROPENSITIES, checkpoint=tmp_path / "state")
    others = PROPENSITIES * 0.5
    others[log.user, log.item] = PROPENSITIES[log.user, log.item]

    with pytest.raises(UsageError, match="belongs to another log"):
        copy(model).fit(log, others, checkpoint=tmp_path / "state")


# Files that were altered


def damage(path: Path, change: Any) -> None:
    """Rewrite a checkpoint after ``change`` of its arrays."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    change(arrays)
    with path.open("wb") as file:
        np.savez(file, **arrays)


def cut(name: str) -> Any:
    return lambda arrays: arrays.update({name: arrays[name][:1]})


def fill(name: str, value: float) -> Any:
    return lambda arrays: arrays.update({name: np.full_like(arrays[name], value)})


def convert(name: str, dtype: Any) -> Any:
    return lambda arrays: arrays.update({name: arrays[name].astype(dtype)})


ITEM_FACTORS = "state.parameters.item_factors"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (cut(ITEM_FACTORS), r"item_factors has the shape \(1, 2\), not \(20, 2\)"),
        (cut("state.previous.factors"), r"previous\.factors has the shape \(1, 2\)"),
        (cut("state.parameters.item_offset"), r"item_offset has the shape \(1,\), not \(20,\)"),
        (fill(ITEM_FACTORS, np.nan), "item_factors has numbers that are not finite"),
        (fill(ITEM_FACTORS, np.inf), "item_factors has numbers that are not finite"),
        (fill("state.value", np.nan), r"state\.value has numbers that are not finite"),
        (fill("history", np.nan), "history has numbers that are not finite"),
        (convert(ITEM_FACTORS, np.float32), "item_factors has the type float32, not float64"),
        (convert(ITEM_FACTORS, complex), "item_factors has the type complex128"),
        (convert(ITEM_FACTORS, "U8"), "item_factors has the type <U8"),
        (convert("state.momentum", "U8"), "momentum has the type <U8"),
        (lambda arrays: arrays.pop(ITEM_FACTORS), "is not a checkpoint"),
        (lambda arrays: arrays.pop("history"), "is not a checkpoint"),
    ],
)
def test_a_checkpoint_that_was_altered_is_refused(
    tmp_path: Path, change: Any, message: str
) -> None:
    path = tmp_path / "state"
    log, model = log_of(30, 20), MatrixFactorization(2, max_iter=4, tol=0.0)
    model.fit(log, np.full(200, 0.2), checkpoint=path, checkpoint_every=2)
    damage(path, change)

    with pytest.raises(UsageError, match=message):
        model.fit(log, np.full(200, 0.2), checkpoint=path, checkpoint_every=2)


@each_model
def test_every_array_of_a_checkpoint_is_checked(model: Any, tmp_path: Path) -> None:
    log, path = log_of(30, 20), tmp_path / "state"
    model.fit(log, np.full(200, 0.2), checkpoint=path, checkpoint_every=2)
    path = next(each for each in (path, *tmp_path.iterdir()) if each.exists())
    whole = path.read_bytes()
    with np.load(path, allow_pickle=False) as stored:
        names = [name for name in stored if stored[name].ndim and stored[name].dtype.kind == "f"]
    for name in names:
        for change in (fill(name, np.nan), convert(name, complex)):
            path.write_bytes(whole)
            damage(path, change)
            with pytest.raises(UsageError, match=r"cannot be read|is not a checkpoint"):
                model.fit(log, np.full(200, 0.2), checkpoint=tmp_path / "state", checkpoint_every=2)


def test_a_compressed_checkpoint_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state"
    log, model = log_of(30, 20), MatrixFactorization(2, max_iter=4, tol=0.0)
    model.fit(log, np.full(200, 0.2), checkpoint=path, checkpoint_every=2)
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    arrays[ITEM_FACTORS] = np.zeros((1 << 22, 2))
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)

    with pytest.raises(UsageError, match=r"is compressed, to unpack to [\d,]+ bytes"):
        model.fit(log, np.full(200, 0.2), checkpoint=path, checkpoint_every=2)
