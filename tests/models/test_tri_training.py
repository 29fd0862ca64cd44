from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unskew
from unskew.data.factors import Factors
from unskew.errors import UsageError
from unskew.io.model_files import read_model
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


def test_where_two_models_agree_everywhere_the_third_is_a_factorisation_of_theirs() -> None:
    """Hardly any penalty, as many factors: A0 becomes A1, whatever the log's weights."""
    offsets = MatrixFactorization(0, 1e-9, tol=1e-13)
    model = TriTraining(offsets, epsilon=1.0, candidates=1e9, n_rounds=3, n_steps=50).fit(LOG, P)

    twin = MatrixFactorization(0, 1e-9, tol=1e-13).fit(LOG, P)

    assert model.agreed_ == (1.0, 1.0, 1.0)
    np.testing.assert_allclose(dense(model.factors_), dense(twin.factors_), atol=1e-3)


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
