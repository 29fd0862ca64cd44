from __future__ import annotations

import re

import pytest

from unskew.errors import UnknownNameError
from unskew.metrics.names import VALID, find_metric
from unskew.metrics.ranking import AreaAboveTop, Precision, StratifiedRecall
from unskew.metrics.rating import Accuracy

NAMES = [name.replace("@k", "@7") for name in VALID]


@pytest.mark.parametrize("name", NAMES)
def test_every_valid_name_finds_a_metric_that_goes_by_it(name: str) -> None:
    metric = find_metric(name)

    assert metric.name == name
    assert metric.top == (7 if "@" in name else None)
    assert metric.ranks == (name not in ("mse", "mae", "accuracy"))
    assert metric.higher_is_better == (name not in ("mse", "mae"))


def test_the_threshold_of_relevance_reaches_the_metrics_that_ask_for_it() -> None:
    assert find_metric("precision@5", relevant=4) == Precision(5, relevant=4)
    assert find_metric("atop", relevant=3.5) == AreaAboveTop(relevant=3.5)
    assert find_metric("accuracy", relevant=4) == Accuracy()


def test_a_metric_passes_through() -> None:
    metric = StratifiedRecall(5, relevant=4, beta=0.2)

    assert find_metric(metric, relevant=1) is metric


@pytest.mark.parametrize("name", ["ndcg@10", "cg", "precision", "dcg@0", "dcg@-1", "dcg@1.5", "dcg@", "mse@5", "MSE", ""])
def test_an_unknown_name_lists_the_valid_ones(name: str) -> None:
    listed = re.escape("mse, mae, accuracy, dcg, atop, dcg@k, cg@k, precision@k, recall@k, stratified_recall@k.")
    with pytest.raises(UnknownNameError, match=f"unknown metric {re.escape(repr(name))}; valid ones are: {listed}"):
        find_metric(name)
