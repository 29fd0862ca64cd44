"""What an experiment gives back: rows of ours beside the paper's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unskew.data.result import describe_json
from unskew.plugins import load_report_function
from unskew.tables import html_table, text_table


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reproduction:
    """One table or figure of the paper, run again."""

    name: str
    trials: int
    seed: int
    rows: Sequence[Mapping[str, Any]]
    """A row per printed cell, with our values and the paper's (None where the paper prints none)."""
    table: Mapping[str, Sequence[object]]
    """The same for the eye, column by column."""
    summary: str
    """One paragraph: what to see in it."""
    caption: str = ""
    """What the numbers of the table are."""
    setting: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """What the experiment was made of, column by column, where that is small enough to show."""
    grids: Mapping[str, npt.NDArray[np.generic]] = field(default_factory=dict)
    """The same as matrices, for a drawing."""
    unit: str = "draw"
    """What is counted by ``trials``."""

    def to_json(self) -> str:
        """One object: name, trials, seed, rows; and what a page shows beside them."""
        return json.dumps(
            describe_json("reproduction")
            | {
                "name": self.name,
                "trials": self.trials,
                "seed": self.seed,
                "rows": list(self.rows),
                "unit": self.unit,
                "summary": self.summary,
                "caption": self.caption,
                "table": {name: list(values) for name, values in self.table.items()},
                "setting": {name: list(values) for name, values in self.setting.items()},
                "grids": {name: grid.tolist() for name, grid in self.grids.items()},
            }
        )

    def to_html(self, path: str | Path) -> Path:
        """Ours beside the paper's, as one HTML file that needs nothing else. Returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def __repr__(self) -> str:
        return f"{text_table(self.table)}\n{self.caption}\n\n{self.summary}"

    def _repr_html_(self) -> str:
        return f"{html_table(self.table)}<p>{self.caption}</p><p>{self.summary}</p>"
