"""A chart is drawn twice, for wide and for narrow pages, so that its letters keep their size on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import unescape

from unskew.report.charts.looks import Look
from unskew.report.charts.markup import Attributes, Svg, element, words

WIDE, NARROW = 720.0, 350.0
MOST_TOLD = 60
"""Values that a description lists; the table has the rest."""
LETTER = 0.56
"""Width of a letter over its height, on average."""
TIP = re.compile(r'<g class="mark"><title>(.*?)</title>', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes on an area."""

    width: float
    height: float
    content: tuple[Svg, ...]


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    label: str
    swatch: Svg


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart with what it shows, in words."""

    title: str
    drawings: tuple[tuple[str, Svg], ...]
    """SVG by the width of page that it is for: ``wide`` and ``narrow``, or ``any``."""
    legend: tuple[Key, ...] = ()
    caption: str = ""


def chart(
    title: str, draw: Callable[[float], Drawing], *, legend: Sequence[Key] = (), caption: str = ""
) -> Chart:
    """Draw for both widths."""
    drawn = (("wide", _svg(title, draw(WIDE))), ("narrow", _svg(title, draw(NARROW))))
    return Chart(title, drawn, tuple(legend), caption)


def small_chart(title: str, drawing: Drawing, *, caption: str = "") -> Chart:
    """One of several small ones side by side, the same on every page."""
    return Chart(title, (("any", _svg(title, drawing)),), (), caption)


def key(name: str, look: Look, *, is_line: bool = False) -> Key:
    """A name beside its mark."""
    shapes = (
        (look.path([(1.0, 8.0), (27.0, 8.0)]), look.point(14.0, 8.0, 4.0))
        if is_line
        else (look.point(8.0, 8.0, 4.5),)
    )
    width = 28 if is_line else 16
    return Key(name, _swatch(width, *shapes))


def bar_key(name: str, color: str) -> Key:
    """A name beside its colour."""
    return Key(
        name,
        _swatch(
            16,
            element(
                "rect",
                {"x": 2, "y": 2, "width": 12, "height": 12, "rx": 2, "class": f"{color} bar"},
            ),
        ),
    )


def line_key(name: str, kind: str) -> Key:
    """A name beside a plain line."""
    return Key(
        name, _swatch(28, element("line", {"x1": 1, "y1": 8, "x2": 27, "y2": 8, "class": kind}))
    )


def fitted(text: str, width: float, size: float = 12.0) -> str:
    """As much of a text as has room."""
    most = max(int(width / (LETTER * size)), 4)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def text_width(text: str, size: float = 12.0) -> float:
    """About how wide a text will be."""
    return LETTER * size * len(text)


def rule_key(name: str, kind: str) -> Key:
    """A name beside an upright line."""
    return Key(
        name, _swatch(16, element("line", {"x1": 8, "y1": 1, "x2": 8, "y2": 15, "class": kind}))
    )


def _swatch(width: int, *shapes: Svg) -> Svg:
    attributes: Attributes = {
        "class": "swatch",
        "viewBox": f"0 0 {width} 16",
        "width": width,
        "height": 16,
        "aria-hidden": "true",
    }
    return element("svg", attributes, *shapes)


def _svg(title: str, drawing: Drawing) -> Svg:
    """With the values as a description, for whoever cannot see the picture."""
    tips = [unescape(tip) for part in drawing.content for tip in TIP.findall(part)]
    told = "; ".join(tips[:MOST_TOLD]) + (
        f"; and {len(tips) - MOST_TOLD:,} more" if len(tips) > MOST_TOLD else ""
    )
    attributes: Attributes = {
        "class": "drawing",
        "viewBox": f"0 0 {drawing.width:g} {drawing.height:g}",
        "role": "img",
        "tabindex": 0,
    }
    heads = element("title", {}, words(title)), element("desc", {}, words(told or title))
    return element("svg", attributes, *heads, *drawing.content)
