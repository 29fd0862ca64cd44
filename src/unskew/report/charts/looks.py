"""How series are told apart: grey for what was seen, the accent for what is corrected, and shapes for eyes without colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from unskew.report.charts.markup import Svg, element

N_COLORS = 7
DASHES = (None, "6 3", "2 3", "8 3 2 3")


@dataclass(frozen=True, slots=True)
class Look:
    """A colour of the page's style by its class, a shape, and a dash for lines."""

    color: str
    shape: str = "circle"
    is_hollow: bool = False
    dash: str | None = None

    def point(self, x: float, y: float, radius: float = 4.5) -> Svg:
        """The shape at a point."""
        kind = f"{self.color} point{' hollow' if self.is_hollow else ''}"
        return SHAPES[self.shape](x, y, radius, kind)

    def path(self, points: list[tuple[float, float]]) -> Svg:
        """A line through points."""
        return element(
            "path",
            {"d": path_of(points), "class": f"{self.color} line", "stroke-dasharray": self.dash},
        )


def path_of(points: list[tuple[float, float]]) -> str:
    """Straight lines from point to point."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _circle(x: float, y: float, radius: float, kind: str) -> Svg:
    return element("circle", {"cx": x, "cy": y, "r": radius, "class": kind})


def _polygon(angles: tuple[float, ...], reach: float) -> Callable[[float, float, float, str], Svg]:
    """Corners at these angles, in degrees from the top."""

    def draw(x: float, y: float, radius: float, kind: str) -> Svg:
        turns = [math.radians(angle) for angle in angles]
        corners = [
            (x + reach * radius * math.sin(turn), y - reach * radius * math.cos(turn))
            for turn in turns
        ]
        return element(
            "polygon", {"points": " ".join(f"{a:.1f},{b:.1f}" for a, b in corners), "class": kind}
        )

    return draw


SHAPES: Mapping[str, Callable[[float, float, float, str], Svg]] = {
    "circle": _circle,
    "square": _polygon((45, 135, 225, 315), 1.25),
    "triangle": _polygon((0, 120, 240), 1.3),
    "diamond": _polygon((0, 90, 180, 270), 1.3),
    "down": _polygon((60, 180, 300), 1.3),
    "pentagon": _polygon((0, 72, 144, 216, 288), 1.15),
    "hexagon": _polygon((30, 90, 150, 210, 270, 330), 1.15),
}
SEEN = Look("seen", "square", is_hollow=True)
CORRECTED = Look("accent")
TRUTH = Look("truth", "diamond")
ESTIMATORS = {
    "naive": SEEN,
    "snips": CORRECTED,
    "ips": Look("accent", "triangle", is_hollow=True),
    "dr": Look("c2", "diamond"),
    "eib": Look("c3", "down", is_hollow=True),
    "user_normalized": Look("c4", "pentagon"),
    "item_normalized": Look("c5", "hexagon"),
}


def look_of(place: int) -> Look:
    """The model at that place: colour, shape and dash differ together."""
    shapes = list(SHAPES)
    return Look(
        f"c{place % N_COLORS}", shapes[place % len(shapes)], dash=DASHES[place % len(DASHES)]
    )


def estimator_look(name: str, place: int) -> Look:
    """An estimator by its name; a caller's own by its place."""
    return ESTIMATORS.get(name) or look_of(place + 1)
