"""Numbers and names as a reader without the library would say them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from unskew.tables import count_noun

METRICS = {
    "mae": "mean absolute error",
    "mse": "mean squared error",
    "accuracy": "accuracy",
    "dcg": "discounted cumulative gain",
    "cg": "cumulative gain",
    "precision": "precision",
    "recall": "recall",
    "stratified_recall": "stratified recall",
    "atop": "area under the recall curve",
}
ESTIMATORS = {
    "naive": "Naive",
    "ips": "IPS",
    "snips": "SNIPS",
    "user_normalized": "SNIPS by user",
    "item_normalized": "SNIPS by item",
    "eib": "Imputed",
    "dr": "Doubly robust",
}
MEANINGS = {
    "naive": "Naive is the plain average over the log, as if people rated at random.",
    "ips": "IPS counts each rating 1/P times, P being how likely it was to be logged.",
    "snips": "SNIPS is IPS over the sum of its weights, which is steadier.",
    "user_normalized": "SNIPS by user does so within each user.",
    "item_normalized": "SNIPS by item does so within each item.",
    "eib": "Imputed fills in what was not logged by a model of the ratings.",
    "dr": "Doubly robust imputes, and weights only what imputation got wrong.",
}
PREFERRED = ("dr", "snips", "user_normalized", "item_normalized", "ips", "eib")
"""Which estimator speaks in the headline, if it is there."""
NAIVE = "naive"


def metric_name(name: str) -> str:
    """Short, for axes and tables.

    >>> metric_name("dcg@50")
    'DCG@50'
    """
    stem, at, top = name.partition("@")
    short = stem.upper() if stem in ("mae", "mse", "dcg", "cg") else stem.replace("_", " ")
    return f"{short}{at}{top}"


def metric_in_words(name: str) -> str:
    """In full.

    >>> metric_in_words("dcg@50")
    'discounted cumulative gain of the top 50'
    """
    stem, _, top = name.partition("@")
    return METRICS.get(stem, name) + (f" of the top {top}" if top and stem in METRICS else "")


def estimator_name(name: str) -> str:
    """As a reader sees it."""
    return ESTIMATORS.get(name, name)


def decimals_for(spread: float) -> int:
    """Enough to see that much of a difference.

    >>> [decimals_for(spread) for spread in (3.0, 0.09, 0.008, 0.0)]
    [1, 2, 3, 3]
    """
    if not (math.isfinite(spread) and spread > 0):
        return 3
    return min(max(math.ceil(-math.log10(spread)), 1 if spread > 1 else 2), 6)


def number(value: float | None, decimals: int = 3, *, signed: bool = False) -> str:
    """With a real minus sign and thousands apart.

    >>> number(-1234.5, 1), number(0.25, 2, signed=True), number(-0.001, 2), number(None)
    ('−1,234.5', '+0.25', '0.00', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if round(value, decimals) == 0:
        return f"{0:.{decimals}f}"
    return f"{value:{'+' if signed else ''},.{decimals}f}".replace("-", "−")


def brief(value: float | None) -> str:
    """Three significant digits.

    >>> [brief(value) for value in (12345.6, 3.14159, 0.01234, 1e-7, 0.0)]
    ['12,346', '3.14', '0.0123', '1e-07', '0']
    """
    if value is None or not math.isfinite(value):
        return "–"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}").replace(
        "-", "−" if abs(value) >= 1e-4 else "-"
    )


def decimals_of(rows: Iterable[Mapping[str, Any]]) -> int:
    """As many as the sharpest interval of a chart calls for, at most 3: numbers below one another are alike."""
    return min(
        max((decimals_for((row["ci_high"] - row["ci_low"]) / 2) for row in rows), default=3), 3
    )


def interval(
    value: float, low: float, high: float, decimals: int | None = None, *, signed: bool = False
) -> str:
    """A value with its limits, to as many decimals as they call for.

    >>> interval(0.3141, 0.2229, 0.4)
    '0.31 [0.22, 0.40]'
    """
    decimals = decimals_for((high - low) / 2) if decimals is None else decimals
    shown = [number(each, decimals, signed=signed) for each in (value, low, high)]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]"


def share(value: float | None) -> str:
    """In per cent.

    >>> share(0.2649), share(0.0031), share(None)
    ('26%', '0.31%', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:.2g}%" if 0 < abs(value) < 0.095 else f"{100 * value:.0f}%"


def count(value: float) -> str:
    """A whole number, thousands apart."""
    return f"{round(value):,}"


def of_universe(universe: Any) -> str:
    """How many users and items there are."""
    return (
        "not told"
        if universe is None
        else f"{count_noun(universe[0], 'user')} × {count_noun(universe[1], 'item')}"
    )


def sentence(text: str) -> str:
    """Begins with a capital and ends with a stop."""
    text = text.strip()
    return (
        text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
        if text
        else text
    )


def by_name(settings: Mapping[str, Any]) -> str:
    """Settings in one line.

    >>> by_name({"l2": 5.0, "offsets": "free"})
    'l2 = 5, offsets = free'
    """
    return ", ".join(f"{name} = {setting(value)}" for name, value in settings.items())


def setting(value: Any) -> str:
    """One value of a setting."""
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
