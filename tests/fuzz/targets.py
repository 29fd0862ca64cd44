"""Public callables, found by introspection, each with the arguments of a call that works."""

from __future__ import annotations

import copy
import inspect
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import unskew
from fuzz.objects import (
    FIT_ARGUMENTS,
    MAKERS,
    find_saved_file,
    fit_model,
    make_evaluation,
    make_object,
    make_settings,
)
from fuzz.values import find_valid, is_valid_of, make_shown
from unskew.data.result import Result
from unskew.models.recommender import Preset
from unskew.policies.targets import Policy
from unskew.settings import Configurable

WRITTEN = Path(tempfile.gettempdir()) / f"unskew-fuzz-{os.getpid()}.csv"
FOR_AUTHORS = frozenset(
    "Delta Estimate Interval Learner MetricInput Metric ObservationModel Preset Risk SumSpec Sums "
    "Estimator Imputation DiagnosisRow SpecificationTest PropensityModel Recommender "
    "FactorRecommender DistributionRecommender".split()
)
"""Records that the library fills and users only read, and protocols of extensions."""
EXTENSION_METHODS = frozenset(
    "add_to_frame bind can_fix_sums describe_frame draw_clicks estimate expect_clicks from_sums "
    "get largest_weights relative_propensities sums_needed scorer warn from_plan".split()
)
"""Methods that the library calls with arguments that it has checked."""
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Target:
    """A callable, and the arguments of a call that works."""

    name: str
    call: Callable[..., Any]
    arguments: dict[str, Any]
    open_parameters: tuple[str, ...]
    """Parameters whose values are replaced."""
    positional: tuple[str, ...] = ()

    def run(self, **replaced: Any) -> Any:
        """Call with the arguments that work, of which some are replaced."""
        arguments = self.arguments | replaced
        return self.call(*[arguments.pop(name) for name in self.positional], **arguments)


def find_public() -> Iterator[tuple[str, Any]]:
    """Every public function and class, once, by its shortest name."""
    known: set[int] = set()
    packages = [name for name in unskew.__all__ if _is_package(name)]
    for package in ("", *packages):
        module = getattr(unskew, package) if package else unskew
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing) and not isinstance(thing, ModuleType) and id(thing) not in known:
                known.add(id(thing))
                yield f"{package}.{name}" if package else name, thing


def _is_package(name: str) -> bool:
    """Engines need a GPU or a cluster; errors are not called."""
    return isinstance(getattr(unskew, name), ModuleType) and name not in ("engines", "errors")


@cache
def find_targets() -> tuple[Target, ...]:
    """Every public function, constructor and method."""
    return tuple(
        target for name, thing in find_public() for target in _find_targets_of(name, thing)
    )


def is_left_out(name: str, thing: Any) -> bool:
    """Whether users never call this: records, protocols, and functions of terms of policies."""
    if name.rpartition(".")[2] in FOR_AUTHORS:
        return True
    is_function = not isinstance(thing, type | Preset)
    return is_function and "RequestColumns" in str(inspect.signature(thing))


def _find_targets_of(name: str, thing: Any) -> Iterator[Target]:
    if is_left_out(name, thing):
        return
    if isinstance(thing, Preset):
        yield _make_fit_target(name, thing)
    elif isinstance(thing, type) and issubclass(thing, Policy):
        yield _make_policy_target(name, thing)
    elif not isinstance(thing, type):
        yield _make_target(name, thing)
    elif issubclass(thing, Configurable):
        if not inspect.isabstract(thing) and callable(getattr(thing, "fit", None)):
            yield _make_fit_target(name, thing)
            yield from _find_methods(name, thing)
    else:
        if not issubclass(thing, Result) and not is_record_of_library(name):
            yield _make_target(name, thing)
        yield from _find_methods(name, thing)


def is_record_of_library(name: str) -> bool:
    """Classes that only the library builds."""
    return name in ("simulation.Simulation", "simulation.Observation") or (
        name.startswith("datasets.") or name.endswith("ImpressionSimulation")
    )


def _make_fit_target(name: str, kind: Any) -> Target:
    """A fit of a model with other settings."""
    parameters = inspect.signature(kind).parameters

    def fit(**settings: Any) -> Any:
        return fit_model(name, kind, **settings)

    return Target(name, fit, make_settings(name, parameters), tuple(parameters))


def _make_policy_target(name: str, kind: Any) -> Target:
    """An evaluation of a policy: it is checked when it is bound to a log."""

    def evaluate(**settings: Any) -> Any:
        return unskew.evaluate_policies(make_shown(), {"new": kind(**settings)})

    return _make_target(name, evaluate, inspect.signature(kind))


def _find_methods(name: str, kind: type) -> Iterator[Target]:
    """Class methods, and methods of an object of the class."""
    for method in dir(kind):
        attribute = inspect.getattr_static(kind, method)
        if method.startswith("_") or method in EXTENSION_METHODS:
            continue
        if isinstance(attribute, classmethod):
            yield _make_target(f"{name}.{method}", getattr(kind, method))
        elif inspect.isfunction(attribute) and _has_object(name, kind):
            yield _make_method_target(name, kind, method)


def _has_object(name: str, kind: type) -> bool:
    return name.rpartition(".")[2] in MAKERS or issubclass(kind, Configurable)


def _make_method_target(name: str, kind: type, method: str) -> Target:
    thing = make_object(name, kind)

    def call(*arguments: Any, **named: Any) -> Any:
        """Call the method of a copy, because some methods change their object."""
        return getattr(copy.copy(thing), method)(*arguments, **named)

    signature = inspect.signature(getattr(thing, method))
    return _make_target(f"{name}.{method}", call, signature)


def _make_target(name: str, call: Any, signature: inspect.Signature | None = None) -> Target:
    parameters = (signature or inspect.signature(call)).parameters
    names = [key for key, each in parameters.items() if each.kind not in VARIADIC]
    arguments = {
        key: _find_argument(name, key)
        for key in names
        if parameters[key].default is inspect.Parameter.empty or _is_passed(name, key)
    }
    only = inspect.Parameter.POSITIONAL_ONLY
    positional = tuple(key for key in names if parameters[key].kind is only)
    return Target(name, call, arguments, tuple(names), positional)


def _is_passed(name: str, parameter: str) -> bool:
    """Whether a call that works passes this parameter, although it has a default."""
    if name.endswith(".fit") or parameter == "path":
        return parameter in (*FIT_ARGUMENTS, "path")
    return is_valid_of(name, parameter)


def _find_argument(name: str, parameter: str) -> Any:
    if parameter == "evaluation":
        return make_evaluation()
    if parameter == "run":
        return RecordedRun()
    if parameter != "path":
        return find_valid(name, parameter)
    if name.startswith("datasets."):
        return Path("no such folder")
    if name.endswith("load"):
        return find_saved_file("monitor" if "Monitor" in name else "model")
    return WRITTEN


class RecordedRun:
    """Stands for a run of Weights & Biases, and stores nothing."""

    __name__ = "wandb"

    def log(self, numbers: dict[str, float]) -> None: ...

    def log_artifact(self, path: str, **settings: str) -> None: ...
