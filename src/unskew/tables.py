"""Plain tables of named columns, as text and as HTML, for the way results show themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape


def text_table(columns: Mapping[str, Sequence[object]]) -> str:
    """Columns side by side, numbers to the right.

    >>> print(text_table({"model": ["a", "bb"], "mae": [0.5, 1.25]}))
    model    mae
    a      0.500
    bb     1.250
    """
    cells = {name: [show(value) for value in values] for name, values in columns.items()}
    widths = {name: max(map(len, [name, *values])) for name, values in cells.items()}
    right = {
        name: any(isinstance(value, (int, float)) for value in columns[name]) for name in columns
    }
    lines = [[name, *values] for name, values in cells.items()]
    aligned = [
        [text.rjust(widths[name]) if right[name] else text.ljust(widths[name]) for text in line]
        for name, line in zip(cells, lines, strict=True)
    ]
    return "\n".join("  ".join(row).rstrip() for row in zip(*aligned, strict=True))


def html_table(columns: Mapping[str, Sequence[object]]) -> str:
    """The same as an HTML table; every value is escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = zip(*columns.values(), strict=True)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(show(value))}</td>' for value in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def show(value: object) -> str:
    """A number to four significant places, at least three decimals below 100; anything else as it is."""
    if not isinstance(value, float):
        return str(value)
    if value and abs(value) < 0.001:
        return f"{value:.2e}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.2f}"


def count_noun(count: float, noun: str) -> str:
    """So many of something.

    >>> counted(1, "user"), counted(2000, "user"), counted(0, "bad row")
    ('1 user', '2,000 users', '0 bad rows')
    """
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"
