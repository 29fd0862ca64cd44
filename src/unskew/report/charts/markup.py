"""SVG as text. What was drawn and what a user wrote are different types: only escaped words get into a drawing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import NewType

Svg = NewType("Svg", str)
"""Markup that is safe to put into a page."""
Attributes = Mapping[str, str | float | None]


def element(name: str, attributes: Attributes, *children: Svg) -> Svg:
    """One element; an attribute that is None is left out.

    >>> element("circle", {"r": 2.5, "class": '"x"', "rx": None})
    '<circle r="2.5" class="&quot;x&quot;"/>'
    """
    written = "".join(
        f' {key}="{_value(value)}"' for key, value in attributes.items() if value is not None
    )
    return Svg(
        f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"
    )


def words(text: str) -> Svg:
    """Anybody's text, escaped."""
    return Svg(escape(text))


def group(parts: Iterable[Svg], kind: str) -> Svg:
    """Parts of one kind together."""
    return element("g", {"class": kind}, *parts)


def label(text: str, x: float, y: float, kind: str, *, anchor: str = "start") -> Svg:
    """A line of text at a point; ``anchor`` is ``start``, ``middle`` or ``end``."""
    return element(
        "text",
        {"x": x, "y": y, "class": kind, "text-anchor": None if anchor == "start" else anchor},
        words(text),
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Svg:
    """A straight line."""
    return element("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": kind})


def box(
    x: float, y: float, width: float, height: float, kind: str, *, radius: float | None = None
) -> Svg:
    """A rectangle."""
    return element(
        "rect",
        {
            "x": x,
            "y": y,
            "width": max(width, 0.0),
            "height": max(height, 0.0),
            "rx": radius,
            "class": kind,
        },
    )


def mark(tip: str, *shapes: Svg) -> Svg:
    """Shapes that tell their values when pointed at, or stepped to with the keyboard."""
    return element("g", {"class": "mark"}, element("title", {}, words(tip)), *shapes)


def _value(value: str | float | None) -> str:
    return (
        f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escape(str(value))
    )
