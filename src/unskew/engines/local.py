"""The same steps as on Spark, for data frames that fit into the memory of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from unskew.data.cells import CellNumbers, cell_numbers, sort_distinct
from unskew.data.clicks import binarize
from unskew.data.columns import find_column
from unskew.data.factors import Factors
from unskew.data.frames import (
    free_name,
    id_column,
    make_frame_like,
    number_column,
    open_lazily,
    put_column,
    read_frame,
    split_rows,
)
from unskew.data.ids import Ids, encode, find_codes
from unskew.data.parts import SPLIT_IDS, RandomSplitUnit
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe, UniverseLike
from unskew.data.weights import training_weights, weighted_mean
from unskew.errors import UsageError
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.engine import FrameFitRequest, FrameFitResult
from unskew.factorization.initialization import small_random
from unskew.factorization.objective import Objective, sort_both_ways
from unskew.factorization.reduced import ReducedObjective
from unskew.factorization.solution import Solver, minimize
from unskew.models.recommender import Recommender
from unskew.ranking.positions import rank_cells
from unskew.settings import Instance, Number, OneOf, WholeNumber, draw_seeds, require_fitted
from unskew.threads import Workers, single_blas_thread
from unskew.types import RandomState


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Fits and serves models of pandas, polars, pyarrow or DuckDB, with the methods of Spark.

    Columns are read into the memory of this process; results are in the library of the frame.

    Parameters
    ----------
    universe
        (n_users, n_items) if there are more than those in the log. It scales the penalty.
    user, item, rating
        Names of columns. By default columns with common names are used.
    n_threads
        The number of threads; by default one for each processor.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from unskew import MatrixFactorization, simulate
    >>> log = simulate(30, 20, density=0.2, alpha=0.5, random_state=0).log
    >>> table = pa.table({"user_id": log.user, "item_id": log.item, "rating": log.rating})
    >>> engine = LocalEngine()
    >>> train, test = engine.split_frame(table, share=0.3)
    >>> model = MatrixFactorization(2, 20.0, tol=1e-3).fit(train, engine=engine)
    >>> engine.rank_frame(model, test, exclude=train).column_names
    ['user_id', 'item_id', 'rating', 'position']
    >>> engine.recommend_frame(model, k=2, exclude=train).column_names
    ['user_id', 'item_id', 'score', 'position']
    """

    universe: tuple[int, int] | None = None
    user: str | None = None
    item: str | None = None
    rating: str | None = None
    n_threads: int | None = None

    def fit_frame(self, request: FrameFitRequest, /) -> FrameFitResult:
        """Fit Eq. (14) to the rows of a data frame."""
        return fit_in_memory(self, request)

    def split_frame(
        self,
        frame: Any,
        /,
        *,
        share: float = 0.2,
        by: RandomSplitUnit = "random",
        random_state: RandomState = 0,
    ) -> tuple[Any, Any]:
        """Training and test rows of a log; each cell is in the test with probability ``share``.

        With ``by="user"`` whole users are drawn, each with all of its rows. A hash of the ids
        decides, so the parts are those of :class:`SparkEngine`.
        """
        Number(least=0, most=1)("share", share)
        OneOf(get_args(RandomSplitUnit))("by", by)
        (seed,) = draw_seeds(random_state)
        names = self.find_names(frame, SPLIT_IDS[by])
        return split_rows(frame, list(names.values()), share, seed)

    def predict_frame(self, model: Any, frame: Any, /, *, name: str = "prediction") -> Any:
        """``frame`` with a column of predictions; unknown users and items get fallbacks."""
        _require_users(model)
        users, items = self._read_ids(frame)
        return put_column(frame, name, model.predict(users, items, on_unknown="fallback"))

    def rank_frame(
        self, model: Any, frame: Any, /, *, exclude: Any = None, name: str = "position"
    ) -> Any:
        """``frame`` with a column of the position of each item among all items of its user.

        Items that the user has in ``exclude``, such as the log of the fit, are not counted. This
        is the column ``position`` that ranking metrics of ``evaluate_frame`` need.
        """
        _require_users(model)
        ids, items = self._read_ids(frame)
        user, users = encode(ids)
        size = len(users), len(model.items_)
        item = find_codes(items, model.items_)
        hidden = self._find_cells(exclude, users, model.items_)
        scorer = model.scorer(users, model.items_)
        return put_column(frame, name, rank_cells(user, item, *size, scorer, hidden))

    def recommend_frame(self, model: Any, /, *, k: int = 10, exclude: Any = None) -> Any:
        """The ``k`` best items of every user as a data frame: user, item, score and position.

        ``exclude`` is a log of items that are left out, each for its user, such as the log of the
        fit.
        """
        _require_users(model)
        WholeNumber(least=1)("k", k)
        log = None
        if exclude is not None:
            users, items = self._read_ids(exclude)
            log = Ratings.from_arrays(users, items, np.ones(len(users)), duplicates="last")
        best = model.recommend(k=k, exclude_seen=False, exclude=log).to_columns()
        if exclude is not None:
            names = self.find_names(exclude, ("user", "item"))
            ids = zip(names.values(), (best.pop("user_id"), best.pop("item_id")), strict=True)
            best = dict(ids) | best
        return make_frame_like(best, exclude)

    def find_names(self, frame: Any, roles: tuple[str, ...]) -> dict[str, str]:
        """The column of each role: the one that is named here, or one with a common name."""
        columns = list(open_lazily(frame)[1])
        return {role: find_column(role, getattr(self, role), columns) for role in roles}

    def read_log(self, frame: Any, propensity: Any) -> tuple[Ratings, Any]:
        """The log in a data frame, and its propensities from a column or a fitted model."""
        names = self.find_names(frame, ("user", "item", "rating"))
        columns = list(names.values())
        if propensity is not None and not isinstance(propensity, str):
            frame, propensity = _add_propensities(frame, names, propensity)
        if propensity is not None:
            columns.append(find_column("propensity", propensity, list(open_lazily(frame)[1])))
        rows = read_frame(frame, columns)
        universe: UniverseLike = "log" if self.universe is None else self.universe
        cells = id_column(rows, names["user"]), id_column(rows, names["item"])
        log = Ratings.from_arrays(*cells, number_column(rows, names["rating"]), universe=universe)
        return log, None if propensity is None else number_column(rows, columns[-1])

    def _read_ids(self, frame: Any) -> tuple[Ids, Ids]:
        names = self.find_names(frame, ("user", "item"))
        rows = read_frame(frame, list(names.values()))
        return id_column(rows, names["user"]), id_column(rows, names["item"])

    def _find_cells(self, frame: Any, users: Ids, items: Ids) -> CellNumbers:
        """The cells of a frame whose user and item are known."""
        if frame is None:
            return np.empty(0, np.int64)
        ids = zip(self._read_ids(frame), (users, items), strict=True)
        user, item = (find_codes(values, vocabulary) for values, vocabulary in ids)
        is_known = (user >= 0) & (item >= 0)
        return sort_distinct(cell_numbers(user[is_known], item[is_known], len(items)))


def _add_propensities(frame: Any, columns: Mapping[str, str], model: Any) -> tuple[Any, str]:
    """The frame with a column of the propensities of a fitted model, and the column's name."""
    if not hasattr(model, "predict_frame"):
        raise UsageError(
            "`propensities` of a data frame must be the name of a column, or a model by rating or "
            f"by counts; got {type(model).__name__}.",
            parameter="propensities",
            remedy="Add the propensities to the data frame as a column.",
        )
    name = free_name("propensity", open_lazily(frame)[1])
    return model.predict_frame(frame, **columns, name=name), name


def _require_users(model: Any) -> None:
    """Raise an error if the factors of the users are not in this process."""
    Instance(Recommender, remedy="Pass a fitted recommender.")("model", model)
    require_fitted(model)
    if getattr(model, "user_factors_frame", None) is not None and not len(model.users_):
        raise UsageError(
            f"the factors of the users of this {type(model).__name__} are on Spark.",
            parameter="model",
            remedy="Use SparkEngine(), or fit with `SparkEngine(collect_users=True)`.",
        )


SOLVERS: Mapping[str, Callable[[Objective], Solver[Any, Factors]]] = {
    "auto": AlternatingLeastSquares,
    "als": AlternatingLeastSquares,
    "reduced": ReducedObjective.of,
}


def fit_in_memory(engine: LocalEngine, request: FrameFitRequest) -> FrameFitResult:
    """Read the log, sort it both ways, and alternate between users and items."""
    log, propensities = engine.read_log(request.frame, request.propensity)
    universe = Universe(*(engine.universe or (log.n_users, log.n_items)))
    threshold = request.relevance_threshold
    target = log if threshold is None else binarize(log, threshold)
    weight = training_weights(target, propensities, normalize=request.normalize)
    mean = weighted_mean(target.rating, weight)
    columns = target.user, target.item, target.rating, weight
    with Workers(engine.n_threads) as workers, single_blas_thread():
        cells = sort_both_ways(
            *columns, shape=(log.n_users, log.n_items), dtype=request.dtype, workers=workers
        )
        objective = Objective(
            *cells, request.n_factors, request.offsets, request.penalty(universe), workers
        )
        start = request.initial_factors or small_random(
            (log.n_users, log.n_items),
            mean,
            n_factors=request.n_factors,
            has_offsets=request.offsets != "none",
            random_state=request.random_state,
            dtype=request.dtype,
            with_users=request.solver == "reduced",
        )
        solution = minimize(
            SOLVERS[request.solver](objective),
            start,
            max_iter=request.max_iter,
            tol=request.tol,
            checkpoint=request.make_checkpoint(columns),
            report=request.report,
        )
    by_user = cells[0]
    seen = by_user.starts, by_user.opposite.astype("int32")
    limits = float(target.rating.min()), float(target.rating.max())
    size = universe, len(log), limits
    return FrameFitResult(solution, mean, log.users, log.items, seen, None, *size)
