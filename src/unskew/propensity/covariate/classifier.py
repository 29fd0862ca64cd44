"""Propensities from any classifier of scikit-learn's kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.ratings import Ratings
from unskew.data.universe import UniverseLike
from unskew.errors import UsageError
from unskew.propensity.covariate.cells import (
    ProfileCells,
    count_cells,
    count_sample,
    draw_unobserved,
    labelled_rows,
    side_by_side,
)
from unskew.propensity.covariate.covariates import (
    CovariatePropensity,
    Covariates,
    require_covariates,
)
from unskew.propensity.model import listed_universe
from unskew.types import IntVector, Matrix, Vector

MOST_ROWS = 2 * 10**6
"""Pairs of profiles that are listed; with more, unobserved cells are sampled."""
MOST_REPEATS = 2 * 10**7
"""Rows that a classifier without weights is given."""
NEGATIVES = 4.0
"""Sampled unobserved cells for each observed one, where that is not said."""


class ClassifierPropensity(CovariatePropensity):
    """P = s p / (1 - p + s p): p is what a classifier says of (x_u, z_i), s the share of unobserved cells that it was shown.

    Cells whose users and items have the same covariates are one row, weighted by their number; a classifier that takes no
    ``sample_weight`` is given the row as often. A sample multiplies the odds by 1 / s, which is undone.

    Parameters
    ----------
    estimator
        A classifier with ``fit`` and ``predict_proba``, such as ``RandomForestClassifier(min_samples_leaf=20)`` or a pipeline.
        A copy is fitted. Where its ``random_state`` is None, the copy gets ours.
    user_features, item_features
        Covariates, as in :class:`LogisticPropensity`; a row has the user's and then the item's, in the units given.
    negatives
        None shows all cells, and samples only where there are more than 2 million pairs of profiles. A number samples so many
        unobserved cells for each observed one.
    random_state
        Seed of the sample and of the classifier.

    Attributes
    ----------
    estimator_ : the fitted copy.
    sampled_share_ : s; 1 where all cells were shown.
    n_rows_ : rows that the classifier was fitted to.

    A classifier is code, so that the model cannot be saved as data: save the propensities that it predicts.
    """

    estimator_: Any
    sampled_share_: float
    n_rows_: int

    def __init__(
        self,
        estimator: Any,
        user_features: object = None,
        item_features: object = None,
        *,
        negatives: float | None = None,
        random_state: int = 0,
    ) -> None:
        self.estimator = estimator
        self.user_features = user_features
        self.item_features = item_features
        self.negatives = negatives
        self.random_state = random_state

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Learn which cells were observed. The log must list all users and items; ratings play no part."""
        self._check()
        size = listed_universe(log, universe)
        user, item = self._covariates(log)
        require_covariates(self, user, item)
        cells = self._cells(log, user, item)
        features, label, weight = labelled_rows(cells, user, item)
        self.estimator_ = self._fitted(features, label, weight)
        self._user, self._item, self.sampled_share_, self.n_rows_ = (
            user,
            item,
            cells.share,
            label.size,
        )
        self._remember(log, size)
        return self

    def save(self, path: str | Path) -> None:  # noqa: ARG002
        """Refused: a classifier is code, and model files hold none."""
        raise UsageError(
            f"ClassifierPropensity holds a {type(self.estimator).__name__}, which cannot be saved without code. Save what it "
            "predicts instead, such as np.save(path, model.predict(log)), and pass that as propensities."
        )

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:  # noqa: ARG002
        pair = (
            self._user.profile[user].astype(np.int64) * self._item.n_profiles
            + self._item.profile[item]
        )
        pairs, place = np.unique(pair, return_inverse=True)
        of_user, of_item = np.divmod(pairs, self._item.n_profiles)
        features = side_by_side(
            self._user, self._item, of_user.astype(np.int32), of_item.astype(np.int32)
        )
        column = list(self.estimator_.classes_).index(1.0)
        in_sample = np.asarray(self.estimator_.predict_proba(features), dtype=np.float64)[:, column]
        odds_of = self.sampled_share_ * in_sample
        chances: Vector = (odds_of / (1 - in_sample + odds_of))[place.ravel()]
        return chances

    def _check(self) -> None:
        if isinstance(self.estimator, type) or not all(
            hasattr(self.estimator, name) for name in ("fit", "predict_proba")
        ):
            raise UsageError(
                "estimator must be a classifier with fit and predict_proba, such as RandomForestClassifier(); "
                f"got {self.estimator!r}."
            )
        whole_number("random_state", self.random_state, least=0)
        if self.negatives is not None and not (
            is_finite_number(self.negatives) and self.negatives > 0
        ):
            raise UsageError(
                f"negatives must be None or the sampled cells for each observed one, above 0; got {self.negatives!r}."
            )

    def _cells(self, log: Ratings, user: Covariates, item: Covariates) -> ProfileCells:
        if self.negatives is None and user.n_profiles * item.n_profiles <= MOST_ROWS:
            return count_cells(log, user, item)
        rng = np.random.default_rng(self.random_state)
        return count_sample(
            log, user, item, draw_unobserved(log, len(log) * (self.negatives or NEGATIVES), rng)
        )

    def _fitted(self, features: Matrix, label: Vector, weight: Vector) -> Any:
        from sklearn.base import clone
        from sklearn.utils.validation import has_fit_parameter

        estimator = clone(self.estimator)
        if estimator.get_params().get("random_state", 0) is None:
            estimator.set_params(random_state=self.random_state)
        if has_fit_parameter(estimator, "sample_weight"):
            return estimator.fit(features, label, sample_weight=weight)
        if weight.sum() > MOST_REPEATS:
            raise UsageError(
                f"{type(estimator).__name__}.fit takes no sample_weight, so that it would need a row for each of "
                f"{weight.sum():,.0f} cells. Give negatives=4, for example, to sample unobserved ones."
            )
        times = weight.astype(np.int64)
        return estimator.fit(np.repeat(features, times, axis=0), np.repeat(label, times))
