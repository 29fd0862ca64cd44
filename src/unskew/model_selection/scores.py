"""Scores of combinations of settings on the folds of a log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unskew.model_selection.combinations import Settings, TunableModel, fit_path, group_paths
from unskew.model_selection.folds import ValidationFold
from unskew.progress import Track, no_progress
from unskew.threads import Workers
from unskew.types import Vector

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

    def score(self, contenders: Sequence[SettingScores], folds: Iterable[int]) -> None:
        """Add the scores on these folds, each path in order of its penalties."""
        by_settings = {id(each.settings): each for each in contenders}
        paths = list(group_paths([each.settings for each in contenders]))
        jobs = [(path, number) for path in paths for number in folds]
        results = self.workers.stream(lambda job: self._score_path(*job), jobs)
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

    def _score_path(
        self, path: list[Settings], number: int
    ) -> list[tuple[Settings, int, float, int, float]]:
        """Settings, fold, score, steps and seconds of each fit of a path on one fold."""
        scored, fold = [], self.folds[number]
        for fit in fit_path(self.model, path, fold.training):
            start = time.perf_counter()
            score = fold.score(fit.model, metric=self.metric, estimator=self.estimator)
            n_iter = getattr(fit.model, "n_iter_", 0)
            seconds = fit.seconds + time.perf_counter() - start
            scored.append((fit.settings, number, score, n_iter, seconds))
        return scored
