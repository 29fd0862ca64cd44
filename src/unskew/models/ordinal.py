"""Ordinal factorisation with a model of the selection (Hernandez-Lobato, Houlsby & Ghahramani 2014)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self, TypeAlias

import numpy as np

from unskew.data.checks import is_finite_number, whole_number
from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.errors import PropensityWarning, UnknownNameError, UsageError
from unskew.factorization.solution import Iterative, run
from unskew.kernels.ordinal_lines import Exponentials
from unskew.latent.ordinal_likelihood import OrdinalLikelihood
from unskew.latent.ordinal_parameters import OrdinalParameters
from unskew.latent.value_effects import (
    ValuePropensities,
    given_value_propensities,
    levels_of,
    log_odds,
    require_listed,
)
from unskew.models.discrete import Distribution, DistributionRecommender, Statistic
from unskew.models.recommender import Shapes
from unskew.progress import progress_line
from unskew.threads import Workers, single_blas_thread
from unskew.types import IntVector, Matrix, Vector

ValueEffect: TypeAlias = Literal["fixed", "prior", "free"]
Precisions: TypeAlias = dict[str, float]
MECHANISMS = ("mar", "mnar")
START = 0.1
"""Standard deviation of the products of factors at the start: all zero is a saddle."""


class OrdinalFactorization(DistributionRecommender, Iterative):
    """Ratings are the interval between cut points that a noisy score falls in; whether a cell is logged may depend on its rating.

        P(Y <= r) = sigma((k_ir - s_ui) / (noise_u noise_i)),        s_ui = v_u . w_i + a_u + b_i
        logit P(O = 1 | Y = r) = q + activity_u + popularity_i + e_u . f_i + z_r [+ z_ur + z_ir]

    The link is logistic. Cut points k have gaps that items share up to a factor of their own, and b_i moves all of an item's.
    The fit is the most likely one under normal priors, inverse gamma ones of noise (MAP), ratings of unlogged cells summed out:

        max  sum over the log of [log P(Y) + log P(O = 1 | Y)]  +  sum over other cells of log sum_r P(r) P(O = 0 | r)  -  priors.

    ``mechanism="mar"`` has the first logarithm alone. A prediction is that of a cell that is not logged: under ``"mnar"`` the
    distribution is P(r) P(O = 0 | r) over its sum, for the cells of the log, too.

    Which ratings get logged cannot be told from the log alone: a model with free value effects fits it equally well with quite
    different ratings of the unlogged cells. So z_r comes from outside, from naive Bayes on a small random sample, say.

    Parameters
    ----------
    n_factors, l2
        Rank of v . w, and the precision (1 / variance) of the normal prior of each of its numbers. Too strong a prior leaves no
        factors at all: on Coat from about 6 on, on larger logs later.
    mechanism
        ``"mar"`` models ratings alone, ``"mnar"`` also which cells are logged.
    value_effect
        ``"fixed"`` takes z_r as given. ``"prior"`` lets it, and each user's and item's own, deviate from that, with priors worth
        ``value_l2`` times as many observations as the log has ratings of it. ``"free"`` gives them the weak priors
        of activity and popularity, and warns.
    n_exposure_factors
        Rank of e . f; 0 leaves it out.
    offset_l2, gap_l2, noise_l2, exposure_l2, value_l2
        Precisions of the priors of a and b, of items' gaps between cut points, of the logarithms of noise, of all that is
        in the log odds of being logged but z, and of z; see ``value_effect``. Defaults did well in cross-validation within the
        training logs of Coat and MovieLens 100K.
    n_unlogged
        If there are more unlogged cells than so many, every second, third, ... of each user's stands for the others, from a place
        drawn once. By default a million, or five a rating if that is more, which adds a fifth to the variance.
    statistic
        ``predict`` gives the ``"mean"`` (for MSE) or the ``"median"`` (for MAE) of the distribution.
    max_iter, tol
        Stop after so many steps of L-BFGS, or when one lowers the objective by no more than this share of it.
    n_threads
        One for each processor by default; the result never depends on it.
    random_state
        Seed of the start, and of the sample of unlogged cells.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    parameters_ : what was fitted, by name.
    levels_ : the different ratings of the log, from low to high.
    objective_, history_, n_iter_, converged_ : minus the penalised log likelihood, after each step, their number, whether flat.
    """

    parameters_: OrdinalParameters

    def __init__(
        self,
        n_factors: int = 10,
        l2: float = 5.0,
        *,
        mechanism: Literal["mar", "mnar"] = "mar",
        value_effect: ValueEffect = "fixed",
        n_exposure_factors: int = 5,
        offset_l2: float = 1.5,
        gap_l2: float = 50.0,
        noise_l2: float = 100.0,
        exposure_l2: float = 3.0,
        value_l2: float = 1.0,
        n_unlogged: int | None = None,
        statistic: Statistic = "mean",
        max_iter: int = 200,
        tol: float = 1e-6,
        n_threads: int | None = None,
        random_state: int = 0,
        verbose: bool = False,
    ) -> None:
        self.n_factors = n_factors
        self.l2 = l2
        self.mechanism = mechanism
        self.value_effect = value_effect
        self.n_exposure_factors = n_exposure_factors
        self.offset_l2 = offset_l2
        self.gap_l2 = gap_l2
        self.noise_l2 = noise_l2
        self.exposure_l2 = exposure_l2
        self.value_l2 = value_l2
        self.n_unlogged = n_unlogged
        self.statistic = statistic
        self.max_iter = max_iter
        self.tol = tol
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        value_propensities: ValuePropensities | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int = 10,
    ) -> Self:
        """Fit to a log.

        Parameters
        ----------
        log
            The log; under ``"mnar"`` all its users and items count, those without a rating included.
        propensities
            One for each rating. Nothing is weighted: the share of logged cells at each rating that follows from them takes the
            place of ``value_propensities``. ``"mar"`` has no use for them.
        value_propensities
            P(O = 1 | Y = r): a fitted naive Bayes model, a table ``{rating: P}``, or values in the order of the rating levels.
        checkpoint, checkpoint_every
            The state is written there every so many steps, and a run that finds its own file goes on from it to the same bits.
        """
        require_log(log)
        self._check(has_values=value_propensities is not None)
        levels, codes = levels_of(log)
        if self._selects:
            require_listed(log)
            self._warn_if_free()
        given = (
            given_value_propensities(log, levels, codes, propensities, value_propensities)
            if self._selects
            else None
        )
        centre = self._centre(log, levels.size, given)
        with (
            Workers(self.n_threads) as workers,
            single_blas_thread(),
            progress_line(self.verbose) as line,
        ):
            solver = OrdinalLikelihood.of(
                log,
                codes.astype(np.int32),
                centre=centre,
                precision=self._precision(log),
                n_unlogged=self._most_unlogged(log),
                random_state=self.random_state,
                workers=workers,
            )
            outcome = run(
                solver,
                lambda: self._begin(centre, np.bincount(codes).astype(np.float64)),
                max_iter=self.max_iter,
                tol=self.tol,
                checkpoint=self._checkpoint(
                    checkpoint,
                    checkpoint_every,
                    *(log.user, log.item, log.rating, centre.value_effect),
                    sizes=(log.n_users, log.n_items),
                ),
                report=lambda step, value: line(f"step {step}, objective {value:.6g}"),
            )
        self._tell(outcome)
        self._remember_log(log, (solver.log.starts, solver.log.item))
        self.parameters_, self.levels_ = outcome.parameters, levels
        return self

    @property
    def _selects(self) -> bool:
        """Whether the selection is modelled."""
        return self.mechanism == "mnar"

    def _check(self, *, has_values: bool) -> None:
        if self.mechanism not in MECHANISMS:
            raise UnknownNameError("mechanism", self.mechanism, MECHANISMS)
        if self.value_effect not in EFFECTS:
            raise UnknownNameError("value_effect", self.value_effect, EFFECTS)
        self._check_statistic()
        whole_number("n_factors", self.n_factors, least=0)
        whole_number("n_exposure_factors", self.n_exposure_factors, least=0)
        self._check_run()
        if self.n_unlogged is not None:
            whole_number("n_unlogged", self.n_unlogged, least=1)
        for name in ("l2", "offset_l2", "gap_l2", "noise_l2", "exposure_l2", "value_l2"):
            value = getattr(self, name)
            if not (is_finite_number(value) and value > 0):
                raise UsageError(f"{name} must be a finite number above 0; got {value!r}.")
        if has_values and not self._selects:
            raise UsageError(
                "value_propensities tell how ratings are selected, which mechanism='mar' does not model. Leave them out, or take "
                "mechanism='mnar'."
            )

    def _warn_if_free(self) -> None:
        if self.value_effect == "free":
            warnings.warn(
                "value_effect='free' asks the log alone which ratings go unlogged, and it cannot tell: fits of equal likelihood "
                "have quite different ratings in the unlogged cells. Take 'fixed' or 'prior', with value_propensities from a "
                "small random sample.",
                PropensityWarning,
                stacklevel=3,
            )

    def _centre(self, log: Ratings, n_levels: int, given: Vector | None) -> OrdinalParameters:
        """Where priors draw to: no differences but those of the value effect."""
        if given is None and self._selects and self.value_effect != "free":
            raise UsageError(
                f"value_effect={self.value_effect!r} needs to be told how likely each rating is to be logged: pass "
                "value_propensities, such as a NaiveBayesPropensity fitted to the log and a small random sample."
            )
        zeros = OrdinalParameters.zeros(
            *(log.n_users, log.n_items, n_levels),
            n_factors=self.n_factors,
            n_exposure_factors=self.n_exposure_factors,
        )
        density = min(len(log) / log.n_cells, 1 - 0.5 / log.n_cells)
        chances = np.full(n_levels, density) if given is None else given
        return replace(zeros, value_effect=log_odds(chances))

    def _precision(self, log: Ratings) -> Precisions:
        """The precision of the prior of each part that is fitted; 0 is none."""
        ratings = {
            **dict.fromkeys(("user_factors", "item_factors"), self.l2),
            **dict.fromkeys(("user_offset", "item_offset"), self.offset_l2),
            **dict.fromkeys(("user_noise", "item_noise"), self.noise_l2),
            "cuts": 0.0,
            "item_gaps": self.gap_l2,
        }
        exposure = {
            "constant": 0.0,
            **dict.fromkeys(
                ("user_activity", "item_popularity", "user_exposure", "item_exposure"),
                self.exposure_l2,
            ),
        }
        return (
            ratings | exposure | EFFECTS[self.value_effect](self, log) if self._selects else ratings
        )

    def _most_unlogged(self, log: Ratings) -> int:
        if not self._selects:
            return 0
        return max(1_000_000, 5 * len(log)) if self.n_unlogged is None else self.n_unlogged

    def _begin(self, centre: OrdinalParameters, counts: Vector) -> OrdinalParameters:
        """Cut points of the log's shares, small random factors."""
        rng = np.random.default_rng(self.random_state)
        at = log_odds(np.cumsum(counts)[:-1] / counts.sum())

        def drawn(like: Matrix) -> Matrix:
            return rng.normal(0.0, START / np.sqrt(max(like.shape[1], 1)), like.shape)

        return replace(
            centre,
            cuts=np.concatenate([at[:1], np.log(np.diff(at))]),
            user_factors=drawn(centre.user_factors),
            item_factors=drawn(centre.item_factors),
            user_exposure=drawn(centre.user_exposure),
            item_exposure=drawn(centre.item_exposure),
        )

    def _distribution(self, user: IntVector, item: IntVector) -> Distribution:
        from unskew.kernels.ordinal import fill_distribution

        lines = self.parameters_.lines(user, item)
        known = Exponentials.of(*lines)

        def of_pairs(row: IntVector, column: IntVector) -> Matrix:
            shares = np.empty((row.size, self.levels_.size))
            fill_distribution(row, column, *lines, known, self._selects, shares)
            return shares

        return of_pairs

    def _shapes(self) -> Shapes:
        sizes = len(self.users_), len(self.items_), self.levels_.size
        return super()._shapes() | self.parameters_.shapes(*sizes)


def _fixed(model: OrdinalFactorization, log: Ratings) -> Precisions:  # noqa: ARG001
    """Nothing of it is fitted."""
    return {}


def _prior(model: OrdinalFactorization, log: Ratings) -> Precisions:
    """In observations: of all, of a user's, of an item's."""
    worth = model.value_l2 * len(log)
    return {
        "value_effect": worth,
        "user_effect": worth / log.n_users,
        "item_effect": worth / log.n_items,
    }


def _free(model: OrdinalFactorization, log: Ratings) -> Precisions:  # noqa: ARG001
    return dict.fromkeys(("value_effect", "user_effect", "item_effect"), model.exposure_l2)


EFFECTS: Mapping[str, Callable[[OrdinalFactorization, Ratings], Precisions]] = {
    "fixed": _fixed,
    "prior": _prior,
    "free": _free,
}
