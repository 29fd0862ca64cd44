"""Policies evaluated on a file of impressions, and everything that is wrong with such a file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from unskew.data.frames import make_frame
from unskew.data.impression_checks import ImpressionFinding, validate
from unskew.data.impressions import Impressions, find_impression_columns, read_examination
from unskew.data.ratings import Ratings
from unskew.errors import BadFileError, DataError, PropensityWarning, UsageError
from unskew.evaluation.result import Comparison
from unskew.io.duckdb_files import Reader, choose_reader, open_relation
from unskew.io.files import read_table
from unskew.io.impression_files import (
    ROWS_AT_ONCE,
    ImpressionColumns,
    find_impression_problems,
    find_remedy,
    iterate_impressions,
)
from unskew.io.table import FileTable
from unskew.loading import load
from unskew.policies.curve_uncertainty import find_curve
from unskew.policies.evaluate import check_targets
from unskew.policies.frame import evaluate_policies_frame
from unskew.policies.plan import PolicyPlan
from unskew.policies.position_bias import ExaminationCurve, PositionBias
from unskew.policies.result import LOGGED, PolicyEvaluation
from unskew.policies.targets import (
    Policy,
    PolicyMixture,
    TargetProbability,
    TargetRanking,
    UniformSlate,
)
from unskew.workflows.gates import LOG, Numbers
from unskew.workflows.inputs import open_log, read_log
from unskew.workflows.requests import (
    ImpressionRequest,
    LogRequest,
    PolicyRequest,
    PositionBiasRequest,
)

WHOLE_FILE = 1 << 62


def evaluate_policy_file(request: PolicyRequest) -> PolicyEvaluation:
    """The values of policies, from a file that is read in parts of whole requests, or by DuckDB."""
    targets = _find_targets(request)
    if _choose_policy_reader(request) == "duckdb":
        return _evaluate_with_duckdb(request, targets)
    columns = _name_columns(
        request,
        {
            "target": request.target.values(),
            "ranking": request.ranking.values(),
            "arm": [column for column, _ in request.arms],
            "regression": request.regression,
        },
    )
    candidates = None
    if request.candidates is not None:
        candidates = _read_candidates(read_table(request.candidates))
    parts = iterate_impressions(
        open_log(request),
        columns,
        probability_is=request.probability_is,
        repeats=request.repeats,
        rows_at_once=WHOLE_FILE if request.estimate_examination else ROWS_AT_ONCE,
    )
    examination: object = request.examination or None
    if request.cell != PositionBias.cell and not request.estimate_examination:
        raise UsageError(
            "`cell` says how to estimate an examination curve, but none is estimated.",
            parameter="cell",
            value=request.cell,
            remedy="Pass `estimate_examination=True`, or leave it out.",
        )
    if request.estimate_examination:
        _refuse_two_curves(request)
        shown = next(parts)
        examination, parts = PositionBias(request.cell).fit(shown), iter([shown])
    plan = PolicyPlan(
        targets=check_targets(targets),
        estimators=request.estimators or None,
        candidates=candidates,
        exclude=_read_excluded(request),
        logging=_find_logging(request),
        examination=None if examination is None else read_examination(examination),
        regression=_find_regression(request),
        slot_worth=request.slot_worth,
        cluster=request.cluster,
        level=request.level,
        transform=request.transform,
        curve=find_curve(examination),
    )
    return plan.evaluate(parts)


def _refuse_two_curves(request: PolicyRequest) -> None:
    if request.examination:
        raise UsageError(
            "`examination` gives the curve that `estimate_examination` estimates.",
            parameter="examination",
            value=request.examination,
            remedy="Pass one of them.",
        )


def _choose_policy_reader(request: PolicyRequest) -> Reader:
    """The reader; an error if DuckDB is asked for what needs the rows in memory."""
    reader = choose_reader(request.reader, open_log(request))
    settings = {
        "model": request.model,
        "candidates": request.candidates,
        "exclude": request.exclude,
        "logging": request.logging == "uniform",
        "arm": request.arms,
        "transform": request.transform,
        "estimate_examination": request.estimate_examination,
    }
    in_memory = [name for name, value in settings.items() if value]
    if reader == "duckdb" and request.reader == "duckdb" and in_memory:
        raise UsageError(
            f"DuckDB reads policies from columns of the log, and `{in_memory[0]}` needs the "
            "log in memory.",
            parameter="reader",
            value="duckdb",
            remedy="Leave it out, or use `reader='memory'`.",
        )
    return "memory" if in_memory else reader


def _evaluate_with_duckdb(
    request: PolicyRequest, targets: Mapping[str, Policy | object]
) -> PolicyEvaluation:
    roles = ("request", "user", "item", "position", "reward")
    names = {role: getattr(request, role) for role in roles}
    with open_relation(open_log(request)) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", PropensityWarning)  # the command prints problems itself
        columns = find_impression_columns(names, file.columns, has_clicks=False)
        numbers = [columns[role] for role in ("position", "reward") if role in columns]
        numbers += [*request.target.values(), *request.ranking.values(), *request.regression]
        if request.probability is not None:
            numbers.append(request.probability)
        return evaluate_policies_frame(
            file.select(numbers, flags=[columns["reward"]]),
            targets,
            **names,
            probability=request.probability,
            probability_is=request.probability_is,
            estimators=request.estimators or None,
            examination=request.examination or None,
            regression=_find_regression(request),
            slot_worth=request.slot_worth,
            cluster=request.cluster,
            level=request.level,
        )


def _find_logging(request: PolicyRequest) -> Policy | None:
    """How the log was made; None if a column says it."""
    if request.arms and request.logging == "uniform":
        raise UsageError(
            "`logging='uniform'` and `arm=...` both say how the log was made.",
            parameter="arm",
            remedy="Pass one of them.",
        )
    if request.arms:
        shares = [share for _, share in request.arms if share is not None]
        if shares and len(shares) < len(request.arms):
            raise UsageError(
                f"{len(shares)} of {len(request.arms)} rankings have a share of requests.",
                parameter="arm",
                remedy="Give each ranking a share, or none.",
            )
        rankings = [TargetRanking(position=column) for column, _ in request.arms]
        return PolicyMixture(rankings, shares or None)
    return UniformSlate() if request.logging == "uniform" else None


def _find_targets(request: PolicyRequest) -> dict[str, Policy | object]:
    targets: dict[str, Policy | object] = {}
    listed = [
        *((name, TargetProbability(column)) for name, column in request.target.items()),
        *((name, TargetRanking(position=column)) for name, column in request.ranking.items()),
        *((name, TargetRanking(scores=load(file))) for name, file in request.model.items()),
    ]
    for name, target in listed:
        if name in targets:
            raise UsageError(
                f"two policies are called {name!r}.",
                parameter="target",
                value=name,
                remedy="Name them: NAME=COL.",
            )
        targets[name] = target
    if not targets:
        raise UsageError(
            "there is no policy to evaluate.",
            parameter="target",
            remedy="Pass `target=...`, a column of probabilities; `ranking=...`, a column of "
            "positions; or `model=...`, a saved model.",
        )
    return targets


def _find_regression(request: PolicyRequest) -> tuple[str, str] | None:
    if not request.regression:
        return None
    if len(request.regression) != 2:
        raise UsageError(
            f"`regression` names two columns, q and v; got {len(request.regression)}.",
            parameter="regression",
            value=request.regression,
        )
    return request.regression[0], request.regression[1]


def _name_columns(
    request: ImpressionRequest, other: Mapping[str, Iterable[str]] | None = None
) -> ImpressionColumns:
    """The columns to read; ``other`` are further ones, by the argument that names them."""
    return ImpressionColumns(
        request.request,
        request.user,
        request.item,
        request.position,
        request.reward,
        request.probability,
        {name: argument for argument, names in (other or {}).items() for name in names},
    )


def _read_candidates(table: FileTable) -> Any:
    """A frame of the items of each request or user of a file; a list of items if it has neither."""
    item = table.columns[table.find_column("item")].ids()
    for role in ("request", "user"):
        if table.has_column_for(role):
            group = table.columns[table.find_column(role)].ids()
            return make_frame(
                {f"{role}_id": group.tolist(), "item_id": item.tolist()},
                "pyarrow" if find_spec("pyarrow") else None,
            )
    return item


def _read_excluded(request: PolicyRequest) -> Ratings | None:
    if request.exclude is None:
        return None
    return read_log(LogRequest(log=request.exclude)).ratings


def compare_policies(result: PolicyEvaluation, first: str, second: str) -> list[Comparison]:
    """Two policies compared by every estimator."""
    return [result.compare(first, second, estimator=name) for name in result.estimators]


def list_policy_numbers(
    result: PolicyEvaluation, policies: tuple[str, str] | None = None
) -> Numbers:
    """The numbers that gates can test: ``snips.ci_low`` by policy, and ``compare.snips.p_value``.

    Comparisons are with the logging policy; of two ``policies``, the first is compared with the
    second.
    """
    numbers: dict[str, dict[str, float | None]] = {"n_requests": {LOG: float(result.n_requests)}}
    for value in result:
        for field in ("estimate", "std_error", "ci_low", "ci_high"):
            subject = numbers.setdefault(f"{value.estimator}.{field}", {})
            subject[value.policy] = getattr(value, field)
    for estimator in result.estimators:
        for policy in result.policies:
            second = policies[1] if policies and policies[0] == policy else LOGGED
            comparison = result.compare(policy, second, estimator=estimator)
            for field in ("difference", "ci_low", "ci_high", "p_value"):
                subject = numbers.setdefault(f"compare.{estimator}.{field}", {})
                subject[policy] = getattr(comparison, field)
    return numbers


@dataclass(frozen=True, slots=True)
class ImpressionValidation:
    """The content of a file of impressions. It cannot be used if there are ``errors``."""

    file: str
    columns: dict[str, str]
    errors: tuple[DataError, ...]
    log: str = ""
    """The log in one line; empty if it cannot be used."""
    other_columns: tuple[str, ...] = ()
    findings: tuple[ImpressionFinding, ...] = ()

    @property
    def is_usable(self) -> bool:
        return not self.errors

    def to_json(self) -> str:
        """All fields as one object, the errors as texts under ``problems``."""
        return json.dumps(
            {
                "file": self.file,
                "columns": self.columns,
                "other_columns": self.other_columns,
                "problems": [str(error) for error in self.errors],
                "log": self.log,
                "findings": [asdict(finding) for finding in self.findings],
                "is_usable": self.is_usable,
            }
        )


def validate_impression_file(request: ImpressionRequest) -> ImpressionValidation:
    """Check every row of a file of impressions; all bad columns are listed, not only the first."""
    table = read_table(open_log(request))
    columns: dict[str, str] = {}
    errors: list[DataError] = []
    for role, name in _name_columns(request).list_roles(table):
        try:
            columns[role] = table.find_column(role, name)
        except DataError as error:
            errors.append(error)
    if errors:
        return ImpressionValidation(table.name, columns, tuple(errors))
    problems = [
        BadFileError(
            f"{problem.describe(table)}.",
            where=table.locate(problem.first_row),
            remedy=find_remedy(columns, problem.column),
        )
        for problem in find_impression_problems(table, columns)
    ]
    if problems:
        return ImpressionValidation(table.name, columns, tuple(problems))
    try:
        shown = _read_whole(request)
    except DataError as error:
        return ImpressionValidation(table.name, columns, (error,))
    others = tuple(name for name in table.names if name not in columns.values())
    findings = validate(shown).findings
    return ImpressionValidation(table.name, columns, (), repr(shown), others, findings)


def estimate_position_bias(request: PositionBiasRequest) -> ExaminationCurve:
    """The examination curve, from a file of impressions."""
    other = {} if request.swap is None else {"swap": [request.swap]}
    model = PositionBias(
        request.cell,
        request.method,
        request.swap,
        request.cluster,
        request.level,
        random_state=request.random_state,
    )
    return model.fit(_read_whole(request, other)).curve_


def _read_whole(
    request: ImpressionRequest, other: Mapping[str, Iterable[str]] | None = None
) -> Impressions:
    parts = iterate_impressions(
        open_log(request),
        _name_columns(request, other),
        probability_is=request.probability_is,
        repeats=request.repeats,
        rows_at_once=WHOLE_FILE,
    )
    return next(parts)
