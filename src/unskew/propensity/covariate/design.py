"""The terms of a logistic model on one side, users or items: covariates in standard units, pairs among them, offsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, TypeAlias

import numpy as np

from unskew.propensity.covariate.covariates import Covariates, within_pairs
from unskew.propensity.covariate.likelihood import Terms, Units
from unskew.types import IntVector, Matrix, Vector

Interactions: TypeAlias = Literal["all", "user-item", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """What the model has of every user, or of every item."""

    covariates: Covariates
    center: Vector
    scale: Vector
    first: IntVector
    """The first covariate of each pair among them."""
    second: IntVector
    is_crossed: bool
    """Whether the covariates also form pairs with those of the other side."""
    has_offset: bool

    @classmethod
    def of(cls, covariates: Covariates, interactions: Interactions, *, has_offset: bool) -> Side:
        """The terms that ``interactions`` asks for."""
        center, scale = covariates.standard_units()
        none = np.empty(0, dtype=np.int32)
        side = cls(covariates, center, scale, none, none, interactions != "none", has_offset)
        if interactions != "all":
            return side
        first, second = within_pairs(side.standard)
        return replace(side, first=first, second=second)

    @property
    def standard(self) -> Matrix:
        """Profiles x covariates, in standard units."""
        units: Matrix = (self.covariates.values - self.center) / self.scale
        return units

    @property
    def design(self) -> Matrix:
        """Profiles x columns: covariates, then pairs among them."""
        standard = self.standard
        return np.column_stack([standard, standard[:, self.first] * standard[:, self.second]])

    @property
    def names(self) -> list[str]:
        """What the columns of ``design`` are called."""
        names = self.covariates.names
        return [
            *names,
            *(f"{names[j]} x {names[k]}" for j, k in zip(self.first, self.second, strict=True)),
        ]

    def units(self, observed: IntVector, group: IntVector, *, apart: bool) -> Units:
        """The units of a fit to the cells whose codes on this side are ``observed``; with ``apart``, one for each offset."""
        n = self.covariates.profile.size
        keys = (
            (np.arange(n) if apart else np.bincount(observed, minlength=n),)
            if self.has_offset
            else ()
        )
        return Units.of(
            self.design,
            self.covariates.profile,
            *(key.astype(np.int32) for key in keys),
            n_crossed=len(self.covariates.names) if self.is_crossed else 0,
            has_offset=self.has_offset,
            group=group,
        )


def named_coefficients(user: Side, item: Side, fitted: Terms) -> dict[str, float]:
    """Every coefficient by its name, for the covariates as they were given rather than in standard units."""
    terms = _as_given(user, item, fitted)
    values = np.concatenate(([terms.intercept], terms.user, terms.item, terms.crossed.ravel()))
    return dict(zip(term_names(user, item), values.tolist(), strict=True))


def term_names(user: Side, item: Side) -> list[str]:
    """What the coefficients are called, in the order of their row, the offsets apart."""
    crossed = product(user.covariates.names, item.covariates.names) if user.is_crossed else ()
    return ["intercept", *user.names, *item.names, *(f"{one} x {other}" for one, other in crossed)]


def _as_given(user: Side, item: Side, fitted: Terms) -> Terms:
    """The same eta, with (x - center) / scale multiplied out."""
    crossed = fitted.crossed
    if crossed.size:
        crossed = crossed / np.outer(user.scale, item.scale)
        of_user, of_item = -crossed @ item.center, -user.center @ crossed
        constant = float(user.center @ crossed @ item.center)
    else:
        of_user, of_item, constant = np.zeros(user.scale.size), np.zeros(item.scale.size), 0.0
    user_terms, user_constant = _one_side_as_given(user, fitted.user, of_user)
    item_terms, item_constant = _one_side_as_given(item, fitted.item, of_item)
    return replace(
        fitted,
        intercept=fitted.intercept + constant + user_constant + item_constant,
        user=user_terms,
        item=item_terms,
        crossed=crossed,
    )


def _one_side_as_given(side: Side, fitted: Vector, from_pairs: Vector) -> tuple[Vector, float]:
    """Coefficients of one side's covariates and pairs, and what they add to the intercept.

    b (x_j - m_j)(x_k - m_k) = b x_j x_k - b m_k x_j - b m_j x_k + b m_j m_k.
    """
    n, first, second, center = side.scale.size, side.first, side.second, side.center
    single, pair = fitted[:n] / side.scale, fitted[n:] / (side.scale[first] * side.scale[second])
    constant = float(pair @ (center[first] * center[second]) - single @ center)
    given = single + from_pairs
    np.subtract.at(given, first, pair * center[second])
    np.subtract.at(given, second, pair * center[first])
    return np.concatenate([given, pair]), constant
