from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.errors import BadPredictionError, UniverseError, UsageError
from unskew.metrics.metric import Delta, Metric, MetricInput, metric_bounds
from unskew.metrics.ranking import (
    AreaAboveTop,
    CumulativeGain,
    DiscountedGain,
    Precision,
    Recall,
    StratifiedRecall,
    discount,
    relevance,
    share_in_top,
)
from unskew.ranking.positions import Positions
from unskew.types import Matrix, Vector

EVERY_METRIC = (
    DiscountedGain(),
    DiscountedGain(2),
    CumulativeGain(2),
    Precision(2, relevance_threshold=4),
    Recall(2, relevance_threshold=4),
    StratifiedRecall(2, relevance_threshold=4),
    AreaAboveTop(relevance_threshold=4),
)
each_metric = pytest.mark.parametrize("metric", EVERY_METRIC, ids=lambda metric: metric.name)
N_USERS, N_ITEMS = 3, 5
stars = arrays(np.float64, (N_USERS, N_ITEMS), elements=st.integers(1, 5).map(float)).filter(
    lambda each: each.max() >= 4
)
few_scores = arrays(np.float64, (N_USERS, N_ITEMS), elements=st.integers(0, 2).map(float))
row_of_scores = arrays(np.float64, 5, elements=st.integers(0, 2).map(float))
row_of_stars = arrays(np.float64, 5, elements=st.integers(1, 5).map(float)).filter(
    lambda each: each.max() >= 4
)


def places(scores: Matrix) -> Positions:
    """Every cell's places among its user's items, by comparing all pairs."""
    above = (scores[:, None, :] > scores[:, :, None]).sum(axis=2)
    equal = (scores[:, None, :] == scores[:, :, None]).sum(axis=2)
    return Positions(above.ravel().astype(np.int32), equal.ravel().astype(np.int32))


def judge(rating: Matrix, positions: Positions) -> MetricInput:
    n_users, n_items = rating.shape
    item = np.tile(np.arange(n_items, dtype=np.int32), n_users)
    return MetricInput(rating.ravel(), item, rating.ravel(), positions=positions, n_items=n_items)


def on_all_cells(metric: Metric, rating: Matrix, scores: Matrix) -> Delta:
    return metric(judge(rating, places(scores)))


def risk(metric: Metric, rating: Matrix, scores: Matrix) -> float:
    """What a metric says of a complete matrix."""
    delta = on_all_cells(metric, rating, scores)
    if delta.base is None:
        return float(delta.value.mean())
    if not delta.is_mean_of_users:
        return float(delta.value.sum() / delta.base.sum())
    value, base = (each.reshape(rating.shape).sum(axis=1) for each in (delta.value, delta.base))
    return float((value[base > 0] / base[base > 0]).mean())


# Known values: one user likes the first and third of four items best


RATING = np.array([[5.0, 2.0, 4.0, 1.0]])
SCORES = np.array([[0.9, 0.5, 0.1, 0.0]])


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (DiscountedGain(), 5 + 2 / np.log2(3) + 4 / 2 + 1 / np.log2(5)),
        (DiscountedGain(2), 5 + 2 / np.log2(3)),
        (DiscountedGain(99), 5 + 2 / np.log2(3) + 4 / 2 + 1 / np.log2(5)),
        (CumulativeGain(1), 5.0),
        (CumulativeGain(2), (5 + 2) / 2),
        (Precision(1, relevance_threshold=4), 1.0),
        (Precision(3, relevance_threshold=4), 2 / 3),
        (Precision(8, relevance_threshold=4), 2 / 8),
        (Recall(1, relevance_threshold=4), 1 / 2),
        (Recall(3, relevance_threshold=4), 1.0),
        (StratifiedRecall(1, relevance_threshold=4), 1 / 2),
        (AreaAboveTop(relevance_threshold=4), (1 + (1 - 2 / 3)) / 2),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_value_by_hand(metric: Metric, value: float) -> None:
    assert risk(metric, RATING, SCORES) == pytest.approx(value)


def test_the_discount_is_one_at_the_top_and_a_half_at_place_three() -> None:
    assert discount(np.arange(1.0, 4.0)) == pytest.approx([1.0, 0.63092975, 0.5])


def test_recall_counts_each_user_with_a_relevant_item_once() -> None:
    rating = np.array([[5.0, 5.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]])
    scores = np.tile([3.0, 2.0, 1.0], (3, 1))

    assert risk(Recall(1, relevance_threshold=5), rating, scores) == pytest.approx(
        (1 / 2 + 0 / 1) / 2
    )
    assert risk(
        StratifiedRecall(1, relevance_threshold=5, beta=0), rating, scores
    ) == pytest.approx(1 / 3)


def test_stratified_recall_by_hand() -> None:
    """Item 0 has two positives, found once of twice; item 1 has one, not found."""
    rating = np.array([[5.0, 1.0], [5.0, 5.0]])
    scores = np.array([[2.0, 1.0], [2.0, 1.0]])

    assert risk(
        StratifiedRecall(1, relevance_threshold=4, beta=0.5), rating, scores
    ) == pytest.approx(2**0.5 / (2**0.5 + 1))


def test_rotate_is_12_898() -> None:
    """All items in the top 50 have the rating 1: this number fixes the discount, cut and gain."""
    truth = np.repeat([[1.0, 2.0, 3.0, 4.0, 5.0]], 60, axis=0).T.reshape(1, -1)
    rotated = np.where(truth >= 2, truth - 1, 5.0)

    assert risk(DiscountedGain(50), truth, rotated) == pytest.approx(12.898, abs=5e-4)


# Ties


@each_metric
@given(scores=row_of_scores, rating=row_of_stars)
def test_a_tie_is_worth_the_average_over_its_orders(
    metric: Metric, scores: Vector, rating: Vector
) -> None:
    """All 120 orders of five items, sorted stably, contain every order of ties equally often."""
    strict = []
    for order in permutations(range(scores.size)):
        ranked = np.array(order)[np.argsort(-scores[list(order)], kind="stable")]
        above = np.argsort(ranked).astype(np.int32)
        strict.append(metric(judge(rating[None], Positions(above, np.ones_like(above)))).value)

    assert on_all_cells(metric, rating[None], scores[None]).value == pytest.approx(
        np.mean(strict, axis=0)
    )


@given(scores=few_scores, top=st.integers(1, 7))
def test_ties_share_the_weight_of_their_places_and_lose_none(scores: Matrix, top: int) -> None:
    last = min(top, N_ITEMS)
    shared = places(scores).mean(discount, last=last).reshape(scores.shape)

    assert shared.sum(axis=1) == pytest.approx(discount(np.arange(1.0, last + 1)).sum())


@given(scores=few_scores, top=st.integers(1, 7))
def test_the_share_in_the_top_is_the_share_of_the_ties_places_that_are(
    scores: Matrix, top: int
) -> None:
    found = places(scores)
    n_in_top = np.minimum(found.above + found.equal, top) - np.minimum(found.above, top)

    assert share_in_top(found, top) == pytest.approx(n_in_top / found.equal)


@each_metric
@given(scores=few_scores, rating=stars, order=st.permutations(range(N_ITEMS)))
def test_renumbering_the_items_changes_nothing(
    metric: Metric, scores: Matrix, rating: Matrix, order: list[int]
) -> None:
    delta = on_all_cells(metric, rating, scores).value.reshape(rating.shape)

    assert on_all_cells(metric, rating[:, order], scores[:, order]).value == pytest.approx(
        delta[:, order].ravel()
    )


@given(scores=few_scores, rating=stars)
def test_scores_matter_by_their_order_alone(scores: Matrix, rating: Matrix) -> None:
    for metric in EVERY_METRIC:
        stretched = on_all_cells(metric, rating, np.exp(3 * scores) - 8).value
        assert stretched.tolist() == on_all_cells(metric, rating, scores).value.tolist()


# How metrics bound and equal one another


@given(scores=few_scores, rating=stars)
def test_no_ranking_beats_the_ranking_by_true_ratings(scores: Matrix, rating: Matrix) -> None:
    rating[:, 0] = 5  # so that recall has something to find
    for metric in (
        DiscountedGain(),
        DiscountedGain(2),
        CumulativeGain(2),
        Precision(2, relevance_threshold=4),
        AreaAboveTop(relevance_threshold=4),
    ):
        best, worst = risk(metric, rating, rating), risk(metric, rating, -rating)
        assert worst - 1e-12 <= risk(metric, rating, scores) <= best + 1e-12


@given(rating=stars)
def test_a_perfect_ranking_has_the_precision_and_recall_that_numbers_allow(rating: Matrix) -> None:
    rating[:, 0] = 5
    n_relevant = (rating >= 4).sum(axis=1)

    assert risk(Precision(2, relevance_threshold=4), rating, rating) == pytest.approx(
        (np.minimum(n_relevant, 2) / 2).mean()
    )
    assert risk(Recall(2, relevance_threshold=4), rating, rating) == pytest.approx(
        (np.minimum(n_relevant, 2) / n_relevant).mean()
    )


@given(scores=few_scores, rating=stars)
def test_atop_is_the_mean_of_pooled_recall_over_all_cuts_but_the_last(
    scores: Matrix, rating: Matrix
) -> None:
    rating[0, 0] = 5
    recalls = [
        risk(StratifiedRecall(top, relevance_threshold=4, beta=0), rating, scores)
        for top in range(1, N_ITEMS)
    ]

    assert risk(AreaAboveTop(relevance_threshold=4), rating, scores) == pytest.approx(
        np.mean(recalls)
    )


@given(scores=few_scores, rating=stars)
def test_stratified_recall_pools_cells_at_beta_0_and_averages_items_at_beta_1(
    scores: Matrix, rating: Matrix
) -> None:
    rating[0, 0] = 5
    relevant, found = rating >= 4, share_in_top(places(scores), 2).reshape(rating.shape)
    by_item = [
        found[relevant[:, item], item].mean() for item in range(N_ITEMS) if relevant[:, item].any()
    ]

    assert risk(
        StratifiedRecall(2, relevance_threshold=4, beta=0), rating, scores
    ) == pytest.approx(found[relevant].mean())
    assert risk(
        StratifiedRecall(2, relevance_threshold=4, beta=1), rating, scores
    ) == pytest.approx(np.mean(by_item))


@given(scores=few_scores, rating=stars)
def test_precision_is_the_cumulative_gain_of_ratings_of_zero_and_one(
    scores: Matrix, rating: Matrix
) -> None:
    binary = (rating >= 4).astype(float)

    assert risk(Precision(2), binary, scores) == pytest.approx(
        risk(CumulativeGain(2), binary, scores)
    )
    assert risk(Precision(2), binary, scores) == pytest.approx(
        risk(Precision(2, relevance_threshold=4), rating, scores)
    )


@given(scores=few_scores, rating=stars)
def test_the_value_is_the_mean_over_users(scores: Matrix, rating: Matrix) -> None:
    for metric in (
        DiscountedGain(),
        DiscountedGain(2),
        CumulativeGain(2),
        Precision(2, relevance_threshold=4),
    ):
        alone = [risk(metric, rating[[user]], scores[[user]]) for user in range(N_USERS)]
        assert risk(metric, rating, scores) == pytest.approx(np.mean(alone))


def test_a_huge_cut_costs_no_memory() -> None:
    assert risk(Recall(2**31 - 1, relevance_threshold=4), RATING, SCORES) == 1.0


# Errors


@pytest.mark.parametrize(
    "metric",
    [Precision(2), Recall(2), StratifiedRecall(2), AreaAboveTop()],
    ids=lambda each: each.name,
)
def test_stars_do_not_say_what_is_relevant(metric: Metric) -> None:
    with pytest.raises(
        UsageError, match=r"ratings other than 0 and 1, such as 5\. Pass relevance_threshold=4"
    ):
        on_all_cells(metric, RATING, SCORES)


def test_relevance_from_a_threshold_on() -> None:
    assert relevance(rated([3.9, 4.0, 5.0], scale=[1, 5]), 4).tolist() == [0, 1, 1]
    assert relevance(rated([0.0, 1.0], scale=[0, 1]), None).tolist() == [0, 1]


def rated(rating: list[float], *, scale: list[float]) -> MetricInput:
    return MetricInput(
        np.array(rating), np.arange(len(rating), dtype=np.int32), np.array(scale, dtype=float)
    )


def test_imputed_probabilities_of_relevance_pass() -> None:
    assert relevance(rated([0.25, 1.0, 0.0], scale=[0, 1]), None).tolist() == [0.25, 1.0, 0.0]


@pytest.mark.parametrize("bad", [-0.1, 1.5])
def test_imputed_ratings_beyond_0_and_1_are_no_probabilities(bad: float) -> None:
    with pytest.raises(
        BadPredictionError,
        match=rf"ratings are 0 and 1, but an imputed one is {bad}\. Impute the probability",
    ):
        relevance(rated([0.5, bad], scale=[0, 1]), None)


def test_stars_do_not_say_what_is_relevant_even_where_the_imputed_ones_are_0_and_1() -> None:
    with pytest.raises(UsageError, match="ratings other than 0 and 1, such as 5"):
        relevance(rated([0.0, 1.0], scale=[1, 5]), None)


@pytest.mark.parametrize(
    "metric", [Recall(2, 6), StratifiedRecall(2, 6), AreaAboveTop(6)], ids=lambda each: each.name
)
def test_a_threshold_that_no_rating_reaches_is_named_with_the_largest_rating(
    metric: Metric,
) -> None:
    with pytest.raises(
        UsageError,
        match=r"no rating is relevant: the largest is 5, below the threshold 6\. Lower",
    ):
        on_all_cells(metric, RATING, SCORES)


def test_precision_of_nothing_relevant_is_zero() -> None:
    assert risk(Precision(2, relevance_threshold=6), RATING, SCORES) == 0.0


@each_metric
def test_a_ranking_metric_without_positions_or_items_says_so(metric: Metric) -> None:
    cells = judge(RATING, places(SCORES))
    without_items = MetricInput(cells.rating, cells.item, cells.scale, positions=cells.positions)
    without_positions = MetricInput(
        cells.rating, cells.item, cells.scale, prediction=cells.rating, n_items=4
    )

    with pytest.raises(UniverseError, match=r"needs the number of all items\. Pass universe="):
        metric(without_items)
    with pytest.raises(BadPredictionError, match="needs positions among all items"):
        metric(without_positions)


SLOT_METRICS = (
    DiscountedGain(),
    DiscountedGain(2),
    CumulativeGain(2),
    CumulativeGain(9),
    Precision(2, relevance_threshold=4),
)


@pytest.mark.parametrize("metric", SLOT_METRICS, ids=lambda metric: metric.name)
@given(rating=stars, scores=few_scores)
def test_slots_have_mean_one_and_keep_the_ratio_within_the_range(
    metric: Metric, rating: Matrix, scores: Matrix
) -> None:
    """Ties included. The delta of a cell is its slot times a gain within the range."""
    delta = metric(judge(rating, places(scores)))

    assert delta.slots is not None
    assert delta.slots.mean() == pytest.approx(1.0)
    assert (delta.slots >= 0).all()
    if not isinstance(metric, DiscountedGain):
        largest = 1.0 if isinstance(metric, Precision) else rating.max()
        assert (delta.value <= largest * delta.slots + 1e-12).all()


@pytest.mark.parametrize("metric", SLOT_METRICS, ids=lambda metric: metric.name)
def test_a_constant_rating_is_estimated_exactly_from_any_cells(metric: Metric) -> None:
    rating, scores = np.full((3, 5), 4.0), np.random.default_rng(0).random((3, 5))
    delta = metric(judge(rating, places(scores)))
    seen = np.random.default_rng(1).random(15) < 0.7

    assert delta.slots is not None
    assert delta.value[seen].sum() / delta.slots[seen].sum() == pytest.approx(delta.value.mean())


@pytest.mark.parametrize("metric", EVERY_METRIC, ids=lambda metric: metric.name)
@given(rating=stars, scores=few_scores)
def test_a_metric_stays_within_its_declared_range(
    metric: Metric, rating: Matrix, scores: Matrix
) -> None:
    bounds = metric_bounds(metric)
    if bounds is not None:
        delta = metric(judge(rating, places(scores)))
        base = np.ones_like(delta.value) if delta.base is None else delta.base
        assert bounds[0] <= delta.value.sum() / base.sum() <= bounds[1] + 1e-12
