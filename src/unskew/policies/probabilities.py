"""The probabilities with which a policy shows the items that the log shows.

A policy of :mod:`unskew.policies.targets`, bound to a log and its candidates, is one of these.
Arrays are slots x requests, with 1 where a request has no such slot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from unskew.data.impressions import Impressions, ProbabilityKind
from unskew.errors import UsageError
from unskew.kernels.plackett_luce import find_marginals, find_steps
from unskew.policies.candidates import RequestCandidates
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

    def explain_missing_in_shell(self, kind: str) -> str | None:
        """The same on the command line; None if it is the same text."""
        return None

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
                shell_remedy=self.explain_missing_in_shell(missing[0]),
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
            return (
                "Pass `logging=...`, a policy with scores, or use an estimator that reads "
                f"{self.kind!r} probabilities."
            )
        return (
            f"The column has {self.kind!r} probabilities: use estimators that read them, or pass a "
            "policy with scores (as `logging=...` for the log)."
        )

    def explain_missing_in_shell(self, kind: str) -> str | None:
        return f"The column has {self.kind!r} probabilities: use estimators that read them."


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
class MixtureProbabilities(BoundPolicy):
    """One of several policies, drawn for each request with fixed probabilities."""

    parts: tuple[BoundPolicy, ...]
    shares: Vector
    """The probability of each part; they add up to 1."""

    @property
    def provided(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset.intersection(*(part.provided for part in self.parts))

    def _mix(self, values: Iterable[npt.NDArray[np.floating]]) -> Matrix:
        mixed: Matrix = np.tensordot(self.shares, np.array(list(values)), axes=1)
        return mixed

    def step(self) -> Matrix:
        """P(s_1, ..., s_k) over P(s_1, ..., s_k-1); 0 after a slot that no part fills so."""
        down_to = self._mix(np.cumprod(part.step(), axis=0) for part in self.parts)
        above = np.vstack([np.ones((1, down_to.shape[1])), down_to[:-1]])
        return np.divide(down_to, above, out=np.zeros_like(down_to), where=above > 0)

    def marginal(self) -> Matrix:
        return self._mix(part.marginal() for part in self.parts)

    def slate(self) -> Vector:
        return self._mix(part.slate() for part in self.parts)

    def exposure(self, curve: Vector) -> Matrix:
        return self._mix(part.exposure(curve) for part in self.parts)


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
