"""Names and ids from files cannot reach a terminal or a page as commands."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unskew
from unskew import Ratings
from unskew.cli import printing
from unskew.tables import escape_controls, html_table, text_table

ESCAPES = ["\x1b[31m", "\x1b]0;title\x07", "\x9b2J", "\r", "\n", "\b", "\u202e", "\u2028", "\ud800"]


@pytest.mark.parametrize("text", ESCAPES, ids=ascii)
def test_controls_are_written_out(text: str) -> None:
    shown = escape_controls(f"item4{text}forged")

    assert shown.startswith("item4\\")
    assert not set(shown) & set(ESCAPES[0][0] + "\x9b\x07\r\n\b\u202e\u2028\ud800")


@pytest.mark.parametrize("text", ["up", "é", "日本", "a b", "100 %", "👩‍🚀"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert escape_controls(text) == text


def test_a_line_end_in_an_id_forges_no_row() -> None:
    table = text_table({"item": ["a\nb  9.999"], "score\x1b[2J": [1.0]})

    assert len(table.splitlines()) == 2
    assert "\x1b" not in table


def test_tables_of_results_are_safe() -> None:
    name = "<script>alert(1)</script>\x1b[31m"
    log = Ratings.from_arrays([1, 2], [1, 2], [1, 2], universe=(3, 3))
    result = unskew.evaluate(
        log, {name: np.ones(2), "b": np.zeros(2)}, metrics="mae", estimators="naive"
    )

    assert "<script>" not in result._repr_html_()
    assert "\x1b" not in text_table(result.to_columns())
    assert "<script>" not in html_table({name: [name]})


def test_indented_labels_stay_below_their_parent_in_html() -> None:
    html = html_table({"measure": ["weight", "  median"], "value": [1, 2]})

    assert html.count("white-space: pre") == 2
    assert ">  median</td><td>2</td>" in html


def test_text_is_aligned_to_the_left_in_html_and_numbers_as_the_notebook_does() -> None:
    html = html_table({"model": ["a", "b"], "mae": [0.5, math.nan]})

    assert '<th style="text-align: left">model</th><th>mae</th>' in html
    assert '<td style="text-align: left">a</td><td>0.500</td>' in html


def test_notes_and_lines_on_the_terminal_are_safe(capsys: pytest.CaptureFixture[str]) -> None:
    console = printing.open_console()
    printing.print_lines(console, ["file \x1b]0;x\x07"])
    printing.print_table(console, {"a": ["\x1b[31m"]}, title="\x1b[2J", caption="\x1b[2J")
    printing.print_note("wrote \x1b[31m\nagain")
    shown = capsys.readouterr()

    assert "\x1b" not in shown.out + shown.err
    assert shown.err == "wrote \\x1b[31m\nagain\n"
