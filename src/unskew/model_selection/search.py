"""``cross_validate``: a grid search scored by an estimate of the risk over all cells (Sec. 6.1)."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, product
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.result import Result
from unskew.errors import ConvergenceWarning, PropensityWarning, UnskewWarning, UsageError
from unskew.metrics.metric import find_metric
from unskew.model_selection.folds import (
    Frame,
    FrameFolds,
    LocalTraining,
    TrainingRatings,
    ValidationFold,
    split,
)
from unskew.progress import Track, no_progress, progress_bar
from unskew.registry import find_engine
from unskew.settings import Flag, Instance, check_random_state, describe, unfitted_copy
from unskew.threads import Workers, single_blas_thread
from unskew.types import RandomState

Settings: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]
PENALTIES = ("l2", "ridge", "ridge_per_weight", "prior_precision")
"""Settings that are the penalty of a model. A model has one of them."""
TRANSFORM = "weight_transform"
"""The setting that a grid may name for every model, since it can be applied to propensities."""


class TunableModel(Protocol):
    """A recommender with settings that can be changed, as scikit-learn defines it."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def set_params(self, **params: Any) -> Self: ...

    def fit(self, log: Ratings, propensities: Any = None) -> Self: ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CrossValidation(Result):
    """The result of :func:`cross_validate`: the best settings, and the scores of all."""

    kind: ClassVar[str] = "cross_validation"
    best_params: Settings
    best_score: float
    best_model: Any
    """Fitted to the whole log with the best settings; None with ``refit=False``."""
    table: Sequence[Mapping[str, Any]]
    """One row per combination of settings, best first: settings, score (mean over folds), its
    standard deviation over folds, total number of iterations, seconds."""
    metric: str
    estimator: str
    setup: Mapping[str, Any] = field(default_factory=dict)
    """Name of the model, number of ratings and of folds, and the random state."""
    backend: str | None = None

    def to_columns(self) -> dict[str, list[Any]]:
        """The table by columns; settings that are objects are shown as text."""
        return {name: [_as_plain(row[name]) for row in self.table] for name in self.table[0]}

    def to_record(self) -> dict[str, Any]:
        """The table, the choice, and the objective after each step of the best model's fit."""
        history = [float(value) for value in getattr(self.best_model, "history_", ())]
        return {
            "best_params": self.best_params,
            "best_score": self.best_score,
            "metric": self.metric,
            "estimator": self.estimator,
            "rows": [dict(row) for row in self.table],
            "history": [value for value in history if np.isfinite(value)],
            **self.setup,
        }

    def _footer(self) -> list[str]:
        return [f"best by {self.estimator} of {self.metric}: {self.best_params}"]


def cross_validate(
    model: TunableModel,
    log: Ratings | Frame,
    *,
    propensities: PropensitiesLike | None = None,
    grid: Mapping[str, Sequence[Any]],
    n_folds: int = 4,
    metric: str = "mse",
    relevance_threshold: float | None = None,
    estimator: str = "ips",
    refit: bool = True,
    n_threads: int | None = None,
    random_state: RandomState = 0,
    verbose: bool = False,
    engine: str | FrameFolds = "auto",
) -> CrossValidation:
    """Choose settings of ``model`` by the estimated risk over *all* cells.

    Parameters
    ----------
    model
        A recommender. It is not changed: copies of it are fitted.
    log
        The observed ratings; with ``engine="spark"`` a Spark data frame.
    propensities
        Of the log; with ``engine="spark"`` the name of a column. They are multiplied by (k - 1)/k
        for training and by 1/k for validation, the probability that a cell is drawn. Without
        propensities models are fitted and scored without weights.
    grid
        Values to try, by name of a setting. Every model can be searched for
        ``"weight_transform"``, with values such as ``unskew.estimators.Clip(30)`` or None.
    n_folds
        Number of parts; each is used for validation once.
    metric, relevance_threshold, estimator
        The criterion; see :func:`unskew.evaluate`. Use a ranking metric for models whose
        predictions are not ratings. On Spark only rating metrics are available.
    refit
        Whether to fit the best model to the whole log.
    n_threads
        Number of fits at the same time; by default one for each processor.
    random_state
        Seed or generator of the folds.
    verbose
        Show a progress bar.
    engine
        ``"spark"`` splits, fits and scores on Spark.

    Returns
    -------
    CrossValidation
        The best settings, their score, the fitted model and the table of all scores.

    Notes
    -----
    Settings that differ only in the penalty are fitted in increasing order, each starting at the
    previous solution. Fits that did not converge are counted in one :class:`ConvergenceWarning`.
    """
    combinations = _combine(model, grid)
    _check_transforms(grid.get(TRANSFORM, ()), propensities)
    check_random_state("random_state", random_state)
    Flag()("verbose", verbose)
    Flag()("refit", refit)
    criterion = find_metric(metric, relevance_threshold=relevance_threshold)
    fold_engine = find_engine(engine)
    whole: TrainingRatings
    folds: Sequence[ValidationFold]
    if fold_engine is None:
        require_log(log)
        values = None if propensities is None else as_propensities(log, propensities)
        whole = LocalTraining(log, values)
        folds = list(
            split(
                log,
                values,
                n_folds=n_folds,
                random_state=random_state,
                relevance_threshold=relevance_threshold,
            )
        )
    elif isinstance(fold_engine, FrameFolds):
        fold_engine.check_criterion(metric=metric, estimator=estimator)
        whole, folds = fold_engine.split(
            log, propensities, n_folds=n_folds, random_state=random_state
        )
        n_threads = 1
    else:
        raise UsageError(
            f"{type(fold_engine).__name__} cannot split a log into folds.",
            parameter="engine",
            value=engine,
            remedy="Use `engine='spark'`, or leave `engine` out.",
        )
    jobs = [(path, fold) for path in _paths(combinations) for fold in folds]
    track: Track = progress_bar if verbose else no_progress
    scored: list[tuple[Settings, Row]] = []
    with recorded_warnings() as caught, single_blas_thread(), Workers(n_threads) as workers:
        results = workers.stream(
            lambda job: _score_path(model, *job, metric=metric, estimator=estimator), jobs
        )
        for rows in track(results, label="cross-validation", total=len(jobs)):
            scored.extend(rows)
    repeat_warnings(
        caught,
        n_unconverged=count_unconverged(caught),
        n_fits=len(combinations) * len(folds),
        fits="fits of the cross-validation",
    )
    table = _summarize(combinations, scored, higher_is_better=criterion.higher_is_better)
    best = {name: table[0][name] for name in grid}
    best_model = _fit(model, best, whole) if refit else None
    setup = {
        "model": type(model).__name__,
        "n_observed": whole.n_ratings,
        "n_folds": n_folds,
        "random_state": random_state if isinstance(random_state, int) else str(random_state),
    }
    return CrossValidation(best, table[0]["score"], best_model, table, metric, estimator, setup)


@contextmanager
def recorded_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Record the warnings of the block instead of showing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def count_unconverged(caught: Sequence[warnings.WarningMessage]) -> int:
    """How many of the warnings are about fits that did not converge."""
    return sum(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def repeat_warnings(
    caught: Sequence[warnings.WarningMessage], *, n_unconverged: int, n_fits: int, fits: str
) -> None:
    """Show recorded warnings once for each line of code, and one summary of the convergence.

    Warnings about propensities are not shown: those of a part of the log say nothing new.
    """
    others = {
        (warning.category, warning.filename, warning.lineno): warning
        for warning in reversed(caught)
        if not issubclass(warning.category, (ConvergenceWarning, PropensityWarning))
    }
    for (category, filename, line), warning in others.items():
        if issubclass(category, UnskewWarning):
            warnings.warn(warning.message, stacklevel=3)
        else:  # of another package: the caller's filters see its origin
            warnings.warn_explicit(warning.message, category, filename, line)
    if n_unconverged:
        warnings.warn(
            ConvergenceWarning(
                f"{n_unconverged} of {n_fits} {fits} did not converge.",
                parameter="max_iter",
                remedy="Use a larger `max_iter` or a larger `tol`.",
            ),
            stacklevel=3,
        )


def _combine(model: TunableModel, grid: Mapping[str, Sequence[Any]]) -> list[Settings]:
    """Every combination of the grid's values."""
    if not hasattr(model, "get_params"):
        raise UsageError(
            f"`model` must be a recommender with settings; got {describe(model)}.",
            parameter="model",
            value=model,
            remedy="Pass a model that is not fitted, such as MatrixFactorization().",
        )
    Instance(Mapping, remedy="Pass a dict such as {'l2': [0.1, 1, 10]}.")("grid", grid)
    valid = model.get_params()
    for name in grid:
        if name not in valid and name != TRANSFORM:
            raise UsageError(
                f"{type(model).__name__} has no setting {name!r}; it has {', '.join(valid)}.",
                parameter="grid",
                value=name,
            )
    if not grid:
        raise UsageError("`grid` must name at least one setting.", parameter="grid", value=grid)
    for name, values in grid.items():
        if not len(values):
            raise UsageError(
                f"`grid` has no values for the setting {name!r}.",
                parameter="grid",
                value=name,
                remedy="List at least one value, or leave the setting out.",
            )
    plain = [
        [value.item() if isinstance(value, np.generic) else value for value in values]
        for values in grid.values()
    ]
    return [dict(zip(grid, values, strict=True)) for values in product(*plain)]


def _check_transforms(transforms: Sequence[Any], propensities: object) -> None:
    for transform in transforms:
        if transform is not None and not callable(transform):
            raise UsageError(
                f"{TRANSFORM} in the grid must be a weight transform or None; got {transform!r}.",
                parameter=TRANSFORM,
                value=transform,
                remedy="Use unskew.estimators.Clip(30), for example.",
            )
    if propensities is None and any(transform is not None for transform in transforms):
        raise UsageError(
            f"{TRANSFORM} in the grid transforms inverse propensities, but there are none.",
            parameter=TRANSFORM,
            remedy="Pass `propensities`, or remove it from `grid`.",
        )


def _paths(combinations: list[Settings]) -> Iterator[list[Settings]]:
    """Groups of settings that differ only in the penalty, in increasing order of it."""

    def others(settings: Settings) -> str:
        rest = {name: value for name, value in settings.items() if name not in PENALTIES}
        return json.dumps(rest, default=str, sort_keys=True)

    def penalties(settings: Settings) -> list[float]:
        return [settings.get(name, 0.0) for name in PENALTIES]

    for _, path in groupby(sorted(combinations, key=others), key=others):
        yield sorted(path, key=penalties)


def _score_path(
    model: TunableModel, path: list[Settings], fold: ValidationFold, *, metric: str, estimator: str
) -> list[tuple[Settings, Row]]:
    """The score of each of the settings on one fold, each fit starting at the previous one."""
    scored: list[tuple[Settings, Row]] = []
    factors = None
    one_thread = {"n_threads": 1} if "n_threads" in model.get_params() else {}
    for settings in path:
        start = time.perf_counter()
        fitted = _fit(model, settings | one_thread, fold.training, initial_factors=factors)
        factors = getattr(fitted, "factors_", None)
        score = fold.score(fitted, metric=metric, estimator=estimator)
        n_iter = getattr(fitted, "n_iter_", 0)
        seconds = time.perf_counter() - start
        scored.append((settings, {"score": score, "n_iter": n_iter, "seconds": seconds}))
    return scored


def _fit(
    model: TunableModel, settings: Settings, data: TrainingRatings, *, initial_factors: Any = None
) -> Any:
    copy = unfitted_copy(model)
    changes = dict(settings)
    transform = None if TRANSFORM in copy.get_params() else changes.pop(TRANSFORM, None)
    copy.set_params(**changes)
    return data.fit(copy, weight_transform=transform, initial_factors=initial_factors)


def _summarize(
    combinations: list[Settings], scored: list[tuple[Settings, Row]], *, higher_is_better: bool
) -> list[Row]:
    """One row per combination, best first."""
    rows = []
    for settings in combinations:
        results = [result for tried, result in scored if tried is settings]
        scores = [result["score"] for result in results]
        summary = {
            "score": float(np.mean(scores)),
            "std": float(np.std(scores, ddof=1)),
            "n_iter": sum(result["n_iter"] for result in results),
            "seconds": sum(result["seconds"] for result in results),
        }
        rows.append(settings | summary)
    return sorted(rows, key=lambda row: row["score"], reverse=higher_is_better)


def _as_plain(value: Any) -> Any:
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return value if is_plain else repr(value)
