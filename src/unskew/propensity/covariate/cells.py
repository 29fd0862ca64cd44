"""All cells, without listing them: a sample of the unobserved ones, or counts of those with the same covariates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.data.cells import Cells, are_among, observed_cells
from unskew.data.ratings import Ratings
from unskew.errors import UniverseError
from unskew.propensity.covariate.covariates import Covariates
from unskew.types import BoolVector, IntVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Unobserved:
    """Unobserved cells, drawn uniformly and each at most once."""

    user: IntVector
    item: IntVector
    share: float
    """The drawn part of all unobserved cells: the s of ``logit P_sample = logit P - log s``."""


@dataclass(frozen=True, slots=True, eq=False)
class ProfileCells:
    """Cells counted by the profiles of their user and item: rows of a weighted binomial."""

    user: IntVector
    """The user profile of every row."""
    item: IntVector
    observed: Vector
    """Observed cells of the row."""
    unobserved: Vector
    """Its unobserved cells, or those of the sample."""
    share: float
    """The part of all unobserved cells that is counted."""


def draw_unobserved(log: Ratings, n_wanted: float, rng: np.random.Generator) -> Unobserved:
    """About ``n_wanted`` unobserved cells.

    Cells are drawn with replacement, and repeats and observed ones dropped. What is left is uniform given its number, which is
    therefore taken as it comes.
    """
    require_unobserved(log)
    n_cells, n_unobserved = log.n_cells, log.n_cells - len(log)
    wanted = min(n_wanted / n_unobserved, 1 - 1e-9)
    n_draws = max(1, round(float(np.log1p(-wanted) / np.log1p(-1 / n_cells))))
    codes = rng.integers(n_cells, size=n_draws) if wanted < 0.9 else np.arange(n_cells)
    cells = _without(codes, observed_cells(log))
    user, item = np.divmod(cells, log.n_items)
    return Unobserved(user.astype(np.int32), item.astype(np.int32), cells.size / n_unobserved)


def draw_cells(log: Ratings, n: int, rng: np.random.Generator) -> tuple[IntVector, IntVector]:
    """``n`` cells of all, observed or not, uniformly and with replacement."""
    user, item = np.divmod(rng.integers(log.n_cells, size=n), log.n_items)
    return user.astype(np.int32), item.astype(np.int32)


def count_cells(
    log: Ratings, user: Covariates, item: Covariates, *, among: BoolVector | None = None
) -> ProfileCells:
    """N_ab and n_ab: how many cells of each pair of profiles were observed and how many not; of all users, or ``among`` some."""
    require_unobserved(log)
    chosen = np.ones(log.n_users, dtype=bool) if among is None else among
    rows = chosen[log.user]
    shape = (user.n_profiles, item.n_profiles)
    pair = (
        user.profile[log.user[rows]].astype(np.int64) * item.n_profiles
        + item.profile[log.item[rows]]
    )
    observed = np.bincount(pair, minlength=shape[0] * shape[1]).astype(np.float64)
    n_users = np.bincount(user.profile[chosen], minlength=shape[0]).astype(np.float64)
    n_items = np.bincount(item.profile, minlength=shape[1]).astype(np.float64)
    of_user, of_item = (each.ravel().astype(np.int32) for each in np.indices(shape))
    return ProfileCells(
        of_user, of_item, observed, np.outer(n_users, n_items).ravel() - observed, 1.0
    )


def count_sample(
    log: Ratings, user: Covariates, item: Covariates, sample: Unobserved
) -> ProfileCells:
    """The same of the observed cells and a sample of the others; profiles that neither has are left out."""
    rows = [
        user.profile[users].astype(np.int64) * item.n_profiles + item.profile[items]
        for users, items in ((log.user, log.item), (sample.user, sample.item))
    ]
    pairs, place = np.unique(np.concatenate(rows), return_inverse=True)
    was_observed = np.arange(place.size) < len(log)
    observed = np.bincount(place[was_observed], minlength=pairs.size).astype(np.float64)
    unobserved = np.bincount(place[~was_observed], minlength=pairs.size).astype(np.float64)
    of_user, of_item = np.divmod(pairs, item.n_profiles)
    return ProfileCells(
        of_user.astype(np.int32), of_item.astype(np.int32), observed, unobserved, sample.share
    )


def labelled_rows(
    cells: ProfileCells, user: Covariates, item: Covariates
) -> tuple[Matrix, Vector, Vector]:
    """Covariates of user and item side by side, 1 for observed and 0 for not, and how many cells each row stands for."""
    places = [np.flatnonzero(count) for count in (cells.observed, cells.unobserved)]
    rows = np.concatenate(places)
    weight = np.concatenate([cells.observed[places[0]], cells.unobserved[places[1]]])
    label = np.repeat([1.0, 0.0], [places[0].size, places[1].size])
    return side_by_side(user, item, cells.user[rows], cells.item[rows]), label, weight


def side_by_side(
    user: Covariates, item: Covariates, user_profile: IntVector, item_profile: IntVector
) -> Matrix:
    """The covariates of pairs of profiles, a row each."""
    return np.concatenate([user.values[user_profile], item.values[item_profile]], axis=1)


def require_unobserved(log: Ratings) -> None:
    """Refuse a log that holds every cell."""
    if len(log) >= log.n_cells:
        raise UniverseError(
            f"every one of the {log.n_cells:,} cells ({log.n_users:,} users x {log.n_items:,} items) was observed, so that P = 1 "
            "and there is nothing to estimate. If more users or items could have been logged, list them with "
            "Ratings.from_frame(..., users=..., items=...)."
        )


def _without(drawn: Cells, observed: Cells) -> Cells:
    """The distinct codes that were not observed, in order; ``observed`` is sorted."""
    drawn.sort()
    is_new = np.empty(drawn.size, dtype=bool)
    is_new[0] = True
    np.not_equal(drawn[1:], drawn[:-1], out=is_new[1:])
    drawn = drawn[is_new]
    return np.compress(~are_among(drawn, observed), drawn)
