"""Evaluate policies on a log of shown items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unskew.data.impressions import Impressions, read_examination
from unskew.data.ratings import Ratings
from unskew.data.weights import WeightTransform
from unskew.errors import UsageError
from unskew.policies.curve_uncertainty import find_curve
from unskew.policies.plan import (
    PolicyCluster,
    PolicyPlan,
    Regression,
    SlotWorth,
    list_estimators,
)
from unskew.policies.result import LOGGED, PolicyEvaluation
from unskew.policies.targets import Policy, as_policy
from unskew.settings import Instance, describe, require_list


def evaluate_policies(
    shown: Impressions,
    targets: Mapping[str, Policy | object],
    *,
    estimators: Sequence[str] | None = None,
    candidates: object = None,
    exclude: Ratings | None = None,
    logging: Policy | None = None,
    examination: object = None,
    regression: Regression | None = None,
    slot_worth: SlotWorth = "sum",
    cluster: PolicyCluster = "user",
    level: float = 0.95,
    transform: WeightTransform | None = None,
) -> PolicyEvaluation:
    """Estimate what other policies would earn in a request, from a log of shown items.

    Parameters
    ----------
    shown
        The log, with the probabilities of the logging policy.
    targets
        Policies by name: a :class:`~unskew.policies.TargetProbability`,
        :class:`~unskew.policies.TargetRanking` or :class:`~unskew.policies.PlackettLuce`. The name
        of a column, or an array with a value for each row, stands for probabilities of the kind
        that the log has; a fitted model of any known library, or a callable that gets user ids and
        item ids, ranks the candidates of each request.
    estimators
        Names such as ``"ips"``, ``"snips"``, ``"rips"``, ``"snrips"``, ``"iips"``, ``"sniips"``,
        ``"pbm"``, ``"pi"``, ``"dm"``, ``"dr"``, ``"iips-dr"`` and ``"cascade-dr"``; by default
        those that the logged probabilities allow. ``unskew.policies.POLICY_ESTIMATORS`` says under
        which condition each is unbiased.
    candidates
        For policies with scores: what each request could show. A frame of requests and items, or of
        users and items, with columns of scores if policies name them; a list of item ids; or None
        for all items of the log.
    exclude
        A log of ratings: items that a user has in it are no candidates of the user.
    logging
        The policy that made the log, if it is known by its scores or is
        :class:`~unskew.policies.UniformSlate`. All kinds of probabilities then follow.
    examination
        For ``"pbm"``: the examination of each position, which is then taken as known, or a fitted
        ``PositionBias``, whose error enters the intervals.
    regression
        For ``"dm"``, ``"dr"``, ``"iips-dr"`` and ``"cascade-dr"``: the columns of the log with the
        predicted reward q of each shown item and its mean v under the target policy; for several
        targets, a pair by name.
    slot_worth
        How much a reward counts at each position: ``"sum"``, ``"dcg"`` (1 / log2(position + 1)), or
        a number for each position.
    cluster
        What is independent: ``"user"`` or ``"request"``.
    level
        Of the confidence intervals.
    transform
        Changes the weights, such as ``unskew.estimators.Clip(20)``; this adds bias.

    Examples
    --------
    >>> import unskew
    >>> world = unskew.simulate_impressions(500, n_slots=2, random_state=2)
    >>> result = evaluate_policies(world.log, {"new": world.target}, estimators=["rips"])
    >>> result.compare("new", "logged").better
    'new'
    """
    if not isinstance(shown, Impressions):
        raise UsageError(
            f"the log must be unskew.Impressions, not {type(shown).__name__}.",
            parameter="shown",
            remedy="Build one with Impressions.from_frame(frame, ...).",
        )
    require_list("estimators", estimators, of="names")
    Instance(
        Policy,
        remedy="Pass UniformSlate(), or PlackettLuce(scores) with a model or callable.",
        allow_none=True,
    )("logging", logging)
    if transform is not None and (not callable(transform) or isinstance(transform, type)):
        raise UsageError(
            f"`transform` must change weights, as Clip(20) does; got {describe(transform)}.",
            parameter="transform",
            value=transform,
        )
    plan = PolicyPlan(
        targets=check_targets(targets),
        estimators=None if estimators is None else list_estimators(estimators),
        candidates=candidates,
        exclude=exclude,
        logging=logging,
        examination=None if examination is None else read_examination(examination),
        regression=regression,
        slot_worth=slot_worth,
        cluster=cluster,
        level=level,
        transform=transform,
        curve=find_curve(examination),
    )
    result = plan.evaluate([shown])
    result.warn()
    return result


def check_targets(targets: Mapping[str, Policy | object]) -> dict[str, Policy]:
    """The target policies by name."""
    if not isinstance(targets, Mapping) or not targets:
        raise UsageError(
            "`targets` must be a dict of one or more target policies by name; got "
            f"{describe(targets)}.",
            parameter="targets",
            value=targets,
            remedy="Pass `targets={'new': policy}`, for example.",
        )
    if LOGGED in targets:
        raise UsageError(
            f"{LOGGED!r} is the name of the logging policy, which is always compared.",
            parameter="targets",
            value=LOGGED,
            remedy="Choose another name.",
        )
    return {str(name): as_policy(target) for name, target in targets.items()}
