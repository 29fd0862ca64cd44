"""Text that a spreadsheet would take for a formula, in files that people open with one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from unskew.errors import UnskewWarning, warn_caller

FORMULA = re.compile(r"[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def warn_about_formulas(columns: Mapping[str, Iterable[Any]], file: str) -> None:
    """Warn if the text of a CSV or TSV file starts like a formula.

    It is written as it is: only then the same ids are read again.
    """
    formulas = list(_find_formulas(columns))
    if formulas:
        name, value = formulas[0]
        warn_caller(
            UnskewWarning(
                f"{len(formulas):,} texts of {file} start like a formula; the first is "
                f"{str(value)!r} in column {name!r}.",
                value=value,
                remedy="A spreadsheet may run them: import the columns as text, or write Parquet.",
            )
        )


def _find_formulas(columns: Mapping[str, Iterable[Any]]) -> Iterator[tuple[str, str]]:
    for name, values in columns.items():
        if getattr(getattr(values, "dtype", None), "kind", "O") not in "OUT":
            continue
        for value in (name, *values):
            is_text = isinstance(value, str) and FORMULA.match(value)
            if is_text and not NUMBER.fullmatch(value):
                yield name, value
