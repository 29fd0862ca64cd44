"""What all results share: a table, JSON, an HTML page, a figure, and a place in a tracker."""

from __future__ import annotations

import json
import math
import re
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from html import escape
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

from unskew._version import __version__
from unskew.data.frames import make_frame
from unskew.errors import UsageError
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

    def _headline(self) -> str:
        """What a notebook shows above the table: by default the headline of the page, if any."""
        headline: str = load_report_function("write_headline")(self.to_json())
        return headline

    def _footer(self) -> Iterable[str]:
        """Texts below the table that people see."""
        return ()

    def __repr__(self) -> str:
        lines = "\n".join(self._footer()).splitlines()
        return "\n".join([text_table(self._shown_columns()), *map(escape_controls, lines)])

    def _repr_html_(self) -> str:
        headline = escape(self._headline()).replace("\n", "<br>")
        first = f"<p><strong>{headline}</strong></p>" if headline else ""
        texts = (escape(text).replace("\n", "<br>") for text in self._footer())
        paragraphs = "".join(f"<p>{text}</p>" for text in texts)
        return escape_controls(first + html_table(self._shown_columns()) + paragraphs)


class DrawableResult(Result):
    """A result whose page has charts."""

    __slots__ = ()

    def plot(self, ax: Any = None) -> Any:
        """Draw the first charts of the page.

        Returns a new matplotlib figure, or None if ``ax``, one axes for each chart, is given.
        """
        return self._draw(ax)


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


FOLDER = "unskew"
"""The folder (MLflow) or the type (Weights & Biases) of the artifacts of a result."""


def log_numbers(
    run: Any, columns: Mapping[str, Any], write_files: Callable[[Path], list[Path]]
) -> None:
    """Log a table to a run of MLflow or Weights & Biases, and files as artifacts.

    ``write_files`` writes the files into a folder and returns their paths.
    """
    log_metrics, log_file = _find_tracker(run)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder))
        log_metrics(name_numbers(columns))
        for path in paths:
            log_file(path)


def name_numbers(columns: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a table, each named by the texts of its row and by its column.

    >>> name_numbers({"model": ["svd"], "metric": ["ndcg@10"], "estimate": [0.5]})
    {'svd/ndcg_at_10/estimate': 0.5}
    """
    named = {}
    for row in zip(*columns.values(), strict=True):
        cells = dict(zip(columns, row, strict=True))
        words = [_clean_name(str(value)) for value in cells.values() if isinstance(value, str)]
        for column, value in cells.items():
            if isinstance(value, Real) and math.isfinite(value):
                named["/".join([*words, _clean_name(column)])] = float(value)
    return named


def _clean_name(name: str) -> str:
    """The name with only those characters that all trackers accept."""
    return re.sub(r"[^\w. -]", "_", name.replace("@", "_at_"))


def _find_tracker(
    run: Any,
) -> tuple[Callable[[dict[str, float]], object], Callable[[Path], object]]:
    """The functions of the run that log metrics and a file."""
    library = (getattr(run, "__name__", None) or type(run).__module__).partition(".")[0]
    if library == "wandb" and hasattr(run, "log"):
        return run.log, lambda path: run.log_artifact(str(path), name=path.name, type=FOLDER)
    if library == "mlflow":
        return _open_mlflow(run)
    raise UsageError(
        f"`run` must be a run of MLflow or of Weights & Biases; got {type(run).__name__}.",
        parameter="run",
        remedy="Pass mlflow.active_run(), the module mlflow itself, or what wandb.init() returns.",
    )


def _open_mlflow(
    run: Any,
) -> tuple[Callable[[dict[str, float]], object], Callable[[Path], object]]:
    """As :func:`_open_run`, for a run of MLflow or the module ``mlflow``, whose run is active."""
    from mlflow import MlflowClient, active_run

    current = active_run() if hasattr(run, "active_run") else run
    if current is None:
        raise UsageError(
            "MLflow has no active run.",
            parameter="run",
            remedy="Log the result inside `with mlflow.start_run():`.",
        )
    client, run_id = MlflowClient(), current.info.run_id

    def log_metrics(numbers: dict[str, float]) -> None:
        for name, value in numbers.items():
            client.log_metric(run_id, name, value)

    return log_metrics, lambda path: client.log_artifact(run_id, str(path), FOLDER)
