"""Several propensity models and imputations, read for multiple robust estimation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from unskew.data.propensities import SMALLEST, Propensities, PropensitiesLike, as_propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import require_all_ids
from unskew.errors import BadPropensityError, UsageError
from unskew.estimators.multiple_robust import ModelSums, PropensitySums
from unskew.estimators.observed import Imputed, ObservedCells
from unskew.evaluation.cells import TestedCells
from unskew.evaluation.imputation import Imputation, impute_deltas, mask_non_candidates
from unskew.evaluation.predictions import Predictions, PredictionsLike
from unskew.metrics.metric import Metric, MetricInput
from unskew.tables import count_noun
from unskew.types import IntVector, Matrix

BLOCK_CELLS = 1 << 18
"""Cells whose propensities are read at once."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelSet:
    """Propensity models and imputations for the estimator ``mr``.

    One of them must be right; it need not be known which.
    """

    propensities: Sequence[PropensitiesLike]
    """Fitted propensity models that do not read ratings, or users x items matrices. The
    propensities of all cells are read."""
    imputations: Sequence[Imputation | PredictionsLike] = ()
    """As the argument ``imputation`` of :func:`unskew.evaluate`. Models that are not fitted are
    cross-fitted with the weights of the first propensity model."""

    def __post_init__(self) -> None:
        for name in ("propensities", "imputations"):
            models = getattr(self, name)
            if isinstance(models, np.ndarray) or not isinstance(models, Sequence):
                raise UsageError(
                    f"`{name}` must be a list of models; got {type(models).__name__}.",
                    parameter=name,
                    remedy=f"Pass `{name}=[...]`, also for a single model.",
                )
        if not self.propensities:
            raise UsageError(
                "`propensities` is empty, and multiple robust estimation needs at least one model.",
                parameter="propensities",
                remedy="Pass a fitted model such as PopularityPropensity(smoothing=1).fit(log).",
            )


@runtime_checkable
class AllCellsPredictor(Protocol):
    """A fitted propensity model that predicts cells without their ratings."""

    sees_ratings: bool

    def predict_pairs(
        self, users: npt.NDArray[np.generic], items: npt.NDArray[np.generic], /
    ) -> npt.ArrayLike:
        """One propensity for each (user, item)."""
        ...


def read_model_set(
    model_set: ModelSet,
    metrics: Sequence[Metric],
    models: Sequence[Predictions],
    inputs: Sequence[MetricInput],
    tested: TestedCells,
    cells: ObservedCells,
    log: Ratings,
    seed: int,
) -> tuple[dict[str, ModelSums], list[str]]:
    """By metric: what multiple robust estimation reads; and what the result says about it.

    ``log`` is the log of the caller, of which the tested cells are a part.
    """
    if tested.universe is not None:
        require_all_ids(tested.log, tested.universe, "and 'mr' reads the propensities of all cells")
    readers = [AllPropensities.of(each, log, tested) for each in model_set.propensities]
    sums = add_up_propensities(readers, tested)
    first = Propensities(sums.observed[0])
    imputed: list[Mapping[str, Imputed]] = []
    notes = list(_describe_propensities(readers))
    for each in model_set.imputations:
        part, texts = impute_deltas(
            each, metrics, models, inputs, tested, replace(cells, propensities=first), seed
        )
        imputed.append(part)
        notes += [f"mr: {text}" for text in texts]
    means = [metric.name for metric in metrics if metric(inputs[0]).base is None]
    by_metric = {name: ModelSums(sums, tuple(part[name] for part in imputed)) for name in means}
    return by_metric, list(dict.fromkeys(notes))


@dataclass(frozen=True, slots=True, eq=False)
class AllPropensities:
    """One propensity model, on the tested cells and on all cells of some users."""

    on_log: Propensities
    """As they apply to the tested cells."""
    source: Any
    share: float
    """What the propensities of the source are multiplied by: the share of a part of a log."""
    odds: float
    """The share of an excluded part over the share of the log; 0 without one."""

    @classmethod
    def of(cls, propensities: Any, log: Ratings, tested: TestedCells) -> AllPropensities:
        on_whole_log = as_propensities(log, propensities)
        _require_all_cells(propensities, log)
        on_log = tested.take_propensities(on_whole_log)
        assert on_log is not None
        raw = _read_block(propensities, log, log.user[:1])[0, log.item[0]]
        odds = 0.0
        if tested.excluded_share is not None:
            odds = tested.excluded_share / tested.log.share
        return cls(on_log, propensities, float(on_whole_log.values[0] / raw), odds)

    def block(self, log: Ratings, users: IntVector) -> Matrix:
        """Users x items: P of all cells of these users."""
        values = self.share * _read_block(self.source, log, users)
        is_bad = ~((values >= SMALLEST) & (values <= 1))
        if is_bad.any():
            row, item = (int(each[0]) for each in np.nonzero(is_bad))
            where = f"user {log.users[users[row]]}, item {log.items[item]}"
            raise BadPropensityError(
                f"{int(is_bad.sum())} propensities of {type(self.source).__name__} lie outside "
                f"(0, 1]; the first is {values[row, item]:g} at {where}.",
                parameter="model_set",
                where=where,
                remedy="'mr' reads the propensities of all cells: smooth the model, or set a lower "
                "limit with ClippedPropensity(model, `min_propensity=...`).",
            )
        return 1.0 / (1.0 / values - self.odds) if self.odds else values


def _require_all_cells(propensities: Any, log: Ratings) -> None:
    if isinstance(propensities, AllCellsPredictor):
        if not propensities.sees_ratings:
            return
        problem = f"{type(propensities).__name__} needs the rating of a cell"
    elif np.shape(propensities) == (log.n_users, log.n_items):
        return
    else:
        problem = "these are propensities of the logged cells alone"
    raise UsageError(
        f"'mr' reads the propensities of all cells, but {problem}.",
        parameter="model_set",
        remedy="Pass a fitted model that does not read ratings, or a matrix of shape "
        f"{(log.n_users, log.n_items)}.",
    )


def _read_block(source: Any, log: Ratings, users: IntVector) -> Matrix:
    if not isinstance(source, AllCellsPredictor):
        matrix: Matrix = np.asarray(source, dtype=np.float64)[users]
        return matrix
    pairs = np.repeat(log.users[users], log.n_items), np.tile(log.items, users.size)
    values = np.asarray(source.predict_pairs(*pairs), dtype=np.float64)
    return values.reshape(users.size, log.n_items)


def add_up_propensities(readers: Sequence[AllPropensities], tested: TestedCells) -> PropensitySums:
    """Sums over all cells, or over all candidates, in blocks of users."""
    log, n_models = tested.log, len(readers)
    by_user, by_item = np.zeros((log.n_users, n_models)), np.zeros((log.n_items, n_models))
    products = np.zeros((log.n_users, n_models, n_models))
    n_by_user, n_by_item = np.zeros(log.n_users), np.zeros(log.n_items)
    for users in _cut_users(log, n_models):
        values = np.stack([reader.block(log, users) for reader in readers])
        shape = (users.size, log.n_items)
        is_hidden = mask_non_candidates(users, log.n_items, tested.candidates)
        is_tested = np.broadcast_to(~is_hidden, users.size * log.n_items).reshape(shape)
        inverse = is_tested / values
        by_user[users], n_by_user[users] = inverse.sum(axis=2).T, is_tested.sum(axis=1)
        by_item += inverse.sum(axis=1).T
        n_by_item += is_tested.sum(axis=0)
        relative = values * is_tested / values.mean(axis=0)
        products[users] = np.einsum("jui,kui->ujk", relative, values)
    on_log = np.stack([reader.on_log.values for reader in readers])
    return PropensitySums(on_log, by_user, by_item, products, n_by_user, n_by_item)


def _cut_users(log: Ratings, n_models: int) -> Iterator[IntVector]:
    size = max(1, BLOCK_CELLS // (log.n_items * n_models))
    for first in range(0, log.n_users, size):
        yield np.arange(first, min(first + size, log.n_users), dtype=np.int32)


def _describe_propensities(readers: Sequence[AllPropensities]) -> Iterator[str]:
    estimated = sum(reader.on_log.estimation is not None for reader in readers)
    if estimated:
        count = count_noun(len(readers), "propensity model")
        yield (
            f"mr takes its {count} as known; fitted to the same log, their error usually makes "
            "an interval too wide rather than too narrow"
        )
