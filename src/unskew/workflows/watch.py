"""A growing log in a file: count its new rows, and look at the risks so far."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from unskew.data.cells import RowNumbers
from unskew.data.ids import missing_ids
from unskew.data.universe import parse_universe
from unskew.errors import BadFileError, UnskewWarning, UsageError
from unskew.evaluation.monitor import Monitor, Watch
from unskew.evaluation.monitor_state import MonitorPlan
from unskew.io.growing_files import NewRows, read_new_rows
from unskew.io.log_files import ColumnNames, OnBad, find_problems, find_usable_rows
from unskew.io.table import FileTable
from unskew.types import BoolVector
from unskew.workflows.gates import LOG, Gate, Numbers
from unskew.workflows.inputs import open_log, refuse_overflow
from unskew.workflows.requests import WatchRequest

PROOFS = {"ci_low": (">", ">="), "ci_high": ("<", "<="), "p_value": ("<", "<=")}
"""Comparisons by which a limit shows something. The others are true while limits are wide."""
RISK_NUMBER = re.compile(r".*\.(estimate|difference|ci_low|ci_high|p_value)(\..*)?")


def watch_log(request: WatchRequest) -> Watch:
    """Count the new rows of the log, save the state, and return what the log shows now."""
    monitor = _open_monitor(request)
    source = open_log(request)
    new = read_new_rows(source, monitor.position)
    if new.table is not None:
        with refuse_overflow(request.log):
            _count(monitor, request, new, new.table)
    if new.has_unfinished_line:
        warnings.warn(
            UnskewWarning(
                f"the last line of {source.label} has no line end: it may still be written, and is "
                "left for the next time."
            ),
            stacklevel=2,
        )
    monitor.position = dict(new.position)
    if monitor.n_rows == 0:
        raise BadFileError(f"{source.label} has no row to count yet.", where=source.label)
    monitor.save(request.state)
    watch = monitor.watch()
    for text in watch.warnings:
        warnings.warn(UnskewWarning(text), stacklevel=2)
    return watch


def _open_monitor(request: WatchRequest) -> Monitor:
    """The monitor in the state file, which must have the same plan; else a new one."""
    if Path(request.state).exists():
        monitor = Monitor.load(request.state)
        if request.planned_size is None:
            request = replace(request, planned_size=monitor.plan.planned_size)
        _require_same_plan(monitor.plan, _make_plan(request), request.state)
        return monitor
    if request.planned_size is None:
        raise UsageError(
            "the size that the log is planned to have is missing. It decides where the limits are "
            "narrowest, and must be fixed before the first look.",
            parameter="planned_size",
            remedy="Pass `planned_size=...`: a rough number is enough.",
        )
    return Monitor.from_plan(_make_plan(request))


def _make_plan(request: WatchRequest) -> MonitorPlan:
    if not request.prediction:
        raise UsageError(
            "there is no model to watch.",
            parameter="prediction",
            remedy="Pass `prediction=...`: a column with the predictions of a model.",
        )
    if request.universe == "log":
        raise UsageError(
            "a growing log does not have all of its users and items yet.",
            parameter="universe",
            value="log",
            remedy="Pass `universe=(n_users, n_items)`.",
        )
    size = None if request.universe is None else parse_universe(request.universe)
    assert request.planned_size is not None
    return MonitorPlan(
        models=request.prediction,
        planned_size=request.planned_size,
        metrics=request.metrics,
        level=request.level,
        unit=request.unit,
        look_every=request.look_every,
        has_unobserved=request.has_unobserved,
        universe=None if size is None else (size.n_users, size.n_items),
        max_weight=request.max_weight,
        max_delta=request.max_delta,
        rating=request.rating,
        propensity=request.propensities,
    )


def _require_same_plan(saved: MonitorPlan, plan: MonitorPlan, path: str) -> None:
    for each in fields(MonitorPlan):
        before, now = getattr(saved, each.name), getattr(plan, each.name)
        if before != now:
            names = {"models": "prediction", "propensity": "propensities"}
            name = names.get(each.name, each.name)
            raise UsageError(
                f"{path} was started {_describe_choice(name, before)}, not "
                f"{_describe_choice(name, now)}. A plan that "
                "changes after a look at the data makes the limits wrong.",
                parameter=name,
                value=now,
                remedy="Keep the plan, or start again with another `state` file.",
            )


def _describe_choice(name: str, value: object) -> str:
    return f"without `{name}`" if value is None else f"with `{name}` {value!r}"


def _count(monitor: Monitor, request: WatchRequest, new: NewRows, table: FileTable) -> None:
    columns = ColumnNames(
        user=request.user,
        item=request.item,
        rating=request.rating,
        propensity=table.find_column("propensity", request.propensities),
        predictions=request.prediction,
    ).resolve(table)
    roles = columns.roles
    is_unobserved = np.zeros(len(table), dtype=bool)
    if request.has_unobserved:
        is_unobserved = missing_ids(table.columns[roles["rating"]].ids())
    rows = _find_rows(table, columns, is_unobserved, new.first, request.on_bad)
    propensity, *predictions = (
        table.columns[name].numbers()[rows]
        for name in (str(columns.propensity), *columns.predictions)
    )
    monitor.update(
        np.where(is_unobserved[rows], np.nan, table.columns[roles["rating"]].numbers()[rows]),
        dict(zip(request.prediction, predictions, strict=True)),
        propensity,
        users=table.columns[roles["user"]].ids()[rows] if request.unit == "user" else None,
    )


def _find_rows(
    table: FileTable, columns: ColumnNames, is_unobserved: BoolVector, first: int, on_bad: OnBad
) -> RowNumbers:
    """The rows to count; an error or a warning about rows that cannot be used."""
    is_new = np.arange(len(table)) >= first
    ids = (columns.user, columns.item)
    problems = []
    for problem in find_problems(table, columns):
        # A row that was not rated needs no rating, propensity or prediction.
        matters = is_new if problem.column in ids else is_new & ~is_unobserved
        problems.append(replace(problem, is_bad=problem.is_bad & matters))
    rows, notes = find_usable_rows(table, problems, on_bad, is_new, "new rows")
    for note in notes:
        warnings.warn(UnskewWarning(note), stacklevel=4)
    return rows


def list_numbers(watch: Watch) -> Numbers:
    """The numbers that gates can test: ``snips.mae.ci_low`` by model, ``ess``, ``n_rows``.

    Those of differences are ``compare.snips.mae.ci_low``, for each pair of models.
    """
    numbers: dict[str, dict[str, float | None]] = {
        "n_rows": {LOG: float(watch.look["n_rows"])},
        "ess": {LOG: float(watch.look["effective_size"])},
    }
    for row in watch.look["rows"]:
        for name in ("ci_low", "ci_high"):
            key = f"{row['estimator']}.{row['metric']}.{name}"
            numbers.setdefault(key, {})[row["model"]] = row[name]
    for row in watch.look["differences"]:
        for name in ("ci_low", "ci_high", "p_value"):
            key = f"compare.{row['estimator']}.{row['metric']}.{name}"
            numbers.setdefault(key, {})[f"{row['first']} minus {row['second']}"] = row[name]
    return numbers


def require_proofs(gates: Sequence[Gate]) -> None:
    """Raise an error for a gate that wide limits or a lucky look would trip."""
    for gate in gates:
        match = RISK_NUMBER.fullmatch(gate.name)
        if match is not None and gate.sign not in PROOFS.get(match[1], ()):
            raise UsageError(
                f"{gate.text!r} can trip at one of many looks although nothing is wrong.",
                parameter="fail_if",
                value=gate.text,
                remedy="Use ci_low>NUMBER to fail once a number is shown to be above, "
                "ci_high<NUMBER once it is shown to be below, or p_value<NUMBER.",
            )


def check_watch(gates: Sequence[Gate], watch: Watch) -> tuple[str, ...]:
    """The gates that tripped, in words; limits that do not exist yet trip none."""
    numbers = list_numbers(watch)
    tested = [gate for gate in gates if not watch.is_early or _has_limits(gate, numbers)]
    if len(tested) < len(gates):
        warnings.warn(
            UnskewWarning(
                f"it is too early for confidence limits, so {len(gates) - len(tested)} of "
                f"{len(gates)} conditions of `fail_if` were not tested."
            ),
            stacklevel=2,
        )
    return tuple(text for gate in tested for text in gate.find_violations(numbers))


def _has_limits(gate: Gate, numbers: Numbers) -> bool:
    """Whether the number of a gate exists at an early look: sizes, and exact limits."""
    if RISK_NUMBER.fullmatch(gate.name) is None:
        return True
    is_exact = gate.name.removeprefix("compare.").startswith("exact.")
    return is_exact and any(
        gate.name == name or gate.name.startswith(f"{name}.") for name in numbers
    )
