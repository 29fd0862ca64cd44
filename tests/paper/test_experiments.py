from __future__ import annotations

import inspect

import pytest

from unskew.paper import EXPERIMENTS


def test_experiments_have_an_order() -> None:
    ordered = sorted(EXPERIMENTS, key=lambda name: EXPERIMENTS[name].traits["order"])

    assert ordered == ["toy", "table1", "figure2", "figure3", "figure4", "table2"]


@pytest.mark.parametrize("name", ["toy", "table1", "figure2", "figure3", "figure4", "table2"])
def test_traits_agree_with_the_arguments(name: str) -> None:
    experiment = EXPERIMENTS.find(name)
    parameters = inspect.signature(experiment.target).parameters

    assert {"trials", "random_state", "track"} <= parameters.keys()
    assert parameters["trials"].default == experiment.traits["trials"]
    assert ("data" in parameters) == (experiment.traits["data"] is not None)
    assert ("panel" in parameters) == ("panels" in experiment.traits)
