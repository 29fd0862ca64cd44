from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from unskew.errors import BadFileError, ColumnError, DuplicateCellError, EmptyLogError
from unskew.io.files import read_table
from unskew.io.log_files import (
    ColumnNames,
    FileLog,
    extract_log,
    find_cell_rows,
    find_id_rows,
    match_id_types,
)
from unskew.io.table import FileTable

GOOD = "user_id,item_id,rating,p\nann,1,5,0.5\nbob,2,3,1\n"


def table_of(folder: Path, text: str) -> FileTable:
    (folder / "log.csv").write_text(text)
    return read_table(str(folder / "log.csv"))


def log_of(folder: Path, text: str, **options: str) -> FileLog:
    columns = ColumnNames(propensity="p" if ",p\n" in text else None)
    return extract_log(table_of(folder, text), columns, **options)  # type: ignore[arg-type]


def test_a_log_is_read_with_its_columns(tmp_path: Path) -> None:
    logged = log_of(tmp_path, GOOD)

    assert logged.ratings.users.tolist() == ["ann", "bob"]
    assert logged.ratings.items.tolist() == [1, 2]
    assert logged.propensities is not None
    assert logged.propensities.tolist() == [0.5, 1.0]
    assert logged.ratings.columns == {"user": "user_id", "item": "item_id", "rating": "rating"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (",1,5,0.5", "line 4, column 'user_id': found nothing, expected an id"),
        ("ann,,5,0.5", "line 4, column 'item_id': found nothing, expected an id"),
        ("ann,3,,0.5", "line 4, column 'rating': found nothing, expected a number"),
        ("ann,3,five,0.5", "line 4, column 'rating': found 'five', expected a number"),
        ("ann,3,nan,0.5", "line 4, column 'rating': found 'nan', expected a number"),
        ("ann,3,inf,0.5", "line 4, column 'rating': found 'inf', expected a number"),
        ("ann,3,1e999,0.5", "line 4, column 'rating': found '1e999', expected a number"),
        ("ann,3,5,0", "line 4, column 'p': found '0', expected a propensity, above 0 and up to 1"),
        ("ann,3,5,1.5", "line 4, column 'p': found '1.5', expected a propensity"),
        ("ann,3,5,", "line 4, column 'p': found nothing, expected a propensity"),
    ],
)
def test_a_bad_value_is_named_with_its_place_and_can_be_dropped(
    tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(BadFileError, match=message) as caught:
        log_of(tmp_path, f"{GOOD}{line}\n")

    assert "on_bad='drop'" in str(caught.value)
    dropped = log_of(tmp_path, f"{GOOD}{line}\n", on_bad="drop")
    assert (len(dropped.ratings), dropped.n_dropped) == (2, 1)
    assert "dropped 1 of 3 rows" in dropped.notes[0]
    assert message.partition(":")[0] in dropped.notes[0]


def test_all_bad_rows_are_counted(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="found 'x', expected a number, and in 2 more rows"):
        log_of(tmp_path, GOOD + "ann,3,x,1\nann,4,y,1\nann,5,,1\n")


def test_nothing_left_is_an_empty_log(tmp_path: Path) -> None:
    with pytest.raises(EmptyLogError, match="has no rating that can be used"):
        log_of(tmp_path, "user,item,rating\n1,2,x\n", on_bad="drop")
    with pytest.raises(EmptyLogError, match=r"has no rating\."):
        log_of(tmp_path, "user,item,rating\n")


def test_duplicates_are_named_or_the_last_is_kept(tmp_path: Path) -> None:
    text = "user,item,rating\n1,2,3\n1,3,4\n1,2,5\n1,2,1\n"
    with pytest.raises(
        DuplicateCellError,
        match="line 4: user 1, item 2 is already in line 2; 2 rows repeat",
    ):
        log_of(tmp_path, text)
    kept = log_of(tmp_path, text, duplicates="last")

    assert kept.ratings.rating.tolist() == [4.0, 1.0]
    assert "2 rows repeat" in kept.notes[0]


def test_a_missing_column_is_named_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(ColumnError, match=r"log\.csv: no column looks like the rating"):
        log_of(tmp_path, "user,item\n1,2\n")


def test_ids_of_two_files_meet_although_only_one_reads_as_numbers() -> None:
    numbers, words = np.array([1, 2]), np.array(["2", "x"], dtype=object)

    assert match_id_types(numbers, words).tolist() == ["1", "2"]
    assert match_id_types(words, numbers).tolist() == [2, "x"]
    assert match_id_types(numbers, numbers) is numbers


def test_rows_are_found_for_ids_and_cells(tmp_path: Path) -> None:
    log = log_of(tmp_path, GOOD).ratings
    table = table_of(tmp_path, "user,item,prediction\nzoe,9,1\nbob,2,7\nann,x,3\n")

    assert find_cell_rows(table, log).tolist() == [-1, 1]
    assert find_id_rows(table, "user", log.users[1:]).tolist() == [1]
    with pytest.raises(BadFileError, match="lacks 1 of the log's 2 items; the first is 1"):
        find_id_rows(table, "item", log.items)
    twice = table_of(tmp_path, "user,item,prediction\nbob,2,7\nbob,2,8\nbob,2,9\n")
    with pytest.raises(
        BadFileError, match="has more than one row for 1 cell of the log, such as that of line 2"
    ):
        find_cell_rows(twice, log)
    with pytest.raises(BadFileError, match="lists 1 user more than once; the first is 'bob'"):
        find_id_rows(twice, "user", log.users)
