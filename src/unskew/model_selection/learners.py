"""Learners to compare: recommenders with the grids that their settings are chosen from."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unskew.model_selection.grids import GRID, L2, PRECISION, RANKS_WITHOUT_L2
from unskew.model_selection.protocols import check_propensity_matrix
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.registry import Declaration
from unskew.settings import unfitted_copy
from unskew.types import Matrix

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
