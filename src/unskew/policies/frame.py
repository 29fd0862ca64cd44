"""Off-policy evaluation where the rows are: one query over a data frame or SQL table.

Rows are pivoted to one row for each request, with the slots as columns; the terms of all estimators
are added up by cluster; and only these sums are fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from unskew.data.impressions import ProbabilityKind, read_examination
from unskew.errors import UsageError
from unskew.policies import POLICY_ESTIMATORS
from unskew.policies.evaluate import check_targets
from unskew.policies.frame_columns import FrameColumns, FramePolicy, bind_to_frame
from unskew.policies.frame_pivot import require_whole_requests
from unskew.policies.frame_rows import ImpressionRows, RowTotals
from unskew.policies.frame_sums import SumQuery
from unskew.policies.plan import (
    PolicyCluster,
    PolicyPlan,
    PolicySums,
    Regression,
    SlotWorth,
    choose_estimators,
    list_estimators,
    read_worth,
    require_slots,
)
from unskew.policies.result import LOGGED, PolicyEvaluation
from unskew.policies.targets import Policy
from unskew.settings import require_list

UNCHECKED_KIND = (
    "in a data frame or a query, it is not checked whether probabilities are {kind!r}, as stated; "
    "evaluate_policies() does"
)


def evaluate_policies_frame(
    frame: object,
    targets: Mapping[str, Policy | object],
    *,
    request: str | None = None,
    user: str | None = None,
    item: str | None = None,
    position: str | None = None,
    reward: str | None = None,
    probability: str | None = None,
    probability_is: ProbabilityKind | None = None,
    estimators: Sequence[str] | None = None,
    examination: object = None,
    regression: Regression | None = None,
    slot_worth: SlotWorth = "sum",
    cluster: PolicyCluster = "user",
    level: float = 0.95,
) -> PolicyEvaluation:
    """Estimate what other policies would earn, from a data frame or SQL table of impressions.

    The numbers are those of :func:`unskew.evaluate_policies`. Rows stay where they are: polars
    (lazy too), DuckDB and Spark run one query, and return the sums of each user. Whether a request
    shows an item twice is not checked; ``Impressions.from_frame`` does.

    Parameters
    ----------
    frame
        One shown item a row: pandas, polars, pyarrow, a DuckDB relation or a Spark data frame.
    targets
        Policies by name: ``TargetProbability(column)`` (or the name of the column), or
        ``TargetRanking(position=column)``.
    request, user, item, position, reward, probability, probability_is
        As in :meth:`unskew.Impressions.from_frame`.
    estimators, examination, regression, slot_worth, cluster, level
        As in :func:`unskew.evaluate_policies`, but a fitted examination curve is taken as known.

    Examples
    --------
    >>> import unskew
    >>> world = unskew.simulate_impressions(500, logging="product", random_state=2)
    >>> frame = world.log.to_frame("polars").rename({"probability": "p"})
    >>> result = evaluate_policies_frame(
    ...     frame, {"same": "p"}, request="request", user="user", item="item",
    ...     probability="p", probability_is="product", estimators=["iips"],
    ... )
    >>> result.compare("same").difference
    0.0
    """
    names = {"request": request, "user": user, "item": item, "position": position}
    require_list("estimators", estimators, of="names")
    log = ImpressionRows.open(
        frame,
        names | {"reward": reward},
        probability,
        probability_is,
        check_targets(targets),
        regression,
    )
    totals = log.check()
    n_slots = totals.n_slots
    kind = probability_is if n_slots > 1 or probability is None else "product"
    if probability is not None and kind is None:
        raise UsageError(
            "`probability_is` is missing: a request shows several items, and nothing says what the "
            "probabilities are the probability of.",
            parameter="probability_is",
            remedy="Pass 'step', 'marginal', 'slate' or 'product'.",
        )
    logging = FramePolicy("probability", kind, n_slots=n_slots)
    curve = None if examination is None else read_examination(examination)
    plan = PolicyPlan(
        log.targets,
        choose_estimators(logging.provided, n_slots, has_curve=curve is not None)
        if estimators is None
        else list_estimators(estimators),
        examination=curve,
        regression=regression,
        slot_worth=slot_worth,
        cluster=cluster,
        level=level,
    )
    columns = {
        name: FrameColumns(
            name,
            logging,
            bind_to_frame(policy, name, kind, n_slots),
            read_worth(slot_worth, n_slots),
            None if curve is None else require_slots(curve, n_slots, "examination"),
            name in log.regressions,
        )
        for name, policy in log.targets.items()
    }
    sums = _add_up(log, totals, plan, columns)
    if n_slots > 1 and kind in ("step", "marginal", "product"):
        sums = replace(sums, notes=(*sums.notes, UNCHECKED_KIND.format(kind=kind)))
    result = plan.finish(sums, log.backend)
    result.warn()
    return result


def _add_up(
    log: ImpressionRows, totals: RowTotals, plan: PolicyPlan, columns: Mapping[str, FrameColumns]
) -> PolicySums:
    """The sums of all estimators and checks, by cluster."""
    assert plan.estimators is not None
    needs = {name: POLICY_ESTIMATORS.find(name).traits["needs"] for name in plan.estimators}
    for estimator, kinds in needs.items():
        for name, each in columns.items():
            each.logging.require_provided(kinds, estimator, LOGGED)
            each.target.require_provided(kinds, estimator, name)
    if totals.may_be_complete:
        complete = {name: replace(each, is_complete=True) for name, each in columns.items()}
        query = SumQuery.of(plan, complete, totals)
        table = query.run(log, totals, complete)
        if not (table["has_shared_slot"].any() or table["has_gap"].any()):
            require_whole_requests(table, needs)
            return query.read(table, totals)
    query = SumQuery.of(plan, columns, totals)
    table = query.run(log, totals, columns)
    require_whole_requests(table, needs)
    return query.read(table, totals)
