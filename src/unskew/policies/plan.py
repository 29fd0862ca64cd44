"""How a log of impressions, or its parts one by one, becomes the sums of a result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from unskew.data.checks import float_array
from unskew.data.ids import Ids, format_id
from unskew.data.impression_checks import find_gaps
from unskew.data.impressions import Impressions, ProbabilityKind
from unskew.data.probability_kind import KindCheck, find_kind_terms
from unskew.data.ratings import Ratings
from unskew.data.weights import WeightTransform
from unskew.errors import BadImpressionError, EmptyLogError, UsageError
from unskew.policies import POLICY_ESTIMATORS
from unskew.policies.candidates import RequestCandidates, read_request_candidates
from unskew.policies.checks import (
    WEIGHT_KINDS,
    combine_summaries,
    describe_reordered,
    list_weight_terms,
    make_checks,
    summarize_weights,
)
from unskew.policies.columns import ArrayColumns
from unskew.policies.curve_uncertainty import CurveUncertainty, shift_curve
from unskew.policies.position_bias import ExaminationCurve
from unskew.policies.probabilities import WORDS, BoundPolicy, UnloggedProbabilities
from unskew.policies.result import LOGGED, PolicyEvaluation
from unskew.policies.targets import Policy, PolicyMixture, TargetRanking, bind_log
from unskew.policies.terms import Term, TermSums
from unskew.settings import Number, OneOf, describe
from unskew.tables import count_noun
from unskew.types import IntVector, Vector

PolicyCluster: TypeAlias = Literal["user", "request"]
SlotWorth: TypeAlias = Literal["sum", "dcg"] | npt.ArrayLike
Regression: TypeAlias = tuple[str, str] | Mapping[str, tuple[str, str]]
NEEDS_ALL_SLOTS = frozenset({"slate", "step"})
"""Weights that are products over the slots above."""
NEEDS_PROBABILITY = frozenset({"slate", "step", "marginal", "additive"})
"""Weights that are computed from logged probabilities, whose kind matters."""
NO_PROBABILITIES = (
    "the log has no probabilities: each request is taken as what its ranking always shows"
)
SAME_PROBABILITY = 1e-6
"""The probabilities of ``logging`` may differ from logged ones by this much."""


@dataclass(frozen=True, eq=False)
class PolicySums:
    """All sums that a result is made of; those of the parts of a log can be combined."""

    estimators: Mapping[str, TermSums]
    checks: TermSums
    weights: Mapping[str, Vector]
    n_requests: int
    n_impressions: int
    n_slots: int
    has_binary_rewards: bool
    rewards: tuple[float, float]
    """The smallest and the largest."""
    notes: tuple[str, ...] = ()
    shifted: Mapping[str, tuple[TermSums, ...]] = field(default_factory=dict)
    """By estimator: its sums after each shift of a fitted examination curve."""
    kind: TermSums | None = None
    """The means of a :class:`KindCheck`; None if nothing can be checked."""
    stated_kind: ProbabilityKind | None = None

    @classmethod
    def combine(cls, parts: Sequence[PolicySums]) -> PolicySums:
        """The sums of all parts of a log together."""
        return cls(
            {
                name: TermSums.combine([part.estimators[name] for part in parts])
                for name in parts[0].estimators
            },
            TermSums.combine([part.checks for part in parts]),
            combine_summaries([part.weights for part in parts]),
            sum(part.n_requests for part in parts),
            sum(part.n_impressions for part in parts),
            max(part.n_slots for part in parts),
            all(part.has_binary_rewards for part in parts),
            (min(part.rewards[0] for part in parts), max(part.rewards[1] for part in parts)),
            tuple(dict.fromkeys(note for part in parts for note in part.notes)),
            {
                name: tuple(
                    map(TermSums.combine, zip(*(part.shifted[name] for part in parts), strict=True))
                )
                for name in parts[0].shifted
            },
            TermSums.combine(kinds) if (kinds := [p.kind for p in parts if p.kind]) else None,
            parts[0].stated_kind,
        )


def list_estimators(estimators: Sequence[str]) -> tuple[str, ...]:
    """The names as a tuple; a single name is a list of one."""
    return (estimators,) if isinstance(estimators, str) else tuple(estimators)


@dataclass(frozen=True, eq=False)
class PolicyPlan:
    """The arguments of :func:`unskew.evaluate_policies`, checked, for any number of logs."""

    targets: Mapping[str, Policy]
    estimators: tuple[str, ...] | None = None
    candidates: object = None
    exclude: Ratings | None = None
    logging: Policy | None = None
    examination: Vector | None = None
    regression: Regression | None = None
    slot_worth: SlotWorth = "sum"
    cluster: PolicyCluster = "user"
    level: float = 0.95
    transform: WeightTransform | None = None
    curve: ExaminationCurve | None = None
    """Where ``examination`` comes from, if it was estimated; its error enters the intervals."""

    def __post_init__(self) -> None:
        OneOf(("user", "request"))("cluster", self.cluster)
        Number(above=0, below=1)("level", self.level)
        for name in self.estimators or ():
            POLICY_ESTIMATORS.find(name)
        if self.estimators is not None and not self.estimators:
            raise UsageError(
                "`estimators` is empty: there is nothing to estimate.",
                parameter="estimators",
                remedy="Name at least one, such as 'snips', or leave `estimators` out.",
            )

    def evaluate(self, parts: Iterable[Impressions]) -> PolicyEvaluation:
        """The result of a log that comes in parts of whole requests."""
        plan, sums, backend = self, [], None
        columns: Mapping[str, ArrayColumns] = {}
        part = None
        for part in refuse_split_requests(parts):
            if plan.estimators is None:
                plan = replace(plan, estimators=plan.choose_estimators(part))
            columns = plan.bind(part)
            sums.append(plan.add_up(part, columns))
            backend = part.backend
        if not sums:
            raise EmptyLogError("the log has no impressions.", remedy="Check its filter or file.")
        is_whole = len(sums) == 1
        error = plan.find_curve_uncertainty(part if is_whole else None)
        result = plan.finish(PolicySums.combine(sums), backend, error)
        return replace(result, inputs=columns) if is_whole else result

    def find_curve_uncertainty(self, shown: Impressions | None) -> CurveUncertainty | None:
        """The error of a fitted examination curve; ``shown`` is the log, if it is in one part."""
        if self.curve is None or shown is None:
            return None if self.curve is None else CurveUncertainty(self.curve)
        cluster, clusters = self._find_clusters(shown)
        return CurveUncertainty.of(self.curve, shown, cluster[shown.request], len(clusters))

    def choose_estimators(self, shown: Impressions) -> tuple[str, ...]:
        """Plain and self-normalised estimators for which the log has the probabilities."""
        provided = bind_log(shown).provided if self.logging is None else frozenset(WORDS)
        return choose_estimators(provided, shown.n_slots, has_curve=self.examination is not None)

    def bind(self, shown: Impressions) -> dict[str, ArrayColumns]:
        """The columns of each target, computed when they are read."""
        find_logged = CandidateReader(shown, self.candidates, None)
        find_target = find_logged
        if self.exclude is not None:
            find_target = CandidateReader(shown, self.candidates, self.exclude)
        logging = bind_log(shown)
        if self.logging is not None:
            logging = self.logging.bind(shown, find_logged, LOGGED)
            _require_possible(shown, logging, is_mixture=isinstance(self.logging, PolicyMixture))
            _require_same_probability(shown, logging)
        worth = read_worth(self.slot_worth, shown.n_slots)
        curve = None
        if self.examination is not None:
            curve = require_slots(self.examination, shown.n_slots, "examination")
        return {
            name: ArrayColumns(
                shown,
                logging,
                target.bind(shown, find_target, name),
                worth,
                curve,
                self._find_regression(shown, name),
                self.transform,
            )
            for name, target in self.targets.items()
        }

    def _find_regression(self, shown: Impressions, target: str) -> tuple[Vector, Vector] | None:
        names, n_targets = self.regression, len(self.targets)
        if isinstance(names, Mapping):
            names, n_targets = names.get(target), 1
        if names is None:
            return None
        require_pair(names, n_targets=n_targets)
        prediction, mean = (shown.column(name, "regression") for name in names)
        for name, values in zip(names, (prediction, mean), strict=True):
            if not np.isfinite(values).all():
                row = int((~np.isfinite(values)).argmax())
                raise BadImpressionError(
                    f"column {name!r} of the regression is missing at {shown.name_row(row)}.",
                    parameter="regression",
                    where=shown.name_row(row),
                    remedy="Predict every shown item.",
                )
        return prediction, mean

    def add_up(self, shown: Impressions, columns: Mapping[str, ArrayColumns]) -> PolicySums:
        """The sums of all estimators and checks over the requests of a log."""
        assert self.estimators is not None
        self._require_needs(shown, columns)
        user, users = self._find_clusters(shown)
        logged = [Term(next(iter(columns.values())).reward.sum(axis=0))]
        by_estimator, shifted = {}, {}
        for name in self.estimators:
            terms = POLICY_ESTIMATORS.find(name).target
            quantities = {target: terms(each) for target, each in columns.items()}
            by_estimator[name] = TermSums.of(quantities | {LOGGED: logged}, user, users)
            if self.curve is not None and "exposure" in self._needs(name):
                shifted[name] = tuple(shift_curve(self.curve, terms, columns, logged))
        check_terms: dict[str, list[Term]] = {}
        weights: dict[str, Vector] = {}
        for target, each in columns.items():
            plain = each if each.transform is None else replace(each, transform=None)
            provided = plain.logging.provided & plain.target.provided
            kinds = self.weight_kinds(provided, shown.n_slots)
            for name, term, weight in list_weight_terms(target, plain, kinds):
                check_terms[name], weights[name] = [term], weight
        return PolicySums(
            estimators=by_estimator,
            checks=TermSums.of(check_terms, user, users),
            weights=summarize_weights(weights),
            n_requests=shown.n_requests,
            n_impressions=len(shown),
            n_slots=shown.n_slots,
            has_binary_rewards=bool(np.isin(shown.reward, (0.0, 1.0)).all()),
            rewards=(float(shown.reward.min()), float(shown.reward.max())),
            notes=self._list_notes(columns),
            shifted=shifted,
            kind=self._add_up_kind(shown, user, users),
            stated_kind=shown.probability_is,
        )

    def _add_up_kind(
        self, shown: Impressions, cluster: IntVector, clusters: Ids
    ) -> TermSums | None:
        """The sums that say what kind of probability is logged, if estimators read them."""
        terms = find_kind_terms(shown) if self.logging is None else None
        needed = {kind for name in self.estimators or () for kind in self._needs(name)}
        if terms is None or not NEEDS_PROBABILITY & needed:
            return None
        by_name = {name: [Term(values)] for name, values in terms.items()}
        return TermSums.of(by_name, cluster, clusters)

    def _find_clusters(self, shown: Impressions) -> tuple[IntVector, Ids]:
        """The cluster of each request, as a code, and the ids of all clusters."""
        if self.cluster == "request":
            return np.arange(shown.n_requests, dtype=np.int32), shown.requests
        return shown.user_of_request, shown.users

    def _needs(self, estimator: str) -> tuple[str, ...]:
        needs: tuple[str, ...] = POLICY_ESTIMATORS.find(estimator).traits["needs"]
        return needs

    def weight_kinds(self, provided: frozenset[str], n_slots: int) -> tuple[str, ...]:
        """The kinds of weights that are checked: those that the estimators read.

        Weights of slates are products of those of steps, whose means show more of what is wrong.
        ``provided`` are the kinds that both policies have.
        """
        needed = {kind for name in self.estimators or () for kind in self._needs(name)}
        if "slate" in needed and "step" in provided and n_slots > 1:
            needed.add("step")
        return tuple(kind for kind in WEIGHT_KINDS if kind in needed)

    def _require_needs(self, shown: Impressions, columns: Mapping[str, ArrayColumns]) -> None:
        """Raise an error if the log or a target does not have what an estimator reads."""
        for name in self.estimators or ():
            needs = self._needs(name)
            for target, each in columns.items():
                each.logging.require_known(needs, name, LOGGED)
                each.target.require_known(needs, name, target)
            if NEEDS_ALL_SLOTS & set(needs) and find_gaps(shown).any():
                request = shown.requests[int(find_gaps(shown).argmax())]
                raise BadImpressionError(
                    f"{name!r} needs every slot above a shown item, but positions are missing in "
                    f"{count_noun(int(find_gaps(shown).sum()), 'request')}; the first is request "
                    f"{format_id(request)}.",
                    parameter="position",
                    where=f"request {format_id(request)}",
                    remedy="Keep all shown items of a request, also those without a click, or use "
                    "'iips' or 'pbm'.",
                )

    def _list_notes(self, columns: Mapping[str, ArrayColumns]) -> tuple[str, ...]:
        notes = []
        for each in columns.values():
            if isinstance(each.logging, UnloggedProbabilities):
                notes.append(NO_PROBABILITIES)
            for policy in (each.logging, each.target):
                candidates = getattr(policy, "candidates", None)
                if candidates is not None and candidates.note:
                    notes.append(candidates.note)
        return tuple(dict.fromkeys((*notes, *self.describe_assumptions())))

    def describe_assumptions(self) -> Iterator[str]:
        """What the settings take for granted, in words."""
        if self.transform is not None:
            yield f"weights were changed by {self.transform!r}, which adds bias"
        if self.examination is not None and self.curve is None:
            yield "the examination curve is taken as known"
        if "dm" in (self.estimators or ()):
            yield "'dm' is as good as its regression, whose error is not in its interval"

    def finish(
        self,
        sums: PolicySums,
        backend: str | None,
        curve_uncertainty: CurveUncertainty | None = None,
    ) -> PolicyEvaluation:
        """The result computed from the sums over a whole log.

        ``curve_uncertainty`` adds the error of an estimated examination curve to the intervals of
        the estimators that use it.
        """
        assert self.estimators is not None
        notes, bounds = sums.notes, None
        if curve_uncertainty is not None and sums.shifted:
            notes = (*notes, curve_uncertainty.describe(tuple(sums.shifted)))
        if sums.has_binary_rewards:
            bounds = (0.0, float(read_worth(self.slot_worth, sums.n_slots).sum()))
        estimates: dict[str, Any] = {}
        for name, each in sums.estimators.items():
            usable = each.list_usable()
            kept = each.take(usable)
            shifted = [every.take(usable) for every in sums.shifted.get(name, ())]
            if curve_uncertainty is None or not shifted:
                estimates[name] = usable, kept.estimate(bounds=bounds)
            else:
                estimates[name] = usable, curve_uncertainty.estimate(kept, shifted, bounds=bounds)
        checks = make_checks(sums.checks, sums.weights)
        if self.logging is None and sums.n_slots > 1:
            placed = [
                name
                for name, target in self.targets.items()
                if isinstance(target, TargetRanking) and target.position is not None
            ]
            notes = (*notes, *describe_reordered(checks, placed))
        kind_check = _find_kind_check(sums)
        if kind_check is not None and kind_check.is_open:
            notes = (*notes, kind_check.describe_open())
        return PolicyEvaluation(
            policies=tuple(self.targets),
            estimators=self.estimators,
            estimates={name: estimate for name, (_, estimate) in estimates.items()},
            estimated={name: names for name, (names, _) in estimates.items()},
            level=self.level,
            cluster=self.cluster,
            n_requests=sums.n_requests,
            n_impressions=sums.n_impressions,
            n_slots=sums.n_slots,
            checks=checks,
            kind_check=kind_check,
            rewards=sums.rewards,
            incomplete=tuple(
                name
                for name in self.estimators
                if name == "dm"
                or (curve_uncertainty is None and "exposure" in self._needs(name))
                or (self.transform is not None and f"sn{name}" in POLICY_ESTIMATORS)
            ),
            notes=notes,
            is_logging_stated=self.logging is not None,
            backend=backend,
        )


def _find_kind_check(sums: PolicySums) -> KindCheck | None:
    if sums.kind is None or sums.stated_kind is None:
        return None
    estimate = sums.kind.estimate()
    numbers = [
        float(number)
        for index in range(2)
        for number in (estimate.value[index], estimate.plain_std_error(index))
    ]
    return KindCheck(sums.stated_kind, *numbers)


def choose_estimators(
    provided: frozenset[str], n_slots: int, *, has_curve: bool
) -> tuple[str, ...]:
    """Plain and self-normalised estimators that read the provided kinds of probabilities."""
    names: dict[str, tuple[str, ...]] = {"slate": ("ips", "snips")}
    if n_slots > 1:
        names |= {"step": ("rips", "snrips"), "marginal": ("iips", "sniips")}
    if n_slots > 1 and has_curve:
        names["exposure"] = ("pbm",)
    chosen = tuple(name for kind in names if kind in provided for name in names[kind])
    if not chosen:
        raise UsageError(
            "the log has no probabilities, and `examination` is not given: no estimator of "
            "another policy can be computed.",
            parameter="estimators",
            remedy="Name the column of logged probabilities with `probability=...`; or say how the "
            "log was made, with `logging=...`; or pass `examination=...` for 'pbm'.",
            shell_remedy="Name the column of logged probabilities with `probability=...`; if LOG "
            "is from an A/B test of rankings, the positions of each with `arm=...`; if it was "
            "drawn uniformly, pass `logging='uniform'`; or pass `examination=...` for 'pbm'.",
        )
    return chosen


@dataclass(eq=False)
class CandidateReader:
    """Reads the candidates of a log when they are first needed, and keeps them."""

    shown: Impressions
    candidates: object
    exclude: Ratings | None
    read: RequestCandidates | None = None

    def __call__(self) -> RequestCandidates:
        if self.read is None:
            self.read = read_request_candidates(self.shown, self.candidates, self.exclude)
        return self.read


def refuse_split_requests(parts: Iterable[Impressions]) -> Iterable[Impressions]:
    """The parts of a log; an error if a request of an earlier part comes again."""
    earlier: set[object] = set()
    for part in parts:
        requests = part.requests.tolist()
        if again := earlier.intersection(requests):
            request = format_id(next(iter(again)))
            raise BadImpressionError(
                f"parts of the log share {count_noun(len(again), 'request')}; one is {request}.",
                parameter="request",
                where=f"request {request}",
                remedy="Sort the log by request, so that each part has whole requests.",
            )
        yield part
        earlier.update(requests)


def read_worth(slot_worth: SlotWorth, n_slots: int) -> Vector:
    """How much a reward counts at each position."""
    if isinstance(slot_worth, str):
        OneOf(("sum", "dcg"))("slot_worth", slot_worth)
        ones: Vector = np.ones(n_slots)
        return ones if slot_worth == "sum" else 1.0 / np.log2(np.arange(2.0, n_slots + 2))
    return require_slots(float_array(slot_worth, "slot_worth"), n_slots, "slot_worth")


def require_slots(values: Vector, n_slots: int, name: str) -> Vector:
    """The first numbers, one for each slot; an error if there are too few."""
    if values.ndim != 1 or values.size < n_slots:
        raise UsageError(
            f"`{name}` must have a number for each of {n_slots} positions; got shape "
            f"{values.shape}.",
            parameter=name,
            value=values.shape,
        )
    is_bad = ~np.isfinite(values[:n_slots])
    if is_bad.any():
        first = int(is_bad.argmax())
        raise UsageError(
            f"`{name}` is {values[first]} at position {first + 1}; it must be finite.",
            parameter=name,
            value=float(values[first]),
        )
    return values[:n_slots]


def _require_possible(shown: Impressions, logging: BoundPolicy, *, is_mixture: bool) -> None:
    """Raise an error if the stated logging policy could not have shown a shown item."""
    is_impossible = (logging.marginal() <= 0) | ((logging.step() <= 0) & ~find_gaps(shown))
    if is_impossible.any():
        slot, request = (int(each[0]) for each in np.nonzero(is_impossible))
        where = shown.name_row(int(shown.slots[request, slot]))
        n_items = int(is_impossible.sum())
        problem = f"`logging` gives the probability 0 to {n_items:,} shown items"
        remedy = "Every shown item must be among the `candidates` of its request."
        if is_mixture:
            problem = f"no policy of the mixture would show {n_items:,} shown items where they are"
            remedy = "Name all policies that made the log, and check their positions or scores."
        raise BadImpressionError(
            f"{problem}; the first is {where}.",
            parameter="logging",
            where=where,
            remedy=remedy,
        )


def _require_same_probability(shown: Impressions, logging: BoundPolicy) -> None:
    """Raise an error if the log has probabilities that the stated logging policy does not have."""
    if shown.probability is None or shown.probability_is is None:
        return
    kind = "marginal" if shown.probability_is == "marginal" else "step"
    logged = bind_log(shown)
    if shown.probability_is == "slate":
        differs = np.abs(logging.slate() - logged.slate()) > SAME_PROBABILITY * logged.slate()
    else:
        stated, values = getattr(logging, kind)(), getattr(logged, kind)()
        differs = (np.abs(stated - values) > SAME_PROBABILITY * values).any(axis=0)
    if differs.any():
        request = format_id(shown.requests[int(differs.argmax())])
        raise UsageError(
            f"{int(differs.sum())} of {shown.n_requests} requests were logged with other "
            f"{shown.probability_is} probabilities than the policy `logging` has; the first is "
            f"request {request}.",
            parameter="logging",
            where=f"request {request}",
            remedy="Check the scores, the temperature and the candidates of `logging`, and whether "
            f"the log has {shown.probability_is} probabilities (`probability_is`).",
        )


def require_pair(columns: object, *, n_targets: int = 1) -> tuple[str, str]:
    """The names of the columns of q and v; an error if several targets would share them."""
    if not isinstance(columns, list | tuple) or len(columns) != 2:
        raise UsageError(
            f"`regression` must name two columns, q and v; got {describe(columns)}.",
            parameter="regression",
            value=columns,
            remedy="Pass a pair such as ('q', 'v'), or a mapping from each target to its pair.",
        )
    if n_targets > 1:
        raise UsageError(
            f"`regression` names one pair of columns for {n_targets} policies, but v, the mean "
            "of q under a policy, differs from policy to policy.",
            parameter="regression",
            value=columns,
            remedy="Pass a mapping from each target to its columns, such as "
            "{'new': ('q', 'v_new')}.",
        )
    return columns[0], columns[1]
