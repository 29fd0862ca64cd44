from __future__ import annotations

import math

import numpy as np
import pytest

from unskew import theory
from unskew.diagnostics.cells import Chances
from unskew.diagnostics.truth import Accuracy
from unskew.errors import BadPropensityError

RNG = np.random.default_rng(0)
TRUE = RNG.uniform(0.1, 0.9, 20_000)
ASSUMED = np.clip(TRUE * RNG.uniform(0.5, 1.5, 20_000), 0, 1)
SEEN = RNG.random(20_000) < TRUE


def split(p: np.ndarray, stands_for: float = 1.0) -> Chances:
    return Chances(p[SEEN], p[~SEEN], stands_for, is_sample=stands_for != 1)


def test_over_all_cells_by_definition() -> None:
    found = Accuracy.over_cells(split(ASSUMED), split(TRUE))

    assert found.relative_error == pytest.approx(np.mean(np.abs(ASSUMED - TRUE) / TRUE))
    assert found.bias_bound == pytest.approx(theory.bias_bound(true=TRUE, assumed=ASSUMED))
    assert not found.is_estimated


def test_the_bound_holds_for_any_loss_in_0_1() -> None:
    bound = Accuracy.over_cells(split(ASSUMED), split(TRUE)).bias_bound
    worst = (TRUE > ASSUMED).astype(float)

    for delta in (worst, 1 - worst, RNG.random(20_000)):
        assert abs(theory.ips_bias(delta, true=TRUE, assumed=ASSUMED)) <= bound


def test_from_the_log_alone_it_is_estimated() -> None:
    assumed = np.sqrt(TRUE)  # more wrong where cells are rarer
    exact = Accuracy.over_cells(split(assumed), split(TRUE))
    found = Accuracy.over_log(assumed[SEEN], TRUE[SEEN])

    assert found.is_estimated
    assert found.relative_error == pytest.approx(exact.relative_error, rel=0.05)
    assert found.bias_bound == pytest.approx(exact.bias_bound, rel=0.05)


def test_a_propensity_of_zero_has_no_bound() -> None:
    zeros = np.where(SEEN, ASSUMED, 0.0)

    assert math.isinf(Accuracy.over_cells(split(zeros), split(TRUE)).bias_bound)


def test_true_propensities_of_zero_are_refused() -> None:
    with pytest.raises(BadPropensityError, match=r"values of true are outside \(0, 1\]"):
        Accuracy.over_cells(split(ASSUMED), split(np.where(SEEN, TRUE, 0.0)))
