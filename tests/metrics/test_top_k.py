"""NDCG, MAP, MRR, hit rate and AUC: against other libraries, all orders of ties, and all logs."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest

import unskew
from unskew.data.ratings import Ratings
from unskew.errors import PropensityWarning, UniverseError, UsageError
from unskew.metrics.metric import Delta, MetricInput, find_metric
from unskew.metrics.top_k import HitRate, NormalizedGain
from unskew.ranking.positions import compute_positions
from unskew.types import BoolVector, Matrix, Vector

CUT = ["ndcg@3", "map@3", "mrr@3", "hit_rate@3", "recall@3", "precision@3", "dcg@3"]
FULL = ["ndcg", "map", "mrr", "auc", "dcg"]
PER_POSITIVE = ["recall_per_positive@3", "mrr_per_positive", "mrr_per_positive@3",
                "ndcg_per_positive", "ndcg_per_positive@3"]  # fmt: skip


def judge(
    rating: Matrix,
    scores: Matrix,
    metrics: list[str],
    estimator: str = "snips",
    *,
    propensity: Matrix | None = None,
    seen: BoolVector | None = None,
    **options: object,
) -> dict[str, float]:
    """The metrics of one model on the observed cells of a matrix, by name."""
    seen = np.ones(rating.shape, bool) if seen is None else seen
    user, item = np.nonzero(seen)
    log = Ratings.from_codes(user, item, rating[seen], shape=rating.shape)
    values = np.ones(rating.shape) if propensity is None else propensity
    result = unskew.evaluate(
        log, scores, propensities=values, metrics=metrics, estimators=[estimator],
        universe="log", **options,  # type: ignore[arg-type]
    )  # fmt: skip
    return {risk.metric: risk.estimate for risk in result}


def measure_order(is_relevant: Vector) -> dict[str, float]:
    """The metrics of one list without ties, by their definitions; labels are in list order."""
    place = np.arange(1, is_relevant.size + 1)
    n, found = is_relevant.sum(), np.cumsum(is_relevant)
    discount = 1 / np.log2(place + 1)
    values = {}
    for name, last in (("@3", 3), ("", place.size)):
        top = (place <= last) * is_relevant
        best = discount[: min(int(n), last)].sum()
        values[f"dcg{name}"] = float(top @ discount)
        values[f"ndcg{name}"] = float(top @ discount / best)
        values[f"map{name}"] = float((top * found / place).sum() / n)
        values[f"mrr{name}"] = float(1 / place[top > 0][0]) if top.any() else 0.0
        values[f"hit_rate{name}"] = float(top.any())
        values[f"recall{name}"] = float(top.sum() / n)
        values[f"precision{name}"] = float(top.sum() / last)
        values[f"mrr_per_positive{name}"] = float((top / place).sum() / n)
        values[f"ndcg_per_positive{name}"] = float(top @ discount / n)
        values[f"recall_per_positive{name}"] = float(top.sum() / n)
    other = 1 - is_relevant
    below = np.cumsum(other[::-1])[::-1]
    values["auc"] = float((is_relevant * below).sum() / (n * other.sum()))
    return values


@pytest.mark.parametrize("seed", range(6))
def test_ties_are_the_mean_over_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    score = rng.integers(0, 3, size=6).astype(float)
    label = rng.permutation([1, 1, 0, 0, 0, rng.integers(2)]).astype(float)
    orders = [
        measure_order(label[list(order)])
        for order in permutations(range(6))
        if (np.diff(score[list(order)]) <= 0).all()
    ]
    metrics = [*CUT, *FULL, *PER_POSITIVE]

    # Two users with the same list: a single one has no standard error.
    found = judge(np.tile(label, (2, 1)), np.tile(score, (2, 1)), metrics)

    expected = {name: np.mean([order[name] for order in orders]) for name in metrics}
    assert found == pytest.approx(expected, abs=1e-12)


def make_run(seed: int, *, n_levels: int = 2) -> tuple[Matrix, Matrix]:
    """Labels of 12 users, all of whom have a relevant item, and scores without ties."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, n_levels, size=(12, 15)) * (rng.random((12, 15)) < 0.5)
    label[:, 0] = n_levels - 1
    return label.astype(float), rng.permuted(np.tile(np.arange(15.0), (12, 1)), axis=1)


def as_dicts(matrix: Matrix) -> dict[str, dict[str, float]]:
    return {
        f"u{u}": {f"i{i}": value for i, value in enumerate(row)} for u, row in enumerate(matrix)
    }


@pytest.mark.filterwarnings("ignore:.*unsafe cast")  # while ranx is compiled
@pytest.mark.parametrize("n_levels", [2, 4])
def test_everything_observed_is_ranx(n_levels: int) -> None:
    ranx = pytest.importorskip("ranx", reason="a comparison with ranx")
    names = {"ndcg@3": "ndcg@3", "ndcg": "ndcg", "dcg@3": "dcg@3"}
    if n_levels == 2:
        names |= {
            "map": "map", "map@3": "map@3", "mrr": "mrr", "mrr@3": "mrr@3",
            "hit_rate@3": "hit_rate@3", "recall@3": "recall@3", "precision@3": "precision@3",
        }  # fmt: skip
    for seed in range(20):
        label, scores = make_run(seed, n_levels=n_levels)
        qrels = {
            user: {item: int(value) for item, value in items.items() if value > 0}
            for user, items in as_dicts(label).items()
        }
        expected = ranx.evaluate(
            ranx.Qrels(qrels), ranx.Run(as_dicts(scores)), list(names.values())
        )

        found = judge(label, scores, list(names))

        for ours, theirs in names.items():
            assert found[ours] == pytest.approx(expected[theirs], abs=1e-12), ours


def test_everything_observed_is_ir_measures() -> None:
    ir_measures = pytest.importorskip("ir_measures", reason="a comparison with ir_measures")
    names = {
        "ndcg@3": "nDCG@3", "ndcg": "nDCG", "map": "AP", "map@3": "AP@3", "mrr": "RR",
        "hit_rate@3": "Success@3", "recall@3": "R@3", "precision@3": "P@3",
    }  # fmt: skip
    measures = [ir_measures.parse_measure(name) for name in names.values()]
    for seed in range(10):
        label, scores = make_run(seed)
        qrels = {u: {i: int(y) for i, y in row.items()} for u, row in as_dicts(label).items()}
        expected = ir_measures.calc_aggregate(measures, qrels, as_dicts(scores))

        found = judge(label, scores, list(names))

        for ours, theirs in zip(names, measures, strict=True):
            assert found[ours] == pytest.approx(expected[theirs], abs=1e-12), ours


def test_auc_is_that_of_each_user_and_pooled_of_all_pairs() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    label, scores = make_run(0)
    scores = np.floor(scores / 3)
    pairs = label.sum(axis=1) * (1 - label).sum(axis=1)
    by_user = np.array([metrics.roc_auc_score(*each) for each in zip(label, scores, strict=True)])

    found = judge(label, scores, ["auc", "pooled_auc"])

    assert found["auc"] == pytest.approx(by_user.mean(), abs=1e-12)
    assert found["pooled_auc"] == pytest.approx(by_user @ pairs / pairs.sum(), abs=1e-12)


PROPENSITY = np.array([[0.3, 0.6, 0.9, 0.5, 0.4], [0.7, 0.2, 0.8, 0.5, 0.6]])
LABEL = np.array([[1.0, 0, 1, 1, 0], [0, 1.0, 0, 0, 1]])
TIED = np.array([[2.0, 1, 1, 1, 0], [1.0, 1, 1, 2, 0]])


def functions_of(name: str) -> tuple[Delta, Callable[[BoolVector], Vector]]:
    """The delta of a metric with all cells, and the numerators of both users given what is seen."""
    user, item = (codes.ravel().astype(np.int32) for codes in np.indices(LABEL.shape))
    positions = compute_positions(user, item, 2, 5, TIED.__getitem__)
    cells = MetricInput(
        LABEL.ravel(), item, LABEL.ravel(), positions=positions, n_items=5, user=user, n_users=2
    )
    delta = find_metric(name)(cells)
    function = delta.function
    assert function is not None
    return delta, lambda seen: function.measure(np.where(seen, 1 / PROPENSITY.ravel(), 0.0))


@pytest.mark.parametrize("name", ["hit_rate@1", "hit_rate@2", "hit_rate@3", "mrr", "mrr@2"])
def test_products_of_weights_are_unbiased_over_all_logs(name: str) -> None:
    """Both users and all 2^10 logs, with ties across the cut."""
    delta, measure = functions_of(name)
    p = PROPENSITY.ravel()
    mean = np.zeros(2)
    for bits in product([False, True], repeat=10):
        seen = np.array(bits)
        mean += np.prod(np.where(seen, p, 1 - p)) * measure(seen)[:, 0]

    assert delta.function is not None
    truth = delta.function.measure(np.ones(10))[:, 0]
    np.testing.assert_allclose(mean, truth, atol=1e-12)
    assert truth.min() < 1


@pytest.mark.parametrize("part", [0, 1])
def test_both_sums_of_pairs_of_the_pooled_auc_are_unbiased(part: int) -> None:
    delta, measure = functions_of("pooled_auc")
    p = PROPENSITY.ravel()
    mean = np.zeros(2)
    for bits in product([False, True], repeat=10):
        seen = np.array(bits)
        mean += np.prod(np.where(seen, p, 1 - p)) * measure(seen)[:, part]

    assert delta.function is not None
    np.testing.assert_allclose(mean, delta.function.measure(np.ones(10))[:, part], atol=1e-12)


@pytest.mark.parametrize("name", ["hit_rate@2", "mrr", "ndcg@3", "map", "auc", "pooled_auc"])
def test_derivatives_by_weight(name: str) -> None:
    delta, _ = functions_of(name)
    assert delta.function is not None
    weight = np.linspace(1.1, 3.3, 10)
    slopes = delta.function.differentiate(weight)

    for cell in range(10):
        step = 1e-6 * np.eye(10)[cell]
        up, down = (delta.function.measure(weight + sign * step) for sign in (1, -1))
        expected = ((up - down) / 2e-6)[cell // 5]
        np.testing.assert_allclose(slopes[cell], expected, atol=1e-6)


def expect(name: str, missing: float, *, corrected: bool) -> Matrix:
    """Mean over all 2^10 logs of what a metric measures, if cells are missing with these odds."""
    delta, _ = functions_of(name)
    assert delta.function is not None
    p = 1 - missing * np.linspace(0.5, 1.5, 10)
    mean = np.zeros((2, 2))
    for bits in product([False, True], repeat=10):
        seen = np.array(bits)
        measured = delta.function.measure(seen / p, 1 - p if corrected else None)
        mean += np.prod(np.where(seen, p, 1 - p)) * measured
    return mean


@pytest.mark.parametrize("name", ["ndcg@3", "ndcg", "map", "map@2", "auc"])
def test_the_bias_of_first_order_is_subtracted(name: str) -> None:
    """If a cell is missing with probability e, the bias is of order e before and e^2 after."""
    delta, _ = functions_of(name)
    assert delta.function is not None
    truth = delta.function.measure(np.ones(10))
    for e in (0.001, 0.004):
        before, after = (
            np.abs(expect(name, e, corrected=corrected) - truth).max()
            for corrected in (False, True)
        )
        assert before > 0.01 * e
        assert after < 5 * e**2


@pytest.mark.parametrize("name", ["hit_rate@2", "mrr", "pooled_auc"])
def test_nothing_is_subtracted_from_functions_without_bias(name: str) -> None:
    delta, _ = functions_of(name)
    assert delta.function is not None
    weight = np.linspace(1.1, 3.3, 10)

    assert not delta.function.has_bias
    np.testing.assert_allclose(
        delta.function.measure(weight, 1 - 1 / weight), delta.function.measure(weight), atol=1e-8
    )


def test_users_without_a_relevant_item() -> None:
    """They count 0 in hit rate and MRR, and are left out and counted in the others."""
    label, scores = np.eye(3)[[0, 1, 2, 0]], np.tile([3.0, 2, 1], (4, 1))
    label[3] = 0
    found = judge(label, scores, ["hit_rate@1", "mrr", "ndcg@1", "map", "recall@1"])
    reciprocal = (1 + 1 / 2 + 1 / 3) / 3
    expected = {"hit_rate@1": 1 / 4, "mrr": reciprocal * 3 / 4, "ndcg@1": 1 / 3,
                "map": reciprocal, "recall@1": 1 / 3}  # fmt: skip
    assert found == pytest.approx(expected)

    log = Ratings.from_codes(*np.nonzero(np.ones((4, 3))), label.ravel(), shape=(4, 3))
    metrics = [HitRate(1, empty_users="drop"), NormalizedGain(1, empty_users="one")]
    result = unskew.evaluate(log, scores, metrics=metrics, estimators=["naive"], universe="log")
    assert [risk.estimate for risk in result] == pytest.approx([1 / 3, 2 / 4])
    assert result.estimates["hit_rate@1", "naive"].n_left_out == 1


def test_the_interval_is_that_of_a_mean_over_users() -> None:
    label, scores = make_run(3)
    by_user = [
        measure_order(row[np.argsort(-s)])["ndcg@3"] for row, s in zip(label, scores, strict=True)
    ]
    log = Ratings.from_codes(*np.nonzero(np.ones(label.shape)), label.ravel(), shape=label.shape)
    result = unskew.evaluate(
        log, scores, propensities=np.full(label.size, 0.5), metrics=["ndcg@3"],
        estimators=["naive"], relevance_threshold=1,
    )  # fmt: skip

    risk = next(iter(result))
    assert risk.estimate == pytest.approx(np.mean(by_user))
    assert risk.std_error == pytest.approx(np.std(by_user, ddof=1) / np.sqrt(12))


def test_noisy_products_have_no_interval_and_say_why() -> None:
    rng = np.random.default_rng(0)
    label = (rng.random((60, 40)) < 0.5).astype(float)
    seen = rng.random(label.shape) < 0.1
    user, item = np.nonzero(seen)
    log = Ratings.from_codes(user, item, label[seen], shape=label.shape)
    models = {"a": rng.random(label.shape), "b": rng.random(label.shape)}
    with pytest.warns(PropensityWarning, match="outside its range .* A metric per positive"):
        result = unskew.evaluate(
            log, models, propensities=np.full(len(log), 0.1), metrics=["hit_rate@20"],
            estimators=["snips"], universe="log",
        )  # fmt: skip

    assert np.isnan(next(iter(result)).ci_low)
    assert "it rests on products of weights" in repr(result)
    pair = result.compare("a", "b", metric="hit_rate@20", estimator="snips")
    assert pair.better is None
    assert "without an interval" in str(pair)


@pytest.mark.filterwarnings("ignore::unskew.errors.PropensityWarning")
@pytest.mark.parametrize("scores", [np.arange(400.0), np.zeros(400)], ids=["ordered", "tied"])
def test_products_of_many_weights_do_not_overflow(scores: Vector) -> None:
    cells = np.repeat([0, 1, 2], 120), np.tile(np.arange(120), 3)
    log = Ratings.from_codes(*cells, np.ones(360), shape=(3, 120))
    result = unskew.evaluate(
        log, np.tile(scores, (3, 1))[:, :120], propensities=np.full(360, 1e-4),
        metrics=["mrr", "hit_rate@50", "recall_per_positive@10"], estimators=["naive", "snips"],
        universe="log",
    )  # fmt: skip
    by_weights = result.risk("model", metric="mrr", estimator="snips")

    assert abs(by_weights.estimate) > 1e9
    assert np.isnan(by_weights.ci_low)
    assert re.search(r"mrr +snips +-?\d\.\d\de\+\d\d ", repr(result))
    assert np.isfinite(result.risk("model", metric="mrr", estimator="naive").ci_low)
    assert np.isfinite(
        result.risk("model", metric="recall_per_positive@10", estimator="snips").ci_low
    )


@pytest.mark.filterwarnings("ignore:few cells decide")
def test_a_small_hit_rate_without_weights_has_the_interval_of_a_mean() -> None:
    first = np.zeros((100, 5))
    first[:2, 0] = 1
    log = Ratings.from_dense(first, missing=np.nan)
    result = unskew.evaluate(
        log, np.tile([5.0, 4, 3, 2, 1], (100, 1)), metrics=["hit_rate@1"], estimators=["naive"]
    )

    risk = next(iter(result))
    assert (risk.estimate, risk.std_error) == pytest.approx((0.02, np.sqrt(0.02 * 0.98 / 99)))
    assert 0 <= risk.ci_low < 0.02 < risk.ci_high


@pytest.mark.parametrize("metric", ["ndcg@10", "map@10", "mrr", "hit_rate@10", "auc", "pooled_auc"])
def test_an_unknown_universe_is_named(metric: str) -> None:
    log = Ratings.from_arrays([0, 0, 1], [0, 1, 0], [1, 0, 1])

    with pytest.raises(UniverseError, match=r"needs the number of all items\. Pass universe="):
        unskew.evaluate(log, lambda u, i: np.ones((len(u), len(i))), metrics=[metric],
                        estimators=["naive"])  # fmt: skip


def test_plug_ins_say_that_they_are_biased_and_on_how_many_items_they_rest() -> None:
    label, scores = make_run(1)
    log = Ratings.from_codes(*np.nonzero(np.ones(label.shape)), label.ravel(), shape=label.shape)
    options = {"metrics": ["ndcg@3", "map"], "estimators": ["snips"], "universe": "log"}
    biased, exact = (
        unskew.evaluate(log, scores, propensities=np.full(label.size, p), **options)  # type: ignore[arg-type]
        for p in (0.9999, 1.0)
    )

    mean = label.sum() / 12
    assert exact.notes == ()
    assert biased.notes == (
        "ndcg@3 and map by weights are biased while users have few observed relevant "
        f"items; here {mean:.1f} per user who has some",
    )


def test_negative_gains_are_refused() -> None:
    with pytest.raises(UsageError, match="ratings are gains here, but one is -1"):
        judge(np.array([[-1.0, 2], [1, 1]]), np.eye(2), ["ndcg"])


N_RUNS, N_LISTED = 1000, 6
LIBRARY_NAMES = {
    "ranx": ("ndcg@3", "ndcg", "map", "map@3", "mrr", "mrr@3", "hit_rate@3", "recall@3",
             "precision@3"),
    "ir_measures": ("nDCG@3", "nDCG", "AP", "AP@3", "RR", "RR@3", "Success@3", "R@3", "P@3"),
}  # fmt: skip


def list_orders(score: Vector) -> list[tuple[int, ...]]:
    """All orders of the items of a list that its scores allow."""
    groups = [np.flatnonzero(score == level).tolist() for level in np.unique(score)[::-1]]
    return [
        tuple(item for group in order for item in group)
        for order in product(*(permutations(group) for group in groups))
    ]


def measure_orders(library: str, label: Matrix, score: Matrix) -> Matrix:
    """Runs x metrics: what another library says, in the mean over all orders of ties."""
    module = pytest.importorskip(library, reason=f"a comparison with {library}")
    names = LIBRARY_NAMES[library]
    qrels, runs, sizes = {}, {}, []
    for number, (labels, scores) in enumerate(zip(label, score, strict=True)):
        orders = list_orders(scores)
        sizes.append(len(orders))
        for index, order in enumerate(orders):
            name = f"{number:04d}-{index:03d}"
            qrels[name] = {f"i{item}": 1 for item in np.flatnonzero(labels)}
            runs[name] = {f"i{item}": float(-position) for position, item in enumerate(order)}
    values = {name: np.zeros(len(runs)) for name in names}
    if library == "ranx":
        judged = module.evaluate(
            module.Qrels(qrels), module.Run(runs), list(names), return_mean=False
        )
        values = {name: np.asarray(judged[name]) for name in names}
    else:
        rows = {name: row for row, name in enumerate(runs)}
        measures = {module.parse_measure(name): name for name in names}
        for each in module.iter_calc(list(measures), qrels, runs):
            values[measures[each.measure]][rows[each.query_id]] = each.value
    starts = np.append(0, np.cumsum(sizes)[:-1])
    return np.column_stack([np.add.reduceat(values[name], starts) / sizes for name in names])


@pytest.mark.filterwarnings("ignore:.*unsafe cast")  # while ranx is compiled
@pytest.mark.parametrize("library", LIBRARY_NAMES)
def test_a_thousand_runs_with_ties_are_those_of_other_libraries(library: str) -> None:
    """One user a run. Other libraries break ties by order, so all orders are averaged."""
    rng = np.random.default_rng(8)
    score = rng.integers(0, 4, size=(N_RUNS, N_LISTED)).astype(float)
    label = (rng.random((N_RUNS, N_LISTED)) < 0.4).astype(float)
    label[np.arange(N_RUNS), rng.integers(0, N_LISTED, N_RUNS)] = 1
    expected = measure_orders(library, label, score)

    user, item = (codes.ravel().astype(np.int32) for codes in np.indices(label.shape))
    positions = compute_positions(user, item, N_RUNS, N_LISTED, score.__getitem__)
    cells = MetricInput(
        label.ravel(), item, label.ravel(), positions=positions, n_items=N_LISTED, user=user,
        n_users=N_RUNS,
    )  # fmt: skip
    for column, name in enumerate(LIBRARY_NAMES["ranx"]):
        delta = find_metric(name)(cells)
        if delta.function is not None:
            values = delta.function.measure(np.ones(user.size), np.zeros(user.size))[:, 0]
        else:
            base = np.full(user.size, 1.0) if delta.base is None else delta.base
            values = np.bincount(user, delta.value) / np.bincount(user, base)
        np.testing.assert_allclose(values, expected[:, column], atol=1e-12, err_msg=name)

    has_ties = [np.unique(row).size < N_LISTED for row in score]
    assert np.mean(has_ties) > 0.9


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("propensity", "has_interval"), [(0.7, True), (0.2, False)])
@pytest.mark.parametrize("name", ["ndcg@5", "map@5", "auc"])
def test_there_is_an_interval_if_enough_relevant_items_were_observed(
    name: str, propensity: float, has_interval: bool
) -> None:
    rng = np.random.default_rng(1)
    label = (rng.random((300, 40)) < 0.3).astype(float)
    scores = label + rng.normal(size=label.shape)
    truth = judge(label, scores, [name])[name]
    seen = rng.random(label.shape) < propensity
    log = Ratings.from_codes(*np.nonzero(seen), label[seen], shape=label.shape)

    result = unskew.evaluate(
        log, scores, propensities=np.full(len(log), propensity), metrics=[name],
        estimators=["snips"], universe="log",
    )  # fmt: skip

    risk = next(iter(result))
    if has_interval:
        assert risk.ci_low < truth < risk.ci_high
    else:
        assert np.isnan(risk.ci_low)
        assert "A metric per positive, such as" in repr(result)
