"""A log in a file, split into a training part and a test part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.data.parts import Part
from unskew.io.files import read_table
from unskew.io.log_files import ColumnNames
from unskew.model_selection.splits import split
from unskew.workflows.inputs import open_log, read_log
from unskew.workflows.requests import SplitRequest


@dataclass(frozen=True, slots=True, eq=False)
class LogPart:
    """A part of the table of a log, with all of its columns."""

    part: Part
    columns: dict[str, Any]

    def describe(self) -> str:
        """``2,000 of 10,000 ratings, a share of 0.2``."""
        size = f"{self.part.rows.size:,} of {self.part.n_whole:,} ratings"
        return f"{size}, a share of {self.part.share:.6g}"


def split_log(request: SplitRequest) -> tuple[LogPart, LogPart]:
    """The training part and the test part of the log, as :func:`unskew.split` draws them."""
    table = read_table(open_log(request))
    timestamp = request.timestamp
    if timestamp is None and request.by == "time":
        timestamp = table.find_column("timestamp")
    log = read_log(request, table, columns=ColumnNames(timestamp=timestamp))
    columns = {name: log.values(name) for name in table.names}
    train, test = (
        LogPart(each.part, {name: values[each.part.rows] for name, values in columns.items()})
        for each in split(
            log.ratings, share=request.share, by=request.by, random_state=request.random_state
        )
        if each.part is not None
    )
    return train, test
