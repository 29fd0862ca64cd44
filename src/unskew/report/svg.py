"""Charts as inline SVG: nothing is fetched, and the colors come from the style of the page.

Markup is a type of its own (:data:`Svg`): text of users gets into it only through
:func:`escape_text`. Each chart is drawn twice, for wide and for narrow pages, so its letters keep
their size on a phone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape, unescape
from itertools import groupby
from typing import NewType

from unskew.report.charts import (
    MAX_MARKERS,
    BarGroup,
    Bars,
    Chart,
    ChartAxis,
    ChartContent,
    ChartScale,
    Curve,
    CurvePoint,
    Curves,
    Forest,
    ForestGroup,
    ForestRow,
    Heatmap,
    LegendEntry,
    Look,
    MatrixImage,
    list_limits,
)
from unskew.report.text import format_share, shorten

Svg = NewType("Svg", str)
"""Markup that is safe to put into a page."""
Attributes = Mapping[str, str | float | None]
WIDE, NARROW = 720.0, 350.0
TICK, PLAIN, LARGE = 11.5, 12.0, 13.0
"""Sizes of letters."""
LETTER_WIDTH = 0.56
"""Mean width of a letter, over its size."""
MAX_DESCRIBED = 60
"""Values in the description of a drawing; the table has the rest."""
MAX_NUMBERED_BARS = 7
N_SHADES = 10
SIDE_GAP = 8
"""Between the zero line and the name of the model that is better on that side."""
MIN_SIDE = 24
"""A side with less room for a name has none."""
TIP = re.compile(r'<g class="mark"><title>(.*?)</title>', re.DOTALL)
CORNERS: Mapping[str, tuple[float, tuple[float, ...]]] = {
    "square": (1.25, (45, 135, 225, 315)),
    "triangle": (1.3, (0, 120, 240)),
    "diamond": (1.3, (0, 90, 180, 270)),
    "down": (1.3, (60, 180, 300)),
    "pentagon": (1.15, (0, 72, 144, 216, 288)),
    "hexagon": (1.15, (30, 90, 150, 210, 270, 330)),
}
"""Corners of a shape: their distance from the center, and their angles from the top."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes on an area of that size."""

    width: float
    height: float
    content: tuple[Svg, ...]


# Markup


def element(name: str, attributes: Attributes, *children: Svg) -> Svg:
    """One element; attributes that are None are left out.

    >>> element("circle", {"r": 2.5, "class": '"x"', "rx": None})
    '<circle r="2.5" class="&quot;x&quot;"/>'
    """
    pairs = "".join(
        f' {key}="{_attribute(value)}"' for key, value in attributes.items() if value is not None
    )
    if children:
        return Svg(f"<{name}{pairs}>{''.join(children)}</{name}>")
    return Svg(f"<{name}{pairs}/>")


def _attribute(value: str | float | None) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return escape(str(value))


def escape_text(text: str) -> Svg:
    return Svg(escape(text))


def draw_text(text: str, x: float, y: float, style: str, *, anchor: str | None = None) -> Svg:
    """One line of text; ``anchor`` is ``middle``, ``end`` or None for the start."""
    attributes: Attributes = {"x": x, "y": y, "class": style, "text-anchor": anchor}
    return element("text", attributes, escape_text(text))


def draw_line(x1: float, y1: float, x2: float, y2: float, style: str) -> Svg:
    return element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": style})


def draw_box(
    x: float, y: float, width: float, height: float, style: str, *, radius: float | None = None
) -> Svg:
    size: Attributes = {"width": max(width, 0.0), "height": max(height, 0.0)}
    return element("rect", {"x": x, "y": y, **size, "rx": radius, "class": style})


def draw_circle(x: float, y: float, radius: float, style: str) -> Svg:
    return element("circle", {"cx": x, "cy": y, "r": radius, "class": style})


def draw_point(look: Look, x: float, y: float, radius: float = 4.5) -> Svg:
    """The marker of a series."""
    style = f"{look.color} point{' hollow' if look.is_hollow else ''}"
    if look.shape == "circle":
        return draw_circle(x, y, radius, style)
    distance, angles = CORNERS[look.shape]
    distance *= radius
    points = " ".join(
        f"{x + distance * math.sin(angle):.1f},{y - distance * math.cos(angle):.1f}"
        for angle in map(math.radians, angles)
    )
    return element("polygon", {"points": points, "class": style})


def draw_path(look: Look, points: Sequence[tuple[float, float]]) -> Svg:
    """A line through the points, in the color and dashes of a series."""
    attributes = {"d": _path(points), "class": f"{look.color} line", "stroke-dasharray": look.dash}
    return element("path", attributes)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def make_mark(tip: str, *shapes: Svg) -> Svg:
    """Shapes that show ``tip`` to the pointer and the keyboard."""
    return element("g", {"class": "mark"}, element("title", {}, escape_text(tip)), *shapes)


def text_width(text: str, size: float = PLAIN) -> float:
    """About how wide a text is drawn."""
    return LETTER_WIDTH * size * len(text)


def fit_text(text: str, width: float, size: float = PLAIN) -> str:
    """As much of a text as that width has space for."""
    return shorten(text, max(int(width / (LETTER_WIDTH * size)), 4))


# The chart as a whole


def draw_chart(chart: Chart) -> list[tuple[str, Svg]]:
    """The drawings of a chart, each with the pages it is for: ``wide``, ``narrow`` or ``any``."""
    if isinstance(chart.content, MatrixImage):
        return [("any", _draw_svg(chart, NARROW))]
    return [("wide", _draw_svg(chart, WIDE)), ("narrow", _draw_svg(chart, NARROW))]


def _draw_svg(chart: Chart, width: float) -> Svg:
    """The drawing with its title, and its values as a description for screen readers."""
    drawing = draw_content(chart.content, width)
    tips = [unescape(tip) for part in drawing.content for tip in TIP.findall(part)]
    description = "; ".join(tips[:MAX_DESCRIBED]) or chart.title
    if len(tips) > MAX_DESCRIBED:
        description += f"; and {len(tips) - MAX_DESCRIBED:,} more"
    size = f"0 0 {drawing.width:g} {drawing.height:g}"
    attributes: Attributes = {"class": "drawing", "viewBox": size, "role": "img", "tabindex": 0}
    title = element("title", {}, escape_text(chart.title))
    details = element("desc", {}, escape_text(description))
    return element("svg", attributes, title, details, *drawing.content)


def draw_sample(entry: LegendEntry) -> Svg:
    """The sample next to a label of the legend."""
    line = draw_path(entry.look, [(1.0, 8.0), (27.0, 8.0)])
    samples = {
        "point": (draw_point(entry.look, 8.0, 8.0),),
        "line": (line, draw_point(entry.look, 14.0, 8.0, 4.0)),
        "plain line": (line,),
        "thin line": (draw_line(1, 8, 27, 8, "reference"),),
        "bar": (draw_box(2, 2, 12, 12, f"{entry.look.color} bar", radius=2),),
        "rule": (draw_line(8, 1, 8, 15, f"{entry.look.color} rule"),),
    }
    width = 28 if entry.sample.endswith("line") else 16
    size: Attributes = {"viewBox": f"0 0 {width} 16", "width": width, "height": 16}
    attributes: Attributes = {"class": "swatch", **size, "aria-hidden": "true"}
    return element("svg", attributes, *samples[entry.sample])


@singledispatch
def draw_content(content: ChartContent, width: float) -> Drawing:
    """Draw one kind of chart at that width."""
    raise NotImplementedError(type(content).__name__)


# Axes


def _draw_x_axis(axis: ChartAxis, scale: ChartScale, top: float, bottom: float) -> Iterator[Svg]:
    for value in scale.axis_ticks(axis, max(int(abs(scale.end - scale.start) / 62), 2)):
        x = scale(value)
        yield draw_line(x, top, x, bottom, "grid")
        yield draw_text(axis.format(value), x, bottom + 17, "tick", anchor="middle")
    if axis.title:
        center = (scale.start + scale.end) / 2
        yield draw_text(axis.title, center, bottom + 37, "axis", anchor="middle")


def _draw_y_axis(axis: ChartAxis, scale: ChartScale, left: float, right: float) -> Iterator[Svg]:
    """Ticks on the left; the title is horizontal, above the axis."""
    for value in scale.axis_ticks(axis, max(int(abs(scale.end - scale.start) / 42), 2)):
        y = scale(value)
        yield draw_line(left, y, right, y, "grid")
        yield draw_text(axis.format(value), left - 8, y + 4, "tick", anchor="end")
    if axis.title:
        yield draw_text(axis.title, 0.0, 12.0, "axis")


def _y_axis_width(axis: ChartAxis, values: list[float]) -> float:
    ticks = ChartScale.for_axis(axis, values, 0.0, 200.0).axis_ticks(axis, 5)
    return max((text_width(axis.format(tick), TICK) for tick in ticks), default=20.0) + 14.0


# Forest


@dataclass(frozen=True, slots=True)
class ForestLayout:
    """Positions in a forest. On narrow pages, labels and numbers lie above their marks."""

    width: float
    left: float
    right: float
    row_height: float
    mark_offset: float
    """Distance of a mark from the top of its row."""

    @classmethod
    def fit(cls, width: float, rows: Sequence[ForestRow]) -> ForestLayout:
        if width <= NARROW and any(row.text for row in rows):
            return cls(width, 6.0, width - 6.0, 48.0, 29.0)
        labels = max((text_width(row.label, LARGE) for row in rows), default=0.0)
        numbers = max((text_width(row.text, LARGE) for row in rows), default=0.0)
        return cls(width, min(labels + 16, 0.36 * width), width - numbers - 20, 26.0, 13.0)

    @property
    def is_stacked(self) -> bool:
        return self.mark_offset > self.row_height / 2

    def group_height(self, group: ForestGroup) -> float:
        return (38.0 if group.name else 0.0) + self.row_height * len(group.rows)


@draw_content.register(Forest)
def draw_forest(forest: Forest, width: float) -> Drawing:
    layout = ForestLayout.fit(width, forest.rows)
    scale = ChartScale.for_axis(forest.axis, forest.values(), layout.left, layout.right)
    top = 26.0 if forest.sides else 4.0
    bottom = top + sum(layout.group_height(group) for group in forest.groups) + 4
    parts = [*_draw_band_and_sides(forest, scale, top, bottom)]
    parts += _draw_x_axis(forest.axis, scale, top, bottom)
    if forest.reference is not None:
        x = scale(forest.reference)
        parts.append(draw_line(x, top, x, bottom, "reference"))
    y = top
    for group in forest.groups:
        parts.extend(_draw_group(group, scale, y, layout))
        y += layout.group_height(group)
    return Drawing(width, bottom + (44 if forest.axis.title else 26), tuple(parts))


def _draw_band_and_sides(
    forest: Forest, scale: ChartScale, top: float, bottom: float
) -> Iterator[Svg]:
    if forest.band is not None:
        low, high = (scale(end) for end in forest.band)
        yield draw_box(low, top, high - low, bottom - top, "band")
    if forest.sides is not None and forest.reference is not None:
        zero = scale(forest.reference)
        left, right = forest.sides
        space = zero - scale.start - SIDE_GAP - text_width("← better", LARGE)
        if space > MIN_SIDE:
            text = f"← {fit_text(left, space, LARGE)} better"
            yield draw_text(text, zero - SIDE_GAP, 14, "side", anchor="end")
        space = scale.end - zero - SIDE_GAP - text_width("better →", LARGE)
        if space > MIN_SIDE:
            text = f"{fit_text(right, space, LARGE)} better →"
            yield draw_text(text, zero + SIDE_GAP, 14, "side")


def _draw_group(
    group: ForestGroup, scale: ChartScale, y: float, layout: ForestLayout
) -> Iterator[Svg]:
    if group.name:
        yield draw_text(fit_text(group.name, layout.width, 13.5), 0.0, y + 19, "head over")
        y += 28.0
    for row in group.rows:
        if group.truth is not None:
            x, above = scale(group.truth), layout.mark_offset - 9 if layout.is_stacked else 1
            yield draw_line(x, y + above, x, y + layout.mark_offset + 12, "truth rule")
        yield from _draw_row(row, scale, y, layout)
        y += layout.row_height


def _draw_row(row: ForestRow, scale: ChartScale, top: float, layout: ForestLayout) -> Iterator[Svg]:
    y = top + layout.mark_offset
    shapes = [draw_box(scale.start, top, scale.end - scale.start, layout.row_height, "hit")]
    if row.low is not None and row.high is not None:
        ends = scale(row.low), y, scale(row.high), y
        shapes.append(draw_line(*ends, f"{row.look.color} whisker"))
    yield make_mark(row.tip, *shapes, draw_point(row.look, scale(row.value), y))
    for value, look, tip in row.others:
        yield make_mark(tip, draw_point(look, scale(value), y))
    baseline, space = y + 4.5, layout.left - 8
    if layout.is_stacked:
        baseline, space = top + 16, layout.width - text_width(row.text, LARGE) - 8
    yield draw_text(fit_text(row.label, space, LARGE), 0.0, baseline, "name over")
    if row.text:
        yield draw_text(row.text, layout.width, baseline, "number over", anchor="end")


# Curves


@draw_content.register(Curves)
def draw_curves(content: Curves, width: float) -> Drawing:
    shown = [(curve, content.drawable_points(curve)) for curve in content.curves]
    points = [point for _, points in shown for point in points]
    ys = [end for p in points for end in (p.y, p.low, p.high) if end is not None]
    ys += [] if content.reference is None else [content.reference]
    xs = [point.x for point in points]
    if content.has_diagonal:
        xs = ys = ys + xs
    height = 250.0 if width <= NARROW else 300.0
    left, right = _y_axis_width(content.y_axis, ys), width - 20
    top, bottom = 26.0, height - 46.0
    x_scale = ChartScale.for_axis(content.x_axis, xs, left, right)
    y_scale = ChartScale.for_axis(content.y_axis, ys, bottom, top)
    parts = [*_draw_y_axis(content.y_axis, y_scale, left, right)]
    parts += _draw_x_axis(content.x_axis, x_scale, top, bottom)
    if content.has_diagonal:
        low, high = max(x_scale.low, y_scale.low), min(x_scale.high, y_scale.high)
        ends = x_scale(low), y_scale(low), x_scale(high), y_scale(high)
        parts.append(draw_line(*ends, "reference"))
    if content.reference is not None:
        y = y_scale(content.reference)
        parts.append(draw_line(left, y, right, y, "reference"))
    for curve, curve_points in shown:
        parts.extend(_draw_curve(curve, curve_points, x_scale, y_scale))
    return Drawing(width, height, tuple(parts))


def _draw_curve(
    curve: Curve, points: Sequence[CurvePoint], x_scale: ChartScale, y_scale: ChartScale
) -> Iterator[Svg]:
    if not points:
        return
    limits = list_limits(points)
    if len(limits) > 1:
        around = [(x, low) for x, low, _ in limits] + [(x, high) for x, _, high in limits[::-1]]
        outline = _path([(x_scale(x), y_scale(y)) for x, y in around]) + "Z"
        yield element("path", {"d": outline, "class": f"{curve.look.color} area"})
    yield draw_path(curve.look, [(x_scale(point.x), y_scale(point.y)) for point in points])
    step = math.ceil(len(points) / MAX_MARKERS)
    for point in points[::step]:
        x, y = x_scale(point.x), y_scale(point.y)
        faint = f"{curve.look.color} point faint"
        dot = draw_point(curve.look, x, y, 4.0) if step == 1 else draw_circle(x, y, 4, faint)
        yield make_mark(point.tip, draw_circle(x, y, 11, "hit"), dot)


# Bars


@draw_content.register(Bars)
def draw_bars(bars: Bars, width: float) -> Drawing:
    """Groups of bars side by side; only every n-th group is labelled if labels would overlap."""
    height = 230.0 if width <= NARROW else 280.0
    left, top, bottom = 44.0, 28.0, height - 46.0
    axis = ChartAxis(bars.y_title, format=format_share, low=0.0)
    shares = [share for group in bars.groups for share in group.shares]
    scale = ChartScale.for_axis(axis, [0.0, *shares], bottom, top)
    step = (width - left) / len(bars.groups)
    parts = [*_draw_y_axis(axis, scale, left, width)]
    parts.append(draw_line(left, bottom, width, bottom, "base"))
    for position, group in enumerate(bars.groups):
        shapes = _draw_bar_group(bars, group, left + position * step, step, scale)
        hit = draw_box(left + position * step, top, step, bottom - top, "hit")
        parts.append(make_mark(group.tip, hit, *shapes))
    widest = max(text_width(group.label, TICK) for group in bars.groups) + 6
    label_step = max(1, -(-int(widest) // int(max(step, 1))))
    for position in range(0, len(bars.groups), label_step):
        x, label = left + (position + 0.5) * step, bars.groups[position].label
        parts.append(draw_text(label, x, bottom + 17, "tick", anchor="middle"))
    center = (left + width) / 2
    parts.append(draw_text(bars.x_title, center, bottom + 37, "axis", anchor="middle"))
    return Drawing(width, height, tuple(parts))


def _draw_bar_group(
    bars: Bars, group: BarGroup, left: float, step: float, scale: ChartScale
) -> Iterator[Svg]:
    padding = min(0.16 * step, 18.0)
    bar_step = (step - 2 * padding) / len(group.shares)
    bar_width = bar_step - (2.0 if bar_step > 10 else 0.0)
    has_numbers = len(bars.groups) <= MAX_NUMBERED_BARS and bar_step > 28
    for position, (share, color) in enumerate(zip(group.shares, bars.colors, strict=True)):
        x, y = left + padding + position * bar_step, scale(share)
        radius = min(2.0, bar_step / 4)
        yield draw_box(x, y, bar_width, scale.start - y, f"{color} bar", radius=radius)
        if has_numbers:
            number = format_share(share)
            yield draw_text(number, x + bar_width / 2, y - 6, "value", anchor="middle")


# Shades


@draw_content.register(Heatmap)
def draw_heatmap(heatmap: Heatmap, width: float) -> Drawing:
    left = max((text_width(row, TICK) for row in heatmap.rows), default=0.0) + 12
    step = (width - left - 2) / len(heatmap.columns)
    height = 36.0 if width <= NARROW else 44.0
    bottom = 24 + len(heatmap.rows) * height
    parts = [draw_text(heatmap.y_title, 0.0, 12.0, "axis")]
    for row, label in enumerate(heatmap.rows):
        y = 24 + row * height
        parts.append(draw_text(label, left - 8, y + height / 2 + 4, "tick", anchor="end"))
        parts.extend(
            _draw_heatmap_cell(heatmap, row, column, (left + column * step, y), (step, height))
            for column in range(len(heatmap.columns))
        )
    row, column = heatmap.best
    corner = left + column * step, 24 + row * height
    parts.append(draw_box(*corner, step - 2, height - 2, "best", radius=4))
    for column, name in enumerate(heatmap.columns):
        x, label = left + (column + 0.5) * step, fit_text(name, step, TICK)
        parts.append(draw_text(label, x, bottom + 15, "tick", anchor="middle"))
    center = (left + width) / 2
    parts.append(draw_text(heatmap.x_title, center, bottom + 35, "axis", anchor="middle"))
    return Drawing(width, bottom + 44, tuple(parts))


def _draw_heatmap_cell(
    heatmap: Heatmap, row: int, column: int, corner: tuple[float, float], size: tuple[float, float]
) -> Svg:
    (x, y), (width, height) = corner, size
    shade, text = _rank_shade(heatmap, heatmap.values[row][column]), heatmap.texts[row][column]
    shapes = [draw_box(x, y, width - 2, height - 2, f"heat h{shade}", radius=4)]
    if text_width(text) < width - 2:
        style = "cell on" if shade > N_SHADES // 2 else "cell"
        center = x + width / 2 - 1, y + height / 2 + 3
        shapes.append(draw_text(text, *center, style, anchor="middle"))
    return make_mark(heatmap.tips[row][column], *shapes)


def _rank_shade(heatmap: Heatmap, value: float | None) -> int:
    """From 1 for the worst value to ten for the best; 0 where there is no value."""
    if value is None:
        return 0
    values = {cell for row in heatmap.values for cell in row if cell is not None}
    ranked = sorted(values, reverse=not heatmap.higher_is_better)
    return round(N_SHADES * (ranked.index(value) + 1) / len(ranked))


@draw_content.register(MatrixImage)
def draw_matrix(matrix: MatrixImage, width: float) -> Drawing:
    """Equal neighbors in a row are one box, which keeps the page small."""
    height = 0.62 * width
    step, row_height = width / len(matrix.values[0]), height / len(matrix.values)
    span = matrix.high - matrix.low or 1.0
    boxes = []
    for position, row in enumerate(matrix.values):
        x = 0.0
        for value, run in groupby(row):
            length = sum(1 for _ in run) * step
            shade = round(N_SHADES * (value - matrix.low) / span)
            boxes.append(draw_box(x, position * row_height, length, row_height, f"heat h{shade}"))
            x += length
    return Drawing(width, height, (element("g", {"class": "matrix"}, *boxes),))
