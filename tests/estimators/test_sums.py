from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from unskew.data.propensities import Propensities
from unskew.errors import UsageError
from unskew.estimators.intervals import Moments
from unskew.estimators.observed import Clusters, Resampling
from unskew.estimators.point import ips, self_normalized
from unskew.estimators.sums import Sums
from unskew.kernels import blocks

rng = np.random.default_rng(7)
N = 1000
DELTA = rng.normal(2, 1, (2, N))
P = Propensities(rng.uniform(0.05, 1, N))
USER = rng.integers(0, 50, N).astype(np.int32)


@given(cut=st.integers(1, N - 1))
def test_sums_of_parts_add_up(cut: int) -> None:
    parts = [
        Sums.of(DELTA[:, rows], Propensities(P.values[rows]))
        for rows in (slice(0, cut), slice(cut, N))
    ]
    whole = Sums.of(DELTA, P)

    together = parts[0] + parts[1]

    np.testing.assert_allclose(together.total, whole.total)
    np.testing.assert_allclose(together.moment, whole.moment)


def test_sums_and_moments_have_the_same_bits_with_any_number_of_blas_threads() -> None:
    delta = np.random.default_rng(1).normal(size=(2, 3 * blocks.BLOCK + 5))
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            sums, moments = Sums.of(delta), Moments.of(delta)
            found.append([sums.total, sums.moment, moments.second, moments.third, moments.fourth])

    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


def test_sums_of_disjoint_clusters_add_up() -> None:
    low = USER < 20
    parts = [
        Sums.of(DELTA[:, rows], clusters=Clusters(USER[rows] - shift, n))
        for rows, shift, n in ((low, 0, 20), (~low, 20, 30))
    ]
    whole = Sums.of(DELTA, clusters=Clusters(USER, 50))

    together = parts[0] + parts[1]

    assert together.n_clusters == 50
    np.testing.assert_allclose(together.moment, whole.moment)


def test_clusters_and_cells_do_not_add() -> None:
    with pytest.raises(UsageError, match="cannot be added"):
        Sums.of(DELTA) + Sums.of(DELTA, clusters=Clusters(USER, 50))


def test_one_cluster_has_no_standard_error() -> None:
    with pytest.raises(UsageError, match=r"at least 2 clusters .* with data; got 1"):
        self_normalized(Sums.of(DELTA, clusters=Clusters(np.zeros(N, dtype=np.int32), 1)))


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Sums.of(DELTA, P)
    monkeypatch.setattr(blocks, "BLOCK", 7)

    np.testing.assert_allclose(Sums.of(DELTA, P).moment, whole.moment, rtol=1e-12)


@pytest.mark.parametrize("clusters", [None, Clusters(USER, 60)])
def test_a_difference_has_the_variance_of_the_differences(clusters: Clusters | None) -> None:
    """The paired difference of two models equals an estimate of delta_a - delta_b."""
    direct = DELTA[0] - DELTA[1]
    for estimate in (self_normalized, lambda sums: ips(sums, n_cells=4 * N)):
        pair = estimate(Sums.of(DELTA, P, clusters=clusters)).difference(0, 1, level=0.9)
        single = estimate(Sums.of(direct, P, clusters=clusters)).of(0, level=0.9)

        assert (pair.value, pair.std_error, pair.low, pair.high) == pytest.approx(
            (single.value, single.std_error, single.low, single.high)
        )


def test_group_normalised_is_a_mean_of_ratios() -> None:
    by_hand = [
        np.average(DELTA[0][u == USER], weights=P.inverse[u == USER]) for u in np.unique(USER)
    ]

    estimate = self_normalized(
        Sums.of_ratios(DELTA, weight=P.inverse, base=None, groups=Clusters(USER, 50))
    )

    assert estimate.value[0] == pytest.approx(np.mean(by_hand))
    assert estimate.covariance[0, 0] == pytest.approx(np.var(by_hand, ddof=1) / len(by_hand))


def test_groups_of_one_cell_are_not_taken_for_certain() -> None:
    """A ratio of one cell has no spread of its own; the spread between groups is what tells."""
    one_each = Clusters(np.arange(N, dtype=np.int32), N)

    estimate = self_normalized(Sums.of_ratios(DELTA, weight=P.inverse, base=None, groups=one_each))

    assert estimate.covariance[0, 0] == pytest.approx(DELTA[0].var(ddof=1) / N)


def test_groups_without_a_base_are_left_out_and_counted() -> None:
    base = (USER >= 10).astype(float)

    estimate = self_normalized(
        Sums.of_ratios(DELTA * base, weight=P.inverse, base=base, groups=Clusters(USER, 5000))
    )

    assert estimate.n_clusters == 40
    assert estimate.n_left_out == 10


def test_groups_without_any_weight_are_refused() -> None:
    sums = Sums.of_ratios(DELTA, weight=P.inverse, base=np.zeros(N), groups=Clusters(USER, 50))
    with pytest.raises(UsageError, match="there is nothing to average"):
        self_normalized(sums)


def test_a_ratio_counts_only_clusters_with_data() -> None:
    """Users without cells do not belong to a mean over observed cells."""
    few, many = (Sums.of(DELTA, P, clusters=Clusters(USER, n), is_ratio=True) for n in (50, 5000))

    assert few.n_clusters == many.n_clusters == 50
    np.testing.assert_allclose(self_normalized(few).covariance, self_normalized(many).covariance)


def test_a_bootstrap_of_a_ratio_never_draws_only_users_without_cells() -> None:
    busy = Clusters(np.array([0, 0, 1, 1], dtype=np.int32), 1000, Resampling(500, seed=0))

    estimate = self_normalized(
        Sums.of(np.array([1.0, 2.0, 3.0, 5.0]), clusters=busy, is_ratio=True)
    )

    assert np.isfinite(estimate.replicates).all()


@pytest.mark.parametrize("self_normalised", [True, False])
def test_bootstrap_agrees_with_the_analytic_clustered_error(self_normalised: bool) -> None:
    """2,000 resamples give a standard error within 1.6 % (one sd); 8 % is five of them."""
    point = self_normalized if self_normalised else lambda sums: ips(sums, n_cells=4 * N)
    analytic = point(Sums.of(DELTA, P, clusters=Clusters(USER, 50)))
    bootstrap = point(Sums.of(DELTA, P, clusters=Clusters(USER, 50, Resampling(2000, seed=3))))

    np.testing.assert_allclose(bootstrap.value, analytic.value)
    np.testing.assert_allclose(
        np.sqrt(np.diag(bootstrap.covariance)), np.sqrt(np.diag(analytic.covariance)), rtol=0.08
    )
    interval = bootstrap.of(0, level=0.95)
    assert interval.low < interval.value < interval.high


def test_bootstrap_draws_users_without_cells_too() -> None:
    """Users without cells are drawn too: their number shows in the spread of the replicates."""
    one_busy_user = Clusters(np.zeros(10, dtype=np.int32), 1000, Resampling(4000, seed=1))

    replicates = Sums.of(np.ones(10), clusters=one_busy_user).replicates

    assert replicates is not None
    copies = replicates[:, 0] / 10
    assert set(np.unique(copies)) <= set(range(12))
    assert copies.var() == pytest.approx(0.999, abs=0.12)


def test_bootstrap_needs_resamples() -> None:
    with pytest.raises(UsageError, match="bootstrap must be a whole number, at least 2; got 1"):
        Resampling(1)
