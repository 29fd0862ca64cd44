"""Labels of pandas that contradict the order of the rows: an error, never a wrong number."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import unskew
from unskew.errors import DataError
from unskew.evaluation import Monitor
from unskew.models import GlobalMean
from unskew.propensity import LogisticPropensity, PopularityPropensity

RNG = np.random.default_rng(0)
USERS = np.array([f"u{code}" for code in range(6)])
ITEMS = np.array([f"i{code}" for code in range(4)])
SHUFFLED = RNG.permutation(12)
CELLS = np.sort(RNG.choice(24, 12, replace=False))
FRAME = pd.DataFrame(
    {
        "user_id": USERS[CELLS // 4],
        "item_id": ITEMS[CELLS % 4],
        "rating": RNG.integers(1, 6, 12),
        "propensity": RNG.uniform(0.2, 0.9, 12),
        "prediction": RNG.normal(3, 1, 12),
    }
)
LOG = unskew.Ratings.from_frame(FRAME, users=USERS, items=ITEMS)
MATRIX = pd.DataFrame(RNG.uniform(0.2, 0.9, (6, 4)), index=USERS, columns=ITEMS)
PREDICTED, P = FRAME["prediction"], FRAME["propensity"]
WRONG = P.iloc[SHUFFLED]


def find_risk(predictions: Any, propensities: Any, log: unskew.Ratings = LOG) -> float:
    result = unskew.evaluate(log, predictions, propensities=propensities, metrics=["mae"])
    return result.risk("model", metric="mae", estimator="snips").estimate


def update(rating: Any, predicted: Any, propensities: Any) -> None:
    Monitor(["a"], planned_size=9).update(rating, {"a": predicted}, propensities)


def shown(reward: Any) -> unskew.Impressions:
    return unskew.Impressions.from_arrays(
        FRAME["user_id"], FRAME["user_id"], FRAME["item_id"], reward
    )


CALLS: dict[str, Callable[[], object]] = {
    "predictions": lambda: find_risk(PREDICTED.iloc[SHUFFLED], P),
    "propensities": lambda: find_risk(PREDICTED, WRONG),
    "checked propensities": lambda: find_risk(PREDICTED, unskew.Propensities(WRONG)),
    "scaled propensities": lambda: find_risk(PREDICTED, unskew.Propensities(WRONG).scaled(0.5)),
    "known propensities": lambda: find_risk(PREDICTED, unskew.Propensities(WRONG).as_known()),
    "unpickled propensities": lambda: find_risk(
        PREDICTED, pickle.loads(pickle.dumps(unskew.Propensities(WRONG)))
    ),
    "fit": lambda: unskew.MatrixFactorization(1).fit(LOG, unskew.Propensities(WRONG)),
    "rows of a matrix": lambda: find_risk(PREDICTED, MATRIX.iloc[::-1]),
    "columns of a matrix": lambda: find_risk(PREDICTED, MATRIX.iloc[:, ::-1]),
    "dense": lambda: unskew.Ratings.from_dense(MATRIX, users=USERS[::-1]),
    "columns": lambda: unskew.Ratings.from_arrays(
        FRAME["user_id"], FRAME["item_id"], FRAME["rating"].iloc[SHUFFLED]
    ),
    "codes": lambda: unskew.Ratings.from_codes(
        pd.Series(LOG.user), pd.Series(LOG.item), FRAME["rating"].iloc[SHUFFLED], shape=(6, 4)
    ),
    "impressions": lambda: shown(FRAME["rating"].iloc[SHUFFLED]),
    "ratings of a batch": lambda: update(FRAME["rating"].iloc[SHUFFLED], PREDICTED, P),
    "predictions of a batch": lambda: update(FRAME["rating"], PREDICTED.iloc[SHUFFLED], P),
    "propensities of a batch": lambda: update(FRAME["rating"], PREDICTED, WRONG),
    "mask": lambda: LOG.take((FRAME["rating"] > 2).iloc[SHUFFLED]),
    "pairs of a model": lambda: (
        GlobalMean().fit(LOG).predict(FRAME["user_id"], FRAME["item_id"].iloc[SHUFFLED])
    ),
    "pairs of a propensity": lambda: (
        PopularityPropensity()
        .fit(LOG)
        .predict_pairs(FRAME["user_id"], FRAME["item_id"].iloc[SHUFFLED])
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_labels_in_another_order_are_an_error(name: str) -> None:
    with pytest.raises(DataError, match=r"in another order|in different orders"):
        CALLS[name]()


def test_labels_in_the_order_of_the_log_change_nothing() -> None:
    expected = find_risk(PREDICTED.to_numpy(), P.to_numpy())

    assert find_risk(PREDICTED, P) == expected
    assert find_risk(PREDICTED, unskew.Propensities(P)) == expected
    assert find_risk(PREDICTED, MATRIX) == find_risk(PREDICTED, MATRIX.to_numpy())


def test_a_log_in_another_order_takes_propensities_in_that_order() -> None:
    log = unskew.Ratings.from_frame(FRAME.iloc[SHUFFLED])
    predicted = PREDICTED.iloc[SHUFFLED]
    expected = find_risk(predicted.to_numpy(), WRONG.to_numpy(), log)

    assert find_risk(predicted, unskew.Propensities(WRONG), log) == expected
    with pytest.raises(DataError, match="in another order"):
        find_risk(predicted, unskew.Propensities(P), log)


@pytest.mark.parametrize("wrap", [lambda column: column, unskew.Propensities])
def test_a_part_of_a_log_takes_propensities_of_the_whole_in_its_order(wrap: Any) -> None:
    train, _ = unskew.split(LOG, share=0.25, random_state=0)

    unskew.MatrixFactorization(1, max_iter=500).fit(train, wrap(P))
    with pytest.raises(DataError, match="in another order"):
        unskew.MatrixFactorization(1, max_iter=500).fit(train, wrap(WRONG))


def test_the_labels_of_a_dense_frame_are_the_ids() -> None:
    log = unskew.Ratings.from_dense(MATRIX)

    assert log.users.tolist() == USERS.tolist()
    assert log.items.tolist() == ITEMS.tolist()
    assert unskew.Ratings.from_dense(MATRIX.to_numpy()).users.tolist() == list(range(6))


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
def test_a_column_of_covariates_is_matched_by_its_index() -> None:
    column = pd.Series(np.arange(6.0) % 3, index=USERS, name="age")

    def predict(features: object) -> Any:
        model = LogisticPropensity(user_features=features, item_offsets=False, ridge=1.0)
        return model.fit(LOG).predict(LOG).values

    expected = predict(column.to_frame())

    assert np.array_equal(predict(column), expected)
    assert np.array_equal(predict(column.iloc[::-1]), expected)
