"""Models judged on a log in a file."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.data.columns import find_column
from unskew.data.frames import make_frame
from unskew.data.ids import encode, find_codes, missing_ids
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, UniverseLike
from unskew.errors import BadPredictionError, ColumnError, UnskewWarning, UsageError
from unskew.estimators.transforms import Clip, WeightTransform
from unskew.evaluation.arguments import chosen_estimators, chosen_metrics
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.frames import evaluate_frame
from unskew.evaluation.groups import GroupedEvaluation
from unskew.evaluation.result import Comparison, Evaluation
from unskew.io.duckdb_files import Engine, choose_engine, open_relation
from unskew.io.files import read_table
from unskew.io.formats import Source
from unskew.io.log_files import (
    Logged,
    OnBad,
    Repeats,
    Wanted,
    read_log,
    read_numbers,
    rows_of_cells,
    spelled_as,
)
from unskew.io.table import Table, first_of
from unskew.loading import load
from unskew.models.recommender import Recommender
from unskew.tables import count_noun
from unskew.types import Vector
from unskew.workflows.gates import GROUP, LOG, Numbers
from unskew.workflows.propensities import QUICK, SAVED, named_column, propensities_for

Judgement: TypeAlias = Evaluation | GroupedEvaluation
FIELDS = ("estimate", "std_error", "ci_low", "ci_high")


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be judged, on what, and how."""

    log: Source
    columns: Wanted = field(default_factory=Wanted)
    """Names of user, item and rating; of the columns that are predictions, and of their positions."""
    predictions: Mapping[str, Source | str] = field(default_factory=dict)
    """By model: a file of user, item and prediction, or the path of a saved model."""
    propensity: str | None = None
    """A column, the path of a saved model, or the name of one to fit."""
    mcar: Source | None = None
    universe: UniverseLike = None
    metrics: tuple[str, ...] = ("mse", "mae")
    estimators: tuple[str, ...] = ("naive", "ips", "snips")
    cluster: Literal["user", "item"] | None = None
    level: float = 0.95
    clip: float | None = None
    relevant: float | None = None
    by: str | None = None
    on_bad: OnBad = "raise"
    repeats: Repeats = "raise"
    engine: Engine = "auto"
    seed: int = 0

    @property
    def transform(self) -> WeightTransform | None:
        """The limit on weights."""
        return None if self.clip is None else Clip(self.clip)

    @property
    def is_about_columns(self) -> bool:
        """Whether all that is judged is in the log's file."""
        return not self.predictions and self.repeats == "raise" and not _is_model(self.propensity)

    @property
    def whole_universe(self) -> UniverseLike:
        """That of the whole log; with groups it is theirs that is given, unless a model is fitted to all of them."""
        return (
            self.universe
            if self.by is None or self.universe == "log" or _is_model(self.propensity)
            else None
        )

    @property
    def is_weighted(self) -> bool:
        """Whether propensities are needed."""
        return any(estimator.is_weighted for estimator in chosen_estimators(self.estimators))


def evaluate_log(task: Task) -> Judgement:
    """Judge, in memory or by DuckDB."""
    chosen_metrics(task.metrics, relevant=task.relevant)
    engine = choose_engine(task.engine, task.log)
    if engine == "duckdb" and not task.is_about_columns:
        if task.engine == "duckdb":
            raise UsageError(
                "DuckDB judges what is in the log's file: predictions and propensities that are columns of it, each cell once. "
                "Join them first, or choose the engine 'memory'."
            )
        engine = "memory"
    return _by_duckdb(task) if engine == "duckdb" else _in_memory(task)


def comparisons(result: Judgement, first: str, second: str) -> dict[str, list[Any]]:
    """Two models compared, by every metric and estimator (and in every group)."""
    rows = [
        group | {name: value[0] for name, value in compared.to_columns().items()}
        for group, found in _groups(result)
        for compared in _compared(found, first, second)
    ]
    return {name: [row[name] for row in rows] for name in rows[0]}


def evaluation_numbers(result: Judgement, compare: tuple[str, str] | None = None) -> Numbers:
    """The numbers that a gate may look at: ``snips.mae.ci_high`` of each model, and ``ess`` and ``n_observed`` of the log."""
    numbers: dict[str, dict[str, float | None]] = {}
    for group, found in _groups(result):
        where = "".join(f"{GROUP}{name} is {value!r}" for name, value in group.items())
        for risk in found:
            for part in FIELDS:
                numbers.setdefault(f"{risk.estimator}.{risk.metric}.{part}", {})[
                    f"{risk.model}{where}"
                ] = getattr(risk, part)
        numbers.setdefault("n_observed", {})[f"{LOG}{where}"] = float(found.n_observed)
        ess = None if found.health is None else found.health.effective_sample_size
        numbers.setdefault("ess", {})[f"{LOG}{where}"] = ess
        for each in _compared(found, *compare) if compare else ():
            for part in ("difference", "ci_low", "ci_high", "p_value"):
                name = f"compare.{each.estimator}.{each.metric}.{part}"
                numbers.setdefault(name, {})[f"{each.first} minus {each.second}{where}"] = getattr(
                    each, part
                )
    return numbers


def footer(result: Judgement) -> str:
    """What the numbers were computed from, in words."""
    if isinstance(result, Evaluation):
        return repr(result).splitlines()[-1]
    first, n_observed = (
        next(iter(result.values())),
        sum(each.n_observed for each in result.values()),
    )
    sizes = f"{count_noun(n_observed, 'observed cell')} in {count_noun(len(result), 'group')}"
    return f"{sizes}; {first.level:.0%} intervals, {first.intervals}"


def _groups(result: Judgement) -> list[tuple[dict[str, Any], Evaluation]]:
    if isinstance(result, GroupedEvaluation):
        return [({result.by: group}, found) for group, found in result.items()]
    return [({}, result)]


def _compared(found: Evaluation, first: str, second: str) -> list[Comparison]:
    pairs = [(metric, estimator) for metric in found.metrics for estimator in found.estimators]
    return [
        found.compare(first, second, metric=metric, estimator=estimator)
        for metric, estimator in pairs
    ]


def _in_memory(task: Task) -> Judgement:
    table = read_table(task.log)
    column = named_column(table, task.propensity) if task.is_weighted else None
    wanted = replace(task.columns, propensity=column, predictions=_prediction_columns(task, table))
    logged = read_log(
        table,
        wanted,
        universe=task.whole_universe,
        on_bad=task.on_bad,
        repeats=task.repeats,
    )
    for note in logged.notes:
        warnings.warn(note, UnskewWarning, stacklevel=2)
    _require_propensity(task, column)
    values = (
        propensities_for(logged, task.propensity, task.mcar, task.seed)
        if task.is_weighted
        else None
    )
    models = _column_models(logged) | {
        name: _model(name, given, logged.ratings) for name, given in task.predictions.items()
    }
    if len(models) < len(wanted.predictions) + len(task.predictions):
        raise UsageError(
            f"two models have one name; the models are {', '.join([*wanted.predictions, *task.predictions])}."
        )
    if task.by is None:
        return replace(
            _judge(task, logged.ratings, models, values, task.universe), n_dropped=logged.n_dropped
        )
    return _judge_groups(task, logged, models, values)


def _judge(
    task: Task, log: Ratings, models: Mapping[str, Any], propensities: Any, universe: UniverseLike
) -> Evaluation:
    return evaluate(
        log,
        models,
        propensities=propensities,
        metrics=task.metrics,
        estimators=task.estimators,
        universe=universe,
        level=task.level,
        cluster=task.cluster,
        relevant=task.relevant,
        transform=task.transform,
    )


def _judge_groups(
    task: Task, logged: Logged, models: Mapping[str, Any], propensities: Any
) -> GroupedEvaluation:
    """Every group as a log of its own."""
    by = str(task.by)
    if by not in logged.table.names:
        raise ColumnError(
            f"{logged.table.name}: there is no column {by!r} for by=; the columns are {', '.join(map(repr, logged.table.names))}."
        )
    groups = logged.ids(by)
    log, found = logged.ratings, {}
    values = None if propensities is None else np.asarray(propensities)
    for group in _distinct(groups):
        rows = np.flatnonzero(missing_ids(groups) if group is None else groups == group)
        part = Ratings.from_arrays(
            log.users[log.user[rows]], log.items[log.item[rows]], log.rating[rows]
        )
        own = {
            name: model[rows] if isinstance(model, np.ndarray) else model
            for name, model in models.items()
        }
        size = Universe(part.n_users, part.n_items) if task.universe == "log" else task.universe
        found[group] = _judge(task, part, own, None if values is None else values[rows], size)
    return GroupedEvaluation(by, found)


def _distinct(groups: Any) -> list[Any]:
    present = groups[~missing_ids(groups)]
    values: list[Any] = encode(present)[1].tolist() if present.size else []
    return values + [None] * bool(missing_ids(groups).any())


def _by_duckdb(task: Task) -> Judgement:
    names = task.columns
    columns = open_relation(task.log, ()).columns
    rating = find_column("rating", names.rating, columns)
    predictions = names.predictions or (find_column("prediction", None, columns),)
    propensity = find_column("propensity", task.propensity, columns) if task.is_weighted else None
    numbers = [rating, *predictions, *names.positions, *([propensity] if propensity else [])]
    return evaluate_frame(
        open_relation(task.log, numbers),
        prediction=predictions,
        user=names.user,
        item=names.item,
        rating=rating,
        propensity=propensity,
        position=names.positions or None,
        metrics=task.metrics,
        estimators=task.estimators,
        universe=task.universe,
        level=task.level,
        cluster=task.cluster,
        relevant=task.relevant,
        transform=task.transform,
        by=task.by,
        on_bad=task.on_bad,
        check_duplicates=True,
    )


def _is_model(propensity: str | None) -> bool:
    return propensity is not None and (propensity.endswith(SAVED) or propensity in QUICK)


def _prediction_columns(task: Task, table: Table) -> tuple[str, ...]:
    """Those that are named; without any, and without other models, the one that is spelled so."""
    if task.columns.predictions or task.predictions:
        return task.columns.predictions
    return (table.find("prediction"),)


def _require_propensity(task: Task, column: str | None) -> None:
    if task.is_weighted and column is None and task.propensity is None:
        weighted = [each.name for each in chosen_estimators(task.estimators) if each.is_weighted]
        raise UsageError(
            f"{' and '.join(weighted)} weight by propensities, and {task.log.shown} has no column of that name: pass "
            f"propensity=..., a column, a {SAVED} file, or one of {', '.join(QUICK)}; or judge by estimators=['naive'] alone."
        )


def _column_models(logged: Logged) -> dict[str, Any]:
    """The columns that are predictions, with their positions where there are any."""
    names, places = logged.wanted.predictions, logged.wanted.positions
    if not places:
        return {name: logged.numbers(name) for name in names}
    if len(places) != len(names):
        raise UsageError(
            f"there are {len(names)} columns of predictions, but {len(places)} of positions; give one for each."
        )
    pairs = zip(names, places, strict=True)
    return {
        name: _frame(logged.ratings, logged.numbers(name), logged.numbers(place))
        for name, place in pairs
    }


def _frame(log: Ratings, prediction: Vector, position: Vector) -> Any:
    return make_frame(
        {
            "user_id": log.users[log.user].tolist(),
            "item_id": log.items[log.item].tolist(),
            "prediction": prediction,
            "position": position,
        }
    )


def _model(name: str, given: Source | str, log: Ratings) -> Any:
    """A saved model, or what a file predicts for the cells of the log."""
    if isinstance(given, str):
        model = load(given)
        if not isinstance(model, Recommender):
            raise UsageError(
                f"model {name!r}: {given} holds a {type(model).__name__}, which predicts no ratings."
            )
        _warn_of_strangers(name, model, log)
        _warn_of_training_cells(name, model, log)
        return _Respelled(model)
    return _matched(name, read_table(given), log)


def _warn_of_strangers(name: str, model: Recommender, log: Ratings) -> None:
    """A model predicts for users and items that it does not know, too; whoever reads the numbers should know."""
    unknown = {
        "users": int((find_codes(spelled_as(log.users, model.users_), model.users_) < 0).sum()),
        "items": int((find_codes(spelled_as(log.items, model.items_), model.items_) < 0).sum()),
    }
    if any(unknown.values()):
        counts = " and ".join(
            f"{count:,} of the log's {kind}" for kind, count in unknown.items() if count
        )
        warnings.warn(
            f"model {name!r} was not trained on {counts}; there it predicts from what it knows of the rest.",
            UnskewWarning,
            stacklevel=2,
        )


def _warn_of_training_cells(name: str, model: Recommender, log: Ratings) -> None:
    spelled = replace(
        log, users=spelled_as(log.users, model.users_), items=spelled_as(log.items, model.items_)
    )
    n_seen = model.n_seen(spelled)
    if n_seen:
        warnings.warn(
            f"model {name!r} was trained on {n_seen:,} of the {len(log):,} cells that it is judged on, where its errors are too "
            "small. Judge it on ratings held out.",
            UnskewWarning,
            stacklevel=2,
        )


def _matched(name: str, table: Table, log: Ratings) -> Any:
    """A file's predictions in the order of the log, with positions where it has them."""
    prediction = read_numbers(table, "prediction")
    rows = rows_of_cells(table, log)
    if (rows < 0).any():
        first = log.name_cell(first_of(rows < 0)).partition(" (")[2].removesuffix(")")
        raise BadPredictionError(
            f"model {name!r}: {table.name} lacks {int((rows < 0).sum()):,} of {len(log):,} logged cells; the first is {first}. "
            "Predict those too, or judge on a log without them."
        )
    if not table.spells("position"):
        return prediction[rows]
    return _frame(log, prediction[rows], read_numbers(table, "position")[rows])


@dataclass(frozen=True, slots=True, eq=False)
class _Respelled:
    """A model asked for ids that its own log may have spelled otherwise."""

    model: Recommender

    @property
    def predicts_ratings(self) -> bool:
        """Whether its predictions are ratings."""
        return self.model.predicts_ratings

    @property
    def threshold(self) -> float | None:
        """From which rating on it predicts a click, if it does."""
        return getattr(self.model, "threshold", None)

    def predict(self, users: Any, items: Any, /) -> Vector:
        """Its predictions."""
        return self.model.predict(
            spelled_as(users, self.model.users_), spelled_as(items, self.model.items_)
        )

    def scorer(self, users: Any, items: Any, /) -> Any:
        """Its scores."""
        return self.model.scorer(
            spelled_as(users, self.model.users_), spelled_as(items, self.model.items_)
        )
