"""A model of another library that predicts pairs of ids: by factors, by pairs, or by rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_listed_ids, describe_id_types, find_codes, format_id
from unskew.errors import (
    BadPredictionError,
    NotFittedError,
    UnknownIdError,
    UnskewWarning,
    warn_caller,
)
from unskew.tables import count_noun, join_words
from unskew.types import IntVector, Scorer, Scores, Vector

PAIRS_AT_ONCE = 1 << 16
"""Pairs that a model is asked for in one call; each may have many features."""
Kind: TypeAlias = Literal["user", "item"]


@dataclass(frozen=True, slots=True, eq=False)
class Wrapping:
    """What the caller says about a model, as in :func:`unskew.evaluation.wrap_model`."""

    library: str = ""
    """The label of the model's library."""
    users: Ids | None = None
    items: Ids | None = None
    user_features: Any = None
    item_features: Any = None
    fallback: float | None = None

    def name(self, model: object) -> str:
        """The model as messages name it."""
        return f"{type(model).__name__} of {self.library}"

    def describe(self, model: object, *, has_default: bool = False) -> dict[str, Any]:
        """The fields of an :class:`ExternalModel` that do not depend on how it predicts.

        ``has_default`` says that the library itself predicts for unknown users and items.
        """
        on_unknown = "warn" if has_default else "raise"
        return {
            "name": self.name(model),
            "fallback": self.fallback,
            "on_unknown": on_unknown if self.fallback is None else "fallback",
        }

    def require_ids(self, model: object) -> tuple[Ids, Ids]:
        """The ids of the model's codes; an error with the line to write if they are missing."""
        if self.users is None or self.items is None:
            raise BadPredictionError(
                f"{self.name(model)} knows users and items only by codes 0, 1, 2, ..., not by ids.",
                parameter="users" if self.users is None else "items",
                remedy="Pass unskew.evaluation.wrap_model(model, users=..., items=...) with the "
                "ids in the order of the codes, for instance users=log.users, items=log.items if "
                "it was fitted with the codes log.user and log.item.",
            )
        return self.users, self.items


@dataclass(frozen=True, eq=False, kw_only=True)
class ExternalModel(ABC):
    """A fitted model of another library, which predicts pairs of ids."""

    name: str
    """The model and its library, for messages."""
    fallback: float | None = None
    """What is predicted for an unknown user or item; None leaves that to the subclass."""
    on_unknown: Literal["raise", "warn", "fallback"] = "raise"
    """What to do about unknown ids: ``"warn"`` if the library itself has a default for them."""
    limits: tuple[float, float] | None = None
    """The range of the predicted ratings. Items are ranked by scores, which are not clipped."""
    predicts_ratings: bool = True
    """False if the scores only rank items."""

    @abstractmethod
    def predict(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Vector:
        """A prediction for each pair of ids, as the library itself gives it."""

    @abstractmethod
    def scorer(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Scorer:
        """A scorer of ``items``, in this order, for users given by their index in ``users``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CodedModel(ExternalModel):
    """A model with a known vocabulary. A subclass says how pairs of codes are predicted."""

    users: Ids
    """The ids of the users that the model knows, in the order of their codes."""
    items: Ids

    def predict(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Vector:
        user_ids, item_ids = as_listed_ids(users, "users"), as_listed_ids(items, "items")
        user, item = find_codes(user_ids, self.users), find_codes(item_ids, self.items)
        self._require_known(user_ids, user, "user")
        self._require_known(item_ids, item, "item")
        is_known = (user >= 0) & (item >= 0)
        if is_known.all():
            return self._clip(self._predict_codes(user, item))
        n_unknown = int((~is_known).sum())
        pairs = f"{n_unknown:,} of {count_noun(user.size, 'pair')}"
        self._warn_of_unknown(f"the user or the item in {pairs}")
        if self.fallback is None:
            return self._clip(self._predict_codes(user, item))
        values = np.full(user.size, float(self.fallback))
        values[is_known] = self._clip(self._predict_codes(user[is_known], item[is_known]))
        return values

    def scorer(self, users: npt.ArrayLike, items: npt.ArrayLike, /) -> Scorer:
        user_ids, item_ids = as_listed_ids(users, "users"), as_listed_ids(items, "items")
        user, item = find_codes(user_ids, self.users), find_codes(item_ids, self.items)
        if (user >= 0).all() and (item >= 0).all():
            return self._make_scorer(user, item)
        has_fallback = self.fallback is not None  # code 0 stands in; its scores are replaced
        codes = (np.maximum(user, 0), np.maximum(item, 0)) if has_fallback else (user, item)
        score = self._make_scorer(*codes)
        n_unknown = {"user": int((user < 0).sum()), "item": int((item < 0).sum())}
        was_called = False

        def score_with_unknown(block: IntVector, /) -> Scores:
            nonlocal was_called
            self._require_known(user_ids[block], user[block], "user")
            self._require_known(item_ids, item, "item")
            if not was_called:
                counts = [count_noun(n, kind) for kind, n in n_unknown.items() if n]
                self._warn_of_unknown(join_words(counts))
            was_called = True
            scores = np.array(score(block), dtype=np.float64)
            if self.fallback is not None:
                scores[user[block] < 0] = self.fallback
                scores[:, item < 0] = self.fallback
            return scores

        return score_with_unknown

    @abstractmethod
    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        """A prediction for each pair of codes; -1 is an unknown user or item."""

    @abstractmethod
    def _make_scorer(self, user: IntVector, item: IntVector) -> Scorer:
        """A scorer of the items with these codes, for users given by their index in ``user``."""

    def _clip(self, values: Vector) -> Vector:
        return values if self.limits is None else np.clip(values, *self.limits)

    def _require_known(self, ids: Ids, codes: IntVector, kind: Kind) -> None:
        """Raise if an id is unknown and nothing is predicted for unknown ids.

        Also raise if the ids seem to be others than the model's: no item is known, or no user is
        known and their ids have another type. Then a fallback would be all there is.
        """
        is_unknown = codes < 0
        if not is_unknown.any():
            return
        vocabulary = self.users if kind == "user" else self.items
        other_type = describe_id_types(ids, vocabulary)
        has_other_ids = bool(is_unknown.all() and (kind == "item" or other_type))
        if self.on_unknown != "raise" and not has_other_ids:
            return
        distinct = list(dict.fromkeys(ids[is_unknown].tolist()))
        shown = ", ".join([*map(format_id, distinct[:3]), *["..."] * (len(distinct) > 3)])
        remedy = "Fit it to the same ids as the log has."
        if not has_other_ids:
            remedy = (
                "Fit it to a log that has them, leave them out of the log, or say what to predict "
                "for them: unskew.evaluation.wrap_model(model, fallback=...). A fallback of "
                "-math.inf ranks them last."
            )
        raise UnknownIdError(
            f"{self.name} does not know {count_noun(len(distinct), kind)} of the log: {shown}"
            f"{other_type}.",
            parameter="predictions",
            value=distinct[0],
            where=f"{kind} {format_id(distinct[0])}",
            remedy=remedy,
        )

    def _warn_of_unknown(self, what: str) -> None:
        if self.on_unknown == "warn":
            warn_caller(
                UnskewWarning(
                    f"{self.name} does not know {what}: its own default is used there.",
                    parameter="predictions",
                    remedy="Fit it to a log that has them, or pass "
                    "unskew.evaluation.wrap_model(model, fallback=...).",
                )
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorModel(CodedModel):
    """A model whose scores are v.w + a + b + c."""

    factors: Factors

    def __post_init__(self) -> None:
        for kind, ids, size in (
            ("user", self.users, self.factors.n_users),
            ("item", self.items, self.factors.n_items),
        ):
            if len(ids) != size:
                raise BadPredictionError(
                    f"{self.name} has factors of {count_noun(size, kind)}, but `{kind}s=...` "
                    f"lists {count_noun(len(ids), 'id')}.",
                    parameter=f"{kind}s",
                    value=len(ids),
                    remedy="Pass one id for each code, in the order of the codes.",
                )

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        return self.factors.predict(user, item)

    def _make_scorer(self, user: IntVector, item: IntVector) -> Factors:
        return self.factors.take(user, item)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairModel(CodedModel):
    """A model that predicts pairs of codes."""

    predict_pairs: Callable[[IntVector, IntVector], npt.ArrayLike]

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        values = np.empty(user.size)
        for first in range(0, user.size, PAIRS_AT_ONCE):
            block = slice(first, first + PAIRS_AT_ONCE)
            predicted = self._ask(user[block], item[block])
            if predicted.size != user[block].size:
                raise BadPredictionError(
                    f"{self.name} returned shape {predicted.shape} for "
                    f"{count_noun(user[block].size, 'pair')}.",
                    parameter="predictions",
                    remedy="It must return one number for each pair of a user and an item.",
                )
            values[block] = predicted.reshape(-1)
        return values

    def _ask(self, user: IntVector, item: IntVector) -> npt.NDArray[np.float64]:
        """What the model returns for these pairs; an error that names the model if it fails."""
        try:
            return np.asarray(self.predict_pairs(user, item), dtype=np.float64)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise BadPredictionError(
                f"{self.name} failed to predict {count_noun(user.size, 'pair')} "
                f"({type(error).__name__}: {error}).",
                parameter="predictions",
                remedy="Check that it was fitted to these users, items and features: as many, of "
                "the same kind, and none missing.",
            ) from error

    def _make_scorer(self, user: IntVector, item: IntVector) -> Scorer:
        def score(block: IntVector, /) -> Scores:
            pairs = np.repeat(user[block], item.size), np.tile(item, block.size)
            return self._predict_codes(*pairs).reshape(block.size, item.size)

        return score


@dataclass(frozen=True, eq=False, kw_only=True)
class RowModel(CodedModel):
    """A model that scores items for one user at a time."""

    score_row: Callable[[int, IntVector], npt.ArrayLike]
    """The scores of the items with these codes, for the user with this code."""
    predict_row: Callable[[int, IntVector], npt.ArrayLike] | None = None
    """The predicted ratings, if they are more than clipped scores."""

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        values, predict = np.empty(user.size), self.predict_row or self.score_row
        order = np.argsort(user, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(user[order])) + 1):
            if rows.size:
                values[rows] = predict(int(user[rows[0]]), item[rows])
        return values

    def _make_scorer(self, user: IntVector, item: IntVector) -> Scorer:
        return lambda block: np.array(
            [self.score_row(code, item) for code in user[block].tolist()], dtype=np.float64
        )


def require_fitted_attributes(model: object, *names: str) -> list[Any]:
    """Attributes that a fitted model has; an error if one is missing or None."""
    values = [getattr(model, name, None) for name in names]
    if any(value is None for value in values):
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted: it has no {names[values.index(None)]}.",
            parameter="predictions",
            remedy="Fit it first.",
        )
    return values
