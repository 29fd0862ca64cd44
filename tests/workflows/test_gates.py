from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unskew.errors import GateError, UsageError
from unskew.workflows.gates import Gate, Numbers, check_gates, require_passed

NUMBERS: Numbers = {
    "snips.mae.ci_high": {"old": 0.9, "new": 0.7},
    "ess": {"the log": 500.0},
    "log_loss": {"old": None, "new": float("nan")},
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("snips.mae.ci_high>0.8", ["snips.mae.ci_high>0.8 is true for old, whose value is 0.9"]),
        (
            "snips.mae.ci_high > 0.6",
            [
                "snips.mae.ci_high > 0.6 is true for old, whose value is 0.9",
                "snips.mae.ci_high > 0.6 is true for new, whose value is 0.7",
            ],
        ),
        ("snips.mae.ci_high.new>0.8", []),
        (
            "snips.mae.ci_high.old>=.9",
            ["snips.mae.ci_high.old>=.9 is true for old, whose value is 0.9"],
        ),
        ("ess<1e3", ["ess<1e3 is true for the log, whose value is 500"]),
        ("ess<=-1", []),
        ("ess==500", ["ess==500 is true for the log, whose value is 500"]),
        ("ess!=500", []),
    ],
)
def test_a_gate_says_which_number_tripped_it(text: str, said: list[str]) -> None:
    assert list(Gate.parse(text).find_violations(NUMBERS)) == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ess",
        "ess<",
        "<3",
        "ess<ess",
        "ess<1;x",
        "ess=3",
        "__import__('os')",
        "ess<1 and ess>2",
        "ess<nan",
    ],
)
def test_anything_else_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"a limit must be NAME<NUMBER|unknown number"):
        list(Gate.parse(text).find_violations(NUMBERS))


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(
        UsageError,
        match=r"unknown number 'snips\.mae\.upper'.*"
        r"valid names are: snips\.mae\.ci_high, ess, log_loss\. Add \.old or \.new",
    ):
        check_gates([Gate.parse("snips.mae.upper>1")], NUMBERS)


def test_a_model_may_be_judged_in_groups() -> None:
    grouped: Numbers = {
        "snips.mae.ci_high": {
            "old where g is 'a'": 0.9,
            "old where g is 'b'": 0.7,
            "new where g is 'a'": 0.9,
        }
    }

    assert check_gates([Gate.parse("snips.mae.ci_high.old>0.8")], grouped) == (
        "snips.mae.ci_high.old>0.8 is true for old where g is 'a', whose value is 0.9",
    )


@pytest.mark.parametrize("model", ["old", "new"])
def test_a_number_that_was_not_measured_never_passes(model: str) -> None:
    with pytest.raises(
        UsageError,
        match=rf"cannot be tested: .* of {model} was not measured\. "
        r"Numbers that were measured are: snips\.mae\.ci_high, ess\.",
    ):
        check_gates([Gate.parse(f"log_loss.{model}<0")], NUMBERS)


def test_tripped_gates_are_one_error() -> None:
    require_passed(())
    with pytest.raises(GateError, match="a; b"):
        require_passed(("a", "b"))


@given(text=st.text("essnip.<>=!0123456789()_'\" ", max_size=20))
def test_no_text_does_anything_but_parse(text: str) -> None:
    with suppress(UsageError):
        check_gates([Gate.parse(text)], NUMBERS)
