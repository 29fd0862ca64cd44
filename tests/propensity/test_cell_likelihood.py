"""The likelihood of all cells against a dense twin, and its maximum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from unskew.data.cells import user_and_item
from unskew.data.ratings import Ratings
from unskew.propensity import cell_likelihood
from unskew.propensity.cell_likelihood import CellLikelihood, ListedCells, UnitGrid
from unskew.propensity.covariates import CovariateProfiles
from unskew.propensity.logistic_design import CellFolds, Interactions, LogisticData, SideDesign
from unskew.threads import Workers

N_USERS, N_ITEMS = 12, 9
RNG = np.random.default_rng(3)
X = np.column_stack([RNG.integers(0, 2, N_USERS), RNG.integers(0, 3, N_USERS)]).astype(float)
Z = np.column_stack([RNG.integers(0, 2, N_ITEMS), np.arange(N_ITEMS) % 2]).astype(float)
SEEN = RNG.random((N_USERS, N_ITEMS)) < 0.35
LOG = Ratings.from_dense(SEEN.astype(float))
WORKERS = Workers(1)


def cells_of(
    interactions: Interactions, *, offsets: bool, negatives: float | None = None
) -> LogisticData:
    user = SideDesign.build(
        CovariateProfiles.read(X, LOG.users, "user"), interactions, has_offset=offsets
    )
    item = SideDesign.build(
        CovariateProfiles.read(Z, LOG.items, "item"), interactions, has_offset=offsets
    )
    return LogisticData.prepare(LOG, user, item, negatives, np.random.default_rng(0))


def dense_logits(cells: LogisticData, problem: CellLikelihood, flat: np.ndarray) -> np.ndarray:
    """eta, written out."""
    at = problem.split_terms(flat)
    eta = np.zeros((N_USERS, N_ITEMS))
    for u in range(N_USERS):
        for i in range(N_ITEMS):
            x, z = (
                side.design[side.covariates.profile[code]]
                for side, code in ((cells.user, u), (cells.item, i))
            )
            eta[u, i] = (
                at.intercept
                + x @ at.user
                + z @ at.item
                + x[: len(at.crossed)] @ at.crossed @ z[: at.crossed.shape[1]]
            )
            eta[u, i] += at.user_offset[problem.user.unit[u]] if at.user_offset.size else 0
            eta[u, i] += at.item_offset[problem.item.unit[i]] if at.item_offset.size else 0
    return eta


def dense_value(eta: np.ndarray, which: np.ndarray) -> float:
    return float(np.where(SEEN, eta, 0)[which].sum() - np.logaddexp(0, eta)[which].sum())


every_model = pytest.mark.parametrize("offsets", [False, True])
every_pairing = pytest.mark.parametrize("interactions", ["all", "user-item", "none"])


@every_model
@every_pairing
def test_grouped_cells_are_all_cells(interactions: Interactions, offsets: bool) -> None:
    cells = cells_of(interactions, offsets=offsets)
    problem = cells.likelihood(WORKERS)
    flat = RNG.normal(0, 0.5, problem.start().size)

    assert problem.log_likelihood(flat)[0] == pytest.approx(
        dense_value(dense_logits(cells, problem, flat), np.ones_like(SEEN))
    )
    assert (
        check_grad(
            lambda at: problem.log_likelihood(at)[0], lambda at: problem.log_likelihood(at)[1], flat
        )
        < 1e-4
    )


@every_model
def test_the_slope_by_the_intercept_is_what_was_observed_less_what_is_expected(
    offsets: bool,
) -> None:
    cells = cells_of("all", offsets=offsets)
    problem = cells.likelihood(WORKERS)
    flat = RNG.normal(0, 0.5, problem.start().size)
    expected = (1 / (1 + np.exp(-dense_logits(cells, problem, flat)))).sum()

    assert problem.log_likelihood(flat)[1][0] == pytest.approx(len(LOG) - expected)


@every_model
@every_pairing
def test_sampled_cells_are_those_of_the_sample(
    interactions: Interactions, offsets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_likelihood, "BLOCK_CELLS", 8)  # several blocks
    cells = cells_of(interactions, offsets=offsets, negatives=0.7)
    assert cells.unobserved is not None
    which = SEEN.copy()
    which[user_and_item(cells.unobserved, N_ITEMS)] = True
    problem = cells.likelihood(WORKERS)
    assert isinstance(problem.cells, ListedCells)
    flat = RNG.normal(0, 0.5, problem.start().size)

    assert problem.log_likelihood(flat)[0] == pytest.approx(
        dense_value(dense_logits(cells, problem, flat), which)
    )
    assert (
        check_grad(
            lambda at: problem.log_likelihood(at)[0], lambda at: problem.log_likelihood(at)[1], flat
        )
        < 1e-4
    )


@pytest.mark.parametrize("negatives", [None, 0.7])
@pytest.mark.parametrize("has_offset", [(False, False), (False, True), (True, False), (True, True)])
def test_folds_share_out_all_cells(has_offset: tuple[bool, bool], negatives: float | None) -> None:
    user = SideDesign.build(
        CovariateProfiles.read(X, LOG.users, "user"), "all", has_offset=has_offset[0]
    )
    item = SideDesign.build(
        CovariateProfiles.read(Z, LOG.items, "item"), "all", has_offset=has_offset[1]
    )
    cells = LogisticData.prepare(LOG, user, item, negatives, np.random.default_rng(0))
    folds = CellFolds.draw(3, user, item, np.random.default_rng(1))
    counted = SEEN.copy()
    if cells.unobserved is None:
        counted[:] = True
    else:
        counted[user_and_item(cells.unobserved, N_ITEMS)] = True
    users, items = np.indices(SEEN.shape)
    for fold, problems in enumerate(cells.split(folds, WORKERS)):
        kept = folds.is_training(fold, users, items)
        for problem, part in zip(problems, (kept, ~kept), strict=True):
            flat = np.random.default_rng(2).normal(0, 0.5, problem.start().size)
            assert problem.log_likelihood(flat)[0] == pytest.approx(
                dense_value(dense_logits(cells, problem, flat), part & counted)
            )
        whole_users = kept.all(axis=1) | ~kept.any(axis=1)
        whole_items = kept.all(axis=0) | ~kept.any(axis=0)
        assert whole_users.all() == (not has_offset[0])
        assert whole_items.all() == (has_offset == (True, False))


def test_large_logits_do_not_overflow() -> None:
    problem = cells_of("none", offsets=False).likelihood(WORKERS)
    flat = np.zeros(problem.start().size)
    flat[0] = 400.0
    value, slope = problem.log_likelihood(flat)

    assert value == pytest.approx(-400.0 * (LOG.n_cells - len(LOG)))
    assert np.isfinite(slope).all()


def test_threads_are_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_likelihood, "BLOCK_CELLS", 8)
    for negatives in (None, 0.7):
        cells = cells_of("all", offsets=True, negatives=negatives)
        with Workers(2) as two:
            one_thread, two_threads = (cells.likelihood(workers) for workers in (WORKERS, two))
            flat = np.random.default_rng(0).normal(0, 0.5, one_thread.start().size)
            one, other = one_thread.log_likelihood(flat), two_threads.log_likelihood(flat)
        assert one[0] == other[0]
        assert (one[1] == other[1]).all()


def test_many_users_are_few_units() -> None:
    problem = cells_of("all", offsets=False).likelihood(WORKERS)

    assert isinstance(problem.cells, UnitGrid)
    assert (
        len(problem.user) * len(problem.item)
        == len(np.unique(X, axis=0)) * len(np.unique(Z, axis=0))
        < LOG.n_cells
    )
