from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from unskew.data.factors import Factors
from unskew.errors import UsageError
from unskew.io.model_files import read_model
from unskew.models import tri_training
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.tri_training import TriTraining

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.ConvergenceWarning")

WORLD = unskew.simulate(n_users=40, n_items=30, density=0.25, alpha=0.5, random_state=5)
LOG, P = WORLD.log, WORLD.propensities


def dense(found: Factors) -> np.ndarray:
    product = found.user_factors @ found.item_factors.T
    return product + found.user_offset[:, None] + found.item_offset + found.global_offset


def test_labelled_cells_are_those_agreed_on_and_have_the_first_model_s_label() -> None:
    first, second = (
        MatrixFactorization(3, 1.0, random_state=seed, max_iter=2).fit(LOG, P).factors_
        for seed in (0, 1)
    )
    gap = np.abs(dense(first) - dense(second))
    model = TriTraining(epsilon=float(np.median(gap)), candidates=1e9)

    labelled, share = model._label_cells(LOG, first, second, np.random.default_rng(0))

    assert share == pytest.approx(0.5, abs=0.01)
    assert (gap[labelled.user, labelled.item] <= model.epsilon).all()
    assert len(labelled) == (gap <= model.epsilon).sum()
    np.testing.assert_allclose(labelled.rating, dense(first)[labelled.user, labelled.item])


def test_where_two_models_agree_everywhere_the_third_is_a_factorisation_of_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hardly any penalty, as many factors: A0 becomes A1, whatever the log's weights."""
    monkeypatch.setattr(tri_training, "LEAST_GAIN", 0.0)
    monkeypatch.setattr(tri_training, "TOL_OF_STARTS", 0.0)
    offsets = MatrixFactorization(0, 1e-9, tol=1e-13)
    model = TriTraining(offsets, epsilon=1.0, candidates=1e9, n_rounds=3, n_steps=50).fit(LOG, P)

    twin = MatrixFactorization(0, 1e-9, tol=1e-13).fit(LOG, P)

    assert set(model.agreed_) == {1.0}
    np.testing.assert_allclose(dense(model.factors_), dense(twin.factors_), atol=1e-3)


def test_cells_are_drawn_independently_with_the_same_probability() -> None:
    model, rng = TriTraining(candidates=1.2), np.random.default_rng(0)

    draws = [model._draw_cells(LOG, rng) for _ in range(2000)]

    share = 1.2 * len(LOG) / LOG.n_cells
    drawn = np.bincount(np.concatenate(draws), minlength=LOG.n_cells) / len(draws)
    assert all((np.diff(cells) > 0).all() for cells in draws)
    assert drawn.mean() == pytest.approx(share, rel=0.005)
    assert np.abs(drawn - share).max() < 5 * np.sqrt(share * (1 - share) / len(draws))
    sizes = np.array([cells.size for cells in draws])
    assert sizes.std() == pytest.approx(np.sqrt(share * (1 - share) * LOG.n_cells), rel=0.1)


def test_rounds_end_when_they_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"n_rounds": 6, "candidates": 1e9, "epsilon": 10.0, "n_steps": 300}
    model = MatrixFactorization(0, 1.0)
    early = TriTraining(model, **settings).fit(LOG, P)
    monkeypatch.setattr(tri_training, "LEAST_GAIN", 0.0)
    late = TriTraining(model, **settings).fit(LOG, P)

    assert len(early.agreed_) < len(late.agreed_) == 6
    assert np.sqrt(np.mean((dense(early.factors_) - dense(late.factors_)) ** 2)) < 0.1


def test_seeds_threads_and_files(tmp_path: Path) -> None:
    fits = [
        TriTraining(MatrixFactorization(3, 5.0), n_rounds=2, n_threads=n).fit(LOG, P)
        for n in (1, 2)
    ]
    other = TriTraining(MatrixFactorization(3, 5.0), n_rounds=2, random_state=9).fit(LOG, P)

    assert np.array_equal(dense(fits[0].factors_), dense(fits[1].factors_))
    assert not np.array_equal(dense(fits[0].factors_), dense(other.factors_))
    fits[0].save(tmp_path / "model")
    again: Any = read_model(
        tmp_path / "model", {kind.__name__: kind for kind in (TriTraining, MatrixFactorization)}
    )
    assert again.agreed_ == fits[0].agreed_
    assert np.array_equal(dense(again.factors_), dense(fits[0].factors_))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number, above 0"),
        ({"candidates": -1.0}, "candidates must be a finite number, above 0"),
        ({"n_rounds": 0}, "n_rounds must be a whole number"),
        ({"epsilon": 1e-300}, "agree within epsilon=1e-300 on none of"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        TriTraining(MatrixFactorization(3, 0.1, max_iter=2), **settings).fit(LOG, P)


def test_a_single_step_does_not_end_the_rounds() -> None:
    """Nothing is known of what one step gains, so no round is the last one because of it."""
    model = TriTraining(
        MatrixFactorization(2, 5.0, loss="absolute", solver="reduced"), n_rounds=3
    ).fit(LOG, P)

    assert len(model.agreed_) == 3
