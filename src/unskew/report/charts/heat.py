"""A table of numbers as shades."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from unskew.report.charts.chart import NARROW, Drawing, fitted, text_width
from unskew.report.charts.markup import Svg, box, element, label, mark

SHADES = 10
TALL, SHORT = 44.0, 36.0
SMALL_WIDTH = 224.0


@dataclass(frozen=True, slots=True)
class Heat:
    """Numbers by row and column, shaded by rank, so that one bad setting does not hide the rest."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    shown: Sequence[Sequence[str]]
    tips: Sequence[Sequence[str]]
    across: str
    up: str
    higher_is_better: bool
    best: tuple[int, int]

    def draw(self, width: float) -> Drawing:
        """As wide as that."""
        left = max((text_width(row, 11.5) for row in self.rows), default=0.0) + 12
        step, height = (width - left - 2) / len(self.columns), SHORT if width <= NARROW else TALL
        parts = [label(self.up, 0.0, 12.0, "axis")]
        for place, row in enumerate(self.rows):
            y = 24 + place * height
            parts.append(label(row, left - 8, y + height / 2 + 4, "tick", anchor="end"))
            parts.extend(
                self._cell((place, at), left + at * step, y, step, height)
                for at in range(len(self.columns))
            )
        best_row, best_column = self.best
        parts.append(
            box(
                left + best_column * step,
                24 + best_row * height,
                step - 2,
                height - 2,
                "best",
                radius=4,
            )
        )
        bottom = 24 + len(self.rows) * height
        for place, name in enumerate(self.columns):
            parts.append(
                label(
                    fitted(name, step, 11.5),
                    left + (place + 0.5) * step,
                    bottom + 15,
                    "tick",
                    anchor="middle",
                )
            )
        parts.append(label(self.across, (left + width) / 2, bottom + 35, "axis", anchor="middle"))
        return Drawing(width, bottom + 44, tuple(parts))

    def _cell(self, at: tuple[int, int], x: float, y: float, step: float, height: float) -> Svg:
        row, column = at
        shade, text = self._shade(self.values[row][column]), self.shown[row][column]
        shapes = [box(x, y, step - 2, height - 2, f"heat h{shade}", radius=4)]
        if text_width(text, 12) < step - 2:
            kind = "cell on" if shade > SHADES // 2 else "cell"
            shapes.append(label(text, x + step / 2 - 1, y + height / 2 + 3, kind, anchor="middle"))
        return mark(self.tips[row][column], *shapes)

    def _shade(self, value: float | None) -> int:
        """0 for the worst to ten for the best."""
        if value is None:
            return 0
        others = sorted(
            {each for line in self.values for each in line if each is not None},
            reverse=not self.higher_is_better,
        )
        return round(SHADES * (others.index(value) + 1) / len(others))


def small_heat(values: Sequence[Sequence[float]], low: float, high: float) -> Drawing:
    """A matrix without letters; equal neighbours are one box."""
    height = SMALL_WIDTH * 0.62
    step, rise = SMALL_WIDTH / len(values[0]), height / len(values)
    span = high - low or 1.0
    shapes = [
        shape
        for place, row in enumerate(values)
        for shape in _runs(row, place * rise, step, rise, low, span)
    ]
    return Drawing(SMALL_WIDTH, height, (element("g", {"class": "matrix"}, *shapes),))


def _runs(
    row: Sequence[float], y: float, step: float, rise: float, low: float, span: float
) -> Iterator[Svg]:
    x = 0.0
    for value, same in groupby(row):
        length = sum(1 for _ in same) * step
        yield box(x, y, length, rise, f"heat h{round(SHADES * (value - low) / span)}")
        x += length
