"""Policies, and the probabilities with which they show the items that the log shows.

    TargetProbability(column)              a column of the log has the probabilities
    TargetRanking(position=column)         a ranking: where it places each shown item, or nowhere
    TargetRanking(scores=model)            a ranking of the candidates by score
    PlackettLuce(scores, temperature)      candidates drawn one after another by exp(score)
    IndependentSlots(scores, temperature)  each slot drawn on its own by exp(score)
    UniformSlate()                         candidates drawn with equal probabilities

A policy is bound to a log and its candidates; a :class:`BoundPolicy` then has the probabilities.
Arrays are slots x requests, with 1 where a request has no such slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.ids import format_id
from unskew.data.impressions import Impressions, ProbabilityKind
from unskew.errors import BadImpressionError, BadPropensityError, UsageError
from unskew.kernels.plackett_luce import find_marginals, find_steps
from unskew.policies.candidates import RequestCandidates, ScoresLike
from unskew.settings import Number, OneOf
from unskew.types import BoolVector, Matrix, Vector

KINDS: dict[ProbabilityKind, frozenset[str]] = {
    "step": frozenset({"slate", "step"}),
    "marginal": frozenset({"marginal"}),
    "slate": frozenset({"slate"}),
    "product": frozenset({"slate", "step", "marginal"}),
}
"""Which probabilities follow from a logged one."""


class BoundPolicy(ABC):
    """The probabilities that a policy gives to the shown items of a log."""

    provided: frozenset[str]
    """Which of slate, step, marginal and exposure can be computed."""
    is_product: bool = False
    """Whether slots are filled independently."""

    @abstractmethod
    def step(self) -> Matrix:
        """P(s_k given s_1, ..., s_k-1)."""

    @abstractmethod
    def marginal(self) -> Matrix:
        """P(the item at slot k is the shown one)."""

    @abstractmethod
    def exposure(self, curve: Vector) -> Matrix:
        """Sum over slots j of ``curve[j]`` P(the item shown at slot k is at slot j)."""

    def slate(self) -> Vector:
        """P(s), the product of the steps."""
        return np.asarray(self.step().prod(axis=0))

    def require_known(self, kinds: tuple[str, ...], estimator: str, policy: str) -> None:
        """Raise an error if the policy does not have the probabilities that an estimator needs."""
        missing = [kind for kind in kinds if kind in WORDS and kind not in self.provided]
        if missing:
            raise UsageError(
                f"{estimator!r} needs {WORDS[missing[0]]}, which the policy {policy!r} does not "
                "have.",
                parameter="estimators",
                value=estimator,
                remedy=self.explain_missing(missing[0]),
            )

    def explain_missing(self, kind: str) -> str:
        """How the caller can provide this kind of probability."""
        return (
            f"Use an estimator that reads {', '.join(sorted(self.provided)) or 'no probabilities'}."
        )


WORDS = {
    "slate": "the probability of each slate",
    "step": "the probability of each item given those above it ('step')",
    "marginal": "the probability of each item at its position over all slates ('marginal')",
    "exposure": "the probability of each shown item at every position",
}


@dataclass(frozen=True, eq=False)
class ColumnProbabilities(BoundPolicy):
    """Probabilities of one kind, from a column."""

    shown: Impressions
    values: Matrix
    """Slots x requests; 1 where a request has no such slot."""
    kind: ProbabilityKind

    @property
    def provided(self) -> frozenset[str]:  # type: ignore[override]
        if self.shown.n_slots == 1:
            return frozenset(WORDS)
        return KINDS[self.kind]

    @property
    def is_product(self) -> bool:  # type: ignore[override]
        return self.kind == "product" or self.shown.n_slots == 1

    def step(self) -> Matrix:
        return self.values

    def marginal(self) -> Matrix:
        return self.values

    def slate(self) -> Vector:
        return np.asarray(self.values[0]) if self.kind == "slate" else BoundPolicy.slate(self)

    def exposure(self, curve: Vector) -> Matrix:
        return np.asarray(self.values * curve[0])

    def explain_missing(self, kind: str) -> str:
        if kind == "exposure":
            return "Pass `logging=...`, a policy with scores, or use 'iips'."
        return (
            f"The column has {self.kind!r} probabilities: use estimators that read them, or pass a "
            "policy with scores (as `logging=...` for the log)."
        )


@dataclass(frozen=True, eq=False)
class UnloggedProbabilities(BoundPolicy):
    """A log without probabilities: each slate is taken as what its ranker always shows."""

    shown: Impressions
    provided = frozenset({"exposure"})

    def step(self) -> Matrix:
        raise NotImplementedError

    def marginal(self) -> Matrix:
        raise NotImplementedError

    def exposure(self, curve: Vector) -> Matrix:
        return np.repeat(curve[:, None], self.shown.n_requests, axis=1)

    def explain_missing(self, kind: str) -> str:
        return (
            "Name the column of logged probabilities when building Impressions, pass "
            "`logging=...`, or use 'pbm' with `examination=...`."
        )


@dataclass(frozen=True, eq=False)
class SortedProbabilities(BoundPolicy):
    """A ranking; items of one block are in random order.

    The item shown at a slot belongs to a block of ``size`` items after ``start`` better ones.
    """

    shown: Impressions
    start: npt.NDArray[np.int64]
    """Slots x requests; -1 if the ranking does not show the item."""
    size: npt.NDArray[np.int64]
    provided = frozenset(WORDS)

    @cached_property
    def _mask(self) -> BoolVector:
        return np.ascontiguousarray(self.shown.slots.T) >= 0

    def step(self) -> Matrix:
        steps = np.ones(self.start.shape)
        for slot, (start, size) in enumerate(zip(self.start, self.size, strict=True)):
            above = self.start[:slot]
            n_better = start - ((above >= 0) & (above < start)).sum(axis=0)
            n_equal = size - (above == start).sum(axis=0)
            is_next = (start >= 0) & (n_better == 0) & (n_equal > 0)
            steps[slot] = is_next / np.maximum(n_equal, 1)
        return np.where(self._mask, steps, 1.0)

    def marginal(self) -> Matrix:
        slot = np.arange(len(self.start))[:, None]
        is_inside = (self.start >= 0) & (self.start <= slot) & (slot < self.start + self.size)
        return np.where(self._mask, is_inside / self.size, 1.0)

    def exposure(self, curve: Vector) -> Matrix:
        total = np.concatenate([[0.0], np.cumsum(curve)])
        last = self.shown.slate_size[None, :]
        low, high = np.minimum(self.start, last), np.minimum(self.start + self.size, last)
        exposure = (total[np.maximum(high, 0)] - total[np.maximum(low, 0)]) / self.size
        return np.where(self._mask & (self.start >= 0), exposure, 0.0)


@dataclass(frozen=True, eq=False)
class PlackettLuceProbabilities(BoundPolicy):
    """Candidates drawn one after another, by exp(score) among those that are left."""

    shown: Impressions
    candidates: RequestCandidates
    log_rate: Vector
    """The score over the temperature of each candidate."""
    provided = frozenset(WORDS)

    @cached_property
    def _mask(self) -> BoolVector:
        return np.ascontiguousarray(self.shown.slots.T) >= 0

    def step(self) -> Matrix:
        return self._steps

    @cached_property
    def _steps(self) -> Matrix:
        chosen = self.candidates.shown
        steps = find_steps(self.log_rate, self.candidates.starts, chosen.T, self.candidates.group).T
        return np.where(self._mask & (chosen < 0), 0.0, steps)

    @cached_property
    def _marginals(self) -> Matrix:
        """Candidates x slots; groups with equal scores are computed once."""
        starts = self.candidates.starts
        table = np.zeros((self.log_rate.size, self.shown.n_slots))
        computed: dict[bytes, Matrix] = {}
        for first, last in pairwise(starts.tolist()):
            scores = self.log_rate[first:last]
            key = scores.tobytes()
            if last > first and key not in computed:
                computed[key] = find_marginals(scores, min(self.shown.n_slots, scores.size))
            if last > first:
                table[first:last, : computed[key].shape[1]] = computed[key]
        return table

    def marginal(self) -> Matrix:
        chosen = self.candidates.shown
        slot = np.broadcast_to(np.arange(len(chosen))[:, None], chosen.shape)
        values = np.where(chosen >= 0, self._marginals[chosen, slot], 0.0)
        return np.where(self._mask, values, 1.0)

    def exposure(self, curve: Vector) -> Matrix:
        chosen = self.candidates.shown
        up_to = np.cumsum(self._marginals * curve, axis=1)
        last = np.broadcast_to(self.shown.slate_size - 1, chosen.shape)
        return np.where(chosen >= 0, up_to[chosen, last], 0.0)


@dataclass(frozen=True, eq=False)
class UniformProbabilities(PlackettLuceProbabilities):
    """Candidates drawn one after another with equal probabilities: all rates are equal."""

    @property
    def n_candidates(self) -> Vector:
        """The number of candidates of each request."""
        return self.candidates.count.astype(np.float64)

    def marginal(self) -> Matrix:
        share = np.where(self.candidates.shown >= 0, 1.0 / self.n_candidates, 0.0)
        return np.where(self._mask, share, 1.0)

    def exposure(self, curve: Vector) -> Matrix:
        total = np.cumsum(curve)[self.shown.slate_size - 1] / self.n_candidates
        return np.where(self.candidates.shown >= 0, total, 0.0)


@dataclass(frozen=True, eq=False)
class IndependentProbabilities(BoundPolicy):
    """Each slot is drawn on its own, by exp(score) among all candidates."""

    shown: Impressions
    candidates: RequestCandidates
    log_rate: Vector
    provided = frozenset(WORDS)
    is_product = True

    @cached_property
    def _share(self) -> Matrix:
        """Slots x requests: the probability of the shown item in any slot."""
        sizes = np.diff(self.candidates.starts)
        group = np.repeat(np.arange(sizes.size), sizes)
        largest = np.full(sizes.size, -np.inf)
        np.maximum.at(largest, group, self.log_rate)
        rate = np.exp(self.log_rate - largest[group])
        return self.candidates.at_shown(rate / np.bincount(group, weights=rate)[group], 0.0)

    def step(self) -> Matrix:
        return np.where(np.ascontiguousarray(self.shown.slots.T) >= 0, self._share, 1.0)

    def marginal(self) -> Matrix:
        return self.step()

    def exposure(self, curve: Vector) -> Matrix:
        return self._share * np.cumsum(curve)[self.shown.slate_size - 1]


FindCandidates = Callable[[], RequestCandidates]
"""The candidates of each request, read when they are first needed."""


class Policy(ABC):
    """A way to choose what is shown; it can be a target, or describe how the log was made."""

    @abstractmethod
    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        """Its probabilities of the shown items; ``name`` is named in errors."""


def unknown_kind_error(name: str) -> UsageError:
    """The error for target probabilities of which nothing says what they are."""
    return UsageError(
        f"policy {name!r}: the log has no probabilities, so `probability_is` must say what these "
        "are the probability of.",
        parameter="probability_is",
        remedy="Pass TargetProbability(..., probability_is='step'), for example.",
    )


@dataclass(frozen=True, eq=False)
class TargetProbability(Policy):
    """A policy whose probabilities of the shown items are a column of the log, or an array.

    ``probability_is`` says what they are the probability of; by default the same as in the log.
    """

    probability: str | npt.ArrayLike
    probability_is: ProbabilityKind | None = None

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        kind = self.probability_is or shown.probability_is
        if kind is None:
            raise unknown_kind_error(name)
        OneOf(tuple(KINDS))("probability_is", kind)
        values = (
            shown.column(self.probability, "targets")
            if isinstance(self.probability, str)
            else float_array(self.probability, "target probabilities", BadPropensityError)
        )
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
        is_bad = ~((values >= 0) & (values <= 1))
    if is_bad.any():
        row = int(is_bad.argmax())
        raise BadPropensityError(
            f"policy {name!r}: {int(is_bad.sum())} of {is_bad.size} probabilities are missing or "
            f"outside [0, 1]; the first is {values[row]:g} at {shown.name_row(row)}.",
            parameter="targets",
            value=float(values[row]),
            where=shown.name_row(row),
            remedy="An item that the policy would not show has the probability 0.",
        )
    slots = np.ascontiguousarray(shown.slots.T)
    table = np.where(slots >= 0, values[slots], 1.0)
    if kind == "slate":
        _require_one_slate_probability(shown, table, name)
    return ColumnProbabilities(shown, table, kind)


def _require_one_slate_probability(shown: Impressions, table: Matrix, name: str) -> None:
    differs = (np.ascontiguousarray(shown.slots.T) >= 0) & (np.abs(table - table[0]) > 1e-9)
    if differs.any():
        request = int(differs.any(axis=0).argmax())
        raise BadPropensityError(
            f"policy {name!r}: the slots of {int(differs.any(axis=0).sum())} requests have "
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
        A column of the log, or an array: where the new ranking places each shown item. Null means
        that it does not show the item.
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
        if is_bad.any() or values.shape != (len(shown),):
            row = int(is_bad.argmax())
            raise BadImpressionError(
                f"policy {name!r}: target positions must be whole numbers from 1 on, or missing, "
                f"one for each impression; the first that is not is {values.flat[row]:g} at row "
                f"{row}.",
                parameter="position",
                where=f"row {row}",
                remedy="The top position is 1.",
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
                f"policy {name!r}: {int(is_shared.sum())} requests have two items at one target "
                f"position; the first is request {format_id(shown.requests[request])}.",
                parameter="position",
                where=f"request {format_id(shown.requests[request])}",
                remedy="Give each item of a request a position of its own, or none.",
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
class PlackettLuce(Policy):
    """Candidates drawn one after another, with probabilities in proportion to exp(score / T).

    ``scores`` are as in :class:`TargetRanking`. The lower the temperature T, the nearer is the
    policy to a ranking by score.
    """

    scores: ScoresLike
    temperature: float = 1.0

    def __post_init__(self) -> None:
        Number(above=0)("temperature", self.temperature)

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        log_rate = _find_log_rate(candidates(), self.scores, self.temperature, name)
        return PlackettLuceProbabilities(shown, candidates(), log_rate)


@dataclass(frozen=True, eq=False)
class IndependentSlots(Policy):
    """Each slot drawn on its own, with probabilities in proportion to exp(score / T).

    A slate can show an item more than once. ``scores`` are as in :class:`TargetRanking`.
    """

    scores: ScoresLike
    temperature: float = 1.0

    def __post_init__(self) -> None:
        Number(above=0)("temperature", self.temperature)

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        log_rate = _find_log_rate(candidates(), self.scores, self.temperature, name)
        return IndependentProbabilities(shown, candidates(), log_rate)


@dataclass(frozen=True, eq=False)
class UniformSlate(Policy):
    """Candidates drawn one after another with equal probabilities, without repeats."""

    def bind(self, shown: Impressions, candidates: FindCandidates, name: str) -> BoundPolicy:
        return UniformProbabilities(shown, candidates(), np.zeros(candidates().item.size))


def _find_log_rate(
    candidates: RequestCandidates, scores: ScoresLike, temperature: float, name: str
) -> Vector:
    log_rate = candidates.score(scores, name) / temperature
    if not np.isfinite(log_rate).all():
        raise UsageError(
            f"policy {name!r}: scores of a random policy must be finite.",
            parameter="targets",
            remedy="Leave out items that it never shows with `exclude` or `candidates`.",
        )
    return log_rate


def as_policy(target: object) -> Policy:
    """A policy; a column name is one of probabilities, and a model or callable ranks candidates."""
    if isinstance(target, Policy):
        return target
    if isinstance(target, str):
        return TargetProbability(target)
    return TargetRanking(scores=target)
