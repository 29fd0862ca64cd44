"""The examination curve: exact identities, other implementations, and what is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats

from unskew import Impressions, Ratings, evaluate, evaluate_policies
from unskew.errors import (
    BadImpressionError,
    ConvergenceWarning,
    NotFittedError,
    NotIdentifiedError,
    UsageError,
)
from unskew.estimators.intervals import t_quantile
from unskew.policies import examination
from unskew.policies.examination import (
    ClickTable,
    estimate_all_pairs,
    estimate_conditional,
    remove_clusters,
)
from unskew.policies.position_bias import Method, PositionBias, _find_degrees
from unskew.simulation import simulate_impressions

TRUE = np.array([1.0, 0.5, 0.3])


def make_log(rows: list[tuple[int, int, float]], swap: list[float] | None = None) -> Impressions:
    """A log from (item, position, clicks), each in a request of one user."""
    item, position, reward = map(np.array, zip(*rows, strict=True))
    return Impressions.from_arrays(
        np.arange(len(rows)),
        np.zeros(len(rows), int),
        item,
        reward,
        position=position,
        other=None if swap is None else {"swap": swap},
    )


@pytest.fixture(scope="module")
def log() -> Impressions:
    return simulate_impressions(300, logging="rankers", examination=TRUE, random_state=3).log


def test_the_score_has_mean_0_whatever_the_relevance() -> None:
    """Enumeration of all clicks of two cells: E[C_ck - C_c p_ck] = 0."""
    relevance = {0: 0.9, 1: 0.2}
    rows = [(0, 1), (0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]
    chance = [TRUE[position - 1] * relevance[item] for item, position in rows]
    mean = np.zeros(3)
    for clicks in product([0.0, 1.0], repeat=len(rows)):
        probability = np.prod([p if c else 1 - p for p, c in zip(chance, clicks, strict=True)])
        log = make_log([(*row, click) for row, click in zip(rows, clicks, strict=True)])
        table = ClickTable.count(log, ("item",), "cell")
        share, _ = table.share_positions(np.log(TRUE))
        residual = table.clicks.data - table.clicks_of_cell[table.row] * share
        mean += probability * table.sum_by_position(residual)

    np.testing.assert_allclose(mean, 0, atol=1e-14)


def test_the_conditional_estimate_is_that_of_poisson_regression_with_an_effect_for_each_cell(
    log: Impressions,
) -> None:
    from statsmodels.genmod.families import Poisson
    from statsmodels.genmod.generalized_linear_model import GLM

    small = log.take(np.flatnonzero(log.user_of_request < 30))
    cell = pd.Series(small.user * 1000 + small.item)
    rows = pd.Series(small.reward).groupby(cell).transform("sum").to_numpy() > 0
    of_position = np.stack([small.position == 2, small.position == 3], axis=1)[rows]
    design = np.hstack([of_position, pd.get_dummies(cell[rows]).to_numpy()]).astype(float)
    reference = GLM(small.reward[rows], design, family=Poisson()).fit(tol=1e-12)

    bias = PositionBias().fit(small)
    np.testing.assert_allclose(np.log(bias.examination[1:]), reference.params[:2], atol=1e-6)


@pytest.mark.parametrize("cluster", ["cell", "user", "item"])
def test_the_influence_of_a_cluster_is_the_derivative_of_a_refit(
    log: Impressions, cluster: str
) -> None:
    table = ClickTable.count(log, ("user", "item"), cluster)
    curve, influence = estimate_conditional(table)
    group = table.cluster[int(table.clicks_of_cell.argmax())]
    step = 1e-4
    weight = 1 + step * (table.cluster == group)[table.row]
    moved = ClickTable.count(log, ("user", "item"), cluster)
    moved.shown.data *= weight
    moved.clicks.data *= weight
    refitted, _ = estimate_conditional(moved)

    np.testing.assert_allclose((refitted - curve) / step, influence[group], atol=2e-4)


@pytest.mark.parametrize("method", ["conditional", "all_pairs"])
def test_clicks_without_noise_give_the_exact_curve(method: str) -> None:
    relevance = {0: 0.9, 1: 0.2, 2: 0.5}
    pairs = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 1), (2, 3)]
    log = make_log([(i, k, TRUE[k - 1] * relevance[i]) for i, k in pairs])
    table = ClickTable.count(log, ("item",), "cell")
    curve, _ = estimate_conditional(table)
    if method == "all_pairs":
        curve = estimate_all_pairs(table, np.zeros(3))

    np.testing.assert_allclose(np.exp(curve), TRUE, rtol=1e-4)


def test_intervals_cover_the_truth_and_all_pairs_agrees(log: Impressions) -> None:
    columns = PositionBias(level=0.999).fit(log).curve_.to_columns()
    pairs = PositionBias(method="all_pairs", n_bootstrap=10).fit(log)

    assert all(np.array(columns["ci_low"]) <= TRUE)
    assert all(np.array(columns["ci_high"]) >= TRUE)
    np.testing.assert_allclose(pairs.examination, columns["examination"], rtol=0.15)
    assert pairs.std_error[0] == 0 < pairs.std_error[1]


@pytest.mark.parametrize("method", ["conditional", "all_pairs"])
def test_a_curve_that_has_not_converged_is_a_warning(
    method: Method, log: Impressions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "MAX_STEPS", 1)

    with pytest.warns(ConvergenceWarning, match="curve had not converged after 1 step") as caught:
        PositionBias(method=method, n_bootstrap=2).fit(log)

    assert {warning.filename for warning in caught} == {__file__}


def test_swaps_compare_click_rates_and_know_their_error() -> None:
    rows = [(0, 1, 1.0)] * 30 + [(0, 1, 0.0)] * 20 + [(0, 2, 1.0)] * 12 + [(0, 2, 0.0)] * 28
    log = make_log([*rows, (1, 1, 1.0)], swap=[2.0] * len(rows) + [np.nan])
    bias = PositionBias(method="swaps", swap="swap").fit(log)

    assert bias.examination.tolist() == pytest.approx([1, 0.5])
    assert bias.covariance[1, 1] == pytest.approx((1 - 0.6) / 30 + (1 - 0.3) / 12)
    assert bias.curve_.n_informative == 42


def test_a_ranking_that_never_changes_identifies_nothing() -> None:
    fixed = make_log([(0, 1, 1.0), (1, 2, 0.0)] * 5)
    with pytest.raises(NotIdentifiedError, match="no user and item was shown at two positions"):
        PositionBias().fit(fixed)

    groups = [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (1, 4, 1.0), (2, 1, 0.0)]
    with pytest.raises(
        NotIdentifiedError, match=r"2 groups that no clicked cell connects: 1, 2 \| 3, 4\."
    ):
        PositionBias().fit(make_log(groups))
    with pytest.raises(NotIdentifiedError, match=r"one position only. .* change their position\.$"):
        PositionBias(cell=("item",)).fit(make_log([(0, 1, 1.0), (1, 1, 0.0)]))


def test_few_clusters_make_the_interval_wider() -> None:
    """The quantile is Student's, with fewer degrees of freedom than there are clusters."""
    log = simulate_impressions(300, 30, 3, logging="rankers", random_state=3).log
    curve = PositionBias(cell=("item",)).fit(log).curve_
    columns = curve.to_columns()
    width = np.log(columns["ci_high"]) - np.log(columns["examination"])

    assert all(1 <= degrees < log.n_items for degrees in columns["degrees"][1:])
    assert width[1:] == pytest.approx(
        stats.t.ppf(0.975, columns["degrees"][1:])
        * np.divide(columns["std_error"], columns["examination"])[1:]
    )
    assert min(PositionBias().fit(log).curve_.degrees[1:]) > log.n_items
    assert "depends neither on the user nor on its latest clicks" in str(curve)


def draw_pairs(n_items: int, rng: np.random.Generator) -> ClickTable:
    """Each item is shown 800 times at each of two of four positions."""
    item = np.repeat(np.arange(n_items), 2)
    position = (item + np.tile([0, 1], n_items)) % 4
    relevance = rng.beta(2, 6, n_items)
    clicks = rng.binomial(800, relevance[item] / (position + 1))
    shape = (n_items, 4)
    return ClickTable(
        np.arange(1, 5, dtype=np.int32),
        sparse.csr_array((np.full(item.size, 800.0), (item, position)), shape=shape),
        sparse.csr_array((clicks.astype(float), (item, position)), shape=shape),
        np.arange(n_items, dtype=np.int32),
        n_items,
    )


def test_a_cluster_that_decides_counts_as_if_it_were_left_out() -> None:
    table = draw_pairs(8, np.random.default_rng(0))
    curve, influence = estimate_conditional(table)

    adjusted = remove_clusters(table, curve, influence)

    for cell in range(table.n_cells):
        without, _ = estimate_conditional(table.take(np.arange(table.n_cells) != cell))
        np.testing.assert_allclose(curve - without, adjusted[cell], rtol=0.2, atol=0.02)


@pytest.mark.parametrize("n_items", [4, 8])
def test_intervals_from_few_items_cover_the_truth(n_items: int) -> None:
    """Without leaving clusters out, they cover 63 to 72 % with 4 items and 85 to 90 % with 8."""
    rng = np.random.default_rng(1)
    truth = -np.log(np.arange(1, 5))
    covered = []
    for _ in range(200):
        table = draw_pairs(n_items, rng)
        curve, influence = estimate_conditional(table)
        adjusted = remove_clusters(table, curve, influence)
        error = np.sqrt(n_items / (n_items - 1) * np.square(adjusted).sum(axis=0))
        width = [t_quantile(0.95, each) for each in _find_degrees(adjusted, n_items - 1)] * error
        covered.append(np.abs(curve - truth)[1:] <= width[1:])

    assert 0.92 < np.mean(covered) < 0.99


def test_a_position_that_one_item_connects_has_no_interval(
    log: Impressions, tmp_path: Path
) -> None:
    """In this log, only one clicked item was shown at position 2 and at another one."""
    curve = PositionBias(cell=("item",)).fit(log).curve_
    columns = curve.to_columns()

    assert np.isnan(columns["ci_low"]).tolist() == [False, True, False]
    assert "position 2 is connected with the others by a single cell" in str(curve)
    assert "by a single cell" in curve.to_html(tmp_path / "curve.html").read_text()
    assert columns["examination"][1] > 0
    by_user = PositionBias(cell=("item",), cluster="user").fit(log).curve_
    assert (by_user.std_error[1:] > 0).all()
    assert by_user.std_error[2] < 0.1
    with pytest.raises(NotIdentifiedError, match=r"error of examination is unknown: .*'user'"):
        evaluate_policies(
            log.take(np.arange(500)), {"new": lambda _, items: items}, examination=curve
        )


@pytest.mark.parametrize("method", ["conditional", "swaps"])
def test_a_log_of_clicks_alone_is_refused(method: Method, log: Impressions) -> None:
    clicked = log.take(np.flatnonzero(log.reward[log.slots].all(axis=1)))

    with pytest.raises(NotIdentifiedError, match=r"all [\d,]+ rows have .* reward 0"):
        PositionBias(method=method, swap="swap" if method == "swaps" else None).fit(clicked)


def test_a_position_without_clicks_is_refused_by_name() -> None:
    rows = [(0, 1, 1.0), (0, 2, 1.0), (0, 3, 0.0), (1, 2, 1.0), (1, 1, 1.0)]
    with pytest.raises(NotIdentifiedError, match=r"clicked in one alone: 1, 2 \| 3\. .*infinite"):
        PositionBias(cell=("item",)).fit(make_log(rows))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": ("query",)}, "cell must name user, item or both; got"),
        (
            {"cell": ("item",), "cluster": "user", "method": "all_pairs"},
            "cluster must be one of cell, item; got 'user'",
        ),
        ({"method": "em"}, "unknown value 'em' of method"),
        ({"method": "swaps"}, "method='swaps' needs swap, the column that says which position"),
        ({"method": "swaps", "swap": "arm"}, "unknown column of the log 'arm'"),
        ({"swap": "arm"}, r"'conditional' does not read. Pass method='swaps'"),
        ({"level": 1.0}, "level must be a finite number"),
    ],
)
def test_wrong_settings_are_named(
    log: Impressions, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        PositionBias(**settings).fit(log)  # type: ignore[arg-type]


def test_other_input_is_refused(log: Impressions) -> None:
    with pytest.raises(UsageError, match=r"shown must be .*Impressions.*; got"):
        PositionBias().fit([1, 2])  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"shown must be an Impressions; got DataFrame\. Build"):
        PositionBias().fit(pd.DataFrame({"click": [0, 1]}))  # type: ignore[arg-type]
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        log.to_cells(PositionBias())
    with pytest.raises(BadImpressionError, match=r"1 of \d+ rewards are negative, .* -1 at row"):
        PositionBias().fit(make_log([(0, 1, -1.0), (0, 2, 1.0)]))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        PositionBias().examination  # noqa: B018


def test_cells_have_clicks_over_examination() -> None:
    log = make_log([(0, 1, 1.0), (0, 2, 1.0), (1, 3, 0.0), (1, 1, 1.0)])
    cells = log.to_cells(TRUE)

    assert cells.rating.tolist() == pytest.approx([2 / 1.5, 1 / 1.3])
    assert cells.examination is not None
    assert cells.examination.tolist() == pytest.approx([1.5, 1.3])
    assert cells.examination_weights().values.tolist() == pytest.approx([1.3 / 1.5, 1.0])
    assert cells.take(np.array([1])).examination_weights().values.tolist() == [1.0]
    with pytest.raises(UsageError, match="examination has no value for position 3, which row 2"):
        log.to_cells(TRUE[:2])
    with pytest.raises(
        UsageError,
        match=r"log has no examination probabilities .*Make it with .impressions\.to_cells",
    ):
        Ratings.from_dense([[1, 0]]).examination_weights()


@pytest.mark.parametrize("metric", ["mse", "mae", "precision@1", "dcg@2"])
def test_metrics_of_relevances_from_clicks_are_unbiased(metric: str) -> None:
    """Enumeration of all clicks, and of all labels with the same relevance."""
    relevance = np.array([0.9, 0.2])
    rows = [(0, 1), (0, 2), (1, 2), (1, 3)]
    chance = [TRUE[position - 1] * relevance[item] for item, position in rows]
    scores = np.array([[0.3, 0.7]])

    def measure(cells: Ratings) -> float:
        result = evaluate(
            cells,
            scores,
            propensities=[1.0, 1.0],
            metrics=[metric],
            estimators=["ips"],
            universe="log",
            cluster=None,
        )
        return result.risk("model", metric=metric, estimator="ips").estimate

    mean = 0.0
    for clicks in product([0.0, 1.0], repeat=len(rows)):
        probability = np.prod([p if c else 1 - p for p, c in zip(chance, clicks, strict=True)])
        log = make_log([(*row, click) for row, click in zip(rows, clicks, strict=True)])
        mean += probability * measure(log.to_cells(TRUE))
    expected = sum(
        float(np.prod(np.where(labels, relevance, 1 - relevance)))
        * measure(Ratings.from_arrays([0, 0], [0, 1], np.array(labels, float)))
        for labels in product([False, True], repeat=2)
    )

    assert mean == pytest.approx(expected)


def test_a_metric_that_is_not_linear_in_the_cells_is_refused() -> None:
    cells = make_log([(0, 1, 1.0), (1, 2, 1.0)]).to_cells(TRUE)
    with pytest.raises(UsageError, match="'ndcg@2' is not linear in the relevance"):
        evaluate(cells, np.array([[0.3, 0.7]]), metrics=["ndcg@2"], estimators=["naive"])
