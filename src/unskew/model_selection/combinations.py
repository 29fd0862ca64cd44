"""Combinations of settings, and the paths along which each fit starts at the previous one."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any, Protocol, Self, TypeAlias

import numpy as np

from unskew.data.ratings import Ratings
from unskew.errors import UsageError
from unskew.model_selection.folds import TrainingRatings
from unskew.settings import Instance, describe, is_finite_number, unfitted_copy

Settings: TypeAlias = dict[str, Any]
PENALTIES = ("l2", "ridge", "ridge_per_weight", "prior_precision")
"""Settings that are the penalty of a model. A model has one of them."""
TRANSFORM = "weight_transform"
"""The setting that a grid may name for every model, since it can be applied to propensities."""


class TunableModel(Protocol):
    """A recommender with settings that can be changed, as scikit-learn defines it."""

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def set_params(self, **params: Any) -> Self: ...

    def fit(self, log: Ratings, propensities: Any = None) -> Self: ...


@dataclass(frozen=True, slots=True, eq=False)
class PathFit:
    """A model fitted with one of the combinations of settings of a path."""

    settings: Settings
    model: Any
    seconds: float


def fit_path(
    model: TunableModel, path: Sequence[Settings], data: TrainingRatings
) -> Iterator[PathFit]:
    """Fit ``model`` with each of the settings, each fit starting at the previous solution."""
    factors = None
    one_thread = {"n_threads": 1} if "n_threads" in model.get_params() else {}
    for settings in path:
        start = time.perf_counter()
        fitted = fit_settings(model, settings | one_thread, data, initial_factors=factors)
        factors = getattr(fitted, "factors_", None)
        yield PathFit(settings, fitted, time.perf_counter() - start)


def fit_settings(
    model: TunableModel, settings: Settings, data: TrainingRatings, *, initial_factors: Any = None
) -> Any:
    """A copy of ``model`` with these settings, fitted to ``data``."""
    copy, transform = copy_with(model, settings)
    return data.fit(copy, weight_transform=transform, initial_factors=initial_factors)


def copy_with(model: TunableModel, settings: Settings) -> tuple[TunableModel, Any]:
    """An unfitted copy with these settings, and a weight transform that it has no setting for."""
    copy, changes = unfitted_copy(model), dict(settings)
    transform = None if TRANSFORM in copy.get_params() else changes.pop(TRANSFORM, None)
    copy.set_params(**changes)
    return copy, transform


def combine_settings(model: TunableModel, grid: Mapping[str, Sequence[Any]]) -> list[Settings]:
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


def check_transforms(transforms: Sequence[Any], propensities: object) -> None:
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


def group_paths(combinations: list[Settings]) -> Iterator[list[Settings]]:
    """Groups of settings that differ only in the penalty, in increasing order of it.

    What is no number, such as "auto", comes last.
    """

    def others(settings: Settings) -> str:
        rest = {name: value for name, value in settings.items() if name not in PENALTIES}
        return json.dumps(rest, default=str, sort_keys=True)

    def penalties(settings: Settings) -> list[float]:
        values = [settings.get(name, 0.0) for name in PENALTIES]
        return [value if is_finite_number(value) else math.inf for value in values]

    for _, path in groupby(sorted(combinations, key=others), key=others):
        yield sorted(path, key=penalties)
