"""What every fitted recommender can do: predict, recommend, and be saved; and its presets."""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.cells import cell_numbers, is_among, sort_distinct
from unskew.data.checks import find_misfit
from unskew.data.factors import Factors
from unskew.data.frames import check_same_order
from unskew.data.ids import (
    Ids,
    as_listed_ids,
    describe_id_types,
    encode,
    find_bad_ids,
    find_codes,
    format_id,
    require_no_missing_ids,
    require_pairs,
)
from unskew.data.ratings import Ratings, require_log
from unskew.errors import (
    UnknownIdError,
    UnskewWarning,
    UsageError,
)
from unskew.io.model_files import write_model
from unskew.io.writing import as_path, write_blocks
from unskew.models.recommendations import Recommendations
from unskew.ranking.candidates import Candidates, CandidatesLike, read_candidates, select_users
from unskew.ranking.positions import (
    NanScoreError,
    Ranker,
    best_items,
    find_ranker,
    items_by_user,
)
from unskew.settings import Configurable, Flag, OneOf, WholeNumber, is_finite_number, require_fitted
from unskew.tables import count_noun
from unskew.types import (
    ArrayShapes,
    IntVector,
    RowStarts,
    Scorer,
    SeenItems,
    Vector,
)

OnUnknown: TypeAlias = Literal["warn", "fallback", "nan", "raise"]
ON_UNKNOWN = ("warn", "fallback", "nan", "raise")
WHO_HAS_METHOD: Mapping[str, str] = {
    "fold_in": "Only MatrixFactorization and OffsetsOnly add users or items without a new fit.",
    "partial_fit": "Only GlobalMean and Popularity add ratings without a new fit.",
} | dict.fromkeys(
    ("similar_items", "similar_users", "export_factors", "factors_to_frame"),
    "Only models with factors_ have it: all factorisations but OrdinalFactorization.",
)
"""Methods that only some recommenders have, and what an AttributeError says of them."""


class Recommender(Configurable, ABC):
    """Predicts pairs of ids and recommends items. A subclass says how a pair is predicted."""

    predicts_ratings: ClassVar[bool] = True
    """False if predictions only rank items, as those learnt from clicks do."""
    users_: Ids
    items_: Ids
    seen_starts_: RowStarts
    seen_items_: IntVector
    """The items of each user in the log, for ``exclude_seen``."""

    if not TYPE_CHECKING:  # type checkers know which attributes there are

        def __getattr__(self, name: str) -> Any:
            problem = f"{type(self).__name__} has no attribute {name!r}."
            raise AttributeError(f"{problem} {WHO_HAS_METHOD.get(name, '')}".rstrip())

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
        if self.limits is not None:
            values = np.clip(values, *self.limits)
        if on_unknown == "nan":
            return np.where((user >= 0) & (item >= 0), values, np.nan)
        return values

    @property
    def limits(self) -> tuple[float, float] | None:
        """The smallest and the largest prediction; None if predictions are not limited."""
        return None

    def count_outside(self, users: npt.ArrayLike, items: npt.ArrayLike) -> int:
        """How many predictions of these pairs were outside the limits before they were clipped."""
        for kind, ids in (("user", users), ("item", items)):
            require_no_missing_ids(as_listed_ids(ids, f"{kind}s"), kind=kind)
        values = self._predict_codes(*self._find_pairs(users, items, "fallback"))
        low, high = self.limits or (-np.inf, np.inf)
        return int(((values < low) | (values > high)).sum())

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
        users: npt.ArrayLike | None = None,
        k: int = 10,
        *,
        exclude_seen: bool = True,
        exclude: Ratings | None = None,
        candidates: CandidatesLike | None = None,
        on_unknown: OnUnknown = "warn",
        engine: str | Ranker = "auto",
    ) -> Recommendations:
        """The ``k`` best items of each user.

        The rows of users who have fewer than ``k`` candidates are filled up at the end with items
        that are not candidates, such as seen ones. Their scores are NaN: read
        ``items[np.isfinite(scores)]``, or ``to_frame()``, which leaves them out.

        Parameters
        ----------
        users
            User ids; by default all users of the log. For very many users, see
            :meth:`write_recommendations`.
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
        OneOf(ON_UNKNOWN)("on_unknown", on_unknown)
        ids = self.users_ if users is None else as_listed_ids(users, "users")
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
            try:
                best, scores = best_items(score, n_best, ids.size, len(self.items_), chosen)
            except NanScoreError as error:
                error.name_ids(ids, self.items_)
                raise
        scores = np.where(np.isneginf(scores), np.nan, scores)
        if on_unknown == "nan":
            scores[codes < 0] = np.nan
        n_clipped = 0
        if self.limits is not None:
            low, high = self.limits
            n_clipped = int(((scores < low) | (scores > high)).sum())
            scores = np.clip(scores, low, high)
        return Recommendations(ids, self.items_[best], scores, n_clipped)

    def write_recommendations(
        self,
        path: str | Path,
        users: npt.ArrayLike | None = None,
        k: int = 10,
        *,
        block_size: int = 10_000,
        exclude_seen: bool = True,
        candidates: CandidatesLike | None = None,
        on_unknown: OnUnknown = "warn",
        engine: str | Ranker = "auto",
    ) -> int:
        """Write the best items of users to a Parquet or CSV file; returns the number of rows.

        The rows are those of ``recommend(...).to_frame()``. Users are ranked in blocks of
        ``block_size``, and a block is written before the next one is ranked, so the memory does
        not depend on the number of users.
        """
        require_fitted(self)
        WholeNumber(least=1)("block_size", block_size)
        Flag()("exclude_seen", exclude_seen)
        ids = self.users_ if users is None else as_listed_ids(users, "users")
        blocks = (
            self.recommend(
                ids[first : first + block_size],
                k,
                exclude_seen=exclude_seen,
                candidates=candidates,
                on_unknown=on_unknown,
                engine=engine,
            ).to_columns()
            for first in range(0, ids.size, block_size)
        )
        return write_blocks(blocks, path)

    def count_seen(self, log: Ratings) -> int:
        """How many cells of ``log`` the model was fitted to; its errors there are too small."""
        require_fitted(self)
        require_log(log)
        user = find_codes(log.users, self.users_)[log.user]
        item = find_codes(log.items, self.items_)[log.item]
        n_items = len(self.items_)
        seen_user = np.repeat(np.arange(len(self.users_)), np.diff(self.seen_starts_))
        is_known = (user >= 0) & (item >= 0)
        cells = np.sort(cell_numbers(user[is_known], item[is_known], n_items))
        seen = sort_distinct(cell_numbers(seen_user, self.seen_items_, n_items))
        return int(is_among(cells, seen).sum())

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
        check_same_order({"users": users, "items": items})
        user = self._find_codes(users, self.users_, "user", on_unknown, stacklevel=4)
        item = self._find_codes(items, self.items_, "item", on_unknown, stacklevel=4)
        require_pairs(user, item)
        return user, item

    def _find_codes_or_none(self, users: Ids, items: Ids) -> tuple[IntVector, IntVector]:
        """The codes of users and of items, -1 for unknown ones."""
        require_fitted(self)
        return (
            find_codes(as_listed_ids(users, "users"), self.users_),
            find_codes(as_listed_ids(items, "items"), self.items_),
        )

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
        ids = as_listed_ids(ids, f"{kind}s")
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
            "users": (self.users_, (len(self.users_),)),
            "items": (self.items_, (n_items,)),
            "seen_starts": (starts, (len(self.users_) + 1,)),
            "seen_items": (seen, (int(starts[-1]),)),
            **self._arrays_with_expected_shapes(),
        }
        misfit = find_misfit(shapes)
        if misfit is not None:
            return misfit
        for kind, ids in (("user", self.users_), ("item", self.items_)):
            problem = find_bad_ids(ids)
            if problem is not None:
                return f"the ids of {kind}s cannot be used: {problem}."
        if starts.dtype.kind != "i" or starts[0] != 0 or (np.diff(starts) < 0).any():
            return "seen_starts does not rise from 0."
        if seen.dtype.kind != "i" or (seen.size and not 0 <= seen.min() <= seen.max() < n_items):
            return f"seen_items has other numbers than those of the {n_items} items."
        if self.limits is not None:
            low, high = (*self.limits, None, None)[:2]
            is_range = len(self.limits) == 2 and is_finite_number(low) and is_finite_number(high)
            if not is_range or not low <= high:
                return "rating_range is not a smallest and a largest rating."
        return None

    @abstractmethod
    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        """The fitted arrays of a subclass, each with the shape that the ids need."""


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
