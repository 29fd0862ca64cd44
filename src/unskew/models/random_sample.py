"""Learning from a log and a few ratings of random cells."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, Self

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ids import find_codes, format_id
from unskew.data.propensities import PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.weights import weighted_mean
from unskew.errors import BadPropensityError, UnknownIdError, UsageError
from unskew.factorization.automatic import find_offset_ridges, fit_offsets
from unskew.models import RECOMMENDERS
from unskew.models.correction import fit_correction
from unskew.models.engine_choice import refuse_other_engines
from unskew.models.factor_recommender import RatingFactorization
from unskew.models.imputation import fit_imputation
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.settings import Number, OneOf, setting
from unskew.threads import Workers, single_blas_thread
from unskew.types import BoolVector, RandomState, Vector

TRUSTS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.0)
"""Candidates of ``trust="auto"``."""
N_PARTS = 5
MIN_SAMPLE = 20
"""A smaller sample does not choose the trust: it is 1."""


@RECOMMENDERS.declare(
    "random-sample",
    label="MF with random ratings",
    summary="Weighted factorisation of a log together with a few ratings of random cells.",
    traits={"needs_mcar": True},
)
@dataclass(eq=False, repr=False)
class RandomSampleFactorization(RatingFactorization):
    """F_ui = v_u . w_i + a_u + b_i + c, fitted to a log and to a sample of random cells at once.

        min  sum over the log of  t / (t P + q) (Y - F)^2
             +  sum over the sample of  1 / (t P + q) (Y - F)^2  +  ridge (||V||^2 + ...)

    q = m / U I is the probability with which a cell is in the sample of m ratings, and t the trust
    in the log. A cell is counted t P + q times on average, so for any t the loss has the mean of
    the loss over all cells if P is right. No weight exceeds 1 / q. With t = 1 every rating counts
    the same, wherever it comes from; with t = 0 the log is not read, and P may be wrong.
    ``"auto"`` chooses the t with which offsets best predict ratings of the sample that were held
    out. The sample may be the one that the propensities were estimated from.

    With ``uses="imputation"`` a factorisation G of the sample imputes all cells, and F - G is
    fitted to the errors Y - G of the log and the sample, with the same weights: doubly robust
    learning with an imputation that knows no selection.

    The other settings are those of :class:`MatrixFactorization`.

    Parameters
    ----------
    uses
        ``"weighting"`` or ``"imputation"``.
    trust
        t, a number from 0 to 1, or ``"auto"``.

    Attributes
    ----------
    factors_ : the fitted V, W, a, b and c.
    trust_ : t.
    imputed_ : G, with ``uses="imputation"``.
    history_ : the objective. Its first entry is inf: users are solved first.
    """

    _: KW_ONLY
    uses: Literal["weighting", "imputation"] = setting(
        "weighting", OneOf(("weighting", "imputation"))
    )
    trust: float | Literal["auto"] = setting("auto", Number(least=0, most=1, allow_auto=True))
    trust_: float = field(init=False)
    imputed_: Factors = field(init=False)

    def fit(
        self,
        log: Ratings,
        propensities: PropensitiesLike | None = None,
        *,
        mcar: Ratings | None = None,
        engine: str | object = "auto",
    ) -> Self:
        """Fit to a log and to ratings of random cells.

        Parameters
        ----------
        log
            The log, missing not at random.
        propensities
            A fitted model or a users x items matrix, because those of the random cells are needed
            too. Without ``mcar`` they may be values in the order of the log. Without propensities
            all cells are taken to be equally likely.
        mcar
            Ratings of cells that were drawn at random, of users and items of the log. Without them
            this is :class:`MatrixFactorization`.
        engine
            ``"local"`` or ``"auto"``: other engines are refused by name.
        """
        refuse_other_engines(self, engine)
        require_log(log)
        self._check_settings()
        pooled = PooledRatings.of(log, propensities, mcar)
        self.trust_ = self._choose_trust(pooled)
        joint, weight = pooled.weigh(self.trust_)
        model = MatrixFactorization._with_settings_of(self)
        with Workers(self.n_threads) as workers, single_blas_thread(), self._show_steps() as report:
            if self.uses == "imputation":
                sample = joint if mcar is None else pooled.take_sample()
                equal = np.full(len(sample), log.n_cells / len(sample))
                self.imputed_ = fit_imputation(
                    model, sample, equal, workers, dtype=self.dtype, random_state=self.random_state
                )
                fit = fit_correction(self, joint, weight, self.imputed_, workers, report)
                solution, penalty = fit.solution, fit.penalty
            else:
                penalty = model._choose_penalty(joint, weight, workers=workers)
                solution = model._solve(joint, weight, workers, penalty=penalty)
        self._record_penalty(log, penalty)
        self._record_fit(log, solution, weighted_mean(joint.rating, weight), fitted=joint)
        return self

    def _choose_trust(self, pooled: PooledRatings) -> float:
        n_sample = int(pooled.is_random.sum())
        if not n_sample:
            return 1.0
        if self.trust != "auto":
            return float(self.trust)
        return choose_trust(pooled, self.random_state) if n_sample >= MIN_SAMPLE else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class PooledRatings:
    """The ratings of the log and of the sample, one after the other."""

    ratings: Ratings
    """A cell that is in both counts twice."""
    is_random: BoolVector
    """Of each rating: whether it is from the sample."""
    propensity: Vector
    """P of each rating: the probability that its cell is in the log."""
    share: float
    """q."""

    @classmethod
    def of(
        cls, log: Ratings, propensities: PropensitiesLike | None, mcar: Ratings | None
    ) -> PooledRatings:
        equal = len(log) / log.n_cells
        log_propensities = np.full(len(log), equal)
        if propensities is not None:
            log_propensities = as_propensities(log, propensities).values
        if mcar is None:
            return cls(log, np.zeros(len(log), dtype=bool), log_propensities, 0.0)
        sample = find_cells_of(mcar, log)
        sample_propensities = np.full(len(sample), equal)
        if propensities is not None:
            sample_propensities = _predict_sample(sample, log, propensities)
        joint = replace(
            log,
            user=np.concatenate([log.user, sample.user]),
            item=np.concatenate([log.item, sample.item]),
            rating=np.concatenate([log.rating, sample.rating]),
            timestamp=None,
            row_labels=None,
            part=None,
        )
        is_random = np.repeat([False, True], [len(log), len(sample)])
        both = np.concatenate([log_propensities, sample_propensities])
        return cls(joint, is_random, both, len(sample) / log.n_cells)

    def weigh(self, trust: float) -> tuple[Ratings, Vector]:
        """The ratings with a weight above 0, and their weights."""
        expected = trust * self.propensity + self.share
        weight = np.where(self.is_random, 1.0, trust) / np.where(expected > 0, expected, 1.0)
        is_used = weight > 0
        return self.ratings.take(is_used), weight[is_used]

    def take(self, rows: BoolVector) -> PooledRatings:
        """Some of the ratings; q becomes smaller if ratings of the sample are left out."""
        kept = float(rows[self.is_random].mean())
        return PooledRatings(
            self.ratings.take(rows),
            self.is_random[rows],
            self.propensity[rows],
            self.share * kept,
        )

    def take_sample(self) -> Ratings:
        """The ratings of the sample."""
        return self.ratings.take(self.is_random)


def find_cells_of(sample: Ratings, log: Ratings) -> Ratings:
    """The sample with the codes of the log; an error if the log lacks a user or an item."""
    if not isinstance(sample, Ratings):
        raise UsageError(
            f"`mcar` must be unskew.Ratings, which say whose ratings they are; got "
            f"{type(sample).__name__}.",
            parameter="mcar",
            remedy="Build them with Ratings.from_frame or Ratings.from_arrays.",
        )
    codes = []
    for kind, ids, vocabulary in (
        ("user", sample.users[sample.user], log.users),
        ("item", sample.items[sample.item], log.items),
    ):
        code = find_codes(ids, vocabulary)
        if (code < 0).any():
            first = ids[int((code < 0).argmax())]
            raise UnknownIdError(
                f"{int((code < 0).sum())} of {code.size} ratings of the random sample have {kind}s "
                f"that the log does not list; the first is {kind} {format_id(first)}.",
                parameter="mcar",
                value=first,
                remedy=f"List all {kind}s with Ratings.from_frame(..., `{kind}s=...`).",
            )
        codes.append(code)
    return replace(
        log,
        user=codes[0],
        item=codes[1],
        rating=sample.rating,
        timestamp=None,
        row_labels=None,
        part=None,
    )


def _predict_sample(sample: Ratings, log: Ratings, propensities: PropensitiesLike) -> Vector:
    try:
        values = as_propensities(sample, propensities).values
    except BadPropensityError as error:
        raise BadPropensityError(
            f"the propensities of the {len(sample)} random ratings are needed too: {error}",
            parameter="propensities",
            remedy="Pass a fitted model, or a matrix of shape "
            f"{(log.n_users, log.n_items)}, in place of values in the order of the log.",
        ) from error
    return values * (log.share if log.part is not None else 1.0)


def choose_trust(pooled: PooledRatings, random_state: RandomState) -> float:
    """The trust with the least squared error of held-out random ratings, by offsets alone.

    It is 1 unless another one is better by more than a standard error of the paired difference.
    """
    rng = np.random.default_rng(random_state)
    n_sample = int(pooled.is_random.sum())
    part = np.full(pooled.is_random.size, -1)
    part[pooled.is_random] = rng.permutation(n_sample) % N_PARTS
    losses = np.zeros((len(TRUSTS), n_sample))
    for number in range(N_PARTS):
        is_held_out = part == number
        training, test = pooled.take(~is_held_out), pooled.ratings.take(is_held_out)
        for row, trust in enumerate(TRUSTS):
            ratings, weight = training.weigh(trust)
            ridges = find_offset_ridges(ratings, weight)
            predicted = fit_offsets(ratings, weight, *ridges, predicts=test)
            losses[row, is_held_out[pooled.is_random]] = np.square(test.rating - predicted)
    best = int(losses.sum(axis=1).argmin())
    gain = losses[0] - losses[best]
    return TRUSTS[best] if gain.sum() > gain.std() * np.sqrt(gain.size) else 1.0
