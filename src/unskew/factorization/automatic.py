"""Penalties chosen from the log: what ``l2="auto"`` stands for (docs/decisions/023-defaults.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from unskew.data.factors import Factors
from unskew.data.ratings import Ratings
from unskew.data.weights import weighted_mean
from unskew.factorization.als import AlternatingLeastSquares
from unskew.factorization.engine import FitRequest
from unskew.factorization.initialization import small_random
from unskew.factorization.noise import find_noise_edge, find_offset_ridges, fit_offsets
from unskew.factorization.objective import Objective, sort_both_ways
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.solution import minimize
from unskew.threads import Workers
from unskew.types import RandomState, Vector

N_PARTS = 4
"""Parts of the log; each is held out in turn, or only one of them if the log is long."""
LONG_LOG = 30_000
"""Ratings from which on a single part is held out."""
MANY_RATINGS = 200_000
"""Ratings from which on offsets keep the ridges of the moments."""
MIN_RATINGS = 50
"""A shorter log is not split: it keeps the ridges of the moments."""
OFFSET_SCALES = tuple(2.0**power for power in range(-2, 6))
MIN_RIDGE = 1e-3
"""The smallest noise edge as a share of the weight of a row: constant ratings have no noise."""
MAX_STEPS = 10
MIN_GAIN = 1e-4
"""The share of the error that a step of the search must gain."""

FitFactors: TypeAlias = Callable[[Ratings, Vector, Penalty, Factors | None], Factors]
"""Fits squared loss with weights and a penalty; without a start, from small random factors."""


@dataclass(frozen=True, slots=True)
class LossShape:
    """Derivatives of a loss of rating and prediction, at predictions on the scale of ratings."""

    half_gradient: Callable[[Vector, Vector], Vector]
    """Half of the first derivative; for squares the error."""
    half_curvature: Callable[[Vector, Vector], float]
    """Half of the mean second derivative; 1 for squares."""


def _click_curvature(_: Vector, prediction: Vector) -> float:
    probability = np.clip(prediction, 0.01, 0.99)
    return float((probability * (1 - probability)).mean()) / 2


LOSS_SHAPES: Mapping[str, LossShape] = {
    "squared": LossShape(
        lambda rating, prediction: rating - prediction,
        lambda *_: 1.0,
    ),
    "absolute": LossShape(
        lambda rating, prediction: np.sign(rating - prediction) / 2,
        lambda rating, prediction: 1 / max(2 * float(np.abs(rating - prediction).mean()), 1e-12),
    ),
    "log": LossShape(
        lambda click, probability: (click - np.clip(probability, 0.01, 0.99)) / 2,
        _click_curvature,
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A part of the log that is held out, and the rest of it with its own penalty."""

    training: Ratings
    weight: Vector
    edge: Penalty
    held_out: Ratings
    held_out_weight: Vector


def choose_penalty(
    log: Ratings,
    weight: Vector,
    fit: FitFactors,
    *,
    n_factors: int,
    offsets: Offsets,
    loss: str = "squared",
    random_state: RandomState,
) -> Penalty:
    """The ridges of offsets and factors, from moments of the log and a short validation.

    The search for the ridge of the factors starts at the noise edge, where factors are zero unless
    the log has more structure than noise. It is halved as long as the weighted squared error of
    held-out ratings falls. The ridges of the offsets are those of the moments times the factor that
    held-out ratings prefer, if they do so by more than a standard error. Both factors are found
    with squared loss, and are then applied to the moments of ``loss``.
    """
    edge = find_edge_penalty(log, weight, n_factors=n_factors, loss=loss, random_state=random_state)
    if len(log) >= MIN_RATINGS:
        parts = list(_split(log, weight, n_factors, random_state))
        scale = 1.0 if len(log) >= MANY_RATINGS else _choose_offset_scale(parts)
        share = 1.0
        if n_factors:
            scaled = [replace(part, edge=_scale_offsets(part.edge, scale)) for part in parts]
            share = _search_share(scaled, fit, random_state)
        edge = replace(_scale_offsets(edge, scale), factors=share * edge.factors)
    return edge if offsets == "regularized" else Penalty(edge.factors)


def find_edge_penalty(
    log: Ratings,
    weight: Vector,
    *,
    n_factors: int,
    loss: str = "squared",
    random_state: RandomState,
) -> Penalty:
    """The ridges of the offsets by moments, and the noise edge as the ridge of the factors.

    Without factors, their ridge is the mean of those of the offsets.
    """
    shape, (by_user, by_item) = LOSS_SHAPES[loss], find_offset_ridges(log, weight)
    expected = fit_offsets(log, weight, by_user, by_item)
    curvature = shape.half_curvature(log.rating, expected)
    by_user, by_item = curvature * by_user, curvature * by_item
    if not n_factors:
        return Penalty((by_user + by_item) / 2, by_user, by_item)
    gradient = weight * shape.half_gradient(log.rating, expected)
    smallest = MIN_RIDGE * float(weight.sum()) / (log.n_users + log.n_items)
    edge = max(find_noise_edge(log, gradient, random_state=random_state), smallest)
    return Penalty(edge, by_user, by_item)


def _scale_offsets(penalty: Penalty, scale: float) -> Penalty:
    by_user, by_item = scale * penalty.user_offset, scale * penalty.item_offset
    return replace(penalty, user_offset=by_user, item_offset=by_item)


def _split(
    log: Ratings, weight: Vector, n_factors: int, random_state: RandomState
) -> Iterator[_Part]:
    """Training weights are divided by the share of the log that is left, as propensities are."""
    number = np.random.default_rng(random_state).permutation(len(log)) % N_PARTS
    for held_out in range(N_PARTS if len(log) < LONG_LOG else 1):
        is_left = number != held_out
        training, train_weight = log.take(is_left), weight[is_left] / is_left.mean()
        edge = find_edge_penalty(
            training, train_weight, n_factors=n_factors, random_state=random_state
        )
        yield _Part(training, train_weight, edge, log.take(~is_left), weight[~is_left])


def _choose_offset_scale(parts: Sequence[_Part]) -> float:
    """The factor of the offset ridges with the least squared error of offsets alone.

    It is 1 unless another one is better by more than a standard error of the paired difference.
    """
    losses = np.array(
        [np.concatenate([_offset_losses(part, scale) for part in parts]) for scale in OFFSET_SCALES]
    )
    best = int(losses.sum(axis=1).argmin())
    gain = losses[OFFSET_SCALES.index(1.0)] - losses[best]
    is_clear = gain.sum() > gain.std() * np.sqrt(gain.size)
    return OFFSET_SCALES[best] if is_clear else 1.0


def _offset_losses(part: _Part, scale: float) -> Vector:
    ridges = scale * part.edge.user_offset, scale * part.edge.item_offset
    prediction = fit_offsets(part.training, part.weight, *ridges, predicts=part.held_out)
    return part.held_out_weight * np.square(part.held_out.rating - prediction)


def _search_share(parts: Sequence[_Part], fit: FitFactors, random_state: RandomState) -> float:
    """The multiple of the noise edge, a power of 2, with the least error of held-out ratings.

    The search goes down from 1 as long as the error falls. If it does not fall at all, the search
    goes up, which matters only if the noise is larger than the moments of the log say.
    """

    def descend(
        share: float, error: float, starts: Sequence[Factors | None], factor: float
    ) -> tuple[float, float, Sequence[Factors | None]]:
        for _ in range(MAX_STEPS):
            next_error, fits = _fit_parts(parts, fit, share * factor, starts, random_state)
            if next_error >= (1 - MIN_GAIN) * error:
                break
            share, error, starts = share * factor, next_error, fits
        return share, error, starts

    first_error, fits = _fit_parts(parts, fit, 1.0, [None] * len(parts), random_state)
    share, error, starts = descend(1.0, first_error, fits, 0.5)
    return share if share < 1 else descend(share, error, starts, 2.0)[0]


def _fit_parts(
    parts: Sequence[_Part],
    fit: FitFactors,
    share: float,
    starts: Sequence[Factors | None],
    random_state: RandomState,
) -> tuple[float, list[Factors]]:
    """The squared error of held-out ratings with this multiple of the edge, and all fits.

    Each fit starts at the previous one of its part, plus small random factors, because factors
    that are zero stay zero.
    """
    error, fits = 0.0, []
    for part, start in zip(parts, starts, strict=True):
        penalty = replace(part.edge, factors=share * part.edge.factors)
        start = None if start is None else _perturb(start, random_state)
        factors = fit(part.training, part.weight, penalty, start)
        prediction = factors.predict(part.held_out.user, part.held_out.item)
        error += float(part.held_out_weight @ np.square(part.held_out.rating - prediction))
        fits.append(factors)
    return error, fits


def run_sweeps(request: FitRequest, workers: Workers) -> Factors:
    """Fit squared loss on this machine."""
    log, shape = request.log, (request.log.n_users, request.log.n_items)
    cells = sort_both_ways(
        *(log.user, log.item, log.rating, request.weight),
        shape=shape,
        dtype=request.dtype,
        workers=workers,
    )
    objective = Objective(*cells, request.n_factors, request.offsets, request.penalty, workers)
    start = request.make_start(weighted_mean(log.rating, request.weight))
    solver = AlternatingLeastSquares(objective)
    return minimize(solver, start, max_iter=request.max_iter, tol=request.tol).parameters


def _perturb(factors: Factors, random_state: RandomState) -> Factors:
    noise = small_random(
        (factors.n_users, factors.n_items), n_factors=factors.n_factors, random_state=random_state
    ).astype(factors.dtype)
    return replace(
        factors,
        user_factors=factors.user_factors + noise.user_factors,
        item_factors=factors.item_factors + noise.item_factors,
    )
