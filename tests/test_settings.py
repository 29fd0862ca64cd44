"""Settings follow scikit-learn's protocol, and are checked in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from unskew import MatrixFactorization, Ratings
from unskew.errors import NotFittedError, UnknownNameError, UsageError
from unskew.settings import (
    Configurable,
    Flag,
    Instance,
    Number,
    OneOf,
    WholeNumber,
    check_random_state,
    require_fitted,
    setting,
)


@dataclass(eq=False, repr=False)
class Inner(Configurable):
    depth: int = setting(2, WholeNumber(least=1))


@dataclass(eq=False, repr=False)
class Outer(Configurable):
    rate: float = setting(0.5, Number(above=0, most=1))
    mode: str = setting("slow", OneOf(("slow", "fast")))
    inner: Inner | None = None
    random_state: Any = setting(0, check_random_state)


def test_parameters_of_inner_models_have_nested_names() -> None:
    model = Outer(inner=Inner(3))

    assert model.get_params(deep=False).keys() == {"rate", "mode", "inner", "random_state"}
    assert model.get_params()["inner__depth"] == 3
    assert model.set_params(inner__depth=5, rate=0.1) is model
    assert (model.inner.depth, model.rate) == (5, 0.1)  # type: ignore[union-attr]
    with pytest.raises(UnknownNameError, match="unknown parameter 'rat'"):
        model.set_params(rat=1)


def test_inner_settings_are_those_of_a_model_set_in_the_same_call() -> None:
    old, new = Inner(3), Inner(4)
    model = Outer(inner=old).set_params(inner__depth=5, inner=new)

    assert model.inner is new
    assert (old.depth, new.depth) == (3, 5)


@pytest.mark.parametrize("wrong", [{"rat": 1}, {"inner__width": 1}, {"mode__depth": 1}])
def test_an_unknown_setting_changes_nothing(wrong: dict[str, Any]) -> None:
    inner = Inner(3)
    model = Outer(inner=inner)

    with pytest.raises(UsageError):
        model.set_params(rate=0.1, inner__depth=9, **wrong)
    assert (model.rate, model.inner, inner.depth) == (0.5, inner, 3)


def test_a_setting_that_is_no_model_has_no_settings() -> None:
    match = "inner__depth cannot be set: inner is None, not a model. Pass a model as inner first"
    with pytest.raises(UsageError, match=match):
        Outer().set_params(inner__depth=3)


def test_only_changed_settings_are_shown() -> None:
    assert repr(Outer()) == "Outer()"
    assert repr(Outer(rate=0.25, inner=Inner(1))) == "Outer(rate=0.25, inner=Inner(depth=1))"


def test_scikit_learn_clones_it() -> None:
    model = Outer(rate=0.25, inner=Inner(7))
    again = clone(model)

    assert repr(again) == repr(model)
    assert again.inner is not model.inner


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": 0}, r"rate must be a finite number, above 0 and at most 1; got 0\."),
        ({"rate": float("nan")}, "rate must be a finite number"),
        ({"rate": "a"}, "rate must be a finite number"),
        ({"mode": "quick"}, "unknown value 'quick' of mode; valid values are: slow, fast"),
        ({"random_state": -1}, "random_state must be a whole number, at least 0; got -1"),
        ({"random_state": True}, "random_state must be a whole number"),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Outer(**settings)._check_settings()


def test_right_settings_pass() -> None:
    Outer(rate=1, random_state=np.random.default_rng(0))._check_settings()
    Outer(random_state=None)._check_settings()


def test_what_a_fit_adds_ends_in_an_underscore() -> None:
    model = Outer()
    with pytest.raises(NotFittedError, match=r"Outer\(\) is not fitted yet\. Call fit first\."):
        require_fitted(model)
    model.mean_ = 3.0  # type: ignore[attr-defined]

    require_fitted(model)


@pytest.mark.parametrize("value", [1, 0, "yes", None, np.ones(2)], ids=str)
def test_flags_are_true_or_false(value: object) -> None:
    with pytest.raises(UsageError, match="verbose must be True or False; got"):
        Flag()("verbose", value)
    Flag()("verbose", np.bool_(True))


def test_fields_of_bool_are_flags() -> None:
    model = MatrixFactorization(2, verbose="no")  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="verbose must be True or False; got 'no'"):
        model.fit(Ratings.from_arrays([1], [1], [1]))


def test_an_instance_of_another_class_is_refused() -> None:
    with pytest.raises(UsageError, match=r"grid must be a dict; got 3\. Pass a dict"):
        Instance(dict, remedy="Pass a dict.")("grid", 3)
    Instance(dict, allow_none=True)("grid", None)


def test_whole_numbers_fit_into_64_bits() -> None:
    WholeNumber()("k", 2**63 - 1)
    with pytest.raises(UsageError, match=r"k must be a whole number, .*; got 1000000\d+\.\.\."):
        WholeNumber()("k", 10**400)


def test_long_values_are_cut_in_errors() -> None:
    with pytest.raises(UsageError) as caught:
        Number()("l2", "x" * 10_000)

    assert len(str(caught.value)) < 200
