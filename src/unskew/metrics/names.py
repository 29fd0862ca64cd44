"""Metrics by the names that users type: ``mse``, ``dcg@50``, ..."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from unskew.data.checks import is_finite_number
from unskew.errors import UnknownNameError, UsageError
from unskew.metrics.metric import Metric
from unskew.metrics.ranking import (
    AreaAboveTop,
    CumulativeGain,
    DiscountedGain,
    Precision,
    Recall,
    StratifiedRecall,
)
from unskew.metrics.rating import AbsoluteError, Accuracy, SquaredError

PLAIN: Mapping[str, Callable[[float | None], Metric]] = {
    "mse": lambda _: SquaredError(),
    "mae": lambda _: AbsoluteError(),
    "accuracy": lambda _: Accuracy(),
    "dcg": lambda _: DiscountedGain(),
    "atop": AreaAboveTop,
}
AT_TOP: Mapping[str, Callable[[int, float | None], Metric]] = {
    "dcg": lambda top, _: DiscountedGain(top),
    "cg": lambda top, _: CumulativeGain(top),
    "precision": Precision,
    "recall": Recall,
    "stratified_recall": StratifiedRecall,
}
LARGEST_TOP = 2**31 - 1
VALID = (*PLAIN, *(f"{name}@k" for name in AT_TOP))


def find_metric(name: str | Metric, *, relevant: float | None = None) -> Metric:
    """The metric of that name, ratings of ``relevant`` and more being the relevant ones; a metric passes through."""
    if not (relevant is None or is_finite_number(relevant)):
        raise UsageError(
            f"relevant must be the least rating that counts as relevant, such as 4; got {relevant!r}."
        )
    if not isinstance(name, str):
        return _own(name)
    if name in PLAIN:
        return PLAIN[name](relevant)
    split = re.fullmatch(r"(\w+)@([1-9]\d*)", name)
    if split is None or split[1] not in AT_TOP:
        raise UnknownNameError("metric", name, VALID)
    if len(split[2]) > 10 or int(split[2]) > LARGEST_TOP:
        raise UsageError(
            f"metric {name[:40]!r} looks at more places than can be counted; k is at most {LARGEST_TOP:,}."
        )
    return AT_TOP[split[1]](int(split[2]), relevant)


def _own(metric: Metric) -> Metric:
    """A metric of the caller's, which has at least a name and can be called."""
    if isinstance(metric, type) or not (callable(metric) and hasattr(metric, "name")):
        raise UnknownNameError("metric", metric, VALID)
    return metric
