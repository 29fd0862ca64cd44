"""Off-policy evaluation: what another policy would earn, from a log of shown items.

How a number is computed
------------------------
A policy (:mod:`unskew.policies.targets`) gives the probabilities of the shown items
(:mod:`unskew.policies.probabilities`). From those of
the logging policy and of a target, :mod:`unskew.policies.columns` makes the columns of a request:
the rewards, weights and regressions of slots 1 to K. An estimator
(:mod:`unskew.policies.estimators`) is a function from these columns to terms: a numerator, a base
and an expected base for each request. :mod:`unskew.policies.terms` adds the terms up by cluster and
turns the sums into values with their covariance.

The seam for other engines
--------------------------
Estimators use only ``+``, ``-`` and ``*`` on columns, and never look inside them. A query over a
data frame or a database can pass its own expressions, one for each slot after a pivot by request,
to the same functions; then sum the resulting columns by cluster and build
:class:`~unskew.policies.terms.TermSums` from that table. Everything after that (values, intervals,
comparisons, checks) is the same code. What an engine has to provide is a
:class:`~unskew.policies.columns.RequestColumns`: K columns of rewards and of each kind of weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from unskew.registry import Registry, exported_names

if TYPE_CHECKING:
    from unskew.policies.columns import RequestColumns
    from unskew.policies.terms import Term

PolicyEstimator: TypeAlias = "Callable[[RequestColumns], list[Term]]"
"""Turns the columns of a request into terms, with + - * alone."""
POLICY_ESTIMATORS: Registry[PolicyEstimator] = Registry("policy estimator", "unskew.policies")
"""Traits: ``order``, ``needs`` (which columns it reads), ``unbiased_if`` (a condition) and
``assumes`` (0 if nothing about users, else how much)."""
__getattr__, __dir__ = exported_names(
    POLICY_ESTIMATORS,
    {
        "ExaminationCurve": "position_bias",
        "IndependentSlots": "targets",
        "PlackettLuce": "targets",
        "PolicyEvaluation": "result",
        "PolicyMixture": "targets",
        "PolicySensitivity": "sensitivity",
        "PositionBias": "position_bias",
        "TargetProbability": "targets",
        "TargetRanking": "targets",
        "UniformSlate": "targets",
        "evaluate_policies": "evaluate",
        "evaluate_policies_frame": "frame",
    },
)
