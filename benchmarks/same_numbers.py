"""Run the whole public API on fixed seeds, and compare its numbers with stored ones.

    python benchmarks/same_numbers.py --write     # store the numbers in same_numbers.json
    python benchmarks/same_numbers.py             # compute them again, and compare
    python benchmarks/same_numbers.py --only frames --only theory

Run this after a change that must not change any number. Each area is a function that yields
(key, number). Keys are plain words, not names of the library: if names change, only the calls below
need editing, and the stored numbers stay. The last digits of iterative fits depend on the processor
and on the versions of NumPy, SciPy and numba, so store and compare on the same machine. The area
"datasets" reads the folder $UNSKEW_DATA, and is skipped without it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import unskew
from unskew import theory as theorems
from unskew.data import (
    Factors,
    Universe,
    inverse_weights,
)
from unskew.engines import (
    GpuEngine,
)
from unskew.estimators import (
    Clip,
    Dynamic,
    Shrink,
    SubGaussian,
    Switch,
)
from unskew.evaluation import Imputation
from unskew.model_selection import (
    Learner,
)
from unskew.models import (
    DRV2,
    EIB,
    IPSV2,
    TDR,
    AllRank,
    DoublyRobustFactorization,
    ExposureFactorization,
    GlobalMean,
    LogisticFactorization,
    MultinomialMixture,
    OffsetsOnly,
    OrdinalFactorization,
    Popularity,
    RelevanceFactorization,
    StableDR,
    TriTraining,
    WeightedFactorization,
)
from unskew.propensity import (
    BoostedPropensity,
    CalibratedPropensity,
    ClassifierPropensity,
    ClippedPropensity,
    CrossFittedPropensity,
    OneBitPropensity,
    PoissonPropensity,
    PopularityPropensity,
    ScaledPropensity,
    UniformPropensity,
)
from unskew.simulation import (
    ByCovariates,
    ByRating,
    Observation,
    Uniform,
)

# With several threads polars adds in varying order. A lazy frame may still vary in its last bit.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
STORED = Path(__file__).with_suffix(".json")
CLOSE = 1e-12
"""Largest relative difference that passes without a reason."""
ROUNDING: dict[str, float] = {}
"""Larger tolerances for results of iterative fits whose sums were reordered, with the reason."""
Numbers = Iterator[tuple[str, float]]
FIXED: dict[str, Any] = {"l2": 1.0, "clip_predictions": False}
"""Settings of factorisations, named because their defaults depend on the log."""
NOT_CLIPPED: dict[str, Any] = {"clip_predictions": False}
ROBUST: dict[str, Any] = FIXED | {
    "penalizes": "prediction",
    "imputer": unskew.MatrixFactorization(5, 1.0, offsets="none"),
}
"""The same for doubly robust learners."""

# Names in the library of metrics, estimators and transforms, by the names in keys

METRICS = {
    "mse": "mse",
    "mae": "mae",
    "accuracy": "accuracy",
    "dcg": "dcg",
    "dcg-at-5": "dcg@5",
    "cg-at-5": "cg@5",
    "precision-at-5": "precision@5",
    "recall-at-5": "recall@5",
    "stratified-recall-at-5": "stratified_recall@5",
    "area-above-top": "atop",
}
RATIO_METRICS = ("recall-at-5", "stratified-recall-at-5", "area-above-top")
"""Metrics that are not means over all cells. Only some estimators support them."""
ESTIMATORS = {
    "naive": "naive",
    "ips": "ips",
    "snips": "snips",
    "normalized-by-user": "user_normalized",
    "normalized-by-item": "item_normalized",
    "error-imputation": "eib",
    "doubly-robust": "dr",
}
IMPUTING = ("error-imputation", "doubly-robust")
OF_RATIOS = ("naive", "ips", "snips")
TRANSFORMS = {
    "clip": lambda: Clip(6.0),
    "switch": lambda: Switch(8.0),
    "shrink": lambda: Shrink(20.0),
    "sub-gaussian": lambda: SubGaussian(0.1),
    "dynamic": lambda: Dynamic(0.1),
}


# Small simulations and other inputs that several areas share


@cache
def world() -> Any:
    """60 users and 80 items; high ratings are observed more often."""
    return unskew.simulate(60, 80, density=0.15, alpha=0.5, random_state=3)


@cache
def all_propensities() -> Any:
    """True propensities of all cells."""
    return world().observation.propensities(slice(None))


@cache
def random_ratings() -> Any:
    """Ratings of cells picked at random."""
    return np.random.default_rng(4).choice(world().truth.ravel(), 300)


@cache
def random_test() -> Any:
    """A test of cells picked at random."""
    user, item = np.divmod(np.random.default_rng(5).choice(60 * 80, 400, replace=False), 80)
    return unskew.Ratings.from_arrays(user, item, world().truth[user, item])


@cache
def score_matrices() -> dict[str, Any]:
    """Two models as matrices: one overrates bad items, one has errors of equal size."""
    noise = np.random.default_rng(6).standard_normal((60, 80))
    truth = world().truth.astype(np.float64)
    return {"kind": truth + 1.5 * (truth <= 2) + 0.4 * noise, "fair": truth + 0.9 * noise}


@cache
def imputed_ratings() -> Any:
    """Imputed ratings of all cells, as a matrix."""
    return 0.6 * world().truth + 0.9 + 0.3 * np.random.default_rng(7).standard_normal((60, 80))


@cache
def covariates() -> tuple[Any, Any]:
    """Covariates of users and items, related to activity and popularity in the log."""
    rng, log = np.random.default_rng(8), world().log
    activity = np.bincount(log.user, minlength=60) > 8
    popularity = np.bincount(log.item, minlength=80) > 8
    user = np.column_stack([activity ^ (rng.random(60) < 0.2), rng.integers(0, 3, 60)])
    item = np.column_stack([popularity ^ (rng.random(80) < 0.2), rng.integers(0, 3, 80)])
    return user.astype(float), item.astype(float)


@cache
def covariate_world() -> Any:
    """A log in which propensities depend on covariates."""
    user, item = covariates()
    seen = ByCovariates(np.exp(user[:, 0]), np.exp(0.5 * item[:, 1]))
    return unskew.simulate(60, 80, density=0.15, observation=seen, random_state=9)


@cache
def naive_bayes() -> Any:
    """Propensities by rating."""
    return unskew.NaiveBayesPropensity().fit(world().log, mcar=random_ratings())


@cache
def clicks() -> tuple[Any, Any]:
    """Ratings of 4 and 5 alone, and their propensities."""
    liked = world().log.rating >= 4
    return world().log.take(liked), world().propensities.take(liked)


def summary(key: str, values: Any) -> Numbers:
    """Mean and minimum of an array, and a sum that depends on the order."""
    values = np.asarray(values, dtype=np.float64).ravel()
    yield f"{key}/mean", values.mean()
    yield f"{key}/least", values.min()
    yield f"{key}/in-order", in_order(values)


def in_order(values: Any) -> float:
    """The sum of values[i] * cos(i), which depends on the order."""
    values = np.asarray(values, dtype=np.float64).ravel()
    return float(values @ np.cos(np.arange(values.size)))


def figures(text: str) -> list[float]:
    """The decimal fractions in a text."""
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


# How results are read


def risk(result: Any, model: str, metric: str, estimator: str) -> Any:
    """One model's risk by one metric and estimator."""
    return result.risk(model, metric=metric, estimator=estimator)


def value(result: Any, model: str, metric: str, estimator: str) -> float:
    """The estimate of that risk."""
    return risk(result, model, metric, estimator).estimate


def interval(key: str, result: Any, model: str, metric: str, estimator: str) -> Numbers:
    """The estimate of that risk, its standard error and its interval."""
    estimated = risk(result, model, metric, estimator)
    yield f"{key}/value", estimated.estimate
    yield f"{key}/std-error", estimated.std_error
    yield f"{key}/ci-low", estimated.ci_low
    yield f"{key}/ci-high", estimated.ci_high


def difference(key: str, compared: Any) -> Numbers:
    """The comparison of two models: first minus second."""
    yield f"{key}/difference", compared.difference
    yield f"{key}/std-error", compared.std_error
    yield f"{key}/ci-low", compared.ci_low
    yield f"{key}/ci-high", compared.ci_high
    yield f"{key}/p-value", compared.p_value
    yield f"{key}/is-first-better", compared.better == compared.first


def model_numbers(key: str, model: Any) -> Numbers:
    """Predictions of all cells, best items of three users, and the objective of the fit."""
    users, items = np.repeat(np.arange(60), 80), np.tile(np.arange(80), 60)
    predicted = model.predict(users, items)
    yield f"{key}/predictions", in_order(predicted)
    yield f"{key}/best-items", in_order(model.recommend([0, 7, 59], k=4).items)
    if hasattr(model, "objective_"):
        yield f"{key}/objective", model.objective_


# Areas


def logs() -> Numbers:
    """Logs from every source, parts of them, propensities and weights."""
    import pandas as pd
    import polars as pl
    from scipy import sparse

    dense = np.array([[5, 0, 3, 0], [0, 2, 0, 4], [1, 0, 0, 5]])
    user, item = np.nonzero(dense)
    rating = dense[user, item]
    columns = {"uid": [f"u{code}" for code in user], "movieId": item + 10, "stars": rating}
    repeated = ["b", "a", "b", "b"], [1, 1, 2, 1], [5, 3, 2, 1]
    logs_by_key = {
        "dense": unskew.Ratings.from_dense(dense),
        "dense-with-nan": unskew.Ratings.from_dense(
            np.where(dense > 0, dense, np.nan), missing=np.nan
        ),
        "sparse": unskew.Ratings.from_sparse(sparse.csr_array(dense)),
        "pandas": unskew.Ratings.from_frame(pd.DataFrame(columns)),
        "polars": unskew.Ratings.from_frame(pl.DataFrame(columns), universe=(9, 9)),
        "arrays": unskew.Ratings.from_arrays(
            user, item, rating, users=np.arange(5), items=np.arange(6)
        ),
        "codes": unskew.Ratings.from_codes(user, item, rating, shape=(3, 4)),
        "mean-of-repeated": unskew.Ratings.from_arrays(*repeated, duplicates="mean"),
        "last-of-repeated": unskew.Ratings.from_arrays(*repeated, duplicates="last"),
    }
    for key, log in logs_by_key.items():
        yield f"{key}/content", in_order(np.concatenate([log.user, log.item, log.rating]))
        yield f"{key}/sizes", in_order([len(log), log.n_users, log.n_items, log.density])
    yield "dense/cells", logs_by_key["dense"].n_cells
    yield "part/content", in_order(logs_by_key["dense"].take(np.array([4, 0, 2])).rating)
    yield "frame/content", in_order(logs_by_key["pandas"].to_frame("polars")["stars"].to_numpy())
    log, propensities = world().log, world().propensities
    yield "propensities/scaled", in_order(propensities.scaled(0.25).values)
    yield "propensities/inverse-of-part", in_order(propensities.take(np.arange(20)).inverse)
    yield "universe/cells", Universe(30, 7).n_cells
    yield "weights/plain", in_order(inverse_weights(log, all_propensities()))
    for key, transform in TRANSFORMS.items():
        yield (
            f"weights/{key}",
            in_order(inverse_weights(log, propensities, weight_transform=transform())),
        )


def simulation() -> Numbers:
    """Simulated rating matrices, and logs drawn from them."""
    simulations = {
        "by-rating": world(),
        "by-covariates": covariate_world(),
        "uniform": unskew.simulate(50, 40, density=0.2, observation=Uniform(), random_state=1),
        "long-tail": unskew.simulate(
            50,
            40,
            density=0.1,
            observation=ByCovariates.long_tail(50, 40, skew=0.4, random_state=2),
            marginals=(0.2, 0.3, 0.5),
            n_factors=2,
            noise=0.1,
            users=[f"u{number:02}" for number in range(50)],
            items=np.arange(100, 140),
        ),
    }
    for key, simulated in simulations.items():
        yield f"{key}/truth", in_order(simulated.truth)
        yield f"{key}/ratings", len(simulated.log)
        yield f"{key}/log", in_order(simulated.log.rating)
        yield f"{key}/propensities", in_order(simulated.propensities.values)
        yield f"{key}/scale", simulated.observation.scale
    drawn, probabilities = simulations["uniform"].observation.draw(np.random.default_rng(3))
    yield "again/ratings", len(drawn)
    yield "again/propensities", in_order(probabilities.values)
    model = ByRating(0.3, full_from=3.0)
    seen = Observation.of(world().truth, model, density=0.1)
    yield "by-rating-from-three/propensities", in_order(seen.propensities(slice(10, 20)))


def theory() -> Numbers:
    """Bias, variance and bounds."""
    rng = np.random.default_rng(0)
    loss, true, assumed = (
        rng.random((6, 7)),
        rng.uniform(0.1, 1, (6, 7)),
        rng.uniform(0.1, 1, (6, 7)),
    )
    weight, imputed = 1 / np.maximum(assumed, 0.3), rng.random((6, 7))
    settings = {"max_delta": 1.0, "n_hypotheses": 50}
    yield "ips-bias", theorems.ips_bias(loss, true=true, assumed=assumed)
    yield "ips-variance", theorems.ips_variance(loss, true)
    yield (
        "estimator-bias",
        theorems.estimator_bias(loss, true=true, weight=weight, imputed=imputed),
    )
    yield "tail-bound", theorems.tail_bound(loss, true, failure_probability=0.1)
    yield "bias-bound", theorems.bias_bound(true=true, assumed=assumed, max_delta=2.0)
    yield "weighted-bias-bound", theorems.bias_bound(true=true, assumed=assumed, weight=loss)
    yield "learning-bound", theorems.erm_bound(0.3, true, **settings)
    yield (
        "learning-bound-with-estimated-propensities",
        theorems.erm_bound_estimated(0.3, true=true, assumed=assumed, **settings),
    )


def evaluate() -> Numbers:
    """Every metric by every estimator, and every form that predictions may have."""
    log, propensities, models = world().log, world().propensities, score_matrices()
    settings = {"propensities": propensities, "relevance_threshold": 4.0}
    means = {key: name for key, name in METRICS.items() if key not in RATIO_METRICS}
    of_ratios = {key: ESTIMATORS[key] for key in OF_RATIOS}
    whole = unskew.evaluate(
        log,
        models,
        metrics=list(means.values()),
        estimators=list(ESTIMATORS.values()),
        imputation=Imputation(imputed_ratings(), is_independent=True),
        **settings,
    )
    ratios = unskew.evaluate(
        log,
        models,
        metrics=[METRICS[key] for key in RATIO_METRICS],
        estimators=list(of_ratios.values()),
        **settings,
    )
    for key, name in METRICS.items():
        result, estimators = (ratios, of_ratios) if key in RATIO_METRICS else (whole, ESTIMATORS)
        risks = {
            estimator: risk(result, "kind", name, estimator_name)
            for estimator, estimator_name in estimators.items()
        }
        for estimator, estimated in risks.items():
            yield f"matrix/{key}/{estimator}/value", estimated.estimate
        std_errors = [estimated.std_error for estimated in risks.values()]
        yield f"matrix/{key}/std-errors", in_order(std_errors)
    yield "effective-sample-size", whole.weight_summary.effective_sample_size
    yield "weights-over-cells", whole.weight_summary.mass_ratio
    yield from prediction_forms()


class Pairs:
    """Any model that predicts pairs of ids."""

    def predict(self, users: Any, items: Any) -> Any:
        """Scores from the matrix; ids are equal to codes here."""
        return score_matrices()["fair"][users, items]


def prediction_forms() -> Numbers:
    """Arrays, matrix, models, frames, callables and factors."""
    import pandas as pd
    import polars as pl

    log, propensities, scores = world().log, world().propensities, score_matrices()["fair"]
    position = rank_positions(scores)
    user, item = np.indices(scores.shape).reshape(2, -1)
    table = {"user_id": user, "item_id": item, "prediction": scores.ravel()}
    table["position"] = position.ravel()
    rng = np.random.default_rng(10)
    factors = Factors(
        rng.normal(size=(60, 3)), rng.normal(size=(80, 3)), rng.normal(size=60), np.ones(80), 3.0
    )
    model = unskew.MatrixFactorization(3, max_iter=20, **FIXED).fit(log, propensities)
    forms = {
        "matrix": scores,
        "arrays": scores[log.user, log.item],
        "pandas-frame": pd.DataFrame(table),
        "polars-frame": pl.DataFrame(table),
        "model-of-pairs": Pairs(),
        "callable": lambda users, items: scores[np.ix_(users, items)],
        "factors": factors,
        "recommender": model,
    }
    for key, form in forms.items():
        ranks = key != "arrays"
        metrics = ["mse", "mae", *(["dcg", "dcg@5", "recall@5"] if ranks else [])]
        result = unskew.evaluate(
            log,
            {"one": form},
            propensities=propensities,
            metrics=metrics,
            relevance_threshold=4.0,
            position="position" if key.endswith("frame") else None,
        )
        values = [value(result, "one", metric, "snips") for metric in metrics]
        yield f"form-{key}/mse/snips/value", values[0]
        yield f"form-{key}/all-metrics/snips/values", in_order(values)


def rank_positions(scores: Any) -> Any:
    """The position of every item in its user's ranking; 1 is the top."""
    return (-scores).argsort(axis=1).argsort(axis=1) + 1


def evaluate_settings() -> Numbers:
    """Kinds of propensities, weight transforms, clusters, bootstrap, levels and universes."""
    log, propensities, models = world().log, world().propensities, score_matrices()
    logged = {name: scores[log.user, log.item] for name, scores in models.items()}

    def run(**changes: Any) -> Any:
        settings = {
            "propensities": propensities,
            "metrics": ["mae"],
            "estimators": ["ips", "snips"],
        }
        return unskew.evaluate(log, models, **settings | changes)

    results = {
        "naive-bayes": run(propensities=naive_bayes()),
        "propensity-matrix": run(propensities=all_propensities()),
        "clustered-by-user": run(cluster="user"),
        "clustered-by-item": run(cluster="item"),
        "resampled": run(bootstrap=200, random_state=3),
        "resampled-items": run(bootstrap=100, cluster="item"),
        "level-80": run(level=0.8),
        "larger-universe": unskew.evaluate(
            log, logged, propensities=propensities, metrics=["mae"], universe=(100, 120)
        ),
    }
    results |= {key: run(weight_transform=transform()) for key, transform in TRANSFORMS.items()}
    for key, result in results.items():
        ips, snips = (risk(result, "fair", "mae", estimator) for estimator in ("ips", "snips"))
        limits = [ips.ci_low, ips.ci_high, snips.ci_low, snips.ci_high]
        yield f"{key}/mae/ips/value", ips.estimate
        yield f"{key}/mae/snips/value", snips.estimate
        yield f"{key}/mae/limits", in_order(limits)
    plain = unskew.Ratings.from_arrays(log.user, log.item, log.rating)
    for key, universe in {
        "of-log": "log",
        "of-pair": (60, 80),
        "of-object": Universe(60, 80),
    }.items():
        result = unskew.evaluate(
            plain,
            logged,
            propensities=propensities,
            metrics=["mae"],
            estimators=["ips"],
            universe=universe,
        )
        yield f"universe-{key}/mae/ips/value", value(result, "kind", "mae", "ips")
    robust = run(
        metrics=["mse"],
        estimators=["dr", "eib"],
        imputation=Imputation(imputed_ratings(), is_independent=True),
        cluster="user",
    )
    yield from interval("clustered-by-user/mse/doubly-robust", robust, "kind", "mse", "dr")
    switched = run(
        estimators=["dr"],
        imputation=Imputation(Pairs(), is_independent=True),
        weight_transform=Switch(8.0),
    )
    yield from interval("switch/mae/doubly-robust", switched, "kind", "mae", "dr")


def comparisons() -> Numbers:
    """Paired comparisons of two models, and of the best with all others."""
    log, propensities = world().log, world().propensities
    models = score_matrices() | {"imputed": imputed_ratings()}
    settings = {
        "propensities": propensities,
        "metrics": ["mae", "dcg@5"],
        "estimators": ["naive", "snips"],
    }
    plain = unskew.evaluate(log, models, **settings)
    clustered = unskew.evaluate(log, models, cluster="user", **settings)
    resampled = unskew.evaluate(log, models, bootstrap=200, **settings)
    for key, result in {"cells": plain, "users": clustered, "resampled": resampled}.items():
        comparison = result.compare("kind", "fair", metric="mae", estimator="snips")
        yield from difference(f"{key}/mae/snips", comparison)
    comparison = plain.compare("imputed", "fair", metric="dcg@5", estimator="naive")
    yield from difference("cells/dcg-at-5/naive", comparison)
    differences = list(plain.differences())
    yield "all/number", len(differences)
    yield "all/differences", in_order([pair.difference for pair in differences])
    yield "all/std-errors", in_order([pair.std_error for pair in differences])
    yield "all/p-values", in_order([pair.p_value for pair in differences])


def sensitivity() -> Numbers:
    """How estimates and comparisons change with clipped weights or wrong propensities."""
    result = unskew.evaluate(
        world().log,
        score_matrices(),
        propensities=world().propensities,
        metrics=["mae", "mse"],
        estimators=["naive", "ips", "snips", "user_normalized"],
    )
    moved = unskew.sensitivity(result, max_weight=[4.0, 10.0], odds_error=[1.0, 1.5, 2.0])
    for key in ("ips", "snips", "normalized-by-user"):
        of_one = [
            shift
            for shift in moved.shifts
            if (shift.model, shift.metric, shift.estimator) == ("kind", "mae", ESTIMATORS[key])
        ]
        clipped = [shift for shift in of_one if shift.change == "clip"]
        wrong = [shift for shift in of_one if shift.change == "odds_error"]
        for change, shifts in (("clipped", clipped), ("odds-wrong", wrong)):
            ranges = [(shift.low, shift.high) for shift in shifts]
            limits = [(shift.ci_low, shift.ci_high) for shift in shifts]
            yield f"mae/{key}/{change}/ranges", in_order(ranges)
            yield f"mae/{key}/{change}/limits", in_order(limits)
        yield f"mae/{key}/share-clipped", in_order([shift.share_clipped for shift in clipped])
    yield "rows", len(moved.shifts)
    yield "default/rows", len(unskew.sensitivity(result).shifts)
    for estimator in ("ips", "snips"):
        robust = moved.compare("kind", "fair", metric="mse", estimator=estimator)
        yield f"mse/{estimator}/difference", robust.difference
        yield f"mse/{estimator}/flips-at", robust.flips_at
        yield f"mse/{estimator}/unsure-at", robust.unsure_at
        yield f"mse/{estimator}/limits", in_order([shift.ci_high for shift in robust.shifts])


def frame_columns() -> dict[str, Any]:
    """The columns of the log, with predictions, positions, propensities and a group."""
    log, models = world().log, score_matrices()
    cells = log.user, log.item
    columns = {"user_id": log.user, "item_id": log.item, "rating": log.rating}
    columns["propensity"] = world().propensities.values
    columns |= {name: scores[cells] for name, scores in models.items()}
    columns |= {
        f"place of {name}": rank_positions(scores)[cells] for name, scores in models.items()
    }
    return columns | {"half": np.where(log.user % 2 == 1, "odd", "even")}


def frames() -> Numbers:
    """Logs in frames of each library."""
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    columns = frame_columns()
    table = pa.table(columns)
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    relation = connection.from_arrow(table)
    frames_by_key = {
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "lazy-polars": pl.LazyFrame(columns),
        "pyarrow": table,
        "duckdb": relation,
    }
    for key, frame in frames_by_key.items():
        yield from frame_numbers(key, frame)
    is_observed, relevant = np.random.default_rng(1).random(4800) < 0.2, 4.0
    truth, score = world().truth.ravel().astype(float), score_matrices()["fair"].ravel()
    user, item = np.indices((60, 80)).reshape(2, -1)
    complete = pl.DataFrame(
        {
            "user_id": user,
            "item_id": item,
            "rating": [
                rating if observed else None
                for rating, observed in zip(truth, is_observed, strict=True)
            ],
            "propensity": np.full(4800, 0.2),
            "fair": score,
        }
    )
    result = unskew.evaluate_frame(
        complete,
        prediction="fair",
        metrics=["dcg@5", "recall@5"],
        universe=(60, 80),
        is_complete=True,
        relevance_threshold=relevant,
    )
    for metric in ("dcg@5", "recall@5"):
        yield (
            f"complete/{metric.replace('@', '-at-')}/snips",
            value(result, "fair", metric, "snips"),
        )


def frame_numbers(key: str, frame: Any) -> Numbers:
    """All metrics and estimators that work on frames, and some settings; many are summed up."""
    models = ["kind", "fair"]
    settings = {"prediction": models, "position": [f"place of {name}" for name in models]}
    settings |= {"universe": (60, 80), "relevance_threshold": 4.0}
    means = [name for metric, name in METRICS.items() if metric not in RATIO_METRICS]
    names = {key: name for key, name in ESTIMATORS.items() if key not in IMPUTING}
    whole = unskew.evaluate_frame(frame, metrics=means, estimators=list(names.values()), **settings)
    for name, estimator in names.items():
        risks = [risk(whole, "kind", metric, estimator) for metric in means]
        yield (
            f"{key}/{name}/means",
            in_order([(estimated.estimate, estimated.std_error) for estimated in risks]),
        )
    metrics = [METRICS[metric] for metric in RATIO_METRICS]
    ratios = unskew.evaluate_frame(
        frame, metrics=metrics, estimators=[ESTIMATORS[name] for name in OF_RATIOS], **settings
    )
    for name in OF_RATIOS:
        risks = [risk(ratios, "kind", metric, ESTIMATORS[name]) for metric in metrics]
        yield (
            f"{key}/{name}/ratios",
            in_order([(estimated.estimate, estimated.std_error) for estimated in risks]),
        )
    compared = whole.compare("kind", "fair", metric="mae", estimator="snips")
    yield f"{key}/difference/p-value", compared.p_value
    for cluster in ("user", "item"):
        result = unskew.evaluate_frame(frame, prediction="fair", cluster=cluster, universe="log")
        yield (
            f"{key}/clustered-by-{cluster}/std-error",
            risk(result, "fair", "mae", "ips").std_error,
        )
    result = unskew.evaluate_frame(
        frame,
        prediction="fair",
        universe=(60, 80),
        weight_transform=Clip(5.0),
        check_duplicates=True,
    )
    yield f"{key}/clipped/value", value(result, "fair", "mae", "ips")
    groups = unskew.evaluate_frame(frame, prediction=models, universe=(30, 80), by="half")
    values = [value(groups[group], "kind", "mse", "ips") for group in ("even", "odd")]
    yield f"{key}/groups", in_order(values)


def ranking() -> Numbers:
    """Ranking metrics on a test of random cells."""
    test, scores = random_test(), score_matrices()["fair"]
    logged = scores[test.users[test.user], test.items[test.item]]

    def judge(model: Any, metric: str, **options: Any) -> float:
        result = unskew.evaluate_random_test(
            test, model, metrics=[metric], relevance_threshold=3, **options
        )
        return next(iter(result)).estimate

    for empty in ("drop", "one", "zero"):
        yield f"empty-users-{empty}/ndcg", judge(logged, "ndcg@5", empty_users=empty)
    yield "auc", judge(logged, "pooled_auc")
    yield "auc-within-users", judge(logged, "auc")
    yield "model/auc", judge(OffsetsOnly(**FIXED).fit(world().log), "pooled_auc")


def propensity_models() -> Numbers:
    """Every model of what is observed."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression

    log, sample = world().log, random_ratings()
    by_rating = {
        "naive-bayes": naive_bayes(),
        "naive-bayes/of-table": unskew.NaiveBayesPropensity(smoothing=0.0).fit(
            log, mcar={1.0: 0.5, 2.0: 0.25, 3.0: 0.15, 4.0: 0.07, 5.0: 0.03}
        ),
        "naive-bayes/in-bins": unskew.NaiveBayesPropensity(bins=2).fit(log, mcar=sample),
    }
    for key, model in by_rating.items():
        yield from summary(key, model.predict(log))
    yield "naive-bayes/of-ratings", in_order(naive_bayes().predict_ratings([5, 1, 3]))
    by_count = {
        "uniform": UniformPropensity().fit(log),
        "popularity/of-items": PopularityPropensity("item").fit(log),
        "popularity/of-users": PopularityPropensity("user", power=0.5).fit(log),
        "popularity/of-both": PopularityPropensity("both", smoothing=1.0).fit(log),
        "popularity/larger-universe": PopularityPropensity("item", smoothing=1.0).fit(
            unskew.Ratings.from_arrays(log.user, log.item, log.rating), universe=(90, 95)
        ),
        "one-bit/low-rank": OneBitPropensity(3).fit(log),
        "one-bit/by-cross-validation": OneBitPropensity(2, "cv", max_iter=40).fit(log),
        "one-bit/convex": OneBitPropensity(
            solver="convex", max_nuclear=1.0, max_logit=3.0, max_iter=30
        ).fit(log),
        "poisson/bernoulli": PoissonPropensity(3, max_iter=40).fit(log),
        "poisson/poisson": PoissonPropensity(3, likelihood="poisson", max_iter=40).fit(log),
    }
    yield from all_cells(by_count)
    user, item = covariates()
    log = covariate_world().log
    forest = RandomForestClassifier(10, min_samples_leaf=20, random_state=0)
    logistic = {
        "logistic": unskew.LogisticPropensity(user, item).fit(log),
        "logistic/fixed-penalty": unskew.LogisticPropensity(
            user, item, interactions="user-item", user_offsets=True, ridge=0.5
        ).fit(log),
        "logistic/sampled": unskew.LogisticPropensity(
            user, item, interactions="none", item_offsets=False, ridge=1.0, negatives=2.0
        ).fit(log),
    }
    boosted = {
        f"boosted/{stop}": BoostedPropensity(user, item, stop=stop, max_trees=30).fit(log)
        for stop in ("asam", "ks", "deviance")
    }
    classifiers = {
        "classifier/logistic-regression": ClassifierPropensity(
            LogisticRegression(), user, item
        ).fit(log),
        "classifier/forest": ClassifierPropensity(forest, user, item, negatives=3.0).fit(log),
    }
    yield from all_cells(logistic | boosted | classifiers)
    yield "logistic/penalty", logistic["logistic"].ridge_
    yield "logistic/log-likelihood", logistic["logistic"].log_likelihood_
    yield "logistic/expected-observations", logistic["logistic"].expected_observations_
    yield "boosted/asam/trees", boosted["boosted/asam"].n_trees_
    yield "boosted/asam/imbalance", boosted["boosted/asam"].imbalance_.min()
    yield "one-bit/penalty", by_count["one-bit/by-cross-validation"].noise_multiple_
    yield "one-bit/objective", by_count["one-bit/low-rank"].history_[-1]
    yield "poisson/bound", by_count["poisson/bernoulli"].history_[-1]


def all_cells(models: dict[str, Any]) -> Numbers:
    """The propensities of all cells, by each model."""
    user, item = np.repeat(np.arange(60), 80), np.tile(np.arange(80), 60)
    for key, model in models.items():
        yield from islice(summary(key, model.predict_pairs(user, item)), 1, None)


def propensity_wrappers() -> Numbers:
    """Propensity models that wrap another one."""
    log, sample = world().log, random_ratings()
    popularity = PopularityPropensity("both", smoothing=1.0)
    one_bit = OneBitPropensity(2, max_iter=20)
    wrapped = {
        "clipped": ClippedPropensity(popularity, min_propensity=0.1),
        "scaled": ScaledPropensity(ClippedPropensity(popularity, min_propensity=0.1)),
        "calibrated/platt": CalibratedPropensity(one_bit, n_folds=3),
        "calibrated/isotonic": CalibratedPropensity(popularity, method="isotonic", n_folds=3),
        "cross-fitted/users": CrossFittedPropensity(popularity, n_folds=3, by="user"),
        "cross-fitted/cells": CrossFittedPropensity(one_bit, n_folds=3, by="cell"),
    }
    for key, model in wrapped.items():
        yield from summary(key, model.fit(log).predict(log))
    yield "clipped/share", wrapped["clipped"].share_clipped(log)
    of_ratings = ClippedPropensity(unskew.NaiveBayesPropensity(), min_propensity=0.08)
    yield from summary("clipped/naive-bayes", of_ratings.fit(log, mcar=sample).predict(log))
    of_ratings = CrossFittedPropensity(unskew.NaiveBayesPropensity(), n_folds=3)
    yield from summary("cross-fitted/naive-bayes", of_ratings.fit(log, mcar=sample).predict(log))


def propensity_frames() -> Numbers:
    """Propensity models fitted to frames and applied to them."""
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    columns = {name: frame_columns()[name] for name in ("user_id", "item_id", "rating")}
    table, connection = pa.table(columns), duckdb.connect()
    frames_by_key = {
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "pyarrow": table,
        "duckdb": connection.from_arrow(table),
    }
    for key, frame in frames_by_key.items():
        by_rating = unskew.NaiveBayesPropensity().fit_frame(
            frame, mcar=random_ratings(), universe=(60, 80)
        )
        by_count = PopularityPropensity("both", power=0.8, smoothing=1.0)
        by_count.fit_frame(frame, universe=(60, 80))
        yield f"{key}/naive-bayes/by-rating", in_order(by_rating.propensity_by_level_)
        yield f"{key}/popularity/scale", by_count.scale_
        for name, model in {"naive-bayes": by_rating, "popularity": by_count}.items():
            column = numbers_of(model.predict_frame(frame, name="chance"), "chance")
            yield f"{key}/{name}/sum", math.fsum(column)
            yield f"{key}/{name}/least", column.min()


def numbers_of(frame: Any, column: str) -> Any:
    """A column of any frame."""
    frame = frame.to_arrow_table() if hasattr(frame, "to_arrow_table") else frame
    return np.asarray(frame[column], dtype=np.float64)


def diagnosis() -> Numbers:
    """Measures of diagnosed propensities and their coverage."""
    user, item = covariates()
    log = covariate_world().log
    models = {
        "logistic": unskew.LogisticPropensity(user, item, ridge=1.0).fit(log),
        "uniform": UniformPropensity().fit(log),
        "popularity": PopularityPropensity("both").fit(log),
        "logged": covariate_world().propensities,
    }
    true = covariate_world().observation.propensities(slice(None))
    result = unskew.diagnose(log, models, user_features=user, item_features=item, true=true)
    for name in ("logistic", "logged"):
        row = result[name]
        measures = {
            "effective-sample-size": row.weights.summary.effective_sample_size,
            "share-of-heaviest": row.weights.summary.top_share,
            "weights-over-cells": row.weights.summary.mass_ratio,
            "median-weight": row.weights.quantiles[1],
            "largest-weight": row.weights.quantiles[4],
            "imbalance-before": row.balance.asam_before,
            "imbalance": row.balance.asam,
            "relative-error": row.accuracy.relative_error,
            "bias-bound": row.accuracy.bias_bound,
        }
        if row.fit is not None:
            measures |= {
                "log-loss": row.fit.log_loss,
                "brier": row.fit.brier,
                "propensities-over-observed": row.fit.mass_ratio,
                "slope": row.calibration.slope,
                "intercept": row.calibration.intercept,
                "calibration-error": row.calibration.error,
            }
        yield from ((f"{name}/{key}", number) for key, number in measures.items())
    yield "users-never-seen", result.coverage.users_unseen
    yield "profiles-never-seen", result.coverage.profiles_unseen
    yield "calibration/observed", in_order(result.calibration["observed"])
    yield "balance/after", in_order(result.balance["after"])
    sampled = unskew.diagnose(log, models["uniform"], max_cells=1500, random_state=1, floor=0.01)
    yield "sampled/log-loss", sampled["model"].fit.log_loss
    yield "sampled/log-loss-error", sampled["model"].fit.log_loss_error


def factorization() -> Numbers:
    """Matrix factorisation with every loss, solver and setting."""
    log, propensities = world().log, world().propensities
    short = {"max_iter": 30}
    settings: dict[str, dict[str, Any]] = {
        "plain": {},
        "squared/alternating": {"solver": "als", **short},
        "squared/reduced": {"solver": "reduced", **short},
        "squared/joint": {"solver": "lbfgs", **short},
        "absolute/auto": {"loss": "absolute", **short},
        "absolute/reduced": {"loss": "absolute", "solver": "reduced", **short},
        "absolute/joint": {"loss": "absolute", "solver": "lbfgs", **short},
        "offsets/free": {"offsets": "free", **short},
        "offsets/none": {"offsets": "none", **short},
        "normalized/overall": {"normalize": "self", **short},
        "normalized/by-user": {"normalize": "user", **short},
        "normalized/by-item": {"normalize": "item", **short},
        "transform/clip": {"weight_transform": Clip(5.0), **short},
        "transform/switch": {"weight_transform": Switch(8.0), **short},
        "transform/dynamic": {"weight_transform": Dynamic(), **short},
        "threshold": {"relevance_threshold": 4.0, **short},
        "single-precision": {"dtype": "float32", **short},
        "one-thread": {"n_threads": 1, **short},
        "other-seed": {"random_state": 5, **short},
    }
    for key, setting in settings.items():
        yield from model_numbers(
            key, unskew.MatrixFactorization(4, 0.5, **NOT_CLIPPED, **setting).fit(log, propensities)
        )
    naive = unskew.MatrixFactorization(4, **FIXED).fit(log)
    yield from model_numbers("naive", naive)
    yield from model_numbers(
        "many-factors", unskew.MatrixFactorization(50, max_iter=6, **FIXED).fit(log, propensities)
    )
    yield from model_numbers(
        "no-factors", unskew.MatrixFactorization(0, **FIXED).fit(log, propensities)
    )
    yield "naive/steps", naive.n_iter_
    yield "naive/is-converged", naive.converged_
    yield "unknown/fallback", in_order(naive.predict([0, 99, 99], [99, 0, 99]))
    is_nan = np.isnan(naive.predict([0, 99], [0, 0], on_unknown="nan"))
    yield "unknown/nan", in_order(is_nan)
    yield "seen-cells", naive.count_seen(random_test())
    best = naive.recommend([3, 99], k=5, exclude_seen=False)
    yield "best/with-seen", in_order(best.items)
    yield "best/scores", in_order(best.scores)
    yield "best/rows", len(best.to_columns()["item_id"])
    again = unskew.MatrixFactorization(4, max_iter=3, **FIXED).fit(
        log, initial_factors=naive.factors_
    )
    yield from model_numbers("warm-start", again)


def recommenders() -> Numbers:
    """Baselines, models of distributions, and models of clicks."""
    log, propensities = world().log, world().propensities
    clicked, click_propensities = clicks()
    short = {"max_iter": 20}
    yield from model_numbers("mean", GlobalMean().fit(log, propensities))
    yield from model_numbers("offsets", OffsetsOnly(2.0, **NOT_CLIPPED).fit(log, propensities))
    yield from model_numbers("popularity", Popularity().fit(clicked, click_propensities))
    yield from model_numbers("popularity/naive", Popularity().fit(log))
    logistic = LogisticFactorization(3, relevance_threshold=4.0, **FIXED, **short)
    yield from model_numbers("logistic", logistic.fit(log, propensities))
    yield from model_numbers("all-cells", AllRank(3, **short).fit(log))
    yield from model_numbers("weighted", WeightedFactorization(3, alpha=5.0, **short).fit(clicked))
    counted = WeightedFactorization(3, alpha=5.0, confidence="log", unit=0.5, **short)
    yield from model_numbers("weighted/by-logarithm", counted.fit(log))
    yield from model_numbers("exposure", ExposureFactorization(3, 0.5, **short).fit(clicked))
    relevance = RelevanceFactorization(3, 0.5, **short)
    yield from model_numbers("relevance", relevance.fit(clicked, click_propensities))
    yield from model_numbers("relevance/by-popularity", relevance.fit(clicked))
    ordinal = {
        "at-random": OrdinalFactorization(3, max_iter=30).fit(log),
        "not-at-random/fixed": OrdinalFactorization(3, mechanism="mnar", max_iter=15).fit(
            log, value_propensities=naive_bayes()
        ),
        "not-at-random/prior": OrdinalFactorization(
            3, mechanism="mnar", value_effect="prior", statistic="median", max_iter=15
        ).fit(log, propensities),
        "not-at-random/free": OrdinalFactorization(
            2, mechanism="mnar", value_effect="free", n_exposure_factors=0, max_iter=15
        ).fit(log),
    }
    mixture = {
        "at-random": MultinomialMixture("mar", 3, n_restarts=2, max_iter=30).fit(log),
        "by-value/fixed": MultinomialMixture("cpt-v", 3, n_restarts=2, max_iter=30).fit(
            log, value_propensities=naive_bayes()
        ),
        "by-value/prior": MultinomialMixture(
            "cpt-v", 2, value_effect="prior", n_restarts=2, max_iter=30
        ).fit(log, value_propensities=naive_bayes()),
        "by-value-and-item/fixed": MultinomialMixture(
            "logit-vd", 2, n_restarts=1, statistic="median", max_iter=15
        ).fit(log, value_propensities=naive_bayes()),
        "by-value-and-item/free": MultinomialMixture(
            "logit-vd", 2, value_effect="free", n_restarts=1, max_iter=15
        ).fit(log),
    }
    for kind, models in {"ordinal": ordinal, "mixture": mixture}.items():
        for key, model in models.items():
            yield from model_numbers(f"{kind}/{key}", model)
        shares = models["at-random"].predict_distribution([0, 5], [3, 4])
        yield f"{kind}/distribution", in_order(shares)


def doubly_robust() -> Numbers:
    """Learners from imputed ratings."""
    log, propensities, matrix = world().log, world().propensities, all_propensities()
    short = {"max_iter": 15, "n_rounds": 2}
    weightings = {
        "least-variance": "mrdr",
        "inverse": "dr-jl",
        "least-bias": "dr-bias",
        "least-error": "dr-mse",
        "none": "eib",
    }
    for key, weighting in weightings.items():
        model = DoublyRobustFactorization(3, weighting=weighting, **ROBUST, **short)
        model.fit(log, propensities)
        yield from model_numbers(f"weighting-{key}", model)
        yield f"weighting-{key}/risk", model.risk_
    imputer = unskew.MatrixFactorization(2, 2.0, offsets="free")
    other_settings = {
        "imputed-errors": {"imputation": "error"},
        "other-imputer": {"imputer": imputer, "offsets": "none"},
        "targeted": {"targeted": True},
        "balanced": {"is_balanced": True},
        "transform": {"weight_transform": Clip(5.0)},
        "threshold": {"relevance_threshold": 4.0},
        "absolute-loss": {"loss": "absolute"},
        "single-precision": {"dtype": "float32"},
    }
    for key, setting in other_settings.items():
        settings = ROBUST | {"weighting": "mrdr"} | short | setting
        model = DoublyRobustFactorization(3, **settings).fit(log, matrix)
        yield from model_numbers(key, model)
    variants = {
        "error-imputation": EIB(3, max_iter=15, **ROBUST).fit(log),
        "targeted-variant": TDR(3, max_iter=15, weighting="mrdr", **ROBUST).fit(log, matrix),
        "balanced-variant": DRV2(3, **ROBUST, **short).fit(log, propensities),
        "balanced-ips": IPSV2(3, **FIXED, **short).fit(log, propensities),
        "stable": StableDR(3, imputer=ROBUST["imputer"], **FIXED, **short).fit(log, propensities),
        "tri-training": TriTraining(
            unskew.MatrixFactorization(3, max_iter=15, **FIXED), n_rounds=2
        ).fit(log, propensities),
    }
    for key, model in variants.items():
        yield from model_numbers(key, model)
    yield "tri-training/agreed", in_order(variants["tri-training"].agreed_)


def persistence() -> Numbers:
    """Saved and loaded models, fits resumed from a checkpoint, and settings."""
    log, propensities = world().log, world().propensities
    user, item = covariates()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.unskew")
        recommenders_by_key = {
            "factorization": unskew.MatrixFactorization(3, max_iter=10, **FIXED).fit(
                log, propensities
            ),
            "doubly-robust": DoublyRobustFactorization(
                3, weighting="mrdr", max_iter=5, **ROBUST
            ).fit(log, propensities),
            "mixture": MultinomialMixture("mar", 2, n_restarts=1, max_iter=10).fit(log),
            "ordinal": OrdinalFactorization(2, max_iter=10).fit(log),
            "exposure": ExposureFactorization(2, 0.5, max_iter=5).fit(clicks()[0]),
            "popularity": Popularity().fit(log),
        }
        for key, model in recommenders_by_key.items():
            model.save(path)
            again = unskew.load(path)
            yield (
                f"{key}/same",
                np.array_equal(
                    model.predict(log.user, log.item), again.predict(log.user, log.item)
                ),
            )
            yield f"{key}/predictions", in_order(again.predict(log.user, log.item))
        propensities_by_key = {
            "naive-bayes": naive_bayes(),
            "popularity-propensity": PopularityPropensity().fit(log),
            "logistic": unskew.LogisticPropensity(user, item, ridge=1.0).fit(log),
            "boosted": BoostedPropensity(user, item, max_trees=10).fit(log),
            "one-bit": OneBitPropensity(2, max_iter=10).fit(log),
            "poisson": PoissonPropensity(2, max_iter=10).fit(log),
            "clipped": ClippedPropensity(UniformPropensity(), min_propensity=0.2).fit(log),
            "cross-fitted": CrossFittedPropensity(
                PopularityPropensity("both", smoothing=1.0), n_folds=2
            ).fit(log),
        }
        for key, model in propensities_by_key.items():
            model.save(path)
            after = unskew.load(path).predict(log)
            yield f"{key}/is-same", np.array_equal(model.predict(log), after)
            yield f"{key}/propensities", in_order(after)
        checkpoint = Path(folder, "checkpoint")
        checkpointing = {"checkpoint": checkpoint, "checkpoint_every": 4}
        unskew.MatrixFactorization(3, max_iter=8, **FIXED).fit(log, propensities, **checkpointing)
        resumed = unskew.MatrixFactorization(3, max_iter=20, **FIXED).fit(
            log, propensities, **checkpointing
        )
        straight = unskew.MatrixFactorization(3, max_iter=20, **FIXED).fit(log, propensities)
        yield "checkpoint/is-same", resumed.objective_ == straight.objective_
        yield "checkpoint/objective", resumed.objective_
    changed = unskew.MatrixFactorization(3).set_params(l2=7.0, n_factors=2)
    yield "settings/penalty", changed.get_params()["l2"]
    yield "settings/factors", changed.get_params()["n_factors"]


def selection() -> Numbers:
    """Settings chosen by cross-validation, and learners compared on a random test."""
    log, propensities = world().log, world().propensities
    model = unskew.MatrixFactorization(max_iter=15, **FIXED)
    grid = {"n_factors": [2, 4], "l2": [0.5, 2.0]}
    searches = {
        "weighted": unskew.cross_validate(
            model, log, propensities=propensities, grid=grid, n_folds=3
        ),
        "naive": unskew.cross_validate(model, log, grid=grid, n_folds=3, estimator="naive"),
        "snips-of-mae": unskew.cross_validate(
            model,
            log,
            propensities=propensities,
            grid=grid,
            n_folds=3,
            metric="mae",
            estimator="snips",
            random_state=1,
        ),
        "clips": unskew.cross_validate(
            model,
            log,
            propensities=propensities,
            grid={"weight_transform": [Clip(3.0), Clip(10.0)]},
            n_folds=3,
        ),
        "ranking": unskew.cross_validate(
            model, log, propensities=propensities, grid=grid, n_folds=2, metric="dcg@5", refit=False
        ),
    }
    for key, search in searches.items():
        yield f"{key}/best-score", search.best_score
        yield f"{key}/scores", in_order([row["score"] for row in search.table])
        yield f"{key}/deviations", in_order([row["std"] for row in search.table])
        yield f"{key}/steps", in_order([row["n_iter"] for row in search.table])
        best = search.best_params
        chosen = [best.get("n_factors", 0.0), best.get("l2", 0.0), 0.0]
        if "weight_transform" in best:
            chosen[2] = best["weight_transform"].max_weight
        yield f"{key}/chosen", in_order(chosen)
    yield from model_numbers("weighted/best-model", searches["weighted"].best_model)
    learners = {
        "weighted": Learner(model, {"l2": [0.5, 2.0]}),
        "naive": Learner(unskew.MatrixFactorization(3, max_iter=15, **FIXED), is_naive=True),
        "mean": GlobalMean(),
    }
    compared = unskew.compare_learners(
        log,
        learners,
        test={"test": random_test()},
        propensities=propensities,
        n_repeats=2,
        metrics=("mse", "mae", "logged_auc", "logged_ndcg@3"),
        relevance_threshold=3.0,
        n_folds=2,
        reference="naive",
    )
    for learner in learners:
        for metric in ("mse", "mae", "logged_auc", "logged_ndcg@3"):
            row = compared.row(learner, metric=metric)
            name = metric.removeprefix("logged_").replace("@", "-at-")
            key = f"learners/{learner}/{name}"
            yield key, in_order([row["mean"], row["std_error"], row["ci_low"]])
    row = compared.row("weighted", metric="mse")
    yield "learners/weighted/mse/difference", row["difference"]
    yield "learners/weighted/mse/p-value", row["p_value"]
    yield "learners/rows", len(compared.rows)
    yield "learners/seen", compared.n_seen["test"]


def torch_engine() -> Numbers:
    """The engine for accelerators, run on the processor."""
    log, propensities = world().log, world().propensities
    engine = GpuEngine(device="cpu")
    for offsets in ("regularized", "free", "none"):
        model = unskew.MatrixFactorization(4, offsets=offsets, max_iter=15, **FIXED)
        yield from model_numbers(f"offsets-{offsets}", model.fit(log, propensities, engine=engine))
    yield "best-items", in_order(model.recommend([0, 7, 59], k=4, engine=engine).items)
    settings = {
        "propensities": propensities,
        "metrics": ["dcg", "recall@5"],
        "relevance_threshold": 4.0,
    }
    result = unskew.evaluate(log, {"model": model}, engine=engine, **settings)
    yield "dcg/snips", value(result, "model", "dcg", "snips")
    yield "recall-at-5/snips", value(result, "model", "recall@5", "snips")


def dataset_files() -> Numbers:
    """Readers of data sets, on small files of the same format."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        jokes = np.where(rng.random((5, 100)) < 0.5, 99, rng.uniform(-10, 10, (5, 100)).round(2))
        jokes[0] = rng.uniform(-10, 10, 100).round(2)
        lines = [",".join(map(str, [int((row != 99).sum()), *row])) for row in jokes]
        Path(folder, "jester-data-1.csv").write_text("\n".join(lines) + "\n")
        data = unskew.datasets.load_jester(folder)
        yield from summary("jokes", data.ratings.rating)
        yield "jokes/complete", data.complete_users.sum()
    cells = [divmod(int(cell), 12) for cell in rng.choice(120, 60, replace=False)]
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            (user + 1, item + 1, rng.integers(1, 5), rng.integers(0, 2)) for user, item in cells
        ]
        Path(folder, "ratings.txt").write_text(
            "".join("\t".join(map(str, row)) + "\n" for row in rows)
        )
        data = unskew.datasets.load_cm100k(folder)
        yield "tracks/ratings", in_order(data.ratings.rating)
        yield "tracks/known", in_order(data.train.rating)
    with tempfile.TemporaryDirectory() as folder:
        rows = [(user + 1, item + 1, rng.integers(1, 6)) for user, item in cells]
        texts = ["\t".join(map(str, row)) + "\n" for row in rows]
        Path(folder, "train.txt").write_text("".join(texts[:40]))
        Path(folder, "test.txt").write_text("".join(texts[30:]))
        data = unskew.datasets.load_yahoo_r3(folder)
        yield "songs/chosen", in_order(data.train.rating)
        yield "songs/random", in_order(data.test.rating)
        yield "songs/overlap", data.overlap.sum()


def datasets() -> Numbers:
    """Two public data sets, and a model fitted to each."""
    coat = unskew.datasets.load_coat()
    yield "coat/chosen", len(coat.train)
    yield "coat/random", len(coat.test)
    yield "coat/mean-of-chosen", coat.train.rating.mean()
    yield "coat/mean-of-random", coat.test.rating.mean()
    yield "coat/overlap", coat.overlap.sum()
    yield "coat/propensities", in_order(coat.propensities.values)
    yield "coat/all-propensities", coat.propensity_matrix.mean()
    yield "coat/covariates-of-users", in_order(coat.user_features)
    yield "coat/covariates-of-items", in_order(coat.item_features)
    model = unskew.MatrixFactorization(10, 25.0, max_iter=30, **NOT_CLIPPED).fit(
        coat.train, coat.propensities
    )
    predicted = model.predict(coat.test.users[coat.test.user], coat.test.items[coat.test.item])
    yield "coat/weighted-factorization/objective", model.objective_
    yield "coat/weighted-factorization/mse", ((predicted - coat.test.rating) ** 2).mean()
    films = unskew.datasets.load_movielens_100k()
    yield "movielens/ratings", len(films.ratings)
    yield "movielens/mean", films.ratings.rating.mean()
    yield "movielens/order", in_order(films.ratings.rating)
    yield "movielens/users", films.ratings.n_users
    yield "movielens/items", films.ratings.n_items
    yield "movielens/genres", in_order(films.genres)
    yield "movielens/age", films.age.mean()
    yield "movielens/time", films.timestamp.mean()
    popularity = PopularityPropensity("item").fit(films.ratings)
    yield from summary("movielens/popularity", popularity.predict(films.ratings))


def shell(*words: object, code: int = 0) -> str:
    """Standard output of a command, which must end with the exit code ``code``."""
    from click.testing import CliRunner

    from unskew.cli.program import main

    result = CliRunner().invoke(main, [str(word) for word in words], env={"UNSKEW_DATA": None})
    if result.exit_code != code:
        output = f"{result.stderr}\n{result.exception!r}"
        raise RuntimeError(f"exit code {result.exit_code} of {' '.join(map(str, words))}: {output}")
    return result.stdout


def experiments() -> Numbers:
    """Tables and figures of the paper, with few trials."""

    def rows(name: str, *options: str) -> list[dict[str, Any]]:
        text = shell("reproduce", name, "--trials", "2", "--json", "-q", *options)
        return json.loads(text)["rows"]

    estimators = ("naive", "ips", "snips")
    for name in ("toy", "table1"):
        table = rows(name)
        yield f"{name}/rows", len(table)
        yield f"{name}/true", in_order([row["true"] for row in table])
        for estimator in estimators:
            for kind in ("mean", "std"):
                numbers = [row[estimator][kind] for row in table]
                yield f"{name}/{estimator}/{kind}", in_order(numbers)
    for name in ("figure2", "figure4"):
        table = rows(name, "--seed", "1")
        yield f"{name}/rows", len(table)
        for field, key in (("ours", "error"), ("ci_low", "ci-low"), ("ci_high", "ci-high")):
            yield f"{name}/{key}", in_order([row[field] for row in table])
    yield from small_figure3()
    lines = [line for line in shell("demo").splitlines() if re.search(r"\bm[as]e\b.*±", line)]
    yield "demo/rows", len(lines)
    yield "demo/numbers", in_order(figures("\n".join(lines)))


def small_figure3() -> Numbers:
    """Figure 3 on a small rating matrix, because each of its trials is a grid search."""
    from unskew.paper import figure3
    from unskew.paper.completion import GroundTruth

    find_ground_truth = figure3.find_ground_truth
    truth = unskew.simulate(80, 100, random_state=0).truth
    figure3.find_ground_truth = lambda *_, **__: GroundTruth(truth, "Small.")
    try:
        settings = {"panel": "both", "trials": 2, "l2": (1.0, 5.0), "sample_sizes": (100, 1000)}
        table = figure3.reproduce_figure3(**settings).rows
    finally:
        figure3.find_ground_truth = find_ground_truth
    yield "figure3/rows", len(table)
    for field, key in (("ours", "error"), ("ci_low", "ci-low"), ("ci_high", "ci-high")):
        yield f"figure3/{key}", in_order([row[field] for row in table])


LEARNERS = {
    "factorization": ("mf", True),
    "doubly-robust/inverse": ("dr-jl", True),
    "doubly-robust/least-variance": ("mrdr", True),
    "doubly-robust/least-bias": ("dr-bias", True),
    "doubly-robust/least-error": ("dr-mse", True),
    "error-imputation": ("eib", True),
    "stable": ("stable-dr", True),
    "balanced-ips": ("ips-v2", True),
    "balanced-variant": ("dr-v2", True),
    "ordinal/at-random": ("hl-mar", True),
    "ordinal/not-at-random": ("hl-mnar", True),
    "mixture/at-random": ("mixture", True),
    "mixture/by-value": ("cpt-v", True),
    "mixture/by-value-and-item": ("logit-vd", True),
    "all-cells": ("allrank", True),
    "weighted": ("wmf", True),
    "exposure": ("expomf", False),
    "relevance": ("relmf", True),
    "offsets": ("offsets", True),
    "mean": ("mean", True),
    "popularity": ("popularity", True),
}
"""Names of learners on the command line, and whether they use propensities."""


def command_line() -> Numbers:
    """Every command that prints numbers, on small files."""
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        table = pd.DataFrame(frame_columns()).rename(columns={"place of fair": "place"})
        log = root / "log.csv"
        table.to_csv(log, index=False)
        table.to_csv(root / "log.tsv", index=False, sep="\t")
        table.to_json(root / "log.jsonl", orient="records", lines=True)
        table.to_parquet(root / "log.parquet")
        table.to_feather(root / "log.arrow")
        pd.DataFrame({"rating": random_ratings()}).to_csv(root / "random.csv", index=False)
        for name, values in zip(("user", "item"), covariates(), strict=True):
            features = pd.DataFrame(values, columns=["first", "second"])
            features.insert(0, f"{name}_id", np.arange(len(features)))
            features.to_csv(root / f"{name}s.csv", index=False)
        yield from validate_numbers(root)
        yield from evaluate_numbers(root)
        yield from propensity_numbers(root)
        yield from train_numbers(root)


def validate_numbers(root: Path) -> Numbers:
    """A valid log, a log with errors, and the list of data sets."""
    record = json.loads(shell("validate", root / "log.csv", "--json"))
    yield "validate/rows", record["n_rows"]
    yield "validate/mean", record["rating_mean"]
    yield "validate/density", record["density"]
    (root / "bad.csv").write_text("user_id,item_id,rating\n1,2,\n1,3,4\n1,3,5\n")
    bad_record = json.loads(shell("validate", root / "bad.csv", "--json", code=3))
    yield "validate/bad-rows", bad_record["n_bad_rows"]
    yield "validate/repeated", bad_record["n_repeats"]
    record = json.loads(shell("data", "list", "--json"))
    yield "data/known", len(record)
    yield "data/to-fetch", sum(dataset["can_be_fetched"] for dataset in record)
    shell("doctor")


def evaluate_numbers(root: Path) -> Numbers:
    """Evaluation of files of every format, with both readers, by groups, and with a gate."""
    log = root / "log.csv"
    models = ["--prediction", "kind", "--prediction", "fair"]
    options = [*models, "--universe", "60x80", "--json"]

    def run(*words: object) -> dict[str, Any]:
        return json.loads(shell("evaluate", *words))

    def estimates(result: dict[str, Any], field: str = "estimate") -> float:
        return in_order([row[field] for row in result["rows"]])

    record = run(log, *options, "--compare", "kind", "fair")
    yield "evaluate/rows", len(record["rows"])
    yield "evaluate/values", estimates(record)
    yield "evaluate/std-errors", estimates(record, "std_error")
    yield "evaluate/differences", in_order([row["difference"] for row in record["comparisons"]])
    yield "evaluate/p-values", in_order([row["p_value"] for row in record["comparisons"]])
    yield "evaluate/effective-sample-size", record["weights"]["effective_sample_size"]
    for name in ("log.tsv", "log.jsonl", "log.parquet", "log.arrow"):
        yield f"evaluate/{name.removeprefix('log.')}/values", estimates(run(root / name, *options))
    clipped = run(log, *options, "--max-weight", "5", "--cluster", "user", "--level", "0.9")
    yield "evaluate/clipped/limits", estimates(clipped, "ci_high")
    by_duckdb = run(root / "log.parquet", *options, "--reader", "duckdb")
    yield "evaluate/duckdb/values", estimates(by_duckdb)
    ranked = run(
        *(log, "--prediction", "fair", "--position", "place", "--universe", "60x80", "--json"),
        *("--metric", "dcg@5", "--metric", "recall@5", "--relevance-threshold", "4"),
    )
    yield "evaluate/ranked/values", estimates(ranked)
    grouped = run(
        log, *options, "--by", "half", "--propensity", "nb", "--mcar", root / "random.csv"
    )
    yield "evaluate/groups", len(grouped["groups"])
    yield "evaluate/groups/values", in_order([estimates(group) for group in grouped["groups"]])
    shell("evaluate", log, *options, "--fail-if", "snips.mae.ci_high>0.01", code=4)
    shell("evaluate", log, *options, "--metric", "nonsense", code=2)
    (root / "result.json").write_text(shell("evaluate", log, *options))
    page = shell("report", root / "result.json", "-o", "-")
    yield "report/tables", page.count("<table")


def propensity_numbers(root: Path) -> Numbers:
    """Propensity models fitted to a log, applied to it, and diagnosed."""
    import pandas as pd

    log, saved = root / "log.csv", root / "p.unskew"
    features = ["--user-features", root / "users.csv", "--item-features", root / "items.csv"]
    names = {
        "naive-bayes": ["nb", "--mcar", root / "random.csv"],
        "popularity": ["popularity"],
        "uniform": ["uniform"],
        "logistic": ["logistic", *features],
        "one-bit": ["onebit"],
        "poisson": ["poisson"],
    }
    for key, (model, *options) in names.items():
        shell(
            *("propensity", "fit", log, "--model", model, *options),
            *("--universe", "60x80", "-o", saved, "-q"),
        )
        shell(
            "propensity", "apply", saved, log, "--column", "chance", "-o", root / "with.csv", "-q"
        )
        yield f"propensity/{key}", in_order(pd.read_csv(root / "with.csv")["chance"])
        text = shell("propensity", "diagnose", log, saved, "--universe", "60x80", "--json")
        measures = json.loads(text)["models"][0]["measures"]
        yield f"propensity/{key}/effective-sample-size", measures["effective_sample_size"]
    text = shell(
        *("propensity", "diagnose", log, saved, "propensity", "--universe", "60x80", "--json"),
        *features,
    )
    measures = json.loads(text)["models"][0]["measures"]
    yield "propensity/diagnosis/log-loss", measures["log_loss"]
    yield "propensity/diagnosis/imbalance", measures["asam"]


def train_numbers(root: Path) -> Numbers:
    """Recommenders trained by name and by grid search, and their recommendations."""
    log, saved, sample = root / "log.csv", root / "m.unskew", root / "random.csv"
    weighted = [
        "--propensity",
        "nb",
        "--mcar",
        sample,
        "--universe",
        "60x80",
        "--json",
        "-o",
        saved,
    ]
    naive = ["--universe", "60x80", "--json", "-o", saved]
    for learner, (name, takes_propensities) in LEARNERS.items():
        shell("train", log, *(weighted if takes_propensities else naive), "--learner", name)
        best = json.loads(shell("recommend", saved, "--user", "3", "-k", "4", "--json"))["rows"]
        scores = [(row["score"], row["item_id"]) for row in best]
        yield f"train/{learner}", in_order(scores)
    options = ["--propensity", "propensity", "--json", "-o", saved]
    record = json.loads(
        shell("train", log, *options, "--factors", "3", "--offsets", "free", "--l2", "2")
    )
    yield "train/objective", record["objective"]
    yield "train/steps", record["n_iter"]
    search = ["--cross-validate", "--grid", "l2=0.5,2", "--factors", "2", "--folds", "3"]
    record = json.loads(
        shell("train", log, *options, *search, "--loss", "absolute", "--max-iter", "15")
    )
    yield "train/search/best-score", record["best_score"]
    text = shell("evaluate", log, "--predictions", f"m={saved}", "--universe", "log", "--json")
    yield "train/judged", in_order([row["estimate"] for row in json.loads(text)["rows"]])


def pages() -> Numbers:
    """How many tables, rows and axes the pages and plots of results have."""
    import matplotlib

    matplotlib.use("Agg")
    log, propensities = world().log, world().propensities
    result = unskew.evaluate(log, score_matrices(), propensities=propensities)
    moved = unskew.sensitivity(result, odds_error=[1.0, 2.0])
    diagnosis = unskew.diagnose(log, {"known": all_propensities(), "naive Bayes": naive_bayes()})
    model = unskew.MatrixFactorization(2, max_iter=5, **FIXED)
    results = {
        "evaluation": result,
        "comparison": result.compare("kind", "fair", metric="mae", estimator="snips"),
        "sensitivity": moved,
        "robustness": moved.compare("kind", "fair", metric="mae", estimator="snips"),
        "diagnosis": diagnosis,
        "cross-validation": unskew.cross_validate(
            model, log, propensities=propensities, grid={"l2": [1.0, 2.0]}, n_folds=2
        ),
        "learners": unskew.compare_learners(
            log,
            {"mean": GlobalMean(), "model": model},
            test=random_test(),
            propensities=propensities,
            n_repeats=2,
        ),
    }
    with tempfile.TemporaryDirectory() as folder:
        for key, shown_result in results.items():
            text = shown_result.to_html(Path(folder, "page.html")).read_text()
            yield f"{key}/tables", text.count("<table")
            yield f"{key}/rows-of-frame", len(shown_result.to_frame("pandas"))
            yield f"{key}/is-json", isinstance(json.loads(shown_result.to_json()), dict)
    for key in ("evaluation", "sensitivity", "diagnosis"):
        yield f"{key}/axes", len(results[key].plot().axes)


AREAS: dict[str, Callable[[], Numbers]] = {
    "logs": logs,
    "simulation": simulation,
    "theory": theory,
    "evaluate": evaluate,
    "evaluate-settings": evaluate_settings,
    "comparisons": comparisons,
    "sensitivity": sensitivity,
    "frames": frames,
    "ranking": ranking,
    "propensity-models": propensity_models,
    "propensity-wrappers": propensity_wrappers,
    "propensity-frames": propensity_frames,
    "diagnosis": diagnosis,
    "factorization": factorization,
    "recommenders": recommenders,
    "doubly-robust": doubly_robust,
    "persistence": persistence,
    "selection": selection,
    "torch-engine": torch_engine,
    "dataset-files": dataset_files,
    "datasets": datasets,
    "experiments": experiments,
    "command-line": command_line,
    "pages": pages,
}
NEEDS_DATA = {"datasets"}


# Running and comparing


def compute(names: list[str]) -> tuple[dict[str, float], list[str], list[str]]:
    """The numbers of these areas, the areas that were skipped, and those that raised an error."""
    numbers: dict[str, float] = {}
    skipped, failed = [], []
    for name in names:
        if name in NEEDS_DATA and not os.environ.get("UNSKEW_DATA"):
            skipped.append(name)
            print(f"{name:22} skipped: $UNSKEW_DATA is not set", flush=True)
            continue
        start, before = time.perf_counter(), len(numbers)
        try:
            for key, number in AREAS[name]():
                full_key = f"{name}/{key}"
                if full_key in numbers:
                    raise KeyError(f"{full_key} comes twice")
                numbers[full_key] = float(number)
        except Exception:
            failed.append(name)
            traceback.print_exc()
        note = "  RAISED" if name in failed else ""
        seconds = time.perf_counter() - start
        print(f"{name:22}{len(numbers) - before:5} numbers {seconds:7.1f} s{note}", flush=True)
    return numbers, skipped, failed


def distance(new: float, old: float) -> float:
    """The difference relative to the larger number; 0 if both are equal bit for bit."""
    if new == old or (math.isnan(new) and math.isnan(old)):
        return 0.0
    relative = abs(new - old) / max(abs(new), abs(old))
    return relative if math.isfinite(relative) else math.inf


def compare(new: dict[str, float], old: dict[str, float]) -> bool:
    """Print how many numbers are equal; whether all are within their tolerance."""
    distances = {key: distance(new[key], old[key]) for key in old if key in new}
    close = {key: far for key, far in distances.items() if 0 < far <= CLOSE}
    rounded = {key: far for key, far in distances.items() if CLOSE < far <= ROUNDING.get(key, 0.0)}
    beyond = [key for key, far in distances.items() if far > max(CLOSE, ROUNDING.get(key, 0.0))]
    missing = [key for key in old if key not in new]
    not_stored = [key for key in new if key not in old]
    print(f"{sum(far == 0 for far in distances.values())} of {len(old)} equal bit for bit")
    print(f"{len(close)} within {CLOSE:g}, relative; {len(rounded)} within their own tolerance")
    print(f"{len(beyond)} beyond, {len(missing)} missing, {len(not_stored)} not stored")
    for key, far in close.items():
        print(f"  within: {key}: {far:.2g} apart")
    for key, far in rounded.items():
        print(f"  rounding: {key}: {far:.2g} apart; up to {ROUNDING[key]:g} is expected")
    for key in beyond:
        print(f"  beyond: {key}: {old[key]!r} is now {new[key]!r}, {distances[key]:.2g} apart")
    for key in missing:
        print(f"  missing: {key}")
    for key in not_stored:
        print(f"  not stored: {key}")
    return not (beyond or missing)


def main() -> int:
    """Compute the numbers, then store them or compare them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store the numbers")
    parser.add_argument("--only", action="append", choices=AREAS, help="an area; may be repeated")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"unskew {unskew.__version__} at {Path(unskew.__file__).parent}")
    names = arguments.only or list(AREAS)
    start = time.perf_counter()
    new, skipped, failed = compute(names)
    print(f"{len(new)} numbers in {time.perf_counter() - start:.0f} s")
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    computed = {*names} - {*skipped}
    if arguments.write:
        others = {key: old for key, old in stored.items() if key.partition("/")[0] not in computed}
        STORED.write_text(json.dumps(others | new, indent=0) + "\n")
        return 1 if failed else 0
    same = compare(
        new, {key: old for key, old in stored.items() if key.partition("/")[0] in computed}
    )
    return 0 if same and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
