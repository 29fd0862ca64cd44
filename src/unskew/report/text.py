"""Numbers, names, settings and rows of a result as the reader of a page or figure sees them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from unskew.estimators import ESTIMATORS
from unskew.metrics import METRICS, metric_label
from unskew.tables import count_noun

Record: TypeAlias = Mapping[str, Any]
"""The JSON object of a result, or one of its rows."""
Rows: TypeAlias = Sequence[Record]
Interval: TypeAlias = tuple[float, float, float]
"""A value, its lower and its upper limit."""

HYPHEN_AS_MINUS = re.compile(r"(?<![\w.)\]])-(?=[0-9])")


def describe_metric(name: str) -> str:
    """A metric in words, with a capital at the beginning.

    >>> describe_metric("dcg@50"), describe_metric("my metric")
    ('Discounted cumulative gain of the top 50', 'My metric')
    """
    stem, _, top = name.partition("@")
    words = METRICS[stem].traits.get("words", METRICS[stem].label) if stem in METRICS else name
    return words[:1].upper() + words[1:] + (f" of the top {top}" if top and words != name else "")


def describe_direction(*, higher_is_better: bool) -> str:
    return f"{'higher' if higher_is_better else 'lower'} is better"


def estimator_label(name: str) -> str:
    """The label of an estimator, such as ``SNIPS``; an estimator of the caller keeps its name."""
    return ESTIMATORS[name].label if name in ESTIMATORS else name


def describe_estimators(names: Iterable[str]) -> str:
    """One sentence for each declared estimator, on how it estimates."""
    return " ".join(ESTIMATORS[name].summary for name in names if name in ESTIMATORS)


def choose_decimals(low: float, high: float, *, most: int = 6) -> int:
    """How many decimals, up to ``most``, show the width of an interval.

    Up to two more are used for a limit that would look like zero.

    >>> [choose_decimals(0, high) for high in (6.0, 0.18, 0.016, 0.0)]
    [1, 2, 3, 3]
    >>> choose_decimals(-0.0004, 0.04), choose_decimals(-1e-12, 0.04)
    (4, 2)
    """
    spread, decimals = (high - low) / 2, min(3, most)
    if math.isfinite(spread) and spread > 0:
        decimals = min(max(math.ceil(-math.log10(spread)), 1 if spread > 1 else 2), most)
    for more in range(decimals, decimals + 3):
        if all(end == 0 or round(end, more) != 0 for end in (low, high)):
            return more
    return decimals


def common_decimals(rows: Iterable[Mapping[str, Any]]) -> int:
    """Decimals for all numbers of a chart: what its narrowest interval needs, about 3 at most."""
    limits = [(row["ci_low"], row["ci_high"]) for row in rows]
    return max((choose_decimals(*each, most=3) for each in limits if None not in each), default=3)


def format_number(value: float | None, decimals: int = 3, *, with_sign: bool = False) -> str:
    """A number with a typographic minus sign and thousands separators.

    >>> format_number(-1234.5, 1), format_number(0.25, 2, with_sign=True), format_number(None)
    ('−1,234.5', '+0.25', '–')
    >>> format_number(-0.001, 2), format_number(-6.39e24)
    ('0.00', '−6.39e+24')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if round(value, decimals) == 0:
        return f"{0:.{decimals}f}"
    if abs(value) >= 1e9:
        return f"{value:{'+' if with_sign else ''}.2e}".replace("-", "−")
    return f"{value:{'+' if with_sign else ''},.{decimals}f}".replace("-", "−")


def format_brief(value: float | None) -> str:
    """Three significant digits.

    >>> [format_brief(value) for value in (12345.6, 3.14159, 0.01234, 1e-7, 0.0)]
    ['12,346', '3.14', '0.0123', '1e-07', '0']
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
    return text.replace("-", "−") if abs(value) >= 1e-4 else text


def format_tick(value: float) -> str:
    """A short number for an axis.

    >>> [format_tick(value) for value in (0.25, -3, 30_000, 2_500_000)]
    ['0.25', '−3', '30k', '2.5M']
    """
    for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{suffix}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def format_share(value: float | None) -> str:
    """A share in per cent, with two digits below 10%.

    >>> format_share(0.2649), format_share(0.0031), format_share(0.0), format_share(None)
    ('26%', '0.31%', '0%', '–')
    """
    if value is None:
        return "–"
    return f"{100 * value:.2g}%" if 0 < abs(value) < 0.095 else f"{100 * value:.0f}%"


def format_count(value: float) -> str:
    """The nearest whole number, with thousands separators."""
    return f"{round(value):,}"


def format_degrees(value: float | None) -> str | None:
    """Degrees of freedom, with one decimal below 10.

    >>> format_degrees(20.0), format_degrees(2.34)
    ('20', '2.3')
    """
    return None if value is None else f"{value:,.{0 if value >= 10 else 1}f}"


def format_interval(
    value: float,
    low: float | None,
    high: float | None,
    decimals: int | None = None,
    *,
    with_sign: bool = False,
) -> str:
    """A value with its limits, by default to as many decimals as the limits need.

    >>> format_interval(0.3141, 0.2229, 0.4), format_interval(0.3141, None, None)
    ('0.31 [0.22, 0.40]', '0.314, no interval')
    """
    if low is None or high is None:
        number = format_number(value, 3 if decimals is None else decimals, with_sign=with_sign)
        return f"{number}, no interval"
    if decimals is None:
        decimals = choose_decimals(low, high)
    texts = [format_number(end, decimals, with_sign=with_sign) for end in (value, low, high)]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]"


def format_universe(universe: Any) -> str:
    """The size of the universe, such as ``943 users × 1,682 items``."""
    if universe is None:
        return "unknown"
    return f"{count_noun(universe[0], 'user')} × {count_noun(universe[1], 'item')}"


def format_setting(value: Any) -> str:
    """One value of a setting: 5.0 as ``5``, and None as ``none``."""
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


def format_settings(settings: Mapping[str, Any]) -> str:
    """All settings of a model in one line.

    >>> format_settings({"l2": 5.0, "offsets": "free"})
    'l2 = 5, offsets = free'
    """
    return ", ".join(f"{name} = {format_setting(value)}" for name, value in settings.items())


def to_sentence(text: str) -> str:
    """The text with a capital at its beginning, a full stop at its end, and minus signs.

    >>> to_sentence("the log has -3.5% of clear-cut cells")
    'The log has −3.5% of clear-cut cells.'
    """
    text = HYPHEN_AS_MINUS.sub("−", text.strip())
    ending = "" if not text or text.endswith((".", "!", "?")) else "."
    return text[:1].upper() + text[1:] + ending


def shorten(text: str, n_letters: int) -> str:
    """At most ``n_letters`` letters, with an ellipsis where the text was longer."""
    return text if len(text) <= n_letters else text[: n_letters - 1].rstrip() + "…"


def select(rows: Iterable[Record], values: Record) -> list[Record]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def group_rows(rows: Iterable[Record], *names: str) -> dict[tuple[Any, ...], list[Record]]:
    """Rows with equal values of the named fields, in the order of their first rows."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def interval_of(row: Record, name: str) -> Interval:
    """The named value of a row with its limits."""
    return row[name], row["ci_low"], row["ci_high"]


def label_columns(rows: Rows, headings: Mapping[str, str]) -> dict[str, list[Any]]:
    """The named fields of the rows under their headings, with labels of metrics, estimators.

    Fields that the rows of an older file lack are left out.
    """
    labels = {"metric": metric_label, "estimator": estimator_label}
    return {
        heading: [labels[name](row[name]) if name in labels else row[name] for row in rows]
        for name, heading in headings.items()
        if all(name in row for row in rows)
    }
