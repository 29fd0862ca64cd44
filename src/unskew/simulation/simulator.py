"""Simulated ratings: a low-rank rating matrix with chosen marginals, and a biased log of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.ids import Ids, as_ids
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.errors import UsageError
from unskew.memory import require_memory
from unskew.settings import Number, WholeNumber, check_random_state
from unskew.simulation.observation import ByRating, Observation, ObservationModel
from unskew.tables import count_noun
from unskew.types import RandomState

MARLIN_ZEMEL = (0.5263, 0.2419, 0.1440, 0.06229, 0.02551)
"""Shares of ratings 1 to 5 when users rate items picked at random (Marlin & Zemel 2009).

Table 1 of the paper implies these numbers; see docs/decisions/007.
"""

BYTES_PER_CELL = 24.0
"""Tastes, their order and the ratings are held at once."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Simulation:
    """A complete rating matrix, one log of it, and the propensities of the log's cells."""

    truth: npt.NDArray[np.float32]
    """The rating of every cell, users x items."""
    log: Ratings
    propensities: Propensities
    """True propensities of the log's cells, in its order."""
    observation: Observation
    """Draws further logs of the same ratings, and has the propensities of all cells."""

    def __repr__(self) -> str:
        n_ratings = count_noun(len(self.log), "rating")
        size = Universe(*self.truth.shape)
        return f"Simulation({n_ratings} of {size}; {self.observation.model!r})"


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
    random_state: RandomState = 0,
) -> Simulation:
    """Simulate a complete rating matrix and draw a log of it.

    Parameters
    ----------
    n_users, n_items
        Size of the rating matrix.
    density
        Expected share of cells in the log.
    alpha
        Factor on the propensity for each star below 4: 1 means no selection, 0.25 resembles
        MovieLens.
    observation
        An observation model to use instead of ``ByRating(alpha)``.
    marginals
        Shares of ratings 1, 2, ... in the matrix, met exactly up to rounding.
    n_factors, noise
        Number of factors behind the ratings, and standard deviation of the noise added to them.
    users, items
        Ids; numbers from 0 by default.
    random_state
        Seed or generator. The rating matrix depends on it and on the sizes, but not on the
        density or the observation model.

    Examples
    --------
    >>> world = simulate(n_users=100, n_items=200, random_state=7)
    >>> round(float(world.truth.mean()), 2), world.log.rating.mean() > 3
    (1.82, np.True_)
    """
    Number()("alpha", alpha)
    if observation is not None and alpha != ByRating().alpha:
        raise UsageError(
            "`alpha` is a setting of the default observation model, but `observation` is given.",
            parameter="alpha",
            value=alpha,
            remedy="Pass `observation=ByRating(alpha)`, or leave one of the two out.",
        )
    size = Universe(n_users, n_items)
    for name, number in (("n_users", n_users), ("n_items", n_items)):
        WholeNumber(least=1)(name, number)
    Number(least=0)("noise", noise)
    WholeNumber(least=0)("n_factors", n_factors)
    check_random_state("random_state", random_state)
    require_memory(
        BYTES_PER_CELL * size.n_cells + 8.0 * n_factors * (size.n_users + size.n_items),
        f"all ratings of {size}",
        parameter="n_users",
        remedy="Simulate fewer users or items.",
    )
    truth_rng, log_rng = np.random.default_rng(random_state).spawn(2)
    tastes = _draw_tastes(size.n_users, size.n_items, n_factors, noise, truth_rng)
    truth = quantize(tastes, marginals)
    observed = Observation.of(
        truth,
        ByRating(alpha) if observation is None else observation,
        density=density,
        users=_require_ids("users", users, size.n_users),
        items=_require_ids("items", items, size.n_items),
    )
    log, propensities = observed.draw(log_rng)
    return Simulation(truth, log, propensities, observed)


def _require_ids(name: str, values: npt.ArrayLike | None, size: int) -> Ids | None:
    """The ids as an array; an error if there are not ``size`` of them."""
    if values is None:
        return None
    ids = as_ids(values)
    if len(ids) != size:
        raise UsageError(
            f"`{name}` lists {len(ids)} ids, but `n_{name}` is {size}.",
            parameter=name,
            value=len(ids),
            remedy="Make the two numbers equal.",
        )
    return ids


def quantize(
    values: npt.NDArray[np.float32], marginals: tuple[float, ...]
) -> npt.NDArray[np.float32]:
    """Turn numbers into ratings 1, 2, ... with the shares ``marginals``, keeping their order.

    The lowest values become 1, the next 2, and so on. Counts are rounded cumulative shares.
    """
    shares = float_array(marginals, "marginals")
    if shares.ndim != 1:
        raise UsageError(
            f"`marginals` must be a list with the share of each rating; got shape {shares.shape}.",
            parameter="marginals",
            value=marginals,
        )
    if not ((shares >= 0).all() and abs(shares.sum() - 1) <= 1e-6):
        raise UsageError(
            f"`marginals` must be shares that add up to 1; these add up to {shares.sum():g}.",
            parameter="marginals",
            value=marginals,
        )
    ends = np.round(np.cumsum(shares)[:-1] * values.size).astype(np.int64)
    in_order = np.partition(values, np.minimum(ends, values.size - 1), axis=None)
    levels = np.ones(values.shape, dtype=np.float32)
    for end in ends[ends < values.size]:
        levels += values >= in_order[end]
    return levels


def _draw_tastes(
    n_users: int, n_items: int, n_factors: int, noise: float, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """User offsets, item offsets, a low-rank interaction of unit variance, and noise."""
    user, item = (
        rng.standard_normal((size, n_factors), dtype=np.float32) for size in (n_users, n_items)
    )
    tastes: npt.NDArray[np.float32] = user @ (item / np.sqrt(max(n_factors, 1), dtype=np.float32)).T
    tastes += np.float32(0.5) * rng.standard_normal((n_users, 1), dtype=np.float32)
    tastes += rng.standard_normal(n_items, dtype=np.float32)
    for row in tastes:
        row += np.float32(noise) * rng.standard_normal(n_items, dtype=np.float32)
    return tastes
