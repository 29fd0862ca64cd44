"""Lines over an axis, with bands where values are uncertain."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unskew.report.charts.axes import Axis, below, beside, left_margin
from unskew.report.charts.chart import NARROW, Drawing
from unskew.report.charts.looks import Look, path_of
from unskew.report.charts.markup import Svg, element, line, mark
from unskew.report.charts.scales import Scale

TALL, SHORT = 300.0, 250.0
MOST_POINTS = 24
"""Points that can be pointed at; a longer line shows no more of them."""
TOP, BOTTOM = 26.0, 46.0


@dataclass(frozen=True, slots=True)
class Point:
    """A place on a line; limits where it is uncertain."""

    x: float
    y: float
    tip: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """One line."""

    look: Look
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines that share their axes."""

    curves: Sequence[Curve]
    across: Axis
    up: Axis
    is_diagonal_drawn: bool = False
    """Whether the line is drawn on which both axes agree."""
    level: float | None = None
    """Where a flat line is drawn."""

    def draw(self, width: float) -> Drawing:
        """As wide as that."""
        points = [point for curve in self.curves for point in curve.points if self._is_shown(point)]
        heights = [
            end for point in points for end in (point.y, point.low, point.high) if end is not None
        ]
        heights += [] if self.level is None else [self.level]
        places = [point.x for point in points]
        if self.is_diagonal_drawn:
            heights = places = heights + places
        height = SHORT if width <= NARROW else TALL
        left, bottom = left_margin(self.up, heights), height - BOTTOM
        x, y = self.across.scale(places, left, width - 20), self.up.scale(heights, bottom, TOP)
        parts = [*beside(self.up, y, left, width - 20), *below(self.across, x, TOP, bottom)]
        if self.is_diagonal_drawn:
            low, high = max(x.low, y.low), min(x.high, y.high)
            parts.append(line(x(low), y(low), x(high), y(high), "reference"))
        if self.level is not None:
            parts.append(line(left, y(self.level), width - 20, y(self.level), "reference"))
        for curve in self.curves:
            parts.extend(self._curve(curve, x, y))
        return Drawing(width, height, tuple(parts))

    def _curve(self, curve: Curve, x: Scale, y: Scale) -> Iterator[Svg]:
        shown = [point for point in curve.points if self._is_shown(point)]
        if not shown:
            return
        limits = [
            (x(point.x), y(point.low), y(point.high))
            for point in shown
            if point.low is not None and point.high is not None
        ]
        if len(limits) > 1:
            around = [(at, low) for at, low, _ in limits] + [
                (at, high) for at, _, high in reversed(limits)
            ]
            yield element("path", {"d": path_of(around) + "Z", "class": f"{curve.look.color} area"})
        yield curve.look.path([(x(point.x), y(point.y)) for point in shown])
        every = math.ceil(len(shown) / MOST_POINTS)
        is_sparse = every == 1
        for point in shown[::every]:
            at = x(point.x), y(point.y)
            dot = (
                curve.look.point(*at, 4.0)
                if is_sparse
                else element(
                    "circle",
                    {"cx": at[0], "cy": at[1], "r": 4, "class": f"{curve.look.color} point faint"},
                )
            )
            yield mark(
                point.tip,
                element("circle", {"cx": at[0], "cy": at[1], "r": 11, "class": "hit"}),
                dot,
            )

    def _is_shown(self, point: Point) -> bool:
        return (
            math.isfinite(point.x)
            and math.isfinite(point.y)
            and (point.x > 0 or not self.across.is_log)
            and (point.y > 0 or not self.up.is_log)
        )
