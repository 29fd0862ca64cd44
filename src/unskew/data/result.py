"""What all results share: a table, JSON, an HTML page and a figure."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from unskew._version import __version__
from unskew.data.frames import make_frame
from unskew.data.tracking import log_numbers
from unskew.registry import load_report_function
from unskew.tables import escape_controls, html_table, text_table


class Result(ABC):
    """A frozen record that shows itself as a table, as JSON, as a page and as a figure.

    A subclass gives its table (:meth:`to_columns`), its content (:meth:`to_record`), perhaps a
    footer, and the ``kind`` by which its page is found. ``backend`` names the data frame library
    of the caller.
    """

    __slots__ = ()
    kind: ClassVar[str]
    backend: str | None

    @abstractmethod
    def to_columns(self) -> dict[str, Any]:
        """The table as named columns."""

    @abstractmethod
    def to_record(self) -> Mapping[str, Any]:
        """The content of the JSON object, without its kind and version."""

    def to_frame(self, backend: str | None = None) -> Any:
        """The table as a data frame of the caller's library, or of the named one."""
        return make_frame(
            self.to_columns(), getattr(self, "backend", None) if backend is None else backend
        )

    def to_json(self) -> str:
        """The result as a JSON object, from which ``unskew report`` makes its page.

        JSON has no NaN and no infinity: they are null.
        """
        record = replace_non_finite(describe_json(self.kind) | dict(self.to_record()))
        return json.dumps(record, default=str, allow_nan=False)

    def to_html(self, path: str | Path) -> Path:
        """Write the result as one self-contained HTML file; returns its path."""
        page: Path = load_report_function("write_page")(self.to_json(), path)
        return page

    def log_to(self, run: Any) -> None:
        """Log the table to a run of MLflow or Weights & Biases; page and JSON become artifacts.

        ``run`` is ``mlflow.active_run()``, the module ``mlflow``, or what ``wandb.init()`` returns.
        A metric is named like ``svd/ndcg_at_10/snips/estimate``. Limits that are not finite are
        not logged.
        """

        def write_files(folder: Path) -> list[Path]:
            json_file = folder / f"{self.kind}.json"
            json_file.write_text(self.to_json())
            return [self.to_html(folder / f"{self.kind}.html"), json_file]

        log_numbers(run, self.to_columns(), write_files)

    def _draw(self, ax: Any, **options: Any) -> Any:
        """The figure of this kind of result, drawn by the report package."""
        return load_report_function("draw")(self.kind, self, ax, **options)

    def _shown_columns(self) -> dict[str, Any]:
        """The columns that people see; by default all of them."""
        return self.to_columns()

    def _footer(self) -> Iterable[str]:
        """Texts below the table that people see."""
        return ()

    def __repr__(self) -> str:
        lines = "\n".join(self._footer()).splitlines()
        return "\n".join([text_table(self._shown_columns()), *map(escape_controls, lines)])

    def _repr_html_(self) -> str:
        texts = (escape(text).replace("\n", "<br>") for text in self._footer())
        return html_table(self._shown_columns()) + "".join(f"<p>{text}</p>" for text in texts)


def replace_non_finite(value: Any) -> Any:
    """The same lists and mappings, with None in place of NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: replace_non_finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_non_finite(part) for part in value]
    return value


def describe_json(kind: str) -> dict[str, str]:
    """What every result's JSON says about itself: its kind, and the version that wrote it."""
    return {"kind": kind, "version": __version__}
