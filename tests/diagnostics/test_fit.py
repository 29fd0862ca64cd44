from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from unskew.diagnostics.cells import Chances
from unskew.diagnostics.fit import Fit

RNG = np.random.default_rng(0)
P = RNG.beta(0.6, 6, 3000)
SEEN = RNG.random(3000) < P
FIT = Fit.of(Chances(P[SEEN], P[~SEEN], 1.0, is_sample=False), floor=0.001)


def test_scores_are_scikit_learns() -> None:
    assert FIT.log_loss == pytest.approx(log_loss(SEEN, P))
    assert FIT.brier == pytest.approx(brier_score_loss(SEEN, P))
    assert (FIT.log_loss_error, FIT.brier_error, FIT.mass_error) == (None, None, None)


def test_mass_and_reach_by_their_definitions() -> None:
    assert FIT.mass == pytest.approx(P.sum())
    assert FIT.mass_ratio == pytest.approx(P.sum() / SEEN.sum())
    assert FIT.share_below == pytest.approx((P < 0.001).mean())
    assert FIT.smallest == P.min()


def test_a_sample_weighs_unobserved_cells_as_scikit_learn_does() -> None:
    weight = np.where(SEEN, 1.0, 7.5)
    found = Fit.of(Chances(P[SEEN], P[~SEEN], 7.5, is_sample=True), floor=0.001)

    assert found.log_loss == pytest.approx(
        log_loss(SEEN, P, sample_weight=weight), rel=1e-3
    )  # n_cells is a whole number
    assert found.brier == pytest.approx(brier_score_loss(SEEN, P, sample_weight=weight), rel=1e-3)
    assert found.log_loss_error is not None
    assert found.log_loss_error > 0


def test_a_certain_cell_that_was_not_observed() -> None:
    found = Fit.of(
        Chances(np.array([0.5, 1.0]), np.array([0.0, 1.0]), 1.0, is_sample=False), floor=0.001
    )

    assert found.log_loss == np.inf
    assert "some unobserved cells have a propensity of 1" in " ".join(found.warning_texts())


def test_too_much_and_too_little_mass() -> None:
    doubled = Fit.of(Chances(np.full(10, 0.2), np.full(90, 0.2), 1.0, is_sample=False), floor=0.01)
    (complaint,) = doubled.warning_texts()

    assert complaint.startswith(
        "the propensities of all cells add up to 20, but 10 cells were observed (+100%)"
    )


def test_cells_with_next_to_no_chance() -> None:
    found = Fit.of(
        Chances(np.full(10, 0.9), np.r_[np.full(10, 0.1), np.full(5, 1e-4)], 1.0, is_sample=False),
        floor=0.01,
    )
    (complaint,) = found.warning_texts()

    assert complaint.startswith("20.0% of all cells have a propensity below 0.01")
    assert found.smallest == 1e-4
