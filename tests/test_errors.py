"""Errors and warnings are records that become text for Python or for the shell."""

from __future__ import annotations

import pickle
import warnings

import pytest

from unskew import errors
from unskew.errors import (
    ConvergenceWarning,
    MissingExtraError,
    NotFittedError,
    UniverseError,
    UnknownIdError,
    UnknownNameError,
    UnskewError,
    UnskewWarning,
    UsageError,
)

ERROR = UniverseError(
    "'ips' needs the number of all cells.",
    parameter="universe",
    value=None,
    where="row 3",
    remedy="Pass `universe=(n_users, n_items)` or leave `level` alone.",
)


def test_python_shows_arguments_as_keywords() -> None:
    assert str(ERROR) == (
        "'ips' needs the number of all cells. "
        "Pass universe=(n_users, n_items) or leave level alone."
    )


def test_the_shell_shows_the_same_arguments_as_options() -> None:
    text = ERROR.render(
        format_argument=lambda name, value: f"--{name}" + (f" {value}" if value else "")
    )

    assert text.endswith("Pass --universe (n_users, n_items) or leave --level alone.")


def test_a_remedy_can_be_different_on_the_command_line() -> None:
    error = UsageError("no ratings.", remedy="Call f().", shell_remedy="Check the file.")

    assert str(error) == "no ratings. Call f()."
    assert error.render(for_shell=True) == "no ratings. Check the file."


def test_fields_can_be_read() -> None:
    assert (ERROR.parameter, ERROR.value, ERROR.where) == ("universe", None, "row 3")
    assert ERROR.problem == "'ips' needs the number of all cells."


@pytest.mark.parametrize(
    "error",
    [
        ERROR,
        UnknownNameError("metric", "mes", ["mse", "mae"]),
        MissingExtraError("torch", extra="gpu", purpose="engine='gpu'"),
        UnknownIdError("user 7 is unknown.", remedy="Drop it."),
        NotFittedError("MF() is not fitted yet.", remedy="Call fit first."),
        ConvergenceWarning("stopped early.", remedy="Raise `max_iter`."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_pickled_message_comes_back_whole(error: errors.Message) -> None:
    again = pickle.loads(pickle.dumps(error))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_an_unknown_name_suggests_the_nearest() -> None:
    text = str(UnknownNameError("metric", "mes", ["mse", "mae"], parameter="metrics"))

    assert text == "unknown metric 'mes'; valid names are: mse, mae. Did you mean 'mse'?"


def test_an_unknown_name_says_that_there_are_no_valid_ones() -> None:
    text = str(UnknownNameError("column of the log", "p", [], remedy="Add it."))

    assert text == "unknown column of the log 'p'; valid names are: none. Add it."


def test_the_parameter_of_an_unknown_name_is_an_argument() -> None:
    of_parameter = UnknownNameError("normalize", "selff", ["self", "none"])
    assert of_parameter.parameter == "normalize"
    assert str(of_parameter).startswith(
        "unknown value 'selff' of normalize; valid values are: self"
    )
    assert UnknownNameError("metric of this evaluation", "mes", ["mse"]).parameter is None
    assert UnknownNameError("solver for log loss", "cg", ["als"], parameter="solver").parameter == (
        "solver"
    )


def test_the_tree_in_the_documentation_lists_every_class() -> None:
    classes = {
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, (UnskewError, UnskewWarning))
    }

    assert errors.__doc__ is not None
    assert {name for name in classes if name not in errors.__doc__} == set()


def test_warnings_are_records_too() -> None:
    with pytest.warns(ConvergenceWarning, match=r"stopped early\. Raise max_iter\."):
        warnings.warn(
            ConvergenceWarning("stopped early.", remedy="Raise `max_iter`."), stacklevel=1
        )


def test_control_characters_of_strangers_are_written_out() -> None:
    error = UsageError("no \x1b[31mmodel\u202e\nsecond line", remedy="Try \x07.")

    assert str(error) == "no \\x1b[31mmodel\\u202e\nsecond line Try \\x07."
