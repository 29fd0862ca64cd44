"""ALS of Spark as predictions: the same numbers as its own transform."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from recipes import run_recipe
from unskew import Ratings, evaluate
from unskew.data import Factors
from unskew.errors import BadPredictionError, UnknownIdError
from unskew.evaluation import wrap_model
from unskew.evaluation.predictions import read_predictions

RNG = np.random.default_rng(0)
USERS, ITEMS = 100 + RNG.permutation(20), 500 + RNG.permutation(15)
IS_SEEN = RNG.random((20, 15)) < 0.6
IS_SEEN[np.arange(20), np.arange(20) % 15] = True
FRAME = pd.DataFrame(
    {
        "user_id": USERS[np.nonzero(IS_SEEN)[0]],
        "item_id": ITEMS[np.nonzero(IS_SEEN)[1]],
        "rating": RNG.integers(1, 6, int(IS_SEEN.sum())).astype(float),
    }
)
LOG = Ratings.from_frame(FRAME, universe="log")


@pytest.fixture(scope="module")
def model(spark: Any) -> Any:
    from pyspark.ml.recommendation import ALS

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ratings = spark.createDataFrame(FRAME)
    columns = {"userCol": "user_id", "itemCol": "item_id", "ratingCol": "rating"}
    return ALS(rank=3, maxIter=3, seed=0, **columns).fit(ratings)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:PySpark does not yet")
def test_predictions_and_order_are_those_of_spark(model: Any, spark: Any) -> None:
    pairs = pd.DataFrame(
        {"user_id": np.repeat(LOG.users, 15), "item_id": np.tile(LOG.items, LOG.n_users)}
    )
    own = {
        (row["user_id"], row["item_id"]): row["prediction"]
        for row in model.transform(spark.createDataFrame(pairs)).collect()
    }
    scores = np.array([[own[user, item] for item in LOG.items] for user in LOG.users])
    reader = read_predictions("als", model, LOG)

    assert reader.values(LOG) == pytest.approx(scores[LOG.user, LOG.item], rel=1e-6, abs=1e-6)
    above = reader.positions(LOG, n_items=15, top=None).above
    mine = scores[LOG.user, LOG.item][:, None]
    assert (above >= (scores[LOG.user] > mine + 1e-5).sum(1)).all()
    assert (above <= (scores[LOG.user] > mine - 1e-5).sum(1)).all()
    assert isinstance(wrap_model(model).scorer(LOG.users, LOG.items), Factors)


def test_ids_may_be_those_behind_the_indices(model: Any) -> None:
    names = np.array([f"u{index}" for index in range(120)]), np.arange(600) + 1000

    named = wrap_model(model, users=names[0], items=names[1])

    assert named.predict(["u110", "u104"], [1501, 1507]) == pytest.approx(
        wrap_model(model).predict([110, 104], [501, 507])
    )
    with pytest.raises(BadPredictionError, match=r"the user index 119, but users=\.\.\. "):
        wrap_model(model, users=["a", "b", "c"], items=names[1])


def test_a_user_that_was_not_in_the_training_set_is_named(model: Any) -> None:
    longer = pd.concat([FRAME, pd.DataFrame({"user_id": [7], "item_id": [501], "rating": [3.0]})])

    with pytest.raises(UnknownIdError, match=r"ALSModel of Spark ALS does not know 1 user .*: 7\."):
        evaluate(Ratings.from_frame(longer), model, estimators=["naive"])


def test_the_recipe_of_the_documentation_runs(spark: Any) -> None:
    run_recipe("Spark ALS")
