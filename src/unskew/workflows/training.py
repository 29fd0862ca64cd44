"""Training of a recommender on a log in a file by any engine, and recommendations from it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from inspect import signature
from typing import Any

from unskew.data.ids import as_ids
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.errors import UnskewWarning, UsageError
from unskew.factorization.engine import AllCellsEngine, FrameEngine
from unskew.io.duckdb_files import choose_reader
from unskew.io.files import read_table
from unskew.io.log_files import ColumnNames, match_id_types, read_ids
from unskew.metrics.metric import find_metric
from unskew.model_selection.leaderboard import Leaderboard, rank_learners
from unskew.model_selection.protocols import LeaderboardData, RandomTestData
from unskew.model_selection.search import CrossValidation, cross_validate
from unskew.models import (
    DoublyRobustFactorization,
    LogisticFactorization,
    RelevanceFactorization,
    WeightedFactorization,
    find_recommender,
)
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.recommendations import Recommendations
from unskew.models.recommender import Recommender
from unskew.registry import LOCAL_ENGINES, Declaration, engine_names, find_engine
from unskew.tables import count_noun
from unskew.workflows import inputs
from unskew.workflows.requests import LeaderboardRequest, TrainingRequest

RANKING_METRIC = "dcg@10"
"""The criterion of a search among recommenders that do not predict ratings."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainingData:
    """A log with its propensities, and what to fit to it."""

    request: TrainingRequest
    model: Any
    """The recommender, not fitted."""
    log: Ratings
    propensities: PropensitiesLike | None
    is_weighted: bool
    """Whether the fit uses the propensities."""

    @property
    def metric(self) -> str:
        """The criterion of a search: by default the training loss, or a ranking metric."""
        request = self.request
        if request.metric is not None:
            threshold = request.relevance_threshold
            return find_metric(request.metric, relevance_threshold=threshold).name
        if not self.model.predicts_ratings:
            return RANKING_METRIC
        return "mae" if request.settings.get("loss") == "absolute" else "mse"


def read_training_data(request: TrainingRequest, *, verbose: bool = False) -> TrainingData:
    """Read the log and its propensities, after a check of the recommender and its settings.

    A column of propensities is only used if the request names it.
    """
    learner = find_recommender(request.learner)
    if learner.traits.get("needs_all_propensities"):
        raise UsageError(
            f"the learner {request.learner!r} needs the propensities of all cells, which a file "
            "does not have.",
            parameter="learner",
            value=request.learner,
            remedy="Fit it in Python, or choose another learner.",
        )
    if learner.traits.get("needs_mcar"):
        raise UsageError(
            f"the learner {request.learner!r} also learns from random ratings, but here a random "
            "sample is used for propensities alone.",
            parameter="learner",
            value=request.learner,
            remedy="Fit it in Python, with fit(log, propensities, mcar=sample), or choose another "
            "learner.",
        )
    model = inputs.build_model(
        learner.target,
        _find_settings(request, learner),
        random_state=request.random_state,
        verbose=verbose,
    )
    table = inputs.read_log_table(request)
    column = None
    if request.propensities is not None:
        column = inputs.find_propensity_column(table, request.propensities)
    log = inputs.read_log(request, table, columns=ColumnNames(propensity=column))
    propensities = inputs.find_propensities(request, log)
    reads_propensities = learner.traits.get("reads_propensities", True)
    if propensities is not None and not reads_propensities:
        warnings.warn(
            UnskewWarning(
                f"the learner {request.learner!r} does not use propensities: it is fitted without "
                "them."
            ),
            stacklevel=2,
        )
    is_weighted = propensities is not None and reads_propensities
    return TrainingData(request, model, log.ratings, propensities, is_weighted)


def _find_settings(request: TrainingRequest, learner: Declaration[Any]) -> dict[str, Any]:
    """The settings of the recommender. A learner from clicks needs the relevance threshold."""
    settings, threshold = dict(request.settings), request.relevance_threshold
    if threshold is not None and learner.traits.get("needs_clicks"):
        return {"relevance_threshold": threshold} | settings
    if threshold is not None and not request.grid:
        raise UsageError(
            "`relevance_threshold` is used by metrics of a grid search, but no `grid` was passed, "
            f"and the learner {request.learner!r} does not use it.",
            parameter="relevance_threshold",
            value=threshold,
            remedy="Leave it out, or pass `grid`.",
        )
    return settings


def fit_model(data: TrainingData) -> Recommender:
    """Fit the recommender to the whole log."""
    checkpoint = data.request.checkpoint
    options = {} if checkpoint is None else {"checkpoint": checkpoint}
    engine = choose_engine(data.request)
    if options and "checkpoint" not in signature(data.model.fit).parameters:
        raise UsageError(
            f"the learner {data.request.learner!r} cannot save checkpoints.",
            parameter="checkpoint",
            remedy="Leave `checkpoint` out.",
        )
    if engine not in LOCAL_ENGINES:
        options["engine"] = engine
    fitted: Recommender = data.model.fit(data.log, data.propensities, **options)
    return fitted


def search_settings(data: TrainingData, *, verbose: bool = False) -> CrossValidation:
    """Compare the settings of the grid by cross-validation, and fit the best to the whole log."""
    request = data.request
    return cross_validate(
        data.model,
        data.log,
        propensities=data.propensities,
        grid=request.grid,
        n_folds=request.n_folds,
        n_repeats=request.n_repeats,
        metric=data.metric,
        relevance_threshold=request.relevance_threshold,
        estimator=request.score or ("naive" if data.propensities is None else "ips"),
        rule=request.rule,
        halving=request.halving,
        random_state=request.random_state,
        verbose=verbose,
        engine=choose_engine(request),
    )


@dataclass(frozen=True, slots=True)
class FitSummary:
    """The log, the model and how its fit ended."""

    n_ratings: int
    n_users: int
    n_items: int
    is_weighted: bool
    model: str
    n_factors: int | None = None
    l2: float | None = None
    n_iter: int | None = None
    objective: float | None = None
    converged: bool | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        weighted = "with propensities" if self.is_weighted else "without propensities"
        log = (
            f"{count_noun(self.n_ratings, 'rating')} of {count_noun(self.n_users, 'user')} and "
            f"{count_noun(self.n_items, 'item')}, {weighted}"
        )
        if self.n_iter is None or self.objective is None:
            return f"{log}; {self.model}."
        steps = count_noun(self.n_iter, "step")
        ended = f"{'converged' if self.converged else 'not converged'} after {steps}"
        penalty = "" if self.l2 is None else f"l2 {self.l2:.3g}, "
        return f"{log}; {self.model}: {penalty}{ended}, objective {self.objective:.6g}."


def summarize_fit(data: TrainingData | None, model: Recommender) -> FitSummary:
    """The summary of a fit to ``data``; without it, of a fit by an engine that read the file."""
    settings = model.get_params()
    size = len(model.seen_items_), len(model.users_), len(model.items_)
    is_weighted = getattr(model, "naive_weight_", None) is None
    if data is not None:
        size, is_weighted = (len(data.log), data.log.n_users, data.log.n_items), data.is_weighted
    return FitSummary(
        *size,
        is_weighted,
        repr(model),
        settings.get("n_factors"),
        getattr(model, "l2_", settings.get("l2")),
        *(getattr(model, name, None) for name in ("n_iter_", "objective_", "converged_")),
    )


def recommend_items(
    path: str,
    *,
    users: Sequence[str] = (),
    file: str | None = None,
    k: int = 10,
    include_seen: bool = False,
    engine: str = "auto",
) -> Recommendations:
    """The best items of users, from a saved recommender.

    The users are listed in ``users`` or in a column of ``file``; by default all users of the log.
    """
    model = inputs.load_recommender(path)
    if file is None and not users:
        ids = model.users_
    else:
        ids = as_ids(list(users)) if file is None else read_ids(read_table(file), "user")
    n_unknown = inputs.count_unknown(ids, model.users_)
    if n_unknown:
        warnings.warn(
            UnskewWarning(
                f"{n_unknown} of {count_noun(len(ids), 'user')} were not in the log that {path} "
                "was trained on. They get the items that are best without knowing the user."
            ),
            stacklevel=2,
        )
    matched = match_id_types(ids, model.users_)
    return model.recommend(
        matched, k, exclude_seen=not include_seen, on_unknown="fallback", engine=engine
    )


def format_rows(recommendations: Recommendations) -> str:
    """Recommendations as one JSON object: the number of users, and the rows."""
    rows = recommendations.to_record()["rows"]
    return json.dumps({"users": len(recommendations.users), "rows": rows}, default=str)


LARGE_LOGS = "disk"
"""The engine for a log that would take more than half of the memory."""
LEARNERS_IN_MEMORY = (
    DoublyRobustFactorization,
    LogisticFactorization,
    RelevanceFactorization,
    WeightedFactorization,
)
"""Learners that an engine fits to a log in memory only."""


def choose_engine(request: TrainingRequest) -> str:
    """The engine of a request; ``auto`` is ``disk`` for a large Parquet file, else ``local``.

    Raises an error if the learner cannot be fitted by it.
    """
    if request.engine != "auto":
        name = request.engine
        if name not in LOCAL_ENGINES and not _can_fit(name, request.learner):
            raise UsageError(
                f"the learner {request.learner!r} cannot be fitted by `engine={name!r}`.",
                parameter="engine",
                value=name,
                remedy="Use `engine='local'`, or the learner 'mf', which every engine fits.",
            )
        return name
    if not _is_large(request) or inputs.open_log(request).format != "parquet":
        return "local"
    return LARGE_LOGS if _is_for_large_logs(request) else "local"


def explain_large_log(request: TrainingRequest, engine: str) -> str | None:
    """What to say of a log that ``auto`` takes for large; None if it is not large."""
    if request.engine != "auto" or not _is_large(request):
        return None
    if engine != "local":
        return f"{request.log} is large for this memory: --engine {engine}"
    text = f"{request.log} is large for this memory and is read into it"
    if not _is_for_large_logs(request):
        return f"{text}: --engine {LARGE_LOGS} fits 'mf' and 'offsets' only, without a --grid"
    return f"{text}: write it to a .parquet file, which --engine {LARGE_LOGS} reads from the disk"


def _is_large(request: TrainingRequest) -> bool:
    """Whether the file of the log would take more than half of the memory."""
    return choose_reader("auto", inputs.open_log(request)) != "memory"


def _is_for_large_logs(request: TrainingRequest) -> bool:
    """Whether the engine for large logs can do the fit, if the log is in a Parquet file."""
    return reads_frames(request.learner) and not request.grid and LARGE_LOGS in engine_names()


def takes_engine(learner: str) -> bool:
    """Whether engines other than the local one fit this learner."""
    return reads_frames(learner) or issubclass(_find_class(learner), LEARNERS_IN_MEMORY)


def reads_frames(learner: str) -> bool:
    """Whether engines that read the log themselves fit this learner."""
    model = _find_class(learner)
    return issubclass(model, MatrixFactorization) and not issubclass(model, LEARNERS_IN_MEMORY)


def _can_fit(engine: str, learner: str) -> bool:
    """Whether the engine fits the learner; an unknown name or a missing package is an error."""
    if reads_frames(learner):
        return True
    target = find_engine(engine)
    return takes_engine(learner) and isinstance(target, AllCellsEngine)


def _find_class(learner: str) -> Any:
    target: Any = find_recommender(learner).target
    return target if isinstance(target, type) else target.model  # a class, or a preset of one


def reads_files(engine: str) -> bool:
    """Whether the engine reads the file of a log itself."""
    return isinstance(find_engine(engine), FrameEngine)


def fit_from_file(request: TrainingRequest, engine: str, *, verbose: bool = False) -> Recommender:
    """Fit by an engine that reads the file of the log."""
    if request.grid:
        raise UsageError(
            f"`engine={engine!r}` fits one model to a file, without a search of settings.",
            parameter="grid",
            remedy="Search with the local engine on a sample of the users, or in Python with "
            "cross_validate(..., engine='spark').",
        )
    source = inputs.open_log(request)
    if source.format != "parquet" or not source.is_plain_file:
        raise UsageError(
            f"`engine={engine!r}` reads Parquet files, not {source.label} ({source.format}).",
            parameter="engine",
            value=engine,
            remedy="Write the log to a .parquet file, or use `engine='local'`.",
        )
    if inputs.is_model(request.propensities) or request.mcar is not None:
        raise UsageError(
            f"`engine={engine!r}` reads propensities from a column of the log.",
            parameter="propensities",
            value=request.propensities,
            remedy="Add them to the file first, with 'unskew propensity apply'.",
        )
    model = inputs.build_model(
        find_recommender(request.learner).target,
        request.settings,
        random_state=request.random_state,
        verbose=verbose,
    )
    options: dict[str, Any] = {}
    if request.checkpoint is not None:
        options["checkpoint"] = request.checkpoint
    names = {"user": request.user, "item": request.item, "rating": request.rating}
    chosen = replace(find_engine(engine), **names, **_find_universe(request))
    fitted: Recommender = model.fit(request.log, request.propensities, engine=chosen, **options)
    return fitted


def _find_universe(request: TrainingRequest) -> dict[str, tuple[int, int]]:
    universe = request.universe
    if universe is None or universe == "log":
        return {}
    if isinstance(universe, tuple) and len(universe) == 2:
        return {"universe": (int(universe[0]), int(universe[1]))}
    raise UsageError(
        "an engine that reads the file itself needs the universe as two numbers.",
        parameter="universe",
        value=universe,
        remedy="Pass the numbers of users and items.",
    )


def read_leaderboard_data(request: LeaderboardRequest) -> LeaderboardData:
    """The log, its propensities if the request names them, and the random test."""
    if request.test is None:
        raise UsageError(
            f"a leaderboard of the log {request.log} needs a test of ratings that were drawn at "
            "random.",
            parameter="test",
            remedy="Pass `test`.",
        )
    table = read_table(inputs.open_log(request))
    column = None
    if request.propensities is not None:
        column = inputs.find_propensity_column(table, request.propensities)
    log = inputs.read_log(request, table, columns=ColumnNames(propensity=column))
    propensities = None
    if request.propensities is not None:
        propensities = inputs.find_propensities(request, log)
    test = _read_test(request, log.ratings)
    data = RandomTestData(log.ratings, test, propensities)
    n_shared = int(data.is_logged().sum())
    description = (
        f"{count_noun(len(log.ratings), 'rating')} in {request.log}, and "
        f"{count_noun(len(test), 'rating')} in {request.test} that are taken as drawn uniformly at "
        f"random, of which {n_shared:,} cells are also in the log."
    )
    return replace(LeaderboardData.of(data, request.log), description=description)


def _read_test(request: LeaderboardRequest, log: Ratings) -> Ratings:
    source = replace(request, log=str(request.test), format=None, universe=None)
    return inputs.match_ids(inputs.read_log(source).ratings, log)


def rank_all_learners(
    data: LeaderboardData, request: LeaderboardRequest, *, verbose: bool = False
) -> Leaderboard:
    """Fit and rank the learners of the request, by default all that are declared."""
    return rank_learners(
        data,
        learners=request.learners or None,
        protocols=request.protocols or None,
        n_repeats=request.n_repeats,
        random_state=request.random_state,
        level=request.level,
        verbose=verbose,
    )
