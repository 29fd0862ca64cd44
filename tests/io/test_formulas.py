"""Text that starts like a formula is written as it is, with a warning."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pytest

import unskew
from unskew.errors import UnskewWarning
from unskew.io.files import write_table
from unskew.models import GlobalMean

FORMULAS = ['=HYPERLINK("http://x")', "+cmd|' /C calc'!A0", "@SUM(1)", "-2+3", "\t=1", "\r=1"]


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_a_formula_is_named_and_read_again(text: str, form: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"x.{form}")

    with pytest.warns(UnskewWarning, match="1 texts of .* start like a formula; the first is"):
        write_table({"user_id": ["ann", text], "rating": [1.0, 2.0]}, path)

    delimiter = "," if form == "csv" else "\t"
    with Path(path).open(newline="") as file:
        assert list(csv.reader(file, delimiter=delimiter))[2][0] == text


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_numbers_and_plain_text_are_no_formulas(form: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_table(
            {"user_id": ["-1", "+2.5e3"], "item_id": ["a=b", "x"], "rating": [-1.0, 2.0]},
            str(tmp_path / f"x.{form}"),
        )


def test_recommendations_warn_too(tmp_path: Path) -> None:
    log = unskew.Ratings.from_arrays(["u", "v"], ["=1+1", "b"], [1, 2])
    model = GlobalMean().fit(log)

    with pytest.warns(UnskewWarning, match="start like a formula; the first is '=1\\+1'"):
        model.write_recommendations(tmp_path / "lists.csv", k=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.write_recommendations(tmp_path / "lists.parquet", k=1)


def test_names_of_columns_are_texts_too(tmp_path: Path) -> None:
    with pytest.warns(UnskewWarning, match="in column '=A1'"):
        write_table({"=A1": np.array(["x"])}, str(tmp_path / "x.csv"))
