"""What every fitted recommender can do: predict, recommend, and be saved."""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.cells import cell_numbers
from unskew.data.factors import Factors
from unskew.data.ids import Ids, as_ids, describe_id_types, encode, find_codes, format_id
from unskew.data.ratings import Ratings, require_log
from unskew.data.result import Result
from unskew.errors import (
    UnknownIdError,
    UnskewWarning,
    UsageError,
)
from unskew.io.model_files import write_model
from unskew.io.writing import as_path
from unskew.ranking.candidates import Candidates, CandidatesLike, read_candidates, select_users
from unskew.ranking.positions import Ranker, best_items, find_ranker, items_by_user
from unskew.settings import Configurable, Flag, OneOf, WholeNumber, require_fitted
from unskew.tables import count_noun
from unskew.types import ArrayShapes, IntVector, RowStarts, Scorer, Scores, SeenItems, Vector

OnUnknown: TypeAlias = Literal["warn", "fallback", "nan", "raise"]
ON_UNKNOWN = ("warn", "fallback", "nan", "raise")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recommendations(Result):
    """The best items of each user, best first. Missing items have NaN scores at the end."""

    kind: ClassVar[str] = "recommendations"
    users: Ids
    items: Ids
    """Users x k."""
    scores: Scores
    """Users x k."""
    backend: str | None = None

    def to_columns(self) -> dict[str, Any]:
        """One row for each recommendation: user_id, item_id, score, position."""
        has_item = np.isfinite(self.scores)
        row, column = np.nonzero(has_item)
        return {
            "user_id": self.users[row],
            "item_id": self.items[has_item],
            "score": self.scores[has_item],
            "position": column + 1,
        }

    def to_record(self) -> Mapping[str, Any]:
        columns = {name: values.tolist() for name, values in self.to_columns().items()}
        rows = zip(*columns.values(), strict=True)
        return {"rows": [dict(zip(columns, row, strict=True)) for row in rows]}

    def __repr__(self) -> str:
        n_users, n_items = len(self.users), self.items.shape[1]
        return f"Recommendations({count_noun(n_users, 'user')}, {count_noun(n_items, 'item')} each)"


class Recommender(Configurable, ABC):
    """Predicts pairs of ids and recommends items. A subclass says how a pair is predicted."""

    predicts_ratings: ClassVar[bool] = True
    """False if predictions only rank items, as those learnt from clicks do."""
    users_: Ids
    items_: Ids
    seen_starts_: RowStarts
    seen_items_: IntVector
    """The items of each user in the log, for ``exclude_seen``."""

    def _fit_facts(self) -> list[str]:
        n_users, n_items = (
            count_noun(len(self.users_), "user"),
            count_noun(len(self.items_), "item"),
        )
        return [*super()._fit_facts(), f"{n_users}, {n_items}"]

    def predict(
        self, users: npt.ArrayLike, items: npt.ArrayLike, *, on_unknown: OnUnknown = "warn"
    ) -> Vector:
        """A prediction for each pair of ids.

        Parameters
        ----------
        users, items
            As many users as items.
        on_unknown
            What to do about a user or item that was not in the log of the fit: ``"fallback"``
            predicts from what is known (offsets, or the mean rating), ``"warn"`` does the same
            with a warning, ``"nan"`` gives NaN, ``"raise"`` raises an error.
        """
        user, item = self._find_pairs(users, items, on_unknown)
        values = self._predict_codes(user, item)
        if on_unknown == "nan":
            return np.where((user >= 0) & (item >= 0), values, np.nan)
        return values

    @abstractmethod
    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        """A prediction for each pair of codes; -1 is an unknown user or item."""

    @abstractmethod
    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """A scorer of ``items``, in this order, for users given by their index in ``users``.

        Unknown users and items get fallback scores.
        """

    def recommend(
        self,
        users: npt.ArrayLike,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        exclude: Ratings | None = None,
        candidates: CandidatesLike | None = None,
        on_unknown: OnUnknown = "warn",
        engine: str | Ranker = "auto",
    ) -> Recommendations:
        """The ``k`` best items of each user.

        The score of an item that is not a candidate is NaN; such items fill up the lists of users
        who have fewer than ``k`` candidates.

        Parameters
        ----------
        users
            User ids.
        k
            The number of items for each user.
        exclude_seen
            Leave out the items that a user rated in the log of the fit.
        exclude
            A log of further items that are left out, each for its user.
        candidates
            Item ids of which to recommend, for all users; or a frame of users and items.
        on_unknown
            What to do about a user who was not in that log: ``"fallback"`` recommends what is best
            without knowing the user, ``"warn"`` does the same with a warning, ``"nan"`` recommends
            nothing, ``"raise"`` raises an error.
        engine
            ``"gpu"`` ranks on a GPU if the predictions are products of factors.
        """
        require_fitted(self)
        ranker = find_ranker(engine)
        ids = as_ids(users)
        codes = self._find_codes(ids, self.users_, "user", on_unknown, stacklevel=3)
        WholeNumber(least=1)("k", k)
        Flag()("exclude_seen", exclude_seen)
        n_best = min(int(k), len(self.items_))
        score = self.scorer(ids, self.items_)
        distinct_codes, distinct = encode(ids)
        chosen = read_candidates(distinct, self.items_, candidates, exclude)
        if chosen is None:
            chosen = Candidates(len(distinct), len(self.items_))
        chosen = chosen.take(distinct_codes)
        if exclude_seen:
            chosen = chosen.without(*select_users((self.seen_starts_, self.seen_items_), codes))
        if ranker is not None and isinstance(score, Factors):
            best, scores = ranker.best(score, n_best, chosen)
        else:
            best, scores = best_items(score, n_best, ids.size, len(self.items_), chosen)
        scores = np.where(np.isneginf(scores), np.nan, scores)
        if on_unknown == "nan":
            scores[codes < 0] = np.nan
        return Recommendations(ids, self.items_[best], scores)

    def count_seen(self, log: Ratings) -> int:
        """How many cells of ``log`` the model was fitted to; its errors there are too small."""
        require_fitted(self)
        require_log(log)
        user = find_codes(log.users, self.users_)[log.user]
        item = find_codes(log.items, self.items_)[log.item]
        n_items = len(self.items_)
        seen_user = np.repeat(np.arange(len(self.users_)), np.diff(self.seen_starts_))
        is_known = (user >= 0) & (item >= 0)
        cells = cell_numbers(user[is_known], item[is_known], n_items)
        return int(np.isin(cells, cell_numbers(seen_user, self.seen_items_, n_items)).sum())

    def save(self, path: str | Path) -> None:
        """Write the fitted model as a zip of arrays and JSON, without code.

        An old file is replaced at once: a reader finds the old file or the new one.
        """
        write_model(self, as_path(path))

    def _record_log(self, log: Ratings, seen: SeenItems | None = None) -> None:
        """Keep the ids and the items of each user; ``seen`` saves sorting the log again."""
        self.users_, self.items_ = log.users, log.items
        self.seen_starts_, self.seen_items_ = items_by_user(log) if seen is None else seen

    def _find_pairs(
        self, users: npt.ArrayLike, items: npt.ArrayLike, on_unknown: OnUnknown
    ) -> tuple[IntVector, IntVector]:
        """The codes of as many users as items."""
        require_fitted(self)
        user = self._find_codes(users, self.users_, "user", on_unknown, stacklevel=4)
        item = self._find_codes(items, self.items_, "item", on_unknown, stacklevel=4)
        if user.shape != item.shape:
            raise UsageError(
                f"there are {user.size} users and {item.size} items.",
                remedy="Pass as many `users` as `items`.",
            )
        return user, item

    def _find_codes(
        self,
        ids: npt.ArrayLike,
        vocabulary: Ids,
        kind: str,
        on_unknown: OnUnknown,
        *,
        stacklevel: int,
    ) -> IntVector:
        OneOf(ON_UNKNOWN)("on_unknown", on_unknown)
        ids = as_ids(ids)
        codes = find_codes(ids, vocabulary)
        is_unknown = codes < 0
        if on_unknown in ("warn", "raise") and is_unknown.any():
            row = int(is_unknown.argmax())
            problem = (
                f"{int(is_unknown.sum())} of {codes.size} {kind}s were not in the log of the fit; "
                f"the first is {format_id(ids[row])} at row {row}"
                f"{describe_id_types(ids, vocabulary)}."
            )
            if on_unknown == "raise":
                raise UnknownIdError(
                    problem,
                    parameter=f"{kind}s",
                    value=ids[row],
                    where=f"row {row}",
                    remedy="Drop them, or pass `on_unknown='fallback'`.",
                )
            warnings.warn(
                UnskewWarning(
                    problem,
                    parameter=f"{kind}s",
                    value=ids[row],
                    where=f"row {row}",
                    remedy="They get fallback predictions; `on_unknown='fallback'` accepts that, "
                    "`on_unknown='nan'` gives NaN instead.",
                ),
                stacklevel=stacklevel,
            )
        return codes

    def _find_inconsistency(self) -> str | None:
        starts, seen, n_items = self.seen_starts_, self.seen_items_, len(self.items_)
        shapes = {
            "seen_starts": (starts, (len(self.users_) + 1,)),
            "seen_items": (seen, (int(starts[-1]),)),
            **self._arrays_with_expected_shapes(),
        }
        for name, (array, expected) in shapes.items():
            if np.shape(array) != expected:
                return f"{name} has shape {np.shape(array)}, but the ids need {expected}."
        if starts.dtype.kind != "i" or starts[0] != 0 or (np.diff(starts) < 0).any():
            return "seen_starts does not rise from 0."
        if seen.dtype.kind != "i" or (seen.size and not 0 <= seen.min() <= seen.max() < n_items):
            return f"seen_items has other numbers than those of the {n_items} items."
        return None

    @abstractmethod
    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        """The fitted arrays of a subclass, each with the shape that the ids need."""


class FactorRecommender(Recommender):
    """Predicts F_ui = v_u . w_i + a_u + b_i + c from the :class:`Factors` that a subclass fits.

    Attributes
    ----------
    factors_ : the fitted V, W, a, b and c.
    fallback_ : replaces c in predictions for an unknown user or item.
    """

    factors_: Factors
    fallback_: float

    def _predict_codes(self, user: IntVector, item: IntVector) -> Vector:
        return self.factors_.predict(user, item, fallback=self.fallback_)

    def scorer(self, users: Ids, items: Ids, /) -> Scorer:
        """A scorer of ``items``, in this order, for users given by their index in ``users``.

        Unknown users and items have factors and offsets of zero. If items have no offsets to rank
        them by, an unknown user has the mean of all users' factors instead.
        """
        require_fitted(self)
        user, item = find_codes(as_ids(users), self.users_), find_codes(as_ids(items), self.items_)
        fitted, factors = self.factors_, self.factors_.take(user, item)
        if fitted.user_factors.size and not fitted.item_offset.any():
            factors.user_factors[user < 0] = fitted.user_factors.mean(axis=0)
        return factors

    def _record_factors(
        self, log: Ratings, factors: Factors, fallback: float, seen: SeenItems | None = None
    ) -> None:
        """Keep what predictions need; ``seen`` saves sorting the log again."""
        self.factors_, self.fallback_ = factors, fallback
        self._record_log(log, seen)

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        factors, n_users, n_items = self.factors_, len(self.users_), len(self.items_)
        return {
            "user_factors": (factors.user_factors, (n_users, factors.n_factors)),
            "item_factors": (factors.item_factors, (n_items, factors.n_factors)),
            "global_offset": (factors.global_offset, ()),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Preset:
    """A recommender with some settings fixed; calling it returns a model that is not fitted."""

    name: str
    """The name under which Python exports the preset."""
    model: type[Recommender]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the model's own defaults, and can be changed."""

    def __post_init__(self) -> None:
        fixed = ", ".join(f"{name}={value!r}" for name, value in self.fixed.items())
        object.__setattr__(self, "__name__", self.name)
        object.__setattr__(self, "__doc__", f"{self.model.__name__} with {fixed}.")
        object.__setattr__(self, "__signature__", self._make_signature())

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        for name, value in settings.items():
            if name in self.fixed:
                raise UsageError(
                    f"{self.name} fixes {name}={self.fixed[name]!r}.",
                    parameter=name,
                    value=value,
                    remedy=f"Use {self.model.__name__} to choose it.",
                )
        chosen = inspect.signature(self).bind(*arguments, **settings).arguments
        return self.model(**{**self.fixed, **self.defaults, **chosen})

    def _make_signature(self) -> inspect.Signature:
        parameters = inspect.signature(self.model).parameters
        return inspect.Signature(
            [
                parameter.replace(default=self.defaults.get(name, parameter.default))
                for name, parameter in parameters.items()
                if name not in self.fixed
            ]
        )

    def __repr__(self) -> str:
        return self.name
