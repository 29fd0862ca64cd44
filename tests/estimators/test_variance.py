"""Standard errors with estimated propensities: enumeration, derivatives, closed forms."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from math import prod

import numpy as np
import pytest
from scipy import stats

import unskew
from unskew.data.estimation import RandomSample, Strata
from unskew.data.propensities import Propensities
from unskew.data.ratings import Ratings
from unskew.data.universe import Universe
from unskew.estimators.estimate import Estimate
from unskew.estimators.observed import Cluster, Clusters, Deltas, ObservedCells, SumSpec
from unskew.estimators.point import IPS, SNIPS, Estimator
from unskew.estimators.variance import find_uncertain_share
from unskew.propensity import PopularityPropensity, UniformPropensity
from unskew.propensity.model import PropensityModel
from unskew.types import Vector

pytestmark = pytest.mark.filterwarnings("ignore:few cells decide")
RNG = np.random.default_rng(3)
TRUTH = RNG.integers(1, 6, (30, 20)).astype(float)
SCORES = np.clip(TRUTH + RNG.normal(size=TRUTH.shape), 1, 5)
OTHER = np.clip(TRUTH + RNG.normal(size=TRUTH.shape), 1, 5)
SEEN = RNG.random(TRUTH.shape) < np.array([0, 0.1, 0.15, 0.3, 0.5, 0.8])[TRUTH.astype(int)]
LOG = Ratings.from_dense(np.where(SEEN, TRUTH, 0))
SAMPLE = RNG.choice(TRUTH.ravel(), 200)


def std_error(result: unskew.evaluation.Evaluation, estimator: str, model: str = "model") -> float:
    return result.risk(model, metric="mse", estimator=estimator).std_error


def naive_bayes_std_error(log: Ratings, delta: Vector, sample: Vector, smoothing: float) -> float:
    """Double sampling for stratification, written out level by level."""
    levels = np.unique(sample)
    m = sample.size
    share = np.array([(sample == level).sum() + smoothing for level in levels])
    share = share / share.sum()
    means, within = [], 0.0
    for level, q in zip(levels, share, strict=True):
        of_level = delta[log.rating == level]
        n, p = of_level.size, of_level.size / (log.n_cells * q)
        means.append(of_level.mean())
        within += q**2 * (1 - p) * of_level.var(ddof=1) / n
    mean = share @ means
    between = (share @ np.square(means) - mean**2) / m * (1 - m / log.n_cells)
    return float(np.sqrt(within + between))


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_naive_bayes_is_double_sampling_for_stratification(estimator: str) -> None:
    model = unskew.NaiveBayesPropensity(smoothing=0.5).fit(LOG, mcar=SAMPLE)
    result = unskew.evaluate(
        LOG, SCORES, propensities=model, metrics=["mse"], estimators=[estimator], cluster=None
    )
    delta = np.square(SCORES - TRUTH)[LOG.user, LOG.item]

    assert std_error(result, estimator) == pytest.approx(
        naive_bayes_std_error(LOG, delta, SAMPLE, 0.5), rel=1e-9
    )


def test_known_shares_leave_only_the_spread_within_levels() -> None:
    levels, count = np.unique(TRUTH, return_counts=True)
    shares = dict(zip(levels, count / TRUTH.size, strict=True))
    model = unskew.NaiveBayesPropensity().fit(LOG, mcar=shares)
    result = unskew.evaluate(LOG, SCORES, propensities=model, metrics=["mse"], cluster=None)
    shifted = unskew.evaluate(
        LOG, {"model": SCORES}, propensities=model, metrics=["mse"], cluster=None
    )

    delta = np.square(SCORES - TRUTH)[LOG.user, LOG.item]
    variance = sum(
        share**2
        * (1 - (LOG.rating == level).sum() / (share * TRUTH.size))
        * delta[LOG.rating == level].var(ddof=1)
        / (LOG.rating == level).sum()
        for level, share in shares.items()
    )
    assert std_error(result, "ips") == pytest.approx(np.sqrt(variance), rel=1e-9)
    assert std_error(shifted, "snips") == pytest.approx(np.sqrt(variance), rel=1e-9)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_a_huge_random_sample_leaves_only_the_spread_within_levels(estimator: str) -> None:
    model = unskew.NaiveBayesPropensity().fit(LOG, mcar=SAMPLE)
    propensities = model.predict(LOG)
    assert isinstance(propensities.estimation, Strata)
    estimation = propensities.estimation
    assert estimation.sample is not None
    huge = RandomSample(estimation.sample.share, estimation.sample.share * 1e15)
    errors = [
        std_error(
            unskew.evaluate(
                LOG,
                SCORES,
                propensities=Propensities(propensities.values, replace(estimation, sample=sample)),
                metrics=["mse"],
                cluster=None,
            ),
            estimator,
        )
        for sample in (huge, None, estimation.sample)
    ]

    assert errors[0] == pytest.approx(errors[1], rel=1e-9)
    assert errors[0] < errors[2]


@pytest.mark.filterwarnings("ignore:the inverse propensities add up")
def test_a_constant_factor_of_the_propensities_changes_nothing_in_snips() -> None:
    values = np.array([0, 0.1, 0.15, 0.3, 0.5, 0.8])[LOG.rating.astype(int)]
    risks = [
        unskew.evaluate(
            LOG, SCORES, propensities=factor * values, metrics=["mse"], cluster="user"
        ).risk("model", metric="mse", estimator="snips")
        for factor in (1.0, 0.5)
    ]

    assert risks[0].estimate == pytest.approx(risks[1].estimate, rel=1e-12)
    assert risks[0].std_error == pytest.approx(risks[1].std_error, rel=1e-12)


def test_a_sample_that_names_users_is_clustered_by_them() -> None:
    user = np.repeat(np.arange(20), 10)
    item = np.tile(np.arange(10), 20)
    sample = Ratings.from_arrays(user, item, TRUTH[user, item])
    named = unskew.NaiveBayesPropensity().fit(LOG, mcar=sample)
    unnamed = unskew.NaiveBayesPropensity().fit(LOG, mcar=sample.rating)
    estimation = named.predict(LOG).estimation

    assert isinstance(estimation, Strata)
    assert estimation.sample is not None
    gradient = RNG.normal(size=(2, 5))
    levels = np.unique(TRUTH)
    by_user = np.stack([[(TRUTH[u, :10] == level).sum() for level in levels] for u in range(20)])
    share = estimation.sample.share
    zeta = (by_user @ (gradient / share).T - 10 * gradient.sum(axis=1)) / 200
    np.testing.assert_allclose(
        estimation.sample.covariance(gradient), 20 / 19 * zeta.T @ zeta, rtol=1e-12
    )
    assert "200 random ratings of 20 users" in estimation.source
    other = unnamed.predict(LOG).estimation
    assert isinstance(other, Strata)
    assert other.sample is not None
    assert other.sample.by_user is None


def test_limits_with_a_sample_by_users_invert_a_test_with_its_design_effect() -> None:
    user = np.repeat(np.arange(8), 10)
    item = np.tile(np.arange(10), 8)
    sample = Ratings.from_arrays(user, item, TRUTH[user, item])
    model = unskew.NaiveBayesPropensity().fit(LOG, mcar=sample)
    estimate = SNIPS().estimate(Deltas(LOG.rating[None]), make_cells(model.predict(LOG)))
    outside = estimate.outside
    assert outside is not None
    gradient = outside.gradient[0]
    plain = replace(outside.sample, by_user=None, n_cells=None)
    effect = outside.covariance[0, 0] / plain.covariance(outside.gradient)[0, 0]
    variance = float(estimate.covariance[0, 0] - outside.covariance[0, 0])
    test = outside.test_shares(np.ones(1), float(estimate.value[0]), variance, 0.0)
    interval = estimate.of(0, level=0.95)

    assert outside.sample.find_design_effect(gradient) == pytest.approx(effect)
    assert plain.find_design_effect(gradient) == 1.0
    assert test.design_effect == pytest.approx(effect)
    for limit in (interval.low, interval.high):
        t = stats.t.ppf(0.975, interval.degrees)
        assert abs(test.statistic(limit)) == pytest.approx(t, rel=0.05)


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3), (3, 4)])
@pytest.mark.parametrize("m", [2, 3])
def test_the_terms_of_naive_bayes_are_right_by_enumeration(sizes: tuple[int, int], m: int) -> None:
    """All logs with 2 ratings per level and all samples of m, in fractions.

    The variance of sum q_r dbar_r is E(within) + E(between), where "between" is divided by m - 1
    and reduced by the part of the spread between levels that is noise of the level means.
    """
    deltas = [[Fraction(k * k + 1) for k in range(size)] for size in sizes]
    deltas[1] = [3 * value + 2 for value in deltas[1]]
    n_cells = sum(sizes)
    shares = [Fraction(size, n_cells) for size in sizes]
    truth = sum(map(sum, deltas)) / Fraction(n_cells)
    values, variances, chances = [], [], []
    logs = list(product(*(list(combinations(level, 2)) for level in deltas)))
    for count in range(m + 1):
        counts = (count, m - count)
        chance = prod(q**c for q, c in zip(shares, counts, strict=True)) * _choose(m, count)
        q = [Fraction(c, m) for c in counts]
        for log in logs:
            means = [sum(level) / Fraction(2) for level in log]
            spread = [
                sum((d - mean) ** 2 for d in level) for level, mean in zip(log, means, strict=True)
            ]
            noise = [
                s * (Fraction(1, 2) - Fraction(1, size))
                for s, size in zip(spread, sizes, strict=True)
            ]
            mean = sum(a * b for a, b in zip(q, means, strict=True))
            between = sum(a * b * b for a, b in zip(q, means, strict=True)) - mean**2
            double = sum(a * (1 - a) * v for a, v in zip(q, noise, strict=True))
            within = sum(a * a * v for a, v in zip(q, noise, strict=True))
            values.append(mean)
            variances.append(within + (between - double) / (m - 1))
            chances.append(chance / len(logs))
    expected = sum(c * v for c, v in zip(chances, values, strict=True))
    variance = sum(c * (v - expected) ** 2 for c, v in zip(chances, values, strict=True))

    assert expected == truth
    assert sum(c * v for c, v in zip(chances, variances, strict=True)) == variance


def _choose(n: int, k: int) -> int:
    return prod(range(n - k + 1, n + 1)) // prod(range(1, k + 1))


@pytest.mark.parametrize("estimator", ["ips", "snips"])
@pytest.mark.parametrize("counts", list(product((2, 3, 4), repeat=2)), ids=lambda each: f"{each}")
def test_item_popularity_has_the_exact_variance_given_the_counts(
    counts: tuple[int, int], estimator: str
) -> None:
    """All logs of 4 users x 2 items with at least two ratings each, by their counts.

    The mean of std_error^2 is the variance of the estimates.
    """
    rating = np.array([[1.0, 5], [2, 4], [4, 1], [5, 3]])
    scores = np.array([[2.0, 2], [2, 3], [3, 3], [5, 5]])
    values, variances = [], []
    for first, second in product(*(combinations(range(4), n) for n in counts)):
        seen = np.zeros((4, 2), dtype=bool)
        seen[list(first), 0] = seen[list(second), 1] = True
        log = Ratings.from_dense(np.where(seen, rating, 0))
        model = PopularityPropensity("item").fit(log)
        risk = unskew.evaluate(
            log, scores, propensities=model, metrics=["mse"], estimators=[estimator], cluster=None
        ).risk("model", metric="mse", estimator=estimator)
        values.append(risk.estimate)
        variances.append(risk.std_error**2)

    assert np.mean(values) == pytest.approx(np.square(scores - rating).mean())
    assert np.mean(variances) == pytest.approx(np.var(values), abs=1e-15)


def test_a_random_part_of_the_log_of_the_fit_has_its_variance_by_enumeration() -> None:
    """All logs of 3 of 5 cells, and all parts to which each rating belongs with 1/2.

    IPS is sum of delta / (t n). Its exact variance follows by enumeration. The estimate of it is
    too small by two known terms of the order 1/n: the square of the estimated risk exceeds that of
    the true one by the variance, and a stratum has N - 1 degrees of freedom.
    """
    rating, n, share = np.array([1.0, 2, 4, 5, 5]), 3, 0.5
    delta = np.abs(rating - 3.0)
    values, variances = [], []
    for cells in combinations(range(rating.size), n):
        log = Ratings.from_codes(list(cells), [0] * n, rating[list(cells)], shape=(5, 1))
        propensities = UniformPropensity().fit(log, universe="log").predict(log)
        for kept in product((False, True), repeat=n):
            rows = np.flatnonzero(kept)
            if rows.size == 0:
                values.append(0.0)
                variances.append(0.0)
                continue
            risk = next(
                iter(
                    unskew.evaluate(
                        log.take(rows),
                        np.full((5, 1), 3.0),
                        propensities=propensities.take(rows).scaled(share)
                        if rows.size < n
                        else replace_part(propensities, share),
                        metrics=["mae"],
                        estimators=["ips"],
                        universe=(5, 1),
                        cluster=None,
                    )
                )
            )
            values.append(risk.estimate)
            variances.append(risk.std_error**2)
    uncertainty, variance = 1 - n / rating.size, np.var(values)
    missing = uncertainty * (variance + delta.var() / (rating.size - 1)) / n

    assert np.mean(values) == pytest.approx(delta.mean())
    assert np.mean(variances) == pytest.approx(variance - missing)


def replace_part(propensities: Propensities, share: float) -> Propensities:
    """The propensities of a part that happens to have all ratings."""
    assert isinstance(propensities.estimation, Strata)
    estimation = replace(propensities.estimation, relation="part")
    return Propensities(share * propensities.values, estimation)


@pytest.mark.parametrize("estimator", [IPS(), SNIPS()])
@pytest.mark.parametrize("kind", ["rating", "item", "user", "all"])
def test_contributions_are_the_derivative_of_the_refitted_estimate(
    estimator: IPS, kind: str
) -> None:
    delta = np.square(SCORES - TRUTH)[LOG.user, LOG.item]
    group = {
        "rating": LOG.rating.astype(np.int32) - 1,
        "item": LOG.item,
        "user": LOG.user,
        "all": np.zeros(len(LOG), dtype=np.int32),
    }[kind]
    n_groups = int(group.max()) + 1
    size = RNG.integers(100, 200, n_groups).astype(float)

    def refit(copies: Vector) -> float:
        """The estimate if cell c occurs ``copies[c]`` times, with propensities from counts."""
        count = np.bincount(group, weights=copies, minlength=n_groups)
        weight = copies / (count / size)[group]
        total = TRUTH.size if estimator.name == "ips" else weight.sum()
        return float(weight @ delta / total)

    ones = np.ones(delta.size)
    count = np.bincount(group, minlength=n_groups).astype(float)
    strata = Strata(
        model="counts",
        group=group,
        n_observed=count,
        propensity=count / size,
        kind=kind,  # type: ignore[arg-type]
    )
    weight = (size / count)[group]
    total = TRUTH.size if estimator.name == "ips" else weight.sum()
    mean = 0.0 if estimator.name == "ips" else refit(ones)
    residual = (delta - mean)[None]
    score = strata.correct(residual, weight, weight).score_of(slice(None))
    contribution = (residual * weight - score)[0] / total
    for cell in RNG.choice(delta.size, 12, replace=False):
        step = np.zeros(delta.size)
        step[cell] = 1e-5
        derivative = (refit(ones + step) - refit(ones - step)) / 2e-5
        assert contribution[cell] == pytest.approx(derivative, abs=1e-9)


@pytest.mark.parametrize("estimator", [IPS(), SNIPS()])
def test_the_gradient_of_the_random_sample_is_the_derivative_by_log_shares(estimator: IPS) -> None:
    """P of a level is n / (U I q), so a weight is proportional to the share q of its level."""
    delta, propensities = np.square(SCORES - TRUTH)[LOG.user, LOG.item], fit_naive_bayes()
    outside = estimator.estimate(Deltas(delta[None]), make_cells(propensities)).outside
    assert outside is not None

    def estimate(log_share: Vector) -> float:
        weight = propensities.inverse * np.exp(log_share)[LOG.rating.astype(int) - 1]
        total = TRUTH.size if estimator.name == "ips" else weight.sum()
        return float(weight @ delta / total)

    steps = 1e-5 * np.eye(5)
    numerical = [(estimate(step) - estimate(-step)) / 2e-5 for step in steps]

    assert outside.gradient[0] == pytest.approx(numerical, rel=1e-7)


def fit_naive_bayes() -> Propensities:
    return unskew.NaiveBayesPropensity().fit(LOG, mcar=SAMPLE).predict(LOG)


def test_uniform_propensities_make_all_three_estimators_one() -> None:
    model = UniformPropensity().fit(LOG)
    result = unskew.evaluate(LOG, SCORES, propensities=model, metrics=["mse"], cluster=None)
    delta = np.square(SCORES - TRUTH)[LOG.user, LOG.item]
    expected = np.sqrt((1 - len(LOG) / LOG.n_cells) * delta.var(ddof=1) / len(LOG))

    assert std_error(result, "ips") == pytest.approx(expected)
    assert std_error(result, "snips") == pytest.approx(expected)


def test_a_constant_added_to_all_deltas_changes_no_standard_error_under_strata() -> None:
    model = PopularityPropensity("item").fit(LOG)
    cells = make_cells(model.predict(LOG))
    delta = np.square(SCORES - TRUTH)[LOG.user, LOG.item]

    for estimator in (IPS(), SNIPS()):
        plain, shifted = (
            estimator.estimate(Deltas(value[None]), cells).covariance[0, 0]
            for value in (delta, delta + 7)
        )
        assert shifted == pytest.approx(plain, rel=1e-9)


def make_cells(propensities: Propensities, **options: object) -> ObservedCells:
    return ObservedCells(
        Clusters(LOG.user, LOG.n_users),
        Clusters(LOG.item, LOG.n_items),
        propensities,
        universe=Universe(LOG.n_users, LOG.n_items),
        **options,  # type: ignore[arg-type]
    )


def test_two_way_clusters_add_users_and_items_and_subtract_cells() -> None:
    propensities = np.full(len(LOG), 0.4)
    result = {
        cluster: unskew.evaluate(
            LOG,
            SCORES,
            propensities=propensities,
            metrics=["mse"],
            estimators=["snips"],
            cluster=cluster,
        )
        for cluster in ("user", "item", "both")
    }
    delta = np.square(SCORES - TRUTH)[LOG.user, LOG.item]
    by_cell = np.square(delta - delta.mean()).sum() / delta.size**2
    by_user, by_item, by_both = (std_error(each, "snips") ** 2 for each in result.values())

    assert by_both == pytest.approx(by_user + by_item - by_cell)
    assert "clustered by user and by item" in " ".join(repr(result["both"]).split())


def test_paired_differences_are_contrasts_of_one_covariance() -> None:
    model = unskew.NaiveBayesPropensity().fit(LOG, mcar=SAMPLE)
    delta = np.square(np.stack([SCORES, OTHER]) - TRUTH)[:, LOG.user, LOG.item]
    cells = make_cells(model.predict(LOG))
    both = SNIPS().estimate(Deltas(delta), cells)
    difference = SNIPS().estimate(Deltas((delta[0] - delta[1])[None]), cells)

    paired, single = both.difference(0, 1, level=0.95), difference.of(0, level=0.95)
    assert (paired.value, paired.std_error) == pytest.approx((single.value, single.std_error))
    assert (paired.low, paired.high) == pytest.approx((single.low, single.high), rel=1e-6)


@pytest.mark.parametrize("cluster", [None, "user", "both"])
@pytest.mark.parametrize("estimator", [IPS(), SNIPS()])
@pytest.mark.parametrize(
    "model",
    [
        unskew.NaiveBayesPropensity().fit(LOG, mcar=SAMPLE),
        PopularityPropensity("both").fit(LOG),
        unskew.LogisticPropensity(ridge=0.1, user_offsets=True).fit(LOG),
    ],
)
def test_metrics_that_are_evaluated_together_have_the_numbers_of_each_alone(
    model: PropensityModel, estimator: Estimator, cluster: Cluster
) -> None:
    error = (np.stack([SCORES, OTHER]) - TRUTH)[:, LOG.user, LOG.item]
    deltas = [
        Deltas(np.square(error)),
        Deltas(np.abs(error), slots=np.abs(error) + 1.0),
        Deltas(np.abs(error[:1])),
    ]
    propensities = model.predict(LOG)
    together = replace(make_cells(propensities), cluster=cluster)
    together.evaluate_together(deltas)

    for each in deltas:
        alone = estimator.estimate(each, replace(make_cells(propensities), cluster=cluster))
        shared = estimator.estimate(each, together)
        assert shared.value == pytest.approx(alone.value, rel=1e-9)
        assert shared.covariance == pytest.approx(alone.covariance, rel=1e-7)
        assert shared.moments is not None
        assert alone.moments is not None
        assert shared.moments.third == pytest.approx(alone.moments.third, rel=1e-6)
        assert (shared.outside is None) == (alone.outside is None)
        if shared.outside is not None and alone.outside is not None:
            assert shared.outside.gradient == pytest.approx(alone.outside.gradient)
    assert together.find_group(deltas[0]) == [deltas[0], deltas[2]]
    assert together.find_group(deltas[1]) == [deltas[1]]


def test_half_samples_are_the_mean_squared_difference_of_complementary_refits() -> None:
    model = PopularityPropensity("item", power=0.5).fit(LOG)
    propensities = model.predict(LOG)
    estimate = SNIPS().estimate(Deltas(LOG.rating[None]), make_cells(propensities))
    halves = propensities.estimation.fit_halves(None, len(LOG))  # type: ignore[union-attr]
    squared = []
    for pair in halves:
        first, second = (np.average(LOG.rating[rows], weights=1 / p) for rows, p in pair)
        squared.append((first - second) ** 2 / 4)

    z = propensities.inverse * (LOG.rating - estimate.value)
    share = ((1 - propensities.values) * z**2).sum() / (z**2).sum()
    assert len(squared) == 20
    assert estimate.covariance[0, 0] == pytest.approx(share * np.mean(squared))
    interval = estimate.of(0, level=0.95)
    assert interval.high - interval.value == pytest.approx(
        stats.t.ppf(0.975, 20) * interval.std_error
    )


@pytest.mark.parametrize("n_observed", [2, 4])
def test_half_samples_have_the_variance_of_a_mean_of_some_cells_by_enumeration(
    n_observed: int,
) -> None:
    """The log has some of 6 cells, each with the same probability; all logs are enumerated."""
    delta = np.array([0.0, 1.0, 1.0, 4.0, 6.0, 9.0])
    means, variances = [], []
    for rows in combinations(range(delta.size), n_observed):
        seen = delta[list(rows)]
        means.append(seen.mean())
        propensities = Propensities(np.full(n_observed, n_observed / delta.size))
        clusters = Clusters(np.arange(n_observed, dtype=np.int32), n_observed)
        cells = ObservedCells(clusters, clusters, propensities, universe=Universe(1, delta.size))
        deltas, spec = Deltas(seen[None]), SumSpec(is_weighted=True, is_ratio=True)
        value = Estimate(np.array([seen.mean()]), np.eye(1))
        share = find_uncertain_share(spec, deltas, cells, value)
        halves = [list(half) for half in combinations(range(n_observed), n_observed // 2)]
        others = [[row for row in range(n_observed) if row not in half] for half in halves]
        squared = [
            (seen[one].mean() - seen[other].mean()) ** 2 / 4
            for one, other in zip(halves, others, strict=True)
        ]
        variances.append(share * np.mean(squared))

    assert np.mean(variances) == pytest.approx(np.var(means), rel=1e-12)


def test_the_share_of_half_samples_is_that_of_the_most_uncertain_difference() -> None:
    delta = RNG.gamma(2.0, size=(3, len(LOG)))
    values = np.linspace(0.1, 0.9, len(LOG))
    cells = make_cells(Propensities(values))
    estimate = SNIPS().estimate(Deltas(delta), cells)
    spec = SumSpec(is_weighted=True, is_ratio=True)
    z = (delta - estimate.value[:, None]) / values
    shares = [
        ((1 - values) * np.square(row)).sum() / np.square(row).sum()
        for row in [*z, z[0] - z[1], z[0] - z[2], z[1] - z[2]]
    ]
    share = find_uncertain_share(spec, Deltas(delta), cells, estimate)

    assert share == pytest.approx(max(shares))
    by_user = replace(cells, cluster="user")
    assert find_uncertain_share(spec, Deltas(delta), by_user, estimate) == 1.0


def test_propensities_known_gives_the_standard_error_of_known_propensities() -> None:
    model = unskew.NaiveBayesPropensity().fit(LOG, mcar=SAMPLE)
    settings = {"metrics": ["mse"], "estimators": ["snips"], "cluster": None}
    known = unskew.evaluate(LOG, SCORES, propensities=model, propensities_known=True, **settings)
    array = unskew.evaluate(LOG, SCORES, propensities=model.predict(LOG).values, **settings)
    estimated = unskew.evaluate(LOG, SCORES, propensities=model, **settings)

    assert known.to_columns() == array.to_columns()
    (risk,) = estimated
    assert risk.std_error_known == pytest.approx(std_error(known, "snips"))
    assert risk.std_error != pytest.approx(risk.std_error_known, rel=0.01)


def test_a_bootstrap_without_refits_is_refused() -> None:
    model = unskew.NaiveBayesPropensity().fit(LOG, mcar=SAMPLE)

    with pytest.raises(unskew.errors.UsageError, match="does not fit NaiveBayesPropensity again"):
        unskew.evaluate(LOG, SCORES, propensities=model, bootstrap=10)


def test_propensities_of_another_log_depend_on_its_selection_too() -> None:
    rng = np.random.default_rng(0)
    rating = rng.integers(1, 6, (60, 40)).astype(float)
    sample = rng.choice(rating.ravel(), 300)

    def draw() -> unskew.Ratings:
        seen = rng.random(rating.shape) < 0.04 * rating
        user, item = np.nonzero(seen)
        log = unskew.Ratings.from_codes(user, item, rating[seen], shape=rating.shape)
        return log.with_universe(rating.shape)

    log, later = draw(), draw()
    model = unskew.NaiveBayesPropensity().fit(log, mcar=sample)
    conditions = [
        unskew.evaluate(each, {"a": each.rating + 1}, propensities=model).to_record()["condition"]
        for each in (log, later)
    ]

    assert conditions[1] == f"{conditions[0]}, as it did in the log of the fit"
