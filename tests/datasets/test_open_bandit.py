from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import unskew
from unskew.datasets import open_bandit
from unskew.datasets.location import check_dataset
from unskew.datasets.open_bandit import load_open_bandit
from unskew.errors import DatasetFormatError, DatasetNotFoundError, UsageError

Write = Callable[..., Path]

HEADER = (
    ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,"
    "user_feature_2,user_feature_3,user-item_affinity_0,user-item_affinity_1\n"
)
ROWS = [
    "0,2019-11-24 00:00:34.762830+00:00,1,3,0,0.25,81ce,03a5,c2e4,f975,0.0,0.0\n",
    "1,2019-11-24 00:00:53.965051+00:00,0,1,1,0.5,81ce,03a5,2723,c39b,0.0,1.0\n",
    "2,2019-11-24 00:01:10+00:00,1,2,0,0.125,81ce,03a5,c2e4,f975,0.0,0.0\n",
]
ITEMS = (
    ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3\n"
    "0,0,-0.68,ceca,eb6f,7950\n1,1,-0.72,270d,eb6f,7950\n2,2,1.5,270d,eb6f,7950\n"
)


def make_files(
    *rows: str, header: str = HEADER, items: str = ITEMS, folder: str = "random/all"
) -> dict[str, str]:
    name = folder.rpartition("/")[2]
    return {
        f"{folder}/{name}.csv": header + "".join(rows),
        f"{folder}/item_context.csv": items,
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("block_rows", [2, 100])
def test_the_files_are_read(
    write: Write, newline: str, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(open_bandit._iterate_tables.__kwdefaults__, "block_rows", block_rows)
    bandit = load_open_bandit(write(make_files(*ROWS), newline=newline))
    log = bandit.log

    assert (log.n_requests, log.n_users, log.n_items, log.n_slots) == (3, 2, 2, 3)
    assert log.items[log.item].tolist() == [1, 0, 1]
    assert log.position.tolist() == [3, 1, 2]
    assert log.reward.tolist() == [0, 1, 0]
    assert log.probability is not None
    assert log.probability.tolist() == [0.25, 0.5, 0.125]
    assert log.probability_is == "marginal"
    assert bandit.user_features[log.users[log.user]].tolist() == [
        ["81ce", "03a5", "c2e4", "f975"],
        ["81ce", "03a5", "2723", "c39b"],
        ["81ce", "03a5", "c2e4", "f975"],
    ]
    assert bandit.timestamp[0] == np.datetime64("2019-11-24T00:00:34.762830")
    assert bandit.items.tolist() == [0, 1, 2]
    assert bandit.item_number.tolist() == [-0.68, -0.72, 1.5]
    assert bandit.item_categories[1].tolist() == ["270d", "eb6f", "7950"]


def test_a_policy_is_evaluated_on_the_log(write: Write) -> None:
    """Each row is a request, so the value is the mean of w c: (0.3 / 0.5) / 3."""
    bandit = load_open_bandit(write(make_files(*ROWS)))
    target = unskew.policies.TargetProbability([0.1, 0.3, 0.2])
    with pytest.warns(unskew.errors.PropensityWarning):
        result = unskew.evaluate_policies(bandit.log, {"new": target})

    assert result.estimators == ("iips", "sniips")
    assert result.value("new").estimate == pytest.approx(0.2)


def test_campaign_and_policy_choose_the_folder(write: Write) -> None:
    root = write({**make_files(*ROWS), **make_files(ROWS[1], folder="bts/men")})

    assert len(load_open_bandit(root).log) == 3
    assert len(load_open_bandit(root, campaign="men", policy="bts").log) == 1
    with pytest.raises(DatasetNotFoundError, match=r"lacks bts/women/women\.csv"):
        load_open_bandit(root, campaign="women", policy="bts")
    with pytest.raises(
        UsageError, match=r"unknown value .kids. of campaign; valid values are: all, men, women"
    ):
        load_open_bandit(root, campaign="kids")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"unknown value .greedy. of policy"):
        load_open_bandit(root, policy="greedy")  # type: ignore[arg-type]
    assert check_dataset("open-bandit", root) == (
        "readable: 3 impressions by 2 users on 2 items; "
        "there is no published digest to compare with"
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ROWS[0].replace("2019-11-24 00", "noon"), "'timestamp': found 'noon.*expected a time"),
        (ROWS[0].replace(",1,3,0,", ",7,3,0,"), "'item_id': found '7', expected an item of item_"),
        (ROWS[0].replace(",1,3,0,", ",1,4,0,"), "'position': found '4', expected a position from"),
        (ROWS[0].replace(",1,3,0,", ",1,3,2,"), r"'click': found '2', expected 1 \(clicked\) or 0"),
        (ROWS[0].replace("0.25", "1.25"), "'propensity_score': found '1.25', expected a probab"),
        (ROWS[0].replace("0.25", ""), "'propensity_score': found nothing, expected a number"),
        (ROWS[0].replace("f975,", ""), r": found 11 fields .* expected 12"),
    ],
)
def test_a_malformed_row_is_located(write: Write, row: str, message: str) -> None:
    with pytest.raises(DatasetFormatError, match=rf"all\.csv, line 3.*{message}"):
        load_open_bandit(write(make_files(ROWS[1], row)))


def test_a_missing_column_and_an_empty_file_are_named(write: Write) -> None:
    header = HEADER.replace("propensity_score", "pscore")
    with pytest.raises(DatasetFormatError, match=r"all\.csv: column 'propensity_score' is missing"):
        load_open_bandit(write(make_files(*ROWS, header=header)))
    with pytest.raises(DatasetFormatError, match=r"all\.csv has no rows"):
        load_open_bandit(write(make_files(), folder="empty"))
