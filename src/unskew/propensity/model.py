"""The base class of propensity models: how they predict and are saved, and which cells exist."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.checks import find_misfit
from unskew.data.columns import find_column
from unskew.data.estimation import Estimation, FrameStrata, LogRelation, Replicates, TakenAsKnown
from unskew.data.frames import (
    LazyFrame,
    add_column,
    check_same_order,
    count_sizes,
    open_lazily,
)
from unskew.data.ids import (
    Ids,
    as_listed_ids,
    describe_id_types,
    find_bad_ids,
    find_codes,
    format_id,
    require_no_missing_ids,
    require_pairs,
)
from unskew.data.propensities import SMALLEST, Propensities
from unskew.data.ratings import Ratings, require_log
from unskew.data.universe import (
    Universe,
    UniverseLike,
    parse_universe,
    require_all_ids,
    resolve_universe,
)
from unskew.errors import (
    BadPropensityError,
    ConvergenceWarning,
    EmptyLogError,
    PropensityWarning,
    UniverseError,
    UnknownIdError,
    UsageError,
)
from unskew.io.model_files import write_model
from unskew.io.writing import as_path
from unskew.settings import Configurable, require_fitted, unfitted_copy
from unskew.tables import count_noun
from unskew.types import ArrayShapes, IndexVector, IntVector, Vector

BLOCK_PAIRS = 1 << 20
SampleLike: TypeAlias = Ratings | Mapping[float, float] | npt.ArrayLike
"""Ratings of cells chosen at random: a log, a frame, the ratings, {rating: count or share}."""


class PropensityModel(Configurable):
    """A model of P(O_ui = 1), the probability that a cell is observed.

    A subclass implements :meth:`fit`, which calls :meth:`_record_log`, and :meth:`_predict_codes`.
    """

    users_: Ids
    """The users of the log; empty after a fit to a frame, whose ids are not kept."""
    items_: Ids
    n_users_: int
    n_items_: int
    """The universe of the log."""
    n_observed_: int
    """Ratings in the log. The propensities of all cells should add up to this number."""
    share_: float
    """The share of the log, if it is a part of a larger one; else 1."""

    @property
    def sees_ratings(self) -> bool:
        """Whether the propensity of a cell depends on its rating, which only logged cells have."""
        return False

    @property
    def adjusts_for(self) -> str:
        """What the propensities depend on besides ratings, in words; empty if on nothing."""
        return "users and items"

    @property
    def learns_users(self) -> bool:
        """Whether each user has parameters, which need ratings of that user."""
        return False

    def fit(self, log: Ratings, *, universe: UniverseLike = None) -> Self:
        """Fit the model to a log.

        Parameters
        ----------
        log
            The log, missing not at random.
        universe
            (n_users, n_items) or ``"log"``; by default the universe that the log states.
        """
        raise NotImplementedError

    def fit_frame(self, frame: object, *, universe: UniverseLike = None) -> Self:
        """Fit the model to a log in a data frame: only models that need counts alone can do so."""
        raise UsageError(
            f"{type(self).__name__} cannot be fitted to a log that stays in a data frame.",
            parameter="frame",
            remedy="Use NaiveBayesPropensity, PopularityPropensity, LogisticPropensity or "
            "CalibratedPropensity(LogisticPropensity(...)), or build a log with Ratings.from_frame "
            "and call fit().",
        )

    def _require_log(self, log: object) -> None:
        """Raise an error unless ``log`` is a log; for a frame it names :meth:`fit_frame`."""
        reads_frames = type(self).fit_frame is not PropensityModel.fit_frame
        require_log(log, for_frames="fit_frame(frame, universe=...)" if reads_frames else None)

    @property
    def n_cells_(self) -> int:
        """U * I of the universe of the log."""
        return self.n_users_ * self.n_items_

    def predict(self, log: Ratings) -> Propensities:
        """P(O_ui = 1) of every cell of ``log``, in its order, and how they were estimated.

        If ``log`` is a part of a split, these are the propensities of being in that part.
        """
        self._require_fitted()
        require_log(log)
        values = self._predict_log(log)
        _require_valid(values, log)
        estimation = self._describe_estimation(log, values)
        estimation = replace(estimation, adjusts_for=self.adjusts_for)
        return Propensities(values, estimation, self.share_).follow(log)

    def predict_pairs(self, users: npt.ArrayLike, items: npt.ArrayLike) -> Vector:
        """P(O_ui = 1) of any pairs of ids, observed or not: values in [0, 1]."""
        self._require_fitted()
        if self.sees_ratings:
            raise UsageError(
                f"{type(self).__name__} needs the rating of a cell, and unobserved cells have "
                "none.",
                remedy="Use predict(log).",
            )
        check_same_order({"users": users, "items": items})
        user = self._find_codes(users, self.users_, "user")
        item = self._find_codes(items, self.items_, "item")
        require_pairs(user, item)
        return self._predict_in_blocks(user, item, None)

    def save(self, path: str | Path) -> None:
        """Write the fitted model as a zip of arrays and JSON, without code.

        An existing file is replaced in one step.
        """
        self._require_fitted()
        write_model(self, as_path(path))

    def _predict_codes(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        """P(O_ui = 1) of cells by their codes in ``users_`` and ``items_``.

        ``rating`` is None unless the model sees ratings.
        """
        raise NotImplementedError

    def _describe_estimation(self, log: Ratings, values: Vector) -> Estimation:
        """How the propensities of ``log``, which are ``values``, were estimated.

        By default, the model is fitted again to halves of the log.
        """
        name, reason = type(self).__name__, self._find_refit_obstacle()
        if self.share_ < 1 and log.share < 1 and len(log) != self.n_observed_:
            reason = f"{name} was fitted to another part of the log, which it does not keep"
        if reason is not None:
            return TakenAsKnown(model=name, reason=reason, sees_ratings=self.sees_ratings)

        def refit(rows: IndexVector) -> Vector:
            part = log.take(rows)
            universe = Universe(self.n_users_, self.n_items_)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted: PropensityModel = unfitted_copy(self).fit(part, universe=universe)
            values = fitted._predict_log(part)
            _require_valid(values, part)
            return values

        return Replicates(
            model=name,
            sees_ratings=self.sees_ratings,
            learned=frozenset(["user", "item"]),
            refit=refit,
        )

    def _relate(self, log: Ratings, is_same: bool) -> LogRelation:
        """How ``log`` is related to the log of the fit, given whether it has the same ratings."""
        if is_same:
            return "same"
        return "part" if log.share < self.share_ == 1 else "other"

    def _find_refit_obstacle(self) -> str | None:
        """Why the model cannot be fitted again to a part of the log; None if it can."""
        return None

    def predict_frame(
        self,
        frame: object,
        *,
        user: str | None = None,
        item: str | None = None,
        rating: str | None = None,
        name: str = "propensity",
    ) -> Any:
        """``frame`` with a column of propensities, computed by the library of the frame.

        ``user``, ``item`` and ``rating`` name columns; common names are found by default. A rating
        that was not in the log of the fit has no propensity (null). A model that counts users or
        items must have been fitted with ``fit_frame``, to a frame of the same library; users and
        items that are not in that frame have a count of 0.
        """
        columns = {"user": user, "item": item, "rating": rating}
        _, names = open_lazily(frame)
        for role, column in columns.items():
            if column is not None:
                find_column(role, column, list(names))
        return add_column(
            frame, name, lambda opened, names: self.add_to_frame(opened, names, columns, name)
        )

    def add_to_frame(
        self,
        frame: LazyFrame,
        names: Mapping[str, str],
        columns: Mapping[str, str | None],
        name: str,
    ) -> LazyFrame:
        """``frame`` with the column ``name`` of propensities.

        ``names`` maps the caller's column names to those of ``frame``; ``columns`` has the
        caller's choice for ``"user"``, ``"item"`` and ``"rating"``. Names of other new columns
        start with ``name``.
        """
        raise UsageError(
            f"the propensities of {type(self).__name__} cannot be computed in a data frame.",
            parameter="propensity",
            value=type(self).__name__,
            remedy="Add them to the frame and pass the name of the column, whose values are taken "
            "as known; or build a log with Ratings.from_frame and call evaluate().",
        )

    def describe_frame(self) -> FrameStrata:
        """How the propensities of rows of a data frame were estimated.

        It is an error if sums over the frame cannot tell what the estimation adds to intervals.
        """
        raise UsageError(
            f"the error of propensities by {self!r} cannot be computed from sums over a data "
            "frame: its cells do not form strata of equal propensity with known counts.",
            parameter="propensity",
            value=type(self).__name__,
            remedy="Pass `propensities_known=True` to leave this error out of the intervals, or "
            "build a log with Ratings.from_frame and call evaluate().",
        )

    def _require_fitted(self) -> None:
        require_fitted(self)

    def _find_inconsistency(self) -> str | None:
        n_users, n_items = len(self.users_), len(self.items_)
        ids: ArrayShapes = {"users": (self.users_, (n_users,)), "items": (self.items_, (n_items,))}
        for kind, listed in (("user", self.users_), ("item", self.items_)):
            problem = find_bad_ids(listed)
            if problem is not None:
                return f"the ids of {kind}s cannot be used: {problem}."
        return find_misfit(ids | self._arrays_with_expected_shapes())

    def _arrays_with_expected_shapes(self) -> ArrayShapes:
        """The fitted arrays of a subclass, each with the shape that it must have."""
        return {}

    def _record_log(self, log: Ratings, universe: Universe) -> None:
        """Store what predictions need of the log."""
        self.users_, self.items_ = log.users, log.items
        self.n_users_, self.n_items_ = universe.n_users, universe.n_items
        self.n_observed_, self.share_ = len(log), log.share

    def _record_frame(self, n_ratings: int, universe: Universe) -> None:
        """The same for a log in a frame, whose ids are not kept."""
        self.users_, self.items_ = np.empty(0, np.int64), np.empty(0, np.int64)
        self.n_users_, self.n_items_ = universe.n_users, universe.n_items
        self.n_observed_, self.share_ = n_ratings, 1.0

    def _predict_log(self, log: Ratings) -> Vector:
        user = self._find_codes(log.users, self.users_, "user")[log.user]
        item = self._find_codes(log.items, self.items_, "item")[log.item]
        return self._predict_in_blocks(user, item, log.rating)

    def _predict_in_blocks(self, user: IntVector, item: IntVector, rating: Vector | None) -> Vector:
        blocks = [slice(first, first + BLOCK_PAIRS) for first in range(0, user.size, BLOCK_PAIRS)]
        values = [
            self._predict_codes(user[block], item[block], None if rating is None else rating[block])
            for block in blocks
        ]
        return np.concatenate(values) if values else np.empty(0)

    def _find_codes(self, values: npt.ArrayLike, vocabulary: Ids, kind: str) -> IntVector:
        if values is vocabulary:
            return np.arange(len(vocabulary), dtype=np.int32)
        ids = require_no_missing_ids(as_listed_ids(values, f"{kind}s"), kind=kind)
        if vocabulary.size == 0:
            return np.zeros(ids.size, dtype=np.int32)
        codes = find_codes(ids, vocabulary)
        if (codes < 0).any():
            treatment = self._describe_unknown(kind)
            if treatment is not None:
                return self._accept_unknown(codes, kind, treatment)
            row = int((codes < 0).argmax())
            raise UnknownIdError(
                f"{int((codes < 0).sum())} of {codes.size} {kind}s were not in the log that "
                f"{type(self).__name__} was fitted to; "
                f"the first is {format_id(ids[row])}{describe_id_types(ids, vocabulary)}.",
                parameter=f"{kind}s",
                remedy=f"List all {kind}s with Ratings.from_frame(..., `{kind}s=...`) and fit "
                "again, or use PopularityPropensity(smoothing=1), for which new ones have no "
                "ratings.",
                shell_remedy="Fit the model again to a log that has them, or use the model "
                "popularity with --set smoothing=1, for which new ones have no ratings.",
            )
        return codes

    def _describe_unknown(self, kind: str) -> str | None:
        """What an unknown user or item counts as; empty if it does not matter, None if refused."""
        return None

    def _accept_unknown(self, codes: IntVector, kind: str, treatment: str) -> IntVector:
        """The codes, with -1 for unknown ids; a warning if it matters what these count as."""
        if treatment:
            warnings.warn(
                PropensityWarning(
                    f"{int((codes < 0).sum())} of {codes.size} {kind}s were not in the log that "
                    f"{type(self).__name__} was fitted to: they count as {treatment}.",
                    remedy="Fit it to a log that has them, if there is one.",
                ),
                stacklevel=4,
            )
        return codes


class McarPropensityModel(PropensityModel):
    """A propensity model whose fit may need a sample of ratings missing completely at random."""

    def fit(
        self, log: Ratings, *, universe: UniverseLike = None, mcar: SampleLike | None = None
    ) -> Self:
        """Fit the model to a log and to ratings of cells that were chosen at random."""
        raise NotImplementedError

    def _find_refit_obstacle(self) -> str | None:
        return f"the random ratings that {type(self).__name__} was fitted with are not kept"


def require_universe(log: Ratings, universe: UniverseLike) -> Universe:
    """The universe of the log; an error if it is unknown, because P is a share of all cells."""
    resolved = resolve_universe(log, universe)
    if resolved is None:
        raise universe_error()
    return resolved


def require_listed_universe(log: Ratings, universe: UniverseLike) -> Universe:
    """The universe of a log that must list all its users and items, also those without ratings."""
    resolved = require_universe(log, universe)
    require_all_ids(
        log,
        resolved,
        "and this model needs the ids of the whole universe",
        shell_remedy="List all users and items in the tables of features, or use a model without "
        "features.",
    )
    return resolved


def universe_error() -> UniverseError:
    """The error of a fit that does not know how many cells there are."""
    return UniverseError(
        "propensities are shares of all cells, so a fit needs the number of users and items.",
        parameter="universe",
        remedy="Pass `universe=(n_users, n_items)`, or `universe='log'` if the log has all users "
        "and items.",
    )


def require_unobserved(n_observed: int, universe: Universe) -> None:
    """Raise an error if every cell was observed: then P = 1 and there is nothing to estimate."""
    if n_observed >= universe.n_cells:
        raise UniverseError(
            f"all {universe.n_cells:,} cells ({universe}) were observed, so P = 1 and there is "
            "nothing to estimate.",
            parameter="universe",
            remedy="If more users or items could have been in the log, list them with "
            "Ratings.from_frame(..., `users=...`, `items=...`) or state a larger `universe`; "
            "otherwise use UniformPropensity.",
            shell_remedy="If more users or items could have been in the log, state a larger "
            "`universe`; otherwise use the model uniform.",
        )


def require_frame_universe(
    frame: LazyFrame, names: Mapping[str, str], universe: UniverseLike, columns: Mapping[str, str]
) -> Universe:
    """The universe of a log in a frame; ``"log"`` counts the distinct users and items.

    ``names`` maps the caller's column names to those of ``frame``. ``columns`` has the caller's
    columns of users and items if they are known.
    """
    if universe is None:
        raise universe_error()
    if not (isinstance(universe, str) and universe == "log"):
        return parse_universe(universe)
    n_users, n_items = (
        sum(
            count_sizes(
                frame, names[columns.get(role) or find_column(role, None, list(names))]
            ).values()
        )
        for role in ("user", "item")
    )
    return Universe(n_users, n_items)


def empty_frame_error() -> EmptyLogError:
    """The error of a fit to a frame without ratings."""
    return EmptyLogError(
        "the frame has no ratings.", remedy="Check the filter or the file that it came from."
    )


def warn_if_not_converged(model: Any, *, remedy: str = "Raise `max_iter` or `tol`.") -> None:
    """Warn that an iterative fit stopped at ``max_iter``; to be called directly by ``fit``."""
    if not model.converged_:
        warnings.warn(
            ConvergenceWarning(
                f"{type(model).__name__} had not converged after "
                f"{count_noun(model.n_iter_, 'iteration')}.",
                parameter="max_iter",
                remedy=remedy,
            ),
            stacklevel=3,
        )


def _require_valid(values: Vector, log: Ratings) -> None:
    invalid = ~((values >= SMALLEST) & (values <= 1))
    if invalid.any():
        row = int(invalid.argmax())
        raise BadPropensityError(
            f"{int(invalid.sum())} of {invalid.size} predicted propensities are outside (0, 1]; "
            f"the first is {values[row]} at {log.name_cell(row)}, which was observed.",
            where=log.name_cell(row),
            remedy="Smooth the model, or set a lower limit with ClippedPropensity(model, "
            "`min_propensity=...`).",
            shell_remedy="Use a model that gives every cell a positive propensity.",
        )
