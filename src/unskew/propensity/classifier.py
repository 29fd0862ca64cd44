"""Propensities from any classifier with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from unskew.data.cells import sample_unobserved_cells
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.covariates import (
    CovariatePropensityModel,
    ProfilePairCounts,
    ProfilePairs,
)
from unskew.propensity.model import require_listed_universe, require_unobserved
from unskew.settings import Number, check_random_state, describe, draw_seeds, setting
from unskew.types import IntVector, Matrix, RandomState, Vector

MAX_PROFILE_PAIRS = 2 * 10**6
"""With more pairs of profiles than this, unobserved cells are sampled."""
MAX_REPEATED_ROWS = 2 * 10**7
"""Rows for a classifier that does not accept weights."""
NEGATIVES = 4.0
"""Sampled unobserved cells for each observed cell, by default."""


def _check_estimator(name: str, value: object) -> None:
    has_methods = all(hasattr(value, method) for method in ("fit", "predict_proba"))
    if isinstance(value, type) or not has_methods:
        got = f"the class {value.__name__}" if isinstance(value, type) else describe(value)
        raise UsageError(
            f"`{name}` must be a classifier, an object with fit and predict_proba; got {got}.",
            parameter=name,
            value=value,
            remedy="Pass an object, such as RandomForestClassifier().",
        )


@PROPENSITY_MODELS.declare(
    "classifier",
    label="Classifier",
    summary="Covariates, by any scikit-learn classifier.",
    traits={"takes_features": True, "needs_features": True, "has_code": True},
)
@dataclass(eq=False, repr=False)
class ClassifierPropensity(CovariatePropensityModel):
    """P = s p / (1 - p + s p), where a classifier predicts p from (x_u, z_i).

    s is the share of the unobserved cells that the classifier was trained on. Sampling them
    multiplies the odds by 1 / s, and the formula corrects that. Cells with the same covariates
    are one row, with their number as weight; for a classifier that does not accept
    ``sample_weight``, the row is repeated.

    A classifier is code, so the model cannot be saved; save the propensities that it predicts.

    Parameters
    ----------
    estimator
        A classifier with ``fit`` and ``predict_proba``, or a pipeline, such as
        ``RandomForestClassifier(min_samples_leaf=20)``. A copy is fitted. If its
        ``random_state`` is None, the copy gets ours.
    user_features, item_features
        Covariates, as in :class:`LogisticPropensity`; a row has those of the user, then those of
        the item, in the caller's units.
    negatives
        None uses all cells if there are at most 2 million pairs of profiles, else 4 sampled
        unobserved cells for each observed one. A number samples that many.
    random_state
        Seed of the sample and of the classifier.

    Attributes
    ----------
    estimator_ : the fitted copy.
    sampled_share_ : s; 1 if all cells were used.
    n_rows_ : rows that the classifier was fitted to.
    """

    estimator: Any = field(metadata={"check": _check_estimator})
    user_features: object = None
    item_features: object = None
    _: KW_ONLY
    negatives: float | None = setting(None, Number(above=0, allow_none=True))
    random_state: RandomState = setting(0, check_random_state)

    estimator_: Any = field(init=False)
    sampled_share_: float = field(init=False)
    n_rows_: int = field(init=False)

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn which cells were observed. The log must list all users and items."""
        self._check_settings()
        size, seed = require_listed_universe(log, universe), draw_seeds(self.random_state)[0]
        require_unobserved(len(log), size)
        profiles = self._read_covariates(log)
        counts = self._count_cells(log, profiles, seed)
        features, label, weight = profiles.labelled_rows(counts)
        self.estimator_ = self._fit_estimator(features, label, weight, seed)
        self._profiles = profiles
        self.sampled_share_, self.n_rows_ = counts.sampled_share, label.size
        self._record_log(log, size)
        return self

    def save(self, path: str | Path) -> None:
        """Raise an error: a classifier is code, and model files have none."""
        raise UsageError(
            f"ClassifierPropensity has a {type(self.estimator).__name__}, which cannot be saved "
            "without code.",
            parameter="estimator",
            remedy="Save its predictions, for example with np.save(path, model.predict(log)), "
            "and pass them as `propensities`.",
        )

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        pairs, row = np.unique(self._profiles.find_pairs(user, item), return_inverse=True)
        features = self._profiles.covariates(pairs)
        column = list(self.estimator_.classes_).index(1.0)
        probability = np.asarray(self.estimator_.predict_proba(features), dtype=np.float64)
        in_sample = probability[:, column]
        corrected = self.sampled_share_ * in_sample
        propensity: Vector = (corrected / (1 - in_sample + corrected))[row.ravel()]
        return propensity

    def _find_refit_obstacle(self) -> str | None:
        from sklearn.frozen import FrozenEstimator

        is_frozen = isinstance(self.estimator, FrozenEstimator)
        return "its classifier is frozen, so a fit does not change it" if is_frozen else None

    def _count_cells(self, log: Ratings, profiles: ProfilePairs, seed: int) -> ProfilePairCounts:
        if self.negatives is None and profiles.n_pairs <= MAX_PROFILE_PAIRS:
            return profiles.count_cells(log)
        n_sampled = len(log) * (self.negatives or NEGATIVES)
        unobserved = sample_unobserved_cells(log, n_sampled, np.random.default_rng(seed))
        return profiles.count_sampled_cells(log, unobserved)

    def _fit_estimator(self, features: Matrix, label: Vector, weight: Vector, seed: int) -> Any:
        from sklearn.base import clone
        from sklearn.utils.validation import has_fit_parameter

        estimator = clone(self.estimator)
        if estimator.get_params().get("random_state", 0) is None:
            estimator.set_params(random_state=seed)
        if has_fit_parameter(estimator, "sample_weight"):
            return estimator.fit(features, label, sample_weight=weight)
        if weight.sum() > MAX_REPEATED_ROWS:
            raise UsageError(
                f"{type(estimator).__name__}.fit does not accept sample_weight, so each of "
                f"{weight.sum():,.0f} cells would need a row of its own, more than the limit of "
                f"{MAX_REPEATED_ROWS:,}.",
                parameter="negatives",
                remedy="Sample unobserved cells, for example with `negatives=4`, or use a "
                "classifier that accepts sample_weight.",
            )
        repeats = weight.astype(np.int64)
        return estimator.fit(np.repeat(features, repeats, axis=0), np.repeat(label, repeats))
