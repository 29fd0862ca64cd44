"""Policies: ways to choose what is shown, named by the caller.

    TargetProbability(column)              a column of the log has the probabilities
    TargetRanking(position=column)         a ranking: where it places each shown item, or nowhere
    TargetRanking(scores=model)            a ranking of the candidates by score
    PlackettLuce(scores, temperature)      candidates drawn one after another by exp(score)
    IndependentSlots(scores, temperature)  each slot drawn on its own by exp(score)
    UniformSlate()                         candidates drawn with equal probabilities
    PolicyMixture(policies, shares)        one of several, drawn for each request, as in an A/B test

A policy is bound to a log and its candidates; a
:class:`~unskew.policies.probabilities.BoundPolicy` then has the probabilities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array, require_rows
from unskew.data.ids import format_id
from unskew.data.impression_checks import PROBABILITY_KINDS
from unskew.data.impressions import Impressions, ProbabilityKind
from unskew.errors import BadImpressionError, BadPropensityError, UsageError
from unskew.policies.candidates import RequestCandidates, ScoresLike
from unskew.policies.probabilities import (
    KINDS,
    BoundPolicy,
    ColumnProbabilities,
    IndependentProbabilities,
    MixtureProbabilities,
    PlackettLuceProbabilities,
    SortedProbabilities,
    UniformProbabilities,
    UnloggedProbabilities,
)
from unskew.settings import Number, OneOf, describe
from unskew.tables import count_noun
from unskew.types import Matrix, Vector

SAME_SUM = 1e-6
"""The sum of shares may differ from 1 by this much."""
FindCandidates = Callable[[], RequestCandidates]
"""The candidates of each request, read when they are first needed."""


class Policy(ABC):
    """A way to choose what is shown; it can be a target, or describe how the log was made."""

    @abstractmethod
    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        """Its probabilities of the shown items; ``name`` is named in errors."""


def unknown_kind_error(name: str) -> UsageError:
    """The error if it is unknown what the probabilities of a target mean."""
    return UsageError(
        f"policy {name!r}: its probabilities can mean different things, and the log has none that "
        "say which.",
        parameter="probability_is",
        remedy=f"Use TargetProbability(..., probability_is=...). {PROBABILITY_KINDS}",
    )


@dataclass(frozen=True, eq=False)
class TargetProbability(Policy):
    """A policy whose probabilities of the shown items are a column of the log, or an array.

    ``probability_is`` says what they are the probability of; by default the same as in the log.
    """

    probability: str | npt.ArrayLike
    probability_is: ProbabilityKind | None = None

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        values = (
            shown.column(self.probability, "targets")
            if isinstance(self.probability, str)
            else float_array(self.probability, "target probabilities", BadPropensityError)
        )
        kind = shown.probability_is if self.probability_is is None else self.probability_is
        if kind is None:
            raise unknown_kind_error(name)
        OneOf(tuple(KINDS))("probability_is", kind)
        return _bind_column(shown, values, kind, name)


def bind_log(shown: Impressions) -> BoundPolicy:
    """The logging policy, as far as the log itself describes it."""
    if shown.probability is None or shown.probability_is is None:
        return UnloggedProbabilities(shown)
    if (shown.probability == 1.0).all():
        slot = np.arange(shown.n_slots)[:, None]
        start = np.broadcast_to(slot, (shown.n_slots, shown.n_requests))
        return SortedProbabilities(shown, start, np.ones_like(start))
    return _bind_column(shown, shown.probability, shown.probability_is, "logged")


def _bind_column(
    shown: Impressions, values: Vector, kind: ProbabilityKind, name: str
) -> ColumnProbabilities:
    if values.shape != (len(shown),):
        raise BadPropensityError(
            f"policy {name!r}: got probabilities of shape {values.shape} for {len(shown)} "
            "impressions.",
            parameter="targets",
            remedy="Pass one for each row of the log.",
        )
    with np.errstate(invalid="ignore"):
        is_valid = (values >= 0) & (values <= 1)
        are_places = bool((values > 1).any() and not (values % 1 > 0).any())
    require_rows(
        is_valid,
        values,
        "probabilities are missing or outside [0, 1]",
        shown.name_row,
        subject=f"policy {name!r}: ",
        parameter="targets",
        remedy="These look like positions of a new ranking: use TargetRanking(position=...)."
        if are_places
        else "An item that the policy would not show has the probability 0.",
        shell_remedy="These look like positions of a new ranking: use `ranking=...`."
        if are_places
        else None,
        error_type=BadPropensityError,
    )
    slots = np.ascontiguousarray(shown.slots.T)
    table = np.where(slots >= 0, values[slots], 1.0)
    if kind == "slate":
        _require_one_slate_probability(shown, table, name)
    return ColumnProbabilities(shown, table, kind)


def _require_one_slate_probability(shown: Impressions, table: Matrix, name: str) -> None:
    differs = (np.ascontiguousarray(shown.slots.T) >= 0) & (np.abs(table - table[0]) > 1e-9)
    if differs.any():
        is_wrong = differs.any(axis=0)
        request = int(is_wrong.argmax())
        raise BadPropensityError(
            f"policy {name!r}: in {count_noun(int(is_wrong.sum()), 'request')} the slots have "
            "different slate probabilities; the first is request "
            f"{format_id(shown.requests[request])}.",
            parameter="probability_is",
            where=f"request {format_id(shown.requests[request])}",
            remedy="All rows of a request have the probability of its slate; if yours do not, they "
            "are 'step' or 'marginal' probabilities.",
        )


@dataclass(frozen=True, eq=False)
class TargetRanking(Policy):
    """A deterministic policy: a new position of each shown item, or scores that sort candidates.

    Parameters
    ----------
    position
        A column of the log, or an array: the place of each shown item in the new ranking of all
        candidates of its request, not of the shown ones alone. Null means that it does not show
        the item.
    scores
        In place of positions: a fitted model of any known library, a callable that gets user ids
        and item ids, or a column of ``candidates``; higher is better.
    ties
        What to do about equal scores among the first candidates: ``"raise"`` an error, or put them
        in ``"random"`` order.
    """

    position: str | npt.ArrayLike | None = None
    scores: ScoresLike | None = None
    ties: Literal["raise", "random"] = "raise"

    def __post_init__(self) -> None:
        OneOf(("raise", "random"))("ties", self.ties)
        if (self.position is None) == (self.scores is None):
            raise UsageError(
                "a TargetRanking has either `position` or `scores`.",
                parameter="position",
                remedy="Pass one of them.",
            )

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        if self.scores is not None:
            return self._sort(shown, candidates(), name)
        positions: npt.ArrayLike = np.nan if self.position is None else self.position
        values = (
            shown.column(positions, "targets")
            if isinstance(positions, str)
            else float_array(positions, "target positions", BadImpressionError)
        )
        target = np.where(np.isnan(values), 0.0, values)
        is_bad = (target < 0) | (target != np.floor(target)) | (values == 0)
        if values.shape != (len(shown),):
            raise BadImpressionError(
                f"policy {name!r}: got target positions of shape {values.shape} for {len(shown)} "
                "impressions.",
                parameter="position",
                remedy="Pass one for each row of the log.",
            )
        if is_bad.any():
            row = int(is_bad.argmax())
            raise BadImpressionError(
                f"policy {name!r}: target positions must be whole numbers from 1 on, or missing, "
                f"one for each impression; the first that is not is {values.flat[row]:g} at row "
                f"{row}.",
                parameter="position",
                where=f"row {row}",
                remedy="Count from 1 at the top, over all candidates of the request. An item that "
                "the policy does not show is missing (null or NaN).",
            )
        slots = np.ascontiguousarray(shown.slots.T)
        start = np.where(slots >= 0, target[slots] - 1, -1).astype(np.int64)
        self._require_distinct(shown, start, name)
        return SortedProbabilities(shown, start, np.ones_like(start))

    @staticmethod
    def _require_distinct(shown: Impressions, start: npt.NDArray[np.int64], name: str) -> None:
        in_order = np.sort(start, axis=0)
        is_shared = ((in_order[1:] == in_order[:-1]) & (in_order[1:] >= 0)).any(axis=0)
        if is_shared.any():
            request = int(is_shared.argmax())
            raise BadImpressionError(
                f"policy {name!r} puts two items at one position in "
                f"{count_noun(int(is_shared.sum()), 'request')}; the first is request "
                f"{format_id(shown.requests[request])}.",
                parameter="position",
                where=f"request {format_id(shown.requests[request])}",
                remedy="Rank all candidates of a request 1, 2, ..., and keep the places of the "
                "shown ones.",
            )

    def _sort(self, shown: Impressions, candidates: RequestCandidates, name: str) -> BoundPolicy:
        score = candidates.score(self.scores, name)
        starts = candidates.starts
        group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        order = np.lexsort((-score, group))
        is_first = np.ones(order.size, dtype=bool)
        is_first[1:] = (score[order][1:] != score[order][:-1]) | (group[1:] != group[:-1])
        block = np.cumsum(is_first) - 1
        first = np.flatnonzero(is_first)
        n_better = np.empty(order.size, dtype=np.int64)
        n_better[order] = (first - starts[group[first]])[block]
        size = np.empty(order.size, dtype=np.int64)
        size[order] = np.diff(np.append(first, order.size))[block]
        if self.ties == "raise":
            self._require_no_ties(shown, candidates, n_better, size, name)
        return SortedProbabilities(
            shown, candidates.at_shown(n_better, -1), candidates.at_shown(size, 1)
        )

    @staticmethod
    def _require_no_ties(
        shown: Impressions,
        candidates: RequestCandidates,
        n_better: npt.NDArray[np.int64],
        size: npt.NDArray[np.int64],
        name: str,
    ) -> None:
        is_tied = (size > 1) & (n_better < shown.n_slots)
        if is_tied.any():
            row = int(is_tied.argmax())
            user = candidates.users[candidates.user[row]]
            raise UsageError(
                f"policy {name!r}: {int(is_tied.sum())} candidates have the same score as another "
                f"among the first {shown.n_slots}; the first is item "
                f"{format_id(candidates.items[candidates.item[row]])} of user {format_id(user)}.",
                parameter="ties",
                where=f"user {format_id(user)}",
                remedy="Break the ties in the scores, or pass TargetRanking(scores=..., "
                "ties='random').",
            )


@dataclass(frozen=True, eq=False)
class _ScorePolicy(Policy):
    """A random policy with rates exp(score / T)."""

    scores: ScoresLike
    temperature: float = 1.0

    _probabilities: ClassVar[type[PlackettLuceProbabilities | IndependentProbabilities]]

    def __post_init__(self) -> None:
        Number(above=0)("temperature", self.temperature)

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        log_rate = candidates().score(self.scores, name) / self.temperature
        if not np.isfinite(log_rate).all():
            raise UsageError(
                f"policy {name!r}: scores of a random policy must be finite.",
                parameter="targets",
                remedy="Leave out items that it never shows with `exclude` or `candidates`.",
            )
        return self._probabilities(shown, candidates(), log_rate)


@dataclass(frozen=True, eq=False)
class PlackettLuce(_ScorePolicy):
    """Candidates drawn one after another, with probabilities in proportion to exp(score / T).

    ``scores`` are as in :class:`TargetRanking`. The lower the temperature T, the nearer is the
    policy to a ranking by score.
    """

    _probabilities = PlackettLuceProbabilities


@dataclass(frozen=True, eq=False)
class IndependentSlots(_ScorePolicy):
    """Each slot drawn on its own, with probabilities in proportion to exp(score / T).

    A slate can show an item more than once. ``scores`` are as in :class:`TargetRanking`.
    """

    _probabilities = IndependentProbabilities


@dataclass(frozen=True, eq=False)
class UniformSlate(Policy):
    """Candidates drawn one after another with equal probabilities, without repeats."""

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        return UniformProbabilities(shown, candidates(), np.zeros(candidates().item.size))


@dataclass(frozen=True, eq=False)
class PolicyMixture(Policy):
    """One of several policies, drawn at random for each request, as in an A/B test.

    As ``logging``, it says how such a log was made, so that probabilities follow for any item that
    one of the policies shows. It does not have to be known which policy served which request.

    Parameters
    ----------
    policies
        The policies, such as a :class:`TargetRanking` for each arm.
    shares
        The probability of each policy; by default they are equal.
    """

    policies: Sequence[Policy]
    shares: npt.ArrayLike | None = None

    def __post_init__(self) -> None:
        policies = self.policies
        is_list = isinstance(policies, list | tuple) and len(policies) > 0
        if not is_list or not all(isinstance(each, Policy) for each in policies):
            raise UsageError(
                f"`policies` must be a list of policies; got {describe(policies)}.",
                parameter="policies",
                remedy="Pass one for each arm, such as TargetRanking(position='place_in_arm_a').",
            )
        shares = self._find_shares()
        if (
            shares.shape != (len(policies),)
            or not (shares > 0).all()
            or abs(shares.sum() - 1) > SAME_SUM
        ):
            raise UsageError(
                f"`shares` must have a number above 0 for each of {len(policies)} policies, with "
                f"the sum 1; got {describe(self.shares)}.",
                parameter="shares",
                value=self.shares,
            )

    def _find_shares(self) -> Vector:
        if self.shares is None:
            return np.full(len(self.policies), 1 / len(self.policies))
        return float_array(self.shares, "shares")

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        parts = tuple(each.bind(shown, candidates, name) for each in self.policies)
        return MixtureProbabilities(parts, self._find_shares())


def as_policy(target: object) -> Policy:
    """A policy: a column name or an array has probabilities, a model or callable ranks items."""
    if isinstance(target, Policy):
        return target
    if isinstance(target, str | list | tuple) or hasattr(target, "__array__"):
        return TargetProbability(target)
    return TargetRanking(scores=target)
