"""What Table 2 compares: two data sets, and systems that are trained on each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from unskew.data.propensities import PropensitiesLike
from unskew.data.ratings import Ratings
from unskew.datasets.coat import Coat
from unskew.datasets.yahoo_r3 import YahooR3
from unskew.model_selection.search import Setting, cross_validate
from unskew.models.all_rank import AllRank
from unskew.models.matrix_factorization import MatrixFactorization
from unskew.models.mixture import MultinomialMixture
from unskew.models.ordinal import OrdinalFactorization
from unskew.models.recommender import Recommender
from unskew.propensity.covariate.logistic import LogisticPropensity
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.types import BoolVector, Vector

Grid: TypeAlias = Mapping[str, Sequence[Any]]
Metric: TypeAlias = Literal["mse", "mae"]
METRICS: tuple[Metric, ...] = ("mse", "mae")
LOSSES: Mapping[Metric, Literal["squared", "absolute"]] = {"mse": "squared", "mae": "absolute"}
HL_GRID: Grid = {"n_factors": (0, 5, 10)}
MIXTURE_GRID: Grid = {"n_clusters": (1, 2, 5, 10)}
ALL_RANK_GRID: Grid = {"l2": (0.01, 0.04, 0.16, 0.64), "n_factors": (5, 20)}
SAMPLE_SHARE = 0.05
FULL, CLEAN = "full test", "clean test"
REST, CLEAN_REST = "95 % of the test", "95 % of the test, clean"
"""The test without the random ratings that some systems had."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A log that people chose, a test of cells that were drawn for them, and what is known beside."""

    name: str
    train: Ratings
    test: Ratings
    overlap: BoolVector
    """Test cells that are in the training log too."""
    published: Vector | None = None
    """Propensities that came with the data."""
    user_features: object = None
    item_features: object = None

    def sampled(self, seed: int) -> BoolVector:
        """Which 5 % of the test are given away: nobody who had them, or is compared with one who had, is judged on them."""
        chosen = np.zeros(len(self.test), dtype=np.bool_)
        size = round(SAMPLE_SHARE * len(self.test))
        chosen[np.random.default_rng((seed, 2)).choice(chosen.size, size, replace=False)] = True
        return chosen

    def naive_bayes(self, seed: int) -> NaiveBayesPropensity:
        """Eq. (18) with the marginals of the sample."""
        return NaiveBayesPropensity().fit(self.train, mcar=self.test.take(self.sampled(seed)))

    def cells(self, seed: int) -> dict[str, BoolVector]:
        """The tests, by their names."""
        rest = ~self.sampled(seed)
        return {
            FULL: np.ones_like(rest),
            CLEAN: ~self.overlap,
            REST: rest,
            CLEAN_REST: rest & ~self.overlap,
        }


def coat_task(coat: Coat) -> Task:
    """Coat Shopping, with the authors' propensities and the covariates."""
    known = coat.user_features, coat.item_features
    return Task(
        "coat", coat.train, coat.test, coat.overlap, np.asarray(coat.propensities.values), *known
    )


def yahoo_task(yahoo: YahooR3) -> Task:
    """Yahoo! R3, which has no covariates: propensities are those of naive Bayes, as in the paper."""
    return Task("yahoo", yahoo.train, yahoo.test, yahoo.overlap)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model, and how its settings were chosen."""

    model: Recommender
    chosen: Setting
    score: float | None
    """What cross-validation promised; None without one."""
    n_fits: int
    seconds: float
    """With the time that propensities took."""


@dataclass(frozen=True, slots=True)
class System:
    """One row of the table: how it is trained, for either metric."""

    name: str
    train: Callable[[Task, int, Grid], dict[Metric, Trained]]
    variant: str = ""
    """What tells it from another system of that name."""
    had_sample: bool = False
    """Whether 5 % of the test went into it."""
    short: str = ""
    """The variant, for a narrow table."""

    @property
    def title(self) -> str:
        """Name and variant."""
        return ", ".join(filter(None, (self.name, self.variant)))

    @property
    def label(self) -> str:
        """The same for a narrow table."""
        return ", ".join(filter(None, (self.name, self.short or self.variant)))


def searched(
    task: Task,
    metric: Metric,
    seed: int,
    grid: Grid,
    propensities: Callable[[], PropensitiesLike | None],
) -> Trained:
    """A factorisation chosen by four-fold IPS cross-validation of the metric that it is trained for."""
    began = time.perf_counter()
    found = cross_validate(
        MatrixFactorization(loss=LOSSES[metric], tol=1e-5, random_state=seed),
        task.train,
        propensities(),
        grid=grid,
        n_folds=4,
        metric=metric,
        estimator="ips",
        random_state=seed,
    )
    n_fits = 4 * len(found.table) + 1
    return Trained(
        found.best_model, found.best_params, found.best_score, n_fits, time.perf_counter() - began
    )


def _for_both(
    task: Task, seed: int, grid: Grid, propensities: Callable[[], PropensitiesLike | None]
) -> dict[Metric, Trained]:
    return {metric: searched(task, metric, seed, grid, propensities) for metric in METRICS}


def _for_mse(
    task: Task, seed: int, grid: Grid, propensities: Callable[[], PropensitiesLike | None]
) -> dict[Metric, Trained]:
    return {"mse": searched(task, "mse", seed, grid, propensities)}


def _published(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:
    return _for_both(task, seed, grid, lambda: task.published)


def _naive(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:
    return _for_both(task, seed, grid, lambda: None)


def _no_offsets(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:
    return _for_both(task, seed, {**grid, "offsets": ("none",)}, lambda: None)


def _logistic(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:
    """Eq. (17) on all pairs of covariates. Everybody rated 24 coats, so that users need no offset."""
    model = LogisticPropensity(
        task.user_features, task.item_features, item_offsets=True, random_state=seed
    )
    return _for_mse(task, seed, grid, lambda: model.fit(task.train))


def _bayes_for_mse(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:
    return _for_mse(task, seed, grid, lambda: task.naive_bayes(seed))


def _bayes(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:
    return _for_both(task, seed, grid, lambda: task.naive_bayes(seed))


def _rival(
    task: Task,
    seed: int,
    model: Recommender,
    grid: Grid,
    propensities: Callable[[], PropensitiesLike | None],
) -> dict[Metric, Trained]:
    """A model of distributions, chosen by cross-validation of its mean; the same fit is judged by its median for MAE."""
    began = time.perf_counter()
    known = propensities()
    estimator = "naive" if known is None else "ips"
    found = cross_validate(
        model, task.train, known, grid=grid, metric="mse", estimator=estimator, random_state=seed
    )  # type: ignore[arg-type]
    seconds = (time.perf_counter() - began) / 2
    n_fits = 4 * len(found.table) + 1
    median = copy(found.best_model).set_params(statistic="median")
    models: tuple[tuple[Metric, Recommender], ...] = (("mse", found.best_model), ("mae", median))
    return {
        metric: Trained(each, found.best_params, found.best_score, n_fits, seconds)
        for metric, each in models
    }


def _hl_mar(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:  # noqa: ARG001
    return _rival(
        task, seed, OrdinalFactorization(mechanism="mar", random_state=seed), HL_GRID, lambda: None
    )


def _hl_mnar(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:  # noqa: ARG001
    """Value effects are those of naive Bayes, fixed: free ones are not identified."""
    model = OrdinalFactorization(mechanism="mnar", random_state=seed)
    return _rival(task, seed, model, HL_GRID, lambda: task.naive_bayes(seed))


def _cpt_v(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:  # noqa: ARG001
    return _rival(
        task,
        seed,
        MultinomialMixture("cpt-v", random_state=seed),
        MIXTURE_GRID,
        lambda: task.naive_bayes(seed),
    )


def _logit_vd(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:  # noqa: ARG001
    model = MultinomialMixture("logit-vd", random_state=seed)
    return _rival(task, seed, model, MIXTURE_GRID, lambda: task.naive_bayes(seed))


def _all_rank(task: Task, seed: int, grid: Grid) -> dict[Metric, Trained]:  # noqa: ARG001
    """Chosen by squared error on the log, naively: it has no propensities, and ratings are what the table judges."""
    began = time.perf_counter()
    found = cross_validate(
        AllRank(tol=1e-5, random_state=seed),
        task.train,
        grid=ALL_RANK_GRID,
        metric="mse",
        estimator="naive",
        random_state=seed,
    )
    taken = time.perf_counter() - began
    one = Trained(
        found.best_model, found.best_params, found.best_score, 4 * len(found.table) + 1, taken / 2
    )
    return {"mse": one, "mae": one}


NAIVE = System("MF-Naive", _naive)
RIVALS = (
    System("HL MNAR", _hl_mnar, had_sample=True),
    System("HL MAR", _hl_mar),
    System("CPT-v", _cpt_v, had_sample=True),
    System("Logit-vd", _logit_vd, had_sample=True),
    System("AllRank", _all_rank),
)
NO_OFFSETS = System("MF-Naive", _no_offsets, "no offsets")
SYSTEMS: Mapping[str, tuple[System, ...]] = {
    "coat": (
        System("MF-IPS", _published),
        NAIVE,
        NO_OFFSETS,
        System("MF-IPS", _logistic, "logistic propensities", short="logistic"),
        System("MF-IPS", _bayes_for_mse, "naive-Bayes propensities", had_sample=True, short="NB"),
        *RIVALS,
    ),
    "yahoo": (System("MF-IPS", _bayes, had_sample=True), NAIVE, NO_OFFSETS, *RIVALS),
}
"""By data set, in the order of the table."""
