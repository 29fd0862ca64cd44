"""The main call for logs that stay where they are: a data frame, a Parquet scan, a data base, a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from unskew.data.columns import DEFAULTS, find_column
from unskew.errors import ColumnError, UsageError
from unskew.estimators.family import Estimator
from unskew.estimators.transforms import WeightTransform
from unskew.evaluation.arguments import (
    chosen_estimators,
    chosen_metrics,
    require_cluster,
    require_level,
    require_transform,
)
from unskew.evaluation.expressions import Source
from unskew.evaluation.frame_log import (
    Columns,
    FrameLog,
    OnBad,
    find_ids,
    find_names,
    require_on_bad,
)
from unskew.evaluation.frame_query import FrameUniverse, Query, QueryPlan, Sizes
from unskew.evaluation.frame_sums import KEPT
from unskew.evaluation.groups import GroupedEvaluation
from unskew.evaluation.result import Evaluation
from unskew.metrics.metric import Metric


def evaluate_frame(
    frame: object,
    *,
    prediction: str | Sequence[str] | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    propensity: str | None = None,
    position: str | Sequence[str] | None = None,
    metrics: Sequence[str | Metric] = ("mse", "mae"),
    estimators: Sequence[str | Estimator] = ("naive", "ips", "snips"),
    universe: FrameUniverse = None,
    level: float = 0.95,
    cluster: Literal["user", "item"] | None = None,
    relevant: float | None = None,
    transform: WeightTransform | None = None,
    by: str | None = None,
    on_bad: OnBad = "raise",
    check_duplicates: bool = False,
    is_complete: bool = False,
) -> Evaluation | GroupedEvaluation:
    """Judge models on a log that stays where it is: pandas, polars (lazy too), pyarrow, DuckDB or PySpark.

    The log is read once, and nothing but sums is fetched: so a log may be larger than memory. What is asked for and not said here
    means what it means in :func:`unskew.evaluate`.

    Parameters
    ----------
    frame
        One rating a row, beside it what each model predicts.
    prediction
        The column of predicted ratings, which names the model; several for several models. Ranking metrics read ``position``, so
        that for these alone the columns need not exist.
    user, item, rating, propensity
        Names of the columns, found as in :meth:`unskew.Ratings.from_frame` where they are not given. Users and items are read
        only where something depends on them: ``cluster``, normalised estimators, recall, ``universe="log"``.
    position
        For ranking metrics: the place of the cell's item among all items of its user, 1 being the best; a column for each model.
    universe
        (n_users, n_items), or ``"log"``, which takes one more look at the log, to count its users and items. With ``by`` it is
        that of each group; a mapping tells each group its own.
    by
        A column whose values are judged apart, in the same pass.
    on_bad
        ``"raise"`` an error that counts the rows with a missing or impossible value and shows one; ``"drop"`` them and warn.
    check_duplicates
        Refuse a (user, item) that is there twice, which takes one more look at the log. By default nobody looks, and such a cell
        counts as often as it is there, where :meth:`unskew.Ratings.from_frame` would refuse it, or keep its mean or last rating.
    is_complete
        Says that the frame holds all items of every user, with a null rating where nothing was observed, so that ranking metrics
        can take the places from the predictions. Items with one score share their places.

    Returns
    -------
    Evaluation, or with ``by`` a :class:`GroupedEvaluation`, which maps each value to one. Its weights have no ``top_share``,
    which would take a sort. The metric ``accuracy`` first takes a look at which ratings there are.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.LazyFrame({"rating": [5, 1, 5], "always 5": [5.0, 5.0, 5.0], "propensity": [0.8, 0.25, 1.0]})
    >>> evaluate_frame(log, prediction="always 5", metrics=["mae"], estimators=["naive", "snips"])
    model     metric  estimator  estimate  std_error  ci_low  ci_high
    always 5  mae     naive         1.333      0.795  -0.225    2.892
    always 5  mae     snips         2.560      0.830   0.933    4.187
    3 observed cells; 95% intervals, cells independent; effective sample size 2
    """
    require_level(level)
    require_transform(transform)
    require_cluster(cluster)
    require_on_bad(on_bad)
    asked = QueryPlan.of(
        chosen_metrics(metrics, relevant=relevant), chosen_estimators(estimators), cluster
    )
    counts_ids = check_duplicates or (isinstance(universe, str) and universe == "log")
    ids = sorted(
        asked.ids
        | ({"user", "item"} if counts_ids else set())
        | ({"user"} if is_complete else set())
    )
    source = Source(frame)
    columns = _columns(
        asked,
        source.columns,
        {"user": user, "item": item, "rating": rating, "propensity": propensity, "by": by},
        prediction,
        position,
        ids=ids,
        is_complete=is_complete,
    )
    log = FrameLog(source, columns, ids=ids, is_complete=is_complete)
    if check_duplicates:
        log.refuse_repeats()
    sizes = Sizes.of(log, universe)
    query = Query.of(log, asked, sizes, transform)
    totals = query.run()
    whole = query.whole(totals)
    log.check(whole, on_bad)
    query.verify(whole)
    results = {}
    for group, found in totals.items():
        if found[KEPT]:
            results[group] = query.result(
                found, sizes.of_group(group), level=level, backend=source.backend
            )
    return (
        results[None] if by is None else GroupedEvaluation(by, _in_order(results), source.backend)
    )


def _in_order(results: Mapping[Any, Evaluation]) -> dict[Any, Evaluation]:
    """Groups as they sort, since an engine gives them in any order; None is the last."""
    order = sorted(
        results,
        key=lambda group: (group is None, str(type(group)), group if group is not None else 0),
    )
    return {group: results[group] for group in order}


def _columns(
    asked: QueryPlan,
    there: Sequence[str],
    given: Mapping[str, str | None],
    prediction: str | Sequence[str] | None,
    position: str | Sequence[str] | None,
    *,
    ids: Sequence[str],
    is_complete: bool,
) -> Columns:
    """Which columns to read, as the caller says or as they are spelled."""
    reads_predictions = asked.rates or is_complete
    reads_positions = asked.ranks and not is_complete
    models = (
        find_names("prediction", prediction, there)
        if reads_predictions
        else _model_names(prediction)
    )
    positions = find_names("position", position, there) if reads_positions else ()
    if positions and len(positions) != len(models):
        raise UsageError(
            f"there are {len(models)} models, {', '.join(map(repr, models))}, but {len(positions)} columns of positions; "
            "pass position=[...], one for each model, in the same order."
        )
    reads_propensity = asked.is_weighted or given["propensity"] is not None
    return Columns(
        rating=find_column("rating", given["rating"], there),
        models=models,
        predictions=models if reads_predictions else (),
        positions=positions,
        propensity=find_column("propensity", given["propensity"], there)
        if reads_propensity
        else None,
        ids=find_ids({"user": given["user"], "item": given["item"]}, ids, there),
        group=_group(given["by"], there),
    )


def _model_names(prediction: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names alone, where no prediction is read."""
    if prediction is None or isinstance(prediction, str):
        return (prediction or DEFAULTS["prediction"],)
    return tuple(prediction)


def _group(by: str | None, there: Sequence[str]) -> str | None:
    if by is not None and by not in there:
        raise ColumnError(
            f"there is no column {by!r} for by=; the columns are {', '.join(map(repr, there))}."
        )
    return by
