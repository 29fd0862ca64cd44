"""The result of an experiment: our numbers next to those of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.result import Result
from unskew.errors import UsageError
from unskew.tables import html_table, text_table

Row: TypeAlias = dict[str, Any]
"""One number of a table or figure: what it is, our value, and the paper's."""


def check_trials(trials: int, experiment: str, reason: str) -> None:
    """Experiments with intervals over their trials need at least two."""
    if trials < 2:
        raise UsageError(
            f"{experiment} has {reason}, which need at least 2 `trials`; got {trials}.",
            parameter="trials",
            value=trials,
        )


def format_difference(row: Row) -> str:
    """The difference in a row, with the limits of its interval."""
    return f"{row['ours']:+.3f} [{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reproduction(Result):
    """One table or figure of the paper, reproduced."""

    kind: ClassVar[str] = "reproduction"

    name: str
    trials: int
    random_state: int
    rows: Sequence[Mapping[str, Any]]
    """Our values and the paper's; a value that the paper does not print is None."""
    table: Mapping[str, Sequence[object]]
    """The rows as columns of text for people."""
    summary: str
    """One paragraph about what the numbers show."""
    caption: str = ""
    """What the numbers of the table are."""
    input_table: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """The input of the experiment as a table, if it is small enough to show."""
    input_matrices: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    """The input of the experiment as matrices, for a drawing."""
    unit: str = "draw"
    """What ``trials`` counts."""

    def to_columns(self) -> dict[str, Any]:
        return dict(self.table)

    def to_record(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "trials": self.trials,
            "seed": self.random_state,
            "rows": list(self.rows),
            "unit": self.unit,
            "summary": self.summary,
            "caption": self.caption,
            "table": {name: list(values) for name, values in self.table.items()},
            "input_table": {name: list(values) for name, values in self.input_table.items()},
            "input_matrices": {
                name: matrix.tolist() for name, matrix in self.input_matrices.items()
            },
        }

    def __repr__(self) -> str:
        return f"{text_table(self.table)}\n{self.caption}\n\n{self.summary}"

    def _repr_html_(self) -> str:
        return f"{html_table(self.table)}<p>{escape(self.caption)}</p><p>{escape(self.summary)}</p>"
