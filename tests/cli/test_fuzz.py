"""Damaged files of every kind: no traceback, no NaN in a result, one of our exit codes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from unskew.cli import main
from unskew.io.files import write_table

FEW, MANY = 60, 700
"""Files for each kind; with MANY they are 5,600 in all."""
COLUMNS = {
    "user_id": [1, 1, 2, 2, 3, 3],
    "item_id": ["a", "b", "a", "c", "b", "c"],
    "rating": [5.0, 1.0, 4.0, 3.0, 2.0, 5.0],
    "prediction": [4.0, 2.0, 4.5, 3.0, 1.0, 4.0],
    "propensity": [0.5, 0.25, 0.5, 1.0, 0.5, 0.75],
}
WORD = st.sampled_from(
    [
        "1",
        "2",
        "5",
        "0.5",
        "",
        " ",
        "nan",
        "inf",
        "-1",
        "1e400",
        "1e-300",
        "a",
        "é",
        '"',
        '"x"',
        '"x',
        "007",
        "null",
        "\x00",
        "1_0",
        "٣",
        "9" * 25,
    ]
)
VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.just([]),
    st.just({}),
    st.sampled_from([1, 2, 0.5, 1e308]),
)
HEADER = st.sampled_from(
    ["user_id,item_id,rating,prediction,propensity"] * 6
    + [
        "user,item,rating,prediction,propensity",
        "user,userid,rating,item,propensity",
        "a,b,c,d,e",
        "user_id,item_id,rating",
        "1,2,3,4,5",
        "",
    ]
)


def invoke(path: Path, content: bytes, *arguments: str) -> None:
    """Run a command on the content; whatever it is, the outcome is one of ours."""
    path.write_bytes(content)
    result = CliRunner().invoke(main, [part if part != "FILE" else str(path) for part in arguments])

    assert result.exception is None or isinstance(result.exception, SystemExit), (
        content,
        result.exception,
    )
    assert result.exit_code in (0, 2, 3), (content, result.output)
    assert "Traceback" not in result.stderr
    if result.exit_code:
        assert "rror: " in result.stderr
    if result.stdout:
        json.loads(result.stdout, parse_constant=refuse_nan)


def refuse_nan(text: str) -> NoReturn:
    raise AssertionError(f"{text} in a result")


def both(path: Path, content: bytes) -> None:
    invoke(path, content, "validate", "FILE", "--json")
    invoke(path, content, "evaluate", "FILE", "--universe", "9x9", "--metric", "mae", "--json")
    invoke(
        path,
        content,
        "evaluate",
        "FILE",
        "--universe",
        "log",
        "--metric",
        "mae",
        "--json",
        "--on-bad",
        "drop",
        "--duplicates",
        "last",
    )


@st.composite
def near_csv(draw: st.DrawFn, delimiter: str = ",") -> bytes:
    width = draw(st.sampled_from([5, 5, 5, 4, 6]))
    rows = draw(st.lists(st.lists(WORD, min_size=width, max_size=width), max_size=5))
    good = [
        [str(column[row]) for column in COLUMNS.values()] for row in range(draw(st.integers(0, 6)))
    ]
    end = draw(st.sampled_from(["\n", "\r\n", "\n\n", "\r"]))
    lines = [
        draw(HEADER).replace(",", delimiter),
        *(delimiter.join(row) for row in draw(st.permutations(good + rows))),
    ]
    encoding = draw(st.sampled_from(["utf-8"] * 5 + ["utf-8-sig", "utf-16", "cp1252"]))
    return end.join(lines).encode(encoding, errors="ignore")


@st.composite
def near_json_lines(draw: st.DrawFn) -> bytes:
    names = st.sampled_from([*COLUMNS] * 3 + ["x", ""])
    odd = draw(st.lists(st.one_of(st.dictionaries(names, VALUE, max_size=5), VALUE), max_size=4))
    good = [
        {name: column[row] for name, column in COLUMNS.items()}
        for row in range(draw(st.integers(0, 6)))
    ]
    text = "\n".join(json.dumps(each) for each in draw(st.permutations([*good, *odd])))
    return (
        text[: draw(st.integers(0, len(text)))].encode() if draw(st.booleans()) else text.encode()
    )


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Some bytes changed, or the end cut off."""
    content = bytearray(whole)
    for place in draw(st.lists(st.integers(0, len(content) - 1), max_size=6)):
        content[place] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.booleans()) else content)


@st.composite
def odd_columns(draw: st.DrawFn) -> dict[str, list[Any]]:
    """Whole tables whose columns are of any type."""
    kinds = st.one_of(
        st.lists(st.integers(-3, 3), min_size=4, max_size=4),
        st.lists(st.one_of(st.none(), st.floats()), min_size=4, max_size=4),
        st.lists(st.one_of(st.none(), st.text(max_size=2)), min_size=4, max_size=4),
        st.lists(st.booleans(), min_size=4, max_size=4),
        st.lists(st.one_of(st.none(), st.datetimes()), min_size=4, max_size=4),
        st.lists(
            st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-9, max_value=9),
            min_size=4,
            max_size=4,
        ),
        st.lists(st.binary(max_size=2), min_size=4, max_size=4),
        st.lists(st.lists(st.integers(0, 1), max_size=1), min_size=4, max_size=4),
    )
    good = {name: column[:4] for name, column in COLUMNS.items()}
    return good | {name: draw(kinds) for name in draw(st.sets(st.sampled_from([*COLUMNS])))}


def whole(folder: Path, form: str) -> bytes:
    write_table(COLUMNS, str(folder / f"whole.{form}"))
    return (folder / f"whole.{form}").read_bytes()


def fuzz(count: int, strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    phases = (Phase.explicit, Phase.generate, Phase.shrink)

    @settings(
        max_examples=count,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=count == FEW,
    )
    @given(strategy)
    def property_(content: Any) -> None:
        check(content)

    property_()


KINDS = ("bytes", "csv", "tsv", "jsonl", "parquet", "arrow", "typed", "gzip")


def run_kind(kind: str, folder: Path, count: int) -> None:
    if kind == "bytes":
        forms = st.sampled_from(["csv", "tsv", "jsonl", "parquet", "arrow", "csv.gz"])
        fuzz(
            count,
            st.tuples(forms, st.binary(max_size=80)),
            lambda given: both(folder / f"log.{given[0]}", given[1]),
        )
    elif kind in ("csv", "tsv"):
        fuzz(
            count,
            near_csv("," if kind == "csv" else "\t"),
            lambda content: both(folder / f"log.{kind}", content),
        )
    elif kind == "jsonl":
        fuzz(count, near_json_lines(), lambda content: both(folder / "log.jsonl", content))
    elif kind in ("parquet", "arrow"):
        fuzz(
            count,
            damaged(whole(folder, kind)),
            lambda content: both(folder / f"log.{kind}", content),
        )
    elif kind == "typed":
        fuzz(count, odd_columns(), lambda columns: check_typed(folder, columns))
    else:
        fuzz(
            count,
            damaged(gzip.compress(whole(folder, "csv"))),
            lambda content: both(folder / "log.csv.gz", content),
        )


def check_typed(folder: Path, columns: dict[str, list[Any]]) -> None:
    write_table(columns, str(folder / "typed.parquet"))
    both(folder / "typed.parquet", (folder / "typed.parquet").read_bytes())


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_is_met_with_a_traceback(kind: str, tmp_path: Path) -> None:
    run_kind(kind, tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_of_very_many_is_met_with_a_traceback(kind: str, tmp_path: Path) -> None:
    run_kind(kind, tmp_path, MANY)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_damaged_model_is_met_with_a_traceback(tmp_path: Path, count: int) -> None:
    write_table(COLUMNS, str(tmp_path / "log.csv"))
    model = tmp_path / "m.unskew"
    CliRunner().invoke(
        main, ["train", str(tmp_path / "log.csv"), "--factors", "1", "-o", str(model)]
    )

    fuzz(
        count,
        damaged(model.read_bytes()),
        lambda content: invoke(model, content, "recommend", "FILE", "--json"),
    )
