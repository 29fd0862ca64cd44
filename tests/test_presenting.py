from __future__ import annotations

import sys

import numpy as np
import pytest

from unskew import evaluate, simulate
from unskew.errors import MissingExtraError
from unskew.presenting import drawing

WORLD = simulate(20, 20, density=0.3, alpha=0.6, random_state=1)


@pytest.mark.parametrize("name", ["evaluation", "sensitivity", "diagnosis"])
def test_drawings_are_loaded_by_name(name: str) -> None:
    assert drawing(name).__module__ == f"unskew.report.{name}"


def test_without_matplotlib_the_way_to_get_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    result = evaluate(WORLD.log, np.full(len(WORLD.log), 3.0), propensities=WORLD.propensities)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    with pytest.raises(
        MissingExtraError,
        match=r"drawing figures needs matplotlib, .*pip install 'unskew\[report\]'",
    ):
        result.plot()
