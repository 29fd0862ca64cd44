from __future__ import annotations

from unskew.report.text import group_rows, interval_of, label_columns, select

ROWS = [
    {"model": "a", "metric": "mae", "estimate": 1.0, "ci_low": 0.5, "ci_high": 2.0},
    {"model": "b", "metric": "mae", "estimate": 3.0, "ci_low": 2.5, "ci_high": 4.0},
    {"model": "a", "metric": "mse", "estimate": 5.0, "ci_low": 4.5, "ci_high": 6.0},
]


def test_selected_rows_have_all_the_values() -> None:
    assert select(ROWS, {"model": "a"}) == [ROWS[0], ROWS[2]]
    assert select(ROWS, {"model": "a", "metric": "mse"}) == [ROWS[2]]
    assert select(ROWS, {"model": "c"}) == []


def test_groups_are_in_the_order_of_their_first_rows() -> None:
    assert group_rows(ROWS, "model") == {("a",): [ROWS[0], ROWS[2]], ("b",): [ROWS[1]]}
    assert list(group_rows(ROWS, "model", "metric")) == [("a", "mae"), ("b", "mae"), ("a", "mse")]


def test_an_interval_is_a_value_with_its_limits() -> None:
    assert interval_of(ROWS[1], "estimate") == (3.0, 2.5, 4.0)


def test_columns_have_headings_and_labels() -> None:
    columns = label_columns(ROWS, {"model": "who", "metric": "metric"})

    assert columns == {"who": ["a", "b", "a"], "metric": ["MAE", "MAE", "MSE"]}
