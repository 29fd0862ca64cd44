"""Arguments that work, by the name of the parameter, and values that should be refused."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

import unskew
from unskew import Ratings
from unskew.estimators import Clip
from unskew.models import GlobalMean, MatrixFactorization
from unskew.propensity import PopularityPropensity

N_USERS, N_ITEMS = 12, 8


@cache
def make_world() -> Any:
    """A small simulated log, whose true propensities are known."""
    return unskew.simulate(N_USERS, N_ITEMS, density=0.4, alpha=0.8, random_state=0)


@cache
def make_log() -> Ratings:
    return make_world().log


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
        "NaT": np.datetime64("NaT"),
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
