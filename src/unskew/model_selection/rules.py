"""Which settings to choose from their scores, and what lies beyond the edge of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.model_selection.combinations import PENALTIES, Settings
from unskew.model_selection.scores import SettingScores

Rule: TypeAlias = Literal["best", "one_standard_error"]
RULES: tuple[Rule, ...] = ("best", "one_standard_error")
SIZES = ("n_factors", "n_clusters")
"""Settings of which a smaller value is a simpler model."""
MIN_VALUES = 3
"""A grid of fewer values is not taken for a range with edges."""
MAX_EXTENSIONS = 4


def choose(contenders: Sequence[SettingScores], rule: Rule, *, n_folds: int) -> SettingScores:
    """The choice among ``contenders``, which are sorted, the best first."""
    best = contenders[0]
    if rule == "best":
        return best
    simpler = [each for each in contenders if _is_simpler(each.settings, best.settings)]
    near = [each for each in simpler if each is best or _is_near(each, best, n_folds)]
    return max(near, key=lambda each: _simplicity(each.settings), default=best)


def _is_near(contender: SettingScores, best: SettingScores, n_folds: int) -> bool:
    """Whether the mean difference is at most its standard error over folds.

    Differences are paired by fold. The folds of a repetition share the log with those of the
    others, so repetitions do not count as more data.
    """
    differences = contender.differences(best)
    if differences.size < len(best.scores) or differences.size < 2:
        return False
    std_error = np.std(differences, ddof=1) / np.sqrt(n_folds)
    return bool(abs(differences.mean()) <= std_error)


def _is_simpler(settings: Settings, best: Settings) -> bool:
    """Whether penalties are at least those of ``best``, sizes at most, and all else is equal.

    ``best`` itself qualifies.
    """
    ordered = [name for name in (*SIZES, *PENALTIES) if name in best]
    if not all(isinstance(each[name], Real) for each in (settings, best) for name in ordered):
        return False
    is_no_larger = all(settings[name] <= best[name] for name in SIZES if name in best)
    is_no_weaker = all(settings[name] >= best[name] for name in PENALTIES if name in best)
    others = [name for name in best if name not in (*SIZES, *PENALTIES)]
    is_same = all(settings[name] is best[name] or settings[name] == best[name] for name in others)
    return is_no_larger and is_no_weaker and is_same


def _simplicity(settings: Settings) -> tuple[float, ...]:
    """The larger, the simpler: first the penalty, then the number of factors."""
    penalties = [settings[name] for name in PENALTIES if name in settings]
    return (*penalties, *(-settings[name] for name in SIZES if name in settings))


def find_edges(grid: Mapping[str, Sequence[Any]], settings: Settings) -> Iterator[str]:
    """Settings whose value is the least or the greatest of three or more numbers of their grid."""
    for name, values in grid.items():
        if _is_range(values) and settings[name] in (min(values), max(values)):
            yield name


def find_values_beyond(grid: Mapping[str, Sequence[Any]], settings: Settings) -> Settings:
    """Penalties one step beyond the edges that the settings are at, by the ratio of the last step.

    Only penalties are extended: they are positive, and their grids are geometric.
    """
    beyond: Settings = {}
    for name in find_edges(grid, settings):
        ordered = sorted(set(grid[name]))
        edge, inner = ordered[0], ordered[1]
        if settings[name] == ordered[-1]:
            edge, inner = ordered[-1], ordered[-2]
        if name in PENALTIES and edge > 0 and inner > 0:
            beyond[name] = float(edge) * float(edge) / float(inner)
    return beyond


def _is_range(values: Sequence[Any]) -> bool:
    numbers = [each for each in values if isinstance(each, Real) and not isinstance(each, bool)]
    return len(numbers) == len(values) and len(set(numbers)) >= MIN_VALUES
