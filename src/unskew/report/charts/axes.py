"""The frame of a chart: faint lines at round numbers, their labels, and what the axes are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from unskew.report.charts.chart import text_width
from unskew.report.charts.markup import Svg, label, line
from unskew.report.charts.scales import Scale

SMALL = 11.5
Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Axis:
    """What runs along one side."""

    title: str
    is_log: bool = False
    show: Show | None = None
    ticks: Sequence[float] | None = None
    """Marked in place of round numbers, as far as there is room."""
    low: float | None = None
    """Where it begins, unless the values say."""
    high: float | None = None

    def scale(self, values: list[float], start: float, end: float) -> Scale:
        """Laid out so that the values fit."""
        found = Scale.around(values, start, end, is_log=self.is_log)
        low = found.low if self.low is None else self.low
        high = found.high if self.high is None else self.high
        return Scale(low, high if high > low else low + 1.0, start, end, is_log=self.is_log)

    def shown(self, value: float) -> str:
        """A tick's label."""
        return self.show(value) if self.show is not None else short(value)

    def marks(self, scale: Scale, most: int) -> list[float]:
        """Which values get a tick."""
        if self.ticks is None:
            return scale.ticks(most)
        every = -(-len(self.ticks) // most)
        return list(self.ticks)[::every]


def short(value: float) -> str:
    """30k for 30,000 and 2M for two millions, so that labels do not run into one another.

    >>> [short(value) for value in (0.25, -3, 30_000, 2_500_000)]
    ['0.25', '−3', '30k', '2.5M']
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def percent(value: float) -> str:
    """A share.

    >>> [percent(value) for value in (0.0, 0.004, 0.25, 1.0)]
    ['0%', '0.4%', '25%', '100%']
    """
    return f"{100 * value:.2g}%" if 0 < abs(value) < 0.0095 else f"{100 * value:.0f}%"


def below(axis: Axis, scale: Scale, top: float, bottom: float) -> Iterator[Svg]:
    """The horizontal axis: faint lines up, labels and title down."""
    for value in axis.marks(scale, max(int(abs(scale.end - scale.start) / 62), 2)):
        x = scale(value)
        yield line(x, top, x, bottom, "grid")
        yield label(axis.shown(value), x, bottom + 17, "tick", anchor="middle")
    if axis.title:
        yield label(axis.title, (scale.start + scale.end) / 2, bottom + 37, "axis", anchor="middle")


def beside(axis: Axis, scale: Scale, left: float, right: float) -> Iterator[Svg]:
    """The vertical axis: faint lines across, labels to the left; its title lies flat above."""
    for value in axis.marks(scale, max(int(abs(scale.end - scale.start) / 42), 2)):
        y = scale(value)
        yield line(left, y, right, y, "grid")
        yield label(axis.shown(value), left - 8, y + 4, "tick", anchor="end")
    if axis.title:
        yield label(axis.title, 0.0, 12.0, "axis")


def left_margin(axis: Axis, values: list[float]) -> float:
    """Room for the labels beside."""
    probe = axis.scale(values, 0.0, 200.0)
    return (
        max((text_width(axis.shown(value), SMALL) for value in axis.marks(probe, 5)), default=20.0)
        + 14.0
    )
