"""Estimates with their intervals, one below the other, numbers to the right; on a narrow page names and numbers lie above."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from unskew.report.charts.axes import Axis, below
from unskew.report.charts.chart import NARROW, Drawing, fitted, text_width
from unskew.report.charts.looks import Look
from unskew.report.charts.markup import Svg, box, label, line, mark
from unskew.report.charts.scales import Scale

HEAD, GAP, SIDES = 28.0, 10.0, 26.0
LETTERS = 13.0
MOST_ROWS = 48
"""Of one chart: more are a wall that nobody reads."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """An estimate; without limits where there are none."""

    label: str
    value: float
    look: Look
    tip: str
    low: float | None = None
    high: float | None = None
    shown: str = ""
    """The number as it stands to the right."""
    others: tuple[tuple[float, Look, str], ...] = ()
    """Further points on the same line, each with its tip."""

    @property
    def reach(self) -> list[float]:
        """Every number that must have room."""
        return [
            end
            for end in (self.value, self.low, self.high, *(at for at, _, _ in self.others))
            if end is not None
        ]


@dataclass(frozen=True, slots=True)
class Block:
    """Rows under one name, or under none."""

    name: str
    rows: tuple[Row, ...]
    truth: float | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things go at one width."""

    width: float
    left: float
    right: float
    row: float
    mark: float
    """How far below a row's top its mark lies."""

    @classmethod
    def of(cls, width: float, rows: Sequence[Row]) -> Layout:
        """Side by side, or above one another where that leaves no room."""
        if width <= NARROW and any(row.shown for row in rows):
            return cls(width, 6.0, width - 6.0, 48.0, 29.0)
        left = min(
            max((text_width(row.label, LETTERS) for row in rows), default=0.0) + 16, 0.36 * width
        )
        right = width - max((text_width(row.shown, LETTERS) for row in rows), default=0.0) - 20
        return cls(width, left, right, 26.0, 13.0)

    @property
    def is_stacked(self) -> bool:
        """Whether names and numbers lie above the marks."""
        return self.mark > self.row / 2

    def height(self, block: Block) -> float:
        """Of a block."""
        return (HEAD + GAP if block.name else 0.0) + self.row * len(block.rows)


@dataclass(frozen=True, slots=True)
class Forest:
    """Blocks over one axis."""

    blocks: Sequence[Block]
    axis: Axis
    reference: float | None = None
    """Where a line is drawn: no difference, say."""
    sides: tuple[str, str] | None = None
    """Who is better left and right of the line."""
    band: tuple[float, float] | None = None
    """What is small enough, shaded."""

    def draw(self, width: float) -> Drawing:
        """As wide as that."""
        layout = Layout.of(width, [row for block in self.blocks for row in block.rows])
        scale = self.axis.scale(self._values(), layout.left, layout.right)
        top = SIDES if self.sides else 4.0
        bottom = top + sum(layout.height(block) for block in self.blocks) + 4
        parts = [*self._behind(scale, top, bottom), *below(self.axis, scale, top, bottom)]
        if self.reference is not None:
            parts.append(
                line(scale(self.reference), top, scale(self.reference), bottom, "reference")
            )
        y = top
        for block in self.blocks:
            parts.extend(_block(block, scale, y, layout))
            y += layout.height(block)
        return Drawing(width, bottom + (44 if self.axis.title else 26), tuple(parts))

    def _values(self) -> list[float]:
        ends = [end for block in self.blocks for row in block.rows for end in row.reach]
        truths = [block.truth for block in self.blocks if block.truth is not None]
        return (
            ends
            + truths
            + ([] if self.reference is None else [self.reference])
            + list(self.band or ())
        )

    def _behind(self, scale: Scale, top: float, bottom: float) -> Iterator[Svg]:
        if self.band is not None:
            low, high = (scale(end) for end in self.band)
            yield box(low, top, high - low, bottom - top, "band")
        if self.sides is not None:
            left, right = self.sides
            room = (scale.end - scale.start) / 2 - text_width("← better", LETTERS)
            yield label(f"← {fitted(left, room, LETTERS)} better", scale.start, 14, "side")
            yield label(
                f"{fitted(right, room, LETTERS)} better →", scale.end, 14, "side", anchor="end"
            )


def foremost(
    parts: Sequence[T], order: Sequence[int], *, rows_each: int, what: str
) -> tuple[Sequence[T], str]:
    """As many parts as a chart has room for, by their places in order of interest; and in words how many were left out."""
    n_shown = max(MOST_ROWS // max(rows_each, 1), 1)
    if len(parts) <= n_shown:
        return parts, ""
    left_out = f"{len(parts) - n_shown:,} left out here, all of them in the table"
    return [
        parts[place] for place in order[:n_shown]
    ], f"The {n_shown:,} {what} of {len(parts):,}; {left_out}."


def _block(block: Block, scale: Scale, y: float, layout: Layout) -> Iterator[Svg]:
    if block.name:
        yield label(fitted(block.name, layout.width, 13.5), 0.0, y + 19, "head over")
        y += HEAD
    for row in block.rows:
        if block.truth is not None:
            yield _truth(scale(block.truth), y, layout)
        yield from _row(row, scale, y, layout)
        y += layout.row


def _truth(x: float, top: float, layout: Layout) -> Svg:
    """Through the row, but clear of a number that lies above."""
    return line(
        x,
        top + (layout.mark - 9 if layout.is_stacked else 1),
        x,
        top + layout.mark + 12,
        "truth rule",
    )


def _row(row: Row, scale: Scale, top: float, layout: Layout) -> Iterator[Svg]:
    y = top + layout.mark
    written = top + 16 if layout.is_stacked else y + 4.5
    room = (
        layout.width - text_width(row.shown, LETTERS) - 8 if layout.is_stacked else layout.left - 8
    )
    shapes = [box(scale.start, top, scale.end - scale.start, layout.row, "hit")]
    if row.low is not None and row.high is not None:
        shapes.append(line(scale(row.low), y, scale(row.high), y, f"{row.look.color} whisker"))
    yield mark(row.tip, *shapes, row.look.point(scale(row.value), y))
    for at, look, tip in row.others:
        yield mark(tip, look.point(scale(at), y))
    yield label(fitted(row.label, room, LETTERS), 0.0, written, "name over")
    if row.shown:
        yield label(row.shown, layout.width, written, "number over", anchor="end")
