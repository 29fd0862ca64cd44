"""Public callables found by introspection, called with one or two wrong arguments."""

from __future__ import annotations

import os
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.targets import WRITTEN, Target, find_targets
from fuzz.values import LARGE, NEVER_VALID, TAKES_ANYTHING, list_hostile
from unskew.data.result import Result
from unskew.errors import UnskewError, UnskewWarning
from unskew.models.recommender import Recommender

PROCESSOR_SECONDS, SECONDS = 20, 300
"""A call that takes longer counts as slow. Other work of the machine uses no time of this process,
and a call that waits for ever uses none either.
"""


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
    """Results that have NaN, and values that no argument may have."""
    slow: Counter[str] = field(default_factory=Counter)
    unnamed: Counter[str] = field(default_factory=Counter)
    """Typed errors that do not name the parameter."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.tried + other.tried,
            self.typed + other.typed,
            self.named + other.named,
            self.finished + other.finished,
            self.raw + other.raw,
            self.silent + other.silent,
            self.slow + other.slow,
            self.unnamed + other.unnamed,
        )


class SlowCallError(BaseException):
    """A call took too long; no handler of errors may catch it."""


@contextmanager
def limit_time() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise SlowCallError

    before = [signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)]
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, before[0])
        signal.signal(signal.SIGPROF, before[1])


def try_calls(seed: int, n_calls: int, only: str = "") -> Tally:
    """Call random targets with one or two random wrong arguments."""
    rng = np.random.default_rng(seed)
    targets = [each for each in find_targets() if only in each.name and each.open_parameters]
    hostile, tally = list_hostile(), Tally()
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as null:
        before = Path.cwd()
        os.chdir(folder)
        try:
            with warnings.catch_warnings(), redirect_stdout(null), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                while tally.tried < n_calls:
                    _try_call(targets[rng.integers(len(targets))], rng, hostile, tally)
        finally:
            os.chdir(before)
            WRITTEN.unlink(missing_ok=True)
    return tally


def _try_call(
    target: Target, rng: np.random.Generator, hostile: dict[str, Any], tally: Tally
) -> None:
    keys = [key for key in hostile if key not in LARGE or target.name == "Ratings.from_codes"]
    n_wrong = min(1 + (rng.random() < 0.2), len(target.open_parameters))
    wrong = rng.choice(target.open_parameters, n_wrong, replace=False).tolist()
    chosen = {name: keys[rng.integers(len(keys))] for name in wrong}
    if target.name.startswith("datasets.") and {"None", "empty text"} & set(chosen.values()):
        return  # would download the files
    if target.name.endswith("rank_learners") and chosen.get("learners") == "None":
        return  # fits every declared learner
    described = f"{target.name}({', '.join(f'{name}={key}' for name, key in chosen.items())})"
    tally.tried += 1
    try:
        with limit_time(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = target.run(**{name: hostile[key] for name, key in chosen.items()})
            result = list(result) if isinstance(result, Generator) else result
    except UnskewError as error:
        _count_typed_error(error, chosen, described, tally)
    except SlowCallError:
        tally.slow[described] += 1
    except MemoryError:
        pass
    except Exception as error:
        tally.raw[f"{_find_place(error)}: {type(error).__name__}: {described}"] += 1
    else:
        tally.finished += 1
        has_warned = any(issubclass(each.category, UnskewWarning) for each in caught)
        if not is_finite(result) or (is_never_valid(target, chosen) and not has_warned):
            tally.silent[described] += 1


def _count_typed_error(
    error: UnskewError, chosen: dict[str, str], described: str, tally: Tally
) -> None:
    tally.typed += 1
    text = f"{error.parameter} {error}"
    if any(name in text for name in chosen):
        tally.named += 1
    else:
        tally.unnamed[f"{type(error).__name__}: {described}: {str(error)[:150]}"] += 1


def is_never_valid(target: Target, chosen: dict[str, str]) -> bool:
    """Whether a value was accepted that no parameter of this kind may have."""
    return any(
        key in NEVER_VALID
        and (target.name.rpartition(".")[2], name) not in TAKES_ANYTHING
        and ("", name) not in TAKES_ANYTHING
        for name, key in chosen.items()
    )


def _find_place(error: Exception) -> str:
    """The last line of this package that the error went through."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/unskew/" in frame.filename] or frames
    return f"{own[-1].filename.rpartition('/unskew/')[2]}:{own[-1].lineno}"


def is_finite(result: object) -> bool:
    """False for numbers, arrays and fitted models with NaN, which nobody asked for."""
    if isinstance(result, float | np.floating):
        return not np.isnan(result)
    if isinstance(result, np.ndarray) and result.dtype.kind == "f":
        return not np.isnan(result).any()
    if isinstance(result, Recommender) and hasattr(result, "users_"):
        pairs = result.users_[:2], result.items_[:2]
        return bool(np.isfinite(result.predict(*pairs, on_unknown="fallback")).all())
    if isinstance(result, Result):
        return "NaN" not in result.to_json()
    return True
