"""``cross_validate``: a grid search scored by an estimate of the risk over all cells (Sec. 6.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.result import DrawableResult
from unskew.errors import UsageError
from unskew.estimators.point import find_estimator
from unskew.factorization.engine import BatchEngine, Engine
from unskew.metrics.metric import find_metric
from unskew.model_selection.combinations import (
    PENALTIES,
    TRANSFORM,
    Settings,
    TunableModel,
    check_transforms,
    combine_settings,
    fit_settings,
)
from unskew.model_selection.fit_warnings import (
    count_unconverged,
    recorded_warnings,
    repeat_warnings,
)
from unskew.model_selection.folds import (
    Frame,
    FrameFolds,
    LocalTraining,
    TrainingRatings,
    ValidationFold,
    split,
)
from unskew.model_selection.rules import (
    MAX_EXTENSIONS,
    RULES,
    Rule,
    choose,
    find_edges,
    find_values_beyond,
)
from unskew.model_selection.scores import FoldScorer, SettingScores
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.progress import Track, no_progress, progress_bar
from unskew.registry import find_engine
from unskew.settings import (
    Flag,
    OneOf,
    WholeNumber,
    check_random_state,
    draw_seeds,
)
from unskew.threads import Workers, single_blas_thread
from unskew.types import RandomState


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CrossValidation(DrawableResult):
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
    """Name of the model, number of ratings, of folds and of repetitions, whether the score is
    weighted, the rule of the choice, and the random state."""
    edges: tuple[str, ...] = ()
    """A sentence for each grid that was extended, or whose best value is at its edge."""
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
            "edges": list(self.edges),
            **self.setup,
        }

    def _footer(self) -> list[str]:
        chosen = "best" if self.setup.get("rule", "best") == "best" else "simplest near the best"
        is_weighted = self.setup.get("is_weighted", True)
        criterion = (
            f"{self.estimator} of {self.metric}" if is_weighted else f"unweighted {self.metric}"
        )
        return [f"{chosen} by {criterion}: {self.best_params}", *self.edges]


def cross_validate(
    model: TunableModel,
    log: Ratings | Frame,
    *,
    propensities: PropensitiesLike | None = None,
    grid: Mapping[str, Sequence[Any]],
    n_folds: int = 4,
    n_repeats: int = 1,
    metric: str = "mse",
    relevance_threshold: float | None = None,
    estimator: str = "ips",
    rule: Rule = "best",
    halving: bool = False,
    extend_grid: bool = True,
    refit: bool = True,
    n_threads: int | None = None,
    random_state: RandomState = 0,
    verbose: bool = False,
    engine: str | Engine | FrameFolds = "auto",
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
    n_repeats
        Number of splits into folds. More of them average out the luck of a split, not that of
        the log.
    metric, relevance_threshold, estimator
        The criterion; see :func:`unskew.evaluate`. Use a ranking metric for models whose
        predictions are not ratings. On Spark only rating metrics are available. For ``"dr"`` and
        ``"sndr"``, ratings are imputed by a :class:`MatrixFactorization` fitted to the training
        part of each fold. docs/guides/selection.md says which score to use when.
    rule
        ``"best"`` chooses the best mean score. ``"one_standard_error"`` chooses, among settings
        that differ from the best only by a larger penalty or fewer factors, the simplest one whose
        mean difference to it, paired by fold, is at most one standard error.
    halving
        Successive halving: after each fold only the better half of the settings goes on. It takes
        about half of the time with four folds. Rows of the table that were dropped come last, and
        their scores are means over fewer folds.
    extend_grid
        If the best penalty is the least or the greatest of three or more values, go on beyond it
        in steps of the same ratio, at most four times. ``edges`` of the result says so.
    refit
        Whether to fit the best model to the whole log.
    n_threads
        Number of fits at the same time; by default one for each processor.
    random_state
        Seed or generator of the folds.
    verbose
        Show a progress bar.
    engine
        ``"spark"`` splits, fits and scores on Spark. ``"gpu"`` fits on the GPU: of a
        :class:`MatrixFactorization` all settings on all folds at once, of other models one after
        the other.

    Returns
    -------
    CrossValidation
        The best settings, their score, the fitted model and the table of all scores.

    Notes
    -----
    Settings that differ only in the penalty are fitted in increasing order, each starting at the
    previous solution; on a GPU they are fitted at once, each from its own start. Fits that did not
    converge are counted in one :class:`ConvergenceWarning`.

    Examples
    --------
    >>> from unskew.models.matrix_factorization import MatrixFactorization
    >>> from unskew.simulation.simulator import simulate
    >>> world = simulate(60, 80, density=0.1, alpha=0.5, random_state=0)
    >>> search = cross_validate(
    ...     MatrixFactorization(2),
    ...     world.log,
    ...     propensities=world.propensities,
    ...     grid={"l2": [1.0, 25.0]},
    ... )
    >>> search.best_params
    {'l2': 1.0}
    """
    combinations = combine_settings(model, grid)
    check_transforms(grid.get(TRANSFORM, ()), propensities)
    check_random_state("random_state", random_state)
    Flag()("verbose", verbose)
    Flag()("refit", refit)
    WholeNumber(least=1)("n_repeats", n_repeats)
    Flag()("halving", halving)
    Flag()("extend_grid", extend_grid)
    OneOf(RULES)("rule", rule)
    seeds = [random_state] if n_repeats == 1 else draw_seeds(random_state, n_repeats)
    criterion = find_metric(metric, relevance_threshold=relevance_threshold)
    fold_engine = find_engine(engine)
    whole: TrainingRatings
    folds: Sequence[ValidationFold]
    if isinstance(fold_engine, FrameFolds) and not isinstance(fold_engine, Engine):
        fold_engine.check_criterion(metric=metric, estimator=estimator)
        whole, folds = _split_frame(log, propensities, n_folds, seeds, fold_engine)
    else:
        _require_engine(fold_engine, engine)
        whole, folds = _split_log(
            log, propensities, n_folds, seeds, relevance_threshold, estimator, fold_engine
        )
    fits_at_once = isinstance(fold_engine, BatchEngine) and isinstance(model, MatrixFactorization)
    if fold_engine is not None and not fits_at_once:
        n_threads = 1
    track: Track = progress_bar if verbose else no_progress
    contenders = [SettingScores(settings) for settings in combinations]
    tried = {name: list(values) for name, values in grid.items()}
    with recorded_warnings() as caught, single_blas_thread(), Workers(n_threads) as workers:
        scorer = FoldScorer(
            model=model,
            folds=folds,
            metric=metric,
            estimator=estimator,
            higher_is_better=criterion.higher_is_better,
            workers=workers,
            track=track,
            engine=fold_engine if fits_at_once else None,
        )
        if halving:
            scorer.score_by_halving(contenders)
        else:
            scorer.score(contenders, range(len(folds)))
        if extend_grid:
            contenders += _extend(scorer, contenders, tried)
    repeat_warnings(
        caught,
        n_unconverged=count_unconverged(caught),
        n_fits=sum(len(each.scores) for each in contenders),
        fits="fits of the cross-validation",
    )
    ordered = scorer.sort(contenders)
    chosen = choose(ordered, rule, n_folds=n_folds)
    best_model = fit_settings(model, chosen.settings, whole) if refit else None
    edges = _describe_edges(grid, tried, ordered[0].settings, was_extended=extend_grid)
    setup = {
        "model": type(model).__name__,
        "n_observed": whole.n_ratings,
        "n_folds": n_folds,
        "n_repeats": n_repeats,
        "is_weighted": propensities is not None,
        "rule": rule,
        "random_state": random_state if isinstance(random_state, int) else str(random_state),
    }
    return CrossValidation(
        chosen.settings,
        chosen.mean,
        best_model,
        [each.to_row() for each in ordered],
        metric,
        estimator,
        setup,
        tuple(edges),
    )


def _require_engine(fold_engine: object, engine: object) -> None:
    """Raise an error for an engine that reads whole files, which has no folds.

    Folds of a log in memory are fitted by this process, which is None, or by an ``Engine``. Engines
    that split a data frame themselves, such as Spark, do not come here.
    """
    if fold_engine is not None and not isinstance(fold_engine, Engine):
        raise UsageError(
            f"the engine {type(fold_engine).__name__} cannot split a log into folds.",
            parameter="engine",
            value=engine,
            remedy="Use `engine='gpu'` or `engine='spark'`, or leave `engine` out.",
        )


def _split_frame(
    frame: Any,
    propensity: Any,
    n_folds: int,
    seeds: Sequence[RandomState],
    engine: FrameFolds,
) -> tuple[TrainingRatings, list[ValidationFold]]:
    """All rows of a data frame, and the folds of every repetition."""
    splits = [engine.split(frame, propensity, n_folds=n_folds, random_state=seed) for seed in seeds]
    return splits[0][0], [fold for _, folds in splits for fold in folds]


def _split_log(
    log: Ratings,
    propensities: PropensitiesLike | None,
    n_folds: int,
    seeds: Sequence[RandomState],
    relevance_threshold: float | None,
    estimator: str,
    engine: Engine | None,
) -> tuple[TrainingRatings, list[ValidationFold]]:
    """The log, and the folds of every repetition; with an imputation, if the estimator needs it."""
    require_log(log)
    values = None if propensities is None else as_propensities(log, propensities)
    imputer = MatrixFactorization() if find_estimator(estimator).imputes else None
    folds: list[ValidationFold] = [
        fold
        for seed in seeds
        for fold in split(
            log,
            values,
            n_folds=n_folds,
            random_state=seed,
            relevance_threshold=relevance_threshold,
            imputer=imputer,
            engine=engine,
        )
    ]
    return LocalTraining(log, values, engine), folds


def _extend(
    scorer: FoldScorer, contenders: Sequence[SettingScores], tried: dict[str, list[Any]]
) -> list[SettingScores]:
    """Go on beyond the edge of the grid as long as the best penalty is at it."""
    added: list[SettingScores] = []
    for _ in range(MAX_EXTENSIONS):
        best = scorer.sort([*contenders, *added])[0].settings
        beyond = find_values_beyond(tried, best)
        if not beyond:
            break
        contender = SettingScores(best | beyond)
        scorer.score([contender], range(len(scorer.folds)))
        added.append(contender)
        for name, value in beyond.items():
            tried[name].append(value)
    return added


def _describe_edges(
    grid: Mapping[str, Sequence[Any]],
    tried: Mapping[str, Sequence[Any]],
    best: Settings,
    *,
    was_extended: bool,
) -> Iterator[str]:
    """A sentence for each grid that was extended or whose edge is the best value."""
    at_edge = set(find_edges(tried, best))
    for name, values in tried.items():
        added = [f"{value:g}" for value in values[len(grid[name]) :]]
        ending = f"its best value, {best[name]:g}, is inside now" if added else ""
        if name in at_edge:
            goes_on = "still " if was_extended and name in PENALTIES else ""
            ending = (
                f"its best value, {best[name]:g}, is {goes_on}at the edge: try values beyond it"
            )
        if added:
            yield f"the grid of {name} was extended to {', '.join(added)}; {ending}"
        elif ending:
            yield f"the grid of {name} may be too narrow; {ending}"


def _as_plain(value: Any) -> Any:
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return value if is_plain else repr(value)
