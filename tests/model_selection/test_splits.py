"""Splits of a log: parts know their share, and propensities follow them."""

from __future__ import annotations

from datetime import date, datetime

import numpy as np
import pytest

import unskew
from unskew.data.leaks import find_leaks
from unskew.errors import DataError, UsageError
from unskew.model_selection import rolling_splits
from unskew.propensity import PopularityPropensity, UniformPropensity


@pytest.fixture(scope="module")
def world():
    return unskew.simulate(n_users=60, n_items=40, density=0.3, alpha=0.6, random_state=0)


@pytest.fixture
def timed() -> unskew.Ratings:
    return unskew.Ratings.from_arrays(
        [0, 0, 1, 1, 2, 2, 3, 3, 4, 4],
        [0, 1, 0, 1, 0, 1, 0, 1, 0, 1],
        np.arange(1.0, 11.0),
        timestamp=[3, 9, 1, 8, 2, 7, 4, 10, 5, 6],
    )


def cells(log: unskew.Ratings) -> set[tuple[int, int]]:
    return set(zip(log.user.tolist(), log.item.tolist(), strict=True))


@pytest.mark.parametrize("by", ["random", "user"])
def test_parts_are_disjoint_and_complete(world, by: str) -> None:
    train, test = unskew.split(world.log, share=0.2, by=by, random_state=1)
    assert cells(train) | cells(test) == cells(world.log)
    assert not cells(train) & cells(test)
    assert (train.share, test.share) == (0.8, 0.2)
    assert train.universe == test.universe == world.log.universe


def test_users_stay_together(world) -> None:
    train, test = unskew.split(world.log, share=0.3, by="user")
    assert not set(train.user.tolist()) & set(test.user.tolist())


def test_each_rating_is_drawn_with_the_share() -> None:
    """7 ratings, share 0.3: 2.1 on average. Error rate of the limit, 4.5 standard errors: 1e-5."""
    log = unskew.Ratings.from_dense(np.ones((1, 7)))
    n_draws = 4000
    drawn = np.zeros(7)
    for seed in range(n_draws):
        drawn[unskew.split(log, share=0.3, random_state=seed)[1].item] += 1
    limit = 4.5 * np.sqrt(0.3 * 0.7 / n_draws)
    assert np.abs(drawn / n_draws - 0.3).max() < limit


def test_time_split_takes_the_latest(timed: unskew.Ratings) -> None:
    train, test = unskew.split(timed, share=0.3, by="time")
    assert sorted(test.timestamp.tolist()) == [8, 9, 10]
    assert train.timestamp.max() < test.timestamp.min()
    assert test.share == pytest.approx(0.3)


def test_rolling_splits_follow_each_other(timed: unskew.Ratings) -> None:
    parts = list(rolling_splits(timed, n_splits=3, share=0.2))
    assert [sorted(test.timestamp.tolist()) for _, test in parts] == [[5, 6], [7, 8], [9, 10]]
    assert [len(train) for train, _ in parts] == [4, 6, 8]


@pytest.mark.parametrize("kind", ["part", "whole", "matrix", "typed"])
def test_propensities_follow(world, kind: str) -> None:
    _, test = unskew.split(world.log, share=0.25)
    known = world.propensities
    given = {
        "part": np.asarray(known)[test.part.rows],
        "whole": np.asarray(known),
        "matrix": np.full((60, 40), 0.5),
        "typed": known,
    }[kind]
    expected = np.full(len(test), 0.5) if kind == "matrix" else known.values[test.part.rows]
    result = unskew.data.propensities.as_propensities(test, given)
    np.testing.assert_allclose(result.values, 0.25 * expected, rtol=1e-15)
    assert result.share == 0.25
    again = unskew.data.propensities.as_propensities(test, result)
    np.testing.assert_array_equal(again.values, result.values)


def test_fitted_models_follow(world) -> None:
    """A model knows the share of its own log: P(test) = P(train) * 0.2 / 0.8."""
    train, test = unskew.split(world.log, share=0.2)
    n_cells = world.log.n_cells
    for fitted_to in (world.log, train, test):
        model = UniformPropensity().fit(fitted_to)
        expected = len(fitted_to) / fitted_to.share * 0.2 / n_cells
        np.testing.assert_allclose(model.predict(test).values, expected, rtol=1e-12)
    relations = [
        PopularityPropensity().fit(fitted_to).predict(test).estimation.relation
        for fitted_to in (world.log, train, test)
    ]
    assert relations == ["part", "other", "same"]


def test_ips_of_the_parts_averages_to_ips_of_the_whole(world) -> None:
    """With shares s and 1 - s, s * ips(test) + (1 - s) * ips(train) = ips(whole), exactly."""
    train, test = unskew.split(world.log, share=0.2)

    def ips(log: unskew.Ratings) -> float:
        result = unskew.evaluate(
            log,
            {"m": world.truth * 0.9},
            propensities=world.propensities,
            metrics=["mse"],
            estimators=["ips"],
        )
        return result.risk("m", metric="mse", estimator="ips").estimate

    assert 0.2 * ips(test) + 0.8 * ips(train) == pytest.approx(ips(world.log), rel=1e-12)


def test_split_of_a_part_multiplies_shares(world) -> None:
    train, _ = unskew.split(world.log, share=0.2)
    _, validation = unskew.split(train, share=0.25)
    assert validation.share == pytest.approx(0.2)
    values = unskew.data.propensities.as_propensities(validation, world.propensities).values
    expected = 0.2 * world.propensities.values[validation.part.rows]
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_split_model_survives_a_file(world, tmp_path) -> None:
    train, test = unskew.split(world.log, share=0.2)
    model = UniformPropensity().fit(train)
    model.save(tmp_path / "p.unskew")
    again = unskew.load(tmp_path / "p.unskew")
    np.testing.assert_array_equal(again.predict(test).values, model.predict(test).values)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda log: unskew.split(log, share=1.0), "share"),
        (lambda log: unskew.split(log, share=0.5, by="item"), "by"),
        (lambda log: unskew.split(log, by="time"), "by"),
        (lambda log: list(rolling_splits(log)), "by"),
        (lambda log: unskew.split(log, random_state=-1), "random_state"),
    ],
)
def test_bad_arguments_name_the_parameter(world, call, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        call(world.log)
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (["2024-01-01", "b"], "must hold numbers or dates; got text, first 'b' at row 1"),
        (["2024-01-01", "2024-01-01T00:00Z"], "got text, first '2024-01-01T00:00Z' at row 1"),
        ([1.0, np.nan], "1 of 2 times are missing or not finite; the first is at row 1"),
        ([1], r"there are 2 ratings, but `?timestamp`? has shape \(1,\)"),
        ([np.datetime64("2020-01-01"), 3], r"got datetime64 and int, first 3 at row 1"),
        ([1, None], "got int and NoneType, first None at row 1"),
        (np.array([1j, 2]), "got complex128"),
    ],
)
def test_bad_timestamps_are_refused(times, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        unskew.Ratings.from_arrays([0, 1], [0, 1], [1, 2], timestamp=times)
    assert caught.value.parameter == "timestamp"


def test_dates_and_iso_texts_are_times() -> None:
    days = [date(2020, 1, 2), date(2020, 1, 1)]
    zones = ["2020-01-02T01:00+01:00", "2020-01-01T00:00Z"]
    for times in (days, [f"{day}" for day in days], np.array(days, dtype=object), zones):
        log = unskew.Ratings.from_arrays([0, 1], [0, 1], [1, 2], timestamp=times)
        assert log.timestamp.tolist() == [datetime(2020, 1, 2), datetime(2020, 1, 1)]


def test_timestamps_come_from_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "user_id": [0, 1],
            "item_id": [0, 1],
            "rating": [1, 2],
            "day": ["2020-01-02", "2020-01-01"],
        }
    )
    log = unskew.Ratings.from_frame(frame, timestamp="day")
    assert log.timestamp.tolist() == [datetime(2020, 1, 2), datetime(2020, 1, 1)]
    frame["day"] = pandas.to_datetime(frame["day"]).dt.tz_localize("Europe/Berlin")
    log = unskew.Ratings.from_frame(frame, timestamp="day")
    assert log.timestamp[1] < log.timestamp[0]
    assert list(log.to_frame().columns) == ["user_id", "item_id", "rating", "day"]


def test_leaks_are_counted() -> None:
    train = unskew.Ratings.from_arrays(
        ["a", "a", "b"], [1, 2, 1], [5, 3, 4], users=["a", "b", "c"], timestamp=[1, 2, 9]
    )
    test = unskew.Ratings.from_arrays(["c", "a", "d"], [2, 1, 7], [1, 1, 1], timestamp=[10, 3, 11])
    leaks = find_leaks(train, test)
    assert (leaks.n_shared, leaks.n_early, leaks.n_new_users, leaks.n_new_items) == (1, 1, 2, 1)
    assert leaks.first_shared == "row 1 (user 'a', item 1)"
    texts = [str(each) for each in leaks.warnings()]
    assert len(texts) == 3
    assert "also in the training log" in repr(leaks)


def test_a_split_has_no_leaks(world, timed: unskew.Ratings) -> None:
    assert find_leaks(*unskew.split(world.log)).n_shared == 0
    assert find_leaks(*unskew.split(timed, by="time")).n_early == 0
