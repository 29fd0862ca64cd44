"""Evaluations in which not every item is ranked for every user."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import BadPredictionError, UnskewWarning, UsageError

N_USERS, N_ITEMS = 12, 9
RNG = np.random.default_rng(3)
TRUTH = RNG.integers(0, 2, size=(N_USERS, N_ITEMS)).astype(float)
SCORES = RNG.integers(0, 4, size=(N_USERS, N_ITEMS)).astype(float)
SEEN = RNG.random((N_USERS, N_ITEMS)) < 0.3
USER, ITEM = (codes.ravel() for codes in np.indices(TRUTH.shape))
LOG = Ratings.from_arrays(USER, ITEM, TRUTH.ravel())
TRAIN = LOG.take(SEEN.ravel())
METRICS = ["mse", "dcg", "dcg@3", "cg@3", "precision@3", "recall@3", "atop"]


def judge(log: Ratings = LOG, predictions: object = SCORES, **options: object) -> dict[str, float]:
    settings = {"metrics": METRICS, "universe": "log", "estimators": ["ips"]} | options
    result = unskew.evaluate(
        log,
        predictions,
        propensities=np.ones(len(log)),
        **settings,  # type: ignore[arg-type]
    )
    return {risk.metric: risk.estimate for risk in result}


def expected(is_candidate: np.ndarray) -> dict[str, float]:
    """The means over users who have candidates, by sorting the candidates of each user."""
    per_user: dict[str, list[float]] = {name: [] for name in METRICS if name not in ("mse", "atop")}
    heights: list[float] = []
    for user in np.flatnonzero(is_candidate.any(axis=1)):
        items = np.flatnonzero(is_candidate[user])
        rating, score = TRUTH[user, items], SCORES[user, items]
        above = (score > score[:, None]).sum(axis=1)
        equal = (score == score[:, None]).sum(axis=1)
        places = [np.arange(a + 1, a + e + 1) for a, e in zip(above, equal, strict=True)]
        discount = np.array([(1 / np.log2(p + 1)).mean() for p in places])
        cut = np.array([((p <= 3) / np.log2(p + 1)).mean() for p in places])
        in_top = np.array([(p <= 3).mean() for p in places])
        per_user["dcg"].append(float(rating @ discount))
        per_user["dcg@3"].append(float(rating @ cut))
        per_user["cg@3"].append(float(rating @ in_top / 3))
        per_user["precision@3"].append(float(rating @ in_top / 3))
        if rating.any():
            per_user["recall@3"].append(float(rating @ in_top / rating.sum()))
        mean_place = np.array([p.mean() for p in places])
        heights += (1 - (mean_place - 1) / max(items.size - 1, 1))[rating > 0].tolist()
    values = {name: float(np.mean(each)) for name, each in per_user.items()}
    error = np.square(TRUTH - SCORES)[is_candidate].mean()
    return values | {"mse": float(error), "atop": float(np.mean(heights))}


def test_excluded_items_are_not_ranked_and_leave_the_test() -> None:
    assert judge(exclude=TRAIN) == pytest.approx(expected(~SEEN), rel=1e-12)


def test_a_list_for_all_users() -> None:
    is_candidate = np.zeros(TRUTH.shape, bool)
    is_candidate[:, [0, 2, 3, 5, 8]] = True

    assert judge(candidates=[0, 2, 3, 5, 8]) == pytest.approx(expected(is_candidate), rel=1e-12)
    both = judge(candidates=[0, 2, 3, 5, 8], exclude=TRAIN)
    assert both == pytest.approx(expected(is_candidate & ~SEEN), rel=1e-12)


def test_a_list_for_each_user_where_one_has_none() -> None:
    is_candidate = RNG.random(TRUTH.shape) < 0.6
    is_candidate[4] = False
    lists = pd.DataFrame({"user": USER, "item": ITEM})[is_candidate.ravel()]

    assert judge(candidates=lists) == pytest.approx(expected(is_candidate), rel=1e-12)


def test_snips_with_equal_propensities_is_ips_although_some_users_have_few_candidates() -> None:
    is_candidate = RNG.random(TRUTH.shape) < 0.4
    lists = pd.DataFrame({"user": USER, "item": ITEM})[is_candidate.ravel()]

    by_ips, by_snips = (judge(candidates=lists, estimators=[name]) for name in ("ips", "snips"))

    assert by_snips == pytest.approx(by_ips, rel=1e-12)


def test_predictions_and_propensities_in_the_order_of_the_log_follow() -> None:
    by_cell = judge(predictions=SCORES.ravel(), metrics=["mse"], exclude=TRAIN)

    assert by_cell["mse"] == pytest.approx(expected(~SEEN)["mse"])


def test_doubly_robust_imputes_candidates_only() -> None:
    options = {"metrics": ["mse", "dcg@3"], "estimators": ["dr"], "exclude": TRAIN}
    result = judge(imputation=np.full(TRUTH.shape, 0.5), **options)  # type: ignore[arg-type]

    truth = expected(~SEEN)
    assert result == pytest.approx({"mse": truth["mse"], "dcg@3": truth["dcg@3"]}, rel=1e-12)


def test_the_result_counts_cells_that_left_the_test() -> None:
    result = unskew.evaluate(
        LOG, SCORES, metrics=["mse"], estimators=["naive"], universe="log", exclude=TRAIN
    )

    assert result.notes == (
        "1 user of the test has no training rating",
        f"{len(TRAIN)} logged cells left the test: not among the candidates (all in `exclude`)",
    )
    assert result.n_observed == len(LOG) - len(TRAIN)
    assert f"with {len(LOG) - len(TRAIN)} candidates" in repr(result)


def test_a_test_without_candidates_is_refused() -> None:
    with pytest.raises(UsageError, match="none of the 108 logged cells is a candidate"):
        judge(exclude=LOG)


def test_positions_in_a_frame_are_among_the_candidates_already() -> None:
    rows = pd.DataFrame({"user": USER, "item": ITEM, "position": 1})[~SEEN.ravel()]
    options: dict[str, object] = {"exclude": TRAIN, "position": "position"}
    result = judge(LOG.take(~SEEN.ravel()), rows, metrics=["precision@1"], **options)
    assert result["precision@1"] > 1

    with pytest.raises(BadPredictionError, match=r"a position is 9, but there are \d candidates"):
        judge(LOG.take(~SEEN.ravel()), rows.assign(position=9), metrics=["cg@1"], **options)


def test_propensities_of_a_split_are_those_of_unseen_cells() -> None:
    """A cell that is not in the training part is in the test with s P / (1 - (1 - s) P).

    Over many splits of logs with known P, the weights then add up to the number of unseen cells.
    """
    rng = np.random.default_rng(0)
    propensity = rng.uniform(0.3, 0.9, size=(40, 30))
    ratios = []
    for seed in range(60):
        user, item = np.nonzero(rng.random(propensity.shape) < propensity)
        log = Ratings.from_codes(user, item, np.ones(user.size), shape=propensity.shape)
        train, test = unskew.split(log, share=0.4, random_state=seed)
        result = unskew.evaluate(
            test, np.zeros((40, 30)), propensities=propensity, metrics=["mse"],
            estimators=["ips"], universe="log", exclude=train,
        )  # fmt: skip
        ratios.append(result.risk("model", metric="mse", estimator="ips").estimate)

    assert np.mean(ratios) == pytest.approx(1.0, abs=4 * np.std(ratios) / np.sqrt(60))
    assert abs(np.mean(ratios) - 1) < 0.02
    assert any("outside `exclude`" in note for note in result.notes)


def test_a_split_by_user_excludes_nothing() -> None:
    train, test = unskew.split(LOG, share=0.5, by="user", random_state=0)
    result = unskew.evaluate(
        test, SCORES, propensities=np.ones(len(LOG)), metrics=["mse"], estimators=["snips"],
        exclude=train,
    )  # fmt: skip

    assert result.notes == ("`exclude` has other users than the test, so all items are ranked",)


def timed(users: list[int], items: list[int], times: list[int]) -> Ratings:
    return Ratings.from_arrays(
        users, items, [1.0, 0.0] * (len(users) // 2), timestamp=times, universe=(4, 5)
    )


LEAKS = {
    "early": (
        timed([0, 1], [0, 1], [1, 5]), timed([0, 2], [1, 0], [4, 6]),
        "1 of 2 test ratings are older than the latest training rating",
    ),
    "later item": (
        timed([0, 1], [0, 1], [1, 2]), timed([0, 1], [1, 4], [3, 4]),
        "1 item of the test is newer than the latest training rating: .* did not exist yet",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", LEAKS)
def test_evaluate_warns_of_leaks(name: str) -> None:
    train, test, message = LEAKS[name]

    with pytest.warns(UnskewWarning, match=message) as caught:
        unskew.evaluate(test, np.zeros(len(test)), estimators=["naive"], exclude=train)

    assert caught[0].filename == __file__


def test_excluded_ratings_leave_the_test_with_a_note_and_no_warning() -> None:
    train = Ratings.from_arrays([0, 1], [0, 1], [1.0, 0.0], universe=(4, 5))
    test = Ratings.from_arrays([0, 2, 1, 1], [0, 1, 0, 2], [1.0, 0.0, 1.0, 0.0], universe=(4, 5))

    result = unskew.evaluate(test, np.zeros(4), estimators=["naive"], exclude=train)

    assert result.n_observed == 3
    assert (
        "1 logged cell left the test: not among the candidates (all in `exclude`)" in result.notes
    )


def test_a_random_split_is_no_leak_but_a_note() -> None:
    log = Ratings.from_arrays(USER, ITEM, TRUTH.ravel(), timestamp=np.arange(TRUTH.size))
    train, test = unskew.split(log, share=0.3, random_state=0)

    result = unskew.evaluate(test, SCORES, estimators=["naive"], exclude=train)

    assert result.notes[0].startswith("the split is not by time: ")
    assert result.notes[0].endswith("test ratings are older than the latest training rating")


def test_parts_of_different_splits_that_overlap_are_refused() -> None:
    train, _ = unskew.split(LOG, share=0.3, random_state=0)
    _, test = unskew.split(LOG, share=0.3, random_state=1)
    message = r"one log, but overlap: 22 of 33 .* the first is row \d+ \(user \d+, item"

    with pytest.raises(UsageError, match=message) as caught:
        unskew.evaluate(test, SCORES, estimators=["naive"], exclude=train)

    assert caught.value.parameter == "exclude"


def test_new_items_without_times_are_a_note() -> None:
    train = Ratings.from_arrays([0, 1], [0, 1], [1.0, 0.0])
    test = Ratings.from_arrays([0, 1, 0], [2, 3, 1], [1.0, 0.0, 1.0])

    result = unskew.evaluate(test, np.zeros(3), estimators=["naive"], exclude=train)

    assert "2 items of the test have no training rating" in result.notes


def test_a_dictionary_of_candidates_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a frame of users and items; got a dict\. Make a frame"):
        unskew.evaluate(LOG, SCORES, estimators=["naive"], candidates={0: [1, 2]})


def test_lists_that_hold_all_candidates_say_so() -> None:
    options = {"estimators": ["naive"], "relevance_threshold": 1, "universe": "log"}
    items = LOG.items[:3]
    result = unskew.evaluate(LOG, SCORES, metrics=["recall@5"], candidates=items, **options)
    short = unskew.evaluate(LOG, SCORES, metrics=["recall@3"], candidates=items, **options)

    note = "no user has more than 3 candidates: the first 5 places hold all of them"
    assert note in result.notes
    assert not any("no user has more" in each for each in short.notes)
