"""Penalties chosen from the log: what ``l2="auto"`` stands for (docs/decisions/023-defaults.md).

They follow from how much of the log is noise, and from how well held-out ratings are predicted.
"""

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
from unskew.factorization.objective import Objective, sort_both_ways
from unskew.factorization.penalty import Offsets, Penalty
from unskew.factorization.solution import minimize
from unskew.threads import Workers
from unskew.types import IntVector, RandomState, Vector

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
            share = _search_multiple(scaled, fit, random_state)
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
    gradient = weight * shape.half_gradient(log.rating, expected)
    ridges = curvature * by_user, curvature * by_item
    return _with_noise_edge(log, weight, gradient, ridges, n_factors, random_state)


def find_correction_penalty(
    residual: Ratings,
    weight: Vector,
    *,
    n_factors: int,
    loss: str = "squared",
    random_state: RandomState,
) -> Penalty:
    """The penalty of a function of all cells that is fitted to ``weight`` times the residuals.

    Cells outside the log count as much as those of the log, so the offset of a user cannot follow
    a rating with a large weight, as it does in a weighted fit. All of the residual is noise then:
    the ridge of an offset is  sum(w^2 r^2) / (t sum(w)),  where t is the variance of the offsets.
    """
    shape, zero = LOSS_SHAPES[loss], np.zeros(len(residual))
    curvature = shape.half_curvature(residual.rating, zero)
    gradient = weight * shape.half_gradient(residual.rating, zero)
    variances = _find_offset_variances(residual, weight)
    noise = curvature * float(np.square(weight * residual.rating).sum() / weight.sum())
    by_user, by_item = (1.0, 1.0) if variances is None else (noise / v for v in variances[:2])
    ridges = by_user, by_item
    return _with_noise_edge(residual, weight, gradient, ridges, n_factors, random_state)


def _with_noise_edge(
    log: Ratings,
    weight: Vector,
    gradient: Vector,
    ridges: tuple[float, float],
    n_factors: int,
    random_state: RandomState,
) -> Penalty:
    """The ridges of offsets, and the noise edge for the factors; the mean ridge without factors."""
    if not n_factors:
        return Penalty(sum(ridges) / 2, *ridges)
    smallest = MIN_RIDGE * float(weight.sum()) / (log.n_users + log.n_items)
    edge = max(find_noise_edge(log, gradient, random_state=random_state), smallest)
    return Penalty(edge, *ridges)


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


def _search_multiple(parts: Sequence[_Part], fit: FitFactors, random_state: RandomState) -> float:
    """The multiple of the noise edge, a power of 2, with the least error of held-out ratings.

    The search goes down from 1 as long as the error falls. If it does not fall at all, the search
    goes up, which matters only if the noise was estimated too small.
    """

    def follow(
        multiple: float, error: float, starts: Sequence[Factors | None], factor: float
    ) -> tuple[float, float, Sequence[Factors | None]]:
        for _ in range(MAX_STEPS):
            next_error, fits = _measure_error(parts, fit, multiple * factor, starts, random_state)
            if next_error >= (1 - MIN_GAIN) * error:
                break
            multiple, error, starts = multiple * factor, next_error, fits
        return multiple, error, starts

    first_error, fits = _measure_error(parts, fit, 1.0, [None] * len(parts), random_state)
    multiple, error, starts = follow(1.0, first_error, fits, 0.5)
    return multiple if multiple < 1 else follow(multiple, error, starts, 2.0)[0]


def _measure_error(
    parts: Sequence[_Part],
    fit: FitFactors,
    multiple: float,
    starts: Sequence[Factors | None],
    random_state: RandomState,
) -> tuple[float, list[Factors]]:
    """The squared error of held-out ratings with this multiple of the edge, and all fits.

    Each fit starts at the previous one of its part, plus small random factors, because factors
    that are zero stay zero.
    """
    error, fits = 0.0, []
    for part, start in zip(parts, starts, strict=True):
        penalty = replace(part.edge, factors=multiple * part.edge.factors)
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
        log.user,
        log.item,
        log.rating,
        request.weight,
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


MIN_SHARE = 1e-4
"""The smallest variance of offsets, as a share of that of the noise. It leaves no offsets."""
MIN_NOISE = 0.05
"""The smallest variance of the noise, as a share of the variance of the ratings."""
OFFSET_SWEEPS = 10


def find_offset_ridges(log: Ratings, weight: Vector) -> tuple[float, float]:
    """The ridges p_a and p_b with the least expected error of user and item offsets.

        p_a = (1 / t) sum(w^2 r^2) / sum(w)

    t is the variance of the user offsets, and r the residuals that offsets leave: those of a first
    fit, for which r^2 is its mean. With equal weights an offset from k ratings is multiplied by
    k / (k + var(r) / t). Weights stay with their residuals: 1 / P often depends on the rating.
    """
    variances = _find_offset_variances(log, weight)
    if variances is None:
        return 1.0, 1.0
    by_user, by_item, rest = variances
    first = rest * float(weight @ weight / weight.sum())
    left = log.rating - fit_offsets(log, weight, first / by_user, first / by_item)
    noise = float(np.square(weight * left).sum() / weight.sum())
    noise = max(noise, MIN_SHARE * rest)
    return noise / by_user, noise / by_item


def _find_offset_variances(log: Ratings, weight: Vector) -> tuple[float, float, float] | None:
    """The variances of user offsets, item offsets and noise; None if all ratings are equal."""
    residual = log.rating - weighted_mean(log.rating, weight)
    total = weighted_mean(np.square(residual), weight)
    if not total > 0:
        return None
    of_user, of_item = (
        min(max(shared_variance(code, size, residual, weight), 0.0), total)
        for code, size in ((log.user, log.n_users), (log.item, log.n_items))
    )
    rest = max(total - of_user - of_item, MIN_NOISE * total)
    return max(of_user, MIN_SHARE * rest), max(of_item, MIN_SHARE * rest), rest


def shared_variance(code: IntVector, n_codes: int, residual: Vector, weight: Vector) -> float:
    """The variance of what ratings with the same code share, by products of pairs of them.

        t = sum over codes of k [(sum w r)^2 - sum w^2 r^2]  /  sum of k [(sum w)^2 - sum w^2]

    Two ratings of one user share nothing but the user, so r r' has the mean t for any weights. With
    k = (sum w)^(-1/2), users with many ratings count more, but do not decide alone.
    """
    total = _add_by(code, weight, n_codes)
    products = np.square(_add_by(code, weight * residual, n_codes))
    products -= _add_by(code, np.square(weight * residual), n_codes)
    pairs = np.square(total) - _add_by(code, np.square(weight), n_codes)
    scale = np.sqrt(np.where(total > 0, total, 1.0))
    n_pairs = float((pairs / scale).sum())
    return float((products / scale).sum()) / n_pairs if n_pairs > 0 else 0.0


def fit_offsets(
    log: Ratings,
    weight: Vector,
    user_ridge: float,
    item_ridge: float,
    *,
    predicts: Ratings | None = None,
) -> Vector:
    """a_u + b_i + c for each rating of ``predicts``, or of the log, after a few exact sweeps."""
    user_total = _add_by(log.user, weight, log.n_users) + user_ridge
    item_total = _add_by(log.item, weight, log.n_items) + item_ridge
    mean, by_user = weighted_mean(log.rating, weight), np.zeros(log.n_users)
    by_item = np.zeros(log.n_items)
    for _ in range(OFFSET_SWEEPS):
        rest = weight * (log.rating - mean - by_user[log.user])
        by_item = _add_by(log.item, rest, log.n_items) / item_total
        rest = weight * (log.rating - mean - by_item[log.item])
        by_user = _add_by(log.user, rest, log.n_users) / user_total
        mean = weighted_mean(log.rating - by_user[log.user] - by_item[log.item], weight)
    cells = predicts or log
    return mean + by_user[cells.user] + by_item[cells.item]


def find_noise_edge(log: Ratings, weighted_gradient: Vector, *, random_state: RandomState) -> float:
    """The largest singular value of the users x items matrix of w (Y - F), with random signs.

    With this ridge the factors of such noise are zero: V = W = 0 is the minimum exactly if the
    ridge is at least the largest singular value.
    """
    from scipy import sparse
    from scipy.sparse.linalg import svds

    rng = np.random.default_rng(random_state)
    with_signs = weighted_gradient * rng.choice([-1.0, 1.0], weighted_gradient.size)
    shape = log.n_users, log.n_items
    matrix = sparse.csr_array((with_signs, (log.user, log.item)), shape=shape)
    if min(shape) < 3 or not with_signs.any():
        return float(np.linalg.norm(matrix.toarray(), 2)) if min(shape) < 3 else 0.0
    start = rng.standard_normal(min(shape))
    values = svds(matrix, k=1, tol=1e-2, v0=start, return_singular_vectors=False)
    return float(values[0])


def _add_by(code: IntVector, values: Vector, n_codes: int) -> Vector:
    return np.bincount(code, weights=values, minlength=n_codes).astype(np.float64)
