"""What the declarations of propensity models say is true of their classes."""

from __future__ import annotations

import re
from inspect import Parameter, signature
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import unskew.propensity
from unskew.errors import UsageError
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.model import PropensityModel
from unskew.propensity.popularity import UniformPropensity
from unskew.propensity.wrapper import PropensityWrapper

TRAITS = {
    *("sees_ratings", "needs_mcar", "takes_features", "needs_features"),
    *("learns_users", "is_wrapper", "has_code"),
}
REQUIRED = {
    "model": UniformPropensity(),
    "min_propensity": 0.1,
    "estimator": DecisionTreeClassifier(),
}
each_model = pytest.mark.parametrize("name", list(PROPENSITY_MODELS))


def build(name: str) -> PropensityModel:
    """The model with default settings, and something for each required one."""
    target = PROPENSITY_MODELS[name].target
    parameters = signature(target).parameters.items()
    required = [key for key, parameter in parameters if parameter.default is Parameter.empty]
    return target(**{key: REQUIRED[key] for key in required})


def test_names_that_users_type() -> None:
    assert set(PROPENSITY_MODELS) == {
        *("uniform", "popularity", "nb", "logistic", "boosted", "classifier", "onebit", "poisson"),
        *("clipped", "scaled", "calibrated", "cross_fitted", "raked"),
    }
    assert PROPENSITY_MODELS.find("naive_bayes").name == "nb"


@each_model
def test_the_class_is_exported(name: str) -> None:
    target = PROPENSITY_MODELS[name].target

    assert getattr(unskew.propensity, target.__name__) is target
    assert issubclass(target, PropensityModel)


@each_model
def test_traits_are_those_of_the_class(name: str) -> None:
    declaration, model = PROPENSITY_MODELS[name], build(name)
    has = declaration.traits.get

    assert declaration.traits.keys() <= TRAITS
    assert bool(has("sees_ratings")) == model.sees_ratings
    assert bool(has("learns_users")) == model.learns_users
    assert bool(has("is_wrapper")) == isinstance(model, PropensityWrapper)
    assert bool(has("takes_features")) == hasattr(model, "user_features")


@each_model
def test_needed_data_are_named_in_the_error(name: str) -> None:
    log = unskew.Ratings.from_dense(np.eye(4, 3))
    traits, model = PROPENSITY_MODELS[name].traits, build(name)

    if traits.get("needs_mcar"):
        with pytest.raises(UsageError, match="mcar"):
            model.fit(log)
    if traits.get("needs_features"):
        with pytest.raises(UsageError, match="user_features"):
            model.fit(log)


@each_model
def test_random_states_of_all_kinds_are_accepted(name: str) -> None:
    model = build(name)
    if "random_state" in model.get_params(deep=False):
        for random_state in (None, 3, np.random.default_rng(0)):
            model.set_params(random_state=random_state)._check_settings()
        with pytest.raises(UsageError, match="random_state must be a whole number"):
            model.set_params(random_state=-1)._check_settings()


def test_the_table_of_the_documentation_lists_all_models() -> None:
    page = (Path(__file__).parents[2] / "docs" / "propensities.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, flags=re.MULTILINE))

    models = {
        (declaration.target.__name__, name)
        for name, declaration in PROPENSITY_MODELS.items()
        if not declaration.traits.get("is_wrapper")
    }
    assert rows == models
    for declaration in PROPENSITY_MODELS.values():
        assert f"{declaration.target.__name__}" in page
