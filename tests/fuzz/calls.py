"""Public callables found by introspection, called with one or two wrong arguments."""

from __future__ import annotations

import inspect
import os
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import unskew
from fuzz.values import list_hostile, list_valid, make_log
from unskew.data.result import Result
from unskew.errors import UnskewError
from unskew.models.preset import Preset
from unskew.models.recommender import Recommender
from unskew.propensity.model import PropensityModel

SECONDS = 20
"""A call that takes longer counts as hanging."""
METHODS = ("fit", "predict", "recommend", "scorer", "save", "set_params", "fit_frame", "count_seen")
SAVED = Path(tempfile.gettempdir()) / f"unskew-fuzz-{os.getpid()}.unskew"
LARGE = {"2147483648", "9223372036854775808", "large pair"}
"""Counts that ask for more work than there is time or memory; left to tests of their own."""
RECORDS = frozenset(
    "Estimate Interval Sums SumSpec Delta MetricInput Risk Robustness DiagnosisRow SamplePlan "
    "Watch SpecificationTest Observation Simulation ImpressionSimulation Imputation Risk "
    "ListDescription Recommendations CM100K Coat Jester MovieLens100K YahooR3 Learner Preset "
    "PolicyEvaluation PolicySensitivity".split()
)
"""Classes that the library builds; users read them."""


@dataclass(frozen=True, slots=True)
class Target:
    """A callable, and the arguments of a call that works or nearly works."""

    name: str
    call: Callable[..., Any]
    arguments: dict[str, Any]
    open_parameters: tuple[str, ...]
    """Parameters whose values are replaced."""
    positional: tuple[str, ...] = ()


@cache
def find_targets() -> tuple[Target, ...]:
    """Every public function, constructor and method of models, by introspection."""
    targets = [*_find_in(unskew, "")]
    for name in dir(unskew):
        module = getattr(unskew, name)
        if isinstance(module, ModuleType) and name not in ("errors", "engines", "datasets"):
            targets += _find_in(module, f"{name}.")
    return tuple({target.name: target for target in targets}.values())


def _find_in(module: ModuleType, prefix: str) -> Iterator[Target]:
    for name in module.__all__:
        thing = getattr(module, name)
        if name in RECORDS or isinstance(thing, ModuleType) or not callable(thing):
            continue
        if isinstance(thing, Preset) or _is_model(thing):
            yield from _find_model_targets(f"{prefix}{name}", thing)
        elif isinstance(thing, type) and issubclass(thing, Result):
            continue
        elif not (isinstance(thing, type) and inspect.isabstract(thing)):
            if "RequestColumns" not in str(inspect.signature(thing)):  # the library's own
                yield _make_target(f"{prefix}{name}", thing)
            if isinstance(thing, type):
                yield from _find_class_methods(f"{prefix}{name}", thing)


def _is_model(thing: object) -> bool:
    return (
        isinstance(thing, type)
        and issubclass(thing, Recommender | PropensityModel)
        and not inspect.isabstract(thing)
        and thing is not PropensityModel
    )


def _find_class_methods(name: str, kind: type) -> Iterator[Target]:
    for method, value in vars(kind).items():
        if isinstance(value, classmethod) and not method.startswith("_"):
            yield _make_target(f"{name}.{method}", getattr(kind, method))


def _find_model_targets(name: str, kind: Any) -> Iterator[Target]:
    """A fit with other settings, and the methods of a fitted model."""
    yield _make_target(name, _fit_with_settings(kind), signature=inspect.signature(kind))
    fitted = _fit(kind)
    for method in METHODS:
        if fitted is not None and hasattr(fitted, method):
            bound = getattr(_fit(kind) if method in ("fit", "fit_frame") else fitted, method)
            yield _make_target(f"{name}.{method}", bound)


def _fit_with_settings(kind: Any) -> Callable[..., Any]:
    def fit(**settings: Any) -> Any:
        model = kind(**settings)
        return _call_fit(model)

    return fit


def _fit(kind: Any) -> Any:
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"max_iter": 3} if "max_iter" in inspect.signature(kind).parameters else {}
        return _call_fit(kind(**settings))
    return None


def _call_fit(model: Any) -> Any:
    parameters = inspect.signature(model.fit).parameters
    given = {
        name: value
        for name, value in list_valid().items()
        if name in parameters and name in ("propensities", "mcar", "universe")
    }
    return model.fit(make_log(), **given)


def _make_target(name: str, call: Any, signature: inspect.Signature | None = None) -> Target:
    parameters = (signature or inspect.signature(call)).parameters
    valid = list_valid() | {"path": SAVED}
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [key for key, parameter in parameters.items() if parameter.kind not in kinds]
    arguments = {
        key: valid.get(key, valid["values"])
        for key in names
        if parameters[key].default is inspect.Parameter.empty
        or (key in ("propensities", "universe", "mcar") and ".load" not in name)
    }
    only = inspect.Parameter.POSITIONAL_ONLY
    positional = tuple(key for key in names if parameters[key].kind is only)
    return Target(name, call, arguments, tuple(names), positional)


@dataclass
class Tally:
    """What happened, how often, and where."""

    tried: int = 0
    typed: int = 0
    named: int = 0
    """Typed errors whose record or message names the parameter that was wrong."""
    finished: int = 0
    raw: Counter[str] = field(default_factory=Counter)
    silent: Counter[str] = field(default_factory=Counter)
    slow: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.tried + other.tried,
            self.typed + other.typed,
            self.named + other.named,
            self.finished + other.finished,
            self.raw + other.raw,
            self.silent + other.silent,
            self.slow + other.slow,
        )


class SlowCallError(Exception):
    """A call took longer than :data:`SECONDS`."""


@contextmanager
def limit_time(seconds: int = SECONDS) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise SlowCallError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def try_calls(seed: int, n_calls: int, only: str = "") -> Tally:
    """Call random targets with one or two random wrong arguments."""
    rng = np.random.default_rng(seed)
    targets = [target for target in find_targets() if only in target.name]
    hostile, tally = list_hostile(), Tally()
    keys = list(hostile)
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as null:
        before = Path.cwd()
        os.chdir(folder)
        try:
            with warnings.catch_warnings(), redirect_stdout(null), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                for _ in range(n_calls):
                    target = targets[rng.integers(len(targets))]
                    if target.open_parameters:
                        _try_call(target, rng, keys, hostile, tally)
        finally:
            os.chdir(before)
            SAVED.unlink(missing_ok=True)
    return tally


def _try_call(
    target: Target,
    rng: np.random.Generator,
    keys: list[str],
    hostile: dict[str, Any],
    tally: Tally,
) -> None:
    n_wrong = min(1 + (rng.random() < 0.2), len(target.open_parameters))
    wrong = dict.fromkeys(rng.choice(target.open_parameters, n_wrong, replace=False).tolist())
    chosen = {name: keys[rng.integers(len(keys))] for name in wrong}
    if any(key in LARGE for key in chosen.values()) and target.name != "Ratings.from_codes":
        return
    arguments = target.arguments | {name: hostile[key] for name, key in chosen.items()}
    described = f"{target.name}({', '.join(f'{name}={key}' for name, key in chosen.items())})"
    tally.tried += 1
    try:
        with limit_time():
            result = target.call(*[arguments.pop(name) for name in target.positional], **arguments)
    except UnskewError as error:
        tally.typed += 1
        text = f"{error.parameter} {error}"
        tally.named += any(name in text for name in chosen)
        return
    except SlowCallError:
        tally.slow[described] += 1
        return
    except MemoryError:
        return
    except Exception as error:
        tally.raw[f"{_find_place(error)}: {type(error).__name__}: {described}"] += 1
        return
    tally.finished += 1
    if not _is_finite(result):
        tally.silent[described] += 1


def _find_place(error: Exception) -> str:
    """The last line of this package that the error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/unskew/" in frame.filename] or frames
    return f"{own[-1].filename.rpartition('/unskew/')[2]}:{own[-1].lineno}"


def _is_finite(result: object) -> bool:
    """False for numbers or arrays with NaN, which nobody asked for."""
    if isinstance(result, float | np.floating):
        return not np.isnan(result)
    if isinstance(result, np.ndarray) and result.dtype.kind == "f":
        return not np.isnan(result).any()
    return True
