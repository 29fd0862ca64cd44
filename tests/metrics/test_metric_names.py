from __future__ import annotations

import re
from typing import Any

import pytest

from unskew.errors import UnknownNameError, UsageError
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


@pytest.mark.parametrize(
    "name", ["ndcg@10", "cg", "precision", "dcg@0", "dcg@-1", "dcg@1.5", "dcg@", "mse@5", "MSE", ""]
)
def test_an_unknown_name_lists_the_valid_ones(name: str) -> None:
    listed = re.escape(
        "mse, mae, accuracy, dcg, atop, dcg@k, cg@k, precision@k, recall@k, stratified_recall@k."
    )
    with pytest.raises(
        UnknownNameError, match=f"unknown metric {re.escape(repr(name))}; valid ones are: {listed}"
    ):
        find_metric(name)


@pytest.mark.parametrize("k", ["2147483648", "99999999999999999999", "9" * 5000], ids=len)
def test_a_k_beyond_all_counting_is_refused(k: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"metric 'cg@.* looks at more places than can be counted; k is at most 2,147,483,647",
    ):
        find_metric(f"cg@{k}")


@pytest.mark.parametrize("relevant", [float("nan"), float("inf"), "4", [4]], ids=repr)
def test_relevance_from_no_number_on_is_refused(relevant: Any) -> None:
    with pytest.raises(
        UsageError,
        match="relevant must be the least rating that counts as relevant, such as 4; got",
    ):
        find_metric("precision@5", relevant=relevant)


@pytest.mark.parametrize("metric", [5, None, Accuracy, len], ids=repr)
def test_what_is_no_metric_is_refused(metric: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown metric .*; valid ones are: mse, mae"):
        find_metric(metric)
