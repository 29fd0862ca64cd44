"""Settings of models: declared as dataclass fields, checked in one place, as scikit-learn has them.

    @dataclass(eq=False, repr=False)
    class MyModel(Configurable):
        n_factors: int = setting(20, WholeNumber(least=1))

A setting is an argument of the constructor and an attribute of the same name. Attributes that a
fit adds end in ``_``; annotate those in a base class that is not a dataclass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from html import escape
from numbers import Integral, Real
from typing import Any, Self, cast

import numpy as np

from unskew.errors import NotFittedError, UnknownNameError, UsageError
from unskew.tables import html_table
from unskew.types import RandomState

Check = Callable[[str, object], None]
"""Raises an error if the setting of this name cannot have this value."""


LARGEST = 2**63 - 1
MAX_SHOWN = 60
"""Characters of a value that an error shows."""


def setting(default: Any = MISSING, check: Check | None = None) -> Any:
    """A dataclass field with a default and a check of its value."""
    return field(default=default, metadata={} if check is None else {"check": check})


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """Accepts whole numbers from ``least`` on that int64 holds, and None if that is allowed."""

    least: int = 0
    allow_none: bool = False

    def __call__(self, name: str, value: object) -> None:
        if value is None and self.allow_none:
            return
        is_whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not is_whole or not self.least <= value <= LARGEST:  # type: ignore[operator]
            or_none = " or None" if self.allow_none else ""
            raise UsageError(
                f"`{name}` must be a whole number, at least {self.least}{or_none}; got "
                f"{describe(value)}.",
                parameter=name,
                value=value,
            )


@dataclass(frozen=True, slots=True)
class Number:
    """Accepts finite real numbers within the limits, and None or ``"auto"`` if that is allowed."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    allow_none: bool = False
    allow_infinity: bool = False
    allow_auto: bool = False

    def __call__(self, name: str, value: object) -> None:
        is_auto = self.allow_auto and isinstance(value, str) and value == "auto"
        if is_auto or (value is None and self.allow_none):
            return
        if self.allow_infinity and isinstance(value, float) and value == math.inf:
            return
        if not is_finite_number(value) or not self._is_inside(float(cast(float, value))):
            raise UsageError(
                f"`{name}` must be a finite number{self._describe_limits()}; got "
                f"{describe(value)}.",
                parameter=name,
                value=value,
            )

    def _is_inside(self, value: float) -> bool:
        return self.least <= value <= self.most and self.above < value < self.below

    def _describe_limits(self) -> str:
        limits = [
            f"{word} {limit:g}"
            for word, limit in (
                ("at least", self.least),
                ("above", self.above),
                ("at most", self.most),
                ("below", self.below),
            )
            if math.isfinite(limit)
        ]
        text = f", {' and '.join(limits)}" if limits else ""
        others = ["None"] * self.allow_none + ["'auto'"] * self.allow_auto
        return f"{text}, or {' or '.join(others)}" if others else text


def is_finite_number(value: object) -> bool:
    """Whether ``value`` is one real number that a float can hold, neither NaN nor infinite."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True, slots=True)
class OneOf:
    """Accepts one of a few names."""

    names: tuple[str, ...]

    def __call__(self, name: str, value: object) -> None:
        if not isinstance(value, str) or value not in self.names:
            raise UnknownNameError(name, value, self.names)


@dataclass(frozen=True, slots=True)
class Flag:
    """Accepts True and False, also those of NumPy."""

    def __call__(self, name: str, value: object) -> None:
        if not isinstance(value, bool | np.bool_):
            raise UsageError(
                f"`{name}` must be True or False; got {describe(value)}.",
                parameter=name,
                value=value,
            )


@dataclass(frozen=True, slots=True)
class Instance:
    """Accepts objects of a class, and None if that is allowed."""

    kind: type[Any]
    remedy: str = ""
    allow_none: bool = False

    def __call__(self, name: str, value: object) -> None:
        if isinstance(value, self.kind) or (value is None and self.allow_none):
            return
        article = "an" if self.kind.__name__[0] in "AEIO" else "a"
        has_lines = "\n" in repr(value)
        raise UsageError(
            f"`{name}` must be {article} {self.kind.__name__}; "
            f"got {type(value).__name__ if has_lines else describe(value)}.",
            parameter=name,
            value=value,
            remedy=self.remedy,
        )


def require_name(
    kind: str, name: object, valid: Iterable[str], *, parameter: str | None = None, remedy: str = ""
) -> None:
    """Raise an error unless ``name`` is one of the valid names; ``kind`` says what has them."""
    names = tuple(valid)
    if not isinstance(name, str) or name not in names:
        raise UnknownNameError(kind, name, names, parameter=parameter, remedy=remedy)


def require_list(name: str, value: object, *, of: str, allow_none: bool = True) -> None:
    """Raise an error unless ``value`` is a list or another sequence; ``of`` says of what."""
    if value is None and allow_none:
        return
    is_list = isinstance(value, Iterable) and not isinstance(value, bytes)
    if not is_list or (isinstance(value, np.ndarray) and value.ndim == 0):
        raise UsageError(
            f"`{name}` must be a list of {of}; got {describe(value)}.", parameter=name, value=value
        )


def describe(value: object) -> str:
    """A value in an error, cut if it is long.

    >>> describe("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def check_fields(record: Any) -> None:
    """Apply the checks that the fields of a dataclass declare; fields of bool have one anyway.

    Small NumPy integers become Python's, whose products do not overflow.
    """
    for each in fields(record):
        check = each.metadata.get("check", CHECKS_BY_TYPE.get(str(each.type)))
        if check is not None and hasattr(record, each.name):
            value = getattr(record, each.name)
            check(each.name, value)
            if isinstance(value, np.integer):
                object.__setattr__(record, each.name, int(value))


def check_random_state(name: str, value: object) -> None:
    """Accepts None, a whole number from 0 on, or a NumPy generator."""
    if value is not None and not isinstance(value, np.random.Generator):
        WholeNumber(least=0)(name, value)


def draw_seeds(random_state: RandomState, n: int = 1) -> list[int]:
    """The whole numbers from ``random_state`` on if it is one, else numbers drawn from it."""
    check_random_state("random_state", random_state)
    if isinstance(random_state, Integral):
        return [int(random_state) + k for k in range(n)]
    seeds: list[int] = np.random.default_rng(random_state).integers(1 << 31, size=n).tolist()
    return seeds


CHECKS_BY_TYPE: Mapping[str, Check] = {"bool": Flag()}
"""The check of a setting that declares none, by its annotated type."""


class Configurable:
    """A model whose settings are the arguments of its constructor: scikit-learn's protocol."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; with ``deep``, also those of models inside, as ``outer__inner``."""
        Flag()("deep", deep)
        settings = {name: getattr(self, name) for name in self._setting_defaults()}
        inner = {
            f"{name}__{key}": value
            for name, model in settings.items()
            if deep and _is_model(model)
            for key, value in model.get_params().items()
        }
        return settings | inner

    def set_params(self, **params: Any) -> Self:
        """Change settings by name; ``outer__inner`` changes a setting of a model inside.

        Inner settings go to a model set in the same call. An unknown name changes nothing.
        """
        plain, nested = _split_params(self, params)
        for name, value in plain.items():
            setattr(self, name, value)
        for name, inner in nested.items():
            getattr(self, name).set_params(**inner)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            input_tags=InputTags(two_d_array=False),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return bool(fitted_state(self))

    def __repr__(self) -> str:
        defaults = self._setting_defaults()
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if _differs(value, defaults[name])
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        settings = self.get_params(deep=False)
        facts = ", ".join(self._fit_facts()) if fitted_state(self) else "not fitted"
        table = html_table({"setting": list(settings), "value": [*map(repr, settings.values())]})
        return f"<p>{escape(type(self).__name__)}: {escape(facts)}</p>{table}"

    def _fit_facts(self) -> list[str]:
        """What a notebook shows about a fit."""
        return ["fitted"]

    def _check_settings(self) -> None:
        """Apply the check of every setting to its current value."""
        check_fields(self)

    def _find_inconsistency(self) -> str | None:
        """What is wrong with a fitted state that was read from a file; None if nothing is."""
        return None

    @classmethod
    def _setting_defaults(cls) -> dict[str, Any]:
        import inspect

        parameters = inspect.signature(cls).parameters
        return {name: parameter.default for name, parameter in parameters.items()}


def fitted_state(model: Configurable) -> dict[str, Any]:
    """The attributes that a fit added, by name: those that end in ``_``."""
    return {name: value for name, value in vars(model).items() if is_fitted_name(name)}


def is_fitted_name(name: str) -> bool:
    """Whether an attribute of this name is added by a fit."""
    return name.endswith("_") and not name.startswith("_")


def require_fitted(model: Configurable) -> None:
    """Raise an error if the model is not fitted."""
    if not fitted_state(model):
        raise NotFittedError(f"{model!r} is not fitted yet.", remedy="Call fit first.")


def unfitted_copy(model: Any) -> Any:
    """A new model with the same settings but not fitted; models inside are also copied."""
    settings = {
        name: unfitted_copy(value) if _is_model(value) else value
        for name, value in model.get_params(deep=False).items()
    }
    return type(model)(**settings)


def _split_params(
    model: Any, params: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The model's own settings, and by name those of models inside; an error if one is unknown."""
    settings = {name: value for name, value in model.get_params().items() if "__" not in name}
    plain: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in params.items():
        name, is_nested, inner = key.partition("__")
        if name not in settings:
            raise UnknownNameError("parameter", key, settings, parameter=key)
        if is_nested:
            nested.setdefault(name, {})[inner] = value
        else:
            plain[name] = value
    for name, inner_params in nested.items():
        inner_model = plain.get(name, settings[name])
        if not _is_model(inner_model):
            key = f"{name}__{next(iter(inner_params))}"
            raise UsageError(
                f"`{key}` cannot be set: `{name}` is {describe(inner_model)}, not a model.",
                parameter=key,
                remedy=f"Pass a model as `{name}` first.",
            )
        _split_params(inner_model, inner_params)
    return plain, nested


def _is_model(value: object) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)


def _differs(value: object, default: object) -> bool:
    return value is not default and (type(value) is not type(default) or bool(value != default))
