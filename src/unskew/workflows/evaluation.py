"""Evaluation of models on a log in a file, in memory or with DuckDB."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeAlias

import numpy as np

from unskew.data.columns import find_column
from unskew.data.frames import is_frame, make_frame, open_frame
from unskew.data.ids import Ids, encode, missing_ids
from unskew.data.propensities import as_propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, UniverseLike
from unskew.errors import (
    BadFileError,
    BadPredictionError,
    ColumnError,
    UnskewWarning,
    UsageError,
    warn_caller,
)
from unskew.evaluation.arguments import find_estimators, find_metrics
from unskew.evaluation.evaluate import evaluate
from unskew.evaluation.frame import GroupedEvaluation, evaluate_frame, format_group
from unskew.evaluation.result import Comparison, Evaluation, Premise
from unskew.evaluation.training_overlap import TRAINED_ON, TrainingOverlap
from unskew.io.duckdb_files import choose_reader, open_relation, scale_shares
from unskew.io.files import read_table
from unskew.io.log_files import (
    ColumnNames,
    FileLog,
    find_cell_rows,
    match_id_types,
    read_ids,
    read_numbers,
)
from unskew.io.table import FileTable, is_number
from unskew.models.recommender import Recommender
from unskew.ranking.positions import find_ranker
from unskew.tables import count_noun
from unskew.types import Vector
from unskew.workflows import inputs
from unskew.workflows.gates import GROUP, LOG, Numbers
from unskew.workflows.held_out import HeldOutTest
from unskew.workflows.requests import EvaluationRequest, list_named_models

POSITION = "position"
"""The column of positions in frames that are made here."""
AnyEvaluation: TypeAlias = Evaluation | GroupedEvaluation


def evaluate_log(request: EvaluationRequest) -> AnyEvaluation:
    """Evaluate the requested models; DuckDB reads a log that does not fit into memory."""
    find_metrics(request.metrics, relevance_threshold=request.relevance_threshold)
    find_ranker(request.engine)  # a wrong name is an error, also if there is nothing to rank
    reader = choose_reader(request.reader, inputs.open_log(request))
    if reader == "duckdb" and not _has_all_columns(request):
        if request.reader == "duckdb":
            raise UsageError(
                "DuckDB needs ratings, predictions and propensities in columns of the log, each "
                "cell once, and all items ranked.",
                parameter="reader",
                value="duckdb",
                remedy="Join them first, or use `reader='memory'`.",
            )
        reader = "memory"
    is_lazy = reader == "duckdb"
    evaluation = _evaluate_with_duckdb(request) if is_lazy else _evaluate_in_memory(request)
    for _, part in _list_parts(evaluation):
        for problem in part.problems_without_warning():
            warnings.warn(problem, stacklevel=2)
    return evaluation


def _has_all_columns(request: EvaluationRequest) -> bool:
    return (
        not (request.predictions or request.model or request.exclude or request.candidates)
        and request.duplicates == "raise"
        and not inputs.is_model(request.propensities)
        and (request.rating is None or not is_number(request.rating))
    )


def _uses_weights(request: EvaluationRequest) -> bool:
    return any(estimator.is_weighted for estimator in find_estimators(request.estimators))


# In memory


def _evaluate_in_memory(request: EvaluationRequest) -> AnyEvaluation:
    """Read all files of the request, and evaluate the log or each group of it."""
    table = inputs.read_log_table(request)
    uses_weights = _uses_weights(request)
    column = inputs.find_propensity_column(table, request.propensities) if uses_weights else None
    predictions = _find_prediction_columns(request, table)
    columns = ColumnNames(
        propensity=column,
        predictions=predictions,
        positions=request.position[: len(predictions)],
        timestamp=request.timestamp,
    )
    # With groups, a stated universe is that of each group, not of the log; but a propensity model
    # is fitted to the whole log and needs one.
    has_universe = (
        request.by is None or request.universe == "log" or inputs.is_model(request.propensities)
    )
    log = inputs.read_log(
        request if has_universe else replace(request, universe=None), table, columns=columns
    )
    log = inputs.as_part(log, request.held_out)
    if uses_weights and column is None and request.propensities is None:
        raise _missing_propensity_error(request, table.name)
    saved = _load_models(request)
    test = HeldOutTest.read(request, log, saved.values())
    propensities = None
    if uses_weights:
        # A saved propensity model may know only the ids of the log; one that is fitted now gets
        # those of the training log, the candidates and the saved recommenders too.
        is_saved = request.propensities is not None and inputs.is_model_file(request.propensities)
        propensities = inputs.find_propensities(request, log if is_saved else test.log)
    log = test.log
    models = _read_models(request, log, saved)
    if request.by is not None:
        return _evaluate_groups(request, request.by, log, models, propensities)
    evaluation = _evaluate(
        request,
        log.ratings,
        models,
        propensities,
        request.universe,
        exclude=test.excluded,
        candidates=test.candidates,
    )
    return replace(evaluation, n_dropped=log.n_dropped)


def _find_prediction_columns(request: EvaluationRequest, table: FileTable) -> tuple[str, ...]:
    """The named columns; without any model, the one with a common name for predictions."""
    if request.prediction or request.predictions or request.model:
        return request.prediction
    return (table.find_column("prediction"),)


def _missing_propensity_error(request: EvaluationRequest, file: str) -> UsageError:
    weighted = [each.name for each in find_estimators(request.estimators) if each.is_weighted]
    return UsageError(
        f"{' and '.join(weighted)} need propensities, but {file} has no column of propensities.",
        parameter="propensities",
        remedy=f"Pass `propensities=...`: a column, a {inputs.MODEL_EXTENSION} file, or one of "
        f"{', '.join(list_named_models(with_features=False))}; or use only `estimators=['naive']`.",
    )


def _evaluate(
    request: EvaluationRequest,
    log: Ratings,
    models: Mapping[str, Any],
    propensities: Any,
    universe: UniverseLike,
    **candidates: Any,
) -> Evaluation:
    positions = {
        name: POSITION
        for name, model in models.items()
        if is_frame(model) and POSITION in open_frame(model).columns
    }
    with inputs.refuse_overflow(request.log):
        evaluation = evaluate(
            log,
            models,
            propensities=propensities,
            universe=universe,
            position=positions or None,
            engine=request.engine,
            **candidates,
            **_list_settings(request),
        )
    return _note_share(request, evaluation)


def _note_share(request: EvaluationRequest, evaluation: Evaluation) -> Evaluation:
    """The result with a note about the share of the log, if the request states one."""
    if request.held_out is None:
        return evaluation
    note = (
        f"the log is taken as a random part with a share of {request.held_out:.6g} of a larger "
        "log, and propensities as those of the larger log times this share"
    )
    return replace(evaluation, notes=(note, *evaluation.notes))


def _list_settings(request: EvaluationRequest) -> dict[str, Any]:
    """The settings that logs in memory and in DuckDB share."""
    return {
        "metrics": request.metrics,
        "estimators": request.estimators,
        "level": request.level,
        "cluster": None if request.cluster == "cell" else request.cluster,
        "propensities_known": request.propensities_known,
        "relevance_threshold": request.relevance_threshold,
        "weight_transform": request.weight_transform,
    }


def _evaluate_groups(
    request: EvaluationRequest, by: str, log: FileLog, models: Mapping[str, Any], propensities: Any
) -> GroupedEvaluation:
    """Evaluate each value of the column ``by`` as a log of its own; None is a missing value."""
    if by not in log.table.names:
        raise ColumnError(
            f"{log.table.name}: there is no column {by!r} for `by=`; "
            f"the columns are {', '.join(map(repr, log.table.names))}.",
            parameter="by",
            value=by,
        )
    groups, ratings, evaluations = log.ids(by), log.ratings, {}
    values = None if propensities is None else as_propensities(ratings, propensities)
    for group in _list_groups(groups):
        rows = np.flatnonzero(missing_ids(groups) if group is None else groups == group)
        part = Ratings.from_arrays(
            ratings.users[ratings.user[rows]],
            ratings.items[ratings.item[rows]],
            ratings.rating[rows],
        )
        is_log = request.universe == "log"
        with warnings.catch_warnings():
            # The warnings below are about all groups.
            warnings.filterwarnings("ignore", TRAINED_ON, UnskewWarning)
            evaluations[group] = _evaluate(
                request,
                part,
                {
                    name: model[rows] if isinstance(model, np.ndarray) else model
                    for name, model in models.items()
                },
                None if values is None else values.take(rows),
                Universe(part.n_users, part.n_items) if is_log else request.universe,
            )
    overlaps = (each.training_overlap for each in evaluations.values())
    for warning in reduce(add, filter(None, overlaps), TrainingOverlap(0, {})).warnings():
        warn_caller(warning)
    return GroupedEvaluation(by, evaluations)


def _list_groups(groups: Any) -> list[Any]:
    is_missing = missing_ids(groups)
    present = groups[~is_missing]
    values: list[Any] = encode(present)[1].tolist() if present.size else []
    return values + [None] * bool(is_missing.any())


# With DuckDB


def _evaluate_with_duckdb(request: EvaluationRequest) -> AnyEvaluation:
    with open_relation(inputs.open_log(request)) as file:
        rating = find_column("rating", request.rating, file.columns)
        predictions = request.prediction or (find_column("prediction", None, file.columns),)
        propensity = None
        if _uses_weights(request):
            propensity = find_column("propensity", request.propensities, file.columns)
        number_columns = [rating, *predictions, *request.position]
        if propensity is not None:
            number_columns.append(propensity)
        rows = file.select(number_columns)
        if propensity is not None and request.held_out is not None:
            rows = scale_shares(rows, propensity, request.held_out)
        evaluation = evaluate_frame(
            rows,
            prediction=predictions,
            user=request.user,
            item=request.item,
            rating=rating,
            propensity=propensity,
            position=request.position or None,
            universe=request.universe,
            by=request.by,
            on_bad=request.on_bad,
            check_duplicates=True,
            **_list_settings(request),
        )
    if isinstance(evaluation, GroupedEvaluation):
        parts = {group: _note_share(request, part) for group, part in evaluation.items()}
        return replace(evaluation, groups=parts)
    return _note_share(request, evaluation)


# Models


def _load_models(request: EvaluationRequest) -> dict[str, Recommender]:
    """The saved recommenders, by name."""
    wrong = next((path for path in request.model.values() if not inputs.is_model_file(path)), None)
    if wrong is not None:
        raise UsageError(
            f"{wrong} is not a saved model: its name does not end in {inputs.MODEL_EXTENSION}.",
            parameter="model",
            value=wrong,
            remedy="Name a file of predictions with `predictions=...`.",
        )
    files = [*request.predictions.items(), *request.model.items()]
    return {
        name: inputs.load_recommender(path) for name, path in files if inputs.is_model_file(path)
    }


def _read_models(
    request: EvaluationRequest, log: FileLog, saved: Mapping[str, Recommender]
) -> dict[str, Any]:
    """All models, by name, in the order of the request."""
    columns = log.columns.predictions
    files = [*request.predictions.items(), *request.model.items()]
    names = [*columns, *(name for name, _ in files)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"two models have the name {twice!r}.",
            parameter="predictions",
            remedy="Give the file another name: --predictions NAME=FILE.",
        )
    positions = _name_positions(request, columns)
    models: dict[str, Any] = {
        name: log.numbers(name)
        if name not in positions
        else _make_prediction_frame(log.ratings, log.numbers(name), log.numbers(positions[name]))
        for name in columns
    }
    ranks = _ranks_items(request)
    for name, path in files:
        if name in saved:
            models[name] = _check_recommender(name, saved[name], log.ratings)
        else:
            position = positions.get(name)
            models[name] = _read_file(name, path, log.ratings, ranks=ranks, position=position)
    return models


def _name_positions(request: EvaluationRequest, columns: tuple[str, ...]) -> dict[str, str]:
    """The column of positions of each model that has one, in the log or in its own file."""
    positions = request.position
    files = [name for name, path in request.predictions.items() if not inputs.is_model_file(path)]
    if len(positions) == 1 and not columns:
        positions *= len(files)
    if len(positions) not in (0, len(columns), len(columns) + len(files)):
        in_files = f" and {count_noun(len(files), 'file')}" if files else ""
        raise UsageError(
            f"there are {count_noun(len(columns), 'column')}{in_files} of predictions, but "
            f"{count_noun(len(positions), 'column')} of positions.",
            parameter="position",
            value=positions,
            remedy="Name one column of positions for each column of predictions, then one for each "
            "file.",
        )
    return dict(zip([*columns, *files], positions, strict=False))


def _make_prediction_frame(log: Ratings, prediction: Vector, position: Vector) -> Any:
    return make_frame(
        {
            "user_id": log.users[log.user].tolist(),
            "item_id": log.items[log.item].tolist(),
            "prediction": prediction,
            POSITION: position,
        }
    )


def _ranks_items(request: EvaluationRequest) -> bool:
    metrics = find_metrics(request.metrics, relevance_threshold=request.relevance_threshold)
    return any(metric.ranks for metric in metrics)


def _read_file(name: str, path: str, log: Ratings, *, ranks: bool, position: str | None) -> Any:
    """The predictions in a file.

    If a metric ``ranks`` items and no column of positions is named, predictions of cells that are
    not in the log are needed too.
    """
    table = read_table(path)
    if ranks and position is None:
        return _read_all_predictions(table, log)
    return _read_predictions(name, table, log, position)


def _check_recommender(name: str, model: Recommender, log: Ratings) -> SavedRecommender:
    _warn_about_unknown_ids(name, model, log)
    return SavedRecommender(model)


def _read_predictions(name: str, table: FileTable, log: Ratings, position: str | None) -> Any:
    """The predictions of a file in the order of the log, with positions if a column is named."""
    prediction = read_numbers(table, "prediction")
    rows = find_cell_rows(table, log)
    is_missing = rows < 0
    if is_missing.any():
        where = log.name_cell(int(is_missing.argmax()))
        raise BadPredictionError(
            f"model {name!r}: {table.name} lacks {int(is_missing.sum()):,} of {len(log):,} "
            f"logged cells; the first is {where}.",
            parameter="predictions",
            where=where,
            remedy="Predict those too, or evaluate on a log without them.",
        )
    if position is None:
        return prediction[rows]
    positions = read_numbers(table, "position", position)
    return _make_prediction_frame(log, prediction[rows], positions[rows])


def _read_all_predictions(table: FileTable, log: Ratings) -> Any:
    """A frame of all predictions in a file."""
    users = _read_matching_ids(table, "user", log.users)
    items = _read_matching_ids(table, "item", log.items)
    prediction = read_numbers(table, "prediction")
    return make_frame({"user_id": users, "item_id": items, "prediction": prediction})


def _read_matching_ids(table: FileTable, role: str, ids: Ids) -> list[Any]:
    """The ids in a file in the type of those of the log; an error if some are of another type."""
    matched: list[Any] = match_id_types(read_ids(table, role), ids).tolist()
    row = next((row for row, value in enumerate(matched) if type(value) is not type(matched[0])), 0)
    if row:
        where = table.locate(row)
        raise BadFileError(
            f"{table.name}, {where}: the {role} {matched[row]!r} is text, but all {role}s of the "
            "log are numbers.",
            where=where,
            remedy=f"Use {role} ids of one kind in both files, for instance with a letter before "
            "each number; or name a column of positions.",
        )
    return matched


def _warn_about_unknown_ids(name: str, model: Recommender, log: Ratings) -> None:
    counts = {
        "users": inputs.count_unknown(log.users, model.users_),
        "items": inputs.count_unknown(log.items, model.items_),
    }
    unknown = [f"{count:,} of the log's {kind}" for kind, count in counts.items() if count]
    if unknown:
        warnings.warn(
            UnskewWarning(
                f"model {name!r} was not trained on {' and '.join(unknown)}. "
                "For them it predicts from offsets or from the mean rating.",
                parameter="log",
                remedy="Train it on a log that has them, or leave these rows out.",
            ),
            stacklevel=3,
        )


@dataclass(frozen=True, slots=True, eq=False)
class SavedRecommender:
    """A recommender from a file, for ids that may be text in one file and numbers in another."""

    model: Recommender

    @property
    def predicts_ratings(self) -> bool:
        return self.model.predicts_ratings

    @property
    def relevance_threshold(self) -> float | None:
        """The rating from which on it predicts a 1; None if it predicts ratings."""
        return getattr(self.model, "relevance_threshold", None)

    def predict(self, users: Any, items: Any, /) -> Vector:
        return self.model.predict(*self._match(users, items), on_unknown="fallback")

    def scorer(self, users: Any, items: Any, /) -> Any:
        return self.model.scorer(*self._match(users, items))

    def count_seen(self, log: Ratings, /) -> int:
        return self.model.count_seen(inputs.match_log_ids(log, self.model))

    def _match(self, users: Any, items: Any) -> tuple[Any, Any]:
        users = match_id_types(users, self.model.users_)
        return users, match_id_types(items, self.model.items_)


# Results


def compare_models(evaluation: AnyEvaluation, first: str, second: str) -> list[dict[str, Any]]:
    """Two models compared by every metric and estimator, and in every group, as rows."""
    return [
        group | comparison.to_record()
        for group, part in _list_parts(evaluation)
        for comparison in _compare(part, first, second)
    ]


def list_cautions(comparisons: Iterable[dict[str, Any]]) -> list[str]:
    """Why orders of weighted estimators may be wrong, each reason once."""
    premises = (row["premise"] for row in comparisons)
    texts = (
        Premise(**premise).describe_caution("the order can also be the other way round")
        for premise in premises
        if premise is not None
    )
    return list(dict.fromkeys(text for text in texts if text))


def list_numbers(evaluation: AnyEvaluation, models: tuple[str, str] | None = None) -> Numbers:
    """The numbers that gates can test: ``snips.mae.ci_high`` by model, ``ess``, ``n_observed``.

    With two models also those of their comparison, such as ``compare.snips.mae.p_value``.
    """
    numbers: dict[str, dict[str, float | None]] = {}

    def add(name: str, subject: str, value: float | None) -> None:
        numbers.setdefault(name, {})[subject] = value

    for group, part in _list_parts(evaluation):
        where = "".join(f"{GROUP}{name} is {format_group(key)}" for name, key in group.items())
        for risk in part:
            for field in ("estimate", "std_error", "ci_low", "ci_high"):
                name = f"{risk.estimator}.{risk.metric}.{field}"
                add(name, f"{risk.model}{where}", getattr(risk, field))
        summary = part.weight_summary
        add("n_observed", f"{LOG}{where}", float(part.n_observed))
        add("ess", f"{LOG}{where}", None if summary is None else summary.effective_sample_size)
        for comparison in _compare(part, *models) if models else ():
            subject = f"{comparison.first} minus {comparison.second}{where}"
            for field in ("difference", "ci_low", "ci_high", "p_value"):
                name = f"compare.{comparison.estimator}.{comparison.metric}.{field}"
                add(name, subject, getattr(comparison, field))
    return numbers


def _list_parts(evaluation: AnyEvaluation) -> list[tuple[dict[str, Any], Evaluation]]:
    """Each evaluation with its group: ``{column: value}``, or nothing without groups."""
    if isinstance(evaluation, GroupedEvaluation):
        return [({evaluation.by: group}, part) for group, part in evaluation.items()]
    return [({}, evaluation)]


def _compare(evaluation: Evaluation, first: str, second: str) -> list[Comparison]:
    return [
        evaluation.compare(first, second, metric=metric, estimator=estimator)
        for metric in evaluation.metrics
        for estimator in evaluation.estimators
    ]
