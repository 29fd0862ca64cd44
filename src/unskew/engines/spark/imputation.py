"""The imputation G of doubly robust learning on Spark, and what the log corrects in it.

G is a weighted factorisation, fitted as any other. Each block then keeps S = h (Y - G) in place of
its ratings, and the factors of G of its users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from unskew.data.factors import Factors
from unskew.engines.spark.blocks import UserBlock, UserBlocks, pack_block
from unskew.engines.spark.fitting import ShuffledLog, minimize_over_blocks
from unskew.engines.spark.frame import SparkLog
from unskew.engines.spark.solving import ItemFactors, UserSolver
from unskew.factorization.engine import DoublyRobustFrameRequest
from unskew.factorization.pseudo_outcome import outcome_constant
from unskew.models.imputation import CLIP_QUANTILE, WEIGHTINGS
from unskew.types import Floats, Matrix, Vector

N_BINS = 1024
"""Bins into which one pass over the log divides a range of weights, to find a quantile."""


@dataclass(frozen=True, slots=True)
class ImputationWeights:
    """a(P) of weights 1 / P, at most ``limit``, times ``scale``."""

    weighting: str
    limit: float
    scale: float = 1.0

    def __call__(self, weight: Vector) -> Vector:
        return np.minimum(WEIGHTINGS[self.weighting](1 / weight), self.limit) * self.scale


def weigh_block(block: UserBlock, weigh: ImputationWeights) -> UserBlock:
    """The block with the weights of the imputation."""
    root_weight = np.sqrt(weigh(block.weight))
    return replace(block, cells=block.cells.with_root_weights(root_weight))


@dataclass(frozen=True, slots=True, eq=False)
class Imputer:
    """A fitted imputation: it solves the users of blocks that have the weights of the fit."""

    users: UserSolver
    items: ItemFactors

    def impute(self, block: UserBlock) -> Factors:
        """G for the users of a block."""
        return self.items.with_users(*self.users.solve(block))


def fit_imputation(
    request: DoublyRobustFrameRequest, shuffled: ShuffledLog
) -> tuple[ImputationWeights, Imputer]:
    weigh, item_sums = _choose_weights(request.weighting, shuffled)

    def rescale(number: int, block: UserBlock) -> Iterator[pa.RecordBatch]:
        yield pack_block(number, weigh_block(block, weigh))

    item_weight, item_rating = item_sums
    totals = replace(shuffled.totals, item_weight=item_weight, item_rating=item_rating)
    weighted = shuffled.blocks.rebuild(rescale)
    try:
        objective, solution = minimize_over_blocks(
            request.imputation, replace(shuffled, blocks=weighted, totals=totals)
        )
    finally:
        weighted.drop()
    items = solution.parameters
    return weigh, Imputer(UserSolver(objective, items.start), items)


def _choose_weights(
    weighting: str, shuffled: ShuffledLog
) -> tuple[ImputationWeights, tuple[Vector, Vector]]:
    """a(P), clipped at a high quantile and scaled to add up to U I; its totals of the items."""
    limit = _find_limit(weighting, shuffled.log, shuffled.counts.n_ratings)
    weigh = ImputationWeights(weighting, limit)
    item_weight, item_rating = shuffled.blocks.add_by_item(weigh)
    total = float(item_weight.sum())
    if total == 0:  # every P is 1
        weigh = ImputationWeights("eib", 1.0)
        item_weight, item_rating = shuffled.blocks.add_by_item(weigh)
        total = float(item_weight.sum())
    scale = shuffled.totals.universe.n_cells / total
    return replace(weigh, scale=scale), (scale * item_weight, scale * item_rating)


def _find_limit(weighting: str, log: SparkLog, n_ratings: int) -> float:
    """The quantile of a(P) at which larger weights are clipped; a(P) grows with 1 / P."""
    position = CLIP_QUANTILE * (n_ratings - 1)
    below = int(position)
    weight = np.array(
        [find_ranked(log, rank) for rank in (below, min(below + 1, n_ratings - 1))], np.float64
    )
    low, high = WEIGHTINGS[weighting](1 / weight)
    return float(low + (position - below) * (high - low))


def find_ranked(log: SparkLog, rank: int) -> float:
    """The weight with this rank from below, from 0 on, by a few passes over the log."""
    frame = log.frame.select("weight")
    row = frame.agg(F.min("weight").alias("low"), F.max("weight").alias("high")).toArrow()
    low, high = (float(row[name][0].as_py()) for name in ("low", "high"))
    while low < high:
        width = (high - low) / N_BINS
        position = F.least(F.floor((F.col("weight") - low) / width), F.lit(N_BINS - 1))
        inside = frame.where(F.col("weight").between(low, high))
        counts = (
            F.count(F.lit(1)).alias("n"),
            F.min("weight").alias("a"),
            F.max("weight").alias("b"),
        )
        bins = inside.groupBy(position.alias("bin")).agg(*counts).toArrow().sort_by("bin")
        ends = np.cumsum(bins["n"].to_numpy())
        chosen = int(np.searchsorted(ends, rank, side="right"))
        rank -= int(ends[chosen - 1]) if chosen else 0
        smaller = float(bins["a"][chosen].as_py()), float(bins["b"][chosen].as_py())
        if smaller == (low, high):  # neighbouring numbers, which no bin can part
            return low if rank == 0 else high
        low, high = smaller
    return low


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedBlock(UserBlock):
    """Some users with S = h (Y - G) in place of their ratings, and their factors of G."""

    _: KW_ONLY
    imputed_side: tuple[Floats, Floats]
    """The factors and the offsets of G."""
    sums: Vector
    """Of the ratings: h (Y - G), h, h (1 - h) (Y - G)^2, S^2 and 2 S G."""
    limits: Vector
    """The largest abs(S + G) and abs(S), and the largest and the smallest Y - G, with signs that
    make each a maximum."""

    @property
    def imputed_rows(self) -> Matrix:
        """``[v, a, 1]`` of G."""
        factors, offset = self.imputed_side
        return np.column_stack([factors, offset, np.ones(len(factors))]).astype(np.float64)

    @classmethod
    def correct(cls, block: UserBlock, imputed: Factors) -> CorrectedBlock:
        cells = block.cells
        user = np.repeat(np.arange(cells.n_rows, dtype=np.int32), np.diff(cells.starts))
        on_log = imputed.predict(user, cells.opposite.astype(np.int32))
        weight, error = block.weight, cells.rating - on_log
        correction = weight * error
        entries = cells.entries.copy()
        entries["rating"], entries["root_weight"] = correction, 1
        sums = [
            *(correction.sum(), weight.sum(), outcome_constant(weight, error)),
            *(correction @ correction, 2 * (correction @ on_log)),
        ]
        peaks = np.abs(correction + on_log), np.abs(correction), error, -error
        return cls(
            block.users,
            replace(cells, entries=entries),
            block.n_repeats,
            imputed_side=imputed.user_side,
            sums=np.array(sums, np.float64),
            limits=np.array([values.max() for values in peaks], np.float64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class CorrectionTotals:
    """The fields of :class:`CorrectedBlock` over all blocks, and sums over all cells."""

    sums: Vector
    limits: Vector
    imputed_square: float
    """The sum of G^2."""
    imputed: float
    """The sum of G."""


@dataclass(frozen=True, slots=True, eq=False)
class CorrectedBlocks:
    """The blocks of a log after their correction, each a :class:`CorrectedBlock`."""

    blocks: UserBlocks

    @classmethod
    def of(cls, blocks: UserBlocks, imputer: Imputer, weigh: ImputationWeights) -> CorrectedBlocks:
        """Impute the ratings of every block, and correct them by the log."""

        def correct(number: int, block: UserBlock) -> Iterator[pa.RecordBatch]:
            imputed = imputer.impute(weigh_block(block, weigh))
            yield pack_block(number, CorrectedBlock.correct(block, imputed))

        return cls(blocks.rebuild(correct))

    def add_totals(self, items: ItemFactors) -> CorrectionTotals:
        """Add up what the blocks know; the first call builds them."""

        def describe(number: int, block: Any) -> Iterator[pa.RecordBatch]:
            rows = block.imputed_rows
            numbers = np.concatenate([block.limits, block.sums, (rows.T @ rows).ravel()])
            yield pa.record_batch(
                {"block": pa.array([number], pa.int32()), "numbers": [numbers.tobytes()]}
            )

        table = self.blocks.map(describe, "block int, numbers binary").toArrow().sort_by("block")
        rows = np.stack([np.frombuffer(each.as_py()) for each in table["numbers"]])
        limits, sums, grams = rows[:, :4].max(axis=0), rows[:, 4:9].sum(axis=0), rows[:, 9:]
        _, item_rows = items.as_float64_rows()
        size = item_rows.shape[1]
        gram = grams.sum(axis=0).reshape(size, size)
        imputed_square = float((gram * (item_rows.T @ item_rows)).sum())
        return CorrectionTotals(
            sums, limits, imputed_square, float(gram[-1] @ item_rows.sum(axis=0))
        )


@dataclass(frozen=True, slots=True, eq=False)
class ImputedUsers:
    """Gives the users of a :class:`CorrectedBlock` the factors and offsets of G."""

    def solve(self, block: Any, /) -> tuple[Floats, Floats]:
        side: tuple[Floats, Floats] = block.imputed_side
        return side
