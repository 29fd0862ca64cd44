"""What a caller may pass as predictions, and how each kind gives values and positions for a log."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.cells import cell_numbers, find_cells, group_rows
from unskew.data.checks import float_array
from unskew.data.columns import DEFAULTS, find_column
from unskew.data.factors import Factors
from unskew.data.frames import (
    EagerFrame,
    check_matrix_order,
    check_row_order,
    id_column,
    is_frame,
    number_column,
    open_frame,
    series_labels,
)
from unskew.data.ids import Ids, encode, find_codes, format_id
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, ColumnError, UsageError
from unskew.evaluation.adapters.external import ExternalModel
from unskew.evaluation.adapters.wrap import adapt_model, describe_libraries
from unskew.ranking.candidates import Candidates
from unskew.ranking.positions import (
    NanScoreError,
    Positions,
    Ranker,
    compute_positions,
    find_ranker,
)
from unskew.settings import describe
from unskew.tables import count_noun
from unskew.types import BoolVector, IntVector, Scorer, Scores, Vector

BLOCK_CELLS = 1 << 22


@runtime_checkable
class Model(Protocol):
    """A fitted model of any library that predicts pairs of ids."""

    def predict(
        self, users: npt.NDArray[np.generic], items: npt.NDArray[np.generic], /
    ) -> npt.ArrayLike:
        """One prediction for each (user, item)."""
        ...


@runtime_checkable
class BlockModel(Model, Protocol):
    """A model that can also score all items for a block of users."""

    def scorer(self, users: npt.NDArray[np.generic], items: npt.NDArray[np.generic], /) -> Scorer:
        """A scorer of ``items``, in this order, for users given by their index in ``users``."""
        ...


IdScorer: TypeAlias = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.ArrayLike]
"""Gets user ids and item ids; returns a row for each user with a score for each item."""
PredictionsLike: TypeAlias = npt.ArrayLike | Model | IdScorer | object


class Predictions(Protocol):
    """The predictions of one model for a log."""

    def values(self, log: Ratings) -> Vector:
        """A predicted rating for each cell, in the order of the log."""
        ...

    def positions(
        self, log: Ratings, n_items: int, top: int | None, candidates: Candidates | None = None
    ) -> Positions:
        """The position of each cell among the candidates, exact up to ``top``."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LoggedValues:
    """One predicted rating for each row of the log."""

    name: str
    prediction: Vector

    def values(self, log: Ratings) -> Vector:
        self._require_shape(log)
        return _require_all(self.name, self.prediction, log)

    def _require_shape(self, log: Ratings) -> None:
        if self.prediction.shape != (len(log),):
            raise BadPredictionError(
                f"model {self.name!r}: got predictions of shape {self.prediction.shape} for a log "
                f"of {len(log)} ratings.",
                parameter="predictions",
                remedy="Pass one for each row of the log, in its order; a matrix of shape "
                f"{(log.n_users, log.n_items)}; a frame; a model; or a callable.",
            )

    def positions(
        self, log: Ratings, n_items: int, top: int | None, candidates: Candidates | None = None
    ) -> Positions:
        self._require_shape(log)
        raise BadPredictionError(
            f"model {self.name!r}: ranking metrics need the position of each cell among all items, "
            "which cannot be computed from predictions of the logged cells alone.",
            parameter="predictions",
            remedy="Pass a model, a callable that scores a block of users for all items, a frame "
            "of the predictions of all items, or a frame with positions and `position=...`.",
            shell_remedy="Pass a saved model with `model=...`, a file of the predictions of all "
            "items of each logged user with `predictions=...`, or name a column of positions with "
            "`position=...`.",
        )


@dataclass(frozen=True, slots=True, eq=False)
class FramedValues:
    """A frame of user, item, prediction and perhaps position; cells are matched by their ids.

    Without positions, it can still rank the items if it has all items of each logged user.
    """

    name: str
    frame: EagerFrame
    position: str | None = None
    """The column of positions that the model gives; None if there is none."""

    def values(self, log: Ratings) -> Vector:
        return _require_all(self.name, self._read_column(log, "prediction"), log)

    def positions(
        self, log: Ratings, n_items: int, top: int | None, candidates: Candidates | None = None
    ) -> Positions:
        if self.position is None:
            return self._rank_items(log, n_items=n_items, top=top, candidates=candidates)
        position = self._read_column(log, "position", self.position)
        most = n_items if candidates is None else candidates.count[log.user] + n_items - log.n_items
        is_beyond = position > most
        if is_beyond.any():
            row = int(is_beyond.argmax())
            kind = "items" if candidates is None else "candidates"
            raise BadPredictionError(
                f"model {self.name!r}: a position is {position[row]:g}, but there are "
                f"{np.broadcast_to(most, position.shape)[row]} {kind}; see {log.name_cell(row)}.",
                parameter="predictions",
                where=log.name_cell(row),
                remedy=f"Number the {kind} of each user from 1, and count all items in `universe`.",
            )
        return Positions.from_column(position)

    def _rank_items(
        self, log: Ratings, *, n_items: int, top: int | None, candidates: Candidates | None
    ) -> Positions:
        """Positions by decreasing prediction, from a frame of all items of each logged user."""
        self.values(log)  # refuses missing and repeated cells of the log
        users, row_of_cell = np.unique(log.user, return_inverse=True)
        user = find_codes(self._find_codes(log, "user", log.users), users)
        rows = np.flatnonzero(user >= 0)
        item, items = encode(self._read_ids(log, "item")[rows])
        cell = cell_numbers(user[rows], item, len(items))
        order = np.argsort(cell, kind="stable")
        self._refuse_duplicates(cell[order], rows[order])
        self._require_all_items(log.users[users], np.bincount(user[rows]), n_items)
        scores = number_column(self.frame, self._find_column("prediction", None))[rows[order]]
        if not np.isfinite(scores).all():
            row = int(rows[order][~np.isfinite(scores)].min())
            raise BadPredictionError(
                f"model {self.name!r}: the prediction at row {row} is missing or not finite, so "
                "the items of its user cannot be ranked.",
                parameter="predictions",
                where=f"row {row}",
                remedy="Predict all items of each logged user.",
            )
        blocks = scores.reshape(users.size, n_items)
        columns = find_codes(log.items, items)
        logged_item = columns[log.item]
        if candidates is not None:
            _require_item_ids(self.name, log, n_items)
            blocks, logged_item = blocks[:, columns], log.item
            candidates = candidates.take(users)
        return compute_positions(
            row_of_cell.astype(np.int32),
            logged_item,
            users.size,
            n_items,
            blocks.__getitem__,
            top=top,
            candidates=candidates,
        )

    def _require_all_items(self, users: Ids, counts: npt.NDArray[np.integer], n_items: int) -> None:
        """Raise an error unless each user has a prediction of each item."""
        is_wrong = counts != n_items
        if is_wrong.any():
            first = int(is_wrong.argmax())
            where = f"user {format_id(users[first])}"
            raise BadPredictionError(
                f"model {self.name!r}: ranking metrics need the position of each cell among all "
                f"{n_items} items, but no column of positions is named, and {where} has "
                f"predictions of {counts[first]} items.",
                parameter="predictions",
                where=where,
                remedy="Predict all items of the universe for each logged user, or name a column "
                "of positions (1 is the best item) with `position=...`.",
            )

    def _read_column(self, log: Ratings, role: str, name: str | None = None) -> Vector:
        """A column in the order of the log."""
        return number_column(self.frame, self._find_column(role, name))[self._find_rows(log)]

    def _find_column(self, role: str, name: str | None) -> str:
        try:
            return find_column(role, name, self.frame.columns)
        except ColumnError as error:
            if name is not None:
                error.problem = f"model {self.name!r}: {error.problem}"
                raise
            raise ColumnError(
                f"model {self.name!r}: no column of its frame can be read as the {role}; the "
                f"columns are {', '.join(map(repr, self.frame.columns))}.",
                parameter=role,
                remedy=f"Rename one to {DEFAULTS[role]!r}.",
            ) from error

    def _find_rows(self, log: Ratings) -> npt.NDArray[np.intp]:
        """For each cell of the log, its row in the frame."""
        user = self._find_codes(log, "user", log.users)
        item = self._find_codes(log, "item", log.items)
        rows = np.flatnonzero((user >= 0) & (item >= 0))
        cell = cell_numbers(user[rows], item[rows], log.n_items)
        order = np.argsort(cell, kind="stable")
        cell, rows = cell[order], rows[order]
        self._refuse_duplicates(cell, rows)
        index = find_cells(cell_numbers(log.user, log.item, log.n_items), cell)
        is_missing = index < 0
        if is_missing.any():
            raise _missing_prediction_error(self.name, is_missing, log)
        return rows[index]

    def _find_codes(self, log: Ratings, role: str, ids: npt.NDArray[np.generic]) -> IntVector:
        return find_codes(self._read_ids(log, role), ids)

    def _read_ids(self, log: Ratings, role: str) -> Ids:
        as_in_log = log.columns[role] if log.columns[role] in self.frame.columns else None
        return id_column(self.frame, self._find_column(role, as_in_log))

    def _refuse_duplicates(
        self, sorted_cells: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]
    ) -> None:
        is_repeated = sorted_cells[1:] == sorted_cells[:-1]
        if is_repeated.any():
            n_cells = np.unique(sorted_cells[1:][is_repeated]).size
            raise BadPredictionError(
                f"model {self.name!r} has more than one prediction for "
                f"{count_noun(n_cells, 'cell')}; the first to repeat one is row "
                f"{int(rows[1:][is_repeated].min())} of the predictions.",
                parameter="predictions",
                remedy="Keep one for each cell.",
            )


@dataclass(frozen=True, slots=True, eq=False)
class ScoredCells:
    """A scorer of all items of the log for blocks of users."""

    name: str
    scorer: Scorer
    ranker: Ranker | None
    """Ranks factor models on another device; None ranks here."""

    def values(self, log: Ratings) -> Vector:
        """The scores of the logged cells, computed in blocks of users."""
        values = np.empty(len(log))
        for users, rows in _user_blocks(log):
            block = self.block(log, users)
            values[rows] = block[np.searchsorted(users, log.user[rows]), log.item[rows]]
        return _require_all(self.name, values, log)

    def positions(
        self, log: Ratings, n_items: int, top: int | None, candidates: Candidates | None = None
    ) -> Positions:
        _require_item_ids(self.name, log, n_items)
        if self.ranker is not None and isinstance(self.scorer, Factors):
            return self.ranker.positions(self.scorer, log.user, log.item, candidates)
        try:
            return compute_positions(
                log.user,
                log.item,
                log.n_users,
                log.n_items,
                self.scorer,
                top=top,
                candidates=candidates,
            )
        except NanScoreError as error:
            error.name_ids(log.users, log.items, f"model {self.name!r}: ")
            raise

    def block(self, log: Ratings, users: IntVector) -> Scores:
        """The scores of a block of users for all items."""
        scores = np.asarray(self.scorer(users))
        if scores.shape != (users.size, log.n_items):
            raise BadPredictionError(
                f"model {self.name!r}: the scorer returned shape {scores.shape} for {users.size} "
                f"users and {log.n_items} items.",
                parameter="predictions",
                remedy="Return one row for each user and one column for each item.",
            )
        return scores

    def as_ratings(self, log: Ratings, users: IntVector, scores: Scores) -> Scores:
        """The predicted ratings of a block of users, whose scores are these."""
        return scores


@dataclass(frozen=True, slots=True, eq=False)
class PredictedCells(ScoredCells):
    """A model that predicts pairs of ids; its scorer is used for whole rows."""

    model: Model

    def values(self, log: Ratings) -> Vector:
        predicted = self.model.predict(log.users[log.user], log.items[log.item])
        return LoggedValues(self.name, _as_numbers(self.name, predicted)).values(log)

    def as_ratings(self, log: Ratings, users: IntVector, scores: Scores) -> Scores:
        limits = getattr(self.model, "limits", None)
        if limits is None:
            return scores
        if isinstance(self.model, ExternalModel):
            return _scorer_from_pairs(self.name, self.model, log)(users)
        clipped: Scores = np.clip(scores, *limits)
        return clipped


def name_models(predictions: Any) -> dict[str, Any]:
    """Predictions by model name; the name of one model alone is "model".

    Models of other libraries become models that predict pairs of ids.
    """
    if not isinstance(predictions, Mapping):
        return {"model": adapt_model(predictions)}
    models = {str(name): adapt_model(model) for name, model in predictions.items()}
    if len(models) < len(predictions):
        raise UsageError(
            f"two models have the same name: {', '.join(map(repr, predictions))}.",
            parameter="predictions",
            remedy="Give them different names.",
        )
    if not models:
        raise UsageError("`predictions` is empty: there is no model.", parameter="predictions")
    return models


def read_models(
    models: Mapping[str, PredictionsLike],
    log: Ratings,
    rows: BoolVector | None,
    *,
    engine: str | Ranker,
    position: str | Mapping[str, str] | None,
) -> list[Predictions]:
    """The predictions of each model; ``rows`` of the log are evaluated, None means all.

    ``position`` names the column of positions in frames of predictions: one name for all models, or
    a mapping from model to column.
    """
    ranker, columns = find_ranker(engine), _name_positions(position, models)
    return [
        read_predictions(name, model, log, ranker=ranker, rows=rows, position=columns.get(name))
        for name, model in models.items()
    ]


def _name_positions(
    position: str | Mapping[str, str] | None, models: Mapping[str, PredictionsLike]
) -> dict[str, str]:
    """The column of positions of each frame; ``position`` is that of all, or by model name."""
    if position is None:
        return {}
    if not isinstance(position, str | Mapping):
        raise UsageError(
            f"`position` must be the name of a column, or a dict of names by model; got "
            f"{describe(position)}.",
            parameter="position",
            value=position,
        )
    frames = [name for name, model in models.items() if is_frame(model)]
    named = dict.fromkeys(frames, position) if isinstance(position, str) else dict(position)
    if not named or not named.keys() <= set(frames):
        raise UsageError(
            f"`position` names a column of a frame of predictions, but "
            f"{', '.join(repr(name) for name in (named or models) if name not in frames)} is not "
            "a frame.",
            parameter="position",
            value=position,
            remedy="Leave it out for models that are not frames: their items are ranked by score.",
        )
    return named


def read_predictions(
    name: str,
    predictions: PredictionsLike,
    log: Ratings,
    *,
    ranker: Ranker | None = None,
    rows: BoolVector | None = None,
    position: str | None = None,
) -> Predictions:
    """Recognise a frame, a model, a callable, a matrix, or an array in the order of the log.

    ``rows`` are those of ``log`` that are evaluated; None means all. ``position`` is the column of
    a frame that has positions.
    """
    if is_frame(predictions):
        return FramedValues(name, open_frame(predictions), position)
    if isinstance(predictions, Factors):
        _require_shape(name, predictions, log)
        return ScoredCells(name, predictions, ranker)
    if isinstance(predictions, type):
        raise BadPredictionError(
            f"model {name!r}: {predictions.__name__} is a class, not a fitted model.",
            parameter="predictions",
            value=predictions.__name__,
            remedy="Create a model, fit it, and pass that.",
        )
    model = adapt_model(predictions)
    if isinstance(model, BlockModel):
        return PredictedCells(name, model.scorer(log.users, log.items), ranker, model)
    if isinstance(model, Model):
        return PredictedCells(name, _scorer_from_pairs(name, model, log), ranker, model)
    if callable(model):
        return ScoredCells(name, _scorer_from_ids(name, model, log), ranker)
    values = _as_numbers(name, predictions)
    if values.shape == (log.n_users, log.n_items):
        return ScoredCells(name, values.__getitem__, ranker)
    if values.shape == (len(log),):
        check_row_order(
            series_labels(predictions),
            log.row_labels,
            what=f"the predictions of model {name!r}",
            parameter="predictions",
            error=BadPredictionError,
        )
    if rows is not None and values.shape == rows.shape:
        values = values[rows]
    return LoggedValues(name, values)


def _require_item_ids(name: str, log: Ratings, n_items: int) -> None:
    if n_items != log.n_items:
        raise BadPredictionError(
            f"model {name!r}: the universe has {count_noun(n_items, 'item')}, but the log has the "
            f"ids of only {log.n_items:,}, so the others cannot be ranked.",
            parameter="universe",
            remedy="Build the log with Ratings.from_frame(..., `items=[all item ids]`), or pass a "
            "frame with positions and `position=...`.",
            shell_remedy="Pass `candidates=...`, a file of the items that are ranked; or a file of "
            "predictions with a column of positions, and `position=...`.",
        )


def _require_shape(name: str, factors: Factors, log: Ratings) -> None:
    if (factors.n_users, factors.n_items) != (log.n_users, log.n_items):
        raise BadPredictionError(
            f"model {name!r}: got factors of {factors.n_users} users and {factors.n_items} items "
            f"for a log of {log.n_users} users and {log.n_items} items.",
            parameter="predictions",
            remedy="Bring them into the order of log.users and log.items.",
        )


def _as_numbers(name: str, predictions: PredictionsLike) -> Vector:
    try:
        return float_array(predictions, "values", BadPredictionError)
    except BadPredictionError as error:
        is_data = isinstance(predictions, list | tuple | str | np.ndarray)
        reason = f": {error.problem.removesuffix('.')}" if is_data else ""
        raise BadPredictionError(
            f"model {name!r}: an object of type {type(predictions).__name__!r} cannot be read as "
            f"predictions{reason}.",
            parameter="predictions",
            value=type(predictions).__name__,
            remedy="Pass an array of numbers, an eager frame, a model with predict(users, items), "
            f"or a callable that gets user ids and item ids. {describe_libraries()}",
        ) from error


def _scorer_from_ids(name: str, score: IdScorer, log: Ratings) -> Scorer:
    """A scorer that gives the callable the ids of a block of users and of all items."""
    try:
        inspect.signature(score).bind(log.users, log.items)
    except ValueError:  # some built-in functions have no signature
        pass
    except TypeError as error:
        raise BadPredictionError(
            f"model {name!r}: the callable cannot be called with two arguments ({error}).",
            parameter="predictions",
            remedy="A callable gets an array of user ids and an array of item ids, and returns one "
            "row for each user with a score for each item.",
        ) from error

    def score_block(users: IntVector, /) -> Scores:
        try:
            scores = score(log.users[users], log.items)
            values: Scores = np.asarray(scores)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise BadPredictionError(
                f"model {name!r}: the callable failed for {users.size} user ids and {log.n_items} "
                f"item ids ({type(error).__name__}: {error}).",
                parameter="predictions",
                remedy="Return one row for each user and one column for each item. A function of "
                "pairs of ids can be passed as an object with predict(users, items).",
            ) from error
        check_matrix_order(scores, log.users[users], log.items, parameter="predictions")
        return values

    return score_block


def _scorer_from_pairs(name: str, model: Model, log: Ratings) -> Scorer:
    """A scorer that asks the model for all pairs of a block of users with all items."""

    def score(users: IntVector, /) -> Scores:
        pairs = np.repeat(log.users[users], log.n_items), np.tile(log.items, users.size)
        scores = _as_numbers(name, model.predict(*pairs))
        if scores.size != pairs[0].size:
            raise BadPredictionError(
                f"model {name!r}: predict returned shape {scores.shape} for {pairs[0].size} pairs "
                "of ids.",
                parameter="predictions",
                remedy="Return one number for each pair.",
            )
        return scores.reshape(users.size, log.n_items)

    return score


def _user_blocks(log: Ratings) -> Iterator[tuple[IntVector, npt.NDArray[np.intp]]]:
    """Blocks of users with logged cells, in ascending order, and the rows of their cells."""
    starts, order = group_rows(log.user, log.n_users)
    users = np.flatnonzero(np.diff(starts)).astype(np.int32)
    size = max(1, BLOCK_CELLS // log.n_items)
    for first in range(0, users.size, size):
        block = users[first : first + size]
        yield block, order[starts[block[0]] : starts[block[-1] + 1]]


def _require_all(name: str, values: Vector, log: Ratings) -> Vector:
    is_finite = np.isfinite(values)
    if not is_finite.all():
        raise _missing_prediction_error(name, ~is_finite, log)
    return values


def _missing_prediction_error(name: str, is_bad: BoolVector, log: Ratings) -> BadPredictionError:
    where = log.name_cell(int(is_bad.argmax()))
    return BadPredictionError(
        f"model {name!r}: predictions are missing for {int(is_bad.sum())} of {len(log)} logged "
        f"cells; the first is {where}.",
        parameter="predictions",
        where=where,
        remedy="Predict those too, or evaluate the model on log.take(rows) of the cells it covers.",
        shell_remedy="Predict those too, or evaluate on a log without them.",
    )
