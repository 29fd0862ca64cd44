"""Ordinal factorization with a model of the selection.

J. M. Hernandez-Lobato, N. Houlsby & Z. Ghahramani, *Probabilistic matrix factorization with
non-random missing data*, ICML 2014.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Literal, Self, TypeAlias

import numpy as np
from scipy.special import logit

from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings, require_log
from unskew.errors import PropensityWarning, UsageError
from unskew.factorization.solution import IterativeModel
from unskew.kernels.ordinal_rows import RowExponentials
from unskew.latent.missingness import (
    ValuePropensities,
    encode_levels,
    require_full_vocabulary,
    resolve_value_propensities,
)
from unskew.latent.ordinal import EFFECT_PARTS, OrdinalLikelihood, OrdinalParameters
from unskew.models import PRESETS, RECOMMENDERS
from unskew.models.distribution import (
    STATISTICS,
    Distribution,
    DistributionRecommender,
    Statistic,
)
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.recommender import Preset
from unskew.settings import Number, OneOf, WholeNumber, setting
from unskew.threads import Workers
from unskew.types import ArrayShapes, IntVector, Matrix, Vector

Precisions: TypeAlias = dict[str, float]
START = 0.1
"""Standard deviation of the products of factors at the start. All zero is a saddle point."""
MIN_UNOBSERVED, UNOBSERVED_PER_RATING = 4_000_000, 8
LONG_LOG = 30_000
"""Ratings from which on a fit stops early by default."""
TOL, TOL_OF_LONG_LOG, LEAST_STEPS = 1e-5, 3e-4, 20
"""With a long log, convergence is checked from step 20 on: before it, factors that start at almost
zero grow while the objective falls slowly."""


@RECOMMENDERS.declare(
    "ordinal",
    label="Ordinal MF",
    summary="Ordinal ratings, with a model of which ratings are observed.",
)
@dataclass(eq=False, repr=False)
class OrdinalFactorization(IterativeModel, DistributionRecommender):
    """A noisy score between cut points gives the rating, and the rating affects observation.

        P(Y <= r) = sigma((k_ir - s_ui) / (noise_u noise_i)),    s_ui = v_u . w_i + a_u + b_i
        logit P(O = 1 | Y = r) = q + activity_u + popularity_i + e_u . f_i + z_r [+ z_ur + z_ir]

    Items share the gaps between cut points k up to a factor for each item and gap, and b_i shifts
    all cut points of an item. The fit maximizes the posterior (MAP), with inverse gamma priors of
    the noise, normal priors of all other parameters, and unobserved ratings marginalized:

        max  sum over the log of [log P(Y) + log P(O = 1 | Y)]
             + sum over all other cells of log sum_r P(r) P(O = 0 | r)  +  log prior.

    ``mechanism="mar"``, the default, maximizes the sum of log P(Y) alone. It corrects no selection,
    so where people rate what they like it is worse than :data:`OffsetsOnly` with propensities.
    ``"mnar"`` corrects it as far as observation follows the rating: on Coat, where the published
    propensities follow users and coats, its default is worse as well (1.16, not 1.12).
    Predictions are those of an unobserved
    cell: with ``"mnar"`` the distribution is P(r) P(O = 0 | r) over its sum, also for the cells of
    the log.

    The log alone does not identify which ratings are observed: free value effects fit it equally
    well with quite different ratings of the unobserved cells. So z_r has to come from elsewhere,
    such as naive Bayes with a small random sample.

    Parameters
    ----------
    n_factors
        The number of factors in v . w.
    prior_precision
        The precision (1 / variance) of the normal prior of each factor. If it is too large, all
        factors become 0: on Coat from about 6 on, on larger logs later.
    mechanism
        ``"mar"`` models ratings alone, ``"mnar"`` also which cells are observed.
    value_effect
        ``"fixed"`` keeps z_r at the values passed to ``fit``. ``"prior"`` adds deviations of z_r,
        of each user and of each item, with priors worth ``value_precision`` times as many
        observations as the log has ratings of it. ``"free"`` gives them the weak priors of
        activity and popularity, and warns.
    n_exposure_factors
        The number of factors in e . f; 0 leaves them out.
    offset_precision, gap_precision, noise_precision
        Precisions of the priors of a and b, of items' gaps between cut points, and of the
        logarithms of noise. Defaults did well in cross-validation within the training logs of Coat
        and MovieLens 100K, as do those of the two below.
    exposure_precision, value_precision
        Precisions of the priors of activity, popularity, e and f, and of z (see ``value_effect``).
    n_unobserved
        If there are more unobserved cells than this, a random sample represents them. By default
        four million, or eight for each rating if that is more, which adds an eighth to the
        variance of what belongs to a single user or item. Users come in blocks of 16 with the same
        items, which adds more to the variance of factors of exposure. A sample, and all cells if
        there are more than 100,000, are computed in single precision.
    statistic
        ``predict`` gives the ``"mean"`` (best for MSE) or the ``"median"`` (best for MAE).
    max_iter, tol
        The fit stops after ``max_iter`` L-BFGS steps, or when a step lowers the objective by at
        most ``tol`` times its size. By default ``tol`` is 1e-5, and with 30,000 ratings or more
        3e-4 from step 20 on. Long logs are predicted better that way than at the optimum, which
        ``tol=1e-5`` approaches: later steps mainly fit factors to noise (decision 027).
    n_threads
        The number of threads; by default one for each processor. The result does not depend on it.
    random_state
        A seed, a NumPy generator, or None. It determines the start and the sample of unobserved
        cells.
    verbose
        Show a line of progress on standard error.

    Attributes
    ----------
    parameters_ : the fitted parameters, by name.
    levels_ : the distinct ratings of the log, in ascending order.
    objective_, history_, n_iter_ : the negative log posterior up to a constant at the end and
        after each step, and the number of steps.
    converged_, stop_reason_ : whether the fit converged, and why it stopped.
    """

    n_factors: int = setting(10, WholeNumber(least=0))
    prior_precision: float = setting(5.0, Number(above=0))
    _: KW_ONLY
    mechanism: Literal["mar", "mnar"] = setting("mar", OneOf(("mar", "mnar")))
    value_effect: Literal["fixed", "prior", "free"] = setting(
        "fixed", OneOf(("fixed", "prior", "free"))
    )
    n_exposure_factors: int = setting(5, WholeNumber(least=0))
    offset_precision: float = setting(1.5, Number(above=0))
    gap_precision: float = setting(50.0, Number(above=0))
    noise_precision: float = setting(100.0, Number(above=0))
    exposure_precision: float = setting(3.0, Number(above=0))
    value_precision: float = setting(1.0, Number(above=0))
    n_unobserved: int | None = setting(None, WholeNumber(least=1, allow_none=True))
    max_iter: int = setting(200, WholeNumber(least=1))
    tol: float | None = setting(  # type: ignore[assignment]
        None, Number(least=0, allow_none=True)
    )
    statistic: Statistic = setting("mean", OneOf(STATISTICS))
    parameters_: OrdinalParameters = field(init=False)

    @property
    def _has_selection(self) -> bool:
        """Whether the model includes which cells are observed."""
        return self.mechanism == "mnar"

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
        """Fit to a log.

        Parameters
        ----------
        log
            Ratings of at most 100 levels. With ``"mnar"`` all users and items of its vocabularies
            count, including those without a rating.
        propensities
            One for each rating. Ratings are not weighted: P(O = 1 | Y = r) is estimated from them.
            With ``mechanism="mar"`` they are not used.
        value_propensities
            P(O = 1 | Y = r): a fitted naive Bayes model, a table ``{rating: P}``, or values in the
            order of the rating levels.
        checkpoint, checkpoint_every
            The file to which the state is written after every ``checkpoint_every`` steps. If the
            file exists, the fit continues from it and gets the same result bit for bit.
        engine
            ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        self._check_settings()
        levels, codes = encode_levels(log)
        resolved = None
        if self._has_selection:
            require_full_vocabulary(log)
            self._warn_if_free()
            resolved = resolve_value_propensities(
                log, levels, codes, propensities, value_propensities
            )
        elif value_propensities is not None:
            raise UsageError(
                "`value_propensities` are not used with `mechanism='mar'`.",
                parameter="value_propensities",
                remedy="Leave them out, or use `mechanism='mnar'`.",
            )
        center = self._prior_center(log, levels.size, resolved)
        saved = self._make_checkpoint(
            checkpoint,
            checkpoint_every,
            log.user,
            log.item,
            log.rating,
            center.value_effect,
            shape=(log.n_users, log.n_items),
        )

        tol, least_steps = self._find_stopping_rule(len(log))

        def make_solver(workers: Workers) -> OrdinalLikelihood:
            return OrdinalLikelihood.of(
                log,
                codes.astype(np.int32),
                center=center,
                precision=self._precisions(log),
                n_unobserved=self._count_unobserved(log),
                random_state=self.random_state,
                workers=workers,
                least_steps=least_steps,
            )

        start = self._make_start(center, np.bincount(codes).astype(np.float64))
        solution = self._minimize(make_solver, start, saved, tol=tol)
        self._record_log(log)
        self.parameters_, self.levels_ = solution.parameters, levels
        self._record_solution(solution)
        return self

    def _distribution(self, user: IntVector, item: IntVector) -> Distribution:
        from unskew.kernels.ordinal import fill_distribution

        parameters = self.parameters_.take(user, item)
        rows = parameters.user_rows(), parameters.item_rows()
        exponentials = RowExponentials.of(*rows)

        def predict_pairs(row: IntVector, column: IntVector) -> Matrix:
            probabilities = np.empty((row.size, self.levels_.size))
            fill_distribution(row, column, *rows, exponentials, self._has_selection, probabilities)
            return probabilities

        return predict_pairs

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        sizes = len(self.users_), len(self.items_), self.levels_.size
        return super()._arrays_with_expected_shapes() | self.parameters_.array_shapes(*sizes)

    def _warn_if_free(self) -> None:
        if self.value_effect == "free":
            warnings.warn(
                PropensityWarning(
                    "with `value_effect='free'` the log alone has to show which ratings are not "
                    "observed. It cannot: fits of equal likelihood have quite different ratings in "
                    "the unobserved cells.",
                    parameter="value_effect",
                    value="free",
                    remedy="Use 'fixed' or 'prior', with `value_propensities` from a small random "
                    "sample.",
                ),
                stacklevel=3,
            )

    def _prior_center(
        self, log: Ratings, n_levels: int, p_observed: Vector | None
    ) -> OrdinalParameters:
        """The means of the priors: zeros, except for the value effect."""
        if p_observed is None and self._has_selection and self.value_effect != "free":
            raise UsageError(
                f"`value_effect={self.value_effect!r}` needs to know how likely each rating is to "
                "be observed.",
                parameter="value_propensities",
                remedy="Pass `value_propensities`, such as a NaiveBayesPropensity fitted to the "
                "log and a small random sample, or `propensities`.",
            )
        zeros = OrdinalParameters.zeros(
            log.n_users,
            log.n_items,
            n_levels,
            n_factors=self.n_factors,
            n_exposure_factors=self.n_exposure_factors,
        )
        if p_observed is None:
            density = min(len(log) / log.n_cells, 1 - 0.5 / log.n_cells)
            p_observed = np.full(n_levels, density)
        return replace(zeros, value_effect=logit(p_observed))

    def _precisions(self, log: Ratings) -> Precisions:
        """The precision of the prior of each fitted part; 0 means no prior."""
        precisions = {
            **dict.fromkeys(("user_factors", "item_factors"), self.prior_precision),
            **dict.fromkeys(("user_offset", "item_offset"), self.offset_precision),
            **dict.fromkeys(("user_noise", "item_noise"), self.noise_precision),
            "cuts": 0.0,
            "item_gaps": self.gap_precision,
        }
        if self._has_selection:
            exposure_parts = ("user_activity", "item_popularity", "user_exposure", "item_exposure")
            precisions |= {
                "constant": 0.0,
                **dict.fromkeys(exposure_parts, self.exposure_precision),
            }
            precisions |= self._value_precisions(log)
        return precisions

    def _value_precisions(self, log: Ratings) -> Precisions:
        """The precisions of the value effects; fixed effects have none."""
        if self.value_effect == "fixed":
            return {}
        if self.value_effect == "free":
            return dict.fromkeys(EFFECT_PARTS, self.exposure_precision)
        n_observations = self.value_precision * len(log)
        n_rows = (1, log.n_users, log.n_items)
        return {name: n_observations / n for name, n in zip(EFFECT_PARTS, n_rows, strict=True)}

    def _count_unobserved(self, log: Ratings) -> int:
        """The number of unobserved cells to use."""
        if not self._has_selection:
            return 0
        if self.n_unobserved is not None:
            return self.n_unobserved
        return max(MIN_UNOBSERVED, UNOBSERVED_PER_RATING * len(log))

    def _find_stopping_rule(self, n_ratings: int) -> tuple[float, int]:
        """``tol``, and the step from which on convergence is checked."""
        if self.tol is not None:
            return self.tol, 0
        return (TOL_OF_LONG_LOG, LEAST_STEPS) if n_ratings >= LONG_LOG else (TOL, 0)

    def _make_start(self, center: OrdinalParameters, counts: Vector) -> OrdinalParameters:
        """Cut points from the rating frequencies, and small random factors."""
        rng = np.random.default_rng(self.random_state)
        cuts = logit(np.cumsum(counts)[:-1] / counts.sum())

        def draw_like(factors: Matrix) -> Matrix:
            return rng.normal(0.0, START / np.sqrt(max(factors.shape[1], 1)), factors.shape)

        return replace(
            center,
            cuts=np.concatenate([cuts[:1], np.log(np.diff(cuts))]),
            user_factors=draw_like(center.user_factors),
            item_factors=draw_like(center.item_factors),
            user_exposure=draw_like(center.user_exposure),
            item_exposure=draw_like(center.item_exposure),
        )


OrdinalMAR = PRESETS.add(
    "hl-mar",
    Preset("OrdinalMAR", OrdinalFactorization, fixed={"mechanism": "mar"}),
    label="HL-MAR",
    summary="Ordinal factorisation of the observed ratings alone.",
    traits={"reads_propensities": False},
)
OrdinalMNAR = PRESETS.add(
    "hl-mnar",
    Preset("OrdinalMNAR", OrdinalFactorization, fixed={"mechanism": "mnar"}),
    label="HL-MNAR",
    summary="Ordinal factorisation with a model of the selection.",
)
