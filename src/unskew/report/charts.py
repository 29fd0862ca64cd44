"""Charts as records: what a chart shows, and on which scale, before anything is drawn.

The same record is drawn as SVG for pages (:mod:`unskew.report.svg`) and with matplotlib for
``result.plot()`` and the figures of the paper (:mod:`unskew.report.figures`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

from unskew.report.text import Interval, format_interval, format_tick

N_COLORS = 7
SHAPES = ("circle", "square", "triangle", "diamond", "down", "pentagon", "hexagon")
DASHES = (None, "6 3", "2 3", "8 3 2 3")
MAX_FOREST_ROWS = 48
"""A forest with more rows is too long to read."""
MAX_MARKERS = 24
"""Curves with more points have no markers, and only this many react to the pointer."""
ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LOG_STEPS = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
MARGIN = 0.06
"""Space beyond the smallest and the largest value, as a share of their distance."""
Sample: TypeAlias = Literal["point", "line", "plain line", "thin line", "bar", "rule"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """Color, marker and dashes of one series. Shapes differ too, for readers without color."""

    color: str
    """A color of ``page.css``: ``seen``, ``accent``, ``truth``, ``c0`` to ``c6``."""
    shape: str = "circle"
    is_hollow: bool = False
    dash: str | None = None
    """Lengths of dashes and gaps, as SVG writes them."""


OBSERVED = Look("seen", "square", is_hollow=True)
"""For what the log shows without correction."""
CORRECTED = Look("accent")
TRUTH = Look("truth", "diamond")


def mute(look: Look) -> Look:
    """The same marker in gray, for numbers that decide nothing."""
    return replace(look, color=OBSERVED.color)


def default_look(position: int) -> Look:
    """The look of the series at that position: color, shape and dashes change together."""
    shape, dash = SHAPES[position % len(SHAPES)], DASHES[position % len(DASHES)]
    return Look(f"c{position % N_COLORS}", shape, dash=dash)


def default_looks(names: Iterable[str]) -> dict[str, Look]:
    """The look of each series by its position; repeated names count once."""
    return {name: default_look(position) for position, name in enumerate(dict.fromkeys(names))}


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A label next to a sample of its series."""

    label: str
    look: Look
    sample: Sample = "point"


def make_legend(looks: Mapping[str, Look], sample: Sample = "point") -> tuple[LegendEntry, ...]:
    """One entry for each label."""
    return tuple(LegendEntry(label, look, sample) for label, look in looks.items())


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """Title, scale and ticks of one axis."""

    title: str
    is_log: bool = False
    format: Callable[[float], str] = format_tick
    ticks: Sequence[float] | None = None
    """Marked instead of round numbers. Some are left out where space is short."""
    low: float | None = None
    """Where the axis begins; None for a little below the smallest value."""
    high: float | None = None


@dataclass(frozen=True, slots=True)
class ChartScale:
    """Maps values from ``low`` to ``high`` to positions from ``start`` to ``end``.

    Values beyond the limits are drawn at the limits.
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    @classmethod
    def around(
        cls, values: Iterable[float], start: float, end: float, *, is_log: bool = False
    ) -> ChartScale:
        """A scale that includes all finite values, with a margin on both sides."""
        shown = [value for value in values if math.isfinite(value) and (value > 0 or not is_log)]
        low, high = (min(shown), max(shown)) if shown else (0.1 if is_log else 0.0, 1.0)
        if is_log:
            factor = (high / low) ** MARGIN if high > low else 2.0
            return cls(low / factor, high * factor, start, end, is_log=True)
        margin = (high - low) * MARGIN if high > low else abs(high) * 0.1 or 1.0
        return cls(low - margin, high + margin, start, end)

    @classmethod
    def for_axis(cls, axis: ChartAxis, values: list[float], start: float, end: float) -> ChartScale:
        """The scale of an axis, which may fix its ends."""
        automatic = cls.around(values, start, end, is_log=axis.is_log)
        low = automatic.low if axis.low is None else axis.low
        high = automatic.high if axis.high is None else axis.high
        return cls(low, high if high > low else low + 1.0, start, end, is_log=axis.is_log)

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = (math.log(max(end, 1e-300)) for end in (low, high, value))
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return self.start + share * (self.end - self.start)

    def ticks(self, n_ticks: int) -> list[float]:
        """About ``n_ticks`` round numbers, or fewer."""
        return self._log_ticks(n_ticks) if self.is_log else self._linear_ticks(n_ticks)

    def axis_ticks(self, axis: ChartAxis, n_ticks: int) -> list[float]:
        """The ticks that the axis asks for, thinned out to ``n_ticks``; else round numbers."""
        if axis.ticks is None:
            return self.ticks(n_ticks)
        return list(axis.ticks)[:: -(-len(axis.ticks) // n_ticks)]

    def _linear_ticks(self, n_ticks: int) -> list[float]:
        least_step = (self.high - self.low) / max(n_ticks, 1)
        power = 10.0 ** math.floor(math.log10(least_step))
        step = next(s * power for s in ROUND_STEPS if s * power >= least_step * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(multiple * step, 12) for multiple in range(first, last + 1)]

    def _log_ticks(self, n_ticks: int) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in LOG_STEPS:
            ticks = [step * 10.0**power for power in powers for step in steps]
            inside = [t for t in ticks if self.low * (1 - 1e-9) <= t <= self.high * (1 + 1e-9)]
            if len(inside) <= n_ticks:
                break
        if len(inside) < 2:
            return [self.low, self.high]
        return inside[:: math.ceil(len(inside) / n_ticks)]


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One estimate, with its limits if it has any."""

    label: str
    value: float
    look: Look
    tip: str
    """What the reader sees when pointing at the row."""
    low: float | None = None
    high: float | None = None
    text: str = ""
    """The number next to the row."""
    others: tuple[tuple[float, Look, str], ...] = ()
    """More points on the same row: value, look and tip."""

    def values(self) -> list[float]:
        """Every number that the axis must include."""
        ends = (self.value, self.low, self.high, *(value for value, _, _ in self.others))
        return [end for end in ends if end is not None]

    @classmethod
    def of_interval(
        cls,
        label: str,
        look: Look,
        interval: Interval,
        decimals: int | None = None,
        *,
        subject: str | None = None,
        with_sign: bool = False,
    ) -> ForestRow:
        """A row that shows its interval as text; ``subject`` is its name in the tip."""
        value, low, high = interval
        text = format_interval(*interval, decimals, with_sign=with_sign)
        return cls(label, value, look, f"{subject or label}: {text}", low, high, text)


@dataclass(frozen=True, slots=True)
class ForestGroup:
    """Rows under one name; the name may be empty."""

    name: str
    rows: tuple[ForestRow, ...]
    truth: float | None = None
    """The true value, where it is known."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Estimates with their intervals, one below the other."""

    groups: Sequence[ForestGroup]
    axis: ChartAxis
    reference: float | None = None
    """Where a line is drawn, such as 0 for no difference."""
    sides: tuple[str, str] | None = None
    """Which model is better on the left and on the right of the reference."""
    band: tuple[float, float] | None = None
    """Limits of the shaded range, such as differences that are small enough."""

    @property
    def rows(self) -> list[ForestRow]:
        return [row for group in self.groups for row in group.rows]

    def values(self) -> list[float]:
        """Every number that the axis must include."""
        ends = [end for row in self.rows for end in row.values()]
        marked = [*(group.truth for group in self.groups), self.reference, *(self.band or ())]
        return ends + [value for value in marked if value is not None]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """A point of a curve, with limits if it is uncertain."""

    x: float
    y: float
    tip: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """One line through its points, with a band between their limits."""

    look: Look
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves over the same two axes."""

    curves: Sequence[Curve]
    x_axis: ChartAxis
    y_axis: ChartAxis
    has_diagonal: bool = False
    """Whether the line on which both axes are equal is drawn."""
    reference: float | None = None
    """Where a horizontal line is drawn."""

    def drawable_points(self, curve: Curve) -> list[CurvePoint]:
        """Points with finite values, and with positive ones on logarithmic axes."""
        return [
            point
            for point in curve.points
            if math.isfinite(point.x)
            and math.isfinite(point.y)
            and (point.x > 0 or not self.x_axis.is_log)
            and (point.y > 0 or not self.y_axis.is_log)
        ]


def list_limits(points: Iterable[CurvePoint]) -> list[Interval]:
    """x, lower and upper limit of each point that has limits: the band around a curve."""
    return [(p.x, p.low, p.high) for p in points if p.low is not None and p.high is not None]


@dataclass(frozen=True, slots=True)
class BarGroup:
    """The bars at one label of the axis: one share for each series."""

    label: str
    shares: tuple[float, ...]
    tip: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares of one or more series, side by side; ``colors`` has one color for each series."""

    groups: Sequence[BarGroup]
    colors: tuple[str, ...]
    x_title: str
    y_title: str


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Numbers by row and column. Shades show ranks, so one bad value does not hide the rest."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]
    tips: Sequence[Sequence[str]]
    x_title: str
    y_title: str
    best: tuple[int, int]
    """Row and column of the outlined cell."""
    higher_is_better: bool = False


@dataclass(frozen=True, slots=True)
class MatrixImage:
    """A matrix as shades between ``low`` and ``high``, without numbers."""

    values: Sequence[Sequence[float]]
    low: float
    high: float
    ticks: Sequence[float]
    """Values marked on the color bar."""
    columns: Sequence[str] = ()
    """Names of equally wide blocks of columns."""


ChartContent: TypeAlias = Forest | Curves | Bars | Heatmap | MatrixImage


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with its title, legend and caption."""

    title: str
    content: ChartContent
    legend: tuple[LegendEntry, ...] = ()
    caption: str = ""


def keep_first(
    parts: Sequence[T], order: Sequence[int], *, rows_each: int, noun: str
) -> tuple[list[T], str]:
    """All parts as they are if a forest has space for them, otherwise the first in ``order``.

    Also a caption on those left out.
    """
    n_kept = max(MAX_FOREST_ROWS // max(rows_each, 1), 1)
    if len(parts) <= n_kept:
        return list(parts), ""
    caption = (
        f"The chart shows the {n_kept:,} {noun} of {len(parts):,}. "
        f"The table also has the other {len(parts) - n_kept:,}."
    )
    return [parts[position] for position in order[:n_kept]], caption
