"""Every model passes those of scikit-learn's own checks that do not need its arrays X and y."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import estimator_checks as checks
from sklearn.utils import get_tags

from unskew.models import RECOMMENDERS
from unskew.propensity import PROPENSITY_MODELS
from unskew.propensity.popularity import PopularityPropensity

CHECKS = (
    "check_no_attributes_set_in_init",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimator_repr",
    "check_estimator_cloneable",
    "check_valid_tag_types",
)
CLASSES = [
    declaration.target
    for registry in (RECOMMENDERS, PROPENSITY_MODELS)
    for declaration in registry.values()
]


def make(kind: type[Any]) -> Any:
    """A model with its defaults; wrappers get a model to wrap."""
    wrapped = PopularityPropensity()
    for arguments, settings in (
        ((), {}),
        ((wrapped,), {}),
        ((wrapped,), {"min_propensity": 0.1}),
        ((LogisticRegression(),), {}),
    ):
        try:
            return kind(*arguments, **settings)
        except TypeError:
            continue
    raise AssertionError(f"{kind.__name__} cannot be constructed")


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_it_passes_the_check(kind: type[Any], name: str) -> None:
    getattr(checks, name)(kind.__name__, make(kind))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_it_has_tags_and_a_nested_parameter_can_be_set(kind: type[Any]) -> None:
    model = make(kind)

    assert get_tags(model).input_tags.two_d_array is False
    nested = [name for name in model.get_params() if "__" in name]
    for name in nested:
        value = model.get_params()[name]
        assert clone(model).set_params(**{name: value}).get_params()[name] is value
