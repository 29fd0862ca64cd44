"""What Table 2 compares: two data sets, and the systems that are trained on each."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.datasets.coat import Coat
from unskew.datasets.yahoo_r3 import YahooR3
from unskew.model_selection.search import cross_validate
from unskew.models.all_rank import AllRank
from unskew.models.distribution import DistributionRecommender
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.models.ordinal import OrdinalFactorization
from unskew.models.recommender import Recommender
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.types import BoolVector, Vector

Grid: TypeAlias = Mapping[str, Sequence[Any]]
Table2Metric: TypeAlias = Literal["mse", "mae"]
METRICS: tuple[Table2Metric, ...] = ("mse", "mae")
LOSSES: Mapping[str, Literal["squared", "absolute"]] = {"mse": "squared", "mae": "absolute"}
N_FOLDS = 4
SAMPLE_SHARE = 0.05
FULL, CLEAN = "full test", "clean test"
REST, CLEAN_REST = "95 % of the test", "95 % of the test, clean"
"""The test without the random ratings that some systems are given."""


@dataclass(frozen=True, slots=True, eq=False)
class BiasedData:
    """A log of self-selected ratings, and a test of uniformly random cells."""

    name: str
    train: Ratings
    test: Ratings
    overlap: BoolVector
    """Test cells that are also in the training log."""
    published: Vector | None = None
    """Propensities that are part of the data set."""
    user_features: object = None
    item_features: object = None

    def is_sampled(self, random_state: int) -> BoolVector:
        """The 5 % of the test that some systems are given.

        Neither these systems nor those compared with them are evaluated on these cells.
        """
        is_chosen = np.zeros(len(self.test), dtype=np.bool_)
        size = round(SAMPLE_SHARE * len(self.test))
        rng = np.random.default_rng((random_state, 2))
        is_chosen[rng.choice(is_chosen.size, size, replace=False)] = True
        return is_chosen

    def fit_naive_bayes(self, random_state: int) -> NaiveBayesPropensity:
        """Eq. (18) with the rating marginals of the sample."""
        sample = self.test.take(self.is_sampled(random_state))
        return NaiveBayesPropensity(smoothing=1.0).fit(self.train, mcar=sample)

    def fit_logistic(self, random_state: int) -> LogisticPropensity:
        """Eq. (17) on all pairs of covariates, without user offsets: all users rated 24 coats."""
        model = LogisticPropensity(
            self.user_features, self.item_features, item_offsets=True, random_state=random_state
        )
        return model.fit(self.train)

    def test_cells(self, random_state: int) -> dict[str, BoolVector]:
        """The cells of each test, by its name."""
        is_rest = ~self.is_sampled(random_state)
        return {
            FULL: np.ones_like(is_rest),
            CLEAN: ~self.overlap,
            REST: is_rest,
            CLEAN_REST: is_rest & ~self.overlap,
        }


def prepare_coat(coat: Coat) -> BiasedData:
    """Coat Shopping, with the authors' propensities and the covariates."""
    return BiasedData(
        "coat",
        coat.train,
        coat.test,
        coat.overlap,
        np.asarray(coat.propensities.values),
        coat.user_features,
        coat.item_features,
    )


def prepare_yahoo(yahoo: YahooR3) -> BiasedData:
    """Yahoo! R3. It has no covariates, so propensities are those of naive Bayes."""
    return BiasedData("yahoo", yahoo.train, yahoo.test, yahoo.overlap)


@dataclass(frozen=True, slots=True, eq=False)
class TrainedSystem:
    """A fitted model, and how its settings were chosen."""

    model: Recommender
    chosen: dict[str, Any]
    score: float | None
    """The score in cross-validation; None without one."""
    n_fits: int
    seconds: float
    """Includes the time for estimating propensities."""


PropensitySource: TypeAlias = Callable[[BiasedData, int], PropensitiesLike | None]


def use_no_propensities(data: BiasedData, random_state: int) -> None:
    """For systems that do not use propensities."""


def use_published_propensities(
    data: BiasedData,
    random_state: int,  # noqa: ARG001
) -> Vector | None:
    """The propensities that are part of the data set."""
    return data.published


@dataclass(frozen=True, slots=True)
class System(ABC):
    """One row of the table: how a model is trained for each metric."""

    name: str
    propensities: PropensitySource = use_no_propensities
    variant: str = ""
    """Distinguishes systems with the same name."""
    short_variant: str = ""
    """The variant for a narrow table."""

    @abstractmethod
    def train(
        self, data: BiasedData, random_state: int, grid: Grid
    ) -> dict[Table2Metric, TrainedSystem]:
        """The model for each metric. ``grid`` has the settings that factorizations search."""

    @property
    def uses_sample(self) -> bool:
        """Whether 5 % of the test are used to train it."""
        return self.propensities is BiasedData.fit_naive_bayes

    @property
    def title(self) -> str:
        """The name and the variant."""
        return ", ".join(filter(None, (self.name, self.variant)))

    @property
    def label(self) -> str:
        """Name and variant for a narrow table."""
        return ", ".join(filter(None, (self.name, self.short_variant or self.variant)))

    def _search(
        self,
        model: Recommender,
        data: BiasedData,
        random_state: int,
        *,
        grid: Grid,
        metric: Table2Metric,
        estimator: str,
    ) -> TrainedSystem:
        """Choose settings by cross-validation, and fit the whole log with them."""
        start = time.perf_counter()
        search = cross_validate(
            model,  # type: ignore[arg-type]
            data.train,
            propensities=self.propensities(data, random_state),
            grid=grid,
            n_folds=N_FOLDS,
            extend_grid=False,
            metric=metric,
            estimator=estimator,
            random_state=random_state,
        )
        return TrainedSystem(
            search.best_model,
            search.best_params,
            search.best_score,
            N_FOLDS * len(search.table) + 1,
            time.perf_counter() - start,
        )


@dataclass(frozen=True, slots=True)
class FactorizationSystem(System):
    """Matrix factorization, trained for each metric and chosen by IPS cross-validation of it."""

    metrics: tuple[Table2Metric, ...] = METRICS
    grid_changes: Grid = field(default_factory=dict)

    def train(
        self, data: BiasedData, random_state: int, grid: Grid
    ) -> dict[Table2Metric, TrainedSystem]:
        return {
            metric: self._search(
                MatrixFactorization(
                    loss=LOSSES[metric],
                    clip_predictions=False,
                    tol=1e-5,
                    random_state=random_state,
                ),
                data,
                random_state,
                grid={**grid, **self.grid_changes},
                metric=metric,
                estimator="ips",
            )
            for metric in self.metrics
        }


@dataclass(frozen=True, slots=True)
class OneFitSystem(System):
    """A model that is chosen by MSE in cross-validation and fitted once for both metrics.

    A model of rating distributions predicts the mean for MSE and the median for MAE.
    """

    model: Recommender = field(kw_only=True)
    own_grid: Grid = field(kw_only=True)

    def train(
        self, data: BiasedData, random_state: int, grid: Grid
    ) -> dict[Table2Metric, TrainedSystem]:
        trained = self._search(
            copy(self.model).set_params(random_state=random_state),
            data,
            random_state,
            grid=self.own_grid,
            metric="mse",
            estimator="naive" if self.propensities is use_no_propensities else "ips",
        )
        for_mse = for_mae = replace(trained, seconds=trained.seconds / 2)
        if isinstance(self.model, DistributionRecommender):
            median = copy(trained.model).set_params(statistic="median")
            for_mae = replace(for_mse, model=median)
        return {"mse": for_mse, "mae": for_mae}


HL_GRID: Grid = {"n_factors": (0, 5, 10)}
MIXTURE_GRID: Grid = {"n_clusters": (1, 2, 5, 10)}
ALL_RANK_GRID: Grid = {"ridge_per_weight": (0.01, 0.04, 0.16, 0.64), "n_factors": (5, 20)}
HL_MAR, HL_MNAR = OrdinalFactorization(mechanism="mar"), OrdinalFactorization(mechanism="mnar")
CPT_V, LOGIT_VD = MultinomialMixture("cpt-v"), MultinomialMixture("logit-vd")
NAIVE_BAYES = BiasedData.fit_naive_bayes
NAIVE = FactorizationSystem("MF-Naive")
NO_OFFSETS = FactorizationSystem(
    "MF-Naive", variant="no offsets", grid_changes={"offsets": ("none",)}
)
# HL MNAR and the mixtures fix the value effects at those of naive Bayes: free ones are not
# identified.
OTHER_SYSTEMS = (
    OneFitSystem("HL MNAR", NAIVE_BAYES, model=HL_MNAR, own_grid=HL_GRID),
    OneFitSystem("HL MAR", model=HL_MAR, own_grid=HL_GRID),
    OneFitSystem("CPT-v", NAIVE_BAYES, model=CPT_V, own_grid=MIXTURE_GRID),
    OneFitSystem("Logit-vd", NAIVE_BAYES, model=LOGIT_VD, own_grid=MIXTURE_GRID),
    OneFitSystem("AllRank", model=AllRank(tol=1e-5), own_grid=ALL_RANK_GRID),
)
SYSTEMS: Mapping[str, tuple[System, ...]] = {
    "coat": (
        FactorizationSystem("MF-IPS", use_published_propensities),
        NAIVE,
        NO_OFFSETS,
        FactorizationSystem(
            "MF-IPS", BiasedData.fit_logistic, "logistic propensities", "logistic", ("mse",)
        ),
        FactorizationSystem("MF-IPS", NAIVE_BAYES, "naive-Bayes propensities", "NB", ("mse",)),
        *OTHER_SYSTEMS,
    ),
    "yahoo": (FactorizationSystem("MF-IPS", NAIVE_BAYES), NAIVE, NO_OFFSETS, *OTHER_SYSTEMS),
}
"""By data set, in the order of the table."""
