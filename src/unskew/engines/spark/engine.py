"""The engine of ``engine="spark"``. It imports pyspark when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from unskew.data.parts import RandomSplitUnit
from unskew.factorization.engine import (
    DoublyRobustFrameRequest,
    DoublyRobustFrameResult,
    FrameFitRequest,
    FrameFitResult,
)
from unskew.registry import require_package
from unskew.types import RandomState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from unskew.engines.spark.folds import SparkFold, SparkTraining


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Fits and cross-validates logs that stay on Spark.

    Executors solve the users whose ratings they hold, and add up the normal equations of the
    items. With ``solver="reduced"``, L-BFGS over the items runs on the driver.

    Parameters
    ----------
    session
        Reads the log if ``fit`` gets a path of Parquet files. By default the active session, or a
        new one. A data frame uses its own session.
    n_blocks
        Number of parts that users are divided into. A sweep has one task for each part. By default
        the number of tasks that the cluster runs at once, or more if a block would have more than
        16 million ratings. Results differ by rounding errors only.
    collect_users
        Copy the user factors and the items of each user to the driver, so that the model predicts,
        recommends and is saved as any other. Otherwise the model knows the items only, the memory
        of the driver does not depend on the number of users, and user factors are in the Spark
        data frame ``model.user_factors_frame``.
    universe
        (n_users, n_items) if there are more than those in the log. It scales the penalty.
    user, item, rating
        Names of columns. By default columns with common names are used.
    """

    session: SparkSession | None = None
    n_blocks: int | None = None
    collect_users: bool = True
    universe: tuple[int, int] | None = None
    user: str | None = None
    item: str | None = None
    rating: str | None = None
    name: ClassVar[str] = "spark"

    def fit_frame(self, request: FrameFitRequest, /) -> FrameFitResult:
        """Fit Eq. (14) to the same optimum as the local engine."""
        _require_pyspark()
        from unskew.engines.spark.fitting import fit_on_spark

        return fit_on_spark(self, request)

    def fit_doubly_robust(self, request: DoublyRobustFrameRequest, /) -> DoublyRobustFrameResult:
        """Fit doubly robust learning to the same optimum as the local engine."""
        _require_pyspark()
        from unskew.engines.spark.doubly_robust import fit_doubly_robust_on_spark

        return fit_doubly_robust_on_spark(self, request)

    def split(
        self, frame: Any, propensity: str | None, /, *, n_folds: int, random_state: RandomState
    ) -> tuple[SparkTraining, Sequence[SparkFold]]:
        """The whole log and its folds, for :func:`unskew.cross_validate`."""
        _require_pyspark()
        from unskew.engines.spark.folds import split

        return split(self, frame, propensity, n_folds=n_folds, random_state=random_state)

    def split_frame(
        self,
        frame: Any,
        /,
        *,
        share: float = 0.2,
        by: RandomSplitUnit = "random",
        random_state: RandomState = 0,
    ) -> tuple[Any, Any]:
        """Training and test rows of a log; each cell is in the test with probability ``share``.

        With ``by="user"`` whole users are drawn, each with all of its rows. A hash of the ids
        decides, so the parts are those of :class:`LocalEngine`.
        """
        _require_pyspark()
        from unskew.engines.spark.serving import split_frame

        return split_frame(self, frame, share, by, random_state)

    def predict_frame(self, model: Any, frame: Any, /, *, name: str = "prediction") -> Any:
        """``frame`` with a column of the predictions of a model that was fitted on Spark."""
        _require_pyspark()
        from unskew.engines.spark.serving import predict_frame

        return predict_frame(self, model, frame, name)

    def rank_frame(
        self, model: Any, frame: Any, /, *, exclude: Any = None, name: str = "position"
    ) -> Any:
        """``frame`` with a column of the position of each item among all items of its user.

        Items that the user has in ``exclude``, such as the log of the fit, are not counted. This
        is the column ``position`` that ranking metrics of ``evaluate_frame`` need.
        """
        _require_pyspark()
        from unskew.engines.spark.serving import rank_frame

        return rank_frame(self, model, frame, exclude, name)

    def recommend_frame(self, model: Any, /, *, k: int = 10, exclude: Any = None) -> Any:
        """The ``k`` best items of every user as a data frame: user, item, score and position.

        ``exclude`` is a log of items that are left out, each for its user, such as the log of the
        fit.
        """
        _require_pyspark()
        from unskew.engines.spark.serving import recommend_frame

        return recommend_frame(self, model, k, exclude)

    def check_executors(self, session: SparkSession) -> int:
        """How many tasks run at once; raise an error if the Python there cannot run them."""
        _require_pyspark()
        from unskew.engines.spark.fitting import check_executors

        return check_executors(session)

    def check_criterion(self, *, metric: str, estimator: str) -> None:
        """Raise an error if folds cannot be scored by this metric and this estimator."""
        _require_pyspark()
        from unskew.engines.spark.folds import check_criterion

        check_criterion(metric, estimator)


def _require_pyspark() -> None:
    require_package("pyspark", extra="spark", purpose="engine='spark'")
