"""Learners to compare: recommenders with their grids, and a trial that fits all with one seed."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.errors import UnskewError
from unskew.model_selection.combinations import (
    Settings,
    combine_settings,
    fit_path,
    group_paths,
)
from unskew.model_selection.fit_warnings import recorded_warnings
from unskew.model_selection.folds import LocalTraining
from unskew.model_selection.grids import (
    ESTIMATOR,
    GRID,
    L2,
    METRIC,
    N_FOLDS,
    PRECISION,
    RANKS_WITHOUT_L2,
)
from unskew.model_selection.protocols import Protocol, RandomTestData, check_propensity_matrix
from unskew.model_selection.rules import find_edges
from unskew.model_selection.search import CrossValidation, cross_validate
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.registry import Declaration
from unskew.settings import unfitted_copy
from unskew.threads import Workers, single_blas_thread
from unskew.types import BoolVector, Matrix, Vector

NAIVE = "{}, naive"
NAIVE_TOO = ("mean", "item-average", "offsets", "mf")
"""Learners that also take part without propensities."""


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """A model to fit, and how its settings are chosen."""

    model: Any
    grid: Mapping[str, Sequence[Any]] | None = None
    """Values of settings to choose from by cross-validation on the log; None fits ``model``
    with the settings that it has."""
    is_naive: bool = False
    """Whether it is fitted, and its settings chosen, without propensities."""
    propensities: Any = None
    """Used instead of those of the comparison: a matrix, for example, for a learner that needs
    the propensities of all cells."""
    tuned_as: Any = None
    """The model that cross-validation fits, if folds cannot provide what ``model`` needs. It must
    have the settings of the grid."""
    needs_propensities: bool = False
    """Whether a fit is impossible without propensities."""


def find_learners(*, propensity_matrix: Matrix | None = None) -> dict[str, Learner]:
    """Every declared recommender of ratings with its grid, by its label.

    Learners that need the propensities of all cells take part if there is a matrix of them. A
    recommender that equals one of its presets is left out. The factorisation also takes part
    without offsets, and it and the baselines also without propensities.
    """
    if propensity_matrix is not None:
        propensity_matrix = check_propensity_matrix(propensity_matrix)
    learners: dict[str, Learner] = {}
    for declaration in _list_declarations():
        learner = make_learner(declaration, propensity_matrix=propensity_matrix)
        if learner is None:
            continue
        label = declaration.label
        if label in learners:  # of another package
            label = f"{label} ({declaration.name})"
        learners[label] = learner
        if declaration.name in NAIVE_TOO:
            learners[NAIVE.format(label)] = replace(learner, is_naive=True)
    without = Learner(MatrixFactorization(offsets="none"), {"l2": L2})
    label = f"{RECOMMENDERS['mf'].label}, no offsets"
    return learners | {label: without, NAIVE.format(label): replace(without, is_naive=True)}


def make_learner(
    declaration: Declaration[Any], *, propensity_matrix: Matrix | None = None
) -> Learner | None:
    """The learner of a declared recommender; None if it does not predict ratings of a log.

    A recommender that learns from random ratings takes no part: folds have none for it.
    """
    traits, model = declaration.traits, declaration.target()
    learns_from_sample = "mcar" in inspect.signature(model.fit).parameters
    if traits.get("needs_clicks") or not model.predicts_ratings or learns_from_sample:
        return None
    learner = Learner(
        model,
        choose_grid(declaration.target),
        is_naive=not traits.get("reads_propensities", True),
        needs_propensities=bool(traits.get("needs_propensities")),
    )
    if not traits.get("needs_all_propensities"):
        return learner
    if propensity_matrix is None:
        return None
    return replace(learner, propensities=propensity_matrix, tuned_as=_stand_in(declaration.target))


def choose_grid(target: Any) -> dict[str, Sequence[Any]] | None:
    """The grid of a recommender or preset: the values of ``GRID`` for each setting it has."""
    names = inspect.signature(target).parameters
    grid = {name: values for name, values in GRID.items() if name in names}
    if "n_factors" in names and "l2" not in names:
        grid["n_factors"] = RANKS_WITHOUT_L2
    return grid or None


def with_precision(model: Any) -> Any:
    """A copy with the precision of the leaderboard, if the model is a factorisation with l2."""
    copy, names = unfitted_copy(model), model.get_params(deep=False)
    is_factorization = "l2" in names and names.keys() >= PRECISION.keys()
    return copy.set_params(**PRECISION) if is_factorization else copy


def _list_declarations() -> Iterator[Declaration[Any]]:
    """Declared recommenders and presets, without recommenders that equal one of their presets."""
    presets = [declaration.target for declaration in PRESETS.values()]
    for declaration in RECOMMENDERS.values():
        equal = [each for each in presets if each.model is declaration.target]
        settings = declaration.target().get_params(deep=False)
        if not any(preset().get_params(deep=False) == settings for preset in equal):
            yield declaration
    yield from PRESETS.values()


def _stand_in(preset: Any) -> Any:
    """The recommender of a preset with its own defaults, whose folds need fewer propensities."""
    return preset.model()


LOSSES: Mapping[str, Callable[[Vector], Vector]] = {"mse": np.square, "mae": np.abs}


@dataclass(frozen=True, slots=True, eq=False)
class LearnerTrial:
    """What one learner predicts for the test in one trial, and how its settings were chosen."""

    prediction: Vector
    """For every cell of the test, also those that do not count."""
    settings: Settings = field(default_factory=dict)
    seconds: float = 0.0
    cv_score: float | None = None
    regret: Mapping[str, float] | None = None
    """By metric: the error on the test minus that of the best settings of the grid; None if
    settings were not chosen by cross-validation."""
    rank_correlation: float | None = None
    """Of scores and test errors over the grid (Spearman)."""
    at_edge: tuple[str, ...] = ()
    """Settings whose chosen value is the least or the greatest of its grid."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """All learners and protocols with one seed."""

    random_state: int
    test: Ratings
    tested: Mapping[str, BoolVector]
    """By protocol: which cells of the test count."""
    fits: Mapping[tuple[str, str], LearnerTrial]
    """By protocol and learner."""
    failures: Mapping[tuple[str, str], str]
    """By protocol and learner: why there is no fit. What an error advises is left out: it is about
    arguments of ``fit``, which a leaderboard does not have."""
    warnings: tuple[str, ...] = ()
    """Of the propensities that the protocols prescribe."""


@dataclass(frozen=True, slots=True, eq=False)
class TrialSetup:
    """The data of one trial, and what is fitted to it."""

    data: RandomTestData
    protocols: Sequence[Protocol]
    random_state: int
    metrics: Sequence[str] = ("mse", "mae")
    n_threads: int | None = None

    def run(self, learners: Mapping[str, Learner]) -> Iterator[Trial]:
        """Fit all learners; yields the trial so far after each of them, to show progress."""
        seed = self.random_state
        tested = {each.name: self.data.is_tested(each, seed) for each in self.protocols}
        fits: dict[tuple[str, str], LearnerTrial] = {}
        failures: dict[tuple[str, str], str] = {}
        with recorded_warnings() as caught:
            groups = [
                (group, self.data.find_propensities(seed, uses_sample=uses_sample))
                for uses_sample in (False, True)
                if (group := [each for each in self.protocols if each.uses_sample is uses_sample])
            ]
        texts = tuple(str(warning.message).splitlines()[0] for warning in caught)
        for name, learner in learners.items():
            for group, propensities in groups:
                try:
                    with recorded_warnings():
                        trials = dict(self._fit(learner, propensities, group, tested))
                    fits |= {(protocol, name): trial for protocol, trial in trials.items()}
                except UnskewError as error:
                    reason = error.render(has_remedy=False).splitlines()[0]
                    failures |= {(each.name, name): reason for each in group}
            yield Trial(seed, self.data.test, tested, fits, failures, texts)

    def _fit(
        self,
        learner: Learner,
        propensities: PropensitiesLike | None,
        protocols: Sequence[Protocol],
        tested: Mapping[str, BoolVector],
    ) -> Iterator[tuple[str, LearnerTrial]]:
        """The trials of one learner under protocols with the same propensities, by protocol."""
        if learner.propensities is not None and protocols[0].uses_sample:
            return  # naive Bayes has no propensities of unobserved cells
        fixed = [each for each in protocols if not learner.grid or each.choice == "defaults"]
        searched = [each for each in protocols if each not in fixed]
        if fixed:
            trial = self._fit_once(learner, _of_learner(learner, propensities))
            yield from ((each.name, trial) for each in fixed)
        if not searched:
            return
        grid_fits = self.fit_grid(learner, _of_learner(learner, propensities))
        search = None
        if any(each.choice == "cross-validation" for each in searched):
            search = self._search(learner, propensities)
        for protocol in searched:
            errors = {
                metric: grid_fits.errors(self.data.test, tested[protocol.name], metric)
                for metric in self.metrics
            }
            if protocol.choice == "test" or search is None:
                best = int(np.argmin(errors[METRIC]))
                settings, seconds = grid_fits.settings[best], grid_fits.seconds
                yield protocol.name, LearnerTrial(grid_fits.predictions[best], settings, seconds)
            else:
                yield protocol.name, _describe_choice(learner, grid_fits, search, errors)

    def _fit_once(self, learner: Learner, propensities: Any) -> LearnerTrial:
        """The learner with its default settings."""
        start = time.perf_counter()
        model = _with_seed(learner.model, self.random_state, self.n_threads)
        fitted = model.fit(self.data.log, propensities)
        prediction = _predict(fitted, self.data.test)
        return LearnerTrial(prediction, seconds=time.perf_counter() - start)

    def _search(self, learner: Learner, propensities: PropensitiesLike | None) -> CrossValidation:
        """Choose settings on the log alone."""
        model = learner.model if learner.tuned_as is None else learner.tuned_as
        return cross_validate(
            with_precision(_with_seed(model, self.random_state)),
            self.data.log,
            propensities=None if learner.is_naive else propensities,
            grid=learner.grid or {},
            n_folds=N_FOLDS,
            metric=METRIC,
            estimator=ESTIMATOR,
            extend_grid=False,
            refit=False,
            random_state=self.random_state,
            n_threads=self.n_threads,
        )

    def fit_grid(self, learner: Learner, propensities: Any) -> GridFits:
        """Fit a learner with every combination of its grid to the whole log."""
        start = time.perf_counter()
        model = with_precision(_with_seed(learner.model, self.random_state))
        combinations = combine_settings(model, learner.grid or {})
        training = _make_training(self.data.log, propensities)

        def fit_one(path: list[Settings]) -> list[tuple[Settings, Vector]]:
            fits = fit_path(model, path, training)
            return [(fit.settings, _predict(fit.model, self.data.test)) for fit in fits]

        with single_blas_thread(), Workers(self.n_threads) as workers:
            paths = workers.map(fit_one, group_paths(combinations))
        settings, predictions = zip(*(fit for path in paths for fit in path), strict=True)
        return GridFits(settings, predictions, time.perf_counter() - start)


@dataclass(frozen=True, slots=True, eq=False)
class GridFits:
    """Fits to the whole log with every combination of a grid."""

    settings: Sequence[Settings]
    predictions: Sequence[Vector]
    """For each combination, of all test cells."""
    seconds: float

    def errors(self, test: Ratings, is_tested: BoolVector, metric: str) -> Vector:
        """The error of each combination on the tested cells."""
        loss, rating = LOSSES[metric], test.rating[is_tested]
        return np.array([loss(rating - each[is_tested]).mean() for each in self.predictions])

    def find(self, settings: Settings) -> int:
        """The position of a combination."""
        return next(i for i, each in enumerate(self.settings) if each == settings)


def _of_learner(learner: Learner, propensities: PropensitiesLike | None) -> Any:
    """The propensities that a fit to the whole log gets."""
    if learner.is_naive:
        return None
    return propensities if learner.propensities is None else learner.propensities


def _make_training(log: Ratings, propensities: Any) -> LocalTraining:
    """The log with its propensities; those of all cells stay a matrix."""
    is_matrix = np.ndim(propensities) == 2 if isinstance(propensities, np.ndarray) else False
    if propensities is None or is_matrix:
        return LocalTraining(log, propensities)
    return LocalTraining(log, as_propensities(log, propensities))


def _describe_choice(
    learner: Learner,
    grid_fits: GridFits,
    search: CrossValidation,
    errors: Mapping[str, Vector],
) -> LearnerTrial:
    """The combination that cross-validation chose, and what better ones there are."""
    chosen = grid_fits.find(search.best_params)
    names = list(learner.grid or {})
    scores = [
        next(row["score"] for row in search.table if all(row[n] == each[n] for n in names))
        for each in grid_fits.settings
    ]
    correlation = math.nan
    if len(scores) > 1 and np.ptp(scores) > 0 and np.ptp(errors[METRIC]) > 0:
        correlation = float(stats.spearmanr(scores, errors[METRIC]).statistic)
    return LearnerTrial(
        grid_fits.predictions[chosen],
        grid_fits.settings[chosen],
        sum(row["seconds"] for row in search.table),
        search.best_score,
        {metric: float(values[chosen] - values.min()) for metric, values in errors.items()},
        None if math.isnan(correlation) else correlation,
        tuple(find_edges(learner.grid or {}, search.best_params)),
    )


def _predict(model: Any, test: Ratings) -> Vector:
    prediction: Vector = model.predict(
        test.users[test.user], test.items[test.item], on_unknown="fallback"
    )
    return prediction


def _with_seed(model: Any, seed: int, n_threads: int | None = None) -> Any:
    copy = unfitted_copy(model)
    changes = {"random_state": seed, "n_threads": n_threads}
    names = copy.get_params()
    return copy.set_params(**{name: value for name, value in changes.items() if name in names})
