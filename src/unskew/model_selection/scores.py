"""Scores of combinations of settings on the folds of a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from unskew.factorization.engine import BatchEngine
from unskew.model_selection.combinations import (
    PathFit,
    Settings,
    TunableModel,
    copy_with,
    fit_path,
    group_paths,
)
from unskew.model_selection.folds import ValidationFold
from unskew.models.engine_choice import fit_many
from unskew.progress import Track, no_progress
from unskew.threads import Workers
from unskew.types import Vector

ScoredFit: TypeAlias = tuple[Settings, int, float, int, float]
"""Settings, number of the fold, score, steps and seconds of a fit."""
MIN_CONTENDERS = 3
"""Successive halving stops when this many combinations are left."""


@dataclass(slots=True, eq=False)
class SettingScores:
    """One combination of settings with its score on each fold, by the number of the fold."""

    settings: Settings
    scores: dict[int, float] = field(default_factory=dict)
    n_iter: int = 0
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.scores.values())))

    @property
    def std(self) -> float:
        values = list(self.scores.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")

    def differences(self, other: SettingScores) -> Vector:
        """The score minus that of ``other``, on each fold that both have."""
        shared = [fold for fold in self.scores if fold in other.scores]
        return np.array([self.scores[fold] - other.scores[fold] for fold in shared])

    def to_row(self) -> dict[str, Any]:
        """The settings, and the scores over folds."""
        summary = {
            "score": self.mean,
            "std": self.std,
            "n_iter": self.n_iter,
            "seconds": self.seconds,
        }
        return self.settings | summary


@dataclass(frozen=True, slots=True, eq=False)
class FoldScorer:
    """Fits a model to the training part of folds, and scores it on their other parts."""

    model: TunableModel
    folds: Sequence[ValidationFold]
    metric: str
    estimator: str
    higher_is_better: bool
    workers: Workers
    track: Track = no_progress
    engine: BatchEngine | None = None
    """Fits all combinations on all folds at once, each from its own start."""

    def score(self, contenders: Sequence[SettingScores], folds: Iterable[int]) -> None:
        """Add the scores on these folds, each path in order of its penalties."""
        by_settings = {id(each.settings): each for each in contenders}
        paths = list(group_paths([each.settings for each in contenders]))
        jobs = [(path, number) for path in paths for number in folds]
        score_path = (
            self._score_path if self.engine is None else self._fit_at_once(self.engine, jobs)
        )
        results = self.workers.stream(lambda job: score_path(*job), jobs)
        for scored in self.track(results, label="cross-validation", total=len(jobs)):
            for settings, number, score, n_iter, seconds in scored:
                contender = by_settings[id(settings)]
                contender.scores[number] = score
                contender.n_iter += n_iter
                contender.seconds += seconds

    def score_by_halving(self, contenders: Sequence[SettingScores]) -> None:
        """Successive halving: after each fold the better half goes on to the next one.

        The last few are scored on all folds.
        """
        left = list(contenders)
        for number in range(len(self.folds)):
            self.score(left, [number])
            if len(left) > MIN_CONTENDERS:
                n_kept = max(MIN_CONTENDERS, (len(left) + 1) // 2)
                left = self.sort(left)[:n_kept]

    def sort(self, contenders: Sequence[SettingScores]) -> list[SettingScores]:
        """The best first; those that were scored on fewer folds come after the others."""
        sign = -1.0 if self.higher_is_better else 1.0
        return sorted(contenders, key=lambda each: (-len(each.scores), sign * each.mean))

    def _score_path(self, path: list[Settings], number: int) -> list[ScoredFit]:
        fits = fit_path(self.model, path, self.folds[number].training)
        return [self._score_fit(fit, number) for fit in fits]

    def _fit_at_once(
        self, engine: BatchEngine, jobs: Sequence[tuple[list[Settings], int]]
    ) -> Callable[[list[Settings], int], list[ScoredFit]]:
        """Fit all jobs, and return the function that scores one of them."""
        start = time.perf_counter()
        fits = [(settings, number) for path, number in jobs for settings in path]
        models: list[Any] = [copy_with(self.model, settings)[0] for settings, _ in fits]
        data: list[Any] = [self.folds[number].training for _, number in fits]
        fit_many(models, [each.log for each in data], [each.propensities for each in data], engine)
        seconds = (time.perf_counter() - start) / len(fits)
        fitted = {
            (id(settings), number): PathFit(settings, model, seconds)
            for (settings, number), model in zip(fits, models, strict=True)
        }

        def score_path(path: list[Settings], number: int) -> list[ScoredFit]:
            return [
                self._score_fit(fitted.pop((id(settings), number)), number) for settings in path
            ]

        return score_path

    def _score_fit(self, fit: PathFit, number: int) -> ScoredFit:
        start = time.perf_counter()
        score = self.folds[number].score(fit.model, metric=self.metric, estimator=self.estimator)
        seconds = fit.seconds + time.perf_counter() - start
        return fit.settings, number, score, getattr(fit.model, "n_iter_", 0), seconds
