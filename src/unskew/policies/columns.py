"""The columns of a request: rewards and weights of its slots, under one target policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from unskew.data.checks import float_array
from unskew.data.impressions import Impressions
from unskew.data.weights import WeightTransform
from unskew.errors import BadPropensityError, UsageError
from unskew.estimators.transforms import Dynamic
from unskew.policies.probabilities import BoundPolicy, UniformProbabilities
from unskew.policies.terms import Column
from unskew.types import BoolVector, Matrix, Vector

SlotColumns: TypeAlias = Any
"""One column for each slot: a list of columns, or the rows of an array."""


class RequestColumns(Protocol):
    """What estimators read: one column for each request, or one for each slot of a request.

    A slot that a request does not have has the reward 0, and 0 in ``is_shown``.
    """

    @property
    def reward(self) -> SlotColumns:
        """c_k of each slot, times the worth of the slot."""
        ...

    @property
    def is_shown(self) -> SlotColumns:
        """1 if the request has the slot, else 0."""
        ...

    @property
    def slate_weight(self) -> Column:
        """W = pi(s) / mu(s)."""
        ...

    @property
    def step_weight(self) -> SlotColumns:
        """omega_k, the running product of step_pi / step_mu."""
        ...

    @property
    def weight_above(self) -> SlotColumns:
        """omega_k-1: 1 for the first slot."""
        ...

    @property
    def marginal_weight(self) -> SlotColumns:
        """w_k = pi_k(s_k) / mu_k(s_k)."""
        ...

    @property
    def examination(self) -> SlotColumns:
        """th_k, a number for each slot."""
        ...

    @property
    def exposure_weight(self) -> SlotColumns:
        """e(s_k): expected examination of the item under pi over that under mu."""
        ...

    @property
    def additive_weight(self) -> Column:
        """q' G+ 1_s of the pseudo-inverse estimator."""
        ...

    @property
    def prediction(self) -> SlotColumns:
        """q_k: the regression at the shown item."""
        ...

    @property
    def policy_mean(self) -> SlotColumns:
        """v_k: the mean of the regression under the target policy."""
        ...


def pivot(shown: Impressions, column: Vector, fill: float) -> Matrix:
    """Slots x requests: the value at each slot, ``fill`` where the request has no such slot."""
    rows = np.ascontiguousarray(shown.slots.T)
    return np.where(rows >= 0, column[rows], fill)


def divide(target: Matrix, logged: Matrix) -> Matrix:
    """pi / mu; infinite if mu is too small for double precision."""
    with np.errstate(over="ignore", divide="ignore"):
        return target / logged


def transform_ratios(weight: Matrix, transform: WeightTransform | None) -> Matrix:
    """Weights pi / mu after a transform; 0 stays 0."""
    if not np.isfinite(weight).all():
        raise BadPropensityError(
            f"{int((~np.isfinite(weight)).sum())} weights are infinite: logged probabilities are "
            "too small for double precision.",
            parameter="probability",
            remedy="Check how they were logged, or drop those requests.",
        )
    if transform is None:
        return weight
    if isinstance(transform, Dynamic):
        raise UsageError(
            f"{transform!r} is a function of a propensity, but weights of policies are ratios of "
            "two probabilities.",
            parameter="transform",
            value=transform,
            remedy="Use Clip, Switch, Shrink or SubGaussian.",
        )
    changed = np.zeros_like(weight)
    is_positive = weight > 0
    try:
        result = float_array(transform(weight[is_positive]), "transformed weights")
    except Exception as error:
        raise UsageError(
            f"`transform` failed ({type(error).__name__}: {error}).",
            parameter="transform",
            value=transform,
            remedy="Pass a function of an array of weights, such as unskew.estimators.Clip(20).",
        ) from error
    if result.shape != (int(is_positive.sum()),):
        raise UsageError(
            f"the transform {transform!r} must return one weight for each weight; got shape "
            f"{result.shape}.",
            parameter="transform",
            value=transform,
        )
    changed[is_positive] = result
    if not (np.isfinite(changed).all() and (changed >= 0).all()):
        raise UsageError(
            f"the transform {transform!r} must return finite weights of at least 0.",
            parameter="transform",
            value=transform,
        )
    return changed


@dataclass(frozen=True, eq=False)
class ArrayColumns:
    """The columns of all requests of a log as arrays: slots x requests, or requests."""

    shown: Impressions
    logging: BoundPolicy
    target: BoundPolicy
    worth: Vector
    curve: Vector | None = None
    """The examination of each slot, for ``pbm``."""
    regression: tuple[Vector, Vector] | None = None
    """q and v for each row of the log."""
    transform: WeightTransform | None = None

    @cached_property
    def reward(self) -> Matrix:
        return pivot(self.shown, self.shown.reward, 0.0) * self.worth[:, None]

    @cached_property
    def _mask(self) -> BoolVector:
        return np.ascontiguousarray(self.shown.slots.T) >= 0

    @cached_property
    def is_shown(self) -> Matrix:
        return self._mask.astype(np.float64)

    @cached_property
    def slate_weight(self) -> Vector:
        if all("step" in policy.provided for policy in (self.target, self.logging)):
            return transform_ratios(self._running[-1], self.transform)
        return transform_ratios(divide(self.target.slate(), self.logging.slate()), self.transform)

    @cached_property
    def _running(self) -> Matrix:
        ratio = divide(self.target.step(), self.logging.step())
        with np.errstate(over="ignore"):
            return np.cumprod(ratio, axis=0).astype(np.float64, copy=False)

    @cached_property
    def step_weight(self) -> Matrix:
        return transform_ratios(self._running, self.transform)

    @property
    def weight_above(self) -> Matrix:
        return np.vstack([np.ones((1, self.shown.n_requests)), self.step_weight[:-1]])

    @cached_property
    def marginal_weight(self) -> Matrix:
        return transform_ratios(
            divide(self.target.marginal(), self.logging.marginal()), self.transform
        )

    @property
    def examination(self) -> Vector:
        if self.curve is None:
            raise UsageError(
                "'pbm' needs the examination of each position.",
                parameter="examination",
                remedy="Pass `examination=...`: a list with a number for each position, or a "
                "fitted PositionBias.",
            )
        return self.curve

    @cached_property
    def exposure_weight(self) -> Matrix:
        curve = self.examination
        logged = np.where(self._mask, self.logging.exposure(curve), 1.0)
        weight = divide(self.target.exposure(curve), logged)
        return transform_ratios(weight, self.transform)

    @cached_property
    def additive_weight(self) -> Vector:
        """In closed form: for independent slots, and for uniform draws without repeats."""
        sizes = self.shown.slate_size.astype(np.float64)
        if isinstance(self.logging, UniformProbabilities):
            return _find_uniform_weight(self.target, sizes, self.logging.n_candidates, self._mask)
        if not self.logging.is_product:
            raise UsageError(
                "'pi' has a closed form only for logging policies that fill slots independently, "
                "or that draw uniformly without repeats.",
                parameter="logging",
                remedy="Say so with `probability_is='product'` or `logging=UniformSlate()`, or use "
                "another estimator.",
            )
        ratio = divide(self.target.marginal(), self.logging.marginal())
        weight: Vector = 1.0 - sizes + (ratio * self.is_shown).sum(axis=0)
        return weight

    @cached_property
    def prediction(self) -> Matrix:
        return pivot(self.shown, self._regression[0], 0.0) * self.worth[:, None]

    @cached_property
    def policy_mean(self) -> Matrix:
        return pivot(self.shown, self._regression[1], 0.0) * self.worth[:, None]

    @property
    def _regression(self) -> tuple[Vector, Vector]:
        if self.regression is None:
            raise UsageError(
                "doubly robust estimators and 'dm' need a regression: the predicted reward q of "
                "each shown item, and its mean v under the target policy.",
                parameter="regression",
                remedy="Pass `regression=('q', 'v')`, the names of two columns of the log.",
            )
        return self.regression


def _find_uniform_weight(
    target: BoundPolicy, size: Vector, n_candidates: Vector, mask: BoolVector
) -> Vector:
    """1 + (I-1)(A - K/I) + (I-1)/(I-K) (B - K^2/I) with A = sum_k q(k, s_k), B = sum of q over s.

    q(k, a) are the target's marginal probabilities; the last term is 0 if K = I.
    """
    at_slot = np.where(mask, target.marginal(), 0.0).sum(axis=0)
    anywhere = np.where(mask, target.exposure(np.ones(len(mask))), 0.0).sum(axis=0)
    others = n_candidates - 1.0
    n_not_shown = n_candidates - size
    excess = anywhere - size**2 / n_candidates
    spread = np.divide(
        others * excess, n_not_shown, out=np.zeros_like(n_not_shown), where=n_not_shown > 0
    )
    weight: Vector = 1.0 + others * (at_slot - size / n_candidates) + spread
    return weight
