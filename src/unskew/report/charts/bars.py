"""Two distributions side by side: as logged, and corrected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unskew.report.charts.axes import Axis, beside, percent
from unskew.report.charts.chart import NARROW, Drawing, text_width
from unskew.report.charts.markup import Svg, box, label, line, mark
from unskew.report.charts.scales import Scale

TALL, SHORT = 280.0, 230.0
TOP, BOTTOM = 28.0, 46.0
MOST_NUMBERED = 7
"""Bars above which their shares still have room."""


@dataclass(frozen=True, slots=True)
class Bin:
    """One place on the axis, and the share of each series there."""

    label: str
    shares: tuple[float, ...]
    tip: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares by bin, a colour a series."""

    bins: Sequence[Bin]
    colors: tuple[str, ...]
    across: str
    up: str

    def draw(self, width: float) -> Drawing:
        """As wide as that."""
        height = SHORT if width <= NARROW else TALL
        axis = Axis(self.up, show=percent, low=0.0)
        shares = [share for each in self.bins for share in each.shares]
        left, bottom = 44.0, height - BOTTOM
        y = axis.scale([0.0, *shares], bottom, TOP)
        step = (width - left) / len(self.bins)
        parts = [*beside(axis, y, left, width), line(left, bottom, width, bottom, "base")]
        for place, each in enumerate(self.bins):
            parts.extend(self._bin(each, left + place * step, step, y, bottom))
        parts.extend(self._labels(left, step, bottom))
        parts.append(label(self.across, (left + width) / 2, bottom + 37, "axis", anchor="middle"))
        return Drawing(width, height, tuple(parts))

    def _bin(self, each: Bin, x: float, step: float, y: Scale, bottom: float) -> Iterator[Svg]:
        pad = min(0.16 * step, 18.0)
        wide = (step - 2 * pad) / len(each.shares)
        gap = 2.0 if wide > 10 else 0.0
        shapes = [box(x, TOP, step, bottom - TOP, "hit")]
        for place, (share, color) in enumerate(zip(each.shares, self.colors, strict=True)):
            at = x + pad + place * wide
            shapes.append(
                box(
                    at,
                    y(share),
                    wide - gap,
                    bottom - y(share),
                    f"{color} bar",
                    radius=min(2.0, wide / 4),
                )
            )
            if len(self.bins) <= MOST_NUMBERED and wide > 24:
                shapes.append(
                    label(
                        percent(share),
                        at + (wide - gap) / 2,
                        y(share) - 6,
                        "value",
                        anchor="middle",
                    )
                )
        yield mark(each.tip, *shapes)

    def _labels(self, left: float, step: float, bottom: float) -> Iterator[Svg]:
        widest = max(text_width(each.label, 11.5) for each in self.bins) + 6
        every = max(1, -(-int(widest) // int(max(step, 1))))
        for place, each in enumerate(self.bins):
            if place % every == 0:
                yield label(
                    each.label, left + (place + 0.5) * step, bottom + 17, "tick", anchor="middle"
                )
