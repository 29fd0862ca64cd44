"""Arguments that work, by the name of the parameter, and values that should be refused."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression, LogisticRegression

import unskew
from unskew import Impressions, Ratings
from unskew.estimators import Clip
from unskew.models import GlobalMean, MatrixFactorization
from unskew.propensity import PopularityPropensity

N_USERS, N_ITEMS = 12, 8
THEORY = ("true", "assumed", "delta", "propensities", "weight", "imputed")
"""Parameters of ``unskew.theory``: one value for each cell."""


LARGE = frozenset(["2147483648", "9223372036854775808", "large pair"])
"""Counts that ask for more work than there is time or memory; left to tests of their own."""
NEVER_VALID = frozenset(
    ["complex", "NaT", "object", "module", "type", "masked", "complex array", "NaN array", "nan"]
)
"""Values that no parameter may have, except those that take anything."""
TAKES_ANYTHING: frozenset[tuple[str, str]] = frozenset(
    {
        ("Ratings", "columns"),
        ("Impressions", "columns"),
        ("Ratings", "backend"),
        ("Ratings", "row_labels"),  # the index of a frame may have missing labels
        ("Propensities", "row_labels"),
        ("from_dense", "missing"),  # NaN marks unobserved cells
        ("Impressions", "backend"),
        ("column", "parameter"),  # a word for errors
        ("evaluate", "imputation"),  # only read by estimators that impute
        ("fit", "propensities"),  # some models do not read them
    }
)
"""Pairs of a function ("" for all) and a parameter that take any value."""


@cache
def make_world() -> Any:
    """A small simulated log, whose true propensities are known."""
    return unskew.simulate(N_USERS, N_ITEMS, density=0.4, alpha=0.8, random_state=0)


@cache
def make_log() -> Ratings:
    return make_world().log


@cache
def make_shown() -> Impressions:
    """A small log of impressions, whose probabilities are those of steps."""
    log = unskew.simulate_impressions(6, 4, 2, logging="plackett-luce", random_state=0).log
    return replace(log, other={"predicted": np.full(len(log), 0.5)})


@cache
def make_ranked() -> Impressions:
    """A small log of two rankers, which identifies the examination of each position."""
    world = unskew.simulate_impressions(60, 6, 2, logging="rankers", random_state=0)
    return world.log


@cache
def make_curve() -> Any:
    return unskew.PositionBias().fit(make_ranked()).curve_


def find_valid(target: str, parameter: str) -> Any:
    """A value that works for a parameter of a target, or nearly works."""
    for owner in _list_owners(target):
        if parameter in list_valid_of().get(owner, {}):
            return list_valid_of()[owner][parameter]
    return list_valid().get(parameter, list_valid()["values"])


def is_valid_of(target: str, parameter: str) -> bool:
    """Whether a value is known for this parameter of this target."""
    return any(parameter in list_valid_of().get(owner, {}) for owner in _list_owners(target))


def _list_owners(target: str) -> list[str]:
    parts = target.split(".")
    return [".".join(parts[-2:]), parts[-1], *parts[-2:-1]]


@cache
def list_valid_of() -> dict[str, dict[str, Any]]:
    """Values that work for the parameters of one target or class, by its name."""
    log, shown = make_log(), make_shown()
    codes = np.array([0, 0, 1, 1])
    return {
        "Ratings": {"user": log.user, "item": log.item, "users": log.users, "items": log.items},
        "Ratings.from_arrays": {"user": log.users[log.user], "item": log.items[log.item]},
        "Ratings.from_codes": {"user": log.user, "item": log.item, "shape": (N_USERS, N_ITEMS)},
        "Ratings.from_frame": dict.fromkeys(("user", "item", "rating", "users", "items")),
        "Impressions": {
            "request": shown.request,
            "user": shown.user,
            "item": shown.item,
            "position": shown.position,
            "reward": shown.reward,
            "requests": shown.requests,
            "users": shown.users,
            "items": shown.items,
        },
        "Impressions.from_arrays": {
            "request": shown.requests[shown.request],
            "user": shown.users[shown.user],
            "item": shown.items[shown.item],
            "reward": shown.reward,
            "position": shown.position,
        },
        "PositionBias": {"shown": make_ranked()},
        "PositionBias.fit": {"shown": make_ranked()},
        "Impressions.from_frame": {
            "frame": shown.to_frame("pandas"),
            "probability_is": "step",
            **dict.fromkeys(("request", "user", "item", "position", "reward")),
        },
        "Impressions.column": {"name": "predicted", "parameter": "regression"},
        "Impressions.take": {"requests": np.array([0, 1])},
        "Impressions.name_row": {"row": 0},
        "evaluate_policies_frame": {
            "frame": shown.to_frame("pandas").rename(columns={"probability": "p"}),
            "targets": {"same": "p"},
            "request": "request",
            "user": "user",
            "item": "item",
            "probability": "p",
            "probability_is": "step",
        },
        "Factors.predict": {"user_codes": codes, "item_codes": codes},
        "Factors.take": {"user_codes": codes, "item_codes": codes},
        "Factors.plus": {"other": unskew.data.Factors(np.ones((3, 2)), np.ones((4, 2)))},
        "Factors.astype": {"dtype": "float32"},
        "Factors.squared_norm": {"with_offsets": True},
        "Factors.extrapolate": {
            "previous": unskew.data.Factors(np.ones((3, 2)), np.ones((4, 2))),
            "share": 0.5,
        },
        "LeaderboardData": {
            "draw": lambda seed: unskew.model_selection.RandomTestData(log, log),
            "published": (),
        },
        "LeaderboardData.of": {"data": unskew.model_selection.RandomTestData(log, log)},
        "rank_learners": {
            "data": unskew.model_selection.RandomTestData(log, log),
            "learners": {"mean": unskew.model_selection.Learner(GlobalMean())},
            "protocols": ["leaky"],
            "n_repeats": 1,
        },
        "Monitor": {"models": ["a", "b"], "planned_size": 100},
        "Monitor.update": {
            "rating": np.array([1.0, 2.0]),
            "predictions": {"a": [1.0, 2.0], "b": [2.0, 2.0]},
            "propensities": np.array([0.5, 0.5]),
        },
        "Evaluation.compare": {"first": "mean", "second": "other"},
        "Evaluation.risk": {"model": "mean", "metric": "mae", "estimator": "ips"},
        "Sensitivity.compare": {
            "first": "mean",
            "second": "other",
            "metric": "mae",
            "estimator": "ips",
        },
        "PolicyEvaluation.compare": {"first": "uniform"},
        "PolicyEvaluation.value": {"policy": "uniform"},
        "LearnerComparison.row": {"learner": "mean", "metric": "mse"},
        "ByCovariates": {"activity": np.ones(10), "popularity": np.ones(6)},
        "GeneralUsers": {"examination": [1.0, 0.5]},
        "PositionBasedUsers": {"examination": [1.0, 0.5]},
        "ImpressionSimulation.value": {"scores": np.ones((2, 4))},
        "TargetProbability": {"probability": "probability"},
        "TargetRanking": {"position": "position"},
        "predict_frame": {"frame": log.to_frame("pandas")},
        "predict_ratings": {"ratings": log.rating[:3]},
        "fold_in": {"propensities": np.full(len(log), 0.5)},
        "Ratings.from_sparse": {"matrix": csr_array(np.eye(3)), "users": None, "items": None},
        "cross_validate": {"model": MatrixFactorization(1, max_iter=2)},
        "compare_learners": {"n_repeats": 2},
        "evaluate": {"propensities": np.full(len(log), 0.5)},
        "evaluate_frame": {"universe": (N_USERS, N_ITEMS)},
        "diagnose_frame": {"propensity": "propensity"},
        "describe_lists": {"predictions": np.ones((N_USERS, N_ITEMS))},
        "wrap_model": {
            "model": LinearRegression().fit(np.ones((3, 2)), np.arange(3)),
            "users": log.users,
            "items": log.items,
            "user_features": np.ones((log.n_users, 1)),
            "item_features": np.ones((log.n_items, 1)),
        },
        "fit_frame": {"universe": (N_USERS, N_ITEMS), "mcar": [1.0, 2.0, 3.0, 4.0, 5.0]},
        "fit": {"propensities": np.full(len(log), 0.5)},
        "TDR": {"propensities": np.full((N_USERS, N_ITEMS), 0.5)},
        "RandomSampleFactorization": {"mcar": None},
        "ExposureFactorization": {"propensities": None},
        "ExposureFactorization.fit": {"propensities": None},
        "ModelSet": {"propensities": [np.full((N_USERS, N_ITEMS), 0.5)], "imputations": []},
        "simulate": {"n_users": 10, "n_items": 6},
        "simulate_impressions": {"n_users": 6, "n_items": 4, "n_slots": 2},
        "Observation.of": {
            "truth": np.ones((3, 2), np.float32),
            "model": unskew.simulation.ByRating(),
            "density": 0.5,
        },
        "Observation.propensities": {"rows": slice(0, 2)},
        "theory": {name: np.full((3, 2), 0.5) for name in THEORY},
        "find_estimator": {"estimator": "ips"},
        "find_metric": {"metric": "mae"},
        "ClassifierPropensity": {"estimator": LogisticRegression()},
        **{
            wrapper: {"model": PopularityPropensity(), "mcar": None}
            for wrapper in (
                "CalibratedPropensity",
                "ClippedPropensity",
                "CrossFittedPropensity",
                "RakedPropensity",
                "ScaledPropensity",
            )
        },
    }


@cache
def list_valid() -> dict[str, Any]:
    """A value that works for each parameter name that the public functions share."""
    log = make_log()
    frame = log.to_frame("pandas").assign(prediction=3.0, propensity=0.5)
    p = np.full(len(log), 0.5)
    matrix = np.full((log.n_users, log.n_items), 3.0)
    mean = GlobalMean().fit(log)
    return {
        "log": log,
        "test": log,
        "train": log,
        "ratings": log,
        "frame": frame,
        "models": {"mean": mean, "other": np.full(len(log), 2.0)},
        "model": mean,
        "learners": {"mean": GlobalMean(), "mf": MatrixFactorization(1, max_iter=3)},
        "learner": GlobalMean(),
        "predictions": np.full(len(log), 3.0),
        "prediction": np.full((log.n_users, log.n_items), 3.0),
        "propensities": p,
        "propensity": p,
        "mcar": [1.0, 2.0, 3.0, 4.0, 5.0],
        "users": log.users[:3],
        "items": log.items[:3],
        "user": log.users[log.user],
        "item": log.items[log.item],
        "rating": log.rating,
        "universe": (N_USERS, N_ITEMS),
        "matrix": matrix,
        "user_factors": np.ones((3, 2)),
        "item_factors": np.ones((4, 2)),
        "values": p,
        "grid": {"l2": [0.1, 1.0]},
        "random_state": 0,
        "weight_transform": Clip(10),
        "metrics": "mae",
        "estimators": "naive",
        "path": Path("no such file"),
        "n_users": 10,
        "n_items": 6,
        "k": 3,
        "true": matrix,
        "true_propensities": np.full((log.n_users, log.n_items), 0.5),
        "assumed_propensities": np.full((log.n_users, log.n_items), 0.4),
        "assumed": np.full((log.n_users, log.n_items), 0.4),
        "delta": matrix,
        "loss": matrix,
        "rows": np.arange(3),
        "share": 0.5,
        "name": "mae",
        "propensity_model": PopularityPropensity(),
        "shown": make_shown(),
        "targets": {"uniform": unskew.policies.UniformSlate()},
        "examination": make_curve(),
        "scores": lambda users, items: np.ones(len(users)),
        "top": 3,
        "row": 0,
        "max_weight": 10.0,
        "min_propensity": 0.1,
        "strength": 1.0,
        "mix": 0.5,
        "width": 0.5,
        "n_hypotheses": 10,
        "max_delta": 4.0,
        "empirical_risk": 0.5,
        "weight": matrix,
        "first": p,
        "second": p,
        "side": "item",
        "block_size": 4,
    }


@cache
def list_hostile() -> dict[str, Any]:
    """What no parameter, or only some, should accept."""
    log = make_log()
    other = Ratings.from_arrays(["x", "y"], ["a", "b"], [1, 2], universe=(9, 9))
    numbers: dict[str, Any] = {
        str(value): value
        for value in (-1, 0, 1, 2**31, 2**63, 0.5, -0.5, 1e308, float("nan"), float("inf"))
    }
    values: dict[str, Any] = {
        "None": None,
        "True": True,
        "10**400": 10**400,
        "empty text": "",
        "text": "x",
        "the text log": "log",
        "NUL": "a\0b",
        "half a surrogate pair": "\ud800",
        "bytes": b"x",
        "empty list": [],
        "list": [1],
        "list of text": ["x", "y"],
        "list of None": [None, None],
        "ragged": [[1], [1, 2]],
        "empty tuple": (),
        "pair": (1, 1),
        "large pair": (10**30, 10**30),
        "empty dict": {},
        "dict": {"a": 1},
        "dict of None": {"a": None},
        "set": {1, 2},
        "object": object(),
        "type": int,
        "function": lambda *_, **__: None,
        "function of text": lambda *_, **__: "x",
        "generator": (number for number in ()),
        "range": range(3),
        "Decimal": Decimal("0.5"),
        "date": dt.date(2020, 1, 1),
        "complex": 1j,
        "path": Path("/no such folder/x"),
        "np.int8": np.int8(5),
        "np.float32": np.float32("nan"),
        "NaT": np.datetime64("NaT", "s"),
        "Generator": np.random.default_rng(0),
        "RandomState": np.random.RandomState(0),
        "empty array": np.array([]),
        "scalar array": np.array(3.0),
        "matrix": np.ones((2, 2)),
        "cube": np.ones((2, 2, 2)),
        "NaN array": np.full(len(log), np.nan),
        "infinite array": np.full(len(log), np.inf),
        "negative array": np.full(len(log), -1.0),
        "array": np.ones(len(log)),
        "short array": np.ones(len(log) - 1),
        "text array": np.full(len(log), "x"),
        "bytes array": np.full(len(log), b"1"),
        "object array": np.full(len(log), None, object),
        "complex array": np.full(len(log), 1j),
        "dates": np.full(len(log), np.datetime64("2020-01-01")),
        "masked": np.ma.masked_all(len(log)),
        "large integers": np.full(len(log), 2**62),
        "booleans": np.zeros(len(log), bool),
        "log": log,
        "other log": other,
        "pandas": log.to_frame("pandas"),
        "pandas series": pd.Series([1.0, 2.0], index=["b", "a"]),
        "two columns of one name": pd.DataFrame([[1, 2]], columns=["a", "a"]),
        "polars": pl.DataFrame({"a": [1]}),
        "lazy": pl.LazyFrame({"a": [1]}),
        "pyarrow": pa.table({"a": [1]}),
        "unfitted": MatrixFactorization(2),
        "fitted": GlobalMean().fit(other),
        "propensities": unskew.Propensities(np.full(3, 0.5)),
        "module": np,
    }
    return numbers | values
