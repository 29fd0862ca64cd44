from __future__ import annotations

import re
from typing import Any

import pytest

from unskew.errors import UnknownNameError, UsageError
from unskew.metrics import METRICS
from unskew.metrics.metric import find_metric, metric_label, metric_names
from unskew.metrics.ranking import AreaAboveTop, Precision, StratifiedRecall
from unskew.metrics.rating import Accuracy

RATING, LOGGED = ("mse", "rmse", "mae", "accuracy"), "logged_"
NAMES = [name.replace("@k", "@7") for name in metric_names()]


@pytest.mark.parametrize("name", NAMES)
def test_every_valid_name_finds_a_metric_that_goes_by_it(name: str) -> None:
    metric = find_metric(name)

    assert metric.name == name
    assert metric.top == (7 if "@" in name else None)
    assert metric.ranks == (name not in RATING and not name.startswith(LOGGED))
    assert metric.higher_is_better == (name not in ("mse", "rmse", "mae"))


def test_the_threshold_of_relevance_reaches_the_metrics_that_ask_for_it() -> None:
    assert find_metric("precision@5", relevance_threshold=4) == Precision(5, relevance_threshold=4)
    assert find_metric("atop", relevance_threshold=3.5) == AreaAboveTop(relevance_threshold=3.5)
    assert find_metric("accuracy", relevance_threshold=4) == Accuracy()


def test_a_metric_passes_through() -> None:
    metric = StratifiedRecall(5, relevance_threshold=4, beta=0.2)

    assert find_metric(metric, relevance_threshold=1) is metric


@pytest.mark.parametrize(
    "name", ["hit_rate", "cg", "precision", "dcg@0", "dcg@-1", "dcg@1.5", "dcg@", "mse@5", ""]
)
def test_an_unknown_name_lists_the_valid_ones(name: str) -> None:
    names = re.escape("dcg, dcg@k, cg@k, precision@k, recall@k, stratified_recall@k, atop")
    with pytest.raises(
        UnknownNameError,
        match=f"unknown metric {re.escape(repr(name))}; valid names are: .*{names}",
    ):
        find_metric(name)


def test_every_metric_is_declared_with_a_label_and_a_summary() -> None:
    assert set(metric_names()) >= {"mse", "mae", "accuracy", "dcg@k", "ndcg@k", "ndcg", "auc"}
    for declaration in METRICS.values():
        assert declaration.summary.endswith(".")
        assert metric_label(f"{declaration.name}@3") == f"{declaration.label}@3"
    assert metric_label("a metric of the caller") == "a metric of the caller"


@pytest.mark.parametrize("k", ["2147483648", "99999999999999999999", "9" * 5000], ids=len)
def test_a_k_beyond_all_counting_is_refused(k: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"metric 'cg@.* has too large a number of positions\. .* is 2,147,483,647",
    ):
        find_metric(f"cg@{k}")


@pytest.mark.parametrize("relevant", [float("nan"), float("inf"), "4", [4]], ids=repr)
def test_relevance_from_no_number_on_is_refused(relevant: Any) -> None:
    with pytest.raises(
        UsageError,
        match="relevance_threshold must be the least rating that counts as relevant, such as 4;",
    ):
        find_metric("precision@5", relevance_threshold=relevant)


@pytest.mark.parametrize("metric", [5, None, Accuracy, len], ids=repr)
def test_what_is_no_metric_is_refused(metric: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown metric .*; valid names are: .*mse, mae"):
        find_metric(metric)
