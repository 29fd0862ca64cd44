"""Tables of named columns as text and as HTML, and numbers as results print them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from html import escape

BIDI_CONTROLS = frozenset("LRE RLE LRO RLO PDF LRI RLI FSI PDI".split())
"""Classes of invisible characters that reverse the order of what follows."""
P_VALUE_COLUMNS = frozenset({"p_value", "p_adjusted", "p value", "p adjusted", "p-value"})
"""Names of columns with p-values, and their headings on pages."""
SMALL_P_VALUE = 0.001
"""A smaller p-value is shown as an upper limit: its digits say nothing."""
PREVIEW = slice(5)
"""The rows of a log that a notebook shows."""
UNDECIDED = "not told apart"
"""What a table shows in place of a better model if there is none."""


def text_table(columns: Mapping[str, Sequence[object]]) -> str:
    """Columns side by side; columns with numbers are aligned to the right.

    >>> print(text_table({"model": ["a", "bb"], "mae": [0.5, 1.25]}))
    model    mae
    a      0.500
    bb     1.250
    """
    aligned = []
    for name, values in columns.items():
        texts = (str(name), *(format_cell(name, value) for value in values))
        cells = [escape_controls(text) for text in texts]
        width = max(map(len, cells))
        align = str.rjust if _has_numbers(values) else str.ljust
        aligned.append([align(cell, width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*aligned, strict=True))


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""The text without characters that move the cursor, change colours or reverse the order.

    Ids and names come from files. Such characters could hide or forge what a terminal or a page
    shows. ``keep`` lists those that stay.

    >>> escape_controls("item \x1b[31m4"), escape_controls("a\nb"), escape_controls("a b")
    ('item \\x1b[31m4', 'a\\nb', 'a b')
    """
    if text.isprintable():
        return text
    controls = {letter for letter in set(text) - set(keep) if _is_control(letter)}
    return text.translate({ord(each): each.encode("unicode_escape").decode() for each in controls})


def is_unicode(text: str) -> bool:
    """False for text with half a surrogate pair, which no library can write."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _is_control(letter: str) -> bool:
    """Whether it is a control character, half a surrogate pair, a line end, or reverses text."""
    kind = unicodedata.category(letter)
    return kind in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(letter) in BIDI_CONTROLS


def html_table(columns: Mapping[str, Sequence[object]]) -> str:
    """The same as an HTML table; every value is escaped. Indented labels stay indented."""
    head = "".join(
        f"<th{_style_column(values, is_head=True)}>{escape(str(name))}</th>"
        for name, values in columns.items()
    )
    cell = {name: _style_column(values) for name, values in columns.items()}
    rows = (
        "".join(
            f"<td{cell[name]}>{escape(format_cell(name, value))}</td>"
            for name, value in zip(columns, row, strict=True)
        )
        for row in zip(*columns.values(), strict=True)
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return escape_controls(table)


def html_preview(text: str, columns: Mapping[str, Sequence[object]], n_rows: int) -> str:
    """A text, a table of the first rows of a log, and how many rows follow."""
    n_more = n_rows - max(map(len, columns.values()))
    more = f"<p>... {n_more:,} more</p>" if n_more else ""
    return f"<p>{escape(text)}</p>{html_table(columns)}{more}"


def _style_column(values: Sequence[object], *, is_head: bool = False) -> str:
    """The style of the cells: notebooks align to the right, which suits numbers only."""
    if _has_numbers(values):
        return ""
    is_indented = any(isinstance(value, str) and value.startswith(" ") for value in values)
    spaces = "; white-space: pre" if is_indented and not is_head else ""
    return f' style="text-align: left{spaces}"'


def _has_numbers(values: Sequence[object]) -> bool:
    return any(isinstance(value, (int, float)) for value in values)


def format_value(value: object) -> str:
    """A float with three decimals, two from 100 on; scientific below 0.001 and from 10^9 on.

    Other values are text, and what is missing is a dash.

    >>> format_value(0.5), format_value(1234.5), format_value(0.0002), format_value("a")
    ('0.500', '1,234.50', '2.00e-04', 'a')
    >>> format_value(-6.39e24)
    '-6.39e+24'
    >>> format_value(float("nan")), format_value(None)
    ('-', '-')
    """
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "-"
    if value and not 0.001 <= abs(value) < 1e9 and math.isfinite(value):
        return f"{value:.2e}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.2f}"


def format_cell(column: str, value: object) -> str:
    """A value of a table; p-values below 0.001 are not shown as 0.

    >>> format_cell("p_value", 0.0), format_cell("p_value", 0.02), format_cell("mae", 0.0)
    ('< 0.001', '0.020', '0.000')
    """
    if column in P_VALUE_COLUMNS and isinstance(value, float) and value < SMALL_P_VALUE:
        return f"< {SMALL_P_VALUE}"
    return format_value(value)


def format_p_value(value: float) -> str:
    """A p-value in a sentence, with two digits.

    >>> format_p_value(0.123), format_p_value(0.0)
    ('p = 0.12', 'p < 0.001')
    """
    return f"p < {SMALL_P_VALUE}" if value < SMALL_P_VALUE else f"p = {value:.2g}"


def count_noun(count: float, noun: str) -> str:
    """A number and a noun, in the plural unless the number is 1.

    >>> count_noun(1, "user"), count_noun(2000, "user"), count_noun(0, "bad row")
    ('1 user', '2,000 users', '0 bad rows')
    """
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def join_words(words: Sequence[str]) -> str:
    """A list in a sentence.

    >>> join_words(["MAE"]), join_words(["MAE", "MSE", "DCG"])
    ('MAE', 'MAE, MSE and DCG')
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
