"""What :func:`unskew.evaluate_frame` returns where groups of rows are judged apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.data.frames import make_frame
from unskew.data.result import describe_json
from unskew.errors import UnknownNameError
from unskew.evaluation.result import Evaluation
from unskew.plugins import load_report_function
from unskew.tables import html_table, text_table


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GroupedEvaluation(Mapping[Any, Evaluation]):
    """An :class:`Evaluation` for each value of a column; a missing value is None."""

    by: str
    """The column."""
    groups: Mapping[Any, Evaluation]
    backend: str | None = None

    def __getitem__(self, group: Any) -> Evaluation:
        if group not in self.groups:
            raise UnknownNameError(self.by, group, map(repr, self.groups))
        return self.groups[group]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    def to_columns(self) -> dict[str, list[Any]]:
        """The group, and every column of its evaluation; a list each."""
        tables = {group: found.to_columns() for group, found in self.groups.items()}
        names = next(iter(tables.values()))
        group = [group for group, table in tables.items() for _ in table["model"]]
        found = {
            name: [value for table in tables.values() for value in table[name]] for name in names
        }
        return {f"group: {self.by}" if self.by in found else self.by: group} | found

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame of the caller's own library, or of the named one."""
        return make_frame(self.to_columns(), backend or self.backend)

    def to_json(self) -> str:
        """The evaluations, each with its group."""
        groups = [
            {"group": group, **json.loads(found.to_json())} for group, found in self.groups.items()
        ]
        return json.dumps(
            describe_json("grouped_evaluation") | {"by": self.by, "groups": groups}, default=str
        )

    def to_html(self, path: str | Path) -> Path:
        """The groups beside one another, as one HTML file that needs nothing else. Returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def __repr__(self) -> str:
        return text_table(self.to_columns())

    def _repr_html_(self) -> str:
        return html_table(self.to_columns())
