"""A mixture of user clusters with a model of which cells are observed (Marlin & Zemel 2009)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from pathlib import Path
from typing import Literal, Self

import numpy as np
from scipy.special import logit

from unskew.data.ids import Ids
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.errors import PropensityWarning, UsageError
from unskew.factorization.solution import IterativeModel, minimize
from unskew.latent.missingness import (
    BetaPrior,
    DependsOnRating,
    DependsOnRatingAndItem,
    LevelCodes,
    MissingAtRandom,
    SelectionEffects,
    ValuePropensities,
    encode_levels,
    require_full_vocabulary,
    resolve_value_propensities,
)
from unskew.latent.mixture import CellsBySlot, EMSolver, MixtureParameters, draw_mixture
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.distribution import (
    STATISTICS,
    Distribution,
    DistributionRecommender,
    Statistic,
)
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.recommender import Preset
from unskew.progress import progress_line
from unskew.settings import Number, OneOf, WholeNumber, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import ArrayShapes, IntVector, Matrix, Scorer, Scores, Vector

MECHANISMS: Mapping[str, Callable[[BetaPrior | None], MissingAtRandom]] = {
    "mar": lambda _: MissingAtRandom(),
    "cpt-v": DependsOnRating,
    "logit-vd": DependsOnRatingAndItem,
}
PRIORS: Mapping[str, Callable[[Vector, float], BetaPrior | None]] = {
    "fixed": lambda *_: None,
    "prior": lambda p_observed, n_cells: BetaPrior(
        n_cells * p_observed, n_cells * (1 - p_observed)
    ),
    "free": lambda p_observed, _: BetaPrior(np.ones_like(p_observed), np.ones_like(p_observed)),
}
"""By value effect: the prior of each level, given P(O = 1 | Y = r) and the weight in cells."""


@RECOMMENDERS.declare(
    "multinomial-mixture",
    label="Mixture",
    summary="Clusters of users, with a model of which ratings are observed.",
)
@dataclass(eq=False, repr=False)
class MultinomialMixture(IterativeModel, DistributionRecommender):
    """Each user belongs to one of K clusters, which has rating probabilities for every item.

        z_u ~ theta,    P(Y_ui = r | z_u = k) = B_kir,    P(O_ui = 1 | Y_ui = r) = mu_ir

    Unobserved cells are part of the likelihood. Users of a cluster share all probabilities, so on
    small logs the default is worse than :data:`OffsetsOnly` (on Coat's random test 1.46, not 1.12).

    Parameters
    ----------
    mechanism
        ``"cpt-v"``: mu depends on the rating alone. ``"logit-vd"``: mu_ir = sigma(s_r + t_i)
        depends on the item too, with t_i ~ N(0, 10). ``"mar"``: mu is the same for all cells, so
        only observed ratings matter.
    n_clusters
        The number of clusters, K.
    value_effect
        How P(O = 1 | Y = r), or s_r, is treated: kept at the values passed to ``fit``
        (``"fixed"``), given a ``"prior"`` around these values, or estimated from the log alone
        (``"free"``; values passed to ``fit`` are the start). The log contains little information
        about it: the free fit has a higher likelihood and is often far worse.
    prior_strength
        For ``"prior"``: the weight of the prior of each level in cells, as a share of all U * I
        cells. The likelihood has U * I terms and dominates any prior that does not grow with them.
    smoothing
        Pseudo-counts: ratings added to each level of each item in each cluster, and users added to
        each cluster (Dirichlet priors of 1 + smoothing).
    n_restarts
        The number of random starts. They run together, each with a users x K array in memory, and
        the one with the highest posterior is kept.
    max_iter, tol
        The fit stops after ``max_iter`` sweeps, or when a sweep lowers the objective of every start
        by at most ``tol`` times its size.
    statistic
        ``predict`` gives the ``"mean"`` (best for MSE) or the ``"median"`` (best for MAE).
    n_threads
        The number of threads; by default one for each processor. The result does not depend on it.
    random_state
        A seed, a NumPy generator, or None for other starts each time.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    levels_ : the rating levels.
    cluster_weights_ : theta.
    responsibilities_ : the posterior of each user's cluster, users x clusters.
    rating_probabilities_ : B, clusters x items x levels.
    value_propensities_ : mu, items x levels.
    objective_, history_, n_iter_ : the negative log posterior up to a constant, of the best start
        so far, at the end and after each sweep; and the number of sweeps.
    converged_, stop_reason_ : whether all starts converged, and why the fit stopped.

    Notes
    -----
    Predictions are those of an unobserved cell: P(Y = r) ~ sum_k q_uk B_kir (1 - mu_ir). An unknown
    user has the cluster weights theta, and an unknown item the mean of all items in each cluster.
    """

    mechanism: Literal["mar", "cpt-v", "logit-vd"] = setting("cpt-v", OneOf(tuple(MECHANISMS)))
    n_clusters: int = setting(5, WholeNumber(least=1))
    _: KW_ONLY
    value_effect: Literal["fixed", "prior", "free"] = setting("fixed", OneOf(tuple(PRIORS)))
    prior_strength: float = setting(1.0, Number(above=0))
    smoothing: float = setting(1.0, Number(above=0, most=1e12))
    n_restarts: int = setting(5, WholeNumber(least=1))
    max_iter: int = setting(200, WholeNumber(least=1))
    statistic: Statistic = setting("mean", OneOf(STATISTICS))

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        value_propensities: ValuePropensities | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
        engine: str | object = "auto",
    ) -> Self:
        """Fit to a log whose vocabularies list all users and items that could be observed.

        Parameters
        ----------
        log
            Ratings of at most 100 levels.
        propensities
            One for each observed cell. Ratings are not weighted: P(O = 1 | Y = r) is estimated as
            n_r over the sum of 1 / P of the ratings r. With ``mechanism="mar"`` they are not used.
        value_propensities
            P(O = 1 | Y = r) itself: a fitted :class:`~unskew.NaiveBayesPropensity`, a table
            {rating: P}, or values in the order of the rating levels.
        checkpoint, checkpoint_every
            The file to which the state is written after every ``checkpoint_every`` sweeps. If the
            file exists, the fit continues from it and gets the same result bit for bit.
        engine
            ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        self._check_settings()
        levels, codes = encode_levels(log)
        p_observed = self._initial_value_propensities(
            log, levels, codes, propensities, value_propensities
        )
        cells = CellsBySlot.of(log, codes, levels.size)
        prior = PRIORS[self.value_effect](p_observed, self.prior_strength * log.n_cells)
        saved = self._make_checkpoint(
            checkpoint,
            checkpoint_every,
            log.user,
            log.item,
            log.rating,
            p_observed,
            shape=(log.n_users, log.n_items),
        )
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as show,
        ):
            mechanism = MECHANISMS[self.mechanism](prior)
            solver = EMSolver(cells, mechanism, self.smoothing, self.tol, workers)
            solution = minimize(
                solver,
                self._draw_starts(cells, p_observed),
                max_iter=self.max_iter,
                tol=None,
                checkpoint=saved,
                report=lambda sweep, value: show(
                    f"sweep {sweep}, negative log posterior {value:.8g}"
                ),
            )
            best = solution.parameters[0]
            self.responsibilities_ = solver.responsibilities(best)
        self._record_log(log)
        self.levels_ = levels
        self.cluster_weights_ = best.cluster_weights
        self.rating_probabilities_ = np.ascontiguousarray(
            best.rating_probabilities.reshape(log.n_items, levels.size, -1).transpose(2, 0, 1)
        )
        self.value_propensities_ = best.effects.p_observed
        self._record_solution(solution)
        return self

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """A scorer of ``items``, in this order, for users given by their index in ``users``.

        Scores are means, because medians have too many ties to rank items by.
        """
        user, item = self._find_codes_or_none(users, items)
        joint = self._p_rating_and_unobserved()
        # Unknown items have code -1, which finds the last item: the mean of all items.
        joint = np.concatenate([joint, joint.mean(axis=1, keepdims=True)], axis=1)
        return _MixtureMeans(
            self._cluster_probabilities(user),
            (joint @ self.levels_)[:, item],
            joint.sum(axis=2)[:, item],
        )

    def _distribution(self, user: IntVector, item: IntVector) -> Distribution:
        return lambda row, column: self._predict_pairs(user[row], item[column])

    def _predict_pairs(self, user: IntVector, item: IntVector) -> Matrix:
        """The distribution over levels of each pair of codes."""
        clusters = self._cluster_probabilities(user)
        probabilities = np.zeros((user.size, self.levels_.size))
        for p_cluster, p_ratings in zip(clusters.T, self.rating_probabilities_, strict=True):
            probabilities += p_cluster[:, None] * p_ratings[item]
        probabilities *= 1 - self.value_propensities_[item]
        is_unknown = item < 0
        if is_unknown.any():
            mean_item = self._p_rating_and_unobserved().mean(axis=1)
            probabilities[is_unknown] = clusters[is_unknown] @ mean_item
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def _p_rating_and_unobserved(self) -> Matrix:
        """P(Y = r, O = 0), clusters x items x levels."""
        return self.rating_probabilities_ * (1 - self.value_propensities_)

    def _cluster_probabilities(self, user: IntVector) -> Matrix:
        """Responsibilities of these users; an unknown user, -1, has the cluster weights."""
        is_known = (user >= 0)[:, None]
        return np.where(is_known, self.responsibilities_[user], self.cluster_weights_)

    def _initial_value_propensities(
        self,
        log: Ratings,
        levels: Vector,
        codes: LevelCodes,
        propensities: PropensitiesLike | None,
        value_propensities: ValuePropensities | None,
    ) -> Vector:
        """P(O = 1 | Y = r) at the start: as passed to ``fit``, or the same for every level."""
        uniform = np.full(levels.size, (len(log) + 1) / (log.n_cells + 2))
        if self.mechanism == "mar":
            if value_propensities is not None:
                raise UsageError(
                    "`value_propensities` are not used with `mechanism='mar'`.",
                    parameter="value_propensities",
                    remedy="Use `mechanism='cpt-v'` or `mechanism='logit-vd'`, or leave them out.",
                )
            return uniform
        require_full_vocabulary(log)
        resolved = resolve_value_propensities(log, levels, codes, propensities, value_propensities)
        if self.value_effect == "free":
            _warn_not_identified()
        elif resolved is None:
            raise UsageError(
                f"`value_effect={self.value_effect!r}` needs to know how likely each rating is to "
                "be observed.",
                parameter="value_propensities",
                remedy="Pass `value_propensities` (a NaiveBayesPropensity fitted with some ratings "
                "of random cells, or a table {rating: P}) or `propensities`, or use "
                "`mechanism='mar'`.",
            )
        return uniform if resolved is None else resolved

    def _draw_starts(self, cells: CellsBySlot, p_observed: Vector) -> tuple[MixtureParameters, ...]:
        effects = SelectionEffects(logit(p_observed), np.zeros(cells.n_items))
        seed = self.random_state
        if not isinstance(seed, Integral):
            seed = int(np.random.default_rng(seed).integers(2**63))
        return tuple(
            draw_mixture(
                cells,
                effects,
                n_clusters=self.n_clusters,
                smoothing=self.smoothing,
                seed=(int(seed), start),
            )
            for start in range(self.n_restarts)
        )

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        n_clusters, n_levels = self.cluster_weights_.size, self.levels_.size
        n_users, n_items = len(self.users_), len(self.items_)
        return {
            **super()._arrays_with_expected_shapes(),
            "responsibilities": (self.responsibilities_, (n_users, n_clusters)),
            "rating_probabilities": (self.rating_probabilities_, (n_clusters, n_items, n_levels)),
            "value_propensities": (self.value_propensities_, (n_items, n_levels)),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _MixtureMeans:
    """The mean rating of an unobserved cell: sum_r r P(Y = r, O = 0) / P(O = 0)."""

    clusters: Matrix
    """Cluster probabilities, users x clusters."""
    rating_sum: Matrix
    """sum_r r P(Y = r, O = 0), clusters x items."""
    p_unobserved: Matrix
    """P(O = 0), clusters x items."""

    def __call__(self, users: IntVector, /, *, out: Scores | None = None) -> Scores:
        return np.divide(
            self.clusters[users] @ self.rating_sum,
            self.clusters[users] @ self.p_unobserved,
            out=out,
            casting="same_kind",
        )


def _warn_not_identified() -> None:
    warnings.warn(
        PropensityWarning(
            "with `value_effect='free'` the log alone has to show how likely each rating is to be "
            "observed. It hardly does: the fit is not identified, and often far worse than with "
            "`mechanism='mar'`.",
            parameter="value_effect",
            value="free",
            remedy="Use `value_effect='fixed'` with some ratings of random cells.",
        ),
        stacklevel=4,
    )


MixtureMAR = PRESETS.add(
    "mixture",
    Preset("MixtureMAR", MultinomialMixture, fixed={"mechanism": "mar"}),
    label="Mixture (MAR)",
    summary="Clusters of users, from the observed ratings alone.",
    traits={"reads_propensities": False},
)
CPTv = PRESETS.add(
    "cpt-v",
    Preset("CPTv", MultinomialMixture, fixed={"mechanism": "cpt-v"}),
    label="CPT-v",
    summary="Clusters of users; observation depends on the rating.",
)
LogitVd = PRESETS.add(
    "logit-vd",
    Preset("LogitVd", MultinomialMixture, fixed={"mechanism": "logit-vd"}),
    label="Logit-vd",
    summary="Clusters of users; observation depends on rating and item.",
)
