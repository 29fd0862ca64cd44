"""The engine that ``fit(..., engine="spark")`` asks for. pyspark is loaded when it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unskew.factorization.engine import FrameFitRequest, FrameFitResult
from unskew.plugins import require_package

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import SparkSession

    from unskew.engines.spark.folds import SparkFold, SparkTraining


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """The reduced objective on Spark: L-BFGS over the items on the driver, users solved where their ratings lie.

    Parameters
    ----------
    session
        Reads the log where ``fit`` is given the path of Parquet files; a data frame brings its own.
    n_blocks
        Parts that the users are divided into, each one task of an evaluation. By default as many as the cluster runs at once, and
        more where they would hold more than 16 million ratings. Results differ between numbers of blocks by rounding alone.
    collect_users
        Bring user factors, and who rated what, to the driver, so that the model predicts, recommends and is saved like any other.
        Without, it knows items only, the driver's memory does not depend on the users, and their factors are in
        ``model.user_factors_frame``, a data frame of Spark.
    universe
        (n_users, n_items): all there are, where the log does not have them all; the penalty is scaled by them.
    user, item, rating
        Names of the columns, found by their spelling where they are not given.
    """

    session: SparkSession | None = None
    n_blocks: int | None = None
    collect_users: bool = True
    universe: tuple[int, int] | None = None
    user: str | None = None
    item: str | None = None
    rating: str | None = None

    @property
    def names(self) -> Mapping[str, str | None]:
        """Of the columns, by what they hold."""
        return {"user": self.user, "item": self.item, "rating": self.rating}

    def fit_frame(self, request: FrameFitRequest, /) -> FrameFitResult:
        """The objective of Eq. (14), to the same optimum as here."""
        require_package("pyspark", extra="spark", purpose="engine='spark'")
        from unskew.engines.spark.fitting import fit_on

        return fit_on(self, request)

    def split(
        self,
        frame: Any,
        propensity: str | None,
        /,
        *,
        n_folds: int,
        random_state: int | np.random.Generator | None,
    ) -> tuple[SparkTraining, Sequence[SparkFold]]:
        """The whole log, and its folds for :func:`unskew.cross_validate`."""
        require_package("pyspark", extra="spark", purpose="engine='spark'")
        from unskew.engines.spark.folds import split

        return split(self, frame, propensity, n_folds=n_folds, random_state=random_state)

    def check_criterion(self, *, metric: str, estimator: str) -> None:
        """Raise an error if folds cannot be scored by this metric and this estimator."""
        require_package("pyspark", extra="spark", purpose="engine='spark'")
        from unskew.engines.spark.folds import check_criterion

        check_criterion(metric, estimator)
