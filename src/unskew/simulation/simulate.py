"""A world whose truth is known: a low-rank rating matrix with given marginals, and a biased log of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array, is_finite_number, whole_number
from unskew.data.ids import Ids, as_ids
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.simulation.observation import ByRating, Observation, ObservationModel
from unskew.tables import count_noun

MARLIN_ZEMEL = (0.5263, 0.2419, 0.1440, 0.06229, 0.02551)
"""Shares of ratings 1 to 5 when users rate items picked at random (Marlin & Zemel 2009), as Table 1 of the paper implies them."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Simulation:
    """A truth, one log of it, and the probabilities with which the log's cells were seen."""

    truth: npt.NDArray[np.float32]
    """Every rating, users x items."""
    log: Ratings
    propensities: Propensities
    """True propensities of the log's cells, in its order."""
    observation: Observation
    """Draws further logs of the same truth, and tells the propensity of any cell."""

    def __repr__(self) -> str:
        return f"Simulation({count_noun(len(self.log), 'rating')} of {Universe(*self.truth.shape)}; {self.observation.model!r})"


def simulate(
    n_users: int = 943,
    n_items: int = 1682,
    *,
    density: float = 0.05,
    alpha: float = 0.25,
    observation: ObservationModel | None = None,
    marginals: tuple[float, ...] = MARLIN_ZEMEL,
    n_factors: int = 5,
    noise: float = 0.5,
    users: npt.ArrayLike | None = None,
    items: npt.ArrayLike | None = None,
    random_state: int = 0,
) -> Simulation:
    """Make a truth and draw a log of it.

    Parameters
    ----------
    n_users, n_items
        Size of the world.
    density
        Expected share of cells in the log.
    alpha
        How much less likely each star below 4 makes a rating to be logged: 1 not at all, 0.25 as in MovieLens.
    observation
        Another observation model in place of ``ByRating(alpha)``.
    marginals
        Shares of ratings 1, 2, ... in the truth, met exactly up to rounding.
    n_factors, noise
        Rank of the taste that makes the truth, and the part of it that is noise.
    users, items
        Ids; numbers from 0 by default.
    random_state
        Seed. The truth depends on it and on the sizes, not on the density or on how it is observed.

    Examples
    --------
    >>> world = simulate(n_users=100, n_items=200, random_state=7)
    >>> round(float(world.truth.mean()), 2), world.log.rating.mean() > 3
    (1.82, np.True_)
    """
    if observation is not None and alpha != ByRating().alpha:
        raise UsageError(
            "alpha belongs to the default observation model; give it to observation=ByRating(alpha) instead."
        )
    size = Universe(n_users, n_items)
    if not (is_finite_number(noise) and noise >= 0):
        raise UsageError(f"noise must be a finite number, at least 0; got {noise!r}.")
    n_factors = whole_number("n_factors", n_factors, least=0)
    truth_rng, log_rng = np.random.default_rng(
        whole_number("random_state", random_state, least=0)
    ).spawn(2)
    truth = quantize(_tastes(size.n_users, size.n_items, n_factors, noise, truth_rng), marginals)
    seen = Observation.of(
        truth,
        ByRating(alpha) if observation is None else observation,
        density=density,
        users=_listed("users", users, size.n_users),
        items=_listed("items", items, size.n_items),
    )
    log, propensities = seen.draw(log_rng)
    return Simulation(truth, log, propensities, seen)


def _listed(name: str, given: npt.ArrayLike | None, size: int) -> Ids | None:
    if given is None:
        return None
    ids = as_ids(given)
    if len(ids) != size:
        raise UsageError(
            f"{name}=... lists {len(ids)} ids, but n_{name} is {size}. Make them agree."
        )
    return ids


def quantize(
    values: npt.NDArray[np.float32], marginals: tuple[float, ...]
) -> npt.NDArray[np.float32]:
    """The lowest share of ``values`` becomes 1, the next 2, and so on; counts come from rounded cumulative shares."""
    shares = float_array(marginals, "marginals")
    if shares.ndim != 1:
        raise UsageError(
            f"marginals must be a list with the share of each rating; got shape {shares.shape}."
        )
    if not ((shares >= 0).all() and abs(shares.sum() - 1) <= 1e-6):
        raise UsageError(
            f"marginals must be shares that add up to 1; these add up to {shares.sum():g}."
        )
    ends = np.round(np.cumsum(shares)[:-1] * values.size).astype(np.int64)
    in_order = np.partition(values, np.minimum(ends, values.size - 1), axis=None)
    levels = np.ones(values.shape, dtype=np.float32)
    for end in ends[ends < values.size]:
        levels += values >= in_order[end]
    return levels


def _tastes(
    n_users: int, n_items: int, n_factors: int, noise: float, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Offsets of users and items, a low-rank interaction of unit variance, and noise."""
    user, item = (
        rng.standard_normal((size, n_factors), dtype=np.float32) for size in (n_users, n_items)
    )
    tastes: npt.NDArray[np.float32] = user @ (item / np.sqrt(max(n_factors, 1), dtype=np.float32)).T
    tastes += np.float32(0.5) * rng.standard_normal((n_users, 1), dtype=np.float32)
    tastes += rng.standard_normal(n_items, dtype=np.float32)
    for row in tastes:
        row += np.float32(noise) * rng.standard_normal(n_items, dtype=np.float32)
    return tastes
