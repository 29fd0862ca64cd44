"""Learning from a log and a few ratings of random cells."""

from __future__ import annotations

import numpy as np
import pytest

import unskew
from enumeration import patterns
from unskew.errors import BadPropensityError, UnknownIdError, UsageError
from unskew.models import RandomSampleFactorization
from unskew.models.random_sample import PooledRatings, choose_trust
from unskew.propensity import NaiveBayesPropensity
from unskew.types import Matrix

N_USERS, N_ITEMS = 150, 100
IDS = {"users": np.arange(N_USERS), "items": np.arange(N_ITEMS)}


def draw(
    seed: int = 0, n_sample: int = 600, *, scale: float = 0.02, odds: float = 1.9
) -> tuple[unskew.Ratings, unskew.Ratings, Matrix]:
    """A log that is selected by rating, a random sample, and the truth."""
    rng = np.random.default_rng(seed)
    mean = 3 + 0.6 * rng.standard_normal((N_USERS, 1)) + 0.6 * rng.standard_normal((1, N_ITEMS))
    truth = np.clip(np.rint(mean + 0.6 * rng.standard_normal(mean.shape)), 1, 5)
    seen = rng.random(truth.shape) < scale * odds**truth
    user, item = np.nonzero(seen)
    log = unskew.Ratings.from_arrays(user, item, truth[seen], **IDS)
    user, item = np.divmod(rng.choice(truth.size, n_sample, replace=False), N_ITEMS)
    return log, unskew.Ratings.from_arrays(user, item, truth[user, item], **IDS), truth


@pytest.mark.parametrize("trust", [1.0, 0.3, 0.0])
def test_the_pooled_loss_is_unbiased_for_any_trust(trust: float) -> None:
    """E over all logs and all samples of the weighted sum, by enumeration; q = 1/3."""
    propensity, loss = np.array([[0.3, 0.8, 1.0]]), np.array([[2.0, 7.0, 3.0]])
    ids, total = {"users": [0], "items": [0, 1, 2]}, 0.0
    for seen, chance in patterns(propensity):
        if not chance:
            continue
        (item,) = np.nonzero(seen[0])
        log = unskew.Ratings.from_arrays(np.zeros(item.size), item, np.ones(item.size), **ids)
        for drawn in range(3):
            sample = unskew.Ratings.from_arrays([0], [drawn], [1.0], **ids)
            pooled, weight = PooledRatings.of(log, propensity, sample).weigh(trust)
            total += chance / 3 * float(weight @ loss[0, pooled.item])

    assert total == pytest.approx(loss.sum())


def test_no_weight_exceeds_the_cells_that_a_random_rating_represents() -> None:
    log, sample, _ = draw()
    tiny = np.full((N_USERS, N_ITEMS), 1e-6)

    _, weight = PooledRatings.of(log, tiny, sample).weigh(1.0)

    assert weight.max() <= N_USERS * N_ITEMS / len(sample)


def test_without_trust_the_log_is_not_read() -> None:
    log, sample, _ = draw()
    alone = unskew.MatrixFactorization().fit(sample)

    model = RandomSampleFactorization(trust=0.0).fit(log, mcar=sample)

    users = np.arange(N_USERS, dtype=np.int32)
    assert model.factors_(users) == pytest.approx(alone.factors_(users), abs=1e-6)


def test_without_random_ratings_it_is_a_weighted_factorisation() -> None:
    log, _, _ = draw()
    propensity = np.linspace(0.1, 0.5, len(log))
    users = np.arange(N_USERS, dtype=np.int32)

    model = RandomSampleFactorization(3).fit(log, propensity)

    expected = unskew.MatrixFactorization(3).fit(log, propensity).factors_(users)
    assert model.factors_(users) == pytest.approx(expected)
    assert model.trust_ == 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_wrong_propensities_lose_the_trust_and_right_ones_keep_it(seed: int) -> None:
    log, sample, truth = draw(seed, scale=0.002, odds=3.4)
    right = np.clip(0.002 * 3.4**truth, 0, 1)

    assert choose_trust(PooledRatings.of(log, right, sample), 0) == 1.0
    assert choose_trust(PooledRatings.of(log, None, sample), 0) <= 0.3


@pytest.mark.parametrize("uses", ["weighting", "imputation"])
def test_random_ratings_help(uses: str) -> None:
    users, errors = np.arange(N_USERS, dtype=np.int32), []
    for seed in range(3):
        log, sample, truth = draw(seed)
        bayes = NaiveBayesPropensity().fit(log, mcar=sample)
        models = (
            RandomSampleFactorization(uses=uses).fit(log, bayes, mcar=sample),
            unskew.MatrixFactorization().fit(log),
        )
        errors.append([np.square(truth - model.factors_(users)).mean() for model in models])

    assert np.less(*np.mean(errors, axis=0))


def test_ids_are_matched_and_not_positions() -> None:
    log, sample, _ = draw()
    order = np.random.default_rng(1).permutation(N_USERS)
    shuffled = unskew.Ratings.from_arrays(
        sample.users[sample.user],
        sample.items[sample.item],
        sample.rating,
        users=np.arange(N_USERS)[order],
        items=np.arange(N_ITEMS),
    )
    fits = [RandomSampleFactorization(0).fit(log, mcar=each) for each in (sample, shuffled)]

    assert (fits[0].factors_.user_offset == fits[1].factors_.user_offset).all()


class TestErrors:
    def test_propensities_of_the_log_alone(self) -> None:
        log, sample, _ = draw()
        with pytest.raises(BadPropensityError, match="600 random ratings are needed too"):
            RandomSampleFactorization().fit(log, np.full(len(log), 0.1), mcar=sample)

    def test_an_unknown_item(self) -> None:
        log, _, _ = draw()
        sample = unskew.Ratings.from_arrays([0], [N_ITEMS], [3.0])
        with pytest.raises(
            UnknownIdError,
            match=r"1 of 1 ratings of the random sample have items that the log .* is item 100",
        ):
            RandomSampleFactorization().fit(log, mcar=sample)

    def test_ratings_without_users(self) -> None:
        log, _, _ = draw()
        with pytest.raises(UsageError, match=r"mcar must be unskew\.Ratings"):
            RandomSampleFactorization().fit(log, mcar=[1, 2, 3])  # type: ignore[arg-type]
