"""What an ordinal factorisation consists of, and the lines of users and items that its cells see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.factorization.parameters import rows_or_zero
from unskew.kernels.ordinal_lines import Items, Users
from unskew.models.recommender import Shapes
from unskew.types import IntVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class OrdinalParameters:
    """Ratings: s = v_u . w_i + a_u + b_i among cut points, blurred by noise. Selection: the log odds of being logged."""

    user_factors: Matrix
    item_factors: Matrix
    user_offset: Vector
    item_offset: Vector
    user_noise: Vector
    """Logarithm of the scale, as the items'; the scale of a cell is the product of the two."""
    item_noise: Vector
    cuts: Vector
    """The first cut point that all items share, and the logarithms of the gaps to the next ones."""
    item_gaps: Matrix
    """Items x (levels - 2): what an item adds to the logarithms of the gaps."""
    constant: float
    """Log odds of being logged, to which all below is added."""
    user_activity: Vector
    item_popularity: Vector
    user_exposure: Matrix
    """e of e_u . f_i."""
    item_exposure: Matrix
    value_effect: Vector
    """What each level adds to the log odds, for all users and items alike."""
    user_effect: Matrix
    """Users x levels: what a user adds to that."""
    item_effect: Matrix

    @classmethod
    def zeros(
        cls, n_users: int, n_items: int, n_levels: int, *, n_factors: int, n_exposure_factors: int
    ) -> OrdinalParameters:
        """Nobody differs from anybody."""
        by_user, by_item = np.zeros(n_users), np.zeros(n_items)
        return cls(
            user_factors=np.zeros((n_users, n_factors)),
            item_factors=np.zeros((n_items, n_factors)),
            user_offset=by_user,
            item_offset=by_item,
            user_noise=by_user,
            item_noise=by_item,
            cuts=np.zeros(n_levels - 1),
            item_gaps=np.zeros((n_items, max(0, n_levels - 2))),
            constant=0.0,
            user_activity=by_user,
            item_popularity=by_item,
            user_exposure=np.zeros((n_users, n_exposure_factors)),
            item_exposure=np.zeros((n_items, n_exposure_factors)),
            value_effect=np.zeros(n_levels),
            user_effect=np.zeros((n_users, n_levels)),
            item_effect=np.zeros((n_items, n_levels)),
        )

    def users(self) -> Users:
        """A line for each user, with what all users share."""
        return Users(
            self.user_factors,
            self.user_offset,
            self.user_noise,
            self.constant + self.user_activity,
            self.user_exposure,
            self.value_effect + self.user_effect,
        )

    def items(self) -> Items:
        """A line for each item, with cut points in full."""
        return Items(
            self.item_factors,
            self.item_offset,
            self.item_noise,
            self.item_popularity,
            self.item_exposure,
            self.item_effect,
            item_cuts(self.cuts, self.item_gaps),
        )

    def lines(self, user: IntVector, item: IntVector) -> tuple[Users, Items]:
        """Lines of these codes alone; -1 is somebody of whom nothing is known, and has zeros."""
        rows = {name: rows_or_zero(getattr(self, name), user) for name in USER_PARTS}
        columns = {name: rows_or_zero(getattr(self, name), item) for name in ITEM_PARTS}
        chosen = OrdinalParameters(
            **rows,
            **columns,
            cuts=self.cuts,
            constant=self.constant,
            value_effect=self.value_effect,
        )
        return chosen.users(), chosen.items()

    def slopes(self, by_user: Users, by_item: Items) -> OrdinalParameters:
        """Slopes by lines, passed on to what lines are made of."""
        by_cuts, by_gaps = _cut_slopes(self.cuts, self.item_gaps, by_item.cuts)
        return OrdinalParameters(
            user_factors=by_user.factors,
            item_factors=by_item.factors,
            user_offset=by_user.offset,
            item_offset=by_item.offset,
            user_noise=by_user.noise,
            item_noise=by_item.noise,
            cuts=by_cuts,
            item_gaps=by_gaps,
            constant=float(by_user.activity.sum()),
            user_activity=by_user.activity,
            item_popularity=by_item.popularity,
            user_exposure=by_user.exposure,
            item_exposure=by_item.exposure,
            value_effect=by_user.effect.sum(axis=0),
            user_effect=by_user.effect,
            item_effect=by_item.effect,
        )

    def shapes(self, n_users: int, n_items: int, n_levels: int) -> Shapes:
        """Each array by name, and the shape that ids and levels call for."""
        like = OrdinalParameters.zeros(
            *(n_users, n_items, n_levels),
            n_factors=self.user_factors.shape[-1],
            n_exposure_factors=self.user_exposure.shape[-1],
        )
        names = (*USER_PARTS, *ITEM_PARTS, "cuts", "constant", "value_effect")
        return {name: (getattr(self, name), np.shape(getattr(like, name))) for name in names}


USER_PARTS = (
    "user_factors",
    "user_offset",
    "user_noise",
    "user_activity",
    "user_exposure",
    "user_effect",
)
ITEM_PARTS = (
    *("item_factors", "item_offset", "item_noise", "item_gaps"),
    *("item_popularity", "item_exposure", "item_effect"),
)


def item_cuts(cuts: Vector, item_gaps: Matrix) -> Matrix:
    """k_i1 = the first; k_ij = k_i,j-1 + exp(gap_j + what the item adds)."""
    found = np.empty((len(item_gaps), cuts.size))
    found[:, :1] = cuts[:1]
    found[:, 1:] = np.exp(cuts[1:] + item_gaps)
    return np.cumsum(found, axis=1)


def _cut_slopes(cuts: Vector, item_gaps: Matrix, by_cut: Matrix) -> tuple[Vector, Matrix]:
    """A gap moves every cut point above it."""
    above = np.cumsum(by_cut[:, ::-1], axis=1)[:, ::-1]
    by_gaps = above[:, 1:] * np.exp(cuts[1:] + item_gaps)
    return np.concatenate([above[:, :1].sum(axis=0), by_gaps.sum(axis=0)]), by_gaps
